"""Wire forms that break a promise; each must be noticed by a test of the wire form."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dagrun import Artifact, Tool
from dagrun.executors.wire import messages, requests, serving
from dagrun.executors.wire.answers import accept, answer_of
from dagrun.executors.wire.call_server import CallServer
from dagrun.executors.wire.requests import CallRequest
from dagrun.executors.wire.serving import IncomingCall
from dagrun.extend import ToolCall
from dagrun.kernel.model.contracts.imported_tools import found_tool
from dagrun.kernel.model.executor import Encoded
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.tool import make_tool


class LosesEarlyStops(CallServer):
    """A stop of a call that has not come is forgotten."""

    def stop(self, id: str) -> None:
        if id in self._running:
            super().stop(id)


class KeepsEveryStop(CallServer):
    """A stop of a call that has ended is kept for ever."""

    def stop(self, id: str) -> None:
        super().stop(id)
        if id not in self._running:
            self._stopped_early[id] = None


class StopsNothing(CallServer):
    """What runs, runs on."""

    def stop(self, id: str) -> None:
        if id not in self._running:
            super().stop(id)


class RepeatsCalls(CallServer):
    """A request that comes twice is carried out twice."""

    async def serve(self, request: bytes, send: serving.Send) -> bytes:
        self._come.clear()
        return await super().serve(request, send)


class AnswersFirst(CallServer):
    """Reports leave after the answer."""

    async def serve(self, request: bytes, send: serving.Send) -> bytes:
        kept: list[bytes] = []
        answer = await super().serve(request, kept.append)
        send(answer)
        for message in kept:
            send(message)
        return answer


class ReportsAtTheEnd(CallServer):
    """Reports are kept until the call has ended."""

    async def serve(self, request: bytes, send: serving.Send) -> bytes:
        kept: list[bytes] = []
        answer = await super().serve(request, kept.append)
        for message in kept:
            send(message)
        return answer


class NeverCloses(IncomingCall):
    """A thread that was left behind goes on reporting."""

    def close(self) -> None:
        pass


class TakesFunctions(IncomingCall):
    """Anybody may send functions and a search path."""

    def __init__(self, request: bytes, send: serving.Send, *, is_child: bool) -> None:
        super().__init__(request, send, is_child=True)


class ShowsSecrets(IncomingCall):
    """The failure holds the text of the exception as it is."""

    def failed(self, error: BaseException) -> bytes:
        self._redactor = Redactor()
        return super().failed(error)


class ShowsItself(CallRequest):
    """A log of the request is a log of its secrets."""

    def __repr__(self) -> str:
        return f"<Request {self.data!r}>"


class CarriesAnything(serving._CarriedArtifacts):
    """No file is too large."""

    def save(self, data: bytes | str | Path, *, media_type: str = "", name: str = "") -> Artifact:
        self._size = -(1 << 40)
        return super().save(data, media_type=media_type, name=name)


class ForgetsHalves(messages.MessageStream):
    """A receiver that is cancelled loses what has come."""

    async def receive(self, call: ToolCall | None = None) -> bytes:
        try:
            return await super().receive(call)
        except BaseException:
            self._come.clear()
            raise


def finds_anything(facts: Mapping[str, Any], *, is_child: bool) -> Tool[..., Any]:
    """Compare no contract."""
    return serving._load_tool(facts["target"], facts["tool"], facts["effect"], facts["is_named"])


def makes_anew(target: Any, name: str, effect: str, *, is_named: bool) -> Tool[..., Any]:
    """Compare the contract of a tool that is made of the function, without its options."""
    return make_tool(getattr(target, "function", target), name=name, effect=effect, executor="process")


def reads_with_the_text(data: bytes) -> Any:
    """Let the error of the JSON reader lead to the secrets."""
    import json

    _, _, facts, arguments = requests._HEAD.unpack_from(data)
    begin = requests._HEAD.size + facts
    return json.loads(data[requests._HEAD.size : begin]), data[begin : begin + arguments], data[begin + arguments :]


def checks_no_size(kind: bytes, size: int, call: ToolCall) -> None:
    """Any message is small enough."""


async def does_not_wait(
    call: ToolCall, receive: Callable[[], Awaitable[bytes]], stop: Callable[[], Awaitable[object]], *, place: str = ""
) -> Encoded:
    """A call that is cancelled is told to stop, and left to itself."""
    import anyio

    try:
        while (value := await accept(await receive(), call, place=place)) is None:
            pass
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            await stop()
        raise
    return value


async def says_no_place(message: bytes, call: ToolCall, *, place: str = "") -> Encoded | None:
    """Where a call ran is not said."""
    return await accept(message, call)


MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "an early stop is lost": {CallServer: LosesEarlyStops},
    "every stop is kept": {CallServer: KeepsEveryStop},
    "a stop stops nothing": {CallServer: StopsNothing},
    "an effect is doubled": {CallServer: RepeatsCalls},
    "the answer overtakes reports": {CallServer: AnswersFirst},
    "reports come at the end": {CallServer: ReportsAtTheEnd},
    "reports after the end": {IncomingCall: NeverCloses},
    "anybody sends functions": {IncomingCall: TakesFunctions},
    "a failure shows a secret": {IncomingCall: ShowsSecrets},
    "a repr shows a secret": {CallRequest: ShowsItself},
    "an error shows a secret": {requests.read_request: reads_with_the_text},
    "skew is let through": {serving._find: finds_anything},
    "options do not count": {found_tool: makes_anew},
    "files of any size": {serving._CarriedArtifacts: CarriesAnything},
    "messages of any size": {messages.check_size: checks_no_size},
    "half messages are lost": {messages.MessageStream: ForgetsHalves},
    "a stopped call is left alone": {answer_of: does_not_wait},
    "the place is not said": {accept: says_no_place},
}
