"""Invariant 10: a program, thread or task that outlives its call is named in the result, and keeps its place."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Plan, Policy, RetryRule, Status, Step
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime import coroutine_driver
from dagrun.kernel.runtime.steps import leftover_calls
from small_tools import ONCE

pytestmark = [pytest.mark.real_time, pytest.mark.costly]

SLEEPS: Final = [sys.executable, "-c", "import time; time.sleep(30)"]
SLEEPS_ON: Final = [sys.executable, "-c", "import time; time.sleep(300)"]
LOOPS: Final = ["asyncio", "uvloop", "trio"]


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """What the threads of a test wait for; set at its end."""
    event = threading.Event()
    yield event
    event.set()


def _run(main: Callable[[], Any], loop: str) -> Any:
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    if loop == "trio":
        return anyio.run(main, backend="trio")
    return anyio.run(main, backend_options={"use_uvloop": loop == "uvloop"})


def _stopped(
    function: Callable[[], Any],
    loop: str = "asyncio",
    then: Callable[[], Awaitable[object]] | None = None,
    **policy: Any,
) -> dagrun.StepResult:
    """Run one call that is too slow, and return its step; *then* is awaited after the run."""

    async def main() -> dagrun.RunResult:
        tool = make_tool(function, name="slow", effect="read")
        plan = Plan(steps=[Step(id="slow", tool="slow", timeout=0.3)])
        result = await dagrun.run(plan, tools=[tool], policy=Policy(retry=ONCE, **{"grace": 5.0, **policy}))
        if then is not None:
            await then()
        return result

    result: dagrun.RunResult = _run(main, loop)
    return result.steps["slow"]


# Cancellation that libraries count on ------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("loop", LOOPS)
def test_a_program_of_anyio_is_killed_at_the_time_limit(loop: str) -> None:
    """Its clean-up waits for the program, and counts on being cancelled once more."""

    async def runs() -> None:
        await anyio.run_process(SLEEPS_ON)

    step = _stopped(runs, loop, grace=600.0)  # were that waited for, the limit of this test would end it

    assert (step.state, step.reason) == ("timed_out", "it took longer than 0.3 s")


@pytest.mark.costly
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("output", [subprocess.PIPE, None])
def test_so_is_one_that_is_only_opened(loop: str, output: int | None) -> None:
    async def opens() -> None:
        async with await anyio.open_process(SLEEPS_ON, stdout=output, stderr=output) as process:
            await process.wait()

    step = _stopped(opens, loop, grace=600.0)

    assert (step.state, step.reason) == ("timed_out", "it took longer than 0.3 s")


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_clean_up_in_a_scope_of_its_own_is_cancelled_once(loop: str) -> None:
    """As clean-up without any: HTTP clients wait in scopes of anyio, with a deadline and without."""
    done = []

    async def cleans_up() -> None:
        try:
            await anyio.sleep(30)
        finally:
            with anyio.move_on_after(3), anyio.CancelScope():
                await anyio.sleep(0.2)
                done.append("in a scope")
            await asyncio.sleep(0.2)
            done.append("outside")

    assert _stopped(cleans_up, loop).state == "timed_out"
    assert done == ["in a scope", "outside"]


# What is left ------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_program_that_goes_on_is_named(loop: str) -> None:
    """It is a variable of the function that waits for it."""
    programs: list[asyncio.subprocess.Process] = []

    async def starts() -> None:
        program = await asyncio.create_subprocess_exec(*SLEEPS)
        programs.append(program)
        await program.wait()

    async def kill() -> None:
        programs[0].kill()
        await programs[0].wait()

    step = _stopped(starts, loop, kill)

    assert step.state == "timed_out"
    assert step.reason == f"it took longer than 0.3 s; left 1 program (process {programs[0].pid})"


@pytest.mark.costly
def test_one_that_was_killed_is_not() -> None:
    programs: list[asyncio.subprocess.Process] = []

    async def kills() -> None:
        program = await asyncio.create_subprocess_exec(*SLEEPS)
        programs.append(program)
        try:
            await program.wait()
        finally:
            program.kill()

    async def wait() -> None:  # or its resources would complain, in any later test
        await programs[0].wait()

    assert _stopped(kills, then=wait).reason == "it took longer than 0.3 s"


async def _wait_in_threads(over: threading.Event) -> None:
    await asyncio.gather(asyncio.to_thread(over.wait, 30), asyncio.to_thread(over.wait, 30))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_threads_that_go_on_are_named(loop: str, over: threading.Event) -> None:
    async def waits() -> None:
        threading.Timer(3.0, over.set).start()  # or asyncio would wait for its own threads when the loop ends
        await _wait_in_threads(over)

    step = _stopped(waits, loop)

    assert (step.state, step.reason) == ("timed_out", "it took longer than 0.3 s; left 2 threads")


def test_a_thread_of_anyio_that_was_abandoned_is_named(over: threading.Event) -> None:
    async def waits() -> None:
        await anyio.to_thread.run_sync(over.wait, 30, abandon_on_cancel=True)

    assert _stopped(waits).reason == "it took longer than 0.3 s; left 1 thread"


def test_a_client_with_a_task_of_its_own_leaves_nothing() -> None:
    """A reader that the call does not wait for is no part of the call."""
    tasks = []

    async def reads() -> None:
        tasks.append(asyncio.create_task(asyncio.sleep(30)))
        await asyncio.sleep(30)

    assert _stopped(reads).reason == "it took longer than 0.3 s"


def test_what_goes_on_has_not_been_nothing(over: threading.Event) -> None:
    """A tool that says so of a call with an effect cannot know: its thread still works."""

    async def pays() -> None:
        threading.Timer(3.0, over.set).start()
        try:
            await asyncio.to_thread(over.wait, 30)
        except asyncio.CancelledError:
            raise dagrun.ToolError("rolled back") from None

    async def main() -> dagrun.RunResult:
        plan = Plan(steps=[Step(id="pays", tool="pays", timeout=0.3)])
        return await dagrun.run(plan, tools=[make_tool(pays, effect="effectful")], policy=Policy(retry=ONCE))

    result = _run(main, "asyncio")

    assert result.status is Status.UNKNOWN
    assert result.steps["pays"].reason.endswith("left 1 thread")


@pytest.mark.parametrize("has_journal", [False, True])
def test_a_timer_or_a_signal_handler_of_the_host_may_stop_a_run(has_journal: bool) -> None:
    """They are no tasks, and sniffio, where it is installed, knows the loop in tasks only."""
    pytest.importorskip("sniffio")
    errors: list[dict[str, Any]] = []

    async def nap() -> None:
        await asyncio.sleep(30)

    async def main() -> dagrun.RunResult:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        plan = Plan(steps=[Step(id="a", tool="nap")])
        journal = dagrun.MemoryJournal() if has_journal else None
        async with dagrun.start(plan, tools=[make_tool(nap, effect="read")], journal=journal) as run:
            asyncio.get_running_loop().call_later(0.1, run.suspend if has_journal else run.cancel)
            return await run.result()

    assert (asyncio.run(main()).status, errors) == (Status.CANCELLED, [])


# Places ------------------------------------------------------------------------------------------------------


class Busy:
    """Plain or async calls, and how many of them work at once."""

    def __init__(self, seconds: float) -> None:
        self.most = self._now = 0
        self._seconds = seconds
        self._lock = threading.Lock()

    def work(self, seconds: float) -> None:
        """Work for so long, whatever happens."""
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(seconds)
        with self._lock:
            self._now -= 1

    def plain(self, n: int) -> int:
        """Work in the thread of the tool."""
        self.work(self._seconds if n == 1 else 0.0)
        return n

    async def in_a_thread(self, n: int) -> int:
        """Work in a thread of asyncio."""
        await asyncio.to_thread(self.work, self._seconds if n == 1 else 0.0)
        return n

    async def shielded(self, n: int) -> int:
        """Work in a thread of anyio."""
        await anyio.to_thread.run_sync(self.work, self._seconds if n == 1 else 0.0)
        return n


LIMITS: Final[dict[str, dict[str, Any]]] = {
    "of the tool": {"max_running_by_tool": {"query": 1}},
    "of the run": {"max_running": 1},
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("how", ["plain", "in_a_thread", "shielded"])
def test_a_thread_that_goes_on_keeps_the_place_of_its_call(how: str, limits: dict[str, Any]) -> None:
    """A limit of one protects a client that only one call may use."""
    busy = Busy(1.2)
    query = make_tool(getattr(busy, how), name="query", effect="read")
    first = Step(id="first", tool="query", args={"n": 1}, timeout=0.2, on_failure="default", default=0)
    plan = Plan(steps=[first, Step(id="second", tool="query", args={"n": 2}, depends_on=["first"])])

    # As a host of asyncio runs it, without anyio around it.
    result = asyncio.run(dagrun.run(plan, tools=[query], policy=Policy(grace=0.2, retry=ONCE, **limits)))

    assert (result.status, busy.most) == (Status.SUCCEEDED, 1)


def test_the_next_attempt_waits_for_the_thread_of_the_last() -> None:
    busy = Busy(1.0)
    query = make_tool(busy.in_a_thread, name="query", effect="read")
    plan = Plan(steps=[Step(id="q", tool="query", args={"n": 1}, timeout=0.2)])
    policy = Policy(grace=0.2, retry=RetryRule(max_attempts=2, first_delay=0.01), max_running_by_tool={"query": 1})

    result = dagrun.run_sync(plan, tools=[query], policy=policy)

    assert (len(result.steps["q"].attempts), busy.most) == (2, 1)


def test_a_run_that_waits_for_such_a_place_alone_ends(monkeypatch: pytest.MonkeyPatch, over: threading.Event) -> None:
    """A thread may never end, and every run does."""
    monkeypatch.setattr(leftover_calls, "PATIENCE", 0.5)
    monkeypatch.setattr(leftover_calls, "TIMES", 0)

    def waits(n: int) -> None:
        over.wait(30 if n == 1 else 0)

    first = Step(id="first", tool="waits", args={"n": 1}, timeout=0.1, on_failure="default", default=0)
    plan = Plan(steps=[first, Step(id="second", tool="waits", args={"n": 2}, depends_on=["first"])])
    policy = Policy(grace=0.1, retry=ONCE, max_running=1)
    result = dagrun.run_sync(plan, tools=[make_tool(waits, effect="read")], policy=policy)

    assert result.status is Status.OVER_BUDGET
    assert result.reason == (
        "ceiling on what runs at once: step first was told to stop, and left 1 thread; second waits"
    )


def test_a_step_that_waits_for_its_next_attempt_waits_for_no_place(
    monkeypatch: pytest.MonkeyPatch, over: threading.Event
) -> None:
    """A run without a limit is not ended for one, however long a step waits after a failure."""
    monkeypatch.setattr(leftover_calls, "PATIENCE", 0.1)
    monkeypatch.setattr(leftover_calls, "TIMES", 0)
    calls: list[int] = []

    def waits() -> None:
        over.wait(30)

    async def flaky() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise dagrun.ToolError("busy", retryable=True, retry_after=1.0)
        return len(calls)

    first = Step(id="first", tool="waits", timeout=0.1, on_failure="default", default=0, retry=ONCE)
    plan = Plan(steps=[first, Step(id="flaky", tool="flaky")])
    tools = [make_tool(waits, effect="read"), make_tool(flaky, effect="read")]
    result = dagrun.run_sync(plan, tools=tools, policy=Policy(grace=0.1, retry=RetryRule(max_attempts=2)))

    assert (result.status, len(calls)) == (Status.SUCCEEDED, 2)


class _Refused(Exception):
    status_code = 429


@pytest.mark.parametrize("has_fallback", [False, True])
def test_a_provider_counts_out_the_calls_alone_that_it_has_counted_in(has_fallback: bool) -> None:
    """Its window may be made while a call goes on, and the next call of the step may be one of another tool."""
    refused: list[int] = []
    beside: list[int] = []

    async def query(n: int) -> int:
        if n == 1:
            await asyncio.to_thread(time.sleep, 1.5)
        elif n == 2 and not refused:
            refused.append(n)
            raise _Refused
        elif n == 3:
            await asyncio.sleep(2.0)  # until the thread has ended
        return n

    async def other(n: int) -> int:
        beside.append(engine._features.windows["tool query"].in_flight)
        return n

    engine = dagrun.Engine()

    async def main() -> tuple[Status, dict[str, int]]:
        stuck = {"fallback": "other"} if has_fallback else {"on_failure": "default", "default": 0}
        first = Step(id="first", tool="query", args={"n": 1}, timeout=0.4, retry=ONCE, **stuck)
        refuses = Step(id="refuses", tool="query", args={"n": 2}, depends_on=[] if has_fallback else ["first"])
        last = Step(id="last", tool="query", args={"n": 3}, depends_on=["refuses", "first"])
        tools = [make_tool(function, effect="read") for function in (query, other)]
        policy = Policy(grace=0.1, retry=RetryRule(max_attempts=3, first_delay=0.01))
        async with engine:
            result = await engine.run(Plan(steps=[first, refuses, last]), tools=tools, policy=policy)
            return result.status, {name: window.in_flight for name, window in engine._features.windows.items()}

    assert asyncio.run(main()) == (Status.SUCCEEDED, {"tool query": 0})
    assert beside == ([1] if has_fallback else [])


def test_only_programs_get_a_moment_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks the loop, and a thousand calls may be stopped at once."""
    slept: list[float] = []
    monkeypatch.setattr("dagrun.kernel.runtime.coroutine_driver.time.sleep", slept.append)

    def left(kind: Any) -> dict[int, Any]:
        return {1: coroutine_driver.Leftover(kind, "", lambda: True, lambda _: None)}

    assert [len(coroutine_driver.going_on(left(kind))) for kind in ("task", "thread")] == [1, 1]
    assert not slept
    coroutine_driver.going_on(left("program"))
    assert 0 < sum(slept) <= 0.01


