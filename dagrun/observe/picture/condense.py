"""Boxes for the steps of a view: one for each step, or, where there are too many, one for many steps.

1. The elements of a for_each are in its box.
2. Above the limit, steps with the same tool, the same needs and the same users are one box.
3. If that is not enough, the steps of a layer with the same tool are one box; then those of several layers; and at
   last, all steps of several layers. Edges inside such a band are not drawn.

Steps that have left the plan are left out where they are more than a third of all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from dagrun.observe.looks import TIMES

DEFAULT_BOXES: Final = 300
MOST_BOXES: Final = 2_000
# Where steps share boxes, every box stands for many of them anyway: fewer boxes are easier to take in.
_SHARED: Final = 150


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
        """The state that its colour stands for: the worst one."""
        return min(self.states, key=lambda state: WORST.index(state) if state in WORST else len(WORST), default="")


# What a reader must see first, if the steps of a box are in several states.
WORST: Final = (
    *("unknown", "failed", "timed_out", "abandoned", "held", "running", "blocked", "ready", "waiting"),
    *("succeeded", "cancelled", "skipped", "superseded"),
)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The boxes of a drawing, and what leads from one to another.

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
    left = [step for step in every if step["gone"] is not None]
    shown = every
    if len(left) * 3 > len(every) or len(every) > most:
        shown = [step for step in every if step["gone"] is None]
    key = _keys(shown, most)
    number: dict[Hashable, int] = {}
    box_of: dict[int, int] = {}
    groups: list[list[dict[str, Any]]] = []
    for step in shown:
        place = number.setdefault(key(step), len(number))
        if place == len(groups):
            groups.append([])
        groups[place].append(step)
        box_of[step["n"]] = place
    boxes = [_box(group, view["steps"]) for group in groups]
    layer = _layers(shown) if len(boxes) < len(shown) else {}
    pairs = ((need, step["n"]) for step in shown for need in step["needs"])
    edges = dict.fromkeys(
        (box_of[a], box_of[b])
        for a, b in pairs
        if a in box_of and box_of[a] != box_of[b] and _goes_on(key, layer, a, b)
    )
    path = [box_of[n] for n in view["path"] if n in box_of]
    replaced = [
        (box_of[step["n"]], box_of[step["substitute"]])
        for step in shown
        if step["substitute"] in box_of and box_of[step["n"]] != box_of[step["substitute"]]
    ]
    hidden = len(every) - len(shown)
    return Drawing(boxes, list(edges), replaced, set(pairwise(path)), len(shown), hidden)


def _goes_on(key: _Keys, layer: Mapping[int, int], a: int, b: int) -> bool:
    """Whether an edge leads from one band of layers to a later one."""
    return not key.band or layer[a] // key.band < layer[b] // key.band


@dataclass(slots=True)
class _Keys:
    """Says which steps share a box.

    Attributes:
        of: Returns the key of a step: steps with equal keys share a box.
        band: How many layers a box may hold; 0 if boxes know no layers.
    """

    of: Callable[[dict[str, Any]], Hashable]
    band: int = 0

    def __call__(self, step: dict[str, Any]) -> Hashable:
        return self.of(step)


def _keys(steps: list[dict[str, Any]], most: int) -> _Keys:
    """Return the finest way to share boxes that needs no more than *most*."""
    own = _Keys(lambda step: step["n"])
    if len(steps) <= most:
        return own
    users: dict[int, list[int]] = {}
    for step in steps:
        for need in step["needs"]:
            users.setdefault(need, []).append(step["n"])
    most = min(most, _SHARED)
    alike = _Keys(lambda step: (step["tool"], tuple(sorted(step["needs"])), tuple(users.get(step["n"], ()))))
    if _fits(alike, steps, most):
        return alike
    layer = _layers(steps)
    band = 1
    while band <= len(steps):
        for with_tool in (True, False) if band >= len(steps) // most else (True,):
            keys = _Keys(_by_layer(layer, band, with_tool=with_tool), band)
            if _fits(keys, steps, most):
                return keys
        band *= 2
    return _Keys(lambda step: 0, 1)


def _by_layer(layer: Mapping[int, int], band: int, *, with_tool: bool) -> Callable[[dict[str, Any]], Hashable]:
    return lambda step: (layer[step["n"]] // band, step["tool"] if with_tool else "")


def _fits(keys: _Keys, steps: list[dict[str, Any]], most: int) -> bool:
    return len({keys(step) for step in steps}) <= most


def _layers(steps: list[dict[str, Any]]) -> dict[int, int]:
    """Return the longest path to each step, in steps."""
    left = {step["n"]: 0 for step in steps}
    after: dict[int, list[int]] = {}
    for step in steps:
        for need in step["needs"]:
            if need in left:
                after.setdefault(need, []).append(step["n"])
                left[step["n"]] += 1
    layer = dict.fromkeys(left, 0)
    order = [n for n, count in left.items() if not count]
    for n in order:
        for other in after.get(n, ()):
            layer[other] = max(layer[other], layer[n] + 1)
            left[other] -= 1
            if not left[other]:
                order.append(other)
    return layer


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
