"""Submitted runs in lists: the queue status of each, the reason, and the possible actions."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.records.resume_command import command_again, quoted
from dagrun.cli.records.run_records import open_shared_records
from dagrun.cli.records.run_standings import Known, listed
from dagrun.cli.records.run_titles import when
from dagrun.cli.setup.settings import configure
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import shorten
from dagrun.observe.run_standing import RunState

if TYPE_CHECKING:
    from dagrun.cli.records.record_place import Records
    from dagrun.journal.queue import QueuedRun

# As `dagrun.journal.queue.QueueStatus`, which loads pydantic; a test compares them.
STANDINGS: Final = ("queued", "running", "waiting", "ended", "stuck", "unreadable")
_MOST_ADVICE: Final = 10  # runs
_ADVICE: Final = (("inspect", (), "see"), ("resume", ("--requeue",), "try again"), ("stop", (), "give up"))


def read_standings(text: str) -> frozenset[str]:
    """Return the standings that are named, with commas between them; all of them for an empty text.

    Raises:
        BadInput: One of them is none.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in STANDINGS:
            raise BadInput(f"--standing {shorten(name, 60)}: write {', '.join(STANDINGS)}, several with commas")
    return frozenset(names or STANDINGS)


def listed_runs(records: Records, wanted: Collection[str]) -> list[Known]:
    """Return where runs stand by their records, and in the queue if they were submitted.

    Args:
        records: The records.
        wanted: The standings of `STANDINGS` that are wanted. Of a run that was not submitted, its record says whether
            it is running, waiting, or has ended; if all are wanted, interrupted and damaged runs are there, too.
    """
    rows = {row.run_id: row for row in records.queued()}
    hidden = {run_id for run_id, row in rows.items() if row.standing not in wanted}
    found = [replace(known, queue=rows.get(known.standing.run_id)) for known in listed(records, hidden)]
    return found if len(wanted) == len(STANDINGS) else [known for known in found if _stands(known) in wanted]


def _stands(known: Known) -> str:
    return str(known.standing.stand if known.queue is None else known.queue.standing)


def standing_words(known: Known) -> str:
    """Return where a run stands in a sentence: in the queue, if it was submitted, and by its record."""
    row, standing = known.queue, known.standing
    if row is None or standing.stand is RunState.DAMAGED:
        return standing.text
    pool = f"pool {row.ticket.pool}"
    facts = [pool] if row.standing != "queued" else []
    facts += [f"priority {row.ticket.priority}"] if row.ticket.priority else []
    facts += [f"{row.takeovers} takeover{'s' * (row.takeovers != 1)}"] if row.takeovers else []
    since = f" since {when(row.queued if row.standing == 'queued' else standing.last or row.queued)}"
    match str(row.standing):
        case "queued":
            begin = row.ticket.not_before
            text = f"queued in {pool}{since}{': ' if row.reason else ''}{row.reason}"
            text = f"queued in {pool}, not before {when(begin)}" if begin > time.time() else text
        case "stuck" | "unreadable":
            text = f"{row.standing}{since}: {row.reason}"
        case "running" if standing.stand is not RunState.RUNNING:
            text = "its worker has ended; the next one takes it over when the lease has expired"
        case _:
            text = standing.text
    return f"{text} ({', '.join(facts)})" if facts else text


def queue_dict(known: Known, where: Sequence[str]) -> dict[str, Any] | None:
    """Return where a run stands in the queue as plain JSON; `None` if it was not submitted."""
    row = known.queue
    if row is None:
        return None
    again = command_again("resume", row.run_id, ["--requeue", *where]) if row.standing == "stuck" else None
    return {**row.as_dict(), "next_command": again}


def advice_lines(found: Sequence[Known], where: Sequence[str]) -> Iterator[str]:
    """Yield the possible actions for runs that no worker takes; commands have a line each."""
    rows = [known.queue for known in found if known.queue is not None and known.queue.reason]
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


def open_row(records: Records, run_id: str) -> QueuedRun | None:
    """Return where a run stands in the queue; `None` if it was not submitted, or has ended."""
    from dagrun.journal.queue import QueueStatus

    still_open = [standing for standing in QueueStatus if standing is not QueueStatus.ENDED]
    return next((row for row in records.queued(still_open) if row.run_id == run_id), None)


def put_back(run: str, flags: Mapping[str, Any]) -> None:
    """Put a submitted run back into the queue, and print where it is now.

    Args:
        run: The run, as the user has typed it.
        flags: The flags of the command line.

    Raises:
        BadInput: It was not submitted, or is neither stuck nor waiting.
    """
    from dagrun.cli.records.record_place import wait
    from dagrun.errors import RunNotFound
    from dagrun.workers.submitting import requeue

    records = open_shared_records(configure(flags))
    run_id = records.find(run)
    try:
        is_back = wait(lambda: requeue(run_id, journal=records.journal))
    except RunNotFound:
        raise BadInput(f"run {run_id} was not submitted, so no worker takes it up; dagrun resume goes on") from None
    row = open_row(records, run_id)
    if not is_back:
        standing = "over" if row is None else str(row.standing)
        raise BadInput(f"run {run_id} is {standing}: only a run that is stuck or waits is put back")
    with data_output() as data:
        pool = "" if row is None else row.ticket.pool
        if flags["as_json"]:
            data.json({"schema_version": SCHEMA_VERSION, "run_id": run_id, "standing": "queued", "pool": pool})
        else:
            data.text(f"{run_id} is in the queue of pool {pool}")
