"""Gates: a step that pauses, an answer that is not handed out unseen, and a run that is handed over to people."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from dagrun import Add, Answer, Asked, Event, Patch, QuestionRule, Rewire, State, Status, Step
from dagrun.events import AttemptStarted, QuestionAnswered, RunEnded
from persons import Person, pay, run, settle, start, step
from small_tools import near, states

pytestmark = pytest.mark.anyio


def _echo(id_: str, value: Any = 1, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="echo", args={"value": value}, depends_on=after, **fields)


# Pauses -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_running", [None, 1])
async def test_a_pause_before_a_step_holds_that_step_alone(max_running: int | None) -> None:
    async with start(_echo("a", pause="before"), _echo("b", "${a}"), _echo("alone"), max_running=max_running) as handle:
        await settle()
        (question,) = handle.pending
        assert (question.kind, question.step, question.why) == (Asked.PAUSE, "a", "pause: before it starts")
        assert {id_: str(state) for id_, state in handle.states.items()} == {
            "a": "held", "b": "waiting", "alone": "succeeded",
        }  # fmt: skip
        await handle.answer(question, True)
        assert (await handle.result()).status is Status.SUCCEEDED


@pytest.mark.parametrize("max_running", [None, 1])
async def test_a_pause_after_a_step_holds_what_depends_on_it(max_running: int | None) -> None:
    """Its value is there to be looked at; nothing has used it yet."""
    async with start(
        _echo("a", 5, pause="after"), _echo("b", "${a}"), _echo("c", 1, "a"), _echo("alone"), max_running=max_running
    ) as handle:
        await settle()
        (question,) = handle.pending
        assert (question.kind, question.step, question.why) == (Asked.PAUSE, "a", "pause: before what depends on it")
        assert {id_: str(state) for id_, state in handle.states.items()} == {
            "a": "succeeded", "b": "blocked", "c": "blocked", "alone": "succeeded",
        }  # fmt: skip
        await handle.answer(question, True)
        result = await handle.result()

    assert (result.status, result.output["b"]) == (Status.SUCCEEDED, 5)


async def test_the_plan_can_be_changed_at_a_pause() -> None:
    """That is what it is for: look, edit, and go on from there with the plan as it then is."""
    tool = pay(needs_approval=False)
    async with start(_echo("draft", 1, pause="after"), step(value="${draft}"), _echo("other"), tools=(tool,)) as handle:
        await settle()
        await handle.splice(
            Patch(
                edits=[
                    Add(step=_echo("better", {"from": "${draft}"})),
                    Rewire(id="pay", use={"draft": "better"}),
                ]
            )
        )
        await anyio.sleep(100)
        assert (handle.states["better"], tool.calls) == (State.BLOCKED, [])
        await handle.answer(handle.pending[0], True)
        result = await handle.result()

    assert (result.status, tool.calls) == (Status.SUCCEEDED, [{"value": {"from": 1}}])


async def test_a_step_can_be_changed_while_it_pauses() -> None:
    """The pause belongs to the step as it was: changed, it pauses again."""
    async with start(_echo("a", 1, pause="before"), _echo("b")) as handle:
        await settle()
        first = handle.pending[0]
        await handle.splice(Patch(edits=[Rewire(id="a", args={"value": 2})]))
        await settle()
        (second,) = handle.pending
        assert second.id != first.id
        await handle.answer(second, True)
        result = await handle.result()

    assert result.output["a"] == 2


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("before", {"a": "failed", "b": "skipped", "c": "skipped", "d": "skipped", "alone": "succeeded"}),
        ("after", {"a": "succeeded", "b": "skipped", "c": "skipped", "d": "skipped", "alone": "succeeded"}),
    ],
)
async def test_a_no_at_a_pause_ends_that_branch(when: Any, expected: dict[str, str]) -> None:
    result = await run(
        _echo("a", pause=when), _echo("b", "${a}"), _echo("c", 1, "a"), _echo("d", "${b}"), _echo("alone"),
        approver=Person(Answer("deny", note="not like this")),
    )  # fmt: skip

    assert (states(result), result.status) == (expected, Status.FAILED)
    assert "not like this" in result.reason


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_pause_without_anybody_there_ends_waiting(when: Any) -> None:
    result = await run(_echo("a", pause=when), _echo("b", "${a}"), _echo("alone"))

    assert (result.status, result.steps["b"].state) == (Status.WAITING, State.SKIPPED)
    assert result.steps["alone"].state is State.SUCCEEDED


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(("default", "status"), [("approve", Status.SUCCEEDED), ("deny", Status.FAILED)])
async def test_a_pause_has_a_time_of_its_own(when: Any, default: Any, status: Status) -> None:
    result = await run(
        _echo("a", pause=when), _echo("b", "${a}"), questions=QuestionRule(answer_within=60, default_answer=default)
    )
    assert (result.status, result.makespan) == (status, near(60))


@pytest.mark.parametrize("items", [[1, 2, 3], []])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_list_pauses_as_a_whole(when: Any, items: list[int]) -> None:
    """One question, not one for each element; and all of its values are there to be looked at."""
    async with start(_echo("each", "${item}", for_each=items, pause=when), _echo("b", "${each}")) as handle:
        await settle()
        (question,) = handle.pending
        assert question.step == "each"
        assert handle.states["each"] is (State.HELD if when == "before" else State.SUCCEEDED)
        await handle.answer(question, True)
        result = await handle.result()

    assert (result.status, result.output) == (Status.SUCCEEDED, items)


async def test_a_default_is_looked_at_as_well() -> None:
    """What stands in after a failure is no safer than what the step would have given."""
    bad = Step(id="a", tool="fail", on_failure="default", default=7, pause="after")
    async with start(bad, _echo("b", "${a}")) as handle:
        await settle()
        assert handle.states["b"] is State.BLOCKED
        await handle.answer(handle.pending[0], True)
        assert (await handle.result()).output == 7


async def test_a_failure_is_nothing_to_pause_at() -> None:
    result = await run(Step(id="a", tool="fail", pause="after"), _echo("b", "${a}"), approver=(person := Person(True)))
    assert (states(result), person.asked) == ({"a": "failed", "b": "skipped"}, [])


async def test_pauses_wait_for_room_like_other_questions() -> None:
    steps = [
        step_
        for i in range(6)
        for step_ in (_echo(f"a{i}", pause=("before", "after")[i % 2]), _echo(f"b{i}", 1, f"a{i}"))
    ]
    open_: list[int] = []
    async with start(*steps, questions=QuestionRule(max_pending=2)) as handle:
        while not handle.has_ended:
            await settle()
            open_.append(len(handle.pending))
            if handle.pending:
                await handle.answer(handle.pending[0], True)
        result = await handle.result()

    assert (max(open_), result.status) == (2, Status.SUCCEEDED)


# The answer of the run --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("says", "status", "output"),
    [
        (True, Status.SUCCEEDED, {"a": 1, "b": 2}),
        (Answer("deny", note="wrong"), Status.FAILED, None),
        (None, Status.WAITING, None),
        (Answer("escalate"), Status.ESCALATED, None),
    ],
)
async def test_the_answer_is_handed_out_after_a_look(says: Any, status: Status, output: Any) -> None:
    """What the person sees is what would be handed out; steps keep their outputs in any case."""
    person, seen = Person(says, seconds=5.0), list[Event]()

    result = await run(_echo("a"), _echo("b", 2), approver=person, approve_output=True, on_event=seen.append)

    (question,) = person.asked
    assert (question.kind, question.step) == (Asked.OUTPUT, "")
    assert question.as_dict()["arguments"] == {"a": 1, "b": 2}
    assert (result.status, result.output, result.makespan) == (status, output, near(5))
    assert result.steps["a"].output == 1
    assert isinstance(seen[-1], RunEnded)
    assert sum(isinstance(event, RunEnded) for event in seen) == 1


async def test_an_answer_that_nobody_can_look_at_is_not_handed_out() -> None:
    result = await run(_echo("a"), approve_output=True)
    assert (result.status, result.output) == (Status.WAITING, None)
    assert result.reason == "nobody was there to let the answer out"


async def test_a_run_that_failed_has_nothing_to_let_out() -> None:
    result = await run(Step(id="a", tool="fail"), approve_output=True, approver=(person := Person(True)))
    assert (result.status, person.asked) == (Status.FAILED, [])


async def test_a_run_can_be_cancelled_while_its_answer_is_looked_at() -> None:
    async with start(_echo("a"), approve_output=True) as handle:
        await settle()
        assert (len(handle.pending), handle.has_ended) == (1, False)
        handle.cancel()
        result = await handle.result()

    assert (result.status, handle.pending) == (Status.CANCELLED, ())


# Handing over -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_failure", [None, "stop", "skip", "replan"])
@pytest.mark.parametrize("pause", [None, "before", "after"])
async def test_whoever_escalates_ends_the_run_for_people(on_failure: Any, pause: Any) -> None:
    """Not as a failure of the step, whatever the plan says about those; what runs is stopped, what was done is told."""
    fields: dict[str, Any] = {"on_failure": on_failure} if on_failure else {}
    tool = pay(needs_approval=pause is None)

    result = await run(
        _echo("done"),
        step(**fields, pause=pause),
        _echo("b", "${pay}"),
        Step(id="runs", tool="nap", args={"seconds": 60.0}),
        tools=(tool,),
        approver=Person(Answer("escalate", by="ann", note="ask legal"), seconds=5.0),
    )

    assert (result.status, result.status.exit_code, result.makespan) == (Status.ESCALATED, 6, near(5))
    assert result.reason.startswith("handed over by ann: ")
    assert result.reason.endswith(" (ask legal)")
    assert result.handoff is not None
    assert set(result.handoff["done"]) == {"done", "pay"} if pause == "after" else {"done"}
    assert [tried["step"] for tried in result.handoff["tried"]] == ["runs"]
    assert {step_["step"] for step_ in result.handoff["undecided"]} >= {"b"}
    assert json.dumps(result.as_dict())


async def test_escalation_leaves_no_question_open() -> None:
    seen: list[Event] = []
    async with start(step("a"), step("b"), tools=(pay(),), seen=seen) as handle:
        await settle()
        await handle.answer(handle.pending[0], Answer("escalate"))
        assert (handle.pending, handle.has_ended) == ((), True)

    assert sum(isinstance(event, QuestionAnswered) for event in seen) == 2
    assert not any(isinstance(event, AttemptStarted) for event in seen)


async def test_many_can_be_escalated_at_once() -> None:
    async with start(step("a"), step("b"), tools=(pay(),)) as handle:
        await settle()
        await handle.answer(handle.pending, Answer("escalate"))
        assert (await handle.result()).status is Status.ESCALATED
