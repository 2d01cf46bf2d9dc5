"""Tools of MCP servers: real servers over stdio, on every backend."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

import dagrun
from dagrun.errors import ContractError
from dagrun.sources.mcp_config import read_config
from dagrun.sources.mcp_connection import Connection

pytest.importorskip("mcp")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.costly,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SERVER = Path(__file__).with_name("mcp_server.py")
HINTS = {"notes": {"trust": "hints"}}


def config(folder: Path, *args: str) -> dict[str, Any]:
    entry = {"command": sys.executable, "args": [str(SERVER), *args], "env": {"NOTES": str(folder / "notes")}}
    return {"mcpServers": {"notes": entry}}


def notes(folder: Path) -> list[str]:
    path = folder / "notes"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def step(id_: str, tool: str, **args: Any) -> dagrun.Step:
    return dagrun.Step(id=id_, tool=f"notes.{tool}", args=args)


async def run(tools: dagrun.Toolbox, *steps: dagrun.Step, **options: Any) -> dagrun.RunResult:
    return await dagrun.run(dagrun.Plan(steps=list(steps)), tools=[tools], **options)


async def test_a_plan_runs_on_a_server(tmp_path: Path) -> None:
    """The file is one that other programs read; structure, keys and pictures come through."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(config(tmp_path)), encoding="utf-8")
    async with dagrun.mcp_tools(path, rules=HINTS) as tools:
        assert {name: str(tool.effect) for name, tool in tools.items()} == {
            "notes.add": "read",
            "notes.keep": "idempotent",
            "notes.slow": "effectful",
            "notes.picture": "read",
            "notes.fail": "effectful",
            "notes.die": "read",
            "notes.die_in_effect": "effectful",
            "notes.order": "effectful",
            "notes.visit": "effectful",
        }
        result = await run(
            tools,
            step("sum", "add", a=1, b=2),
            step("more", "add", a="${sum.total}", b=10),
            step("keep", "keep", text="note ${more.total}"),
            step("draw", "picture"),
        )
        with pytest.raises(dagrun.PlanRefused) as refused:
            dagrun.check(
                dagrun.Plan(steps=[step("sum", "add", a="1", c=2), step("more", "add", a="${sum.nope}", b=1)]),
                tools=tools,
            )
    assert result.status == "succeeded", result
    assert result.steps["more"].output == {"total": 13}
    assert result.steps["draw"].output["media_type"] == "image/png"
    [line] = notes(tmp_path)
    assert line.startswith("note 13 ")
    assert len(line.split()[-1]) == 32  # the idempotency key
    assert {problem.code for problem in refused.value.problems} == {"DR203", "DR204", "DR205", "DR303"}


async def test_nothing_that_a_server_says_counts_without_the_host(tmp_path: Path) -> None:
    """A server could say that deleting everything only looks."""
    rules = {"notes": {"effects": {"add": "pure"}, "allow": ["add", "k*"], "timeout": 5}}
    async with dagrun.mcp_tools(config(tmp_path), rules=rules) as tools:
        assert {name: str(tool.effect) for name, tool in tools.items()} == {
            "notes.add": "pure",
            "notes.keep": "effectful",
        }
        assert [(tool.timeout, tool.pool) for tool in tools.values()] == [(5, "notes")] * 2
        assert [tool.effect_declared for tool in tools.values()] == [True, False]


@pytest.mark.parametrize(
    ("errors", "status", "state"), [("unknown", "unknown", "unknown"), ("clean", "failed", "failed")]
)
async def test_an_error_of_an_effect_is_a_doubt_unless_the_host_knows_better(
    tmp_path: Path, errors: str, status: str, state: str
) -> None:
    """The protocol does not say whether anything has happened."""
    async with dagrun.mcp_tools(config(tmp_path), rules={"notes": {"errors": errors}}) as tools:
        result = await run(tools, step("fail", "fail", text="no such thing"))
    assert (result.status, result.steps["fail"].state) == (status, state)
    failure = result.steps["fail"].failure
    assert failure is not None
    assert "no such thing" in failure.message


async def test_progress_reaches_observers_and_a_cancellation_the_server(tmp_path: Path) -> None:
    """And the connection goes on working."""
    seen: list[tuple[float | None, str]] = []
    rules = {"notes": {"trust": "hints", "effects": {"slow": "read"}}}
    async with dagrun.mcp_tools(config(tmp_path), rules=rules) as tools:
        plan = dagrun.Plan(steps=[step("slow", "slow")])
        async with dagrun.start(plan, tools=[tools]) as going:
            async for event in going.events():
                if isinstance(event, dagrun.events.Progress):
                    seen.append((event.fraction, event.message))
                    break
            going.cancel()
            result = await going.result()
        after = await run(tools, step("sum", "add", a=1, b=1))
        with anyio.fail_after(10):
            while notes(tmp_path) != ["cancelled"]:
                await anyio.sleep(0.01)
    assert seen == [(0.25, "a quarter")]
    assert result.status == "cancelled"
    assert after.status == "succeeded"


