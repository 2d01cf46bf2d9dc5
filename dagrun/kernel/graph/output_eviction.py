"""Release outputs that no step needs, during the run.

Outputs with objects in memory are always released, others if the policy says so.

Which outputs are released follows from the events alone, so a graph that is folded from a record shows the same. The
rules:

1. A step is needed as long as a step that reads it has not settled, or has failed and waits for the planner's answer.
2. A step is needed if the run answers with it. Where the sinks are the answer, a step that only waits for it counts as
   one that reads it: were that one dropped, the run would answer with the step that it has waited for.
3. An element of a for_each is needed until all of them are joined, and while a step that follows it by element is open.
4. While the planner writes, is asked, or wants to be asked again, every step is needed: its next patch may name any.
5. A graph that is being folded only marks what is released, and has all values still: the record is read back, another
   run may start from it, and steps that are opened again need their inputs. Once the run goes on, what is
   marked is dropped (`drop_values`), and from then on everything at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.graph.live_graph import OF_ANOTHER, LiveGraph, ReleasedOutputs
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.held_objects import HeldObjects
from dagrun.kernel.model.outcome import SETTLED
from dagrun.kernel.model.value import RELEASED, RELEASED_OBJECT, Stored, Unavailable

# Values that are stored as text. Numbers and truth values take no more room than the marker in their place.
_LARGE: Final = frozenset((bytes, str))
_OBJECTS: Final = frozenset((HeldObjects,))


# Called by changes ----------------------------------------------------------------------------------------------------


def release_outputs(graph: LiveGraph, releasing: ReleasedOutputs) -> None:
    """Release the outputs that no step needs after the last event."""
    if not releasing.changed or may_be_named(graph):
        return
    changed, releasing.changed = releasing.changed, []
    for node in changed:
        _look_around(graph, releasing, node)


def evict_after_splice(
    graph: LiveGraph, steps: dict[str, CheckedStep], leaving: Collection[str], *, changes_output: bool
) -> None:
    """Note the steps that a patch, which is not applied yet, may leave without readers or out of the answer.

    Args:
        graph: The graph without the patch.
        steps: The steps that are added or changed, by id.
        leaving: The ids of the steps that leave the plan.
        changes_output: Whether the answer of the run changes.
    """
    releasing = graph.releasing
    if releasing is None:
        return
    before = [graph.nodes[id_].plan for id_ in (*steps, *leaving) if id_ in graph.nodes]
    for id_ in dict.fromkeys(need for plan in (*before, *steps.values()) for need in plan.depends_on):
        if id_ in graph.nodes:
            releasing.first_readers.pop(id_, None)
            releasing.changed.append(graph.nodes[id_])
    if changes_output:
        releasing.first_readers.clear()
        ids = _answering(graph, releasing)
        releasing.changed += graph.sinks() if ids is None else [graph.nodes[id_] for id_ in ids if id_ in graph.nodes]


def keep_for_reopened(releasing: ReleasedOutputs, nodes: Collection[Node]) -> None:
    """Unmark the outputs that *nodes*, which are opened again, have read; a folded graph still has their values."""
    releasing.first_readers.clear()
    for node in nodes:
        ids = (node.id, *node.plan.value_sources)
        releasing.marked.difference_update(ids, (child.id for child in node.children or ()))


# The rules ------------------------------------------------------------------------------------------------------------


def may_be_named(graph: LiveGraph) -> bool:
    """Whether a planner is working, whose next patch may name any step (rule 4)."""
    return bool(graph.triggers) or graph.is_drafting or graph.is_frozen or graph.wants_more


def _look_around(graph: LiveGraph, releasing: ReleasedOutputs, node: Node) -> None:
    """Release the outputs that only *node* still needed, and its own if no step needs it."""
    if node.state in SETTLED and not node.is_defined_by_parent:  # the for_each reads for all its elements
        for id_ in node.plan.value_sources if graph.output is not None else node.plan.depends_on:
            _look_at(graph, releasing, graph.nodes[id_])
    _look_at(graph, releasing, node)
    for child in node.children or ():
        _look_at(graph, releasing, child)
    if node.item is OF_ANOTHER:
        from dagrun.kernel.graph.mapped_steps import source_of

        if (source := source_of(node)) is not None:
            _look_at(graph, releasing, source)


def _look_at(graph: LiveGraph, releasing: ReleasedOutputs, node: Node) -> None:
    if node.state not in SETTLED or node.id in graph.kept or _is_needed(graph, releasing, node):
        return
    releasing.first_readers.pop(node.id, None)
    if releasing.drops:
        _drop(node, only_objects=releasing.only_objects)
    else:
        releasing.marked.add(node.id)


def _is_needed(graph: LiveGraph, releasing: ReleasedOutputs, node: Node) -> bool:
    if node.parent is not None:
        if node.parent.state not in SETTLED:
            return True
        extra = node.parent.extra
        if extra is None or not extra.followers:
            return False
        from dagrun.kernel.graph.mapped_steps import is_read

        return is_read(node)
    if _is_read(graph, releasing, node):
        return True
    if node.is_gone:
        return False
    named = _answering(graph, releasing)
    return _is_sink(graph, node) if named is None else node.id in named


def _is_read(graph: LiveGraph, releasing: ReleasedOutputs, node: Node) -> bool:
    """Whether an open step reads *node* (rules 1 and 2); a reader that was found to be over is not looked at again."""
    id_, successors, order_counts = node.id, node.successors, graph.output is None
    for place in range(releasing.first_readers.get(id_, 0), len(successors)):
        after = successors[place]
        is_reader = id_ not in after.plan.gates if order_counts else id_ in after.plan.value_sources
        if is_reader and (after.state not in SETTLED or after.id in graph.kept):
            releasing.first_readers[id_] = place
            return True
    return False


def _answering(graph: LiveGraph, releasing: ReleasedOutputs) -> frozenset[str] | None:
    """Return the ids of the steps that the output of the plan names; `None` if the sinks are the answer."""
    output = graph.output
    if output is None:
        return None
    if releasing.named[0] is not output:
        releasing.named = (output, output.sources)
    return releasing.named[1]


def _is_sink(graph: LiveGraph, node: Node) -> bool:
    return all(node.id in after.plan.gates for after in graph.after(node))


def _drop(node: Node, *, only_objects: bool) -> None:
    """Drop the output of *node*. Events and outcomes are replaced, not changed: the journal may still write them."""
    _drop_values(node, _OBJECTS, RELEASED_OBJECT)
    if not only_objects:
        _drop_values(node, _LARGE, RELEASED)


def _drop_values(node: Node, kinds: Collection[type], marker: Unavailable) -> None:
    if type(node.value) in kinds:
        node.value = marker
    for attempt in node.attempts:
        if attempt.outcome is not None and type(attempt.outcome.value) in kinds:
            attempt.outcome = replace(attempt.outcome, value=marker)
    if node.ended is not None and type(node.ended.value) in kinds:
        node.ended = replace(node.ended, value=marker)
    if type(node.item) in kinds:
        node.item = marker


# Folding and resuming -------------------------------------------------------------------------------------------------


def keep_values(graph: LiveGraph) -> None:
    """Mark released values and do not drop them: a record is about to be folded (rule 5)."""
    if graph.releasing is not None:
        graph.releasing.drops = False


def drop_values(graph: LiveGraph) -> None:
    """Drop the marked values, and from now on every released one at once: the run has been resumed (rule 5)."""
    releasing = graph.releasing
    if releasing is None:
        return
    releasing.drops = True
    for id_ in releasing.marked:
        node = graph.nodes[id_]
        # With another policy than before, the run may need more than its record says.
        if not _is_needed(graph, releasing, node):
            _drop(node, only_objects=releasing.only_objects)
    releasing.marked.clear()


def as_released(graph: LiveGraph) -> Callable[[Node, Stored], Stored]:
    """Return a function that shows a value of a node as the run has it, whether it was dropped or is only marked."""
    releasing = graph.releasing
    marked = () if releasing is None or releasing.only_objects else releasing.marked
    if not marked:
        return lambda node, value: value
    return lambda node, value: RELEASED if node.id in marked and type(value) in _LARGE else value
