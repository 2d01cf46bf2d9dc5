"""The timeline of a view as SVG: a row for each step, its calls as bars, its waits as lines, and the splices across.

The axis has round figures. Stretches in which nothing ran are drawn short, so that bursts of work with hours between
them stay readable.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dagrun.observe.html import Markup, join, number, tag
from dagrun.observe.picture.graph_svg import LIGHT, Picture, Theme
from dagrun.observe.state_styles import FAULTS, WAITS, cut_to, look_of, seconds_text, work_of

IDLE: Final = 0.2  # of a run: a longer stretch in which nothing ran is folded,
ALL_IDLE: Final = 0.5  # if such stretches are at least half of it: else a back-off of a short run would be folded
FOLDED: Final = 0.04  # of the time that is not folded: as long as this a folded stretch is drawn

_ROUND: Final = (1.0, 2.0, 5.0, 10.0)
_MINUTES: Final = (60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 43200.0, 86400.0)


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its time, and its text."""

    at: float
    text: str


class TimeScale:
    """Where a time is on an axis, from 0 to 1. Bursts of work with hours between them stay readable.

    Args:
        length: The length of the run, in seconds.
        folds: The stretches that are drawn short, in order.
    """

    def __init__(self, length: float, folds: Sequence[tuple[float, float]]) -> None:
        self.length = max(length, 1e-6)
        self.folds = folds
        self._busy = self.length - sum(end - start for start, end in folds)
        self._whole = self._place(self.length)

    def __call__(self, at: float) -> float:
        """Return the place of a time."""
        return min(self._place(at) / self._whole, 1.0)

    def _place(self, at: float) -> float:
        place = at
        for start, end in self.folds:
            if at > start:
                place -= (min(at, end) - start) * (1 - FOLDED * self._busy / (end - start))
        return place

    def ticks(self, most: int) -> Iterator[Tick]:
        """Yield round times, about *most* of them; after a folded stretch they count from its end."""
        step = _step(self._whole, most)
        begins = [0.0, *(end for _, end in self.folds)]
        ends = [*(start for start, _ in self.folds), self.length]
        for begin, end in zip(begins, ends, strict=True):
            for count in range(bool(begin), int((end - begin) / step + 1e-9) + 1):
                text = tick_text(count * step, self._whole)
                yield Tick(begin + count * step, f"+{text}" if begin else text)


def idle_stretches(view: Mapping[str, Any]) -> list[tuple[float, float]]:
    """Return the stretches of over a fifth of the run without a call or a planner at work.

    There are none if they are less than half of the run, or all of it.
    """
    at = view["at"]
    busy = [(call["started"], call["ended"]) for step in view["steps"] for call in step["attempts"]]
    busy += [(work["started"], work["ended"]) for work in view["planner"]]
    found, last = [], 0.0
    for start, end in sorted((start, at if end is None else end) for start, end in busy):
        if start - last > IDLE * at:
            found.append((last, start))
        last = max(last, end)
    if busy and at - last > IDLE * at:
        found.append((last, at))
    return found if ALL_IDLE * at <= sum(end - start for start, end in found) < at else []


def _step(length: float, most: int) -> float:
    if length > 90:
        step = next((step for step in _MINUTES if step * most >= length), 0.0)
        return step or 86400.0 * math.ceil(length / 86400.0 / most)
    power = 10.0 ** math.floor(math.log10(max(length / most, 1e-6)))
    return next(power * factor for factor in _ROUND if power * factor * most >= length - 1e-12)


def tick_text(at: float, length: float) -> str:
    """Write a time on the axis of a run of *length* seconds, with its unit."""
    if not at:
        return "0"
    if length > 90:
        minutes, seconds = divmod(round(at), 60)
        hours, minutes = divmod(minutes, 60)
        return f"{hours} h {minutes:02d}" if hours else f"{minutes} min" + f" {seconds:02d} s" * bool(seconds)
    return f"{at * 1000:g} ms" if length < 0.2 else f"{round(at, 6):g} s"


def running_at_once(view: Mapping[str, Any]) -> list[tuple[float, int]]:
    """Return the number of concurrent calls over time: the times at which it changes, and its value from then on."""
    turns: dict[float, int] = {}
    for step in view["steps"]:
        for call in step["attempts"]:
            ended = view["at"] if call["ended"] is None else call["ended"]
            turns[call["started"]] = turns.get(call["started"], 0) + 1
            turns[ended] = turns.get(ended, 0) - 1
    curve, running = [(0.0, 0)], 0
    for at in sorted(turns):
        running += turns[at]
        curve.append((at, running))
    return curve


