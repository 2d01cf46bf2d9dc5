"""A run as its host holds it: events, cancelling, results, engines, and what becomes of errors around it."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Condition, Event, Plan, PlanRefused, Policy, Run, State, Status, Step, ToolContext
from dagrun.cli.terminal.event_lines import as_dict
from dagrun.errors import ContractError, StepNotFound
from dagrun.events import AttemptEnded, AttemptStarted, Gap, Progress, RunEnded, RunStarted, StepSettled
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.stop_scope import LAST_SECONDS
from replans import Thinker
from small_tools import near, run, states, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def _start(*steps: Step, **options: Any) -> Any:
    return dagrun.start(Plan(steps=steps), tools=toolset(), **options)


def _tasks() -> set[int]:
    return {task.id for task in anyio.get_running_tasks()}


# In a debugger ----------------------------------------------------------------------------------------------


async def test_a_run_shows_its_id_its_status_and_what_runs() -> None:
    async with _start(_nap("a", 1.0), _nap("b", 9.0, "a"), _nap("c", 1.0, "b"), run_id="nightly") as handle:
        await anyio.sleep(1.5)
        assert repr(handle) == "<Run nightly running: 1 waiting, 1 running (b), 1 succeeded>"
        handle.cancel()
        assert repr(handle) == "<Run nightly stopping: 1 running (b), 1 succeeded, 1 cancelled>"
        await handle.result()

    assert repr(handle) == "<Run nightly cancelled: 1 succeeded, 2 cancelled>"


async def test_a_scheduler_shows_some_of_many_running_steps() -> None:
    async with _start(*(_nap(f"s{number}", 1.0) for number in range(8)), _nap("late", 1.0, "s0")) as handle:
        await anyio.sleep(0.5)
        assert repr(handle._scheduler) == "<Scheduler: 1 waiting, 8 running (s0, s1, s2, s3, s4 and 3 more)>"
        await handle.result()

    assert repr(handle._scheduler) == "<Scheduler: 9 succeeded>"


async def test_a_run_without_a_plan_shows_that_it_has_no_steps() -> None:
    planner = Thinker(None, seconds=9.0)
    async with dagrun.start(goal="a goal", planner=planner, tools=toolset(), run_id="draft") as handle:
        await anyio.sleep(1.0)
        assert repr(handle) == "<Run draft running: no steps>"
        handle.cancel()


# Events -----------------------------------------------------------------------------------------------------


async def test_events_tell_the_whole_run_in_order() -> None:
    """From the first to the last, without a hole in the numbers; times never go back."""
    bad = Step(id="bad", tool="fail")

    async with _start(_nap("a", 1.0), _nap("b", 1.0, "a"), bad, _nap("c", 0.0, "bad")) as handle:
        seen = [event async for event in handle.events()]

    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert [event.at for event in seen] == sorted(event.at for event in seen)
    assert isinstance(seen[0], RunStarted)
    assert isinstance(seen[-1], RunEnded)
    told = [(type(e), getattr(e, "step", "")) for e in seen[1:-1]]
    expected = {(kind, step) for step in ("a", "b", "bad") for kind in (AttemptStarted, AttemptEnded)}
    assert set(told) == expected | {(StepSettled, "c")}
    assert told.index((AttemptEnded, "a")) < told.index((AttemptStarted, "b"))
    assert told.index((AttemptEnded, "bad")) < told.index((StepSettled, "c"))


async def test_every_event_is_plain_json() -> None:
    seen: list[Event] = []
    bad = Step(id="bad", tool="fail", on_failure="default", default=[1])
    each = Step(id="each", tool="echo", args={"value": "${item}"}, for_each=[1, {"a": 2}])

    async with _start(bad, each, on_event=seen.append) as handle:
        await handle.result()

    assert {type(e).__name__ for e in seen} >= {"RunStarted", "StepExpanded", "AttemptEnded", "StepSettled", "RunEnded"}
    for event in seen:
        assert json.loads(json.dumps(as_dict(event)))["seq"] == event.seq
    assert "[1" not in json.dumps(
        [as_dict(event, with_values=False) for event in seen if isinstance(event, StepSettled)]
    )


async def test_a_late_observer_sees_what_comes_from_then_on() -> None:
    async with _start(_nap("a", 1.0), _nap("b", 1.0, "a")) as handle:
        await anyio.sleep(1.5)
        seen = [event async for event in handle.events()]
        none = [event async for event in handle.events()]

    assert [type(event) for event in seen] == [AttemptEnded, RunEnded]
    assert none == []


async def test_a_slow_observer_sees_a_gap_and_slows_nothing_down() -> None:
    """It loses the oldest events, learns how many, and always gets the end."""
    async with _start(*(_nap(f"s{i}", 1.0) for i in range(20))) as handle:
        events = handle.events(buffer=5)
        fast = handle.events()
        result = await handle.result()
        seen = [event async for event in events]
        everything = [event async for event in fast]

    assert result.makespan == near(1)
    gap, *rest = seen
    assert isinstance(gap, Gap)
    assert rest == everything[-5:]
    assert gap.missed == len(everything) - 5
    assert gap.seq == rest[0].seq - 1


async def test_what_never_started_is_told_at_once() -> None:
    """Also if nothing else happens for a long time."""
    told: dict[str, float] = {}

    def note(event: Event) -> None:
        if isinstance(event, StepSettled):
            told[event.step] = anyio.current_time() - zero

    skipped = _nap("skipped", 1.0, when=Condition(ref="quick", op="==", value="something else"))
    zero = anyio.current_time()
    async with _start(_nap("long", 3600.0), _nap("quick", 1.0), skipped, on_event=note):
        pass

    assert told == {"skipped": near(1)}


async def test_a_buffer_without_room_is_refused() -> None:
    """It would lose every event, and show no gap."""
    async with _start(_nap("a", 1.0)) as handle:
        with pytest.raises(ContractError, match="buffer must be at least 1"):
            handle.events(buffer=0)


async def test_tasks_may_share_one_subscription() -> None:
    """Each event goes to one of them, and all of them see the end."""
    seen: list[Event] = []

    async def watch() -> None:
        seen.extend([event async for event in events])

    async with _start(_nap("a", 1.0), _nap("b", 1.0, "a")) as handle, anyio.create_task_group() as tasks:
        events = handle.events()
        for _ in range(3):
            tasks.start_soon(watch)

    assert sorted(event.seq for event in seen) == list(range(1, len(seen) + 1))
    assert sum(isinstance(event, RunEnded) for event in seen) == 1


async def test_progress_is_shown_and_changes_nothing() -> None:
    async def reports(context: ToolContext) -> int:
        context.progress(0.5, "half\nway")
        await anyio.sleep(1)
        context.progress(message="nearly")
        return 1

    seen: list[Event] = []
    plan = Plan(steps=[Step(id="a", tool="reports")])
    await dagrun.run(plan, tools=[make_tool(reports, effect="pure")], on_event=seen.append)

    shown = [(e.step, e.fraction, e.message, e.at) for e in seen if isinstance(e, Progress)]
    assert shown == [("a", 0.5, "half\\nway", 0), ("a", None, "nearly", near(1))]


async def test_a_callback_that_raises_is_dropped_and_the_run_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event] = []

    def breaks(event: Event) -> None:
        seen.append(event)
        if len(seen) == 3:
            raise RuntimeError("the observer is broken")

    async with _start(_nap("a", 1.0), _nap("b", 1.0, "a"), on_event=breaks) as handle:
        others = [event async for event in handle.events()]
        result = await handle.result()

    assert (states(result), len(seen)) == ({"a": "succeeded", "b": "succeeded"}, 3)
    assert isinstance(others[-1], RunEnded)
    assert "no longer called" in caplog.text


async def test_a_callback_may_cancel_a_step() -> None:
    """It is called in the middle of nothing: the change it makes is seen by everybody, in order."""
    held: list[Run] = []
    seen: list[Event] = []

    def reacts(event: Event) -> None:
        seen.append(event)
        if isinstance(event, AttemptEnded) and event.step == "a":
            held[0].cancel("b")
            held[0].cancel("c")

    async with _start(_nap("a", 1.0), _nap("b", 9.0), _nap("c", 9.0, "b"), _nap("d", 2.0), on_event=reacts) as handle:
        held.append(handle)
        result = await handle.result()

    assert states(result) == {"a": "succeeded", "b": "cancelled", "c": "cancelled", "d": "succeeded"}
    assert result.makespan == near(2)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))


async def test_a_callback_may_cancel_the_run() -> None:
    held: list[Run] = []

    def reacts(event: Event) -> None:
        if isinstance(event, AttemptEnded):
            held[0].cancel()

    async with _start(_nap("a", 1.0), _nap("b", 9.0), on_event=reacts) as handle:
        held.append(handle)
        result = await handle.result()

    assert (states(result), result.status) == ({"a": "succeeded", "b": "cancelled"}, Status.CANCELLED)


# Cancelling -------------------------------------------------------------------------------------------------


async def test_cancelling_a_step_skips_what_depends_on_it_and_nothing_else() -> None:
    async with _start(_nap("a", 9.0), _nap("b", 0.0, "a"), _nap("c", 2.0)) as handle:
        await anyio.sleep(1)
        assert handle.cancel("a", "not needed any more")
        result = await handle.result()

    assert states(result) == {"a": "cancelled", "b": "skipped", "c": "succeeded"}
    assert result.steps["a"].reason == "not needed any more"
    assert (result.makespan, result.status) == (near(2), Status.FAILED)


async def test_cancelling_what_has_not_started() -> None:
    async with _start(_nap("a", 1.0), _nap("b", 9.0, "a"), _nap("c", 9.0, "b")) as handle:
        assert handle.cancel("b")
        result = await handle.result()

    assert states(result) == {"a": "succeeded", "b": "cancelled", "c": "skipped"}
    assert not result.steps["b"].attempts


async def test_cancelling_in_a_thread_is_refused_before_it_does_harm() -> None:
    """As a plain function might that holds its run: loops are not safe to touch from there."""
    refusals: list[str] = []

    def cancel() -> None:
        try:
            handle.cancel("a")
        except ContractError as error:
            refusals.append(str(error))

    async with _start(_nap("a", 1.0)) as handle:
        thread = threading.Thread(target=cancel)
        thread.start()
        thread.join()
        result = await handle.result()

    assert "anyio.from_thread" in refusals[0]
    assert states(result) == {"a": "succeeded"}


async def test_cancelling_twice_and_too_late_does_nothing() -> None:
    async with _start(_nap("a", 1.0), _nap("b", 3.0)) as handle:
        await anyio.sleep(2)
        assert not handle.cancel("a")
        assert handle.cancel("b", "first")
        handle.cancel("b", "second")
        result = await handle.result()
        assert not handle.cancel()

    assert result.steps["b"].reason == "first"
    assert handle.has_ended


async def test_an_unknown_step_is_named_with_a_hint() -> None:
    async with _start(_nap("load", 1.0)) as handle:
        with pytest.raises(StepNotFound, match=r"no step 'laod'; did you mean load\?"):
            handle.cancel("laod")


# Errors and cancellations around a run ----------------------------------------------------------------------


async def test_an_error_in_the_body_comes_out_as_itself_and_cancels_the_run() -> None:
    """Not wrapped in a group: callers catch what they raised."""
    before = _tasks()
    handles: list[Run] = []

    async def body() -> None:
        async with _start(_nap("a", 9.0), _nap("b", 1.0, "a")) as handle:
            handles.append(handle)
            await anyio.sleep(1)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        await body()

    result = await handles[0].result()
    assert caught.value.__cause__ is None
    assert states(result) == {"a": "cancelled", "b": "cancelled"}
    assert (result.status, result.reason) == (Status.CANCELLED, "the code around the run ended with KeyError")
    assert _tasks() == before


async def test_a_group_raised_in_the_body_comes_out_as_that_group() -> None:
    """trio hands out a copy of a group, which must still be recognised as the body's own."""
    with pytest.raises(ExceptionGroup) as caught:
        async with _start(_nap("a", 9.0)):
            raise ExceptionGroup("mine", [ValueError("one")])

    assert caught.value.message == "mine"


