"""MCP servers as they are met: what their errors mean, sessions that they forget, tools that cannot be called.

Each against a small server of our own that behaves as the real one does.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import dagrun
from dagrun.errors import ContractError
from dagrun.sources.mcp_connection import Call, ServerQuestions, _note_session, _pass_on, mcp_library
from loopback import Request, answer, serving

pytest.importorskip("mcp.client.client")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.costly,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SERVER = Path(__file__).with_name("mcp_raw.py")
JSON = "application/json"


def config(tmp_path: Path, *tools: str, listed: list[Any] | None = None, **said: Any) -> dict[str, Any]:
    """A server that lists tools, and answers as *said*."""
    tools_of = listed or [{"name": name, "inputSchema": {"type": "object"}} for name in tools]
    path = tmp_path / "said.json"
    path.write_text(json.dumps({"tools/list": {"tools": tools_of}, **said}), encoding="utf-8")
    return {"s": {"command": sys.executable, "args": [str(SERVER), str(path)]}}


def plan(*names: str, tool: str = "") -> dagrun.Plan:
    return dagrun.Plan(steps=[dagrun.Step(id=name, tool=f"s.{tool or name}") for name in names])


async def run(known: dict[str, Any], steps: dagrun.Plan, rules: Any = None, **options: Any) -> dagrun.RunResult:
    async with dagrun.mcp_tools(known, rules={"s": rules or {}}) as tools:
        return await dagrun.run(steps, tools=[tools], **options)


def told(result: dagrun.RunResult) -> dict[str, tuple[str, str]]:
    return {
        name: (str(step.state), step.failure.message if step.failure else str(step.output))
        for name, step in result.steps.items()
    }


# What an error says --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "message"), [(-32000, "quota used up"), (-32000, "Connection closed"), (-32001, "Not found: a")]
)
async def test_an_error_of_a_tool_does_not_end_the_server(tmp_path: Path, code: int, message: str) -> None:
    """fastmcp 4.1.6 answers so for a missing right, a time-out, what it does not find. A call beside it goes on."""
    error = {"code": code, "message": message}
    known = config(tmp_path, "write", "refuse", calls={"write": {"after": 0.5}, "refuse": {"error": error}})
    assert told(await run(known, plan("write", "refuse"))) == {
        "write": ("succeeded", "done"),
        "refuse": ("unknown", f"ServerError: MCP server s: {message}"),
    }
    for rules in ({"errors": "clean"}, {"effects": {"refuse": "read"}}):
        assert told(await run(known, plan("refuse"), rules)) == {"refuse": ("failed", f"MCP server s: {message}")}


async def test_a_limit_of_the_rate_is_waited_for_and_nothing_is_in_doubt(tmp_path: Path) -> None:
    """As the middleware of fastmcp 4.1.6: of six steps at once some are refused, before anything has happened."""
    error = {"code": -32000, "message": "Rate limit exceeded for client: global"}
    known = config(tmp_path, "write", calls={"write": {"after": 0.1, "limit": 2, "error": error}})
    result = await run(known, plan(*"abcdef", tool="write"))
    assert result.status == "succeeded", told(result)
    once = dagrun.RetryRule(max_attempts=1)
    known = config(tmp_path, "write", calls={"write": {"error": {"code": -32050, "message": "429 Too Many Requests"}}})
    result = await run(known, plan("write"), policy=dagrun.Policy(retry=once))
    failure = result.steps["write"].failure
    assert failure is not None
    assert (failure.is_transient, failure.nothing_happened) == (True, True)
    assert failure.message == "MCP server s: 429 Too Many Requests"


@pytest.mark.parametrize(
    "message",
    [
        "sent 3 of 5, then hit the rate limit",
        "order 429 is half booked",
        "429 of 500 sent",
        "Error: sent 3, then: too many requests",
    ],
)
async def test_a_limit_that_was_met_half_way_leaves_a_doubt(tmp_path: Path, message: str) -> None:
    """Only a message that begins with the limit says that nothing has happened. What only reads waits for it."""
    known = config(tmp_path, "write", calls={"write": {"error": {"code": -32603, "message": message}}})
    assert told(await run(known, plan("write")))["write"] == ("unknown", f"ServerError: MCP server s: {message}")
    result = await run(known, plan("write"), {"effects": {"write": "read"}})
    assert len(result.steps["write"].attempts) > 1
    said = f"MCP error -32000: Error: {message}"
    known = config(tmp_path, "write", calls={"write": {"error": {"code": -32000, "message": said}}})
    assert told(await run(known, plan("write")))["write"][0] == "unknown"


@pytest.mark.parametrize(
    "message",
    ["MCP error -32000: Rate limit exceeded", "Error: too many requests", "rate_limited", "429", "API rate limit"],
)
async def test_a_limit_of_the_rate_may_have_a_prefix(tmp_path: Path, message: str) -> None:
    """Of the library that the server is made of."""
    known = config(tmp_path, "write", calls={"write": {"error": {"code": -32000, "message": message}}})
    once = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1))
    failure = (await run(known, plan("write"), policy=once)).steps["write"].failure
    assert failure is not None
    assert (failure.is_transient, failure.nothing_happened) == (True, True)


@pytest.mark.parametrize(
    ("code", "message", "does"),
    [
        (-32001, "Request timed out", "decline"),
        (-32000, "SSE stream ended without a response", "decline"),
        (-32001, "Not found: a", "accept"),
        (-32000, "quota used up", "accept"),
    ],
)
async def test_a_call_without_an_answer_may_still_ask(tmp_path: Path, code: int, message: str, does: str) -> None:
    """Nobody has heard that it ended, so the next question could be its, and is declined."""
    error = {"code": code, "message": message}
    known = config(tmp_path, "late", "asking", calls={"late": {"error": error}, "asking": {"asks": "Sure?"}})

    async def agree(_: dagrun.Question) -> dagrun.Answer:
        return dagrun.Answer("approve", value={})

    async with dagrun.mcp_tools(known, rules={"s": {}}) as tools:
        await dagrun.run(plan("late"), tools=[tools])
        result = await dagrun.run(plan("asking"), tools=[tools], approver=agree)
    assert told(result) == {"asking": ("succeeded", does)}


async def test_a_time_out_that_a_server_reports_leaves_a_doubt(tmp_path: Path) -> None:
    """The code -32001 of the TypeScript library 1.x, from a server that passes calls on. What only reads is retried."""
    error = {"code": -32001, "message": "MCP error -32001: Request timed out"}
    known = config(tmp_path, "write", calls={"write": {"error": error}})
    assert told(await run(known, plan("write")))["write"][0] == "unknown"
    result = await run(known, plan("write"), {"effects": {"write": "read"}})
    assert len(result.steps["write"].attempts) == 2


# Sessions ------------------------------------------------------------------------------------------------------------


def forgetful(sessions: set[str], refusal: bytes, calls: list[str]) -> Callable[[Request, socket.socket], None]:
    """A server of revision 2025-11-25 behind an address, which answers *refusal* to unknown sessions."""

    def say(connection: socket.socket, message: dict[str, Any], **headers: str) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        connection.sendall(answer(body, content_type=JSON, **headers))

    def handle(request: Request, connection: socket.socket) -> None:
        if request.method != "POST":
            connection.sendall(answer(status="405 Method Not Allowed"))
            return
        asked = json.loads(request.body)
        number, method = asked.get("id"), asked["method"]
        if method == "initialize":
            sessions.add(session := uuid.uuid4().hex)
            info = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            result = {**info, "serverInfo": {"name": "s", "version": "1"}}
            say(connection, {"id": number, "result": result}, mcp_session_id=session)
        elif method == "server/discover":
            say(connection, {"id": number, "error": {"code": -32601, "message": "no such method"}})
        elif request.headers.get("mcp-session-id") not in sessions:
            connection.sendall(refusal)
        elif number is None:
            connection.sendall(answer(status="202 Accepted"))
        elif method == "tools/list":
            say(connection, {"id": number, "result": {"tools": [{"name": "w", "inputSchema": {"type": "object"}}]}})
        else:
            calls.append(asked["params"]["name"])
            say(connection, {"id": number, "result": {"content": [{"type": "text", "text": "done"}]}})

    return handle


def refused(status: str, code: int, message: str) -> bytes:
    error = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": code, "message": message}}
    return answer(json.dumps(error).encode(), status=status, content_type=JSON)


REFUSALS = {
    "FastMCP of mcp 1.30.0": refused("404 Not Found", -32600, "Session not found"),
    "server-everything 2026.8.31": refused("400 Bad Request", -32000, "Bad Request: No valid session ID provided"),
    "the TypeScript library 1.x": refused("404 Not Found", -32001, "Session not found"),
    "a gateway": answer(b"gone", status="404 Not Found", content_type="text/plain"),
    "an old server": answer(b"unknown session", status="400 Bad Request", content_type="text/plain"),
}


@pytest.mark.parametrize("server", REFUSALS)
async def test_a_session_that_the_server_has_forgotten_is_begun_anew(server: str) -> None:
    """The protocol demands it. Six effects at once are each made once: the server looked at none of the first calls."""
    sessions, calls = set[str](), list[str]()
    once = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1))
    with serving(forgetful(sessions, REFUSALS[server], calls)) as at:
        async with dagrun.mcp_tools({"s": {"url": f"{at.url}/mcp"}}) as tools:
            for _ in range(3):
                result = await dagrun.run(plan(*"abcdef", tool="w"), tools=[tools], policy=once)
                assert result.status == "succeeded", told(result)
                sessions.clear()  # as a restart of the server does
    assert len(calls) == 18


async def test_a_call_that_has_begun_is_not_made_again_where_its_stream_is_lost() -> None:
    """The server restarts in the call, and knows no session where the client takes up the stream (Last-Event-ID)."""
    sessions, calls = set[str](), list[str]()
    usual = forgetful(sessions, REFUSALS["FastMCP of mcp 1.30.0"], calls)

    def handle(request: Request, connection: socket.socket) -> None:
        if request.method == "GET" and "last-event-id" in request.headers:
            connection.sendall(REFUSALS["FastMCP of mcp 1.30.0"])
        elif b'"tools/call"' in request.body and request.headers["mcp-session-id"] in sessions:
            calls.append("begun")
            sessions.clear()
            connection.sendall(answer(b"id: 1\nretry: 1\ndata: \n\n", content_type="text/event-stream"))
        else:
            usual(request, connection)

    with serving(handle) as at:
        async with dagrun.mcp_tools({"s": {"url": f"{at.url}/mcp"}}) as tools:
            result = await dagrun.run(plan("w"), tools=[tools])
    assert any("last-event-id" in request.headers for request in at.requests)
    assert calls == ["begun"]
    assert told(result)["w"][0] == "unknown"


async def test_an_argument_that_is_called_session_is_no_lost_session() -> None:
    """Arguments that a server refuses (-32602) are refused in a new session, too."""
    sessions, calls = set[str](), list[str]()
    usual = forgetful(sessions, b"", calls)

    def handle(request: Request, connection: socket.socket) -> None:
        if b'"tools/call"' in request.body:
            calls.append("refused")
            connection.sendall(refused("400 Bad Request", -32602, "session_id must be a number"))
        else:
            usual(request, connection)

    with serving(handle) as at:
        async with dagrun.mcp_tools({"s": {"url": f"{at.url}/mcp"}}) as tools:
            result = await dagrun.run(plan("w"), tools=[tools])
    assert calls == ["refused"]
    assert told(result) == {"w": ("failed", "MCP server s: session_id must be a number")}


@pytest.mark.parametrize(
    ("method", "message", "is_lost"),
    [
        ("POST", {"id": 1, "method": "tools/call"}, True),
        ("POST", {"method": "notifications/cancelled"}, False),
        ("POST", {"id": 1, "result": {"action": "accept"}}, False),
        ("GET", {}, False),
    ],
)
async def test_only_the_request_of_the_call_says_that_its_session_is_lost(
    method: str, message: dict[str, Any], is_lost: bool
) -> None:
    """What else is sent during a call, such as the answer to a question, follows a call that has begun."""
    http = mcp_library("httpx2")
    request = http.Request(method, "http://a.example", headers={"mcp-session-id": "1"}, json=message)
    # As the library follows a redirect: with the stream of the first request, whose content nobody has read.
    request = http.Request(method, "http://a.example", headers=request.headers, stream=request.stream)
    with Call(ServerQuestions("s"), cast(Any, None)) as call:
        await _note_session(http.Response(404, request=request, content=b"gone"))
        assert call.has_no_session is is_lost


class Forgotten(set[str]):
    """Sessions of a server that forgets each at once, after the first one."""

    def add(self, session: str) -> None:
        if not self:
            super().add(session)


async def test_a_server_that_keeps_no_session_fails_the_call_and_nothing_is_in_doubt() -> None:
    """One more session is tried, not one after the other."""
    sessions, calls = Forgotten(("",)), list[str]()
    sessions.clear()
    once = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1))
    with serving(forgetful(sessions, REFUSALS["a gateway"], calls)) as at:
        async with dagrun.mcp_tools({"s": {"url": f"{at.url}/mcp"}}) as tools:
            sessions.clear()
            sessions.update(("another",))
            result = await dagrun.run(plan("w"), tools=[tools], policy=once)
    assert told(result) == {"w": ("failed", "MCP server s has no session for this call")}
    assert calls == []
    assert sum(b"initialize" in request.body for request in at.requests) <= 5


# Tools ---------------------------------------------------------------------------------------------------------------


async def test_a_tool_that_runs_as_a_task_only_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """simulate-research-query of server-everything 2026.8.31: each call of it would leave an effect in doubt."""
    listed = [
        {"name": name, "inputSchema": {"type": "object"}, "execution": {"taskSupport": support}}
        for name, support in (("research", "required"), ("either", "optional"), ("plain", "forbidden"))
    ]
    with caplog.at_level(logging.WARNING, "dagrun.mcp"):
        async with dagrun.mcp_tools(config(tmp_path, listed=listed)) as tools:
            assert sorted(tools) == ["s.either", "s.plain"]
    assert "s.research: its server runs it as a task only" in caplog.text


@pytest.mark.parametrize("names", [("read_file", "read file", "read/file"), ("read/file", "read file", "read_file")])
async def test_a_name_that_needs_no_fitting_is_kept(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Whatever the order in which a server lists its tools: else a plan would call another one."""
    calls = {name: {"result": {"content": [{"type": "text", "text": name}]}} for name in names}
    known = config(tmp_path, *names, calls=calls)
    async with dagrun.mcp_tools(known) as tools:
        assert len(tools) == 3
    assert told(await run(known, plan("read_file"))) == {"read_file": ("succeeded", "read_file")}


