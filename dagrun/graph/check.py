"""The checker: a plan in, and either a plan that may run or everything that is wrong with it, at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from dagrun.errors import PlanRefused, Problem
from dagrun.graph.advice import advise
from dagrun.graph.check_ids import check_ids
from dagrun.graph.check_references import check_output
from dagrun.graph.check_step import check_step
from dagrun.graph.checked import CheckedPlan, CheckedStep
from dagrun.graph.findings import WHOLE_PLAN, Findings
from dagrun.graph.portions import AT_ONCE, has_all, let_go
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
    steps, is_ordered = _check_steps(scope, plan)
    output = check_output(scope, plan.output) if plan.output is not None else None
    advise(list(steps.values()), scope)
    problems = findings.problems()
    if findings.has_errors or (strict and problems):
        return problems, None
    checked = CheckedPlan(
        plan=plan,
        toolbox=toolbox,
        policy=policy,
        steps=steps,
        successors=_successors(steps),
        output=output,
        advice=problems,
        is_ordered=is_ordered,
        executors=scope.executors,
        secrets=secrets,
    )
    let_go(index)  # nothing that stays has kept it
    return problems, checked


def _count_steps(plan: Plan) -> int:
    """Steps, and the elements of those for_each whose lists stand in the plan."""
    lists = [step.for_each for step in plan.steps if step.for_each is not None]
    return len(plan.steps) + sum(len(items) for items in lists if isinstance(items, list))


def _check_steps(scope: Scope, plan: Plan) -> tuple[dict[str, CheckedStep], bool]:
    """The steps by id, as far as there is something to run; and whether each stands after all that it waits for."""
    steps: dict[str, CheckedStep] = {}
    # A step after its dependencies is on no cycle, and neither is what it waits for: so nearly every plan is settled
    # that people and planners write, at the speed of sets.
    settled: set[str] = set()
    loose: dict[str, tuple[str, ...]] = {}
    for index, step in enumerate(plan.steps):
        checked, waits_for = check_step(scope, index, step)
        if has_all(settled, waits_for) and step.id not in loose:
            settled.add(step.id)
        elif step.id not in settled:  # of an id that is taken twice, the first counts
            loose.setdefault(step.id, waits_for)
        if checked is not None:
            steps.setdefault(step.id, checked)
    if loose:
        check_cycles(loose, settled, scope.index, scope.findings)
    return steps, not loose


def _successors(steps: Mapping[str, CheckedStep]) -> dict[str, tuple[str, ...]]:
    after: dict[str, list[str]] = {id_: [] for id_ in steps}
    for id_, checked in steps.items():
        for need in checked.depends_on:
            after[need].append(id_)
    successors: dict[str, Any] = after  # a dict of its own would have to grow once more
    ids = list(after)
    for first in range(0, len(ids), AT_ONCE):
        some = ids[first : first + AT_ONCE]
        tuples = [tuple(after[id_]) for id_ in some]
        successors.update(zip(some, tuples, strict=True))
    return successors
