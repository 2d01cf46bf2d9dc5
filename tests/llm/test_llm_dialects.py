"""What a server understands is found out by its refusals: the next best way is taken, and remembered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dagrun.errors import ModelError
from dagrun.extend import Message, Request
from dagrun.llm.language_model import Structure, ask
from dagrun.testing import FakeModelServer, Fault, ModelAnswer, RecordedCall
from model_calls import EVERYBODY, HELLO, PLAN, Speaks, metered, model_at, sse_page

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]

everybody = pytest.mark.parametrize("speaks", EVERYBODY)
ANSWER = '{"number": 12}'


def seen(server: FakeModelServer) -> list[tuple[str | None, str | None, int | None]]:
    """Interface, structure and status of each call."""
    return [(call.api, call.structure, call.status) for call in server.calls]


async def twice(server: FakeModelServer, speaks: Any, request: Request = PLAN, **options: Any) -> list[str | None]:
    """The structures of two answers of one model; that each is good, and every call was charged, is asserted."""
    model = model_at(server, speaks, **options)
    with metered() as till:
        replies = [await ask(model, request), await ask(model, request)]
    assert [reply.text for reply in replies] == [ANSWER] * 2
    refused = [call.status for call in server.calls if call.status != 200]
    assert till.settled.count((0, 0.0)) == len(refused)
    assert len(till.settled) == len(server.calls)
    return [reply.structure for reply in replies]


# Which interface ------------------------------------------------------------------------------------------------------


async def test_responses_is_tried_first() -> None:
    with FakeModelServer([ANSWER]) as server:
        await twice(server, "openai")

    assert seen(server) == [("responses", "schema", 200)] * 2


async def test_turns_of_responses_say_what_they_are() -> None:
    """llama.cpp refuses a turn of the model without a type, so that no plan could be repaired there."""
    turns = (Message("user", "Plan."), Message("assistant", "1. a()"), Message("user", "Again."))
    with FakeModelServer([ModelAnswer("Good.")]) as server:
        await ask(model_at(server, "openai"), Request(system="s", messages=turns))

    assert [(item["type"], item["role"]) for item in server.calls[0].body["input"]] == [
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
    ]


async def test_chat_is_taken_where_responses_does_not_exist_and_once_is_enough_to_know() -> None:
    with FakeModelServer([ANSWER], apis=["chat"]) as server:
        await twice(server, "openai")

    assert seen(server) == [("responses", "schema", 404), ("chat", "schema", 200), ("chat", "schema", 200)]


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_each_way_to_say_that_there_is_no_such_thing_is_understood(status: int) -> None:
    def answer(call: RecordedCall) -> Any:
        return Fault.status(status, message="no") if call.api == "responses" else ANSWER

    with FakeModelServer(answer) as server:
        await twice(server, "openai", HELLO)

    assert [call.api for call in server.calls] == ["responses", "chat", "chat"]


@pytest.mark.parametrize(
    "page",
    [
        Fault.not_sse(),
        Fault.page('{"id": "resp_1", "output": []}', "application/json"),
        sse_page({"choices": [{"delta": {"content": "chat in the wrong place"}}]}),
        sse_page({"type": "response.created", "response": {"id": "no number"}}),
    ],
)
async def test_what_is_not_of_the_form_of_responses_comes_from_a_server_without_it(page: Fault) -> None:
    """Servers answer unknown paths with a page, or know the interface in name only."""
    with FakeModelServer(lambda call: page if call.api == "responses" else ANSWER) as server:
        model = model_at(server, "openai")
        assert [(await ask(model, HELLO)).text for _ in "12"] == [ANSWER] * 2

    assert [call.api for call in server.calls] == ["responses", "chat", "chat"]


async def test_a_responses_that_ignores_the_schema_is_not_used() -> None:
    """llama.cpp takes the schema and forgets it; its Chat Completions does not. It tells itself by its first event."""
    with FakeModelServer([ANSWER], ignores_schema=True) as server:
        model = model_at(server, "openai")
        assert [(await ask(model, PLAN)).text for _ in "12"] == [ANSWER] * 2

    assert [call.api for call in server.calls] == ["responses", "chat", "chat"]


async def test_a_responses_with_numbers_that_does_not_repeat_the_schema_ignores_it() -> None:
    """The next version of such a server will number its events."""
    created = {"type": "response.created", "sequence_number": 0, "response": {"id": "resp_1"}}
    with FakeModelServer(lambda call: sse_page(created) if call.api == "responses" else ANSWER) as server:
        await ask(model_at(server, "openai"), PLAN)

    assert [call.api for call in server.calls] == ["responses", "chat"]


async def test_the_host_may_insist_on_such_a_responses() -> None:
    with FakeModelServer([ANSWER], ignores_schema=True) as server:
        reply = await ask(model_at(server, "responses"), PLAN)

    assert ANSWER in reply.text
    assert [call.api for call in server.calls] == ["responses"]


async def test_a_model_that_does_not_exist_is_not_looked_for_elsewhere() -> None:
    with FakeModelServer([ANSWER], models=("other",)) as server:
        model = model_at(server, "openai")
        with pytest.raises(ModelError, match="does not exist") as caught:
            await ask(model, HELLO)

    assert (caught.value.status, len(server.calls)) == (404, 1)


async def test_a_fault_of_the_second_interface_does_not_hide_that_there_is_no_first() -> None:
    """A busy server is asked again later, and then both are tried again: nothing is known yet."""
    acts: list[Any] = [Fault.status(429, retry_after=3), ANSWER]

    def answer(call: RecordedCall) -> Any:
        return acts.pop(0)

    with FakeModelServer(answer, apis=["chat"]) as server:
        model = model_at(server, "openai")
        with pytest.raises(ModelError) as caught:
            await ask(model, HELLO)
        assert (caught.value.status, caught.value.retry_after) == (429, 3)
        assert (await ask(model, HELLO)).text == ANSWER


# Which way to get structure -------------------------------------------------------------------------------------------


@everybody
@pytest.mark.parametrize("knows", [("tool", "json"), ("json",), ()])
async def test_the_best_way_that_the_server_knows_is_taken(speaks: Speaks, knows: tuple[Structure, ...]) -> None:
    """At the end there is the prompt alone, which no server can refuse."""
    with FakeModelServer([ANSWER], structures=knows) as server:
        structures = await twice(server, speaks)

    assert structures == ["tool" if "tool" in knows else "json"] * 2
    refused = 1 if "tool" in knows else 2 if "json" in knows or speaks == "messages" else 3
    assert [call.status for call in server.calls] == [400] * refused + [200] * 2
    last = [call.structure for call in server.calls][-2:]
    assert last == [knows[0] if knows and (speaks != "messages" or knows[0] == "tool") else None] * 2


_CLUMSY: list[tuple[str, Callable[[], Fault]]] = [
    ("llama-cpp-python", lambda: Fault.status(500, message="'loc': ('response_format', 'type'), 'literal_error'")),
    ("says nothing", lambda: Fault.status(422, message="Unprocessable Entity")),
    ("not implemented", lambda: Fault.status(501, message="NotImplementedError")),
    ("in the stream", lambda: sse_page({"error": {"code": 400, "message": "json_schema is not supported"}})),
]


@pytest.mark.parametrize(("name", "refusal"), _CLUMSY, ids=[name for name, _ in _CLUMSY])
async def test_clumsy_refusals_are_understood(name: str, refusal: Callable[[], Fault]) -> None:
    """There is no standard for saying that one does not know a field."""
    with FakeModelServer(lambda call: refusal() if call.structure == "schema" else ANSWER) as server:
        model = model_at(server, "chat")
        assert [(await ask(model, PLAN)).structure for _ in "12"] == ["tool", "tool"]

    assert len(server.calls) == 3


@everybody
@pytest.mark.parametrize("structure", ["schema", "tool"])
async def test_a_way_that_is_forced_is_not_left(speaks: Speaks, structure: str) -> None:
    with FakeModelServer([ANSWER], structures=()) as server, pytest.raises(ModelError) as caught:
        await ask(model_at(server, speaks, structure=structure), PLAN)

    assert (caught.value.status, len(server.calls)) == (400, 1)


@everybody
@pytest.mark.parametrize(
    "fault",
    [
        Fault.status(401),
        Fault.status(429),
        Fault.status(503, message="The tool servers for json_schema are overloaded."),
        Fault.status(500, message="Something went wrong."),
        Fault.status(400, code="context_length_exceeded", message="This model's maximum context length is 8."),
        Fault.status(400, message="The prompt is too long: 9 tokens > 8."),
    ],
)
async def test_what_is_no_matter_of_structure_is_not_tried_in_other_ways(speaks: Speaks, fault: Fault) -> None:
    with FakeModelServer([fault]) as server, pytest.raises(ModelError):
        await ask(model_at(server, speaks), PLAN)

    assert len(server.calls) == 1


@everybody
async def test_a_way_that_has_worked_is_not_doubted_without_a_reason(speaks: Speaks) -> None:
    """A first refusal without words may be about the way; once it has worked, it is about something else."""
    acts: list[Any] = [ANSWER, Fault.status(400, message="Bad Request")]
    with FakeModelServer(acts) as server:
        model = model_at(server, speaks)
        await ask(model, PLAN)
        with pytest.raises(ModelError):
            await ask(model, PLAN)

    assert len(server.calls) == 2


@everybody
async def test_nothing_is_tried_again_once_the_answer_has_begun(speaks: Speaks) -> None:
    """The reader has the first half already."""
    with FakeModelServer([Fault.error(2, code="invalid_request_error", message="json_schema tool")]) as server:
        model = model_at(server, speaks)
        with pytest.raises(ModelError):
            await ask(model, PLAN)

    assert len(server.calls) == 1


@everybody
async def test_plain_text_says_nothing_about_structure(speaks: Speaks) -> None:
    """A call without a form that works does not make the way good that the next one with a form tries."""

    def answer(call: RecordedCall) -> Any:
        return Fault.status(422, message="Sorry.") if call.structure == "schema" else ANSWER

    with FakeModelServer(answer) as server:
        model = model_at(server, speaks)
        replies = [await ask(model, request) for request in (HELLO, PLAN, HELLO, PLAN)]

    assert [reply.structure for reply in replies] == [None, "tool", None, "tool"]
    assert len(server.calls) == 5


# Options --------------------------------------------------------------------------------------------------------------

WARM = Request(system="", messages=(Message("user", "Hello."),), temperature=0.5)


@everybody
async def test_an_option_that_the_server_refuses_is_left_out_from_then_on(speaks: Speaks) -> None:
    """Reasoning models take no temperature."""

    def answer(call: RecordedCall) -> Any:
        if "temperature" in call.body:
            return Fault.status(400, message="Unsupported parameter: 'temperature' is not supported with this model.")
        return ANSWER

    with FakeModelServer(answer) as server:
        await twice(server, speaks, WARM)

    assert ["temperature" in call.body for call in server.calls] == [True, False, False]


async def test_the_ceiling_of_an_answer_has_two_names() -> None:
    """New models of OpenAI refuse the old name; some servers ignore the new one, and would write for ever."""

    def answer(call: RecordedCall) -> Any:
        if "max_tokens" in call.body:
            return Fault.status(
                400, message="Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            )
        return ANSWER

    with FakeModelServer(answer) as server:
        await twice(server, "chat", HELLO)

    assert [call.body.get("max_completion_tokens") for call in server.calls] == [None, 4096, 4096]


async def test_an_old_server_knows_neither_usage_in_streams_nor_strict_tools() -> None:
    unknown = ("stream_options", "parallel_tool_calls")

    def answer(call: RecordedCall) -> Any:
        wrong = [name for name in unknown if name in call.body]
        if wrong:
            return Fault.status(422, message=f"body.{wrong[0]}: Extra inputs are not permitted")
        return ModelAnswer(ANSWER, usage=None)

    with FakeModelServer(answer) as server:
        assert (await ask(model_at(server, "chat", structure="tool"), PLAN)).structure == "tool"

    assert len(server.calls) == 3


@everybody
async def test_a_server_that_refuses_everything_is_not_asked_for_ever(speaks: Speaks) -> None:
    """Each refusal makes the next call simpler, so there is an end."""
    words = "unsupported: schema tool json temperature max_tokens stream_options parallel_tool_calls store"
    with FakeModelServer([Fault.status(400, message=words)]) as server:
        asked = Request(system="", messages=PLAN.messages, form=PLAN.form, temperature=0.0)
        with pytest.raises(ModelError):
            await ask(model_at(server, speaks), asked)

    assert len(server.calls) <= 8