async def test_a_server_that_dies_is_started_again(tmp_path: Path) -> None:
    """What only looks is tried again; an effect in the middle is in doubt, and is not repeated."""
    async with dagrun.mcp_tools(config(tmp_path), rules=HINTS) as tools:
        read = await run(tools, step("die", "die", once=str(tmp_path / "once")))
        effect = await run(tools, step("die", "die_in_effect"))
        after = await run(tools, step("sum", "add", a=1, b=1))
    assert read.status == "succeeded", read
    assert len(read.steps["die"].attempts) == 2
    assert effect.status == "unknown"
    assert notes(tmp_path) == ["begun"]
    assert after.status == "succeeded"


async def test_a_server_inside_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of a host, and for servers that it has itself."""
    monkeypatch.syspath_prepend(str(SERVER.parent))
    server = import_module("mcp_server").make_server()
    async with dagrun.mcp_tools({"notes": server}, rules=HINTS) as tools:
        result = await run(tools, step("sum", "add", a=1, b=2))
    assert result.steps["sum"].output == {"total": 3}


@pytest.mark.parametrize("args", [("broken",), ()])
async def test_a_server_that_does_not_start_is_an_error_that_names_it(tmp_path: Path, args: tuple[str, ...]) -> None:
    """At once, and not at the first call."""
    known = config(tmp_path, *args)
    if not args:
        known["mcpServers"]["notes"]["command"] = "./no-such-command"
    program = "./no-such-command" if not args else sys.executable
    with pytest.raises(ContractError, match=f"MCP server notes cannot be reached: {program}: "):
        async with dagrun.mcp_tools(known):
            pytest.fail("it is not there")


async def test_servers_that_do_not_answer_are_named_and_the_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has ten of them would have to try each."""
    from mcp.server.mcpserver import MCPServer

    @asynccontextmanager
    async def never(server: Any) -> AsyncIterator[None]:
        await anyio.sleep_forever()
        yield

    monkeypatch.syspath_prepend(str(SERVER.parent))
    servers = {name: MCPServer(name, lifespan=never) for name in ("dull", "mute")}
    with pytest.raises(ContractError, match="MCP server dull, mute did not answer in 3 s"):
        async with dagrun.mcp_tools(
            {"notes": import_module("mcp_server").make_server(), **servers}, connect_timeout=3.0
        ):
            pytest.fail("they are not there")


async def test_a_call_outside_of_the_block_fails_at_once_and_says_why(tmp_path: Path) -> None:
    """Before a first call and after one; and a call that is on its way when the block ends is over, too."""
    servers = dagrun.mcp_tools(config(tmp_path), rules=HINTS)
    async with servers as tools:
        pass
    ends: list[dagrun.RunResult] = []

    async def call_slow() -> None:
        ends.append(await run(tools, step("s", "slow")))

    with anyio.fail_after(20):
        before = await run(tools, step("sum", "add", a=1, b=2))
        async with anyio.create_task_group() as group, servers:  # a second block, with the same tools
            assert (await run(tools, step("sum", "add", a=1, b=2))).status == "succeeded"
            group.start_soon(call_slow)
            await anyio.sleep(0.5)
        after = await run(tools, step("sum", "add", a=1, b=2))
    for ended in (before, after):
        assert "MCP server notes is closed: call its tools inside the block of mcp_tools" in ended.reason
    assert [ended.status for ended in ends] == ["unknown"]


async def test_an_error_of_the_block_comes_out_as_it_is(tmp_path: Path) -> None:
    """Not inside a group of errors, which no `except` of the program expects."""
    with pytest.raises(KeyError, match="mine"):
        async with dagrun.mcp_tools(config(tmp_path)):
            raise KeyError("mine")


async def test_a_connection_that_fails_while_it_is_closed_is_no_error_of_the_block() -> None:
    """The library may raise what the server has done last together with the cancellation."""

    class Failing(Connection):
        @asynccontextmanager
        async def _opened(self) -> AsyncIterator[Any]:
            try:
                yield SimpleNamespace(session=SimpleNamespace())
            except anyio.get_cancelled_exc_class() as error:
                raise BaseExceptionGroup("closing", [error, ValueError("half an answer")]) from None

    [server] = read_config({"a": {"command": "x"}}, None)
    async with anyio.create_task_group() as group:
        connection = Failing(server)
        await group.start(connection.keep)
        await connection.client()
        group.cancel_scope.cancel()


