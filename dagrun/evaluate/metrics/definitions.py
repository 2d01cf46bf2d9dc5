"""The definition of each metric: its name, its unit, a sentence, and its computation from the figures of runs.

The table is the one source for the command's help, for its output, for alert rules and for Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from statistics import median
from typing import Any, Final, Generic, Literal, TypeVar

from dagrun.evaluate.intervals import quantile, quantile_interval, rate_interval
from dagrun.records import Calls, RunSummary

T = TypeVar("T")
Unit = Literal["count", "ratio", "seconds", "tokens", "cost"]

QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class Figure:
    """The value of one metric.

    Attributes:
        value: The value; `None` if the records do not say, as there is no run to measure, or a cost is unknown.
        low: The lower end of the 95 % interval of a rate or a quantile; for an unknown cost, the part of it that is
            known, so it is at least that. `None` if there is none: few values do not bound a quantile.
        high: The upper end of the interval; `None` if there is none.
        of: The number of observations that it is made of: runs, calls, questions.
        is_quantile: Whether it is a quantile, which few values do not bound.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    of: int = 0
    is_quantile: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "of": self.of}


@dataclass(frozen=True, slots=True)
class Definition(Generic[T]):
    """The definition of a metric.

    Attributes:
        name: Its name, in lower case with ``_``.
        unit: The unit of its value.
        text: Its definition in a sentence.
        measure: Makes its value of the figures of some runs, or of the calls of a tool or a provider in each.
    """

    name: str
    unit: Unit
    text: str
    measure: Callable[[Sequence[T]], Figure]


def _count(values: Iterable[int]) -> Figure:
    found = list(values)
    return Figure(float(sum(found)), of=len(found))


def _rate(parts: Iterable[tuple[int, int]]) -> Figure:
    found = list(parts)
    good, all_ = sum(part for part, _ in found), sum(whole for _, whole in found)
    if not all_:
        return Figure(None)
    low, high = rate_interval(good, all_)
    return Figure(good / all_, low, high, all_)


def _mean(values: Iterable[float]) -> Figure:
    found = list(values)
    return Figure(sum(found) / len(found) if found else None, of=len(found))


def _quantile(q: float, values: Iterable[float]) -> Figure:
    found = sorted(values)
    if not found:
        return Figure(None)
    low, high = quantile_interval(found, q)
    # Few values bound a quantile on one side alone, or on none.
    return Figure(quantile(found, q), _bound(low), _bound(high), len(found), is_quantile=True)


def _bound(value: float) -> float | None:
    return value if isfinite(value) else None


def _cost(uses: Sequence[Calls], by: int = 1) -> Figure:
    if not uses or not by:
        return Figure(None)
    known = sum(use.known_cost for use in uses) / by
    is_known = all(use.is_cost_known for use in uses)
    return Figure(known, of=len(uses)) if is_known else Figure(None, known, None, len(uses))


def _tokens(uses: Sequence[Calls], by: int = 1) -> Figure:
    return Figure(sum(use.tokens for use in uses) / by if uses and by else None, of=len(uses))


def _ended(runs: Iterable[RunSummary]) -> list[RunSummary]:
    return [run for run in runs if run.has_ended]


def _successes(runs: Iterable[RunSummary]) -> int:
    return sum(run.has_succeeded for run in runs)


def _of_time(runs: Iterable[RunSummary], part: Callable[[RunSummary], float | None]) -> list[float]:
    """Return a part of the makespan of each ended run that took any time."""
    found = ((run, part(run)) for run in _ended(runs) if run.makespan > 0)
    return [min(1.0, seconds / run.makespan) for run, seconds in found if seconds is not None]


def _overhead(run: RunSummary) -> float | None:
    return None if run.critical_path is None else max(0.0, run.makespan - run.critical_path)


def _spread(
    name: str, unit: Unit, text: str, values: Callable[[Sequence[T]], Iterable[float]]
) -> tuple[Definition[T], ...]:
    def measured(q: float) -> Callable[[Sequence[T]], Figure]:
        return lambda runs: _quantile(q, values(runs))

    part = "The {} of {}"
    words = {0.5: "median", 0.95: "95th percentile", 0.99: "99th percentile"}
    return tuple(
        Definition(f"{name}_p{q * 100:.0f}", unit, part.format(words[q], text), measured(q)) for q in QUANTILES
    )


