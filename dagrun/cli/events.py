"""The events of a run as JSON lines, written by a thread of their own: a slow reader never holds up the run."""

from __future__ import annotations

import queue
import threading
from types import TracebackType
from typing import Final, Self

from dagrun.cli.data import Data
from dagrun.model.event import Event, Gap
from dagrun.model.redaction import NOTHING, Redactor
from dagrun.model.showing import as_dict

BUFFER: Final = 100_000


class EventLines:
    """Writes each event as one line, as it happens.

    A reader who is *buffer* events behind misses some, and sees a ``Gap`` in their place; one who leaves altogether
    is no reason to stop a run.

    Args:
        data: Where the lines go.
        redactor: Takes out what may not be shown.
        buffer: Events that may wait to be written.
    """

    def __init__(self, data: Data, redactor: Redactor = NOTHING, buffer: int = BUFFER) -> None:
        self._data = data
        self._redactor = redactor
        self._waiting: queue.Queue[Event | None] = queue.Queue(buffer)
        self._missed = 0
        self._writer = threading.Thread(target=self._write, name="dagrun event lines", daemon=True)

    def __enter__(self) -> Self:
        self._writer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.put(None)  # waits for room: what was kept is written
        self._writer.join()

    def on_event(self, event: Event) -> None:
        """Take an event; never waits."""
        try:
            if self._missed:
                self._waiting.put_nowait(Gap(event.seq - 1, event.at, self._missed))
                self._missed = 0
            self._waiting.put_nowait(event)
        except queue.Full:
            self._missed += 1

    def _write(self) -> None:
        while (event := self._waiting.get()) is not None:
            if not self._data.is_closed:
                self._data.line(self._redactor.value(as_dict(event)))
