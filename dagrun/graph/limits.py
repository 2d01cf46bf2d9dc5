"""From the limits of a policy to the caps and priorities of a frontier."""

from __future__ import annotations

from collections.abc import Callable

from dagrun.graph.checked import CheckedPlan, CheckedStep
from dagrun.graph.critical import Expected, priorities
from dagrun.graph.frontier import Cap, Frontier
from dagrun.model.policy import Policy

CapsOf = Callable[[CheckedStep], tuple[Cap, ...]]


def limits_steps(policy: Policy, shared: Cap | None) -> bool:
    """Whether anything limits which steps run at once, so that their order matters.

    Args:
        policy: Of the run.
        shared: A cap that counts the steps of several runs, or none.
    """
    return bool(policy.max_running or shared or policy.max_running_by_tool or policy.max_running_by_pool)


def _is_limited(plan: CheckedPlan, shared: Cap | None) -> bool:
    """The same, or whether a step of the plan limits its own elements."""
    return limits_steps(plan.policy, shared) or any(s.step.max_parallel is not None for s in plan.steps.values())


def make_frontier(
    plan: CheckedPlan, shared: Cap | None, expected: Expected | None = None
) -> tuple[Frontier, CapsOf | None]:
    """Make the frontier of a run; without a limit it is a plain queue, and costs next to nothing.

    Where slow calls are hedged it has priorities, too: they say what the end of the run waits for.

    Args:
        plan: The plan and the policy that it was checked against.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take; `None` for what the plan alone says.

    Returns:
        The frontier; and the caps that count a step besides the total, `None` if there are none.
    """
    if not _is_limited(plan, shared) and plan.policy.hedge is None:
        return Frontier(), None
    policy = plan.policy
    own = Cap(policy.max_running) if policy.max_running is not None else None
    by_tool = {name: Cap(limit) for name, limit in policy.max_running_by_tool.items()}
    by_pool = {name: Cap(limit) for name, limit in policy.max_running_by_pool.items()}

    def caps_of(step: CheckedStep) -> tuple[Cap, ...]:
        found = (
            own if shared is not None else None,  # with a shared cap in its place, the own one is one among others
            by_tool.get(step.tool.name),
            by_pool.get(step.pool) if step.pool is not None else None,
        )
        return tuple(cap for cap in found if cap is not None)

    first = priorities(plan, expected or Expected(plan))
    return Frontier(shared or own, first), caps_of
