"""Build the state of a new run: its frontier, its caps and its live graph.

It is built apart from the run, so that the state of a large plan can be built in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.graph.caps import Cap
from dagrun.kernel.graph.frontier import Frontier
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.longest_paths import Expected, priorities
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.value import Stored

CapsOf = Callable[[CheckedStep], tuple[Cap, ...]]


def limits_steps(policy: Policy, shared: Cap | None) -> bool:
    """Whether a limit holds on the steps that run at once, so that their order matters.

    Args:
        policy: The policy of the run.
        shared: A cap that counts the steps of several runs, or none.
    """
    by_pool = any(pool.max_running is not None for pool in policy.pools.values())
    return by_pool or bool(policy.max_running or shared or policy.max_running_by_tool)


def _is_limited(plan: CheckedPlan, shared: Cap | None) -> bool:
    """Whether a limit on steps holds: in the policy, shared with other runs, or on the elements of a step."""
    return limits_steps(plan.policy, shared) or any(s.step.max_parallel is not None for s in plan.steps.values())


def make_frontier(
    plan: CheckedPlan, shared: Cap | None, expected: Expected | None = None
) -> tuple[Frontier, CapsOf | None]:
    """Make the frontier of a run. Without a limit it is a plain queue, the cheapest kind.

    Where slow calls are hedged it has priorities, too: they say which steps the end of the run waits for.

    Args:
        plan: The plan and the policy that it was checked against.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take; `None` for the estimates of the plan alone.

    Returns:
        The frontier, and a function for the caps that count a step besides the total; `None` if there are none.
    """
    if not _is_limited(plan, shared) and plan.policy.hedge is None:
        return Frontier(), None
    policy = plan.policy
    own = Cap(policy.max_running) if policy.max_running is not None else None
    by_tool = {name: Cap(limit) for name, limit in policy.max_running_by_tool.items()}
    by_pool = {name: Cap(each.max_running) for name, each in policy.pools.items() if each.max_running is not None}

    def caps_of(step: CheckedStep) -> tuple[Cap, ...]:
        # No step leaves the limits of what it may call: its tool, the fallback, and what either calls by itself.
        tools = [tool for main in (step.tool, step.fallback) if main is not None for tool in (main, *main.inner_tools)]
        found = (
            own if shared is not None else None,  # with a shared cap in its place, the own one is one among others
            *(by_tool.get(tool.name) for tool in tools),
            *(by_pool.get(pool) for pool in (step.pool, *(tool.pool for tool in tools)) if pool is not None),
        )
        return tuple(dict.fromkeys(cap for cap in found if cap is not None))

    first = priorities(plan, expected or Expected(plan))
    return Frontier(shared or own, first), caps_of


def build(plan: CheckedPlan, inputs: Stored, shared: Cap | None, expected: Expected) -> LiveGraph:
    """Build the initial state of a run of *plan*.

    Args:
        plan: The checked plan.
        inputs: The inputs of the run, stored.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take.
    """
    frontier, caps_of = make_frontier(plan, shared, expected)
    return LiveGraph(plan, inputs, frontier, caps_of, expected)
