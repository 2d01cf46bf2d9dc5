"""The wire form of a call: what goes over, what comes back, and what neither side may do to the other."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
import wire_tools as tools
from calls import Reported, make_call
from dagrun import Artifact, Plan, Policy, RetryRule, RunResult, State, Status, Step, Tool
from dagrun.events import Progress
from dagrun.executors import wire
from dagrun.executors.wire import messages
from dagrun.extend import StillRunning, WorkerDied, WorkerLost
from dagrun.kernel.model.executor import CallFailed, Encoded, ResultRefused
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from small_tools import near
from wire_loopback import Loopback, loopback

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    tools.done.clear()
    tools.gate.clear()


async def run(place: Loopback, *steps: Step, attempts: int = 1, **options: Any) -> RunResult:
    every = [tool for tool in vars(tools).values() if isinstance(tool, Tool)]
    policy = Policy(retry=RetryRule(max_attempts=attempts, first_delay=0), **options.pop("policy", {}))
    return await dagrun.run(Plan(steps=steps), tools=every, executors={"far": place}, policy=policy, **options)


def far(name: str, **fields: Any) -> Step:
    args = {key: fields.pop(key) for key in tuple(fields) if key not in Step.model_fields}
    return Step(id=name, tool=f"far_{name}", args=args, executor="far", **fields)


async def failure_of(place: Loopback, tool: Tool[..., Any], **args: Any) -> Failure:
    with pytest.raises(CallFailed) as caught:
        await place.call(make_call(tool, args))
    return caught.value.failure


# Calls ----------------------------------------------------------------------------------------------------------------


async def test_a_run_calls_a_tool_elsewhere_and_uses_what_it_returned() -> None:
    async with loopback() as place:
        result = await run(place, far("add", a=1, b=2), Step(id="next", tool="far_add", args={"a": "${add}", "b": 4}))

    assert (result.status, result.output) == (Status.SUCCEEDED, 7)
    assert len(place.sent) == 1


async def test_reports_arrive_in_order_while_the_call_runs() -> None:
    """A page shows them at once, with the place; usage counts as it comes, and what the tool says of its output too."""
    seen: list[tuple[float, float | None, str]] = []
    begun = anyio.current_time()

    def watch(event: dagrun.Event) -> None:
        if isinstance(event, Progress):
            seen.append((near(anyio.current_time() - begun), event.fraction, event.message))

    async with loopback() as place:
        result = await run(place, far("report", expected_output="a few rows", timeout=60), on_event=watch)

    assert seen == [
        (0, None, "runs on node 2"),
        (0, 0.0, "on node 2"),
        (1, 0.25, "part 1 (on node 2)"),
        (2, 0.5, "part 2 (on node 2)"),
    ]
    step = result.steps["report"]
    assert step.output == {"step": "report", "attempt": 1, "key": 32, "left": True, "wanted": "a few rows"}
    assert (result.tokens, result.cost) == (60, 1.5)
    outcome = step.attempts[-1].outcome
    assert outcome is not None
    assert outcome.surprise == "more than ever"


async def test_a_failure_says_where_it_happened() -> None:
    async with loopback() as place:
        refused = await failure_of(place, tools.far_fail, word="connection")
        exited = await failure_of(place, tools.far_fail, word="exit")

    assert refused.message.endswith("(on node 2)")
    assert (refused.kind, refused.error, refused.is_transient) == (ErrorKind.CONNECTION, "ConnectionResetError", True)
    assert Path(refused.where.rpartition(":")[0]) == Path(tools.__file__)
    assert "Traceback" in refused.traceback
    assert exited.kind is ErrorKind.FORBIDDEN_EXCEPTION


async def test_what_cannot_be_read_there_has_not_happened() -> None:
    async with loopback() as place:
        failure = await failure_of(place, tools.far_pay, order="two")
        assert (failure.kind, failure.nothing_happened) == (ErrorKind.BAD_ARGUMENTS, True)
        answer = await place.server.serve(b"dgw0" + bytes(60), lambda message: None)
    with pytest.raises(CallFailed, match="not a request of this version of dagrun") as caught:
        await wire.accept(answer, make_call(tools.far_add))
    assert caught.value.failure.nothing_happened
    assert tools.done == []


@pytest.mark.real_time
async def test_a_plain_function_runs_in_a_thread_that_is_told_to_stop() -> None:
    reported: Reported = []
    async with loopback() as place:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(place.call, make_call(tools.far_threaded, reported=reported))
            with anyio.fail_after(20):
                while len(reported) < 2:
                    await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        assert tools.done == ["stopped"]
        assert place.server.running == 0


@pytest.mark.real_time
async def test_a_thread_that_does_not_stop_is_named_with_its_place() -> None:
    reported: Reported = []
    raised: list[BaseException] = []

    async def call(place: Loopback) -> None:
        try:
            await place.call(make_call(tools.far_stubborn, grace=0.1, reported=reported))
        except StillRunning as error:
            raised.append(error)

    async with loopback() as place:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, place)
            with anyio.fail_after(20):
                while len(reported) < 2:
                    await anyio.sleep(0.001)
            tasks.cancel_scope.cancel()
        tools.gate.set()

    assert [str(error) for error in raised] == ["far_stubborn still runs on node 2, where it was told to stop"]


# Stops ----------------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_told_to_stop_may_clean_up() -> None:
    async with loopback() as place:
        with anyio.move_on_after(1):
            await place.call(make_call(tools.far_pay, {"order": 1, "seconds": 60}, grace=5))

    assert tools.done == [("began", 1), ("told to stop", 1), ("cleaned up", 1)]
    assert place.came[-1] == messages.STOPPED


async def test_a_stop_that_overtakes_its_call_is_kept_for_it() -> None:
    """Two messages on two ways; a lost stop would leave a payment to be made for a run that has ended."""
    async with loopback(late=2) as place:
        begun = anyio.current_time()
        with anyio.move_on_after(1):
            await place.call(make_call(tools.far_pay, {"order": 1}, grace=5))
        assert anyio.current_time() - begun == near(2)

    assert tools.done == []
    assert place.came == [messages.NEVER_BEGUN]


async def test_a_stop_that_comes_after_the_end_is_not_kept() -> None:
    async with loopback() as place:
        for number in range(3):
            await place.call(make_call(tools.far_add, {"a": number, "b": 1}))
            place.server.stop(place.sent[-1].id)
        assert place.server._stopped_early == {}


async def test_what_is_remembered_of_calls_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagrun.executors.wire.call_server.REMEMBERED", 2)
    async with loopback() as place:
        for number in range(4):
            place.server.stop(f"{number:016}")
            await place.call(make_call(tools.far_add, {"a": number, "b": 1}))
        assert list(place.server._stopped_early) == ["0000000000000002", "0000000000000003"]
        assert list(place.server._come) == [request.id for request in place.sent[-2:]]


async def test_a_place_that_closes_stops_its_calls_and_their_runs_know_why() -> None:
    """A read is tried again elsewhere; of an effect nobody knows how far it got."""
    async with loopback() as place, anyio.create_task_group() as tasks:

        async def close() -> None:
            await anyio.sleep(1)
            place.server.stop_all()

        tasks.start_soon(close)
        result = await run(place, far("report"), far("pay", order=1, seconds=60), attempts=2)

    assert result.steps["report"].output["attempt"] == 2
    pay = result.steps["pay"]
    assert (pay.state, len(pay.attempts)) == (State.UNKNOWN, 1)
    assert "far_pay was stopped on node 2, and not by its run" in pay.reason


# Lost places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "state", "attempts"),
    [("report", State.SUCCEEDED, 2), ("keyed_pay", State.SUCCEEDED, 2), ("pay", State.UNKNOWN, 1)],
    ids=["read", "idempotent", "effectful"],
)
async def test_a_lost_place_is_tried_again_where_that_does_no_harm(name: str, state: State, attempts: int) -> None:
    """Unlike a tool that kills its process, which would kill the next one too."""
    args = {} if name == "report" else {"order": 1, "seconds": 3}
    async with loopback(cut=[0.5]) as place:
        result = await run(place, far(name, **args), attempts=2)

    step = result.steps[name]
    assert (step.state, len(step.attempts)) == (state, attempts)
    first = step.attempts[0].outcome
    assert first is not None
    assert first.failure is not None
    assert (first.failure.kind, first.failure.error) == (ErrorKind.WORKER_DIED, "WorkerLost")
    assert (first.failure.message, first.failure.is_transient) == ("node 2 has gone", True)


@pytest.mark.parametrize("name", ["keyed_pay", "pay", "report"])
async def test_a_place_that_is_lost_while_a_call_is_being_stopped_leaves_it_cancelled(name: str) -> None:
    """Whoever has made the call would take the loss for a reason to make it again."""
    args = {} if name == "report" else {"order": 1, "seconds": 60}
    raised: list[BaseException] = []

    async def call(place: Loopback) -> None:
        try:
            await place.call(make_call(getattr(tools, f"far_{name}"), args))
        except BaseException as error:
            raised.append(error)
            raise

    async with loopback(cut=[1.1]) as place:
        place.server.stop = lambda id: None  # type: ignore[method-assign] # it never hears of it
        with anyio.move_on_after(1):
            await call(place)

    assert [type(error) for error in raised] == [anyio.get_cancelled_exc_class()]


@pytest.mark.parametrize(
    ("name", "state"), [("report", State.CANCELLED), ("keyed_pay", State.UNKNOWN), ("pay", State.UNKNOWN)]
)
@pytest.mark.parametrize("is_timed_out", [False, True], ids=["cancelled", "timed out"])
async def test_a_step_that_was_told_to_stop_is_not_tried_again_when_its_place_is_lost(
    name: str, state: State, is_timed_out: bool
) -> None:
    args = {} if name == "report" else {"order": 1, "seconds": 60}
    attempts = 1 if is_timed_out else 3  # a time-out is a reason of its own to try again
    policy = Policy(retry=RetryRule(max_attempts=attempts, first_delay=0), grace=5)
    step = far(name, timeout=1 if is_timed_out else None, **args)
    every = [tool for tool in vars(tools).values() if isinstance(tool, Tool)]
    async with loopback(cut=[1.1]) as place:
        place.server.stop = lambda id: None  # type: ignore[method-assign]
        options: Any = {"tools": every, "executors": {"far": place}, "policy": policy}
        async with dagrun.start(Plan(steps=[step]), **options) as started:
            if not is_timed_out:
                await anyio.sleep(1)
                started.cancel(name)
            result = await started.result()
        await anyio.sleep(10)

    ended = result.steps[name]
    assert len(place.sent) == len(ended.attempts) == 1
    assert ended.state is (State.TIMED_OUT if is_timed_out and name == "report" else state)
    assert ended.failure is not None
    assert ended.failure.kind is (ErrorKind.TIMEOUT if is_timed_out else ErrorKind.CANCELLED)


# At most once ---------------------------------------------------------------------------------------------------------


async def test_a_request_that_comes_twice_is_carried_out_once() -> None:
    """As when a library between the two sides sends again what it takes for lost."""
    async with loopback(times=2) as place:
        with pytest.raises(CallFailed, match="a call is made once") as caught:
            await place.call(make_call(tools.far_pay, {"order": 1, "seconds": 1}))
        assert not caught.value.failure.nothing_happened
        await anyio.sleep(2)

    assert tools.done == [("began", 1), ("paid", 1)]


@pytest.mark.real_time
async def test_nothing_is_reported_after_the_end() -> None:
    """A thread that the tool has left behind reports for no call: on a warm worker, it would be for the next one."""
    for serve in (partial(_served_here), partial(_served_in_a_loop)):
        tools.gate.clear()
        sent: list[bytes] = []
        request = await wire.request(make_call(tools.far_left_behind), is_child=serve.func is _served_here)
        assert (await serve(request.data, sent.append))[:1] == messages.VALUE
        before = list(sent)
        assert [message[:1] for message in before] == [messages.BEGUN, messages.REPORT]
        tools.gate.set()
        await anyio.to_thread.run_sync(tools.threads[-1].join)
        await anyio.sleep(0.01)
        assert sent == before
    assert tools.done == ["reported", "reported"]


async def _served_here(request: bytes, send: Any) -> bytes:
    return await anyio.to_thread.run_sync(wire.serve, request, send)


async def _served_in_a_loop(request: bytes, send: Any) -> bytes:
    return await wire.CallServer().serve(request, send)


# Secrets --------------------------------------------------------------------------------------------------------------


async def test_a_secret_is_in_the_request_and_nowhere_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "correct-horse-battery"
    async with loopback() as place:
        step = far("login", password={"$secret": "door"})
        result = await run(place, step, secrets={"door": secret})

    [request] = place.sent
    reason = result.steps["login"].reason
    assert secret.encode() in request.data
    assert reason.startswith("wrong password [secret:door]")
    shown = [repr(request), str(request), f"{request:}", caplog.text, reason, repr(result), repr(result.steps)]
    shown += [repr(vars(place)), *map(repr, place.came)]
    assert not [text for text in shown if secret in text]


async def test_a_request_that_cannot_be_read_does_not_show_its_secrets() -> None:
    """The error of a JSON reader holds the whole text."""
    data = (await wire.request(make_call(tools.far_add, {"a": 1, "b": 2}))).data
    broken = data.replace(b'{"tool"', b'<"tool"')
    with pytest.raises(ValueError, match="its facts are no JSON") as caught:
        messages_of_request(broken)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def messages_of_request(data: bytes) -> Any:
    from dagrun.executors.wire.requests import read_request

    return read_request(data)


# Versions -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        {"version": "2"},
        {"effect": dagrun.Effect.EFFECTFUL},
        {"name": "far_other"},
        {"arguments": tools.far_add.arguments},
        {"output": tools.far_fail.output},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_another_version_of_a_tool_is_refused_before_anything_happens(
    change: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where only the options of the tool differ, and its function is the same."""
    from dagrun.executors.wire.serving import _load_tool

    call = make_call(tools.far_versioned, {"a": 1})
    request = await wire.request(call)
    other = replace(tools.far_versioned, **change)
    object.__setattr__(other, "__wrapped__", other.function)
    _load_tool.cache_clear()
    with monkeypatch.context() as there:
        there.setattr(tools, "far_versioned", other)
        answer = await wire.CallServer().serve(request.data, lambda message: None)
    _load_tool.cache_clear()

    with pytest.raises(CallFailed, match="far_versioned has another contract here than in the run") as caught:
        await wire.accept(answer, call)
    assert caught.value.failure.nothing_happened