async def test_effects_are_named_by_patterns_as_tools_are_allowed(tmp_path: Path) -> None:
    """A name comes before patterns; a pattern that fits no tool is an error."""
    known = config(tmp_path, "get_a", "get_b", "put_c")
    rules = {"effects": {"get_*": "read", "get_b": "idempotent"}, "allow": ["*_[abc]"]}
    async with dagrun.mcp_tools(known, rules={"s": rules}) as tools:
        assert {name: str(tool.effect) for name, tool in tools.items()} == {
            "s.get_a": "read",
            "s.get_b": "idempotent",
            "s.put_c": "effectful",
        }
    with pytest.raises(ContractError, match=r"MCP server s has no tool list_\*"):
        async with dagrun.mcp_tools(known, rules={"s": {"effects": {"list_*": "read"}}}):
            pass


NOISE = """\
a banner
Failed to validate request: 31 validation errors for ClientRequest
PingRequest.method
  Input should be 'ping' [type=literal_error, input_value='server/discover', input_type=str]
    For further information visit https://errors.pydantic.dev/2.14/v/literal_error
InitializeRequest.params.protocolVersion
  Field required [type=missing, input_value={'_meta': {}}, input_type=dict]
Processing request of type ListToolsRequest
\xff it writes what it wants
"""


