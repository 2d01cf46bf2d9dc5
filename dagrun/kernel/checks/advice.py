"""Advice: remarks on a plan that are no errors. A strict check refuses them like errors."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from typing import Any

from dagrun.kernel.checks.check_context import CheckContext, ToolFacts
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.findings import MAX_ADVICE, WHOLE_PLAN
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.reference import RESERVED, Template

_MAX_NAMED = 10


def advise(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Add the advice on a plan to its findings.

    Args:
        steps: The steps of the plan that have been checked.
        context: The plan, its tools and its policy; the advice is added to its findings.
    """
    _advise_on_dependencies(steps, context)
    _advise_on_repeated_calls(steps, context)
    _advise_on_open_questions(steps, context)
    _advise_on_unbounded_tools(steps, context)


def _advise_on_dependencies(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Name declared dependencies on steps whose output is not used and that have no effect to wait for."""
    findings, index = context.findings, context.index
    with_effects = _steps_with_effects(steps, context)
    for checked in steps:
        declared, used = checked.step.depends_on, checked.value_sources
        if not declared or used.issuperset(declared):
            continue
        id_ = checked.step.id
        for number, need in enumerate(declared):
            if need in used or need in with_effects or need == id_ or need not in index:
                continue
            findings.add("DR901", index[id_], f"depends_on[{number}]", step=id_, dependency=need)
            if not findings.has_room_for("DR901"):
                return


def _steps_with_effects(steps: Sequence[CheckedStep], context: CheckContext) -> set[str]:
    """Return the ids of the steps that may have an effect, so that there is a reason to wait for them."""
    effectful_tools = {name for name, facts in context.tools.items() if not facts.tool.effect.is_free}
    with_effects = {checked.step.id for checked in steps if checked.tool.name in effectful_tools}
    if context.findings.has_errors:  # the effects of steps that could not be checked are not known
        with_effects |= context.index.keys() - {checked.step.id for checked in steps}
    return with_effects


def _advise_on_repeated_calls(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Name calls of a pure tool with equal arguments."""
    # Two passes: most steps differ in the ids of the steps that they use, which are compared much faster than
    # references.
    pure, has_errors = Effect.PURE, context.findings.has_errors
    first: dict[Any, int] = {}
    candidates: dict[Any, list[int]] = {}
    for place, checked in enumerate(steps):
        if checked.tool.effect is pure and checked.items is None and checked.step.when is None:
            # The value sources also contain those of the condition on the output, and lack those with a fault.
            is_exact = not has_errors and checked.success is None
            used = checked.value_sources if is_exact else _sources_of(checked.args)
            key = (checked.tool.name, checked.args.pieces, used)
            if (before := first.setdefault(key, place)) != place:
                candidates.setdefault(key, [before]).append(place)
    calls: dict[Any, list[int]] = {}
    for key, places in candidates.items():
        for place in places:
            calls.setdefault((key, steps[place].args.references), []).append(place)
    for places in nsmallest(MAX_ADVICE + 1, (places for places in calls.values() if len(places) > 1)):
        names = [steps[place].step.id for place in places[:_MAX_NAMED]]
        if len(places) > _MAX_NAMED:
            names.append(f"… ({len(places)} in all)")
        checked = steps[places[1]]
        index = context.index[checked.step.id]
        context.findings.add("DR902", index, steps=", ".join(names), tool=checked.tool.name)


def _sources_of(args: Template) -> frozenset[str]:
    """Return the ids of the steps that arguments refer to, including unknown ids."""
    return args.sources.difference(RESERVED)


def _advise_on_open_questions(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Report the questions that the policy leaves open: approvals, time limits, and reactions to a failure."""
    findings, has_room = context.findings, context.findings.has_room_for
    impure = {name for name, facts in context.tools.items() if facts.tool.effect is not Effect.PURE}
    unapproved = {name for name in impure if _is_approval_open(context.tools[name])}
    has_room_for_time = True
    for checked in steps:
        step, name = checked.step, checked.tool.name
        if name in unapproved and has_room("DR910"):
            findings.add("DR910", context.index[step.id], "tool", step=step.id, tool=name)
        if has_room_for_time and checked.timeout is None and step.deadline is None:
            findings.add("DR911", context.index[step.id], step=step.id, tool=name)
            has_room_for_time = has_room("DR911")
        if name in impure and checked.fallback is None and step.on_failure is None and has_room("DR912"):
            findings.add("DR912", context.index[step.id], step=step.id, tool=name)
        if not impure and not has_room_for_time:
            return


def _is_approval_open(facts: ToolFacts) -> bool:
    """Whether neither the tool nor the policy decides about the approval of calls of a tool with effects."""
    tool = facts.tool
    return not tool.effect.is_free and tool.needs_approval is None and not facts.may_ask


def _advise_on_unbounded_tools(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Name tools whose usage has no bound: a ceiling cannot stop such a call, only the next one."""
    policy = context.policy
    if policy.max_tokens is None and policy.max_cost is None:
        return
    called = {tool.name: tool for checked in steps for tool in (checked.tool, checked.fallback) if tool is not None}
    for tool in called.values():
        if tool.effect is Effect.PURE:  # it calls no model
            continue
        if policy.max_tokens is not None and tool.max_tokens is None:
            facts = {"ceiling": f"{policy.max_tokens} tokens", "field": "max_tokens"}
            context.findings.add("DR914", WHOLE_PLAN, "policy.max_tokens", tool=tool.name, **facts)
        if policy.max_cost is not None and tool.max_cost is None:
            facts = {"ceiling": f"{policy.max_cost:g} in cost", "field": "max_cost"}
            context.findings.add("DR914", WHOLE_PLAN, "policy.max_cost", tool=tool.name, **facts)
