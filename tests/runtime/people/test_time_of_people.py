"""The time in which a run only waits for people does not count under max_seconds."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from crash_process import RUN
from dagrun import Answer, MemoryJournal, Plan, Policy, Question, Status, Step, ToolContext
from persons import settle
from small_tools import near

pytestmark = pytest.mark.anyio


@dagrun.tool(effect="read", needs_approval=True)
async def send(seconds: float) -> str:
    """Work, once a person agrees."""
    await anyio.sleep(seconds)
    return "sent"


@dagrun.tool(effect="read")
async def ask(context: ToolContext, seconds: float) -> Any:
    """Ask amid the call, and work."""
    await anyio.sleep(seconds)
    told = await context.ask("Which?")
    await anyio.sleep(seconds)
    return told


@dagrun.tool(effect="read")
async def work(seconds: float) -> str:
    """Work."""
    await anyio.sleep(seconds)
    return "done"


TOOLS = (send, ask, work)


async def _run(*steps: Step, takes: float, limit: float, **options: Any) -> dagrun.RunResult:
    async def person(question: Question) -> Answer:
        await anyio.sleep(takes)
        return Answer("approve", "this")

    policy = Policy(max_seconds=limit, **options)
    return await dagrun.run(Plan(steps=steps), tools=TOOLS, approver=person, policy=policy)


def _step(id_: str, tool: str, seconds: float, **fields: Any) -> Step:
    return Step(id=id_, tool=tool, args={"seconds": seconds}, **fields)


@pytest.mark.parametrize("tool", ["send", "ask"])
async def test_a_run_may_wait_for_its_reviewer_longer_than_it_may_take(tool: str) -> None:
    result = await _run(_step("a", tool, 0.4), takes=3600, limit=1)

    assert (result.status, result.makespan > 3600) == (Status.SUCCEEDED, True)


async def test_what_goes_on_beside_the_question_counts() -> None:
    """A second of work beside it, and half a second after the answer."""
    steps = _step("a", "send", 0.5), _step("b", "work", 1.0)
    assert (await _run(*steps, takes=100, limit=1.6)).status is Status.SUCCEEDED

    result = await _run(*steps, takes=100, limit=1.4)

    assert (result.status, result.makespan) == (Status.OVER_BUDGET, near(100.4))


async def test_what_follows_the_answer_counts() -> None:
    result = await _run(_step("a", "send", 5.0), takes=100, limit=2)

    assert (result.status, result.makespan) == (Status.OVER_BUDGET, near(102))


async def test_the_time_of_people_before_a_run_is_resumed_does_not_count() -> None:
    """It is found in the record, so that both processes count the same."""
    journal, plan = MemoryJournal(), Plan(steps=[_step("a", "work", 0.5), _step("b", "send", 1.0, depends_on=["a"])])
    options: dict[str, Any] = {"tools": TOOLS, "journal": journal, "attended": True}
    async with dagrun.start(plan, run_id=RUN, policy=Policy(max_seconds=2), **options) as run:
        await anyio.sleep(50)
        run.suspend("later")
        await run.result()
    async with dagrun.resume(RUN, **options) as run:
        await settle()
        await anyio.sleep(50)
        await run.answer(run.pending[0], True)
        result = await run.result()

    assert (result.status, result.output) == (Status.SUCCEEDED, "sent")
