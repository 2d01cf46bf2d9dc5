"""`VariantComparison`: results per variant, and statistical differences per pair of variants."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from statistics import mean, median
from typing import Any, Final

from dagrun.evaluate.cases.figures import PassRate
from dagrun.evaluate.comparison.differences import AMOUNTS, SHARES, Pair, PairwiseResult, Sample, difference_of, verdict
from dagrun.evaluate.intervals import CONFIDENCE
from dagrun.extend import ModelUse
from dagrun.texts import listing

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class VariantFigures:
    """The figures of a variant.

    Attributes:
        runs: Its runs.
        shares: Runs that succeeded, and runs with idle calls and with an early stop.
        seconds: The median time of the runs that succeeded; `None` if none did.
        means: Tokens, planner calls, tool calls, idle calls, in the mean of all runs.
        cost_per_success: The cost of all runs for each that succeeded; `None` if it is not known, or none did.
        has_cost: Whether the cost of all runs is known.
    """

    runs: int
    shares: Mapping[str, PassRate]
    seconds: float | None
    means: Mapping[str, float]
    cost_per_success: float | None
    has_cost: bool

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON."""
        shares = {
            name: {"runs": share.successes, "rate": share.value, "interval": list(share.interval)}
            for name, share in self.shares.items()
        }
        return {
            "runs": self.runs,
            **shares,
            "success": self.shares["success"].as_dict(),
            "median_seconds": self.seconds,
            "cost_per_success": self.cost_per_success,
            **{f"mean_{name}": value for name, value in self.means.items()},
        }


@dataclass(slots=True, repr=False)
class VariantComparison:
    """Runs of common cases with several variants.

    Attributes:
        variants: The names of the variants.
        cases: The names of the cases.
        runs: How often each case was to be carried out by each variant.
        is_virtual: Whether all runs were on a virtual clock.
        samples: The runs, in the order in which they were made; of a case and a seed by each variant in turn.
        unpaired: Runs of a case and a seed that some variants have not made, because the comparison was stopped.
        stopped: Why the comparison ended before all runs were made; empty if it did not.
        left_out: The cases that begin with a plan, and so cannot be compared.
        judges: What the judges of answers have used; it is no figure of a variant.
    """

    variants: tuple[str, ...]
    cases: tuple[str, ...]
    runs: int
    is_virtual: bool = True
    samples: list[Sample] = field(default_factory=list)
    unpaired: list[Sample] = field(default_factory=list)
    stopped: str = ""
    left_out: tuple[str, ...] = ()
    judges: ModelUse = field(default_factory=ModelUse)

    @property
    def ways(self) -> tuple[str, ...]:
        """The variants, by the name of release 0.2."""
        warnings.warn("comparison.ways is now variants; ways is removed in 0.4", DeprecationWarning, stacklevel=2)
        return self.variants

    @property
    def confidence(self) -> float:
        """The confidence of each interval between two variants; together, those of one figure hold at 95 %."""
        pairs = len(self.variants) * (len(self.variants) - 1) // 2
        return 1 - (1 - CONFIDENCE) / max(1, pairs)

    @property
    def done(self) -> int:
        """How many runs each variant has, all cases together."""
        return len(self.samples) // len(self.variants)

    def of(self, variant: str, /, case: str | None = None) -> list[Sample]:
        """Return the runs of a variant, of all cases or of one."""
        return [run for run in self.samples if run.variant == variant and case in (None, run.case)]

    def pairs(self, first: str, second: str, case: str | None = None) -> list[Pair]:
        """Return the runs of two variants that share case and seed."""
        return list(zip(self.of(first, case), self.of(second, case), strict=True))

    def figures(self, variant: str, /) -> VariantFigures:
        """Return the figures of a variant."""
        runs = self.of(variant)
        passed = [run for run in runs if run.passed]
        costs = [run.cost for run in runs]
        known = [cost for cost in costs if cost is not None]
        has_cost = len(known) == len(costs)
        names = ("tokens", "planner_calls", "calls", "idle")
        return VariantFigures(
            len(runs),
            {name: PassRate(sum(map(holds, runs)), len(runs)) for name, holds in SHARES.items()},
            median(run.seconds for run in passed) if passed else None,
            {name: mean(getattr(run, name) for run in runs) if runs else 0.0 for name in names},
            sum(known) / len(passed) if has_cost and passed else None,
            has_cost,
        )

    def versus(self) -> Iterator[PairwiseResult]:
        """Yield the differences of each pair of variants, all cases together."""
        cases = max(1, len(self.cases))
        for first, second in combinations(self.variants, 2):
            pairs = self.pairs(first, second)
            told = {name: difference_of(pairs, name, self.confidence, cases) for name in (*SHARES, *AMOUNTS)}
            yield PairwiseResult(first, second, len(pairs), told)

    @property
    def verdicts(self) -> list[str]:
        """The verdict on each pair of variants, in one or two sentences each."""
        return list(map(verdict, self.versus()))

    def __repr__(self) -> str:
        title = f"VariantComparison of {len(self.variants)} variants, {self.done} runs each"
        return f"<{listing(title, self.verdicts)}>"

    def as_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON, every run included."""
        figures = {variant: self.figures(variant).as_dict() for variant in self.variants}
        return {
            "schema_version": SCHEMA_VERSION,
            "status": "stopped" if self.stopped else "ok",
            "stopped": self.stopped,
            "clock": "virtual" if self.is_virtual else "real",
            "runs_of_a_case": self.runs,
            "cases": list(self.cases),
            "left_out": list(self.left_out),
            "confidence": self.confidence,
            "variants": figures,
            "ways": figures,  # its name in 0.2; removed in 0.4
            "pairs": [
                {"first": one.first, "second": one.second, "verdict": verdict(one)}
                | {name: found.as_dict() for name, found in one.differences.items()}
                for one in self.versus()
            ],
            "judges": {"tokens": self.judges.tokens, "cost": self.judges.cost},
            "samples": [run.as_dict() for run in self.samples],
            "unpaired": [run.as_dict() for run in self.unpaired],
        }
