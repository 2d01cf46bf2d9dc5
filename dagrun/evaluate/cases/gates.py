"""Gates: the figures that a file of cases must reach, as numbers or against a baseline; and regressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dagrun.evaluate.cases.case_file import Bound
from dagrun.evaluate.cases.figures import AMOUNTS, RATES, RISING, Figures, PassRate
from dagrun.evaluate.intervals import rate_interval
from dagrun.model.toolbox import hint


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of one line of a gate.

    Attributes:
        name: The figure.
        bound: What it must reach, or may reach at most.
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

    A rate is worse if its 95 % interval lies below that of the baseline: fewer successes alone can be chance. A case
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
