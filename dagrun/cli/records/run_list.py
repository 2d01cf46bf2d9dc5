"""Lists of recorded runs: the state of each by its record, its queue status, and what can be done about it.

Each run is read by itself, so that a damaged one hides no other. A list of a folder keeps what it has read of each run
that is not going on, in the folder of the run: the next list reads only the records that have changed since.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.resume_command import command_again, label, quoted
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalDamaged, JournalError, JournalFailed, shorten
from dagrun.journal import summary_cache
from dagrun.journal.run_folder import RunPaths
from dagrun.observe.run_standing import RunOverview, RunState, standing_at_start, standing_of, standing_of_damaged
from dagrun.observe.run_summary import summary_of

if TYPE_CHECKING:
    from pathlib import Path

    from dagrun.cli.records.run_store import RunStore
    from dagrun.journal.queue import QueuedRun
    from dagrun.kernel.model.journal import Held, Line

# As `dagrun.journal.queue.QueueStatus`, which loads pydantic; a test compares them.
QUEUE_STATUSES: Final = ("queued", "running", "waiting", "ended", "stuck", "unreadable")
_MOST_ADVICE: Final = 10  # runs
_ADVICE: Final = (("inspect", (), "see"), ("resume", ("--requeue",), "try again"), ("stop", (), "give up"))


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run, as far as its record can be read.

    Attributes:
        overview: The run in short.
        fault: Why the record cannot be used; `None` if it can, or is empty.
        queue: The run in the queue; `None` if it was not submitted, or nobody has looked.
    """

    overview: RunOverview
    fault: JournalError | None = None
    queue: QueuedRun | None = None

    @property
    def state(self) -> str:
        """The state of the run: in the queue, if it was submitted, or else by its record."""
        return str(self.overview.state if self.queue is None else self.queue.standing)

    @property
    def text(self) -> str:
        """The state in a sentence: in the queue, if it was submitted, and by its record."""
        row, overview = self.queue, self.overview
        if row is None or overview.state is RunState.DAMAGED:
            return overview.text
        pool = f"pool {row.ticket.pool}"
        facts = [pool] if row.standing != "queued" else []
        facts += [f"priority {row.ticket.priority}"] if row.ticket.priority else []
        facts += [f"{row.takeovers} takeover{'s' * (row.takeovers != 1)}"] if row.takeovers else []
        since = f" since {when(row.queued if row.standing == 'queued' else overview.last or row.queued)}"
        match str(row.standing):
            case "queued":
                begin = row.ticket.not_before
                text = f"queued in {pool}{since}{': ' if row.reason else ''}{row.reason}"
                text = f"queued in {pool}, not before {when(begin)}" if begin > time.time() else text
            case "stuck" | "unreadable":
                text = f"{row.standing}{since}: {row.reason}"
            case "running" if overview.state is not RunState.RUNNING:
                text = "its worker has ended; the next one takes it over when the lease has expired"
            case _:
                text = overview.text
        return f"{text} ({', '.join(facts)})" if facts else text