async def test_texts_and_defaults_are_no_other_version() -> None:
    """A default may be made when the module is imported, and then differs in each process."""
    from dagrun.kernel.model.contracts.imported_tools import contract_hash

    def make(text: str, default: float) -> Tool[..., Any]:
        async def counts(number: float = default) -> float:
            return number

        counts.__doc__ = text
        return make_tool(counts, effect="read")

    assert contract_hash(make("Count.", 1.5)) == contract_hash(make("Count them all.", 2.5))


async def test_a_tool_that_was_made_elsewhere_is_found_by_its_function() -> None:
    minus = make_tool(tools.signed, name="minus", effect="read", version="7")
    async with loopback() as place:
        answer = await place.call(make_call(minus, {"a": 5, "b": 3}))
    assert isinstance(answer, Encoded)
    assert answer.data == b"2"


async def test_no_one_but_a_parent_sends_functions() -> None:
    """To unpickle is to run code; and a search path says whose code is imported."""
    request = await wire.request(make_call(tools.far_add, {"a": 1, "b": 2}), is_child=True)
    answer = await wire.CallServer().serve(request.data, lambda message: None)
    with pytest.raises(CallFailed, match="for a child process of the run alone"):
        await wire.accept(answer, make_call(tools.far_add))


# Files ----------------------------------------------------------------------------------------------------------------


