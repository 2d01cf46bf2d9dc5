"""The checker: a plan in, and either a plan that may run or everything that is wrong with it, at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any, Final

import networkx as nx

from dagrun.checks.advice import advise
from dagrun.checks.check_context import CheckContext, context_of
from dagrun.checks.check_references import check_output
from dagrun.checks.check_step import check_step
from dagrun.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.checks.findings import WHOLE_PLAN, Findings
from dagrun.checks.policy_names import check_policy_names
from dagrun.errors import PlanRefused, Problem
from dagrun.model.plan import Plan, Step
from dagrun.model.policy import Policy
from dagrun.model.reference import ID_PATTERN, RESERVED
from dagrun.model.secrets.secret import NO_SECRETS, Secrets
from dagrun.model.toolbox import Toolbox

# ASCII only: Cyrillic look-alikes and other forms of the same letter never get in.
_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_IDS: Final = re.compile(f"(?:{ID_PATTERN}\n)*+{ID_PATTERN}", re.ASCII)


def check_ids(steps: Sequence[Step], findings: Findings) -> dict[str, int]:
    """Check the ids of *steps*.

    Returns:
        The place of each id, of its first use if it was taken twice.
    """
    index = _index_of(steps)
    return index if index is not None else _look_closely(steps, findings)


def _index_of(steps: Sequence[Step]) -> dict[str, int] | None:
    """The place of each id; `None` if there is anything wrong with any, as hardly ever is."""
    index: dict[str, int] = {}
    has_capitals = False
    ids = [step.id for step in steps]
    text = "\n".join(ids)
    if text.count("\n") != max(0, len(ids) - 1) or (ids and _IDS.fullmatch(text) is None):
        return None
    has_capitals = text.lower() != text
    index.update(zip(ids, range(len(ids)), strict=True))
    # Files and people do not always tell `Load` from `load`.
    known: Container[str] = index
    count = len(index)
    if has_capitals:
        known = folded = {id_.lower() for id_ in index}
        count = len(folded)
    return index if count == len(steps) and not any(id_ in known for id_ in RESERVED) else None


def _look_closely(steps: Sequence[Step], findings: Findings) -> dict[str, int]:
    index: dict[str, int] = {}
    folded: dict[str, str] = {}
    for number, step in enumerate(steps):
        id_ = step.id
        if not _ID.fullmatch(id_):  # never `match` with "$", which lets a line break through
            findings.add("DR101", number, "id", id=repr(id_[:200]))
        elif id_ in RESERVED:
            findings.add("DR110", number, "id", id=id_, meaning=RESERVED[id_])
        if id_ in index:
            findings.add("DR102", number, "id", id=id_, first=f"steps[{index[id_]}]")
            continue
        index[id_] = number
        if folded.setdefault(id_.lower(), id_) != id_:
            findings.add("DR103", number, "id", id=id_, other=folded[id_.lower()])
    return index


# Dependencies of steps that stand before what they wait for. A graph of more takes seconds and gigabytes to build;
# a plan that is written in an order in which it can run needs none.
MAX_LOOSE_EDGES: Final = 1_000_000
MAX_NAMED: Final = 10
_MAX_CYCLES: Final = 100


def check_cycles(loose: Mapping[str, Collection[str]], index: Mapping[str, int], findings: Findings) -> None:
    """Look for steps that wait for each other.

    Args:
        loose: The steps that may be on one, with those that each waits for. The others stand after all that they wait
            for, and so does all of that.
        index: The place of each step in the plan.
        findings: Where the problems go.
    """
    count = sum(map(len, loose.values()))
    if count > MAX_LOOSE_EDGES:
        findings.add("DR114", WHOLE_PLAN, "steps", count=f"{count:,}", limit=f"{MAX_LOOSE_EDGES:,}")
        return
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(loose)
    graph.add_edges_from((need, id_) for id_, needs in loose.items() for need in needs if need in loose)
    if nx.is_directed_acyclic_graph(graph):
        return
    # Never `find_cycle`: on a dense graph without a cycle it takes for ever, and most of this one may be such.
    knots = [knot for knot in nx.strongly_connected_components(graph) if len(knot) > 1]
    for knot in sorted(knots, key=lambda knot: min(index[id_] for id_ in knot))[:_MAX_CYCLES]:
        cycle = _walk(knot, loose, index)
        findings.add("DR106", index[cycle[0]], "depends_on", cycle=cycle_text(cycle))


def _walk(knot: set[str], dependencies: Mapping[str, Collection[str]], index: Mapping[str, int]) -> list[str]:
    """One cycle in steps that can all reach each other, beginning with its first in the plan."""
    at = min(knot, key=index.__getitem__)
    passed: dict[str, int] = {}
    while at not in passed:
        passed[at] = len(passed)
        at = next(need for need in dependencies[at] if need in knot)
    cycle = list(passed)[passed[at] :]
    first = min(range(len(cycle)), key=lambda place: index[cycle[place]])
    return cycle[first:] + cycle[:first]


def cycle_text(cycle: list[str]) -> str:
    """Write a cycle as "a -> b -> a" (a waits for b), the middle of a long one left out."""
    if len(cycle) <= MAX_NAMED:
        return " -> ".join((*cycle, cycle[0]))
    shown = " -> ".join(cycle[: MAX_NAMED - 1])
    return f"{shown} -> … -> {cycle[0]} ({len(cycle)} steps)"


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
    context = context_of(plan, index, toolbox, policy, findings, inputs=inputs, executors=known, secrets=secrets)
    steps, after, is_ordered = _check_steps(context, plan)
    output = check_output(context, plan.output) if plan.output is not None else None
    check_policy_names(steps, context)
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
    )


def _count_steps(plan: Plan) -> int:
    """Steps, and the elements of those for_each whose lists stand in the plan."""
    lists = [step.for_each for step in plan.steps if step.for_each is not None]
    return len(plan.steps) + sum(len(items) for items in lists if isinstance(items, list))


def _check_steps(context: CheckContext, plan: Plan) -> tuple[list[CheckedStep], list[Sequence[int]], bool]:
    """The steps, as far as there is something to run; who waits for each; and whether all stand in such an order."""
    steps: list[CheckedStep] = []
    after: list[Sequence[int]] = [()] * len(plan.steps)
    index, loose = context.index, dict[str, tuple[str, ...]]()
    is_unique = len(index) == len(plan.steps)
    for place, step in enumerate(plan.steps):
        checked, waits_for = check_step(context, place, step)
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
        check_cycles(loose, index, context.findings)
    return steps, after, not loose
