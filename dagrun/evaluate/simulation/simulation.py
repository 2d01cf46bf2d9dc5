"""The variants of a policy, and the simulated runs of a plan under each: makespans with intervals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import isfinite, prod
from typing import Any, Final

from pydantic import ValidationError

from dagrun import HedgeRule, Policy, Status
from dagrun.errors import ContractError
from dagrun.evaluate.intervals import (
    Interval,
    difference_interval,
    quantile,
    quantile_interval,
    rate_interval,
)
from dagrun.texts import hint, present_path, short_repr, shorten

MAX_VARIANTS: Final = 64

# What stands for the usual rule, where a field is varied between on and off.
_RULES: Final[Mapping[str, Any]] = {"hedge": HedgeRule()}


@dataclass(frozen=True, slots=True)
class PolicyVariant:
    """A policy, and how it differs.

    Attributes:
        policy: The policy.
        name: The variation, as ``max_running=2, hedge=on``; empty if nothing is.
        settings: The same, by field.
    """

    policy: Policy
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def policy_variants(policy: Policy, vary: Mapping[str, object]) -> Iterator[PolicyVariant]:
    """Yield the variants of *policy*, in the order of the values; *policy* itself if nothing is varied.

    Args:
        policy: The policy.
        vary: A list of values for each field that is varied, by name. A field of a field is named with a dot
            (``retry.max_attempts``). ``hedge`` also takes true, for the usual rule, and false.

    Raises:
        ContractError: There is no such field, a value does not fit, or there are too many variants.
    """
    if not vary:
        yield PolicyVariant(policy)
        return
    lists: dict[str, Sequence[Any]] = {}
    for given, values in vary.items():
        path = present_path(given)
        if isinstance(values, Sequence) and not isinstance(values, str) and values:
            lists[path] = values
        else:
            raise ContractError(f"vary {path}: a list of values is wanted, got {shorten(repr(values), 60)}")
        if (first := path.partition(".")[0]) not in Policy.model_fields:
            near = hint(first, list(Policy.model_fields))
            raise ContractError(f"vary {path}: a policy has no field {shorten(first, 60)}{near}")
    if (count := prod(map(len, lists.values()))) > MAX_VARIANTS:
        raise ContractError(f"{count} variants are over the limit of {MAX_VARIANTS}")
    for values in product(*lists.values()):
        settings = dict(zip(lists, values, strict=True))
        name = ", ".join(f"{path}={value_text(value)}" for path, value in settings.items())
        yield PolicyVariant(_varied(policy, settings, name), name, settings)


def _varied(policy: Policy, settings: Mapping[str, Any], name: str) -> Policy:
    fields = policy.model_dump(exclude_unset=True)
    for path, value in settings.items():
        *outer, last = path.split(".")
        _inside(fields, outer)[last] = _rule(path, value)
    try:
        return Policy.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ContractError(f"vary {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _inside(fields: dict[str, Any], outer: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the field that *outer* leads to, made where there are none."""
    for part in outer:
        inner = fields.get(part)
        fields[part] = fields = dict(inner) if isinstance(inner, Mapping) else {}
    return fields


def _rule(path: str, value: Any) -> Any:
    if path not in _RULES or not isinstance(value, bool):
        return value
    return _RULES[path].model_dump() if value else None


def value_text(value: Any) -> str:
    """Return a value as it stands in the name of a variant."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


SHOWN_QUANTILES: Final = (0.5, 0.95, 0.99)


@dataclass
class Variant:
    """The simulated runs of a plan under one policy.

    Attributes:
        name: The variation, as ``max_running=2, hedge=on``; empty if nothing is.
        settings: The same, by name.
        makespans: The duration of each run, in seconds, by its number.
        statuses: How many runs ended with each status.
        calls: The calls of tools in all runs, second calls (hedges) included.
        cost: The cost of all calls; `None` if no costs were given.
        critical: In how many runs each step was on the critical path as it went.
    """

    __repr__ = short_repr

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    makespans: list[float] = field(default_factory=list)
    statuses: Counter[Status] = field(default_factory=Counter)
    calls: int = 0
    cost: float | None = None
    critical: Counter[str] = field(default_factory=Counter)

    @property
    def runs(self) -> int:
        """How many runs were simulated."""
        return len(self.makespans)

    @property
    def success(self) -> float:
        """The part of the runs that succeeded."""
        return self.statuses[Status.SUCCEEDED] / self.runs

    @property
    def success_interval(self) -> Interval:
        """The 95 % interval of `success`."""
        return rate_interval(self.statuses[Status.SUCCEEDED], self.runs)

    @cached_property
    def ordered(self) -> list[float]:
        """The makespans in ascending order."""
        return sorted(self.makespans)

    def quantile(self, q: float) -> float:
        """Return the makespan, in seconds, that the part *q* of the runs did not exceed."""
        return quantile(self.ordered, q)

    def interval(self, q: float) -> Interval:
        """Return the 95 % interval of a quantile of the makespan, in seconds; infinite where too few runs bound it."""
        return quantile_interval(self.ordered, q)

    def slower_than(self, other: Variant, q: float) -> Interval:
        """Return the 95 % interval of the quantile *q* in seconds minus the quantile of *other*.

        Both have met the same luck, run by run, so the interval is far narrower than those of the two quantiles.
        """
        return difference_interval(other.makespans, self.makespans, q)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON; times are in seconds, and an end that nothing bounds is null."""
        return {
            "name": self.name,
            "settings": dict(self.settings),
            "runs": self.runs,
            "makespan": {
                f"p{q * 100:g}": {"value": self.quantile(q), "interval": _ends(self.interval(q))}
                for q in SHOWN_QUANTILES
            },
            "success": {"value": self.success, "interval": list(self.success_interval)},
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
            "calls_per_run": self.calls / self.runs,
            "cost_per_run": None if self.cost is None else self.cost / self.runs,
            "critical": {step: count / self.runs for step, count in self.critical.most_common()},
        }


@dataclass(frozen=True)
class Simulation:
    """The simulated runs of a plan.

    Attributes:
        steps: The steps of the plan.
        runs: The runs of each variant.
        seed: The seed of all draws.
        variants: The variants; the first is what the others are compared with.
        durations: How long the calls of each tool were taken to last, in words; by the name of a tool or a step.
        failures: How often calls were taken to fail, and with what, in words; by the name of a tool or a step. What is
            not in it never fails.
        notes: The assumptions, a sentence each.
    """

    __repr__ = short_repr

    steps: int
    runs: int
    seed: int
    variants: tuple[Variant, ...]
    durations: Mapping[str, str]
    failures: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything but the single makespans as plain JSON; times are in seconds."""
        first = self.variants[0]
        return {
            "steps": self.steps,
            "runs": self.runs,
            "seed": self.seed,
            "durations": dict(self.durations),
            "failures": dict(self.failures),
            "notes": list(self.notes),
            "variants": [
                variant.as_dict()
                | (
                    {}
                    if variant is first
                    else {
                        "slower_than_first": {
                            f"p{q * 100:g}": _ends(variant.slower_than(first, q)) for q in SHOWN_QUANTILES
                        }
                    }
                )
                for variant in self.variants
            ],
        }


def _ends(interval: Interval) -> list[float | None]:
    """Return the ends of an interval for JSON: `None` for one that is not bounded."""
    return [end if isfinite(end) else None for end in interval]
