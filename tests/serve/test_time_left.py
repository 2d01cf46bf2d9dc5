"""The guess of how long a run will still take: exact on a virtual clock, and none where it cannot be made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, Policy, Step, tool
from dagrun.serve.time_left import time_left
from page_client import RUN, Client, page_of

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


@tool(effect="pure")
async def work(seconds: float = 2.0) -> float:
    """Work for some time."""
    await anyio.sleep(seconds)
    return seconds


@tool(effect="effectful", needs_approval=True)
async def pay() -> None:
    """Pay."""


def chain(count: int, **fields: Any) -> list[Step]:
    """Return steps that follow each other."""
    return [Step(id=f"s{n}", tool="work", depends_on=[f"s{n - 1}"] if n else [], **fields) for n in range(count)]


async def guesses(
    plan: Plan, *times: float, medians: Mapping[str, float] | None = None, **options: Any
) -> list[float | None]:
    """Return what is guessed at some times of a run; *medians* are known of other runs."""
    told, medians = [], medians or {}
    async with dagrun.start(plan, tools=[work, pay], **options) as run:
        for time in times:
            await anyio.sleep(time - run.seconds)
            left = time_left(run.graph, run.seconds, medians.get)
            told.append(None if left is None else round(left, 3))
        run.cancel()
    return told


async def test_it_is_the_longest_path_by_the_calls_of_this_run() -> None:
    """At first nothing is known of the tool; then each step counts as the mean of those that have ended."""
    assert await guesses(Plan(steps=chain(4)), 1.0, 2.5, 5.0, 8.5) == [None, 5.5, 3.0, None]


async def test_before_its_first_call_a_tool_takes_as_long_as_in_other_runs() -> None:
    """The calls of this run count more, and so does an estimate of the plan."""
    assert await guesses(Plan(steps=chain(4)), 1.0, 2.5, medians={"work": 5.0}) == [19.0, 5.5]
    assert await guesses(Plan(steps=chain(3, estimate=2.0)), 0.5, medians={"work": 5.0}) == [5.5]


async def test_an_estimate_of_the_plan_counts_from_the_start() -> None:
    assert await guesses(Plan(steps=chain(3, estimate=2.0)), 0.5, 3.0) == [5.5, 3.0]


async def test_slots_make_it_longer() -> None:
    """Six steps of two seconds in two slots are six seconds, though no path is longer than two."""
    steps = [Step(id=f"s{n}", tool="work", estimate=2.0) for n in range(6)]
    assert await guesses(Plan(steps=steps), 0.5, policy=Policy(max_running=2)) == [5.5]


async def test_elements_count_and_a_list_that_is_not_there_yet_cannot() -> None:
    first = Step(id="first", tool="work", args={"seconds": 1.0}, estimate=1.0)
    each = Step(id="each", tool="work", for_each=[1, 2, 3], max_parallel=1, depends_on=["first"], estimate=2.0)
    last = Step(id="last", tool="work", depends_on=["each"], estimate=1.0)
    plan = Plan(steps=[first, each, last])
    assert await guesses(plan, 0.5, 1.5) == [None, 3.0]  # as if the three ran beside each other


async def test_nothing_is_guessed_while_a_person_is_asked() -> None:
    async def nobody(_: object) -> None:
        await anyio.sleep_forever()

    steps = [*chain(2, estimate=2.0), Step(id="pay", tool="pay", depends_on=["s0"], estimate=1.0)]
    assert await guesses(Plan(steps=steps), 1.0, 2.5, approver=nobody) == [3.0, None]


async def test_it_is_in_what_readers_get() -> None:
    """With the view, and with each part of the stream; it falls as time goes on."""
    async with dagrun.start(Plan(steps=chain(4)), tools=[work], run_id=RUN) as run:
        client = Client(page_of(None, run))
        await anyio.sleep(2.5)
        view = (await client.get(f"/api/runs/{RUN}")).json()
        assert view["left"] == pytest.approx(5.5, abs=0.01)
        await anyio.sleep(0.5)
        changes = (await client.get(f"/api/runs/{RUN}/changes?after={view['cursor']}")).json()
        assert changes["left"] == pytest.approx(5.0, abs=0.01)
        await run.result()
        assert (await client.get(f"/api/runs/{RUN}")).json()["left"] is None
