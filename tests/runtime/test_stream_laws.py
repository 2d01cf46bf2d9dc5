"""Laws of reducers that take a stream, each for random plans.

A map, a map over it and a reduce take the time of the longest chain of single elements and of the work on each; under
any limit, failure and splice the reducer gives what it gives with the whole list, and its last call has had each
element once, in order.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Drop, MemoryJournal, Patch, Plan, Policy, Replace, Step, ToolError
from dagrun.errors import SpliceRefused
from dagrun.features.live_streams import LiveStream
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import run_virtual
from seeds import choose_seeds

pytestmark = pytest.mark.rigs

ONCE: Final = dagrun.RetryRule(max_attempts=1)
GRID: Final = 0.25


class World:
    """A map, a reducer that takes a stream, and one that takes the list."""

    def __init__(self, work: float = 0.0) -> None:
        self.work = work
        self.takes: list[list[Any]] = []
        self.running = self.most = 0

    async def stage(self, row: dict[str, Any], context: dagrun.ToolContext) -> dict[str, Any]:
        """Take the next time of the row; a negative one fails, for now or for good."""
        first, *rest = row["seconds"]
        await self._at_work(abs(first))
        if first < 0:
            raise ToolError("no") if first % 0.5 else ConnectionError("not now")
        return {"n": row["n"], "seconds": rest, "by": context.step}

    async def stream(self, rows: AsyncIterator[dict[str, Any] | None]) -> list[Any]:
        """Work on each row as it comes, and give their numbers."""
        taken: list[Any] = []
        self.takes.append(taken)
        async for row in rows:
            taken.append(row)
            await self._at_work(self.work)
        return taken

    async def whole(self, rows: list[dict[str, Any] | None]) -> list[Any]:
        """Work on each row of the list, and give their numbers."""
        for _ in rows:
            await self._at_work(self.work)
        return rows

    async def _at_work(self, seconds: float) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await anyio.sleep(seconds)
        finally:
            self.running -= 1

    @property
    def tools(self) -> list[Any]:
        return [make_tool(tool, effect="read") for tool in (self.stage, self.stream, self.whole)]


def rows_of(rng: random.Random, stages: int, bad: float = 0.0) -> list[dict[str, Any]]:
    times = [i * GRID for i in range(1, 40)]
    count = rng.randint(0, 8)
    seconds = [[rng.choice(times) * (-1 if rng.random() < bad else 1) for _ in range(stages)] for _ in range(count)]
    return [{"n": n, "seconds": each} for n, each in enumerate(seconds)]


def plan_of(rows: list[dict[str, Any]], stages: int, reducer: str, **fields: Any) -> Plan:
    steps = []
    for stage in range(stages):
        source: Any = rows if not stage else f"${{s{stage - 1}}}"
        steps.append(Step(id=f"s{stage}", tool="stage", args={"row": "${item}"}, for_each=source, **fields))
    return Plan(steps=[*steps, Step(id="all", tool=reducer, args={"rows": f"${{s{stages - 1}}}"})])


def longest(rows: list[dict[str, Any]], work: float) -> float:
    """When the last element has been worked on: each when it is there, and those before it are done."""
    at = 0.0
    for row in rows:
        at = max(at, sum(row["seconds"])) + work
    return at


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_twenty_plans_take_the_critical_path_by_element(backend: str) -> None:
    """And never longer than with the list, which is later by all the work but that on the last element."""
    won = 0
    for seed in choose_seeds(20, 500):
        rng = random.Random(f"stream {seed}")
        stages, world = rng.randint(1, 3), World(work=rng.randint(0, 8) * GRID)
        rows = rows_of(rng, stages)
        times = {}
        for reducer in ("stream", "whole"):
            result = run_virtual(
                partial(dagrun.run, plan_of(rows, stages, reducer), tools=world.tools), backend=backend
            )
            assert [row["n"] for row in result.output] == [row["n"] for row in rows], seed
            times[reducer] = result.makespan
            assert result.critical_path == pytest.approx(result.makespan), seed

        assert times["stream"] == pytest.approx(longest(rows, world.work)), seed
        assert times["stream"] <= times["whole"] + 1e-9, seed
        won += times["stream"] < times["whole"] - GRID / 2
    assert won > 5


def limits_hold(seed: int) -> str:
    """Check one plan under limits and failures; return how the reducer has ended."""
    rng = random.Random(f"limits {seed}")
    stages = rng.randint(1, 3)
    rows = rows_of(rng, stages, bad=rng.choice((0.0, 0.15, 0.4)))
    fields: dict[str, Any] = {"on_failure": "skip"} if rng.random() < 0.5 else {}
    if rng.random() < 0.3:
        fields["max_parallel"] = rng.randint(1, 3)
    limit, work = rng.choice((None, 1, 1, 2)), rng.choice((0.0, 0.5))
    retry = dagrun.RetryRule(max_attempts=rng.randint(1, 3))
    policy = Policy(retry=retry, max_running=limit, max_seconds=10_000)  # what would hang for ever ends by that
    seen = {}
    for reducer in ("stream", "whole"):
        world = World(work)
        plan = plan_of(rows, stages, reducer, **fields)
        result = run_virtual(partial(dagrun.run, plan, tools=world.tools, policy=policy))
        seen[reducer] = (result.output, {id_: str(step.state) for id_, step in result.steps.items()}, result.status)
        assert limit is None or world.most <= limit, seed
    assert seen["stream"] == seen["whole"], seed
    return seen["stream"][1]["all"]


@pytest.mark.rigs
def test_under_limits_and_failures_it_gives_what_the_list_gives() -> None:
    """The same output, the same ends of all steps, never more at work than the limit says, and no hang."""
    assert {limits_hold(seed) for seed in choose_seeds(30, 2_000)} == {"succeeded", "skipped"}


# Splices ------------------------------------------------------------------------------------------------------------


async def play(seed: int, world: World) -> tuple[Any, int]:
    """Replace and drop elements at random times, and sometimes leave and resume the run; return what came of it."""
    rng = random.Random(f"splices {seed}")
    rows, journal, done = rows_of(rng, 2, bad=0.3), MemoryJournal(), 0
    plan = plan_of(rows, 2, "stream", on_failure="skip")
    options: dict[str, Any] = {"tools": world.tools, "journal": journal}
    policy = Policy(retry=ONCE, max_running=rng.choice((None, None, 1, 2)), max_seconds=10_000)
    leaves = rng.random() < 0.3
    async with dagrun.start(plan, run_id="r", policy=policy, **options) as run:
        for number in range(rng.randint(1, 6)):
            await anyio.sleep(rng.choice((0.1, 1.1, 3.3)))
            known = [id_ for id_ in run.states if id_.startswith(("s0[", "s1[", "x"))]
            if not known:
                continue
            left_out = [id_ for id_ in known if run.states[id_] == "failed" and not id_.startswith("s0")]
            old = rng.choice(left_out if left_out and rng.random() < 0.6 else known)
            row = {"n": 100 + number, "seconds": [rng.choice((0.5, 2.0, -1.0))] * 2}
            new = Step(id=f"x{number}", tool="stage", args={"row": row}, on_failure="skip")
            edit = Drop(id=old) if rng.random() < 0.25 else Replace(id=old, step=new)
            try:
                await run.splice(Patch(edits=(edit,)))
                done += 1
            except SpliceRefused:
                pass
        if not leaves:
            return await run.result(), done
        if not run.suspend("a break"):
            return await run.result(), done
        await run.result()
    async with dagrun.resume("r", **options) as run:
        return await run.result(), done


def splices_hold(seed: int, backend: str = "asyncio") -> tuple[int, bool]:
    """Check one run that is spliced; return the number of splices, and whether the reducer was called anew."""
    world = World(work=0.5)
    result, done = run_virtual(partial(play, seed, world), backend=backend)
    last, reduced = result.steps["s1"], result.steps["all"]
    assert (last.state, reduced.state) == ("succeeded", "succeeded"), (seed, result.reason)
    assert reduced.output == last.output == world.takes[-1], seed
    assert len(last.output) == sum(1 for id_ in result.steps if id_.startswith("s0[")), seed
    is_anew = ["changed" in attempt.decision.reason for attempt in reduced.attempts[:-1]]
    ends = [str(attempt.outcome.state) for attempt in reduced.attempts[:-1]]
    assert ends == ["cancelled" if anew else "failed" for anew in is_anew], seed
    return done, any(is_anew)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_splice_loses_an_element_or_gives_one_twice(backend: str) -> None:
    """The last call has had, in order and once each, what the list has in the end; calls before it were not used."""
    found = [splices_hold(seed, backend) for seed in choose_seeds(50, 3_000)]
    assert sum(done for done, _ in found) > 40
    assert sum(is_anew for _, is_anew in found) > 1


# Teeth --------------------------------------------------------------------------------------------------------------


class Deaf(LiveStream):
    """Takes no note of elements that a splice has changed."""

    def _changed(self, index: int) -> None:
        super()._changed(-1)


class Hasty(LiveStream):
    """Hands over what comes first."""

    async def _take(self, live: Any, child: Any) -> Any:
        children: Any = self._fan.children
        ready = [c for c in children if self._is_final(c) and c.index >= child.index]
        at, best = child.index, max(ready, key=lambda c: c.index).index
        children[at], children[best] = children[best], children[at]
        try:
            return await super()._take(live, children[at])
        finally:
            children[at], children[best] = children[best], children[at]


class Greedy(LiveStream):
    """Keeps its place while it waits."""

    def _give_place_back(self, live: Any) -> bool:
        self._accounts.waiting += 1
        return False


class Patient(LiveStream):
    """Waits for ever for an element that has failed."""

    def _is_final(self, child: Any) -> bool:
        return bool(child.state == "succeeded")


@pytest.mark.parametrize("broken", [Deaf, Hasty, Greedy, Patient])
def test_what_is_broken_is_noticed(broken: type[LiveStream], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each law would be worth nothing if a stream that breaks it passed."""
    monkeypatch.setattr("dagrun.features.live_streams.LiveStream", broken)
    with pytest.raises(AssertionError):  # noqa: PT012  (whichever law notices it first)
        for seed in range(80):
            limits_hold(seed)
            splices_hold(seed)
