"""The reference of a run whose plan was changed: the plan as it stands in the end, run anew, with nothing changed."""

from __future__ import annotations

from collections.abc import Iterator

from acts import STAGE, TOOLS, Stage
from dagrun import Plan, PlanHistory, Policy, RunResult, Step, check, run
from dagrun.kernel.model.value import decode
from simulation import simulate
from splice_book import as_json, needs_of
from watched import WatchedGraph


def differences(graph: WatchedGraph, seed: int) -> Iterator[str]:
    """Say which steps of a calm run have ended otherwise than they do in a fresh run of its last plan.

    Left out is what no fresh run can know of: a for_each of which a patch has changed elements, a step that had ended
    before a patch took away what it waited for, and all that waits for such a step.
    """
    steps = _comparable(graph)
    if not steps:
        return
    fresh = _run_anew(steps, graph.plan.policy, seed)
    for step in steps:
        node, now = graph.nodes[step.id], fresh.steps[step.id]
        if (node.state, decode(node.value)) != (now.state, now.output):
            yield f"{node} gave {decode(node.value)}; in a fresh run it {now.state} and gave {now.output}"


def _comparable(graph: WatchedGraph) -> list[Step]:
    plan = PlanHistory(graph.plan.plan, graph.revisions).current
    steps = {step.id: step for step in plan.steps}
    left = [
        id_
        for id_, step in steps.items()
        if any(need not in steps for need in needs_of(as_json(step)))
        or any(child.is_gone for child in graph.nodes.values() if child.parent is graph.nodes[id_])
    ]
    while left:
        off = left.pop()
        if steps.pop(off, None) is not None:
            left += [id_ for id_, step in steps.items() if off in needs_of(as_json(step))]
    return list(steps.values())


def _run_anew(steps: list[Step], policy: Policy, seed: int) -> RunResult:
    plan = check(Plan(steps=steps), TOOLS, policy=policy.model_copy(update={"max_steps": None}))

    async def main() -> RunResult:
        STAGE.set(Stage())
        return await run(plan, seed=seed)

    return simulate(main, seed)
