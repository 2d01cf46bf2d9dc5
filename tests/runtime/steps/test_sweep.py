"""Runs of many steps that are ended early: settled in portions, while others in the loop get their turn."""

from __future__ import annotations

import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

import dagrun
from crash_process import RUN
from dagrun import MemoryJournal, Plan, Policy, RunResult, Step
from dagrun.model.patch import Add
from dagrun.model.planner import Brief
from dagrun.model.tool import make_tool
from dagrun.runtime.steps.run_completion import EndEarly
from keeping import Keeping
from small_tools import near, states, toolset

pytestmark = pytest.mark.anyio

PORTION = 5
STEPS = 60


@pytest.fixture
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few steps are many."""
    monkeypatch.setattr(EndEarly, "portion", PORTION)


def _nap(id_: str, seconds: float, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds, "gives": id_}, depends_on=after, **fields)


def _chain(count: int = STEPS) -> Plan:
    return Plan(steps=[_nap(f"s{i}", 10.0, *([f"s{i - 1}"] if i else [])) for i in range(count)])


class Turns:
    """Counts the turns that a task beside a run gets."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self, *, task_status: TaskStatus[None]) -> None:
        """Take every turn there is, until cancelled."""
        task_status.started()
        while True:
            await checkpoint()
            self.count += 1


async def _stopped(plan: Plan, after: float, **options: Any) -> tuple[RunResult, int]:
    """Cancel a run some time after its start; its result, and the turns that others got until it had ended."""
    turns = Turns()
    async with dagrun.start(plan, tools=toolset(), **options) as running:
        await anyio.sleep(after)
        async with anyio.create_task_group() as tasks:
            await tasks.start(turns.take)
            running.cancel(reason="enough")
            result = await running.result()
            tasks.cancel_scope.cancel()
    return result, turns.count


async def test_others_get_their_turn_between_the_portions(small_portions: None) -> None:
    result, turns = await _stopped(_chain(), 1.0)

    assert turns >= STEPS // PORTION - 1
    assert (result.status, result.reason, len(result.steps)) == ("cancelled", "enough", STEPS)
    assert result.makespan == near(1.0)
    assert result.steps["s0"].reason == "enough"
    assert (result.steps["s1"].state, result.steps["s1"].reason) == ("cancelled", "enough")
    assert result.steps["s2"].reason == "s1 cancelled"
    assert result.steps["s40"].reason == "s1 cancelled, so s39 was skipped"


async def test_few_steps_are_settled_at_once() -> None:
    async with dagrun.start(_chain(), tools=toolset()) as running:
        await anyio.sleep(1)
        running.cancel()
        assert {str(state) for id_, state in running.states.items() if id_ != "s0"} == {"cancelled", "skipped"}


def _any_plan(seed: int) -> tuple[Plan, Policy, float]:
    rng = random.Random(seed)
    steps = []
    for number in range(rng.randint(20, 50)):
        near_by = [f"s{other}" for other in range(max(0, number - 6), number)]
        after = rng.sample(near_by, min(len(near_by), rng.randint(0, 3)))
        fields: dict[str, Any] = {"on_failure": rng.choice(["skip", None])}
        if rng.random() < 0.15:
            fields |= {"for_each": [1.0, 2.0, 9.0][: rng.randint(1, 3)], "args": {"seconds": "${item}"}}
        else:
            fields["args"] = {"seconds": rng.choice([0.0, 1.0, 3.0])}
        steps.append(Step(id=f"s{number}", tool="nap", depends_on=after, **fields))
    policy = Policy(max_running=rng.choice([None, 2, 5]), release_outputs=rng.random() < 0.3)
    if rng.random() < 0.3:
        rng.shuffle(steps)
    return Plan(steps=steps), policy, rng.choice([0.5, 1.5, 2.5])


