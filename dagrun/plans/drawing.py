"""Drawings of a plan as text: a tree, Mermaid, DOT.

Names in a drawing are counters of our own, and every label is quoted and escaped: a step may be called ``end``, a
tool ``<script>``, and nothing that a plan says can leave its label.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from dagrun.checks.findings import Findings
from dagrun.checks.plain_json import compile_value
from dagrun.errors import shorten
from dagrun.model.condition import Condition
from dagrun.model.outcome import State
from dagrun.model.plan import Plan, Step
from dagrun.model.reference import BadReference
from dagrun.model.value import MAX_DEPTH

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
        label: Its id and tool, on one line; not escaped for any format.
        title: Its description, on one line.
        state: How it stands, if that is known.
        parents: The numbers of the nodes that it waits for.
    """

    label: str
    title: str
    state: State | None
    parents: tuple[int, ...]


def boxes_of(plan: Plan, states: Mapping[str, State] | None = None) -> list[Box]:
    """Give the steps of *plan*, which need not have been checked, in its order.

    Args:
        plan: The plan; what it waits for in vain is left out.
        states: How the steps stand.
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
    """The ids that *step* names, declared or by reference."""
    found = dict.fromkeys(step.depends_on)
    for value, field in ((step.for_each, "for_each"), (step.args, "args")):
        template = compile_value(value, Findings(), 0, field) if value else None
        if template is not None:
            found.update((hole.reference.step, None) for hole in template.holes)
    if step.when is not None:
        found.update(_condition_needs(step.when))
    found.pop(step.id, None)
    return found


def _condition_needs(condition: Condition) -> dict[str, None]:
    found: dict[str, None] = {}
    waiting = [(condition, 1)]
    while waiting:
        current, depth = waiting.pop()
        if current.ref is not None:
            try:
                found[current.reference.step] = None
            except BadReference:
                continue
        if depth < MAX_DEPTH:
            parts = (*(current.all or ()), *(current.any or ()), *((current.not_,) if current.not_ else ()))
            waiting += [(part, depth + 1) for part in reversed(parts)]
    return found


# Where Mermaid itself gives up.
MAX_MERMAID_EDGES: Final = 500
MAX_MERMAID_TEXT: Final = 50_000

# A chain of 1,000 steps would be indented by megabytes.
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

    Every step stands once, under the first step that it waits for; where another step leads to it, too, its id is
    mentioned in brackets. An arrow down stands for what is drawn further below, for want of room.

    Args:
        plan: The plan; it need not have been checked.
        states: How its steps stand; marked by a symbol.
    """
    return "\n".join(_Tree(boxes_of(plan, states)).lines()) + "\n"


def draw_mermaid(plan: Plan, states: Mapping[str, State] | None = None) -> str:
    """Draw *plan* as a Mermaid flowchart; one too large for Mermaid becomes a note and a table as plain text.

    Args:
        plan: The plan; it need not have been checked.
        states: How its steps stand; marked by a symbol, and by a class of that name.
    """
    nodes = boxes_of(plan, states)
    edges = sum(len(node.parents) for node in nodes)
    if edges > MAX_MERMAID_EDGES:
        return _table(nodes, edges)
    lines = ["flowchart TD"]
    lines += [f'  n{number}["{_mermaid_text(_marked(node))}"]' for number, node in enumerate(nodes)]
    lines += [f"  n{parent} --> n{number}" for number, node in enumerate(nodes) for parent in node.parents]
    used = sorted({node.state for node in nodes if node.state is not None})
    lines += [f"  classDef {state} fill:{_COLOURS[state]},color:#000000" for state in used]
    lines += [f"  class n{number} {node.state}" for number, node in enumerate(nodes) if node.state is not None]
    text = "\n".join(lines) + "\n"
    return text if len(text) <= MAX_MERMAID_TEXT else _table(nodes, edges)


