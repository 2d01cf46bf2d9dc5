"""How much memory a run takes beyond its plan: bytes per step, measured in a process of its own.

Two figures, because neither says everything. *Traced* counts each object that Python makes, exactly, but slows the
run down. *Resident* is the growth of the peak of the process as the system sees it; what the checker had freed before
is used again and not counted, so it comes out low. In both the subscriber keeps every event.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import anyio

import subject
from dagrun import CheckedPlan
from shapes import SHAPES

How = Literal["traced", "resident"]


def bytes_per_step(shape: str, count: int, how: How) -> float:
    """Measure the run of a plan of *count* no-op steps in a new process."""
    command = [sys.executable, str(Path(__file__)), shape, str(count), how]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # it imports what this process would
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=found).stdout)


def _measure(shape: str, count: int, how: str) -> float:
    anyio.run(subject.run, subject.checked_plan(SHAPES[shape](10), subject.noop))  # loads what is loaded on first use
    plan = subject.checked_plan(SHAPES[shape](count), subject.noop)
    gc.collect()
    return (_traced if how == "traced" else _resident)(plan) / count


def _traced(plan: CheckedPlan) -> float:
    tracemalloc.start()
    try:
        return _growth(lambda: tracemalloc.get_traced_memory()[1], plan)
    finally:
        tracemalloc.stop()


def _resident(plan: CheckedPlan) -> float:
    return _growth(peak, plan)


def peak() -> int:
    """The most bytes that this process has had in memory so far."""
    status = Path("/proc/self/status")
    if status.exists():  # the figure of getrusage is handed down by the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _growth(peak: Callable[[], int], plan: CheckedPlan) -> float:
    before = peak()
    anyio.run(subject.run, plan)
    return peak() - before


if __name__ == "__main__":
    print(_measure(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
