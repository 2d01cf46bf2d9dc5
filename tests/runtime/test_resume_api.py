"""Going on with a run, and doing one again: what is refused and why, what is inherited, and journals that fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import anyio
import pytest

import dagrun
from dagrun import (
    Add,
    Brief,
    Event,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    RetryRule,
    RunResult,
    Status,
    Step,
    ToolContext,
)
from dagrun.codec import decode_event
from dagrun.errors import (
    CannotResume,
    ContractError,
    JournalDamaged,
    JournalError,
    JournalFailed,
    OwnerLost,
    RunExists,
    RunHeld,
    RunNotFound,
)
from dagrun.events import AttemptStarted, RunEnded, RunResumed, RunStarted, RunSuspended, StepSettled
from dagrun.journal.memory import MemoryRunLog
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.tool import AnyTool, make_tool
from judges import Judge
from replans import Thinker, fails, instead, nap
from small_tools import AT_ONCE, ONCE, near, scripted, states, toolset

pytestmark = pytest.mark.anyio

RUN: Final = "run"
LONG: Final = Plan(steps=[nap("a", 5.0), nap("b", 1.0, "a")])


async def begin(journal: MemoryJournal, plan: Plan = LONG, after: float = 1, **options: Any) -> RunResult:
    """Begin a run, and suspend it if it has not ended before."""
    async with dagrun.start(plan, journal=journal, **{"tools": toolset(), "run_id": RUN, **options}) as running:
        await anyio.sleep(after)
        running.suspend()
        return await running.result()


async def go_on(journal: MemoryJournal, run_id: str = RUN, **options: Any) -> RunResult:
    async with dagrun.resume(run_id, journal=journal, **{"tools": toolset(), **options}) as running:
        return await running.result()


async def do_again(journal: MemoryJournal, run_id: str = RUN, **options: Any) -> RunResult:
    async with dagrun.retry(run_id, journal=journal, **{"tools": toolset(), "new_id": "again", **options}) as running:
        return await running.result()


async def records(journal: MemoryJournal, run_id: str = RUN) -> list[Event]:
    return [decode_event(line.text) for line in await journal.read(run_id)]


async def opening_of(journal: MemoryJournal, run_id: str = RUN) -> Opening:
    first = (await records(journal, run_id))[0]
    assert isinstance(first, RunStarted)
    assert first.opening is not None
    return first.opening


# What cannot go on ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "options", "message"),
    [
        ([nap("a", 1.0)], {}, "the run has ended as succeeded"),
        ([fails("a")], {}, "the run has ended as failed; `retry` does again what has failed of it"),
        ([nap("a", 9.0)], {"policy": Policy(max_seconds=1.0)}, "the run has ended as over_budget; `retry`"),
    ],
)
async def test_a_run_that_has_ended_does_not_go_on(steps: list[Step], options: Any, message: str) -> None:
    journal = MemoryJournal()
    await begin(journal, Plan(steps=steps), after=20, **options)
    before = await records(journal)

    with pytest.raises(CannotResume, match=message) as caught:
        await go_on(journal)

    assert caught.value.differences == ()
    assert await records(journal) == before


async def test_a_run_that_was_cancelled_does_not_go_on() -> None:
    journal = MemoryJournal()
    async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
        running.cancel()

    with pytest.raises(CannotResume, match="the run has ended as cancelled"):
        await go_on(journal)


async def test_there_is_no_such_run() -> None:
    with pytest.raises(RunNotFound, match="nothing"):
        await go_on(MemoryJournal(), "nothing")
    with pytest.raises(RunNotFound, match="nothing"):
        await do_again(MemoryJournal(), "nothing")


async def test_a_name_is_used_once() -> None:
    """Two runs in one record would be neither."""
    journal = MemoryJournal()
    await begin(journal)

    with pytest.raises(RunExists, match="'run'"):
        await begin(journal)


async def test_a_run_that_somebody_holds_is_left_to_him() -> None:
    journal = MemoryJournal()
    async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
        await anyio.sleep(1)
        with pytest.raises(RunHeld):
            await go_on(journal)
        assert (await running.result()).status is Status.SUCCEEDED


def _tools(**changed: Any) -> list[AnyTool]:
    """The small tools, one of them different."""

    async def nap(seconds: float, gives: Any = None) -> Any:
        """Sleep, then give."""
        await anyio.sleep(seconds)
        return gives

    options = {"effect": "read", **changed}
    return [*(tool for tool in toolset() if tool.name != "nap"), make_tool(nap, **options)]


DIFFERENT: Final[dict[str, tuple[Mapping[str, Any], str]]] = {
    "another version": ({"tools": _tools(version="2")}, "tool nap: version was 1, is 2"),
    "another effect": ({"tools": _tools(effect="idempotent")}, "tool nap: effect was read, is idempotent"),
    "another limit": ({"tools": _tools(timeout=60.0)}, "tool nap: timeout was none, is 60.0"),
    "no tool": ({"tools": toolset()[:1]}, "tool echo no longer exists"),
    "another policy": ({"policy": Policy(max_seconds=99.0)}, "policy: max_seconds was none, is 99.0"),
    "a deeper one": (
        {"policy": Policy(retry=RetryRule(max_attempts=7))},
        "policy: retry.max_attempts was 2, is 7",
    ),
    "another critic": ({"critics": [Judge()]}, "critic judge was not there"),
}


@pytest.mark.parametrize("name", DIFFERENT)
async def test_what_is_different_is_shown_and_refused_unless_it_is_allowed(name: str) -> None:
    """Half a run by one rule and half by another is nobody's intention, unless somebody says so."""
    changed, line = DIFFERENT[name]
    journal, events = MemoryJournal(), list[Event]()
    await begin(journal)
    before = await records(journal)

    with pytest.raises(CannotResume, match="allow_differences=True lets it") as caught:
        await go_on(journal, **changed)
    assert line in caught.value.differences
    assert line in str(caught.value)
    assert await records(journal) == before

    result = await go_on(journal, allow_differences=True, on_event=events.append, **changed)

    assert result.status is Status.SUCCEEDED
    resumed = events[0]
    assert isinstance(resumed, RunResumed)
    assert resumed.differences == caught.value.differences


