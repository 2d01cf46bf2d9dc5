"""The Messages API of Anthropic."""

from __future__ import annotations

from typing import Any, Final

from dagrun.llm.api_format import Api, ApiRequest, Event, Reader, Stop, count, part
from dagrun.llm.call_errors import reported
from dagrun.llm.language_model import Usage

_STOPS: Final[dict[str, Stop]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}

_THOUGHTS: Final = frozenset(("thinking", "redacted_thinking"))
_CLOSED: Final = object()  # in place of the index of a block: another block of the same index is another call


def _body(call: ApiRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": call.model,
        "messages": [
            {**turn, "content": [*message.reasoning, {"type": "text", "text": turn["content"]}]}
            if call.returns_reasoning and message.reasoning
            else turn
            for turn, message in zip(call.messages, call.request.messages, strict=True)
        ],
        "max_tokens": call.request.max_output_tokens,
        "stream": True,
        **call.allowed(system=call.system or None, temperature=call.request.temperature),
    }
    form = call.request.form
    if form is not None and call.answer_format == "schema":
        body["output_config"] = {"format": {"type": "json_schema", "schema": call.schema}}
    elif form is not None and call.answer_format == "tool":
        body["tools"] = [{"name": form.name, "description": form.description, "input_schema": call.schema}]
        choice = {"type": "tool", "name": form.name}
        body["tool_choice"] = choice | call.allowed(disable_parallel_tool_use=True)
    return body


class _MessagesReader(Reader):
    """Reads the events of the Messages API."""

    _block: Any = None  # the first block with arguments; other blocks are ignored

    def _read(self, event: Event) -> str:
        match event.get("type"):
            case "content_block_delta":
                return self._delta(event)
            case "content_block_start" if part(event, "content_block", "type") in _THOUGHTS:
                self._reason(event.get("index"), event["content_block"])
            case "content_block_stop" if self._block is not None and self._block == event.get("index"):
                self._block = _CLOSED
            case "message_start":
                message = event.get("message")
                if isinstance(model := part(message, "model"), str):
                    self.model = model
                self._note_usage(part(message, "usage"), is_end=False)
            case "message_delta":
                if isinstance(reason := part(event, "delta", "stop_reason"), str):
                    self.stop = _STOPS.get(reason, "end")
                self._note_usage(event.get("usage"), is_end=True)
            case "message_stop":
                self.is_over = True
                self.stop = self.stop or "end"
            case "error":
                raise reported(event)
        return ""

    def _delta(self, event: Event) -> str:
        match part(event, "delta", "type"):
            case "text_delta":
                return self._words(part(event, "delta", "text"))
            case "input_json_delta":
                index = event.get("index")
                self._block = index if self._block is None else self._block
                return self._arguments(part(event, "delta", "partial_json")) if self._block == index else ""
            case "thinking_delta":
                self._reason(event.get("index"), {}, "thinking", part(event, "delta", "thinking"))
            case "signature_delta":
                self._reason(event.get("index"), {}, "signature", part(event, "delta", "signature"))
        return ""

    def _note_usage(self, usage: Any, *, is_end: bool) -> None:
        old = self.usage
        input_ = count(part(usage, "input_tokens"))
        cached = count(part(usage, "cache_read_input_tokens")) or 0
        if input_ is None:
            input_, cached = old.input, old.cached
        else:
            input_ += cached + (count(part(usage, "cache_creation_input_tokens")) or 0)
        # The output tokens of the first event count the first token only.
        self.usage = Usage(input_, count(part(usage, "output_tokens")) if is_end else old.output, cached)


MESSAGES: Final = Api(
    path="/v1/messages",
    answer_formats=("schema", "tool", "prompt"),
    options=frozenset(("temperature", "disable_parallel_tool_use")),
    body=_body,
    reader=_MessagesReader,
)
