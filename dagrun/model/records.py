"""From the records of a run to its events."""

from __future__ import annotations

from collections.abc import Sequence

from dagrun.errors import JournalDamaged, RunNotFound
from dagrun.model.codec import decode
from dagrun.model.event import Event, RunStarted
from dagrun.model.journal import Line


def events_of(run_id: str, lines: Sequence[Line]) -> list[Event]:
    """Give the events that the records of a run tell of.

    Raises:
        RunNotFound: There are none: the run was killed before the first.
        JournalDamaged: A record is of no known format, or says what no run says.
    """
    found: list[Event] = []
    for line in lines:
        try:
            event = decode(line.text)
        except ValueError as error:
            raise JournalDamaged(run_id, line.seq, str(error)) from error
        if event.seq != line.seq:
            raise JournalDamaged(run_id, line.seq, f"it says that it is record {event.seq}")
        found.append(event)
    if not found:
        raise RunNotFound(f"run {run_id} was killed before its first record was written; start it anew")
    if not isinstance(found[0], RunStarted) or found[0].opening is None:
        raise JournalDamaged(run_id, 1, "the first record does not say what the run was opened with")
    return found
