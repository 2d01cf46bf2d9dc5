"""Every fault of a server, on every interface: one error that says enough to decide what to do, and nothing hangs."""

from __future__ import annotations

import contextlib
import socket
from email.utils import formatdate
from typing import Any

import anyio
import pytest

from dagrun import OpenAIModel
from dagrun.errors import ModelError
from dagrun.extend import LanguageModel
from dagrun.llm.language_model import ask
from dagrun.testing import FakeModelServer, Fault, ModelAnswer
from dagrun.testing.model_server.script import StatusFault
from model_calls import EVERYBODY, HELLO, PLAN, Speaks, metered, model_at, said_by, sse_page

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs]

everybody = pytest.mark.parametrize("speaks", EVERYBODY)


async def error_of(speaks: Speaks, fault: Any, **options: Any) -> ModelError:
    """The error of one call; that it was the only call, and was charged, is asserted."""
    with metered() as till, FakeModelServer([fault, "It must not be tried again."]) as server:
        model = model_at(server, speaks, **options)
        with anyio.fail_after(10), pytest.raises(ModelError) as caught:
            await ask(model, HELLO)
        assert len(server.calls) == len(till.settled) == 1
        assert (await ask(model, HELLO)).text == "It must not be tried again.", "a fault leaves nothing behind"
    return caught.value


# Whether to try again.
_STATUSES = {400: False, 401: False, 403: False, 404: False, 408: True, 409: True, 413: False, 429: True, 500: True}
_STATUSES |= {402: False, 501: False, 503: True, 529: True}
_SOME = [400, 429, 529]


@pytest.mark.parametrize(
    ("speaks", "status"),
    [("chat", status) for status in _STATUSES] + [(speaks, s) for speaks in ("responses", "messages") for s in _SOME],
)
async def test_a_status_tells_whether_to_try_again(speaks: Speaks, status: int) -> None:
    error = await error_of(speaks, Fault.status(status, message="Sorry."))

    assert (error.status, error.is_transient) == (status, _STATUSES[status])
    assert f"status {status}" in str(error)
    assert "Sorry." in str(error)


@pytest.mark.parametrize("speaks", ["responses", "chat"])
async def test_an_empty_purse_is_not_waited_for(speaks: Speaks) -> None:
    """Who has no money left gets the same status as who asks too often."""
    error = await error_of(speaks, Fault.status(429, code="insufficient_quota", retry_after=1))

    assert (error.status, error.is_transient) == (429, False)


_WISHES: list[tuple[dict[str, str], float | None]] = [
    ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ({"retry-after": formatdate(0, usegmt=True)}, 0),
    ({"retry-after": "nan"}, None),
    ({"retry-after": "-5"}, None),
    ({"retry-after": "soon"}, None),
    ({}, None),
]


@pytest.mark.parametrize(
    ("speaks", "headers", "seconds"),
    [("chat", *wish) for wish in _WISHES] + [(speaks, {"retry-after": "7"}, 7) for speaks in EVERYBODY],
)
async def test_the_wish_of_the_server_is_kept(speaks: Speaks, headers: dict[str, str], seconds: float | None) -> None:
    """Who decides about retries needs it; the library, which would sleep by itself, is told not to."""
    error = await error_of(speaks, Fault.status(429, headers=headers))

    assert error.retry_after == seconds


@pytest.mark.parametrize("speaks", ["chat", "messages"])
@pytest.mark.parametrize("fault", [Fault.status(429), Fault.status(400), Fault.status(503)])
async def test_a_call_that_was_turned_away_costs_nothing(speaks: Speaks, fault: Fault) -> None:
    """Else ten refusals of a busy server would spend the budget of ten answers."""
    with metered() as till, FakeModelServer([fault]) as server, pytest.raises(ModelError):
        await ask(model_at(server, speaks), HELLO)

    assert till.settled == [(0, 0.0)]


async def listen(model: LanguageModel, said: list[str]) -> None:
    """Write down what is said, to the last word."""
    async with contextlib.aclosing(model.stream(HELLO)) as stream:
        async for piece in stream:
            said += [str(piece)]


