"""How long calls take in a simulation, and how they fail: as people say, or as records show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import exp, inf, log
from statistics import NormalDist
from typing import Final, TypeAlias

from dagrun import State, ToolError, metrics
from dagrun.errors import ContractError
from dagrun.evaluate.metrics.metrics import Instant
from dagrun.extend import Durations, ErrorKind, Journal
from dagrun.records import RunSummary
from dagrun.texts import shorten

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
        calls: The calls that it was learned from; 0 if somebody has named it.
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


TIMEOUT: Final = "timeout"

_ERRORS: Final[Mapping[str, Callable[[], Exception]]] = {
    TIMEOUT: lambda: TimeoutError("simulated"),
    "connection": lambda: ConnectionError("simulated"),
    "busy": lambda: ToolError("simulated", retryable=True),
    "refused": lambda: ToolError("simulated"),
    "bug": lambda: RuntimeError("simulated"),
}

KINDS: Final = ", ".join(_ERRORS)

# How a recorded failure is played; any other is busy if the same call may succeed later, else refused.
_PLAYED: Final[Mapping[str, str]] = {
    ErrorKind.TIMEOUT: TIMEOUT,
    State.TIMED_OUT: TIMEOUT,
    State.ABANDONED: TIMEOUT,
    State.UNKNOWN: "connection",
    ErrorKind.CONNECTION: "connection",
    ErrorKind.SERVER: "connection",
    ErrorKind.INTERRUPTED: "connection",
    ErrorKind.WORKER_DIED: "connection",
    ErrorKind.EXCEPTION: "bug",
}


@dataclass(frozen=True, slots=True)
class FailureModel:
    """The failure rate of the calls of a tool, independently for each call, and the kinds of failure.

    Attributes:
        rate: The part of the calls that fail, from 0 to 1.
        kind: ``timeout``: the call does not come back; ``connection``: it breaks, and may have had its effect;
            ``busy``: the tool says that it cannot now; ``refused``: it says no for good; ``bug``: it raises anything.
        others: Further kinds, each with the part of the calls that fail so.
        calls: The calls that it was learned from; 0 if somebody has named it.
    """

    rate: float
    kind: str = "connection"
    others: tuple[tuple[str, float], ...] = ()
    calls: int = 0

    def __post_init__(self) -> None:
        for kind, rate in self._parts:
            if not 0 <= rate <= 1:
                raise ContractError(f"a failure rate is a part from 0 to 1, not {rate:g}")
            if kind not in _ERRORS:
                raise ContractError(f"calls fail with {KINDS}; not with {shorten(kind, 40)!r}")
        if self.total > 1 + 1e-9:
            raise ContractError(f"the failure rates of one tool are at most 1 together, not {self.total:g}")

    def __str__(self) -> str:
        if not self.calls:
            return ", ".join(f"{rate:g}:{kind}" for kind, rate in self._parts)
        parts = ", ".join(f"{kind} {rate * self.calls:.0f}" for kind, rate in self._parts if rate)
        return f"{self.total * self.calls:.0f} of {self.calls} recorded calls{f' ({parts})' * bool(parts)}"

    @property
    def _parts(self) -> tuple[tuple[str, float], ...]:
        return ((self.kind, self.rate), *self.others)

    @property
    def total(self) -> float:
        """The part of the calls that fail in any way."""
        return sum(rate for _, rate in self._parts)

    def drawn(self, v: float) -> str:
        """Return how the call with the number *v*, drawn from 0 to 1, fails; empty if it does not."""
        for kind, rate in self._parts:
            if v < rate:
                return kind
            v -= rate
        return ""


def error_of(kind: str) -> Exception:
    """Return a new exception of a kind of failure."""
    return _ERRORS[kind]()


def learned_failures(runs: Iterable[RunSummary]) -> dict[str, FailureModel]:
    """Return the failure rates and kinds of each tool in recorded runs.

    The rate is 1 less the ``call_success`` of `dagrun.metrics`: what a critic did not pass counts as a failure, and a
    call that was told to stop does not count.

    Args:
        runs: The summaries of the runs.
    """
    judged: Counter[str] = Counter()
    failed: dict[str, Counter[str]] = {}
    for run in runs:
        for tool, calls in run.tools.items():
            judged[tool] += calls.judged
            for fault, count in calls.failures.items():
                failed.setdefault(tool, Counter())[_played(fault)] += count
    found = {}
    for tool, count in judged.items():
        if count:
            (kind, most), *others = failed.get(tool, Counter()).most_common() or [("connection", 0)]
            parts = tuple((other, number / count) for other, number in others)
            found[tool] = FailureModel(most / count, kind, parts, calls=count)
    return found


def _played(fault: str) -> str:
    return _PLAYED.get(fault.removesuffix("~")) or ("busy" if fault.endswith("~") else "refused")


async def failure_rates(*, journal: Journal, since: Instant = None, until: Instant = None) -> dict[str, FailureModel]:
    """Return the failure rates of each tool in recorded runs, for `simulate`.

    Args:
        journal: The journal with the records.
        since: Runs that began before that do not count; as for `dagrun.metrics`.
        until: Runs that began then or later do not count.

    Raises:
        ContractError: A time is of another type.
        JournalError: The journal cannot be read.
    """
    return learned_failures((await metrics(journal=journal, since=since, until=until)).runs)


def read_failures(given: Mapping[str, object]) -> dict[str, FailureModel]:
    """Read failure rates by the name of a tool, or the id of a step: ``0.02``, or ``0.02:timeout``.

    Raises:
        ContractError: One cannot be read; the error names it.
    """
    read = {}
    for name, text in given.items():
        if isinstance(text, FailureModel):
            read[name] = text
            continue
        rate, _, kind = str(text).partition(":")
        try:
            read[name] = FailureModel(float(rate), kind or "connection")
        except ContractError as error:
            raise ContractError(f"{name}: {error}") from None
        except ValueError:
            raise ContractError(
                f"{name}: a failure rate is a part from 0 to 1, and what the calls fail with ({KINDS}): 0.02 or"
                f" 0.02:timeout; not {shorten(str(text), 40)!r}"
            ) from None
    return read
