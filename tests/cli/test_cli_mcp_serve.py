"""`dagrun mcp serve`, as programs start it: over stdin and stdout, and over HTTP with a token."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

import dagrun
from command_line import SECONDS, Shell, command, environment, finished, shell

__all__ = ["shell"]
client_module = pytest.importorskip("mcp.client.client")
stdio = pytest.importorskip("mcp.client.stdio")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.costly,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

TOOLS = Path(__file__).parents[1] / "serve" / "mcp_served_tools.py"
PLAN = {"steps": [{"id": "a", "tool": "look", "args": {"city": "${input.city}"}},
                  {"id": "u", "tool": "unit", "args": {"name": "C"}}], "output": "${a.degrees}"}  # fmt: skip
PAY = {"steps": [{"id": "p", "tool": "pay", "args": {"amount": 3, "to": "${input.to}"}}]}
SLOW = {"steps": [{"id": "s", "tool": "slow", "args": {"name": "s"}}]}


@pytest.fixture
def plans(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with three plans."""
    (shell.folder / "plans").mkdir()
    for name, plan in (("weather", PLAN), ("pay-out", PAY), ("slow", SLOW)):
        (shell.folder / "plans" / f"{name}.json").write_text(json.dumps(plan))
    (shell.folder / "notes").touch()
    return shell.folder / "plans"


def words(shell: Shell, *more: str) -> tuple[list[str], dict[str, str]]:
    """The command, and its environment."""
    given = command("mcp", "serve", "-C", str(shell.folder), "--tools", str(TOOLS), *more)
    return given, environment(NOTES=str(shell.folder / "notes"))


@asynccontextmanager
async def over_stdio(shell: Shell, *more: str) -> AsyncIterator[Any]:
    """The library's client of a server in a process of its own."""
    [program, *args], env = words(shell, *more)
    parameters = stdio.StdioServerParameters(command=program, args=args, env=env)
    async with client_module.Client(stdio.stdio_client(parameters, errlog=subprocess.DEVNULL), cache=None) as client:
        yield client


