"""Planners that misbehave while they write the first plan: whatever they do, the run ends, and says what was wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from dagrun import Add, Brief, Event, OpenAIPlanner, Patch, Plan, PlanningRule, PlanRefused, Status, Step
from dagrun.errors import CannotPlan, ContractError, ModelError, OverCeiling
from draft_steps import NO_TOOL, drafts, nap, start
from drafts import Says, Writer, run, started, whole
from places import unplaced
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio

ENOUGH = [CannotPlan("enough")]


# Streams without end or sense ----------------------------------------------------------------------------------------


class Flood:
    """Writes *count* steps without ever waiting for anything."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.written = 0
        self.closed = 0

    async def revise(self, brief: Brief) -> Any:
        try:
            for number in range(self._count):
                self.written += 1
                yield Add(step=nap(f"s{number}", 0.0))
        finally:
            self.closed += 1


async def test_a_stream_that_is_too_long_is_refused_and_not_cut_short() -> None:
    """A plan without its last steps is another plan."""
    result = await run(Writer([nap(f"s{n}", 0.0) for n in range(6)], ENOUGH), planning=PlanningRule(max_edits=4))

    assert (result.status, result.has_plan) == (Status.FAILED, False)
    assert [(p.code, p.facts) for p in result.problems] == [("DR108", {"count": "5", "limit": "4"})]


async def test_a_stream_of_exactly_as_many_steps_is_a_plan() -> None:
    result = await run(
        Writer([*(nap(f"s{n}", 0.0) for n in range(4)), whole(output="${s3}")]), planning=PlanningRule(max_edits=4)
    )

    assert (result.status, result.output) == (Status.SUCCEEDED, "s3")


async def test_a_flood_of_steps_is_dammed_and_closed() -> None:
    """Ten thousand steps in one breath: it is not listened to longer than the policy says."""
    planner = Flood(10_000)

    result = await run(planner, planning=PlanningRule(max_edits=100, max_calls=1))

    assert (planner.written, planner.closed, len(result.steps)) == (101, 1, 100)
    assert result.status is Status.OVER_BUDGET


async def test_a_step_starts_while_its_planner_does_not_wait_for_anything() -> None:
    """It goes on writing in the same breath; between two steps the loop gets to start what is ready."""
    at: dict[str, int] = {}

    class Breathless:
        written = 0

        async def revise(self, brief: Brief) -> Any:
            for number in range(50):
                self.written = number
                yield Add(step=Step(id=f"s{number}", tool="note", args={"value": number}))

    planner = Breathless()

    def note(**arguments: Any) -> None:
        at.setdefault(str(arguments["value"]), planner.written)

    await run(planner, scripted("note", note, effect="pure"))

    assert at["0"] <= 3
    assert at["20"] <= 25


@pytest.mark.parametrize(
    "said", [7j, None, "text", object(), Plan(steps=[nap("b")]), [Add(step=nap("b"))]], ids=range(6)
)
async def test_what_is_no_edit_breaks_the_stream_off(said: Any) -> None:
    """Something was let in already, so it goes back with that; without that, there is no answer."""
    events: list[Event] = []
    after = await run(Writer([nap("a"), said], ENOUGH), events=events)
    at_once = await run(Writer([said], ENOUGH))

    assert drafts(events) == ["refused"]
    assert "DR421 the answer broke off: it raised TypeError: the planner streams edits, not a" in str(after.problems[0])
    assert at_once.reason.startswith("there is no plan: the planner gave no answer: it raised TypeError")


def garbage() -> dict[str, Any]:
    """Objects of the right class that were made behind the back of its checks."""
    bad_step = Step.model_construct(id=7, tool=None, args=None)  # type: ignore[arg-type]
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    return {
        "edits that are none": Patch.model_construct(edits=("x",)),  # type: ignore[arg-type]
        "no edits": Patch.model_construct(),  # type: ignore[call-arg]
        "no steps": Plan.model_construct(),  # type: ignore[call-arg]
        "steps that are none": Plan.model_construct(steps=("x",)),  # type: ignore[arg-type]
        "an answer that is none": Patch.model_construct(edits=(), output=7, _fields_set={"output"}),  # type: ignore[arg-type]
        "a step that is none": Patch.model_construct(edits=(Add.model_construct(op="add", step=bad_step),)),
        "confidence in words": Plan.model_construct(steps=(nap("a"),), confidence="high"),  # type: ignore[arg-type]
        "a pit": Plan.model_construct(steps=(Step.model_construct(id="a", tool="echo", args={"value": deep}),)),
    }


