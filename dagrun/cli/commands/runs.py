"""``dagrun runs`` and ``dagrun prune``: list the recorded runs, verify them, and delete those that have expired."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagrun.cli.records.resume_command import label, where_is
from dagrun.cli.records.run_list import (
    ListedRun,
    advice_lines,
    listed_runs,
    queue_dict,
    read_runs,
    read_states,
    what,
    when,
)
from dagrun.cli.records.run_store import RunStore, open_runs, wait
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns, columns_of, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalDamaged, JournalError, shorten, visible
from dagrun.observe.line_breaks import wrap_words
from dagrun.observe.run_standing import RunState

_HEAD: Final = ("run", "began", "steps", "what", "where it stands")
_WHAT: Final = 40  # characters
_LEAST: Final = 30  # characters for the last two columns; with less, each run is shown as a paragraph


@command("runs")
def runs(*, run_ids: tuple[str, ...], state: str, verify: bool, as_json: bool, **flags: Any) -> int:
    """List the recorded runs, or each RUN that is named, the oldest first, and where each of them stands.

    A run that is not over is listed, too. Neither tools nor a planner are needed. Of runs that were submitted to
    workers (dagrun submit), the pool is shown, how often a worker has taken one over from another that had ended, and
    what to do about those that are stuck.

    --verify checks that no record was changed, that none is missing, and that they follow from each other.

    Examples:
      dagrun runs
      dagrun runs --json
      dagrun runs --state queued,running,stuck --journal URL
      dagrun runs --verify
      dagrun runs --verify last

    Exit codes: 0, or 1 if the record of a run is damaged.
    """
    wanted = read_states(state)
    configuration = configure(flags)
    records, where = open_runs(configuration), where_is(configuration)
    width = columns_of(sys.stdout)
    named = [records.find(run_id) for run_id in run_ids]
    if verify:
        if state:
            raise BadInput("--verify reads every record; leave --state out")
        return _verify(records, named or None, as_json=as_json)
    with data_output() as data:
        found = [run for run in listed_runs(records, wanted) if not named or run.overview.run_id in named]
        if as_json:
            shown = [_dict(run, where) for run in found]
            data.json({"schema_version": SCHEMA_VERSION, "folder": records.where, "runs": shown})
        elif not found:
            data.text(f"no {state + ' ' if state else ''}runs in {visible(records.where)}")
        else:
            data.text("\n".join([*_lines(found, width), *map(visible, advice_lines(found, where))]))
    return int(any(run.overview.state is RunState.DAMAGED for run in found))


def _verify(records: RunStore, named: Sequence[str] | None, *, as_json: bool) -> int:
    with data_output() as data:
        listed = read_runs(records, named, verifies=True)
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, "runs": [_verdict(run) for run in listed]})
        else:
            data.text("\n".join(_line(run) for run in listed) or "no runs")
    return int(any(run.fault is not None for run in listed))


def _line(run: ListedRun) -> str:
    name = run.overview.run_id
    if run.fault is not None:
        return f"{name}: {run.overview.text}"
    return f"{name}: good, {run.overview.records or 0} records"


def _verdict(run: ListedRun) -> dict[str, Any]:
    fault = run.fault
    return {
        "run_id": run.overview.run_id,
        "is_good": fault is None,
        "records": run.overview.records,
        "seq": fault.seq if isinstance(fault, JournalDamaged) else None,
        "reason": run.overview.reason if fault is not None else "",
    }


def _dict(run: ListedRun, where: Sequence[str]) -> dict[str, Any]:
    command = label(run.overview.labels, "command")
    return {**run.overview.as_dict(), "command": command, "queue": queue_dict(run, where)}


def _lines(found: Sequence[ListedRun], width: int) -> list[str]:
    rows = [_row(run) for run in found]
    room = width - len("  ".join([max((row[at] for row in rows), key=len) for at in range(3)])) - 4
    if room < _LEAST:
        return list(_paragraphs(rows, max(20, width - 1)))
    half = min(max(len(row[3]) for row in rows), _WHAT, room * 2 // 5)
    cut = [(*row[:3], _cut(row[3], half), _cut(row[4], room - max(half, len(_HEAD[3])))) for row in rows]
    return columns(cut, head=_HEAD).splitlines()


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def _row(run: ListedRun) -> tuple[str, ...]:
    overview = run.overview
    began = "-" if overview.began is None else when(overview.began)
    steps = f"{overview.settled}/{overview.steps}" if run.overview.records else "-"
    return overview.run_id, began, steps, shorten(what(overview)), run.text


def _paragraphs(rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for run_id, *facts in rows:
        yield from wrap_words(visible(run_id), width, "", "")
        for name, fact in zip(_HEAD[1:], facts, strict=True):
            yield from wrap_words(visible(fact), width, f"  {name}: ", "    ")


_DAY: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """Which runs are deleted.

    Attributes:
        named: The names of the runs; empty for the runs that have expired.
        before: Runs whose last record is older than this time, in seconds since 1970, are due, too; `None` for none.
        is_forced: Whether runs that can be resumed and damaged ones are deleted, too.
    """

    named: frozenset[str]
    before: float | None
    is_forced: bool

    def verdict(self, run: ListedRun, last: float) -> tuple[bool, str]:
        """Return whether a run is deleted, and the reason for that or for keeping it; no reason if it is not due."""
        overview = run.overview
        is_expired = overview.expires is not None and overview.expires <= time.time()
        if overview.run_id in self.named:
            why = "named"
        elif not self.named and is_expired:
            why = "expired"
        elif not self.named and self.before is not None and last < self.before:
            why = "old"
        else:
            return False, ""
        if overview.state is RunState.RUNNING:
            return False, f"kept: {overview.text}"
        if overview.state is RunState.DAMAGED and not self.is_forced:
            return False, "kept: it is damaged, and may be wanted to find out why; --force deletes it"
        if overview.is_resumable and not self.is_forced:
            return False, f"kept: it can go on ({shorten(overview.text)}); --force deletes it"
        return True, why


@command("prune")
def prune(
    *,
    run_ids: tuple[str, ...],
    older_than: float | None,
    dry_run: bool,
    force: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Delete the records of runs that have expired (--expires-after of dagrun run), or of each RUN that is named.

    The files in the folder of a record are deleted with it. Files that a run has left in an output folder (-o) are
    not. A run that a process holds is never deleted; one that can be resumed, only with --force.

    Examples:
      dagrun prune --dry-run
      dagrun prune --older-than 30
      dagrun prune 20261122-1245 --force

    Exit codes: 0, 1 if a record could not be deleted, 2 wrong usage.
    """
    records = open_runs(configure(flags))
    named = frozenset(records.find(run_id) for run_id in run_ids)
    before = None if older_than is None else time.time() - older_than * _DAY
    choice = _Choice(named=named, before=before, is_forced=force)
    with data_output() as data:
        gone, kept, failed = _prune(records, choice, is_dry=dry_run)
        if as_json:
            shown = {
                name: [{"run_id": run_id, "reason": why} for run_id, why in found]
                for name, found in (("deleted", gone), ("kept", kept), ("failed", failed))
            }
            data.json({"schema_version": SCHEMA_VERSION, "is_dry_run": dry_run, **shown})
        else:
            data.text("\n".join(_prune_lines(gone, kept, failed, is_dry=dry_run)))
    return int(bool(failed))


