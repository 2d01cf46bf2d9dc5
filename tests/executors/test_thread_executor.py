"""Plain functions in threads: they are asked to stop, counted if they do not, and cannot harm the loop."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anyio
import pytest

from calls import Reported, make_call
from dagrun import ToolContext, WorkerLimits
from dagrun.errors import StepCancelled, ValueRefused
from dagrun.executors.executors import BuiltInExecutors
from dagrun.executors.threads import ThreadExecutor
from dagrun.extend import StillRunning
from dagrun.kernel.model.executor import CallFailed
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.backend import clock
from dagrun.kernel.runtime.coroutine_driver import Suspended
from dagrun.kernel.runtime.stop_scope import StopScope, stop_scopes

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends, pytest.mark.real_time]

WHO = contextvars.ContextVar("WHO", default="nobody")


class Stubborn:
    """A function that ignores all requests until its gate is opened."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.gate = threading.Event()
        self.tool = make_tool(self._make())

    def _make(self) -> Callable[[], int]:
        def stubborn() -> int:
            self.started.set()
            assert self.gate.wait(30)
            return 1

        return stubborn

    async def has_started(self) -> None:
        await until(self.started.is_set)


async def until(claim: Callable[[], bool]) -> None:
    """Wait until *claim* holds, by polling: a thread sets no event of the loop."""
    with anyio.fail_after(20):
        while not claim():
            await anyio.sleep(0.001)


async def leave_stuck(executor: ThreadExecutor, stubborn: Stubborn) -> None:
    """Give up a call that does not stop."""

    async def call() -> None:
        with pytest.raises(StillRunning):
            await executor.call(make_call(stubborn.tool, grace=0.01))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await stubborn.has_started()
        tasks.cancel_scope.cancel()


async def test_function_sees_the_context_variables_of_its_caller() -> None:
    """Traces and request ids are context variables; a thread without them would log under no name."""

    def whoami() -> list[Any]:
        return [WHO.get(), threading.current_thread() is threading.main_thread()]

    WHO.set("caller")
    assert await ThreadExecutor().call(make_call(make_tool(whoami))) == ["caller", False]


