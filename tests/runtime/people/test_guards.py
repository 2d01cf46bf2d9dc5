"""One gate before every effect: whatever way a call takes into a run, nobody gets round the people who guard it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Add, EnsemblePlanner, MemoryJournal, ModelPlanner, Plan, Policy, PoolLimits, Question, Step
from dagrun.kernel.model.tool import AnyTool
from drafts import GOAL, Writer, whole
from guard_doors import (
    BEHIND,
    DOORS,
    MALLORY,
    MORE_DOORS,
    RULE,
    STORIES,
    Door,
    Outcome,
    Proposes,
    Story,
    const,
    door_tools,
    go_through,
    pay,
    tell,
)
from guard_world import VAULT, Obedient, vault
from persons import Person
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

EVERY_DOOR: Final = pytest.mark.parametrize("door", [*DOORS, *MORE_DOORS], ids=lambda door: door.name)
FAILS: Final = Step(id="boom", tool="fails")


# A planner's patches --------------------------------------------------------------------------------------------------


@EVERY_DOOR
async def test_no_patch_pays_what_a_person_refuses(door: Door) -> None:
    """The patch may be refused, or the call held, or skipped; but nobody is paid without a yes."""
    outcome = await go_through(door, says=False)

    assert tuple(outcome.paid) == door.paid
    assert outcome.asked


@EVERY_DOOR
async def test_a_yes_lets_the_payment_through(door: Door) -> None:
    """The gate is a gate and no wall: it is the person who decides."""
    outcome = await go_through(door, says=True)

    assert outcome.paid
    assert outcome.asked


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
async def test_no_number_of_answers_pays_what_a_person_refuses(story: Story) -> None:
    """Each answer by itself may look harmless."""
    outcome = await tell(story)

    assert tuple(outcome.paid) == story.paid
    assert outcome.asked


# First plans that are repaired ----------------------------------------------------------------------------------------


def _plan(confidence: float, *, is_broken: bool = False) -> dict[str, Any]:
    steps = [{"id": "a", "tool": "const", "args": {"value": "x"}}, {"id": "p", "tool": "pay", "args": {"to": "alice"}}]
    steps += [{"id": "z", "tool": "no_such_tool", "args": {}}] if is_broken else []
    return {"steps": steps, "output": None, "confidence": confidence, "refusal": None}


POLICIES: Final = {
    "min_confidence": (Policy(), 0.3),
    "always": (Policy(approve_patches="always"), 0.9),
    "effects": (Policy(approve_patches="effects"), 0.9),
}


async def _drafted(planner: Any, policy: Policy | None = None, *, says: bool, tools: Sequence[AnyTool] = ()) -> Outcome:
    outcome, person = Outcome(), Person(says)
    known = tools or door_tools(outcome.paid)
    outcome.result = await dagrun.run(goal=GOAL, planner=planner, tools=known, policy=policy, approver=person)
    outcome.asked = [f"{question.kind} {question.step}".strip() for question in person.asked]
    return outcome


@pytest.mark.parametrize("is_broken", [False, True], ids=["valid at once", "repaired"])
@pytest.mark.parametrize("name", POLICIES)
async def test_a_first_plan_is_agreed_to_however_it_came(name: str, is_broken: bool) -> None:
    """A plan that was refused for a fault and repaired is asked about like one that was right at once."""
    policy, sure = POLICIES[name]
    for says, paid in ((False, []), (True, [("alice", 10)])):
        answers = [*([_plan(sure, is_broken=True)] if is_broken else []), _plan(sure)]
        outcome = await _drafted(ModelPlanner(ScriptedModel(*answers)), policy, says=says)
        assert (outcome.paid, bool(outcome.asked)) == (paid, True)


async def test_an_ensemble_cannot_talk_its_doubts_away() -> None:
    """The strong planner answers with the same plan, and is as unsure of it."""
    for says, paid in ((False, []), (True, [("alice", 10)])):
        fast, strong = ModelPlanner(ScriptedModel(_plan(0.4))), ModelPlanner(ScriptedModel(_plan(0.3)))
        outcome = await _drafted(EnsemblePlanner(fast, strong), says=says)
        assert (outcome.paid, bool(outcome.asked)) == (paid, True)


async def test_a_repair_by_a_small_patch_is_asked_about_as_the_whole_plan() -> None:
    """Else a person would see the small step, and agree to the payment beside it."""
    broken = [pay("p"), Step(id="z", tool="no_such_tool"), whole(confidence=0.3)]
    repair = [Add(step=const("more")), whole(confidence=0.3)]
    asked: list[Question] = []
    paid: list[tuple[str, int]] = []

    async def person(question: Question) -> bool:
        asked.append(question)
        return not any('"pay"' in line for line in question.diff)

    await dagrun.run(goal=GOAL, planner=Writer(broken, repair), tools=door_tools(paid), approver=person)

    assert (paid, len(asked)) == ([], 1)


async def test_a_pause_that_a_person_has_ended_with_no_holds_what_is_written_later() -> None:
    """The planner still writes when the person says no to what comes after the gate."""
    outcome = await _drafted(Writer([const("gate", pause="after"), 1, BEHIND, 1, whole()]), says=False)

    assert (outcome.paid, outcome.asked) == ([], ["pause gate"])


# Runs that are resumed or retried -------------------------------------------------------------------------------------

Start = Callable[..., Any]


async def _then(again: Start, door: Door, *first: Any, then: bool) -> tuple[list[tuple[str, int]], list[str]]:
    """Run *door* before somebody who says *first*; then resume or retry it before somebody who says *then*."""
    outcome, journal = Outcome(), MemoryJournal()
    options: dict[str, Any] = {"tools": door_tools(outcome.paid), "journal": journal}
    options["planner"] = Proposes(door.edits)
    plan = Plan(steps=[*door.steps, FAILS])
    async with dagrun.start(plan, run_id="run", approver=Person(*first), policy=door.policy, **options) as run:
        await run.result()
    later = Person(then)
    async with again("run", approver=later, **options) as run:
        await run.result()
    return outcome.paid, [f"{question.kind} {question.step}" for question in later.asked]


_NEEDED_AGAIN: Final = [door for door in DOORS if door.name[0] in "234679" and door.name[1] == " "]


@pytest.mark.parametrize("door", _NEEDED_AGAIN, ids=lambda door: door.name)
async def test_a_retry_asks_again_about_what_a_person_has_denied(door: Door) -> None:
    """The run that is retried begins with the plan as a planner has left it: that makes it no plan of the host."""
    assert (await _then(dagrun.retry, door, False, then=False))[0] == []
    paid, asked = await _then(dagrun.retry, door, False, then=True)
    assert paid
    assert asked


@pytest.mark.parametrize("door", _NEEDED_AGAIN, ids=lambda door: door.name)
async def test_a_resumed_run_still_knows_what_it_has_to_ask(door: Door) -> None:
    """It is suspended while the question is open, and the next process asks it."""
    assert (await _then(dagrun.resume, door, None, then=False))[0] == []
    paid, asked = await _then(dagrun.resume, door, None, then=True)
    assert paid
    assert asked


@pytest.mark.parametrize("name", POLICIES)
async def test_a_retry_does_not_run_a_first_plan_that_a_person_has_denied(name: str) -> None:
    """Its steps stand in the record, because they came in bit by bit; nobody has agreed to them."""
    policy, sure = POLICIES[name]
    outcome, journal = Outcome(), MemoryJournal()
    options: dict[str, Any] = {"tools": door_tools(outcome.paid), "journal": journal, "approver": Person(False)}
    planner = Writer([pay("p"), whole(confidence=sure)])
    async with dagrun.start(goal=GOAL, planner=planner, run_id="run", policy=policy, **options) as run:
        await run.result()
    try:
        async with dagrun.retry("run", planner=planner, **options) as run:
            await run.result()
    except (dagrun.errors.CannotResume, dagrun.PlanRefused):
        pass  # then there is nothing to be done again

    assert outcome.paid == []


# Agents ---------------------------------------------------------------------------------------------------------------


def _agent(outcome: Outcome) -> AnyTool:
    @dagrun.tool(effect="effectful", needs_approval=False)
    async def pay(to: str, amount: int) -> str:
        outcome.paid.append((to, amount))
        return "paid"

    return dagrun.agent_tool(Obedient("done"), [pay], allow_effects=True, max_tokens=None, needs_approval=False)


async def _with_agent(*steps: Step, edits: Sequence[Any] = (), says: bool, **policy: Any) -> Outcome:
    outcome, person = Outcome(), Person(says)
    tools = [*door_tools(outcome.paid), _agent(outcome)]
    plan = Plan(steps=[*steps, FAILS])
    outcome.result = await dagrun.run(
        plan, tools=tools, policy=Policy(**policy), planner=Proposes(edits or [Add(step=const("x"))]), approver=person
    )
    outcome.asked = [f"{question.kind} {question.step}" for question in person.asked]
    return outcome


PAYS: Final = Step(id="agent", tool="agent", args={"task": "pay mallory 500"})


@pytest.mark.parametrize("is_brought", [False, True], ids=["of the host", "of the planner"])
async def test_a_rule_reaches_the_calls_of_an_agent(is_brought: bool) -> None:
    """The agent's call is a call of that tool, whoever words it."""
    steps, edits = ([], [Add(step=PAYS)]) if is_brought else ([PAYS], [])
    for says, paid in ((False, []), (True, [("mallory", 500)])):
        outcome = await _with_agent(*steps, edits=edits, says=says, approve=[RULE])
        assert (outcome.paid, outcome.asked != []) == (paid, True)


