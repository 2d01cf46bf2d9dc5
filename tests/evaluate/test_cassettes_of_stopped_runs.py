"""Recorded runs that waited for people, or were stopped and resumed, come to the same again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
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
    ToolContext,
    ToolError,
    tool,
)
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.case_file import Case
from dagrun.evaluate.cases.recorded_case import recorded_case
from dagrun.journal.memory import MemoryTape
from dagrun.model.codec.event_codec import events_of
from dagrun.model.event import AttemptStarted, Event, QuestionAnswered, QuestionAsked
from dagrun.model.question import AnswerLetter
from dagrun.testing import run_virtual
from played_again import again, differs_again

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


async def answered_while_it_went_on(journal: MemoryJournal) -> None:
    """A letter has come soon enough; a planner, if there is one, has no idea of what may have been sent."""
    steps = [
        Step(id="a", tool="look", args={"what": "x", "seconds": 9.0}),
        Step(id="b", tool="send", args={"text": "y"}),
        Step(id="c", tool="lack"),
        Step(id="d", tool="lose", args={"text": "z"}, on_failure="skip"),
    ]
    options: dict[str, Any] = {"tools": TOOLS, "planner": Careful(), "journal": journal}
    async with dagrun.start(Plan(steps=steps), run_id="r", **options) as run:
        await anyio.sleep(2)
        await leave(journal, run.pending, Answer("approve"))
        assert (await run.result()).steps["b"].state == "succeeded"


async def left_to_a_planner_that_was_not_asked(journal: MemoryJournal) -> None:
    """As there is a planner, nobody is asked what became of the call; the step itself says that it may be skipped."""
    plan = Plan(steps=[Step(id="d", tool="lose", args={"text": "z"}, on_failure="skip")])
    await dagrun.run(plan, tools=TOOLS, planner=Careful(), journal=journal, run_id="r")


BY_LETTERS = (
    answered_by_letters,
    mended_before_letters_come,
    answered_while_it_went_on,
    left_to_a_planner_that_was_not_asked,
)


@pytest.mark.parametrize("kind", BY_LETTERS, ids=lambda kind: kind.__name__)
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


# What became of calls in doubt ----------------------------------------------------------------------------------------


async def was_written(key: str) -> bool | None:
    """Know it of the second call that is asked about, and not of the first."""
    ASKED.append(key)
    await anyio.sleep(0.5)
    return None if len(ASKED) == 1 else False


ASKED: list[str] = []


@tool(effect="effectful", reconcile=was_written)
async def write(text: str, context: ToolContext) -> str:
    """Write it; it is not known whether it is written, the first time."""
    await anyio.sleep(1)
    if context.attempt == 1:
        raise ConnectionError("the line is dead")
    return text


async def found_out_and_told(journal: MemoryJournal) -> None:
    """Of one call a person knows that it took effect, of the other its tool that it did not."""
    ASKED.clear()
    steps = [
        Step(id=id_, tool="write", args={"text": id_}, depends_on=after) for id_, after in (("a", ()), ("b", ("a",)))
    ]
    result = await dagrun.run(Plan(steps=steps), tools=[write], approver=knows, journal=journal, run_id="r")
    assert result.output == "b"
    assert [len(step.attempts) for step in result.steps.values()] == [1, 2]


async def knows(question: Question) -> Answer:
    """Say that it took effect."""
    return Answer("took_effect", "written", by="ann")


def test_what_a_tool_says_of_a_call_in_doubt_is_of_this_step() -> None:
    """Of the other step it knows nothing, so a person is asked."""
    assert differs_again(found_out_and_told) == []


async def settled_when_it_was_resumed(journal: MemoryJournal) -> None:
    """Nobody was there at first, so the planner has dropped the call in doubt; then nobody answers, then somebody."""

    async def slow(question: Question) -> Answer:
        await anyio.sleep(9)
        return Answer("did_not")

    plan = Plan(steps=[Step(id="c", tool="lose", args={"text": "x"})])
    options: dict[str, Any] = {"tools": TOOLS, "planner": Careful(), "journal": journal}
    assert (await dagrun.run(plan, run_id="r", **options)).status is Status.UNKNOWN
    async with dagrun.resume("r", **options) as run:
        assert (await run.result()).status is Status.WAITING
    async with dagrun.resume("r", approver=slow, **options) as run:
        await anyio.sleep(1)
        run.cancel()
        assert (await run.result()).status is Status.UNKNOWN
    async with dagrun.resume("r", approver=knows, **options) as run:
        assert (await run.result()).status is Status.SUCCEEDED


def test_people_are_there_in_the_lives_of_a_run_in_which_they_were() -> None:
    """A person in the first would be asked before the planner."""
    assert differs_again(settled_when_it_was_resumed) == []


async def cancelled_in_doubt(journal: MemoryJournal) -> None:
    """The host cancels a step while a person is asked what became of it."""

    async def look_away(question: Question) -> None:
        await anyio.sleep_forever()

    plan = Plan(steps=[Step(id="c", tool="lose", args={"text": "x"})])
    async with dagrun.start(plan, tools=TOOLS, approver=look_away, journal=journal, run_id="r") as run:
        await anyio.sleep(2)
        run.cancel("c")
        assert (await run.result()).status is Status.UNKNOWN


def test_a_step_in_doubt_that_was_cancelled_is_cancelled_again() -> None:
    """Else its question would wait for ever."""
    assert differs_again(cancelled_in_doubt) == []


@tool(effect="effectful")
async def begin(text: str) -> str:
    """Take it back when told to stop."""
    try:
        await anyio.sleep(9)
    except anyio.get_cancelled_exc_class():
        raise ToolError("taken back") from None
    return text


async def taken_back(journal: MemoryJournal) -> None:
    """The run is cancelled, and nothing is in doubt."""
    plan = Plan(steps=[Step(id="a", tool="begin", args={"text": "x"})])
    async with dagrun.start(plan, tools=[begin], journal=journal, run_id="r") as run:
        await anyio.sleep(1)
        run.cancel()
        assert (await run.result()).status is Status.CANCELLED


def test_a_call_that_was_taken_back_as_it_was_stopped_is_not_in_doubt() -> None:
    assert differs_again(taken_back) == []


# Changed and stopped while it went on --------------------------------------------------------------------------------


@tool(effect="read")
async def refuse() -> str:
    """Do nothing."""
    raise ToolError("no")


class Quick:
    """Puts another step in the place of the one that has failed, or writes a plan."""

    async def revise(self, brief: Brief) -> Patch | None:
        """Answer at once."""
        (step,) = {trigger.step for trigger in brief.triggers}
        new = Step(id=f"{step}2", tool="look", args={"what": "y"})
        return Patch(edits=[Replace(id=step, step=new) if step else Add(step=new)])


async def record_patched(journal: MemoryJournal, run: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Let a person look at every patch for 5 seconds, and agree to all but the first."""
    seen: list[Question] = []

    async def agree(question: Question) -> bool:
        seen.append(question)
        await anyio.sleep(5)
        return len(seen) > 1

    policy, tools = Policy(approve_patches="always"), (*TOOLS, refuse)
    await run({"planner": Quick(), "approver": agree, "policy": policy, "journal": journal, "tools": tools})
    assert [question.kind for question in seen] == ["patch", "patch"]


