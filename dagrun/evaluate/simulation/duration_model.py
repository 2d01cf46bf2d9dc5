"""How long calls take in a simulation: distributions that people name, or that a journal has learned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, inf, log
from statistics import NormalDist
from typing import Final, TypeAlias

from dagrun.decide.durations import Durations
from dagrun.errors import ContractError, shorten

# Takes a number between 0 and 1, both excluded, and gives the seconds that this part of the calls does not exceed.
Inverse: TypeAlias = Callable[[float], float]

_MOST: Final = 1e9  # seconds, some thirty years
FORMS: Final = "seconds (0.3), uniform(LOW, HIGH), exp(MEAN), or lognorm(MEDIAN, SIGMA)"

_NORMAL: Final = NormalDist()
_CALL: Final = re.compile(r"([a-z]+)\(\s*([^(),]+?)\s*(?:,\s*([^(),]+?)\s*)?\)")


@dataclass(frozen=True, slots=True)
class DurationModel:
    """How long the calls of a tool take.

    Attributes:
        text: The distribution, in words.
        inverse: The inverse of its distribution function.
        calls: The calls of which it was learned; 0 if somebody has named it.
    """

    text: str
    inverse: Inverse
    calls: int = 0

    def __repr__(self) -> str:
        return f"<DurationModel {self.text}>"


def read_duration(given: object) -> DurationModel:
    """Read a duration: a number of seconds, or a text that names a distribution.

    Args:
        given: Seconds, ``uniform(LOW, HIGH)``, ``exp(MEAN)``, or ``lognorm(MEDIAN, SIGMA)``, where SIGMA is the
            standard deviation of the logarithm.

    Raises:
        ContractError: It is none of these, or a figure makes no sense.
    """
    if isinstance(given, DurationModel):
        return given
    text = str(given).strip()
    matched = _CALL.fullmatch(text)
    kind, first, second = matched.groups() if matched is not None else ("constant", text, None)
    try:
        figures = [float(part) for part in (first, second) if part is not None]
    except ValueError:
        figures = []
    inverse = _inverse(kind, figures) if figures and all(0 <= figure < inf for figure in figures) else None
    if inverse is None:
        raise ContractError(f"a duration is {FORMS}, not {shorten(text, 60)!r}")
    if not _is_bounded(inverse):
        raise ContractError(f"{shorten(text, 60)} can take more than {_MOST:,.0f} s")
    return DurationModel(text if matched is not None else f"{figures[0]:g} s", inverse)


def _is_bounded(inverse: Inverse) -> bool:
    """Whether all but a draw in a million times a million is below the bound."""
    try:
        return inverse(1 - 1e-12) <= _MOST
    except OverflowError:
        return False


def _inverse(kind: str, figures: list[float]) -> Inverse | None:
    match kind, figures:
        case "constant", [seconds]:
            return lambda u: seconds
        case "uniform", [low, high] if low <= high:
            return lambda u: low + u * (high - low)
        case "exp", [mean]:
            return lambda u: -mean * log(1 - u)
        case "lognorm", [median, sigma]:
            return lambda u: median * exp(sigma * _NORMAL.inv_cdf(u))
    return None


def learned_duration(durations: Durations, tool: str) -> DurationModel | None:
    """Return the learned durations of a tool; `None` if no call was seen."""
    count = durations.count(tool)
    if not count:
        return None
    return DurationModel(
        f"learned from {count} call{'s' * (count != 1)}", lambda u: durations.sample(tool, u) or 0.0, count
    )


def read_durations(given: Mapping[str, object]) -> dict[str, DurationModel]:
    """Read durations by the name of a tool, or the id of a step.

    Raises:
        ContractError: One cannot be read; the error names it.
    """
    read = {}
    for name, text in given.items():
        try:
            read[name] = read_duration(text)
        except ContractError as error:
            raise ContractError(f"{name}: {error}") from None
    return read
