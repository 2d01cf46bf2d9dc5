"""A recorded run comes to the same again: answers that are composed, streams, and arguments that do not fit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Cassette, MemoryJournal, Plan, Policy, Step, ToolContext, ToolError, Verdict, tool
from dagrun.errors import CasesRefused
from dagrun.evaluate.cases.case_file import Case, CaseFile
from dagrun.evaluate.cases.load_cases import _unknown
from dagrun.model.outcome import Outcome
from dagrun.testing import run_virtual
from played_again import differs_again
from scripted_model import Said, ScriptedModel

pytestmark = pytest.mark.real_time  # a virtual clock of its own


@tool(effect="read")
async def get(number: int) -> int:
    """Take as many seconds as the number says."""
    await anyio.sleep(number)
    return number * 2


@tool(effect="read")
async def total(values: AsyncIterator[int], most: int = 100) -> int:
    """Add up what comes, with a quarter of a second for each; up to a limit."""
    found = 0
    async for value in values:
        await anyio.sleep(0.25)
        found += value
        if found > most:
            raise ToolError("that is too much")
    return found


@tool(effect="read")
async def find(name: Any) -> Any:
    """Find something of any type."""
    return name


@tool(effect="read")
async def shout(text: str) -> str:
    """Say it loud."""
    return text.upper()


async def write(results: Any, goal: str, context: ToolContext) -> str:
    """Write the answer; the first time, nobody can read it."""
    await anyio.sleep(2)
    context.report_usage(tokens=30)
    if context.attempt == 1:
        raise ToolError("not now", retryable=True)
    return f"{goal} {results}"


class Strict:
    """Objects to answers without a full stop, and says nothing of anything else."""

    name = "strict"

    def applies_to(self, step: Step) -> bool:
        """Only what is composed."""
        return step.tool == "compose_answer"

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge."""
        return Verdict("pass") if str(outcome.output).endswith(".") else Verdict("fail", reason="no full stop")


TWO = Plan(goal="how much?", steps=[Step(id=name, tool="get", args={"number": n}) for n, name in enumerate("ab")])
STREAM = [
    Step(id="each", tool="get", for_each=[1, 2, 3, 2], args={"number": "${item}"}),
    Step(id="sum", tool="total", args={"values": "${each}"}),
]


def plan(*steps: Step) -> Plan:
    return Plan(steps=steps)


def made_of(carried: Plan, tools: Sequence[Any], **options: Any) -> Callable[[MemoryJournal], Awaitable[object]]:
    """Return what carries out a plan as run "r"."""

    async def kind(journal: MemoryJournal) -> None:
        await dagrun.run(carried, tools=tools, journal=journal, run_id="r", **options)

    return kind


async def cancelled_while_it_was_composed(journal: MemoryJournal) -> None:
    async with dagrun.start(TWO, tools=[get], compose=write, journal=journal, run_id="r") as run:
        await anyio.sleep(2)
        run.cancel()
        await run.result()


async def resumed_while_it_was_composed(journal: MemoryJournal) -> None:
    async with dagrun.start(TWO, tools=[get], compose=write, journal=journal, run_id="r") as run:
        await anyio.sleep(2)
        run.suspend()
        await run.result()
    async with dagrun.resume("r", tools=[get], compose=write, journal=journal) as run:
        await run.result()


async def composed_by_a_model(journal: MemoryJournal) -> None:
    await made_of(TWO, [get], compose=ScriptedModel(Said(text="Two.")))(journal)


MISFIT = plan(Step(id="a", tool="find", args={"name": 7}), Step(id="b", tool="shout", args={"text": "${a}"}))
UNREAD = (
    Step(id="f", tool="find", args={"name": "many"}),
    Step(id="sum", tool="total", args={"values": "${each}", "most": "${f}"}),
)
KINDS: dict[str, Callable[[MemoryJournal], Awaitable[object]]] = {
    "composed": made_of(TWO, [get], compose=write),
    "composed by a model": composed_by_a_model,
    "composed and refused": made_of(TWO, [get], compose=write, critics=[Strict()]),
    "nothing to compose": made_of(MISFIT, [find, shout], compose=write),
    "cancelled while it was composed": cancelled_while_it_was_composed,
    "resumed while it was composed": resumed_while_it_was_composed,
    "a stream": made_of(plan(*STREAM), [get, total]),
    "a stream of a list": made_of(plan(Step(id="sum", tool="total", args={"values": [1, 2]})), [total]),
    "a stream that nobody reads": made_of(plan(STREAM[0], *UNREAD), [get, find, total]),
    "of another type": made_of(MISFIT, [find, shout]),
}


@pytest.mark.parametrize("tools", [None, [get, total, find, shout]], ids=["by its contracts", "by today's tools"])
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_run_comes_to_the_same_again(kind: Callable[[MemoryJournal], Awaitable[object]], tools: Any) -> None:
    """Nothing of it is called, and no model asked."""
    assert differs_again(kind, tools) == []


def test_it_takes_as_long_again() -> None:
    """A reader of a stream has read while its elements came: only what it did after the last one is left."""

    async def main() -> list[float]:
        journal = MemoryJournal()
        first = await dagrun.run(plan(*STREAM), tools=[get, total], journal=journal, run_id="r")
        cassette = await Cassette.from_journal("r", journal=journal)
        return [first.makespan, (await cassette.run()).makespan]

    assert run_virtual(main) == [3.5, 3.5]


def refused(kind: Callable[[MemoryJournal], Awaitable[object]]) -> str:
    """Return why a run cannot become a case."""
    with pytest.raises(CasesRefused) as caught:
        differs_again(kind)
    return str(caught.value)


def test_a_reader_that_has_not_read_to_the_end_is_refused() -> None:
    """A stand-in reads all, or nothing would be waited for."""
    greedy = Step(id="sum", tool="total", args={"values": "${each}", "most": 1})
    text = "its record does not have what step sum had read when it ended, which was before its stream did"
    assert text in refused(made_of(plan(STREAM[0], greedy), [get, total]))


def test_an_answer_that_a_ceiling_stopped_is_refused() -> None:
    """What a model costs at the worst is not on record."""
    kind = made_of(TWO, [get], compose=ScriptedModel(Said(text="Two.")), policy=Policy(max_tokens=4_000))
    assert "its record does not have the answer: a ceiling was in the way of what composed it" in refused(kind)


def test_a_golden_task_may_say_what_composes_the_answer() -> None:
    """The answer itself is enough."""
    facts = {"id": "one", "plan": TWO.model_dump(mode="json", exclude_unset=True), "world": {"get": 1}}
    case = Case.model_validate({**facts, "compose": "Two."})

    async def main() -> Any:
        return (await Cassette(case, dagrun.Toolbox([get])).run()).output

    assert run_virtual(main) == "Two."


def test_what_composes_is_no_tool_that_is_told_apart_by_arguments() -> None:
    """There is one call of it."""
    text = {"tools": "x", "cases": [{"id": "one", "plan": {"steps": []}, "compose": {"when": {"a": 1}, "return": 1}}]}
    case = CaseFile.model_validate(text).cases[0]
    assert list(_unknown(case, dagrun.Toolbox([get]))) == [
        "compose: when and step are for tools; the answer is composed once, and its acts follow each other"
    ]
