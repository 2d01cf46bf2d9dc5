"""`max_running` of an MCP server: the pool of its name, in every way that steps get into a run."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import dagrun

pytest.importorskip("mcp")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Crowd:
    """Counts the calls that run at once at two servers."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def wait(self) -> str:
        """Wait a second."""
        self.now += 1
        self.most = max(self.most, self.now)
        await anyio.sleep(1)
        self.now -= 1
        return "done"


@asynccontextmanager
async def two_servers(**rules: Any) -> AsyncIterator[tuple[dagrun.Toolbox, Crowd, Crowd]]:
    """The toolbox of two servers, of which the first one has rules."""
    from mcp.server.mcpserver import MCPServer

    crowds, servers = (Crowd(), Crowd()), {}
    for name, crowd in zip(("few", "many"), crowds, strict=True):
        servers[name] = MCPServer(name)
        servers[name].add_tool(crowd.wait, structured_output=False)
    async with dagrun.mcp_tools(servers, rules={"few": rules}) as tools:
        yield tools, *crowds


def plan(steps: int = 5) -> dagrun.Plan:
    names = [f"{server}{number}" for number in range(steps) for server in ("few", "many")]
    return dagrun.Plan(steps=[dagrun.Step(id=name, tool=f"{name[:-1]}.wait") for name in names])


async def test_the_calls_of_a_server_are_limited_and_those_of_others_are_not() -> None:
    """Those that wait are not on the clock: a time limit of an attempt is not theirs."""
    async with two_servers(max_running=2, timeout=1.5) as (tools, few, many):
        start = anyio.current_time()
        result = await dagrun.run(plan(), tools=[tools])
        assert result.status == "succeeded", result
        assert (few.most, many.most) == (2, 5)
        assert anyio.current_time() - start == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(("policy", "most"), [(1, 1), (4, 2)])
async def test_the_lower_limit_holds(policy: int, most: int) -> None:
    """A policy makes it stricter, never looser."""
    async with two_servers(max_running=2) as (tools, few, _):
        limits = dagrun.Policy(pools={"few": dagrun.PoolLimits(max_running=policy)})
        assert (await dagrun.run(plan(), tools=[tools], policy=limits)).status == "succeeded"
        assert few.most == most


async def test_it_holds_for_what_a_planner_adds() -> None:
    """Without a first plan, and for elements of a fan."""
    async with two_servers(max_running=2) as (tools, few, _):
        planner = dagrun.StaticPlanner(
            dagrun.Plan(steps=[dagrun.Step(id="fan", tool="few.wait", for_each=[1, 2, 3, 4])])
        )
        result = await dagrun.run(goal="wait often", tools=[tools], planner=planner)
        assert result.status == "succeeded", result
        assert few.most == 2


async def test_a_resumed_run_has_it_and_sees_no_difference() -> None:
    """It is a part of the recorded policy; the host need not say it twice."""
    journal = dagrun.MemoryJournal()
    async with two_servers(max_running=2) as (tools, few, _):
        gated = dagrun.Plan(steps=[dagrun.Step(id="gate", tool="many.wait", pause="before"), *plan().steps])
        first = await dagrun.run(gated, tools=[tools], journal=journal, run_id="r", policy=dagrun.Policy())
        assert first.status == "waiting"

        async def yes(_: dagrun.Question) -> bool:
            return True

        options: dict[str, Any] = {"tools": [tools], "journal": journal, "approver": yes, "policy": dagrun.Policy()}
        async with dagrun.resume("r", **options) as going:
            assert (await going.result()).status == "succeeded"
        assert few.most == 2