def downsampled(curve: list[tuple[float, int]], scale: TimeScale, columns: int) -> list[tuple[float, int]]:
    """Return a curve with at most two points for each of *columns* if it has many: its highest value, and its last.

    The last one holds until the curve changes again, so that a peak is not drawn on through a pause.
    """
    if len(curve) <= 2 * columns:
        return curve
    best: dict[int, tuple[float, int]] = {}
    last: dict[int, tuple[float, int]] = {}
    for at, value in curve:
        place = min(int(scale(at) * columns), columns - 1)
        if place not in best or value > best[place][1]:
            best[place] = (at, value)
        last[place] = (at, value)
    return sorted({*best.values(), *last.values()})


# Rows -----------------------------------------------------------------------------------------------------------------

MAX_ROWS: Final = 300
ROW: Final = 18.0
NAMES: Final = 190.0  # the width of the names, in pixels
CURVE: Final = 44.0  # the height of the curve
_FOLD_TEXT: Final = 70.0  # pixels at both sides of the middle of an idle stretch, where its length is written
LEAST_BAR: Final = 2.0  # pixels; the title has the exact figures
FIRST: Final = frozenset((*FAULTS, "held", "cancelled"))  # states of steps that need a look

# How a wait is drawn: the dashes of its line, and its colour.
WAIT_LINES: Final = {
    "slot": ("", "dim"),
    "backoff": ("1.5 3", "bad"),
    "person": ("", "hold"),
    "planner": ("5 3", "run"),
}


def draw_timeline(
    view: Mapping[str, Any],
    *,
    width: float = 1180.0,
    max_rows: int = MAX_ROWS,
    paper: Theme = LIGHT,
    is_linked: bool = True,
) -> Picture:
    """Draw the timeline of a view.

    Args:
        view: The view of a run.
        width: The width of the drawing, in pixels.
        max_rows: The most rows: first steps that need a look, then those of the critical path, then the longest.
        paper: The colours.
        is_linked: Whether rows and changes of the plan are links, for a page that has a place for each of them.
    """
    rows = chosen_rows(view, max_rows)
    asked = sum(1 for step in view["steps"] if step["started"] is not None or step["waits"])
    if not rows:
        return Picture(Markup(""), 0, 0, "No step was called.")
    note = "" if len(rows) == asked else f"{len(rows)} of {asked:,} steps that ran; `dagrun inspect` tells of all."
    artist = _TimeArtist(view, width, paper, is_linked, TimeScale(float(view["at"]), idle_stretches(view)))
    return artist.picture(rows, note)


