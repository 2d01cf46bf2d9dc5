"""Approvers: whatever they do, only a clear answer counts; and questions that no answer is needed now."""

from __future__ import annotations

import logging
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import dagrun
from dagrun import Answer, Drop, Event, Patch, Replace, Rewire, State, Status, Step
from dagrun.errors import ContractError, QuestionNotFound
from dagrun.events import QuestionAnswered
from persons import Person, given, pay, run, settle, start, step
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio


# Approvers --------------------------------------------------------------------------------------------------


class _Odd:
    """Awaitable, and no coroutine."""

    def __await__(self) -> Any:
        yield from anyio.sleep(1).__await__()
        return True


def _raises(question: Any) -> Any:
    raise RuntimeError("no")


async def _cancels_itself(question: Any) -> Any:
    raise anyio.get_cancelled_exc_class()() if anyio.get_cancelled_exc_class().__module__ != "trio" else SystemExit(1)


@pytest.mark.parametrize(
    ("approver", "reason"),
    [
        (Person(RuntimeError("no")), "it raised RuntimeError: no"),
        (Person(SystemExit(1)), "SystemExit"),
        (Person(KeyboardInterrupt()), "KeyboardInterrupt"),
        (_raises, "it raised RuntimeError: no"),
        (_cancels_itself, ""),
        (lambda question: True, "the approver is a plain function; write it with async def"),
        (Person("yes"), "it gave a str, not an Answer"),
        (Person(1), "it gave a int, not an Answer"),
        (Person(Answer("maybe")), "the choice is one of"),  # type: ignore[arg-type]
        (Person(Answer("approve", by=1)), "by and note are texts"),  # type: ignore[arg-type]
    ],
)
async def test_an_approver_that_misbehaves_has_not_agreed(
    approver: Any, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing but a clear yes is one; the run goes on, and says why nobody agreed."""
    tool = pay()

    with caplog.at_level(logging.WARNING, "dagrun.run"):
        result = await run(step(), step("alone", "echo"), tools=(tool,), approver=approver)

    assert (result.status, tool.calls) == (Status.WAITING, [])
    assert states(result) == {"pay": "skipped", "alone": "succeeded"}
    assert given(result)[1].startswith("no approver: it failed: ")
    assert reason in given(result)[1]
    assert reason in caplog.text


async def test_an_approver_that_will_not_say_leaves_it_open() -> None:
    result = await run(step(), tools=(pay(),), approver=Person(None))
    assert (result.status, given(result)) == (Status.WAITING, ("skipped", "no approver"))


async def test_any_awaitable_will_do() -> None:
    result = await run(step(), tools=(pay(),), approver=lambda question: _Odd())
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(1))


@pytest.mark.parametrize("says", [None, RuntimeError("no"), "rubbish"])
async def test_who_will_not_say_leaves_it_to_the_others(says: Any) -> None:
    """With a host that answers, or a default that counts later, an approver that fails is not the last word."""
    async with start(step(), tools=(pay(),), approver=Person(says)) as handle:
        await settle()
        await handle.answer(handle.pending[0], True)
        assert (await handle.result()).status is Status.SUCCEEDED

    result = await run(
        step(),
        tools=(pay(),),
        approver=Person(says),
        questions=dagrun.QuestionRule(answer_within=9, default_answer="approve"),
    )
    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(9))


async def test_the_first_answer_counts() -> None:
    """The host was quicker: the approver is not asked any more, and what it says then is late."""
    person = Person(False, seconds=10.0)
    async with start(step(), tools=(pay(),), approver=person) as handle:
        await settle()
        await handle.answer(handle.pending[0], True)
        result = await handle.result()

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(0.01))


async def _never(question: Any) -> Any:
    await anyio.sleep_forever()


async def _never_ever(question: Any) -> Any:
    while True:  # with a pause between, or no virtual clock would ever move
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.2)
        with suppress(anyio.get_cancelled_exc_class()):
            await checkpoint()


@pytest.mark.parametrize("approver", [_never, _never_ever])
@pytest.mark.parametrize("way", ["cancel", "cancel step", "drop", "scope"])
async def test_an_approver_that_hangs_holds_up_nothing(approver: Any, way: str) -> None:
    """Its step can be cancelled or dropped, and the run can be left; no task stays behind."""
    with anyio.CancelScope() as scope:
        async with start(step(), step("alone", "echo"), tools=(pay(),), approver=approver) as handle:
            await settle()
            match way:
                case "cancel":
                    handle.cancel()
                case "cancel step":
                    handle.cancel("pay")
                case "drop":
                    await handle.splice(Patch(edits=[Drop(id="pay")]))
                case _:
                    scope.cancel()
                    await anyio.sleep(1)

    result = await handle.result()
    assert result.steps["pay"].state in (State.CANCELLED, State.SUPERSEDED)
    assert (handle.pending, result.steps["alone"].state) == ((), State.SUCCEEDED)


async def test_an_approver_is_asked_in_the_context_of_the_run() -> None:
    """And cannot change it for others."""
    variable = ContextVar("variable", default="none")
    found: list[str] = []

    async def approver(question: Any) -> bool:
        found.append(variable.get())
        variable.set("changed")
        return True

    variable.set("outside")
    await run(step("a"), step("b"), tools=(pay(),), approver=approver)

    assert (found, variable.get()) == (["outside", "outside"], "outside")


# Void questions ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["cancel", "drop", "replace", "stop", "optional"])
async def test_a_step_that_ends_while_it_is_held_takes_its_question_along(way: str) -> None:
    """Whoever answers then is told; the approver is not asked any more; the record says that it is void."""
    seen: list[Event] = []
    others = [Step(id="bad", tool="late", on_failure="stop")] if way == "stop" else []
    async with start(
        step(), *others, tools=(pay(), scripted("late", dagrun.testing.Takes(0.1, ValueError()))), seen=seen
    ) as handle:
        await settle()
        (question,) = handle.pending
        match way:
            case "cancel":
                handle.cancel("pay")
            case "drop":
                await handle.splice(Patch(edits=[Drop(id="pay")]))
            case "replace":
                await handle.splice(Patch(edits=[Replace(id="pay", step=step("new", "echo"))]))
            case "stop":
                await anyio.sleep(1)
            case _:
                handle.cancel()
        assert handle.pending == ()
        with pytest.raises(QuestionNotFound):
            await handle.answer(question, True)

    (answered,) = [event for event in seen if isinstance(event, QuestionAnswered)]
    assert (answered.answer, answered.state) == (None, None)


async def test_a_question_that_comes_back_is_not_answered_by_the_old_asking() -> None:
    """Rewired away and back: the same call, asked anew, with a time of its own."""
    person = Person(True, None, None, seconds=50.0)
    async with start(
        step(value=1), tools=(pay(),), approver=person, questions=dagrun.QuestionRule(answer_within=60)
    ) as handle:
        for value in (2, 1):
            await anyio.sleep(20)
            await handle.splice(Patch(edits=[Rewire(id="pay", args={"value": value})]))
        await anyio.sleep(25)  # 65 s: the first asking's time is over, and so is what its approver thought
        assert handle.states["pay"] is State.HELD
        result = await handle.result()

    assert (states(result), result.makespan) == ({"pay": "failed"}, near(100))


async def test_answers_belong_to_the_loop_of_the_run() -> None:
    async with start(step(), tools=(pay(),)) as handle:
        await settle()
        question = handle.pending[0]

        def elsewhere() -> None:
            coroutine = handle.answer(question, True)
            try:
                coroutine.send(None)
            finally:
                coroutine.close()

        with pytest.raises(ContractError, match="in its loop"):
            await anyio.to_thread.run_sync(elsewhere)
        handle.cancel()