async def test_what_was_allowed_once_is_what_counts_the_next_time() -> None:
    """Each process is compared with the one before it."""
    journal, longer = MemoryJournal(), Policy(max_seconds=99.0)
    await begin(journal)
    async with dagrun.resume(RUN, journal=journal, tools=toolset(), policy=longer, allow_differences=True) as again:
        await anyio.sleep(1)
        again.suspend()

    with pytest.raises(CannotResume, match=r"max_seconds was 99\.0, is none"):
        await go_on(journal, policy=Policy())
    assert (await go_on(journal)).status is Status.SUCCEEDED


async def test_what_is_there_in_addition_is_no_difference() -> None:
    journal = MemoryJournal()
    await begin(journal)

    result = await go_on(journal, tools=toolset(scripted("more", 1)))

    assert result.status is Status.SUCCEEDED


async def test_a_patch_on_record_that_does_not_pass_any_more_stops_it_before_anything_runs() -> None:
    journal = MemoryJournal()
    tool = make_tool(_takes_two, name="two", effect="read")
    async with dagrun.start(LONG, tools=toolset(tool), journal=journal, run_id=RUN) as running:
        await running.splice(Patch(edits=[Add(step=Step(id="c", tool="two", args={"one": 1}))]))
        running.suspend()

    with pytest.raises(CannotResume, match="with these differences") as caught:
        await go_on(journal, allow_differences=True)
    assert "tool two no longer exists" in caught.value.differences


async def _takes_two(one: int, two: int = 2) -> int:
    await anyio.sleep(60)
    return one + two


# What it goes on with -------------------------------------------------------------------------------------------------


class Planner:
    """Writes a plan of one step."""

    async def revise(self, brief: Brief) -> Patch:
        """Write it."""
        return Patch(edits=[Add(step=nap("a", 1.0))])


async def cut_off(journal: MemoryJournal, kept: int) -> None:
    """Leave what a run of a goal leaves that was killed when so many of its events were on record."""
    whole = MemoryJournal()
    await dagrun.run(goal="have a nap", planner=Planner(), tools=toolset(), journal=whole, run_id=RUN)
    run_log = await journal.create(RUN)
    for line in (await whole.read(RUN))[:kept]:
        run_log.append(line.text)
    await run_log.durable()
    await run_log.aclose()


@pytest.mark.parametrize("kept", [1, 2, 3])
async def test_a_goal_without_a_plan_is_planned_when_the_run_goes_on(kept: int) -> None:
    """Also where the process was killed before it had asked the planner: then nothing says that a plan is missing."""
    journal = MemoryJournal()
    await cut_off(journal, kept)
    result = await go_on(journal, planner=Planner())
    assert (result.status, states(result)) == (Status.SUCCEEDED, {"a": "succeeded"})


