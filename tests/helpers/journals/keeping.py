"""A journal in memory whose records can be cut."""

from __future__ import annotations

from crash_process import RUN
from dagrun import MemoryJournal
from dagrun.journal.memory import _KeptRun


class Keeping(MemoryJournal):
    """A journal whose records can be had, and put there."""

    def put(self, texts: list[bytes]) -> None:
        """Keep these."""
        self._runs[RUN] = kept = _KeptRun(RUN)
        kept.texts = list(texts)

    @property
    def texts(self) -> list[bytes]:
        """Those of the run."""
        return self._runs[RUN].texts
