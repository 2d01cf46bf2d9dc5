"""The graph of a view as SVG: boxes from left to right, the critical path outlined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dagrun.observe.html import Markup, join, number, tag
from dagrun.observe.picture.condense import DEFAULT_BOXES, Drawing, PictureBox, condense
from dagrun.observe.picture.layout import Layout, lay_out
from dagrun.observe.state_styles import COLOURS, DARK_COLOURS, DARK_INK, INK, counted, cut_to, look_of, seconds_text

FONT: Final = "system-ui, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', Arial, sans-serif"

WIDTH: Final = 156.0  # of a box, in pixels
HEIGHT: Final = 38.0
COLUMN: Final = 204.0  # from one column to the next
ROW: Final = 50.0
MARGIN: Final = 8.0
MOST_EDGES: Final = 3_000  # with more, nobody sees where one leads, and the drawing takes megabytes
_FEW: Final = 20  # boxes, which are drawn with all their edges


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a drawing."""

    kinds: Mapping[str, tuple[str, str]]
    ink: Mapping[str, str]


LIGHT: Final = Theme(COLOURS, INK)
DARK: Final = Theme(DARK_COLOURS, DARK_INK)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, with its note.

    Attributes:
        markup: The inside of an SVG, in pixels.
        width: Its width.
        height: Its height.
        note: A sentence on the drawn and the omitted parts.
    """

    markup: Markup
    width: float
    height: float
    note: str

    def svg(self, label: str, *, class_: str = "", is_alone: bool = False, paper: Theme = LIGHT) -> Markup:
        """Return the drawing as one element; *is_alone* makes it a file of its own, with its background."""
        back = tag("rect", width="100%", height="100%", fill=paper.ink["paper"]) if is_alone else None
        return tag(
            "svg",
            back,
            self.markup,
            class_=class_ or None,
            role="group",
            aria_label=label,
            xmlns="http://www.w3.org/2000/svg" if is_alone else None,
            width=self.width,
            height=self.height,
            viewBox=f"0 0 {number(self.width)} {number(self.height)}",
            font_family=FONT,
            font_size=12,
        )


def draw_graph(
    view: Mapping[str, Any], *, most: int = DEFAULT_BOXES, paper: Theme = LIGHT, is_linked: bool = True
) -> Picture:
    """Draw the graph of a view.

    Args:
        view: The view of a run.
        most: The most boxes.
        paper: The colours.
        is_linked: Whether a box is a link to its step, for a page that has a place for each step.
    """
    drawing = condense(view, most)
    if not drawing.boxes:
        return Picture(Markup(""), 0, 0, "There are no steps.")
    layout = lay_out(len(drawing.boxes), [*drawing.edges, *drawing.replaced])
    while len(layout.routes) > MOST_EDGES and len(drawing.boxes) > _FEW:
        drawing = condense(view, len(drawing.boxes) // 2)
        layout = lay_out(len(drawing.boxes), [*drawing.edges, *drawing.replaced])
    artist = _Artist(drawing, layout, view["steps"], paper, is_linked=is_linked)
    edges = [artist.edge(a, b, bends) for (a, b), bends in layout.routes]
    boxes = [artist.box(place, box) for place, box in enumerate(drawing.boxes)]
    width = 2 * MARGIN + (layout.columns - 1) * COLUMN + WIDTH
    height = 2 * MARGIN + (layout.rows - 1) * ROW + HEIGHT
    return Picture(join(*edges, *boxes), width, height, _note(drawing, layout))


def _note(drawing: Drawing, layout: Layout) -> str:
    whole = "Every step has a box."
    if not drawing.is_whole:
        whole = f"{counted(len(drawing.boxes), 'box', 'boxes')} for {counted(drawing.steps, 'step')}."
    follow = "follows from others is" if layout.left_out == 1 else "follow from others are"
    left = f" {counted(layout.left_out, 'edge')} that {follow} not drawn."
    gone = f" {counted(drawing.gone, 'step')} that left the plan {'is' if drawing.gone == 1 else 'are'} not drawn."
    return whole + (left if layout.left_out else "") + (gone if drawing.gone else "")


class _Artist:
    def __init__(
        self, drawing: Drawing, layout: Layout, steps: list[dict[str, Any]], paper: Theme, *, is_linked: bool
    ) -> None:
        self._is_linked = is_linked
        self._drawing = drawing
        self._layout = layout
        self._steps = steps
        self._paper = paper
        self._replaced = set(drawing.replaced)

    def _corner(self, place: tuple[float, float]) -> tuple[float, float]:
        return MARGIN + place[0] * COLUMN, MARGIN + place[1] * ROW

    def edge(self, a: int, b: int, bends: tuple[tuple[float, float], ...]) -> Markup:
        """Draw an edge as curves through its bends."""
        x, y = self._corner(self._layout.places[a])
        x, y = x + WIDTH, y + HEIGHT / 2
        end_x, end_y = self._corner(self._layout.places[b])
        pieces = [f"M{number(x)} {number(y)}"]
        for bend in bends:
            to_x, to_y = self._corner(bend)
            to_y += HEIGHT / 2
            pieces.append(_curve(x, y, to_x, to_y))
            pieces.append(f"H{number(to_x + WIDTH)}")
            x, y = to_x + WIDTH, to_y
        pieces.append(_curve(x, y, end_x, end_y + HEIGHT / 2))
        is_hot, is_replaced = (a, b) in self._drawing.path, (a, b) in self._replaced
        names = self._drawing.boxes[a].label, self._drawing.boxes[b].label
        ink = self._paper.ink
        return tag(
            "path",
            tag("title", f"{names[0]} was replaced by {names[1]}" if is_replaced else f"{names[0]} → {names[1]}"),
            class_="edge" + " hot" * is_hot + " swap" * is_replaced,
            data_from=self._drawing.boxes[a].steps[0],
            data_to=self._drawing.boxes[b].steps[0],
            d="".join(pieces),
            fill="none",
            stroke=ink["hot"] if is_hot else ink["line"],
            stroke_width=2.4 if is_hot else 1.4,
            stroke_dasharray="5 4" if is_replaced else None,
        )

    def box(self, place: int, box: PictureBox) -> Markup:
        """Draw a box: symbol and name, and below it the tool, and its duration or the counts of states."""
        x, y = self._corner(self._layout.places[place])
        look = look_of(box.state)
        line, area = self._paper.kinds[look.kind]
        ink = self._paper.ink
        title = self._title(box)
        name = cut_to(box.label, WIDTH - 34, 12)
        return tag(
            "a" if self._is_linked else "g",
            tag("title", title),
            tag(
                "rect",
                x=x,
                y=y,
                width=WIDTH,
                height=HEIGHT,
                rx=5,
                fill=area,
                stroke=ink["hot"] if box.on_path else line,
                stroke_width=2.4 if box.on_path else 1.2,
                stroke_dasharray="5 4" if box.gone is not None else None,
            ),
            tag("text", look.symbol, class_="sym", x=x + 9, y=y + 16.5, fill=line, font_weight="bold"),
            tag("text", name, class_="name", x=x + 25, y=y + 16.5, fill=ink["ink"]),
            tag("text", self._below(box), class_="sub", x=x + 25, y=y + 30.5, fill=ink["soft"], font_size=10.5),
            class_=f"box {look.kind}" + " hot" * box.on_path + " gone" * (box.gone is not None),
            data_n=box.steps[0],
            data_many=None if len(box.steps) == 1 else len(box.steps),
            data_steps=None if len(box.steps) == 1 else _ranges(box.steps),
            data_rev=box.revision or None,
            data_gone=box.gone,
            href=f"#step-{self._steps[box.steps[0]]['id']}" if self._is_linked else None,
            role=None if self._is_linked else "img",
            aria_label=title,
        )

    def _below(self, box: PictureBox) -> str:
        width = WIDTH - 32
        if sum(box.states.values()) > 1:
            counts = " ".join(f"{look_of(state).symbol}{count:,}" for state, count in sorted(box.states.items()))
            tool = f"{cut_to(box.tool, width * 0.5, 10.5)} · " if box.elements else ""
            return cut_to(f"{tool}{counts}", width, 10.5)
        took = f" · {seconds_text(box.seconds)}" if box.seconds is not None else ""
        return cut_to(box.tool, width - 6.0 * len(took), 10.5) + took

    def _title(self, box: PictureBox) -> str:
        states = ", ".join(
            f"{count:,} {look_of(state).word or state}"
            if sum(box.states.values()) > 1
            else look_of(state).word or state
            for state, count in sorted(box.states.items())
        )
        path = ", on the critical path" if box.on_path else ""
        gone = f", left the plan in revision {box.gone}" if box.gone is not None else ""
        return f"{box.label}: {box.tool}, {states}{path}{gone}"


def _curve(x: float, y: float, to_x: float, to_y: float) -> str:
    if abs(y - to_y) < 0.5:
        return f"L{number(to_x)} {number(to_y)}"
    middle = (x + to_x) / 2
    return f"C{number(middle)} {number(y)} {number(middle)} {number(to_y)} {number(to_x)} {number(to_y)}"


def _ranges(numbers: list[int]) -> str:
    """Write sorted numbers as ranges, such as ``3-7,9``."""
    parts: list[list[int]] = []
    for n in sorted(numbers):
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
