"""The wire format of Anthropic's Messages, ``POST /v1/messages``, and of Anthropic's errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from dagrun.testing.model_server.calls import RecordedCall, member, text_of, turns_of
from dagrun.testing.model_server.script import Break, ModelAnswer
from dagrun.testing.model_server.wire import ErrorDialect, ServerSentEvent, Wire, listed, tool_called

# For each status, its usual type and message.
_USUAL: Mapping[int, tuple[str, str]] = {
    400: ("invalid_request_error", "The request could not be understood."),
    401: ("authentication_error", "invalid x-api-key"),
    402: ("billing_error", "Your credit balance is too low to access the API."),
    403: ("permission_error", "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", "Not found"),
    413: ("invalid_request_error", "Request exceeds the maximum size"),
    429: ("rate_limit_error", "This request would exceed your account's rate limit. Please try again later."),
    504: ("timeout_error", "Request timed out"),
    529: ("overloaded_error", "Overloaded"),
}
_TYPES = frozenset(kind for kind, _ in _USUAL.values())


def read_messages(call: RecordedCall) -> None:
    """Read the body of *call*, and set the fields that describe the request."""
    body = call.body
    call.turns = (("system", text_of(body["system"])),) if body.get("system") else ()
    call.turns += turns_of(body.get("messages"))
    choice = body.get("tool_choice")
    layout = member(body, "output_config", "format") or body.get("output_format")
    if member(choice, "type") in {"any", "tool"}:
        tools = {tool["name"]: tool for tool in listed(body.get("tools")) if member(tool, "name")}
        call.structure, call.tool = "tool", member(choice, "name") or next(iter(tools), None)
        call.schema = member(tools.get(call.tool), "input_schema")
    elif member(layout, "type") == "json_schema":
        call.structure, call.schema = "schema", member(layout, "schema")


class MessagesWire(Wire):
    """Writes one answer in the format of Messages."""

    def __init__(self, call: RecordedCall, answer: ModelAnswer) -> None:
        self._call = call
        self._answer = answer
        self._tool = tool_called(call, answer)
        self._index = 1 if answer.thinking else 0

    def opening(self) -> Iterator[ServerSentEvent]:
        """Write the events before the text."""
        yield _event("message_start", message=self._message([], None, output=1))
        if self._answer.thinking:
            yield from self._think()
        yield _event("content_block_start", index=self._index, content_block=self._block(""))
        yield _event("ping")
        if self._tool is not None:
            yield self.piece("")

    def piece(self, text: str) -> ServerSentEvent:
        """Write a piece of the text."""
        if self._tool is None:
            return self._delta(self._index, type="text_delta", text=text)
        return self._delta(self._index, type="input_json_delta", partial_json=text)

    def closing(self) -> Iterator[ServerSentEvent]:
        """Write the events after the text."""
        yield _event("content_block_stop", index=self._index)
        output = None if self._answer.usage is None else self._answer.usage[1]
        yield _event("message_delta", delta=self._end(), usage={"output_tokens": output})
        yield _event("message_stop")

    def failing(self, fault: Break) -> Iterator[ServerSentEvent]:
        """Write an error in the middle of the answer."""
        kind = "api_error" if fault.kind == "failed" else fault.code
        yield _event("error", error={"type": kind, "message": fault.message})

    def whole(self) -> Mapping[str, Any]:
        """Write the answer to a call that is not streamed."""
        thoughts = [self._thought(self._answer.thinking)] if self._answer.thinking else []
        content = [*thoughts, self._block(self._answer.text)]
        output = None if self._answer.usage is None else self._answer.usage[1]
        return self._message(content, self._end(), output=output)

    def failed(self, fault: Break) -> None:
        """Return `None`: Messages has no failed answer with status 200."""
        return

    def _message(self, content: list[Any], end: Mapping[str, Any] | None, *, output: int | None) -> Mapping[str, Any]:
        usage: dict[str, Any] = {"input_tokens": None, "output_tokens": None}
        if self._answer.usage is not None:
            cached = self._answer.cached  # unlike OpenAI, Anthropic does not count them as input
            usage = {"input_tokens": self._answer.usage[0] - cached, "output_tokens": output}
            usage |= {"cache_creation_input_tokens": 0, "cache_read_input_tokens": cached}
        return {
            "id": f"msg_{self._call.number:08x}",
            "type": "message",
            "role": "assistant",
            "model": self._call.model or "",
            "content": content,
            **(end or {"stop_reason": None, "stop_sequence": None}),
            "usage": usage,
        }

    def _end(self) -> Mapping[str, Any]:
        stop = self._answer.stop
        if stop in {"refused", "filtered"}:
            details = {"type": "refusal", "category": None, "explanation": self._answer.text or None}
            return {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details}
        usual = "end_turn" if self._tool is None else "tool_use"
        return {"stop_reason": "max_tokens" if stop == "length" else usual, "stop_sequence": None}

    def _block(self, text: str) -> dict[str, Any]:
        if self._tool is None:
            return {"type": "text", "text": text}
        named = {"type": "tool_use", "id": f"toolu_{self._call.number:08x}", "name": self._tool}
        return named | {"input": _arguments(text)}

    def _think(self) -> Iterator[ServerSentEvent]:
        yield _event("content_block_start", index=0, content_block=self._thought(""))
        yield self._delta(0, type="thinking_delta", thinking=self._answer.thinking)
        yield self._delta(0, type="signature_delta", signature="c2lnbmVk")
        yield _event("content_block_stop", index=0)

    def _thought(self, text: str) -> Mapping[str, Any]:
        return {"type": "thinking", "thinking": text, "signature": "c2lnbmVk" if text else ""}

    def _delta(self, index: int, **delta: str) -> ServerSentEvent:
        return _event("content_block_delta", index=index, delta=delta)


class AnthropicDialect(ErrorDialect):
    """Errors and lists of models in the words of Anthropic."""

    def error(self, status: int, message: str | None, code: str | None, param: str | None) -> Mapping[str, Any]:
        """Write the body of an HTTP error, whose code is the type, and which has no parameter."""
        kind, usual = _USUAL.get(status, ("api_error", "Internal server error"))
        error = {"type": code if code in _TYPES else kind, "message": message or usual}
        return {"type": "error", "error": error, "request_id": f"req_{status}"}

    def unsupported(self, call: RecordedCall) -> tuple[str, str]:
        """Return the message and the parameter for a structure that is not supported."""
        param = "tools" if call.structure == "tool" else "output_config.format"
        return f"{param}: '{call.model}' does not support this parameter", param

    def models(self, names: tuple[str, ...]) -> Mapping[str, Any]:
        """Write the list of models."""
        dated = {"type": "model", "created_at": "2025-01-01T00:00:00Z", "lifecycle": "active"}
        each = [dated | {"id": name, "display_name": name} for name in names]
        ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
        return {"data": each, "has_more": False} | ends


def _event(kind: str, **fields: Any) -> ServerSentEvent:
    return ServerSentEvent({"type": kind} | fields, kind)


def _arguments(text: str) -> Mapping[str, Any]:
    """Parse the arguments of a tool. Messages can only hold an object, and marks other text as invalid JSON."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": text}
