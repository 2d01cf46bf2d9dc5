"""The wire format of OpenAI's Responses API, ``POST /v1/responses``."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from dagrun.testing.model_server.calls import RecordedCall, member, text_of, turns_of
from dagrun.testing.model_server.script import Break, ModelAnswer
from dagrun.testing.model_server.wire import ServerSentEvent, Wire, listed, tool_called


def read_responses(call: RecordedCall) -> None:
    """Read the body of *call*, and set the fields that describe the request."""
    body = call.body
    instructions, messages = body.get("instructions"), body.get("input")
    call.turns = (("system", text_of(instructions)),) if instructions else ()
    call.turns += (("user", messages),) if isinstance(messages, str) else turns_of(messages)
    choice, layout = body.get("tool_choice"), member(body, "text", "format")
    if choice == "required" or member(choice, "type") == "function":
        tools = {tool["name"]: tool for tool in listed(body.get("tools")) if member(tool, "name")}
        call.structure, call.tool = "tool", member(choice, "name") or next(iter(tools), None)
        call.schema = member(tools.get(call.tool), "parameters")
    elif member(layout, "type") == "json_schema":
        call.structure, call.schema = "schema", member(layout, "schema")
    elif member(layout, "type") == "json_object":
        call.structure = "json"


class ResponsesWire(Wire):
    """Writes one answer in the format of Responses.

    Args:
        call: The call that is answered.
        answer: The answer.
        bare: Whether to leave out the fields that the server of llama.cpp leaves out.
    """

    def __init__(self, call: RecordedCall, answer: ModelAnswer, *, bare: bool = False) -> None:
        self._call = call
        self._answer = answer
        self._bare = bare
        self._tool = tool_called(call, answer)
        self._created = time.time()
        self._events = 0
        self._index = 1 if answer.thinking else 0  # of the answer item, after a reasoning item
        mark = f"{call.number:08x}"
        self._id, self._call_id = f"resp_{mark}", f"call_{mark}"
        self._item_id = f"msg_{mark}" if self._tool is None else f"fc_{mark}"

    def opening(self) -> Iterator[ServerSentEvent]:
        """Write the events before the text."""
        yield self._event("response.created", response=self._response("in_progress", []))
        yield self._event("response.in_progress", response=self._response("in_progress", []))
        if self._answer.thinking:
            yield from self._think()
        yield self._event("response.output_item.added", output_index=self._index, item=self._item("in_progress", None))
        if self._tool is None:
            yield self._event("response.content_part.added", **self._place, part=self._part(""))

    def piece(self, text: str) -> ServerSentEvent:
        """Write a piece of the text."""
        if self._tool is not None:
            where = {"item_id": self._item_id, "output_index": self._index}
            return self._event("response.function_call_arguments.delta", **where, delta=text)
        if self._answer.stop == "refused":
            return self._event("response.refusal.delta", **self._place, delta=text)
        return self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def closing(self) -> Iterator[ServerSentEvent]:
        """Write the events after the text."""
        text = self._answer.text
        if self._tool is not None:
            where = {"item_id": self._item_id, "output_index": self._index}
            yield self._event("response.function_call_arguments.done", **where, name=self._tool, arguments=text)
        else:
            if self._answer.stop == "refused":
                yield self._event("response.refusal.done", **self._place, refusal=text)
            else:
                yield self._event("response.output_text.done", **self._place, text=text, logprobs=[])
            yield self._event("response.content_part.done", **self._place, part=self._part(text))
        yield self._event("response.output_item.done", output_index=self._index, item=self._item(self._status, text))
        yield self._event(f"response.{self._status}", response=self.whole())

    def failing(self, fault: Break) -> Iterator[ServerSentEvent]:
        """Write an error in the middle of the answer."""
        if fault.kind == "error":
            yield self._event("error", code=fault.code, message=fault.message, param=None)
        else:
            yield self._event("response.failed", response=self.failed(fault))

    def whole(self) -> Mapping[str, Any]:
        """Write the response at its end."""
        thoughts = [self._reasoning(self._answer.thinking)] if self._answer.thinking else []
        return self._response(self._status, [*thoughts, self._item(self._status, self._answer.text)])

    def failed(self, fault: Break) -> Mapping[str, Any] | None:
        """Write a failed response; `None` for a fault that is sent as a plain error."""
        if fault.kind == "error":
            return None
        return {**self._response("failed", []), "error": {"code": fault.code, "message": fault.message}}

    @property
    def _status(self) -> str:
        return "incomplete" if self._answer.stop in {"length", "filtered"} else "completed"

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": self._index, "content_index": 0}

    def _event(self, kind: str, **fields: Any) -> ServerSentEvent:
        if self._bare:
            lacking = {"output_index", "content_index", "logprobs"}
            return ServerSentEvent({"type": kind} | {key: fields[key] for key in fields if key not in lacking}, kind)
        self._events += 1
        return ServerSentEvent({"type": kind, "sequence_number": self._events - 1} | fields, kind)

    def _think(self) -> Iterator[ServerSentEvent]:
        where = {"item_id": f"rs_{self._call.number:08x}", "output_index": 0, "content_index": 0}
        text = self._answer.thinking
        yield self._event("response.output_item.added", output_index=0, item=self._reasoning(""))
        yield self._event("response.reasoning_text.delta", **where, delta=text)
        yield self._event("response.reasoning_text.done", **where, text=text)
        yield self._event("response.output_item.done", output_index=0, item=self._reasoning(text))

    def _reasoning(self, text: str) -> Mapping[str, Any]:
        content = [{"type": "reasoning_text", "text": text}] if text else []
        return {"id": f"rs_{self._call.number:08x}", "type": "reasoning", "summary": [], "content": content}

    def _part(self, text: str) -> Mapping[str, Any]:
        if self._answer.stop == "refused":
            return {"type": "refusal", "refusal": text}
        return {"type": "output_text", "text": text} | ({} if self._bare else {"annotations": [], "logprobs": []})

    def _item(self, status: str, text: str | None) -> Mapping[str, Any]:
        if self._tool is None:
            parts = [] if text is None else [self._part(text)]
            head = {"id": self._item_id, "type": "message"}
            return head | {"role": "assistant", "status": status, "content": parts}
        head = {} if self._bare else {"id": self._item_id}
        call_id = self._item_id if self._bare else self._call_id
        named = {"type": "function_call", "call_id": call_id, "name": self._tool}
        return head | named | {"status": status, "arguments": text or ""}

    def _response(self, status: str, output: list[Any]) -> dict[str, Any]:
        head = {"id": self._id, "object": "response", "status": status}
        is_over = status != "in_progress"
        if self._bare and not is_over:
            return head
        body, stop = self._call.body, self._answer.stop
        reason = {"length": "max_output_tokens", "filtered": "content_filter"}.get(stop) if is_over else None
        common = {
            "created_at": int(self._created),
            "model": self._call.model or "",
            "output": output,
            "usage": self._usage() if is_over else None,
        }
        if self._bare:
            return head | common | {"completed_at": int(time.time())}
        return (
            head
            | common
            | {
                "error": None,
                "incomplete_details": None if reason is None else {"reason": reason},
                "instructions": body.get("instructions"),
                "max_output_tokens": body.get("max_output_tokens"),
                "metadata": body.get("metadata") or {},
                "parallel_tool_calls": body.get("parallel_tool_calls", True),
                "previous_response_id": None,
                "reasoning": {"effort": None, "summary": None},
                "store": body.get("store", True),
                "temperature": body.get("temperature", 1.0),
                "text": body.get("text") or {"format": {"type": "text"}},
                "tool_choice": body.get("tool_choice", "auto"),
                "tools": body.get("tools") or [],
                "top_p": body.get("top_p", 1.0),
                "truncation": "disabled",
                "user": None,
            }
        )

    def _usage(self) -> Mapping[str, Any] | None:
        if self._answer.usage is None:
            return None
        input_tokens, output_tokens = self._answer.usage
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {"cached_tokens": self._answer.cached, "cache_write_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": input_tokens + output_tokens,
        }
