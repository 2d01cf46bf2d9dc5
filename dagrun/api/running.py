"""The public functions that run a plan: `start`, `run`, `run_sync`, `draft`, `resume`, `retry`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, TypeVar, Unpack, cast

from dagrun.api import preloading
from dagrun.api.options import ResumeOptions, RetryOptions, SoloOptions, lists_options, must_fit
from dagrun.kernel.runtime.run_options import DraftOptions, RunOptions

if TYPE_CHECKING:
    from dagrun.api.checking import AnyPlan
    from dagrun.api.engine import Engine
    from dagrun.kernel.checks.checked_plan import CheckedPlan
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.runtime.result import RunResult
    from dagrun.kernel.runtime.run import Run

T = TypeVar("T")


async def _engine(durations: Durations | None = None) -> Engine:
    """Return an engine for one run, loaded in a thread if needed: the caller's loop must not be blocked."""
    if not preloading.is_done:
        await preloading.preload_aside()
    from dagrun.api.engine import Engine

    return Engine(durations=durations)


@lists_options(SoloOptions)
@asynccontextmanager
async def start(plan: AnyPlan | None = None, **options: Unpack[SoloOptions]) -> AsyncIterator[Run]:
    """Run a plan beside the body of an ``async with``; leaving the body waits for the run to end.

    With a goal in place of a plan, the planner writes the plan. A step without effects starts as soon as it is
    written; a step with effects waits until the whole plan is written and valid. If the plan never is, the result says
    why.

    An error in the body, or a cancellation from outside, cancels the run; no task of it is left behind.

    Args:
        plan: As for `check`; `None` if there is a goal.
        options: The options of `dagrun.api.RunOptions`, where each is explained; and *durations*, as for `Engine`.

    Raises:
        PlanRefused: The plan has problems; nothing was run.
        JournalError: The journal cannot take the run: its name is taken, say.
        ContractError: There is neither a plan nor a goal with a planner, or both; or an option is unknown, or makes no
            sense.

    Examples:
        >>> async def watch(plan, tools):
        ...     async with start(plan, tools=tools) as run:
        ...         async for event in run.events():
        ...             print(event)
        ...     return await run.result()
    """
    must_fit(options, SoloOptions, "a run")
    durations = options.pop("durations", None)
    async with await _engine(durations) as engine, engine.start(plan, **cast("RunOptions", options)) as running:
        yield running


@lists_options(DraftOptions)
async def draft(goal: str, **options: Unpack[DraftOptions]) -> CheckedPlan:
    """Ask a planner for a plan for a goal, and run nothing.

    Args:
        goal: What the plan is for.
        options: The options of `dagrun.api.RunOptions`; at least *planner* and *tools*.

    Returns:
        The checked plan, which can be shown, written to a file, and run.

    Raises:
        PlanRefused: The plan of the planner has problems, also after it was told of them.
        RunFailed: The planner gave no plan.
    """
    async with await _engine() as engine:
        return await engine.draft(goal=goal, **options)


@lists_options(SoloOptions)
async def run(plan: AnyPlan | None = None, **options: Unpack[SoloOptions]) -> RunResult:
    """Run a plan to its end. The options are the same as for `start`.

    Raises:
        PlanRefused: The plan has problems; nothing was run. A run that fails does not raise: look at the status of
            the result, or call its `raise_for_status`.
    """
    async with start(plan, **options) as running:
        return await running.result()


@lists_options(SoloOptions)
def run_sync(plan: AnyPlan | None = None, *, backend: str = "asyncio", **options: Unpack[SoloOptions]) -> RunResult:
    """Run a plan to its end from code that is not async. The options are the same as for `start`.

    It also works inside a running loop, as in a notebook: the run then has a thread and a loop of its own, and the
    calling loop is blocked until the run ends.

    Args:
        plan: As for `start`.
        backend: The event loop: ``asyncio`` (uvloop's loop, if it is installed), or ``trio``.
        options: As for `start`.

    Raises:
        PlanRefused: The plan has problems; nothing was run.
    """

    async def main() -> RunResult:
        return await run(plan, **options)

    from dagrun.kernel.runtime.backend import loop_options

    return run_on_own_loop(main, backend, loop_options(backend))


