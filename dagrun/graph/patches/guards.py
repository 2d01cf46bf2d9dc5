"""Guards: what people look at before an effect, and what of that a planner's patch would take away.

A patch can make the rules of a run stricter, never looser. It is not refused for taking a guard away: a repair often
has to replace a step that stands before a payment. The loss is noted with the call that it concerns, in the event of
the splice, and whoever starts that call asks a person first (`dagrun.runtime.steps.admission`).

1. Only calls of tools that change the world are guarded, and only against patches of the planner.
2. A call is guarded by people if it needs approval, if its plan is not sure of it, if it pauses before it starts, or if
   a step before it pauses. Then the other steps before it are its checks, and so is its condition.
3. A step that stays is compared with itself, as it was. A new step is compared with every step that calls the same
   tool: else a payment could be dropped, and added under another name.
4. A check that has succeeded has done its work. So has a pause that a person has ended, for the steps of then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from dagrun.checks.checked_plan import CheckedStep
from dagrun.errors import shorten
from dagrun.graph.live_graph import PAUSE, LiveGraph
from dagrun.graph.node import Node
from dagrun.model.outcome import State
from dagrun.model.patch import rename_in_step


@dataclass(slots=True)
class PlanAfter:
    """The plan as it would be after a patch.

    Attributes:
        graph: The plan as it is.
        steps: The steps that come or change, by id.
        substitutes: Old id to new id.
        leaving: The ids that leave the plan.
        elements: For each substitute of an element of a for_each: that element.
    """

    graph: LiveGraph
    steps: Mapping[str, CheckedStep]
    substitutes: Mapping[str, str]
    leaving: Collection[str]
    elements: Mapping[str, Node]

    def needs(self, id_: str) -> tuple[str, ...]:
        """Return what a step will wait for; an element waits for what its for_each waits for."""
        element = self.elements.get(id_) or self.graph.nodes.get(id_)
        own = self.steps[id_].depends_on if id_ in self.steps else ()
        if element is not None and element.parent is not None:
            return (*own, *self.needs(element.parent.id))
        return own if id_ in self.steps else self.graph.nodes[id_].plan.depends_on

    def before(self, id_: str) -> set[str]:
        """Return all that will stand before a step."""
        return _closure(self.needs(id_), self.needs)

    def calls(self) -> Iterator[tuple[str, CheckedStep]]:
        """Yield the steps with an effect that have not started, and of which the patch changes anything before them."""
        touched = {*self.steps, *self.leaving}
        for id_, checked in self.steps.items():
            if _has_effect(checked):
                yield id_, checked
        for node in self.graph.planned():
            if node.id in touched or node.has_started or node.state.is_settled or not _has_effect(node.plan):
                continue
            if not touched.isdisjoint(self.before(node.id)) or not touched.isdisjoint(before(self.graph, node)):
                yield node.id, node.plan


def guards_lost(after: PlanAfter) -> dict[str, str]:
    """Find the calls whose guards a patch of the planner takes away.

    Args:
        after: The plan as the patch would leave it.

    Returns:
        For each such step, in a sentence, what a person must know before it is called.
    """
    graph = after.graph
    if not any(_may_guard(node) for node in graph.nodes.values()):
        return {}
    found = {}
    for id_, checked in after.calls():
        known = graph.nodes.get(id_)
        losses = list(
            dict.fromkeys(loss for old in _models(graph, known, checked) for loss in _lost(after, id_, checked, old))
        )
        if losses:
            found[id_] = shorten(f"a change of the plan by its planner: {'; '.join(losses)}", 500)
    return found


def before(graph: LiveGraph, node: Node) -> set[str]:
    """Return the ids of all steps that stand before *node*."""

    def needs(id_: str) -> tuple[str, ...]:
        found = graph.nodes[id_]
        return found.plan.depends_on if found.parent is None else (*found.plan.depends_on, *needs(found.parent.id))

    return _closure(needs(node.id), needs)


def _closure(first: Iterable[str], needs: Callable[[str], Iterable[str]]) -> set[str]:
    found: set[str] = set()
    left = list(first)
    while left:
        id_ = left.pop()
        if id_ not in found:
            found.add(id_)
            left += needs(id_)
    return found


def _has_effect(checked: CheckedStep) -> bool:
    fallback = checked.fallback
    return not checked.tool.effect.is_free or (fallback is not None and not fallback.effect.is_free)


def _may_guard(node: Node) -> bool:
    plan = node.plan
    return bool(plan.asks or plan.fallback_asks or plan.step.pause) or (
        node.extra is not None and bool(node.extra.guards)
    )


def _models(graph: LiveGraph, known: Node | None, checked: CheckedStep) -> Iterable[Node]:
    """Return the steps that a call is compared with: see rule 3."""
    if known is not None:
        return (known,)
    tools = {tool.name for tool in (checked.tool, checked.fallback) if tool is not None and not tool.effect.is_free}
    return [node for node in graph.nodes.values() if node.parent is None and _calls(node.plan, tools)]


def _calls(plan: CheckedStep, tools: Collection[str]) -> bool:
    return plan.tool.name in tools or (plan.fallback is not None and plan.fallback.name in tools)


def _lost(after: PlanAfter, id_: str, checked: CheckedStep, old: Node) -> Iterator[str]:
    """Yield what stood before *old*, and does not stand before the step *id_*."""
    graph, least = after.graph, after.graph.plan.policy.min_confidence
    earlier = before(graph, old)
    gates = [graph.nodes[need] for need in earlier if graph.nodes[need].plan.step.pause is not None]
    noted = old.extra.guards if old.extra is not None else ""
    step = old.plan.step
    if not (old.plan.asks or old.plan.fallback_asks or step.pause == "before" or gates or noted):
        return
    if noted:
        yield noted
    if step.pause == "before" and checked.step.pause != "before":
        yield f"{old.id} was to pause before this tool is called"
    if _is_unsure(step.confidence, least) and not _is_unsure(checked.step.confidence, least):
        yield f"the confidence in {old.id} was {step.confidence:g}"
    later = after.before(id_)
    for gate in gates:
        # A substitute may pause as well, and yet never: its condition may not hold.
        is_answered = id_ not in graph.nodes and gate.state.is_settled  # for the calls of then, and perhaps with a no
        is_bypassed = (gate.id not in later or _is_other(after, gate.id)) and not _has_passed(graph, gate)
        if is_answered or is_bypassed:
            yield f"{old.id} was to wait until a person had looked at {gate.id}"
    for need in sorted(earlier.difference(gate.id for gate in gates)):
        if graph.nodes[need].state is not State.SUCCEEDED and (need not in later or _is_other(after, need)):
            yield f"{need} was to end before {old.id}"
    if step.when is not None and checked.step.when != rename_in_step(step, after.substitutes).when:
        yield f"{old.id} had another condition"


def _is_unsure(confidence: float | None, least: float) -> bool:
    return confidence is not None and confidence < least


def _is_other(after: PlanAfter, id_: str) -> bool:
    """Whether a step that stays is defined otherwise, apart from the names of what it uses."""
    old = after.graph.nodes[id_].plan.step
    return id_ in after.steps and after.steps[id_].step != rename_in_step(old, after.substitutes)


def _has_passed(graph: LiveGraph, gate: Node) -> bool:
    """Whether a person has ended the pause of a step."""
    if gate.plan.step.pause == "before":
        return gate.extra is not None and gate.extra.is_passed
    return gate.state is State.SUCCEEDED and PAUSE not in graph.kept.get(gate.id, ())
