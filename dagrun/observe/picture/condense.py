"""Boxes for the steps of a view: one for each step, or, where there are too many, one for a group of steps.

1. The elements of a for_each are in its box.
2. Above the limit, steps that have left the plan are not drawn. The steps of a layer (with equally long paths to them)
   that have the same tool are one box.
3. If that is not enough, the layers are put into columns, and a column is one box. Edges inside it are not drawn.

`mermaid` and `dot` write the boxes as text for other programs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from dagrun.observe.html import plain
from dagrun.observe.picture.layout import longest_paths
from dagrun.observe.state_styles import COLOURS, TIMES, look_of

DEFAULT_BOXES: Final = 60
MOST_BOXES: Final = 2_000
_COLUMNS: Final = 12  # of a graph whose layers are too many; more are wider than a page


@dataclass(slots=True)
class PictureBox:
    """One box of a drawing.

    Attributes:
        steps: The numbers of its steps, without elements of for_each.
        label: Its name.
        tool: The name of its tool; empty if there are several.
        states: How many steps are in each state; of a for_each, its elements.
        elements: How many elements its for_each has; 0 for other boxes.
        on_path: Whether a step of it is on the critical path.
        gone: Whether its step has left the plan.
        revision: The revision that brought its step.
        seconds: How long its step took; `None` for many steps, or if it never ran.
    """

    steps: list[int]
    label: str
    tool: str
    states: Counter[str] = field(default_factory=Counter)
    elements: int = 0
    on_path: bool = False
    gone: int | None = None
    revision: int = 0
    seconds: float | None = None

    @property
    def state(self) -> str:
        """The state that determines its colour: the worst one."""
        return min(self.states, key=lambda state: WORST.index(state) if state in WORST else len(WORST), default="")


# What a reader must see first, if the steps of a box are in several states.
WORST: Final = (
    *("unknown", "failed", "timed_out", "abandoned", "held", "running", "blocked", "ready", "waiting"),
    *("succeeded", "cancelled", "skipped", "superseded"),
)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The boxes of a drawing, and the arrows between them.

    Attributes:
        boxes: The boxes.
        edges: Pairs of boxes: the second waits for the first.
        replaced: Pairs of boxes: the second stands in the place of the first.
        path: The edges of the critical path.
        steps: How many steps are drawn.
        gone: How many steps have left the plan, and are not drawn.
    """

    boxes: list[PictureBox]
    edges: list[tuple[int, int]]
    replaced: list[tuple[int, int]]
    path: set[tuple[int, int]]
    steps: int
    gone: int

    @property
    def is_whole(self) -> bool:
        """Whether every step has a box."""
        return len(self.boxes) == self.steps


def condense(view: Mapping[str, Any], most: int = DEFAULT_BOXES) -> Drawing:
    """Return the boxes for a view, no more than *most*."""
    every = [step for step in view["steps"] if step["parent"] is None]
    is_whole = len(every) <= most
    shown = [step for step in every if is_whole or step["gone"] is None]
    keys = {step["n"]: (step["n"], "") for step in shown}
    if len(shown) > most:
        keys = _group_keys(shown, most)
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for step in shown:
        groups.setdefault(keys[step["n"]], []).append(step)
    number = {key: place for place, key in enumerate(groups)}
    boxes = [_box(group, view["steps"]) for group in groups.values()]
    pairs = ((need, step["n"]) for step in shown for need in step["needs"] if need in keys)
    has_groups = len(boxes) < len(shown)
    edges = dict.fromkeys(
        (number[keys[a]], number[keys[b]]) for a, b in pairs if not has_groups or keys[a][0] < keys[b][0]
    )
    path = [number[keys[n]] for n in view["path"] if n in keys]
    replaced = [
        (number[keys[step["n"]]], number[keys[step["substitute"]]]) for step in shown if step["substitute"] in keys
    ]
    return Drawing(boxes, list(edges), replaced, set(pairwise(path)), len(shown), len(every) - len(shown))


def _group_keys(steps: list[dict[str, Any]], most: int) -> dict[int, tuple[int, str]]:
    """Return the group of each step: its layer and its tool, or a column of several layers."""
    number = {step["n"]: place for place, step in enumerate(steps)}
    needs = [(number[need], number[step["n"]]) for step in steps for need in step["needs"] if need in number]
    layer = dict(zip(number, longest_paths(len(steps), needs), strict=True))
    keys = {step["n"]: (layer[step["n"]], step["tool"]) for step in steps}
    if len(set(keys.values())) <= most:
        return keys
    depth = max(layer.values()) + 1
    columns = min(_COLUMNS, depth, most)
    return {n: (place * columns // depth, "") for n, place in layer.items()}


def _box(group: list[dict[str, Any]], steps: list[dict[str, Any]]) -> PictureBox:
    first = group[0]
    tools = {step["tool"] for step in group}
    states: Counter[str] = Counter()
    elements = 0
    for step in group:
        if step["children"] is None:
            states[step["state"]] += 1
            continue
        start, last = step["children"]
        states.update(element["state"] for element in steps[start : last + 1])
        elements += last - start + 1
    if len(group) > 1:
        label = f"{first['tool'] if len(tools) == 1 else 'steps'} {TIMES} {len(group):,}"
    else:
        label = first["id"] + (f" {TIMES} {elements:,}" if elements else "")
    is_one = len(group) == 1
    took = first["ended"] - first["started"] if is_one and first["ended"] and first["started"] is not None else None
    return PictureBox(
        steps=[step["n"] for step in group],
        label=label,
        tool=first["tool"] if len(tools) == 1 else f"{len(tools)} tools",
        states=states,
        elements=elements,
        on_path=any(step["on_path"] for step in group),
        gone=first["gone"] if is_one else None,
        revision=first["revision"] if is_one else 0,
        seconds=took,
    )


# As text for other programs -------------------------------------------------------------------------------------------


def _label(box: PictureBox) -> str:
    return plain(f"{look_of(box.state).symbol} {box.label}")


def mermaid(view: Mapping[str, Any], most: int = DEFAULT_BOXES) -> str:
    """Return the graph as Mermaid. Whatever stands in a label is text: quotes and brackets become entities."""
    drawing = condense(view, most)
    lines = ["flowchart LR"]
    for place, box in enumerate(drawing.boxes):
        shown = "".join(sign if sign.isalnum() or sign in " .-_" else f"#{ord(sign)};" for sign in _label(box))
        lines.append(f'  s{place}["{shown}"]:::{look_of(box.state).kind}')
    lines += [f"  s{a} --> s{b}" for a, b in drawing.edges]
    lines += [f"  s{a} -. replaced by .-> s{b}" for a, b in drawing.replaced]
    lines += [f"  classDef {kind} fill:{area},stroke:{line},color:#1c2530" for kind, (line, area) in COLOURS.items()]
    return "\n".join(lines) + "\n"


def dot(view: Mapping[str, Any], most: int = DEFAULT_BOXES) -> str:
    """Return the graph in the language of Graphviz."""
    drawing = condense(view, most)
    lines = ["digraph run {", "  rankdir=LR;", "  node [shape=box, style=filled];"]
    for place, box in enumerate(drawing.boxes):
        line, area = COLOURS[look_of(box.state).kind]
        shown = _label(box).replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  s{place} [label="{shown}", color="{line}", fillcolor="{area}"];')
    lines += [f"  s{a} -> s{b}{' [penwidth=2.5]' if (a, b) in drawing.path else ''};" for a, b in drawing.edges]
    lines += [f"  s{a} -> s{b} [style=dashed];" for a, b in drawing.replaced]
    return "\n".join([*lines, "}"]) + "\n"
