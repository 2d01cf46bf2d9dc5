"""Splices into a running plan: every kind of edit to a step in every state, at exact times."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from dagrun import Add, Drop, Event, Replace, Rewire, Run, RunResult, State, Status, Step, ToolError
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.errors import SpliceRefused
from dagrun.events import AttemptEnded, Spliced, StepSettled
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import StandIn
from replans import Thinker, fails, nap, patch, start, uses
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio


def _times(result: RunResult, *ids: str) -> list[float | None]:
    """Start and end of each, one after another."""
    return [time for id_ in ids for time in (result.steps[id_].started, result.steps[id_].ended)]


def _guarded() -> StandIn:
    return scripted("guarded", "x", needs_approval=True)


# Where the step x stands one second after the start; `after` uses what it gives.
SITES: dict[str, tuple[list[Step], dict[str, Any]]] = {
    "waiting": ([nap("x", 1.0, "two")], {}),
    "ready": ([nap("x", 1.0, estimate=1.0)], {"max_running_by_tool": {"nap": 2}}),
    "running": ([nap("x", 3.0)], {}),
    "held": ([Step(id="x", tool="guarded")], {"attended": True}),
    "blocked": ([fails("bad"), nap("x", 1.0, "bad")], {"planner": True}),
    "failed": ([fails("x")], {"planner": True}),
}


def _site(state: str, **fields: Any) -> Any:
    """A run in which x is in *state* after a second; the steps two and five have nothing to do with it."""
    steps, options = SITES[state]
    options = {**options, **fields}
    planner = Thinker(seconds=20.0) if options.pop("planner", False) else None
    others = [nap("two", 2.0, estimate=9.0), nap("five", 5.0, estimate=9.0)]  # the longest paths come first
    return start([*others, *steps, uses("after", "x", estimate=1.0)], planner, _guarded(), **options)


async def _at_one(run: Run, state: str) -> None:
    await anyio.sleep(1)
    assert run.states["x"] == state


def _settles(state: str) -> str:
    return "failed" if state == "failed" else "superseded"


@pytest.mark.parametrize("state", SITES)
async def test_a_dropped_step_is_done_without(state: str) -> None:
    """In every state but success; what waited for it uses another step, and nothing else notices."""
    async with _site(state) as run:
        await _at_one(run, state)
        did = await run.splice(patch(Drop(id="x"), Rewire(id="after", use={"x": "two"})))
        await anyio.sleep(1.5)
        at_once = run.states
        result = await run.result()

    assert (did.dropped, did.rewired, did.added, did.replaced) == (("x",), ("after",), (), {})
    assert did.cancelled == (("x",) if state == "running" else ())
    assert (at_once["x"], at_once["after"]) == (_settles(state), "succeeded")
    assert result.steps["after"].output == "two"
    assert _times(result, "two", "five", "after") == near([0, 2, 0, 5, 2, 2])
    assert (result.steps["x"].is_gone, result.steps["x"].substitute) == (True, "")


@pytest.mark.parametrize("state", SITES)
async def test_a_substitute_gives_its_output_to_what_waited_for_the_old_step(state: str) -> None:
    """Nobody has to rewire it; the substitute starts when its own needs are met, here at once."""
    async with _site(state) as run:
        await _at_one(run, state)
        did = await run.splice(patch(Replace(id="x", step=Step(id="y", tool="echo", args={"value": "new"}))))
        await anyio.sleep(0.5)
        at_once = run.states
        result = await run.result()

    assert (did.replaced, did.rewired, did.added) == ({"x": "y"}, ("after",), ("y",))
    assert (at_once["x"], at_once["y"], at_once["after"]) == (_settles(state), "succeeded", "succeeded")
    assert result.steps["after"].output == "new"
    assert _times(result, "y", "after", "two", "five") == near([1, 1, 1, 1, 0, 2, 0, 5])
    assert result.steps["x"].substitute == "y"


@pytest.mark.parametrize("state", ["waiting", "ready", "held", "blocked"])
async def test_a_step_that_has_not_started_is_rewired(state: str) -> None:
    """It keeps its id and its tool, gets other arguments, and starts once, when the new ones are there."""
    tool_takes_value = state == "held"
    args = {"value": "${two}"} if tool_takes_value else {"seconds": 1.0, "gives": "${two}"}

    async with _site(state) as run:
        await _at_one(run, state)
        did = await run.splice(patch(Rewire(id="x", depends_on=[], args=args)))
        assert run.states["x"] == "waiting"
        await anyio.sleep(1.5)
        if state == "held":  # it needs a person as before
            assert run.states["x"] == "held"
            await run.answer(run.pending[0], True)
        result = await run.result()

    assert did.rewired == ("x",)
    x = result.steps["x"]
    assert (len(x.attempts), x.state) == (1, "succeeded")
    assert x.started == near(2.5 if state == "held" else 2)
    assert result.steps["after"].output == ("x" if state == "held" else "two")
    assert did.unblocked == (("x",) if state == "blocked" else ())


async def test_an_added_step_starts_at_the_moment_of_the_splice() -> None:
    """What it uses is there already, or on its way."""
    async with start([nap("a", 1.0), nap("b", 4.0)], None) as run:
        await anyio.sleep(2)
        did = await run.splice(patch(Add(step=uses("c", "a")), Add(step=uses("d", "b")), Add(step=nap("e", 1.0, "c"))))
        assert run.states == {"a": "succeeded", "b": "running", "c": "ready", "d": "waiting", "e": "waiting"}
        result = await run.result()

    assert (did.added, did.reused) == (("c", "d", "e"), ("a",))
    assert _times(result, "c", "d", "e") == near([2, 2, 4, 4, 2, 3])
    assert result.output == {"d": "b", "e": "e"}


async def test_several_edits_are_one_change() -> None:
    """Added steps may use each other and substitutes, in any order."""
    async with start([nap("a", 1.0), nap("b", 5.0, "a"), uses("c", "b")], None) as run:
        did = await run.splice(
            patch(
                Rewire(id="c", args={"value": ["${b2}", "${late}"]}),
                Add(step=uses("late", "b2")),
                Replace(id="b", step=nap("b2", 1.0, "a")),
            )
        )
        result = await run.result()

    assert str(did) == "adds late; replaces b by b2; rewires c"
    assert result.output == ["b2", "b2"]
    assert result.makespan == near(2)


async def test_nothing_that_is_not_touched_moves() -> None:
    """The start and end of each other step are those of the run without the splice, to the last digit."""
    steps = [nap(f"s{n}", 0.3 + n * 0.7, *(f"s{m}" for m in (n - 3, n - 5) if m >= 0)) for n in range(30)]
    extra = [nap("x", 30.0), nap("y", 3.0, "s1")]

    async with start([*steps, *extra], None) as run:
        plain = await run.result()
    async with start([*steps, *extra], None) as run:
        await anyio.sleep(2.2)
        await run.splice(patch(Drop(id="x"), Replace(id="y", step=nap("y2", 1.0, "s4")), Add(step=nap("z", 1.0))))
        spliced = await run.result()

    ids = [step.id for step in steps]
    assert _times(spliced, *ids) == near(_times(plain, *ids))


async def _stubborn() -> str:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(2)
    return "late"


async def test_what_a_dropped_step_still_gives_is_recorded_and_never_used() -> None:
    """Its tool does not listen, and comes back late; the event has the value, the step has none."""
    seen: list[Event] = []
    slow = make_tool(_stubborn, name="slow", effect="pure")
    steps = [Step(id="x", tool="slow"), uses("after", "x")]

    async with start(steps, None, slow, on_event=seen.append, grace=5.0) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=nap("y", 3.0))))
        result = await run.result()

    ended = next(event for event in seen if isinstance(event, AttemptEnded) and event.step == "x")
    assert (ended.state, ended.outcome.output, ended.at) == (State.SUPERSEDED, "late", near(2))
    assert (result.steps["x"].output, result.steps["x"].state) == (None, "superseded")
    assert (result.output, result.status, result.makespan) == ("y", Status.SUCCEEDED, near(4))


async def test_a_dropped_step_that_would_not_stop_holds_nobody_up() -> None:
    """It is abandoned when its grace is over; the run succeeds without it."""
    slow = make_tool(_stubborn, name="slow", effect="pure")

    async with start([Step(id="x", tool="slow"), nap("a", 1.5)], None, slow, grace=0.25) as run:
        await anyio.sleep(1)
        await run.splice(patch(Drop(id="x")))
        result = await run.result()

    assert states(result) == {"x": "abandoned", "a": "succeeded"}
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(1.5))


async def test_an_event_tells_the_splice_at_the_instant_at_which_it_happens() -> None:
    """One event for all of it; the steps that end by it have no event of their own."""
    seen: list[Event] = []

    async with start([nap("a", 2.0), nap("x", 1.0, "a"), nap("z", 9.0)], None, on_event=seen.append) as run:
        await anyio.sleep(1)
        await run.splice(patch(Drop(id="x"), Drop(id="z"), reason="not wanted"))
        await run.result()

    [spliced] = [event for event in seen if isinstance(event, Spliced)]
    assert (spliced.at, spliced.revision, spliced.origin, spliced.reason) == (near(1), 1, "host", "not wanted")
    assert (spliced.consequence.superseded, spliced.consequence.cancelled) == (("x",), ("z",))
    assert not any(isinstance(event, StepSettled) for event in seen)
    assert json.loads(json.dumps(as_dict(spliced)))["edits"] == [{"op": "drop", "id": "x"}, {"op": "drop", "id": "z"}]


# Retries and order ------------------------------------------------------------------------------------------


async def test_a_retry_that_waits_for_its_turn_is_dropped_with_its_step() -> None:
    """The alarm that was to wake it wakes nobody."""
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=5))

    async with start([Step(id="x", tool="flaky"), uses("after", "x"), nap("ten", 10.0)], None, flaky) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="x", step=nap("y", 1.0))))
        result = await run.result()

    assert (len(flaky.calls), states(result)["x"], result.steps["after"].output) == (1, "superseded", "y")


async def test_a_step_that_waits_for_its_second_attempt_keeps_its_definition() -> None:
    """It has started; it cannot be rewired, and when what it uses is replaced, it goes on as it is."""
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=5), "well")
    skipped = fails("bad", on_failure="skip")
    steps = [skipped, Step(id="x", tool="flaky", depends_on=["bad"]), uses("after", "x")]

    async with start(steps, None, flaky) as run:
        await anyio.sleep(1)
        did = await run.splice(patch(Replace(id="bad", step=nap("good", 1.0))))
        with pytest.raises(SpliceRefused, match=r"DR404.*x has started"):
            await run.splice(patch(Rewire(id="x", depends_on=[])))
        result = await run.result()

    assert did.rewired == ()
    assert [attempt.started for attempt in result.steps["x"].attempts] == near([0, 5])
    assert (result.steps["after"].output, result.makespan) == ("well", near(5))


async def test_a_running_step_is_not_started_anew_by_what_stands_in_for_a_tolerated_failure() -> None:
    """It waited for the order alone, and runs; that another step now takes that place is nothing to it."""
    steps = [fails("bad", on_failure="skip"), nap("x", 3.0, "bad"), uses("after", "x")]

    async with start(steps, None) as run:
        await anyio.sleep(1)
        await run.splice(patch(Replace(id="bad", step=nap("good", 5.0))))
        assert run.states["x"] == "running"
        result = await run.result()

    assert _times(result, "x", "after", "good") == near([0, 3, 3, 3, 1, 6])
    assert len(result.steps["x"].attempts) == 1


async def test_a_tolerated_failure_that_a_running_step_has_waited_for_can_be_dropped() -> None:
    """What runs needs nothing of it any more."""
    steps = [fails("bad", on_failure="skip"), nap("x", 3.0, "bad")]

    async with start(steps, None) as run:
        await anyio.sleep(1)
        await run.splice(patch(Drop(id="bad")))
        result = await run.result()

    assert (result.status, result.reason, result.output) == (Status.SUCCEEDED, "1 succeeded", "x")


async def test_a_step_that_a_person_has_let_through_pauses_again_when_it_is_another_one() -> None:
    """The yes was for what it was then, and it has not started."""
    steps = [nap("a", 3.0, estimate=9.0), nap("x", 1.0, pause="before")]

    async with start(steps, None, attended=True, max_running=1) as run:
        await anyio.sleep(3.5)
        await run.splice(patch(Add(step=nap("b", 3.0, estimate=9.0))))
        await run.answer(run.pending[0], True)
        assert run.states["x"] in ("ready", "running")
        await run.splice(patch(Rewire(id="x", depends_on=["b"])))
        await anyio.sleep(4)
        assert [question.step for question in run.pending] == ["x"]
        await run.answer(run.pending[0], True)
        result = await run.result()

    assert result.makespan == near(8.5)


async def test_the_retry_of_a_step_that_was_rewired_waits_for_its_time() -> None:
    """Nothing of it is left in the line where it stood before."""
    flaky = scripted("flaky", ToolError("busy", retryable=True, retry_after=5), "well")
    steps = [nap("a", 1.0, estimate=9.0), Step(id="x", tool="flaky"), nap("b", 9.0, estimate=0.0)]

    async with start(steps, None, flaky, max_running=1) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Rewire(id="x", args={"value": 1})))
        result = await run.result()

    assert [attempt.started for attempt in result.steps["x"].attempts] == near([1, 10])


async def test_a_ready_step_that_is_rewired_starts_exactly_once() -> None:
    """Under a cap it stands in line; taken out of the line and put back, it must not stand there twice."""
    steps = [nap("a", 2.0, estimate=9.0), *(nap(f"r{n}", 1.0) for n in range(4))]

    async with start(steps, None, max_running=1) as run:
        for turn in range(3):
            await anyio.sleep(0.25)
            await run.splice(patch(*(Rewire(id=f"r{n}", args={"seconds": 1.0, "gives": turn}) for n in range(4))))
        result = await run.result()

    assert [len(result.steps[f"r{n}"].attempts) for n in range(4)] == [1, 1, 1, 1]
    assert (result.makespan, result.output) == (near(6), {"a": "a"} | {f"r{n}": 2 for n in range(4)})
