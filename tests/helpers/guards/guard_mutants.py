"""A gate with one plausible hole each: the proofs of the guards must find every one of them.

Each name says what is wrong. What stands in for a part keeps all else of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun import Event, Policy, Step
from dagrun.events import Spliced
from dagrun.kernel.checks import check_context, check_step, checked_plan
from dagrun.kernel.checks.check_context import CheckContext, ToolFacts
from dagrun.kernel.checks.checked_plan import Ask, CheckedStep
from dagrun.kernel.decide import questions, replanning
from dagrun.kernel.graph import fold, live_graph
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches import apply_patch, edits, guards
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.kernel.model.contracts.received import ReceivedArguments
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.runtime.planning import first_plan
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.steps.admission import Admission
from dagrun.model_tools.agent_calls import AgentCalls, CheckedCall
from splice_mutants import nothing

# As they are; while a mutant is in place, its name leads to the mutant.
_asks_of, _facts = checked_plan.asks_of, check_context._facts
_define, _fold = apply_patch._define, fold._fold
_make_frontier, _why_agree = live_graph.make_frontier, replanning.why_agree
_reasons_before_call, _reasons_to_ask = questions.reasons_before_call, questions.reasons_to_ask

# What a patch takes away ----------------------------------------------------------------------------------------------


def no_loss(after: guards.PlanAfter) -> dict[str, str]:
    """Nobody looks at what a patch takes away."""
    return {}


def only_itself(graph: LiveGraph, known: Node | None, checked: CheckedStep) -> Iterable[Node]:
    """A new step is compared with nothing: what is dropped can be added."""
    return () if known is None else (known,)


def nothing_before(graph: LiveGraph, node: Node) -> set[str]:
    """What stood before a call is not looked at, only the call itself."""
    return set()


def never_unsure(confidence: float | None, least: float) -> bool:
    """A doubt may be talked away."""
    return False


def always_passed(graph: LiveGraph, gate: Node) -> bool:
    """A pause that somebody has been asked about is over, whatever they said."""
    return True


def own_tools(plan: CheckedStep) -> Iterator[AnyTool]:
    """What an agent calls is not compared with what others call."""
    return (tool for tool in (plan.tool, plan.fallback) if tool is not None)


def notes_alone(node: Node) -> list[str]:
    """What a person has agreed to may change."""
    return [node.extra.guards] if node.extra is not None and node.extra.guards else []


class OpensLater(LiveGraph):
    """A pause that a person has ended with no holds nothing that is planned later."""

    def would_block(self, node: Node, plan: CheckedStep) -> bool:
        is_closed = node.extra is not None and node.extra.is_closed and node.id not in self.kept
        return not is_closed and super().would_block(node, plan)


class Interrupted(Record):
    """When the planner has answered about a step, nobody needs to look at it any more."""

    def void(self, node: Node) -> None:
        for question in [q for q in self.graph.questions.values() if q.step == node.id]:
            self.answer(question, None, reason="no answer is needed now")
            self._up.forget(question.id)


# What is asked at the call --------------------------------------------------------------------------------------------


def notes_of_the_step(node: Node) -> tuple[Ask, ...]:
    """What a patch has taken away is not asked of the elements of a list."""
    if node.parent is None:
        return _reasons_before_call(node)
    return node.plan.fallback_asks if node.on_fallback else node.plan.asks


def first_tool_only(node: Node) -> tuple[Ask, ...]:
    """A fallback is called with the yes of the first tool."""
    return () if node.on_fallback else _reasons_before_call(node)


def plan_alone(node: Node) -> tuple[Ask, ...]:
    """What is noted with a call is not asked."""
    return node.plan.fallback_asks if node.on_fallback else node.plan.asks


def unconditional_asks(asks: Iterable[Ask], arguments: ReceivedArguments) -> list[Ask]:
    """A rule that looks at arguments is left out."""
    return [ask for ask in _reasons_to_ask(asks, arguments) if ask.rule is None or ask.rule.when is None]


def sure_asks(step: Step, tool: AnyTool, policy: Policy) -> tuple[Ask, ...]:
    """The confidence of a step is not looked at."""
    return _asks_of(step.model_copy(update={"confidence": None}), tool, policy)


def outer_asks(step: Step, tool: AnyTool, policy: Policy) -> tuple[Ask, ...]:
    """The rules for the tools of an agent do not hold for the agent."""
    return _asks_of(step, replace(tool, inner_tools=()), policy)


class StartsWithoutPause(Admission):
    """A step that is to pause before it starts does not."""

    def is_startable(self, node: Node) -> bool:
        if node.plan.step.pause == "before":
            node.make_extra().is_passed = True
        return super().is_startable(node)


class AgreesByItself(AgentCalls):
    """An agent calls its tools without the yes that they want."""

    async def _approve(self, call: CheckedCall, why: str) -> None:
        pass


# Plans and patches that are agreed to ---------------------------------------------------------------------------------


def confident(policy: Policy, confidence: float | None, **facts: Any) -> str:
    """How sure a planner is of its proposal is not looked at."""
    return _why_agree(policy, None, **facts)


def by_confidence(policy: Policy, confidence: float | None, **facts: Any) -> str:
    """That people want to look at patches is forgotten."""
    return _why_agree(policy.model_copy(update={"approve_patches": "never"}), confidence, **facts)


async def agreed(*_: Any) -> None:
    """A first plan needs nobody's yes."""