async def copied(place: Loopback, folder: Path, size: int) -> list[Artifact]:
    file = ArtifactFolder(folder).save("hello", name="lower.txt")
    answer = await place.call(make_call(tools.far_copy, {"file": file, "size": size}, folder=folder))
    assert isinstance(answer, Encoded)
    return [Artifact.model_validate(each) for each in json.loads(answer.data)]


@pytest.mark.real_time
@pytest.mark.parametrize("shares_files", [True, False])
async def test_artifacts_get_there_and_back(tmp_path: Path, shares_files: bool) -> None:
    async with loopback(shares_files=shares_files) as place:
        text, zeros = await copied(place, tmp_path, 100_000)

    assert (text.name, text.media_type) == ("upper.txt", "text/plain")
    assert ArtifactFolder(tmp_path).path(text).read_text() == "HELLO"
    assert ArtifactFolder(tmp_path).path(zeros).read_bytes() == bytes(100_000)
    assert (len(place.came[-1]) > 100_000) is not shares_files


@pytest.mark.real_time
async def test_files_that_are_too_large_to_travel_are_refused(tmp_path: Path) -> None:
    async with loopback(shares_files=False) as place:
        with pytest.raises(CallFailed, match="the artifacts that it saved take over 16 MiB, which needs a folder"):
            await copied(place, tmp_path, 16 << 20)
        large = ArtifactFolder(tmp_path).save(bytes((16 << 20) + 1))
        call = make_call(tools.far_copy, {"file": large, "size": 1}, folder=tmp_path)
        with pytest.raises(CallFailed, match="among the arguments of far_copy take over 16 MiB") as caught:
            await place.call(call)
        assert caught.value.failure.nothing_happened