async def test_cooperative_function_ends_when_cancelled() -> None:
    """check_cancelled is the only way to stop a thread early, and reports of the function never block."""
    reported: Reported = []
    ended: list[str] = []
    started = threading.Event()

    def look_now_and_then(ctx: ToolContext) -> None:
        try:
            while True:
                ctx.progress(0.5)
                started.set()
                ctx.check_cancelled()
        except StepCancelled:
            ended.append("by check_cancelled")
            raise

    executor = ThreadExecutor(max_threads=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(executor.call, make_call(make_tool(look_now_and_then), reported=reported))
        await until(started.is_set)
        await until(lambda: bool(reported))
        tasks.cancel_scope.cancel()

    assert tasks.cancel_scope.cancelled_caught
    assert ended == ["by check_cancelled"]
    assert executor.stuck == 0


async def test_function_that_does_not_stop_is_counted_until_it_ends() -> None:
    """A thread cannot be killed; the count keeps a broken tool from filling the process with threads."""
    executor, stubborn = ThreadExecutor(), Stubborn()
    await leave_stuck(executor, stubborn)
    assert executor.stuck == 1

    stubborn.gate.set()
    await until(lambda: executor.stuck == 0)


async def test_too_many_stuck_threads_refuse_new_calls_until_one_ends() -> None:
    """The error names the ceiling and the number reached, nothing has begun, and the refusal is temporary."""
    executor, stubborn = ThreadExecutor(max_stuck=1), Stubborn()
    await leave_stuck(executor, stubborn)
    ran: list[int] = []
    call = make_call(make_tool(lambda_tool(ran)))

    with pytest.raises(CallFailed, match="ceiling of 1 stuck threads: 1 ") as caught:
        await executor.call(call)
    assert caught.value.failure.kind is ErrorKind.CEILING
    assert caught.value.failure.nothing_happened
    assert ran == []

    stubborn.gate.set()
    await until(lambda: executor.stuck == 0)
    await executor.call(call)
    assert ran == [1]


def lambda_tool(ran: list[int]) -> Callable[[], None]:
    def note() -> None:
        ran.append(1)

    return note


async def test_call_that_waited_for_a_place_is_refused_too() -> None:
    """The ceiling may be reached while a call waits; starting it then would add one more stuck thread."""
    executor, stubborn = ThreadExecutor(max_threads=1, max_stuck=1), Stubborn()
    ran: list[int] = []
    refused: list[ErrorKind] = []
    scope = anyio.CancelScope()

    async def get_stuck() -> None:
        with scope, suppress(StillRunning):
            await executor.call(make_call(stubborn.tool, grace=0.01))

    async def wait_for_a_place() -> None:
        try:
            await executor.call(make_call(make_tool(lambda_tool(ran))))
        except CallFailed as error:
            refused.append(error.failure.kind)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(get_stuck)
        await stubborn.has_started()
        tasks.start_soon(wait_for_a_place)
        await anyio.wait_all_tasks_blocked()
        scope.cancel()

    assert (refused, ran) == ([ErrorKind.CEILING], [])
    stubborn.gate.set()
    await until(lambda: executor.stuck == 0)


async def test_cancelled_call_keeps_its_place_while_its_thread_runs() -> None:
    """max_threads limits threads, not calls: anyio's own limiter would release the place at the cancellation."""
    executor, stubborn = ThreadExecutor(max_threads=1), Stubborn()
    order: list[str] = []
    scope = anyio.CancelScope()

    def second() -> None:
        order.append("second runs")

    async def first() -> None:
        with scope:
            await executor.call(make_call(stubborn.tool, grace=30))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await stubborn.has_started()
        tasks.start_soon(executor.call, make_call(make_tool(second)))
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        order.append("first is let go")
        stubborn.gate.set()

    assert order == ["first is let go", "second runs"]


async def test_call_cancelled_while_it_waits_never_runs() -> None:
    """A step that was cancelled before a thread was free must not take effect later."""
    executor, stubborn = ThreadExecutor(max_threads=1), Stubborn()
    ran: list[int] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(executor.call, make_call(stubborn.tool))
        await stubborn.has_started()
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(executor.call, make_call(make_tool(lambda_tool(ran))))
            await anyio.wait_all_tasks_blocked()
            waiting.cancel_scope.cancel()
        stubborn.gate.set()
    assert ran == []
    assert executor.stuck == 0


async def test_call_that_the_runtime_drops_is_counted() -> None:
    """The runtime closes an overdue coroutine at any await; its thread must still be counted."""
    executor, stubborn = ThreadExecutor(), Stubborn()

    async def call_and_drop(scope: StopScope) -> None:
        context = contextvars.copy_context()
        with scope:
            coroutine = executor.call(make_call(stubborn.tool))
            got = context.run(coroutine.send, None)
            with pytest.raises(StillRunning):
                await Suspended(coroutine, context, got, scope)

    async with anyio.create_task_group() as tasks:
        scope = stop_scopes(0.0, clock())()
        tasks.start_soon(call_and_drop, scope)
        await stubborn.has_started()
        scope.give_up()
        scope.stop()

    assert executor.stuck == 1
    stubborn.gate.set()
    await until(lambda: executor.stuck == 0)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SystemExit(1), ErrorKind.FORBIDDEN_EXCEPTION),
        (KeyboardInterrupt(), ErrorKind.FORBIDDEN_EXCEPTION),
        (GeneratorExit(), ErrorKind.FORBIDDEN_EXCEPTION),
        (BaseException("mine"), ErrorKind.FORBIDDEN_EXCEPTION),
        (asyncio.CancelledError(), ErrorKind.FOREIGN_CANCELLATION),
        (StopIteration(1), ErrorKind.EXCEPTION),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_exception_that_would_hurt_the_loop_comes_as_a_failure(error: BaseException, kind: ErrorKind) -> None:
    """On asyncio, a SystemExit that is set on a future escapes the loop, and no coroutine can raise StopIteration."""

    def explode() -> None:
        raise error

    with pytest.raises(CallFailed) as caught:
        await ThreadExecutor().call(make_call(make_tool(explode)))
    assert caught.value.failure.kind is kind
    assert caught.value.failure.error == type(error).__name__