def run_on_own_loop(main: Callable[[], Awaitable[T]], backend: str, options: dict[str, object]) -> T:
    """Run an async function on a new loop; in another thread, where a loop runs already.

    Args:
        main: The function.
        backend: ``asyncio`` or ``trio``.
        options: The options of the backend, as for `anyio.run`.
    """
    import anyio

    async def alone() -> T:
        preloading.OWN_LOOP.set(True)
        return await main()

    if _is_loop_running():
        return _run_in_thread(alone, backend, options)
    return anyio.run(alone, backend=backend, backend_options=options)


def _run_in_thread(main: Callable[[], Awaitable[T]], backend: str, options: dict[str, object]) -> T:
    """Run *main* on a loop in another thread, with our context variables; an interrupt here cancels it there."""
    from concurrent.futures import ThreadPoolExecutor

    import anyio
    from anyio.lowlevel import current_token

    from dagrun.kernel.runtime.backend import call_soon

    ours = copy_context()
    stops: list[Callable[[], None]] = []

    async def inside() -> T:
        theirs = copy_context()
        for variable, value in ours.items():
            if variable not in theirs:  # sniffio, for example, must name the library of that loop
                variable.set(value)
        with anyio.CancelScope() as scope:
            stops.append(partial(call_soon, current_token(), scope.cancel))
            return await main()
        raise InterruptedError("the run was interrupted")  # the waiting thread raises its own exception

    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(lambda: anyio.run(inside, backend=backend, backend_options=options))
        try:
            return running.result()
        except BaseException:
            for stop in stops:
                stop()
            raise


def _is_loop_running() -> bool:
    from anyio.lowlevel import current_token

    try:
        current_token()
    except RuntimeError:
        return False
    return True


@lists_options(ResumeOptions)
@asynccontextmanager
async def resume(run_id: str, **options: Unpack[ResumeOptions]) -> AsyncIterator[Run]:
    """Resume a run that was killed, interrupted, or waits for people, beside the body of an ``async with``.

    Steps that succeeded stay as they are. A step that was running is called again if its tool has no effects or is
    idempotent, with the same idempotency key. A call of an effectful tool that was cut off is in doubt; its
    *reconcile*, a person or the planner settles that. A run that ended as ``unknown`` is reopened for the same purpose.

    Args:
        run_id: The run.
        options: Those of `dagrun.api.options.ResumeOptions`: at least *journal* and *tools*, which are the tools of the
            run.

    Raises:
        RunNotFound: The journal has no such run.
        RunHeld: Another process holds the run.
        CannotResume: The run has ended, or not all is as it was; the differences are in the error.
        JournalDamaged: The record was changed or damaged.
        PlanRefused: The plan of the run does not pass the check any more.

    Examples:
        >>> async def go_on(run_id, journal, tools):
        ...     async with resume(run_id, journal=journal, tools=tools) as run:
        ...         return await run.result()
    """
    async with await _engine() as engine, engine.resume(run_id, **options) as running:
        yield running


@lists_options(RetryOptions)
@asynccontextmanager
async def retry(run_id: str, **options: Unpack[RetryOptions]) -> AsyncIterator[Run]:
    """Run again, as a new run, the steps that did not succeed in a run that has ended.

    The new run takes over the outputs of the steps that succeeded. It uses the idempotency keys of the first run: a
    service that knows them sees the same calls again, not new ones.

    Args:
        run_id: The run that has ended.
        options: Those of `dagrun.api.options.RetryOptions`: at least *journal* and *tools*, which are the tools of the
            run.

    Raises:
        RunNotFound: The journal has no such run.
        CannotResume: The run has not ended, has succeeded, or an effect of it is in doubt; or not all is as it was.
        JournalDamaged: The record was changed or damaged.
        PlanRefused: The plan of the run does not pass the check any more.
    """
    async with await _engine() as engine, engine.retry(run_id, **options) as running:
        yield running
