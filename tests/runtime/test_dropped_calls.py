"""A call that waits for what never ends is dropped after its grace period, at any depth of tasks; nothing spins."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Drop, Patch, Plan, PlanningRule, Policy, Run, Status, Step
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime import coroutine_driver, stop_scope
from dagrun.testing import run_virtual, virtual_backend
from seeds import choose_seeds
from small_tools import ONCE, near
from swallowing import FOR_EVER, STORM, WAYS, Poller, Way, random_way

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

GRACE: Final = 1.0
LIMIT: Final = 2.0


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """A task of trio belongs to its nursery, which nothing can leave before it has ended."""
    return virtual_backend("asyncio")


class Played:
    """A run of a step that waits for a poller, and of another one beside it.

    Attributes:
        poller: What the step waits for.
        result: The result of the run.
        ended: When the block of the run was left.
    """

    def __init__(self) -> None:
        self.poller = Poller()
        self.result: dagrun.RunResult
        self.ended = 0.0

    async def play(self, way: Way, act: Callable[[Run], object] | None = None, **limits: Any) -> None:
        """Run it; *act* is called after two seconds, unless the step has that as its time limit."""

        async def waits() -> None:
            await way(self.poller)

        async def nap() -> None:
            await anyio.sleep(2.5)

        tools = [make_tool(function, effect="read") for function in (waits, nap)]
        plan = Plan(steps=[Step(id="w", tool="waits", timeout=None if act else LIMIT), Step(id="beside", tool="nap")])
        zero = anyio.current_time()
        async with dagrun.start(plan, tools=tools, policy=Policy(grace=GRACE, retry=ONCE, **limits)) as run:
            if act is not None:
                await anyio.sleep(LIMIT)
                done = act(run)
                if asyncio.iscoroutine(done):
                    await done
            self.result = await run.result()
        self.ended = anyio.current_time() - zero


@pytest.mark.parametrize("way", WAYS)
async def test_a_call_is_dropped_whatever_it_waits_for(way: Way, caplog: pytest.LogCaptureFixture) -> None:
    """The run ends, its block is left, and whoever reads the log knows which task is left."""
    played = Played()
    await played.play(way)

    step = played.result.steps["w"]
    assert (str(step.state), played.ended) == ("abandoned", near(LIMIT + GRACE))
    assert played.result.steps["beside"].state == "succeeded"
    is_alone = way.__name__ in ("direct", "shielded")
    assert step.reason.startswith("it took longer than 2 s; it would not stop")
    assert ("left 1 task (" in step.reason) is not is_alone
    assert step.reason in caplog.text


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_cancelled_again_and_again(way: Way) -> None:
    """Neither in the grace period, nor after it; and a task that is left behind does not keep its loop from closing."""
    played = Played()
    await played.play(way)
    swallowed = played.poller.swallowed
    await anyio.sleep(10)

    assert played.poller.swallowed == swallowed < 2 * stop_scope.LAST_TURNS + stop_scope.LAST_AWAITS
    assert not _registered()


def _registered() -> list[asyncio.Task[Any]]:
    """Return the tasks of the call that the end of its loop would wait for."""
    return [task for task in asyncio.all_tasks() if "swallowing" in repr(task)]


async def _drop(run: Run) -> None:
    await run.splice(Patch(edits=[Drop(id="w", cancel=True)], reason="not needed"))


ACTS: Final[dict[str, Callable[[Run], object]]] = {
    "the step is cancelled": lambda run: run.cancel("w"),
    "the run is cancelled": lambda run: run.cancel(),
    "a splice drops it": _drop,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
@pytest.mark.parametrize("way", WAYS)
async def test_it_is_dropped_whoever_stops_it(way: Way, act: Callable[[Run], object]) -> None:
    played = Played()
    await played.play(way, act)

    assert played.result.steps["w"].state == "abandoned"
    assert played.ended == near(LIMIT + GRACE)


@pytest.mark.parametrize("has_journal", [False, True])
@pytest.mark.parametrize("way", WAYS)
async def test_it_is_dropped_if_the_code_around_the_run_is_cancelled(way: Way, has_journal: bool) -> None:
    """The alarms of the run are gone by then."""
    journal = dagrun.MemoryJournal() if has_journal else None
    poller = Poller()

    async def waits() -> None:
        await way(poller)

    zero = anyio.current_time()
    with anyio.move_on_after(LIMIT):
        plan = Plan(steps=[Step(id="w", tool="waits")])
        await dagrun.run(plan, tools=[make_tool(waits, effect="read")], policy=Policy(grace=GRACE), journal=journal)

    assert LIMIT + GRACE <= anyio.current_time() - zero <= LIMIT + GRACE + 0.1


@pytest.mark.parametrize("way", WAYS)
async def test_it_is_dropped_when_the_time_of_the_run_is_over(way: Way) -> None:
    played = Played()
    await played.play(way, lambda run: None, max_seconds=LIMIT + 1)

    assert (played.result.status, played.ended) == (Status.OVER_BUDGET, near(LIMIT + 1 + GRACE))


async def test_a_planner_is_dropped_too() -> None:
    """It is called as a tool is."""
    poller = Poller()

    class Stubborn:
        async def plan_steps(self, *_: object) -> Any:
            await asyncio.gather(poller())

        revise = plan_steps

    async def fails() -> None:
        raise dagrun.ToolError("no")

    zero = anyio.current_time()
    plan = Plan(steps=[Step(id="f", tool="fails")])
    policy = Policy(grace=GRACE, retry=ONCE, planning=PlanningRule(timeout=LIMIT))
    await dagrun.run(plan, tools=[make_tool(fails, effect="read")], planner=Stubborn(), policy=policy)

    assert anyio.current_time() - zero <= LIMIT + GRACE + 0.1


@pytest.mark.real_time
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_run_sync_returns_although_a_thread_goes_on_behind_a_shield(loop: str) -> None:
    """anyio protects such a thread from every cancellation; it ends at some time, and nobody waits for it."""
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    import threading

    over = threading.Event()

    async def reads() -> None:
        await anyio.to_thread.run_sync(over.wait, 30)

    async def main() -> dagrun.RunResult:
        policy = Policy(grace=0.05, retry=ONCE, max_seconds=20)
        plan = Plan(steps=[Step(id="r", tool="reads", timeout=0.05)])
        result = await dagrun.run(plan, tools=[make_tool(reads, effect="read")], policy=policy)
        assert not over.is_set()
        over.set()
        return result

    result = anyio.run(main, backend_options={"use_uvloop": loop == "uvloop"})

    assert result.steps["r"].state == "abandoned"
    assert result.steps["r"].reason == "it took longer than 0.05 s; it would not stop; left 1 thread"


# The rig -----------------------------------------------------------------------------------------------------


async def _one(seed: int) -> None:
    """One random nesting, stopped in a random way: the run ends in time, and nothing is cancelled again and again."""
    draw = random.Random(seed)
    name, way = random_way(draw)
    act = draw.choice((None, *ACTS.values()))
    played = Played()
    await played.play(way, act)

    where = f"seed {seed}: {name}"
    assert played.ended == near(LIMIT + GRACE), where
    assert played.result.steps["w"].state == "abandoned", where
    assert played.poller.swallowed < STORM, where
    assert not _registered(), where
    await anyio.sleep(FOR_EVER)  # the poller ends by itself, and nobody hears of it


def caught(seeds: range) -> list[int]:
    """Return the seeds whose law does not hold."""
    bad = []
    logging.disable(logging.CRITICAL)
    try:
        for seed in seeds:
            try:
                run_virtual(partial(_one, seed))
            except BaseException:  # noqa: BLE001  (whatever a broken part lets out)
                bad.append(seed)
    finally:
        logging.disable(logging.NOTSET)
    return bad


def test_random_nestings_end_in_time() -> None:
    assert caught(range(20)) == []


@pytest.mark.rigs
def test_many_random_nestings_end_in_time() -> None:
    assert caught(choose_seeds(1_000, 10_000)) == []


def _mutants() -> Iterator[tuple[str, object, str, object]]:
    yield "nobody wakes it", stop_scope, "wake_by_force", lambda task: None
    yield "its tasks are not forgotten", coroutine_driver, "forget_task", lambda task: None
    yield "anyio goes on cancelling", stop_scope, "calm", lambda scopes: None


@pytest.mark.parametrize(("where", "name", "broken"), [m[1:] for m in _mutants()], ids=[m[0] for m in _mutants()])
def test_a_broken_part_is_caught(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, broken: Any) -> None:
    monkeypatch.setattr(where, name, broken)

    assert caught(range(12))
