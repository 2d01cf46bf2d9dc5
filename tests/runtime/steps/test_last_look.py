"""How the steps of a run have ended is found out in portions: others get their turn, and the run may be changed."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from crash_process import RUN
from dagrun import Add, Drop, MemoryJournal, Patch, Plan, Policy, Run, Step
from dagrun.decide.run_status import Ended, Tally
from dagrun.model.event import Event, RunEnded
from dagrun.model.tool import make_tool
from dagrun.runtime.record import portions as last_look
from dagrun.runtime.record.portions import FinalTally
from places import unplaced
from small_tools import ONCE, near, toolset
from test_skips import _ends, breaks

pytestmark = pytest.mark.anyio

PORTION = 5
BROKEN = "bad failed: ValueError: broken"
STEPS = 60


async def pays() -> None:
    """Fail after a second, with nobody knowing whether it is paid."""
    await breaks()


TOOLS = toolset(make_tool(breaks, effect="read"), make_tool(pays, effect="effectful"))


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few steps are many."""
    monkeypatch.setattr(FinalTally, "portion", PORTION)


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def _broken(*others: Step, **fields: Any) -> Plan:
    """A step that fails after a second, and many that need what it gives."""
    bad = Step(id="bad", retry=ONCE, **{"tool": "breaks"} | fields)
    needy = [_nap(f"s{number}", 1.0, "bad") for number in range(STEPS)]
    return Plan(steps=[bad, *needy, *others])


async def _until_looking(running: Run) -> None:
    """Wait a second, and until all steps have ended; the run has not: it is still to be found out how they did."""
    await anyio.sleep(1.0)
    while not all(state.is_settled for state in running.states.values()):
        await checkpoint()
    assert not running.has_ended


# Turns ----------------------------------------------------------------------------------------------------------------


