"""`simulate`: many runs of a plan on a virtual clock, by the real engine, with tools that only take time.

1. Each run has an engine of its own, which knows the tools as one that has made their calls for a while. So runs are
   independent: no limit of a provider, no kept result and no learned duration passes from one to the next.
2. Variants are carried out one after another, each with the same runs: same seed, same luck (`simulated_plan.py`).
3. What simulated runs log about failures is dropped; what other runs of the process log at that time is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

import anyio

from dagrun import Asked, CheckedPlan, Engine, Policy, Question, RunResult, Simulation, Status, Variant, check
from dagrun.errors import ContractError
from dagrun.evaluate.simulation.call_models import (
    DurationModel,
    FailureModel,
    read_duration,
    read_durations,
    read_failures,
)
from dagrun.evaluate.simulation.simulated_plan import RandomSource, World, simulated
from dagrun.evaluate.simulation.simulation import policy_variants
from dagrun.extend import AnyPlan, AnyTool, CheckedStep, Durations, Inputs, Tools, run_on_own_loop
from dagrun.testing import VirtualClockLoop

DEFAULT_RUNS: Final = 1_000
DEFAULT_ITEMS: Final = 3

_KNOWN_CALLS: Final = 200  # of each tool, as an engine that has worked for a while knows
_FEW_CALLS: Final = 30  # of a tool: what is learned of fewer says little about its tail
_LOGGERS: Final = ("dagrun.run", "dagrun.tool")
_IS_SIMULATED: Final[ContextVar[bool]] = ContextVar("dagrun simulates", default=False)


def simulate(
    plan: AnyPlan,
    tools: Tools | None = None,
    *,
    policy: Policy | None = None,
    inputs: Inputs | None = None,
    runs: int = DEFAULT_RUNS,
    seed: int = 0,
    durations: Mapping[str, float | str] | None = None,
    learned: Durations | None = None,
    failures: Mapping[str, float | str] | None = None,
    learned_failures: Mapping[str, FailureModel] | None = None,
    outputs: Mapping[str, Any] | None = None,
    items: Mapping[str, int] | None = None,
    costs: Mapping[str, float] | None = None,
    people: float | str = 0.0,
    vary: Mapping[str, Sequence[Any]] | None = None,
    on_variant: Callable[[Variant], object] | None = None,
) -> Simulation:
    """Simulate runs of a plan: the real engine carries it out on a virtual clock, and no tool is called.

    Everything that the policy says counts: limits, retries, fallbacks, hedges, time limits, ceilings, questions to
    people. Variants meet the same luck, call by call, so that small differences show. The durations of calls are
    independent of each other and of the load, and what steps return is made up, so a condition counts only if the
    *outputs* that it looks at are given. There is no planner: a step that has failed for good is not replanned.

    Args:
        plan: As for `check`.
        tools: As for `check`.
        policy: The limits of the runs.
        inputs: The values of ``${input…}``.
        runs: How many runs to simulate, of each variant.
        seed: The same seed gives the same figures.
        durations: How long calls take, by the name of a tool or the id of a step: seconds, ``uniform(LOW, HIGH)``,
            ``exp(MEAN)`` or ``lognorm(MEDIAN, SIGMA)``.
        learned: The durations of real calls, as `Engine.durations` has them, for tools without another duration. A step
            of a tool that is in neither counts with its ``estimate``.
        failures: The part of the calls that fail, and with what, by the name of a tool or the id of a step: ``0.02`` or
            ``"0.02:timeout"``; see `FailureModel`.
        learned_failures: How real calls fail, as `dagrun.failure_rates` returns it, for tools without another rule; if
            left out, such calls never fail.
        outputs: What steps return, by id; for a for_each, what each call returns.
        items: How long a list in the output of a step is that a for_each goes through, by the id of the step that
            returns it; 3 if nothing is said.
        costs: What a call costs, by the name of a tool or the id of a step.
        people: How long people take to say yes, as in *durations*.
        vary: Fields of the policy and the values that each takes in turn; every combination is a variant. A field of a
            field is named with a dot (``retry.max_attempts``), and ``hedge`` also takes true for the usual rule.
        on_variant: Is called with each variant when its runs have ended.

    Raises:
        PlanRefused: The plan has problems.
        ContractError: It is not known how long a tool takes, or an argument makes no sense.
    """
    if runs < 1:
        raise ContractError(f"runs is at least 1, got {runs}")
    checked = check(plan, tools, policy=policy, inputs=inputs)
    world = World(
        durations=read_durations(durations or {}),
        failures=read_failures(failures or {}),
        outputs=outputs or {},
        items=items or {},
        costs=costs or {},
        learned=learned if learned is not None else Durations(),
        learned_failures=learned_failures or {},
    )
    world.must_fit(checked)
    rehearsal = _SimulatedRuns(world, RandomSource(seed), read_duration(people), inputs or {}, runs)
    variants = []
    for varied in policy_variants(checked.policy, vary or {}):
        under = checked if varied.policy is checked.policy else _under(checked, varied.policy, inputs)
        variants.append(Variant(varied.name, varied.settings, cost=0.0 if world.costs else None))
        rehearsal.play(under, variants[-1])
        if on_variant is not None:
            on_variant(variants[-1])
    return Simulation(
        steps=len(checked.steps),
        runs=runs,
        seed=seed,
        variants=tuple(variants),
        durations=_durations_in_words(checked, world),
        failures={name: words for name, words in _failures_in_words(checked, world).items() if words},
        notes=tuple(_notes(checked, world, variants)),
    )


def _under(checked: CheckedPlan, policy: Policy, inputs: Inputs | None) -> CheckedPlan:
    """Return the checked plan, checked again under another policy."""
    return check(
        checked.plan,
        checked.toolbox,
        policy=policy,
        inputs=inputs,
        executors=checked.executors,
        secrets=checked.secrets,
        deps=checked.deps,
    )


# Runs ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SimulatedRuns:
    """Carries out the simulated runs of variants.

    Attributes:
        world: What the tools do.
        luck: Draws for all of them.
        people: How long people take to answer.
        inputs: The inputs of each run.
        runs: The runs of a variant.
    """

    world: World
    luck: RandomSource
    people: DurationModel
    inputs: Inputs
    runs: int

    def play(self, plan: CheckedPlan, variant: Variant) -> None:
        """Carry out all runs of *plan*, and add their figures to *variant*."""
        stand_ins = simulated(plan, self.world, self.luck, DEFAULT_ITEMS)
        known = _known(plan, self.world)

        async def main() -> None:
            _IS_SIMULATED.set(True)
            for number in range(self.runs):
                self.luck.begin(number)
                learned = Durations()
                learned.merge(known)
                async with Engine(durations=learned) as engine:
                    result = await engine.run(
                        stand_ins, inputs=self.inputs, seed=self.luck.seed_of_run, approver=self._agree
                    )
                _note(result, plan, variant)

        with _quiet():
            run_on_own_loop(main, "asyncio", {"loop_factory": VirtualClockLoop})

    async def _agree(self, question: Question) -> bool | None:
        if question.kind not in (Asked.APPROVAL, Asked.PAUSE, Asked.OUTPUT):
            return None
        u, _ = self.luck.draw(f"person/{question.kind}/{question.step}")
        await anyio.sleep(self.people.inverse(u))
        return True


@contextmanager
def _quiet() -> Iterator[None]:
    """Drop the log messages of simulated runs; other threads and tasks of the process log as before."""

    def is_real(record: logging.LogRecord) -> bool:
        return not _IS_SIMULATED.get()

    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(is_real)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_real)


def _tools(plan: CheckedPlan) -> Iterator[tuple[CheckedStep, AnyTool]]:
    """Yield each step with its tool, and with its fallback, if it has one."""
    for step in plan.steps.values():
        yield step, step.tool
        if step.fallback is not None:
            yield step, step.fallback


def _known(plan: CheckedPlan, world: World) -> Durations:
    """Return the durations that an engine would know after many calls of the tools."""
    models: dict[str, dict[str, DurationModel]] = {}
    for step, tool in _tools(plan):
        if (model := world.duration_of(step, tool)) is not None:
            models.setdefault(tool.name, {})[model.text] = model
    known = Durations()
    for name, of_tool in models.items():
        calls = max(1, _KNOWN_CALLS // len(of_tool))
        for model in of_tool.values():
            for i in range(calls):
                known.add(name, model.inverse((i + 0.5) / calls))
    return known


def _note(result: RunResult, plan: CheckedPlan, variant: Variant) -> None:
    """Add the figures of a run to *variant*."""
    variant.makespans.append(result.makespan)
    variant.statuses[result.status] += 1
    times: dict[str, tuple[float, float]] = {}  # when each step began and ended, all its elements taken together
    for step in result.steps.values():
        variant.calls += sum(1 if attempt.hedge is None else 2 for attempt in step.attempts)
        if step.attempts:
            own, _, _ = step.id.partition("[")
            first, last = step.attempts[0].started, max(attempt.ended or 0.0 for attempt in step.attempts)
            known = times.get(own)
            times[own] = (first, last) if known is None else (min(first, known[0]), max(last, known[1]))
    if variant.cost is not None:
        variant.cost += result.used.known_cost
    variant.critical.update(_path(times, plan))


def _path(times: Mapping[str, tuple[float, float]], plan: CheckedPlan) -> list[str]:
    """Return the steps of the critical path as it happened: back from the last end, over each last dependency."""
    path = []
    at = max(times, key=lambda id_: times[id_][1], default=None)
    while at is not None:
        path.append(at)
        before = [id_ for id_ in plan.steps[at].depends_on if id_ in times]
        at = max(before, key=lambda id_: times[id_][1], default=None)
    return path


# Words ---------------------------------------------------------------------------------------------------------------


def _durations_in_words(plan: CheckedPlan, world: World) -> dict[str, str]:
    found: dict[str, str] = {}
    for step, tool in _tools(plan):
        if (model := world.duration_of(step, tool)) is not None:
            is_of_tool = step.step.id not in world.durations and (tool.name in world.durations or model.calls > 0)
            found[tool.name if is_of_tool else step.step.id] = model.text
    return found


def _failures_in_words(plan: CheckedPlan, world: World) -> dict[str, str]:
    """Return the failure rates in words, by tool or by step; an empty text where nothing is known."""
    found: dict[str, str] = {}
    for step, tool in _tools(plan):
        model = world.failure_of(step, tool)
        name = step.step.id if step.step.id in world.failures else tool.name
        found[name] = "" if model is None else str(model)
    return found


def _notes(plan: CheckedPlan, world: World, variants: Sequence[Variant]) -> Iterator[str]:
    yield "calls last as long as they would alone: whatever the load is, and however long others last"
    yield "dagrun itself, the journal and the network between them take no time"
    tools = {tool.name: tool for _, tool in _tools(plan)}
    few = {
        name: count
        for _, tool in _tools(plan)
        if 0 < (count := world.learned.count(name := tool.name)) < _FEW_CALLS and name not in world.durations
    }
    if few:
        listed = ", ".join(f"{name} ({count})" for name, count in few.items())
        yield f"few calls were recorded of {listed}: their tail is not known"
    if not (world.failures or world.learned_failures):
        yield "no call fails, as no failure rate is given"
    elif never := [name for name, words in _failures_in_words(plan, world).items() if not words]:
        yield f"calls of {', '.join(never)} never fail, as nothing says how often"
    if held := _held_conditions(plan, world):
        yield f"conditions that are taken to hold, as the outputs they look at are not given: {', '.join(held)}"
    if any(step.asks or step.step.pause for step in plan.steps.values()):
        yield "people say yes to everything"
    if batched := [name for name, tool in tools.items() if tool.batch is not None]:
        yield f"each call is made by itself, of {', '.join(batched)}, too, which takes several as one"
    if streamed := [id_ for id_, step in plan.steps.items() if step.stream]:
        yield f"tools that read a stream wait for the whole list: {', '.join(streamed)}"
    if any(tool.executor != "coroutine" for tool in tools.values()):
        yield "there is a thread or a process for each call that wants one"
    if any(variant.statuses.total() != variant.statuses[Status.SUCCEEDED] for variant in variants):
        yield "no planner is asked: a step that has failed for good is not replanned"
        yield "runs that did not succeed count in the times, too"


def _held_conditions(plan: CheckedPlan, world: World) -> list[str]:
    """Return the ids of the steps with a condition that does not count."""
    given = {"input", *world.outputs}
    found = [
        step.step.id
        for step in plan.steps.values()
        for condition in (step.step.when, step.step.success)
        if condition is not None and any(leaf.reference.step not in given for leaf in condition.leaves())
    ]
    return list(dict.fromkeys(found))