def chosen_rows(view: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """Return the steps that get a row, in the order of their starts."""
    seen = [step for step in view["steps"] if step["started"] is not None or step["waits"]]
    if len(seen) > most:
        seen.sort(key=lambda step: (step["state"] not in FIRST, not step["on_path"], -work_of(step, view["at"])))
        seen = seen[:most]
    return sorted(seen, key=lambda step: (_first(step), step["n"]))


def _first(step: Mapping[str, Any]) -> float:
    starts: list[float] = [wait[1] for wait in step["waits"]]
    if step["started"] is not None:
        starts.append(step["started"])
    return min(starts)


@dataclass(slots=True)
class _TimeArtist:
    view: Mapping[str, Any]
    width: float
    paper: Theme
    is_linked: bool
    scale: TimeScale

    def _link(self, *parts: Markup, to: str, **facts: Any) -> Markup:
        return tag("a", *parts, **facts, href=f"#{to}") if self.is_linked else tag("g", *parts, **facts)

    @property
    def _length(self) -> float:
        return self.scale.length

    def _x(self, at: float) -> float:
        return NAMES + (self.width - NAMES - 12) * self.scale(at)

    def picture(self, rows: Sequence[dict[str, Any]], note: str) -> Picture:
        has_planner = bool(self.view["planner"])
        top = CURVE + 22.0
        height = top + ROW * (len(rows) + has_planner) + 6
        parts = [self._curve(), self._axis(top, height)]
        if has_planner:
            parts.append(self._planner(top))
        first = top + ROW * has_planner
        parts += [self._row(step, first + place * ROW) for place, step in enumerate(rows)]
        parts += [self._splice(change, top, height) for change in self.view["revisions"] if not change["is_draft"]]
        return Picture(join(*parts), self.width, height, note)

    def _text(self, x: float, y: float, text: str, **more: Any) -> Markup:
        return tag("text", text, x=x, y=y, fill=self.paper.ink["soft"], font_size=10.5, **more)

    def _curve(self) -> Markup:
        """Draw how many calls ran at once."""
        curve = downsampled(running_at_once(self.view), self.scale, 600)
        most = max((value for _, value in curve), default=0)
        line, area = self.paper.kinds["run"]
        points, last = [f"M{number(self._x(0))} {number(CURVE)}"], CURVE
        for at, value in curve:
            y = CURVE - (CURVE - 8) * value / max(most, 1)
            points.append(f"H{number(self._x(at))}V{number(y)}")
            last = y
        points.append(f"H{number(self._x(self._length))}V{number(CURVE)}" if last != CURVE else "")
        path = tag("path", class_="area", d="".join(points), fill=area, stroke=line, stroke_width=1)
        label = f"{most:,} at once"
        return join(path, self._text(NAMES - 8, 14.0, label, text_anchor="end", class_="axis"))

    def _axis(self, top: float, height: float) -> Markup:
        parts = []
        marks = [(self._x(start) + self._x(end)) / 2 for start, end in self.scale.folds]
        for tick in self.scale.ticks(9):
            x = self._x(tick.at)
            line = self.paper.ink["line"]
            parts.append(tag("path", class_="tick", d=f"M{number(x)} {number(top)}V{number(height)}", stroke=line))
            anchor = "start" if not tick.at else "end" if x > self.width - 30 else "middle"
            if all(abs(x - mark) > _FOLD_TEXT for mark in marks):
                parts.append(self._text(x, top - 7, tick.text, text_anchor=anchor, class_="axis"))
        parts += [self._fold(start, end, top, height) for start, end in self.scale.folds]
        return join(*parts)

    def _fold(self, start: float, end: float, top: float, height: float) -> Markup:
        """Draw the mark of an idle stretch, with its length above it."""
        x, to_x = self._x(start), self._x(end)
        title = tag("title", f"nothing ran for {seconds_text(end - start)}: drawn short")
        fill = self.paper.kinds["dim"][1]
        band = tag("rect", title, class_="idle", x=x, y=top, width=to_x - x, height=height - top, fill=fill)
        text = f"⋯ {seconds_text(end - start)} ⋯"
        return join(band, self._text((x + to_x) / 2, top - 7, text, text_anchor="middle", class_="axis"))

    def _name(self, text: str, y: float, title: str = "") -> Markup:
        shown = cut_to(text, NAMES - 14, 11)
        ink = self.paper.ink["ink"]
        inside = join(tag("title", title or text), shown)
        return tag("text", inside, class_="name", x=NAMES - 8, y=y + 13, fill=ink, font_size=11, text_anchor="end")

    def _planner(self, y: float) -> Markup:
        line, area = self.paper.kinds["run"]
        parts = [self._name("planner", y)]
        for work in self.view["planner"]:
            ended = self.view["at"] if work["ended"] is None else work["ended"]
            x = self._x(work["started"])
            width = max(self._x(ended) - x, LEAST_BAR)
            what = "writes the plan" if work["kind"] == "draft" else f"request {work['number']}"
            title = f"planner: {what}, {seconds_text(ended - work['started'])}, {work['result'] or 'not ended'}"
            bar: dict[str, Any] = {"x": x, "y": y + 5, "width": width, "height": 8, "fill": area, "stroke": line}
            parts.append(tag("rect", tag("title", title), class_="planner", stroke_dasharray="3 2", **bar))
        return join(*parts)

    def _row(self, step: Mapping[str, Any], y: float) -> Markup:
        look = look_of(step["state"])
        parts = [self._name(f"{step['id']} {look.symbol}", y, f"{step['id']}: {look.word or step['state']}")]
        parts += [self._wait(wait, y) for wait in step["waits"]]
        if step["children"] is not None and step["started"] is not None:
            ended = self.view["at"] if step["ended"] is None else step["ended"]
            parts.append(self._bar(step["id"], (step["started"], ended), "frame", y, step))
        for call in step["attempts"]:
            ended = self.view["at"] if call["ended"] is None else call["ended"]
            state = call["state"] or "running"
            parts.append(self._bar(f"{step['id']}, call {call['number']}", (call["started"], ended), state, y, step))
            if call["hedge"] is not None:
                parts.append(self._hedge(call["hedge"], y))
        kind = "row" + " hot" * step["on_path"]
        return self._link(*parts, class_=kind, data_n=step["n"], to=f"step-{step['id']}")

    def _bar(self, who: str, span: tuple[float, float], state: str, y: float, step: Mapping[str, Any]) -> Markup:
        start, end = span
        is_frame = state == "frame"
        look = look_of(step["state"] if is_frame else state)
        line, area = self.paper.kinds[look.kind]
        x = self._x(start)
        title = f"{who}: {seconds_text(end - start)}, {look.word or state}"
        is_torn = state == "running"
        if is_torn:
            return self._torn(title, x, y + 4, max(self._x(end) - x, 3 * LEAST_BAR), step)
        hot = self.paper.ink["hot"] if step["on_path"] else None
        return tag(
            "rect",
            tag("title", title),
            class_=f"bar {look.kind}" + " frame" * is_frame,
            x=x,
            y=y + 4,
            width=max(self._x(end) - x, LEAST_BAR),
            height=10,
            fill=area if is_frame else line,
            stroke=hot or (line if is_frame else None),
            stroke_width=1.6 if hot else 1,
        )

    def _torn(self, title: str, x: float, y: float, width: float, step: Mapping[str, Any]) -> Markup:
        """Draw the bar of a call whose end is not known: its right edge is torn."""
        line, area = self.paper.kinds["run"]
        tear = "l-4 2.5l4 2.5l-4 2.5l4 2.5"
        return tag(
            "path",
            tag("title", f"{title}: its end is not on record" if self.view["run"]["state"] != "running" else title),
            class_="bar run torn",
            d=f"M{number(x)} {number(y)}H{number(x + width)}{tear}H{number(x)}Z",
            fill=area,
            stroke=self.paper.ink["hot"] if step["on_path"] else line,
        )

    def _hedge(self, hedge: Mapping[str, Any], y: float) -> Markup:
        ended = self.view["at"] if hedge["ended"] is None else hedge["ended"]
        x = self._x(hedge["started"])
        end = "it was faster" if hedge["has_won"] else "it was not needed"
        title = f"second call: {seconds_text(ended - hedge['started'])}, {end}"
        width = max(self._x(ended) - x, LEAST_BAR)
        fill = self.paper.kinds["run"][0]
        return tag("rect", tag("title", title), class_="hedge", x=x, y=y + 14.5, width=width, height=3, fill=fill)

    def _wait(self, wait: Sequence[Any], y: float) -> Markup:
        reason, start, until = wait[:3]
        end = self.view["at"] if until is None else until
        dashes, kind = WAIT_LINES[reason]
        limit = f" ({wait[3]} was full)" if len(wait) > 3 else ""
        x, to_x = self._x(start), self._x(end)
        return tag(
            "path",
            tag("title", f"waited {seconds_text(end - start)} {WAITS[reason]}{limit}"),
            class_=f"wait {reason}",
            d=f"M{number(x)} {number(y + 9)}H{number(max(to_x, x + LEAST_BAR))}",
            stroke=self.paper.kinds[kind][0],
            stroke_width=5 if reason == "person" else 2,
            stroke_dasharray=dashes or None,
            stroke_opacity=0.45 if reason == "person" else 0.8,
        )

    def _splice(self, change: Mapping[str, Any], top: float, height: float) -> Markup:
        x = self._x(change["at"])
        hot = self.paper.ink["hot"]
        title = tag("title", f"revision {change['number']}: {change['did']}")
        line = tag(
            "path",
            d=f"M{number(x)} {number(top - 3)}V{number(height)}",
            stroke=hot,
            stroke_width=1.5,
            stroke_dasharray="5 4",
        )
        mark = tag("path", d=f"M{number(x - 4)} {number(top - 6)}h8l-4 6z", fill=hot)
        return self._link(title, line, mark, class_="splice", to=f"revision-{change['number']}")
