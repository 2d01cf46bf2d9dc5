"""The progress table follows a run in constant time per event, and shows the most useful rows."""

import io
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from rich.cells import cell_len
from rich.console import Console

import dagrun
from dagrun import Event, State, Status, ToolError
from dagrun.cli.terminal.live_table import LiveTable
from dagrun.events import AttemptEnded, AttemptStarted, Progress, RunEnded, RunStarted, StepExpanded, StepSettled
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery
from dagrun.observe.progress import KEEP, ProgressTable, count_recoveries, summarise
from dagrun.testing import run_virtual
from graphs import make_graph, work


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def started(step: str, at: float, attempt: int = 1) -> AttemptStarted:
    return AttemptStarted(0, at, step, attempt, "tool")


def ended(step: str, at: float, state: State, recovery: Recovery = Recovery.PROCEED, text: str = "") -> AttemptEnded:
    failure = Failure(ErrorKind.TOOL, text) if text else None
    return AttemptEnded(0, at, step, 1, state, Outcome(state, None, failure), Decision(recovery, "", 0.5))


def table_of(*events: Event, steps: int = 3) -> tuple[ProgressTable, Clock]:
    clock = Clock()
    table = ProgressTable(clock)
    for event in (RunStarted(1, 0.0, "run", steps, "", 0.0), *events):
        table.on_event(event)
    return table, clock


def test_running_steps_come_first_then_the_last_to_end() -> None:
    table, clock = table_of(
        started("a", 0),
        started("b", 1),
        ended("a", 2, State.SUCCEEDED),
        started("c", 2),
        ended("b", 3, State.SUCCEEDED),
    )
    clock.now = 105.0

    assert [(row.step, row.seconds) for row in table.rows()] == [("c", 3.0), ("b", 2.0), ("a", 2.0)]
    assert (table.settled, table.steps, table.running) == (2, 3, 1)


def test_step_that_will_be_tried_again_says_when_and_why() -> None:
    table, _ = table_of(started("a", 0), ended("a", 1, State.READY, Recovery.RETRY, "busy"))

    (row,) = table.rows()
    assert (row.state, row.note) == (State.READY, "again in 0.5 s: busy")
    assert (table.retries, table.settled) == (1, 0)

    table.on_event(started("a", 2, attempt=2))
    assert [(row.state, row.attempt) for row in table.rows()] == [(State.RUNNING, 2)]


def test_tool_says_how_far_it_is() -> None:
    table, _ = table_of(started("a", 0), Progress(0, 1, "a", 0.25, "row 1 of 4"), Progress(0, 1, "gone", 0.5, "late"))

    assert [(row.fraction, row.note) for row in table.rows()] == [(0.25, "row 1 of 4")]


def test_elements_of_for_each_are_counted() -> None:
    table, _ = table_of(StepExpanded(0, 0, "each", (1, 2, 3)), steps=1)

    assert table.steps == 4


def test_step_that_never_started_is_counted() -> None:
    table, _ = table_of(StepSettled(0, 1, "a", State.SKIPPED, "b failed"))

    assert table.counts == {State.SKIPPED: 1}
    assert [(row.step, row.note) for row in table.rows()] == [("a", "b failed")]


def test_time_stands_still_after_the_end() -> None:
    table, clock = table_of(RunEnded(0, 7.0, Status.FAILED, "why"))
    clock.now = 1_000.0

    assert (table.elapsed, table.status, table.reason) == (7.0, Status.FAILED, "why")


def test_last_rows_begin_with_what_went_wrong() -> None:
    good = [event for i in range(30) for event in (started(f"s{i}", 0), ended(f"s{i}", 1, State.SUCCEEDED))]
    table, _ = table_of(started("bad", 0), ended("bad", 1, State.FAILED, Recovery.GIVE_UP, "no"), *good, steps=31)

    rows = table.last_rows(5)

    assert [row.step for row in rows] == ["bad", "s26", "s27", "s28", "s29"]


def test_rows_begin_with_failures_and_leave_room_for_what_runs() -> None:
    """A run of many steps shows first what people must act on, and then what goes on."""
    bad = [event for i in range(9) for event in (started(f"bad{i}", 0), ended(f"bad{i}", 1, State.FAILED))]
    skipped = StepSettled(0, 1, "skipped", State.SKIPPED, "bad0 failed")
    busy = [started(f"run{i}", 2) for i in range(9)]
    table, _ = table_of(*bad, skipped, started("good", 0), ended("good", 1, State.SUCCEEDED), *busy, steps=30)

    shown = [row.step for row in table.rows(9)]

    assert shown == ["bad0", "bad1", "bad2", "run0", "run1", "run2", "run3", "run4", "run5"]
    assert [row.step for row in table.rows(20)][8:] == ["bad8", *(f"run{i}" for i in range(9)), "good", "skipped"]
    assert (table.failed, table.running) == (9, 9)


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (120, 24), (60, 50), (80, 50), (120, 50), (40, 5)])
def test_frame_is_at_most_as_tall_as_the_terminal(width: int, height: int) -> None:
    """One line is left for the cursor: a frame that scrolls leaves its first lines behind at every redraw."""
    events = [event for i in range(3) for event in (started(f"bad{i}", 0), ended(f"bad{i}", 1, State.FAILED))]
    table, _ = table_of(*events, *(started(f"a_step_with_a_long_name_{i}", 0) for i in range(200)), steps=203)

    lines = drawn(table, width, height=height)

    assert len(lines) == height - 1
    assert max(map(cell_len, lines)) < width
    assert lines[0].startswith("✗ bad0")
    assert "3 failed" in lines[-1] or width < 60


