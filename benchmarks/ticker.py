"""How long a loop stands still, in CPU time."""

from __future__ import annotations

import time

import anyio


class Ticker:
    """Wants its turn every millisecond, and keeps how much CPU time passed without one."""

    def __init__(self) -> None:
        self.worst = 0.0

    async def tick(self) -> None:
        """Go on until cancelled."""
        last = time.process_time()
        while True:
            await anyio.sleep(0.001)
            now = time.process_time()
            self.worst = max(self.worst, now - last)
            last = now

    def take(self) -> float:
        """The worst since the last call, in milliseconds."""
        worst, self.worst = self.worst, 0.0
        return worst * 1e3