@pytest.mark.parametrize("kept", [1, 2, 3])
async def test_a_goal_without_a_plan_and_a_planner_is_not_reached(kept: int) -> None:
    """A run that does nothing has not succeeded."""
    journal = MemoryJournal()
    await cut_off(journal, kept)
    result = await go_on(journal)
    assert (result.status, "there is no plan" in result.reason) == (Status.FAILED, True)


async def test_the_recorded_policy_holds_where_none_is_given() -> None:
    journal = MemoryJournal()
    await begin(journal, policy=Policy(max_seconds=3.0))

    result = await go_on(journal)

    assert (result.status, result.makespan) == (Status.OVER_BUDGET, near(3))


async def test_the_policy_of_the_engine_is_compared_too() -> None:
    journal = MemoryJournal()
    await begin(journal)

    async with dagrun.Engine(policy=Policy(max_seconds=7.0)) as engine:
        with pytest.raises(CannotResume, match=r"max_seconds was none, is 7\.0"):
            async with engine.resume(RUN, journal=journal, tools=toolset()):
                pass


async def test_the_inputs_are_those_of_the_start() -> None:
    journal = MemoryJournal()
    plan = Plan(steps=[nap("a", 5.0), Step(id="b", tool="echo", args={"value": "${input.region}"}, depends_on=["a"])])
    await begin(journal, plan, inputs={"region": "north"})

    assert (await go_on(journal)).output == "north"


async def test_a_run_can_be_stolen_from_a_process_that_lives() -> None:
    """The former owner is told, stops, and says so; nothing of what it does from then on is on record."""
    journal, took = MemoryJournal(), anyio.Event()
    lost: list[JournalError] = []

    async def former() -> None:
        async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
            took.set()
            try:
                await running.result()
            except OwnerLost as error:
                lost.append(error)
            assert running.has_ended

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(former)
        await took.wait()
        await anyio.sleep(2)
        result = await go_on(journal, steal=True)

    assert (result.status, len(lost)) == (Status.SUCCEEDED, 1)
    events = await records(journal)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert [type(event) for event in events if isinstance(event, RunResumed | RunEnded)] == [RunResumed, RunEnded]


async def test_who_has_lost_a_run_makes_no_call_with_an_effect_any_more() -> None:
    """The new owner may be making it at this very moment."""
    journal, sent = MemoryJournal(), list[str]()

    async def send(context: ToolContext) -> None:
        sent.append(context.step)

    tools = toolset(make_tool(send, effect="idempotent"))
    plan = Plan(steps=[nap("a", 5.0), Step(id="b", tool="send", depends_on=["a"])])

    async def lose() -> None:
        async with dagrun.start(plan, tools=tools, journal=journal, run_id=RUN) as running:
            await anyio.sleep(4.9)
            run_log = await journal.open(RUN, steal=True)
            await running.result()
            await run_log.aclose()

    with pytest.raises(OwnerLost):
        await lose()
    assert sent == []


# What is on record ----------------------------------------------------------------------------------------------------


async def test_everything_that_was_shown_is_on_record() -> None:
    journal, events = MemoryJournal(), list[Event]()
    await begin(journal, on_event=events.append)
    await go_on(journal, on_event=events.append)

    found = await records(journal)

    assert [(type(event), event.seq, event.at) for event in found] == [
        (type(event), event.seq, event.at) for event in events
    ]


async def test_labels_and_an_end_of_keeping_are_on_record() -> None:
    journal = MemoryJournal()
    await begin(journal, labels={"who": "ann", "of": [1, None]}, expires_after=3600.0)
    opening, started = await opening_of(journal), (await records(journal))[0]

    assert isinstance(started, RunStarted)
    assert opening.labels == {"who": "ann", "of": [1, None]}
    assert opening.expires_at == pytest.approx(started.wall_time + 3600, abs=5)
    assert (opening.root, opening.parent, opening.version) == (RUN, "", dagrun.__version__)


@pytest.mark.parametrize("option", [{"labels": {}}, {"expires_after": 60.0}])
async def test_only_a_journal_keeps_them(option: Mapping[str, Any]) -> None:
    with pytest.raises(ContractError, match="are kept by a journal"):
        await dagrun.run(LONG, tools=toolset(), **option)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
