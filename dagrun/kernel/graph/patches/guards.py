"""Guards: checks by people before an effect, and the ones that a planner's patch would remove.

A patch can make the rules of a run stricter, never looser. It is not refused for taking a guard away: a repair often
has to replace a step that stands before a payment. The loss is noted with the call that it concerns, in the event of
the splice, and a person is asked before that call starts (`dagrun.kernel.runtime.steps.admission`).

1. Only calls of tools that change the world are guarded, and only against patches of the planner.
2. A call is guarded by people if it needs approval, if its plan is not sure of it, if it pauses before it starts, or if
   a step before it pauses; or if a person has agreed to the plan or patch that it came with, and so to it as it was.
   Then the other steps before it are its checks, and so is its condition.
3. A step that stays is compared with itself, as it was. A new step is compared with every step that calls the same
   tool, through an agent too: else a payment could be dropped, and added under another name.
4. A check that has succeeded has done its work. So has a pause that a person has ended, for the plan of that time.
5. A retry begins with the plan as the planner has left it. So it takes over what was noted, and how people looked at
   calls that are no longer in that plan.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeGuard

from dagrun.errors import shorten
from dagrun.kernel.checks.checked_plan import CheckedStep, callable_tools, effects_of
from dagrun.kernel.graph.live_graph import PAUSE, LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import rename_in_step
from dagrun.kernel.model.plan import Step


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
        """Return the steps that a step will wait for; an element also waits for the dependencies of its for_each."""
        element = self.elements.get(id_) or self.graph.nodes.get(id_)
        own = self.steps[id_].depends_on if id_ in self.steps else ()
        if element is not None and element.parent is not None:
            return (*own, *self.needs(element.parent.id))
        return own if id_ in self.steps else self.graph.nodes[id_].plan.depends_on

    def before(self, id_: str) -> set[str]:
        """Return all that will stand before a step."""
        return _closure(self.needs(id_), self.needs)

    def calls(self) -> Iterator[tuple[str, CheckedStep]]:
        """Yield the steps with an effect that have not started, and have a changed step before them."""
        touched = {*self.steps, *self.leaving}
        for id_, checked in self.steps.items():
            if _has_effect(checked):
                yield id_, checked
        for node in self.graph.planned():
            if node.id in touched or node.has_started or node.state.is_settled or not _has_effect(node.plan):
                continue
            if not touched.isdisjoint(self.before(node.id)) or not touched.isdisjoint(before(self.graph, node)):
                yield node.id, node.plan


def removed_approvals(after: PlanAfter) -> dict[str, str]:
    """Find the calls whose guards a patch of the planner takes away.

    Args:
        after: The plan as the patch would leave it.

    Returns:
        For each such step, in a sentence, what a person must know before it is called.
    """
    graph = after.graph
    if not graph.guarded_tools and not any(_may_guard(node) for node in graph.nodes.values()):
        return {}
    found = {}
    for id_, checked in after.calls():
        known = graph.nodes.get(id_)
        losses = [loss for old in _models(graph, known, checked) for loss in _lost(after, id_, checked, old)]
        if known is None:
            losses += [graph.guarded_tools[name] for name in sorted(effects_of(checked) & graph.guarded_tools.keys())]
        if losses:
            found[id_] = _joined("a change of the plan by its planner", losses)
    return found


def missing_approvals(after: PlanAfter) -> dict[str, str]:
    """Find how people look at calls that a patch takes out or changes: later calls of these tools are guarded alike.

    The call itself may need nobody any more, if a person has ended the pause; another call of the same tool does.

    Args:
        after: The plan as the patch would leave it.

    Returns:
        A sentence for each tool.
    """
    graph, found = after.graph, dict[str, list[str]]()
    if not any(_may_guard(node) for node in graph.nodes.values()):
        return {}
    calls = [(id_, graph.nodes[id_].plan) for id_ in after.leaving if _has_effect(graph.nodes[id_].plan)]
    for id_, checked in (*calls, *after.calls()):
        old = graph.nodes.get(id_)
        if old is None or old.parent is not None:
            continue
        stays = (need for need in after.before(id_) if need in graph.nodes and not _is_other(after, need))
        still = [] if id_ in after.leaving else list(_guarding(graph, checked.step, stays))
        losses = [loss for loss in _guarding(graph, old.plan.step, before(graph, old)) if loss not in still]
        if id_ in after.leaving:
            losses += _marks(old)
        for name in effects_of(old.plan) if losses else ():
            found.setdefault(name, []).extend(losses)
    return {name: _joined("an earlier change of the plan by its planner", losses) for name, losses in found.items()}


def guards_to_keep(graph: LiveGraph) -> dict[str, str]:
    """Find the approvals that a retry must ask for, because it begins with the last plan of the planner.

    Returns:
        By step, the sentence that was noted with its call; or, where the run ended before it had an agreed plan, the
        reason of that.
    """
    found = {}
    for node in graph.planned():
        if node.extra is not None and node.extra.guards:
            found[node.id] = node.extra.guards
        elif not graph.has_plan and _has_effect(node.plan):
            found[node.id] = shorten(f"the plan of its planner was not agreed to: {graph.draft_end[1]}", 500)
    return found


def _joined(what: str, losses: Iterable[str]) -> str:
    return shorten(f"{what}: {'; '.join(dict.fromkeys(losses))}", 500)


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
    return bool(effects_of(checked))


def _may_guard(node: Node) -> bool:
    plan = node.plan
    extra = node.extra
    return plan.asks_by_rule or bool(plan.step.pause) or (extra is not None and (extra.is_agreed or bool(extra.guards)))


def _models(graph: LiveGraph, known: Node | None, checked: CheckedStep) -> Iterable[Node]:
    """Return the steps that a call is compared with: see rule 3."""
    if known is not None:
        return (known,)
    tools = effects_of(checked)
    return [
        node
        for node in graph.nodes.values()
        if node.parent is None and any(tool.name in tools for tool in callable_tools(node.plan))
    ]


def _lost(after: PlanAfter, id_: str, checked: CheckedStep, old: Node) -> Iterator[str]:
    """Yield the guards of *old* that are missing before the step *id_*."""
    graph, least = after.graph, after.graph.plan.policy.min_confidence
    earlier = before(graph, old)
    gates = _gates(graph, earlier)
    step, marks = old.plan.step, _marks(old)
    if not (old.plan.asks_by_rule or step.pause == "before" or gates or marks):
        return
    is_as_it_was = id_ in graph.nodes and not _is_other(after, id_)
    yield from (mark for mark in marks if not (is_as_it_was and mark == _AGREED.format(old.id)))
    if step.pause == "before" and checked.step.pause != "before":
        yield _PAUSED.format(old.id)
    if _is_unsure(step.confidence, least) and not _is_unsure(checked.step.confidence, least):
        yield _UNSURE.format(old.id, step.confidence)
    later = after.before(id_)
    for gate in gates:
        # A substitute may pause as well, and yet never: its condition may not hold.
        is_answered = id_ not in graph.nodes and gate.state.is_settled  # for the calls of that time, perhaps with a no
        is_bypassed = (gate.id not in later or _is_other(after, gate.id)) and not _has_passed(graph, gate)
        if is_answered or is_bypassed:
            yield _WAITED.format(old.id, gate.id)
    for need in sorted(earlier.difference(gate.id for gate in gates)):
        if graph.nodes[need].state is not State.SUCCEEDED and (need not in later or _is_other(after, need)):
            yield f"{need} was to end before {old.id}"
    if step.when is not None and checked.step.when != rename_in_step(step, after.substitutes).when:
        yield f"{old.id} had another condition"


def _guarding(graph: LiveGraph, step: Step, earlier: Iterable[str]) -> Iterator[str]:
    """Yield how people look at a call: at itself, and at the steps that stand *earlier*."""
    if step.pause == "before":
        yield _PAUSED.format(step.id)
    if _is_unsure(step.confidence, graph.plan.policy.min_confidence):
        yield _UNSURE.format(step.id, step.confidence)
    for gate in _gates(graph, earlier):
        yield _WAITED.format(step.id, gate.id)


def _marks(node: Node) -> list[str]:
    """Return the guards noted on a step."""
    if node.extra is None:
        return []
    agreed = [_AGREED.format(node.id)] if node.extra.is_agreed else []
    return [*([node.extra.guards] if node.extra.guards else []), *agreed]


_AGREED: Final = "a person has agreed to {} as it was"
_PAUSED: Final = "{} was to pause before this tool is called"
_UNSURE: Final = "the confidence in {} was {:g}"
_WAITED: Final = "{} was to wait until a person had looked at {}"


def _gates(graph: LiveGraph, ids: Iterable[str]) -> list[Node]:
    return [graph.nodes[id_] for id_ in ids if graph.nodes[id_].plan.step.pause is not None]


def _is_unsure(confidence: float | None, least: float) -> TypeGuard[float]:
    return confidence is not None and confidence < least


def _is_other(after: PlanAfter, id_: str) -> bool:
    """Whether the definition of a step that stays has changed, except for renamed references."""
    old = after.graph.nodes[id_].plan.step
    return id_ in after.steps and after.steps[id_].step != rename_in_step(old, after.substitutes)


def _has_passed(graph: LiveGraph, gate: Node) -> bool:
    """Whether a person has ended the pause of a step."""
    if gate.plan.step.pause == "before":
        return gate.extra is not None and gate.extra.is_passed
    return gate.state is State.SUCCEEDED and PAUSE not in graph.kept.get(gate.id, ())
