"""``dagrun prune``: deletes the records of runs that have expired, are old, or are named."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagrun.cli.records.record_place import Records, wait
from dagrun.cli.records.run_records import open_records
from dagrun.cli.records.run_standings import Known, standings
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output
from dagrun.errors import JournalError, shorten
from dagrun.observe.run_standing import RunState

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

    def verdict(self, known: Known, last: float) -> tuple[bool, str]:
        """Return whether a run is deleted, and the reason for that or for keeping it; no reason if it is not due."""
        standing = known.standing
        is_expired = standing.expires is not None and standing.expires <= time.time()
        if standing.run_id in self.named:
            why = "named"
        elif not self.named and is_expired:
            why = "expired"
        elif not self.named and self.before is not None and last < self.before:
            why = "old"
        else:
            return False, ""
        if standing.stand is RunState.RUNNING:
            return False, f"kept: {standing.text}"
        if standing.stand is RunState.DAMAGED and not self.is_forced:
            return False, "kept: it is damaged, and may be wanted to find out why; --force deletes it"
        if standing.is_resumable and not self.is_forced:
            return False, f"kept: it can go on ({shorten(standing.text)}); --force deletes it"
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
    records = open_records(configure(flags))
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
            data.text("\n".join(_lines(gone, kept, failed, is_dry=dry_run)))
    return int(bool(failed))


_Found = list[tuple[str, str]]


def _prune(records: Records, choice: _Choice, *, is_dry: bool) -> tuple[_Found, _Found, _Found]:
    """Return the runs that were deleted, those that were due and kept, and those that failed; each with the reason."""
    gone: _Found = []
    kept: _Found = []
    failed: _Found = []
    for known in standings(records, choice.named or None):
        run_id = known.standing.run_id
        last = known.standing.last or records.written_at(run_id)
        is_due, why = choice.verdict(known, last)
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


def _lines(gone: Sequence[tuple[str, str]], kept: _Found, failed: _Found, *, is_dry: bool) -> list[str]:
    word = "would be deleted" if is_dry else "deleted"
    lines = [f"{run_id}: {word} ({why})" for run_id, why in gone]
    lines += [f"{run_id}: {why}" for run_id, why in kept]
    lines += [f"{run_id}: not deleted: {why}" for run_id, why in failed]
    return lines or ["nothing is due"]