async def test_records_are_kept_for_some_time_or_for_ever(seconds: float) -> None:
    with pytest.raises(ContractError, match="expires_after must be a positive, finite number"):
        await dagrun.run(LONG, tools=toolset(), journal=MemoryJournal(), expires_after=seconds)


@pytest.mark.bad_records
async def test_what_does_not_follow_from_the_records_before_it_is_damage() -> None:
    journal = MemoryJournal()
    await begin(journal)
    del journal._runs[RUN].texts[1]

    with pytest.raises(JournalDamaged, match="at record 2"):
        await go_on(journal)


# Doing it again -------------------------------------------------------------------------------------------------------


class Keys:
    """A tool that keeps the keys of its calls, and does what it is told."""

    def __init__(self, *acts: Any) -> None:
        self.keys: list[str] = []
        self._acts = acts

    async def _put(self, value: Any, context: ToolContext) -> Any:
        act = self._acts[min(len(self.keys), len(self._acts) - 1)]
        self.keys.append(context.idempotency_key)
        if isinstance(act, BaseException):
            raise act
        return value

    @property
    def tool(self) -> AnyTool:
        return make_tool(self._put, name="put", effect="idempotent")


def put(id_: str = "p", *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="put", args={"value": 7}, depends_on=after, **{"retry": ONCE, **fields})


NO: Final = dagrun.ToolError("no")


async def test_only_what_has_not_succeeded_is_done_again() -> None:
    journal, events = MemoryJournal(), list[Event]()
    flaky = scripted("flaky", ValueError("no"), 7)
    plan = Plan(
        steps=[
            nap("a", 1.0),
            Step(id="b", tool="flaky", depends_on=["a"]),
            Step(id="c", tool="echo", args={"value": ["${a}", "${b}"]}),
        ]
    )
    first = await begin(journal, plan, after=9, tools=toolset(flaky))
    assert states(first) == {"a": "succeeded", "b": "failed", "c": "skipped"}

    result = await do_again(journal, tools=toolset(flaky), on_event=events.append)

    assert (result.status, result.output, result.run_id) == (Status.SUCCEEDED, ["a", 7], "again")
    assert [event.step for event in events if isinstance(event, AttemptStarted)] == ["b", "c"]
    taken = [(event.step, event.reason) for event in events if isinstance(event, StepSettled)]
    assert taken == [("a", "taken over from run run")]
    assert (await opening_of(journal, "again")).parent == RUN
    assert [held.run_id for held in await journal.runs()] == ["again", RUN]


async def test_keys_are_inherited_however_often_a_run_is_done_again() -> None:
    """A service that knows them sees the same call once more."""
    journal, keys = MemoryJournal(), Keys(NO, NO, 1)
    tools = toolset(keys.tool)
    await begin(journal, Plan(steps=[put()]), tools=tools)
    await do_again(journal, tools=tools, new_id="second")

    result = await do_again(journal, "second", tools=tools, new_id="third")

    assert (result.output, len(keys.keys), len(set(keys.keys))) == (7, 3, 1)
    opening = await opening_of(journal, "third")
    assert (opening.root, opening.parent) == (RUN, "second")


async def test_the_key_of_a_substitute_is_that_of_the_first_step_also_then() -> None:
    journal, keys = MemoryJournal(), Keys(NO, NO, 1)
    tools, planner = toolset(keys.tool), Thinker(instead("p", put("q")))
    first = await begin(journal, Plan(steps=[put()]), tools=tools, planner=planner)
    assert states(first) == {"p": "failed", "q": "failed"}

    result = await do_again(journal, tools=tools)

    assert (states(result), len(keys.keys)) == ({"q": "succeeded"}, 3)
    assert keys.keys[1] == keys.keys[2] != keys.keys[0]  # the first call was known not to have taken effect


async def test_a_retried_run_can_be_suspended_and_goes_on() -> None:
    """What it has taken over is on its own record."""
    journal, keys = MemoryJournal(), Keys(NO, 1)
    tools = toolset(keys.tool)
    plan = Plan(steps=[nap("a", 1.0), nap("long", 5.0, "p"), put("p", "a")])
    await begin(journal, plan, after=9, tools=tools)
    async with dagrun.retry(RUN, journal=journal, tools=tools, new_id="again") as running:
        await anyio.sleep(1)
        running.suspend()
    await journal.delete(RUN)

    result = await go_on(journal, "again", tools=tools)

    assert (result.status, len(keys.keys), len(set(keys.keys))) == (Status.SUCCEEDED, 2, 1)


