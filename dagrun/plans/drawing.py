"""Draw a plan as text: as a tree, in Mermaid, or in DOT.

The names in a drawing are numbers, and every label is quoted and escaped. A step may be called ``end`` and a tool
``<script>``: no text of a plan can leave its label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dagrun.errors import shorten
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.plain_json import compile_value
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.reference import BadReference, Condition
from dagrun.kernel.model.value import MAX_DEPTH

MAX_LABEL: Final = 60

SYMBOLS: Final[Mapping[State, str]] = {
    State.WAITING: "·",
    State.READY: "○",
    State.RUNNING: "▶",
    State.HELD: "‖",
    State.BLOCKED: "⊘",
    State.SUCCEEDED: "✓",
    State.FAILED: "✗",
    State.TIMED_OUT: "⧖",
    State.UNKNOWN: "?",
    State.SKIPPED: "↷",
    State.CANCELLED: "∅",
    State.SUPERSEDED: "⇢",
    State.ABANDONED: "☠",
}


@dataclass(frozen=True, slots=True)
class Box:
    """A step in a drawing.

    Attributes:
        label: Its id and tool on one line, not escaped yet.
        title: Its description on one line.
        state: Its state, if that is known.
        parents: The numbers of the boxes that it waits for.
    """

    label: str
    title: str
    state: State | None
    parents: tuple[int, ...]


def boxes_of(plan: Plan, states: Mapping[str, State] | None = None) -> list[Box]:
    """Return a box for each step of *plan*, in plan order.

    Args:
        plan: The plan. It may be unchecked; dependencies on unknown steps are ignored.
        states: The states of the steps.
    """
    numbers: dict[str, int] = {}
    for number, step in enumerate(plan.steps):
        numbers.setdefault(step.id, number)
    states = states or {}
    return [
        Box(
            label=shorten(f"{step.id}: {step.tool}" + (" (for each)" if step.for_each is not None else ""), MAX_LABEL),
            title=shorten(step.description, MAX_LABEL),
            state=states.get(step.id),
            parents=tuple(numbers[id_] for id_ in _needs(step) if id_ in numbers),
        )
        for step in plan.steps
    ]


def _needs(step: Step) -> dict[str, None]:
    """Return the ids that *step* names, as dependencies or in references."""
    needs = dict.fromkeys(step.depends_on)
    for value, field in ((step.for_each, "for_each"), (step.args, "args")):
        template = compile_value(value, Findings(), 0, field) if value else None
        if template is not None:
            needs.update((reference.step, None) for reference in template.references)
    if step.when is not None:
        needs.update(_condition_needs(step.when))
    needs.pop(step.id, None)
    return needs


def _condition_needs(condition: Condition) -> dict[str, None]:
    needs: dict[str, None] = {}
    waiting = [(condition, 1)]
    while waiting:
        current, depth = waiting.pop()
        if current.ref is not None:
            try:
                needs[current.reference.step] = None
            except BadReference:
                continue
        if depth < MAX_DEPTH:
            parts = (*(current.all or ()), *(current.any or ()), *((current.not_,) if current.not_ else ()))
            waiting += [(part, depth + 1) for part in reversed(parts)]
    return needs


# The limits of Mermaid itself.
MAX_MERMAID_EDGES: Final = 500
MAX_MERMAID_TEXT: Final = 50_000

# Without a limit, the indentation of a chain of 1,000 steps would take megabytes.
MAX_INDENT: Final = 24
MAX_MENTIONS: Final = 10

_COLOURS: Final[Mapping[State, str]] = {
    State.WAITING: "#eeeeee",
    State.READY: "#dbeafe",
    State.RUNNING: "#93c5fd",
    State.HELD: "#fde68a",
    State.BLOCKED: "#fed7aa",
    State.SUCCEEDED: "#bbf7d0",
    State.FAILED: "#fecaca",
    State.TIMED_OUT: "#fecaca",
    State.UNKNOWN: "#e9d5ff",
    State.SKIPPED: "#f5f5f5",
    State.CANCELLED: "#e5e5e5",
    State.SUPERSEDED: "#e5e5e5",
    State.ABANDONED: "#d6a4a4",
}


def draw_tree(plan: Plan, states: Mapping[str, State] | None = None) -> str:
    """Draw *plan* as an indented tree.

    Every step is drawn once, under the first step that it waits for. Under the other steps that it waits for, only its
    id is mentioned, in brackets. An arrow down means that the rest is drawn further below, because there is no room.

    Args:
        plan: The plan; it may be unchecked.
        states: The states of its steps, drawn as symbols.
    """
    return "\n".join(_Tree(boxes_of(plan, states)).lines()) + "\n"


def draw_mermaid(plan: Plan, states: Mapping[str, State] | None = None) -> str:
    """Draw *plan* as a Mermaid flowchart; if it is too large for Mermaid, return a note and a table as plain text.

    Args:
        plan: The plan; it may be unchecked.
        states: The states of its steps, drawn as symbols and as classes of these names.
    """
    boxes = boxes_of(plan, states)
    edges = sum(len(box.parents) for box in boxes)
    if edges > MAX_MERMAID_EDGES:
        return _table(boxes, edges)
    lines = ["flowchart TD"]
    lines += [f'  n{number}["{_mermaid_text(_marked(box))}"]' for number, box in enumerate(boxes)]
    lines += [f"  n{parent} --> n{number}" for number, box in enumerate(boxes) for parent in box.parents]
    used = sorted({box.state for box in boxes if box.state is not None})
    lines += [f"  classDef {state} fill:{_COLOURS[state]},color:#000000" for state in used]
    lines += [f"  class n{number} {box.state}" for number, box in enumerate(boxes) if box.state is not None]
    text = "\n".join(lines) + "\n"
    return text if len(text) <= MAX_MERMAID_TEXT else _table(boxes, edges)


def draw_dot(plan: Plan, states: Mapping[str, State] | None = None) -> str:
    """Draw *plan* in DOT, for Graphviz.

    Args:
        plan: The plan; it may be unchecked.
        states: The states of its steps, drawn as symbols, colours and classes of these names.
    """
    boxes = boxes_of(plan, states)
    lines = ["digraph plan {", "  node [shape=box, style=filled, fillcolor=white];"]
    for number, box in enumerate(boxes):
        looks = f", class={_dot_text(box.state)}, fillcolor={_dot_text(_COLOURS[box.state])}" if box.state else ""
        lines.append(f"  n{number} [label={_dot_text(_marked(box))}, tooltip={_dot_text(box.title)}{looks}];")
    lines += [f"  n{parent} -> n{number};" for number, box in enumerate(boxes) for parent in box.parents]
    return "\n".join([*lines, "}"]) + "\n"


def _marked(box: Box) -> str:
    return box.label if box.state is None else f"{SYMBOLS[box.state]} {box.label}"


def _mermaid_text(text: str) -> str:
    """Escape *text*: all but letters, digits and a few harmless signs become character numbers."""
    return "".join(c if c.isalnum() or c in " _-.:,/()" else f"#{ord(c)};" for c in text)


def _dot_text(text: str) -> str:
    """Return *text* as a quoted string, which cannot be taken for an HTML-like label."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("<", "&lt;")
    return f'"{escaped.replace(">", "&gt;")}"'


