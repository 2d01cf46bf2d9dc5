"""The Chat Completions API of OpenAI and of many other servers."""

from __future__ import annotations

from typing import Any, Final

from dagrun.llm.api_format import DONE, Api, ApiRequest, Event, Reader, Stop, count, part
from dagrun.llm.call_errors import reported
from dagrun.llm.language_model import Usage

_STOPS: Final[dict[str, Stop]] = {"length": "length", "content_filter": "refused"}


def _body(call: ApiRequest) -> dict[str, Any]:
    system = [{"role": "system", "content": call.system}] if call.system else []
    # The older name first: a server that no longer accepts it refuses it, but some servers that do not know the newer
    # name ignore it, and then there would be no limit.
    limit = "max_completion_tokens" if "max_tokens" in call.without else "max_tokens"
    body: dict[str, Any] = {
        "model": call.model,
        "messages": system + call.messages,
        limit: call.request.max_output_tokens,
        "stream": True,
        **call.allowed(stream_options={"include_usage": True}, temperature=call.request.temperature),
    }
    form = call.request.form
    if call.answer_format is None or form is None:
        return body
    named = {"name": form.name, "description": form.description}
    match call.answer_format:
        case "schema":
            schema = {**named, "schema": call.schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        case "tool":
            tool = {**named, "parameters": call.schema, "strict": True}
            body["tools"] = [{"type": "function", "function": tool}]
            body["tool_choice"] = {"type": "function", "function": {"name": form.name}}
            body |= call.allowed(parallel_tool_calls=False)
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
        # The line that ends the stream is often missing; a finish reason means that the answer is complete.
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
            if (part(call, "index") or 0) == 0:  # only one call was asked for
                text += self._arguments(part(call, "function", "arguments"))
        return text


CHAT: Final = Api(
    path="/chat/completions",
    answer_formats=("schema", "tool", "json", "prompt"),
    options=frozenset(("stream_options", "temperature", "max_tokens", "parallel_tool_calls")),
    body=_body,
    reader=_ChatReader,
)
