"""The timeline of a run: read from its view, and drawn as lines of text with a time axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any, Final

from dagrun.errors import visible
from dagrun.kernel.model.outcome import State
from dagrun.observe.state_styles import counted

_STOPPED: Final = frozenset((State.CANCELLED, State.SUPERSEDED, State.ABANDONED))

MAX_ROWS: Final = 40
PLANNER: Final = "(planner)"  # the row of the planner; no step can have this id


@dataclass(frozen=True, slots=True)
class Bar:
    """One attempt, or one request to the planner. Times are in seconds from the start of the run.

    Attributes:
        row: The id of the step, or `PLANNER`.
        started: When it began.
        ended: When it ended.
        is_good: Whether its result could be used; `True` if it has not ended.
        was_stopped: Whether it was told to stop before it ended.
    """

    row: str
    started: float
    ended: float
    is_good: bool
    was_stopped: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """A splice, and the steps that ran during it. Times are in seconds from the start of the run.

    Attributes:
        at: When the plan was changed.
        asked_at: When the planner was asked for the change; equal to *at* if it was not asked.
        text: The change in words.
        reason: The reason of the change, in a sentence.
        ran_on: Steps that ran from *asked_at* until after *at*, in one attempt that was not stopped.
        started: Steps that began an attempt between *asked_at* and *at*.
        ended: Steps that succeeded between *asked_at* and *at*.
    """

    at: float
    asked_at: float
    text: str
    reason: str
    ran_on: tuple[str, ...]
    started: tuple[str, ...]
    ended: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the change as plain JSON."""
        return {
            "at": round(self.at, 3),
            "asked_at": round(self.asked_at, 3),
            "change": self.text,
            "reason": self.reason,
            "ran_on": list(self.ran_on),
            "started_meanwhile": list(self.started),
            "ended_meanwhile": list(self.ended),
        }


@dataclass(frozen=True, slots=True)
class Timeline:
    """The attempts of a run, and the changes of its plan.

    Attributes:
        bars: The attempts, in the order of their starts.
        changes: The changes of the plan, in order.
        length: The length of the run in seconds.
    """

    bars: tuple[Bar, ...]
    changes: tuple[Change, ...]
    length: float

    def as_dict(self) -> dict[str, Any]:
        """Return the timeline as plain JSON; times are in seconds."""
        changes = [change.as_dict() for change in self.changes]
        return {"length": self.length, "bars": list(map(asdict, self.bars)), "changes": changes}


def read_timeline(view: Mapping[str, Any]) -> Timeline:
    """Read the timeline from the view of a run.

    Args:
        view: The view. Attempts without an end last until its time.
    """
    names, length = [step["id"] for step in view["steps"]], view["at"]
    bars = [_bar(step["id"], attempt, length) for step in view["steps"] for attempt in step["attempts"]]
    for work in view["planner"]:
        is_good = work["ended"] is None or work["result"] == "applied"
        bars.append(Bar(PLANNER, work["started"], length if work["ended"] is None else work["ended"], is_good))
    changes = tuple(
        Change(
            at=revision["at"],
            asked_at=revision["asked_at"],
            text=revision["did"],
            reason=revision["reason"],
            ran_on=tuple(names[n] for n in revision["ran_on"]),
            started=tuple(names[n] for n in revision["started_meanwhile"]),
            ended=tuple(names[n] for n in revision["ended_meanwhile"]),
        )
        for revision in view["revisions"]
        if revision["diff"] or ((revision["added"] or revision["gone"]) and not revision["is_draft"])
    )
    return Timeline(tuple(sorted(bars, key=lambda bar: bar.started)), changes, length)


def _bar(step: str, attempt: Mapping[str, Any], length: float) -> Bar:
    ended, state = attempt["ended"], attempt["state"]
    is_good = state in (None, "succeeded") or attempt["recovery"] == "default"
    return Bar(step, attempt["started"], length if ended is None else ended, is_good, state in _STOPPED)


def _rows(bars: Iterable[Bar]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(bar.row for bar in bars))


def _most_telling(rows: Sequence[str], bars: Iterable[Bar], most: int) -> tuple[str, ...]:
    """Return *most* of the rows in their order: failures and the planner first, then the longest."""
    took = dict.fromkeys(rows, 0.0)
    for bar in bars:
        is_first = not bar.is_good or bar.row == PLANNER
        took[bar.row] += math.inf if is_first else bar.ended - bar.started
    kept = set(sorted(rows, key=lambda row: -took[row])[:most])
    return tuple(row for row in rows if row in kept)


# Drawing --------------------------------------------------------------------------------------------------------------

_SIGN_NAMES: Final = ("bar", "planner", "failed", "change", "across", "from", "to", "mark")
_SIGNS: Final[Mapping[str, str]] = dict(zip(_SIGN_NAMES, "━┄✗┊╋┣┫▼", strict=True))
_ASCII_SIGNS: Final[Mapping[str, str]] = dict(zip(_SIGN_NAMES, "=-x:+==v", strict=True))


