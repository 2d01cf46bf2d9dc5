"""Where the runs of a folder or a database stand: each is read by itself, so that a damaged one hides no other.

A list of a folder keeps what it has read of each run that is not going on, in the folder of the run. The next list
reads only the records that have changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagrun.cli.records.folder_records import FolderRecords
from dagrun.errors import JournalDamaged, JournalError, JournalFailed, RunNotFound
from dagrun.journal import summary_cache
from dagrun.journal.run_folder import RunPaths
from dagrun.observe.run_standing import RunOverview, standing_at_start, standing_of, standing_of_damaged
from dagrun.observe.run_summary import summary_of

if TYPE_CHECKING:
    from dagrun.cli.records.record_place import Records
    from dagrun.journal.queue import QueuedRun
    from dagrun.kernel.model.journal import Held, Line


@dataclass(frozen=True, slots=True)
class Known:
    """A run, as far as its record can be read.

    Attributes:
        standing: Where the run stands.
        fault: Why the record cannot be used; `None` if it can, or is empty.
        queue: Where the run stands in the queue; `None` if it was not submitted, or nobody has looked.
    """

    standing: RunOverview
    fault: JournalError | None = None
    queue: QueuedRun | None = None


# Returns what a record of at least one line says.
_Reader = Callable[["Held", "Sequence[Line]"], Known]


def listed(records: Records, without: Collection[str] = ()) -> list[Known]:
    """Return the state of the runs, from cached summaries where possible; *without* some of them."""
    names = [name for name in records.names() if name not in without]
    if not isinstance(records, FolderRecords):
        return standings(records, names)
    found = (_kept(records, run_id) or _read_and_kept(records, run_id) for run_id in names)
    return [known for known in found if known is not None]


def _kept(records: FolderRecords, run_id: str) -> Known | None:
    text = summary_cache.read_summary(RunPaths(records.place(run_id)))
    kept = None if text is None else RunOverview.from_text(run_id, text)
    return None if kept is None else Known(kept)


def _read_and_kept(records: FolderRecords, run_id: str) -> Known | None:
    paths = RunPaths(records.place(run_id))
    try:
        state = paths.state()
        known = _known(records.held(run_id), _lines(records, run_id), _counted)
    except (RunNotFound, OSError):  # it was deleted a moment ago
        return None
    if known.standing.can_be_kept:
        summary_cache.keep_summary(paths, state, known.standing.as_text())
    return known


def standings(records: Records, wanted: Iterable[str] | None = None) -> list[Known]:
    """Return the state of the runs from their records, for commands that delete some of them.

    Args:
        records: The records.
        wanted: The names of the runs; `None` for all.
    """
    return _read_all(records, wanted, _counted)


def verified(records: Records, wanted: Iterable[str] | None = None) -> list[Known]:
    """Return where the runs stand, after a look at each record whether its events follow from each other.

    Args:
        records: The records.
        wanted: The names of the runs; `None` for all.
    """
    return _read_all(records, wanted, _replayed)


def _read_all(records: Records, wanted: Iterable[str] | None, reader: _Reader) -> list[Known]:
    names = None if wanted is None else frozenset(wanted)
    return [_known(held, found, reader) for held, found in records.each(names)]


def _lines(records: Records, run_id: str) -> list[Line] | JournalError:
    try:
        return records.lines(run_id)
    except (JournalDamaged, JournalFailed) as error:
        return error


def _known(held: Held, found: list[Line] | JournalError, reader: _Reader) -> Known:
    if isinstance(found, list):
        try:
            return reader(held, found) if found else Known(standing_at_start(held))
        except (JournalDamaged, JournalFailed) as error:
            found = error
    return Known(standing_of_damaged(held.run_id, found), fault=found)


def _counted(held: Held, lines: Sequence[Line]) -> Known:
    return Known(standing_of(summary_of(held.run_id, lines), held))


def _replayed(held: Held, lines: Sequence[Line]) -> Known:
    from dagrun.api.replaying import replayed
    from dagrun.kernel.model.codec.event_codec import events_of

    replayed(held.run_id, events_of(held.run_id, lines))
    return _counted(held, lines)