RUN_METRICS: Final[tuple[Definition[RunSummary], ...]] = (
    Definition("runs", "count", "Runs that began in the time.", lambda runs: _count(1 for _ in runs)),
    Definition("ended_runs", "count", "Runs that have ended.", lambda runs: _count(run.has_ended for run in runs)),
    Definition(
        "task_success",
        "ratio",
        "Runs that succeeded / runs that have ended.",
        lambda runs: _rate((run.has_succeeded, 1) for run in _ended(runs)),
    ),
    Definition(
        "tool_success",
        "ratio",
        "Calls of tools that succeeded / calls that have ended; critics have the last word, and a cancelled call"
        " does not count.",
        lambda runs: _rate((calls.succeeded, calls.judged) for run in runs for calls in run.calls),
    ),
    Definition(
        "recovery_success",
        "ratio",
        "Of the ended runs in which a call failed, the planner was asked because of a failure or a surprise, or an"
        " effect was unresolved: those that succeeded anyway.",
        lambda runs: _rate((run.has_succeeded, 1) for run in _ended(runs) if run.had_trouble),
    ),
    Definition(
        "escalation_precision",
        "ratio",
        "Questions whose answer changed the run (a no, a value, a hand-over) / questions that a person has answered.",
        lambda runs: _rate((run.changed, run.answered) for run in runs),
    ),
    Definition(
        "escalation_recall",
        "ratio",
        "Such questions / such questions and all that people or the host changed without being asked (a patch, another"
        " goal, a cancelled run).",
        lambda runs: _rate((run.changed, run.changed + run.unasked) for run in runs),
    ),
    Definition(
        "critic_disagreement",
        "ratio",
        "Outputs on which critics did not agree / outputs that at least two critics have judged.",
        lambda runs: _rate((run.disagreements, run.reviews) for run in runs),
    ),
    Definition(
        "hedges_won",
        "ratio",
        "Hedged calls whose result was used / hedged calls.",
        lambda runs: _rate((calls.hedges_won, calls.hedged) for run in runs for calls in run.calls),
    ),
    Definition(
        "steps",
        "count",
        "Steps in the plan of a run at its end, on average; the elements of a for_each do not count.",
        lambda runs: _mean(run.steps for run in runs),
    ),
    Definition(
        "calls", "count", "Calls of tools in a run, on average.", lambda runs: _mean(run.attempts for run in runs)
    ),
    Definition(
        "replans",
        "count",
        "Requests to the planner to change the plan of a run, on average.",
        lambda runs: _mean(run.replans for run in runs),
    ),
    Definition(
        "refused_patches",
        "count",
        "Refused patches in a run, on average.",
        lambda runs: _mean(run.refused for run in runs),
    ),
    Definition(
        "questions",
        "count",
        "Questions to people in a run, on average.",
        lambda runs: _mean(run.questions for run in runs),
    ),
    Definition(
        "question_wait",
        "seconds",
        "The median time from a question to the answer of a person, by the time of day.",
        lambda runs: _median([wait for run in runs for wait in run.waits]),
    ),
    Definition("tokens", "tokens", "Tokens of all runs together.", lambda runs: _tokens([run.use for run in runs])),
    Definition(
        "cost",
        "cost",
        "The cost of all runs together; unknown if a part of it is, and then at least the part that is known.",
        lambda runs: _cost([run.use for run in runs]),
    ),
    Definition(
        "tokens_per_success",
        "tokens",
        "Tokens of all runs / runs that succeeded.",
        lambda runs: _tokens([run.use for run in runs], _successes(runs)),
    ),
    Definition(
        "cost_per_success",
        "cost",
        "The cost of all runs, also of those that failed / runs that succeeded.",
        lambda runs: _cost([run.use for run in runs], _successes(runs)),
    ),
    *_spread(
        "makespan",
        "seconds",
        "the time from the start to the end of a run, without the time for which it was suspended.",
        lambda runs: (run.makespan for run in _ended(runs)),
    ),
    *_spread(
        "planner_share",
        "ratio",
        "the part of the makespan in which a planner was at work.",
        lambda runs: _of_time(runs, lambda run: run.planning),
    ),
    *_spread(
        "overhead",
        "seconds",
        "makespan - critical path: the time that no chain of dependent steps explains, such as planning, waiting for"
        " people or for a free place.",
        lambda runs: (over for run in _ended(runs) if (over := _overhead(run)) is not None),
    ),
)


def _median(values: Sequence[float]) -> Figure:
    return Figure(median(values) if values else None, of=len(values))


def _seconds(calls: Sequence[Calls]) -> Iterable[float]:
    return chain.from_iterable(one.seconds for one in calls)


CALL_METRICS: Final[tuple[Definition[Calls], ...]] = (
    Definition("runs", "count", "Runs that have called it.", lambda calls: _count(1 for _ in calls)),
    Definition("calls", "count", "Calls that have ended.", lambda calls: _count(one.ended for one in calls)),
    Definition(
        "call_success",
        "ratio",
        "Calls that succeeded / calls that have ended; the record does not say it of models.",
        lambda calls: _rate((one.succeeded, one.judged) for one in calls),
    ),
    *_spread("seconds", "seconds", "the time of a call.", _seconds),
    Definition(
        "hedges_won",
        "ratio",
        "Hedged calls whose result was used / hedged calls.",
        lambda calls: _rate((one.hedges_won, one.hedged) for one in calls),
    ),
    Definition("tokens", "tokens", "Tokens of all calls together.", _tokens),
    Definition("cost", "cost", "The cost of all calls together; unknown if a part of it is.", _cost),
)

NAMES: Final = tuple(one.name for one in RUN_METRICS)
"""The names of the metrics of runs, which alert rules may use."""