@everybody
@pytest.mark.parametrize("after", [None, 0, 3])
@pytest.mark.parametrize("how", ["close", "reset", "end"])
async def test_an_answer_that_breaks_off_is_no_answer(speaks: Speaks, how: Any, after: int | None) -> None:
    """Not even where the stream ends as if all had been said. What it has used, nobody knows."""
    said: list[str] = []
    cut = Fault.cut(after, how=how, of=ModelAnswer("One two three four"))
    with metered() as till, FakeModelServer([cut]) as server:
        model = model_at(server, speaks)
        with anyio.fail_after(10), pytest.raises(ModelError) as caught:
            await listen(model, said)

    assert caught.value.is_transient
    assert caught.value.status is None
    assert "".join(said) == "One two three four"[: 4 * (after or 0)], "what was said before is not lost"
    assert till.settled == [(None, None)]
    if after is not None:
        assert "broke off" in str(caught.value)


@everybody
@pytest.mark.parametrize("after", [None, 0, 2])
async def test_silence_ends_a_call(speaks: Speaks, after: int | None) -> None:
    """A server that hangs before its first word, or in the middle, is given up, and the connection with it."""
    with FakeModelServer([Fault.hang(after)]) as server:
        with anyio.fail_after(10), pytest.raises(ModelError, match="in time") as caught:
            await ask(model_at(server, speaks, timeout=0.1), HELLO)
        assert await server.until_closed(server.calls[0])

    assert caught.value.is_transient


@everybody
async def test_a_call_that_never_ends_is_ended(speaks: Speaks) -> None:
    """A server that says a word every now and then is never silent."""
    with FakeModelServer([ModelAnswer("word " * 10_000, tokens_per_second=100)]) as server:
        with anyio.fail_after(10), pytest.raises(ModelError, match="longer") as caught:
            await ask(model_at(server, speaks, max_seconds=0.2), HELLO)
        assert await server.until_closed(server.calls[0])

    assert caught.value.is_transient


@everybody
@pytest.mark.parametrize("after", [0, 2])
async def test_an_event_that_is_no_json_ends_an_answer(speaks: Speaks, after: int) -> None:
    """Whatever follows, a piece is missing."""
    error = await error_of(speaks, Fault.malformed(after))

    assert "broke off: an event of the stream is no JSON" in str(error)
    assert error.is_transient


@pytest.mark.parametrize("data", ["[1, 2]", "null", '"text"', "12", '{"a": ' + "[" * 100_000], ids=range(5))
async def test_an_event_that_is_no_object_ends_an_answer(data: str) -> None:
    error = await error_of("chat", sse_page(data))

    assert "no JSON" in str(error)


async def test_an_answer_without_end_is_not_kept() -> None:
    """The ceiling of tokens is a wish; a server that goes on for ever would fill the memory."""
    chunk = {"choices": [{"delta": {"content": "x" * 500_000}}]}
    with FakeModelServer([sse_page(*[chunk] * 40)]) as server:
        model = model_at(server, "chat")
        with pytest.raises(ModelError, match="more than 16777216 characters") as caught:
            await ask(model, HELLO)

    assert not caught.value.is_transient


# Every kind of wrong in every place that a reader looks at.
_HOSTILE = [
    {"type": "response.output_text.delta", "delta": 12},
    {"type": "response.created", "response": [], "sequence_number": 0},
    {"type": "response.created", "response": {"model": 5, "usage": {"input_tokens": -4, "output_tokens": True}}},
    {"type": ["response.created"]},
    {"choices": {}},
    {"choices": []},
    {"choices": [None]},
    {"choices": [{"delta": "x", "finish_reason": 5}]},
    {"choices": [{"delta": {"tool_calls": {"a": 1}, "content": ["x"]}}]},
    {"choices": [{"delta": {"tool_calls": [None, {"function": 3}]}}], "usage": "much"},
    {"type": "message_start", "message": None},
    {"type": "message_delta", "delta": None, "usage": {"output_tokens": 10**400}},
    {"type": "content_block_delta", "delta": {"type": "text_delta", "text": None}},
    {},
]


@everybody
async def test_events_that_make_no_sense_are_passed_over(speaks: Speaks) -> None:
    """Servers send events that nobody knows, with fields of any type; none of them is an answer, or an accident."""
    page = sse_page(*_HOSTILE)
    for request in (HELLO, PLAN):
        with FakeModelServer([page]) as server, pytest.raises(ModelError, match="broke off"):
            await ask(model_at(server, speaks, structure="tool"), request)


