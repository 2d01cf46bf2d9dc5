"""Steps that fail with many behind them: those are skipped in portions, while others in the loop get their turn."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from crash_process import RUN
from dagrun import Add, Answer, MemoryJournal, Patch, Plan, Policy, Run, RunResult, Step, ToolContext
from dagrun.errors import SpliceRefused
from dagrun.model.event import Event, GoalChanged, ReplanRequested, StepSettled
from dagrun.model.tool import make_tool
from dagrun.runtime.record.portions import FinalTally, Skips
from dagrun.runtime.steps.run_completion import EndEarly
from keeping import Keeping
from replans import Thinker
from small_tools import ONCE, near, toolset

pytestmark = pytest.mark.anyio

PORTION = 5
STEPS = 60
STOPPED = "beside failed, and its on_failure is stop"


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few steps are many."""
    monkeypatch.setattr(Skips, "portion", PORTION)


async def breaks(seconds: float = 1.0, turns: int = 0) -> None:
    """Fail after a while, and some turns of the loop."""
    await anyio.sleep(seconds)
    for _ in range(turns):
        await checkpoint()
    raise ValueError("broken")


async def spends(ctx: ToolContext) -> None:
    """Spend nearly all there is, a few turns after `breaks` has failed."""
    await anyio.sleep(1.0)
    for _ in range(3):
        await checkpoint()
    ctx.report_usage(tokens=90)


async def pay() -> str:
    """Pay, a few turns after `breaks` has failed."""
    return "paid"


TOOLS = toolset(
    make_tool(breaks, effect="read"),
    make_tool(spends, effect="read", max_tokens=95),
    make_tool(pay, effect="effectful", needs_approval=True),
)


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def _broken(*others: Step, count: int = STEPS, **fields: Any) -> Plan:
    """A step that fails after a second, a chain behind it, and others."""
    bad = Step(id="bad", tool="breaks", retry=ONCE, **fields)
    before = ["bad", *(f"s{number}" for number in range(count - 1))]
    chain = [
        Step(id=f"s{number}", tool="nap", args={"seconds": 1.0, "gives": f"${{{before[number]}}}"})
        for number in range(count)
    ]
    return Plan(steps=[bad, *chain, *others])


def _open(running: Run) -> int:
    """How many steps of the chain have not been skipped."""
    return sum(1 for id_, state in running.states.items() if id_.startswith("s") and not state.is_settled)


async def _until_amid(running: Run) -> None:
    """Wait until some of the chain is skipped, and not all."""
    await anyio.sleep(1.0)
    while _open(running) > STEPS - 2 * PORTION:
        await checkpoint()
    assert _open(running)


def _ends(result: RunResult) -> dict[str, tuple[str, str]]:
    return {id_: (str(step.state), step.reason) for id_, step in result.steps.items()}


# Turns ----------------------------------------------------------------------------------------------------------------


