"""Run the cases with several variants, in pairs, under common ceilings; find unused steps and early stops."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import anyio

from dagrun import Budget, Planner, RunResult, RunVariant, StaticPlanner, Status, VariantComparison
from dagrun.errors import CasesRefused, ContractError
from dagrun.evaluate.cases.case_file import CallExpectation, Case, Expectation, find_files
from dagrun.evaluate.cases.expectations import JudgeAnswer, misses_of, objection_to, unmet_by
from dagrun.evaluate.cases.load_cases import CaseHost, ReadyCase, load_cases, only_computes
from dagrun.evaluate.cases.trial import CaseRun
from dagrun.evaluate.comparison.differences import Sample
from dagrun.events import AttemptEnded, DraftEnded, ModelCharged, Spliced
from dagrun.extend import METER, BudgetMeter
from dagrun.records import leading_id, references_in
from dagrun.testing import run_virtual
from dagrun.texts import shorten

_REACHED: Final = "the ceiling of the comparison is reached"


def compare(
    paths: str | Path | Sequence[str | Path],
    variants: Mapping[str, RunVariant | Planner | Callable[[], Planner]] = MappingProxyType({}),
    *,
    runs: int = 10,
    only: Sequence[str] = (),
    max_cost: float | None = None,
    max_tokens: int | None = None,
    host: CaseHost | None = None,
    tell: Callable[[str], None] = lambda text: None,
    ways: Mapping[str, Any] | None = None,
) -> VariantComparison:
    """Carry out golden tasks with several variants; compare success, time, tokens, cost, idle calls and early stops.

    Every variant carries out every case *runs* times, in the world of the case. Runs of one case with one seed are a
    pair; variants take turns in who begins, so that a server that becomes slower is so for all. A case runs in real
    time, if one of the variants, or who judges its answers, asks a model.

    Args:
        paths: Files of golden tasks, or folders of them. Cases that begin with a plan are left out.
        variants: The variants by name, at least two: a `RunVariant`, a planner, or a function that makes a planner.
        runs: How often each variant carries out each case.
        only: The ids of the cases that are wanted; empty for all.
        max_cost: What all runs together may cost, with the judges of answers (``expect.critic``). Before each call of a
            model, its worst case is reserved.
        max_tokens: The tokens that all of these may use together; likewise.
        host: What the program around lends to the cases.
        tell: Called with a line about progress, for a display.
        ways: The name of *variants* in 0.2; it is removed in 0.4.

    Raises:
        CasesRefused: A file or a variant cannot be used; nothing was run.
        ContractError: There are fewer than two variants, *runs* is no count, or a ceiling is none.
    """
    if ways is not None:
        if variants:
            raise ContractError("compare has variants and, by its old name, ways: leave ways out")
        warnings.warn("compare: ways is now variants; ways is removed in 0.4", DeprecationWarning, stacklevel=2)
        variants = ways
    comparing = Comparing(paths, variants, runs=runs, only=only, host=host)
    comparing.carry_out(max_cost=max_cost, max_tokens=max_tokens, tell=tell)
    return comparing.comparison


class Comparing:
    """A comparison that is prepared, and can be carried out; see `compare` for the arguments.

    Attributes:
        comparison: The comparison. Results before an interruption are in it.

    Raises:
        CasesRefused: A file or a variant cannot be used.
        ContractError: There are fewer than two variants, or *runs* is no count.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        variants: Mapping[str, RunVariant | Planner | Callable[[], Planner]],
        *,
        runs: int = 10,
        only: Sequence[str] = (),
        host: CaseHost | None = None,
    ) -> None:
        if len(variants) < 2:
            raise ContractError(f"a comparison needs two variants at least, and has {len(variants)}")
        if type(runs) is not int or runs < 1:
            raise ContractError(f"compare: runs must be at least 1, got {runs!r}")
        self._variants = {
            name: variant if isinstance(variant, RunVariant) else RunVariant(planner=variant)
            for name, variant in variants.items()
        }
        given = host or CaseHost()
        if all(variant.has_own for variant in self._variants.values()):
            given = replace(given, make_planner=lambda name, model: StaticPlanner())  # no variant uses a case's
        found = list(_load(paths, given, only))
        with_goals = [_with_planner(ready, given) for ready in found if ready.case.goal is not None]
        left_out = tuple(ready.id for ready in found if ready.case.goal is None)
        if not with_goals:
            raise CasesRefused(["no case has a goal: with a plan, there is nothing to choose a variant for"])
        self._check(with_goals)
        self._check_real(with_goals)
        self._cases = list(map(self._timed, with_goals))
        self.comparison = VariantComparison(
            tuple(self._variants),
            tuple(ready.id for ready in self._cases),
            runs,
            is_virtual=all(ready.is_virtual for ready in self._cases),
            left_out=left_out,
        )

    @property
    def asking(self) -> int:
        """How many runs ask models, and so take real time, and cost something where models do."""
        asking = sum(variant.asks_models(ready) for ready in self._cases for variant in self._variants.values())
        return asking * self.comparison.runs

    @property
    def judging(self) -> int:
        """The number of runs with an answer that a model judges, which also takes time and costs something."""
        judging = sum(ready.is_judged_by_model for ready in self._cases)
        return judging * len(self._variants) * self.comparison.runs

    @property
    def touching(self) -> tuple[int, tuple[str, ...]]:
        """How many runs may call tools of the user, which their cases name as real; and which tools these are."""
        cases = [ready for ready in self._cases if ready.case.real]
        names = sorted({name for ready in cases for name in ready.case.real})
        return len(cases) * len(self._variants) * self.comparison.runs, tuple(names)

    def _check_real(self, cases: Sequence[ReadyCase]) -> None:
        changing = [(one, name) for one in cases for name in one.case.real if not one.tools[name].effect.is_free]
        if changing:
            text = "is real and changes the world, once for each run of each variant; give it a stand-in in the world"
            raise CasesRefused([f"case {ready.id}: {name} {text}" for ready, name in changing])

    def _timed(self, ready: ReadyCase) -> ReadyCase:
        """Return a case with the clock that suits all variants."""
        if ready.case.clock is not None:
            return ready
        is_real = ready.is_judged_by_model or any(variant.needs_real_time(ready) for variant in self._variants.values())
        return replace(ready, is_virtual=not is_real and only_computes(ready.case, ready.tools))

    def _check(self, cases: Sequence[ReadyCase]) -> None:
        faults = []
        for ready in cases:
            for name, variant in self._variants.items():
                try:
                    variant.check(ready)
                except CasesRefused as error:
                    faults += [f"variant {name}, case {ready.id}: {fault}" for fault in error.faults]
        if faults:
            raise CasesRefused(faults)

    def carry_out(
        self,
        *,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Make the runs; see `compare`. An interruption leaves the runs before it in the comparison."""
        has_ceiling = max_cost is not None or max_tokens is not None
        purse = _SharedBudget(Budget(max_cost=max_cost, max_tokens=max_tokens) if has_ceiling else None)
        for is_virtual in (True, False):
            cases = [ready for ready in self._cases if ready.is_virtual is is_virtual]
            if cases and not self.comparison.stopped:
                (run_virtual if is_virtual else anyio.run)(self._rounds, cases, purse, tell)

    async def _rounds(self, cases: Sequence[ReadyCase], purse: _SharedBudget, tell: Callable[[str], None]) -> None:
        """Run each case once with every variant, then again, and so on, so that any prefix is balanced."""
        comparison = self.comparison
        for number, (place, ready) in product(range(comparison.runs), enumerate(cases)):
            for name in _turned(comparison.variants, number + place):
                tell(f"{ready.id}, run {number + 1} of {comparison.runs}: {name}")
                if not await self._run(name, ready, ready.case.seed + number, purse):
                    comparison.stopped = purse.fault
                    return
            comparison.samples += sorted(comparison.unpaired, key=lambda run: comparison.variants.index(run.variant))
            comparison.unpaired.clear()

    async def _run(self, name: str, ready: ReadyCase, seed: int, purse: _SharedBudget) -> bool:
        """Carry out a case by a variant; return whether that could be paid."""
        variant, left = self._variants[name], purse.left
        if not all(left.values()):
            purse.fault = _REACHED
            return False
        refusals = purse.refusals
        trial = await variant.carry_out(ready, seed, purse.budget)
        meter = BudgetMeter(purse.budget, self.comparison.judges)
        sample = await _sample(name, variant, ready, trial, meter)
        self.comparison.unpaired.append(sample)
        if meter.refused:
            purse.fault = f"{_REACHED}; what was left of it did not suffice for the judge of an answer: {meter.refused}"
        elif purse.refusals > refusals or variant.is_cut(ready, trial, left):  # however it went on without that call
            why = f": {shorten(trial.reason, 300)}" if trial.reason else ""
            purse.fault = f"{_REACHED}; what was left of it did not suffice for a run{why}"
        elif sample.cost is None and "max_cost" in left:
            purse.fault = f"what variant {name} costs is not known, so no ceiling can hold it: name prices"
        elif not meter.is_priced and "max_cost" in left:
            who = f"the judge of case {ready.case.id}"
            purse.fault = f"what {who} costs is not known, so no ceiling can hold it: name prices"
        return not purse.fault


def _load(paths: str | Path | Sequence[str | Path], host: CaseHost, only: Sequence[str]) -> Iterator[ReadyCase]:
    named = [Path(paths)] if isinstance(paths, str | Path) else list(map(Path, paths))
    found = [ready for path in find_files(named) for ready in load_cases(path, host, only)[1]]
    if missing := set(only) - {ready.case.id for ready in found}:
        raise CasesRefused([f"there is no case {name}" for name in sorted(missing)])
    yield from found


def _with_planner(ready: ReadyCase, host: CaseHost) -> ReadyCase:
    """Return a case without a planner completed with the host's, for variants that have none."""
    if host.make_planner is None or ready.means.make_planner(ready.world()) is not None:
        return ready
    make = host.make_planner
    return replace(ready, means=replace(ready.means, make_planner=lambda world: make(None, None)))


def _turned(variants: Sequence[str], number: int) -> list[str]:
    """Return the variants in the order of a round: each begins as often as any other."""
    first = number % len(variants)
    return [*variants[first:], *variants[:first]]


@dataclass(slots=True)
class _SharedBudget:
    """The common budget of all runs.

    Attributes:
        budget: Their ceilings; `None` for none.
        fault: Why no run can be made any more; empty as long as one can.
    """

    budget: Budget | None
    fault: str = ""

    @property
    def left(self) -> dict[str, Any]:
        """The remaining budget, by names of policy fields."""
        return {} if self.budget is None else self.budget.left_for_policy()

    @property
    def refusals(self) -> int:
        """How often it has refused a call."""
        return 0 if self.budget is None else self.budget.refusals


async def _sample(name: str, variant: RunVariant, ready: ReadyCase, trial: CaseRun, meter: BudgetMeter) -> Sample:
    """Compare a run with its expectations, and measure its usage, idle calls and early stops."""
    expected = ready.case.expect
    judge = None if ready.judge is None else partial(_judged, ready.judge, meter)
    objection = await objection_to(trial, judge, expected.critic)
    misses = misses_of(expected, trial, objection)
    is_early = trial.status is Status.SUCCEEDED and bool(misses)
    if is_early:
        is_early = bool(unmet_by(what_must_be_there(expected), trial, objection))
    tokens, cost = _used(trial)
    return Sample(
        variant=name,
        case=ready.id,
        seed=trial.seed,
        passed=not misses,
        status=str(trial.status),
        seconds=trial.seconds,
        tokens=tokens,
        cost=cost,
        planner_calls=trial.planner_calls,
        calls=len(trial.world.calls),
        idle=0 if variant.agent is not None else unused_calls(ready.case, trial),
        stopped_early=is_early,
        misses=tuple(misses),
    )


async def _judged(judge: JudgeAnswer, meter: BudgetMeter, answer: Any) -> str:
    """Return the objection of a judge, whose calls of models are charged to *meter*."""
    METER.set(meter)  # it has context variables of its own
    return await judge(answer)


def _used(trial: CaseRun) -> tuple[int, float | None]:
    """Return the tokens and the cost of a run; without a result, the charges of its models."""
    if trial.result is not None:
        return trial.result.tokens, trial.result.cost
    charged = [event for event in trial.events if isinstance(event, ModelCharged)]
    costs = [event.cost for event in charged]
    known = [cost for cost in costs if cost is not None]
    return sum(event.tokens or 0 for event in charged), sum(known) if len(known) == len(costs) else None


def unused_calls(case: Case, trial: CaseRun) -> int:
    """Return how many calls succeeded in steps that nothing uses.

    A step is used if its tool has an effect; if the case expects it or its tool; if the answer, or a step that is used,
    refers to it or waits for it; or if a planner has changed the plan after it, as it may have read the output.

    Args:
        case: The case.
        trial: A run of it by a plan, which is over.
    """
    if trial.result is None:
        return 0
    used: set[str] = set()
    found = list(_used_by_themselves(case, trial, trial.result))
    while found:
        step = found.pop()
        if step not in used and step in trial.result.steps:
            found += trial.result.dependencies(step)
        used.add(step)
    return sum(call.has_returned and _outer(call.step) not in used for call in trial.world.calls)


def _used_by_themselves(case: Case, trial: CaseRun, result: RunResult) -> Iterator[str]:
    expected, steps, output = case.expect, result.plan.steps, result.plan.current.output
    wanted = {*expected.calls.must, *expected.calls.once, *expected.calls.args}
    wanted |= {tool for order in expected.calls.before for tool in order}
    wanted |= {tool.name for tool in trial.world.tools.values() if not tool.effect.is_free}
    yield from expected.steps
    yield from (_outer(call.step) for call in trial.world.calls if call.tool.name in wanted)
    yield from (id_ for id_, step in steps.items() if step.tool in wanted)  # it may not have been called
    if output is not None:
        yield from map(leading_id, references_in(output))
    else:
        yield from steps.keys() - {need for step in steps for need in result.dependencies(step)}
    yield from _before_the_last_change(trial)


def _before_the_last_change(trial: CaseRun) -> Iterator[str]:
    """Yield the steps with a call that ended before a planner changed its first plan for the last time."""
    ended: list[str] = []
    has_plan = False
    for event in trial.events:
        match event:
            case AttemptEnded():
                ended.append(_outer(event.step))
            case DraftEnded():
                has_plan = True
            case Spliced(origin="planner") if has_plan:
                yield from ended
                ended.clear()


def _outer(step: str) -> str:
    """Return the id of a step, or of the for_each that an element belongs to."""
    return step.partition("[")[0]


def what_must_be_there(expected: Expectation) -> Expectation:
    """Return the expectations that a run claiming success must meet: the answer, steps, calls.

    What must *not* be, such as too many calls, is no sign of an early stop.
    """
    wanted = {name: getattr(expected, name) for name in ("status", "critic", "steps")}
    answer = expected.model_fields_set & {"output", "contains", "output_schema"}
    calls = expected.calls
    arguments: dict[str, Any] = {tool: calls_of for tool, calls_of in calls.args.items() if isinstance(calls_of, list)}
    must = list(dict.fromkeys([*calls.must, *calls.once]))
    fields = {name: getattr(expected, name) for name in answer}
    return Expectation.model_construct(
        _fields_set=answer | wanted.keys() | {"calls"},
        **wanted,
        **fields,
        calls=CallExpectation(must=must, args=arguments),
    )
