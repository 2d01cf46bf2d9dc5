"""The two APIs of OpenAI: Responses, and Chat Completions, which many other servers have, too."""

from __future__ import annotations

from typing import Any, Final

from dagrun.llm.api_format import DONE, Api, ApiRequest, Event, Reader, Stop, count, part
from dagrun.llm.call_errors import CallError, broke_off, reported
from dagrun.llm.language_model import Usage

# The values of `text.format.type`.
_FORMATS: Final = {"schema": "json_schema", "json": "json_object"}


def _named(call: ApiRequest) -> dict[str, Any]:
    return {"name": call.form.name, "description": call.form.description, "strict": True}


def _responses_body(call: ApiRequest) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": call.model,
        # llama.cpp refuses a turn of the model without its type.
        "input": [{"type": "message", **message} for message in call.messages],
        "max_output_tokens": call.request.max_output_tokens,
        "stream": True,
        # The provider need not keep the answer: it is not used again.
        **call.allowed(store=False, temperature=call.request.temperature, instructions=call.system or None),
    }
    match call.answer_format:
        case "schema":
            body["text"] = {"format": {"type": "json_schema", "schema": call.schema, **_named(call)}}
        case "json":
            body["text"] = {"format": {"type": "json_object"}}
        case "tool":
            body["tools"] = [{"type": "function", "parameters": call.schema, **_named(call)}]
            body["tool_choice"] = {"type": "function", "name": call.form.name}
            body |= call.allowed(parallel_tool_calls=False)
    return body


class _ResponsesReader(Reader):
    """Reads the events of the Responses API."""

    _call: Any = None  # the first item with arguments; other items are ignored

    def _read(self, event: Event) -> str:
        if event.get("object") == "response":  # whole, and so without a number: the server does not stream
            event = {"type": f"response.{event.get('status')}", "response": event, "sequence_number": 0}
        if self.is_picky:
            self.is_picky = False
            self._check(event)
        match event.get("type"):
            case "response.output_text.delta":
                return self._words(event.get("delta"))
            case "response.function_call_arguments.delta":
                return self._arguments(event.get("delta")) if self._is_first_call(event) else ""
            case "response.refusal.delta":
                return self._refuse(event.get("delta"))
            case "response.created" | "response.in_progress":
                self._note_response(event.get("response"))
            case "response.completed" | "response.incomplete":
                return self._end(event.get("response"))
            case "response.failed":
                raise reported(part(event, "response", "error"))
            case "error":
                raise reported(event)
        return ""

    def _check(self, event: Event) -> None:
        """Refuse a server that knows only the path of the API, by the first event of its answer."""
        kind = event.get("type")
        if kind in {"error", "response.failed"}:
            return
        if not isinstance(kind, str) or not kind.startswith("response.") or count(event.get("sequence_number")) is None:
            raise CallError("its answer has not the form of the Responses API", is_foreign=True)
        wanted = _FORMATS.get(self.answer_format or "")
        if wanted is not None and part(event, "response", "text", "format", "type") != wanted:
            # The API repeats the format in its first event; a server that does not would ignore the schema, too.
            raise CallError(
                "it does not repeat the form that was asked for, as the Responses API does", is_foreign=True
            )

    def _is_first_call(self, event: Event) -> bool:
        item = event.get("item_id"), event.get("output_index")
        if self._call is None:
            self._call = item
        return bool(self._call == item)

    def _note_response(self, response: Any) -> None:
        if isinstance(model := part(response, "model"), str):
            self.model = model
        if isinstance(usage := part(response, "usage"), dict):
            cached = count(part(usage, "input_tokens_details", "cached_tokens")) or 0
            self.usage = Usage(count(usage.get("input_tokens")), count(usage.get("output_tokens")), cached)

    def _end(self, response: Any) -> str:
        self._note_response(response)
        self.is_over = True
        self.stop = "end"
        if part(response, "status") == "incomplete":
            filtered = part(response, "incomplete_details", "reason") == "content_filter"
            self.stop = "refused" if filtered else "length"
        return "" if self._length or self._aside or self._refusal else self._whole(response)

    def _whole(self, response: Any) -> str:
        """Return the answer from the last event, for a server that did not send it in pieces."""
        items = part(response, "output")
        text = ""
        for item in items if isinstance(items, list) else ():
            text += self._arguments(part(item, "arguments"))
            parts = part(item, "content")
            for piece in parts if isinstance(parts, list) else ():
                self._refuse(part(piece, "refusal"))
                text += self._words(part(piece, "text")) if part(piece, "type") == "output_text" else ""
        return text


