"""Metrics of runs, for all of them and by group; from the figures of the runs alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from dagrun.errors import ContractError, short_repr, shorten
from dagrun.evaluate.metrics.definitions import CALL_METRICS, RUN_METRICS, Definition, Figure
from dagrun.observe.run_summary import Calls, RunSummary

LABEL: Final = "label:"
NONE: Final = "(none)"
_MOST_TOOLS: Final = 4  # in the name of a plan


@dataclass(frozen=True, slots=True)
class Group:
    """The metrics of some runs, or of the calls of one tool or provider.

    Attributes:
        name: What they have in common; empty for all runs.
        figures: The value of each metric by its name, in the order of the definitions.
    """

    name: str
    figures: Mapping[str, Figure]

    def __getitem__(self, metric: str) -> Figure:
        return self.figures[metric]

    def as_dict(self) -> dict[str, Any]:
        """Return the values as plain JSON."""
        return {name: figure.as_dict() for name, figure in self.figures.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics of recorded runs.

    Attributes:
        since: Runs that began before that do not count, in seconds since 1970; `None` for all.
        until: Runs that began then or later do not count, in seconds since 1970; `None` for all.
        total: The metrics of all runs.
        by: What the groups are made by; empty for no groups.
        groups: The metrics of each group, in the order of their names.
        left_out: Runs whose record is damaged or cannot be read, and why.
        runs: The figures of each run, the oldest first.
    """

    __repr__ = short_repr

    since: float | None
    until: float | None
    total: Group
    by: str = ""
    groups: tuple[Group, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[RunSummary, ...] = field(default=(), repr=False)

    @property
    def definitions(self) -> tuple[Definition[Any], ...]:
        """The definitions of the metrics of the groups."""
        return CALL_METRICS if self.by in _OF_CALLS else RUN_METRICS

    def as_dict(self) -> dict[str, Any]:
        """Return the metrics as plain JSON, without the figures of single runs."""
        return {
            "since": self.since,
            "until": self.until,
            "metrics": self.total.as_dict(),
            "by": self.by or None,
            "groups": {group.name: group.as_dict() for group in self.groups},
            "left_out": dict(self.left_out),
        }


def measure(
    runs: Iterable[RunSummary],
    *,
    by: str = "",
    since: float | None = None,
    until: float | None = None,
    left_out: Mapping[str, str] | None = None,
) -> Metrics:
    """Return the metrics of some runs.

    Args:
        runs: The summaries of the runs.
        by: What to make groups by: ``tool``, ``provider``, ``planner``, ``plan``, ``day``, ``week``, or ``label:NAME``;
            empty for no groups.
        since: Runs that began before that do not count, in seconds since 1970.
        until: Runs that began then or later do not count, in seconds since 1970.
        left_out: Runs whose record cannot be used, and why.

    Raises:
        ContractError: There is no such grouping.
    """
    check_grouping(by)
    counted = tuple(sorted(within(runs, since, until), key=lambda run: (run.began, run.run_id)))
    groups: tuple[Group, ...] = ()
    if by in _OF_CALLS:
        calls = _calls_by_name(counted, _OF_CALLS[by])
        groups = tuple(_group(name, CALL_METRICS, calls[name]) for name in sorted(calls))
    elif by:
        found = runs_by_name(counted, by)
        groups = tuple(_group(name, RUN_METRICS, found[name]) for name in sorted(found))
    total = _group("", RUN_METRICS, counted)
    return Metrics(
        since=since, until=until, total=total, by=by, groups=groups, left_out=dict(left_out or {}), runs=counted
    )


def within(runs: Iterable[RunSummary], since: float | None, until: float | None) -> list[RunSummary]:
    """Return the runs that began at or after *since*, and before *until*."""
    return [run for run in runs if (since is None or run.began >= since) and (until is None or run.began < until)]


def compared(runs: Iterable[RunSummary], at: float) -> tuple[Group, Group]:
    """Return the metrics of the runs that began before an instant, and of those that began then or later.

    Args:
        runs: The summaries of the runs.
        at: The instant of a change, in seconds since 1970.
    """
    known = list(runs)
    before, since = within(known, None, at), within(known, at, None)
    return _group("before", RUN_METRICS, before), _group("since", RUN_METRICS, since)


def _group(name: str, definitions: Sequence[Definition[Any]], of: Sequence[Any]) -> Group:
    return Group(name, {one.name: one.measure(of) for one in definitions})


# What groups are made by ----------------------------------------------------------------------------------------------


def _plan_name(run: RunSummary) -> str:
    """Return the name of a plan: a hash, which plans for other values share, and its tools."""
    if not run.tools_planned:
        return NONE
    counts = {tool: run.tools_planned.count(tool) for tool in run.tools_planned}
    words = [tool if count == 1 else f"{tool} x{count}" for tool, count in counts.items()]
    more = f", and {len(words) - _MOST_TOOLS} more" if len(words) > _MOST_TOOLS else ""
    return f"{run.shape[:8]} {', '.join(words[:_MOST_TOOLS])}{more}"


def _day(run: RunSummary) -> str:
    return f"{datetime.fromtimestamp(run.began, UTC):%Y-%m-%d}"


def _week(run: RunSummary) -> str:
    return f"{datetime.fromtimestamp(run.began, UTC):%G-W%V}"


_OF_RUNS: Final[Mapping[str, Callable[[RunSummary], str]]] = {
    "planner": lambda run: ", ".join(run.planners) or NONE,
    "plan": _plan_name,
    "day": _day,
    "week": _week,
}
_OF_CALLS: Final[Mapping[str, Callable[[RunSummary], Mapping[str, Calls]]]] = {
    "tool": lambda run: run.tools,
    "provider": lambda run: run.providers,
}
GROUPINGS: Final = (*_OF_CALLS, *_OF_RUNS, f"{LABEL}NAME")


def check_grouping(by: str) -> None:
    """Check the name of a grouping.

    Raises:
        ContractError: There is no such grouping.
    """
    if by and by not in _OF_RUNS and by not in _OF_CALLS and not (by.startswith(LABEL) and by != LABEL):
        raise ContractError(f"runs are grouped by {', '.join(GROUPINGS)}; not by {shorten(repr(by), 60)}")


def runs_by_name(runs: Iterable[RunSummary], by: str) -> dict[str, list[RunSummary]]:
    """Return runs by the name of their group."""
    name_of = _OF_RUNS.get(by) or _label(by.removeprefix(LABEL))
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        found.setdefault(name_of(run), []).append(run)
    return found


def _label(name: str) -> Callable[[RunSummary], str]:
    def value_of(run: RunSummary) -> str:
        value = run.labels.get(name)
        if value is None:
            return NONE
        return shorten(" ".join(map(str, value)) if isinstance(value, list | tuple) else str(value), 60)

    return value_of


def _calls_by_name(
    runs: Iterable[RunSummary], calls_of: Callable[[RunSummary], Mapping[str, Calls]]
) -> dict[str, list[Calls]]:
    found: dict[str, list[Calls]] = {}
    for run in runs:
        for name, calls in calls_of(run).items():
            found.setdefault(name, []).append(calls)
    return found