async def test_what_an_old_server_says_about_the_first_message_is_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A server of the Python library 1.30.0 logs 94 lines about `server/discover`, which look like a fault."""
    with caplog.at_level(logging.DEBUG, "dagrun.mcp"):
        shown = ""
        result = await run(config(tmp_path, "a", stderr=NOISE), plan("a"))
        with anyio.fail_after(10):
            while "it writes" not in shown:
                shown += capsys.readouterr().err
                await anyio.sleep(0.05)
    assert result.status == "succeeded"
    lines = shown.splitlines()
    assert lines[:2] == ["a banner", "Processing request of type ListToolsRequest"]
    assert lines[2].endswith("it writes what it wants")
    assert caplog.text.count("MCP server s is of an older revision, which is no fault") == 6


def test_a_line_without_an_end_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    """A server may write without a line end for as long as it runs: it is not kept in memory until then."""
    read, write = os.pipe()
    passing = threading.Thread(target=_pass_on, args=("s", read), daemon=True)
    passing.start()
    shown = ""
    with os.fdopen(write, "wb") as written:
        written.write(b"x" * 200_000)
        written.flush()
        for _ in range(200):
            shown += capsys.readouterr().err
            if len(shown) >= 3 << 16:
                break
            time.sleep(0.05)
    passing.join(10)
    assert len(shown) >= 3 << 16
    assert shown + capsys.readouterr().err == "x" * 200_000
