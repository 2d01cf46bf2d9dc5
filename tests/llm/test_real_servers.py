"""What real servers and client libraries do, each played in the process of the test: an answer, or an error in words.

The names and versions are those in whose answers it was seen; `docs/reference/servers.md` has the table.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest

import dagrun
from dagrun import AnthropicModel, OpenAIModel
from dagrun.errors import ModelError
from dagrun.extend import Message, Request
from dagrun.llm import http_model
from dagrun.llm.http_model import HttpModel
from dagrun.llm.language_model import ask
from dagrun.llm.structured_answers import ask_in_form
from model_calls import FORM, HELLO, PLAN

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]  # the libraries ask for the platform in a thread

ANSWER = '{"number": 12}'


class Body(httpx2.AsyncByteStream):
    """A body in pieces; an error among them is raised in its place."""

    def __init__(self, *pieces: bytes | Exception) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


class Server:
    """Gives its answers one after another, the last for ever, and keeps the paths and bodies of its calls."""

    def __init__(self, *answers: Callable[[dict[str, Any]], httpx2.Response] | httpx2.Response | Exception) -> None:
        self._answers = list(answers)
        self.paths: list[str] = []
        self.bodies: list[dict[str, Any]] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.paths.append(request.url.path)
        self.bodies.append(json.loads(request.content))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else answer(self.bodies[-1])

    def model(self, api: str = "chat", **options: Any) -> HttpModel:
        """Return a model of this server."""
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(self))
        given: dict[str, Any] = {
            "base_url": "http://served/v1",
            "api_key": "secret-key",
            "http_client": client,
            **options,
        }
        if api == "messages":
            return AnthropicModel("m", **given)
        return OpenAIModel("m", api=api, **given)  # type: ignore[arg-type]


def streamed(*pieces: bytes | Exception) -> httpx2.Response:
    """Return an answer that is a stream of these bytes."""
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=Body(*pieces))


def sse(*events: Any, name: str = "") -> bytes:
    """Return events as they are sent."""
    head = f"event: {name}\n" if name else ""
    return "".join(f"{head}data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events).encode()


def chunk(delta: Any, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """Return a chunk of Chat Completions."""
    return {"object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}], **fields}


def said(text: str, *, usage: int = 5) -> httpx2.Response:
    """Return a good answer of Chat Completions."""
    usages = {"prompt_tokens": 9, "completion_tokens": usage}
    return streamed(sse(chunk({"content": text}), chunk({}, "stop", usage=usages), "[DONE]"))


def called(*pieces: dict[str, Any]) -> httpx2.Response:
    """Return an answer of Chat Completions with these pieces of tool calls."""
    return streamed(sse(*(chunk({"tool_calls": [piece]}) for piece in pieces), chunk({}, "tool_calls"), "[DONE]"))


def refused(status: int, body: Any, **headers: str) -> httpx2.Response:
    """Return a refusal."""
    return httpx2.Response(status, json=body, headers=headers)


@dagrun.tool(effect="read")
async def look() -> str:
    """Look it up."""
    return "42"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget what the process has learned of servers."""
    http_model._IGNORED.clear()
    yield
    http_model._IGNORED.clear()


# What a server ignores ------------------------------------------------------------------------------------------------


def in_words_only(body: dict[str, Any]) -> httpx2.Response:
    """Answer as transformers serve 5.24.0 does: response_format and tool_choice are ignored."""
    is_told = "valid against the JSON Schema" in json.dumps(body["messages"])
    return said(ANSWER if is_told else "Sure! The number is twelve.")


def forms_of(server: Server) -> list[str]:
    """Return the forms that were asked for."""
    return ["tool" if "tools" in b else b.get("response_format", {}).get("type", "none") for b in server.bodies]


async def test_a_form_that_is_ignored_is_put_in_words_from_then_on(caplog: pytest.LogCaptureFixture) -> None:
    """transformers serve 5.24.0: a second call in the same form would be ignored, too. It is said once for all."""
    server = Server(in_words_only)

    assert await ask_in_form(server.model(), PLAN, json.loads) == {"number": 12}
    assert (await ask(server.model(), PLAN)).text == ANSWER, "another model object of the process knows it"
    assert forms_of(server) == ["json_schema", "json_object", "json_object"]
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert told == ["m: the server seems to ignore the form of answers (schema); from now on, it is put in words"]


