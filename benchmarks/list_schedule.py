"""What simple schedules would take: the makespan of a graph in slots, computed and not run."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping

from shapes import Dependencies, successors


def first_ready(needs: Dependencies, seconds: Mapping[str, float], slots: int) -> float:
    """The makespan when a free slot takes the step that has been ready for longest.

    Args:
        needs: For each step what it waits for.
        seconds: How long each step takes.
        slots: Steps that may run at once.
    """
    after = successors(needs)
    missing = {step: len(before) for step, before in needs.items()}
    ready = deque(step for step, count in missing.items() if not count)
    running: list[tuple[float, int, str]] = []
    now, number = 0.0, 0
    while ready or running:
        while ready and len(running) < slots:
            step = ready.popleft()
            number += 1
            heapq.heappush(running, (now + seconds[step], number, step))
        now, _, ended = heapq.heappop(running)
        for step in after[ended]:
            missing[step] -= 1
            if not missing[step]:
                ready.append(step)
    return now
