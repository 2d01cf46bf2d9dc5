"""What a step that calls a tool of an MCP server costs above a bare call of the same tool by the client library.

    python benchmarks/mcp_calls.py [--quick] [--gate] [--out FOLDER]

**What is measured.** CPU time of this process, that of the server not counted, of 200 calls at the same time over one
connection by stdio, in turn: *bare* is `Client.call_tool` of the MCP library in a task group, *step* is a plan of 200
steps that dagrun runs, *own* is the same plan with a tool of ours that waits for one turn of the loop in place of a
server. Each figure is a median of the rounds, in milliseconds a call.

**How to read it.** *step* less *bare* is what dagrun adds; of that, *own* is what any step costs, and the rest is the
client of dagrun: reconnecting, questions to people, progress, checked answers. With ``--gate`` the exit code is 1 if a
must is missed. A full run writes ``results/mcp_calls.json``.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from statistics import median
from typing import Any, Final

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.server.mcpserver import MCPServer

import command
import dagrun
import environment
from dagrun import CheckedPlan, Plan, Policy, Step
from measure import cpu_seconds

CALLS: Final = 200
MUST_ADD: Final = 0.2  # milliseconds of CPU a call
SERVE: Final = "serve"


def echo(number: int) -> dict[str, int]:
    """Return what it is given."""
    return {"number": number}


def serve() -> None:
    """Be the server, over stdio."""
    server = MCPServer("bench")
    server.add_tool(echo)
    server.run("stdio")


@dagrun.tool(effect="read")
async def own(number: int) -> dict[str, int]:
    """Return what it is given, one turn of the loop later."""
    await anyio.lowlevel.checkpoint()
    return {"number": number}


@asynccontextmanager
async def ways() -> AsyncIterator[Mapping[str, Callable[[], Awaitable[None]]]]:
    """The ways to make the calls, each with a connection that is open."""
    arguments = [__file__, SERVE]
    config = {"mcpServers": {"bench": {"command": sys.executable, "args": arguments}}}
    rules = {"bench": {"effects": {"echo": "read"}, "max_running": CALLS}}
    async with (
        Client(StdioServerParameters(command=sys.executable, args=arguments)) as client,
        dagrun.mcp_tools(config, rules=rules) as tools,
    ):
        toolbox = dagrun.Toolbox([tools, own])

        def plan_of(tool: str) -> CheckedPlan:
            steps = [Step(id=f"s{number}", tool=tool, args={"number": number}) for number in range(CALLS)]
            return dagrun.check(Plan(steps=steps), toolbox, policy=Policy(max_running=CALLS))

        async def call(number: int) -> None:
            result = await client.call_tool("echo", {"number": number})
            assert result.structured_content == {"number": number}

        async def bare() -> None:
            async with anyio.create_task_group() as group:
                for number in range(CALLS):
                    group.start_soon(call, number)

        async def run(plan: CheckedPlan) -> None:
            assert (await dagrun.run(plan)).status == "succeeded"

        of_server, of_own = plan_of("bench.echo"), plan_of("own")
        yield {"bare": bare, "step": lambda: run(of_server), "own": lambda: run(of_own)}


async def measure(rounds: int) -> dict[str, float]:
    """Return milliseconds of CPU a call, by way, and what a step adds to a bare call."""
    async with ways() as by_name:
        for way in by_name.values():
            await way()  # the first call of a way also loads and caches
        seen = [{name: await cpu_seconds(way) / CALLS * 1e3 for name, way in by_name.items()} for _ in range(rounds)]
    figures = {name: median(one[name] for one in seen) for name in by_name}
    return {**figures, "added": median(one["step"] - one["bare"] for one in seen)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results; return the exit code."""
    options = command.parser_of(__doc__, "fewer rounds").parse_args(arguments)
    figures = anyio.run(measure, 5 if options.quick else 21)
    print("ms of CPU a call: " + ", ".join(f"{name} {value:.3f}" for name, value in figures.items()))
    if is_missed := figures["added"] > MUST_ADD:
        print(f"a step adds {figures['added']:.3f} ms to a bare call, at most {MUST_ADD} is wanted")
    if (folder := command.folder_of(options)) is not None:
        results: dict[str, Any] = {"environment": environment.describe(), "calls": CALLS, "milliseconds": figures}
        command.write(folder, "mcp_calls", results)
    return int(options.gate and is_missed)


if __name__ == "__main__":
    if sys.argv[1:] == [SERVE]:
        serve()
    else:
        sys.exit(main())