async def test_a_refused_plan_raises_before_anything_runs() -> None:
    with pytest.raises(PlanRefused):
        await run(Step(id="a", tool="nobody"))


@pytest.mark.parametrize("grace", [0.5, 5.0])
async def test_a_time_limit_around_a_run_settles_it(grace: float, anyio_backend: tuple[str, Any]) -> None:
    """The host's own scope, with a step that takes its time to clean up: it may, and nothing is left behind."""
    before = _tasks()

    async def tidy() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)

    plan = Plan(steps=[Step(id="tidy", tool="tidy"), _nap("a", 1.0), _nap("b", 9.0, "a")])
    tools = toolset(make_tool(tidy, effect="read"))
    zero = anyio.current_time()
    handle: Run | None = None
    with anyio.move_on_after(2) as scope:
        async with dagrun.start(plan, tools=tools, policy=Policy(grace=grace)) as handle:
            await handle.result()

    assert scope.cancelled_caught
    is_dropped = grace < 1 and anyio_backend[0] == "asyncio"  # trio waits behind the shield
    assert anyio.current_time() - zero == near(2 + grace + LAST_SECONDS if is_dropped else 3)
    assert handle is not None
    result = await handle.result()
    assert states(result) == {"tidy": "cancelled", "a": "succeeded", "b": "cancelled"} or grace < 1
    assert all(step.state.is_settled for step in result.steps.values())
    assert result.status is Status.CANCELLED
    assert _tasks() == before


async def test_leaving_the_body_early_waits_for_the_run() -> None:
    async with _start(_nap("a", 5.0)) as handle:
        pass

    assert anyio.current_time() == near((await handle.result()).makespan)
    assert handle.states == {"a": State.SUCCEEDED}


async def test_the_result_may_be_asked_for_by_many_and_again() -> None:
    results: list[Any] = []

    async with _start(_nap("a", 1.0)) as handle, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(_append_result, handle, results)

    results.append(await handle.result())
    assert [states(result) for result in results] == [{"a": "succeeded"}] * 4


async def _append_result(handle: Run, results: list[Any]) -> None:
    results.append(await handle.result())
