"""Short rows say what whole steps say, in every run; and of most steps no more is said."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import anyio
import pytest

import dagrun
from crash_cases import make_case
from crash_process import RUN, Process
from crash_world import World
from dagrun import Event, Patch, Plan, Policy, PoolLimits, Rewire, Step, ToolContext, tool
from dagrun.api.replaying import replayed
from dagrun.codec import decode_event
from dagrun.kernel.graph.fold import fold
from dagrun.observe.view import steps
from dagrun.observe.view.live_view import LiveView
from dagrun.observe.view.waits import Waits
from plain_steps import applied, comparable
from simulation import simulate

anyio_test = pytest.mark.anyio

SEEDS = range(60)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@cache
def record_of(seed: int) -> tuple[Event, ...]:
    """What a random run has on record in the end."""
    process = Process(make_case(seed), World(), lambda _: True, random.Random(seed))

    async def carry_out() -> None:
        with anyio.move_on_after(100_000):
            await process.carry_out(None)

    simulate(carry_out, seed)
    return tuple(decode_event(text) for text in process.instants[-1].texts)


def without_meanwhile(view: dict[str, Any]) -> dict[str, Any]:
    """What was at the very instant of a change of the plan is told with the change, and may look otherwise later."""
    kept = comparable(view)
    for revision in kept["revisions"]:
        for name in ("ran_on", "started_meanwhile", "ended_meanwhile"):
            del revision[name]
    return kept


def followed(seed: int) -> Counter[str]:
    """Follow a random run, with readers that look at random instants; return how many steps were told in which form."""
    rng, record = random.Random(f"readers {seed}"), record_of(seed)
    graph = replayed(RUN, record[:1]).graph
    watch = LiveView(graph)
    watch.seq = record[0].seq
    told: Counter[str] = Counter()
    readers: list[dict[str, Any]] = [dict(watch.document())]
    at = 1
    while at < len(record):
        until = at + rng.choice((1, 1, 2, 5, 20))
        fold(graph, record[at:until], RUN)
        watch.take(record[at:until])
        at = until
        place = rng.randrange(len(readers))
        change, view = watch.changes(readers[place]["seq"]), dict(watch.document())
        told["plain"] += sum(len(group["rows"]) for group in change["plain"])
        told["whole"] += len(change["steps"])
        assert without_meanwhile(applied(readers[place], change)) == without_meanwhile(view)
        readers[place] = view
        if len(readers) < 3:
            readers.append(view)
    return told


@pytest.mark.rigs
def test_rows_say_what_whole_steps_say() -> None:
    """Splices, questions, elements, drafts, retries, hedges, suspensions: whatever a row leaves out is as it was."""
    told = sum((followed(seed) for seed in SEEDS), Counter[str]())

    assert told["plain"] > 100, told
    assert told["whole"] > 100, told


@anyio_test
async def test_most_steps_need_no_more_than_a_row() -> None:
    """Steps behind others, steps in a pool, elements: also while they run, and while they wait for their turn."""

    @tool(effect="read", pool="api")
    async def fetch(number: int) -> list[int]:
        """Fetch something."""
        await anyio.sleep(0.1 + number / 100)
        return [number]

    @tool(effect="pure", pool="cpu")
    async def add(parts: list[Any]) -> int:
        """Add up."""
        await anyio.sleep(0.05)
        return len(parts)

    steps = [Step(id=f"f{n}", tool="fetch", args={"number": n}) for n in range(12)]
    steps += [Step(id=f"a{n}", tool="add", args={"parts": [f"${{f{n}}}", f"${{f{11 - n}}}"]}) for n in range(6)]
    steps.append(Step(id="each", tool="fetch", for_each=list(range(8)), args={"number": "${item}"}, max_parallel=3))
    waits, states = set(), set()
    policy = Policy(pools={"api": PoolLimits(max_running=8), "cpu": PoolLimits(max_running=1)}, max_running=9)
    async with dagrun.start(Plan(steps=steps), tools=[fetch, add], policy=policy) as run:
        watch = LiveView(run.graph)
        run.watch(watch)
        view: dict[str, Any] = dict(watch.document())
        while not run.has_ended:
            await anyio.sleep(0.037)
            changes = watch.changes(view["seq"], run.seconds)
            after = dict(watch.document(at=run.seconds))
            assert comparable(applied(view, changes)) == comparable(after)
            assert set(changes["steps"]) <= {"18"}, "the for_each itself has more to tell"
            waits |= {group["wait"] for group in changes["plain"]}
            states |= {group["state"] for group in changes["plain"]}
            view = after
        await run.result()

    assert states == {"ready", "running", "succeeded"}
    assert waits >= {None, "pool cpu", "max_parallel of each"}, waits


@anyio_test
async def test_a_call_that_has_more_to_say_is_told_as_a_whole() -> None:
    """Reports of progress, usage, and a second try."""
    tries: list[str] = []

    @tool(effect="read")
    async def crawl(context: ToolContext, how: str) -> None:
        """Report something."""
        tries.append(how)
        if how == "tries again" and tries.count(how) == 1:
            raise ConnectionError("reset")
        if how == "uses tokens":
            context.report_usage(tokens=7)
        if how == "is slow":
            context.progress(0.4, "page 4")
            await anyio.sleep(9)

    names = ["is slow", "uses tokens", "tries again", "is plain"]
    plan = Plan(steps=[Step(id=f"s{n}", tool="crawl", args={"how": how}) for n, how in enumerate(names)])
    async with dagrun.start(plan, tools=[crawl]) as run:
        watch = LiveView(run.graph)
        run.watch(watch)
        seq = watch.seq
        await anyio.sleep(8)
        change = watch.changes(seq)
        run.cancel()

    assert sorted(change["steps"]) == ["0", "1", "2"]
    assert change["steps"]["0"]["progress"] == [0.4, "page 4"]
    assert change["steps"]["1"]["attempts"][0]["tokens"] == 7
    assert [attempt["number"] for attempt in change["steps"]["2"]["attempts"]] == [1, 2]
    assert change["plain"] == [{"state": "succeeded", "wait": None, "rows": [3, 0, 0, 0]}]


@anyio_test
async def test_a_step_that_was_rewired_is_told_as_a_whole() -> None:
    """A row does not say what a step needs; later, when the reader knows that, a row is enough again."""

    @tool(effect="read")
    async def nap(seconds: float) -> None:
        """Sleep."""
        await anyio.sleep(seconds)

    steps = [Step(id=f"s{n}", tool="nap", args={"seconds": n + 1}) for n in range(3)]
    last = Step(id="last", tool="nap", args={"seconds": 5}, depends_on=["s0"])
    async with dagrun.start(Plan(steps=[*steps, last]), tools=[nap]) as run:
        watch = LiveView(run.graph)
        run.watch(watch)
        view: dict[str, Any] = dict(watch.document())
        await anyio.sleep(0.5)
        await run.splice(Patch(edits=[Rewire(id="last", depends_on=["s1"])]))
        await anyio.sleep(2)
        changes = watch.changes(view["seq"], run.seconds)
        known: dict[str, Any] = dict(watch.document(at=run.seconds))
        assert comparable(applied(view, changes)) == comparable(known)
        await run.result()

    assert changes["steps"]["3"]["needs"] == [1]
    assert [group["rows"][0] for group in watch.changes(known["seq"])["plain"]] == [3]


# Planted faults -------------------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]


def _planners_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Waits, "plain_due", lambda waits, node: waits._looked_up(node))


def _any_end_is_plain(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(steps, "_is_plain", lambda node, call: call.outcome is not None)


def _a_change_is_marked_once(patch: pytest.MonkeyPatch) -> None:
    mark = LiveView._mark

    def once(watch: LiveView, step: str) -> None:
        if watch._changed.get(step, 0) < 3:
            mark(watch, step)

    patch.setattr(LiveView, "_mark", once)


@pytest.mark.parametrize(
    "plant",
    [
        _planners_are_forgotten,
        _any_end_is_plain,
        _a_change_is_marked_once,
    ],
)
def test_a_planted_fault_is_noticed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the conditions for a short row is needed in some random run."""
    plant(monkeypatch)

    def is_noticed(seed: int) -> bool:
        try:
            followed(seed)
        except (AssertionError, ArithmeticError, TypeError):
            return True
        return False

    assert any(is_noticed(seed) for seed in SEEDS)
