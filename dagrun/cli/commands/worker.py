"""``dagrun worker``: submitted runs are carried out, a line about each of them, and an end that waits for none."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.run_store import open_shared_runs
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import Data, data_output
from dagrun.errors import shorten, visible

if TYPE_CHECKING:
    from dagrun import ClaimEvent
    from dagrun.api.options import ResumeOptions
    from dagrun.cli.terminal.display import Display
    from dagrun.cli.terminal.signals import Interrupts


@command("worker")
def worker(**flags: Any) -> int:
    """Carry out submitted runs, until Ctrl-C or SIGTERM: then claim no more, suspend the runs, and exit with 0.

    A run belongs to one worker at a time. Suspended runs go back into the queue; calls with an effect get the grace
    period of the policy to end. A second signal ends the worker at once; then others take its runs over when their
    leases have expired, in 30 seconds. Nobody is asked here: a run with a question waits, and an answer from anywhere
    (dagrun answer, the live page) puts it back into the queue.

    Examples:
      dagrun worker --journal postgresql://app@db/runs --tools my_tools
      dagrun worker --journal postgresql://app@db/runs -t my_tools --pool mail

    Exit codes:
      0 after Ctrl-C or SIGTERM, 1 the database does not answer at the start,
      2 wrong usage, 130 or 143 after a second signal
    """
    return WorkerJob(flags).carry_out()


_MOST_REASON: Final = 400  # characters


class WorkerJob:
    """Claims and carries out runs until a signal comes.

    Args:
        flags: The flags of the command line.

    Raises:
        BadInput: Something that is named cannot be used.
    """

    def __init__(self, flags: Mapping[str, Any]) -> None:
        from dagrun.cli.setup.planners import load_compose, load_critics, make_planner
        from dagrun.cli.setup.secrets import record_key, secrets_of
        from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
        from dagrun.workers.submitting import queue_of

        configuration = configure(flags)
        records = open_shared_runs(configuration)
        limits = configuration.limits()
        self._toolbox = load_toolbox(configuration)
        configure_tools(configuration, limits)
        self._flags = flags
        self._where = records.where
        self._pools: tuple[str, ...] = flags["pools"] or ("default",)
        self._deps = configuration.settings.deps
        self._queue = queue_of(records.journal)
        named = flags["planner"]
        self._options: ResumeOptions = {
            "journal": records.journal,
            "tools": self._toolbox,
            "planner": make_planner(configuration, named) if named is not None else None,
            "critics": load_critics(flags["critics"]),
            "compose": load_compose(configuration, flags["compose"]),
            "secrets": secrets_of(configuration),
            "record_key": record_key(),
            "allow_differences": flags["allow_differences"],
        }

    def carry_out(self) -> int:
        """Work, and return the exit code."""
        import anyio

        from dagrun.cli.jobs.execute import has_stuck_threads, unwrapped
        from dagrun.cli.jobs.one_run import log_level
        from dagrun.cli.setup.tool_modules import loop_of
        from dagrun.cli.terminal.display import Display
        from dagrun.cli.terminal.signals import Interrupts, exit_hard

        threads = set(threading.enumerate())
        display = Display(None, log_level(self._flags), tells_faults=False)
        with data_output() as data, display, Interrupts() as signals:
            lines = _ClaimLines(display, data if self._flags["events"] else None, is_quiet=self._flags["quiet"])
            with unwrapped():
                anyio.run(self._work, lines, signals, backend_options=loop_of(self._toolbox))
            if has_stuck_threads(threads):
                exit_hard(0)
        return 0

    async def _work(self, lines: _ClaimLines, signals: Interrupts) -> None:
        from dagrun import Worker
        from dagrun.api.engine import Engine
        from dagrun.cli.setup.tool_modules import opened_deps
        from dagrun.cli.terminal.signals import next_in_loop
        from dagrun.journal.queue import QueueStatus

        await self._queue.runs((QueueStatus.STUCK,))  # an address that is wrong is an error now, and not every second
        async with opened_deps(self._deps, self._toolbox) as deps, Engine() as engine:
            worker = Worker(
                engine,
                pools=self._pools,
                at_once=self._flags["at_once"],
                max_takeovers=self._flags["max_takeovers"],
                unfit_after=self._flags["unfit_after"],
                on_claim=lines.tell,
                **{**self._options, "deps": deps},
            )
            lines.begin(self._pools, self._flags["at_once"], self._where)
            signals.on_first(next_in_loop(lambda number: lines.stop(number, worker.stop)))
            await worker.run()
        lines.end()


class _ClaimLines:
    """Reports the runs; ends the process when all are done that can end, if something does not stop.

    Args:
        display: Takes lines for people.
        data: Takes lines of JSON; `None` for none.
        is_quiet: Whether only runs are reported that need somebody.
    """

    def __init__(self, display: Display, data: Data | None, *, is_quiet: bool) -> None:
        from dagrun.cli.jobs.execute import LEAVE_SECONDS
        from dagrun.cli.terminal.signals import exit_hard

        self._display = display
        self._data = data
        self._is_quiet = is_quiet
        self._claimed: set[str] = set()
        self._is_stopping = False
        self._watchdog = threading.Timer(LEAVE_SECONDS, exit_hard, (0,))
        self._watchdog.daemon = True
        self._watchdog.name = "dagrun watchdog"

    def begin(self, pools: tuple[str, ...], at_once: int, where: str) -> None:
        """Print the pools of the worker."""
        named = f"pool{'s' * (len(pools) != 1)} {', '.join(pools)}"
        self._say(f"working for {named} of {where}, {at_once} runs at once at most; Ctrl-C stops")
        self._json("WorkerStarted", pools=list(pools), at_once=at_once, where=where)

    def tell(self, news: ClaimEvent) -> None:
        """Report an event of a run."""
        from dagrun.journal.queue import QueueStatus

        if news.standing is QueueStatus.RUNNING:
            self._claimed.add(news.run_id)
        else:
            self._claimed.discard(news.run_id)
        standing = None if news.standing is None else str(news.standing)
        status = None if news.status is None else str(news.status)
        needs_somebody = news.standing in (QueueStatus.STUCK, None)
        self._say(f"{news.run_id}  {_words(news)}", is_urgent=needs_somebody)
        self._json(
            "RunClaimed" if news.standing is QueueStatus.RUNNING else "RunReleased",
            run_id=news.run_id,
            standing=standing,
            status=status,
            reason=news.reason,
            seconds=round(news.seconds, 3),
        )
        self._watch_end()

    def stop(self, number: int, stop: Callable[[], object]) -> None:
        """Stop the worker after a signal."""
        from dagrun.cli.terminal.signals import name_of

        self._is_stopping = True
        runs = f" {len(self._claimed)} run{'s' * (len(self._claimed) != 1)} suspended," if self._claimed else ""
        self._say(f"{name_of(number)}: nothing more is claimed,{runs} then this ends. Once more to stop at once.")
        stop()
        self._watch_end()

    def end(self) -> None:
        """Report the end of the work."""
        self._watchdog.cancel()
        self._say("stopped")
        self._json("WorkerStopped")

    def _watch_end(self) -> None:
        if self._is_stopping and not self._claimed and not self._watchdog.is_alive():
            self._watchdog.start()

    def _say(self, text: str, *, is_urgent: bool = False) -> None:
        if not self._is_quiet or is_urgent:
            self._display.line(f"{time.strftime('%H:%M:%S')}  {visible(text)}")

    def _json(self, event: str, **facts: Any) -> None:
        if self._data is not None:
            self._data.line({"event": event, "time": round(time.time(), 3), **facts})


def _words(news: ClaimEvent) -> str:
    from dagrun.journal.queue import QueueStatus

    reason, seconds = shorten(news.reason, _MOST_REASON), f"({news.seconds:.1f} s)"
    match news.standing:
        case QueueStatus.RUNNING:
            return "claimed"
        case QueueStatus.ENDED:
            return f"{news.status} {seconds}" if news.status == "succeeded" else f"{news.status}: {reason} {seconds}"
        case QueueStatus.QUEUED:
            return f"back in the queue: {reason} {seconds}"
        case None:
            return f"left to another worker: {reason} {seconds}"
        case _:
            return f"{news.standing}: {reason} {seconds}"