@pytest.mark.parametrize("name", list(garbage()))
@pytest.mark.parametrize("how", ["returned", "streamed", "repeated"])
async def test_what_no_check_has_thought_of_ends_the_run_and_not_the_program(name: str, how: str) -> None:
    said = garbage()[name]
    planner = {"returned": Says(said, *ENOUGH), "streamed": Writer([nap("b"), said], ENOUGH)}.get(how)

    result = await run(planner or Says(Plan(steps=[NO_TOOL]), said))

    assert (result.status, result.has_plan) == (Status.FAILED, False)
    assert result.reason.startswith("there is no plan: ")


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(3),
        GeneratorExit(),
        StopAsyncIteration(),
        PlanRefused([]),
        PlanRefused(["no problem"]),  # type: ignore[list-item]
        CannotPlan(None, []),  # type: ignore[arg-type]
        ModelError("busy", is_transient=True, retry_after="soon"),  # type: ignore[arg-type]
        ExceptionGroup("two", [ValueError("a"), ValueError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_planner_raises_ends_the_run_in_order(error: BaseException) -> None:
    """Even errors of ours that were filled with something else."""
    result = await run(Says(error))
    late = await run(Writer([nap("a", 50), error], ENOUGH))

    assert result.status is Status.FAILED
    assert late.status is Status.FAILED
    assert states(late) == {"a": "cancelled"}


async def test_of_errors_that_come_together_the_one_that_decides_counts() -> None:
    """A planner may ask several models side by side, in a task group."""
    busy = [ModelError("busy", is_transient=True, retry_after=seconds) for seconds in (4, 6)]

    assert started(await run(Writer([ExceptionGroup("one", busy[:1])], [nap("a")]))) == {"a": near(4)}
    assert started(await run(Writer([ExceptionGroup("both", busy)], [nap("a")]))) == {"a": near(6)}
    mixed = ExceptionGroup("mixed", [busy[0], ExceptionGroup("more", [OverCeiling("ceiling of 5 tokens")])])
    assert (await run(Writer([mixed]))).reason == "there is no plan: ceiling of 5 tokens"
    assert "ExceptionGroup" in (await run(Writer([ExceptionGroup("odd", [busy[0], ValueError()])]))).reason


@pytest.mark.parametrize("revise", [lambda brief: 7, lambda: None, lambda brief: iter([])], ids=range(3))
async def test_who_cannot_be_asked_has_no_plan(revise: Any) -> None:
    class Odd:
        pass

    odd: Any = Odd()
    odd.revise = revise

    assert (await run(odd)).reason.startswith("there is no plan: the planner gave no answer: it raised TypeError")


@pytest.mark.parametrize("planner", [None, 7, "openai", OpenAIPlanner, object()], ids=range(5))
async def test_what_is_no_planner_is_refused_before_anything_runs(planner: Any) -> None:
    with pytest.raises(ContractError, match="planner"):
        await run(planner)


# Planners that will not stop -----------------------------------------------------------------------------------------


class Stubborn:
    """Writes, swallows every cancellation, and writes on."""

    def __init__(self, first: Step, later: Step) -> None:
        self._first, self._later = first, later
        self.told = 0

    async def revise(self, brief: Brief) -> Any:
        yield Add(step=self._first)
        while True:
            try:
                await anyio.sleep(1_000)
            except GeneratorExit:
                raise
            except BaseException:  # noqa: BLE001  (swallowing everything is its part)
                self.told += 1
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.3)
            yield Add(step=self._later)


async def test_what_is_said_after_its_time_is_heard_by_nobody() -> None:
    """Its time is over at 5: what it writes while it is told to stop belongs to no plan."""
    events: list[Event] = []
    planner = Stubborn(nap("a", 1), nap("late", 1))

    result = await run(planner, planning=PlanningRule(timeout=5, max_calls=1), events=events)

    assert (drafts(events), states(result)) == (["refused"], {"a": "succeeded"})
    assert str(result.problems[0]) == "DR421 the answer broke off: it took longer than 5 s"
    assert planner.told


async def test_a_planner_that_will_not_stop_does_not_hold_up_a_cancelled_run() -> None:
    planner = Stubborn(nap("a", 100), nap("late", 1))
    async with start(planner) as running:
        await anyio.sleep(2)
        running.cancel()
        result = await running.result()
        assert anyio.current_time() == near(2)

    assert (result.status, states(result)) == (Status.CANCELLED, {"a": "cancelled"})
    assert anyio.current_time() < 2 + 1.5  # the grace period of the policy, and a last breath


class HardToClose:
    """A stream whose end hangs, or fails."""

    def __init__(self, *items: Any, closing: Callable[[], Any]) -> None:
        self._items, self._closing = iter(items), closing

    def revise(self, brief: Brief) -> Any:
        return self

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self._items)
        except StopIteration:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._closing()


async def test_a_stream_that_cannot_be_closed_is_an_answer_that_broke_off() -> None:
    """It may keep a connection open, and nobody knows whether it was at its end."""

    async def fails() -> None:
        raise OSError("no")

    for closing, fault in ((anyio.sleep_forever, "it took longer than 9 s"), (fails, "it raised OSError: no")):
        planner = HardToClose(Add(step=nap("a")), closing=closing)
        result = await run(planner, planning=PlanningRule(timeout=9, max_calls=1))

        assert unplaced(str(result.problems[0])) == f"DR421 the answer broke off: {fault}"


async def test_a_stream_that_broke_off_is_closed_before_the_next_is_asked_for() -> None:
    planner = Writer([nap("a", 5), ValueError("oops")], [nap("b")])

    result = await run(planner)

    assert (planner.closed, states(result)) == (2, {"a": "succeeded", "b": "succeeded"})
