"""Hedging: what a second call changes, which calls get one, and when."""

from __future__ import annotations

import time
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import HedgeRule, Status, Step, ToolContext, ToolError
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.tool import make_tool
from hedge_tools import PATIENCE, USUAL, Act, Looker, known, nap, play, started, step
from places import unplaced
from small_tools import AT_ONCE, near, states

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

SLOW: Final = Act(100.0, "slow")
QUICK: Final = Act(0.5, "quick")
BUSY: Final = ToolError("busy", retryable=True)
ALL: Final = ["AttemptStarted", "Hedged", "HedgeEnded", "AttemptEnded"]


# Who wins -------------------------------------------------------------------------------------------------------------


async def test_the_second_call_wins_if_it_is_faster() -> None:
    """That is what it is for: the run takes as long as the patience and the second call, not as the slow one."""
    look = Looker(SLOW, QUICK)
    played = await play(step(), tools=[look])

    assert played.result.output == "quick"
    assert played.result.makespan == near(PATIENCE + 0.5)
    assert USUAL < PATIENCE < USUAL * 1.05 * 1.06  # what is remembered is rounded by 5 %, and so is the patience
    assert played.told() == ALL
    assert look.ends == ["cancelled", "returned"]
    assert played.since(look.calls[0].told) == near(PATIENCE + 0.5)
    hedge = played.hedge()
    assert (hedge.has_won, hedge.fault, hedge.started, hedge.ended) == (True, "", near(PATIENCE), near(PATIENCE + 0.5))


async def test_what_depends_on_it_starts_at_once() -> None:
    """Nothing waits for the first call to clean up, but the end of the run for its tasks."""
    look = Looker(Act(100.0, unwinds=0.7), QUICK)
    played = await play(step(), nap("next", 1.0, "slow"), tools=[look])

    assert played.attempt("next").started == near(PATIENCE + 0.5)
    assert played.result.makespan == near(PATIENCE + 1.5)
    assert played.since(look.calls[0].ended) == near(PATIENCE + 1.2)


async def test_the_first_call_wins_after_all() -> None:
    """It was slow, and not too slow: the second one is stopped, and leaves nothing but its record."""
    look = Looker(Act(2.0, "first"), Act(5.0, "second"))
    played = await play(step(), nap("next", 1.0, "slow"), tools=[look])

    assert played.result.steps["slow"].output == "first"
    assert played.result.makespan == near(3.0)
    assert played.told() == ALL
    assert look.ends == ["returned", "cancelled"]
    assert played.since(look.calls[1].told) == near(2.0)
    assert (played.hedge().has_won, played.hedge().fault, played.hedge().ended) == (False, "", near(2.0))
    assert len(played.result.steps["slow"].attempts) == 1


async def test_the_second_call_decides_if_the_first_one_fails() -> None:
    """It is a call already under way: trying a third time would be waste."""
    look = Looker(Act(1.5, BUSY), Act(1.0, "second"))
    played = await play(step(), tools=[look], retry=AT_ONCE)

    assert played.result.output == "second"
    assert played.result.makespan == near(PATIENCE + 1.0)
    assert played.told() == ALL
    assert look.ends == ["failed", "returned"]
    assert played.hedge().has_won


async def test_the_first_call_goes_on_if_the_second_one_fails() -> None:
    """A failure of the call that was made for speed is none of the step."""
    look = Looker(Act(3.0, "first"), Act(0.5, BUSY))
    played = await play(step(), tools=[look], retry=AT_ONCE)

    assert (played.result.output, played.result.makespan) == ("first", near(3.0))
    assert played.told() == ALL
    assert (played.hedge().has_won, played.hedge().fault) == (False, "busy")
    assert played.hedge().ended == near(PATIENCE + 0.5)
    assert len(look.calls) == 2


