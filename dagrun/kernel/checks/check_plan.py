"""Check a plan: return a plan that may run, or report all of its problems at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

from dagrun.errors import PlanRefused, Problem
from dagrun.kernel.checks.advice import advise
from dagrun.kernel.checks.check_context import CheckContext, context_of
from dagrun.kernel.checks.check_references import check_output
from dagrun.kernel.checks.check_step import check_step
from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep, executors_by_name
from dagrun.kernel.checks.findings import WHOLE_PLAN, Findings
from dagrun.kernel.checks.policy_names import REDACT_RECORDS, check_policy_names, redacts_nothing
from dagrun.kernel.model.contracts.deps import UNKNOWN_DEPS, Deps
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.reference import ID_PATTERN, RESERVED
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.tool import Toolbox

# ASCII only, so that Cyrillic look-alikes and other forms of the same letter are refused.
_ID: Final = re.compile(ID_PATTERN, re.ASCII)

# The most dependencies in which a cycle is looked for. They are those of steps that are written before a step that they
# wait for; a plan whose steps are written in an order in which they can run has none. A graph of more dependencies
# takes seconds and gigabytes to build.
MAX_LOOSE_EDGES: Final = 1_000_000
MAX_NAMED: Final = 10
_MAX_CYCLES: Final = 100


class CheckOptions(TypedDict, total=False):
    """What a check may know of a run; see `check_plan`."""

    inputs: Mapping[str, Any] | None
    executors: Collection[str]
    secrets: Secrets
    deps: Deps
    is_hooked: bool


def check_plan(
    plan: Plan, toolbox: Toolbox, policy: Policy | None = None, *, strict: bool = False, **options: Unpack[CheckOptions]
) -> CheckedPlan:
    """Check *plan*, and work out everything that can be known before it runs.

    Args:
        plan: The plan.
        toolbox: The tools that its steps may call.
        policy: The limits that the plan must keep; the default policy if left out.
        inputs: The inputs of the run, for references to them; `None` if they are not known yet.
        strict: Whether advice is refused like an error.
        executors: The host's executors, which steps may name in addition to the built-in ones: by name, or only their
            names.
        secrets: The secrets of the host.
        deps: The dependencies of the tools.
        is_hooked: Whether the host has a function that redacts texts.

    Returns:
        The plan as the runtime needs it; it can be run any number of times.

    Raises:
        PlanRefused: The plan has problems; the error holds all of them, in plan order.
    """
    problems, checked = find_problems(plan, toolbox, policy, strict=strict, **options)
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
    deps: Deps = UNKNOWN_DEPS,
    is_hooked: bool = False,
) -> tuple[tuple[Problem, ...], CheckedPlan | None]:
    """Check *plan* like `check_plan`, but return the problems instead of raising them.

    Returns:
        Problems and advice, in plan order; and the plan as the runtime needs it, `None` if it is refused.
    """
    findings = Findings()
    policy = Policy() if policy is None else policy
    count = _count_steps(plan)
    if not plan.steps:
        findings.add("DR111", WHOLE_PLAN, "steps")
    if policy.max_steps is not None and count > policy.max_steps:
        # The check ends here: a plan that is far too long must be written anew anyway.
        findings.add("DR108", WHOLE_PLAN, "steps", count=count, limit=policy.max_steps)
        return findings.problems(), None
    index = _check_ids(plan.steps, findings)
    plan = _within(plan, policy, findings) if plan._source.is_text else plan
    named = executors_by_name(executors)
    context = context_of(
        plan, index, toolbox, policy, findings, inputs=inputs, executors=named, secrets=secrets, deps=deps
    )
    steps, after, is_ordered = _check_steps(context, plan)
    output = check_output(context, plan.output) if plan.output is not None else None
    check_policy_names(steps, context)
    labels = None
    if policy.flow is not None:
        from dagrun.kernel.checks.flow.plan_flow import label_plan  # here: few policies have a trust boundary

        labels = label_plan(policy.flow, steps, index, findings, is_ordered=is_ordered)
    if redacts_nothing(policy, is_hooked=is_hooked):
        findings.add("DR216", WHOLE_PLAN, REDACT_RECORDS)
    advise(steps, context)
    problems = findings.problems()
    if findings.has_errors or (strict and problems):
        return problems, None
    return problems, CheckedPlan(
        plan=plan,
        toolbox=toolbox,
        policy=policy,
        steps={checked.step.id: checked for checked in steps},
        after=after,
        output=output,
        advice=problems,
        is_ordered=is_ordered,
        executors=context.executors,
        secrets=secrets,
        deps=deps,
        flow=labels,
        input_paths=tuple(context.sources.input_paths),
    )


def _within(plan: Plan, policy: Policy, findings: Findings) -> Plan:
    """Return a plan from a text, with its retry rules lowered to the policy's."""
    limit = policy.retry.max_attempts
    for place, step in enumerate(plan.steps):
        if step.retry is not None and step.retry.max_attempts > limit:
            findings.add("DR916", place, "retry", step=step.id, count=step.retry.max_attempts, limit=limit)
    return plan.model_copy(update={"steps": tuple(step.within(policy.retry) for step in plan.steps)})


