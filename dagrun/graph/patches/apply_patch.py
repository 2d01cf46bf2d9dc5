"""Applying a checked patch to the live graph: one synchronous change, whose cost is that of what it touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Final

from dagrun.checks.checked_plan import CheckedStep
from dagrun.graph.live_graph import LiveGraph, freeze
from dagrun.graph.longest_paths import Expected
from dagrun.graph.node import Node
from dagrun.graph.patches.edits import AnyEdit
from dagrun.graph.plan_history import Revision
from dagrun.graph.released_outputs import look_again_after_splice
from dagrun.model.event import GoalChanged, Spliced, StepSettled
from dagrun.model.outcome import State
from dagrun.model.patch import Consequence
from dagrun.model.reference import Template


@dataclass(frozen=True, slots=True)
class CheckedPatch:
    """A patch that can be applied to the graph that it was checked against, as long as that does not change.

    Attributes:
        edits: Those that count: what its author could not know has fallen away.
        steps: The steps that come or change, by id, as the runtime wants them.
        substitutes: Old id to new id.
        leaving: Every id that leaves the plan.
        labels: Order labels that come or change.
        changes_output: Whether what the run answers changes.
        output: That, ready to be filled.
        written_output: The same as it is written.
        consequence: What the patch does, for people and records.
        guards: For a patch of the planner: the calls whose guards it takes away, each with a sentence; see `guards`.
        effects: The calls with an effect that it brings or changes, or before which it changes anything; found only
            where the policy wants people to agree to such a patch.
    """

    edits: tuple[AnyEdit, ...]
    steps: dict[str, CheckedStep]
    substitutes: Mapping[str, str]
    leaving: tuple[str, ...]
    labels: Mapping[str, float]
    changes_output: bool
    output: Template | None
    written_output: Any
    consequence: Consequence
    guards: Mapping[str, str] = field(default_factory=dict)
    effects: tuple[str, ...] = ()


def set_priorities(graph: LiveGraph, steps: Mapping[str, CheckedStep], others: Iterable[str]) -> None:
    """Find the longest remaining paths anew: of steps that a splice has touched, and of those before them.

    Without a limit on what runs at once nobody needs them, and nothing is done.

    Args:
        graph: The graph, with the splice applied.
        steps: The steps that came or changed.
        others: Steps that have lost or won a dependent.
    """
    known = graph.frontier.priorities
    if known is None:
        if any(checked.step.max_parallel is not None for checked in steps.values()):
            graph.frontier.rank(_all_priorities(graph))  # the first limit of this run
        return
    touched = {id_ for id_ in (*steps, *others) if _counts(graph.nodes[id_])}
    graph.frontier.reorder(list(_raise(graph, known, touched)))


def _counts(node: Node) -> bool:
    return node.parent is None and not node.is_gone and not node.state.is_settled


def _longest(node: Node, known: Mapping[str, float], expected: Expected) -> float:
    best = 0.0
    for after in node.successors:
        # What waits for an element is its for_each.
        family = after if after.parent is None else after.parent
        path = known.get(family.id, 0.0)
        if path > best and not family.is_gone:
            best = path
    return best + expected.seconds(node.plan)


def _raise(graph: LiveGraph, known: dict[str, float], touched: Collection[str]) -> Iterator[Node]:
    """Set the priorities of *touched*, and of what comes before them; give the ready steps that stand elsewhere now."""
    labels, nodes, expected = graph.labels, graph.nodes, graph.expected
    seen = set(touched)
    heap = [(-labels[id_], id_) for id_ in seen]
    heapify(heap)
    while heap:  # those that come last first: then each is looked at once
        node = nodes[heappop(heap)[1]]
        longest = _longest(node, known, expected)
        if known.get(node.id) == longest:
            continue
        known[node.id] = longest
        if node.state is State.READY:
            yield node
        yield from (child for child in node.children or () if child.state is State.READY)
        for need in node.plan.depends_on:
            if need not in seen and _counts(nodes[need]):
                seen.add(need)
                heappush(heap, (-labels[need], need))


def _all_priorities(graph: LiveGraph) -> dict[str, float]:
    labels = graph.labels
    known: dict[str, float] = {}
    for node in sorted(filter(_counts, graph.nodes.values()), key=lambda node: -labels[node.id]):
        known[node.id] = _longest(node, known, graph.expected)
    return known


# Up to so many are searched for one by one, which costs less than to build the list anew.
_FEW: Final = 8


def splice(graph: LiveGraph, event: Spliced) -> None:
    """Apply a patch."""
    patch: CheckedPatch = event.checked
    look_again_after_splice(graph, patch.steps, patch.leaving, changes_output=patch.changes_output)
    changing = [graph.nodes[id_] for id_ in (*patch.steps, *patch.leaving) if id_ in graph.nodes]
    graph.frontier.withdraw([node for node in changing if node.state is State.READY])  # they may be ready once more
    won = list(_edges_won(graph, patch))
    lost = _take_off(graph, patch)
    new = _define(graph, patch)
    for old, substitute in patch.substitutes.items():
        _hand_over(graph, graph.nodes[old], graph.nodes[substitute])
    for id_ in patch.leaving:
        _take_out(graph, graph.nodes[id_], event)
    for need, id_ in won:
        graph.nodes[need].precede(graph.nodes[id_])
    graph.labels.update(patch.labels)
    graph.unsettled += len(new)
    if patch.changes_output:
        graph.output = patch.output
    for id_, why in event.guards.items():
        graph.nodes[id_].make_extra().guards = why
    _note(graph, event)
    set_priorities(graph, patch.steps, {*lost, *(need for need, _ in won)})
    for id_ in patch.steps:
        graph.reassess(graph.nodes[id_])


def _note(graph: LiveGraph, event: Spliced) -> None:
    """Keep the patch in the history of the plan."""
    patch: CheckedPatch = event.checked
    defined = {id_: checked.step for id_, checked in patch.steps.items() if graph.nodes[id_].parent is None}
    graph.revisions.append(
        Revision(
            number=event.revision,
            at=event.at,
            origin=event.origin,
            reason=event.reason,
            goal=graph.goal,
            edits=event.edits,
            consequence=event.consequence,
            defined=defined,
            output=patch.written_output,
        )
    )


def change_goal(graph: LiveGraph, event: GoalChanged) -> None:
    """Take a new goal, and let nothing start that has not started yet."""
    graph.goal = event.goal
    freeze(graph)
    last = graph.revisions[-1].output if graph.revisions else graph.plan.plan.output
    number = graph.revision + 1
    reason = "the goal was changed"
    graph.revisions.append(
        Revision(
            number,
            event.at,
            "host",
            reason,
            goal=event.goal,
            edits=(),
            consequence=Consequence(),
            defined={},
            output=last,
        )
    )


def _edges_won(graph: LiveGraph, patch: CheckedPatch) -> Iterator[tuple[str, str]]:
    """Each pair of a step and one that is to wait for it, and has not done so before."""
    for id_, checked in patch.steps.items():
        node = graph.nodes.get(id_)
        before = frozenset(node.plan.depends_on) if node is not None else frozenset()
        yield from ((need, id_) for need in checked.depends_on if need not in before)


def _take_off(graph: LiveGraph, patch: CheckedPatch) -> set[str]:
    """Take steps off the lists of those that they do not wait for any more; give the ids of these."""
    off: dict[str, list[Node]] = {}
    for id_ in (*patch.steps, *patch.leaving):
        node = graph.nodes.get(id_)
        if node is None or node.is_defined_by_parent:  # an element waits for nothing by itself
            continue
        still = frozenset(patch.steps[id_].depends_on) if id_ in patch.steps else frozenset()
        for need in node.plan.depends_on:
            if need not in still:
                off.setdefault(need, []).append(node)
    for need, nodes in off.items():
        _strike(graph.nodes[need], nodes)
    return set(off)


def _strike(need: Node, nodes: list[Node]) -> None:
    successors = need.successors
    if type(successors) is not list or len(nodes) > _FEW:
        off = set(nodes)
        need.successors = [node for node in successors if node not in off]
        return
    for node in nodes:
        with suppress(ValueError):  # a step that has left the plan has told its dependents off by itself
            successors.remove(node)


def _define(graph: LiveGraph, patch: CheckedPatch) -> list[Node]:
    """Give the steps of the patch their definitions; make those that are new."""
    new = []
    for id_, checked in patch.steps.items():
        node = graph.nodes.get(id_)
        if node is None:
            node = graph.nodes[id_] = Node(id_, checked, len(graph.nodes))
            node.state = State.WAITING
            new.append(node)
        else:
            node.plan = checked
            if node.extra is not None:  # a person has agreed to another call
                node.extra.approved, node.extra.is_passed = "", False
        if graph.caps_of is not None and node.parent is None:
            node.caps = graph.caps_of(checked)
    return new


def _hand_over(graph: LiveGraph, old: Node, new: Node) -> None:
    """Let a substitute inherit what its calls are known by, and its place in a for_each."""
    extra = new.make_extra()
    extra.root = old.root
    old.make_extra().substitute = new.id
    extra.generation, extra.frozen = old.generation, old.frozen_call
    if extra.frozen is None and any(part.attempts for part in old.children or (old,)):
        extra.generation += 1  # surely nothing has happened: what is called now is another call
    parent = old.parent
    if parent is None or parent.children is None:
        return
    new.parent, new.index, new.item = parent, old.index, old.item
    if parent.plan.step.max_parallel is not None:
        new.caps = (*new.caps, old.caps[-1])  # it counts with its siblings, and under the limits of its own tool
    parent.children[old.index] = new
    parent.missing += 1


def _take_out(graph: LiveGraph, node: Node, event: Spliced) -> None:
    """Take *node* out of the plan; what of it runs is told to stop by others, and settles when it has."""
    node.make_extra().is_gone = True
    node.successors = ()
    if node.state.is_settled:
        # An element that has failed and is dropped is left out; a doubt about its effect cannot be.
        node.is_tolerated = node.is_tolerated or (node.parent is not None and node.state is not State.UNKNOWN)
        return
    reason = f"revision {event.revision} of the plan does without it"
    for child in node.children or ():
        if not child.state.is_settled:
            _take_out(graph, child, event)
    if node.state is State.RUNNING and (node.children is None or node.missing):
        return
    if node.state is State.HELD and node.attempts and node.attempts[-1].outcome is None:
        return  # its tool waits for a person in the middle of a call
    # An idempotent call that may have gone through, and was about to be repeated, leaves a doubt behind.
    in_doubt = node.may_have_applied or any(child.state is State.UNKNOWN for child in node.children or ())
    node.state = State.UNKNOWN if in_doubt else State.SUPERSEDED
    node.is_tolerated = not in_doubt  # a for_each does not leave out an element in doubt
    node.ended = StepSettled(event.seq, event.at, node.id, node.state, reason)
    graph.settled(node)
