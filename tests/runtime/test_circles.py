"""A run that is over leaves few circles for Python's collector to find: most go with the last who holds them."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType, MethodType
from typing import Any, Final

import anyio
import networkx as nx
import pytest

import dagrun
from dagrun import Answer, Budget, MemoryJournal, Plan, Step, ToolError
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.run_callbacks import RunCallbacks
from hedge_tools import Act, Looker
from hedge_tools import play as play_hedged
from hedge_tools import step as slow_step
from judges import Judge
from persons import Person, pay
from persons import run as ask
from persons import step as paying
from replans import Thinker, fails, instead, nap, patch, run, start, uses
from shared_tools import Counted, Prices, look, price
from shared_tools import play as play_counted
from small_tools import AT_ONCE, toolset

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]

NAPS: Final = (nap("a", 1.0), nap("b", 2.0), nap("c", 1.0, "a", "b"))


async def _plain() -> None:
    await run(NAPS, None)


async def _fails() -> None:
    await run([fails("a"), nap("b", 1.0, "a"), fails("c", retry=AT_ONCE), nap("d", 2.0)], None)


async def _each() -> None:
    await run([Step(id="a", tool="echo", for_each=[1, 2, 3], args={"value": "${item}"}), uses("b", "a")], None)


async def _limited() -> None:
    await run(NAPS, None, max_running=1, max_running_by_tool={"nap": 1}, max_attempts=20, timeout=50, max_seconds=90)


async def _refused() -> None:
    """The provider takes one call at once."""
    busy = anyio.Lock()

    async def api() -> int:
        if busy.locked():
            raise ToolError("429", retryable=True, retry_after=1.0)
        async with busy:
            await anyio.sleep(1.0)
        return 1

    steps = [Step(id=f"c{n}", tool="api") for n in range(3)]
    await dagrun.run(Plan(steps=steps), tools=[make_tool(api, effect="read")], seed=1)


async def _shared() -> None:
    plan = Plan(steps=NAPS)
    async with (
        dagrun.Engine(max_running=1, budget=Budget(max_attempts=50)) as engine,
        anyio.create_task_group() as group,
    ):
        for _ in range(3):
            group.start_soon(lambda: engine.run(plan, tools=toolset()))


async def _hedged() -> None:
    await play_hedged(slow_step(), tools=[Looker(Act(50.0, "slow"), Act(0.5, "quick"))])


COUNTED: Final = Counted(acts={1: ValueError("no")})
PRICES: Final = Prices()


async def _shared_calls() -> None:
    COUNTED.calls.clear()
    await play_counted(COUNTED, look("a", retry=AT_ONCE), look("b"), look("c", "b"), look("d", about="y", timeout=0.5))


async def _batched() -> None:
    await PRICES.play(price("a", "x"), price("b", "y"))


async def _judged() -> None:
    await run(NAPS, None, critics=[Judge(seconds=1.0), Judge("fail", step="b")])


async def _asks() -> None:
    await ask(paying(), tools=(pay(),), approver=Person(Answer("approve"), seconds=1.0))


async def _unanswered() -> None:
    await ask(
        paying(), paying("again"), tools=(pay(),), questions=dagrun.QuestionRule(max_pending=1, answer_within=2.0)
    )


async def _replans() -> None:
    await run([fails("a"), nap("b", 5.0)], Thinker(instead("a", nap("a2", 1.0)), seconds=1.0))


async def _drafts() -> None:
    planner = Thinker(patch(*(dagrun.Add(step=step) for step in NAPS)), seconds=1.0)
    await dagrun.run(goal="a goal", planner=planner, tools=toolset())


async def _splices() -> None:
    async with start(NAPS, None) as running:
        await anyio.sleep(1.5)
        await running.splice(patch(dagrun.Add(step=nap("d", 1.0, "b"))))
        assert (await running.result()).status == "succeeded"


async def _watched() -> None:
    async with start(NAPS, None) as running:
        assert [event async for event in running.events()]


async def _cancelled() -> None:
    async with start(NAPS, None) as running:
        await anyio.sleep(0.5)
        running.cancel()


async def _cancelled_around() -> None:
    with anyio.move_on_after(0.5):
        async with start(NAPS, None):
            await anyio.sleep_forever()


async def _written() -> None:
    journal = MemoryJournal()
    await dagrun.run(Plan(steps=NAPS), tools=toolset(), journal=journal)
    await journal.aclose()


async def _resumed() -> None:
    journal = MemoryJournal()
    async with dagrun.start(Plan(steps=NAPS), tools=toolset(), journal=journal, run_id="run") as running:
        await anyio.sleep(0.5)
        running.suspend()
    async with dagrun.resume("run", tools=toolset(), journal=journal) as running:
        assert (await running.result()).status == "succeeded"
    await journal.aclose()


async def _releases() -> None:
    await run(NAPS, None, release_outputs=True)


RUNS: Final[dict[str, Callable[[], Awaitable[None]]]] = {
    function.__name__.strip("_"): function
    for function in (
        _plain, _fails, _each, _limited, _refused, _shared, _shared_calls, _batched, _hedged, _judged, _asks,
        _unanswered, _replans, _drafts, _splices, _watched, _cancelled, _cancelled_around, _written, _resumed,
        _releases,
    )
}  # fmt: skip


ALLOWED: Final = {
    # The elements of a for_each and the step that they belong to are plain data, and know each other.
    "each": ["dagrun.kernel.graph.node.Node"],
}


def _ours(each: object) -> str:
    """What *each* is, if it belongs to dagrun; else nothing."""
    if isinstance(each, MethodType | FunctionType):
        name = f"{each.__module__}.{each.__qualname__}"
    elif isinstance(each, FrameType):
        name = f"{each.f_globals.get('__name__')}.{each.f_code.co_name}"
    else:
        name = f"{type(each).__module__}.{type(each).__qualname__}"
    return name if name.startswith("dagrun.") and not name.startswith("dagrun.testing.") else ""


def _closes(each: object, circle: set[int]) -> bool:
    """Whether *each* is part of *circle* by itself; a frame may only be passed by the traceback of somebody else's."""
    return not isinstance(each, FrameType) or any(id(held) in circle for held in each.f_locals.values())


