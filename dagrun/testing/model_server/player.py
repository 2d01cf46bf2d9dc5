"""Play one act of a script to one call."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dagrun.testing.model_server.anthropic_messages import MessagesWire
from dagrun.testing.model_server.calls import RecordedCall, Sent
from dagrun.testing.model_server.connection import ServerConnection
from dagrun.testing.model_server.openai_chat import ChatWire
from dagrun.testing.model_server.openai_responses import ResponsesWire
from dagrun.testing.model_server.script import Act, Break, Fault, ModelAnswer, PageFault, StatusFault
from dagrun.testing.model_server.wire import ErrorDialect, ServerSentEvent, Wire, compact

_JSON = "application/json"
_STREAM = "text/event-stream; charset=utf-8"


class Player:
    """Answers one call over one connection.

    Args:
        call: The call; it records the sent data, with times.
        connection: The connection of the call.
        dialect: The error format of the provider.
        ignores_schema: Whether to play a server whose Responses API accepts a schema and ignores it.
    """

    def __init__(
        self, call: RecordedCall, connection: ServerConnection, dialect: ErrorDialect, *, ignores_schema: bool
    ) -> None:
        self._call = call
        self._connection = connection
        self._dialect = dialect
        self._is_bare = ignores_schema and call.api == "responses"

    def play(self, act: Act) -> None:
        """Play *act*: an answer or a fault.

        Raises:
            HungUp: The client has closed the connection.
            ServerStopped: The server stops.
            TypeError: *act* is not an act.
        """
        match act:
            case str():
                self._answer(ModelAnswer(act))
            case ModelAnswer():
                self._answer(act)
            case Break():
                self._answer(act.of, act)
            case StatusFault():
                self.refuse(act.code, act.message, act.reason, headers=_headers(act))
            case PageFault():
                usual = _STREAM if self._call.streams else _JSON
                self._whole(200, act.body.encode(), act.media_type or usual)
            case Fault():
                raise TypeError(f"a fault is made by a method of Fault, such as Fault.cut(), not {act!r}")

    def refuse(
        self,
        status: int,
        message: str | None = None,
        code: str | None = None,
        param: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Answer with an HTTP error, in the words of the provider."""
        self.send(self._dialect.error(status, message, code, param), status, headers)

    def send(self, value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON that is not an answer of a model."""
        self._whole(status, compact(value).encode(), _JSON, headers)

    # Answers ----------------------------------------------------------------------------------------------------------

    def _answer(self, answer: ModelAnswer, fault: Break | None = None) -> None:
        if self._is_bare and self._call.structure == "schema":
            answer = replace(answer, text=f"Here is what you asked for:\n\n```json\n{answer.text}\n```\n")
        self._connection.wait_until(time.monotonic() + answer.delay)
        if fault is not None and fault.after is None and fault.kind in {"close", "reset", "hang"}:
            self._break(fault)
        elif self._call.streams:
            self._stream(answer, fault)
        else:
            self._at_once(answer, fault)

    def _wire(self, answer: ModelAnswer) -> Wire:
        match self._call.api:
            case "responses":
                return ResponsesWire(self._call, answer, bare=self._is_bare)
            case "messages":
                return MessagesWire(self._call, answer)
            case _:
                return ChatWire(self._call, answer)

    def _stream(self, answer: ModelAnswer, fault: Break | None) -> None:
        wire, pieces = self._wire(answer), answer.pieces
        after = len(pieces) if fault is None else min(fault.after or 0, len(pieces))
        self._head(200, {"Content-Type": _STREAM, "Cache-Control": "no-cache", "Transfer-Encoding": "chunked"})
        for event in wire.opening():
            self._connection.write_chunk(event.encode())
        started = time.monotonic()
        for number, text in enumerate(pieces[:after], 1):
            self._piece(wire, text, _due(started, number, answer))
        if fault is not None:
            if fault.kind != "malformed":
                self._break_stream(wire, fault)
                return
            self._connection.write_chunk(wire.piece("".join(pieces[after : after + 1])).broken().encode())
            after += 1
        for number, text in enumerate(pieces[after:], after + 1):
            self._piece(wire, text, _due(started, number, answer))
        for event in wire.closing():
            self._connection.write_chunk(event.encode())
        self._connection.write_chunk(b"")

    def _piece(self, wire: Wire, text: str, due: float) -> None:
        event: ServerSentEvent = wire.piece(text)
        self._connection.wait_until(due)
        self._call.sent.append(Sent(text, time.monotonic()))
        self._connection.write_chunk(event.encode())

    def _break_stream(self, wire: Wire, fault: Break) -> None:
        if fault.kind in {"failed", "error"}:
            for event in wire.failing(fault):
                self._connection.write_chunk(event.encode())
        if fault.kind in {"failed", "error", "end"}:
            self._connection.write_chunk(b"")
        else:
            self._break(fault)

    def _at_once(self, answer: ModelAnswer, fault: Break | None) -> None:
        wire = self._wire(answer)
        self._connection.wait_until(_due(time.monotonic(), len(answer.pieces), answer))
        if fault is not None and fault.kind in {"failed", "error"}:
            failed = wire.failed(fault)
            if failed is None:
                self.refuse(500, fault.message, fault.code)
            else:
                self.send(failed)
            return
        body = compact(wire.whole()).encode()
        half = body[: len(body) // 2]
        if fault is None:
            self._call.sent.append(Sent(answer.text, time.monotonic()))
            self._whole(200, body, _JSON)
        elif fault.kind in {"malformed", "end"}:
            self._whole(200, half, _JSON)
        else:
            self._head(200, {"Content-Type": _JSON, "Content-Length": str(len(body))})
            self._connection.write(half)
            self._break(fault)

    def _break(self, fault: Break) -> None:
        if fault.kind == "hang":
            self._connection.wait_until(None)
        self._connection.close(reset=fault.kind == "reset")

    def _whole(self, status: int, body: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> None:
        self._head(status, {"Content-Type": media_type, "Content-Length": str(len(body)), **(headers or {})})
        self._connection.write(body)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        name = "request-id" if self._call.api == "messages" else "x-request-id"
        self._call.status = status
        self._connection.head(status, {name: f"req_{self._call.number:08x}", **headers})


def _due(started: float, number: int, answer: ModelAnswer) -> float:
    """Return when piece *number*, counted from 1, has to be sent."""
    return started if answer.tokens_per_second is None else started + number / answer.tokens_per_second


def _headers(fault: StatusFault) -> dict[str, Any]:
    waits = {} if fault.retry_after is None else {"retry-after": str(fault.retry_after)}
    return {**waits, **fault.headers}
