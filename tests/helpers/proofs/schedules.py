"""Runs graphs of plain work, and finds needless waits and wrong choices in what happened."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

from dagrun import CheckedPlan, Event, Plan, Policy, check, run
from dagrun.events import AttemptEnded, AttemptStarted
from dagrun.testing import run_virtual
from graphs import Graph, other_work, work

BACKENDS: Final = ("asyncio", "trio")
FOR_EVER: Final = 1e6


@dataclass(slots=True)
class Schedule:
    """When everything happened, in virtual seconds.

    Attributes:
        plan: What was run.
        events: All of them.
        makespan: From the first to the last.
        started: For each step, the times at which it was started.
        ended: For each step, the times at which it ended.
    """

    plan: CheckedPlan
    events: list[Event] = field(default_factory=list)
    makespan: float = 0.0
    started: dict[str, list[float]] = field(default_factory=dict)
    ended: dict[str, list[float]] = field(default_factory=dict)


def schedule(graph: Graph | Plan, backend: str, policy: Policy | None = None, **fields: Mapping[str, Any]) -> Schedule:
    """Run *graph* on virtual time; *fields* as for `Graph.plan`."""
    plan = graph if isinstance(graph, Plan) else graph.plan(**fields)
    made = Schedule(check(plan, [work, other_work], policy=policy))

    async def main() -> float:
        with anyio.fail_after(FOR_EVER):
            result = await run(made.plan, on_event=made.events.append)
        return result.raise_for_status().makespan

    made.makespan = run_virtual(main, backend=backend)
    for event in made.events:
        if isinstance(event, AttemptStarted):
            made.started.setdefault(event.step, []).append(event.at)
        if isinstance(event, AttemptEnded):
            made.ended.setdefault(event.step, []).append(event.at)
    return made


def bad_choices(made: Schedule, priority: Mapping[str, float]) -> Iterator[str]:
    """Say where a step waited with room for it, where a limit was exceeded, and where a lesser step was preferred.

    Told from the order of the events: each start is judged by what was ready and what ran right before it.
    """
    limits = _Limits(made.plan)
    place = {id_: i for i, id_ in enumerate(made.plan.steps)}
    needs = {id_: set(step.depends_on) for id_, step in made.plan.steps.items()}
    running: list[str] = []
    for index, event in enumerate(made.events):
        ready = [id_ for id_, left in needs.items() if not left]
        if isinstance(event, AttemptStarted):
            if (full := limits.full_for(event.step, running)) is not None:
                yield f"{event.step} was started although {full} was full, at {event.at}"
            first = min(
                (id_ for id_ in ready if limits.full_for(id_, running) is None),
                key=lambda id_: (-round(priority[id_], 9), place[id_]),
                default=event.step,
            )
            if first != event.step:
                yield f"{event.step} was preferred to {first}, at {event.at}"
            needs.pop(event.step, None)
            running.append(event.step)
        elif isinstance(event, AttemptEnded):
            running.remove(event.step)
            for left in needs.values():
                left.discard(event.step)
        if index + 1 < len(made.events) and made.events[index + 1].at > event.at:
            yield from _idle(limits, [id_ for id_, left in needs.items() if not left], running, event.at)


def _idle(limits: _Limits, ready: Sequence[str], running: list[str], at: float) -> Iterator[str]:
    for id_ in ready:
        if limits.full_for(id_, running) is None:
            yield f"{id_} was ready and there was room, but it waited, at {at}"


class _Limits:
    """What may run at once, read from the policy."""

    def __init__(self, plan: CheckedPlan) -> None:
        self._plan = plan

    def full_for(self, id_: str, running: list[str]) -> str | None:
        """The limit that keeps a step back while others run; none if it may start."""
        steps, policy = self._plan.steps, self._plan.policy
        tool, pool = steps[id_].tool.name, steps[id_].pool
        most = policy.pools[pool].max_running if pool in policy.pools else None
        limits = {
            "the run": (policy.max_running, len(running)),
            f"the tool {tool}": (policy.max_running_by_tool.get(tool), self._count("tool", tool, running)),
            f"the pool {pool}": (most, self._count("pool", pool, running)),
        }
        return next((name for name, (limit, used) in limits.items() if limit is not None and used >= limit), None)

    def _count(self, what: str, name: str | None, running: list[str]) -> int:
        steps = (self._plan.steps[id_].step for id_ in running)
        return sum(1 for step in steps if getattr(step, what) == name)
