"""The public MCP servers of Node, which speak 2025-11-25, beside two in Python with effects."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Answer, Question

pytest.importorskip("mcp")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.rigs(seconds=10),
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

PLACE = "DAGRUN_TEST_MCP_SERVERS"
PACKAGES = "@modelcontextprotocol/server-{everything,filesystem,memory}@2026.8.31"
HERE = Path(__file__).parent


def program(name: str) -> str:
    """Return the path of a server of Node; skip the test where there is none, and fail it in CI, which installs it."""
    found = Path(os.environ.get(PLACE, "/nowhere")) / "node_modules" / ".bin" / name
    if shutil.which("node") and found.exists():
        return str(found)
    reason = f"no MCP servers of Node here: npm install --prefix DIR {PACKAGES}, and set {PLACE}=DIR"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def python(name: str, **env: Path) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(HERE / name)], "env": {key: str(env[key]) for key in env}}


def servers(folder: Path) -> dict[str, Any]:
    """Three of Node, and two of our own."""
    (folder / "files").mkdir()
    return {
        "everything": {"command": program("mcp-server-everything")},
        "files": {"command": program("mcp-server-filesystem"), "args": [str(folder / "files")]},
        "memory": {
            "command": program("mcp-server-memory"),
            "env": {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
        },
        "notes": python("mcp_server.py", NOTES=folder / "notes"),
        "bank": python("mcp_bank.py", LEDGER=folder / "ledger"),
    }


def step(id_: str, tool: str, **args: Any) -> dagrun.Step:
    after = args.pop("after", ())
    return dagrun.Step(id=id_, tool=tool, args=args, depends_on=list(after))


async def run(tools: dagrun.Toolbox, *steps: dagrun.Step, **options: Any) -> dagrun.RunResult:
    with anyio.fail_after(60):
        return await dagrun.run(dagrun.Plan(steps=list(steps)), tools=[tools], **options)


async def test_one_plan_on_five_servers(tmp_path: Path) -> None:
    """Structure, references between servers, pictures, progress and effects."""
    known = servers(tmp_path)
    path = str(tmp_path / "files" / "weather.txt")
    city = {"name": "Chicago", "entityType": "city", "observations": ["${weather.conditions}"]}
    told: list[float | None] = []

    def note(event: object) -> None:
        if isinstance(event, dagrun.events.Progress):
            told.append(event.fraction)

    async with dagrun.mcp_tools(known, rules={name: {"trust": "hints"} for name in known}) as tools:
        assert {name.partition(".")[0] for name in tools} == known.keys()
        assert str(tools["files.write_file"].effect) == "idempotent"
        result = await run(
            tools,
            step("weather", "everything.get-structured-content", location="Chicago"),
            step("sum", "everything.get-sum", a=1, b=2),
            step("picture", "everything.get-tiny-image"),
            step("long", "everything.trigger-long-running-operation", duration=0.4, steps=4),
            step("write", "files.write_file", path=path, content="it is ${weather.conditions}, ${sum}"),
            step("read", "files.read_text_file", path=path, after=["write"]),
            step("remember", "memory.create_entities", entities=[city]),
            step("recall", "memory.search_nodes", query="Chicago", after=["remember"]),
            step("note", "notes.keep", text="${recall.entities[0].observations[0]}"),
            step("pay", "bank.pay", at="never", once=""),
            on_event=note,
        )
    assert result.status == "succeeded", result
    conditions = result.steps["weather"].output["conditions"]
    assert result.steps["read"].output["content"].startswith(f"it is {conditions}, The sum of 1 and 2 is 3")
    assert (tmp_path / "notes").read_text().startswith(f"{conditions} ")
    assert [line.split()[:2] for line in (tmp_path / "ledger").read_text().splitlines()] == [
        ["pay", "begun"],
        ["pay", "done"],
    ]
    assert any(
        isinstance(part, dict) and part.get("media_type") == "image/png" for part in result.steps["picture"].output
    )
    assert len(told) >= 3


async def test_a_failure_of_a_server_is_one_of_the_step(tmp_path: Path) -> None:
    """A path outside of what it may read; a wrong argument does not even get there."""
    known = {"files": servers(tmp_path)["files"]}
    async with dagrun.mcp_tools(known, rules={"files": {"trust": "hints"}}) as tools:
        result = await run(tools, step("read", "files.read_text_file", path="/etc/passwd"))
        with pytest.raises(dagrun.PlanRefused, match="DR203"):
            dagrun.check(dagrun.Plan(steps=[step("read", "files.read_text_file")]), tools=tools)
    assert result.status == "failed"
    assert "outside allowed directories" in result.reason


async def test_a_real_server_asks(tmp_path: Path) -> None:
    """With a form of all kinds of fields."""
    asked: list[Question] = []

    async def answer(question: Question) -> Answer:
        asked.append(question)
        assert question.schema is not None
        return Answer("approve", value={"name": "Ada"})

    known = {"everything": servers(tmp_path)["everything"]}
    async with dagrun.mcp_tools(known) as tools:
        result = await run(tools, step("ask", "everything.trigger-elicitation-request"), approver=answer)
    assert result.status == "succeeded", result
    assert [question.step for question in asked] == ["ask"]
    assert "Ada" in str(result.output)


@contextmanager
def over_http() -> Iterator[str]:
    """The address of server-everything, over streamable HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [program("mcp-server-everything"), "streamableHttp"]
    env = {**os.environ, "PORT": str(port)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            while "listening" not in process.stderr.readline():
                assert process.poll() is None
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


async def test_a_real_server_behind_an_address() -> None:
    """The same tools, over the other transport."""
    with over_http() as url:
        async with dagrun.mcp_tools({"everything": {"url": url}}) as tools:
            result = await run(
                tools,
                step("weather", "everything.get-structured-content", location="Chicago"),
                step("echo", "everything.echo", message="${weather.humidity}%"),
            )
    assert result.status == "succeeded", result
    assert result.steps["echo"].output == f"Echo: {result.steps['weather'].output['humidity']}%"