RESPONSES: Final = Api(
    path="/responses",
    answer_formats=("schema", "tool", "json", "prompt"),
    options=frozenset(("store", "temperature", "parallel_tool_calls")),
    body=_responses_body,
    reader=_ResponsesReader,
)


# Chat Completions ----------------------------------------------------------------------------------------------------

_STOPS: Final[dict[str, Stop]] = {"length": "length", "content_filter": "refused"}


def _chat_body(call: ApiRequest) -> dict[str, Any]:
    system = [{"role": "system", "content": call.system}] if call.system else []
    # The older name first: a server that no longer accepts it refuses it, but some servers that do not know the newer
    # name ignore it, and then there would be no limit.
    limit = "max_completion_tokens" if "max_tokens" in call.without else "max_tokens"
    body: dict[str, Any] = {
        "model": call.model,
        "messages": system + _with_reasoning(call),
        limit: call.request.max_output_tokens,
        "stream": True,
        **call.allowed(stream_options={"include_usage": True}, temperature=call.request.temperature),
    }
    match call.answer_format:
        case "schema":
            body["response_format"] = {"type": "json_schema", "json_schema": {"schema": call.schema, **_named(call)}}
        case "json":
            body["response_format"] = {"type": "json_object"}
        case "tool":
            body["tools"] = [{"type": "function", "function": {"parameters": call.schema, **_named(call)}}]
            body["tool_choice"] = {"type": "function", "function": {"name": call.form.name}}
            body |= call.allowed(parallel_tool_calls=False)
    return body


def _with_reasoning(call: ApiRequest) -> list[dict[str, Any]]:
    """Return the conversation, with the reasoning of each turn of the model for a server that wants it back."""
    turns: list[dict[str, Any]] = []
    for turn, message in zip(call.messages, call.request.messages, strict=True):
        is_wanted = call.returns_reasoning and message.role == "assistant"
        # A turn without any has an empty one: DeepSeek refuses it otherwise.
        turns.append({**turn, **(message.reasoning or ({"reasoning_content": ""},))[0]} if is_wanted else turn)
    return turns


class _ChatReader(Reader):
    """Reads the chunks of the Chat Completions API."""

    _call: Any = None  # the index and the id of the first call; only one was asked for
    _is_open = True  # whether pieces with its index are of that call

    def _read(self, event: Event) -> str:
        if event is DONE:
            if self.stop is None and not (self._answer or self._aside or self._refusal):
                raise broke_off("the stream ends before an answer")
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
        delta = part(choice, "delta") or part(choice, "message")  # the latter where the server does not stream
        self._refuse(part(delta, "refusal"))
        for name in ("reasoning_content", "reasoning"):
            self._reason(None, {}, name, part(delta, name))
        text = self._words(part(delta, "content"))
        calls = part(delta, "tool_calls")
        for place, call in enumerate(calls if isinstance(calls, list) else ()):
            if self._is_first_call(call, place):
                text += self._arguments(part(call, "function", "arguments"))
        return text

    def _is_first_call(self, call: Any, place: int) -> bool:
        """Whether a piece belongs to the first call: servers count from 0 or 1, or give all calls one index or none."""
        index, id_ = part(call, "index"), part(call, "id")
        index = place if index is None else index
        if self._call is None:
            self._call = index, id_
        elif index == self._call[0] and id_ and part(call, "function", "name"):
            self._is_open = id_ == self._call[1]
        return bool(index == self._call[0] and self._is_open)


CHAT: Final = Api(
    path="/chat/completions",
    answer_formats=("schema", "tool", "json", "prompt"),
    options=frozenset(("stream_options", "temperature", "max_tokens", "parallel_tool_calls")),
    body=_chat_body,
    reader=_ChatReader,
)