def draw_timeline(
    timeline: Timeline, width: int = 80, *, is_ascii: bool = False, max_rows: int = MAX_ROWS
) -> list[str]:
    """Draw a row for each step, and a vertical line through all rows where the plan was changed.

    Args:
        timeline: The timeline to draw.
        width: The width of a line in characters; at least 40.
        is_ascii: Whether to avoid box-drawing characters.
        max_rows: The most rows. Of more steps, those that failed have one before those that took long, and a last line
            counts the steps without a row.
    """
    rows = _rows(timeline.bars)
    left_out = len(rows) - max_rows
    if left_out > 0:
        rows = _most_telling(rows, timeline.bars, max_rows)
    label = min(max(map(len, (*rows, "plan changed"))), max(12, width // 4))
    drawing = _TimelineDrawing(timeline, max(40, width) - label - 2, _ASCII_SIGNS if is_ascii else _SIGNS)
    by_row: dict[str, list[Bar]] = {row: [] for row in rows}
    for bar in timeline.bars:
        if bar.row in by_row:
            by_row[bar.row].append(bar)
    lines = [("", drawing.axis()), *([("plan changed", drawing.marks())] if timeline.changes else [])]
    lines += [(row, drawing.row(bars)) for row, bars in by_row.items()]
    drawn = [f"{_cut(name, label, is_ascii=is_ascii):<{label}}  {line}".rstrip() for name, line in lines]
    return drawn + [f"and {left_out} more"] * (left_out > 0)


def timeline_page(timeline: Timeline, width: int = 80, *, is_ascii: bool = False) -> list[str]:
    """Draw the timeline, and explain each change of the plan: the reason, the difference, and the steps that ran on.

    Args:
        timeline: The timeline.
        width: The width of a line in characters; at least 40.
        is_ascii: Whether to avoid box-drawing characters.
    """
    if not timeline.bars and not timeline.changes:
        return ["No step has been called."]
    changes = [line for change in timeline.changes for line in _change_lines(change, width)]
    return [*draw_timeline(timeline, width, is_ascii=is_ascii), *([""] if changes else []), *changes]


def _change_lines(change: Change, width: int) -> Iterator[str]:
    thought, is_asked = change.at - change.asked_at, change.asked_at < change.at
    asked = f"at {change.asked_at:.2f} s the planner was asked; " if is_asked else ""
    meanwhile = f" through these {thought:.2f} s" if is_asked else ""
    ran_on, started = (counted(len(steps), "step") for steps in (change.ran_on, change.started))
    sentences = (
        f"{asked}at {change.at:.2f} s the plan was changed: {change.text}.",
        f"Why: {change.reason}." if change.reason else "",
        f"{ran_on} ran on{meanwhile} without a break: {', '.join(change.ran_on) or 'none'}.",
        f"{started} started meanwhile: {', '.join(change.started)}." if change.started else "",
    )
    for sentence in filter(None, sentences):
        text = visible(sentence[0].upper() + sentence[1:])
        yield from wrap(text, width, subsequent_indent="  ", break_on_hyphens=False)


class _TimelineDrawing:
    """The part of the drawing to the right of the names."""

    def __init__(self, timeline: Timeline, columns: int, signs: Mapping[str, str]) -> None:
        self._columns = columns
        self._signs = signs
        self._seconds = max(timeline.length, 1e-9) / columns  # of one column
        self._changes = [change.at for change in timeline.changes]

    def axis(self) -> str:
        """Return the time axis: round figures, each placed at its instant."""
        step = _round_step(self._seconds * self._columns, most=max(2, self._columns // 7))
        line = ""
        for number in range(self._columns):
            at = self._column(number * step)
            figure = f"{number * step:g} s" if number == 0 else f"{number * step:g}"
            if number * step > self._seconds * self._columns or at + len(figure) > self._columns:
                break
            line = f"{line:<{at}}{figure}"
        return line

    def marks(self) -> str:
        """Return the row of marks for the changes of the plan."""
        cells = [" "] * self._columns
        for at in self._changes:
            cells[self._column(at)] = self._signs["mark"]
        return "".join(cells)

    def row(self, bars: Sequence[Bar]) -> str:
        """Return the row of the attempts of one step."""
        cells = [" "] * self._columns
        for bar, first, last in self._spans(bars):
            cells[first : last + 1] = [self._signs["planner" if bar.row == PLANNER else "bar"]] * (last + 1 - first)
        for at in self._changes:
            cells[self._column(at)] = self._signs[self._crossing(bars, at)]
        # Drawn last: a failure in the column of a change must not look like an attempt that continues.
        for bar, _, last in self._spans(bars):
            if not bar.is_good:
                cells[last] = self._signs["failed"]
        return "".join(cells)

    def _crossing(self, bars: Sequence[Bar], at: float) -> str:
        column = self._column(at)
        spans = list(self._spans(bars))
        if any(bar.started < at < bar.ended for bar in bars if bar.row != PLANNER):
            return "across"
        if any(first == column and bar.started >= at for bar, first, _ in spans):
            return "from"
        return "to" if any(last == column for _, _, last in spans) else "change"

    def _spans(self, bars: Sequence[Bar]) -> Iterator[tuple[Bar, int, int]]:
        """Yield the columns of each bar of a row. A bar after a failed one begins in the next free column."""
        free = 0
        for bar in bars:
            first = min(max(self._column(bar.started), free), self._columns - 1)
            last = min(max(first, math.ceil(bar.ended / self._seconds) - 1), self._columns - 1)
            free = first if bar.is_good else last + 1
            yield bar, first, last

    def _column(self, at: float) -> int:
        return min(self._columns - 1, int(at / self._seconds))


def _round_step(length: float, most: int) -> float:
    """Return the smallest of 1, 2, 5, 10, … (or 0.1, 0.2, …) that fits into *length* at most *most* times."""
    power = 10.0 ** math.floor(math.log10(max(length / most, 1e-6)))
    return next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * most >= length)


def _cut(name: str, width: int, *, is_ascii: bool) -> str:
    return name if len(name) <= width else name[: width - 1] + ("." if is_ascii else "…")