async def test_a_form_that_the_host_insists_on_is_not_left(caplog: pytest.LogCaptureFixture) -> None:
    """transformers serve 5.24.0. What is ignored is said all the same, and once."""
    for structure in ("schema", "tool"):
        server = Server(in_words_only)
        for model in (server.model(structure=structure), server.model(structure=structure)):
            assert "twelve" in (await ask(model, PLAN)).text
        assert len(set(forms_of(server))) == 1

    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [text.partition("; ")[2] for text in told] == ["structure='json' would put it in words"] * 2


@pytest.mark.parametrize(
    "text", ["{not JSON", "", " \n", 'Here it is: {"number": 12}'], ids=["broken", "empty", "blank", "prose"]
)
async def test_a_bad_answer_is_no_sign_that_the_form_is_ignored(text: str) -> None:
    server = Server(said(text))

    await ask(server.model(), PLAN)
    assert not http_model._IGNORED


async def test_a_planner_repairs_in_words_what_the_server_ignored() -> None:
    """transformers serve 5.24.0: before, the repair was asked for in the ignored form, and the run failed."""

    @dagrun.tool(effect="read")
    async def hello(name: str) -> str:
        """Say hello."""
        return f"hello {name}"

    plan = {"steps": [{"id": "s", "tool": "hello", "args": {"name": "Lima"}, "depends_on": []}], "confidence": 0.9}

    def answer(body: dict[str, Any]) -> httpx2.Response:
        is_told = "valid against the JSON Schema" in json.dumps(body["messages"])
        return said(json.dumps(plan) if is_told else "Sure! First call hello.")

    server = Server(answer)
    planner = dagrun.ModelPlanner(server.model(), dialect="lean")
    result = await dagrun.run(goal="Say hello to Lima", planner=planner, tools=[hello])

    assert (result.status, result.output) == ("succeeded", "hello Lima")
    assert forms_of(server) == ["json_schema", "json_object"]


CALL = {"name": FORM.name, "arguments": {"number": 12}}


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (json.dumps(CALL), ANSWER),
        (f"```json\n{json.dumps(CALL, indent=2)}\n```", ANSWER),
        (f"I call it.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>", ANSWER),
        (json.dumps({"type": "function", "function": {**CALL, "arguments": ANSWER}}), ANSWER),
        (json.dumps({**CALL, "name": "another"}), json.dumps({**CALL, "name": "another"})),
        (json.dumps({**CALL, "arguments": None}), json.dumps({**CALL, "arguments": None})),
        (f"I use {{x}} and {{}}: {json.dumps(CALL)}", ANSWER),
        (json.dumps({"tool": CALL}), json.dumps({"tool": CALL})),
        ("{" * 20 + json.dumps(CALL), "{" * 20 + json.dumps(CALL)),
        (ANSWER, ANSWER),
        (f"```\n{ANSWER}\n```", ANSWER),
    ],
)
async def test_a_call_in_words_is_unwrapped(words: str, meant: str) -> None:
    """llama.cpp's server (xllamacpp 2026.10.11549) ignores a named tool, and Qwen2.5-Coder writes the call."""
    assert (await ask(Server(said(words)).model(structure="tool"), PLAN)).text == meant