@pytest.mark.parametrize("seed", range(40))
async def test_in_portions_each_step_ends_as_it_does_at_once(
    seed: int, monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    plan, policy, after = _any_plan(seed)
    if anyio_backend_name == "trio":  # which of those that end at once is first is left to chance there
        policy = policy.model_copy(update={"max_running": None})
    at_once, _ = await _stopped(plan, after, policy=policy)
    monkeypatch.setattr(EndEarly, "portion", 1 + seed % 3)
    in_portions, _ = await _stopped(plan, after, policy=policy)

    assert states(in_portions) == states(at_once)
    assert (in_portions.status, in_portions.reason) == (at_once.status, at_once.reason)


async def test_what_runs_gets_its_grace_meanwhile(small_portions: None) -> None:
    """A step that ends by itself while others are settled takes nothing along, and starts nothing."""

    async def stubborn(seconds: float) -> str:
        """Not be told."""
        with anyio.CancelScope(shield=True):
            await anyio.sleep(seconds)
        return "done"

    steps = [Step(id="slow", tool="stubborn", args={"seconds": 3.0}), *_chain().steps, _nap("last", 1.0, "slow")]
    async with dagrun.start(Plan(steps=steps), tools=toolset(make_tool(stubborn)), policy=Policy(grace=9.0)) as running:
        await anyio.sleep(1)
        running.cancel(reason="enough")
        result = await running.result()

    assert result.makespan == near(3.0)
    assert result.steps["last"].reason == "enough"
    assert not result.steps["last"].attempts


@pytest.mark.parametrize("how", ["cancelled", "raised"])
@pytest.mark.parametrize("turns", [None, 0, 1, 2, 5])
@pytest.mark.parametrize("is_written", [False, True])
async def test_when_the_code_around_ends_the_rest_is_settled_at_once(
    how: str, turns: int | None, is_written: bool, small_portions: None
) -> None:
    """Also in the middle of it, that many turns after the run was cancelled."""
    journal = MemoryJournal() if is_written else None
    with anyio.CancelScope() as scope, contextlib.suppress(Left):
        async with dagrun.start(_chain(), tools=toolset(), journal=journal) as running:
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


class Left(Exception):
    """The code around a run has had enough."""


@pytest.mark.parametrize("how", ["cancelled", "raised", "both"])
@pytest.mark.parametrize("is_written", [False, True])
async def test_another_run_gets_the_slot_while_the_rest_is_settled(
    how: str, is_written: bool, small_portions: None
) -> None:
    """The run that ends stands in line for it, and wants it no more."""
    results: list[RunResult] = []

    async def other(engine: dagrun.Engine) -> None:
        plan = Plan(steps=[_nap(f"a{number}", 0.0) for number in range(10 * STEPS)])
        async with engine.start(plan, tools=toolset()) as running:
            results.append(await running.result())

    async with dagrun.Engine(max_running=1) as engine, anyio.create_task_group() as tasks:
        tasks.start_soon(other, engine)
        for _ in range(5):
            await checkpoint()
        with contextlib.suppress(Left):
            plan = Plan(steps=[_nap(f"b{number}", 0.0) for number in range(STEPS)])
            async with engine.start(plan, tools=toolset(), journal=MemoryJournal() if is_written else None) as ending:
                if how != "raised":
                    ending.cancel()
                    await checkpoint()
                if how != "cancelled":
                    raise Left
                await ending.result()
        assert ending.has_ended
        assert not results

    assert results[0].status == "succeeded"


async def test_while_a_person_is_asked_all_is_settled_at_once(small_portions: None) -> None:
    """An answer in between could set free what is not settled yet."""
    pay = make_tool(_pay, effect="effectful", needs_approval=True)
    steps = [Step(id="pay", tool="_pay"), *_chain().steps]
    async with dagrun.start(Plan(steps=steps), tools=toolset(pay), attended=True) as running:
        await anyio.sleep(1)
        assert running.pending
        running.cancel()
        assert {id_ for id_, state in running.states.items() if not state.is_settled} == {"s0"}


async def _pay() -> None:
    """Pay."""


async def test_while_a_planner_writes_all_is_settled_at_once(small_portions: None) -> None:
    """What it writes in between would come into a run that is being ended."""
    start = dagrun.start(goal="a chain", planner=Writes(), tools=toolset())
    async with start as running:
        await anyio.sleep(1)
        assert len(running.states) == STEPS
        running.cancel()
        assert {id_ for id_, state in running.states.items() if not state.is_settled} == {"s0"}


class Writes:
    """Writes a chain, and never comes to the end of the plan."""

    async def revise(self, brief: Brief) -> AsyncIterator[Add]:
        """Answer with one edit after another."""
        for step in _chain().steps:
            yield Add(step=step)
        await anyio.sleep_forever()


async def test_a_step_that_is_not_settled_yet_is_cancelled_with_the_run(small_portions: None) -> None:
    async with dagrun.start(_chain(), tools=toolset()) as running:
        await anyio.sleep(1)
        running.cancel(reason="enough")
        await checkpoint()
        assert not running.states["s50"].is_settled
        assert not running.cancel("s50", reason="later")
        result = await running.result()

    assert result.steps["s50"].reason == "s1 cancelled, so s49 was skipped"


async def test_resumed_in_the_middle_of_it(small_portions: None) -> None:
    """Wherever the process ends between two portions: what goes on settles the rest."""
    texts = await _written()
    stopping = next(number for number, text in enumerate(texts) if b'"RunStopping"' in text)

    for length in range(stopping + 1, len(texts)):
        journal = Keeping()
        journal.put(texts[:length])
        async with dagrun.resume(RUN, journal=journal, tools=toolset()) as running:
            result = await running.result()
        assert (result.status, result.reason) == ("cancelled", "enough")
        assert {str(step.state) for step in result.steps.values()} == {"cancelled", "skipped"}


async def _written() -> list[bytes]:
    """The record of a run that was cancelled."""
    journal = Keeping()
    await _stopped(_chain(20), 1.0, journal=journal, run_id=RUN)
    return journal.texts


# Teeth ------------------------------------------------------------------------------------------------------


class AllAtOnce(EndEarly):
    """Leaves nothing for the next turn."""

    def settle_some(self) -> bool:
        self.settle_all()
        return False


class TakesAlong(EndEarly):
    """Lets the attempts that end meanwhile take along what they block."""

    def begin(self) -> None:
        self._record.behind = None

    def settle_some(self) -> bool:
        has_more = super().settle_some()
        self._record.behind = None
        return has_more


MUTANTS = (AllAtOnce, TakesAlong)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
async def test_mutants_are_caught(
    mutant: type[EndEarly], monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str
) -> None:
    monkeypatch.setattr("dagrun.runtime.steps.run_completion.EndEarly", mutant)
    with pytest.raises(AssertionError):
        await _all_of_it(monkeypatch, anyio_backend_name)


async def test_nothing_else_is_caught(monkeypatch: pytest.MonkeyPatch, anyio_backend_name: str) -> None:
    await _all_of_it(monkeypatch, anyio_backend_name)


async def _all_of_it(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    for seed in range(40):
        with monkeypatch.context() as patched:
            await test_in_portions_each_step_ends_as_it_does_at_once(seed, patched, backend)
    with monkeypatch.context() as patched:
        patched.setattr(EndEarly, "portion", PORTION)
        await test_others_get_their_turn_between_the_portions(None)
