"""Laws of pipelines through fans, each for random plans.

They take the time of the longest chain of single elements, do what the same steps do when they are written one by one,
and no splice loses an element or calls one twice.
"""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Condition, Drop, Patch, Plan, Policy, Replace, Step, Toolbox, ToolError
from dagrun.errors import SpliceRefused
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.waves import in_waves
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import run_virtual
from seeds import choose_seeds

pytestmark = pytest.mark.rigs

ONCE: Final = dagrun.RetryRule(max_attempts=1)
GRID: Final = 0.25


class World:
    """Tools that count the calls of each step and element."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.tools = [make_tool(self.stage, effect="read"), make_tool(self.total, effect="pure")]

    async def stage(
        self, who: str, row: dict[str, Any], context: dagrun.ToolContext, fails: bool = False
    ) -> dict[str, Any]:
        """Take the next time of the row, and give the row with what has been done to it."""
        self.calls[context.step] += 1
        first, *rest = row["seconds"]
        await anyio.sleep(first)
        if fails:
            raise ToolError("no")
        return {"n": row["n"], "seconds": rest, "by": [*row["by"], who]}

    async def total(self, rows: list[Any]) -> list[Any]:
        """Take a second, and give the rows."""
        await anyio.sleep(1.0)
        return rows


def rows_of(rng: random.Random, stages: int) -> list[dict[str, Any]]:
    times = [i * GRID for i in range(1, 40)]
    return [{"n": n, "seconds": [rng.choice(times) for _ in range(stages)], "by": []} for n in range(rng.randint(1, 8))]


def fans(rows: list[dict[str, Any]], stages: int, **last: Any) -> list[Step]:
    """The stages as one for_each after the other, and a step that needs the last list as a whole."""
    steps = []
    for stage in range(stages):
        source: Any = rows if not stage else f"${{s{stage - 1}}}"
        args = {"who": f"s{stage}", "row": "${item}"}
        steps.append(Step(id=f"s{stage}", tool="stage", args=args, for_each=source))
    return [*steps, Step(id="all", tool="total", args={"rows": f"${{s{stages - 1}}}"})]


# By element -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_twenty_plans_take_the_longest_chain_of_single_elements(backend: str) -> None:
    """The makespan, and the critical path that is told afterwards; a wave would take the sum of the longest."""
    for seed in choose_seeds(20, 500):
        rng = random.Random(f"makespan {seed}")
        stages = rng.randint(2, 4)
        rows, world = rows_of(rng, stages), World()
        result = run_virtual(
            partial(dagrun.run, Plan(steps=fans(rows, stages)), tools=world.tools),
            backend=backend,
        )
        longest = max(sum(row["seconds"]) for row in rows) + 1.0

        assert result.makespan == pytest.approx(longest), seed
        assert result.critical_path == pytest.approx(longest), seed
        assert [row["by"] for row in result.output] == [[f"s{n}" for n in range(stages)]] * len(rows), seed
        assert set(world.calls.values()) == {1}, seed


def test_in_waves_they_take_the_sum_of_the_longest() -> None:
    """Which is what the other law is compared with: without it, a test that cannot fail would look the same."""
    for seed in range(5):
        rng = random.Random(f"waves {seed}")
        rows, world = rows_of(rng, 3), World()
        checked = in_waves(check_plan(Plan(steps=fans(rows, 3)), Toolbox(world.tools), Policy()))
        result = run_virtual(partial(dagrun.run, checked))

        assert result.makespan == pytest.approx(sum(max(r["seconds"][n] for r in rows) for n in range(3)) + 1.0), seed


def one_by_one(rows: list[dict[str, Any]], bad: set[tuple[int, int]], wanted: set[int]) -> Plan:
    """The same as three for_each, written as single steps: the middle one only for the rows that are *wanted*."""
    steps = []
    for n, row in enumerate(rows):
        for stage in range(3):
            source: Any = row if not stage else f"${{s{stage - 1}-{n}}}"
            when = Condition(ref=f"s0-{n}.n", op="in", value=sorted(wanted)) if stage == 1 else None
            args = {"who": f"s{stage}", "row": source, "fails": (stage, n) in bad}
            steps.append(Step(id=f"s{stage}-{n}", tool="stage", args=args, when=when))
    return Plan(steps=steps)


def as_fans(rows: list[dict[str, Any]], bad: set[tuple[int, int]], wanted: set[int]) -> Plan:
    """Three for_each; which of their elements fail stands in the inputs, by stage and row."""
    steps = fans(rows, 3)[:3]
    marked = [{**row, "by": []} for row in rows]
    steps[0] = steps[0].model_copy(update={"for_each": marked})
    steps[1] = steps[1].model_copy(update={"when": Condition(ref="item.n", op="in", value=sorted(wanted))})
    return Plan(steps=[step.model_copy(update={"tool": f"stage{n}"}) for n, step in enumerate(steps)])


def _failing(world: World, stage: int, bad: set[tuple[int, int]]) -> Any:
    async def act(who: str, row: dict[str, Any], context: dagrun.ToolContext) -> dict[str, Any]:
        return await world.stage(who, row, context, (stage, row["n"]) in bad)

    return make_tool(act, name=f"stage{stage}", effect="read")


def test_single_elements_do_what_single_steps_do() -> None:
    """Whatever fails or is left out: what ran, when, and how it ended, is the same as in the plan without for_each.

    Only what follows an element that was left out differs: it gets null, so the law leaves that to the examples.
    """
    for seed in choose_seeds(25, 2_000):
        rng = random.Random(f"alike {seed}")
        rows = rows_of(rng, 3)
        bad = {(rng.randrange(3), row["n"]) for row in rows if rng.random() < 0.25}
        wanted = {row["n"] for row in rows} if rng.random() < 0.5 else {row["n"] for row in rows if rng.random() < 0.7}
        one, two = World(), World()
        tools = [_failing(two, n, bad) for n in range(3)]
        policy = Policy(retry=ONCE)
        alone = run_virtual(partial(dagrun.run, one_by_one(rows, bad, wanted), tools=one.tools, policy=policy))
        fanned = run_virtual(partial(dagrun.run, as_fans(rows, bad, wanted), tools=tools, policy=policy))
        for row in rows:
            for stage in range(3 if row["n"] in wanted else 2):
                single, element = alone.steps[f"s{stage}-{row['n']}"], fanned.steps[f"s{stage}[{row['n']}]"]
                assert single.state == element.state, (seed, element.id, element.reason)
                begun = [[round(a.started, 6) for a in step.attempts] for step in (single, element)]
                assert begun[0] == begun[1], (seed, element.id)


# Splices --------------------------------------------------------------------------------------------------------


async def play(seed: int, world: World) -> tuple[Any, list[Any]]:
    """Run three for_each, and replace, drop and edit elements of them at random times; return what was done."""
    rng = random.Random(f"splices {seed}")
    rows, done = rows_of(rng, 3), list[Any]()
    steps = fans(rows, 3)
    steps[1:1] = [
        Step(id="late", tool="stage", args={"who": "late", "row": {"n": -1, "seconds": [rng.random() * 9], "by": []}})
    ]
    if rng.random() < 0.3:
        steps[2] = steps[2].model_copy(update={"depends_on": ("late",)})
    policy = Policy(retry=ONCE, max_running=rng.choice((None, None, 2)))
    async with dagrun.start(Plan(steps=steps), tools=world.tools, policy=policy) as run:
        for number in range(rng.randint(1, 6)):
            await anyio.sleep(rng.choice((0.1, 1.1, 3.3)))
            fan, n = rng.randrange(3), rng.randrange(len(rows))
            old = rng.choice([id_ for id_ in run.states if id_.startswith((f"s{fan}", "x"))])
            edit = _edit(rng, old, f"x{number}", fan, n, len(rows))
            try:
                await run.splice(Patch(edits=(edit,)))
                done.append((old, edit))
            except SpliceRefused:
                pass
        return await run.result(), [rows, done]


def _edit(rng: random.Random, old: str, new: str, fan: int, n: int, count: int) -> Any:
    if rng.random() < 0.25:
        return Drop(id=old)
    args = {"who": new, "row": "${item}" if "[" in old or rng.random() < 0.5 else f"${{s0[{n}]}}"}
    source = f"${{s{fan - 1}}}" if fan else [{"n": i, "seconds": [1.0] * 3, "by": []} for i in range(count)]
    each: dict[str, Any] = {} if "[" in old else {"for_each": source}
    return Replace(id=old, step=Step(id=new, tool="stage", args=args, **each))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_splice_loses_an_element_or_calls_one_twice(backend: str) -> None:
    """Every step and element is called at most once; a list has a value for each element that has succeeded, and it is
    the one that the element before it had when it started."""
    applied = whole = 0
    for seed in choose_seeds(50, 3_000):
        world = World()
        result, (rows, done) = run_virtual(partial(play, seed, world), backend=backend)
        applied += len(done)

        assert all(step.state != "waiting" for step in result.steps.values()), seed
        for id_, step in result.steps.items():
            assert len(step.attempts) <= 1, (seed, id_)
        assert max(world.calls.values(), default=0) <= 1, (seed, world.calls.most_common(2), done)
        for id_, step in result.steps.items():
            children = [result.steps[f"{id_}[{n}]"] for n in range(len(rows)) if f"{id_}[{n}]" in result.steps]
            if step.state == "succeeded" and children:
                assert len(result.steps[id_].output) == len(children) == len(rows), (seed, id_)
                _check_values(result, id_, seed)
        if not any(isinstance(edit, Drop) for _, edit in done):  # nothing was left out, so nothing may be missing
            assert all(step.state == "succeeded" for step in result.steps.values() if not step.is_gone), (seed, done)
            whole += 1
    assert applied > 40
    assert whole > 8


def _check_values(result: Any, id_: str, seed: int) -> None:
    for n, value in enumerate(result.steps[id_].output):
        child = result.steps[f"{id_}[{n}]"]
        if child.state == "succeeded" and not child.is_gone:
            assert value == child.output, (seed, child.id)
        if value is not None:
            assert value["n"] == n or "x" in "".join(value["by"]), (seed, child.id)
            assert len(value["by"]) == len(set(value["by"])), (seed, child.id)
