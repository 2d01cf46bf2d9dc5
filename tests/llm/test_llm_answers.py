"""Answers of models over real HTTP, by the real libraries: pieces, structure, usage, cost, and what is charged."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from dagrun import AnthropicModel, OpenAIModel
from dagrun.errors import ContractError, ModelError, OverCeiling
from dagrun.extend import LanguageModel, Message, Request, Usage
from dagrun.llm.language_model import Structure, ask
from dagrun.testing import FakeModelServer, Fault, ModelAnswer
from model_calls import EVERYBODY, FORM, HELLO, NAME, PLAN, Speaks, chat_page, metered, model_at, said_by

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]

everybody = pytest.mark.parametrize("speaks", EVERYBODY)


@everybody
async def test_an_answer_comes_in_pieces_and_ends_with_a_reply(speaks: Speaks) -> None:
    """A planner reads while the model writes; at the end it knows what the call has used and cost."""
    answer = ModelAnswer("Good morning, dear friend.", piece=5, usage=(1000, 200), cached=400)
    with FakeModelServer([answer]) as server:
        pieces, reply = await said_by(model_at(server, speaks), HELLO)

    assert pieces == list(answer.pieces)
    assert (reply.text, reply.stop, reply.structure, reply.model) == (answer.text, "end", None, NAME)
    assert reply.usage == Usage(1000, 200, 400), "cached ones included, though Anthropic counts them apart"
    assert reply.cost == pytest.approx((600 * 2.0 + 400 * 1.0 + 200 * 10.0) / 1e6)
    (call,) = server.calls
    assert call.turns == (("system", "Be kind."), ("user", "Say hello."))
    assert (call.structure, call.api) == (None, speaks)


@everybody
@pytest.mark.parametrize("structure", ["schema", "tool", "json"])
async def test_structure_is_asked_for_in_three_ways(speaks: Speaks, structure: Structure) -> None:
    """Each can be forced; each gives the JSON text and nothing else, whatever it is wrapped in on the wire."""
    with FakeModelServer(['{"number": 12}']) as server:
        pieces, reply = await said_by(model_at(server, speaks, structure=structure), PLAN)

    assert "".join(pieces) == reply.text == '{"number": 12}'
    assert (reply.structure, reply.stop) == (structure, "end")
    (call,) = server.calls
    if structure == "json":
        assert json.dumps(FORM.schema, separators=(",", ":")) in call.prompt
        assert "JSON" in call.turns[-1][1], "OpenAI looks for the word in what the user says"
        assert call.structure == (None if speaks == "messages" else "json")
    else:
        assert (call.structure, call.schema) == (structure, FORM.schema)
        assert "properties" not in call.prompt
        assert call.tool == ("create_plan" if structure == "tool" else None)


@everybody
async def test_fences_are_taken_off(speaks: Speaks) -> None:
    """A model that was asked for JSON in words likes to put it between fences."""
    with FakeModelServer([ModelAnswer('```json\n{"number": 12}\n```\n', piece=3)]) as server:
        pieces, reply = await said_by(model_at(server, speaks, structure="json"), PLAN)

    assert "".join(pieces) == reply.text == '{"number": 12}'


@everybody
async def test_the_way_an_answer_ends_is_told(speaks: Speaks) -> None:
    """Half a plan must not be taken for a plan, and a model that does not want to must not be asked to repair."""
    ends = [ModelAnswer("Half", stop="length"), ModelAnswer("No.", stop="refused"), ModelAnswer("Ha", stop="filtered")]
    with FakeModelServer(ends) as server:
        model = model_at(server, speaks)
        replies = [(reply.stop, reply.text) for reply in [await ask(model, HELLO) for _ in ends]]

    assert replies == [("length", "Half"), ("refused", "No."), ("refused", "Ha")]


@everybody
async def test_thoughts_are_no_part_of_an_answer(speaks: Speaks) -> None:
    """Some models think aloud before they answer, and think in braces."""
    with FakeModelServer([ModelAnswer('{"number": 1}', thinking='Perhaps {"number": 3}?')]) as server:
        reply = await ask(model_at(server, speaks), PLAN)

    assert reply.text == '{"number": 1}'


async def test_words_in_place_of_a_forced_tool_are_used_if_nothing_else_comes() -> None:
    """A server that does not force tools lets the model answer in words, which may hold what was wanted."""
    chunks = [{"content": '{"number"'}, {"content": ": 7}"}]
    call = {"function": {"name": "create_plan", "arguments": '{"number": 8}'}}
    pages = [chat_page(*chunks), chat_page(*chunks, {"tool_calls": [call, {**call, "index": 1}]})]
    with FakeModelServer(pages) as server:
        model = model_at(server, "chat", structure="tool")
        texts = ["".join((await said_by(model, PLAN))[0]) for _ in pages]

    assert texts == ['{"number": 7}', '{"number": 8}']


@everybody
async def test_a_server_that_does_not_say_what_was_used_is_charged_as_unknown(speaks: Speaks) -> None:
    """Unknown is never 0: the meter decides, and takes the worst."""
    with metered() as till, FakeModelServer([ModelAnswer("Hello.", usage=None)]) as server:
        reply = await ask(model_at(server, speaks), HELLO)

    assert reply.cost is None
    assert reply.usage.total is None
    assert till.settled == [(None, None)]


@everybody
async def test_a_call_is_reserved_at_its_worst_and_settled_by_its_usage(speaks: Speaks) -> None:
    """A token for three letters, one for any other character, and the ceiling of the answer."""
    with metered() as till, FakeModelServer([ModelAnswer('{"number": 1}', usage=(300, 40))]) as server:
        reply = await ask(model_at(server, speaks), PLAN)

    text = json.dumps(server.calls[0].body, ensure_ascii=False)
    letters = sum(character.isascii() and (character.isalpha() or character.isspace()) for character in text)
    sent = len(text) - letters + letters / 3
    ((who, tokens, cost),) = till.reserved
    assert who == NAME
    assert tokens is not None
    assert sent + 500 <= tokens <= sent + 500 + 2_000
    assert cost == pytest.approx(((tokens - 500) * 2.0 + 500 * 10.0) / 1e6)
    assert till.settled == [(340, reply.cost)]
    assert reply.cost == pytest.approx((300 * 2.0 + 40 * 10.0) / 1e6)


async def test_a_call_that_does_not_fit_is_not_made() -> None:
    with metered(room=100) as till, FakeModelServer(["Hello."]) as server, pytest.raises(OverCeiling):
        await ask(model_at(server, "responses"), HELLO)

    assert (server.calls, till.reserved) == ([], [])


async def test_what_was_used_is_charged_before_the_reply_is_handed_out() -> None:
    """Who has read the reply looks at the meter next, and only then closes the stream."""
    with metered() as till, FakeModelServer([ModelAnswer("Hello.", usage=(5, 3))]) as server:
        stream = model_at(server, "chat").stream(HELLO)
        pieces = [await anext(stream) for _ in range(3)]
        assert till.settled == [(8, (5 * 2.0 + 3 * 10.0) / 1e6)], pieces
        await stream.aclose()


async def test_a_model_is_a_language_model() -> None:
    """The type checker compares the signatures; this compares the rest."""
    with FakeModelServer(["Hello."]) as server:
        models: list[LanguageModel] = [model_at(server, speaks) for speaks in EVERYBODY]
        assert [model.name for model in models] == [NAME] * 3


@everybody
async def test_calls_that_overlap_share_a_client_and_the_last_one_out_closes_it(speaks: Speaks) -> None:
    """Nothing stays open behind a model that nobody closes: the fixtures of all tests would notice."""
    with FakeModelServer([ModelAnswer("Hello.", delay=0.05)]) as server:
        model = model_at(server, speaks)
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(ask, model, HELLO)

    assert len(server.calls) == 5


@everybody
async def test_connections_are_used_again_inside_of_async_with(speaks: Speaks) -> None:
    """A planner that asks ten times in a row should shake hands once."""
    opened: list[str] = []

    async def trace(name: str, _info: Any) -> None:
        if name.endswith("connect_tcp.complete"):
            opened.append(name)

    async def watch(request: httpx2.Request) -> None:
        request.extensions["trace"] = trace

    with FakeModelServer(["Hello."]) as server:
        async with httpx2.AsyncClient(event_hooks={"request": [watch]}) as client:
            model = model_at(server, speaks, http_client=client)
            for _ in range(3):
                await ask(model, HELLO)

    assert len(server.calls) == 3
    assert len(opened) == 1


async def test_a_connection_is_used_again_though_its_answer_ends_late() -> None:
    """The last words of an answer, and the end of its body, come in two packets."""
    connects: list[SocketStream] = []
    answer = b'data: {"choices": [{"delta": {"content": "Hello."}}]}\n\ndata: [DONE]\n\n'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def serve(stream: SocketStream) -> None:
        connects.append(stream)
        async with stream:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                while True:
                    while not (await stream.receive()).endswith(b"}"):
                        pass
                    await stream.send(head + b"%x\r\n%s\r\n" % (len(answer), answer))
                    await anyio.sleep(0.02)
                    await stream.send(b"0\r\n\r\n")

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(SocketAttribute.local_port)
        async with OpenAIModel("any", base_url=f"http://127.0.0.1:{port}/v1", api="chat") as model:
            texts = [(await ask(model, HELLO)).text for _ in "123"]
        tasks.cancel_scope.cancel()

    assert texts == ["Hello."] * 3
    assert len(connects) == 1


async def test_a_model_that_is_held_open_is_closed_at_the_end() -> None:
    with FakeModelServer(["Hello."]) as server:
        model = model_at(server, "responses")
        async with model, model:
            await ask(model, HELLO)
            await ask(model, HELLO)
        await ask(model, HELLO)

    assert len(server.calls) == 3


async def test_a_client_of_the_host_stays_open() -> None:
    """Who has made it closes it; httpx will do, too, for OpenAI."""
    import httpx

    with FakeModelServer(["Hello."]) as server:
        async with httpx.AsyncClient() as old, httpx2.AsyncClient() as new:
            for client in (old, new):
                await ask(model_at(server, "chat", http_client=client), HELLO)
                assert not client.is_closed
            with pytest.raises(ContractError, match="httpx2"):
                model_at(server, "messages", http_client=old)
            with pytest.raises(ContractError, match="httpx"):
                model_at(server, "chat", http_client=object())


def test_a_model_works_on_one_loop_after_the_other() -> None:
    """A connection belongs to its loop: a client that was kept from a dead one fails, or hangs."""
    with FakeModelServer(["Hello."]) as server:
        model = model_at(server, "responses")
        for backend in ("asyncio", "trio", "asyncio"):
            assert anyio.run(ask, model, HELLO, backend=backend).text == "Hello."


async def test_the_key_comes_from_the_environment_or_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key the address of a server must be given, and then a placeholder is sent."""
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "ANTHROPIC_"))]:
        monkeypatch.delenv(name)
    for make, name in ((OpenAIModel, "OPENAI_API_KEY"), (AnthropicModel, "ANTHROPIC_API_KEY")):
        with pytest.raises(ContractError, match=name):
            make("some-model")
        monkeypatch.setenv(name, "secret")
        make("some-model")
        monkeypatch.delenv(name)
    with FakeModelServer(["Hello."]) as server:
        for name, url in server.environment.items():
            if name.endswith("_URL"):
                monkeypatch.setenv(name, url)
        for model in (OpenAIModel("some-model"), AnthropicModel("some-model")):
            assert (await ask(model, HELLO)).text == "Hello."

    assert [call.path for call in server.calls] == ["/v1/responses", "/v1/messages"]


