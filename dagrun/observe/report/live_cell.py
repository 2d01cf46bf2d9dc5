"""A running run in one display of a notebook.

1. Frames are drawn in the loop of the run, by its alarms: no task, no thread, and nothing that polls.
2. A frame follows the last one after a quarter of a second at the least, and after ten times what drawing that took:
   showing a run takes about a tenth of its loop at most. Between changes, running bars grow a little every second, and
   more rarely the longer the run lasts.
3. Of a run of over `MAX_DRAWN` steps only the counts are shown while it goes on. Its last frame is a drawing.
4. What goes wrong here is logged once, and ends the display, not the run.
"""

from __future__ import annotations

import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, Protocol

from dagrun.errors import shorten
from dagrun.events import Event
from dagrun.kernel.runtime.run import Run
from dagrun.observe.html import tag
from dagrun.observe.report.cell import bundle_of, framed, text_of
from dagrun.observe.state_styles import RUNS, counted, look_of, seconds_text

MAX_DRAWN: Final = 1_000  # steps; the view of so many takes some 60 ms
MAX_NAMES: Final = 12  # of running steps, where there is no drawing
PAUSE: Final = 0.25  # seconds between two frames
SHARE: Final = 10  # one part of the loop's time is for drawing
REFRESH: Final = 1.0  # seconds after which running bars grow, without any event
REFRESH_PART: Final = 60  # and not more often than so many times in the time of the run so far

_LOG: Final = logging.getLogger("dagrun.observers")


class Screen(Protocol):
    """Where frames are shown."""

    is_updated: bool  # whether it takes more than the last frame

    def put(self, frame: dict[str, str]) -> None:
        """Show a frame, replacing the last one."""


class NotebookScreen:
    """One display below the cell that runs now."""

    is_updated = True

    def __init__(self) -> None:
        self._handle: Any = None

    def put(self, frame: dict[str, str]) -> None:
        """Show a frame, replacing the last one."""
        if self._handle is None:
            display: Any = import_module("IPython.display").display
            self._handle = display(frame, raw=True, display_id=True)
        else:
            self._handle.update(frame, raw=True)


class TextScreen:
    """The standard error stream, which keeps all that was ever written: it gets only the last frame."""

    is_updated = False

    def put(self, frame: dict[str, str]) -> None:
        """Write a frame."""
        sys.stderr.write(f"{frame['text/plain']}\n")


def screen() -> Screen:
    """Return where frames are shown: in the notebook that this process is the kernel of, or as text."""
    # A program in which nobody has imported IPython is no notebook: it is not imported for the question.
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return NotebookScreen() if getattr(shell, "kernel", None) is not None else TextScreen()


def show_in_cell(source: Any) -> None:
    """Show *source* below the cell that runs now; see `dagrun.show`."""
    where = screen()
    if isinstance(source, Run) and not source.has_ended:
        LiveCell(source, where).begin()
    else:
        where.put(bundle_of(source) if where.is_updated else {"text/plain": text_of(source)})


class LiveCell:
    """Shows one run until its end; an observer.

    Args:
        run: The run.
        where: Where it is shown.
    """

    def __init__(self, run: Run, where: Screen) -> None:
        self._run = run
        self._screen: Screen | None = where
        self._due = math.inf  # when the next frame is drawn, on the clock of the run
        self._earliest = 0.0  # no frame before

    def begin(self) -> None:
        """Show the run from now on."""
        self._draw_at(0.0)  # that is, at once
        self._run.watch(self)

    def take(self, batch: Sequence[Event]) -> None:
        """Draw a frame soon."""
        self._draw_at(max(self._run.seconds, self._earliest))

    def close(self) -> None:
        """Draw the last frame, and leave it there."""
        self._draw(is_last=True)
        self._screen = None

    def _draw_at(self, when: float) -> None:
        is_due = self._screen is not None and self._screen.is_updated and when < self._due
        if is_due and self._run.call_at(when, self._ring):
            self._due = when

    def _ring(self) -> None:
        if self._screen is None or self._run.seconds + 1e-6 < self._due or self._due == math.inf:
            return  # an earlier frame has taken its place
        self._due = math.inf
        took = self._draw(is_last=False)
        now = self._run.seconds
        self._earliest = now + max(PAUSE, SHARE * took)
        self._draw_at(max(self._earliest, now + max(REFRESH, now / REFRESH_PART)))

    def _draw(self, *, is_last: bool) -> float:
        """Draw a frame; return the CPU seconds that it took."""
        began, where = time.process_time(), self._screen
        if where is not None:
            try:
                where.put(self._frame(is_last=is_last))
            except Exception:  # noqa: BLE001  (a display must not break the run that it shows)
                _LOG.exception("the run %s is no longer shown", self._run.id)
                self._screen = None
        return time.process_time() - began

    def _frame(self, *, is_last: bool) -> dict[str, str]:
        if self._screen is not None and not self._screen.is_updated:
            return {"text/plain": text_of(self._run)}
        if is_last or len(self._run.graph.nodes) <= MAX_DRAWN:
            return bundle_of(self._run)
        return {"text/plain": repr(self._run)[1:-1], "text/html": _counts_cell(self._run)}


def _counts_cell(run: Run) -> str:
    """Return a cell that takes one look at each step, and no more."""
    graph, look = run.graph, RUNS["running"]
    counts = Counter(str(node.state) for node in graph.planned())
    running = [node.id for node in graph.nodes.values() if node.is_in_flight]
    bars = [
        tag("span", f"{look_of(state).symbol} {look_of(state).word} {count:,}", class_=f"badge {look_of(state).kind}")
        for state, count in sorted(counts.items())
    ]
    names = ", ".join(running[:MAX_NAMES]) + (f" and {len(running) - MAX_NAMES:,} more" if running[MAX_NAMES:] else "")
    goal = shorten(graph.plan.redactor.text(graph.goal)) or f"Run {run.id}"
    head = tag("p", tag("span", f"{look.symbol} {look.word}", class_=f"badge {look.kind}"), " ", tag("b", goal))
    facts = f"{counted(counts.total(), 'step')}, {seconds_text(run.seconds)} so far"
    rows = [tag("p", *(part for bar in bars for part in (bar, " "))), tag("p", f"Running: {names or 'none'}")]
    return str(framed(head, tag("p", facts, class_="note"), *rows))
