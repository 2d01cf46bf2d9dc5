"""Goals whose recorded runs always took the same steps, so that a fixed plan would do without a planner."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dagrun.api.replaying import Replayed
from dagrun.model.outcome import Status
from dagrun.model.patch import rename_in_value
from dagrun.model.plan import Plan, Step

LEAST = 3


@dataclass(frozen=True, slots=True)
class RepeatedPlan:
    """A goal, the runs of it that have succeeded, and the steps that all of them took.

    Attributes:
        goal: The goal.
        runs: The names of the runs.
        plan: The plan of the last run.
        differing: The arguments that were not the same in all runs, as ``step.argument`` by the ids of *plan*.
        planner_calls: The calls of planners in these runs.
        tokens: The tokens of planners in these runs, as far as they were reported.
        seconds: The time that these calls took.
    """

    goal: str
    runs: tuple[str, ...]
    plan: Plan
    differing: tuple[str, ...]
    planner_calls: int
    tokens: int
    seconds: float


def repeated_plans(runs: Iterable[Replayed], least: int = LEAST) -> list[RepeatedPlan]:
    """Return each goal that a planner has planned in at least *least* runs that succeeded, always with the same steps.

    The same steps are calls of the same tools that wait for each other in the same way, whatever their ids and
    arguments are.

    Args:
        runs: Recorded runs, oldest first.
        least: The fewest runs of a goal that say anything.
    """
    by_goal: dict[str, list[Replayed]] = defaultdict(list)
    for run in runs:
        if run.status is Status.SUCCEEDED and not run.opening.plan.steps and run.graph.goal:
            by_goal[" ".join(run.graph.goal.split()).casefold()].append(run)
    found = (_repeated(group) for group in by_goal.values() if len(group) >= least)
    return [repeated for repeated in found if repeated is not None]


def _repeated(runs: list[Replayed]) -> RepeatedPlan | None:
    plans = [run.history.current for run in runs]
    shapes = [_shape(plan.steps) for plan in plans]
    if not shapes[0] or any(sorted(shape.values()) != sorted(shapes[0].values()) for shape in shapes):
        return None
    calls = [event for run in runs for event in run.events if type(event).__name__ == "PlannerCalled"]
    return RepeatedPlan(
        goal=runs[-1].graph.goal,
        runs=tuple(run.run_id for run in runs),
        plan=plans[-1],
        differing=_differing(plans, shapes),
        planner_calls=len(calls),
        tokens=sum(run.graph.models.tokens for run in runs),
        seconds=sum(getattr(event, "seconds", 0.0) for event in calls),
    )


def _shape(steps: Iterable[Step]) -> dict[str, str]:
    """Return for each step a text that is equal for calls of the same tool behind the same calls, whatever their ids.

    A step that does not stand after all those that it waits for comes when they have come.
    """
    shape: dict[str, str] = {}
    left = list(steps)
    ids = {step.id for step in left}
    while left:
        ready = [step for step in left if all(need in shape for need in _needs(step, ids))]
        if not ready:
            return {}
        for step in ready:
            before = sorted(shape[need] for need in _needs(step, ids))
            facts = [step.tool, step.for_each is not None, step.when is not None, before]
            shape[step.id] = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        left = [step for step in left if step.id not in shape]
    return shape


def _needs(step: Step, ids: set[str]) -> set[str]:
    from dagrun.runtime.planning.first_plan import named_in

    return named_in(step) & ids


def _differing(plans: list[Plan], shapes: list[dict[str, str]]) -> tuple[str, ...]:
    """Return the arguments whose values differ between plans of the same shape."""
    lists = [_aligned(plan, shape) for plan, shape in zip(plans, shapes, strict=True)]
    last = lists[-1]
    found = []
    for place, (step, args) in enumerate(last):
        others = [other[place][1] for other in lists[:-1]]
        names = {name for each in (args, *others) for name in each}
        found += [
            f"{step}.{name}" for name in sorted(names) if any(each.get(name) != args.get(name) for each in others)
        ]
    return tuple(found)


def _aligned(plan: Plan, shape: Mapping[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Return id and arguments of each step, with shapes in place of ids in references, in an order of shapes."""
    rows = [
        (shape[step.id], json.dumps(rename_in_value(step.args, shape), sort_keys=True), step.id) for step in plan.steps
    ]
    return [(id_, json.loads(args)) for _, args, id_ in sorted(rows)]
