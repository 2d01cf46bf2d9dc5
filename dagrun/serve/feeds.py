"""Feeds: the current state of a run, and its changes since a reader's last read, for any number of readers.

1. A feed is made when somebody first looks at a run, and nothing is done for a run at which nobody looks.
2. A run of this process wakes its readers by an observer. The record of a run of another process is looked at again
   and again, but only while a reader waits for news of it.
3. A reader has a cursor: the mark of the feed and the number of the last event. So a reader that comes back gets what
   it has missed; one that comes from another feed (the server was restarted) gets the whole view.
4. Readers of one run see the same instants (`Frame`): changes are encoded once for all of them, and after changes that
   took long to encode there is a pause of ten times as long.
5. A run that is too large for the page is refused with a sentence, so that no record can hang a server. The values of
   steps are not in a view, and a drawing has a bounded number of boxes and edges: the limits are for what is told of
   each step, change and question.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from secrets import token_hex
from typing import Final

import anyio
import anyio.to_thread
from pydantic_core import to_json

from dagrun.api.replaying import replayed
from dagrun.codec import decode_event, events_of
from dagrun.errors import JournalError, RunNotFound
from dagrun.events import Event, RunEnded, RunResumed, RunStarted, RunSuspended
from dagrun.features.redacted_records.records import as_shown, redactor_of
from dagrun.journal.following import RecordFollower
from dagrun.kernel.graph.fold import fold
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.journal import Held, Journal, Line, SupportsVersions
from dagrun.kernel.runtime.run import Run
from dagrun.observe.view.document import shape_number
from dagrun.observe.view.live_view import LiveView
from dagrun.observe.view.shape import RunView
from dagrun.observe.view.steps import Values
from dagrun.serve.drawings import graph_svg
from dagrun.serve.time_left import time_left

MOST_STEPS: Final = 100_000
MOST_REVISIONS: Final = 2_000
MOST_BYTES: Final = 128 << 20  # of a view as JSON
MOST_RECORDS: Final = 2_000_000
DRAWN_AT_ONCE: Final = 100  # steps: a larger graph is drawn in a thread; a smaller one takes a few milliseconds
DRAWN_AT_THE_END: Final = 1_000  # steps: the last drawing of a larger run is made only if a reader asks for it
IN_A_THREAD: Final = 2_000  # steps: the view of a larger run on record is made in a thread


class RunTooLarge(JournalError):
    """A run is too large for the page.

    Attributes:
        what: What there is too much of.
        count: How much there is.
        most: How much the page shows.
    """

    def __init__(self, what: str, count: int, most: int) -> None:
        super().__init__(what, count, most)
        self.what = what
        self.count = count
        self.most = most

    def __str__(self) -> str:
        """Return the excess in a sentence, with a remedy."""
        return f"this run has {self.count:,} {self.what}, and the page shows at most {self.most:,}: dagrun inspect"


def check_records(count: int) -> None:
    """Refuse a record that would take too long to read.

    Raises:
        RunTooLarge: It has too many records.
    """
    _check(count, MOST_RECORDS, "records")


def check_graph(graph: LiveGraph) -> None:
    """Refuse a run whose view would take too long to make.

    Raises:
        RunTooLarge: It has too many steps or changes of the plan.
    """
    _check(len(graph.nodes), MOST_STEPS, "steps")
    _check(len(graph.revisions), MOST_REVISIONS, "changes of the plan")


def check_view(text: bytes) -> bytes:
    """Return a view as JSON, unless it is too large for a browser.

    Raises:
        RunTooLarge: It is.
    """
    _check(len(text), MOST_BYTES, "bytes of texts")
    return text


def _check(count: int, most: int, what: str) -> None:
    if count > most:
        raise RunTooLarge(what, count, most)


# Feeds ----------------------------------------------------------------------------------------------------------------

TICK: Final = 0.1  # seconds: how often changes are handed out at most
LOOK_EVERY: Final = 0.25  # seconds between two looks at a record that can be followed
READ_EVERY: Final = 2.0  # seconds between two looks at one that must be read whole
OWNER_EVERY: Final = 1.0  # seconds between two looks at who holds a run
REST: Final = 10  # times as long as it took to encode changes, none are encoded while the run goes on
LEFT_EVERY: Final = 1.0  # seconds between two guesses of how long the rest takes
MANY: Final = 500  # records that are folded in a thread, so that the loop has other turns meanwhile


@dataclass(frozen=True, slots=True)
class Frame:
    """The update for the readers of streams at one instant.

    Attributes:
        texts: The changes since the event that each reader has been told of last, by its number.
        seq: The number of the last event.
        version: The version of the feed.
        made: When it was made, on the clock of the loop.
        pause: Seconds until the next one may be made: a long one costs time that the run itself needs.
    """

    texts: Mapping[int, bytes]
    seq: int
    version: int
    made: float
    pause: float


def _unknown(tool: str) -> float | None:
    return None


class Feed:
    """One run, as its readers see it.

    Args:
        run_id: The run.

    Attributes:
        mark: Distinguishes this feed from all others, in cursors.
        lock: Held while the state is brought up to date, or read by more than one statement.
        version: Grows with each change that readers may see.
        is_over: Whether nothing more will come: the run has ended, or this process has suspended it.
        is_suspended: Whether the run was suspended; then another process may have resumed it.
        readers: Who reads a stream, and the number of the event up to which each has been told.
        median: Returns how long calls of a tool took in other runs, in seconds; `None` if that is not known.
    """

    watch: LiveView
    graph: LiveGraph
    median: Callable[[str], float | None] = staticmethod(_unknown)

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.mark = token_hex(4)
        self.lock = anyio.Lock()
        self.version = 0
        self.is_over = False
        self.is_suspended = False
        self.readers: dict[object, int | None] = {}
        self._news: anyio.Event | None = None
        self._frame: Frame | None = None
        self._drawing = anyio.Lock()
        self._drawn: tuple[object, bytes] = (None, b"")  # what the drawing was made of, and the drawing
        self._left: tuple[float, float | None] = (float("-inf"), None)  # when the rest was guessed, and the guess

    async def refresh(self) -> None:
        """Bring the state up to date.

        Raises:
            JournalError: The record is gone, damaged, or cannot be read.
        """

    async def wait(self) -> None:
        """Wait until there may be news."""
        if self._news is None:
            self._news = anyio.Event()
        await self._news.wait()

    def wake(self) -> None:
        """Wake all waiting readers."""
        self.version += 1
        if self._news is not None:
            self._news.set()
            self._news = None

    def now(self) -> float | None:
        """Return the time in the run, in seconds since its start; `None` for the time of its last event."""
        return None

    # For readers ------------------------------------------------------------------------------------------

    def cursor_of(self, text: str) -> int | None:
        """Return the event number of a cursor; `None` if it is invalid, or of another feed."""
        mark, _, seq = text.rpartition("-")
        return int(seq) if mark == self.mark and seq.isdecimal() and int(seq) <= self.watch.seq else None

    @property
    def cursor(self) -> str:
        """The cursor of a reader that knows all."""
        return f"{self.mark}-{self.watch.seq}"

    async def view(self, values: Values = "none") -> RunView:
        """Return the whole view.

        Raises:
            RunTooLarge: The run is too large for the page.
        """
        check_graph(self.graph)
        return self.watch.document(values, self.now())

    async def snapshot(self) -> tuple[bytes, int]:
        """Return the whole view without values, as JSON, with the cursor; and the number of its last event.

        Raises:
            RunTooLarge: The run is too large for the page.
        """
        view = await self.view()
        facts = {"cursor": f"{self.mark}-{view['seq']}", "left": self._time_left()}
        return check_view(to_json({**view, **facts})), view["seq"]

    async def drawing(self) -> bytes:
        """Return the graph as SVG. It is redrawn when steps come or go; the reader updates the states.

        Raises:
            RunTooLarge: The run is too large for the page.
        """
        check_graph(self.graph)
        async with self._drawing:  # readers that ask at once share one drawing
            made_of = (shape_number(self.graph), self.is_over)
            if self._drawn[0] != made_of:
                view = self.watch.shape(with_path=self.is_over)
                is_small = len(view["steps"]) <= DRAWN_AT_ONCE
                svg = graph_svg(view) if is_small else await anyio.to_thread.run_sync(graph_svg, view)
                self._drawn = (made_of, svg)
            return self._drawn[1]

    async def last_drawing(self) -> str | None:
        """Return the drawing of a run that is over, with its critical path; `None` if it takes too long to make."""
        return (await self.drawing()).decode() if len(self.graph.nodes) <= DRAWN_AT_THE_END else None

    def _time_left(self) -> float | None:
        """Return the least remaining seconds; `None` if unknown."""
        now = self.now()
        if now is None or self.is_over:
            return None
        if now - self._left[0] >= LEFT_EVERY:
            self._left = (now, time_left(self.graph, now, self.median))
        guessed_at, left = self._left
        return None if left is None else round(max(0.0, left - (now - guessed_at)), 3)

    def changes(self, after: int) -> bytes:
        """Return the changes since an event, as JSON, with the cursor.

        Raises:
            RunTooLarge: The run is too large for the page.
        """
        check_graph(self.graph)
        return to_json({**self.watch.changes(after, self.now()), "cursor": self.cursor, "left": self._time_left()})

    def frame(self, after: int, seen: int) -> Frame | None:
        """Return the frame that takes a reader on; `None` if it has the last one, and no other is due.

        Args:
            after: The number of the event up to which the reader has been told.
            seen: The version of the feed as of then.

        Raises:
            RunTooLarge: The run is too large for the page.
        """
        frame, now = self._frame, anyio.current_time()
        if frame is not None and not self.is_over and now - frame.made < frame.pause:
            if seen == frame.version or after == frame.seq:
                return None
            if after in frame.texts:
                return frame
        if frame is None or frame.version != self.version or after not in frame.texts:
            begun = time.perf_counter()
            texts = {cursor: self.changes(cursor) for cursor in {after, *filter(None, self.readers.values())}}
            pause = max(TICK / 2, REST * (time.perf_counter() - begun))
            self._frame = frame = Frame(texts, self.watch.seq, self.version, now, pause)
        return frame


class LiveFeed(Feed):
    """A run of this process.

    Args:
        run: The run.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(run.id)
        self.run = run
        self.graph = run.graph
        self.watch = LiveView(run.graph, "this process")
        self.is_over = run.has_ended
        self.watch.is_alive = not self.is_over
        run.watch(self)

    def take(self, batch: Sequence[Event]) -> None:
        """Take the events of the run, as its observer."""
        self.watch.take(batch)
        self.wake()
        last = type(batch[-1])
        if last is RunEnded or last is RunSuspended:
            self.is_suspended = last is RunSuspended
            self.close()

    def close(self) -> None:
        """Note that the run has ended, or was suspended."""
        self.is_over = True
        self.watch.is_alive = False
        self.wake()

    def now(self) -> float | None:
        """Return the time in the run, in seconds since its start."""
        return None if self.is_over else self.run.seconds