async def test_others_get_their_turn_between_the_portions(
    small_portions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    class Counting(Tally):
        def add(self, step: Ended) -> None:
            counted.append(step.id)
            super().add(step)

    monkeypatch.setattr(last_look, "Tally", Counting)
    seen = [0]
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        await _until_looking(running)
        while not running.has_ended:
            seen.append(len(counted))
            await checkpoint()
        result = await running.result()

    assert max(after - before for before, after in zip(seen, [*seen[1:], len(counted)], strict=True)) <= 2 * PORTION
    assert len(seen) > STEPS // PORTION // 2  # on trio, who is first in a turn is left to chance
    assert counted == ["bad", *(f"s{number}" for number in range(STEPS))]
    assert (result.status, unplaced(result.reason), result.makespan) == ("failed", BROKEN, near(1.0))


@pytest.mark.parametrize("others", range(PORTION + 1))
async def test_it_ends_whatever_is_left_for_the_last_portion(others: int, small_portions: None) -> None:
    result = await dagrun.run(_broken(*(_nap(f"beside{n}", 1.0) for n in range(others))), tools=TOOLS)
    assert (result.status, unplaced(result.reason)) == ("failed", BROKEN)


async def test_of_few_it_is_known_at_once() -> None:
    """An observer that is shown how the last step has ended is shown in the same turn how the run has."""
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        await anyio.sleep(1.0)
        while not running.states["s0"].is_settled:
            await checkpoint()
        assert running.has_ended


# What comes in between ------------------------------------------------------------------------------------------------


async def test_a_step_that_is_added_meanwhile_runs_and_counts(small_portions: None) -> None:
    """What was counted before it holds no longer."""
    worse = Step(id="worse", tool="breaks", retry=ONCE)
    async with dagrun.start(_broken(_nap("first", 1.0)), tools=TOOLS) as running:
        await _until_looking(running)
        await running.splice(Patch(edits=[Add(step=worse)]))
        await _until_looking(running)
        await running.splice(Patch(edits=[Add(step=_nap("after", 1.0, "first"))]))
        result = await running.result()

    assert unplaced(result.reason) == f"{BROKEN}; worse failed: ValueError: broken"
    assert _ends(result)["after"] == ("succeeded", "")
    assert result.makespan == near(3.0)


async def test_a_patch_that_needs_nothing_to_run_is_counted_too(small_portions: None) -> None:
    """The run ends although nothing ends after the patch; and steps that have left the plan do not count."""
    async with dagrun.start(_broken(optional=True), tools=TOOLS) as running:
        await _until_looking(running)
        gone = [Drop(id=f"s{number}") for number in range(STEPS)]
        await running.splice(Patch(edits=gone))
        result = await running.result()

    assert (result.status, result.reason) == ("succeeded", "0 succeeded, 1 failed")


async def test_a_run_that_is_cancelled_meanwhile_is_cancelled(small_portions: None) -> None:
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        await _until_looking(running)
        running.cancel(reason="enough")
        assert running.has_ended
        result = await running.result()

    assert (result.status, result.reason) == ("cancelled", "enough")


async def test_a_run_that_is_suspended_meanwhile_ends(small_portions: None) -> None:
    """There is nothing that it could go on with."""
    journal = MemoryJournal()
    async with dagrun.start(_broken(), tools=TOOLS, journal=journal, run_id=RUN) as running:
        await _until_looking(running)
        running.suspend("later")
        result = await running.result()

    assert (result.status, unplaced(result.reason)) == ("failed", BROKEN)


async def test_a_run_whose_time_is_over_meanwhile_was_in_time(small_portions: None) -> None:
    """All of its steps have ended before; how they did is found out at once."""
    async with dagrun.start(_broken(), tools=TOOLS, policy=Policy(max_seconds=5.0)) as running:
        await _until_looking(running)
        running._scheduler.finish.out_of_time()  # what the alarm calls; the clock of this test stands still meanwhile
        assert running.has_ended
        result = await running.result()

    assert (result.status, unplaced(result.reason)) == ("failed", BROKEN)


async def test_the_last_turns_take_no_time_that_a_ceiling_would_notice(small_portions: None) -> None:
    """The clock says that the time is over in the very turn in which the last step has ended."""
    policy = Policy(max_seconds=1.5)
    result = await dagrun.run(_broken(), tools=TOOLS, policy=policy)
    assert (result.status, result.makespan) == ("failed", near(1.0))


@pytest.mark.parametrize("tool", ["breaks", "pays"])
async def test_when_the_code_around_ends_it_is_found_out_at_once(tool: str, small_portions: None) -> None:
    """A doubt has to be looked for, however the run ends: no step may be left out because there is no turn for it."""
    plan = _broken(_nap("beside", 1.0, "s0"), tool=tool)
    ended: list[Event] = []
    with anyio.CancelScope() as scope:
        async with dagrun.start(plan, tools=TOOLS, on_event=ended.append) as running:
            await _until_looking(running)
            scope.cancel()
            await checkpoint()

    assert running.has_ended
    (end,) = [event for event in ended if isinstance(event, RunEnded)]
    assert end.status == ("unknown" if tool == "pays" else "cancelled")


async def test_when_the_code_around_ends_a_run_that_is_being_cancelled_it_is_found_out_at_once(
    small_portions: None,
) -> None:
    """Where there is a doubt, a run that is cancelled takes some turns to end, too."""
    ended: list[Event] = []
    with anyio.CancelScope() as scope:
        async with dagrun.start(_broken(tool="pays"), tools=TOOLS, on_event=ended.append) as running:
            await _until_looking(running)
            running.cancel(reason="enough")
            assert not running.has_ended
            scope.cancel()
            await checkpoint()

    assert running.has_ended
    assert [event.status for event in ended if isinstance(event, RunEnded)] == ["unknown"]


async def test_resumed_in_the_middle_of_it(small_portions: None) -> None:
    journal = MemoryJournal()
    with anyio.CancelScope() as scope:
        async with dagrun.start(_broken(), tools=TOOLS, journal=journal, run_id=RUN) as running:
            await _until_looking(running)
            scope.cancel()
            await checkpoint()
    assert running.has_ended

    async with dagrun.resume(RUN, journal=journal, tools=TOOLS) as again:
        result = await again.result()
    assert (result.status, unplaced(result.reason)) == ("failed", BROKEN)
    assert {state for id_, (state, _) in _ends(result).items() if id_ != "bad"} == {"skipped"}


async def test_when_the_code_around_raises_it_is_found_out_at_once(small_portions: None) -> None:
    runs: list[Run] = []

    async def raise_amid() -> None:
        async with dagrun.start(_broken(), tools=TOOLS) as running:
            runs.append(running)
            await _until_looking(running)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await raise_amid()
    assert runs[0].has_ended


async def test_a_run_that_went_well_is_not_looked_at(small_portions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known from what has happened that there is nothing to be found."""
    portions: list[FinalTally] = []
    count_some = FinalTally._count_some

    def count(look: FinalTally) -> None:
        portions.append(look)
        count_some(look)

    monkeypatch.setattr(FinalTally, "_count_some", count)
    result = await dagrun.run(Plan(steps=[_nap(f"s{n}", 1.0) for n in range(STEPS)]), tools=TOOLS)

    assert (result.status, result.reason) == ("succeeded", f"{STEPS} succeeded")
    assert len(portions) == 1