async def test_no_other_key_of_the_environment_goes_to_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library knows keys of administrators, too, and would send one to whoever asks for none."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "admin")
    sent: list[str] = []

    async def watch(request: httpx2.Request) -> None:
        sent.append(request.headers["authorization"])

    with FakeModelServer(["Hello."]) as server:
        async with httpx2.AsyncClient(event_hooks={"request": [watch]}) as client:
            await ask(OpenAIModel("any", base_url=server.base_url, http_client=client), HELLO)

    assert sent == ["Bearer none"]


@pytest.mark.parametrize(
    "options",
    [
        {"api": "soap"},
        {"structure": "xml"},
        {"timeout": 0},
        {"max_seconds": float("inf")},
        {"base_url": "file:///etc/passwd"},
        {"prices": {"m": {"input_per_mtok": -1, "output_per_mtok": 1}}},
    ],
)
async def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        OpenAIModel("some-model", **{"api_key": "any", **options})


async def test_text_that_cannot_be_sent_is_sent_without_what_is_wrong() -> None:
    """Half a surrogate pair in a goal is no reason to fail."""
    with FakeModelServer(["Hello."]) as server:
        asked = Request(system="a\ud800b", messages=(Message("user", "c\udfffd"),))
        await ask(model_at(server, "chat"), asked)

    assert server.calls[0].prompt == "a?b\n\nc?d"


async def test_a_refusal_names_neither_key_nor_more_than_a_sentence_of_the_body() -> None:
    """Servers repeat the key that they refuse, and bodies are long."""
    said = Fault.status(401, message="Incorrect API key provided: secret-key-of-tests. " + "x" * 5_000)
    with FakeModelServer([said]) as server:
        for speaks in EVERYBODY:
            with pytest.raises(ModelError) as caught:
                await ask(model_at(server, speaks), HELLO)
            assert "secret-key" not in str(caught.value)
            assert "Incorrect API key" in str(caught.value)
            assert len(str(caught.value)) < 400
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__
