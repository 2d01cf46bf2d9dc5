"""The functions that run a plan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import anyio
from anyio.lowlevel import current_token

from dagrun.api.checking import AnyPlan, AnySecrets, Inputs
from dagrun.api.engine import Engine
from dagrun.api.options import DraftOptions, ResumeOptions, RetryOptions, SoloOptions
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.decide.durations import Durations
from dagrun.model.critic import Critic
from dagrun.model.event import Event
from dagrun.model.executor import Executor
from dagrun.model.journal import Journal
from dagrun.model.planner import Planner
from dagrun.model.policy import Policy
from dagrun.model.question import Approver
from dagrun.model.redaction.redactor import Hook
from dagrun.model.toolbox import Tools
from dagrun.runtime.backend import call_soon, loop_options
from dagrun.runtime.result import RunResult
from dagrun.runtime.run import Run


@asynccontextmanager
async def start(
    plan: AnyPlan | None = None,
    *,
    goal: str | None = None,
    tools: Tools | None = None,
    policy: Policy | None = None,
    inputs: Inputs | None = None,
    artifacts: Path | None = None,
    run_id: str | None = None,
    seed: int | None = None,
    on_event: Callable[[Event], object] | None = None,
    planner: Planner | None = None,
    critics: Sequence[Critic] = (),
    approver: Approver | None = None,
    attended: bool = False,
    executors: Mapping[str, Executor] | None = None,
    secrets: AnySecrets | None = None,
    redact: Hook | None = None,
    journal: Journal | None = None,
    labels: Mapping[str, Any] | None = None,
    expires_after: float | None = None,
    durations: Durations | None = None,
) -> AsyncIterator[Run]:
    """Run a plan beside the body of an ``async with``; leaving the body waits for the run to end.

    With a goal in place of a plan, the planner writes the plan, and each step that only looks starts as soon as it is
    written; what has an effect waits until the plan is ended and valid. If it never is, the result says why.

    An error in the body, or a cancellation from outside, cancels the run; no task of it is left behind.

    Args:
        plan: As for `check`; `None` if there is a goal.
        goal: What the run is for, in words; only with a planner.
        tools: As for `check`; not with a checked plan, which has its own.
        policy: The limits of the run; not with a checked plan.
        inputs: What ``${input…}`` refers to: plain JSON by name.
        artifacts: The folder for the files of tools; `None` for a temporary one that lives as long as the result.
        run_id: A name for the run; by default a new one.
        seed: For the jitter of retry delays; `None` for a random one.
        on_event: Called with each event, right after the change that it stands for. It must be quick.
        planner: Who makes a plan of a goal, and is asked when a step fails or surprises; see `Planner`. `None` for
            nobody.
        critics: Who looks at what steps give, before anything uses it; see `Critic`.
        approver: Is asked each question to people; `None` for nobody.
        attended: Whether the caller answers them, through ``run.pending`` and ``run.answer``.
        executors: Where steps run that say so by name, besides those that there always are; see `Executor`. The
            caller closes them, after the run.
        secrets: What tools get through parameters of type ``SecretStr``, by name: texts, `env` or `Secret`. Plans name
            them, and their values are kept out of records, reports, logs and briefs.
        redact: Called with each text that is shown or logged, or told a planner; gives it without what must not be
            seen. If it raises, the whole text is hidden.
        journal: Where the run is written down, so that `resume` can go on with it; `None` for nowhere. The caller
            closes it, after the run.
        labels: What the journal keeps with the run for people: plain JSON by name.
        expires_after: Seconds after which the journal may forget the run; `None` for never.
        durations: What is known of how long the calls of each tool take, and learns on; `None` for what the journal
            keeps of that, if it does. See `Engine.durations`.

    Raises:
        PlanRefused: The plan has problems; nothing was run.
        JournalError: The journal cannot take the run: its name is taken, say.
        ContractError: There is neither a plan nor a goal with a planner, or both.

    Example:
        >>> async def watch(plan, tools):
        ...     async with start(plan, tools=tools) as run:
        ...         async for event in run.events():
        ...             print(event)
        ...     return await run.result()
    """
    async with (
        Engine(durations=durations) as engine,
        engine.start(
            plan,
            goal=goal,
            tools=tools,
            policy=policy,
            inputs=inputs,
            artifacts=artifacts,
            run_id=run_id,
            seed=seed,
            on_event=on_event,
            planner=planner,
            critics=critics,
            approver=approver,
            attended=attended,
            executors=executors,
            secrets=secrets,
            redact=redact,
            journal=journal,
            labels=labels,
            expires_after=expires_after,
        ) as run,
    ):
        yield run


async def draft(goal: str, **options: Unpack[DraftOptions]) -> CheckedPlan:
    """Let a planner make a plan of a goal, and run nothing.

    Args:
        goal: What the plan is for.
        options: As for `start`: at least *planner* and *tools*.

    Returns:
        The plan, checked: it can be shown, written to a file, and run.

    Raises:
        PlanRefused: What the planner gave has problems, also after it was told of them.
        RunFailed: The planner gave nothing.
    """
    async with Engine() as engine:
        return await engine.draft(goal=goal, **options)


async def run(plan: AnyPlan | None = None, **options: Unpack[SoloOptions]) -> RunResult:
    """Run a plan to its end. The options are those of `start`.

    Raises:
        PlanRefused: The plan has problems; nothing was run. A run that fails does not raise: look at the status of
            the result, or call its `raise_for_status`.
    """
    async with start(plan, **options) as running:
        return await running.result()


def run_sync(plan: AnyPlan | None = None, *, backend: str = "asyncio", **options: Unpack[SoloOptions]) -> RunResult:
    """Run a plan to its end from code that is not async. The options are those of `start`.

    Works inside a running loop too, as in a notebook, which it blocks meanwhile: the run then has a loop and a thread
    of its own.

    Args:
        plan: As for `start`.
        backend: The event loop: ``asyncio``, with the loop of uvloop if that is installed, or ``trio``.
        options: As for `start`.

    Raises:
        PlanRefused: The plan has problems; nothing was run.
    """

    async def main() -> RunResult:
        return await run(plan, **options)

    if _is_loop_running():
        return _run_in_thread(main, backend)
    return anyio.run(main, backend=backend, backend_options=loop_options(backend))


def _run_in_thread(main: Callable[[], Awaitable[RunResult]], backend: str) -> RunResult:
    """Run *main* on a loop in a thread of its own, with our context variables; an interrupt here cancels it there."""
    ours = copy_context()
    stops: list[Callable[[], None]] = []

    async def inside() -> RunResult:
        theirs = copy_context()
        for variable, value in ours.items():
            if variable not in theirs:  # it says there which library runs the loop, say
                variable.set(value)
        with anyio.CancelScope() as scope:
            stops.append(partial(call_soon, current_token(), scope.cancel))
            return await main()
        raise InterruptedError("the run was interrupted")  # nobody waits for it any more

    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(lambda: anyio.run(inside, backend=backend, backend_options=loop_options(backend)))
        try:
            return running.result()
        except BaseException:
            for stop in stops:
                stop()
            raise


def _is_loop_running() -> bool:
    try:
        current_token()
    except RuntimeError:
        return False
    return True


@asynccontextmanager
async def resume(run_id: str, **options: Unpack[ResumeOptions]) -> AsyncIterator[Run]:
    """Go on with a run that was killed, interrupted, or waits for people, beside the body of an ``async with``.

    What has succeeded stays; what only looks, or is idempotent, and was running is called again (with the same
    idempotency key); a call of an effectful tool that was cut off is in doubt, and its *reconcile*, a person or the
    planner settles that. A run that has ended as ``unknown`` is open again for the same purpose.

    Args:
        run_id: The run.
        journal: Where it was written down. The caller closes it.
        tools: As for `start`: those of the run.
        policy: The limits; `None` for those that were recorded.
        artifacts: The folder for the files of tools, if the journal keeps none.
        on_event: As for `start`, like *planner*, *critics*, *approver*, *attended* and *executors*.
        allow_differences: Whether the run goes on although its policy, the contracts of its tools, its critics or its
            executors are not those that were recorded.
        steal: Whether the run is taken from a process that still holds it; that one is stopped by this.

    Raises:
        RunNotFound: The journal has no such run.
        RunHeld: Another process is at it.
        CannotResume: It has ended, or not all is as it was; the differences are in the error.
        JournalDamaged: Its record is not what was written.
        PlanRefused: Its plan does not pass the check any more.

    Example:
        >>> async def go_on(run_id, journal, tools):
        ...     async with resume(run_id, journal=journal, tools=tools) as run:
        ...         return await run.result()
    """
    async with Engine() as engine, engine.resume(run_id, **options) as running:
        yield running


@asynccontextmanager
async def retry(run_id: str, **options: Unpack[RetryOptions]) -> AsyncIterator[Run]:
    """Do again what has not succeeded of a run that has ended, as a new run.

    Outputs of steps that have succeeded are taken over. The idempotency keys are those of the first run, so a service
    that knows them sees the same calls once more, not new ones.

    Args:
        run_id: The run that has ended.
        journal: Where it was written down, and the new one will be. The caller closes it.
        tools: As for `start`: those of the run.
        new_id: The name of the new run; by default a new one.
        policy: The limits; `None` for those that were recorded.
        parent_artifacts: The folder of the files of the first run, if its journal keeps none of it.
        allow_differences: As for `resume`. The other options are those of `start`.

    Raises:
        RunNotFound: The journal has no such run.
        CannotResume: It has not ended, has succeeded, or an effect of it is in doubt; or not all is as it was.
        JournalDamaged: Its record is not what was written.
        PlanRefused: Its plan does not pass the check any more.
    """
    async with Engine() as engine, engine.retry(run_id, **options) as running:
        yield running
