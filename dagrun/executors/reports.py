"""Progress and usage on their way from a thread to the loop."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from anyio.lowlevel import EventLoopToken

from dagrun.model.context import Report
from dagrun.runtime.backend import call_soon


class Reports:
    """Hands reports to the loop, many at a time.

    A tool that tells its progress a million times a second must not fill the memory or starve the loop: of two
    progress reports in a row that have not been told yet, only the newer one is kept. Usage is never dropped.

    Args:
        token: The loop.
        deliver: Takes one report; called in the loop.
    """

    __slots__ = ("_deliver", "_is_coming", "_lock", "_token", "_waiting")

    def __init__(self, token: EventLoopToken, deliver: Report) -> None:
        self._token = token
        self._deliver = deliver
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, Mapping[str, Any]]] = []
        self._is_coming = False

    def send(self, kind: str, facts: Mapping[str, Any]) -> None:
        """Send one report; in any thread."""
        with self._lock:
            if kind == "progress" and self._waiting and self._waiting[-1][0] == kind:
                self._waiting.pop()
            self._waiting.append((kind, facts))
            was_coming, self._is_coming = self._is_coming, True
        if not was_coming:
            call_soon(self._token, self._flush)

    def _flush(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._is_coming = False
        for kind, facts in waiting:
            self._deliver(kind, facts)
