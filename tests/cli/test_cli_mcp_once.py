"""Commands with MCP servers start each of them once, and leave none behind."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from command_line import Shell, shell
from dagrun.cli.setup import mcp_servers
from dagrun.cli.setup.mcp_servers import KeptServers
from dagrun.cli.setup.tool_modules import ConnectedToolbox, loop_of, opened_deps
from dagrun.errors import ContractError

__all__ = ["shell"]
pytest.importorskip("mcp")
pytestmark = [pytest.mark.costly, pytest.mark.real_time, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SERVER = Path(__file__).parents[1] / "sources" / "mcp_server.py"
PLAN = [
    {"id": "sum", "tool": "notes.add", "args": {"a": 1, "b": 2}},
    {"id": "again", "tool": "notes.add", "args": {"a": "${sum.total}", "b": 3}},
]
SECONDS = 10.0


class Server:
    """A server that writes down its process whenever it is started."""

    def __init__(self, folder: Path) -> None:
        self.started = folder / "started"
        script = f'echo $$ >> "{self.started}"; exec "{sys.executable}" "{SERVER}"'
        self.config = {"mcpServers": {"notes": {"command": "sh", "args": ["-c", script]}}}
        (folder / "mcp.json").write_text(json.dumps(self.config))

    @property
    def processes(self) -> list[int]:
        return [int(line) for line in self.started.read_text().split()] if self.started.exists() else []

    def running(self) -> list[int]:
        """Return which of them run, after a moment for those that end."""
        end = time.monotonic() + SECONDS
        while (alive := [one for one in self.processes if _is_alive(one)]) and time.monotonic() < end:
            time.sleep(0.02)
        return alive


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def server(shell: Shell) -> Server:
    return Server(shell.folder)


@pytest.fixture(params=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The kind of loop that commands use."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    options = {"use_uvloop": True} if request.param == "uvloop" else {}
    monkeypatch.setattr(mcp_servers, "loop_options", lambda: options)
    return str(request.param)


def test_a_run_goes_on_with_the_servers_whose_tools_were_listed(shell: Shell, server: Server, loop: str) -> None:
    ended = shell("run", shell.plan(*PLAN), "--mcp", "mcp.json", "--json")

    assert ended.code == 0, ended.err
    assert ended.json["output"] == {"total": 6}
    assert len(server.processes) == 1
    assert server.running() == []


@pytest.mark.parametrize(
    ("words", "code"), [(("check", "plan.json"), 0), (("run", "plan.json", "--critic", "nowhere:critic"), 2)]
)
def test_a_command_that_calls_nothing_closes_them(
    shell: Shell, server: Server, words: tuple[str, ...], code: int
) -> None:
    """Also one that ends by an error."""
    shell.plan(*PLAN)

    assert shell(*words, "--mcp", "mcp.json").code == code
    assert len(server.processes) == 1
    assert server.running() == []


def test_a_server_that_cannot_be_reached_leaves_nothing_open(shell: Shell, server: Server) -> None:
    """The other one has started by then."""
    config = server.config["mcpServers"] | {"gone": {"command": "no-such-program"}}
    shell.file("mcp.json", json.dumps({"mcpServers": config}))
    ended = shell("tools", "--mcp", "mcp.json")

    assert ended.code == 2
    assert "MCP server gone cannot be reached" in ended.err
    assert server.running() == []


def opened(server: Server) -> tuple[KeptServers, ConnectedToolbox]:
    kept = KeptServers(dagrun.mcp_tools(server.config))
    return kept, ConnectedToolbox([kept.listed()], [kept])


async def use(toolbox: ConnectedToolbox) -> Any:
    """Carry the plan out, as a command does."""
    async with opened_deps(None, toolbox):
        return (await dagrun.run(dagrun.Plan.model_validate({"steps": PLAN}), tools=[toolbox])).output


@pytest.mark.rigs
def test_each_run_of_a_command_has_its_servers(server: Server, loop: str) -> None:
    """The first one takes those of the listing over; they end with it, and the next one starts its own."""
    kept, toolbox = opened(server)
    for count in (1, 2):
        assert anyio.run(use, toolbox, backend_options=loop_of(toolbox)) == {"total": 6}
        assert len(server.processes) == count
        assert server.running() == []
        assert kept.loop is None


@pytest.mark.rigs
def test_a_run_on_another_loop_connects_anew(server: Server, loop: str) -> None:
    """A connection belongs to the loop that it was opened on."""
    kept, toolbox = opened(server)
    assert kept.loop is not None
    assert anyio.run(use, toolbox) == {"total": 6}

    assert len(server.processes) == 2
    assert server.running() == []
    kept.close()  # again, which the end of the command does


def test_a_run_that_fails_before_it_begins_closes_them(server: Server) -> None:
    _, toolbox = opened(server)

    async def fail() -> None:
        raise ContractError("the run could not be recorded")

    with pytest.raises(ContractError):
        anyio.run(fail, backend_options=loop_of(toolbox))
    assert server.running() == []