def _circles_among(things: list[object]) -> list[str]:
    """Those of *things* of ours that lie in a circle, not those that only hang from one."""
    known = {id(each): each for each in things}
    graph: Any = nx.DiGraph()
    for each in things:
        graph.add_edges_from((id(each), id(after)) for after in gc.get_referents(each) if id(after) in known)
    circles = (circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1)
    names = {_ours(known[thing]) for circle in circles for thing in circle if _closes(known[thing], circle)}
    made = (
        "dagrun.kernel.model.tool.",
        "dagrun.kernel.model.contracts.json_schemas.",
    )  # of a tool that is made meanwhile
    tool = {name for name in names if name.startswith(made)}
    return sorted(names - tool - {""})


@contextmanager
def _circles() -> Iterator[list[str]]:
    """What the body leaves in circles: kinds of our own, of which only the collector would find something."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += _circles_among(gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.rigs
async def test_a_run_leaves_no_circles(name: str) -> None:
    await RUNS[name]()  # what is made once, on first use
    with _circles() as left:
        await RUNS[name]()

    assert left == ALLOWED.get(name, [])


async def test_parts_that_are_not_let_go_of_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunCallbacks, "cut", lambda _: None)
    with _circles() as left:
        await _plain()

    assert {"dagrun.kernel.runtime.run.RunAssembly", "dagrun.kernel.runtime.record.record.Record"} <= set(left)


async def test_the_handle_of_a_closed_run_still_answers() -> None:
    """Whoever keeps it can ask what it asked before; what would change the run says that it is over."""
    async with start(NAPS, None) as running:
        pass

    assert (running.has_ended, running.cancel(), running.pending) == (True, False, ())
    assert set(running.states.values()) == {"succeeded"}
    assert (await running.result()).status == "succeeded"
    assert [event async for event in running.events()] == []
    with pytest.raises(dagrun.errors.SpliceRefused, match="the run has ended"):
        await running.splice(patch(dagrun.Add(step=nap("d", 1.0))))
    with pytest.raises(dagrun.errors.QuestionNotFound):
        await running.answer("none", answer=True)