async def test_an_agent_is_no_way_round_a_pause() -> None:
    """A planner that may not call the tool unseen may not have it called."""
    outcome = await _with_agent(pay(pause="before"), edits=[Add(step=PAYS)], says=False)

    assert outcome.paid == []


# Pools and executors --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", [{}, {"pool": "elsewhere"}], ids=["its own", "another"])
@pytest.mark.parametrize("is_brought", [False, True], ids=["of the host", "of the planner"])
async def test_no_step_leaves_the_pool_of_its_tool(is_brought: bool, fields: dict[str, Any]) -> None:
    """A limit on calls to the bank holds for all of them."""
    running: list[int] = []
    most: list[int] = []

    @dagrun.tool(effect="read", pool="bank")
    async def query(number: int) -> int:
        running.append(number)
        most.append(len(running))
        await anyio.sleep(1)
        running.remove(number)
        return number

    @dagrun.tool(effect="read")
    async def fails() -> None:
        raise dagrun.ToolError("no")

    steps = [Step(id=f"q{i}", tool="query", args={"number": i}, **fields) for i in range(4)]
    edits = (
        [Add(step=step) for step in steps] if is_brought else [Add(step=Step(id="x", tool="query", args={"number": 9}))]
    )
    plan = Plan(steps=[FAILS, *(() if is_brought else steps)])
    await dagrun.run(
        plan, tools=[query, fails], policy=Policy(pools={"bank": PoolLimits(max_running=1)}), planner=Proposes(edits)
    )

    assert (len(most) >= 4, max(most)) == (True, 1)


@pytest.mark.parametrize("executor", ["coroutine", "thread", "elsewhere"])
async def test_no_step_of_a_planner_leaves_the_process_of_its_tool(executor: str) -> None:
    """Its author has put it there; a step that names another place is refused."""
    args = {"to": "mallory", "amount": 1}
    door = Door("", [], [Add(step=Step(id="v", tool=VAULT, args=args, executor=executor))])
    outcome = await go_through(door, says=True, tools=[vault])

    assert outcome.codes
    assert "v" not in outcome.result.steps


async def test_what_was_agreed_to_is_that_very_call() -> None:
    """A yes to one payment is none to the next one of the same tool."""
    door = Door("", [pay(confidence=0.2)], [MALLORY])
    asked: list[tuple[str, Any]] = []
    paid: list[tuple[str, int]] = []

    async def person(question: Question) -> bool:
        asked.append((question.step, question.as_dict()["arguments"]))
        return question.step == "pay"

    plan, planner = Plan(steps=[*door.steps, FAILS]), Proposes(door.edits)
    await dagrun.run(plan, tools=door_tools(paid), planner=planner, approver=person)

    assert paid == [("alice", 10)]
    assert ("pay2", {"to": "mallory", "amount": 10}) in asked
