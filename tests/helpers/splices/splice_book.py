"""The plan of a run as it should stand: steps as JSON, kept by what patches say; and plain facts about live steps.

Nothing here knows how the product checks or applies a patch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import networkx as nx

from dagrun import Plan, State, Step
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from random_cases import Definition

MOST_KEPT: Final = 5_000
_HOLE: Final = re.compile(r"\$\{([A-Za-z0-9_-]+)(?:\.([A-Za-z]+))?\}")
RESERVED: Final = ("input", "item")


def as_json(step: Step) -> Definition:
    """A step as it was written."""
    written: Definition = step.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return written


# What a definition says -----------------------------------------------------------------------------------------------


def references(value: Any) -> Iterator[tuple[str, str]]:
    """Every step that a JSON value refers to, with the part of its output, or an empty text for all of it."""
    match value:
        case str():
            yield from _HOLE.findall(value)
        case {"$step": str(step)}:
            yield step, value.get("path", "")
        case dict():
            for part in value.values():
                yield from references(part)
        case list() | tuple():
            for part in value:
                yield from references(part)


def used_by(definition: Definition) -> list[tuple[str, str]]:
    """The outputs of other steps that a step uses."""
    args = definition.get("args", {})  # of these, the acts are long and refer to nothing
    found = [*references([args[name] for name in args if name != "acts"]), *references(definition.get("for_each"))]
    if definition.get("when") is not None:
        step, _, part = definition["when"]["ref"].partition(".")
        found.append((step, part))
    return [(step, part) for step, part in found if step not in RESERVED]


_NEEDS: Final[dict[int, tuple[Definition, list[str]]]] = {}


def needs_of(definition: Definition) -> list[str]:
    """The steps that a step waits for, each once. A definition that was asked about does not change any more."""
    known = _NEEDS.get(id(definition))
    if known is not None and known[0] is definition:
        return known[1]
    found = list(dict.fromkeys([*definition.get("depends_on", ()), *(step for step, _ in used_by(definition))]))
    if len(_NEEDS) > MOST_KEPT:
        _NEEDS.clear()
    _NEEDS[id(definition)] = definition, found
    return found


def renamed(definition: Definition, use: Mapping[str, str]) -> Definition:
    """A step with other steps in place of some of those that it waits for."""

    def rename(value: Any) -> Any:
        match value:
            case str():
                return _HOLE.sub(lambda match: match[0].replace(match[1], use.get(match[1], match[1]), 1), value)
            case {"$step": str(step)}:
                return value | {"$step": use.get(step, step)}
            case dict():
                return {key: rename(part) for key, part in value.items()}
            case list():
                return [rename(part) for part in value]
            case _:
                return value

    changed = {key: rename(value) if key in ("args", "for_each") else value for key, value in definition.items()}
    if "depends_on" in changed:
        changed["depends_on"] = list(dict.fromkeys(use.get(id_, id_) for id_ in changed["depends_on"]))
    if changed.get("when") is not None:
        step, _, part = changed["when"]["ref"].partition(".")
        changed["when"] = changed["when"] | {"ref": f"{use.get(step, step)}.{part}"}
    return changed


def renamed_output(output: Any, use: Mapping[str, str]) -> Any:
    """The same for what a plan answers."""
    return renamed({"args": output}, use)["args"]


# The plan -------------------------------------------------------------------------------------------------------------


class Book:
    """The plan of one run as it should stand, kept by what its patches say.

    Attributes:
        steps: Every step that ever was in the plan, by id, as it is defined now or was when it left.
        parents: For each substitute of an element of a for_each, that for_each.
        gone: The ids that have left.
        frozen: For each substitute, the step whose call nothing but the same call may follow, if there is one.
        touched: For each revision, the steps that it has changed or taken out.
        carried: Those of them that it changed only because a step before them got a substitute.
        output: What the plan answers.
    """

    def __init__(self, plan: Plan) -> None:
        self.steps: dict[str, Definition] = {step.id: as_json(step) for step in plan.steps}
        self.parents: dict[str, str] = {}
        self.gone: set[str] = set()
        self.frozen: dict[str, str] = {}
        self.touched: list[set[str]] = []
        self.carried: list[set[str]] = []
        self.output: Any = plan.output

    def planned(self) -> dict[str, Definition]:
        """The plan as it stands, without elements of for_each."""
        return {id_: step for id_, step in self.steps.items() if id_ not in self.gone and id_ not in self.parents}

    def definition(self, node: Node) -> Definition:
        """How a step is defined; an element, unless it is a substitute, like its for_each."""
        return self.steps[node.id if node.id in self.steps or node.parent is None else node.parent.id]

    def turn(self, change: Change) -> None:
        """Carry out a patch."""
        self.steps.update(change.new)
        self.steps.update(change.changed)
        self.parents.update(change.elements)
        self.frozen.update(change.frozen)
        self.gone.update(change.leaving, (id_ for id_, parent in self.parents.items() if parent in change.leaving))
        self.touched.append({*change.leaving, *change.changed})
        self.carried.append({*change.carried})
        self.output = change.output


@dataclass
class Change:
    """What a patch is to do, and why it must not.

    Attributes:
        faults: The code of every fault that the model sees; it need not see all of them.
        new: The steps that come.
        elements: Those of them that stand in for an element of a for_each, with that for_each.
        changed: The steps that keep their id and get another definition.
        carried: Those of them that get it only because a step before them is replaced.
        frozen: For each substitute, as in `Book`.
        dropped: The ids that leave without a substitute.
        replaced: The ids that leave, with their substitutes.
        fallen: The ids whose edits come too late.
        cancelled: The ids that are told to stop.
        output: What the plan answers from then on.
    """

    faults: set[str] = field(default_factory=set)
    new: dict[str, Definition] = field(default_factory=dict)
    elements: dict[str, str] = field(default_factory=dict)
    changed: dict[str, Definition] = field(default_factory=dict)
    carried: set[str] = field(default_factory=set)
    frozen: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)
    fallen: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    output: Any = None

    @property
    def leaving(self) -> list[str]:
        """Every id that leaves."""
        return [*self.dropped, *self.replaced]


# Facts about steps ----------------------------------------------------------------------------------------------------


def parts_of(node: Node) -> list[Node]:
    """A step, or the elements of a for_each."""
    return [node] if node.children is None else node.children


def is_called(node: Node) -> bool:
    """Whether a call of it runs now."""
    return not node.state.is_settled and bool(node.attempts) and node.attempts[-1].outcome is None


def is_fixed(node: Node) -> bool:
    """Whether its definition stands for good: it has settled, was called, or has got its list."""
    return node.state.is_settled or bool(node.attempts) or node.children is not None


def may_have_applied(graph: LiveGraph, node: Node) -> bool:
    """Whether one of its calls may have changed the world."""
    for attempt in node.attempts:
        failure = attempt.outcome.failure if attempt.outcome is not None else None
        vouched = failure is not None and failure.nothing_happened
        if not graph.plan.toolbox[attempt.tool].effect.is_free and not vouched:
            return True
    return False


def doubted_call(graph: LiveGraph, book: Book, node: Node) -> str | None:
    """The step whose call may have taken effect: this one, an element of it, or one whose place it has taken."""
    for part in parts_of(node):
        if may_have_applied(graph, part) or (part is not node and doubted_call(graph, book, part)):
            return node.id
    return book.frozen.get(node.id)


def waits(graph: LiveGraph, book: Book, change: Change | None = None) -> nx.DiGraph[str]:
    """Who waits for whom, of those that have not succeeded; a for_each waits for its elements while it runs.

    A step that was skipped early waits for nothing any more, but it stands in the plan, which must not have a cycle.
    """
    change = change or Change()
    steps = {id_: step for id_, step in book.steps.items() if id_ not in book.gone and id_ not in change.leaving}
    steps |= change.changed | change.new
    parents = book.parents | change.elements
    found: nx.DiGraph[str] = nx.DiGraph()
    found.add_nodes_from(id_ for id_ in steps if not _is_over(graph.nodes.get(id_)))
    for id_ in list(found):
        found.add_edges_from((need, id_) for need in needs_of(steps[id_]) if need in found)
        if id_ in parents and not graph.nodes[parents[id_]].state.is_settled:
            found.add_edge(id_, parents[id_])
    return found


def _is_over(node: Node | None) -> bool:
    return node is not None and (node.state is State.SUCCEEDED or (node.parent is not None and node.state.is_settled))
