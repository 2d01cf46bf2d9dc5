"""`FakeModelServer` uses the wire formats: the real clients understand it, and it records their calls."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from typing import Any

import anyio
import httpx
import pytest
from pydantic import TypeAdapter

from dagrun.testing import FakeModelServer, Fault, ModelAnswer, RecordedCall
from model_clients import APIS, DROPS_GENERATORS, SCHEMA, Said, ask, asked, client_of

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.real_time,
    pytest.mark.rigs,
    pytest.mark.filterwarnings(DROPS_GENERATORS),
]

PLAN = '{"steps": ["load", "sum up Zürich ☃", "report"]}'
STREAMS = pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
EACH = pytest.mark.parametrize("api", APIS)
PATHS = {"responses": "/v1/responses", "chat": "/v1/chat/completions", "messages": "/v1/messages"}
STOPS = {
    "responses": {
        "end": "completed",
        "length": "max_output_tokens",
        "refused": "refusal",
        "filtered": "content_filter",
    },
    "chat": {"end": "stop", "length": "length", "refused": "refusal", "filtered": "content_filter"},
    "messages": {"end": "end_turn", "length": "max_tokens", "refused": "refusal", "filtered": "refusal"},
}


# The wire formats ---------------------------------------------------------------------------------------------------


@EACH
@STREAMS
@pytest.mark.parametrize("piece", [1, 1000])
async def test_clients_read_the_text_whatever_its_pieces(api: str, streams: bool, piece: int) -> None:
    """The helpers of the clients assemble the stream."""
    async with FakeModelServer([ModelAnswer(PLAN, piece=piece, usage=(12, 3))]) as server:
        said = await ask(server, api, streams=streams)

    assert (said.text, said.stop, said.tool) == (PLAN, STOPS[api]["end"], None)
    assert said.usage == (12, 3, 0)
    assert server.calls[0].text == PLAN
    assert len(server.calls[0].sent) == (-(-len(PLAN) // piece) if streams else 1)


@EACH
@STREAMS
@pytest.mark.parametrize("structure", ["schema", "tool", "json"])
async def test_the_way_to_ask_for_a_structure_is_seen(api: str, streams: bool, structure: str) -> None:
    """A forced tool gets the text as its arguments; the record names the structure and its schema."""
    async with FakeModelServer([PLAN]) as server:
        said = await ask(server, api, structure, streams=streams)

    call, is_tool = server.calls[0], structure == "tool"
    seen = None if (api, structure) == ("messages", "json") else structure  # Messages has no JSON mode
    assert (call.structure, call.tool) == (seen, "create_plan" if is_tool else None)
    assert call.schema == (SCHEMA if structure in {"schema", "tool"} else None)
    assert said.tool == call.tool
    assert said.text == (json.loads(PLAN) if is_tool and api == "messages" else PLAN)


@EACH
@STREAMS
@pytest.mark.parametrize("stop", ["end", "length", "refused", "filtered"])
async def test_clients_see_why_an_answer_ended(api: str, streams: bool, stop: Any) -> None:
    """Each API names the reasons differently."""
    async with FakeModelServer([ModelAnswer("I would rather", stop=stop)]) as server:
        said = await ask(server, api, streams=streams)

    assert (said.text, said.stop) == ("I would rather", STOPS[api][stop])


@EACH
@STREAMS
async def test_usage_is_counted_as_each_api_counts(api: str, streams: bool) -> None:
    """Messages does not count cached tokens as input; a server may report nothing."""
    async with FakeModelServer([ModelAnswer(PLAN, usage=(100, 7), cached=60), ModelAnswer(PLAN, usage=None)]) as server:
        counted = await ask(server, api, streams=streams)
        silent = await ask(server, api, streams=streams)

    assert counted.usage == (40 if api == "messages" else 100, 7, 60)
    assert silent.usage in {None, (None, None, None)}


@EACH
@STREAMS
async def test_thinking_comes_before_the_answer_and_is_no_part_of_it(api: str, streams: bool) -> None:
    """The answer is then not the first item."""
    async with FakeModelServer([ModelAnswer(PLAN, thinking="Let me see.")]) as server:
        said = await ask(server, api, "tool", streams=streams)

    assert said.tool == "create_plan"
    assert said.text == (json.loads(PLAN) if api == "messages" else PLAN)


@EACH
@STREAMS
async def test_a_model_may_call_a_tool_of_its_own_accord(api: str, streams: bool) -> None:
    """Loops of tools send the tools, and force none."""
    async with FakeModelServer([ModelAnswer('{"x": 1}', tool="search")]) as server:
        said = await ask(server, api, streams=streams)

    stops = {"responses": "completed", "chat": "tool_calls", "messages": "tool_use"}
    assert (said.tool, said.stop) == ("search", stops[api])
    assert server.calls[0].structure is None


@EACH
@pytest.mark.parametrize("structure", [None, "tool"])
@pytest.mark.parametrize("stop", list(STOPS["chat"]))
def test_every_event_is_what_the_client_declares(api: str, structure: str | None, stop: Any) -> None:
    """The clients are lenient; here each event must be valid, with all required fields."""
    act = ModelAnswer(PLAN, stop=stop, thinking="So.")
    with FakeModelServer([act]) as server:
        *events, last = _raw(server, api, structure)
        if last != "[DONE]":
            events, last = [*events, last], last["type"]

    for event in events:
        _validate(api, event)
    if api == "responses":
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
    ends = {
        "responses": {"response.completed", "response.incomplete"},
        "chat": {"[DONE]"},
        "messages": {"message_stop"},
    }
    assert last in ends[api]
    assert len(events) > 8


@pytest.mark.parametrize("fault", [Fault.failed(1), Fault.error(1)], ids=["failed", "error"])
def test_failures_in_a_stream_are_what_the_client_declares(fault: Fault) -> None:
    """For Responses, the only API that has types for them."""
    with FakeModelServer([fault]) as server:
        for event in _raw(server, "responses", None):
            _validate("responses", event)


@EACH
@pytest.mark.parametrize("structure", [None, "tool"])
def test_every_whole_answer_is_what_the_client_declares(api: str, structure: str | None) -> None:
    """Like the events, it must be valid."""
    from anthropic.types import Message
    from openai.types.chat import ChatCompletion
    from openai.types.responses import Response

    declared: Any = {"responses": Response, "chat": ChatCompletion, "messages": Message}[api]
    with FakeModelServer([PLAN]) as server:
        answer = httpx.post(server.anthropic_url + PATHS[api], json=asked(api, structure))

    declared.model_validate(answer.json())


def _raw(server: FakeModelServer, api: str, structure: str | None) -> list[Any]:
    answer = httpx.post(server.anthropic_url + PATHS[api], json=asked(api, structure) | {"stream": True})
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def _validate(api: str, event: dict[str, Any]) -> None:
    if event.get("type") != "ping":  # the client removes it before it validates
        _declared(api).validate_python(event)


@functools.cache
def _declared(api: str) -> TypeAdapter[Any]:
    from anthropic.types import RawMessageStreamEvent
    from openai.types.chat import ChatCompletionChunk
    from openai.types.responses import ResponseStreamEvent

    declared: Any = {"responses": ResponseStreamEvent, "chat": ChatCompletionChunk, "messages": RawMessageStreamEvent}
    return TypeAdapter(declared[api])


# What is remembered -------------------------------------------------------------------------------------------------


@EACH
async def test_a_call_is_remembered_without_its_key(api: str) -> None:
    """A failed test prints the call, so the call must not hold a key."""
    async with FakeModelServer([PLAN]) as server:
        await ask(server, api)

    (call,) = server.calls
    assert (call.number, call.api, call.path, call.model, call.status) == (0, api, PATHS[api], "m", 200)
    assert call.streams
    assert call.turns == (("system", "You plan."), ("user", "Plan it."))
    assert call.prompt == "You plan.\n\nPlan it."
    assert call.headers["authorization"] == "[redacted]"
    assert "sk-secret" not in repr(call)
    assert not call.was_closed


@EACH
async def test_tokens_come_no_faster_than_asked(api: str) -> None:
    """The times of sending are recorded, so that benchmarks can compare with them."""
    async with FakeModelServer([ModelAnswer("abcdefgh", piece=2, tokens_per_second=100, delay=0.01)]) as server:
        await ask(server, api)

    (call,) = server.calls
    assert [piece.text for piece in call.sent] == ["ab", "cd", "ef", "gh"]
    assert call.sent_at(0) >= call.arrived + 0.01 + 1 / 100
    assert call.sent_at(7) >= call.arrived + 0.01 + 4 / 100
    assert call.sent_at(2) == call.sent_at(3) == call.sent[1].at
    with pytest.raises(LookupError, match="character 8"):
        call.sent_at(8)


# Scripts ------------------------------------------------------------------------------------------------------------


async def test_the_last_act_goes_on_for_ever() -> None:
    """Like the acts of a stand-in."""
    async with FakeModelServer(["one", "two"]) as server:
        said = [(await ask(server, api)).text for api in ("chat", "messages", "responses")]

    assert said == ["one", "two", "two"]


async def test_a_function_answers_what_was_asked() -> None:
    """A planner that continues its own answer needs a server that reads requests."""

    def answer(call: RecordedCall) -> ModelAnswer:
        return ModelAnswer(f"{call.api}: {len(call.prompt)}", stop="length" if call.streams else "end")

    async with FakeModelServer(answer) as server:
        assert await ask(server, "chat") == Said("chat: 19", "length", (100, 50, 0))
        assert await ask(server, "messages", streams=False) == Said("messages: 19", "end_turn", (100, 50, 0))


@pytest.mark.parametrize("mistake", [lambda call: 1 / 0, lambda call: 7], ids=["raises", "no-act"])
async def test_a_mistake_in_a_script_comes_out_at_the_end(mistake: Any) -> None:
    """A client would see only status 500, and a planner would take it for a passing fault."""
    import openai

    server = FakeModelServer(mistake).__enter__()
    with pytest.raises(openai.InternalServerError):
        await ask(server, "chat")
    with pytest.raises((ZeroDivisionError, TypeError)):
        server.__exit__(None, None, None)


async def test_calls_are_answered_side_by_side() -> None:
    """Each call waits for the arrival of all others, so served one after another they would never end."""
    many = 12

    def answer(call: RecordedCall) -> str:
        assert server.wait_until_called(many, 30)
        return str(call.number)

    said = []

    async with FakeModelServer(answer) as server, client_of(server, "chat") as client:

        async def one() -> None:
            completion = await client.chat.completions.create(**asked("chat"))
            said.append(completion.choices[0].message.content)

        async with anyio.create_task_group() as tasks:
            for _ in range(many):
                tasks.start_soon(one)

    assert sorted(said, key=int) == [str(number) for number in range(many)]


@pytest.mark.parametrize(
    ("answers", "options", "says"),
    [
        ([], {}, "at least one act"),
        ("text", {}, "a list"),
        (["x"], {"apis": ["chats"]}, "chats: there are responses, chat"),
        (["x"], {"structures": ["grammar"]}, "grammar: there are schema"),
    ],
)
def test_a_server_that_cannot_be_is_refused(answers: Any, options: Any, says: str) -> None:
    """A typing error would make a server that always answers 404."""
    with pytest.raises(ValueError, match=says):
        FakeModelServer(answers, **options)


def test_clients_without_a_loop_are_served_and_addresses_are_known_only_inside() -> None:
    """It runs in threads, and can be started again after its end."""
    import openai

    server = FakeModelServer(["Hello."])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="inside of"):
            _ = server.base_url
        with server, openai.OpenAI(base_url=server.base_url, api_key="x", max_retries=0) as client:
            assert server.environment["OPENAI_BASE_URL"] == server.base_url
            assert client.responses.create(model="m", input="Hi.").output_text == "Hello."
            with pytest.raises(RuntimeError, match="running already"):
                server.__enter__()


@pytest.mark.rigs
def test_who_needs_the_clock_does_not_pay_for_the_server() -> None:
    """Importing `dagrun.testing` loads none of its parts."""
    code = (
        "import sys, dagrun.testing as t; assert not {'http.server', 'anyio', 'networkx'} & set(sys.modules); t.Fault"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