async def test_a_step_that_many_wait_for_leaves_them_all_to_later_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """To block so many takes long enough: none is skipped in the same turn, though a portion would hold them all."""
    monkeypatch.setattr("dagrun.runtime.record.portions.MANY", STEPS // 2)
    monkeypatch.setattr("dagrun.runtime.record.portions.STEPS_A_TURN", PORTION)
    assert Skips.portion > STEPS
    bad = Step(id="bad", tool="breaks", retry=ONCE, args={"turns": 10})
    fan = [_nap(f"s{number}", 1.0, "bad") for number in range(STEPS)]
    seen = set[int]()

    async with dagrun.start(Plan(steps=[bad, *fan]), tools=TOOLS) as running:
        await anyio.sleep(1.0)
        while not running.states["bad"].is_settled:
            await checkpoint()
        while left := _open(running):
            seen.add(left)
            await checkpoint()
        result = await running.result()

    assert max(seen) >= STEPS - 2 * PORTION
    assert len(seen) >= STEPS // (2 * PORTION) - 1
    assert {state for id_, (state, _) in _ends(result).items() if id_ != "bad"} == {"skipped"}


async def test_others_get_their_turn_between_the_portions(small_portions: None) -> None:
    turns = 0
    async with dagrun.start(_broken(_nap("beside", 5.0)), tools=TOOLS) as running:
        await _until_amid(running)
        while _open(running):
            await checkpoint()
            turns += 1
        assert running.states["beside"] == "running"
        result = await running.result()

    assert turns >= STEPS // PORTION - 3
    assert (result.status, result.makespan) == ("failed", near(5.0))
    assert _ends(result)["s0"] == ("skipped", "bad failed")
    assert _ends(result)["s40"] == ("skipped", "bad failed, so s39 was skipped")
    assert _ends(result)["beside"] == ("succeeded", "")


async def test_a_run_ends_with_the_last_that_is_skipped(small_portions: None) -> None:
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        result = await running.result()

    assert (result.status, result.makespan) == ("failed", near(1.0))
    assert {str(state) for state in running.states.values()} == {"failed", "skipped"}


@pytest.mark.parametrize("count", [PORTION - 1, PORTION, PORTION + 1, 2 * PORTION])
async def test_it_ends_whatever_is_left_for_the_last_portion(count: int, small_portions: None) -> None:
    result = await dagrun.run(_broken(count=count), tools=TOOLS)
    assert (result.status, len(result.steps)) == ("failed", count + 1)


@pytest.mark.parametrize("turns", range(12))
@pytest.mark.parametrize("on_failure", [None, "skip"])
async def test_it_ends_whenever_another_step_fails(turns: int, on_failure: Any, small_portions: None) -> None:
    """Also in the turn in which the last of those behind the first one have just been skipped."""
    second = Step(id="second", tool="breaks", args={"turns": turns}, retry=ONCE, on_failure=on_failure)
    hubs = [Step(id="first", tool="breaks", retry=ONCE), second]
    behind = [_nap(f"{hub.id}{number}", 1.0, hub.id) for hub in hubs for number in range(2 * PORTION + 1)]
    with anyio.fail_after(100.0):
        result = await dagrun.run(Plan(steps=[*hubs, *behind]), tools=TOOLS)

    ends = {state for id_, (state, _) in _ends(result).items() if id_.startswith("second") and id_ != "second"}
    assert ends == {"succeeded" if on_failure == "skip" else "skipped"}
    assert result.status == "failed"


async def test_few_are_skipped_at_once() -> None:
    """An observer that is shown how a step has failed is shown in the same turn what that takes along."""
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        await anyio.sleep(1.0)
        while running.states["bad"] == "running":
            await checkpoint()
        assert not _open(running)


def _any_plan(seed: int) -> tuple[Plan, Policy]:
    """A plan in which a fourth of the steps fail, many at the same time."""
    rng = random.Random(seed)
    steps = []
    for number in range(rng.randint(20, 50)):
        near_by = [f"s{other}" for other in range(max(0, number - 6), number)]
        fields: dict[str, Any] = {"depends_on": rng.sample(near_by, min(len(near_by), rng.randint(0, 3)))}
        fields["on_failure"] = rng.choice(["skip", None, None, None if rng.random() < 0.9 else "stop"])
        seconds = [rng.choice([0.0, 1.0, 2.0]) for _ in range(3)]
        if rng.random() < 0.15:
            fields |= {"for_each": seconds[: rng.randint(1, 3)], "args": {"seconds": "${item}"}}
        else:
            fields["args"] = {"seconds": seconds[0]}
        tool = "breaks" if rng.random() < 0.25 else "nap"
        steps.append(Step(id=f"s{number}", tool=tool, retry=ONCE, **fields))
    if rng.random() < 0.3:
        rng.shuffle(steps)
    policy = Policy(max_running=rng.choice([None, 2, 5]), release_outputs=rng.random() < 0.3)
    return Plan(steps=steps), policy


@pytest.mark.parametrize("kind", [Skips, FinalTally])
@pytest.mark.parametrize("seed", range(40))
async def test_in_portions_each_step_and_the_run_end_as_they_do_at_once(
    seed: int, kind: Any, monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("which of those that end at once is first is left to chance there")
    plan, policy = _any_plan(seed)
    at_once = await dagrun.run(plan, tools=TOOLS, policy=policy)
    monkeypatch.setattr(kind, "portion", 1 + seed % 3)
    in_portions = await dagrun.run(plan, tools=TOOLS, policy=policy)

    assert _ends(in_portions) == _ends(at_once)
    assert (in_portions.status, in_portions.reason) == (at_once.status, at_once.reason)
    assert in_portions.makespan == near(at_once.makespan)


# What comes in between ------------------------------------------------------------------------------------------------


async def test_what_depends_on_a_cancelled_step_is_skipped_so_too(small_portions: None) -> None:
    async with dagrun.start(_broken(_nap("beside", 5.0)), tools=TOOLS) as running:
        await anyio.sleep(0.5)
        assert running.cancel("s0", reason="enough")
        assert STEPS - 1 > _open(running) > 0
        assert not running.cancel("s50")  # all that is left is skipped first
        assert not _open(running)
        result = await running.result()

    assert _ends(result)["s50"] == ("skipped", "s0 cancelled, so s49 was skipped")


@pytest.mark.parametrize("portion", [20, 500], ids=["swept in portions", "swept at once"])
@pytest.mark.parametrize("how", ["cancelled", "fails", "time is over"])
async def test_a_run_that_is_ended_meanwhile(
    how: str, portion: int, small_portions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was to be skipped is, for the reason that it had; the rest is cancelled."""
    monkeypatch.setattr(EndEarly, "portion", portion)
    others = [_nap("slow", 9.0), _nap("late", 1.0, "slow")]
    if how == "fails":
        others.append(Step(id="beside", tool="breaks", args={"turns": 4}, retry=ONCE, on_failure="stop"))
    policy = Policy(max_seconds=1.0 if how == "time is over" else None)
    async with dagrun.start(_broken(*others), tools=TOOLS, policy=policy) as running:
        if how == "cancelled":
            await _until_amid(running)
            running.cancel(reason="enough")
        result = await running.result()

    ends = _ends(result)
    if how != "time is over":
        assert ends["s50"] == ("skipped", "bad failed, so s49 was skipped")
        assert ends["late"] == ("cancelled", "enough" if how == "cancelled" else STOPPED)
    assert result.status == {"cancelled": "cancelled", "fails": "failed", "time is over": "over_budget"}[how]
    assert all(str(state) in ("failed", "skipped", "cancelled", "timed_out") for state, _ in ends.values())


async def test_a_splice_meanwhile_finds_all_of_them_skipped(small_portions: None) -> None:
    patch = Patch(edits=[Add(step=_nap("new", 1.0, "s50"))])
    async with dagrun.start(_broken(_nap("beside", 5.0)), tools=TOOLS) as running:
        await _until_amid(running)
        with pytest.raises(SpliceRefused, match="s50"):
            await running.splice(patch)
        assert not _open(running)
        await running.splice(Patch(edits=[Add(step=_nap("new", 1.0, "beside"))]))
        result = await running.result()

    assert _ends(result)["new"] == ("succeeded", "")
    assert result.makespan == near(6.0)


async def test_a_run_of_which_somebody_else_skips_the_rest_ends(small_portions: None) -> None:
    """A check of a patch changes nothing, so nobody looks whether the run has ended with it."""
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        await _until_amid(running)
        with pytest.raises(SpliceRefused):
            running.check(Patch(edits=[]))
        assert not running.has_ended
        result = await running.result()

    assert result.status == "failed"


async def test_a_planner_that_is_asked_meanwhile_sees_all_of_them_skipped(small_portions: None) -> None:
    worse = Step(id="worse", tool="breaks", args={"turns": 4}, retry=ONCE, on_failure="replan")
    planner = Thinker(None, seconds=1.0)
    seen: list[Event] = []
    plan = _broken(worse, on_failure="skip")
    result = await dagrun.run(plan, tools=TOOLS, planner=planner, on_event=seen.append)

    assert [trigger.step for brief in planner.briefs for trigger in brief.triggers] == ["worse"]
    assert {str(view.state) for id_, view in planner.briefs[0].steps.items() if id_[0] == "s"} == {"skipped"}
    assert result.makespan == near(2.0)
    assert _left_after(seen, ReplanRequested) == 0


async def test_a_new_goal_comes_when_all_of_them_are_skipped(small_portions: None) -> None:
    seen: list[Event] = []
    plan = _broken(_nap("beside", 5.0), on_failure="skip")
    async with dagrun.start(plan, tools=TOOLS, planner=Thinker(None), on_event=seen.append) as running:
        await _until_amid(running)
        await running.change_goal("another one")
        await running.result()

    assert _left_after(seen, GoalChanged) == 0


def _left_after(seen: list[Event], kind: type[Event]) -> int:
    """How many steps were skipped after the first event of a kind."""
    first = next(number for number, event in enumerate(seen) if isinstance(event, kind))
    return sum(1 for event in seen[first:] if isinstance(event, StepSettled) and event.state == "skipped")


async def test_a_person_is_asked_when_all_of_them_are_skipped(small_portions: None) -> None:
    """What an answer changes must not meet a plan that is half skipped."""
    asks = [_nap("before", 1.0), Step(id="pay", tool="pay", depends_on=["before"])]
    async with dagrun.start(_broken(*asks), tools=TOOLS, attended=True) as running:
        await anyio.sleep(1.0)
        while not running.pending:
            await checkpoint()
        assert not _open(running)
        await running.answer(running.pending[0], Answer(choice="approve"))
        result = await running.result()

    assert _ends(result)["pay"] == ("succeeded", "")


async def test_what_is_optional_is_dropped_when_all_of_them_are_skipped(small_portions: None) -> None:
    chain = [_nap(f"s{n}", 1.0, f"s{n - 1}" if n else "bad", optional=n == STEPS - 1) for n in range(STEPS)]
    bad, spend = Step(id="bad", tool="breaks", retry=ONCE), Step(id="spend", tool="spends")
    late = [_nap("beside", 5.0), _nap("extra", 1.0, "beside", optional=True)]
    policy = Policy(max_tokens=100, warn_at=0.8)
    result = await dagrun.run(Plan(steps=[bad, spend, *chain, *late]), tools=TOOLS, policy=policy)

    assert _ends(result)[f"s{STEPS - 1}"] == ("skipped", f"bad failed, so s{STEPS - 2} was skipped")
    assert _ends(result)["extra"][1].startswith("optional, and 90 of 100 tokens")


# The end of the process, and of the code around -----------------------------------------------------------------------


async def test_a_run_that_is_suspended_meanwhile_is_so_when_all_are_skipped(small_portions: None) -> None:
    journal = MemoryJournal()
    async with dagrun.start(_broken(_nap("beside", 5.0)), tools=TOOLS, journal=journal, run_id=RUN) as running:
        await _until_amid(running)
        running.suspend("later")
        result = await running.result()
    assert (result.status, result.reason) == ("cancelled", "later")
    assert not _open(running)

    async with dagrun.resume(RUN, journal=journal, tools=TOOLS) as again:
        result = await again.result()
    assert _ends(result)["beside"] == ("succeeded", "")
    assert _ends(result)["s50"] == ("skipped", "bad failed, so s49 was skipped")


@pytest.mark.parametrize("is_written", [False, True])
async def test_when_the_code_around_ends_the_rest_is_skipped_at_once(is_written: bool, small_portions: None) -> None:
    journal = MemoryJournal() if is_written else None
    with anyio.CancelScope() as scope:
        async with dagrun.start(_broken(), tools=TOOLS, journal=journal) as running:
            await _until_amid(running)
            scope.cancel()
            await checkpoint()

    assert running.has_ended
    assert {str(state) for state in running.states.values()} == {"failed", "skipped"}


async def test_resumed_in_the_middle_of_it(small_portions: None) -> None:
    """Wherever the process ends between two portions: what goes on skips the rest."""
    journal = Keeping()
    await dagrun.run(_broken(count=20), tools=TOOLS, journal=journal, run_id=RUN)
    texts = journal.texts
    failed = next(number for number, text in enumerate(texts) if b'"AttemptEnded"' in text)

    for length in range(failed + 1, len(texts)):
        cut = Keeping()
        cut.put(texts[:length])
        async with dagrun.resume(RUN, journal=cut, tools=TOOLS) as running:
            result = await running.result()
        assert result.status == "failed"
        assert {state for id_, (state, _) in _ends(result).items() if id_ != "bad"} == {"skipped"}


# Teeth ----------------------------------------------------------------------------------------------------------------


class AllAtOnce(Skips):
    """Leaves nothing for the next turn."""

    portion = 10**9


class Keeps(Skips):
    """Leaves what others want skipped for later all the same."""

    def skip_rest(self) -> None:
        pass


class Forgets(Skips):
    """Does not look whether the run has ended with it."""

    async def _work(self) -> None:
        while self._left:
            self._skip_some(self._left.popleft(), self.portion)
            await checkpoint()


CAUGHT_BY: dict[type[Skips], Callable[..., Any]] = {
    AllAtOnce: test_others_get_their_turn_between_the_portions,
    Keeps: test_a_splice_meanwhile_finds_all_of_them_skipped,
    Forgets: test_a_run_ends_with_the_last_that_is_skipped,
}


@pytest.mark.parametrize("mutant", CAUGHT_BY, ids=lambda mutant: mutant.__name__)
async def test_mutants_are_caught(mutant: type[Skips], small_portions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagrun.runtime.record.record.Skips", mutant)
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)), anyio.fail_after(60):
        await CAUGHT_BY[mutant](None)
