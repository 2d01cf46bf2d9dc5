"""What a drawing of a plan is made of: nodes with counters for names, and edges between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dagrun.errors import shorten
from dagrun.graph.findings import Findings
from dagrun.graph.plain_json import compile_value
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
class Node:
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


def nodes_of(plan: Plan, states: Mapping[str, State] | None = None) -> list[Node]:
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
        Node(
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