# Messages -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (b"", WorkerDied),
        (b"?", WorkerDied),
        (b"r{", WorkerDied),
        (b"r\xff", WorkerDied),
        (b'r{"kind": "usage", "facts": {"tokens": -5, "cost": null}}', WorkerDied),
        (b'r{"kind": "piece", "facts": {"text": "x"}}', WorkerDied),
        (b"f{}", WorkerDied),
        (b"fnull", WorkerDied),
        (b"w\x00\x00", WorkerDied),
        (b"w" + bytes([0, 0, 0, 0, 0, 0, 0, 9]) + b"12", WorkerDied),
        (b"w", WorkerDied),
        (b"v" + bytes(2 << 20), ResultRefused),
        (b"r" + bytes(1 << 20), ResultRefused),
        (b"s", WorkerLost),
        (b"n", CallFailed),
        (b"t", StillRunning),
    ],
)
async def test_whatever_comes_is_checked(message: bytes, error: type[Exception]) -> None:
    reported: Reported = []
    with pytest.raises(error):
        await wire.accept(message, make_call(tools.far_add, reported=reported))
    assert reported == []


async def test_messages_over_a_stream_come_whole() -> None:
    """However the bytes are cut, and if the receiver is cancelled in the middle of a message."""

    class Dripping:
        def __init__(self) -> None:
            self.bytes = bytearray()

        async def send(self, item: bytes) -> None:
            self.bytes += item

        async def receive(self, max_bytes: int = 65536) -> bytes:
            await anyio.sleep(1)
            first = bytes(self.bytes[:3])
            del self.bytes[:3]
            return first

    stream = wire.MessageStream(Dripping())
    await stream.send(b"vfirst")
    await stream.send(b"b")
    with anyio.move_on_after(2.5):
        await stream.receive()
    assert await stream.receive(make_call(tools.far_add)) == b"vfirst"
    assert await stream.receive() == b"b"
    await stream.send(b"r" + bytes(1 << 20))
    with pytest.raises(ResultRefused, match="far_add wants to answer with 1048576 bytes, the ceiling is 524288"):
        await stream.receive(make_call(tools.far_add))


@pytest.mark.parametrize("is_child", [True, False])
async def test_a_call_that_cannot_be_carried_has_not_happened(is_child: bool) -> None:
    """Else an effect would count as made: what is refused after a tool has returned has taken place."""
    lock: Any = object.__new__(type("Lock", (), {"__reduce__": lambda self: 1 / 0}))

    async def pay() -> int:
        return id(lock)

    pay.__module__, pay.__qualname__ = "__main__", "pay"
    with pytest.raises(CallFailed, match=r"pay: .*defined in the program") as caught:
        await wire.request(make_call(make_tool(pay, effect="effectful")), is_child=is_child)
    failure = caught.value.failure
    assert (failure.kind, failure.nothing_happened) == (ErrorKind.BAD_ARGUMENTS, True)