def _count_steps(plan: Plan) -> int:
    """Count the steps, and the elements of every for_each whose list is written in the plan."""
    lists = [step.for_each for step in plan.steps if step.for_each is not None]
    return len(plan.steps) + sum(len(items) for items in lists if isinstance(items, list))


def _check_ids(steps: Sequence[Step], findings: Findings) -> dict[str, int]:
    """Check the ids of *steps*, and return the place of each id; for an id that is used twice, its first place."""
    index = {step.id: place for place, step in enumerate(steps)}
    are_distinct = len({id_.lower() for id_ in index}) == len(steps)
    if are_distinct and all(map(_ID.fullmatch, index)) and RESERVED.keys().isdisjoint(index):
        return index
    return _report_ids(steps, findings)


def _report_ids(steps: Sequence[Step], findings: Findings) -> dict[str, int]:
    """Report the faults of ids, step by step; return the result of `_check_ids`."""
    index: dict[str, int] = {}
    folded: dict[str, str] = {}  # files and people do not always distinguish `Load` from `load`
    for place, step in enumerate(steps):
        id_ = step.id
        if _ID.fullmatch(id_) is None:  # never `match` with "$", which allows a line break at the end
            findings.add("DR101", place, "id", id=repr(id_[:200]))
        elif id_ in RESERVED:
            findings.add("DR110", place, "id", id=id_, meaning=RESERVED[id_])
        if id_ in index:
            findings.add("DR102", place, "id", id=id_, first=f"steps[{index[id_]}]")
            continue
        index[id_] = place
        if folded.setdefault(id_.lower(), id_) != id_:
            findings.add("DR103", place, "id", id=id_, other=folded[id_.lower()])
    return index


def _check_steps(context: CheckContext, plan: Plan) -> tuple[list[CheckedStep], list[Sequence[int]], bool]:
    """Check every step, and look for cycles.

    Returns:
        The checked steps, without those whose problems leave nothing to run; for each step of the plan, the places of
        the steps that wait for it; and whether every step is written after all steps that it waits for.
    """
    steps: list[CheckedStep] = []
    after: list[Sequence[int]] = [()] * len(plan.steps)
    index, loose = context.index, dict[str, tuple[str, ...]]()
    is_unique = len(index) == len(plan.steps)
    for place, step in enumerate(plan.steps):
        checked, waits_for = check_step(context, place, step)
        if not is_unique and index[step.id] != place:
            continue  # if an id is used twice, the first step counts
        # A step is on no cycle if it is written after all that it waits for, and they are on no cycle. That settles
        # all steps of nearly every plan that people and planners write.
        is_settled = not loose or loose.keys().isdisjoint(waits_for)
        for id_ in waits_for:
            need = index[id_]
            if need >= place:
                is_settled = False
            known = after[need]
            if type(known) is list:
                known.append(place)
            else:  # for most steps, one step waits or none: a list for each would take twice the memory
                after[need] = [*known, place] if known else (place,)
        if not is_settled:
            loose[step.id] = waits_for
        if checked is not None:
            steps.append(checked)
    if loose:
        _check_cycles(loose, index, context.findings)
    return steps, after, not loose


def _check_cycles(loose: Mapping[str, Collection[str]], index: Mapping[str, int], findings: Findings) -> None:
    """Report cycles of steps.

    Args:
        loose: The steps that may be on a cycle, with the steps that each waits for. Every other step is written after
            all steps that it waits for, directly or not.
        index: The place of each step in the plan.
        findings: Collects the problems.
    """
    count = sum(map(len, loose.values()))
    if count > MAX_LOOSE_EDGES:
        findings.add("DR114", WHOLE_PLAN, "steps", count=f"{count:,}", limit=f"{MAX_LOOSE_EDGES:,}")
        return
    import networkx as nx  # here: it takes as long to load as all the rest, and few plans need it

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(loose)
    graph.add_edges_from((need, id_) for id_, needs in loose.items() for need in needs if need in loose)
    if nx.is_directed_acyclic_graph(graph):
        return
    # Never `find_cycle`: it takes far too long on a dense graph without a cycle, which most of this graph may be.
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    for knot in sorted(knots, key=lambda knot: min(index[id_] for id_ in knot))[:_MAX_CYCLES]:
        cycle = _cycle_in(knot, loose, index)
        findings.add("DR106", index[cycle[0]], "depends_on", cycle=cycle_text(cycle))


def _cycle_in(knot: set[str], dependencies: Mapping[str, Collection[str]], index: Mapping[str, int]) -> list[str]:
    """Return one cycle in *knot*, steps that can all reach each other; its first step in plan order comes first."""
    at = min(knot, key=index.__getitem__)
    passed: dict[str, int] = {}
    while at not in passed:
        passed[at] = len(passed)
        at = next(need for need in dependencies[at] if need in knot)
    cycle = list(passed)[passed[at] :]
    first = min(range(len(cycle)), key=lambda place: index[cycle[place]])
    return cycle[first:] + cycle[:first]


def cycle_text(cycle: list[str]) -> str:
    """Write a cycle as "a -> b -> a" (a waits for b), without the middle of a long one."""
    if len(cycle) <= MAX_NAMED:
        return " -> ".join((*cycle, cycle[0]))
    shown = " -> ".join(cycle[: MAX_NAMED - 1])
    return f"{shown} -> … -> {cycle[0]} ({len(cycle)} steps)"
