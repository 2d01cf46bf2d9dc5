"""The pool that a tool names holds for every call of it: no step, from a file or from a planner, can leave it."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Add, Patch, Plan, Policy, PoolLimits, Replace, Step
from dagrun.kernel.model.tool import make_tool

pytestmark = pytest.mark.anyio

POLICY = Policy(pools={"bank": PoolLimits(max_running=1), "elsewhere": PoolLimits(max_running=5)})


class Bank:
    """Tools that count how many calls of the pool ``bank`` run at once."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0

        async def query(n: int = 0) -> int:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
            await anyio.sleep(1)
            self.now -= 1
            return n

        async def fails(n: int = 0) -> int:
            raise dagrun.ToolError("no")

        self.tools = [
            make_tool(query, effect="read", pool="bank"),
            make_tool(fails, effect="read"),
            make_tool(fails, name="falls_back", effect="read", fallback="query"),
        ]

    async def run(self, steps: list[Step], **options: Any) -> None:
        await dagrun.run(Plan(steps=steps), tools=self.tools, policy=POLICY, **options)
        assert (self.most, self.calls) == (1, 6)


def other_pool(id_: str, tool: str = "query") -> Step:
    return Step(id=id_, tool=tool, pool="elsewhere")


class Adds:
    """A planner that adds six calls, all of another pool."""

    async def revise(self, brief: dagrun.Brief) -> Patch:
        replaced = Replace(id="f", step=other_pool("p0"))
        return Patch(edits=[replaced, *(Add(step=other_pool(f"p{i}")) for i in range(1, 6))])


async def test_a_step_of_a_plan_cannot_leave_the_pool_of_its_tool() -> None:
    await Bank().run([other_pool(f"s{i}") for i in range(6)])


async def test_a_step_of_a_planner_cannot_leave_it() -> None:
    await Bank().run([Step(id="f", tool="fails")], planner=Adds())


async def test_the_elements_of_a_for_each_cannot_leave_it() -> None:
    each = other_pool("each").model_copy(update={"for_each": list(range(6)), "args": {"n": "${item}"}})
    await Bank().run([each])


async def test_a_fallback_is_called_in_its_own_pool() -> None:
    await Bank().run([other_pool(f"s{i}", "falls_back") for i in range(6)])
