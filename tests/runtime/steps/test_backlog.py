"""Many steps that are skipped or cancelled: some in each turn of the loop, so that other tasks get theirs."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from crash_process import RUN
from dagrun import Add, Answer, Brief, Event, MemoryJournal, Patch, Plan, Policy, Run, RunResult, Step, ToolContext
from dagrun.errors import SpliceRefused
from dagrun.events import GoalChanged, ReplanRequested, StepSettled
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.record.record import Backlog
from keeping import Keeping
from replans import Thinker
from small_tools import ONCE, near, states, toolset

pytestmark = pytest.mark.anyio

PORTION = 5
STEPS = 60
MANY = 10_000
STOPPED = "beside failed, and its on_failure is stop"


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few steps are many."""
    monkeypatch.setattr(Backlog, "portion", PORTION)


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


async def stubborn(seconds: float) -> str:
    """Not be told."""
    with anyio.CancelScope(shield=True):
        await anyio.sleep(seconds)
    return "done"


TOOLS = toolset(
    make_tool(breaks, effect="read"),
    make_tool(spends, effect="read", max_tokens=95),
    make_tool(pay, effect="effectful", needs_approval=True),
    make_tool(stubborn, effect="read"),
)


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def _chain(count: int = STEPS) -> Plan:
    return Plan(steps=[_nap(f"s{i}", 10.0, *([f"s{i - 1}"] if i else [])) for i in range(count)])


def _broken(*others: Step, count: int = STEPS, **fields: Any) -> Plan:
    """A step that fails after a second, a chain behind it, and others."""
    bad = Step(id="bad", tool="breaks", retry=ONCE, **fields)
    before = ["bad", *(f"s{number}" for number in range(count - 1))]
    args = [{"seconds": 1.0, "gives": f"${{{id_}}}"} for id_ in before]
    chain = [Step(id=f"s{number}", tool="nap", args=args[number]) for number in range(count)]
    return Plan(steps=[bad, *chain, *others])


def _fan(count: int = STEPS) -> Plan:
    """A step that fails after a second, and others that all wait for it."""
    bad = Step(id="bad", tool="breaks", args={"turns": 4}, retry=ONCE)
    return Plan(steps=[bad, *(_nap(f"s{i}", 1.0, "bad") for i in range(count))])


def _open(running: Run) -> int:
    """How many steps of the chain have not ended."""
    return sum(1 for id_, state in running.states.items() if id_.startswith("s") and not state.is_settled)


async def _until_half(running: Run) -> None:
    """Wait until some of the chain is skipped, and not all."""
    await anyio.sleep(1.0)
    while _open(running) > STEPS - 2 * PORTION:
        await checkpoint()
    assert _open(running)


def _ends(result: RunResult) -> dict[str, tuple[str, str]]:
    return {id_: (str(step.state), step.reason) for id_, step in result.steps.items()}


# Turns ----------------------------------------------------------------------------------------------------------------


class Turns:
    """Counts the steps that settle between two turns of a task beside a run."""

    def __init__(self) -> None:
        self.settled = 0
        self.found: list[int] = []

    def see(self, event: Event) -> None:
        """Count the steps that *event* settles."""
        self.settled += isinstance(event, StepSettled)

    async def take(self) -> None:
        """Take every turn there is, until cancelled."""
        while True:
            before = self.settled
            await checkpoint()
            self.found.append(self.settled - before)


@pytest.mark.parametrize(
    ("plan", "cancels"),
    [(_broken(count=MANY, args={"turns": 4}), False), (_fan(MANY), False), (_chain(MANY), True), (_fan(MANY), True)],
    ids=["chain fails", "fan fails", "chain is cancelled", "fan is cancelled"],
)
@pytest.mark.rigs
async def test_of_ten_thousand_steps_at_most_a_portion_is_settled_between_two_turns(plan: Plan, cancels: bool) -> None:
    turns = Turns()
    async with anyio.create_task_group() as tasks:
        async with dagrun.start(plan, tools=TOOLS, on_event=turns.see) as running:
            await anyio.sleep(0.5 if cancels else 1.0)  # the clock stands still while a task takes every turn
            tasks.start_soon(turns.take)
            await checkpoint()
            if cancels:
                running.cancel()
            result = await running.result()
        tasks.cancel_scope.cancel()

    assert turns.settled >= MANY - 1
    assert max(turns.found) <= 2 * Backlog.portion  # on trio, who is first in a turn is left to chance
    assert result.status == ("cancelled" if cancels else "failed")


