"""Planners that misbehave: whatever they do is a failed replan, and never a failed run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dagrun import Add, Brief, Event, Patch, Plan, PlanningRule, RunResult, Status, Step
from misbehaving import BEHAVIOURS, end_what_was_left_behind, skip_what_only_asyncio_has
from places import unplaced
from replans import Thinker, endings, fails, instead, nap, patch, run, start, uses
from small_tools import near, states

pytestmark = pytest.mark.anyio

STEPS = [fails("bad"), nap("after", 1.0, "bad"), nap("other", 30.0)]


class Behaves:
    """A planner that does as one of the tools that misbehave."""

    def __init__(self, behaviour: Callable[[], Any]) -> None:
        self._behaviour = behaviour

    async def revise(self, brief: Brief) -> Any:
        """Answer *brief*, or whatever else it likes."""
        return await self._behaviour()


async def _end(planner: Any, **options: Any) -> tuple[RunResult, str, str]:
    """Run `STEPS`; give the result, how the one request ended, and when the failure was given up."""
    events: list[Event] = []
    options = {"planning": PlanningRule(timeout=5), "grace": 1, **options}

    result = await run(STEPS, planner, on_event=events.append, **options)

    assert states(result) == {"bad": "failed", "after": "skipped", "other": "succeeded"}
    assert (result.status, result.makespan) == (Status.FAILED, near(30))
    [(how, steps)] = endings(events)
    assert steps == ("bad",)
    return result, how, result.reason.partition("the plan was not changed: ")[2]


@pytest.mark.parametrize("name", BEHAVIOURS)
async def test_no_behaviour_of_a_planner_hurts_the_run(name: str) -> None:
    """Everything that a tool can do to a run; the other branch goes on to its end, at its time."""
    skip_what_only_asyncio_has(name)

    _, how, why = await _end(Behaves(BEHAVIOURS[name]))
    await end_what_was_left_behind()

    assert how == "failed"
    assert why.startswith(("the planner gave no answer: it ", "the planner's answer is no patch but a "))
    assert len(why) < 600


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (ValueError("no idea"), "it raised ValueError: no idea"),
        (SystemExit(3), "it raised SystemExit: 3"),
        (KeyboardInterrupt(), "it raised KeyboardInterrupt"),
        (asyncio.CancelledError(), "it was cancelled, but only by itself"),
        (RuntimeError("\x1b[2J" + "x" * 10_000), "it raised RuntimeError: \\x1b[2Jxxx"),
    ],
)
async def test_what_a_planner_raises_is_the_reason(error: BaseException, why: str) -> None:
    _, how, said = await _end(Thinker(error))

    assert how == "failed"
    assert said.startswith(f"the planner gave no answer: {why}")


async def test_a_planner_that_hangs_is_told_to_stop() -> None:
    """At the end of its time, not of the run; what it waited for is given up then."""
    planner = Thinker(seconds=1_000)

    result, how, why = await _end(planner)

    assert (how, planner.told_to_stop) == ("failed", 1)
    assert why == "the planner gave no answer: it took longer than 5 s"
    assert result.steps["after"].reason == "bad failed"


async def test_time_limits_of_its_own_are_a_planners_own_affair() -> None:
    """A limit that has passed inside must not be taken for the end of its time."""

    async def waits_in_vain() -> Any:
        for _ in range(4):
            with anyio.move_on_after(2):
                await anyio.sleep_forever()
        return instead("bad", nap("good", 1.0))

    result = await run([fails("bad")], Behaves(waits_in_vain), planning=PlanningRule(timeout=10), grace=1)

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(9))


async def test_an_answer_that_comes_late_is_not_used() -> None:
    """Whoever swallows the cancellation and answers then has had his time."""

    async def swallows() -> Any:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return instead("bad", nap("good", 1.0))

    _, how, _ = await _end(Behaves(swallows))

    assert how == "failed"


async def test_a_planner_that_will_not_stop_is_left_behind(anyio_backend: tuple[str, Any]) -> None:
    """A shield keeps every cancellation off: the run goes on at the end of the grace period all the same."""
    events: list[Event] = []

    async def clings() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(100)

    async with start(
        STEPS, Behaves(clings), planning=PlanningRule(timeout=5), grace=1, on_event=events.append
    ) as handle:
        result = await handle.result()
        assert anyio.current_time() == near(30)

    # On trio its task belongs to the run, which waits for it; on asyncio it was dropped.
    assert anyio.current_time() == near(100 if anyio_backend[0] == "trio" else 30)
    assert next(event.at for event in events if getattr(event, "step", "") == "after") == near(6)
    assert result.reason.endswith("it took longer than 5 s and would not stop")


async def test_a_cancellation_that_a_planner_leaves_behind_hits_nobody(anyio_backend: tuple[str, Any]) -> None:
    """The next request is made as if nothing had been."""
    if anyio_backend[0] != "asyncio":
        pytest.skip("trio's tasks cannot be cancelled from anywhere")
    asked: list[float] = []

    class Leaves:
        async def revise(self, brief: Brief) -> Any:
            asked.append(anyio.current_time())
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(0.5, task.cancel)
            worse = Step(id="worse", tool="echo", args={"value": "${nap.missing}"})
            return instead("bad", worse) if len(asked) == 1 else instead("worse", nap("good", 1.0))

    result = await run([fails("bad"), nap("nap", 1.0)], Leaves())

    assert (asked, result.status) == (near([0, 1]), Status.SUCCEEDED)


# Rubbish ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["drop everything", {"edits": []}, 7, [Add(step=nap("x", 1.0))], object(), Patch])
async def test_an_answer_that_is_no_patch_is_refused_without_a_second_call(said: Any) -> None:
    planner = Thinker(lambda brief: said, instead("bad", nap("good", 1.0)))

    _, how, why = await _end(planner)

    assert (how, len(planner.briefs)) == ("failed", 1)
    assert why == f"the planner's answer is no patch but a {type(said).__name__}"


async def test_a_planner_that_is_not_async_is_told_so() -> None:
    class Plain:
        def revise(self, brief: Brief) -> Any:
            return instead("bad", nap("good", 1.0))

    _, how, why = await _end(Plain())

    assert how == "failed"
    assert "Patch can't be used in 'await' expression" in why


@pytest.mark.parametrize("planner", [object(), Thinker])
async def test_what_is_no_planner_at_all_is_a_failed_replan(planner: Any) -> None:
    _, how, why = await _end(planner)

    assert (how, why[:28]) == ("failed", "the planner gave no answer: ")


def _circle() -> dict[str, Any]:
    circle: dict[str, Any] = {}
    circle["value"] = circle
    return circle


def _deep(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


HOSTILE = {
    "an object": {"value": object()},
    "a set": {"value": {1, 2}},
    "not a number": {"value": float("nan")},
    "half a character": {"value": "\ud800"},
    "a circle": _circle(),
    "100,000 levels": {"value": _deep(100_000)},
    "keys that are no text": {"value": {1: 2}},
    "bytes": {"value": b"\xff"},
    "a gigantic number": {"value": 10**5000},
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_arguments_that_are_no_json_are_a_failed_replan(what: str) -> None:
    """Nothing that stands in a patch may fail anywhere but in its check."""
    step = Step.model_construct(
        _fields_set={"id", "tool", "args"}, **{**dict(nap("x", 1.0)), "tool": "echo", "args": HOSTILE[what]}
    )

    _, how, _ = await _end(Thinker(instead("bad", step), patch(Add(step=step))))

    assert how == "refused"


@pytest.mark.parametrize("edits", [7, None, (7,), {"op": "drop"}])
async def test_a_patch_that_nobody_has_validated_is_a_failed_replan(
    edits: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What no check has thought of ends the request, and the log keeps where it was."""
    _, how, why = await _end(Thinker(Patch.model_construct(edits=edits)))

    assert (how, why[:39]) == ("failed", "the planner's answer cannot be checked:")
    assert "Traceback" in caplog.text


