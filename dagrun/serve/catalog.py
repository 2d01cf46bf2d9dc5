"""The catalogue: all runs that the page knows, each in short, and the questions that are open in them.

The list of a thousand runs must cost next to nothing when nothing has changed. So what is known of a record is kept
together with its mark (`SupportsVersions`), and only records whose mark has changed are read again. A run that somebody
looks at, or that another process carries out, has a feed, which reads new records only.

Of a submitted run, the queue says the pool, and its worker or why it has none; `QueueRows` passes on orders about it.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from starlette.responses import JSONResponse, Response

from dagrun.api.replaying import replayed
from dagrun.api.shared_by_runs import LearnedDurations
from dagrun.codec import events_of
from dagrun.errors import JournalDamaged, JournalError, JournalFailed, RunNotFound, shorten
from dagrun.features.redacted_records.records import shown_events
from dagrun.journal.queue import QueuedRun, Queues, QueueStatus, RunQueue
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.journal import Held, Journal, Line, SupportsSummaryCache, SupportsVersions
from dagrun.kernel.model.question import Question
from dagrun.kernel.runtime.run import Run
from dagrun.observe.run_standing import RunOverview, RunState, standing_at_start, standing_of, standing_of_damaged
from dagrun.observe.run_summary import summary_of
from dagrun.serve.feeds import Feed, LiveFeed, RecordFeed, held_by
from dagrun.serve.guard import problem
from dagrun.workers.submitting import cancel

if TYPE_CHECKING:
    from dagrun.api.engine import Engine

# Those that have ended are not looked at: there may be very many, and their records say all of them.
_NOT_ENDED: Final = tuple(standing for standing in QueueStatus if standing is not QueueStatus.ENDED)
_LATEST: Final = 2.0**37  # seconds since 1970: later, calendars have no more years
_PATIENCE: Final = 5.0  # seconds for a worker that has just claimed a run to take note of an order
STILL_HELD: Final = "a worker that does not answer still holds this run: try again when its lease has expired"
NOT_BACK: Final = "only a submitted run that is stuck or waits is put back into the queue"


class QueueRows:
    """Where submitted runs stand.

    Args:
        journal: The journal with the runs; `None` if there are only runs of this process.
    """

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal
        self._queue: RunQueue | None = None if journal is None else _queue_of(journal)

    async def open_rows(self) -> dict[str, QueuedRun]:
        """Return the submitted runs that have not ended, by id; none if they cannot be read: the rest is on record."""
        if self._queue is None:
            return {}
        try:
            return {row.run_id: row for row in await self._queue.runs(_NOT_ENDED)}
        except JournalError:
            return {}

    async def put_back(self, run_id: str) -> Response:
        """Put a run that is stuck or waits back into the queue: 202; 409 if it is neither."""
        try:
            if self._queue is not None and await self._queue.put_back(run_id):
                return JSONResponse({"taken": True}, 202)
        except RunNotFound:  # it is there, and was not submitted
            pass
        return problem(409, NOT_BACK)

    async def cancel(self, run_id: str, reason: str, by: str) -> Response | None:
        """Cancel a submitted run that no process carries out: 202, and the next worker ends it; `None` if it is none.

        409 if a process that has ended still holds it: nobody waits at a page for the end of a lease.
        """
        if self._journal is None or run_id not in await self.open_rows():
            return None
        with anyio.move_on_after(_PATIENCE):
            is_cancelled = await cancel(run_id, journal=self._journal, reason=reason, by=by)
            return JSONResponse({"taken": True}, 202) if is_cancelled else None
        return problem(409, STILL_HELD)


def _queue_of(journal: Journal) -> RunQueue | None:
    return journal.queue if isinstance(journal, Queues) else None


def queue_facts(row: QueuedRun | None) -> dict[str, Any] | None:
    """Return where a run stands in the queue as plain JSON; `None` if it is not there."""
    return {**row.as_dict(), "words": _words(row)} if row is not None else None


def _words(row: QueuedRun) -> str:
    begin = row.ticket.not_before
    later = f"not before {datetime.fromtimestamp(begin):%Y-%m-%d %H:%M}" if time.time() < begin < _LATEST else ""
    takeovers = f"{row.takeovers} takeover{'s' * (row.takeovers != 1)}" if row.takeovers else ""
    return ", ".join(filter(None, (f"pool {row.ticket.pool}", row.owner, takeovers, later)))


# The runs -------------------------------------------------------------------------------------------------------------

_MOST_FEEDS: Final = 64  # of runs at which nobody looks any more
_WITHOUT_MARKS: Final = 2.0  # seconds for which a list is valid that was made by reading everything
_OPEN: Final = (RunState.RUNNING, RunState.WAITING, RunState.INTERRUPTED)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One run of the list.

    Attributes:
        standing: Where it stands.
        questions: The questions that are open in it, redacted.
        queue: Where it stands in the queue; `None` if it was not submitted, or has ended.
    """

    standing: RunOverview
    questions: tuple[Question, ...] = ()
    queue: QueuedRun | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the run as plain JSON."""
        return {
            **self.standing.as_dict(),
            "command": self.command,
            "counts": dict(self.standing.counts),
            "questions": len(self.questions),
            "queue": queue_facts(self.queue),
        }

    @property
    def command(self) -> str:
        """The command that began it; empty if that is not known."""
        words = self.standing.labels.get("command", "")
        return shorten(" ".join(map(str, words)) if isinstance(words, list | tuple) else str(words))

    @property
    def states(self) -> tuple[str, ...]:
        """All that a list may be asked for to find it."""
        in_queue = () if self.queue is None else (str(self.queue.standing),)
        return (str(self.standing.state), self.standing.status, *in_queue)


class Catalog:
    """The runs of a journal, of an engine, and single ones.

    Args:
        journal: The journal with the runs of all processes; `None` for none.
        engine: The engine whose runs are seen from inside; `None` for none.

    Attributes:
        queue: The submitted runs.
    """

    def __init__(self, journal: Journal | None, engine: Engine | None) -> None:
        self.journal = journal
        self.queue = QueueRows(journal)
        self._engine = engine
        self._feeds: OrderedDict[str, Feed] = OrderedDict()
        self._opening = anyio.Lock()
        self._listing = anyio.Lock()
        self._kept: dict[str, tuple[str, RunEntry]] = {}
        self._made = float("-inf")
        self._memory = LearnedDurations(None)
        self._entries: list[RunEntry] = []

    # Feeds ------------------------------------------------------------------------------------------------

    def watch(self, run: Run) -> Feed:
        """Follow a run of this process from now on, also after its end."""
        feed = self._feeds.get(run.id)
        if not isinstance(feed, LiveFeed) or feed.run is not run:
            feed = LiveFeed(run)
            self._keep(feed)
        return feed

    async def feed(self, run_id: str) -> Feed:
        """Return the feed of a run.

        Raises:
            RunNotFound: There is no such run, or it has no record yet.
            JournalError: Its record is damaged, or cannot be read.
        """
        await self._memory.recall(self.journal)  # how long calls took before
        run = self._running().get(run_id)
        if run is not None:
            return self.watch(run)
        feed = self._feeds.get(run_id)
        # A run of this process that was suspended may have been resumed elsewhere: then its record goes on.
        if isinstance(feed, LiveFeed) and (self.journal is None or not feed.is_suspended):
            return feed
        if isinstance(feed, RecordFeed):
            self._feeds.move_to_end(run_id)
            return feed
        return await self._opened(run_id)

    async def _opened(self, run_id: str) -> Feed:
        if self.journal is None:
            raise RunNotFound(f"there is no run '{shorten(run_id)}' here")
        async with self._opening:
            feed = self._feeds.get(run_id)
            if not isinstance(feed, RecordFeed):
                feed = await RecordFeed.opened(self.journal, run_id)
                self._keep(feed)
            return feed

    def _median(self, tool: str) -> float | None:
        own = None if self._engine is None else self._engine.durations.median(tool)
        return self._memory.durations.median(tool) if own is None else own

    def _keep(self, feed: Feed) -> None:
        feed.median = self._median
        self._feeds[feed.run_id] = feed
        self._feeds.move_to_end(feed.run_id)
        for run_id in list(self._feeds):
            if len(self._feeds) <= _MOST_FEEDS:
                break
            if not self._feeds[run_id].readers and self._feeds[run_id] is not feed:
                del self._feeds[run_id]

    def forget(self, feed: Feed) -> None:
        """Stop following a run whose record is gone or damaged; the next reader reloads it."""
        if self._feeds.get(feed.run_id) is feed:
            del self._feeds[feed.run_id]

    def _running(self) -> dict[str, Run]:
        return {} if self._engine is None else self._engine.runs

    def _feeds_inside(self) -> dict[str, Run]:
        feeds = self._feeds.values()
        return {feed.run_id: feed.run for feed in feeds if isinstance(feed, LiveFeed) and not feed.is_over}

    # The list ---------------------------------------------------------------------------------------------

    async def entries(self) -> list[RunEntry]:
        """Return all runs, those that began last first."""
        async with self._listing:
            entries = await self._of_journal()
        alive = self._running() | {feed.run_id: feed.run for feed in self._feeds.values() if isinstance(feed, LiveFeed)}
        known = {entry.standing.run_id: entry for entry in entries}
        for run_id, run in alive.items():
            if run_id not in known or not run.has_ended:
                known[run_id] = _entry_of_run(run)
        for run_id, row in (await self.queue.open_rows()).items():
            if run_id in known:
                known[run_id] = replace(known[run_id], queue=row)
        return sorted(known.values(), key=lambda entry: (-(entry.standing.began or 0.0), entry.standing.run_id))

    async def _of_journal(self) -> list[RunEntry]:
        if self.journal is None:
            return []
        if isinstance(self.journal, SupportsVersions):
            marks = await self.journal.marks()
            # A run of this process needs no look at its record.
            running = self._running() | self._feeds_inside()
            await self._take_kept(marks)
            made = [await self._entry(run_id, mark) for run_id, mark in marks.items() if run_id not in running]
            self._kept = {run_id: kept for run_id, kept in self._kept.items() if run_id in marks}
            return [entry for entry in made if entry is not None]
        if time.monotonic() - self._made > _WITHOUT_MARKS:
            made = [await self._read(held) for held in await self.journal.runs()]
            self._entries = [entry for entry in made if entry is not None]
            self._made = time.monotonic()
        return self._entries

    async def _take_kept(self, marks: Mapping[str, str]) -> None:
        """Load the summaries that earlier lists have cached, for runs that are unknown yet."""
        unknown = [run_id for run_id in marks if run_id not in self._kept]
        if not unknown or not isinstance(self.journal, SupportsSummaryCache):
            return
        for run_id, text in (await self.journal.standings(unknown)).items():
            kept = RunOverview.from_text(run_id, text)
            # What people are asked is not in it; and where states were not counted, the record has them.
            if kept is not None and kept.counts and not kept.waits_for:
                self._kept[run_id] = (marks[run_id], RunEntry(kept))

    async def _entry(self, run_id: str, mark: str) -> RunEntry | None:
        kept = self._kept.get(run_id)
        if kept is not None and kept[0] == mark:
            return await self._as_now(kept[1])
        assert self.journal is not None
        try:
            held = await held_by(self.journal, run_id)
        except RunNotFound:
            return None
        entry = await self._followed(held) if held.is_held else await self._read(held)
        if entry is not None:
            self._kept[run_id] = (mark, entry)
            await self._keep_on_disk(entry, mark)
        return entry

    async def _keep_on_disk(self, entry: RunEntry, mark: str) -> None:
        if entry.standing.can_be_kept and isinstance(self.journal, SupportsSummaryCache):
            with suppress(JournalError):
                await self.journal.keep_standing(entry.standing.run_id, mark, entry.standing.as_text())

    async def _as_now(self, entry: RunEntry) -> RunEntry:
        """Return an entry whose record has not changed: its process may have ended since."""
        assert self.journal is not None
        standing = entry.standing
        if standing.state is not RunState.RUNNING:
            return entry
        held = await held_by(self.journal, standing.run_id)
        if held.is_held:
            return entry
        return replace(entry, standing=replace(standing, state=RunState.INTERRUPTED, owner=""))

    async def _followed(self, held: Held) -> RunEntry | None:
        """Return a run of another process; its feed reads new records only."""
        try:
            feed = await self._opened(held.run_id)
            await feed.refresh()
        except RunNotFound:
            return RunEntry(standing_at_start(held))
        except JournalError as error:
            return RunEntry(standing_of_damaged(held.run_id, error))
        assert isinstance(feed, RecordFeed)
        return _entry_of_feed(feed)

    async def _read(self, held: Held) -> RunEntry | None:
        assert self.journal is not None
        try:
            lines = await self.journal.read(held.run_id)
            if not lines:
                return RunEntry(standing_at_start(held))
            return await anyio.to_thread.run_sync(_entry_of_lines, lines, held)
        except RunNotFound:
            return None
        except (JournalDamaged, JournalFailed) as error:
            return RunEntry(standing_of_damaged(held.run_id, error))


def _entry_of_lines(lines: Sequence[Line], held: Held) -> RunEntry:
    """Return a recorded run in short, redacted."""
    standing = standing_of(summary_of(held.run_id, lines), held)
    if not standing.waits_for and standing.settled == standing.steps:
        return RunEntry(standing)
    past = replayed(held.run_id, shown_events(events_of(held.run_id, lines)))
    pending = past.pending if standing.state in _OPEN else ()
    return RunEntry(replace(standing, counts=_counts(past.graph)), pending)


def _entry_of_feed(feed: RecordFeed) -> RunEntry:
    opening = feed.opening.opening
    assert opening is not None
    state = RunState.ENDED if feed.is_over else RunState.WAITING if feed.is_suspended else RunState.INTERRUPTED
    return _entry_of_graph(
        feed.graph,
        run_id=feed.run_id,
        state=RunState.RUNNING if feed.watch.is_alive else state,
        owner=feed.watch.owner,
        began=feed.opening.wall_time,
        last=feed.last,
        expires=opening.expires_at,
        labels=opening.labels,
    )


def _entry_of_run(run: Run) -> RunEntry:
    state = RunState.ENDED if run.has_ended else RunState.RUNNING
    return _entry_of_graph(run.graph, run_id=run.id, state=state, owner="this process", began=time.time() - run.seconds)


def _entry_of_graph(graph: LiveGraph, **facts: Any) -> RunEntry:
    shown = graph.plan.redactor
    planned = list(graph.planned())
    questions = tuple(graph.questions.values())
    standing = RunOverview(
        **facts,
        status="" if graph.status is None else str(graph.status),
        reason=shorten(shown.text(graph.reason)),
        goal=shorten(shown.text(graph.goal)),
        steps=len(planned),
        settled=sum(1 for node in planned if node.state.is_settled),
        waits_for=tuple(dict.fromkeys(shorten(question.step or question.text) for question in questions)),
        counts=_counts(graph),
    )
    return RunEntry(standing, questions)


def _counts(graph: LiveGraph) -> dict[str, int]:
    return dict(sorted(Counter(str(node.state) for node in graph.planned()).items()))


def matching(entries: Iterable[RunEntry], states: Sequence[str], text: str) -> list[RunEntry]:
    """Return the entries with one of *states* (of the run or in the queue) that contain *text*.

    It is looked for in the name, the goal and the command.
    """
    text = text.casefold()
    return [
        entry
        for entry in entries
        if (not states or any(state in states for state in entry.states))
        and text in f"{entry.standing.run_id} {entry.standing.goal} {entry.command}".casefold()
    ]
