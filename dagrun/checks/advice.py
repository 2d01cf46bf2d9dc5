"""Advice: what is not wrong, but worth a look. A strict check takes it for errors."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest
from itertools import filterfalse
from typing import Any

from dagrun.checks.check_context import CheckContext, ToolFacts
from dagrun.checks.checked_plan import CheckedStep
from dagrun.checks.findings import MAX_ADVICE, WHOLE_PLAN
from dagrun.model.effect import Effect
from dagrun.model.reference import RESERVED, Template

_MAX_NAMED = 10


def advise(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Look for what a careful reader of the plan would ask about.

    Args:
        steps: Those of the plan that have been checked.
        context: The plan, its tools and its policy; the advice goes to its findings.
    """
    _unused_dependencies(steps, context)
    _repeated_calls(steps, context)
    _open_questions(steps, context)
    _ceilings_that_bind_nothing(steps, context)


def _unused_dependencies(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    findings = context.findings
    awaited: set[str] | None = None
    for checked in steps:
        declared = checked.step.depends_on
        if not declared or checked.value_sources.issuperset(declared):
            continue
        if awaited is None:  # in many a plan nobody asks
            # To wait for the effect of a step is a good reason. What only computes or looks leaves nothing but its
            # output.
            awaited = _awaited(steps, context)
        id_, used = checked.step.id, checked.value_sources
        if all(map(used.__contains__, filterfalse(awaited.__contains__, checked.depends_on))):
            continue  # a dense plan has millions of them, and in most steps nothing to tell
        unused = (
            (number, need)
            for number, need in enumerate(declared)
            if need not in awaited and need not in used and need in context.index and need != id_
        )
        for number, need in unused:
            findings.add("DR901", context.index[id_], f"depends_on[{number}]", step=id_, dependency=need)
            if not findings.wants("DR901"):
                return


def _awaited(steps: Sequence[CheckedStep], context: CheckContext) -> set[str]:
    """The steps for whose effect others may wait: fewer by far, in most plans, than those that have none."""
    awaited = set()
    if context.findings.has_errors:  # of what is not in order, nobody knows what it leaves
        right = {checked.step.id for checked in steps}
        for id_ in context.index:
            if id_ not in right:
                awaited.add(id_)
    for checked in steps:
        if not checked.tool.effect.is_free:
            awaited.add(checked.step.id)
    return awaited


def _repeated_calls(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    # By the steps that they use at first: ids are compared much quicker than references.
    pure = Effect.PURE
    is_right = not context.findings.has_errors
    first: dict[Any, int] = {}
    alike: dict[Any, list[int]] = {}
    for place, checked in enumerate(steps):
        if checked.tool.effect is pure and checked.items is None and checked.step.when is None:
            # Where nothing is wrong, these are what the arguments refer to, and what the condition on the output does.
            used = checked.value_sources if is_right and checked.success is None else _used(checked.args)
            key = (checked.tool.name, checked.args.pieces, used)
            if (before := first.setdefault(key, place)) != place:
                alike.setdefault(key, [before]).append(place)
    calls: dict[Any, list[int]] = {}
    for key, places in alike.items():
        for place in places:
            calls.setdefault((key, steps[place].args.holes), []).append(place)
    for places in nsmallest(MAX_ADVICE + 1, (places for places in calls.values() if len(places) > 1)):
        names = [steps[place].step.id for place in places[:_MAX_NAMED]]
        if len(places) > _MAX_NAMED:
            names.append(f"… ({len(places)} in all)")
        checked = steps[places[1]]
        index = context.index[checked.step.id]
        context.findings.add("DR902", index, steps=", ".join(names), tool=checked.tool.name)


def _used(args: Template) -> frozenset[str]:
    """The ids of the steps that arguments refer to, right or wrong."""
    return args.sources.difference(RESERVED)


def _open_questions(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Ask what the policy leaves open: approval, time, and what happens on a failure."""
    findings, wants = context.findings, context.findings.wants
    impure = {name for name, facts in context.tools.items() if facts.tool.effect is not Effect.PURE}
    unasked = {name for name in impure if _asks_nobody(context.tools[name])}
    wants_time = True
    for checked in steps:
        step, name = checked.step, checked.tool.name
        if name in unasked and wants("DR910"):
            findings.add("DR910", context.index[step.id], "tool", step=step.id, tool=name)
        if wants_time and checked.timeout is None and step.deadline is None:
            findings.add("DR911", context.index[step.id], step=step.id, tool=name)
            wants_time = wants("DR911")
        if name in impure and checked.fallback is None and step.on_failure is None and wants("DR912"):
            findings.add("DR912", context.index[step.id], step=step.id, tool=name)
        if not impure and not wants_time:
            return


def _asks_nobody(facts: ToolFacts) -> bool:
    tool = facts.tool
    return not tool.effect.is_free and tool.needs_approval is None and not facts.may_ask


def _ceilings_that_bind_nothing(steps: Sequence[CheckedStep], context: CheckContext) -> None:
    """Name tools of which nobody knows how much they may use: a ceiling stops the next call, and not this one."""
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