class Streams:
    """A planner that streams what a function makes, and notices whether it is closed."""

    def __init__(self, make: Callable[[int], Any], count: int) -> None:
        self._make = make
        self._count = count
        self.given = 0
        self.closed = 0

    async def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        try:
            for number in range(self._count):
                self.given += 1
                yield self._make(number)
        finally:
            await checkpoint()  # a generator that nobody closes cannot do that
            self.closed += 1


@pytest.mark.parametrize("rubbish", [7, "drop bad", None, {"op": "drop", "id": "bad"}])
async def test_rubbish_in_a_stream_is_a_failed_replan(rubbish: Any) -> None:
    """What came before it is not used either."""
    planner = Streams(lambda n: rubbish if n else Add(step=nap("good", 1.0)), 3)

    _, how, why = await _end(planner)

    assert (how, planner.closed) == ("failed", 1)
    assert f"streams edits, not a {type(rubbish).__name__}" in why


async def test_a_stream_without_end_is_cut_at_the_ceiling() -> None:
    planner = Streams(lambda n: Add(step=nap(f"x{n}", 1.0)), 10**6)

    _, how, why = await _end(planner, planning=PlanningRule(timeout=5, max_edits=100))

    assert (how, planner.given, planner.closed) == ("refused", 202, 2)  # it may repair a refused patch once
    assert "DR409 edits: the patch has 101 edits, the ceiling is 100" in why


async def test_a_stream_that_breaks_is_not_used_in_part() -> None:
    def make(number: int) -> Any:
        if number:
            raise ConnectionResetError("gone")
        return Add(step=nap("good", 1.0))

    _, how, why = await _end(Streams(make, 2))

    assert (how, unplaced(why)) == ("failed", "the planner gave no answer: it raised ConnectionResetError: gone")


@pytest.mark.parametrize(
    "answer",
    [
        Patch(edits=[Add(step=nap(f"x{n}", 1.0)) for n in range(20_000)]),
        Plan(steps=[nap(f"x{n}", 1.0) for n in range(20_000)]),
    ],
    ids=["patch", "plan"],
)
async def test_an_answer_of_any_size_is_refused_before_it_is_looked_at(answer: Any) -> None:
    _, how, why = await _end(Thinker(answer, answer))

    assert how == "refused"
    assert "has 20000 edits, the ceiling is 1000" in why


async def test_a_planner_cannot_change_what_it_was_told() -> None:
    """The brief is its own: what it does to it changes neither the plan nor the values."""

    def vandal(brief: Brief) -> None:
        brief.results["list"][0] = "gone"
        brief.left.clear()  # type: ignore[attr-defined]
        brief.steps.clear()  # type: ignore[attr-defined]

    steps = [Step(id="list", tool="echo", args={"value": [1]}), fails("bad", "list"), uses("last", "list")]

    result = await run(steps, Thinker(vandal), planning=PlanningRule(brief="full"), output="${last}")

    assert (result.output, states(result)["bad"]) == ([1], "failed")
