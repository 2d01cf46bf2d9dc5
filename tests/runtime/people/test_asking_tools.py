"""Tools that ask in the middle of their work: the step is held, takes no place, and no time counts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Answer,
    Asked,
    Drop,
    Event,
    Patch,
    PlanRefused,
    Replace,
    RetryRule,
    State,
    Status,
    Step,
    ToolContext,
    ToolError,
)
from dagrun.errors import AnswerRefused, QuestionNotFound
from dagrun.events import QuestionAnswered, StepResumed
from dagrun.kernel.model.outcome import ErrorKind
from persons import Person, given, run, settle, start, step
from process_tools import asks_in_a_process, asks_in_a_thread
from small_tools import near, states

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


@dagrun.tool(effect="read")
async def asker(context: ToolContext, value: Any = None, before: float = 0, after: float = 0) -> Any:
    """Works, asks, works, and gives what it was told."""
    await anyio.sleep(before)
    told = await context.ask(f"What about {value}?", schema={"type": "integer"}, about={"value": value})
    await anyio.sleep(after)
    return told


def _ask(id_: str = "ask", **fields: Any) -> Step:
    args: dict[str, Any] = {name: fields.pop(name) for name in ("value", "before", "after") if name in fields}
    return Step(id=id_, tool="asker", args={"value": id_, **args}, **fields)


def _nap(id_: str, seconds: float) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds})


def value(given_: Any) -> Answer:
    return Answer("approve", value=given_)


# Asking -----------------------------------------------------------------------------------------------------


async def test_a_tool_asks_and_goes_on_with_the_answer() -> None:
    seen: list[Event] = []
    async with start(_ask(before=1.0, after=1.0), step("b", "echo", "${ask}"), tools=(asker,), seen=seen) as handle:
        await anyio.sleep(5)
        (question,) = handle.pending
        assert (question.kind, question.step, question.text) == (Asked.INPUT, "ask", "What about ask?")
        assert question.as_dict()["arguments"] == {"value": "ask"}
        assert (handle.states["ask"], handle.states["b"]) == (State.HELD, State.WAITING)
        with pytest.raises(AnswerRefused, match="must be of type integer, got a text"):
            await handle.answer(question, value("seven"))
        await handle.answer(question, value(7))
        result = await handle.result()

    assert (result.output, result.makespan, len(result.steps["ask"].attempts)) == (7, near(6), 1)
    told = [type(event) for event in seen if isinstance(event, QuestionAnswered | StepResumed)]
    assert told == [QuestionAnswered, StepResumed]


@pytest.mark.parametrize(
    ("says", "message"),
    [(Answer("deny", note="no idea"), "a person said no: no idea"), (None, "nobody has answered: What about ask?")],
)
async def test_without_an_answer_the_step_fails(says: Any, message: str) -> None:
    """As a tool that surely has done nothing."""
    result = await run(_ask(), tools=(asker,), approver=Person(says))
    assert given(result, "ask") == ("failed", message)
    assert result.steps["ask"].failure is not None
    assert result.steps["ask"].failure.kind is ErrorKind.TOOL


async def test_with_nobody_there_the_step_fails() -> None:
    result = await run(_ask(), _nap("alone", 1), tools=(asker,))
    assert states(result) == {"ask": "failed", "alone": "succeeded"}


async def test_with_nobody_there_the_only_step_fails_too() -> None:
    """There is no other whose end would give it its place back."""
    result = await run(_ask(), tools=(asker,))

    assert states(result) == {"ask": "failed"}


async def test_with_nobody_there_all_steps_fail_also_if_they_wait_for_each_other_s_place() -> None:
    result = await run(_ask(), *(_ask(f"ask{n}") for n in range(3)), tools=(asker,), max_running=1)

    assert set(states(result).values()) == {"failed"}


async def test_an_answer_can_come_too_late() -> None:
    """There is no default for what only a person knows."""
    result = await run(
        _ask(),
        tools=(asker,),
        approver=Person(None),
        questions=dagrun.QuestionRule(answer_within=30, default_answer="approve"),
    )
    assert (given(result, "ask")[0], result.makespan) == ("failed", near(30))


async def test_a_tool_may_ask_again_and_again() -> None:
    """Each time is another question, so that an answer sent twice does not answer the next one."""

    @dagrun.tool(effect="read")
    async def thrice(context: ToolContext) -> list[int]:
        return [await context.ask("Which?", schema={"type": "integer"}) for _ in range(3)]

    async with start(Step(id="ask", tool="thrice"), tools=(thrice,)) as handle:
        ids = []
        for number in range(3):
            await settle()
            ids.append(handle.pending[0].id)
            await handle.answer(ids[-1], value(number))
            with pytest.raises(QuestionNotFound):
                await handle.answer(ids[-1], value(number))
        assert (await handle.result()).output == [0, 1, 2]
    assert len(set(ids)) == 3


async def test_a_tool_with_tasks_of_its_own_asks_one_after_the_other() -> None:
    """Two at the same time would free its place twice, and wait for each other's answer."""

    @dagrun.tool(effect="read")
    async def both(context: ToolContext) -> dict[str, Any]:
        told: dict[str, Any] = {}

        async def put(text: str) -> None:
            told[text] = await context.ask("Which?")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, "a")
            tasks.start_soon(put, "b")
        return told

    async with start(Step(id="ask", tool="both"), _nap("nap", 9), tools=(both,), max_running=1) as handle:
        for number in range(2):
            await anyio.sleep(10)
            assert len(handle.pending) == 1
            await handle.answer(handle.pending[0], value(number))
        result = await handle.result()

    assert sorted(result.steps["ask"].output.values()) == [0, 1]


