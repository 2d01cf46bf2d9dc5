"""The Chat Completions API, as OpenAI has it and many other servers, too."""

from __future__ import annotations

from typing import Any, Final

from dagrun.llm.api_format import DONE, Api, ApiRequest, Event, Reader, Stop, count, part
from dagrun.llm.call_errors import reported
from dagrun.llm.language_model import Usage

_STOPS: Final[dict[str, Stop]] = {"length": "length", "content_filter": "refused"}


def _body(asking: ApiRequest) -> dict[str, Any]:
    system = [{"role": "system", "content": asking.system}] if asking.system else []
    # The newer name is refused by nobody who knows it, but ignored by some who do not: then there would be no limit.
    limit = "max_completion_tokens" if "max_tokens" in asking.without else "max_tokens"
    body: dict[str, Any] = {
        "model": asking.model,
        "messages": system + asking.messages,
        limit: asking.request.max_output_tokens,
        "stream": True,
        **asking.allowed(stream_options={"include_usage": True}, temperature=asking.request.temperature),
    }
    form = asking.request.form
    if asking.way is None or form is None:
        return body
    named = {"name": form.name, "description": form.description}
    match asking.way:
        case "schema":
            schema = {**named, "schema": asking.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        case "tool":
            tool = {**named, "parameters": asking.schema, "strict": True}
            body["tools"] = [{"type": "function", "function": tool}]
            body["tool_choice"] = {"type": "function", "function": {"name": form.name}}
            body |= asking.allowed(parallel_tool_calls=False)
        case "json":
            body["response_format"] = {"type": "json_object"}
        case "prompt":
            pass
    return body


class _ChatReader(Reader):
    """Reads the chunks of the Chat Completions API."""

    def _read(self, event: Event) -> str:
        if event is DONE:
            self.is_over = True
            self.stop = self.stop or "end"
            return ""
        if event.get("error") is not None or event.get("object") == "error":
            raise reported(event)
        if isinstance(model := event.get("model"), str):
            self.model = model
        if isinstance(usage := event.get("usage"), dict):
            cached = count(part(usage, "prompt_tokens_details", "cached_tokens")) or 0
            self.usage = Usage(count(usage.get("prompt_tokens")), count(usage.get("completion_tokens")), cached)
        return self._choice(part(event, "choices", 0))

    def finish(self) -> str:
        # The line that ends the stream is often missing; the reason for the end comes from the model itself.
        self.is_over = self.is_over or self.stop is not None
        return super().finish()

    def _choice(self, choice: Any) -> str:
        if isinstance(reason := part(choice, "finish_reason"), str):
            self.stop = _STOPS.get(reason, "end")
        delta = part(choice, "delta")
        self._refuse(part(delta, "refusal"))
        text = self._words(part(delta, "content"))
        calls = part(delta, "tool_calls")
        for call in calls if isinstance(calls, list) else ():
            if (part(call, "index") or 0) == 0:  # only one was asked for
                text += self._arguments(part(call, "function", "arguments"))
        return text


CHAT: Final = Api(
    path="/chat/completions",
    ways=("schema", "tool", "json", "prompt"),
    options=frozenset(("stream_options", "temperature", "max_tokens", "parallel_tool_calls")),
    body=_body,
    reader=_ChatReader,
)
