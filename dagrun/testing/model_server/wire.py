"""The parts that all wire formats share: events, the protocols, and the errors of OpenAI."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from dagrun.testing.model_server.calls import RecordedCall
from dagrun.testing.model_server.script import Break, ModelAnswer


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream (SSE).

    Attributes:
        data: The data, sent as JSON; a text is sent unchanged.
        name: The name on its ``event:`` line; `None` for no such line.
    """

    data: Mapping[str, Any] | str
    name: str | None = None

    def encode(self) -> bytes:
        """Encode the event for the wire."""
        data = self.data if isinstance(self.data, str) else compact(self.data)
        head = "" if self.name is None else f"event: {self.name}\n"
        return f"{head}data: {data}\n\n".encode()

    def broken(self) -> ServerSentEvent:
        """Return the event with only the first half of its JSON."""
        data = self.data if isinstance(self.data, str) else compact(self.data)
        return ServerSentEvent(data[: len(data) // 2], self.name)


class Wire(Protocol):
    """Writes one answer to one call. Each answer needs an object of its own, because events are numbered.

    A stream consists of ``opening``, a ``piece`` for each piece of the text, and ``closing``.
    """

    def opening(self) -> Iterator[ServerSentEvent]:
        """Write the events before the text."""
        ...

    def piece(self, text: str) -> ServerSentEvent:
        """Write a piece of the text."""
        ...

    def closing(self) -> Iterator[ServerSentEvent]:
        """Write the events after the text."""
        ...

    def failing(self, fault: Break) -> Iterator[ServerSentEvent]:
        """Write an error in the middle of the answer."""
        ...

    def whole(self) -> Mapping[str, Any]:
        """Write the answer to a call that is not streamed."""
        ...

    def failed(self, fault: Break) -> Mapping[str, Any] | None:
        """Write a failed answer with status 200, not streamed; `None` if the API has none."""
        ...


class ErrorDialect(Protocol):
    """Errors and lists of models, in the words of one provider."""

    def error(self, status: int, message: str | None, code: str | None, param: str | None) -> Mapping[str, Any]:
        """Write the body of an HTTP error; `None` means the usual value of the status."""
        ...

    def unsupported(self, call: RecordedCall) -> tuple[str, str]:
        """Return the message and the parameter for a structure that is not supported."""
        ...

    def models(self, names: tuple[str, ...]) -> Mapping[str, Any]:
        """Write the list of models."""
        ...


def compact(value: object) -> str:
    """Write JSON as the providers do: on one line, with characters beyond ASCII unescaped."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def listed(value: object) -> list[Any]:
    """Return *value* if it is a list, or else an empty list."""
    return value if isinstance(value, list) else []


def tool_called(call: RecordedCall, answer: ModelAnswer) -> str | None:
    """Return the tool whose arguments the text is; `None` for plain text."""
    return None if answer.stop == "refused" else answer.tool or call.tool


# For each status, its usual type, code and message.
_USUAL: Mapping[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "The request could not be understood."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: (
        "invalid_request_error",
        "unsupported_country_region_territory",
        "Country, region, or territory not supported",
    ),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    408: ("timeout", None, "Request timed out."),
    409: ("conflict", None, "The resource was changed by another request."),
    422: ("invalid_request_error", None, "The request was well-formed but could not be processed."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests per min (RPM). Please try again later."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later"),
}
_SERVER = ("server_error", None, "The server had an error while processing your request. Sorry about that!")


class OpenAIDialect(ErrorDialect):
    """Errors and lists of models in the words of OpenAI, and of servers that are compatible with it."""

    def error(self, status: int, message: str | None, code: str | None, param: str | None) -> Mapping[str, Any]:
        """Write the body of an HTTP error."""
        kind, usual_code, usual = _USUAL.get(status, _SERVER)
        if code == "insufficient_quota":
            kind, usual = code, "You exceeded your current quota, please check your plan and billing details."
        # The usual code belongs to the usual message: a message of the caller comes without it.
        code = code if code is not None or message is not None else usual_code
        return {"error": {"message": message or usual, "type": kind, "param": param, "code": code}}

    def unsupported(self, call: RecordedCall) -> tuple[str, str]:
        """Return the message and the parameter for a structure that is not supported."""
        if call.structure == "tool":
            return "Unsupported parameter: 'tools' is not supported with this model.", "tools"
        param = "text.format" if call.api == "responses" else "response_format"
        kind = "json_schema" if call.structure == "schema" else "json_object"
        return f"Invalid parameter: '{param}' of type '{kind}' is not supported with this model.", param

    def models(self, names: tuple[str, ...]) -> Mapping[str, Any]:
        """Write the list of models."""
        each = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "dagrun"} for name in names]
        return {"object": "list", "data": each}