async def test_steps_that_are_skipped_leave_turns_to_those_that_run(small_portions: None) -> None:
    async with dagrun.start(_broken(_nap("beside", 5.0)), tools=TOOLS) as running:
        await _until_half(running)
        assert running.states["beside"] == "running"
        result = await running.result()

    assert (result.status, result.makespan) == ("failed", near(5.0))
    assert _ends(result)["s0"] == ("skipped", "bad failed")
    assert _ends(result)["s40"] == ("skipped", "bad failed, so s39 was skipped")
    assert _ends(result)["beside"] == ("succeeded", "")


async def test_a_cancelled_run_says_of_each_step_why_it_ended(small_portions: None) -> None:
    async with dagrun.start(_chain(), tools=TOOLS) as running:
        await anyio.sleep(1.0)
        running.cancel(reason="enough")
        result = await running.result()

    ends = _ends(result)
    assert (result.status, result.reason, result.makespan) == ("cancelled", "enough", near(1.0))
    assert [ends["s0"][1], ends["s1"]] == ["enough", ("cancelled", "enough")]
    assert [ends["s2"][1], ends["s40"][1]] == ["s1 cancelled", "s1 cancelled, so s39 was skipped"]


@pytest.mark.parametrize("count", [PORTION - 1, PORTION, PORTION + 1, 2 * PORTION])
async def test_a_run_ends_with_the_last_that_is_skipped(count: int, small_portions: None) -> None:
    result = await dagrun.run(_broken(count=count), tools=TOOLS)
    assert (result.status, len(result.steps), result.makespan) == ("failed", count + 1, near(1.0))


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


async def test_few_are_settled_at_once() -> None:
    """An observer that is shown how a step has failed is shown in the same turn what that takes along, and the end."""
    async with dagrun.start(_broken(), tools=TOOLS) as running:
        await anyio.sleep(1.0)
        while running.states["bad"] == "running":
            await checkpoint()
        assert not _open(running)
        assert running.has_ended
    async with dagrun.start(_chain(), tools=TOOLS) as running:
        await anyio.sleep(1.0)
        running.cancel()
        assert {str(state) for id_, state in running.states.items() if id_ != "s0"} == {"cancelled", "skipped"}


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


async def _played(plan: Plan, policy: Policy, cancelled_at: float | None) -> RunResult:
    async with dagrun.start(plan, tools=TOOLS, policy=policy) as running:
        if cancelled_at is not None:
            await anyio.sleep(cancelled_at)
            running.cancel(reason="enough")
        return await running.result()


