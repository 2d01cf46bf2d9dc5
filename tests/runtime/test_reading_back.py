"""A run that is over can be read back: what was planned, what came of it, who said what, and what it cost."""

from __future__ import annotations

import pytest

import dagrun
from dagrun import Add, Answer, CountCritic, MemoryJournal, Patch, Plan, Policy, Status, Step, ToolContext
from dagrun.events import AttemptEnded, QuestionAnswered, QuestionAsked, Reviewed, RunStarted, Spliced

pytestmark = pytest.mark.anyio


@dagrun.tool(effect="read")
async def rows(count: int, context: ToolContext) -> list[int]:
    """Give so many rows, and say what that cost."""
    context.report_usage(tokens=count, cost=0.25)
    return list(range(count))


@dagrun.tool(effect="effectful", needs_approval=True)
async def send(count: int) -> str:
    """Send them."""
    return f"sent {count}"


async def approve(question: dagrun.Question) -> Answer:
    return Answer("approve", by="ann", note="seen")


async def test_plan_revisions_outcomes_verdicts_answers_and_costs_can_be_read_back() -> None:
    """Whoever has to explain a run a year later has nothing but its record."""
    journal = MemoryJournal()
    plan = Plan(steps=[Step(id="load", tool="rows", args={"count": 3})], goal="three rows")
    critic = CountCritic("enough", at_least=1, steps=["load"])

    async with dagrun.start(
        plan, tools=[rows, send], policy=Policy(), critics=[critic], approver=approve, journal=journal, run_id="one"
    ) as run:
        added = Step(id="mail", tool="send", args={"count": 3}, depends_on=["load"])
        await run.splice(Patch(edits=[Add(step=added)], reason="somebody wants them"))
        result = await run.result()
    events = await journal.records("one")

    assert result.status is Status.SUCCEEDED
    (opened,) = [event.opening for event in events if isinstance(event, RunStarted)]
    assert opened is not None
    assert (opened.plan, opened.tools["send"]["effect"]) == (plan, "effectful")
    assert [(e.reason, e.edits) for e in events if isinstance(e, Spliced)] == [
        ("somebody wants them", (Add(step=added),))
    ]
    (review,) = [event for event in events if isinstance(event, Reviewed)]
    assert [(verdict.critic, verdict.result) for verdict in review.verdicts] == [(critic.name, "pass")]
    (asked,) = [event.question for event in events if isinstance(event, QuestionAsked)]
    (answered,) = [event.answer for event in events if isinstance(event, QuestionAnswered)]
    assert (asked.arguments, answered) == (b'{"count":3}', Answer("approve", by="ann", note="seen"))
    ends = {event.step: event.outcome for event in events if isinstance(event, AttemptEnded)}
    assert {step: (end.output, end.tokens, end.cost) for step, end in ends.items()} == {
        "load": ([0, 1, 2], 3, 0.25),
        "mail": ("sent 3", 0, None),
    }


async def test_a_run_that_is_read_back_is_the_run() -> None:
    """The plan with its revisions, and every step, as the result of the run itself has them."""
    journal = MemoryJournal()
    plan = Plan(steps=[Step(id="load", tool="rows", args={"count": 2})])
    result = await dagrun.run(plan, tools=[rows], journal=journal, run_id="one")

    past = await dagrun.replay("one", journal=journal)

    assert (past.status, past.has_ended, past.history.current) == (Status.SUCCEEDED, True, plan)
    assert past.steps["load"] == result.steps["load"]