async def test_a_run_that_was_cancelled_can_be_done_again() -> None:
    journal = MemoryJournal()
    async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
        await anyio.sleep(5.5)
        running.cancel()

    result = await do_again(journal)

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(1))


async def test_a_run_that_has_not_ended_is_not_done_again() -> None:
    journal = MemoryJournal()
    await begin(journal)

    with pytest.raises(CannotResume, match="run run has not ended; resume it"):
        await do_again(journal)


async def test_a_run_that_has_succeeded_is_not_done_again() -> None:
    journal = MemoryJournal()
    await begin(journal, after=9)

    with pytest.raises(CannotResume, match="run run has succeeded; there is nothing to do again"):
        await do_again(journal)


async def test_as_long_as_an_effect_is_in_doubt_nothing_is_done_again() -> None:
    journal = MemoryJournal()
    keys = Keys(ConnectionResetError("gone"))
    first = await begin(journal, Plan(steps=[put(retry=AT_ONCE)]), tools=toolset(keys.tool))
    assert first.status is Status.UNKNOWN

    with pytest.raises(CannotResume, match="nobody knows whether these took effect: p; resume run run") as caught:
        await do_again(journal, tools=toolset(keys.tool))
    assert caught.value.differences == ()


@pytest.mark.parametrize("name", DIFFERENT)
async def test_what_is_different_is_shown_before_it_is_done_again(name: str) -> None:
    changed, line = DIFFERENT[name]
    journal = MemoryJournal()
    await begin(journal, Plan(steps=[nap("a", 1.0), fails("b")]), after=9, policy=Policy())
    if name == "no tool":  # the plan needs the third
        changed = {"tools": [tool for tool in toolset() if tool.name != "echo"]}

    with pytest.raises(CannotResume, match="allow_differences=True lets it") as caught:
        await do_again(journal, **changed)
    assert line in caught.value.differences

    result = await do_again(journal, allow_differences=True, **changed)
    assert states(result) == {"a": "succeeded", "b": "failed"}


async def test_the_recorded_policy_holds_there_too() -> None:
    journal = MemoryJournal()
    await begin(journal, Plan(steps=[nap("a", 9.0)]), after=9, policy=Policy(max_seconds=3.0))

    result = await do_again(journal)

    assert (result.status, result.makespan) == (Status.OVER_BUDGET, near(3))


# Journals that fail ---------------------------------------------------------------------------------------------------


class FailingRunLog(MemoryRunLog):
    """A run log on which only so many records fit."""

    room: ClassVar[int] = 0

    def flush(self) -> None:
        """Hand on, if it fits."""
        if self._unit and self._kept_last + len(self._unit) > self.room:
            self._unit.clear()
            if self._failure is None:
                self.fail(JournalFailed("the disk is full"))
            return
        super().flush()