@everybody
@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize(("code", "is_transient"), [("overloaded_error", True), ("invalid_request_error", False)])
async def test_an_error_in_the_middle_of_an_answer_is_told(
    speaks: Speaks, after: int, code: str, is_transient: bool
) -> None:
    """It has no status: that was 200."""
    for fault in (Fault.error, Fault.failed) if speaks == "responses" else (Fault.error,):
        error = await error_of(speaks, fault(after, code=code, message="It went wrong."))
        assert "It went wrong." in str(error)
        assert (error.is_transient, error.status) == (is_transient, None)


@everybody
async def test_a_page_for_people_is_no_answer(speaks: Speaks) -> None:
    """A proxy, or a wrong address, answers 200 with HTML."""
    error = await error_of(speaks, Fault.not_sse())
    assert "no stream of events" in str(error)
    assert not error.is_transient


@everybody
async def test_an_empty_answer_has_broken_off(speaks: Speaks) -> None:
    assert "broke off" in str(await error_of(speaks, Fault.empty()))


@everybody
async def test_redirects_are_not_followed(speaks: Speaks) -> None:
    """They would carry the key, and the goal, to somebody else."""
    headers = {"location": "http://127.0.0.1:9/"}
    moved = StatusFault(code=307, reason=None, message=None, retry_after=None, headers=headers)
    error = await error_of(speaks, moved)
    assert (error.status, error.is_transient) == (307, False)


async def test_nobody_at_the_address_is_a_connection_error_and_costs_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
    with metered() as till, pytest.raises(ModelError, match="no connection") as caught:
        await ask(OpenAIModel("any", base_url=url), HELLO)

    assert caught.value.is_transient
    assert till.settled == [(0, 0.0)]


# Giving up -----------------------------------------------------------------------------------------------------------


@everybody
@pytest.mark.parametrize("after", [None, 2])
async def test_cancelling_closes_the_connection_at_once(speaks: Speaks, after: int | None) -> None:
    """Nobody pays for an answer that nobody reads. It is the server that has to see it."""
    with metered() as till, FakeModelServer([Fault.hang(after)]) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(said_by, model_at(server, speaks), HELLO)
            assert await server.until_called()
            await anyio.sleep(0.05)  # into the answer
            tasks.cancel_scope.cancel()
        assert await server.until_closed(server.calls[0])

    assert till.settled == [(None, None)]


@everybody
async def test_closing_the_stream_closes_the_connection_at_once(speaks: Speaks) -> None:
    """A plan that is refused in its first step is not read to its end."""
    with metered() as till, FakeModelServer([ModelAnswer("word " * 10_000, tokens_per_second=200)]) as server:
        stream = model_at(server, speaks).stream(HELLO)
        await anext(stream)
        with anyio.fail_after(20):
            await stream.aclose()
        assert await server.until_closed(server.calls[0])

    assert till.settled == [(None, None)]


@everybody
async def test_an_answer_that_comes_faster_than_it_is_read_can_be_closed(speaks: Speaks) -> None:
    """Closing reads on, in a cancelled scope, to end the generators of the libraries; not to the end of the answer."""
    with FakeModelServer([ModelAnswer("word " * 200_000, piece=500)]) as server:
        stream = model_at(server, speaks).stream(HELLO)
        await anext(stream)
        with anyio.fail_after(20):
            await stream.aclose()
        assert await server.until_closed(server.calls[0])


@everybody
async def test_an_error_of_the_reader_closes_the_connection(speaks: Speaks) -> None:
    with FakeModelServer([ModelAnswer("word " * 10_000, tokens_per_second=200)]) as server:
        async with contextlib.aclosing(model_at(server, speaks).stream(HELLO)) as stream:
            with contextlib.suppress(ZeroDivisionError):
                async for _ in stream:
                    raise ZeroDivisionError
        assert await server.until_closed(server.calls[0])


@everybody
async def test_cancelling_one_call_leaves_the_others_alone(speaks: Speaks) -> None:
    """They share a client; the first one out must not close it."""
    answers: dict[str, ModelAnswer | Fault] = {
        "Say hello.": ModelAnswer("Hello.", delay=0.2),
        "Grüß Gott.": Fault.hang(1),
    }
    replies = []
    with FakeModelServer(lambda call: answers[call.turns[-1][1]]) as server:
        model = model_at(server, speaks, structure="schema")

        async def well() -> None:
            replies.append(await ask(model, HELLO))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(well)
            with anyio.move_on_after(0.1):
                await ask(model, PLAN)

    assert [reply.text for reply in replies] == ["Hello."]
