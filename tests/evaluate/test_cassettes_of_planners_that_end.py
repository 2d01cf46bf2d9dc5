"""A recorded run comes to the same again: planners that end it, hand it on or over, or are asked about another goal."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Add,
    Answer,
    Brief,
    CannotPlan,
    Cassette,
    Ladder,
    MemoryJournal,
    ModelError,
    OverCeiling,
    Patch,
    PersonPlanner,
    Plan,
    Policy,
    Replace,
    RubricCritic,
    Status,
    Step,
    tool,
)
from dagrun.llm.language_model import Reply, Request, Usage
from dagrun.model.question import Question
from dagrun.testing import run_virtual
from played_again import differs_again
from pools import Pool

pytestmark = pytest.mark.real_time  # a virtual clock of its own


@tool(effect="read")
async def nap(seconds: float) -> float:
    """Take a time."""
    await anyio.sleep(seconds)
    if seconds == 13.0:
        raise ValueError("bad luck")
    return seconds


def step(id_: str, seconds: float = 1.0, **more: Any) -> Step:
    return Step(id=id_, tool="nap", args={"seconds": seconds}, **more)


class Planner:
    """Says one thing after the other: steps as it writes them, with seconds between them, patches, and exceptions.

    Args:
        answers: An answer for each time that it is asked.
    """

    def __init__(self, *answers: list[Any]) -> None:
        self._answers = list(answers)

    async def revise(self, brief: Brief) -> AsyncIterator[Add | Patch]:
        """Write."""
        for part in self._answers.pop(0):
            if isinstance(part, Exception):
                raise part
            if isinstance(part, int):
                await anyio.sleep(part)
            else:
                yield Add(step=part) if isinstance(part, Step) else part


class Nothing:
    """Has no plan."""

    async def revise(self, brief: Brief) -> None:
        """Say so."""


Kind = Callable[[MemoryJournal], Awaitable[object]]


def ends(wanted: Status, begin: Plan | str, planner: Callable[[], Any], **options: Any) -> Kind:
    """Return what carries out a plan or a goal as run "r", and sees that it ends as *wanted*."""

    async def kind(journal: MemoryJournal) -> None:
        what: dict[str, Any] = {"goal": begin} if isinstance(begin, str) else {"plan": begin}
        facts: dict[str, Any] = {"tools": [nap], "journal": journal, "run_id": "r"}
        result = await dagrun.run(**what, planner=planner(), **facts, **options)
        assert result.status is wanted, result.reason

    return kind


async def hands_over(question: Question) -> Answer:
    """Think, and leave it to others."""
    await anyio.sleep(4)
    return Answer("escalate")


async def whose_goal_changes_while_its_plan_is_mended(journal: MemoryJournal) -> None:
    """What it said about the former goal is not used, and it is asked anew."""
    first = [step("a", 7), step("b", 1, depends_on=("a",)), 5, Step(id="c", tool="fly")]
    planner = Planner(first, [3, step("mended")], [3, step("new", 2)])
    async with dagrun.start(goal="rest", tools=[nap], planner=planner, journal=journal, run_id="r") as run:
        await anyio.sleep(6)
        await run.change_goal("something else")
        result = await run.result()
    assert (result.status, "new" in result.steps) == (Status.SUCCEEDED, True), result.reason


async def whose_host_adds_a_step_for_an_executor(journal: MemoryJournal) -> None:
    """Stand-ins are called without it."""
    facts: dict[str, Any] = {"executors": {"sql": Pool()}, "journal": journal, "run_id": "r"}
    async with dagrun.start(Plan(steps=[step("a", 9)]), tools=[nap], **facts) as run:
        await anyio.sleep(1)
        await run.splice(Patch(edits=[Add(step=step("b", 2, executor="sql"))]))
        assert (await run.result()).status is Status.SUCCEEDED


class OneAtOnce:
    """A model that takes one call at once, and needs two seconds for it."""

    name = "slow"

    def __init__(self) -> None:
        self.is_busy = False

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        """Judge."""
        if self.is_busy:
            raise ModelError("too many requests", status=429, is_transient=True, retry_after=1.0)
        self.is_busy = True
        try:
            await anyio.sleep(2)
            text = json.dumps({"reason": "", "scores": {"rubric": 1.0}, "surprising": False})
            yield text
            yield Reply(text=text, stop="end", usage=Usage(1, 1), cost=None, model=self.name)
        finally:
            self.is_busy = False


async def whose_critics_wait_for_their_turn(journal: MemoryJournal) -> None:
    """A critic has its time from the moment at which its model has a place for it, which is not on record."""
    facts: dict[str, Any] = {"critics": [RubricCritic(OneAtOnce(), "It is a number.")], "journal": journal}
    plan = Plan(steps=[step(f"s{number}") for number in range(6)])
    result = await dagrun.run(plan, tools=[nap], policy=Policy(critic_timeout=5.0), run_id="r", **facts)
    assert result.status is Status.SUCCEEDED, result.reason
    assert result.makespan is not None
    assert result.makespan > 10


FLY = Patch(edits=[Add(step=Step(id="c", tool="fly"))])
FAILS = Plan(steps=[step("a", 13)], goal="rest")
CALLS = Policy(max_planner_calls=2)
KINDS: dict[str, Kind] = {
    "not at all amid a plan": ends(Status.FAILED, "rest", lambda: Planner([step("a", 50), 1, CannotPlan("no idea")])),
    "for people amid a plan": ends(
        Status.ESCALATED, "rest", lambda: Planner([step("a", 50), CannotPlan("your turn", "person")])
    ),
    "at a limit amid a plan": ends(
        Status.OVER_BUDGET, "rest", lambda: Planner([step("a", 50), 1, OverCeiling("20 calls are spent")])
    ),
    "no call is left for the next one": ends(
        Status.OVER_BUDGET, "rest", lambda: Ladder(Nothing(), Nothing(), Nothing()), policy=CALLS
    ),
    "a person as the last one hands it over": ends(
        Status.ESCALATED, "rest", lambda: Ladder(Nothing(), PersonPlanner()), approver=hands_over
    ),
    "a repair with a tool that there is not": ends(
        Status.ESCALATED, FAILS, lambda: Planner([FLY]), policy=Policy(unknown_tools="escalate")
    ),
    "a step for an executor of the host": ends(
        Status.SUCCEEDED, "rest", lambda: Planner([step("a", 1, executor="sql"), 1]), executors={"sql": Pool()}
    ),
    "a repair for an executor of the host": ends(
        Status.SUCCEEDED,
        FAILS,
        lambda: Planner([Patch(edits=[Replace(id="a", step=step("b", 1, executor="sql"))])]),
        executors={"sql": Pool()},
    ),
    "another goal while it is mended": whose_goal_changes_while_its_plan_is_mended,
    "the host names an executor": whose_host_adds_a_step_for_an_executor,
    "critics wait for their turn": whose_critics_wait_for_their_turn,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_it_comes_to_the_same_again(kind: Kind) -> None:
    """No planner, critic, or person is asked."""
    assert differs_again(kind) == []


class AsksLater:
    """Cannot help with the first step, and asks a person about the second one."""

    def __init__(self) -> None:
        self._person = PersonPlanner()
        self._is_asked = False

    async def revise(self, brief: Brief) -> Any:
        """Think, or ask."""
        if self._is_asked:
            return await self._person.revise(brief)
        self._is_asked = True
        await anyio.sleep(2)
        raise CannotPlan("no idea")


def test_time_for_which_a_planner_asks_a_person_is_not_that_of_the_answer_before() -> None:
    """Nobody has looked at that answer."""

    async def main() -> list[Any]:
        journal = MemoryJournal()
        plan = Plan(steps=[step("a", 13), step("b", 5), step("c", 13, depends_on=("b",))], goal="rest")
        facts: dict[str, Any] = {"tools": [nap], "journal": journal, "run_id": "r", "approver": hands_over}
        await dagrun.run(plan, planner=AsksLater(), **facts)
        cassette = await Cassette.from_journal("r", journal=journal)
        assert isinstance(cassette.case.planner, list)
        return [(reply.about, reply.takes) for reply in cassette.case.planner[:1]]

    assert run_virtual(main) == [(["a"], 2.0)]
