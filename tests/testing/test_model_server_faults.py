"""The faults of a `FakeModelServer` as the real clients see them, and the faults of clients that it sees."""

from __future__ import annotations

import json
import socket
import time
from typing import Any, get_args

import anyio
import httpx
import pytest

from dagrun.llm.language_model import Structure
from dagrun.testing import FakeModelServer, Fault, ModelAnswer
from model_clients import APIS, DROPS_GENERATORS, Said, ask, asked, client_of, stream_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.rigs,
    pytest.mark.filterwarnings(DROPS_GENERATORS),
]

STREAMS = pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
EACH = pytest.mark.parametrize("api", APIS)
TEXT = "A text of a few pieces."


async def _error_of(fault: Fault, api: str, *, streams: bool) -> tuple[Any, FakeModelServer]:
    """Return the error of a client that closes its connection itself, so that no fault leaves it open."""
    async with FakeModelServer([fault]) as server:
        with pytest.raises(Exception) as caught:  # noqa: PT011 (each test checks which error it is)
            await ask(server, api, streams=streams)
        await anyio.wait_all_tasks_blocked()
    return caught.value, server


# Errors of HTTP -----------------------------------------------------------------------------------------------------


@EACH
@STREAMS
@pytest.mark.parametrize(
    ("status", "name"),
    [(400, "BadRequestError"), (401, "AuthenticationError"), (429, "RateLimitError"), (500, "InternalServerError")],
)
async def test_a_status_is_the_error_of_that_name(api: str, streams: bool, status: int, name: str) -> None:
    """It has the body of the provider, and the headers of the script."""
    fault = Fault.status(status, retry_after=0.1, headers={"x-should-retry": "false"})
    error, server = await _error_of(fault, api, streams=streams)

    assert type(error).__name__ == name
    assert error.status_code == status == server.calls[0].status
    assert error.response.headers["retry-after"] == "0.1"
    assert error.response.headers["x-should-retry"] == "false"
    assert error.request_id == "req_00000000"
    if api == "messages":
        assert error.body["type"] == "error"
    else:
        assert error.type == error.body["type"]


async def test_an_error_has_the_code_and_the_words_of_the_script() -> None:
    """Lack of credit and a rate limit are both 429, but only for the limit does waiting help."""
    error, _ = await _error_of(Fault.status(429, code="insufficient_quota"), "responses", streams=True)
    assert (error.code, error.type) == ("insufficient_quota", "insufficient_quota")
    error, _ = await _error_of(
        Fault.status(400, message="Too long.", code="context_length_exceeded"), "chat", streams=True
    )
    assert (error.code, error.body["message"]) == ("context_length_exceeded", "Too long.")
    error, _ = await _error_of(Fault.status(529), "messages", streams=True)
    assert error.body["error"] == {"type": "overloaded_error", "message": "Overloaded"}


# Connections --------------------------------------------------------------------------------------------------------


@EACH
@STREAMS
@pytest.mark.parametrize(
    ("how", "after"), [("close", None), ("close", 0), ("close", 2), ("close", 99), ("reset", None), ("reset", 2)]
)
async def test_a_lost_connection_is_an_error(api: str, streams: bool, how: Any, after: int | None) -> None:
    """It is lost before the status, before the first piece, in the middle, or after the last piece."""
    error, server = await _error_of(Fault.cut(after, how=how, of=TEXT), api, streams=streams)

    # The client of Messages passes on errors of its transport in the middle of a stream.
    cause = error.__cause__ if type(error).__name__ == "APIConnectionError" else error
    assert type(cause).__name__ == ("ReadError" if how == "reset" else "RemoteProtocolError")
    call = server.calls[0]
    assert call.status == (None if after is None else 200)
    assert not call.was_closed
    if streams and how == "close":
        assert call.text == TEXT[: 4 * (after or 0)]


