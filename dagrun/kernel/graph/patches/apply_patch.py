"""Apply a checked patch to the live graph: one synchronous change, in time proportional to the steps it touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.graph.live_graph import LiveGraph, freeze, mark_approved
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.output_eviction import evict_after_splice
from dagrun.kernel.graph.patches.edits import AnyEdit
from dagrun.kernel.graph.plan_history import Revision
from dagrun.kernel.graph.step_order import Expected
from dagrun.kernel.model.event import GoalChanged, Spliced, StepSettled
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import Consequence
from dagrun.kernel.model.reference import Template

if TYPE_CHECKING:
    from dagrun.kernel.graph.patches.flow_after import FlowChange
    from dagrun.kernel.graph.patches.plan_freeze import FreezeChange


@dataclass(frozen=True, slots=True)
class CheckedPatch:
    """A patch that can be applied to the graph that it was checked against, as long as that does not change.

    Attributes:
        edits: The edits that count, without those to steps that have succeeded since their author looked.
        steps: The steps that are added or changed, checked, by id.
        substitutes: The ids of replaced steps, and of their substitutes.
        leaving: Every id that leaves the plan.
        labels: The order labels that are new or different.
        changes_output: Whether the answer of the run changes.
        output: The new answer as a template.
        written_output: The new answer as it is written.
        consequence: The effect of the patch, for people and records.
        guards: For a patch of the planner: the calls whose guards it takes away, each with a sentence; see `guards`.
        guarded_tools: For a patch of the planner: by tool, how people look at calls that it takes out or changes.
        effects: The calls with an effect that it adds or changes, or before which it changes anything; found only
            where the policy wants people to agree to such a patch.
        flow: Its changes of the labels of the run; `None` if there is no trust boundary.
        freeze: Its changes of the frozen plan; `None` if the policy freezes none, or there is none yet.
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
    guarded_tools: Mapping[str, str] = field(default_factory=dict)
    effects: tuple[str, ...] = ()
    flow: FlowChange | None = None
    freeze: FreezeChange | None = None


