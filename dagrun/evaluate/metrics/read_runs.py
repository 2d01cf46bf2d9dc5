"""The figures of the runs of a journal, read once for each change; `metrics`, the public function; times as texts."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import anyio.to_thread

from dagrun.api.replaying import replayed
from dagrun.errors import ContractError, JournalDamaged, JournalFailed, RunNotFound, shorten
from dagrun.evaluate.metrics.metrics import Metrics, check_grouping, measure
from dagrun.evaluate.plan_shape import needs_of, shape_of, tools_of
from dagrun.graph.figures import critical_path
from dagrun.graph.longest_paths import remaining_paths, topological_order
from dagrun.model.codec.event_codec import events_of
from dagrun.model.journal import Journal, Line, SupportsVersions
from dagrun.observe.run_standing import fault_text
from dagrun.observe.run_summary import RecordCount, RunSummary, count_record

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
    successors: dict[str, list[str]] = {id_: [] for id_ in count.steps}
    degree = dict.fromkeys(successors, 0)
    for id_, step in count.steps.items():
        for need in needs_of(step):
            successors[need].append(id_)
            degree[id_] += 1
    seconds = {id_: count.spans[id_][1] - count.spans[id_][0] if id_ in count.spans else 0.0 for id_ in successors}
    order = topological_order(successors, degree)
    return max(remaining_paths(order, successors, seconds.__getitem__).values(), default=0.0)


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
