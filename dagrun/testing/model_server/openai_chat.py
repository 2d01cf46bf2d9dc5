"""The wire format of OpenAI's Chat Completions, ``POST /v1/chat/completions``, also used by compatible servers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from dagrun.testing.model_server.calls import RecordedCall, member, turns_of
from dagrun.testing.model_server.script import Break, ModelAnswer
from dagrun.testing.model_server.wire import ServerSentEvent, Wire, listed, tool_called


def read_chat(call: RecordedCall) -> None:
    """Read the body of *call*, and set the fields that describe the request."""
    body = call.body
    call.turns = turns_of(body.get("messages"))
    choice, layout = body.get("tool_choice"), body.get("response_format")
    if choice == "required" or member(choice, "type") == "function":
        functions = [member(tool, "function") for tool in listed(body.get("tools"))]
        tools = {each["name"]: each for each in functions if member(each, "name")}
        call.structure, call.tool = "tool", member(choice, "function", "name") or next(iter(tools), None)
        call.schema = member(tools.get(call.tool), "parameters")
    elif member(layout, "type") == "json_schema":
        call.structure, call.schema = "schema", member(layout, "json_schema", "schema")
    elif member(layout, "type") == "json_object":
        # Clients of llama-cpp-python send a schema beside it.
        call.schema = member(layout, "schema")
        call.structure = "json" if call.schema is None else "schema"


class ChatWire(Wire):
    """Writes one answer in the format of Chat Completions."""

    def __init__(self, call: RecordedCall, answer: ModelAnswer) -> None:
        self._call = call
        self._answer = answer
        self._tool = tool_called(call, answer)
        self._created = int(time.time())
        self._counts = bool(member(call.body, "stream_options", "include_usage"))

    def opening(self) -> Iterator[ServerSentEvent]:
        """Write the events before the text."""
        if self._tool is None:
            refusal = {"refusal": None} if self._answer.stop != "refused" else {}
            yield self._chunk({"role": "assistant", "content": ""} | refusal)
            yield from self._think()
            return
        yield self._chunk({"role": "assistant", "content": None})
        yield from self._think()
        yield self._chunk({"tool_calls": [{"index": 0, **self._call_of("")}]})

    def piece(self, text: str) -> ServerSentEvent:
        """Write a piece of the text."""
        if self._tool is not None:
            return self._chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
        return self._chunk({"refusal" if self._answer.stop == "refused" else "content": text})

    def closing(self) -> Iterator[ServerSentEvent]:
        """Write the events after the text."""
        yield self._chunk({}, self._finish)
        if self._counts and self._answer.usage is not None:
            yield ServerSentEvent(self._head("chat.completion.chunk") | {"choices": [], "usage": self._usage()})
        yield ServerSentEvent("[DONE]")

    def failing(self, fault: Break) -> Iterator[ServerSentEvent]:
        """Write an error in the middle of the answer."""
        yield ServerSentEvent(
            {"error": {"message": fault.message, "type": "server_error", "param": None, "code": fault.code}}
        )

    def whole(self) -> Mapping[str, Any]:
        """Write the answer to a call that is not streamed."""
        text, is_refusal = self._answer.text, self._answer.stop == "refused"
        content = None if is_refusal or self._tool is not None else text
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": text if is_refusal else None}
        if self._tool is not None:
            message["tool_calls"] = [self._call_of(text)]
        if self._answer.thinking:
            message["reasoning_content"] = self._answer.thinking
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        usage = {} if self._answer.usage is None else {"usage": self._usage()}
        return self._head("chat.completion") | {"choices": [choice]} | usage

    def failed(self, fault: Break) -> None:
        """Return `None`: Chat Completions has no failed answer with status 200."""
        return

    @property
    def _finish(self) -> str:
        match self._answer.stop:
            case "length":
                return "length"
            case "filtered":
                return "content_filter"
            case _ if self._tool is None:
                return "stop"
        # As OpenAI does it: a function that the request names ends with "stop", any other with "tool_calls".
        return "stop" if isinstance(self._call.body.get("tool_choice"), Mapping) else "tool_calls"

    def _think(self) -> Iterator[ServerSentEvent]:
        # Not a part of OpenAI's format, but sent by servers of open models.
        if self._answer.thinking:
            yield self._chunk({"reasoning_content": self._answer.thinking})

    def _call_of(self, arguments: str) -> dict[str, Any]:
        function = {"name": self._tool, "arguments": arguments}
        return {"id": f"call_{self._call.number:08x}", "type": "function", "function": function}

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> ServerSentEvent:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        usage = {"usage": None} if self._counts and self._answer.usage is not None else {}
        return ServerSentEvent(self._head("chat.completion.chunk") | {"choices": [choice]} | usage)

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._call.number:08x}",
            "object": kind,
            "created": self._created,
            "model": self._call.model or "",
            "system_fingerprint": None,
        }

    def _usage(self) -> Mapping[str, Any]:
        prompt, completion = self._answer.usage or (0, 0)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": self._answer.cached, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
        }
