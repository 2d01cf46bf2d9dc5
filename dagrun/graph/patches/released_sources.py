"""Refuse patches that need released outputs, in a step or in the answer of the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from dagrun.checks.checked_plan import CheckedStep
from dagrun.checks.findings import WHOLE_PLAN, Findings
from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.graph.patches.edits import Edits
from dagrun.model.reference import Template
from dagrun.model.value import RELEASED


def check_sources(graph: LiveGraph, checked: CheckedStep, place: int, findings: Findings) -> None:
    """Refuse a step that reads a released output."""
    for id_ in sorted(checked.value_sources):
        node = graph.nodes.get(id_)
        if node is not None and node.value is RELEASED:
            findings.add("DR423", place, "", step=checked.step.id, dependency=id_)


def check_answer(
    graph: LiveGraph, edits: Edits, steps: Mapping[str, CheckedStep], output: Template | None, findings: Findings
) -> None:
    """Refuse a patch after which the run would answer with a released output.

    Args:
        graph: The graph without the patch.
        edits: The edits of the patch.
        steps: The steps that are added or changed, by id.
        output: The answer with the patch; `None` for the outputs of the sinks.
        findings: Collects the problems.
    """
    if not graph.plan.policy.release_outputs:
        return
    if output is not None:
        sources: Iterable[str] = sorted(output.sources)
    elif graph.output is not None:
        sources = [node.id for node in graph.planned()]
    else:
        sources = _left_by(graph, edits, steps)
    gone = [graph.nodes[id_] for id_ in sources if id_ in graph.nodes and graph.nodes[id_].value is RELEASED]
    if gone and output is None:
        needed = frozenset(need for checked in steps.values() for need in _waits(checked))
        gone = [node for node in gone if not _has_successor(graph, node, edits, steps, needed)]
    for node in gone:
        findings.add("DR424", WHOLE_PLAN, "output", step=node.id)


def _left_by(graph: LiveGraph, edits: Edits, steps: Collection[str]) -> Iterable[str]:
    """Return the ids of the old dependencies of all steps that leave or change."""
    nodes = (graph.nodes.get(id_) for id_ in (*edits.leaving, *steps))
    return dict.fromkeys(need for node in nodes if node is not None for need in node.plan.depends_on)


def _waits(checked: CheckedStep) -> Iterator[str]:
    """Yield the ids that a step waits for, without the barrier of a wave."""
    return (need for need in checked.depends_on if need not in checked.gates)


def _has_successor(
    graph: LiveGraph, node: Node, edits: Edits, steps: Mapping[str, CheckedStep], needed: Collection[str]
) -> bool:
    """Whether a step will wait for *node* with the patch applied: then the run does not answer with *node*."""
    if node.id in needed or node.is_gone or node.parent is not None:
        return True
    stay = (after for after in node.successors if after.id not in steps and not edits.is_leaving(after))
    return any(not after.is_gone and node.id not in after.plan.gates for after in stay)
