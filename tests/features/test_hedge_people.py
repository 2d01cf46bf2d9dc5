"""Second calls where people answer and critics look: there is at most one who asks, and no result before a verdict."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import anyio
import pytest

import dagrun
from dagrun import ToolContext
from dagrun.events import StepResumed
from hedge_tools import PATIENCE, Act, Looker, nap, play, started, step
from judges import Judge
from persons import Person
from small_tools import near

pytestmark = pytest.mark.anyio

SLOW: Final = Act(100.0, "slow")
QUICK: Final = Act(0.5, "quick")


async def _asks(context: ToolContext) -> str:
    return str(await context.ask("Which one?"))


async def test_a_second_call_asks_nobody() -> None:
    """A person would be asked the same twice. The second call fails, and the first goes on."""
    look = Looker(Act(5.0, "first"), Act(0.5, _asks))
    person = Person(dagrun.Answer("approve", "that one"))
    played = await play(step(), tools=[look], approver=person)

    assert person.asked == []
    assert (played.result.output, played.result.makespan) == ("first", near(5.0))
    assert played.hedge().fault == "a hedged call cannot ask a person"


async def test_a_call_that_waits_for_a_person_gets_none() -> None:
    """It is the person who is slow."""
    look = Looker(Act(0.1, _asks), QUICK)
    person = Person(dagrun.Answer("approve", "that one"), seconds=50.0)
    played = await play(step(), tools=[look], approver=person)

    assert (played.hedged, len(look.calls)) == ([], 1)
    assert (played.result.output, played.result.makespan) == ("that one", near(50.1))


async def test_a_call_that_asks_while_the_second_one_runs_is_answered_by_that() -> None:
    """What the second call gives makes the question void, and nobody has to answer it for the run to end."""
    look = Looker(Act(2.0, _asks), Act(3.0, "second"))
    person = Person(dagrun.Answer("approve", "that one"), seconds=50.0)
    played = await play(step(), nap("next", 1.0, "slow"), tools=[look], approver=person, max_running=2)

    assert played.result.steps["slow"].output == "second"
    assert played.result.makespan == near(PATIENCE + 4.0)
    assert played.run.pending == ()
    assert played.of(StepResumed) == []


async def test_an_answer_that_comes_as_the_second_call_wins_opens_nothing_again() -> None:
    """The step has succeeded: its question is void at that very instant, not when the first call has unwound."""
    may_end = anyio.Event()

    async def wins(_: ToolContext) -> str:
        await may_end.wait()
        return "second"

    look, find = Looker(Act(2.0, _asks), Act(0.0, wins)), Looker(Act(1.0), name="find")
    async with started(step(), step("next", "find", "slow"), tools=[look, find], attended=True) as played:

        async def answer() -> None:
            (question,) = played.run.pending
            await may_end.wait()
            with suppress(dagrun.errors.QuestionNotFound):
                await played.run.answer(question, dagrun.Answer("approve", value="that one"))

        async with anyio.create_task_group() as tasks:
            await anyio.sleep(3.0)
            tasks.start_soon(answer)
            await anyio.sleep(1.0)
            may_end.set()
            result = await played.run.result()

    assert (len(look.calls), len(find.calls)) == (2, 1)
    assert {id_: str(found.state) for id_, found in result.steps.items()} == {"slow": "succeeded", "next": "succeeded"}
    assert result.steps["slow"].output == "second"


async def test_what_critics_look_at_gets_none() -> None:
    """Whether a result counts is for them to say; the other call cannot wait for that."""
    look = Looker(Act(5.0, "first"), QUICK)
    judge = Judge("pass", step="slow")
    played = await play(step(), tools=[look], critics=[judge])

    assert (played.hedged, judge.seen) == ([], ["first"])


async def test_steps_beside_what_critics_look_at_are_hedged() -> None:
    """A critic of one step is nothing to the others."""
    played = await play(step(), tools=[Looker(SLOW, QUICK)], critics=[Judge("pass", step="another")])
    assert played.hedged == ["slow"]
