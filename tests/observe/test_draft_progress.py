"""While the planner writes: how a table and a summary show the events."""

import pytest
from rich.cells import cell_len

import dagrun
from dagrun import Consequence, State
from dagrun.events import AttemptEnded, AttemptStarted, DraftEnded, DraftStarted, PlannerCalled, Spliced
from dagrun.kernel.model.outcome import Decision, Outcome, Recovery
from dagrun.kernel.model.usage import ModelUse
from dagrun.observe.progress import ProgressTable, summarise
from dagrun.observe.state_styles import spending_words
from dagrun.testing import run_virtual
from test_progress import drawn, table_of

START = DraftStarted(2, 0.0, "a goal", is_held=False)


def spliced(step: str, at: float) -> Spliced:
    return Spliced(0, at, 1, "planner", "", (), Consequence(added=(step,)))


def started(step: str, at: float) -> AttemptStarted:
    return AttemptStarted(0, at, step, 1, "tool")


def ended(step: str, at: float, tokens: int = 0, cost: float | None = None) -> AttemptEnded:
    outcome = Outcome(State.SUCCEEDED, tokens=tokens, cost=cost)
    return AttemptEnded(0, at, step, 1, State.SUCCEEDED, outcome, Decision(Recovery.PROCEED))


def summary_of(table: ProgressTable, width: int = 80, encoding: str = "utf-8") -> str:
    return drawn(table, width, encoding)[-1].strip()


def test_table_says_how_far_the_planner_is() -> None:
    table, clock = table_of(START, steps=0)
    clock.now = 102.0
    assert summary_of(table) == "planning… 2.0 s"

    for event in (spliced("a", 1), spliced("b", 1), spliced("c", 1), started("a", 1), started("b", 1), ended("a", 2)):
        table.on_event(event)
    assert summary_of(table) == "planning… 3 steps so far, 1 running, 1 ended, 2.0 s"
    assert summary_of(table, encoding="ascii").startswith("planning... 3 steps so far,")


def test_bar_comes_when_there_is_a_whole() -> None:
    """A bar needs a total: a third of an unknown number cannot be drawn."""
    table, _ = table_of(START, spliced("a", 1), spliced("b", 1), ended("a", 1), steps=0)
    assert "━" not in summary_of(table)

    table.on_event(DraftEnded(0, 2, "applied", "2 steps"))
    assert "━" in summary_of(table)
    assert "1/2" in summary_of(table)

    table.on_event(spliced("c", 3))
    assert (table.steps, table.written) == (3, 2), "a replan adds to the run, not to the first plan"


def test_steps_that_no_event_tells_of_are_counted_by_hand() -> None:
    table, _ = table_of(START, steps=0)
    table.step_written()
    table.step_written()

    assert "2 steps so far" in summary_of(table)


@pytest.mark.parametrize("width", [10, 20, 40, 60, 80, 200])
def test_frame_of_a_draft_fits_the_width(width: int) -> None:
    call = PlannerCalled(0, 1, 1, 1.0, 123_456_789, 1234.5)
    table, _ = table_of(START, *(spliced(f"s{i}", 1) for i in range(30)), started("s1", 1), call, steps=0)

    lines = drawn(table, width)

    assert max(map(cell_len, lines)) < width


def test_what_is_spent_is_shown_while_it_goes_on() -> None:
    table, _ = table_of(START, PlannerCalled(0, 1, 1, 1.0, 1_200, None, "busy"), steps=0)
    assert summary_of(table).endswith("1,200 tokens, cost unknown")

    table.on_event(PlannerCalled(0, 2, 2, 1.0, 300, 0.25))
    table.on_event(ended("a", 3, tokens=0, cost=0.5))
    assert summary_of(table).endswith("1,500 tokens, cost at least 0.75")


@pytest.mark.parametrize(
    ("calls", "words"),
    [
        ([], []),
        ([(0, None)], []),
        ([(0, 0.5)], ["cost 0.5"]),
        ([(1, 0.0)], ["1 token", "cost 0"]),
        ([(812, None)], ["812 tokens", "cost unknown"]),
        ([(812, None), (100, 0.0)], ["912 tokens", "cost unknown"]),
        ([(812, None), (100, 0.02)], ["912 tokens", "cost at least 0.02"]),
        ([(1_000_000, 1234.5)], ["1,000,000 tokens", "cost 1,234.5"]),
        ([(1, 0.000123)], ["1 token", "cost 0.000123"]),
        ([(1, 1e-9)], ["1 token", "cost less than 0.000001"]),
    ],
)
def test_unknown_cost_is_never_shown_as_nothing(calls: list[tuple[int, float | None]], words: list[str]) -> None:
    spent = ModelUse()
    for tokens, cost in calls:
        spent.add(tokens, cost)

    assert spending_words(spent) == words


def test_summary_of_a_run_names_what_it_has_cost() -> None:
    @dagrun.tool(effect="read")
    async def dear(context: dagrun.ToolContext) -> int:
        context.report_usage(tokens=1_000, cost=0.125)
        return 1

    async def main() -> str:
        return summarise(await dagrun.run(dagrun.Plan(steps=[dagrun.Step(id="a", tool="dear")]), tools=[dear]))

    assert run_virtual(main).endswith("1,000 tokens, cost 0.125)")