async def test_ordinary_exception_comes_as_it_is() -> None:
    """The runtime classifies it by class and attributes, so it must be the same object."""
    error = LookupError("no such row")

    def explode() -> None:
        raise error

    with pytest.raises(LookupError) as caught:
        await ThreadExecutor().call(make_call(make_tool(explode)))
    assert caught.value is error


async def test_unfinished_values_are_refused_and_closed() -> None:
    """They would never be awaited or exhausted, and an endless generator would hang the encoder."""
    closed: list[str] = []

    async def later() -> None:
        """Never awaited: Python would warn, and the suite fails on warnings."""

    def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            closed.append("generator")

    async def endless_later() -> Any:
        yield 1

    def begun() -> Any:
        generator = endless()
        next(generator)
        return generator

    def promise() -> Any:
        return later()

    def stream() -> Any:
        return endless_later()

    for function in (begun, promise, stream):
        with pytest.raises(ValueRefused, match="return"):
            await ThreadExecutor().call(make_call(make_tool(function)))
    assert closed == ["generator"]


async def test_reports_arrive_in_the_loop_before_the_result() -> None:
    """Usage that arrives after the attempt is settled would not be charged."""
    where: set[bool] = set()
    reported: Reported = []

    class Noting(list[Any]):
        def append(self, item: Any) -> None:
            where.add(threading.current_thread() is threading.main_thread())
            reported.append(item)

    def spend(ctx: ToolContext) -> None:
        for tokens in range(100):
            ctx.report_usage(tokens=tokens)
            ctx.progress(tokens / 100)

    await ThreadExecutor().call(make_call(make_tool(spend), reported=Noting()))

    assert sum(facts["tokens"] for kind, facts in reported if kind == "usage") == sum(range(100))
    assert where == {True}


async def test_progress_that_nobody_has_seen_yet_is_replaced() -> None:
    """A tool that reports its progress a million times while the loop is busy must not fill the memory."""
    reported: Reported = []
    told, started, gate = threading.Event(), threading.Event(), threading.Event()

    def chatter(ctx: ToolContext) -> None:
        started.set()
        assert gate.wait(30)
        for number in range(1000):
            ctx.progress(number / 1000)
        told.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ThreadExecutor().call, make_call(make_tool(chatter), reported=reported))
        await until(started.is_set)
        gate.set()
        assert told.wait(30)  # blocks the loop on purpose

    assert [facts["fraction"] for _, facts in reported] == [0.999]


async def test_context_works_in_the_thread() -> None:
    """On trio, a thread cannot read the clock of the loop, but it must see the deadline."""

    def look(ctx: ToolContext) -> list[Any]:
        left = ctx.seconds_left
        return [left is not None and 0 < left <= 60, ctx.attempt, ctx.is_cancelled]

    call = make_call(make_tool(look), seconds=None)
    context = call.context()
    context.clock = anyio.current_time
    context.deadline = anyio.current_time() + 60

    assert await ThreadExecutor().call(call) == [True, 2, False]


async def test_executors_start_nothing_before_their_first_call() -> None:
    """A run of coroutines must not pay for threads and processes that it does not use."""
    threads = threading.active_count()
    executors = BuiltInExecutors(WorkerLimits())

    async def add(a: int, b: int) -> int:
        return a + b

    assert await executors["coroutine"].call(make_call(make_tool(add), {"a": 1, "b": 2})) == 3
    assert (threading.active_count(), sorted(executors)) == (threads, ["coroutine"])
    assert executors["thread"] is executors["thread"]
    assert sorted(executors[name] is not None for name in ("coroutine", "process", "thread")) == [True] * 3
    with pytest.raises(KeyError):
        executors["gpu"]
    for executor in executors.values():
        await executor.aclose()
