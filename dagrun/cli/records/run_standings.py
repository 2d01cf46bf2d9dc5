"""Where the runs of a folder stand: each is read by itself, so that a damaged one hides no other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dagrun.api.replaying import Replayed, replayed
from dagrun.cli.records.run_records import Records, wait
from dagrun.errors import JournalDamaged, JournalError, JournalFailed, RunNotFound, shorten
from dagrun.model.codec.event_codec import events_of
from dagrun.model.journal import Held
from dagrun.model.redaction.records import shown_events
from dagrun.observe.run_standing import Stand, Standing, standing_of


@dataclass(frozen=True, slots=True)
class Known:
    """A run, as far as its record can be read.

    Attributes:
        standing: Where the run stands.
        past: The replayed run; `None` if its record is damaged, cannot be read, or is still empty.
        fault: Why the record cannot be used; `None` if it can, or is empty.
    """

    standing: Standing
    past: Replayed | None = None
    fault: JournalError | None = None


def standings(records: Records, wanted: Iterable[str] | None = None) -> list[Known]:
    """Return where the runs of a folder stand.

    Args:
        records: The folder.
        wanted: The names of the runs; `None` for all.
    """
    names = None if wanted is None else frozenset(wanted)
    return wait(lambda: _read_all(records, names))


async def _read_all(records: Records, names: frozenset[str] | None) -> list[Known]:
    runs: list[Known] = []
    for held in await records.journal.runs():
        if names is None or held.run_id in names:
            known = await _read(records, held)
            runs += [known] if known is not None else []
    return runs


async def _read(records: Records, held: Held) -> Known | None:
    run_id, owner = held.run_id, held.owner if held.is_held else ""
    try:
        lines = await records.journal.read(run_id)
        if not lines:  # it is just beginning, or was killed while it began
            return Known(Standing(run_id=run_id, stand=Stand.RUNNING if owner else Stand.EMPTY, owner=owner))
        past = replayed(run_id, shown_events(events_of(run_id, lines)))
    except RunNotFound:  # it was deleted a moment ago
        return None
    except (JournalDamaged, JournalFailed) as error:
        reason = f"record {error.seq}: {error.reason}" if isinstance(error, JournalDamaged) else str(error)
        return Known(Standing(run_id=run_id, stand=Stand.DAMAGED, reason=shorten(reason)), fault=error)
    return Known(standing_of(past, held), past)