def draw_dot(plan: Plan, states: Mapping[str, State] | None = None) -> str:
    """Draw *plan* in DOT, for Graphviz.

    Args:
        plan: The plan; it need not have been checked.
        states: How its steps stand; marked by a symbol, a colour, and a class of that name.
    """
    nodes = boxes_of(plan, states)
    lines = ["digraph plan {", "  node [shape=box, style=filled, fillcolor=white];"]
    for number, node in enumerate(nodes):
        looks = f", class={_dot_text(node.state)}, fillcolor={_dot_text(_COLOURS[node.state])}" if node.state else ""
        lines.append(f"  n{number} [label={_dot_text(_marked(node))}, tooltip={_dot_text(node.title)}{looks}];")
    lines += [f"  n{parent} -> n{number};" for number, node in enumerate(nodes) for parent in node.parents]
    return "\n".join([*lines, "}"]) + "\n"


def _marked(node: Box) -> str:
    return node.label if node.state is None else f"{SYMBOLS[node.state]} {node.label}"


def _mermaid_text(text: str) -> str:
    """Write everything but letters, digits and a few harmless signs as a number."""
    return "".join(c if c.isalnum() or c in " _-.:,/()" else f"#{ord(c)};" for c in text)


def _dot_text(text: str) -> str:
    """Write *text* as a quoted string, with which an HTML-like label cannot begin."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;").replace("<", "&lt;")
    return f'"{escaped.replace(">", "&gt;")}"'


def _table(nodes: list[Box], edges: int) -> str:
    lines = [
        f"This plan has {len(nodes)} steps and {edges} edges, more than a Mermaid drawing holds"
        f" ({MAX_MERMAID_EDGES} edges, {MAX_MERMAID_TEXT} characters). Here it is as a table.",
        "",
        "| no. | step | waits for |",
        "| --- | --- | --- |",
    ]
    for number, node in enumerate(nodes):
        needs = ", ".join(map(str, node.parents[:MAX_MENTIONS]))
        more = f", … ({len(node.parents)})" if len(node.parents) > MAX_MENTIONS else ""
        lines.append(f"| {number} | {_cell(_marked(node))} | {needs}{more} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Write *text* so that neither a table nor HTML is what it is taken for."""
    return "".join(f"&#{ord(c)};" if c in "|<>&`\\[]*" else c for c in text)


class _Tree:
    """Lays out nodes as a tree, with a stack of its own: a plan may be deeper than Python can call."""

    def __init__(self, nodes: list[Box]) -> None:
        self._nodes = nodes
        self._children: list[list[int]] = [[] for _ in nodes]
        self._mentions: list[list[int]] = [[] for _ in nodes]
        for number, node in enumerate(nodes):
            for place, parent in enumerate(node.parents):
                (self._mentions if place else self._children)[parent].append(number)
        self._shown: set[int] = set()

    def lines(self) -> Iterator[str]:
        """Every line of the drawing."""
        roots = [number for number, node in enumerate(self._nodes) if not node.parents]
        # What waits for itself in a circle has no root; it begins where the plan names it first.
        for root in (*roots, *range(len(self._nodes))):
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
        """What is drawn below a node: lead, indentation below it, number, and whether it stands elsewhere."""
        below = [(child, False) for child in self._children[number]]
        below += [(child, True) for child in self._mentions[number][:MAX_MENTIONS]]
        leads = [("├─ ", "│  ")] * (len(below) - 1) + [("└─ ", "   ")]
        return [
            (indent + lead, indent + under, child, is_mention)
            for (lead, under), (child, is_mention) in zip(leads, below, strict=False)
        ]

    def _text(self, number: int) -> str:
        self._shown.add(number)
        node = self._nodes[number]
        hidden = len(self._mentions[number]) - MAX_MENTIONS
        more = f"  (and leads to {hidden} more)" if hidden > 0 else ""
        return _marked(node) + (f" - {node.title}" if node.title else "") + more

    def _name(self, number: int) -> str:
        return self._nodes[number].label.split(":", maxsplit=1)[0]