def _table(boxes: list[Box], edges: int) -> str:
    lines = [
        f"This plan has {len(boxes)} steps and {edges} edges, more than a Mermaid drawing holds"
        f" ({MAX_MERMAID_EDGES} edges, {MAX_MERMAID_TEXT} characters). Here it is as a table.",
        "",
        "| no. | step | waits for |",
        "| --- | --- | --- |",
    ]
    for number, box in enumerate(boxes):
        needs = ", ".join(map(str, box.parents[:MAX_MENTIONS]))
        more = f", … ({len(box.parents)})" if len(box.parents) > MAX_MENTIONS else ""
        lines.append(f"| {number} | {_cell(_marked(box))} | {needs}{more} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape *text* so that it cannot be taken for table syntax, Markdown or HTML."""
    return "".join(f"&#{ord(c)};" if c in "|<>&`\\[]*" else c for c in text)


class _Tree:
    """Draws boxes as a tree, without recursion: a plan may be deeper than Python's recursion limit."""

    def __init__(self, boxes: list[Box]) -> None:
        self._boxes = boxes
        self._children: list[list[int]] = [[] for _ in boxes]
        self._mentions: list[list[int]] = [[] for _ in boxes]
        for number, box in enumerate(boxes):
            for place, parent in enumerate(box.parents):
                (self._mentions if place else self._children)[parent].append(number)
        self._shown: set[int] = set()

    def lines(self) -> Iterator[str]:
        """Yield every line of the drawing."""
        roots = [number for number, box in enumerate(self._boxes) if not box.parents]
        # Steps on a cycle have no root; the first of them in the plan is drawn as one.
        for root in (*roots, *range(len(self._boxes))):
            if root not in self._shown:
                yield from self._subtree(root)

    def _subtree(self, root: int) -> Iterator[str]:
        later = [root]
        while later:
            start = later.pop()
            yield self._text(start)
            stack = list(reversed(self._branches(start, "")))
            while stack:
                lead, below, number, is_mention = stack.pop()
                if is_mention or number in self._shown:
                    yield f"{lead}({self._name(number)})"
                    continue
                is_cut = len(below) >= 3 * MAX_INDENT and bool(self._children[number])
                if is_cut:
                    later.append(number)
                    yield f"{lead}{self._name(number)} ↓"
                    continue
                yield lead + self._text(number)
                stack += reversed(self._branches(number, below))

    def _branches(self, number: int, indent: str) -> list[tuple[str, str, int, bool]]:
        """Return the lines below a box: lead, indentation of lines below, number, and whether it is only mentioned."""
        below = [(child, False) for child in self._children[number]]
        below += [(child, True) for child in self._mentions[number][:MAX_MENTIONS]]
        leads = [("├─ ", "│  ")] * (len(below) - 1) + [("└─ ", "   ")]
        return [
            (indent + lead, indent + under, child, is_mention)
            for (lead, under), (child, is_mention) in zip(leads, below, strict=False)
        ]

    def _text(self, number: int) -> str:
        self._shown.add(number)
        box = self._boxes[number]
        hidden = len(self._mentions[number]) - MAX_MENTIONS
        more = f"  (and leads to {hidden} more)" if hidden > 0 else ""
        return _marked(box) + (f" - {box.title}" if box.title else "") + more

    def _name(self, number: int) -> str:
        return self._boxes[number].label.split(":", maxsplit=1)[0]