_Found = list[tuple[str, str]]


def _prune(records: RunStore, choice: _Choice, *, is_dry: bool) -> tuple[_Found, _Found, _Found]:
    """Return the runs that were deleted, those that were due and kept, and those that failed; each with the reason."""
    gone: _Found = []
    kept: _Found = []
    failed: _Found = []
    for run in read_runs(records, choice.named or None):
        run_id = run.overview.run_id
        last = run.overview.last or records.written_at(run_id)
        is_due, why = choice.verdict(run, last)
        if not is_due:
            kept += [(run_id, why)] if why else []
            continue
        try:
            if not is_dry:
                wait(lambda run_id=run_id: records.journal.delete(run_id))  # type: ignore[misc]
            gone.append((run_id, why))
        except JournalError as error:
            failed.append((run_id, str(error)))
    return gone, kept, failed


def _prune_lines(gone: Sequence[tuple[str, str]], kept: _Found, failed: _Found, *, is_dry: bool) -> list[str]:
    word = "would be deleted" if is_dry else "deleted"
    lines = [f"{run_id}: {word} ({why})" for run_id, why in gone]
    lines += [f"{run_id}: {why}" for run_id, why in kept]
    lines += [f"{run_id}: not deleted: {why}" for run_id, why in failed]
    return lines or ["nothing is due"]