@EACH
async def test_a_body_that_ends_too_early_may_look_like_a_whole_one(api: str) -> None:
    """No client raises an error, so a reader of a stream must look for its last event."""
    async with FakeModelServer([Fault.cut(2, how="end", of=TEXT)]) as server, client_of(server, api) as client:
        if api == "responses":
            stream = await client.responses.create(**asked(api), stream=True)
            assert [event.type async for event in stream][-1] == "response.output_text.delta"
        elif api == "chat":
            stream = await client.chat.completions.create(**asked(api), stream=True)
            assert [chunk.choices[0].finish_reason async for chunk in stream][-1] is None
        else:
            async with stream_of(client, api) as stream:
                assert (await stream.get_final_message()).stop_reason is None


@EACH
@STREAMS
@pytest.mark.parametrize("after", [None, 0, 3])
async def test_who_gives_up_on_a_server_that_hangs_is_seen(api: str, streams: bool, after: int | None) -> None:
    """A cancelled call closes its connection, which only the server can observe."""
    async with FakeModelServer([Fault.hang(after, of=TEXT)]) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_swallow, server, api, streams)
            assert await server.until_called()
            assert server.calls[0].ended is None
            tasks.cancel_scope.cancel()
        assert await server.until_closed(server.calls[0])


@EACH
async def test_who_hangs_up_between_two_tokens_is_seen(api: str) -> None:
    """At once, and not only at the next write, which after the last token would never come."""
    async with FakeModelServer([ModelAnswer(TEXT, tokens_per_second=0.001)]) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_swallow, server, api, True)
            assert await server.until_called()
            tasks.cancel_scope.cancel()
        assert await server.until_closed(server.calls[0])
    assert server.calls[0].text == ""


async def _swallow(server: FakeModelServer, api: str, streams: bool) -> None:
    await ask(server, api, streams=streams)


@EACH
async def test_pieces_arrive_while_the_server_still_speaks(api: str) -> None:
    """Otherwise a plan could not start before its end, which never comes here."""
    async with FakeModelServer([Fault.hang(2, of=TEXT)]) as server, client_of(server, api) as client:
        seen = ""
        async with stream_of(client, api) as stream:
            async for event in stream:
                if event.type in {"response.output_text.delta", "content.delta", "text"}:
                    seen = event.snapshot
                if seen == TEXT[:8]:
                    break
        await anyio.wait_all_tasks_blocked()
        assert await server.until_closed(server.calls[0])
    assert server.calls[0].text == TEXT[:8]


@EACH
async def test_a_server_that_stops_leaves_nobody_hanging(api: str) -> None:
    """No thread is left either: the next test would fail."""
    errors = []

    async def ask_in_vain(server: FakeModelServer) -> None:
        with pytest.raises(Exception) as caught:  # noqa: PT011 (any error is right)
            await ask(server, api)
        errors.append(caught.value)

    async with anyio.create_task_group() as tasks, FakeModelServer([Fault.hang(), Fault.hang(1)]) as server:
        tasks.start_soon(ask_in_vain, server)
        tasks.start_soon(ask_in_vain, server)
        assert await server.until_called(2)
    assert len(errors) == 2
    assert not any(call.was_closed for call in server.calls)
    assert all(call.ended is not None for call in server.calls)


async def test_waiting_for_what_does_not_come_ends() -> None:
    """A false claim must fail a test, not hang it."""
    async with FakeModelServer(["x"]) as server:
        assert not await server.until_called(1, seconds=0.01)
        await ask(server, "chat")
        assert not await server.until_closed(server.calls[0])


# Answers that are none ----------------------------------------------------------------------------------------------


@EACH
@STREAMS
async def test_broken_json_is_an_error(api: str, streams: bool) -> None:
    """Both clients pass on the errors of their JSON readers."""
    error, _ = await _error_of(Fault.malformed(2, of=TEXT), api, streams=streams)
    assert isinstance(error, ValueError)


def test_one_event_is_broken_and_the_rest_goes_on() -> None:
    """A client that skips unreadable events would return a text with a gap."""
    with FakeModelServer([Fault.malformed(2, of=TEXT)]) as server:
        answer = httpx.post(f"{server.base_url}/chat/completions", json={"stream": True, "messages": []})
    text, broken = "", 0
    for line in [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]:
        try:
            text += json.loads(line)["choices"][0]["delta"].get("content", "")
        except ValueError:
            broken += 1
    assert (text, broken) == (TEXT[:8] + TEXT[12:], 1)


