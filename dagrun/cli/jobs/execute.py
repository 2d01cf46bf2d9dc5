"""Carries out a job: with a live display, signals, and an end that does not wait for stuck tools."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
from anyio.abc import TaskGroup

from dagrun import CheckedPlan, Event, Run, RunResult, State, Status, resume, retry, start
from dagrun.api.preloading import OWN_LOOP
from dagrun.cli.jobs.job import Goal, Job, OnEvent, Reporting, ResumeOrRetry, unusable
from dagrun.cli.setup.secrets import record_key
from dagrun.cli.setup.tool_modules import loop_of, opened_deps
from dagrun.cli.terminal import signals as interrupts
from dagrun.cli.terminal.display import Display, make_display
from dagrun.cli.terminal.signals import Interrupts
from dagrun.cli.terminal.text import terminal_of
from dagrun.cli.terminal.user_errors import REFUSED, BadInput
from dagrun.errors import DagrunError, JournalFailed, RunFailed
from dagrun.kernel.model.question import Approver

if TYPE_CHECKING:
    from dagrun.cli.jobs.page_server import PageServer

LEAVE_SECONDS: Final = 3.0  # for closing a run after its result; it takes milliseconds, unless something would not stop
THREAD_SECONDS: Final = 0.5  # for idle threads to end


@dataclass(frozen=True, slots=True)
class Executed:
    """A job that was carried out: the exit code, and the result of the run."""

    code: int
    result: RunResult


def execute(job: Job, reporting: Reporting) -> Executed:
    """Carry out *job*.

    Ctrl-C suspends a recorded run, and cancels one without a record; the result is partial. A second Ctrl-C ends the
    process. The process also ends by force after a run in which a tool would not stop.

    Raises:
        BadInput: The run cannot be recorded.
        RunFailed: The run has no result, because something has stopped it from outside.
    """
    threads = set(threading.enumerate())
    with _artifacts(job) as folder, Interrupts() as signals:
        ending = _Ending(reporting, folder, signals, is_temporary=folder != job.artifacts)
        try:
            with unwrapped():
                anyio.run(_execute, job, reporting, ending, backend_options=loop_of(job.plan.toolbox))
        finally:
            ending.leave()
        if has_stuck_threads(threads):
            ending.exit_hard()
    if ending.result is None:  # whatever has cancelled the task of the run has told nobody
        raise RunFailed(Status.FAILED, "the run was stopped from outside, and has no result")
    return Executed(ending.code, ending.result)


class _Ending:
    """The end of a job, from the result to the end of the process, by force if need be."""

    def __init__(self, reporting: Reporting, folder: Path | None, signals: Interrupts, *, is_temporary: bool) -> None:
        self.code = 0
        self.result: RunResult | None = None
        self.folder = folder
        self.signals = signals
        self._is_temporary = is_temporary
        self._reporting = reporting
        self._watchdog = threading.Timer(LEAVE_SECONDS, self.exit_hard)
        self._watchdog.daemon = True
        self._watchdog.name = "dagrun watchdog"

    def deliver(self, result: RunResult) -> None:
        """Report the result."""
        self.code = self.signals.exit_code((self._reporting.code_of or exit_code_of)(result))
        self._reporting.on_result(result)
        self.result = result
        if any(a.outcome and a.outcome.state is State.ABANDONED for s in result.steps.values() for a in s.attempts):
            self.exit_hard()

    def limit(self) -> None:
        """Limit the time until the end."""
        self._watchdog.start()

    def leave(self) -> None:
        """Stop the watchdog: everything has ended by itself."""
        self._watchdog.cancel()
        if self._watchdog.is_alive():
            self._watchdog.join()

    def exit_hard(self) -> None:
        """End the process by force: something in it would not stop."""
        if self.folder is not None and self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)
        interrupts.exit_hard(self.code)


async def _execute(job: Job, reporting: Reporting, ending: _Ending) -> None:
    OWN_LOOP.set(True)
    with make_display(is_shown=reporting.is_shown, log_level=reporting.log_level) as display:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(display.keep_fresh)
            if isinstance(job.plan, ResumeOrRetry) and job.plan.verb == "resume":
                display.remember(job.plan.past.events)
            on_event = both(display.on_event, reporting.on_event)
            options = {
                "on_event": on_event,
                "tracing": reporting.tracing,
                "approver": _approver_of(display, reporting.server) or job.stand_in,
            }
            async with _opened(job, ending.folder, options) as run:
                _show_page(run, reporting.server, tasks, display)
                ending.signals.on_first(_stopper(run, display, is_recorded=job.recording is not None))
                result = await run.result()
                display.close()
                ending.deliver(result)
                await _close_page(reporting, ending.signals)
                ending.limit()
            tasks.cancel_scope.cancel()


def _approver_of(display: Display, server: PageServer | None) -> Approver | None:
    """Return the approver: the person at the terminal, or else the readers of the page of the run."""
    approver = _approver(display)
    return server.page.approver if approver is None and server is not None else approver


def _show_page(run: Run, server: PageServer | None, tasks: TaskGroup, display: Display) -> None:
    if server is not None:
        server.page.watch(run)
        tasks.start_soon(server.serve)
        server.announce(display.line, run.id)


async def _close_page(reporting: Reporting, signals: Interrupts) -> None:
    if reporting.server is not None:
        await reporting.server.close_after(signals if reporting.lingers else None)


def exit_code_of(result: RunResult) -> int:
    """Return the exit code of a run; if the run failed because no plan was valid, the code of a refused plan."""
    is_refused = result.problems and result.status in (Status.FAILED, Status.OVER_BUDGET)
    return REFUSED if is_refused else result.status.exit_code


@asynccontextmanager
async def _opened(job: Job, folder: Path | None, more: dict[str, Any]) -> AsyncIterator[Run]:
    """Open the run of *job*; a record that cannot be begun is reported as a mistake of the command line."""
    is_open = False
    try:
        async with opened_deps(job.deps, job.plan.toolbox) as deps, _run_of(job, folder, {**more, "deps": deps}) as run:
            is_open = True
            yield run
    except JournalFailed as error:
        if is_open or isinstance(job.plan, ResumeOrRetry):
            raise
        raise unusable(error) from error


def _run_of(job: Job, folder: Path | None, more: dict[str, Any]) -> AbstractAsyncContextManager[Run]:
    plan, recording = job.plan, job.recording
    options: dict[str, Any] = {
        "artifacts": folder,
        "planner": job.planner,
        "critics": job.critics,
        "compose": job.compose,
        **more,
    }
    if not isinstance(plan, CheckedPlan):
        options |= {"tools": plan.toolbox, "policy": plan.policy, "secrets": plan.secrets}
    if recording is not None:
        options |= {"journal": recording.journal, "record_key": record_key()}
    if isinstance(plan, ResumeOrRetry) and plan.verb == "resume":
        return resume(plan.run_id, **options, allow_differences=plan.allow_differences, steal=plan.steal)
    if recording is not None:
        options |= {"labels": recording.labels, "expires_after": recording.expires_after}
    if isinstance(plan, ResumeOrRetry):
        assert recording is not None  # a run that is retried is always recorded
        options |= {"new_id": recording.run_id, "parent_artifacts": recording.parent_artifacts}
        return retry(plan.run_id, **options, allow_differences=plan.allow_differences)
    what = {"goal": plan.text} if isinstance(plan, Goal) else {"plan": plan}
    return start(**what, **options, inputs=job.inputs, run_id=None if recording is None else recording.run_id)


def _approver(display: Display) -> Approver | None:
    """Return the approver at the terminal; `None` if there is no terminal."""
    if terminal_of(sys.stdin) is None:
        return None
    from dagrun.cli.terminal.ask_person import make_approver

    return make_approver(display)


def both(first: OnEvent, second: OnEvent | None) -> OnEvent:
    """Return an observer that passes each event to both."""
    if second is None:
        return first

    def on_event(event: Event) -> None:
        first(event)
        second(event)

    return on_event


def _stopper(run: Run, display: Display, *, is_recorded: bool) -> Callable[[int], object]:
    """Return the handler of the first signal."""

    def cancel(number: int) -> None:
        reason = f"interrupted by {interrupts.name_of(number)}"
        if run.suspend(reason) if is_recorded else run.cancel(reason=reason):
            display.line("Stopping. Once more to stop at once.")

    return interrupts.next_in_loop(cancel)


@contextmanager
def unwrapped() -> Iterator[None]:
    """Raise an error of dagrun without the exception groups that task groups put around it."""
    try:
        yield
    except BaseExceptionGroup as group:
        error: BaseException = group
        while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
            error = error.exceptions[0]
        if isinstance(error, DagrunError | BadInput):
            raise error from None
        raise


@contextmanager
def _artifacts(job: Job) -> Iterator[Path | None]:
    """Open the folder for the files of tools; `None` means the folder of the record."""
    if job.artifacts is not None or job.recording is not None:
        yield job.artifacts
        return
    with tempfile.TemporaryDirectory(prefix="dagrun-", ignore_cleanup_errors=True) as temporary:
        yield Path(temporary)


def has_stuck_threads(before: set[threading.Thread]) -> bool:
    """Whether Python would wait for a thread of the run at the end of the process; idle threads get a moment to end."""
    started = [t for t in threading.enumerate() if t not in before and not t.daemon]
    for thread in started:
        thread.join(THREAD_SECONDS / len(started))
    return any(thread.is_alive() for thread in started)
