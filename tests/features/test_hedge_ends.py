"""How hedged steps end otherwise: they are stopped, they misbehave, or the process ends, with both calls under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Drop, Engine, MemoryJournal, Patch, Plan, Policy, RunResult, State, Status, ToolContext, ToolError
from dagrun.api.replaying import replayed
from dagrun.codec import decode_event
from dagrun.events import AttemptEnded, RunEnded
from dagrun.journal.memory import _KeptRun
from dagrun.kernel.graph.fold import state_hash
from hedge_tools import HEDGED, PATIENCE, Act, Looker, Played, kept, known, nap, play, started, step
from misbehaving import BEHAVIOURS, end_what_was_left_behind, skip_what_only_asyncio_has
from small_tools import AT_ONCE, ONCE, SMALL_TOOLS, near, states

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

RUN: Final = "run"
SLOW: Final = Act(100.0, "slow", unwinds=0.25)
QUICK: Final = Act(0.5, "quick")
STOPPED: Final = 3.0  # seconds after the start

Stop = Callable[[Played], Awaitable[Any]]


# Both are stopped -----------------------------------------------------------------------------------------------------


async def _cancel_step(played: Played) -> None:
    played.run.cancel("slow")


async def _cancel_all(played: Played) -> None:
    played.run.cancel()


async def _drop(played: Played) -> None:
    await played.run.splice(Patch(edits=[Drop(id="slow"), Drop(id="after")]))


async def _nothing(played: Played) -> None:
    pass


WAYS: Final[dict[str, tuple[Stop, dict[str, Any], dict[str, Any]]]] = {
    "the step is cancelled": (_cancel_step, {}, {}),
    "the run is cancelled": (_cancel_all, {}, {}),
    "a splice drops the step": (_drop, {}, {}),
    "the attempt runs into its timeout": (_nothing, {"timeout": STOPPED}, {}),
    "the step runs into its deadline": (_nothing, {"deadline": STOPPED}, {}),
    "the run runs into its ceiling": (_nothing, {}, {"max_seconds": STOPPED}),
}


async def _stopped(way: str, look: Looker, **policy: Any) -> Played:
    stop, fields, more = WAYS[way]
    steps = [step(**fields), nap("after", 1.0, "slow"), nap("other", 4.0, estimate=0.1)]
    async with started(*steps, tools=[look], retry=ONCE, **more, **policy) as played:
        await anyio.sleep(STOPPED)
        await stop(played)
    return played


@pytest.mark.parametrize("way", WAYS)
async def test_both_calls_are_told_at_once(way: str) -> None:
    """And the step ends as it would have without a hedge, when the first call has unwound."""
    hedged, plain = Looker(SLOW), Looker(SLOW)
    played, unhedged = await _stopped(way, hedged), await _stopped(way, plain, hedge=None)

    assert [played.since(call.told) for call in hedged.calls] == [near(STOPPED)] * 2
    assert [played.since(call.ended) for call in hedged.calls] == [near(STOPPED + 0.25)] * 2
    assert states(played.result) == states(unhedged.result)
    assert played.result.steps["slow"].reason == unhedged.result.steps["slow"].reason
    assert (played.result.status, played.result.reason) == (unhedged.result.status, unhedged.result.reason)
    assert played.result.makespan == near(unhedged.result.makespan)
    assert played.told()[-2:] == ["HedgeEnded", "AttemptEnded"]
    assert not played.hedge().has_won


@pytest.mark.parametrize("way", WAYS)
async def test_what_swallows_its_cancellation_gives_nothing(way: str) -> None:
    """A value that arrives late is never used, from whichever call it comes."""

    async def gives_all_the_same(context: ToolContext) -> str:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "late"

    look = Looker(SLOW, Act(gives=gives_all_the_same))
    played = await _stopped(way, look)

    assert played.result.steps["slow"].state is not State.SUCCEEDED
    assert not played.hedge().has_won


async def test_a_timeout_is_one_of_both_calls() -> None:
    """The second call gets what is left of the attempt, and no more: else a step would take longer than it may."""
    look = Looker(SLOW)
    played = await play(step(timeout=3.0), tools=[look], retry=AT_ONCE)

    assert [played.since(call.began) for call in look.calls][:3] == [0, near(PATIENCE), near(3.25)]
    assert played.attempt().outcome is not None
    assert str(played.result.steps["slow"].state) == "timed_out"
    assert played.told() == ["AttemptStarted", "Hedged", "HedgeEnded", "AttemptEnded"] * 2


@pytest.mark.parametrize("swallows", [False, True])
@pytest.mark.parametrize("first_fails", [False, True])
async def test_the_code_around_is_cancelled(swallows: bool, first_fails: bool) -> None:
    """Neither call has succeeded or failed: the run is cancelled, whatever they make of it."""

    async def gives_all_the_same(context: ToolContext) -> str:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "late"

    last = Act(gives=gives_all_the_same) if swallows else Act(100.0)
    look = Looker(Act(1.5, ToolError("no")) if first_fails else Act(100.0), last)
    events: list[Any] = []
    with anyio.move_on_after(STOPPED) as around:
        await dagrun.run(
            Plan(steps=[step()]),
            tools=[*SMALL_TOOLS, look.tool],
            policy=Policy(hedge=HEDGED),
            durations=known(),
            on_event=events.append,
        )
    assert around.cancelled_caught
    assert len(look.calls) == 2
    assert [call.ended is not None for call in look.calls] == [True, True]
    (ended,) = [event for event in events if isinstance(event, AttemptEnded)]
    assert ended.outcome.state is State.CANCELLED
    assert isinstance(events[-1], RunEnded)
    assert events[-1].status is Status.CANCELLED


@pytest.mark.parametrize("after", [0.0, PATIENCE - 0.01, PATIENCE, PATIENCE + 0.01, 1.5, 1.51, PATIENCE + 1, 3.0])
@pytest.mark.parametrize("outside", [False, True])
async def test_a_cancellation_at_any_time_leaves_nothing(after: float, outside: bool) -> None:
    """Before, amid and after all that happens to two calls."""
    look = Looker(Act(1.5, ToolError("no")), Act(1.0))
    if outside:
        with anyio.move_on_after(after):
            await play(step(), tools=[look], max_running=2)
        assert look.alive.now == 0
        return
    async with started(step(), tools=[look], max_running=2) as played:
        await anyio.sleep(after)
        played.run.cancel("slow")
    assert played.result.steps["slow"].state in (State.CANCELLED, State.SUCCEEDED)


# They misbehave -------------------------------------------------------------------------------------------------------


async def _swallows(context: ToolContext) -> None:
    await BEHAVIOURS["swallows_every_cancellation"]()


async def _shields_itself(context: ToolContext) -> None:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(50.0)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_loser_that_swallows_its_cancellation_is_dropped(is_first: bool) -> None:
    """The result does not wait for it; after the grace period it is closed."""
    stubborn = Act(gives=_swallows)
    look = Looker(stubborn, QUICK) if is_first else Looker(Act(1.5, "first"), stubborn)
    played = await play(step(), nap("next", 3.0, "slow"), tools=[look], max_running=2, grace=1.0)

    won = PATIENCE + 0.5 if is_first else 1.5
    assert played.attempt("next").started == near(won)
    assert played.result.makespan == near(won + 3.0)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_loser_that_cannot_be_stopped_keeps_its_place_for_the_grace_period(
    is_first: bool, anyio_backend: tuple[str, Any]
) -> None:
    """As any call that will not stop: after that the run goes on as if it were not there. asyncio has dropped it."""
    stubborn = Act(gives=_shields_itself)
    look = Looker(stubborn, QUICK) if is_first else Looker(Act(1.5, "first"), stubborn)
    after = [nap(f"after{i}", 4.0, "slow") for i in range(2)]
    async with started(step(), *after, tools=[look], max_running=2, grace=1.0) as played:
        result = await played.run.result()
        won = PATIENCE + 0.5 if is_first else 1.5
        assert [result.steps[s.id].attempts[0].started for s in after] == [near(won), near(won + 1.0)]
        assert look.alive.now == (anyio_backend[0] == "trio")
        assert anyio.current_time() - played.zero == near(won + 5.0)


@pytest.mark.parametrize("name", [name for name in BEHAVIOURS if name != "runs_a_loop_inside"])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.filterwarnings("ignore")
async def test_a_call_that_misbehaves_harms_nobody_else(name: str, is_first: bool) -> None:
    """Scopes left open, cancellations of its own task, what is no Exception: the other call decides, or a retry."""
    skip_what_only_asyncio_has(name)

    async def misbehaves(context: ToolContext) -> Any:
        if is_first:
            await anyio.sleep(1.5)
        return await BEHAVIOURS[name]()

    bad = Act(gives=misbehaves)
    look = Looker(bad, Act(1.0, "well")) if is_first else Looker(Act(9.0, "well"), bad)
    other = [nap("other", 4.0, estimate=0.1), nap("next", 1.0, "other", estimate=0.1)]
    try:
        played = await play(step(), *other, tools=[look], grace=0.5, max_running=3, retry=ONCE)
    finally:
        await end_what_was_left_behind()

    assert played.hedged[:1] == ["slow"]
    assert [str(played.result.steps[id_].state) for id_ in ("other", "next")] == ["succeeded"] * 2
    assert played.attempt("next").ended == near(5.0)
    slow = played.result.steps["slow"]
    outcome = slow.attempts[0].outcome
    assert outcome is not None
    assert outcome.state in (State.SUCCEEDED, State.FAILED)
    assert played.hedge().has_won <= (outcome.state is State.SUCCEEDED)
    if outcome.state is State.FAILED:
        assert outcome.failure is not None
        assert "left a cancel scope" in outcome.failure.message


async def test_a_second_call_may_never_suspend() -> None:
    """It has won before it was begun, so to say."""
    look = Looker(SLOW, Act(gives="at once"))
    played = await play(step(), nap("next", 1.0, "slow"), tools=[look])
    assert played.result.makespan == near(PATIENCE + 1.0)


async def test_a_second_call_that_is_stopped_before_it_has_begun_is_not_made() -> None:
    """Whoever watches the run may stop the step at the instant at which it is hedged."""
    look = Looker(SLOW)

    def stop(event: dagrun.Event) -> None:
        if isinstance(event, dagrun.events.Hedged):
            running.cancel("slow")

    async with dagrun.start(
        Plan(steps=[step()]),
        tools=[look.tool],
        policy=Policy(hedge=HEDGED, max_running=2),
        durations=known(),
        on_event=stop,
    ) as running:
        result = await running.result()
    assert len(look.calls) == 1
    assert result.steps["slow"].state is State.CANCELLED
    assert kept(running) == []


async def test_both_calls_end_at_the_same_instant() -> None:
    """Whichever is seen first decides, and the other changes nothing."""
    look = Looker(Act(PATIENCE + 1.0, "first"), Act(1.0, "second"))
    played = await play(step(), tools=[look], max_running=2)
    assert played.result.output in ("first", "second")
    assert played.hedge().has_won is (played.result.output == "second")
    assert played.told() == ["AttemptStarted", "Hedged", "HedgeEnded", "AttemptEnded"]


async def test_a_call_that_ends_when_it_becomes_slow() -> None:
    """The alarm and the end fall together: there is one of both, and the record fits."""
    look = Looker(Act(PATIENCE, "first"), Act(1.0, "second"))
    played = await play(step(), tools=[look], max_running=2)
    assert played.result.output == "first"
    assert played.result.makespan == near(PATIENCE)


# With a journal -------------------------------------------------------------------------------------------------------


def _journal_of(texts: list[bytes]) -> MemoryJournal:
    journal = MemoryJournal()
    kept = journal._runs[RUN] = _KeptRun(RUN)
    kept.texts = list(texts)
    return journal


async def _resumed(journal: MemoryJournal, look: Looker) -> tuple[RunResult, Any]:
    tools = [*SMALL_TOOLS, look.tool]
    async with Engine(durations=known()) as engine, engine.resume(RUN, tools=tools, journal=journal) as running:
        result = await running.result()
    return result, running._assembly


async def test_a_suspended_run_goes_on_with_new_calls() -> None:
    """Both are let go of without an end; both have been made, and are charged."""
    journal, look = MemoryJournal(), Looker(Act(100.0, tokens=30), Act(50.0, tokens=40), max_tokens=100)
    async with started(
        step(), nap("next", 1.0, "slow"), tools=[look], journal=journal, run_id=RUN, max_tokens=1000, max_running=2
    ) as played:
        await anyio.sleep(STOPPED)
        played.run.suspend()
    assert played.result.status is Status.CANCELLED
    assert "AttemptEnded" not in played.told()
    assert [played.since(call.told) for call in look.calls] == [near(STOPPED)] * 2

    again = Looker(Act(0.5, "well", tokens=7), max_tokens=100)
    result, assembly = await _resumed(journal, again)
    assert (result.status, states(result)) == (Status.SUCCEEDED, {"slow": "succeeded", "next": "succeeded"})
    # What was let go of is charged at its worst: the first call, and the second unless it was seen to end before.
    assert assembly.parts.ledger.used()["tokens"] in (7 + 100 + 40, 7 + 200)
    assert (await dagrun.replay(RUN, journal=journal)).hash == state_hash(assembly.parts.graph)


@pytest.mark.parametrize(
    "acts",
    [
        (Act(100.0, "slow", tokens=30), Act(0.5, "quick", tokens=40)),
        (Act(1.5, "first", tokens=30), Act(50.0, tokens=40)),
        (Act(1.5, ToolError("no", retryable=True), tokens=30), Act(1.0, "quick", tokens=40)),
        (Act(1.5, ToolError("no", retryable=True), tokens=30), Act(1.0, ValueError("no"), tokens=40), QUICK),
    ],
)
async def test_a_crash_after_any_record_is_made_up_for(acts: tuple[Act, ...]) -> None:
    """The process ends with the calls under way: what is on record is charged, and the run goes on to the same end."""
    journal, look = MemoryJournal(), Looker(*acts, max_tokens=100)
    plan = [step(), nap("next", 1.0, "slow")]
    played = await play(*plan, tools=[look], journal=journal, run_id=RUN, max_tokens=1000, max_running=2, retry=AT_ONCE)
    texts = journal._runs[RUN].texts
    whole = replayed(RUN, [decode_event(text) for text in texts])
    assert whole.hash == state_hash(played.run._assembly.parts.graph)

    for count in range(1, len(texts)):
        left = _journal_of(texts[:count])
        begun = [type(decode_event(text)).__name__ for text in texts[:count]]
        calls = begun.count("Hedged") + sum(
            1 for text in texts[:count] if getattr(decode_event(text), "tool", "") == "look"
        )
        again = Looker(Act(0.5, "again", tokens=7), max_tokens=100)
        result, assembly = await _resumed(left, again)

        assert result.status is Status.SUCCEEDED
        assert states(result) == {"slow": "succeeded", "next": "succeeded"}
        spent = assembly.parts.ledger.used()["tokens"]
        assert spent >= 30 * min(calls, 1) + 40 * begun.count("HedgeEnded")
        assert spent <= 100 * calls + 7 * len(again.calls)
        if begun[-1] == "Hedged":
            assert spent == 200 + 7
        assert (await dagrun.replay(RUN, journal=left)).hash == state_hash(assembly.parts.graph)


async def test_the_code_around_is_cancelled_and_the_run_goes_on_later() -> None:
    """With a journal a cancellation is a suspension; what a second call makes of it is no result."""

    async def gives_all_the_same(context: ToolContext) -> str:
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep_forever()
        return "late"

    journal, look = MemoryJournal(), Looker(SLOW, Act(gives=gives_all_the_same))
    with anyio.move_on_after(STOPPED):
        await dagrun.run(
            Plan(steps=[step()]), tools=[look.tool], policy=Policy(hedge=HEDGED), durations=known(), journal=journal,
            run_id=RUN,
        )  # fmt: skip
    before = await dagrun.replay(RUN, journal=journal)
    assert not before.has_ended
    assert before.states == {"slow": State.RUNNING}

    result, _ = await _resumed(journal, Looker(Act(0.5, "well")))
    assert result.output == "well"