@EACH
@pytest.mark.parametrize("fault", [Fault.failed(2, of=TEXT), Fault.error(2, of=TEXT)], ids=["failed", "error"])
async def test_an_error_in_a_stream_is_reported_in_the_words_of_the_api(api: str, fault: Fault) -> None:
    """Responses has events for it, which raise no error; the other APIs have an error object."""
    if api == "responses":
        async with FakeModelServer([fault]) as server, client_of(server, api) as client:
            stream = await client.responses.create(**asked(api), stream=True)
            last = [event async for event in stream][-1]
        assert last.type in {"response.failed", "error"}
        reported = last.response.error if last.type == "response.failed" else last
        assert (reported.code, reported.message) in {
            ("server_error", "The model failed."),
            ("overloaded_error", "Overloaded"),
        }
    else:
        error, _ = await _error_of(fault, api, streams=True)
        assert "The model failed." in str(error) or "Overloaded" in str(error)


async def test_a_response_can_fail_with_status_200() -> None:
    """So clients must also check the status of a response."""
    async with FakeModelServer([Fault.failed(code="server_error")]) as server, client_of(server, "responses") as client:
        response = await client.responses.create(**asked("responses"))
    assert (response.status, response.error.code, response.output) == ("failed", "server_error", [])


@EACH
@pytest.mark.parametrize("fault", [Fault.not_sse(), Fault.empty()], ids=["page", "empty"])
async def test_what_is_no_stream_has_no_events(api: str, fault: Fault) -> None:
    """The clients raise no error: they see an empty stream."""
    async with FakeModelServer([fault]) as server, client_of(server, api) as client:
        if api == "messages":
            stream = await client.messages.create(**asked(api), stream=True)
        else:
            part = client.responses if api == "responses" else client.chat.completions
            stream = await part.create(**asked(api), stream=True)
        assert [event async for event in stream] == []
    assert server.calls[0].status == 200


async def test_a_page_can_be_anything() -> None:
    """It covers cases that the other faults do not."""
    page = Fault.page('{"choices": []}', "application/json")
    async with FakeModelServer([page]) as server, client_of(server, "chat") as client:
        completion = await client.chat.completions.create(**asked("chat"))
    assert completion.choices == []


# Lesser servers -----------------------------------------------------------------------------------------------------


@EACH
async def test_an_api_that_is_not_there_is_not_found(api: str) -> None:
    """Most compatible servers have only Chat Completions."""
    async with FakeModelServer([TEXT], apis=()) as server:
        with pytest.raises(Exception, match="Invalid URL") as caught:
            await ask(server, api)
    assert type(caught.value).__name__ == "NotFoundError"


@EACH
@pytest.mark.parametrize("structure", ["schema", "tool", "json"])
async def test_a_structure_that_is_not_known_is_a_bad_request(api: str, structure: Any) -> None:
    """The error names the structure, and uses no act of the script."""
    if (api, structure) == ("messages", "json"):
        return  # it has no JSON mode
    others: list[Structure] = [name for name in get_args(Structure) if name != structure]
    async with FakeModelServer([TEXT, "another"], structures=others) as server:
        with pytest.raises(Exception, match="not support") as caught:
            await ask(server, api, structure)
        assert (await ask(server, api)).text == TEXT
    assert type(caught.value).__name__ == "BadRequestError"


async def test_models_are_listed_and_others_are_not_found() -> None:
    """In the format of the provider whose client asks."""
    async with FakeModelServer([TEXT], models=["small", "large"]) as server:
        for api in ("chat", "messages"):
            async with client_of(server, api) as client:
                assert [model.id async for model in client.models.list()] == ["small", "large"]
            with pytest.raises(Exception, match="`m` does not exist") as caught:
                await ask(server, api)
            assert type(caught.value).__name__ == "NotFoundError"


