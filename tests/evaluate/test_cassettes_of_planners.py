"""A recorded run comes to the same again: plans that run while they are written, and planners that cannot go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
import pytest
from pydantic import ValidationError

import dagrun
from dagrun import (
    Add,
    Brief,
    CannotPlan,
    Cassette,
    MemoryJournal,
    ModelError,
    Patch,
    Plan,
    Policy,
    Question,
    RetryRule,
    Status,
    Step,
    tool,
)
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.case_file import Case, HostDeed, PlannerReply
from dagrun.evaluate.cases.cassette import recorded_tools
from dagrun.evaluate.cases.planner_replies import PlayedPlanner
from dagrun.evaluate.cases.recorded_case import recorded_case
from dagrun.model.codec.event_codec import events_of
from dagrun.model.event import PlannerCalled
from dagrun.model.usage import METER
from dagrun.testing import run_virtual
from played_again import differs_again

pytestmark = pytest.mark.real_time  # a virtual clock of its own


@tool(effect="read")
async def nap(seconds: float) -> float:
    """Take a time."""
    await anyio.sleep(seconds)
    return seconds


def step(id_: str, seconds: float = 1.0, **more: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds}, **more)


def unknown(id_: str) -> Step:
    return Step(id=id_, tool="fly")


class Planner:
    """Says one thing after the other: edits as it writes them, with seconds between them, and an exception at the end.

    Args:
        answers: An answer for each time that it is asked.
        tokens: What its model uses in each.
    """

    def __init__(self, *answers: list[Any], tokens: int | None = None) -> None:
        self._answers = list(answers)
        self._tokens = tokens

    async def revise(self, brief: Brief) -> AsyncIterator[Add | Patch]:
        """Write."""
        if self._tokens is not None:
            METER.get().reserve("a-model", 60, None).settle(self._tokens or None, None)
        for part in self._answers.pop(0):
            if isinstance(part, Exception):
                raise part
            if isinstance(part, Step):
                yield Add(step=part)
            elif isinstance(part, Patch):
                yield part
            else:
                await anyio.sleep(part)


Kind = Callable[[MemoryJournal], Awaitable[object]]


def goal(wanted: Status, *answers: list[Any], tokens: int | None = None, **options: Any) -> Kind:
    """Return what carries out a goal as run "r", and sees that it ends as *wanted*."""

    async def kind(journal: MemoryJournal) -> None:
        planner = Planner(*(list(answer) for answer in answers), tokens=tokens)
        policy = Policy(**options)
        facts: dict[str, Any] = {"planner": planner, "policy": policy, "journal": journal, "run_id": "r"}
        result = await dagrun.run(goal="rest", tools=[nap], **facts)
        assert result.status is wanted, result.reason

    return kind


async def cancelled_before_the_rest_is_written(journal: MemoryJournal) -> None:
    """The host cancels a step whose plan is still being written."""
    planner = Planner([step("a", 50), 2, step("b", 1, depends_on=("a",)), 1])
    async with dagrun.start(goal="rest", tools=[nap], planner=planner, journal=journal, run_id="r") as run:
        await anyio.sleep(1)
        run.cancel("a")
        await run.result()


async def cancelled_while_it_writes(journal: MemoryJournal) -> None:
    """It would have gone on writing."""
    planner = Planner([step("a"), 5, step("b")])
    async with dagrun.start(goal="rest", tools=[nap], planner=planner, journal=journal, run_id="r") as run:
        await anyio.sleep(3)
        run.cancel()
        await run.result()


def suspended(*answers: list[Any]) -> Kind:
    """Return what suspends a run after three seconds, and takes it up again: its planner is asked again."""

    async def kind(journal: MemoryJournal) -> None:
        planner = Planner(*(list(answer) for answer in answers))
        facts: dict[str, Any] = {"tools": [nap], "planner": planner, "journal": journal}
        async with dagrun.start(goal="rest", run_id="r", **facts) as run:
            await anyio.sleep(3)
            run.suspend()
            await run.result()
        async with dagrun.resume("r", **facts) as run:
            assert (await run.result()).status is Status.SUCCEEDED

    return kind


class Twice:
    """Writes a plan of which the second step is none, and then the first step alone, as a whole plan."""

    def revise(self, brief: Brief) -> Any:
        """Write."""
        return self._again() if brief.refused else self._first()

    async def _first(self) -> AsyncIterator[Add]:
        yield Add(step=step("a", 3))
        yield Add(step=unknown("b"))

    async def _again(self) -> Plan:
        await anyio.sleep(1)
        return Plan(steps=[step("a", 3)])


async def written_twice(journal: MemoryJournal) -> None:
    """The step that runs is in both plans."""
    result = await dagrun.run(goal="rest", tools=[nap], planner=Twice(), journal=journal, run_id="r")
    assert (result.status, result.makespan) == (Status.SUCCEEDED, 3.0)


class Whole:
    """Gives a plan of which a step is none, and thinks about another one for a long time."""

    async def revise(self, brief: Brief) -> Plan:
        """Write."""
        await anyio.sleep(50 if brief.refused else 1)
        return Plan(steps=[step("a"), unknown("b")])


async def cancelled_while_it_is_mended(journal: MemoryJournal) -> None:
    """Of a plan that was refused as a whole, nothing runs before it is mended."""
    async with dagrun.start(goal="rest", tools=[nap], planner=Whole(), journal=journal, run_id="r") as run:
        await anyio.sleep(5)
        run.cancel()
        assert [len(step.attempts) for step in (await run.result()).steps.values()] == [0]


@tool(effect="effectful")
async def send() -> str:
    """Send it."""
    return "sent"


class Unsure:
    """Gives a plan, or a patch, of which it is not sure."""

    async def revise(self, brief: Brief) -> Plan | Patch:
        """Write."""
        await anyio.sleep(1)
        sent = Step(id="send", tool="send")
        return Plan(steps=[sent], confidence=0.4) if brief.is_first else Patch(edits=[Add(step=sent)], confidence=0.4)


async def of_which_nobody_is_sure(journal: MemoryJournal) -> None:
    """Somebody has to agree to what has effects, and nobody is there."""
    facts: dict[str, Any] = {"planner": Unsure(), "policy": Policy(min_confidence=0.6), "journal": journal}
    result = await dagrun.run(goal="send it", tools=[send], run_id="r", **facts)
    assert result.status is Status.WAITING, result.reason


async def cancelled_while_a_person_looks_at_it(journal: MemoryJournal) -> None:
    """Nobody has agreed to it, and nothing of it runs."""

    async def thinks(question: Question) -> bool:
        await anyio.sleep_forever()
        return True

    facts: dict[str, Any] = {"planner": Unsure(), "policy": Policy(min_confidence=0.6), "journal": journal}
    async with dagrun.start(goal="send it", tools=[send], approver=thinks, run_id="r", **facts) as run:
        await anyio.sleep(10)
        run.cancel()
        assert (await run.result()).status is Status.CANCELLED


class Model(Unsure):
    """Asks a model, and does not say how sure it is."""

    must_say_confidence = True

    async def revise(self, brief: Brief) -> Plan:
        """Write."""
        await anyio.sleep(1)
        return Plan(steps=[Step(id="send", tool="send")])


def of_which_its_model_says_nothing(answer: bool) -> Kind:
    """Make a run of a plan with an effect, about which a person is asked."""

    async def record(journal: MemoryJournal) -> None:
        async def says(question: Question) -> bool:
            return answer

        result = await dagrun.run(
            goal="send it", tools=[send], planner=Model(), approver=says, run_id="r", journal=journal
        )
        assert result.status is (Status.SUCCEEDED if answer else Status.FAILED), result.reason

    return record


BUSY = ModelError("too many requests", is_transient=True)
MORE = Patch(edits=[], more=True)
KINDS: dict[str, Kind] = {
    "cancelled while it is written": cancelled_before_the_rest_is_written,
    "stopped while it is written": cancelled_while_it_writes,
    "suspended while it is written": suspended([step("a"), 5, step("b")], [step("c", 2, depends_on=("a",))]),
    "suspended before it is written": suspended([5, step("a")], [1, step("b")]),
    "too late with the rest": goal(
        Status.OVER_BUDGET, [step("a"), 99, step("b")], max_planner_calls=1, planner_timeout=9.0
    ),
    "for people": goal(Status.ESCALATED, [CannotPlan("your turn", "person")]),
    "at a limit of its own": goal(Status.OVER_BUDGET, [1, CannotPlan("20 steps", "ceiling")]),
    "not at all": goal(Status.FAILED, [CannotPlan("no idea")]),
    "for people later": goal(Status.ESCALATED, [step("a"), MORE], [CannotPlan("sign it", "person")]),
    "not at all later": goal(Status.FAILED, [step("a"), MORE], [CannotPlan("no idea")]),
    "with a tool that there is not": goal(Status.ESCALATED, [unknown("a")], unknown_tools="escalate"),
    "with the same once more": written_twice,
    "cancelled while it is mended": cancelled_while_it_is_mended,
    "cancelled while a person looks at it": cancelled_while_a_person_looks_at_it,
    "nobody is sure of it": of_which_nobody_is_sure,
    "its model does not say how sure it is": of_which_its_model_says_nothing(answer=True),
    "its model does not say how sure it is, and a person says no": of_which_its_model_says_nothing(answer=False),
    "busy until no call is left": goal(
        Status.OVER_BUDGET, [BUSY], [BUSY], max_planner_calls=2, retry=RetryRule(max_attempts=9)
    ),
    "no room for its model": goal(
        Status.OVER_BUDGET, [step("a", 9), 1, unknown("b")], [step("c")], tokens=50, max_tokens=100
    ),
    "no room for a model that reports nothing": goal(
        Status.OVER_BUDGET, [step("a", 9), 1, unknown("b")], [step("c")], tokens=0, max_tokens=100
    ),
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_run_comes_to_the_same_again(kind: Kind) -> None:
    """No planner is asked."""
    assert differs_again(kind) == []


def test_a_run_of_which_only_the_plan_was_wanted_is_refused() -> None:
    """A case is carried out."""

    async def kind(journal: MemoryJournal) -> None:
        async with dagrun.Engine() as engine:
            await engine.draft(goal="rest", tools=[nap], planner=Planner([step("a")]), journal=journal, run_id="r")

    with pytest.raises(CasesRefused, match="what its plan comes to: only the plan was wanted"):
        differs_again(kind)


def test_time_in_which_a_model_was_waited_for_is_not_that_of_the_planner() -> None:
    """A planner has its time from the moment at which its model has a place for it, which is not on record."""

    async def main() -> list[Any]:
        journal = MemoryJournal()
        await goal(Status.SUCCEEDED, [1, step("a")], planner_timeout=3.0)(journal)
        recorded = events_of("r", await journal.read("r"))
        waited = [replace(one, seconds=7.0) if isinstance(one, PlannerCalled) else one for one in recorded]
        case = recorded_case("r", waited)
        again = await Cassette(Case.model_validate(case), recorded_tools(waited)).run()
        return [case["planner"][0]["takes"], str(again.status)]

    assert run_virtual(main) == [2.999, "succeeded"]


def test_it_takes_as_long_and_uses_as_much_again() -> None:
    """Its first step ran while the second was written, and the model of its planner was paid for."""

    async def main() -> list[Any]:
        journal = MemoryJournal()
        await goal(Status.SUCCEEDED, [1, step("a", 5), 3, step("b", 2, depends_on=("a",)), 1], tokens=40)(journal)
        cassette = await Cassette.from_journal("r", journal=journal)
        result = await cassette.run()
        assert isinstance(cassette.case.planner, list)
        return [result.makespan, result.tokens, cassette.case.planner[0].at]

    assert run_virtual(main) == [8.0, 40, [1.0, 4.0]]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kind": "person", "patch": {"edits": []}}, "kind is for a reply with fail"),
        ({"at": [1.0], "fail": "no"}, "at is for a reply with a plan"),
        ({"plan": {"steps": []}, "busy": "no"}, "a reply is one of refuse, busy and fail"),
        ({"refuse": "no", "busy": "no"}, "a reply is one of refuse, busy and fail"),
        ({"plan": {"steps": []}, "refuse": "no", "more": True}, "more is for an answer that is not refused"),
        ({"at": [1.0, 2.0], "plan": {"steps": [{"id": "a", "tool": "nap"}]}}, "at has more times than plan has steps"),
    ],
)
def test_what_a_reply_of_a_planner_has_in_vain_is_told(fields: dict[str, Any], words: str) -> None:
    """Else it would be ignored."""
    with pytest.raises(ValidationError, match=words):
        PlannerReply.model_validate(fields)


def test_people_are_there_from_a_resumption_on() -> None:
    """Not from a splice on, say."""
    with pytest.raises(ValidationError, match="attended is for a deed that resumes the run"):
        HostDeed.model_validate({"cancel": "*", "attended": True})


@pytest.mark.parametrize("steps", [None, 5])
def test_a_plan_without_a_list_of_steps_is_refused(steps: Any) -> None:
    """With its place, and before anything runs."""
    with pytest.raises(CasesRefused, match=r"planner\[0\].plan"):
        PlayedPlanner([PlannerReply(plan={"steps": steps}, at=[1.0])], [])


def test_a_plan_without_steps_is_refused_for_the_reason_that_is_given() -> None:
    """It asks for no tool that there is not, which would be for people here."""
    facts = {"id": "one", "goal": "rest", "policy": {"unknown_tools": "escalate"}}
    case = Case.model_validate({**facts, "planner": [{"plan": {"steps": []}, "refuse": "because of the moon"}]})

    async def main() -> Any:
        return await Cassette(case, dagrun.Toolbox([nap])).run()

    result = run_virtual(main)
    assert result.status is Status.FAILED


def test_the_reason_of_a_planner_that_cannot_go_on_is_its_own() -> None:
    """It is not said twice that it cannot; and nothing is said of an answer that nobody has asked for."""

    async def main() -> Any:
        journal = MemoryJournal()
        await goal(Status.ESCALATED, [step("a"), MORE], [CannotPlan("sign it", "person")])(journal)
        return (await Cassette.from_journal("r", journal=journal)).case.planner

    *_, last = run_virtual(main)
    assert (last.fail, last.kind) == ("sign it", "person")