@pytest.mark.parametrize("cancelled_at", [None, 0.5, 1.5, 2.5])
@pytest.mark.parametrize("seed", range(15))
async def test_later_each_step_and_the_run_end_as_they_do_at_once(
    seed: int, cancelled_at: float | None, monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    if anyio_backend_name == "trio":
        pytest.skip("which of those that end at once is first is left to chance there")
    plan, policy = _any_plan(seed)
    at_once = await _played(plan, policy, cancelled_at)
    monkeypatch.setattr(Backlog, "portion", 1 + seed % 3)
    later = await _played(plan, policy, cancelled_at)

    assert _ends(later) == _ends(at_once)
    assert (later.status, later.reason) == (at_once.status, at_once.reason)
    assert later.makespan == near(at_once.makespan)


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


async def test_a_step_that_is_not_settled_yet_is_cancelled_with_the_run(small_portions: None) -> None:
    async with dagrun.start(_chain(), tools=TOOLS) as running:
        await anyio.sleep(1)
        running.cancel(reason="enough")
        assert not running.states["s50"].is_settled
        assert not running.cancel("s50", reason="later")
        result = await running.result()

    assert result.steps["s50"].reason == "s1 cancelled, so s49 was skipped"


@pytest.mark.parametrize("how", ["cancelled", "fails", "time is over"])
async def test_a_run_that_is_ended_meanwhile(how: str, small_portions: None) -> None:
    """What was to be skipped is, for the reason that it had; the rest is cancelled."""
    others = [_nap("slow", 9.0), _nap("late", 1.0, "slow")]
    if how == "fails":
        others.append(Step(id="beside", tool="breaks", args={"turns": 4}, retry=ONCE, on_failure="stop"))
    policy = Policy(max_seconds=1.0 if how == "time is over" else None)
    async with dagrun.start(_broken(*others), tools=TOOLS, policy=policy) as running:
        if how == "cancelled":
            await _until_half(running)
            running.cancel(reason="enough")
        result = await running.result()

    ends = _ends(result)
    if how != "time is over":
        assert ends["s50"] == ("skipped", "bad failed, so s49 was skipped")
        assert ends["late"] == ("cancelled", "enough" if how == "cancelled" else STOPPED)
    assert result.status == {"cancelled": "cancelled", "fails": "failed", "time is over": "over_budget"}[how]
    assert all(str(state) in ("failed", "skipped", "cancelled", "timed_out") for state, _ in ends.values())


@pytest.mark.parametrize(("tool", "makespan"), [("nap", 1.0), ("stubborn", 3.0)])
async def test_what_runs_gets_its_grace_meanwhile(tool: str, makespan: float, small_portions: None) -> None:
    """A step that ends by itself while others are settled takes nothing along, and starts nothing."""
    steps = [Step(id="slow", tool=tool, args={"seconds": 3.0}), *_chain().steps, _nap("last", 1.0, "slow")]
    async with dagrun.start(Plan(steps=steps), tools=TOOLS, policy=Policy(grace=9.0)) as running:
        await anyio.sleep(1)
        running.cancel(reason="enough")
        result = await running.result()

    assert result.makespan == near(makespan)
    assert result.steps["last"].reason == "enough"
    assert not result.steps["last"].attempts


async def test_a_splice_meanwhile_finds_all_of_them_skipped(small_portions: None) -> None:
    patch = Patch(edits=[Add(step=_nap("new", 1.0, "s50"))])
    async with dagrun.start(_broken(_nap("beside", 5.0)), tools=TOOLS) as running:
        await _until_half(running)
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
        await _until_half(running)
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
        await _until_half(running)
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


async def test_while_a_person_is_asked_all_is_settled_at_once(small_portions: None) -> None:
    """An answer in between could set free what is not settled yet."""
    steps = [*_chain().steps, Step(id="pay", tool="pay")]
    async with dagrun.start(Plan(steps=steps), tools=TOOLS, attended=True) as running:
        await anyio.sleep(1)
        assert running.pending
        running.cancel()
        assert {id_ for id_, state in running.states.items() if not state.is_settled} == {"s0"}


class Writes:
    """Writes a chain, and never comes to the end of the plan."""

    async def revise(self, brief: Brief) -> AsyncIterator[Add]:
        """Answer with one edit after another."""
        for step in _chain().steps:
            yield Add(step=step)
        await anyio.sleep_forever()


async def test_while_a_planner_writes_all_is_settled_at_once(small_portions: None) -> None:
    """What it writes in between would come into a run that is being ended."""
    async with dagrun.start(goal="a chain", planner=Writes(), tools=TOOLS) as running:
        await anyio.sleep(1)
        assert len(running.states) == STEPS
        running.cancel()
        assert {id_ for id_, state in running.states.items() if not state.is_settled} == {"s0"}


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
        await _until_half(running)
        running.suspend("later")
        result = await running.result()
    assert (result.status, result.reason) == ("cancelled", "later")
    assert not _open(running)

    async with dagrun.resume(RUN, journal=journal, tools=TOOLS) as again:
        result = await again.result()
    assert _ends(result)["beside"] == ("succeeded", "")
    assert _ends(result)["s50"] == ("skipped", "bad failed, so s49 was skipped")


class Left(Exception):
    """The code around a run has had enough."""


@pytest.mark.parametrize("how", ["cancelled", "raised"])
@pytest.mark.parametrize("turns", [None, 0, 1, 2, 5])
@pytest.mark.parametrize("is_written", [False, True])
async def test_when_the_code_around_ends_the_rest_is_cancelled_at_once(
    how: str, turns: int | None, is_written: bool, small_portions: None
) -> None:
    """Also in the middle of it, that many turns after the run was cancelled."""
    journal = MemoryJournal() if is_written else None
    with anyio.CancelScope() as scope, contextlib.suppress(Left):
        async with dagrun.start(_chain(), tools=TOOLS, journal=journal) as running:
            await anyio.sleep(1)
            if turns is not None or is_written:
                running.cancel()
            for _ in range(turns or 0):
                await checkpoint()
            if how == "raised":
                raise Left
            scope.cancel()
            await checkpoint()

    assert running.has_ended
    assert {str(state) for state in running.states.values()} == {"cancelled", "skipped"}


@pytest.mark.parametrize("is_written", [False, True])
async def test_when_the_code_around_ends_the_rest_is_skipped_at_once(is_written: bool, small_portions: None) -> None:
    journal = MemoryJournal() if is_written else None
    with anyio.CancelScope() as scope:
        async with dagrun.start(_broken(), tools=TOOLS, journal=journal) as running:
            await _until_half(running)
            scope.cancel()
            await checkpoint()

    assert running.has_ended
    assert {str(state) for state in running.states.values()} == {"failed", "skipped"}


@pytest.mark.parametrize("how", ["cancelled", "raised", "both"])
@pytest.mark.parametrize("is_written", [False, True])
async def test_another_run_gets_the_slot_while_the_rest_is_settled(
    how: str, is_written: bool, small_portions: None
) -> None:
    """The run that ends stands in line for it, and wants it no more."""
    results: list[RunResult] = []

    async def other(engine: dagrun.Engine) -> None:
        plan = Plan(steps=[_nap(f"a{number}", 0.0) for number in range(10 * STEPS)])
        async with engine.start(plan, tools=TOOLS) as running:
            results.append(await running.result())

    async with dagrun.Engine(max_running=1) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(other, engine)
        for _ in range(5):
            await checkpoint()
        with contextlib.suppress(Left):
            plan = Plan(steps=[_nap(f"b{number}", 0.0) for number in range(STEPS)])
            async with engine.start(plan, tools=TOOLS, journal=MemoryJournal() if is_written else None) as ending:
                if how != "raised":
                    ending.cancel()
                    await checkpoint()
                if how != "cancelled":
                    raise Left
                await ending.result()
        assert ending.has_ended
        assert not results

    assert results[0].status == "succeeded"


@pytest.mark.parametrize(("what", "first"), [("skipped", b'"AttemptEnded"'), ("cancelled", b'"RunStopping"')])
async def test_resumed_in_the_middle_of_it(what: str, first: bytes, small_portions: None) -> None:
    """Wherever the process ends between two portions: the next one settles the rest."""
    journal = Keeping()
    plan = _broken(count=20) if what == "skipped" else _chain(20)
    async with dagrun.start(plan, tools=TOOLS, journal=journal, run_id=RUN) as running:
        if what == "cancelled":
            await anyio.sleep(1.0)
            running.cancel(reason="enough")
        whole = await running.result()
    texts = journal.texts
    begun = next(number for number, text in enumerate(texts) if first in text)

    for length in range(begun + 1, len(texts)):
        cut = Keeping()
        cut.put(texts[:length])
        async with dagrun.resume(RUN, journal=cut, tools=TOOLS) as running:
            result = await running.result()
        assert (result.status, result.reason.split(" (")[0]) == (whole.status, whole.reason.split(" (")[0])
        ended = {"skipped", "failed"} if what == "skipped" else {"cancelled", "skipped"}
        assert set(states(result).values()) == ended


# Teeth ----------------------------------------------------------------------------------------------------------------


class AllAtOnce(Backlog):
    """Leaves nothing for the next turn."""

    portion = 10**9


class Keeps(Backlog):
    """Leaves what others want settled for later all the same."""

    def finish(self) -> None:
        pass


class Forgets(Backlog):
    """Does not look whether the run has ended with it."""

    async def _work(self) -> None:
        while self._left:
            self._settle(self.portion)
            await checkpoint()


class TakesAlong(Backlog):
    """Lets the attempts that end meanwhile take along what they block."""

    def take(self, work: Iterator[None]) -> None:
        if self._left and not self._is_settling:
            for _ in work:
                pass
        else:
            super().take(work)


async def _a_chain_is_settled_in_turns(_: None) -> None:
    await test_of_ten_thousand_steps_at_most_a_portion_is_settled_between_two_turns(_chain(MANY), True)


async def _nothing_is_taken_along(_: None) -> None:
    await test_what_runs_gets_its_grace_meanwhile("nap", 1.0, None)


CAUGHT_BY: dict[type[Backlog], Callable[..., Any]] = {
    AllAtOnce: _a_chain_is_settled_in_turns,
    Keeps: test_a_splice_meanwhile_finds_all_of_them_skipped,
    Forgets: test_a_run_of_which_somebody_else_skips_the_rest_ends,
    TakesAlong: _nothing_is_taken_along,
}


@pytest.mark.parametrize("mutant", CAUGHT_BY, ids=lambda mutant: mutant.__name__)
@pytest.mark.rigs
async def test_mutants_are_caught(mutant: type[Backlog], small_portions: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dagrun.kernel.runtime.record.record.Backlog", mutant)
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)), anyio.fail_after(60):
        await CAUGHT_BY[mutant](None)