# Time and places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"timeout": 3.0}, {"deadline": 3.0}, {"timeout": 3.0, "deadline": 4.0}])
async def test_time_that_it_is_held_does_not_count(limits: dict[str, Any]) -> None:
    """An hour of a person's time between two seconds of work."""
    result = await run(_ask(before=1.0, after=1.0, **limits), tools=(asker,), approver=Person(value(1), seconds=3600.0))
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(3602))


@pytest.mark.parametrize("limit", ["timeout", "deadline"])
async def test_time_that_it_works_does(limit: str) -> None:
    """Before the question and after it together."""
    limits: dict[str, Any] = {limit: 3.0}
    result = await run(
        _ask(before=2.0, after=2.0, **limits), tools=(asker,), approver=Person(value(1), seconds=3600.0),
        retry=RetryRule(max_attempts=1),
    )  # fmt: skip
    assert (states(result), result.makespan) == ({"ask": "timed_out"}, near(3603))


async def test_the_tool_sees_the_time_that_it_has_left() -> None:
    left: list[float | None] = []

    @dagrun.tool(effect="read")
    async def looks(context: ToolContext) -> None:
        await anyio.sleep(1)
        left.append(context.seconds_left)
        await context.ask("Go on?")
        left.append(context.seconds_left)

    await run(Step(id="ask", tool="looks", timeout=5), tools=(looks,), approver=Person(True, seconds=3600.0))

    assert left == [near(4), near(4)]


@pytest.mark.parametrize("max_running", [1, 2, 3])
async def test_held_steps_take_no_place_and_take_one_again(max_running: int) -> None:
    """Ten of them ask at the same time under a limit; after the answers, never more than that go on at once."""
    most = asked = 0
    async with start(*(_ask(f"s{i}", after=1.0) for i in range(10)), tools=(asker,), max_running=max_running) as handle:
        await settle()
        asked = len(handle.pending)
        for question in handle.pending:
            await handle.answer(question, value(1))
        while not handle.has_ended:
            most = max(most, list(handle.states.values()).count(State.RUNNING))
            await anyio.sleep(0.1)
        result = await handle.result()

    assert (asked, most, result.status) == (10, max_running, Status.SUCCEEDED)
    assert result.makespan >= 10 / max_running


