"""The figures of trials with their intervals, the gates that they must reach, and regressions against a baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Final

from dagrun import State
from dagrun.evaluate.cases.case_file import Bound, Case
from dagrun.evaluate.cases.trial import CaseRun
from dagrun.evaluate.intervals import Interval, quantile, rate_interval
from dagrun.events import AttemptEnded
from dagrun.texts import hint


@dataclass(frozen=True, slots=True)
class PassRate:
    """A rate that was seen.

    Attributes:
        successes: How often.
        of: Of how many.
    """

    successes: int
    of: int

    @property
    def value(self) -> float | None:
        """The rate; `None` if there was nothing to see."""
        return self.successes / self.of if self.of else None

    @property
    def interval(self) -> Interval:
        """The 95 % interval of the rate (Wilson)."""
        return rate_interval(self.successes, self.of)

    def as_dict(self) -> dict[str, Any]:
        """Return the rate as plain JSON."""
        return {"successes": self.successes, "of": self.of, "rate": self.value, "interval": list(self.interval)}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a file of cases.

    Attributes:
        rates: Higher is better. ``task_success``: trials as expected; ``tool_success``: calls that succeeded;
            ``recovery_success``: trials with trouble on the way that ended as expected, of those with trouble;
            ``escalation_precision`` and ``escalation_recall``: of cases that say whether a person is needed.
        amounts: Lower is better, but for ``escalation_f1``. Steps, calls, patches and tokens in the mean of all
            trials; cost of all trials for each that succeeded; median and 95th percentile of the seconds. `None` for
            what is not known.
    """

    rates: dict[str, PassRate]
    amounts: dict[str, float | None]

    def value(self, name: str) -> float | None:
        """Return a figure by its name; `None` if it is not known."""
        return self.rates[name].value if name in self.rates else self.amounts[name]

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        return {"rates": {name: rate.as_dict() for name, rate in self.rates.items()}, "amounts": self.amounts}


RATES: Final = ("task_success", "tool_success", "recovery_success", "escalation_precision", "escalation_recall")
AMOUNTS: Final = (
    "escalation_f1",
    "mean_steps",
    "mean_calls",
    "mean_patches",
    "mean_tokens",
    "cost_per_success",
    "p50_seconds",
    "p95_seconds",
)
RISING: Final = frozenset((*RATES, "escalation_f1"))  # higher is better


def figures_of(trials: Sequence[tuple[Case, CaseRun]]) -> Figures:
    """Return the figures of trials, each with its case."""
    found = [trial for _, trial in trials]
    passed = sum(trial.passed for trial in found)
    troubled = [trial for trial in found if trial.had_trouble]
    attempts = list(_attempts(found))
    right, wrong, missed = _escalations(trials)
    seconds = sorted(trial.seconds for trial in found)
    return Figures(
        {
            "task_success": PassRate(passed, len(found)),
            "tool_success": PassRate(sum(attempts), len(attempts)),
            "recovery_success": PassRate(sum(trial.passed for trial in troubled), len(troubled)),
            "escalation_precision": PassRate(right, right + wrong),
            "escalation_recall": PassRate(right, right + missed),
        },
        {
            "escalation_f1": 2 * right / (2 * right + wrong + missed) if right + wrong + missed else None,
            "mean_steps": _mean(trial.steps for trial in found),
            "mean_calls": _mean(len(trial.world.calls) for trial in found),
            "mean_patches": _mean(trial.patches for trial in found),
            "mean_tokens": _mean(0 if trial.result is None else trial.result.tokens for trial in found),
            "cost_per_success": _cost(found, passed),
            "p50_seconds": quantile(seconds, 0.5) if seconds else None,
            "p95_seconds": quantile(seconds, 0.95) if seconds else None,
        },
    )


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return mean(known) if known else None


def _cost(trials: Sequence[CaseRun], passed: int) -> float | None:
    """Return the cost of all trials for each that succeeded; `None` if a part of it is not known."""
    costs = [0.0 if trial.result is None else trial.result.cost for trial in trials]
    known = [cost for cost in costs if cost is not None]
    return sum(known) / passed if passed and len(known) == len(costs) else None


def _attempts(trials: Iterable[CaseRun]) -> Iterator[bool]:
    """Yield for each attempt whether it succeeded."""
    for trial in trials:
        for event in trial.events:
            if isinstance(event, AttemptEnded):
                yield event.outcome.state is State.SUCCEEDED