async def one_patch_refused(journal: MemoryJournal) -> None:
    """The patch for c is refused, that for d agreed to."""

    async def run(options: dict[str, Any]) -> None:
        steps = [
            Step(id="c", tool="refuse", optional=True),
            Step(id="a", tool="look", args={"what": "x"}),
            Step(id="d", tool="refuse", depends_on=("a",)),
        ]
        await dagrun.run(Plan(steps=steps), run_id="r", **options)

    await record_patched(journal, run)


async def changed_while_a_person_looked_at_the_plan(journal: MemoryJournal) -> None:
    """There is another goal meanwhile, and the plan for it is agreed to."""

    async def run(options: dict[str, Any]) -> None:
        async with dagrun.start(goal="look", run_id="r", **options) as handle:
            await anyio.sleep(2)
            await handle.change_goal("look well")
            await handle.result()

    await record_patched(journal, run)


@pytest.mark.parametrize(
    "kind", [one_patch_refused, changed_while_a_person_looked_at_the_plan], ids=lambda kind: kind.__name__
)
def test_nobody_is_asked_about_a_patch_that_is_not_on_record(kind: Callable[[MemoryJournal], Awaitable[None]]) -> None:
    """What was said of it would be said of the next one."""
    assert differs_again(kind) == []


async def repaired_while_a_person_looked_at_the_patch(journal: MemoryJournal) -> None:
    """The patch is agreed to when the host has already put another step in the place of the one that has failed."""

    async def agree(question: Question) -> bool:
        await anyio.sleep(5)
        return True

    steps = [Step(id="c", tool="refuse"), Step(id="b", tool="look", args={"what": "${c}"})]
    options: dict[str, Any] = {"planner": Quick(), "approver": agree, "policy": Policy(approve_patches="always")}
    async with dagrun.start(Plan(steps=steps), tools=(*TOOLS, refuse), journal=journal, run_id="r", **options) as run:
        await anyio.sleep(2)
        await run.splice(Patch(edits=[Replace(id="c", step=Step(id="d", tool="look", args={"what": "z"}))]))
        assert (await run.result()).status is Status.SUCCEEDED