async def test_the_limit_of_a_tool_holds_as_well() -> None:
    """The places under every limit are given back and taken again."""
    steps = [_ask(f"s{i}", after=1.0) for i in range(4)]
    async with start(*steps, _nap("nap", 1), tools=(asker,), max_running_by_tool={"asker": 1}) as handle:
        await settle()
        assert len(handle.pending) == 4
        for question in handle.pending:
            await handle.answer(question, value(1))
        result = await handle.result()

    assert result.makespan == near(4.01)


async def test_an_answered_step_waits_for_its_place() -> None:
    """Something else has it: the step is ready, and its own time stands still."""
    async with start(_ask(after=1.0, timeout=2.0), tools=(asker,), max_running=1) as handle:
        await settle()
        await handle.splice(Patch(edits=[dagrun.Add(step=_nap("nap", 50))]))
        await anyio.sleep(1)
        await handle.answer(handle.pending[0], value(1))
        await anyio.sleep(10)
        assert (handle.states["ask"], handle.states["nap"]) == (State.READY, State.RUNNING)
        result = await handle.result()

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(51.01))


async def test_as_many_tools_ask_at_once_as_questions_may_be_open() -> None:
    """The others keep their places until there is room, and their time stands still, too."""
    most = 0
    async with start(
        *(_ask(f"s{i}", timeout=2.0) for i in range(30)), tools=(asker,), questions=dagrun.QuestionRule(max_pending=4)
    ) as handle:
        while not handle.has_ended:
            await anyio.sleep(1)
            most = max(most, len(handle.pending))
            if handle.pending:
                await handle.answer(handle.pending[-1], value(1))
        result = await handle.result()

    assert (most, result.status) == (4, Status.SUCCEEDED)


# Losing patience --------------------------------------------------------------------------------------------


@dagrun.tool(effect="read")
async def impatient(context: ToolContext, after: float = 1.0) -> str:
    """Does not wait for ever, as anybody would write it."""
    with anyio.move_on_after(10):
        return str(await context.ask("Which?"))
    await anyio.sleep(after)
    return "nobody said"


@pytest.mark.parametrize("max_running", [None, 1])
async def test_a_tool_may_lose_patience(max_running: int | None) -> None:
    """The question is void, and the tool goes on; under a limit, when it has a place again."""
    async with start(
        Step(id="ask", tool="impatient"), _nap("nap", 30), tools=(impatient,), max_running=max_running
    ) as handle:
        await settle()
        question = handle.pending[0]
        await anyio.sleep(10)
        assert (handle.pending, handle.states["ask"]) == ((), State.RUNNING if max_running is None else State.READY)
        with pytest.raises(QuestionNotFound):
            await handle.answer(question, True)
        result = await handle.result()

    assert (result.status, result.steps["ask"].output) == (Status.SUCCEEDED, "nobody said")
    assert result.makespan == near(30 if max_running is None else 31)


@pytest.mark.parametrize("way", ["cancel", "cancel step", "drop", "replace", "scope", "seconds"])
@pytest.mark.parametrize("when", ["held", "queued", "answered"])
@pytest.mark.parametrize("tool", [asker, impatient])
async def test_a_step_that_asks_can_be_stopped_at_any_time(way: str, when: str, tool: Any) -> None:
    """While its question is open, while there is no room for it, or while it waits for a place: nothing is left."""
    others = [_ask("other")] if when == "queued" else []
    limits: dict[str, Any] = (
        {"questions": dagrun.QuestionRule(max_pending=1)} if when == "queued" else {"max_running": 1}
    )
    if way == "seconds":
        limits["max_seconds"] = 5.0
        others += [_nap("beside", 40)] if when == "held" else []  # else nothing counts but the time of people
    with anyio.CancelScope() as scope:
        async with start(*others, Step(id="ask", tool=tool.name), tools=(asker, impatient), **limits) as handle:
            await settle()
            if when == "answered":
                await handle.splice(Patch(edits=[dagrun.Add(step=_nap("nap", 40))]))
                await settle()
                await handle.answer(handle.pending[0], value(1))
            await settle()
            match way:
                case "cancel":
                    handle.cancel()
                case "cancel step":
                    handle.cancel("ask")
                case "drop":
                    await handle.splice(Patch(edits=[Drop(id="ask")]))
                case "replace":
                    await handle.splice(Patch(edits=[Replace(id="ask", step=step("new", "echo"))]))
                case "scope":
                    scope.cancel()
                    await anyio.sleep(1)
            if when == "queued" and way in ("cancel step", "drop", "replace"):
                await settle()
                with suppress(QuestionNotFound):
                    await handle.answer(handle.pending[0], value(1))

    result = await handle.result()
    ended = result.steps["ask"].state
    assert ended in (State.CANCELLED, State.SUPERSEDED)
    assert handle.pending == ()


