"""Metrics of runs, for all of them and by group: the public function, the reader of records, and times as texts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from typing import Any, Final

import anyio.to_thread

from dagrun.errors import ContractError, JournalDamaged, JournalFailed, RunNotFound
from dagrun.evaluate.metrics.definitions import CALL_METRICS, RUN_METRICS, Definition, Figure
from dagrun.evaluate.plan_shape import needs_of, shape_of, tools_of
from dagrun.extend import Journal, SupportsVersions
from dagrun.records import (
    Calls,
    Line,
    RecordCount,
    RunSummary,
    count_record,
    critical_path,
    events_of,
    fault_text,
    replayed,
)
from dagrun.texts import short_repr, shorten

LABEL: Final = "label:"
NONE: Final = "(none)"
_MOST_TOOLS: Final = 4  # in the name of a plan


@dataclass(frozen=True, slots=True)
class Group:
    """The metrics of some runs, or of the calls of one tool or provider.

    Attributes:
        name: Their common labels; empty for all runs.
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


Instant = datetime | timedelta | float | None

_AGO: Final = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_SECONDS: Final = {"m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}


@dataclass(slots=True)
class RecordedRuns:
    """The figures of the runs of a journal, and the runs that have none.

    Attributes:
        figures: By the id of the run.
        left_out: Why a record cannot be used, by the id of the run.
    """

    figures: dict[str, RunSummary] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


class FiguresReader:
    """Reads the figures of all runs of a journal repeatedly: only changed records are read again.

    Args:
        journal: The journal.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._known: dict[str, tuple[str, RunSummary | str]] = {}  # by run: the mark, and the figures or the fault
        self._lock = anyio.Lock()

    async def read(self) -> RecordedRuns:
        """Return the figures as the records are now.

        Raises:
            JournalFailed: The journal cannot be read.
        """
        async with self._lock:
            known: dict[str, tuple[str, RunSummary | str]] = {}
            for run_id, mark in (await self._marks()).items():
                kept = self._known.get(run_id)
                fresh = kept if kept is not None and mark and kept[0] == mark else await self._figures(run_id, mark)
                if fresh is not None:
                    known[run_id] = fresh
            self._known = known
            said = {run_id: what for run_id, (_, what) in known.items()}
            return RecordedRuns(
                {run_id: run for run_id, run in said.items() if isinstance(run, RunSummary)},
                {run_id: fault for run_id, fault in said.items() if isinstance(fault, str)},
            )

    async def _marks(self) -> Mapping[str, str]:
        if isinstance(self._journal, SupportsVersions):
            return await self._journal.marks()
        return dict.fromkeys((held.run_id for held in await self._journal.runs()), "")

    async def _figures(self, run_id: str, mark: str) -> tuple[str, RunSummary | str] | None:
        """Return the figures of a run, or why there are none; `None` if it has no record."""
        try:
            lines = await self._journal.read(run_id)
            return (mark, await anyio.to_thread.run_sync(measured_run, run_id, lines)) if lines else None
        except RunNotFound:  # it was deleted a moment ago
            return None
        except (JournalDamaged, JournalFailed) as error:
            return mark, fault_text(error)


def measured_run(run_id: str, lines: Sequence[Line]) -> RunSummary:
    """Return the summary of a record with two facts for metrics: the shape of its plan, and its critical path.

    The graph is asked for the critical path of a run whose plan was repaired or has elements of a for_each; for all
    others it follows from the spans of the steps.

    Args:
        run_id: The run.
        lines: The record, checked; at least one line.

    Raises:
        JournalDamaged: The record says what no run can have recorded.
    """
    count = count_record(run_id, lines)
    run, steps = count.run, list(count.steps.values())
    run.tools_planned, run.shape = tools_of(steps), shape_of(steps, count.output)
    if run.has_ended:
        run.critical_path = _critical_path(count) if count.is_plain else _by_graph(run_id, lines)
    return run


def _critical_path(count: RecordCount) -> float:
    needs = {id_: needs_of(step) for id_, step in count.steps.items()}
    ended: dict[str, float] = {}
    for id_ in TopologicalSorter(needs).static_order():
        begin, end = count.spans.get(id_, (0.0, 0.0))
        ended[id_] = end - begin + max((ended[need] for need in needs[id_]), default=0.0)
    return max(ended.values(), default=0.0)


def _by_graph(run_id: str, lines: Sequence[Line]) -> float:
    return critical_path(replayed(run_id, events_of(run_id, lines)).graph)


async def metrics(*, journal: Journal, since: Instant = None, until: Instant = None, by: str = "") -> Metrics:
    """Return the metrics of the recorded runs: rates, times, tokens and cost, from their records alone.

    `dagrun metrics --help` defines each metric. What the records do not say is `None`, never a guess. A run whose
    record is damaged is left out, and named in `Metrics.left_out`.

    Args:
        journal: The journal with the records.
        since: Runs that began before that do not count: a `datetime.datetime`, a `datetime.timedelta` before now, or
            seconds since 1970; `None` for all.
        until: Runs that began then or later do not count; as *since*.
        by: What to make groups by: ``tool``, ``provider`` (a model, a pool of tools, or a tool without a pool),
            ``planner``, ``plan``, ``day``, ``week``, or ``label:NAME``; empty for no groups.

    Raises:
        ContractError: There is no such grouping.
        JournalError: The journal cannot be read.
    """
    check_grouping(by)
    now = time.time()
    begin, end = _seconds(since, now), _seconds(until, now)
    read = await FiguresReader(journal).read()
    return measure(read.figures.values(), by=by, since=begin, until=end, left_out=read.left_out)


def _seconds(at: Instant, now: float) -> float | None:
    if isinstance(at, timedelta):
        return now - at.total_seconds()
    if isinstance(at, datetime):
        return at.timestamp()
    if at is None or isinstance(at, int | float):
        return at
    raise ContractError(f"since and until are a datetime, a timedelta or seconds since 1970, not {type(at).__name__}")


def read_time(text: str, now: float) -> float:
    """Return the time that *text* names, in seconds since 1970.

    Args:
        text: How long ago (``30m``, ``12h``, ``7d``, ``4w``), a day (``2026-11-20``, its beginning), or a time of
            ISO 8601. What names no zone is in UTC.
        now: The time of day, in seconds since 1970.

    Raises:
        ContractError: *text* is no such time.
    """
    try:
        if found := _AGO.fullmatch(text.strip()):
            at = now - int(found.group(1)) * _SECONDS[found.group(2)]
        else:
            time = datetime.fromisoformat(text.strip())
            at = (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()
        datetime.fromtimestamp(at, UTC)  # a time that no calendar has cannot be shown
        return at
    except (ValueError, OverflowError, OSError):
        raise ContractError(
            f"{shorten(repr(text), 60)} is no time: write how long ago (30m, 12h, 7d, 4w), a day (2026-11-20), or a"
            " time (2026-11-20T08:30)"
        ) from None


def shown_time(at: float) -> str:
    """Return a time in UTC as people read it; the time of day only if it is not midnight."""
    time = datetime.fromtimestamp(at, UTC)
    return f"{time:%Y-%m-%d}" if not (time.hour or time.minute or time.second) else f"{time:%Y-%m-%d %H:%M} UTC"