class RecordFeed(Feed):
    """A recorded run, in any process. Made by `opened`.

    Args:
        journal: The journal that has it.
        run_id: The run.

    Attributes:
        held: Which process carries it out.
        last: When its last record was written, in seconds since 1970.
    """

    def __init__(self, journal: Journal, run_id: str) -> None:
        super().__init__(run_id)
        self._journal = journal
        self._follower = RecordFollower(journal, run_id)
        self._openings: list[RunStarted | RunResumed] = []
        self._looked = float("-inf")
        self._zero = 0.0  # of the clock of the run, in seconds since 1970
        self.held = Held(run_id)
        self.last = 0.0

    @property
    def opening(self) -> RunStarted:
        """The first event."""
        first = self._openings[0]
        assert isinstance(first, RunStarted)
        return first

    @classmethod
    async def opened(cls, journal: Journal, run_id: str) -> RecordFeed:
        """Return the feed of a run.

        Raises:
            RunNotFound: There is no such run, or it has no record yet.
            JournalError: The record is damaged, or cannot be read.
        """
        feed = cls(journal, run_id)
        await feed.refresh()
        return feed

    async def refresh(self) -> None:
        """Read the new records.

        Raises:
            JournalError: The record is gone, damaged, or cannot be read.
            RunTooLarge: It would take too long to read.
        """
        async with self.lock:
            # Before the records: a run that was let go before them has nothing more to come.
            await self._look_at_owner()
            lines = await self._follower.news()
            check_records(self._follower.seq)
            if not self._openings and not lines:
                raise RunNotFound(f"run {self.run_id} has no record yet")
            if len(lines) > MANY:
                await anyio.to_thread.run_sync(self._take, lines)
            elif lines:
                self._take(lines)
            if lines:
                self.wake()
            self._judge()

    async def wait(self) -> None:
        """Wait for a moment; then the record may have news."""
        await anyio.sleep(LOOK_EVERY if self._follower.is_cheap else READ_EVERY)

    def now(self) -> float | None:
        """Return the time in the run, by the clock of day; the two machines may differ in that."""
        return time.time() - self._zero if self.watch.is_alive else None

    async def view(self, values: Values = "none") -> RunView:
        """Return the whole view; see `Feed.view`. The view of a large run is made in a thread."""
        if len(self.graph.nodes) <= IN_A_THREAD:
            return await super().view(values)
        check_graph(self.graph)
        async with self.lock:  # nothing is folded meanwhile
            return await anyio.to_thread.run_sync(self.watch.document, values, self.now())

    def _take(self, lines: Sequence[Line]) -> None:
        """Fold new records."""
        is_first = not self._openings
        events = events_of(self.run_id, lines) if is_first else [decode_event(line.text) for line in lines]
        self._openings += [event for event in events if isinstance(event, RunStarted | RunResumed)]
        redactor = redactor_of(self._openings)
        shown = events if redactor is None else [as_shown(event, redactor) for event in events]
        self._zero = self._openings[-1].wall_time - self._openings[-1].at
        if is_first:
            self.graph = replayed(self.run_id, shown).graph
            self.watch = LiveView(self.graph)
            self.watch.seq = lines[-1].seq
        else:
            fold(self.graph, shown, self.run_id)
            self.watch.take(shown)
        self.last = events[-1].at + self._zero
        self.is_over = isinstance(events[-1], RunEnded)
        self.is_suspended = isinstance(events[-1], RunSuspended)

    async def _look_at_owner(self) -> None:
        now = time.monotonic()
        if now - self._looked < OWNER_EVERY:
            return
        self._looked = now
        self.held = await held_by(self._journal, self.run_id)

    def _judge(self) -> None:
        """Note the owner of the run, and whether more records may come."""
        # A run that was suspended is let go next; the process that resumes it writes so first.
        is_alive = self.held.is_held and not self.is_over and not self.is_suspended
        owner = self.held.owner if is_alive else ""
        if (owner, is_alive) != (self.watch.owner, self.watch.is_alive):
            self.watch.owner, self.watch.is_alive = owner, is_alive
            self.wake()


async def held_by(journal: Journal, run_id: str) -> Held:
    """Return which process holds a run.

    Raises:
        RunNotFound: There is no such run.
    """
    if isinstance(journal, SupportsVersions):
        return await journal.held(run_id)
    return next((held for held in await journal.runs() if held.run_id == run_id), Held(run_id))