class FailingJournal(MemoryJournal):
    """A journal in which only so many records fit."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.run_log_type = type("Failing", (FailingRunLog,), {"room": room})  # type: ignore[misc]


async def fail_at(room: int, plan: Plan, check: Callable[[dagrun.Run], None] = lambda _: None, **options: Any) -> float:
    """Carry *plan* out with room for so many records; give when the run had ended."""
    journal = FailingJournal(room)
    async with dagrun.start(plan, journal=journal, run_id=RUN, **options) as running:
        began = anyio.current_time()
        with pytest.raises(JournalFailed, match="the disk is full"):
            await running.result()
        check(running)
        assert running.has_ended
        return anyio.current_time() - began


@pytest.mark.parametrize(("room", "at"), [(1, 0), (2, 5), (3, 5), (4, 6), (5, 6)])
async def test_a_journal_that_fails_ends_the_run_and_its_result_says_why(room: int, at: float) -> None:
    """What happens from then on would be lost: the less of it, the better."""
    assert await fail_at(room, LONG, tools=toolset()) == near(at)


async def test_a_run_that_cannot_be_put_on_record_does_not_begin() -> None:
    """Nobody could find it again; and nothing may have been called for it."""
    called: list[str] = []

    async def look(context: ToolContext) -> None:
        called.append(context.step)

    plan = Plan(steps=[Step(id="a", tool="look")])
    with pytest.raises(JournalFailed, match="the disk is full"):
        async with dagrun.start(plan, tools=[make_tool(look, effect="read")], journal=FailingJournal(0), run_id=RUN):
            raise AssertionError("it has begun")
    assert called == []


async def test_what_follows_from_it_is_told_to_everybody() -> None:
    """A change of the plan that is not kept was not made, for whoever asked for it."""
    journal = FailingJournal(2)
    async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
        await anyio.sleep(1)
        with pytest.raises(JournalFailed):
            await running.splice(Patch(edits=[Add(step=nap("c", 1.0)), Add(step=nap("d", 1.0))]))
        with pytest.raises(JournalFailed):
            await running.result()


async def test_no_call_with_an_effect_is_made_that_is_not_on_record() -> None:
    """Nobody could know of it later."""
    sent: list[str] = []

    async def send(context: ToolContext) -> None:
        sent.append(context.step)

    plan = Plan(steps=[nap("a", 1.0), Step(id="b", tool="send", depends_on=["a"])])
    for room in range(1, 4):
        await fail_at(room, plan, tools=toolset(make_tool(send, effect="effectful", needs_approval=False)))
    assert sent == []


async def test_what_was_kept_before_the_failure_can_go_on() -> None:
    """The disk has room again: the run goes on where its record ends."""
    journal = FailingJournal(4)
    async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
        with pytest.raises(JournalFailed):
            await running.result()
    before = await records(journal)
    assert len(before) <= 4
    journal.run_log_type = MemoryRunLog  # type: ignore[misc]

    result = await go_on(journal)

    assert (result.status, (await records(journal))[: len(before)]) == (Status.SUCCEEDED, before)


async def test_a_journal_that_fails_while_the_run_is_suspended_says_so() -> None:
    """Who is told that a run can be resumed must be able to rely on it."""
    journal = FailingJournal(2)
    async with dagrun.start(LONG, tools=toolset(), journal=journal, run_id=RUN) as running:
        await anyio.sleep(1)
        running.suspend()
        with pytest.raises(JournalFailed):
            await running.result()
    assert not [event for event in await records(journal) if isinstance(event, RunSuspended)]


@pytest.mark.parametrize(("effect", "calls"), [("effectful", 1), ("idempotent", 2), ("read", 2)])
async def test_effect_whose_output_is_not_in_the_record_takes_place_once(effect: Any, calls: int) -> None:
    """What looks, or has a key, is called again for its output; a payment is not made twice for its receipt."""
    made: list[int] = []

    @dagrun.tool(effect=effect)
    async def pay() -> str:
        made.append(1)
        return "paid with s3cr3t-s3cr3t"

    journal = MemoryJournal()
    options: dict[str, Any] = {"tools": [*toolset(), pay], "secrets": {"bank": "s3cr3t-s3cr3t"}}
    first = await begin(journal, Plan(steps=[Step(id="pay", tool="pay"), fails("bad")]), **options)
    second = await do_again(journal, **options)

    assert (str(first.status), len(made), str(second.steps["pay"].state)) == ("failed", calls, "succeeded")


async def test_retry_does_not_repeat_the_effect_of_an_element() -> None:
    """The element that failed is called again; see `test_retried_elements.py`."""
    made: list[str] = []

    @dagrun.tool(effect="effectful")
    async def send(to: str) -> str:
        made.append(to)
        if to == "ben":
            raise dagrun.ToolError("ben is away")
        return to

    journal, tools = MemoryJournal(), [send]
    plan = Plan(steps=[Step(id="each", tool="send", for_each=["ann", "ben"], args={"to": "${item}"})])
    first = await begin(journal, plan, tools=tools)

    second = await do_again(journal, tools=tools)

    assert (str(first.status), states(second)["each[0]"]) == ("failed", "succeeded")
    assert sorted(made) == ["ann", "ben", "ben"]


@pytest.mark.parametrize(
    ("function", "options", "message"),
    [
        (dagrun.resume, {"jurnal": None}, "resume has no option jurnal; did you mean journal"),
        (dagrun.resume, {"inputs": {}, "journal": None}, "resume has no option inputs"),
        (dagrun.resume, {"tools": []}, "resume cannot do without journal="),
        (dagrun.retry, {}, "retry cannot do without journal="),
    ],
)
async def test_options_that_do_not_fit_are_named(function: Any, options: dict[str, Any], message: str) -> None:
    """A misspelt one that is ignored would be a surprise in the middle of the run."""
    with pytest.raises(ContractError, match=message):
        async with function(RUN, **options):
            raise AssertionError("it has begun")
