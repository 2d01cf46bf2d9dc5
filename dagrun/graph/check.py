"""The checker: a plan in, and either a plan that may run or everything that is wrong with it, at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from dagrun.errors import PlanRefused, Problem
from dagrun.graph.advice import advise
from dagrun.graph.by_place import ByPlace
from dagrun.graph.check_ids import check_ids
from dagrun.graph.check_references import check_output
from dagrun.graph.check_step import check_step
from dagrun.graph.checked import CheckedPlan, CheckedStep
from dagrun.graph.findings import WHOLE_PLAN, Findings
from dagrun.graph.scope import Scope, scope_of
from dagrun.graph.topology import check_cycles
from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.secret import NO_SECRETS, Secrets
from dagrun.model.toolbox import Toolbox


def check_plan(
    plan: Plan,
    toolbox: Toolbox,
    policy: Policy | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    strict: bool = False,
    executors: Collection[str] = (),
    secrets: Secrets = NO_SECRETS,
) -> CheckedPlan:
    """Check *plan*, and settle all that can be settled before it runs.

    Args:
        plan: The plan.
        toolbox: What its steps may call.
        policy: The limits that it must keep; none but the defaults if left out.
        inputs: The inputs of the run, for references to them; `None` if they are not known yet.
        strict: Whether advice is refused like an error.
        executors: The names of the executors of the host that steps may name, besides those that there always are.
        secrets: Those of the host.

    Returns:
        The plan as the runtime wants it; it can be run any number of times.

    Raises:
        PlanRefused: The plan has problems; the error holds all of them, in the order of the plan.
    """
    problems, checked = find_problems(
        plan, toolbox, policy, inputs=inputs, strict=strict, executors=executors, secrets=secrets
    )
    if checked is None:
        raise PlanRefused(p for p in problems if strict or not p.is_advice)
    return checked


def find_problems(
    plan: Plan,
    toolbox: Toolbox,
    policy: Policy | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    strict: bool = False,
    executors: Collection[str] = (),
    secrets: Secrets = NO_SECRETS,
) -> tuple[tuple[Problem, ...], CheckedPlan | None]:
    """Check *plan* as `check_plan` does, and give what was found instead of raising it.

    Returns:
        Problems and advice, in the order of the plan; and the plan as the runtime wants it, `None` if it is refused.
    """
    findings = Findings()
    policy = Policy() if policy is None else policy
    count = _count_steps(plan)
    if not plan.steps:
        findings.add("DR111", WHOLE_PLAN, "steps")
    if policy.max_steps is not None and count > policy.max_steps:
        # The rest is not looked at: a plan that is far too long must be written anew anyway.
        findings.add("DR108", WHOLE_PLAN, "steps", count=count, limit=policy.max_steps)
        return findings.problems(), None
    known = frozenset(executors)
    index = check_ids(plan.steps, findings)
    scope = scope_of(plan, index, toolbox, policy, findings, inputs=inputs, executors=known, secrets=secrets)
    steps, after, is_ordered = _check_steps(scope, plan)
    output = check_output(scope, plan.output) if plan.output is not None else None
    advise(steps, scope)
    problems = findings.problems()
    if findings.has_errors or (strict and problems):
        return problems, None
    return problems, CheckedPlan(
        plan=plan,
        toolbox=toolbox,
        policy=policy,
        steps=ByPlace(index, plan.steps, steps),
        after=after,
        output=output,
        advice=problems,
        is_ordered=is_ordered,
        executors=scope.executors,
        secrets=secrets,
    )


def _count_steps(plan: Plan) -> int:
    """Steps, and the elements of those for_each whose lists stand in the plan."""
    lists = [step.for_each for step in plan.steps if step.for_each is not None]
    return len(plan.steps) + sum(len(items) for items in lists if isinstance(items, list))


def _check_steps(scope: Scope, plan: Plan) -> tuple[list[CheckedStep], list[Sequence[int]], bool]:
    """The steps, as far as there is something to run; who waits for each; and whether all stand in such an order."""
    steps: list[CheckedStep] = []
    after: list[Sequence[int]] = [()] * len(plan.steps)
    index, loose = scope.index, dict[str, tuple[str, ...]]()
    is_unique = len(index) == len(plan.steps)
    for place, step in enumerate(plan.steps):
        checked, waits_for = check_step(scope, place, step)
        if not is_unique and index[step.id] != place:
            continue  # of an id that is taken twice, the first counts
        # A step after its dependencies is on no cycle, and neither is what it waits for: so nearly every plan is
        # settled that people and planners write.
        is_settled = not loose or loose.keys().isdisjoint(waits_for)
        for id_ in waits_for:
            need = index[id_]
            if need >= place:
                is_settled = False
            known = after[need]
            if type(known) is list:
                known.append(place)
            else:  # for most steps one waits, or none: a list for each would take twice the memory
                after[need] = [*known, place] if known else (place,)
        if not is_settled:
            loose[step.id] = waits_for
        if checked is not None:
            steps.append(checked)
    if loose:
        check_cycles(loose, index, scope.findings)
    return steps, after, not loose