def own_steps(graph: LiveGraph, checked: CheckedPatch) -> tuple[Step, ...]:
    """Of a plan that is repaired by a patch, a person sees the patch alone."""
    return tuple(plan.step for id_, plan in checked.steps.items() if id_ not in graph.nodes)


# Records --------------------------------------------------------------------------------------------------------------


def forget_notes(graph: LiveGraph, splicer: Splicer, recorded: Iterable[Event], run_id: str) -> None:
    """What is noted with calls is lost when a record is read."""
    known = (replace(event, guards={}) if isinstance(event, Spliced) else event for event in recorded)
    _fold(graph, splicer, known, run_id)


def nothing_kept(graph: LiveGraph) -> dict[str, str]:
    """A retry begins without what was noted, and without knowing to what nobody has agreed."""
    return {}


# Pools, processes and allowed tools -----------------------------------------------------------------------------------


def caps_of_the_step(*args: Any) -> Any:
    """A step counts in the pool that it names, and in no other."""
    frontier, caps_of = _make_frontier(*args)
    if caps_of is None:
        return frontier, None

    def caps(step: CheckedStep) -> Any:
        named = step.step.pool
        if named is None or step.tool.pool is None:
            return caps_of(step)
        return caps_of(replace(step, tool=replace(step.tool, pool=None), fallback=None))

    return frontier, caps


def any_executor(context: CheckContext, index: int, step: Step, facts: ToolFacts) -> str:
    """A step runs where it says."""
    return step.executor or facts.executor


def everything_is_allowed(tool: AnyTool, *args: Any) -> ToolFacts:
    """Whatever there is may be called."""
    return replace(_facts(tool, *args), is_allowed=True)


GUARD_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "what a patch takes away is not looked at": {guards.removed_approvals: no_loss},
    "a dropped call can be added again": {guards._models: only_itself},
    "what stood before a call is not looked at": {guards.before: nothing_before},
    "a doubt is talked away": {guards._is_unsure: never_unsure, edits.check_loosening: nothing},
    "a pause that was denied counts as over": {guards._has_passed: always_passed},
    "elements of a list are not asked about": {questions.reasons_before_call: notes_of_the_step},
    "a fallback needs nobody": {questions.reasons_before_call: first_tool_only},
    "notes are not asked about": {questions.reasons_before_call: plan_alone},
    "rules do not look at arguments": {questions.reasons_to_ask: unconditional_asks},
    "the confidence of a step is not looked at": {checked_plan.asks_of: sure_asks},
    "rules do not reach agents": {checked_plan.asks_of: outer_asks},
    "a step does not pause": {Admission: StartsWithoutPause},
    "an agent needs nobody": {AgentCalls: AgreesByItself},
    "a message that is not sure of itself is not asked about": {replanning.why_agree: confident},
    "approve_patches is forgotten": {replanning.why_agree: by_confidence},
    "a first plan is not asked about": {first_plan.agree_to_plan: agreed},
    "of a repaired plan the patch alone is shown": {replanning.steps_after: own_steps},
    "notes are lost with the process": {fold._fold: forget_notes},
    "a retry forgets what was noted": {guards.guards_to_keep: nothing_kept},
    "how a call was guarded is forgotten with it": {guards.missing_approvals: no_loss},
    "agents are compared with agents alone": {checked_plan.callable_tools: own_tools},
    "what a person has agreed to may change": {guards._marks: notes_alone},
    "a pause holds nothing that comes after the no": {LiveGraph: OpensLater},
    "a planner's answer ends a pause": {Record: Interrupted},
    "a step leaves the pool of its tool": {live_graph.make_frontier: caps_of_the_step},
    "a step leaves the process of its tool": {check_step._check_executor: any_executor},
    "every tool may be called": {check_context._facts: everything_is_allowed},
}