@pytest.mark.parametrize("first", [1.5, 5.0])
async def test_if_both_fail_recovery_goes_by_the_first(first: float) -> None:
    """As if there had been no hedge: the failure of the second is on record, and decides nothing."""
    acts = {"slow": [Act(first, BUSY), Act(1.0, ValueError("worse")), Act(0.25, "third")]}
    look = Looker(by_step=acts)
    played = await play(step(), tools=[look], retry=AT_ONCE)

    assert played.result.output == "third"
    assert played.result.makespan == near(max(first, PATIENCE + 1.0) + 0.25)
    attempts = played.result.steps["slow"].attempts
    assert [attempt.decision.recovery for attempt in attempts if attempt.decision] == [
        Recovery.RETRY,
        Recovery.PROCEED,
    ]
    assert attempts[0].outcome is not None
    assert attempts[0].outcome.failure is not None
    assert attempts[0].outcome.failure.message == "busy"
    assert unplaced(played.hedge().fault) == "ValueError: worse"
    assert attempts[1].hedge is None


async def test_each_attempt_may_be_hedged() -> None:
    """A retry is as likely to be slow."""
    look = Looker(Act(1.5, BUSY), Act(0.3, BUSY), SLOW, QUICK)
    played = await play(step(), tools=[look], retry=AT_ONCE)

    assert played.result.output == "quick"
    assert played.result.makespan == near(1.5 + PATIENCE + 0.5)
    assert played.told() == ALL * 2
    assert [event.attempt for event in played.of(dagrun.events.Hedged)] == [1, 2]


async def test_an_attempt_gets_one_second_call_at_most() -> None:
    """A third one beside two slow ones is no better than the second."""
    look = Looker(SLOW)
    played = await play(step(), tools=[look])

    assert len(look.calls) == 2
    assert played.result.makespan == near(100.0)


async def test_the_surprise_of_the_call_that_counts_counts() -> None:
    """What the first call has said of itself is not true of the result of the second."""

    async def is_surprised(context: ToolContext) -> str:
        context.surprise("ten times the rows")
        return "odd"

    async def is_surprised_and_hangs(context: ToolContext) -> None:
        context.surprise("never counted")
        await anyio.sleep_forever()

    for acts, surprise in (
        ((Act(gives=is_surprised_and_hangs), QUICK), ""),
        ((SLOW, Act(0.5, is_surprised)), "ten times the rows"),
    ):
        played = await play(step(), tools=[Looker(*acts)])
        outcome = played.attempt().outcome
        assert outcome is not None
        assert (played.hedged, outcome.surprise) == (["slow"], surprise)


# Which calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["pure", "read"])
async def test_what_only_looks_is_hedged(effect: str) -> None:
    """To do it twice changes nothing out there."""
    played = await play(step(), tools=[Looker(SLOW, QUICK, effect=effect)])
    assert played.hedged == ["slow"]


@pytest.mark.parametrize("effect", ["idempotent", "effectful"])
@pytest.mark.parametrize("tools", [(), ("look",)])
async def test_what_changes_the_world_never_is(effect: str, tools: tuple[str, ...]) -> None:
    """Whatever the policy says: two at once could both take effect, and a cancelled one is in doubt."""
    look = Looker(Act(5.0, "done"), QUICK, effect=effect, needs_approval=False)
    played = await play(step(), tools=[look], hedge=HedgeRule(tools=tools))

    assert (played.hedged, len(look.calls)) == ([], 1)
    assert (played.result.status, played.result.makespan) == (Status.SUCCEEDED, near(5.0))


@pytest.mark.real_time
async def test_a_plain_function_in_a_thread_gets_none() -> None:
    """Whichever call is slower could not be stopped; threads that would not stop are counted, and end in a ceiling."""
    calls: list[float] = []

    def look() -> str:
        calls.append(time.monotonic())
        time.sleep(0.1)
        return "done"

    tool = make_tool(look, name="look", effect="read")
    played = await play(step(), tools=[tool], durations=known(seconds=0.01))

    assert (played.hedged, len(calls)) == ([], 1)
    assert played.result.output == "done"


@pytest.mark.parametrize(
    ("tools", "hedged"), [((), True), (("look",), True), (("find", "look"), True), (("find",), False)]
)
async def test_the_policy_may_name_tools(tools: tuple[str, ...], hedged: bool) -> None:
    """Some are too dear to be called twice."""
    find = Looker(QUICK, name="find")
    played = await play(step(), tools=[Looker(Act(5.0), QUICK), find], hedge=HedgeRule(tools=tools))
    assert bool(played.hedged) is hedged