def _escalations(trials: Iterable[tuple[Case, CaseRun]]) -> tuple[int, int, int]:
    """Return how often a person was needed and should have been, was and should not have been, should and was not."""
    right = wrong = missed = 0
    for case, trial in trials:
        wanted = case.expect.escalates
        if wanted is None:
            continue
        right += wanted and trial.escalates
        wrong += trial.escalates and not wanted
        missed += wanted and not trial.escalates
    return right, wrong, missed


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of one line of a gate.

    Attributes:
        name: The figure.
        bound: The least value, or the largest allowed.
        value: The figure; `None` if it is not known.
        limit: The bound as a number; `None` if there is nothing to compare with.
        holds: Whether the gate lets the file through; also where nothing is known, but not without any success to pay.
        reason: Why nothing could be compared; empty if it could.
    """

    name: str
    bound: Bound
    value: float | None
    limit: float | None
    holds: bool
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"gate {self.name} {self.bound}: {'not judged' if self.holds else 'FAILED'}, {self.reason}"
        sign = ">=" if self.name in RISING else "<="
        return (
            f"gate {self.name} {sign} {self.limit:.4g}: {'holds' if self.holds else 'FAILED'}, it is {self.value:.4g}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        facts = {"figure": self.name, "bound": self.bound, "value": self.value, "limit": self.limit}
        return {**facts, "holds": self.holds, "reason": self.reason}


def unknown_figures(gate: Mapping[str, Bound]) -> Iterator[str]:
    """Yield the faults of a gate: names that are no figures."""
    known = (*RATES, *AMOUNTS)
    yield from (f"gate.{name}: there is no such figure{hint(name, known)}" for name in gate if name not in known)


def judge_gate(name: str, bound: Bound, figures: Figures, baseline: Mapping[str, Any] | None) -> GateResult:
    """Hold a figure against its bound.

    Args:
        name: The figure.
        bound: A number; or a change against the baseline, such as ``+10%``.
        figures: The figures.
        baseline: The same file in the baseline; `None` if there is none.
    """
    value, success = figures.value(name), figures.rates["task_success"]
    if value is None and name == "cost_per_success" and success.of and not success.successes:
        return GateResult(name, bound, None, None, False, "no trial has passed")
    if value is None:
        return GateResult(name, bound, None, None, True, "no trial has such a figure")
    limit = bound if isinstance(bound, float | int) else _relative(name, bound, baseline)
    if limit is None:
        return GateResult(name, bound, value, None, True, "there is no baseline for it (--baseline)")
    slack = 1e-9 * abs(limit)
    holds = value >= limit - slack if name in RISING else value <= limit + slack
    return GateResult(name, bound, value, float(limit), holds)


def _relative(name: str, bound: str, baseline: Mapping[str, Any] | None) -> float | None:
    before = None if baseline is None else _before(name, baseline)
    return None if before is None else before * (1 + float(bound.removesuffix("%")) / 100)


def _before(name: str, baseline: Mapping[str, Any]) -> float | None:
    figures = baseline.get("figures", {})
    found = (
        figures.get("rates", {}).get(name, {}).get("rate") if name in RATES else figures.get("amounts", {}).get(name)
    )
    return float(found) if isinstance(found, int | float) else None


def regressions(figures: Figures, cases: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]) -> list[str]:
    """Return where figures and cases are worse than in the baseline, a line each.

    A rate is worse if its 95 % interval lies below the baseline's: fewer successes alone can be chance. A case
    on a virtual clock leaves nothing to chance: it is worse if it passed whole, and does not now.
    """
    return [*_worse_rates(figures, baseline), *_worse_cases(cases, baseline.get("cases", {}))]


def _worse_rates(figures: Figures, baseline: Mapping[str, Any]) -> Iterator[str]:
    for name, rate in figures.rates.items():
        before = baseline.get("figures", {}).get("rates", {}).get(name, {})
        of = before.get("of", 0)
        if rate.of and of and rate.interval[1] < rate_interval(before["successes"], of)[0]:
            yield f"{name} was {_shown(PassRate(before['successes'], of))}, and is {_shown(rate)}"


def _shown(rate: PassRate) -> str:
    low, high = rate.interval
    return f"{rate.successes}/{rate.of} ({low:.0%} to {high:.0%})"


def _worse_cases(cases: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]) -> Iterator[str]:
    for case in cases:
        before = baseline.get(case["id"], {"clock": "none"})
        is_exact = case["clock"] == before["clock"] == "virtual"
        if is_exact and before["passed"] == before["runs"] and case["passed"] < case["runs"]:
            yield f"case {case['id']} passed in the baseline, and does not now"


def new_failing_cases(cases: Sequence[Mapping[str, Any]], baseline: Mapping[str, Any]) -> list[str]:
    """Return which cases are not in the baseline and do not pass whole, a line each: nothing else would judge them."""
    known = baseline.get("cases", {})
    new = [case for case in cases if case["id"] not in known]
    return [f"case {case['id']} is new, and does not pass" for case in new if case["passed"] < case["runs"]]
