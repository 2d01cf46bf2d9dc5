"""The figures of trials: rates with their intervals, and amounts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any, Final

from dagrun.evaluate.cases.case_file import Case
from dagrun.evaluate.cases.trial import CaseRun
from dagrun.evaluate.intervals import Interval, quantile, rate_interval
from dagrun.model.event import AttemptEnded
from dagrun.model.outcome import State


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