UNKNOWN_MODELS = {
    "litellm 1.108": (400, {"error": {"message": "/responses: Invalid model name passed in model=m. Call `/v1/models`",
                                      "type": "invalid_request_error", "param": None, "code": "400"}}),
    "Ollama": (404, {"error": {"message": 'model "m" not found, try pulling it first', "type": "api_error"}}),
    "vLLM": (404, {"error": {"message": "The model `m` does not exist.", "type": "NotFoundError", "code": 404}}),
    "OpenAI": (404, {"error": {"message": "no access to it", "code": "model_not_found"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN_MODELS)
async def test_an_unknown_model_is_one_call_and_one_status(name: str) -> None:
    """Whatever the server calls it: no other API and no other form would know the model."""
    status, body = UNKNOWN_MODELS[name]
    server = Server(refused(status, body))
    with pytest.raises(ModelError) as caught:
        await ask(server.model("auto"), PLAN)

    assert (len(server.bodies), caught.value.status, caught.value.is_transient) == (1, status, False)
    assert str(caught.value).count(str(status)) == 1


# Streams --------------------------------------------------------------------------------------------------------------

WORDS = chunk({"content": "One "})
CUT = httpx2.RemoteProtocolError("peer closed connection without sending complete message body")
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "One "}}
OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
FAILED = {"error": {"message": "CUDA out of memory", "type": "InternalServerError", "code": 500}}
PLAIN_ERROR = {"code": 500, "message": "does not match the expected peg-native format", "type": "server_error"}

# By whose stream it was: the API, the bytes, whether it may be tried again, and what the error says.
BROKEN: dict[str, tuple[str, tuple[Any, ...], bool, str]] = {
    "openai 3.57, a body cut off": ("chat", (sse(WORDS), CUT), True, "broke off: no connection to the server"),
    "anthropic 2.14, a body cut off": ("messages", (sse(DELTA), CUT), True, "broke off: no connection to the server"),
    "a body that just ends": ("chat", (sse(WORDS),), True, "ends without the event that ends an answer"),
    "Anthropic, an error in the stream": ("messages", (sse(DELTA), sse(OVERLOADED, name="error")), True, "Overloaded"),
    "vLLM as published, an error in the stream": ("chat", (sse(WORDS, FAILED, "[DONE]"),), True, "CUDA out of memory"),
    "llama.cpp, an error by its name alone": ("chat", (sse(WORDS), sse(PLAIN_ERROR, name="error")), True, "peg-native"),
    "a proxy, an error that is no JSON": ("chat", (sse(WORDS), sse("upstream gone", name="error")), False, "upstream"),
    "responses, an error by its name alone": ("responses", (sse(PLAIN_ERROR, name="error"),), True, "peg-native"),
    "an empty stream": ("chat", (), True, "broke off"),
    "an empty stream of Messages": ("messages", (), True, "broke off"),
    "nothing but [DONE]": ("chat", (sse("[DONE]"),), True, "the stream ends before an answer"),
    "nothing but reasoning": (
        "chat",
        (sse(chunk({"reasoning": "Hm."}), "[DONE]"),),
        True,
        "the stream ends before an answer",
    ),
    "openai 3.57, a bare TypeError in the stream": (
        "chat",
        (sse(WORDS), TypeError("not iterable")),
        False,
        "TypeError",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_stream_is_an_error_in_words(name: str) -> None:
    """Never half an answer, and never an error of a library."""
    api, pieces, is_transient, words = BROKEN[name]
    server = Server(streamed(*pieces))
    with pytest.raises(ModelError) as caught:
        await ask(server.model(api), HELLO)

    assert words in str(caught.value)
    assert (caught.value.is_transient, len(server.bodies)) == (is_transient, 1)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", [name for name in BROKEN if BROKEN[name][0] == "chat"])
async def test_a_broken_stream_is_never_an_empty_plan(name: str) -> None:
    planner = dagrun.ModelPlanner(Server(streamed(*BROKEN[name][1])).model())
    policy = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1), max_replans=0)
    result = await dagrun.run(goal="Greet.", planner=planner, tools=[look], policy=policy)

    assert result.status == "failed"
    assert "there is no plan" in result.reason


@pytest.mark.parametrize("structure", ["schema", "tool"])
async def test_the_chunk_with_the_role_is_no_answer(structure: Any) -> None:
    """It has no words, or empty ones."""
    first = sse(chunk({"role": "assistant", "content": "", "refusal": ""}), "[DONE]")
    with pytest.raises(ModelError, match="the stream ends before an answer"):
        await ask(Server(streamed(first)).model(structure=structure), PLAN)


async def test_a_refusal_may_end_without_a_finish_reason() -> None:
    """It is no stream that broke off: asking again would not help."""
    reply = await ask(Server(streamed(sse(chunk({"refusal": "I won't."}), "[DONE]"))).model(), PLAN)

    assert (reply.text, reply.stop) == ("I won't.", "refused")


async def test_a_stream_may_end_without_done() -> None:
    """transformers serve 5.24.0 sends the usage with the finish reason, and no ``[DONE]``."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    reply = await ask(Server(streamed(sse(WORDS, chunk({}, "stop", usage=usage)))).model(), HELLO)

    assert (reply.text, reply.stop, reply.usage.total) == ("One ", "end", 11)


def whole(message: dict[str, Any], **fields: Any) -> httpx2.Response:
    """Return an answer of Chat Completions that is not streamed."""
    body = {"object": "chat.completion", "model": "m-1", "choices": [{"message": message, "finish_reason": "stop"}]}
    return httpx2.Response(
        200, content=json.dumps(body | fields, indent=1), headers={"content-type": "application/json"}
    )


async def test_plain_json_where_a_stream_was_asked_for_is_the_answer() -> None:
    """Proxies that put a filter behind the model answer at once."""
    usage = {"prompt_tokens": 9, "completion_tokens": 2}
    call = {"id": "1", "function": {"name": FORM.name, "arguments": ANSWER}}
    server = Server(whole({"content": ANSWER}, usage=usage), whole({"content": None, "tool_calls": [call]}))

    reply = await ask(server.model(), PLAN)
    assert (reply.text, reply.stop, reply.model, reply.usage.total) == (ANSWER, "end", "m-1", 11)
    assert (await ask(server.model(structure="tool"), PLAN)).text == ANSWER


async def test_a_whole_response_is_the_answer() -> None:
    output = [{"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}]
    body = {"object": "response", "status": "completed", "output": output, "model": "m"}

    assert (await ask(Server(httpx2.Response(200, json=body)).model("responses"), HELLO)).text == "Hi."


async def test_a_whole_response_is_the_answer_though_another_api_can_be_tried() -> None:
    """Only the events of a stream are numbered."""
    output = [{"type": "message", "content": [{"type": "output_text", "text": ANSWER}]}]
    body = {"object": "response", "status": "completed", "output": output, "text": {"format": {"type": "json_schema"}}}
    server = Server(httpx2.Response(200, json=body))

    assert (await ask(server.model("auto"), PLAN)).text == ANSWER
    assert len(server.bodies) == 1


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize("body", [{"a": "b"}, [1], {"object": "response", "status": "queued"}, {"type": "message"}])
async def test_other_json_is_no_answer(api: str, body: Any) -> None:
    """The address is wrong; trying again would not help."""
    with pytest.raises(ModelError, match="no stream of events") as caught:
        await ask(Server(httpx2.Response(200, json=body)).model(api), HELLO)

    assert not caught.value.is_transient


@pytest.mark.parametrize("api", ["chat", "responses"])
async def test_a_cut_answer_that_is_called_complete_is_cut(api: str) -> None:
    """llama.cpp (xllamacpp 2026.10.11549) and transformers 5.24.0 do so in Responses, litellm 1.108 in Messages."""
    usage = {"output_tokens": 500, "input_tokens": 1}
    done = {"type": "response.completed", "response": {"status": "completed", "usage": usage}}
    responses = streamed(sse({"type": "response.output_text.delta", "delta": '{"number": 1'}, done))
    server = Server(responses if api == "responses" else said('{"number": 1', usage=500))

    assert (await ask(server.model(api), PLAN)).stop == "length"


async def test_an_answer_that_is_whole_at_its_ceiling_is_whole() -> None:
    assert (await ask(Server(said(ANSWER, usage=500)).model(), PLAN)).stop == "end"


def piece(arguments: str, index: int | None = None, id_: str | None = None, name: str | None = None) -> dict[str, Any]:
    """Return a piece of a tool call, without the fields that are `None`."""
    fields = {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {key: value for key, value in fields.items() if value is not None}


# Two calls, or one, as they come in pieces; the first is the answer.
CALLS = {
    "OpenAI": [piece("", 0, "a", "f"), piece(ANSWER[:5], 0), piece(ANSWER[5:], 0), piece('{"x"', 1, "b", "f")],
    "counted from 1": [piece("", 1, "a", "f"), piece(ANSWER, 1), piece("{}", 2, "b", "f")],
    "one index for all": [piece(ANSWER[:5], 0, "a", "f"), piece(ANSWER[5:], 0), piece("{", 0, "b", "f"), piece("}", 0)],
    "no index": [piece(ANSWER[:5], None, "a", "f"), piece(ANSWER[5:]), piece("{}", None, "b", "f")],
    "no id": [piece(ANSWER[:5], 0, None, "f"), piece(ANSWER[5:], 0), piece("{}", 1, None, "f")],
    "neither": [piece(ANSWER[:5], None, None, "f"), piece(ANSWER[5:])],
    "one id in each piece": [piece(ANSWER[:5], 0, "a", "f"), piece(ANSWER[5:], 0, "a", "f")],
    "another id in each piece": [piece(ANSWER[:5], 0, "a", "f"), piece(ANSWER[5:], 0, "b")],
    "woven": [piece(ANSWER[:5], 0, "a", "f"), piece("{", 1, "b", "f"), piece(ANSWER[5:], 0), piece("}", 1)],
}


@pytest.mark.parametrize("name", CALLS)
async def test_tool_calls_are_told_apart_by_index_and_id(name: str) -> None:
    """Servers count from 0 or from 1, give all calls one index, or leave the index or the id out."""
    assert (await ask(Server(called(*CALLS[name])).model(structure="tool"), PLAN)).text == ANSWER


def block(index: int, *parts: str) -> list[dict[str, Any]]:
    """Return the events of a block with arguments of a tool."""
    deltas = [{"type": "content_block_delta", "index": index,
               "delta": {"type": "input_json_delta", "partial_json": part}} for part in parts]  # fmt: skip
    begin = {"type": "content_block_start", "index": index, "content_block": {"type": "tool_use", "name": FORM.name}}
    return [begin, *deltas, {"type": "content_block_stop", "index": index}]


@pytest.mark.parametrize("indices", [(0, 1), (1, 2), (0, 0)])
async def test_blocks_of_messages_are_told_apart(indices: tuple[int, int]) -> None:
    first, second = indices
    events = [*block(first, ANSWER[:5], ANSWER[5:]), *block(second, "{}"), {"type": "message_stop"}]

    assert (await ask(Server(streamed(sse(*events))).model("messages", structure="tool"), PLAN)).text == ANSWER


@pytest.mark.parametrize("keys", [("a", 0, "b", 1), (None, 1, None, 2), ("a", 0, "a", 1), ("a", 0, "b", 0)])
async def test_calls_of_responses_are_told_apart(keys: tuple[str | None, int, str | None, int]) -> None:
    kind = "response.function_call_arguments.delta"
    first, second = ({"type": kind, "item_id": keys[n], "output_index": keys[n + 1]} for n in (0, 2))
    events = [first | {"delta": ANSWER[:5]}, first | {"delta": ANSWER[5:]}, second | {"delta": "{}"}]
    done = {"type": "response.completed", "response": {"status": "completed"}}

    assert (await ask(Server(streamed(sse(*events, done))).model("responses", structure="tool"), PLAN)).text == ANSWER


# Client libraries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", ["chat", "messages"])
async def test_a_wish_of_two_minutes_is_handed_on_and_said(api: str) -> None:
    """openai 3.57 would sleep for two minutes itself. The run decides, within its limits, and its record says why."""
    server = Server(
        refused(429, {"error": {"message": "Slow down.", "type": "rate_limit_error"}}, **{"retry-after": "120"})
    )
    with pytest.raises(ModelError, match="asks for 120 s of patience") as caught:
        await ask(server.model(api), HELLO)

    assert (caught.value.retry_after, caught.value.is_transient, len(server.bodies)) == (120, True, 1)


NO_TEMPERATURE = {
    "Anthropic, Opus 4.7": "`temperature` is deprecated for this model.",
    "OpenAI, reasoning models": "Unsupported parameter: 'temperature' is not supported with this model.",
    "OpenAI, gpt-5": "Unsupported value: 'temperature' does not support 0.6 with this model. Only the default (1).",
}  # fmt: skip


@pytest.mark.parametrize("name", NO_TEMPERATURE)
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_a_temperature_that_is_refused_is_left_out(api: str, name: str) -> None:
    """anthropic 2.14 sends it, and newer models refuse it."""
    good = {"chat": said("Hi."), "responses": streamed(sse({"type": "response.output_text.delta", "delta": "Hi."},
            {"type": "response.completed", "response": {"status": "completed"}})),
            "messages": streamed(sse(DELTA, {"type": "message_stop"}))}  # fmt: skip
    server = Server(
        refused(400, {"error": {"message": NO_TEMPERATURE[name], "type": "invalid_request_error"}}), good[api]
    )
    request = Request(system="", messages=(Message("user", "Hello."),), temperature=0.6)

    assert (await ask(server.model(api), request)).text
    assert ["temperature" in body for body in server.bodies] == [True, False]


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
@pytest.mark.parametrize(
    "fault", [TypeError("'NoneType' object is not iterable"), KeyError("choices"), ValueError("x")]
)
async def test_an_error_of_a_library_is_told_in_words(api: str, fault: Exception) -> None:
    """openai 3.57 raises a bare TypeError at events that it does not know."""
    with pytest.raises(ModelError, match=type(fault).__name__):
        await ask(Server(fault).model(api), HELLO)


# Reasoning ------------------------------------------------------------------------------------------------------------

TURNS = ({"thought": "I look.", "call": {"tool": "look", "args": {}}, "answer": None, "cannot": None},
         {"thought": "I know.", "call": None, "answer": "42", "cannot": None})  # fmt: skip


async def agent_run(model: HttpModel) -> dagrun.RunResult:
    """Return the result of a run with an agent that asks *model*."""
    agent = dagrun.agent_tool(model, [look], name="agent")
    step = dagrun.Step(id="s", tool="agent", args={"task": "Find it."})
    return await dagrun.run(dagrun.Plan(steps=[step]), tools=[agent])


def thought(turn: Any, **reasoning: str) -> httpx2.Response:
    """Return a turn of Chat Completions after some reasoning, in two pieces."""
    halves = [
        {name: text[:3] for name, text in reasoning.items()},
        {name: text[3:] for name, text in reasoning.items()},
    ]
    return streamed(sse(*map(chunk, halves), chunk({"content": json.dumps(turn)}), chunk({}, "stop"), "[DONE]"))


WANTED = {
    "DeepSeek V4": "The `reasoning_content` in the thinking mode must be passed back to the API.",
    "Kimi K2.5": "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
}


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_to_a_server_that_wants_it(name: str, field: str) -> None:
    """The second turn of an agent would be refused for ever; servers that refuse the field never get it."""
    missing = refused(400, {"error": {"message": WANTED[name], "type": "invalid_request_error", "code": None}})
    server = Server(thought(TURNS[0], **{field: "I must look."}), missing, thought(TURNS[1], **{field: "So."}))
    result = await agent_run(server.model())

    assert result.status == "succeeded", result.reason
    turns = [[turn for turn in body["messages"] if turn["role"] == "assistant"] for body in server.bodies]
    assert [[turn.get(field) for turn in each] for each in turns] == [[], [None], ["I must look."]]
    assert forms_of(server) == ["json_schema"] * 3, "the refusal is not about the form"


async def test_reasoning_is_not_sent_to_a_server_that_does_not_ask_for_it() -> None:
    """Some refuse it, and all would be paid for it."""
    server = Server(thought(TURNS[0], reasoning_content="I must look."), thought(TURNS[1]))

    assert (await agent_run(server.model())).status == "succeeded"
    assert "must look" not in json.dumps(server.bodies)


async def test_signed_thoughts_go_back_to_anthropic_as_they_came() -> None:
    """With the signature, and before the text; a redacted one, too."""
    thinking = {"type": "thinking", "thinking": "I must look.", "signature": "c2lnbmVk"}
    redacted = {"type": "redacted_thinking", "data": "xyz"}
    events = [
        {"type": "content_block_start", "index": 0, "content_block": thinking | {"thinking": "", "signature": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": text}}
          for text in ("I must", " look.")),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2lnbmVk"}},
        {"type": "content_block_start", "index": 1, "content_block": redacted},
        DELTA | {"index": 2, "delta": {"type": "text_delta", "text": json.dumps(TURNS[0])}},
        {"type": "message_stop"},
    ]  # fmt: skip
    missing = "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`."
    last = DELTA | {"delta": {"type": "text_delta", "text": json.dumps(TURNS[1])}}
    server = Server(
        streamed(sse(*events)),
        refused(400, {"type": "error", "error": {"type": "invalid_request_error", "message": missing}}),
        streamed(sse(last, {"type": "message_stop"})),
    )
    result = await agent_run(server.model("messages"))

    assert result.status == "succeeded", result.reason
    assert server.bodies[2]["messages"][1] == {
        "role": "assistant", "content": [thinking, redacted, {"type": "text", "text": json.dumps(TURNS[0])}],
    }  # fmt: skip


@pytest.mark.parametrize("index", [[], {}, None, "x"])
@pytest.mark.parametrize("begun", [{"type": "thinking", "thinking": 5}, {"type": "redacted_thinking"}, "thinking"])
async def test_thoughts_that_make_no_sense_are_no_accident(index: Any, begun: Any) -> None:
    events = [
        {"type": "content_block_start", "index": index, "content_block": begun},
        {"type": "content_block_delta", "index": index, "delta": {"type": "thinking_delta", "thinking": "x"}},
        {"type": "content_block_delta", "index": index, "delta": {"type": "signature_delta", "signature": 7}},
        DELTA,
        {"type": "message_stop"},
    ]

    assert (await ask(Server(streamed(sse(*events))).model("messages"), HELLO)).text == "One "