def read_states(text: str) -> frozenset[str]:
    """Return the states that are named, with commas between them; all of them for an empty text.

    Raises:
        BadInput: One of them is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in QUEUE_STATUSES:
            raise BadInput(f"--state {shorten(name, 60)}: write {', '.join(QUEUE_STATUSES)}, several with commas")
    return frozenset(names or QUEUE_STATUSES)


def listed_runs(records: RunStore, wanted: Collection[str] = QUEUE_STATUSES) -> list[ListedRun]:
    """Return runs by their records, from cached summaries where possible, and by the queue if they were submitted.

    Args:
        records: The records.
        wanted: The states of `QUEUE_STATUSES` that are wanted. Of a run that was not submitted, its record says whether
            it is running, waiting, or has ended; if all are wanted, interrupted and damaged runs are there, too.
    """
    rows = {row.run_id: row for row in records.queued()}
    names = [name for name in records.names() if name not in rows or rows[name].standing in wanted]
    found = [replace(run, queue=rows.get(run.overview.run_id)) for run in _listed(records, names)]
    return found if len(wanted) == len(QUEUE_STATUSES) else [run for run in found if run.state in wanted]


def _listed(records: RunStore, names: Sequence[str]) -> Iterator[ListedRun]:
    folders = {name: folder for name in names if (folder := records.folder_of(name)) is not None}
    if not folders:
        yield from read_runs(records, names)
    for run_id, folder in folders.items():
        text = summary_cache.read_summary(RunPaths(folder))
        kept = None if text is None else RunOverview.from_text(run_id, text)
        yield from _read_and_kept(records, run_id, folder) if kept is None else [ListedRun(kept)]


def _read_and_kept(records: RunStore, run_id: str, folder: Path) -> Iterator[ListedRun]:
    paths = RunPaths(folder)
    try:
        state = paths.state()
        found = read_runs(records, [run_id])
    except OSError:  # it was deleted a moment ago
        return
    for run in found:
        if run.overview.can_be_kept:
            summary_cache.keep_summary(paths, state, run.overview.as_text())
        yield run


def read_runs(records: RunStore, wanted: Iterable[str] | None = None, *, verifies: bool = False) -> list[ListedRun]:
    """Return runs by their records.

    Args:
        records: The records.
        wanted: The names of the runs; `None` for all.
        verifies: Whether it is looked at each record whether its events follow from each other.
    """
    return [_read(held, found, verifies=verifies) for held, found in records.each(wanted)]


def _read(held: Held, found: list[Line] | JournalError, *, verifies: bool) -> ListedRun:
    if isinstance(found, list):
        try:
            if not found:
                return ListedRun(standing_at_start(held))
            if verifies:
                _verify(held.run_id, found)
            return ListedRun(standing_of(summary_of(held.run_id, found), held))
        except (JournalDamaged, JournalFailed) as error:
            found = error
    return ListedRun(standing_of_damaged(held.run_id, found), fault=found)


def _verify(run_id: str, lines: Sequence[Line]) -> None:
    from dagrun.api.replaying import replayed
    from dagrun.codec import events_of

    replayed(run_id, events_of(run_id, lines))


def queue_dict(run: ListedRun, where: Sequence[str]) -> dict[str, Any] | None:
    """Return a run in the queue as plain JSON; `None` if it was not submitted."""
    row = run.queue
    if row is None:
        return None
    again = command_again("resume", row.run_id, ["--requeue", *where]) if row.standing == "stuck" else None
    return {**row.as_dict(), "next_command": again}


def advice_lines(found: Sequence[ListedRun], where: Sequence[str]) -> Iterator[str]:
    """Yield the possible actions for runs that no worker takes; commands have a line each."""
    rows = [run.queue for run in found if run.queue is not None and run.queue.reason]
    stuck = [row for row in rows if row.standing == "stuck"]
    for row in stuck[:_MOST_ADVICE]:
        yield from ("", f"{row.run_id} is stuck: {shorten(row.reason, 1_000)}")
        for verb, options, meaning in _ADVICE:
            yield f"  {meaning + ':':<11}{quoted(command_again(verb, row.run_id, [*options, *where]))}"
    if len(stuck) > _MOST_ADVICE:
        yield f"… and {len(stuck) - _MOST_ADVICE} more that are stuck"
    for reason, run_id in {row.reason: row.run_id for row in rows if row.standing == "queued"}.items():
        yield from ("", f"a worker has left {run_id}: {shorten(reason, 1_000)}")
        yield "  it waits for a worker that has its files, and the tools that it was submitted with"


def what(run: RunOverview) -> str:
    """Return the purpose of a run: its goal, or the command that began it."""
    if run.goal or not run.labels:
        return run.goal or "-"
    return " ".join(label(run.labels, "command")[1:]) or "a plan"


def when(seconds: float) -> str:
    """Return a time as text, in the local time zone; "-" if it is no time."""
    try:
        return f"{datetime.fromtimestamp(seconds):%Y-%m-%d %H:%M}"
    except (ValueError, OverflowError, OSError):  # a record may hold any number
        return "-"