def test_long_ids_keep_both_ends() -> None:
    """Ids of one kind differ at their ends."""
    table, _ = table_of(*(started(f"page_of_the_catalogue_of_a_shop_{i}", 0) for i in (17, 18)))

    first, second, *_ = drawn(table, 50)

    assert "page_of" in first
    assert "op_17 " in first
    assert "op_18 " in second


def test_memory_does_not_grow_with_the_run() -> None:
    table, _ = table_of(steps=100_000)
    for i in range(20_000):
        table.on_event(started(f"s{i}", 0))
        table.on_event(ended(f"s{i}", 1, State.FAILED, Recovery.GIVE_UP, "no"))

    assert table.settled == 20_000
    kept = [*table._running, *table._delayed, *table._ended, *table._unsuccessful]
    assert len(kept) <= 2 * KEEP


def _cost(table: ProgressTable, events: Callable[[int], Event]) -> float:
    begin = time.process_time()
    for i in range(2_000):
        table.on_event(events(i))
    return time.process_time() - begin


def test_an_event_costs_the_same_however_many_steps_run() -> None:
    """The ratio of two times, best of five: a table that searches the running steps would be 1,000 times slower."""
    few, _ = table_of(*(started(f"x{i}", 0) for i in range(10)))
    many, _ = table_of(*(started(f"x{i}", 0) for i in range(50_000)))

    def note(i: int) -> Event:
        return Progress(0, 1, "x5", 0.5, "going on")

    assert min(_cost(many, note) for _ in range(5)) < 20 * min(_cost(few, note) for _ in range(5))


def test_whole_run_is_followed() -> None:
    """The table and the result agree in all cases."""
    graph = make_graph(3)
    table = ProgressTable()

    async def main() -> dagrun.Status:
        result = await dagrun.run(graph.plan(), tools=[work], on_event=table.on_event)
        return result.status

    status = run_virtual(main)

    assert (table.status, table.settled, table.running) == (status, len(graph.needs), 0)
    assert table.counts == {State.SUCCEEDED: len(graph.needs)}


def test_summary_fits_on_a_line_and_counts_recoveries() -> None:
    @dagrun.tool(effect="read")
    async def flaky(context: dagrun.ToolContext) -> int:
        if context.attempt == 1:
            raise ToolError("busy", retryable=True)
        return 1

    @dagrun.tool(effect="read", fallback="flaky")
    async def dead() -> int:
        raise ToolError("gone\x1b[2J\n")

    steps = [dagrun.Step(id="a", tool="flaky"), dagrun.Step(id="b", tool="dead", fallback="flaky")]

    async def main() -> tuple[str, tuple[int, int]]:
        result = await dagrun.run(dagrun.Plan(steps=steps), tools=[flaky, dead])
        return summarise(result), count_recoveries(result)

    line, recoveries = run_virtual(main)

    assert recoveries == (1, 1)
    assert line.isprintable()
    assert "1 retry" in line
    assert "1 fallback" in line


# How it is drawn ------------------------------------------------------------------------------------------------------


def drawn(table: ProgressTable, width: int, encoding: str = "utf-8", height: int = 50) -> list[str]:
    stream = io.StringIO()
    stream = SimpleNamespace(write=stream.write, flush=stream.flush, getvalue=stream.getvalue, encoding=encoding)  # type: ignore[assignment]
    console = Console(file=stream, width=width, height=height, force_terminal=False)
    console.print(LiveTable(table, console).frame())
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 200])
def test_frame_fits_the_width(width: int) -> None:
    """Also with ids of two cells per letter, which only a plan of the host can have."""
    events: list[Event] = [started("s" * 48, 0), started("字" * 30, 0), Progress(0, 0, "s" * 48, 0.5, "字" * 100)]
    table, _ = table_of(*events, *(started(f"s{i}", 0) for i in range(40)), steps=42)

    lines = drawn(table, width)

    assert len(lines) == 43
    assert max(map(cell_len, lines)) < width


def test_frame_in_ascii() -> None:
    table, _ = table_of(
        started("a", 0), Progress(0, 0, "a", None, "größer"), started("b", 0), ended("b", 1, State.FAILED)
    )

    assert all(line.isascii() for line in drawn(table, 80, "ascii"))


def test_markup_is_shown_as_it_is() -> None:
    table, _ = table_of(started("a", 0), Progress(0, 0, "a", None, "[red]x[/red] :smile:"))

    assert "[red]x[/red] :smile:" in drawn(table, 80)[0]