def test_a_patch_takes_as_long_as_a_person_has_looked_at_it() -> None:
    """It was not used, and so is not on record; by then, the host has repaired the plan."""
    assert differs_again(repaired_while_a_person_looked_at_the_patch) == []


def test_a_patch_about_which_a_person_has_handed_the_run_over_is_not_on_record() -> None:
    """Nobody can be asked about it again."""

    async def hand_over(question: Question) -> Answer:
        return Answer("escalate", by="ann")

    async def main() -> None:
        journal, plan = MemoryJournal(), Plan(steps=[Step(id="c", tool="refuse")])
        options: dict[str, Any] = {"planner": Quick(), "approver": hand_over}
        policy = Policy(approve_patches="always")
        await dagrun.run(plan, tools=(refuse, look), policy=policy, journal=journal, run_id="r", **options)
        with pytest.raises(CasesRefused, match="does not have the patch about which a person has handed the run over"):
            await case_of(journal)

    run_virtual(main)


@tool(effect="read")
async def ask(text: str, context: ToolContext) -> str:
    """Ask a person in the middle of the work."""
    return str(await context.ask(text))


def test_a_run_that_was_handed_over_when_a_tool_asked_amid_its_work_is_no_case() -> None:
    """Its stand-in does not ask, so it would wait for ever."""

    async def hand_over(question: Question) -> Answer:
        return Answer("escalate", by="ann")

    async def main() -> None:
        journal, plan = MemoryJournal(), Plan(steps=[Step(id="c", tool="ask", args={"text": "how many?"})])
        result = await dagrun.run(plan, tools=[ask], approver=hand_over, journal=journal, run_id="r")
        assert result.status is Status.ESCALATED
        with pytest.raises(CasesRefused, match="a person has handed it over as c asked amid its work"):
            await case_of(journal)

    run_virtual(main)


class SaysTwice:
    """Writes a step and then nonsense; and the step alone, when it is asked again."""

    def revise(self, brief: Brief) -> AsyncIterator[Add] | Awaitable[Plan]:
        """Write."""
        return self._again() if brief.refused else self._first()

    async def _first(self) -> AsyncIterator[Add]:
        yield Add(step=RISKY)
        yield Add(step=Step(id="b", tool="nothing"))

    async def _again(self) -> Plan:
        return Plan(steps=[RISKY])


RISKY = Step(id="a", tool="lose", args={"text": "x"}, on_failure="skip")


async def agreed_to_when_it_was_written_twice(journal: MemoryJournal) -> None:
    """Somebody agrees to the second plan, which says what the first had said already."""

    async def agree(question: Question) -> Answer:
        return Answer("took_effect", "sent it") if question.kind == "effect" else Answer("approve")

    options: dict[str, Any] = {"planner": SaysTwice(), "approver": agree, "policy": Policy(approve_patches="effects")}
    await dagrun.run(goal="lose it", tools=TOOLS, journal=journal, run_id="r", **options)


def test_a_plan_that_was_written_twice_is_agreed_to_again() -> None:
    """Nothing was changed by it, but its steps could begin."""
    assert differs_again(agreed_to_when_it_was_written_twice) == []


async def changed_at_once_and_cancelled(journal: MemoryJournal) -> None:
    """The host changes the plan as the first call begins, and cancels before that has taken too long."""
    begun = anyio.Event()

    def see(event: Event) -> None:
        if isinstance(event, AttemptStarted):
            begun.set()

    plan = Plan(steps=[Step(id="a", tool="look", args={"what": "x", "seconds": 9.0}, timeout=1.0005)])
    async with dagrun.start(plan, tools=TOOLS, journal=journal, run_id="r", on_event=see) as run:
        await begun.wait()
        await run.splice(Patch(edits=[Add(step=Step(id="b", tool="look", args={"what": "${a}"}))]))
        await anyio.sleep(1)
        run.cancel()
        await run.result()


def test_a_deed_that_is_done_a_little_later_does_not_delay_the_next() -> None:
    """The call would have taken too long by then."""
    assert differs_again(changed_at_once_and_cancelled) == []


class SlowTape(MemoryTape):
    """Takes a quarter of a second to keep what it is given."""

    async def durable(self, seq: int | None = None) -> None:
        """Wait until it is kept."""
        await anyio.sleep(0.25)
        await super().durable(seq)


class SlowJournal(MemoryJournal):
    """A journal far away."""

    tape_type = SlowTape


