"""One run as the command line carries it out: watched, interruptible, and never waiting for what would not stop."""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio

from dagrun.api import start
from dagrun.api.options import RunOptions
from dagrun.cli import interrupts
from dagrun.cli.asking import make_approver
from dagrun.cli.display import Display, make_display
from dagrun.cli.interrupts import Interrupts
from dagrun.cli.problems import REFUSED
from dagrun.cli.settings import Mode
from dagrun.errors import DagrunError
from dagrun.graph.checked import CheckedPlan
from dagrun.graph.waves import in_waves
from dagrun.model.brief import Planner
from dagrun.model.event import Event
from dagrun.model.outcome import State, Status
from dagrun.model.policy import Policy
from dagrun.model.toolbox import Toolbox
from dagrun.model.verdict import Critic
from dagrun.runtime.result import RunResult
from dagrun.runtime.run import Run

LEAVE_SECONDS: Final = 3.0  # for closing what a run has used; it takes milliseconds, unless something would not stop
THREAD_SECONDS: Final = 0.5

OnEvent = Callable[[Event], object]


def scheduled(plan: CheckedPlan, mode: Mode) -> CheckedPlan:
    """Give *plan* as *mode* wants it run; the engine is the same for all of them."""
    match mode:
        case "parallel":
            return plan
        case "waves":
            return in_waves(plan)
        case "sequential":
            return replace(plan, policy=plan.policy.model_copy(update={"max_running": 1}))


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a run is for that has no plan yet.

    Attributes:
        text: In words.
        toolbox: What its plan may call.
        policy: The limits.
    """

    text: str
    toolbox: Toolbox
    policy: Policy


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run that is to be carried out.

    Attributes:
        plan: What is run: a plan; or a goal, for which the planner writes one.
        inputs: What ``${input…}`` stands for.
        artifacts: The folder for the files of tools, or none for a temporary one.
        is_shown: Whether a live table may be drawn on the standard error.
        log_level: The least level of log records that are shown.
        planner: Who is asked when a step fails or surprises; `None` for nobody.
        critics: Who looks at what steps give before it is used.
        on_event: Called with each event.
        on_result: Called once with the result, before anything that would not stop is left behind.
    """

    plan: CheckedPlan | Goal
    inputs: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Path | None = None
    is_shown: bool = True
    log_level: int = logging.WARNING
    planner: Planner | None = None
    critics: tuple[Critic, ...] = ()
    on_event: OnEvent | None = None
    on_result: Callable[[RunResult], object]


def execute(job: Job) -> int:
    """Carry out *job*, and give the exit code.

    Ctrl-C cancels the run, which then ends with a partial result; a second one ends the program. So does the end of
    a run in which something would not stop: nobody waits for it.
    """
    threads = set(threading.enumerate())
    with _artifacts(job.artifacts) as folder, Interrupts() as signals:
        ending = _Ending(job, folder, signals)
        try:
            with unwrapped():
                anyio.run(_execute, job, ending)
        finally:
            ending.leave()
        if _has_stuck_threads(threads):
            ending.exit_hard()
    return ending.code


class _Ending:
    """What happens when the result is there, up to a process that has to be ended by force."""

    def __init__(self, job: Job, folder: Path, signals: Interrupts) -> None:
        self.code = 0
        self.folder = folder
        self.signals = signals
        self._job = job
        self._watchdog = threading.Timer(LEAVE_SECONDS, self.exit_hard)
        self._watchdog.daemon = True
        self._watchdog.name = "dagrun watchdog"

    def deliver(self, result: RunResult) -> None:
        """Hand the result on. From now on, time is limited."""
        self.code = self.signals.exit_code(exit_code_of(result))
        self._job.on_result(result)
        if any(a.outcome and a.outcome.state is State.ABANDONED for s in result.steps.values() for a in s.attempts):
            self.exit_hard()
        self._watchdog.start()

    def leave(self) -> None:
        """Everything has ended by itself."""
        self._watchdog.cancel()
        if self._watchdog.is_alive():
            self._watchdog.join()

    def exit_hard(self) -> None:
        """End the process: something in it would not stop."""
        if self._job.artifacts is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        interrupts.exit_hard(self.code)


async def _execute(job: Job, ending: _Ending) -> None:
    with make_display(is_shown=job.is_shown, log_level=job.log_level) as display:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(display.keep_fresh)
            options: RunOptions = {
                "inputs": job.inputs,
                "artifacts": ending.folder,
                "planner": job.planner,
                "critics": job.critics,
                "approver": make_approver(display),
                "on_event": both(display.on_event, job.on_event),
            }
            async with _started(job.plan, options) as run:
                ending.signals.on_first(_stopper(run, display))
                result = await run.result()
                display.close()
                ending.deliver(result)
            tasks.cancel_scope.cancel()


def exit_code_of(result: RunResult) -> int:
    """The exit code of a run; of one that has come to nothing because no plan was valid, that of a refused plan."""
    is_refused = result.problems and result.status in (Status.FAILED, Status.OVER_BUDGET)
    return REFUSED if is_refused else result.status.exit_code


def _started(plan: CheckedPlan | Goal, options: RunOptions) -> AbstractAsyncContextManager[Run]:
    if isinstance(plan, Goal):
        options |= {"goal": plan.text, "tools": plan.toolbox, "policy": plan.policy}
        return start(**options)
    return start(plan, **options)


def both(first: OnEvent, second: OnEvent | None) -> OnEvent:
    """Give what hands each event to two observers."""
    if second is None:
        return first

    def on_event(event: Event) -> None:
        first(event)
        second(event)

    return on_event


def _stopper(run: Run, display: Display) -> Callable[[int], object]:
    """Give what the first signal does. It comes in the middle of anything, so the loop does it next."""
    loop = asyncio.get_running_loop()

    def cancel(number: int) -> None:
        if run.cancel(reason=f"interrupted by {interrupts.name_of(number)}"):
            display.line("Stopping. Once more to stop at once.")

    return lambda number: loop.call_soon_threadsafe(cancel, number)


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise an error that is meant for the user as it was, without the groups that task groups put around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, DagrunError):
            raise error from None
        raise


@contextmanager
def _artifacts(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="dagrun-", ignore_cleanup_errors=True) as temporary:
        yield Path(temporary)


def _has_stuck_threads(before: set[threading.Thread]) -> bool:
    """Whether Python would wait for a thread of the run when it ends; idle ones get a moment to go."""
    started = [t for t in threading.enumerate() if t not in before and not t.daemon]
    for thread in started:
        thread.join(THREAD_SECONDS / len(started))
    return any(thread.is_alive() for thread in started)
