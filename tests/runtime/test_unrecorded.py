"""Outputs that the policy keeps out of the record: they are nowhere in it, and a run that goes on does without them."""

from __future__ import annotations

import pytest

import dagrun
from dagrun import MemoryJournal, Plan, PlanRefused, Policy, State, Status, Step, Toolbox, Unavailable
from dagrun.events import QuestionAsked
from persons import Person

pytestmark = pytest.mark.anyio

MAIL = "ann@example.org"
ASK_FIRST = dagrun.ApprovalRule(tool="send")


class World:
    """Tools, and what was called of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @dagrun.tool(effect="read")
        async def person(name: str) -> dict[str, str]:
            self.calls.append("person")
            return {"name": name, "mail": MAIL}

        @dagrun.tool(effect="effectful")
        async def register(name: str) -> dict[str, str]:
            self.calls.append("register")
            return {"name": name, "mail": MAIL}

        @dagrun.tool(effect="read")
        async def greeting(name: str) -> str:
            self.calls.append("greeting")
            return f"Dear {name}"

        @dagrun.tool(effect="effectful")
        async def send(to: str, text: str = "") -> str:
            self.calls.append(f"send {to}")
            return "sent"

        self.tools = Toolbox(person, register, greeting, send)


def plan(source: str = "person") -> Plan:
    return Plan(
        steps=[
            Step(id="who", tool=source, args={"name": "Ann"}),
            Step(id="greet", tool="greeting", args={"name": "${who.name}"}),
            Step(id="mail", tool="send", args={"to": "${who.mail}", "text": "${greet}"}),
        ]
    )


async def suspended(world: World, source: str = "person") -> MemoryJournal:
    """A run that waits for somebody to let it send the mail."""
    journal = MemoryJournal()
    policy = Policy(unrecorded=[source], approve=[ASK_FIRST])
    result = await dagrun.run(plan(source), tools=world.tools, policy=policy, journal=journal, run_id="one")
    assert result.status is Status.WAITING
    assert result.steps["who"].output["mail"] == MAIL  # the run itself has it
    return journal


async def test_the_output_is_in_no_record_and_neither_is_a_question_that_shows_it() -> None:
    """The record outlives the run by far, and others read it."""
    journal = await suspended(World())

    texts = [line.text.decode() for line in await journal.read("one")]
    past = await dagrun.replay("one", journal=journal)

    assert not any(MAIL in text for text in texts)
    assert isinstance(past.graph.nodes["who"].value, Unavailable)
    assert past.pending[0].as_dict()["arguments"] == {"unavailable": "the policy keeps it out of the record"}


async def test_what_only_looks_is_called_once_more_when_the_run_goes_on() -> None:
    """Its output is needed; and the person is asked anew, with the arguments before his eyes."""
    world = World()
    journal = await suspended(world)
    asked = []

    async with dagrun.resume("one", journal=journal, tools=world.tools, attended=True) as run:
        async for event in run.events():
            if isinstance(event, QuestionAsked):
                asked.append(event.question.as_dict()["arguments"])
                await run.answer(event.question, True)
        result = await run.result()

    assert result.status is Status.SUCCEEDED
    assert asked == [{"to": MAIL, "text": "Dear Ann"}]
    assert world.calls == ["person", "greeting", "person", f"send {MAIL}"]  # what is on record is not called again


async def test_what_needs_the_output_of_a_call_with_an_effect_is_skipped() -> None:
    """To have it again, the world would have to be changed again."""
    world = World()
    journal = await suspended(world, "register")

    async with dagrun.resume("one", journal=journal, tools=world.tools, attended=True) as run:
        result = await run.result()

    assert result.steps["mail"].state is State.SKIPPED
    assert result.steps["mail"].reason == "what who gave is not in the record"
    assert world.calls == ["register", "greeting"]
    assert result.as_dict()["steps"]["who"]["output"] == {"unavailable": "the policy keeps it out of the record"}


def test_a_list_whose_elements_would_be_on_record_is_refused() -> None:
    """Each element is a step, and its record says what it is about."""

    @dagrun.tool(effect="read")
    async def names() -> list[str]:
        return ["Ann"]

    world = World()
    steps = [
        Step(id="all", tool="names"),
        Step(id="each", tool="greeting", args={"name": "${item}"}, for_each="${all}"),
    ]

    with pytest.raises(PlanRefused) as refused:
        dagrun.check(Plan(steps=steps), Toolbox(names, world.tools), policy=Policy(unrecorded=["names"]))

    assert [problem.code for problem in refused.value.problems if not problem.is_advice] == ["DR310"]


async def test_without_a_journal_the_policy_changes_nothing() -> None:
    """There is no record to keep anything out of."""
    world = World()

    result = await dagrun.run(plan(), tools=world.tools, policy=Policy(unrecorded=["person"]))

    assert result.status is Status.SUCCEEDED
    assert result.steps["who"].output == {"name": "Ann", "mail": MAIL}


@pytest.mark.parametrize("is_list", [False, True])
@pytest.mark.parametrize("way", ["resume", "retry"])
async def test_a_fallback_with_an_effect_is_not_called_again(way: str, is_list: bool) -> None:
    """The tool of the step only looks, but it was the fallback that gave the output."""
    world = World()

    @dagrun.tool(effect="read")
    async def lookup(name: str) -> dict[str, str]:
        raise dagrun.ToolError(f"nobody knows {name}")

    @dagrun.tool(effect="read")
    async def seldom() -> str:
        raise dagrun.ToolError("not today")

    who = Step(id="who", tool="lookup", fallback="register", args={"name": "Ann"})
    if is_list:
        who = who.model_copy(update={"for_each": ["Ann"]})
    steps = [who, Step(id="greet", tool="greeting", args={"name": "${who[0].name}" if is_list else "${who.name}"})]
    more = Step(id="more", tool="seldom") if way == "retry" else Step(id="more", tool="seldom", pause="before")
    policy = Policy(redact=["email"], redact_records=True)
    whole = Plan(steps=[*steps, more], output="${who}")
    journal, tools = MemoryJournal(), Toolbox(*world.tools.values(), lookup, seldom)
    async with dagrun.start(whole, tools=tools, policy=policy, journal=journal, run_id="one") as run:
        await run.result()
    assert world.calls.count("register") == 1

    if way == "resume":
        async with dagrun.resume("one", tools=tools, journal=journal, approver=Person(True)) as run:
            await run.result()
    else:
        async with dagrun.retry("one", tools=tools, journal=journal) as run:
            result = await run.result()
        assert result.steps["who"].state == "succeeded"
    assert world.calls.count("register") == 1
