"""People who must agree to a patch: when they are asked, what they see, and what their answer is worth."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from dagrun import Add, Answer, Drop, Event, Patch, Question, QuestionRule, Replace, Rewire, Status, Step
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import StandIn
from replans import Thinker, endings, fails, instead, nap, patch, run, start, uses
from small_tools import nap as sleep
from small_tools import near, scripted, states

pytestmark = pytest.mark.anyio

GOOD = instead("bad", nap("good", 1.0))
STEPS = [fails("bad"), uses("report", "bad"), nap("other", 20.0)]


class Person:
    """Answers after some seconds, and keeps what was asked."""

    def __init__(self, *answers: Any, seconds: float = 0.0) -> None:
        self._answers = list(answers)
        self._seconds = seconds
        self.asked: list[Question] = []

    async def __call__(self, question: Question) -> Any:
        """Answer *question*."""
        self.asked.append(question)
        await anyio.sleep(self._seconds)
        return self._answers.pop(0)


def _sends(name: str = "send") -> StandIn:
    return scripted(name, "sent", effect="effectful", needs_approval=False)


def _slow_send(name: str = "slow_send") -> Any:
    return make_tool(sleep, name=name, effect="effectful", needs_approval=False)


# When -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("when", "answer", "asked"),
    [
        ("never", instead("bad", Step(id="good", tool="send")), 0),
        ("always", GOOD, 1),
        ("effects", GOOD, 0),
        ("effects", instead("bad", Step(id="good", tool="send")), 1),
        ("effects", patch(Add(step=Step(id="more", tool="send"))), 1),
        ("effects", patch(Add(step=Step(id="more", tool="reads", fallback="send"))), 1),
        ("effects", patch(Rewire(id="later", args={"value": 9})), 1),
        ("effects", patch(Drop(id="later")), 0),
        ("effects", patch(Drop(id="runs", cancel=True)), 1),
        ("effects", patch(Replace(id="other", step=nap("more", 1.0))), 1),
    ],
)
async def test_the_policy_says_which_patches_need_a_person(when: Any, answer: Patch, asked: int) -> None:
    """Effects are calls that come, that get other arguments, or that are broken off; and what stands before a call.

    Where it is changed, a check may be gone, or the call may be given something else.
    """
    person = Person(True)
    later = Step(id="later", tool="send", args={"value": 1}, depends_on=["other"])
    runs = Step(id="runs", tool="slow_send", args={"seconds": 20.0})
    tools = (_sends(), _slow_send(), scripted("reads", 1))

    await run([*STEPS, later, runs], Thinker(answer, seconds=1), *tools, approver=person, approve_patches=when)

    assert len(person.asked) == asked


async def test_what_uses_a_substitute_is_called_with_something_else() -> None:
    """Who says to whom the money goes decides more than who sends it."""
    person = Person()
    send = Step(id="mail", tool="send", args={"value": "${bad}"})

    result = await run([fails("bad"), send], Thinker(GOOD), _sends(), approver=person, approve_patches="effects")

    assert (result.status, len(person.asked), states(result)["mail"]) == (Status.FAILED, 1, "skipped")


# What they see ----------------------------------------------------------------------------------------------


async def test_a_person_sees_the_reason_and_the_difference() -> None:
    """Line by line: what goes, what comes, what is stopped, and what the run answers."""
    person = Person(True)
    answer = patch(
        Replace(id="bad", step=Step(id="good", tool="echo", args={"value": "x"})),
        Replace(id="other", step=nap("quick", 1.0)),
        reason="the source has moved",
        output="${good}",
    )

    result = await run(STEPS, Thinker(answer, seconds=1), approver=person, approve_patches="always", output="${report}")

    [question] = person.asked
    assert (question.kind, question.step, question.text) == (
        "patch",
        "",
        "May the plan be changed? the source has moved",
    )
    assert question.diff == (
        '- {"id":"bad","tool":"fail","depends_on":[]}',
        '- {"id":"other","tool":"nap","args":{"seconds":20.0,"gives":"other"},"depends_on":[]}',
        '+ {"id":"good","tool":"echo","args":{"value":"x"}}',
        '+ {"id":"quick","tool":"nap","args":{"seconds":1.0,"gives":"quick"},"depends_on":[]}',
        '- {"id":"report","tool":"echo","args":{"value":"${bad}"}}',
        '+ {"id":"report","tool":"echo","args":{"value":"${good}"}}',
        "- output: ${report}",
        "+ output: ${good}",
        "! other runs, and would be stopped",
    )
    assert (result.output, states(result)["other"]) == ("x", "superseded")


# What it is worth -------------------------------------------------------------------------------------------


async def test_only_what_depends_on_the_failure_waits_for_a_person() -> None:
    person = Person(True, seconds=5)

    result = await run(STEPS, Thinker(GOOD, seconds=2), approver=person, approve_patches="always")

    assert (result.steps["good"].started, result.steps["other"].ended) == near((7, 20))
    assert result.status is Status.SUCCEEDED


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (False, "the patch was denied"),
        (Answer("deny", by="alice", note="too dear"), "the patch was denied by alice: too dear"),
        (None, "nobody agreed to the patch"),
    ],
)
async def test_a_no_ends_the_request(answer: Any, why: str) -> None:
    """The planner is not asked for another patch, and the same one is not shown again for the next failure."""
    planner, person = Thinker(GOOD, GOOD, GOOD), Person(answer)
    events: list[Event] = []

    result = await run(STEPS, planner, approver=person, approve_patches="always", on_event=events.append)

    assert (len(planner.briefs), endings(events)) == (1, [("denied", ("bad",))])
    assert states(result) == {"bad": "failed", "report": "skipped", "other": "succeeded"}
    assert result.reason.endswith(f"the plan was not changed: {why}")


async def test_the_same_patch_is_not_put_to_people_again() -> None:
    same = patch(Add(step=nap("x", 1.0)))
    again = patch(Add(step=nap("y", 1.0)))
    planner, person = Thinker(same, again, again), Person(False, True)

    await run([fails("bad"), nap("a", 1.0), fails("worse", "a")], planner, approver=person, approve_patches="always")

    assert (planner.steps, len(person.asked)) == ([["bad"], ["worse"], ["worse"]], 1)
    assert [p.code for p in planner.briefs[2].refused[0].problems] == ["DR419"]


@pytest.mark.parametrize(("default", "status"), [("approve", Status.SUCCEEDED), ("deny", Status.FAILED)])
async def test_the_default_counts_when_nobody_answers_in_time(default: Any, status: Status) -> None:
    person = Person(True, seconds=100)

    result = await run(
        [fails("bad")], Thinker(GOOD), approver=person,
        approve_patches="always", questions=QuestionRule(answer_within=5, default_answer=default), )  # fmt: skip

    assert (result.status, result.makespan) == (status, near(6 if default == "approve" else 5))


async def test_with_nobody_there_a_patch_that_needs_a_person_is_not_applied() -> None:
    result = await run([fails("bad")], Thinker(GOOD), approve_patches="always")

    assert (result.status, result.makespan) == (Status.FAILED, 0)
    assert result.reason.endswith("the plan was not changed: nobody agreed to the patch")


async def test_a_host_answers_through_pending() -> None:
    async with start([fails("bad")], Thinker(GOOD), attended=True, approve_patches="always") as handle:
        await anyio.sleep(3)
        [question] = handle.pending
        await handle.answer(question, True)
        result = await handle.result()

    assert (result.status, result.makespan) == (Status.SUCCEEDED, near(4))


async def test_a_person_may_hand_the_whole_run_over() -> None:
    person = Person(Answer("escalate", by="alice"), seconds=3)

    result = await run(STEPS, Thinker(GOOD), approver=person, approve_patches="always")

    assert (result.status, result.makespan) == (Status.ESCALATED, near(3))


async def test_a_patch_is_checked_again_after_the_answer() -> None:
    """The graph has moved: the host has changed what the patch touches, so the yes was to another change."""
    person = Person(True, True, seconds=5)
    planner = Thinker(patch(Replace(id="bad", step=nap("good", 1.0)), Drop(id="other")), GOOD)

    async with start(STEPS, planner, approver=person, approve_patches="always") as handle:
        await anyio.sleep(1)
        await handle.splice(instead("other", nap("mine", 1.0)))
        result = await handle.result()

    assert [p.code for p in planner.briefs[1].refused[0].problems] == ["DR408", "DR401"]
    assert (states(result)["mine"], states(result)["good"]) == ("succeeded", "succeeded")
    assert len(person.asked) == 2


async def test_a_patch_that_had_become_stale_is_not_taken_for_one_that_was_tried() -> None:
    """It was agreed to and not applied; for the next failure it may be just right."""
    person = Person(True, True, seconds=5)
    same = patch(Add(step=nap("x", 1.0)), Rewire(id="late", depends_on=["x"]))
    steps = [*STEPS, nap("late", 1.0, "other"), nap("wait", 10.0), fails("worse", "wait")]
    planner = Thinker(same, None, same)

    async with start(steps, planner, approver=person, approve_patches="always") as handle:
        await anyio.sleep(1)
        await handle.splice(patch(Rewire(id="late", depends_on=["other", "wait"])))
        result = await handle.result()

    assert [p.code for p in planner.briefs[1].refused[0].problems] == ["DR408"]
    assert (planner.steps, states(result)["x"]) == ([["bad"], ["bad"], ["worse"]], "succeeded")


async def test_what_succeeded_while_people_thought_stays() -> None:
    person = Person(True, seconds=30)
    planner = Thinker(patch(Replace(id="bad", step=nap("good", 1.0)), Drop(id="other")))

    result = await run(STEPS, planner, approver=person, approve_patches="always")

    assert (states(result)["other"], result.status) == ("succeeded", Status.SUCCEEDED)


async def test_a_repair_by_the_host_makes_the_question_worthless() -> None:
    """The yes comes too late; nobody is asked anything else."""
    person = Person(True, seconds=5)
    planner = Thinker(GOOD, GOOD)

    async with start(STEPS, planner, approver=person, approve_patches="always") as handle:
        await anyio.sleep(1)
        await handle.splice(instead("bad", nap("mine", 1.0)))
        result = await handle.result()

    assert (len(planner.briefs), len(person.asked)) == (1, 1)
    assert (result.steps["report"].output, result.status) == ("mine", Status.SUCCEEDED)


async def test_cancelling_the_run_ends_the_question() -> None:
    person = Person(True, seconds=50)

    async with start(STEPS, Thinker(GOOD), approver=person, approve_patches="always") as handle:
        await anyio.sleep(2)
        handle.cancel()
        result = await handle.result()
        assert handle.pending == ()

    assert (result.status, anyio.current_time()) == (Status.CANCELLED, near(2))


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3)])
async def test_an_approver_that_breaks_is_no_yes(error: BaseException) -> None:
    async def breaks(question: Question) -> Any:
        raise error

    result = await run([fails("bad")], Thinker(GOOD), approver=breaks, approve_patches="always")

    assert result.reason.endswith("the plan was not changed: nobody agreed to the patch")


async def test_an_approver_that_is_not_async_is_no_yes() -> None:
    def plain(question: Question) -> Any:
        raise ValueError("no")

    result = await run([fails("bad")], Thinker(GOOD), approver=plain, approve_patches="always")

    assert result.reason.endswith("the plan was not changed: nobody agreed to the patch")
