"""The rules of a splice: what it may do to the live graph, held against the model at every check and every change."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import networkx as nx

from dagrun import Consequence, Patch, Problem, State
from dagrun.events import Spliced
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node, OptionalStepState
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.check_patch import Origin, Splicer
from splice_book import Change, as_json, is_called, is_fixed, may_have_applied, needs_of, used_by, waits
from splice_model import change_of

if TYPE_CHECKING:
    from watched import Watch, WatchedGraph


@dataclass
class Check:
    """A patch that was checked and found right.

    Attributes:
        checked: What may be applied.
        change: What the model expects of it.
        position: How many events there were then.
    """

    checked: CheckedPatch
    change: Change
    position: int


class WatchedSplicer(Splicer):
    """Compares every verdict with that of the model, and the graph before with the graph after."""

    watch: Watch
    graph: WatchedGraph

    def check(
        self, patch: Patch, origin: Origin = "host", known: Collection[str] | None = None
    ) -> tuple[CheckedPatch | None, tuple[Problem, ...]]:
        try:
            return self._check(patch, origin, known)
        except Exception as error:  # the coordinator takes it for a failed replan, and the run goes on
            self.watch.broken.append(f"a check has failed: {error!r}, of {patch.model_dump_json(exclude_unset=True)}")
            raise

    def _check(
        self, patch: Patch, origin: Origin, known: Collection[str] | None
    ) -> tuple[CheckedPatch | None, tuple[Problem, ...]]:
        graph = self.graph
        change, before = change_of(graph, graph.book, patch, origin, known), portrait(graph)
        checked, problems = super().check(patch, origin, known)
        found = {problem.code for problem in problems if not problem.is_advice}
        wrong = ["a check has changed the graph"] if portrait(graph) != before else []
        if (checked is None) != bool(change.faults):
            wrong.append(f"the model sees {change.faults or 'no fault'}, the check {found or 'none'}")
        if (checked is None) != bool(found):
            wrong.append(f"refused without a reason, or accepted in spite of {found}")
        self.watch.counts["accepted" if checked is not None else "refused"] += 1
        if checked is not None:
            self.watch.counts["fallen edits"] += len(change.fallen)
            graph.last_check = Check(checked, change, len(graph.applied))
            wrong += _wrong_consequence(checked.consequence, change)
        if wrong:
            told = f"{origin} {patch.model_dump_json(exclude_unset=True)} of {list(graph.nodes.values())}"
            self.watch.broken += [f"{problem}: {told}" for problem in wrong]
        return checked, problems


def portrait(graph: LiveGraph) -> dict[str, Any]:
    """Everything that a refused patch must leave as it is."""
    steps = {id_: _look_of(node) for id_, node in graph.nodes.items()}
    whole = (graph.unsettled, graph.revision, graph.output, graph.is_frozen, graph.replans, sorted(graph.kept))
    return {**steps, "": (whole, queued(graph), dict(graph.labels), dict(graph.frontier.priorities or {}))}


def _look_of(node: Node) -> tuple[Any, ...]:
    # A guard that the patch takes away is noted with steps that it does not name: so one without rare state may get it.
    rare = node.extra or OptionalStepState()
    extra = rare.root, rare.substitute, rare.generation
    after = [next_.id for next_ in node.successors]
    return node.state, node.missing, node.value, id(node.plan), after, len(node.attempts), node.is_gone, extra


def queued(graph: LiveGraph) -> list[str]:
    """The steps that wait for their turn, in the queue, in the heap, or parked at a cap."""
    frontier = graph.frontier
    entries = [*frontier._heap, *(entry for cap in _caps(graph) for entry in cap.parked)]
    return [node.id for node in frontier._queue] + [entry[-1].id for entry in entries]


def _caps(graph: LiveGraph) -> list[Any]:
    return list(dict.fromkeys(cap for node in graph.nodes.values() for cap in node.caps))


def _wrong_consequence(told: Consequence, change: Change) -> Iterator[str]:
    pairs: dict[str, tuple[Collection[Any], Collection[Any]]] = {
        "added": (told.added, change.new),
        "dropped": (told.dropped, change.dropped),
        "replaced": (told.replaced.items(), change.replaced.items()),
        "rewired": (told.rewired, change.changed),
        "cancelled": (told.cancelled, change.cancelled),
        "fallen": (told.fallen, change.fallen),
    }
    for name, (said, wanted) in pairs.items():
        if sorted(said) != sorted(wanted):
            yield f"the consequence says {name}: {said}, but it is {wanted}"


# What a splice has done -----------------------------------------------------------------------------------------------


@dataclass
class Before:
    """The graph right before a splice.

    Attributes:
        looks: Of every step.
        changed: What the model expects.
        parts: The elements that each for_each had; of any other step, that step.
        in_doubt: The steps whose calls may have taken effect.
        called: The steps of which a call ran.
    """

    looks: dict[str, tuple[Any, ...]]
    change: Change
    parts: dict[str, set[str]]
    in_doubt: set[str]
    called: set[str]


def before_splice(graph: WatchedGraph, event: Spliced) -> tuple[Before, list[str]]:
    """Look at the graph before a splice; say what is wrong already."""
    check, wrong = graph.last_check, []
    if check is None or check.checked is not event.checked or check.position != len(graph.applied):
        wrong.append("a patch is applied to another graph than the one that it was checked against")
    nodes = graph.nodes
    return Before(
        looks={id_: _look_of(node) for id_, node in nodes.items()},
        change=check.change if check is not None else Change(),
        parts={id_: _parts(graph, node) for id_, node in nodes.items()},
        in_doubt={id_ for id_, node in nodes.items() if may_have_applied(graph, node)},
        called={id_ for id_, node in nodes.items() if is_called(node)},
    ), wrong


def _parts(graph: LiveGraph, node: Node) -> set[str]:
    if node.children is None:
        return {node.id}
    return {
        child.id for child in graph.nodes.values() if child.parent is node
    }  # with those that have left and still run


def wrongly_spliced(graph: WatchedGraph, before: Before) -> Iterator[str]:
    """Say what a splice has done that it should not have, and what it has not."""
    change, nodes = before.change, graph.nodes
    leaving = {part for id_ in change.leaving for part in [id_, *before.parts[id_]]}
    if sorted(nodes.keys() - before.looks.keys()) != sorted(change.new):
        yield f"{nodes.keys() - before.looks.keys()} came, instead of {list(change.new)}"
    for id_, look in before.looks.items():
        if id_ in leaving:
            yield from _wrongly_left(nodes[id_], look, before, is_named=id_ in change.leaving)
        elif id_ not in change.changed:
            yield from _wrongly_touched(nodes[id_], look, change)
    for id_, definition in {**change.new, **change.changed}.items():
        node = nodes.get(id_)
        if node is not None:
            yield from _wrongly_defined(node, definition)
    if graph.revision != len(graph.book.touched):
        yield "revisions are miscounted"
    if not nx.is_directed_acyclic_graph(waits(graph, graph.book)):
        yield "steps wait for each other"
    yield from _wrong_edges(graph)
    yield from _wrong_labels(graph)
    yield from _wrong_priorities(graph)


def _wrongly_left(node: Node, look: tuple[Any, ...], before: Before, *, is_named: bool) -> Iterator[str]:
    state = look[0]
    if not node.is_gone and (is_named or not state.is_settled):
        yield f"{node} has not left the plan"
    wanted, parts = state, before.parts[node.id]
    if not state.is_settled and not before.called.intersection(parts):
        # In doubt is also a for_each of which an element is.
        is_in_doubt = node.id in before.in_doubt or any(p.state is State.UNKNOWN for p in node.children or ())
        wanted = State.UNKNOWN if is_in_doubt else State.SUPERSEDED
    if node.state is not wanted:
        yield f"{node} should be {wanted} now that it has left the plan"
    if _look_of(node)[2:4] != look[2:4]:
        yield f"{node} has left the plan, and is not what it was"


def _wrongly_touched(node: Node, look: tuple[Any, ...], change: Change) -> Iterator[str]:
    state, missing, value, plan, _, attempts, gone, extra = _look_of(node)
    replaced = sum(1 for parent in change.elements.values() if parent == node.id)
    if (state, value, plan, attempts, gone, extra) != (*look[:1], *look[2:4], *look[5:]):
        yield f"{node} was not named by the patch, and has changed"
    # An element that leaves has settled, unless it runs; its substitute has to settle as well.
    if node.children is None and missing != look[1]:
        yield f"{node} was not named by the patch, and waits for another number of steps"
    if node.children is not None and state.is_settled is False and replaced and not missing:
        yield f"{node} does not wait for the substitutes of its elements"


def _wrongly_defined(node: Node, definition: Any) -> Iterator[str]:
    plan, waited = node.plan, needs_of(definition)
    if as_json(plan.step) | {"for_each": plan.step.for_each} != {"for_each": None} | definition:
        yield f"{node} is defined as {as_json(plan.step)}, but should be {definition}"
    if sorted(plan.depends_on) != sorted(waited):
        yield f"{node} waits for {plan.depends_on}, but should for {waited}"
    if sorted(plan.value_sources) != sorted({step for step, _ in used_by(definition)}):
        yield f"{node} uses {plan.value_sources}"
    if plan.tool.name != definition["tool"]:
        yield f"{node} calls {plan.tool.name}"


def _wrong_edges(graph: WatchedGraph) -> Iterator[str]:
    """Each step must be told exactly once of the end of each step that it waits for, and of no other."""
    told: dict[str, list[str]] = {}
    for node in graph.nodes.values():
        for after in node.successors:
            told.setdefault(after.id, []).append(node.id)
    for id_, definition in graph.book.steps.items():
        node = graph.nodes[id_]
        if node.is_gone or is_fixed(node):
            continue
        if sorted(told.get(id_, ())) != sorted(needs_of(definition)):
            yield f"{node} is told of the end of {told.get(id_, [])}, but waits for {needs_of(definition)}"


def _wrong_labels(graph: WatchedGraph) -> Iterator[str]:
    labels = graph.labels
    for before, after in waits(graph, graph.book).edges:
        if not labels[before] < labels[after]:
            yield f"{after} waits for {before}, and its label is not higher"


def _wrong_priorities(graph: WatchedGraph) -> Iterator[str]:
    known, plan = graph.frontier.priorities, graph.plan
    if known is None:
        return
    estimates = [step.step.estimate for step in plan.steps.values() if step.step.estimate is not None]
    usual = sum(estimates) / len(estimates) if estimates else 1.0
    longest: dict[str, float] = {}
    order = waits(graph, graph.book)
    order.remove_nodes_from(list(graph.book.parents))  # elements take the place of their for_each in the queue
    order.remove_nodes_from([id_ for id_ in order if graph.nodes[id_].state.is_settled])
    for id_ in reversed(list(nx.topological_sort(order))):
        own = graph.nodes[id_].plan.step.estimate
        longest[id_] = (usual if own is None else own) + max(
            (longest[after] for after in order.successors(id_)), default=0
        )
        # It may be higher: a step that was skipped long before its turn still counts for those before it.
        if known.get(id_, -1.0) < longest[id_] - 1e-9 and not is_fixed(graph.nodes[id_]):
            yield f"the longest path from {id_} is {longest[id_]}, and not {known.get(id_)}"
