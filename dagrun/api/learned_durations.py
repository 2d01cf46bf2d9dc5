"""Durations of tool calls, which an engine learns, and journals keep from one process to the next."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from weakref import WeakSet

import anyio

from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.model.journal import Journal, SupportsDurations
from dagrun.kernel.runtime.run import Run

_LOG: Final = logging.getLogger("dagrun.run")

# A run works without durations, so neither its start nor its end waits longer for a journal.
_PATIENCE: Final = 5.0  # seconds


class LearnedDurations:
    """The durations of one engine. A fault of a journal is only logged: a run works without durations.

    Args:
        durations: Known durations, to which those of the runs are added; `None` for none yet.
    """

    def __init__(self, durations: Durations | None) -> None:
        self.durations = Durations() if durations is None else durations
        self._is_given = durations is not None  # then they may already include what a journal keeps
        self._asked: WeakSet[SupportsDurations] = WeakSet()
        self._lock = anyio.Lock()

    async def recall(self, journal: Journal | None) -> None:
        """Add the durations that *journal* keeps, if it keeps any and was not asked before."""
        if journal is None or self._is_given or not isinstance(journal, SupportsDurations):
            return  # without a journal in most cases
        async with self._lock:  # a run that starts at the same time must not begin without them
            try:
                if journal in self._asked:
                    return
                stored = None
                with anyio.move_on_after(_PATIENCE):
                    stored = await journal.durations()
                self._asked.add(journal)
                if stored is None:
                    raise TimeoutError(f"the journal did not answer within {_PATIENCE:g} s")
                self.durations.merge(Durations.from_dict(stored))
            except Exception as error:  # noqa: BLE001  (a journal is a plug-in, and a run needs no durations)
                with suppress(TypeError):  # a journal without weak references is asked again
                    self._asked.add(journal)
                _LOG.warning("how long calls took before is not known, because it cannot be read: %s", error)

    @asynccontextmanager
    async def kept(self, journal: Journal | None, running: Run) -> AsyncIterator[None]:
        """After the body, however it ends, add the durations that *running* has learned to *journal*."""
        try:
            yield
        finally:
            new = running.learned
            if new is not None and len(new) and isinstance(journal, SupportsDurations):
                with anyio.move_on_after(_PATIENCE, shield=True) as scope:
                    await _keep(journal, new)
                if scope.cancelled_caught:
                    _LOG.warning("how long calls took is not kept: the journal did not take it within %g s", _PATIENCE)


async def _keep(journal: SupportsDurations, new: Durations) -> None:
    try:
        await journal.keep_durations(new.as_dict())
    except Exception as error:  # noqa: BLE001
        _LOG.warning("how long calls took is not kept: %s", error)
