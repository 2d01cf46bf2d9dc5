"""Recorded runs that waited for people, or were stopped and resumed, come to the same again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Add,
    Answer,
    Brief,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    Question,
    Replace,
    Status,
    Step,
    ToolError,
    tool,
)
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.recorded_case import recorded_case
from dagrun.model.codec.event_codec import events_of
from dagrun.model.question import AnswerLetter
from dagrun.testing import run_virtual
from played_again import differs_again

pytestmark = pytest.mark.real_time  # a virtual clock of its own


@tool(effect="read")
async def look(what: str, seconds: float = 1.0) -> str:
    """Look something up."""
    await anyio.sleep(seconds)
    return what


@tool(effect="effectful", needs_approval=True)
async def send(text: str) -> str:
    """Send it."""
    await anyio.sleep(1)
    return f"sent {text}"


@tool(effect="effectful")
async def lose(text: str) -> str:
    """Send it, perhaps."""
    await anyio.sleep(1)
    raise ConnectionError("the line is dead")


@tool(effect="read")
async def lack(date: str = "") -> str:
    """Need a date."""
    if not date:
        raise ToolError("no date", missing_input="date")
    return date


TOOLS = (look, send, lose, lack)


async def case_of(journal: MemoryJournal) -> dict[str, Any]:
    """Return the fields of the case of run "r"."""
    return recorded_case("r", events_of("r", await journal.read("r")))


# People who answer by letters -----------------------------------------------------------------------------------------


async def leave(journal: MemoryJournal, questions: tuple[Question, ...], answer: Answer) -> None:
    """Answer questions in the absence of a process that has the run."""
    key = await journal.answer_key("r")
    for question in questions:
        await journal.post("r", AnswerLetter.of(question.id, answer, key).model_dump_json().encode())


SENT_LATER = Plan(
    steps=[
        Step(id="a", tool="look", args={"what": "x"}),
        Step(id="b", tool="send", args={"text": "${a}"}),
        Step(id="c", tool="lack"),
        Step(id="d", tool="look", args={"what": "${c}"}),
    ]
)


async def answered_by_letters(journal: MemoryJournal) -> None:
    """The run waits twice: nobody has answered about b at first, and about c not at all before it is known."""
    async with dagrun.start(SENT_LATER, tools=TOOLS, journal=journal, run_id="r") as run:
        assert (await run.result()).status is Status.WAITING
        about = {question.step: question for question in run.pending}
    await leave(journal, (about["c"],), Answer("approve", "2026-11-26"))
    async with dagrun.resume("r", tools=TOOLS, journal=journal) as run:
        assert (await run.result()).status is Status.WAITING
    await leave(journal, (about["b"],), Answer("deny", note="not now"))
    async with dagrun.resume("r", tools=TOOLS, journal=journal) as run:
        assert (await run.result()).status is Status.FAILED


async def mended_before_letters_come(journal: MemoryJournal) -> None:
    """The planner is asked before people who may come later."""
    options: dict[str, Any] = {"tools": TOOLS, "planner": Careful(), "journal": journal}
    async with dagrun.start(SENT_LATER, run_id="r", **options) as run:
        assert (await run.result()).status is Status.WAITING
        pending = run.pending
    await leave(journal, pending, Answer("approve"))
    async with dagrun.resume("r", **options) as run:
        assert (await run.result()).status is Status.SUCCEEDED


@pytest.mark.parametrize("kind", [answered_by_letters, mended_before_letters_come], ids=lambda kind: kind.__name__)
def test_a_run_whose_people_answered_while_it_waited_waits_again(
    kind: Callable[[MemoryJournal], Awaitable[None]],
) -> None:
    """A person who is there while it goes on is asked before the planner."""
    assert differs_again(kind) == []


class Careful:
    """Mends what lacks something, and writes a plan that sends something."""

    async def revise(self, brief: Brief) -> Patch | None:
        """Answer at once."""
        if any(trigger.step for trigger in brief.triggers):
            return Patch(edits=[Replace(id="c", step=Step(id="e", tool="look", args={"what": "y"}))])
        return Patch(edits=[Add(step=Step(id="b", tool="send", args={"text": "x"}))])


async def mended_by_nobody(journal: MemoryJournal) -> None:
    """There is nobody to ask what is lacking, so the planner is asked; then nobody is there to agree to its patch."""
    policy = Policy(approve_patches="always")
    plan = Plan(steps=[Step(id="c", tool="lack")])
    await dagrun.run(plan, tools=TOOLS, planner=Careful(), policy=policy, journal=journal, run_id="r")


def test_a_run_in_which_only_its_planner_could_ask_is_carried_out_without_people() -> None:
    """With somebody to ask, the step would be held, before the planner is asked."""
    assert differs_again(mended_by_nobody) == []


async def planned_for_nobody(journal: MemoryJournal) -> None:
    """Nobody is there to agree to a plan that sends something."""
    await plan_for_nobody(journal, Policy(approve_patches="effects"))


async def plan_for_nobody(journal: MemoryJournal, policy: Policy) -> None:
    options: dict[str, Any] = {"tools": TOOLS, "planner": Careful(), "policy": policy, "journal": journal}
    assert (await dagrun.run(goal="send it", run_id="r", **options)).status is Status.WAITING


def test_a_first_plan_to_which_nobody_has_agreed_is_not_a_wrong_one() -> None:
    """The planner would be asked for another one."""
    assert differs_again(planned_for_nobody) == []


def test_a_first_plan_that_nobody_has_agreed_to_see_begun_is_not_on_record() -> None:
    """A planner that has failed would end the run as failed, and not as waiting for a person."""

    async def main() -> None:
        journal = MemoryJournal()
        await plan_for_nobody(journal, Policy(approve_patches="always"))
        with pytest.raises(CasesRefused, match="does not have the plan to which nobody has agreed"):
            await case_of(journal)

    run_virtual(main)
