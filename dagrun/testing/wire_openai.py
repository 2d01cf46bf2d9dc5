"""OpenAI's words for what is no answer: errors and the list of models; Responses and Chat share them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrun.testing.record import Call
from dagrun.testing.wire import Dialect

# Per status: the type, the code and the message that usually come with it.
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


class OpenAIDialect(Dialect):
    """What OpenAI says besides answers, and servers that are compatible with it."""

    def error(self, status: int, message: str | None, code: str | None, param: str | None) -> Mapping[str, Any]:
        """Write the body of an HTTP error."""
        kind, usual_code, usual = _USUAL.get(status, _SERVER)
        if code == "insufficient_quota":
            kind, usual = code, "You exceeded your current quota, please check your plan and billing details."
        # A message of the caller comes without the code that belongs to the usual message.
        code = code if code is not None or message is not None else usual_code
        return {"error": {"message": message or usual, "type": kind, "param": param, "code": code}}

    def unsupported(self, call: Call) -> tuple[str, str]:
        """Say that the structure of a call is unknown here."""
        if call.structure == "tool":
            return "Unsupported parameter: 'tools' is not supported with this model.", "tools"
        param = "text.format" if call.api == "responses" else "response_format"
        kind = "json_schema" if call.structure == "schema" else "json_object"
        return f"Invalid parameter: '{param}' of type '{kind}' is not supported with this model.", param

    def models(self, names: tuple[str, ...]) -> Mapping[str, Any]:
        """List the models."""
        each = [{"id": name, "object": "model", "created": 1_700_000_000, "owned_by": "dagrun"} for name in names]
        return {"object": "list", "data": each}