def test_both_forms_of_the_file_and_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Claude, Cursor and VS Code write it."""
    monkeypatch.setenv("TOKEN", "t")
    monkeypatch.delenv("NOWHERE", raising=False)
    entry = {
        "type": "stdio",
        "command": "${NOWHERE:-npx}",
        "args": ["-y", "x"],
        "env": {"A": "${TOKEN}"},
        "gallery": True,
    }
    for content in ({"mcpServers": {"a": entry}}, {"servers": {"a": entry}, "inputs": []}, {"a": entry}):
        [server] = read_config(content, None)
        assert (server.name, server.target, server.extra) == ("a", ("npx", "-y", "x"), {"A": "t"})
    two = {"a": entry, "b": {**entry, "disabled": True}}
    assert [server.name for server in read_config(two, None)] == ["a"]


# The shapes of the files of three programs, with all the fields that they have and dagrun has not.
FILES: dict[str, tuple[dict[str, Any], tuple[Any, ...]]] = {
    "Claude": (
        {
            "globalShortcut": "Ctrl+Space",
            "mcpServers": {
                "files": {"command": "npx", "args": ["-y", "server-files", "/data"], "env": {"LEVEL": "1"}},
                "tickets": {"type": "http", "url": "https://t.example/mcp", "headers": {"X-Key": "${KEY:-none}"}},
            },
        },
        (("npx", "-y", "server-files", "/data"), "https://t.example/mcp"),
    ),
    "Cursor": (
        {
            "mcpServers": {
                "files": {"command": "uvx", "args": ["files"], "envFile": ".env", "autoApprove": ["read"]},
                "old": {"command": "gone", "disabled": True},
                "tickets": {"url": "http://127.0.0.1:9/mcp"},
            }
        },
        (("uvx", "files"), "http://127.0.0.1:9/mcp"),
    ),
    "VS Code": (
        {
            "inputs": [{"type": "promptString", "id": "key", "description": "A key", "password": True}],
            "servers": {
                "files": {"type": "stdio", "command": "python", "args": ["-m", "files"], "dev": {"watch": "*.py"}},
                "tickets": {"type": "http", "url": "https://t.example/mcp", "gallery": True},
            },
        },
        (("python", "-m", "files"), "https://t.example/mcp"),
    ),
}


def test_variables_of_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """An input of VS Code is a secret of its name; without one, it is an error, and never sent as it is written."""
    monkeypatch.setenv("HERE", "h")
    monkeypatch.delenv("api_key", raising=False)
    entry = {"command": "${workspaceFolder}/x", "args": ["${userHome}", "${env:HERE}", "$5 ${}"]}
    [server] = read_config({"a": entry}, None)
    assert server.target == (f"{Path.cwd()}/x", str(Path.home()), "h", "$5 ${}")
    headers = {"url": "https://a.example", "headers": {"Authorization": "Bearer ${input:api-key}"}}
    with pytest.raises(ContractError, match="server a: api_key is no secret and no variable that is set"):
        read_config({"a": headers}, None)
    [server] = read_config({"a": headers}, None, dagrun.Secrets({"api_key": "k3y-of-vs-code"}))
    assert server.extra == {"Authorization": "Bearer k3y-of-vs-code"}


@pytest.mark.parametrize("program", FILES)
def test_files_of_other_programs_are_read_unchanged(tmp_path: Path, program: str) -> None:
    """Their other fields are theirs."""
    content, targets = FILES[program]
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert tuple(server.target for server in read_config(path, None)) == targets


@pytest.mark.parametrize(
    ("content", "rules", "reason"),
    [
        ({"a": {"command": "${NOWHERE}"}}, None, "server a: NOWHERE is no secret and no variable that is set"),
        ({"a": {"args": []}}, None, "server a has no command and no url"),
        ({"a": "http://user:pw@host/mcp"}, None, "server a is an object with a command or a url, not str"),
        ({"a": 5}, None, "server a is an object with a command or a url, not int"),
        ({"a": {"url": "https://a.example", "command": "x"}}, None, "server a has a command and a url"),
        ({"a": {"url": "ftp://a.example"}}, None, "server a: url: it must begin with http:// or https://"),
        ({"a": {"url": "https://me:key@a.example"}}, None, "server a: url: a name or a password in it would be shown"),
        ({"a": {"url": "https://a.example", "headers": {"A": 1}}}, None, "server a: headers."),
        ({"a": {"command": "x", "args": "y"}}, None, "server a: args: "),
        ({"a": {"command": "x"}}, {"b": {}}, "it has no server b; its servers are a"),
        ({"a": {"command": "x"}}, {"a": {"trust": "all"}}, "server a: its rules: trust: "),
        ({"a": {"command": "x"}}, {"a": {"effect": {}}}, "server a: its rules: effect: "),
        ({"a": {"command": "x"}}, {"a": {"max_running": 0}}, "server a: its rules: max_running: "),
        ({"a": {"command": "x"}}, {"a": {"max_running": "8"}}, "server a: its rules: max_running: "),
        ({}, None, "it names no server"),
        ({"servers": []}, None, "the servers are no object"),
    ],
)
def test_a_fault_of_the_configuration_has_its_place(
    content: Mapping[str, Any], rules: Mapping[str, Any] | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is started."""
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(ContractError) as caught:
        read_config(content, rules)
    assert reason in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    """With the path in the message."""
    with pytest.raises(ContractError, match=r"nope\.json: it cannot be read: No such file"):
        read_config(tmp_path / "nope.json", None)
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(ContractError, match=r"bad\.json: it is no JSON"):
        read_config(tmp_path / "bad.json", None)