@pytest.mark.parametrize(("calls", "hedged"), [(0, False), (19, False), (20, True)])
async def test_a_tool_must_be_known(calls: int, hedged: bool) -> None:
    """Of a few calls nobody can say what is slow."""
    played = await play(step(), tools=[Looker(Act(5.0), QUICK)], durations=known(calls=calls))
    assert bool(played.hedged) is hedged


async def test_a_run_learns_for_itself_what_is_slow() -> None:
    """The twenty calls before are enough, without anything from another run."""
    look = Looker(Act(1.0), by_step={"slow": [SLOW, QUICK]})
    many = Step(id="many", tool="look", args={"value": "${item}"}, for_each=list(range(20)))
    played = await play(many, step("slow", "look", "many"), tools=[look], durations=known(calls=0))

    assert played.hedged == ["slow"]
    assert played.result.makespan == near(1.0 + PATIENCE + 0.5)


async def test_the_quantile_is_that_of_the_policy() -> None:
    """Of 100 calls of 1 to 100 s, the median is 50 s and the 95th 95 s, to 5 %."""
    for quantile, expected in ((0.5, 50.0), (0.95, 95.0)):
        durations = known(calls=0)
        for seconds in range(1, 101):
            durations.add("look", float(seconds))
        played = await play(
            step(), tools=[Looker(Act(1000.0), QUICK)], durations=durations, hedge=HedgeRule(quantile=quantile)
        )
        assert expected <= played.hedge().started < expected * 1.05 * 1.06


async def test_where_many_calls_are_slow_the_median_decides() -> None:
    """Of every ten calls one takes fifty times as long: the 95th of a hundred is one of those."""
    durations = known(calls=90)
    durations.merge(known(calls=10, seconds=50.0))
    played = await play(step(), tools=[Looker(Act(60.0), QUICK)], durations=durations)
    assert played.hedge().started == near(3 * PATIENCE)


async def test_a_fallback_is_hedged_as_the_tool_that_it_is() -> None:
    """It is known how long its own calls take, not those of the tool that it stands in for."""
    look, other = Looker(Act(0.1, ToolError("no")), name="look"), Looker(SLOW, QUICK, name="other")
    played = await play(step(fallback="other"), tools=[look, other], durations=known("other"))

    assert played.hedged == ["slow"]
    assert (played.result.output, played.result.makespan) == ("quick", near(0.1 + PATIENCE + 0.5))


async def test_an_element_of_a_list_is_hedged() -> None:
    """It is a step like any other, and the for_each waits for the slowest."""
    look = Looker(QUICK, by_step={"each[1]": [SLOW, QUICK]})
    each = Step(id="each", tool="look", args={"value": "${item}"}, for_each=[1, 2, 3])
    played = await play(each, tools=[look])

    assert played.hedged == ["each[1]"]
    assert played.result.steps["each"].output == ["quick"] * 3
    assert played.result.makespan == near(PATIENCE + 0.5)
    assert played.told("each[1]") == ALL


async def test_without_a_rule_nothing_is_made() -> None:
    """What a run does not use costs it nothing: no alarm, and nothing beside the live."""
    look = Looker(Act(5.0), QUICK)
    async with started(step(), nap("other", 5.0), tools=[look], hedge=None) as played:
        await anyio.sleep(2.0)
        assembly = played.run._assembly
        slots = list(assembly.scheduler._running.values())
        assert assembly.scheduler.hedges is None
        assert assembly._alarms._heap == []
        assert assembly._alarms._nap is None
        assert [live.rare for live in slots] == [None, None]
    assert (played.hedged, len(look.calls), played.result.makespan) == ([], 1, near(5.0))


# Only where the run waits ---------------------------------------------------------------------------------------------


async def test_a_slow_step_beside_a_longer_branch_gets_none() -> None:
    """The end of the run would come no sooner."""
    played = await play(step(), nap("long", 100.0), tools=[Looker(Act(10.0), QUICK)])
    assert (played.hedged, played.result.makespan) == ([], near(100.0))


