"""What an engine remembers of how long calls take, and the journals that keep it from one process to the next."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakSet

import anyio

from dagrun.decide.durations import Durations
from dagrun.model.journal import Journal, RemembersDurations
from dagrun.runtime.run import Run

_LOG: Final = logging.getLogger("dagrun.run")

# The end of a run does not wait longer for what is only good to know.
_PATIENCE: Final = 5.0  # seconds


class Memory:
    """The durations of one engine. It is only good to know: no fault of a journal ever shows but in the log.

    Args:
        durations: What is known already; it learns on.
    """

    def __init__(self, durations: Durations | None) -> None:
        self.durations = Durations() if durations is None else durations
        self._is_given = durations is not None  # then the host knows, and what a journal keeps may be in it already
        self._asked: WeakSet[RemembersDurations] = WeakSet()
        self._lock = anyio.Lock()

    async def recall(self, journal: Journal | None) -> None:
        """Add what *journal* keeps, if it keeps such things and was not asked yet."""
        if journal is None or self._is_given or not isinstance(journal, RemembersDurations):
            return  # the first is by far the most frequent
        async with self._lock:  # a run that starts at the same time would not know what is being read
            try:
                if journal in self._asked:
                    return
                kept = None
                with anyio.move_on_after(_PATIENCE):
                    kept = await journal.durations()
                self._asked.add(journal)
                if kept is None:
                    raise TimeoutError(f"the journal did not answer within {_PATIENCE:g} s")
                self.durations.merge(Durations.from_dict(kept))
            except Exception as error:  # noqa: BLE001  (a journal is a plug-in, and this is not what it is for)
                with suppress(TypeError):  # one that cannot be referred to is asked again
                    self._asked.add(journal)
                _LOG.warning("how long calls took before is not known, because it cannot be read: %s", error)

    @asynccontextmanager
    async def kept(self, journal: Journal | None, running: Run) -> AsyncIterator[None]:
        """Give *journal* what *running* has learned, once the body has ended, in whatever way."""
        try:
            yield
        finally:
            new = running.learned
            if new is not None and len(new) and isinstance(journal, RemembersDurations):
                with anyio.move_on_after(_PATIENCE, shield=True) as scope:
                    await _keep(journal, new)
                if scope.cancelled_caught:
                    _LOG.warning("how long calls took is not kept: the journal did not take it within %g s", _PATIENCE)


async def _keep(journal: RemembersDurations, new: Durations) -> None:
    try:
        await journal.keep_durations(new.as_dict())
    except Exception as error:  # noqa: BLE001
        _LOG.warning("how long calls took is not kept: %s", error)