@pytest.mark.parametrize("way", ["drop", "replace"])
async def test_a_step_that_is_dropped_with_its_answer_settles_once(way: str) -> None:
    """It waits for a slot to continue: counted twice, the run would be over before the steps that follow."""
    async with start(_ask("ask"), tools=(asker,), max_running=1) as handle:
        await settle()
        after = _nap("after", 40).model_copy(update={"depends_on": ("nap",)})
        await handle.splice(Patch(edits=[dagrun.Add(step=_nap("nap", 40)), dagrun.Add(step=after)]))
        await settle()
        await handle.answer(handle.pending[0], value(1))
        await settle()
        assert handle.states["ask"] is State.READY
        edit = Drop(id="ask") if way == "drop" else Replace(id="ask", step=step("new", "echo"))
        await handle.splice(Patch(edits=[edit]))
        result = await handle.result()

    assert result.status is Status.SUCCEEDED
    assert result.steps["ask"].state is State.SUPERSEDED
    assert result.steps["after"].state is State.SUCCEEDED


# Where it does not work -------------------------------------------------------------------------------------


@pytest.mark.real_time
async def test_only_async_tools_can_ask() -> None:
    """A plain function cannot wait for a person without keeping a thread; it is told so at once."""
    result = await run(
        Step(id="ask", tool="asks_in_a_thread"), tools=(asks_in_a_thread,), approver=(person := Person(True))
    )

    state, reason = given(result, "ask")
    assert (state, person.asked) == ("failed", [])
    assert "only async tools that run as coroutines can" in reason


async def test_a_plan_that_asks_from_another_process_is_refused() -> None:
    with pytest.raises(PlanRefused, match=r"DR222.*asks_in_a_process asks people"):
        await run(Step(id="ask", tool="asks_in_a_process"), tools=(asks_in_a_process,), approver=Person(True))


async def test_what_is_asked_must_be_json() -> None:
    @dagrun.tool(effect="read")
    async def odd(context: ToolContext, part: str) -> Any:
        facts: dict[str, Any] = {"text": "Which?", "about": None, "schema": None} | {part: {1, object()}}
        return await context.ask(facts["text"], about=facts["about"], schema=facts["schema"])

    result = await run(
        *(Step(id=part, tool="odd", args={"part": part}) for part in ("text", "about", "schema")),
        tools=(odd,), approver=(person := Person(True)),
    )  # fmt: skip
    assert (set(states(result).values()), person.asked) == ({"failed"}, [])


async def test_a_tool_error_after_the_answer_is_an_ordinary_one() -> None:
    """The attempt is one attempt: what was asked is asked again by the next."""
    asked = 0

    @dagrun.tool(effect="read")
    async def fails(context: ToolContext) -> Any:
        nonlocal asked
        asked += 1
        told = await context.ask("Which?")
        if asked == 1:
            raise ToolError("busy", retryable=True)
        return told

    person = Person(value(1), value(2))
    result = await run(Step(id="ask", tool="fails"), tools=(fails,), approver=person)
    assert (result.output, len({question.id for question in person.asked})) == (2, 2)