@STREAMS
async def test_a_schema_can_be_taken_and_forgotten(streams: bool) -> None:
    """As in the Responses API of llama.cpp, whose events lack fields that the helper of the client needs."""
    async with FakeModelServer(['{"steps": []}'], ignores_schema=True) as server:
        async with client_of(server, "responses") as client:
            answer = await client.responses.create(**asked("responses", "schema"), stream=streams)
            text = (
                "".join([event.delta async for event in answer if event.type.endswith("text.delta")]) if streams else ""
            )
        assert (text or answer.output_text) == 'Here is what you asked for:\n\n```json\n{"steps": []}\n```\n'
        assert await ask(server, "chat", "schema") == Said('{"steps": []}', "stop", (100, 50, 0))
    assert server.calls[0].structure == "schema"


# What is no call of a model -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000], ids=["cut", "list", "bytes", "deep"])
def test_a_body_that_is_no_object_is_a_bad_request(body: bytes) -> None:
    """The server continues to serve."""
    with FakeModelServer([TEXT]) as server, httpx.Client() as client:
        for _ in range(2):
            assert client.post(f"{server.base_url}/responses", content=body).status_code == 400
        assert client.post(f"{server.base_url}/responses", json={}).json()["output"][0]["content"][0]["text"] == TEXT


@pytest.mark.parametrize(
    "body",
    [
        {"model": 7, "input": 7, "tools": 7, "tool_choice": "required", "instructions": 7, "text": 7},
        {"messages": [7, {"role": None, "content": [7, {"text": None}]}], "tools": [7], "tool_choice": {"type": "any"}},
        {"messages": {}, "response_format": 7, "tool_choice": {"type": "function"}, "tools": [{"function": 7}]},
    ],
)
@pytest.mark.parametrize("path", ["responses", "chat/completions", "messages"])
def test_nonsense_is_answered_all_the_same(body: dict[str, Any], path: str) -> None:
    """The server does not validate: it ignores the parts of a request that it cannot read."""
    with FakeModelServer([TEXT]) as server:
        assert httpx.post(f"{server.base_url}/{path}", json=body).status_code == 200


def test_other_paths_and_methods_are_not_found_and_remembered() -> None:
    """The recorded calls show a wrong address."""
    with FakeModelServer([TEXT]) as server:
        assert httpx.get(f"{server.base_url}/responses?key=secret").status_code == 404
        assert httpx.post(f"{server.base_url}/v1/responses", json={}).status_code == 404
    assert [(call.method, call.path, call.api) for call in server.calls] == [
        ("GET", "/v1/responses", None),
        ("POST", "/v1/v1/responses", None),
    ]


def test_who_keeps_a_connection_and_says_nothing_is_let_go_at_the_end() -> None:
    """Clients with a pool keep connections, and a thread waits there for the next request."""
    with FakeModelServer([TEXT]) as server:
        quiet = socket.create_connection(("127.0.0.1", int(server.anthropic_url.rsplit(":", 1)[1])))
        quiet.sendall(b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert quiet.recv(12) == b"HTTP/1.1 200"
    with quiet:
        while quiet.recv(1000):
            pass  # the rest of the answer, and then the end


def test_who_does_not_read_is_let_go_at_the_end() -> None:
    """A thread waits until the connection can take more data; the server must end it."""
    with FakeModelServer([ModelAnswer("x" * 30_000_000, piece=10_000)]) as server:
        deaf = socket.create_connection(("127.0.0.1", int(server.anthropic_url.rsplit(":", 1)[1])))
        request = b'{"stream": true, "model": "m", "input": ""}'
        deaf.sendall(b"POST /v1/responses HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(request), request))
        while b"output_text.delta" not in deaf.recv(10_000):
            pass
        time.sleep(0.2)  # by now the connection is full; otherwise the test proves less
    deaf.close()
    (call,) = server.calls
    assert call.ended is not None
    assert not call.was_closed
    assert 0 < len(call.sent) < 3000