async def cancelled_while_its_journal_was_slow() -> list[str]:
    """The call begins when its begin is on record, and is cancelled just before it has taken too long."""
    journal = SlowJournal()
    plan = Plan(steps=[Step(id="a", tool="look", args={"what": "x", "seconds": 9.0}, timeout=1.0)])
    async with dagrun.start(plan, tools=TOOLS, journal=journal, run_id="r") as run:
        await anyio.sleep(0.95)
        run.cancel()
        await run.result()
    return await again(journal, "r")


def test_a_deed_is_timed_from_what_began_first_and_not_from_the_begin_of_the_record() -> None:
    """The stand-ins wait for no journal, so the call would have taken too long."""
    assert run_virtual(cancelled_while_its_journal_was_slow) == []


def test_a_question_that_nobody_may_have_heard_has_no_answer_that_would_answer_the_next() -> None:
    """Else the second question would wait for ever."""

    async def main() -> dict[str, Any]:
        journal, asked = MemoryJournal(), anyio.Event()

        def see(event: Event) -> None:
            if isinstance(event, QuestionAsked):
                asked.set()

        plan = Plan(steps=[Step(id="a", tool="lose", args={"text": "x"})])
        options: dict[str, Any] = {"tools": TOOLS, "journal": journal, "approver": knows}
        async with dagrun.start(plan, run_id="r", on_event=see, **options) as run:
            await asked.wait()
            run.cancel()
            assert (await run.result()).status is Status.UNKNOWN
        async with dagrun.resume("r", **options) as run:
            assert (await run.result()).status is Status.SUCCEEDED
        return await case_of(journal)

    assert run_virtual(main)["people"] == {"a": {"choice": "took_effect", "value": "written", "kind": "effect"}}


async def cancelled_as_it_asked(journal: MemoryJournal) -> None:
    """A person would have been asked."""
    asked = anyio.Event()

    def see(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            asked.set()

    plan = Plan(steps=[Step(id="b", tool="look", args={"what": "x"}), Step(id="a", tool="send", args={"text": "x"})])
    options: dict[str, Any] = {"tools": TOOLS, "journal": journal, "approver": knows}
    async with dagrun.start(plan, run_id="r", on_event=see, **options) as run:
        await asked.wait()
        run.cancel()
        assert (await run.result()).status is Status.CANCELLED


def test_the_last_question_waits_for_its_answer_even_if_nobody_may_have_heard_it() -> None:
    """Else it has found nobody before the host cancels."""
    assert differs_again(cancelled_as_it_asked) == []


@tool(effect="read")
async def locked() -> None:
    """Let nobody in."""
    raise PermissionError("no")


class Gives:
    """Replaces what nobody may do."""

    async def revise(self, brief: Brief) -> Patch:
        """Replace it."""
        return Patch(edits=[Replace(id=brief.triggers[0].step, step=Step(id="other", tool="is_free"))])


@tool(effect="read")
async def is_free() -> str:
    """Do it without asking."""
    return "done"


async def in_vain(journal: MemoryJournal) -> None:
    """A person has said yes as often as people are asked; then the planner is."""

    async def yes(question: Question) -> Answer:
        await anyio.sleep(2)
        return Answer("approve", by="ann")

    facts: dict[str, Any] = {"tools": [locked, is_free], "planner": Gives(), "approver": yes, "journal": journal}
    result = await dagrun.run(Plan(steps=[Step(id="a", tool="locked")]), run_id="r", **facts)
    assert [attempt.decision.recovery for attempt in result.steps["a"].attempts if attempt.decision] == [
        "ask",
        "ask",
        "replan",
    ]


def test_a_person_who_could_not_help_was_there() -> None:
    """They are asked again, and nobody writes letters."""
    assert differs_again(in_vain) == []


def test_letters_come_in_the_order_of_the_questions() -> None:
    """At one instant, too."""
    steps = [*({"id": id_, "tool": "paid", "args": {"to": id_}} for id_ in "abc"), {"id": "d", "tool": "is_free"}]
    world = {"paid": "paid", "is_free": {"takes": 5.0, "return": "done"}}
    facts = {"id": "one", "plan": {"steps": steps}, "world": world, "letters": True}

    async def main() -> list[str]:
        told: list[Event] = []
        cassette = dagrun.Cassette(
            Case.model_validate({**facts, "people": {"*": "approve"}}), dagrun.Toolbox([paid, is_free])
        )
        await cassette.run(on_event=told.append)
        return [event.step for event in told if isinstance(event, QuestionAnswered)]

    assert run_virtual(main) == ["a", "b", "c"]


@tool(effect="effectful", needs_approval=True)
async def paid(to: str) -> str:
    """Pay."""
    return "paid"