async def test_what_comes_after_it_counts() -> None:
    """The path through a short step may be the longest all the same."""
    steps = [step(), nap("after", 30.0, "slow"), nap("long", 20.0)]
    played = await play(*steps, tools=[Looker(SLOW, QUICK)])
    assert (played.hedged, played.result.makespan) == (["slow"], near(PATIENCE + 30.5))


async def test_what_comes_after_the_others_counts() -> None:
    """A branch is as long as all of it, not as the step that runs now."""
    steps = [step(), nap("other", 2.0), nap("after", 30.0, "other")]
    played = await play(*steps, tools=[Looker(Act(10.0), QUICK)])
    assert (played.hedged, played.result.makespan) == ([], near(32.0))


async def test_if_the_other_branch_ends_sooner_than_thought_it_is_hedged_at_the_next_look() -> None:
    """It is looked at again when it has taken twice as long: there is a point in that as long as it is slow."""
    played = await play(step(), nap("long", 3.0, estimate=100.0), tools=[Looker(SLOW, QUICK)])

    assert played.hedged == ["slow"]
    assert played.result.makespan == near(4 * PATIENCE + 0.5)
    assert played.of(dagrun.events.Hedged)[0].after == near(4 * PATIENCE)


async def test_what_has_gone_of_the_other_branch_counts() -> None:
    """Of 8 s, none are left after 8 s: what is left now is compared, not what there was."""
    played = await play(step(), nap("long", 9.0, estimate=8.0), tools=[Looker(SLOW, QUICK)])
    assert played.result.makespan == near(max(8 * PATIENCE + 0.5, 9.0))


@pytest.mark.parametrize(("seconds", "hedged"), [(60.0, False), (0.5, True)])
async def test_learned_durations_count(seconds: float, hedged: bool) -> None:
    """Where nobody has written an estimate, the tool is known."""
    durations = known()
    durations.merge(known("find", seconds=seconds))
    find = Looker(Act(20.0), name="find")
    played = await play(
        step(), step("other", "find"), tools=[Looker(Act(10.0), QUICK), find], durations=durations,
        hedge=HedgeRule(tools=("look",)),
    )  # fmt: skip
    assert bool(played.hedged) is hedged


async def test_an_estimate_is_believed_before_what_was_learned() -> None:
    """Who writes one knows more about this very step."""
    durations = known()
    durations.merge(known("find", seconds=60.0))
    find = Looker(Act(20.0), name="find")
    played = await play(
        step(), step("other", "find", estimate=0.1), tools=[Looker(Act(30.0), QUICK), find], durations=durations,
        hedge=HedgeRule(tools=("look",)),
    )  # fmt: skip
    assert played.hedged == ["slow"]


async def test_a_long_list_beside_it_counts() -> None:
    """A for_each that runs has no attempt of its own, only its elements have."""
    find = Looker(Act(20.0), name="find")
    each = Step(id="each", tool="find", args={"value": "${item}"}, for_each=[1, 2], estimate=30.0)
    played = await play(step(), each, tools=[Looker(Act(10.0), QUICK), find])
    assert (played.hedged, played.result.makespan) == ([], near(20.0))


# The same run ---------------------------------------------------------------------------------------------------------


async def test_a_run_that_may_not_be_hedged_is_the_same_run() -> None:
    """The rule alone changes nothing about calls that are not slow."""
    look = Looker(Act(0.5, "well"))
    steps = [step("a"), step("b", "look", "a"), nap("c", 1.0, "a")]
    hedged = await play(*steps, tools=[look])
    plain = await play(*steps, tools=[look], hedge=None)

    def shown(played: Any) -> list[Any]:
        return [(type(event).__name__, near(event.at)) for event in played.events]

    assert shown(hedged) == shown(plain)
    assert states(hedged.result) == states(plain.result)


async def test_a_call_that_was_stopped_is_remembered_with_the_time_at_which_it_was_slow() -> None:
    """How long it would have taken nobody knows; a longer time would move the limit on until no call is slow."""
    played = await play(step(), tools=[Looker(SLOW, QUICK)])

    learned = played.run.learned
    assert learned is not None
    assert learned.count("look") == 1
    assert learned.quantile("look", 0.5) == pytest.approx(PATIENCE, rel=0.06)