def test_the_place_in_an_engine_is_free_when_its_run_has_ended(over: threading.Event) -> None:
    """A limit that runs share is not held by a run that is over."""

    def waits() -> None:
        over.wait(30)

    async def quick() -> int:
        return 1

    async def main() -> list[Status]:
        plan = Plan(steps=[Step(id="w", tool="waits", timeout=0.1)])
        policy = Policy(grace=0.1, retry=ONCE)
        async with dagrun.Engine(max_running=1) as engine:
            slow = await engine.run(plan, tools=[make_tool(waits, effect="read")], policy=policy)
            plan = Plan(steps=[Step(id="q", tool="quick")])
            after = await engine.run(plan, tools=[make_tool(quick, effect="pure")], policy=Policy(max_seconds=10))
        return [slow.status, after.status]

    assert _run(main, "asyncio") == [Status.FAILED, Status.SUCCEEDED]


# The end of the program --------------------------------------------------------------------------------------


def _program(text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.costly
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_function_that_never_ends_does_not_keep_the_program(backend: str) -> None:
    """Its thread is named in the log."""
    done = _program(f"""
        import threading, dagrun
        @dagrun.tool(effect="read", timeout=0.2)
        def fetch(n: int) -> int:
            threading.Event().wait()
            return n
        result = dagrun.run_sync(dagrun.plan(fetch.step(n=1)), policy=dagrun.Policy(grace=0.2), backend={backend!r})
        print(result.steps["fetch"].state)
    """)

    assert (done.stdout.strip(), done.returncode) == ("abandoned", 0)
    assert "left 1 thread that would not stop: fetch" in done.stderr


def test_a_function_in_a_thread_may_still_call_the_loop() -> None:
    """By anyio's own functions, as in a thread of anyio; and it may run a loop of its own."""

    async def twice(n: int) -> int:
        await anyio.sleep(0)
        return 2 * n

    async def elsewhere() -> int:
        return 1

    def calls(n: int) -> int:
        return anyio.from_thread.run(twice, n) + anyio.run(elsewhere)

    plan = Plan(steps=[Step(id="c", tool="calls", args={"n": 3})])

    assert dagrun.run_sync(plan, tools=[make_tool(calls, effect="pure")]).output == 7


WAYS: Final = {
    "asyncio.run": "asyncio.run(main())",
    "run_until_complete": "asyncio.new_event_loop().run_until_complete(main())",
    "trio": "anyio.run(main, backend='trio')",
}
HANDLERS: Final = {
    "Ctrl-C": ("", "KeyboardInterrupt"),
    "a handler of the host": ("signal.signal(signal.SIGINT, lambda *_: sys.exit(3))", "SystemExit"),
}


@pytest.mark.costly
@pytest.mark.parametrize("handler", HANDLERS.values(), ids=HANDLERS)
@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_an_interrupt_while_a_tool_computes_is_for_the_host(how: str, handler: tuple[str, str]) -> None:
    """It ends the run, whose record can be resumed, and no later step runs; it is no failure of that step."""
    done = _program(f"""
        import asyncio, logging, os, signal, sys, threading, time, anyio, dagrun
        logging.disable(logging.CRITICAL)
        {handler[0]}
        journal = dagrun.MemoryJournal()
        @dagrun.tool(effect="read")
        async def busy(n: int) -> int:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            for _ in range(200):
                time.sleep(0.02)
                await anyio.sleep(0)
            return n
        @dagrun.tool(effect="read")
        async def later(n: int) -> int:
            await anyio.sleep(3)
            print("ran")
            return n
        async def main():
            plan = dagrun.plan(busy.step(n=1), later.step(n=2))
            await dagrun.run(plan, journal=journal, run_id="r")
        try:
            {how}
        except BaseException as error:
            print(type(error).__name__)
        record = b" ".join(line.text for line in asyncio.run(journal.read("r")))
        print(b"RunSuspended" in record, b"AttemptEnded" in record)
    """)

    assert done.stdout.split("\n")[:2] == [handler[1], "True False"], done.stdout + done.stderr