def set_priorities(graph: LiveGraph, steps: Mapping[str, CheckedStep], others: Iterable[str]) -> None:
    """Update the longest remaining paths of the steps that a splice has touched, and of the steps before them.

    Without a limit on running steps there are no priorities, and nothing is done.

    Args:
        graph: The graph, with the splice applied.
        steps: The steps that were added or changed.
        others: The steps that have lost or won a dependent.
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
        # An element counts as its for_each.
        family = after if after.parent is None else after.parent
        path = known.get(family.id, 0.0)
        if path > best and not family.is_gone:
            best = path
    return best + expected.seconds(node.plan)


def _raise(graph: LiveGraph, known: dict[str, float], touched: Collection[str]) -> Iterator[Node]:
    """Set the priorities of *touched* and of the steps before them; yield the ready steps whose place has changed."""
    labels, nodes, expected = graph.labels, graph.nodes, graph.expected
    seen = set(touched)
    heap = [(-labels[id_], id_) for id_ in seen]
    heapify(heap)
    while heap:  # from the end of the plan to its beginning: then each step is looked at once
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


# Up to this many steps are removed one by one, which costs less than building the list again.
_FEW: Final = 8


def splice(graph: LiveGraph, event: Spliced) -> None:
    """A patch is applied: all of it, at this instant."""
    patch: CheckedPatch = event.checked
    if graph.releasing is not None:
        evict_after_splice(graph, patch.steps, patch.leaving, changes_output=patch.changes_output)
    changing = [graph.nodes[id_] for id_ in (*patch.steps, *patch.leaving) if id_ in graph.nodes]
    graph.frontier.withdraw([node for node in changing if node.state is State.READY])  # `reassess` may push them again
    won = list(_edges_won(graph, patch))
    lost = _remove_edges(graph, patch)
    new = _define(graph, patch)
    for old, substitute in patch.substitutes.items():
        _hand_over(graph.nodes[old], graph.nodes[substitute])
    for id_ in patch.leaving:
        _take_out(graph, graph.nodes[id_], event)
    for need, id_ in won:
        graph.nodes[need].precede(graph.nodes[id_])
    _follow_anew(graph, {*lost, *(need for need, _ in won)}, patch.leaving)
    graph.labels.update(patch.labels)
    graph.unsettled += len(new)
    if patch.changes_output:
        graph.output = patch.output
    _note_questions(graph, event)
    _add_revision(graph, event)
    set_priorities(graph, patch.steps, {*lost, *(need for need, _ in won)})
    for id_ in patch.steps:
        graph.reassess(graph.nodes[id_])


def _note_questions(graph: LiveGraph, event: Spliced) -> None:
    """Note the questions that the patch requires, and the approvals that it has received."""
    patch: CheckedPatch = event.checked
    for id_, why in event.guards.items():
        graph.nodes[id_].make_extra().guards = why
    if event.origin == "planner" and graph.has_plan and not graph.is_drafting:
        mark_approved(graph, [graph.nodes[id_] for id_ in patch.steps])
    if patch.guarded_tools:
        graph.guarded_tools = {**patch.guarded_tools, **graph.guarded_tools}
    if patch.flow is not None:
        patch.flow.apply(graph)
    if patch.freeze is not None:
        patch.freeze.apply(graph)


def _follow_anew(graph: LiveGraph, needs: Iterable[str], leaving: Iterable[str]) -> None:
    """Note which steps follow a for_each by element now that others wait for it, or that its elements have changed."""
    fans = [node for id_ in needs if (node := graph.nodes[id_]).children is not None and not node.is_gone]
    elements = [node for id_ in leaving if (node := graph.nodes[id_]).parent is not None and not node.parent.is_gone]
    if not fans and not elements:
        return
    from dagrun.kernel.graph.mapped_steps import element_changed, find_followers

    for fan in fans:
        find_followers(fan)
    for node in elements:
        if node.parent is not None:
            element_changed(graph, node.parent, node.index)


def _add_revision(graph: LiveGraph, event: Spliced) -> None:
    """Add the patch to the history of the plan."""
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
    """The goal has changed: let no step start that was never called."""
    graph.goal = event.goal
    freeze(graph)
    last = graph.written_output
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
    """Yield each new edge: a step, and one that will wait for it."""
    for id_, checked in patch.steps.items():
        node = graph.nodes.get(id_)
        before = frozenset(node.plan.depends_on) if node is not None else frozenset()
        yield from ((need, id_) for need in checked.depends_on if need not in before)


def _remove_edges(graph: LiveGraph, patch: CheckedPatch) -> set[str]:
    """Remove steps from the successors of the steps that they no longer wait for; return the ids of the latter."""
    removed: dict[str, list[Node]] = {}
    for id_ in (*patch.steps, *patch.leaving):
        node = graph.nodes.get(id_)
        if node is None or node.is_defined_by_parent:  # an element depends on nothing by itself
            continue
        still = frozenset(patch.steps[id_].depends_on) if id_ in patch.steps else frozenset()
        for need in node.plan.depends_on:
            if need not in still:
                removed.setdefault(need, []).append(node)
    for need, nodes in removed.items():
        _remove_successors(graph.nodes[need], nodes)
    return set(removed)


def _remove_successors(need: Node, nodes: list[Node]) -> None:
    successors = need.successors
    if type(successors) is not list or len(nodes) > _FEW:
        removed = set(nodes)
        need.successors = [node for node in successors if node not in removed]
        return
    for node in nodes:
        with suppress(ValueError):  # a step that has left the plan has no successors any more
            successors.remove(node)


def _define(graph: LiveGraph, patch: CheckedPatch) -> list[Node]:
    """Set the definitions of the steps of the patch; make and return the new steps."""
    new = []
    for id_, checked in patch.steps.items():
        node = graph.nodes.get(id_)
        if node is None:
            node = graph.nodes[id_] = Node(id_, checked, len(graph.nodes))
            node.state = State.WAITING
            new.append(node)
        else:
            node.plan = checked
            if node.extra is not None:  # a person has agreed to another call than this one
                node.extra.approved, node.extra.is_passed, node.extra.is_agreed = "", False, False
        if graph.caps_of is not None and node.parent is None:
            node.caps = graph.caps_of(checked)
    return new


def _hand_over(old: Node, new: Node) -> None:
    """Pass the idempotency key of *old*, and its place in a for_each, to its substitute *new*."""
    extra = new.make_extra()
    extra.root = old.root
    old.make_extra().substitute = new.id
    extra.generation, extra.frozen = old.generation, old.frozen_call
    if extra.frozen is None and any(part.attempts for part in old.children or (old,)):
        extra.generation += 1  # the calls so far had no effect: the next is another call
    parent = old.parent
    if parent is None or parent.children is None:
        return
    new.parent, new.index, new.item = parent, old.index, old.item
    if parent.plan.step.max_parallel is not None:
        new.caps = (*new.caps, old.caps[-1])  # the cap of the for_each, beside the caps of its own tool
    parent.children[old.index] = new
    parent.missing += 1


def _take_out(graph: LiveGraph, node: Node, event: Spliced) -> None:
    """Remove *node* from the plan. If it runs, the runtime stops it, and it settles when its call has ended."""
    extra = node.make_extra()
    extra.is_gone, extra.followers = True, ()
    node.successors = ()
    if node.state.is_settled:
        # The for_each leaves out an element that has failed and is dropped, but not one in doubt.
        node.is_tolerated = node.is_tolerated or (node.parent is not None and node.state is not State.UNKNOWN)
        return
    reason = f"revision {event.revision} of the plan does without it"
    for child in node.children or ():
        if not child.state.is_settled:
            _take_out(graph, child, event)
    if node.state is State.RUNNING and (node.children is None or node.missing):
        return
    if node.is_in_flight:
        return  # its tool waits for a person in the middle of a call, or for a slot with the answer
    # An idempotent call that may have taken effect, and was about to be repeated, leaves a doubt.
    in_doubt = node.may_have_applied or any(child.state is State.UNKNOWN for child in node.children or ())
    node.state = State.UNKNOWN if in_doubt else State.SUPERSEDED
    node.is_tolerated = not in_doubt  # a for_each cannot leave out an element in doubt
    node.ended = StepSettled(event.seq, event.at, node.id, node.state, reason)
    graph.settled(node)