@contextmanager
def over_http(shell: Shell, *more: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """A server over HTTP: the process, its address, and its token."""
    given, env = words(shell, "--http", "--port", "0", *more)
    with subprocess.Popen(given, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stderr is not None
        try:
            url = process.stderr.readline().strip().removeprefix("mcp: ")
            token = process.stderr.readline().strip().removeprefix("token: ")
            yield process, url, token
        finally:
            process.kill()


async def test_a_program_starts_it_and_talks_over_stdin_and_stdout(shell: Shell, plans: Path) -> None:
    """A tool that prints does no harm; a question is answered by the command line, or by the caller."""
    async with over_stdio(shell, "--plans", "plans") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["pay-out", "slow", "weather", "run_status", "answer", "cancel_run"]
        made = await client.call_tool("weather", {"city": "Oslo"})
        assert made.structured_content["output"] == 4
        waiting = (await client.call_tool("pay-out", {"to": "Ann"})).structured_content
        assert waiting["status"] == "waiting"
        listed = shell("runs", "--json").json["runs"]
        assert {run["run_id"] for run in listed} >= {waiting["run"], made.structured_content["run"]}
        answers = [{"question": waiting["questions"][0]["id"], "choice": "approve"}]
        done = await client.call_tool("answer", {"run": waiting["run"], "answers": answers})
    assert done.structured_content["output"] == "paid Ann"
    assert (shell.folder / "notes").read_text() == "paid 3 to Ann\n"


async def test_answers_can_be_left_to_the_command_line(shell: Shell, plans: Path) -> None:
    """A caller that is a model cannot say yes for a person then."""
    async with over_stdio(shell, "--plans", "plans", "--no-answers") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        waiting = (await client.call_tool("pay-out", {"to": "Ann"})).structured_content
        refused = await client.call_tool("answer", {"run": waiting["run"], "answers": []})
    assert "answer" not in names
    assert refused.is_error
    _, env = words(shell)
    assert finished(shell, "approve", waiting["run"], "p", "--yes", **env).code == 0
    resumed = finished(shell, "resume", waiting["run"], **env)  # its tools are those that the server began with
    assert (resumed.code, resumed.out) == (0, "paid Ann\n"), resumed.err


async def test_our_own_client_starts_it_from_a_file(shell: Shell, plans: Path) -> None:
    """Plans within plans, over a process border, with the hints that the effects of their steps give."""
    [program, *args], env = words(shell, "--plans", "plans")
    config = {"mcpServers": {"inner": {"command": program, "args": args, "env": env}}}
    async with dagrun.mcp_tools(config, rules={"inner": {"trust": "hints"}}) as tools:
        assert {name: str(tool.effect) for name, tool in tools.items()} == {
            "inner.weather": "read",
            "inner.pay-out": "effectful",
            "inner.slow": "read",
            "inner.run_status": "read",
            "inner.answer": "effectful",
            "inner.cancel_run": "idempotent",
        }
        step = dagrun.Step(id="w", tool="inner.weather", args={"city": "Rome!"})
        result = await dagrun.run(dagrun.Plan(steps=[step]), tools=[tools])
    assert result.steps["w"].output["output"] == 5


async def test_over_http_every_request_needs_the_token(shell: Shell, plans: Path) -> None:
    """And only this machine is listened to, by its own names."""
    with over_http(shell, "--plans", "plans") as (process, url, token):
        async with httpx.AsyncClient(trust_env=False) as plain:
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
            wanted = {"accept": "application/json, text/event-stream"}
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": token}):
                refused = await plain.post(url, json=body, headers=wanted | headers)
                assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
                assert refused.json() == {"error": "not authenticated: send the token"}
            rebound = await plain.post(
                url, json=body, headers=wanted | {"authorization": f"Bearer {token}", "host": "evil.example"}
            )
            assert rebound.status_code in (403, 421)
        with_token = client_with(token)
        streams = pytest.importorskip("mcp.client.streamable_http").streamable_http_client(url, http_client=with_token)
        async with with_token, client_module.Client(streams, cache=None) as client:
            made = await client.call_tool("weather", {"city": "Oslo"})
            assert made.structured_content["status"] == "succeeded"
            await stop_a_call(client, shell.folder / "notes")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0


@pytest.mark.parametrize("token", ["geheimes-Wort-für-alle", "short"])
def test_a_token_that_no_request_can_send_is_refused_at_the_start(
    shell: Shell, plans: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("DAGRUN_MCP_TOKEN", token)
    monkeypatch.setattr(anyio, "run", lambda *_, **__: pytest.fail("the server was started"))

    told = shell("mcp", "serve", "--tools", str(TOOLS), "--plans", str(plans), "--http", "--port", "0")

    assert (told.code, told.err) == (
        2,
        "Error: DAGRUN_MCP_TOKEN: a token has at least 16 characters of ASCII; secrets.token_urlsafe() makes one\n",
    )


def client_with(token: str) -> Any:
    """An HTTP client of the kind that the library takes, which sends the token."""
    made = pytest.importorskip("mcp.shared._httpx_utils").create_mcp_http_client
    return made(headers={"authorization": f"Bearer {token}"})


async def stop_a_call(client: Any, notes: Path) -> None:
    """Cancel a call that is in the middle, and wait until its step has stopped."""
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "slow", {})
            while "begun s" not in notes.read_text():
                await anyio.sleep(0.02)
            scope.cancel()
    with anyio.fail_after(10):
        while "stopped s" not in notes.read_text():
            await anyio.sleep(0.02)


async def test_ctrl_c_ends_it_although_the_caller_says_nothing(shell: Shell, plans: Path) -> None:
    """A thread waits for the next line; what runs is suspended, and its record let go, all the same."""
    given, env = words(shell)
    pipe = subprocess.PIPE
    with subprocess.Popen(given, stdin=pipe, stdout=pipe, stderr=pipe, env=env, text=True) as process:
        assert process.stdin is not None
        for message in (
            {"method": "initialize", "id": 1, "params": {"protocolVersion": "2025-11-25", "capabilities": {},
             "clientInfo": {"name": "test", "version": "1"}}},
            {"method": "notifications/initialized"},
            {"method": "tools/call", "id": 2, "params": {"name": "run_plan", "arguments": {"plan": SLOW}}},
        ):  # fmt: skip
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
        with anyio.fail_after(SECONDS):
            while "begun s" not in (shell.folder / "notes").read_text():
                await anyio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    assert "stopped s" in (shell.folder / "notes").read_text()
    [run] = shell("runs", "--json").json["runs"]
    journal = dagrun.SQLiteJournal(shell.runs)
    past = await dagrun.replay(run["run_id"], journal=journal)
    held = {each.run_id: each.is_held for each in await journal.runs()}
    await journal.aclose()
    assert (past.has_ended, held) == (False, {run["run_id"]: False})


async def test_ctrl_c_suspends_what_runs(shell: Shell, plans: Path) -> None:
    """A run that nobody waits for can be resumed by the command line."""
    with over_http(shell) as (process, url, token):
        streams = pytest.importorskip("mcp.client.streamable_http").streamable_http_client(
            url, http_client=client_with(token)
        )
        async with client_module.Client(streams, cache=None) as client:
            begun = await client.call_tool("run_plan", {"plan": SLOW, "wait": False})
            while "begun s" not in (shell.folder / "notes").read_text():
                await anyio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    [run] = shell("runs", "--json").json["runs"]
    assert run["run_id"] == begun.structured_content["run"]
    assert "stopped s" in (shell.folder / "notes").read_text()
    journal = dagrun.SQLiteJournal(shell.runs)
    past = await dagrun.replay(run["run_id"], journal=journal)
    await journal.aclose()
    assert (past.has_ended, past.reason) == (False, "the server was stopped")


async def test_a_caller_that_waits_does_not_keep_the_server_from_stopping(shell: Shell, plans: Path) -> None:
    """Its call goes on for an hour, and its streams are open; what runs is suspended all the same."""
    library = pytest.importorskip("mcp.client.streamable_http")
    cut = pytest.importorskip("mcp.shared.exceptions").MCPError
    with over_http(shell, "--plans", "plans") as (process, url, token), anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def call() -> None:
                streams = library.streamable_http_client(url, http_client=client_with(token))
                async with client_module.Client(streams, cache=None) as client:
                    with suppress(cut):
                        await client.call_tool("slow", {})

            tasks.start_soon(call)
            with anyio.fail_after(SECONDS):
                while "begun s" not in (shell.folder / "notes").read_text():
                    await anyio.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            assert await anyio.to_thread.run_sync(process.wait, SECONDS) == 0
            scope.cancel()
    assert "stopped s" in (shell.folder / "notes").read_text()


def test_tools_with_effects_are_not_served_unless_they_ask(shell: Shell, plans: Path) -> None:
    """Of plans, only what they reach counts; the message names the tools, and both ways out."""
    shell.file("wild.py", "import dagrun\n@dagrun.tool(effect='effectful')\nasync def wild() -> int:\n    return 1\n")
    refused = shell("mcp", "serve", "--tools", "./wild.py", "--tools", str(TOOLS))
    assert refused.code == 2
    assert "callers could change the world without a person's yes, by wild: " in refused.err
    assert "--yes-effects" in refused.err
    given, env = words(shell, "--tools", "./wild.py", "--plans", "plans")
    done = subprocess.run(given, stdin=subprocess.DEVNULL, capture_output=True, env=env, check=False, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, b"")
    given, env = words(shell, "--tools", "./wild.py", "--yes-effects")
    done = subprocess.run(given, stdin=subprocess.DEVNULL, capture_output=True, env=env, check=False, timeout=SECONDS)
    assert done.returncode == 0


def test_what_is_wrong_is_said_before_a_caller_comes(shell: Shell, plans: Path) -> None:
    """A plan with problems, a folder without plans, a port that is taken."""
    tools = ("--tools", str(TOOLS))
    (plans / "bad.json").write_text(json.dumps({"steps": [{"id": "a", "tool": "lok"}]}))
    bad = shell("mcp", "serve", *tools, "--plans", "plans")
    assert (bad.code, "plans/bad.json:" in bad.err, "DR201" in bad.err) == (3, True, True)
    (shell.folder / "empty").mkdir()
    empty = shell("mcp", "serve", *tools, "--plans", "empty")
    assert (empty.code, "it has 0 plans" in empty.err) == (2, True)
    assert shell("mcp", "serve").code == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        busy = finished(shell, "mcp", "serve", *tools, "--http", "--port", port, NOTES=os.devnull)
    assert (busy.code, f"cannot serve on 127.0.0.1, port {port}" in busy.err) == (2, True)
    assert "Traceback" not in busy.err
    helped = shell("mcp", "serve", "--help")
    assert "--yes-effects" in helped.out
