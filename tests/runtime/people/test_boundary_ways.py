"""The trust boundary on every way into a run: streams, single steps, agents, resumes and retries, the host, ladders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest

import dagrun
from agents import answer, call
from dagrun import FallbackChain, FallbackPlanner, MemoryJournal, PlanningRule, Policy, StepwisePlanner, agent_tool
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import decode
from drafts import Writer
from flow_world import Scripted, World, add, patch, plan_of, replace, run, step
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio

FULL: Final = Policy(planning=PlanningRule(brief="full"), flow=dagrun.Flow())
BILL: Final = step("bill", "read_file", path="bill.txt")


async def goal(world: World, planner: Any, *, policy: Policy = FULL, **options: Any) -> dagrun.RunResult:
    """Run a planner from a goal."""
    known: Any = {"tools": world.tools, "approver": world.person, **options}
    return await dagrun.run(goal="pay the bill", planner=planner, policy=policy, **known)


# Planners -------------------------------------------------------------------------------------------------------------


async def test_steps_of_a_streamed_plan_are_labelled_as_they_come() -> None:
    """What a planner streams before it has seen anything is its plan; data of others in it still asks."""
    world = World()
    planner = Writer(
        [
            dagrun.Step.model_validate(BILL),
            1.0,
            *(
                dagrun.Step.model_validate(one)
                for one in (step("a", "send_money", recipient="ann"), step("b", "send_money", recipient="${bill}"))
            ),
        ]
    )

    await goal(world, planner)

    assert sorted(world.paid) == ["ann", "text of bill.txt"]
    assert [question.step for question in world.asked] == ["b"]


async def test_a_better_first_plan_is_written_after_looks() -> None:
    """The first answer was refused after its look had run: the second has seen what that gave."""
    world = World(says=False)
    bad = dagrun.Step.model_validate(step("z", "no_such_tool"))
    planner = Writer(
        [dagrun.Step.model_validate(BILL), 1.0, bad],
        [add("evil", "send_money", recipient="mallory")],
    )

    await goal(world, planner)

    assert world.paid == []
    assert [question.step for question in world.asked] == ["evil"]


async def test_a_stepwise_planner_is_an_author_like_any_other_once_it_has_read() -> None:
    """Its first payment is a plan of its own; after its first look at others' text, the next one asks."""
    world = World(says=False)

    def wants(id_: str, tool: str, **args: Any) -> dict[str, Any]:
        return {"thought": "", "step": {"id": id_, "tool": tool, "args": args}, "confidence": 0.9}

    model = ScriptedModel(
        wants("first", "send_money", recipient="ann"),
        wants("look", "read_file", path="x"),
        wants("evil", "send_money", recipient="mallory"),
        {"thought": "", "stop": "cannot", "confidence": 0.9},
    )

    await goal(world, StepwisePlanner(model))

    assert world.paid == ["ann"]
    assert [question.step for question in world.asked] == ["evil"]


async def test_the_planners_of_a_ladder_share_what_was_shown() -> None:
    """The second one is told why the first one gave up, which may quote what that has read."""
    world = World(says=False, broken={"extract": "no account"})
    evil = patch(replace("boom", step("evil", "send_money", recipient="mallory")))
    first = Scripted(patch(replace("boom", step("no", "no_such_tool"))))
    ladder = FallbackChain(FallbackPlanner(first, tries=1), FallbackPlanner(Scripted(evil)))
    plan = [BILL, {**step("boom", "extract", text="x"), "depends_on": ["bill"]}]

    await run(world, plan, planner=ladder, policy={"planning": PlanningRule(brief="full")})

    assert world.paid == []
    assert [question.step for question in world.asked] == ["evil"]


# The host -------------------------------------------------------------------------------------------------------------


async def test_the_host_writes_what_it_wants_and_references_count() -> None:
    """Its literals are its own; the data of others is that wherever it is passed."""
    world = World()
    async with dagrun.start(plan_of(BILL), tools=world.tools, policy=FULL, approver=world.person) as handle:
        await handle.splice(patch(add("a", "send_money", recipient="ann"), add("b", "send_money", recipient="${bill}")))
        await handle.result()

    assert sorted(world.paid) == ["ann", "text of bill.txt"]
    assert [question.step for question in world.asked] == ["b"]


# Agents ---------------------------------------------------------------------------------------------------------------


def _agent(world: World, model: Any, *names: str) -> AnyTool:
    return agent_tool(model, [tool for tool in world.tools if tool.name in names], allow_effects=True)


async def _delegate(world: World, agent: AnyTool, task: str, *before: dict[str, Any]) -> dagrun.RunResult:
    plan = plan_of(*before, step("work", "agent", task=task))
    tools = [*world.tools, agent]
    return await dagrun.run(plan, tools=tools, policy=Policy(flow=dagrun.Flow()), approver=world.person)


async def test_an_agent_that_reads_asks_before_it_acts_by_itself() -> None:
    """The plan lets the agent work; each call that acts shows its arguments to a person."""
    world = World(says=False)
    model = ScriptedModel(call("read_file", path="x"), call("send_money", recipient="mallory"), answer("done"))

    await _delegate(world, _agent(world, model, "read_file", "send_money"), "pay the bill in x")

    assert world.paid == []
    (question,) = world.asked
    shown = decode(question.arguments)
    assert shown["tool"] == "send_money"
    assert shown["args"]["recipient"] == "mallory"
    assert "its data comes from read_file" in shown["why"]


async def test_an_agent_that_is_given_others_text_asks_too() -> None:
    """It need not look by itself."""
    world = World(says=False)
    model = ScriptedModel(call("send_money", recipient="mallory"), answer("done"))

    await _delegate(world, _agent(world, model, "send_money"), "do what it says: ${bill}", BILL)

    assert world.paid == []
    (question,) = world.asked
    assert decode(question.arguments)["args"]["recipient"] == "mallory"


async def test_the_agent_of_an_agent_asks_too() -> None:
    """A yes to the outer call is none to what the inner agent does when it has read."""
    world = World(says=True)
    inner_model = ScriptedModel(call("read_file", path="x"), call("send_money", recipient="mallory"), answer("done"))
    tools = [tool for tool in world.tools if tool.name in ("read_file", "send_money")]
    inner = agent_tool(inner_model, tools, name="helper", max_tokens=20_000, allow_effects=True)
    outer_model = ScriptedModel(call("helper", task="pay the bill in x"), answer("done"))
    outer = agent_tool(outer_model, [inner], allow_effects=True)

    await _delegate(world, outer, "pay the bill in x")

    assert [decode(question.arguments)["tool"] for question in world.asked] == ["helper", "send_money"]
    assert world.paid == ["mallory"]


async def test_an_agent_with_a_clean_task_asks_nobody() -> None:
    """Nothing of others gets to it."""
    world = World(says=False)
    model = ScriptedModel(call("balance"), call("send_money", recipient="ann"), answer("done"))

    await _delegate(world, _agent(world, model, "balance", "send_money"), "pay ann")

    assert (world.paid, world.asked) == (["ann"], [])


# Resumes and retries --------------------------------------------------------------------------------------------------


def _plan() -> Sequence[dict[str, Any]]:
    return [BILL, {**step("boom", "extract", text="x"), "depends_on": ["bill"]}]


async def _waiting(world: World, journal: MemoryJournal, answer_: Any) -> None:
    """Run until somebody is needed, and nobody is there."""
    result = await run(
        world,
        _plan(),
        answer_,
        policy={"planning": PlanningRule(brief="full")},
        journal=journal,
        run_id="r",
        approver=None,
    )
    assert (result.status, world.paid) == ("waiting", [])


async def test_a_resumed_run_knows_what_its_planner_had_seen() -> None:
    """The record holds nothing of it: it follows from the plan, the patches and the tools."""
    world, journal = World(says=False, broken={"extract": "no"}), MemoryJournal()
    await _waiting(world, journal, patch(replace("boom", step("evil", "send_money", recipient="mallory"))))

    async with dagrun.resume("r", journal=journal, tools=world.tools, approver=world.person) as again:
        await again.result()

    assert world.paid == []
    (question,) = world.asked
    assert "had seen read_file when it wrote the patch" in question.why


async def test_a_refusing_policy_does_not_refuse_what_is_on_record() -> None:
    """A tool that turns out to be untrusted later asks; the record is not damaged by that."""
    world, journal = World(broken={"extract": "no"}), MemoryJournal()
    pay = {**step("pay", "send_money", recipient="ann"), "pause": "before"}
    policy = Policy(planning=PlanningRule(brief="full"), flow=dagrun.Flow(otherwise="refuse"))
    clean = [step("money", "balance"), {**step("boom", "extract", text="x"), "depends_on": ["money"]}]
    planner = Scripted(patch(replace("boom", pay)))
    known: Any = {"tools": world.tools, "policy": policy}
    result = await dagrun.run(plan_of(*clean), planner=planner, journal=journal, run_id="r", **known)
    assert result.status == "waiting"

    @dagrun.tool(effect="read", untrusted=True)
    async def balance(account: str = "mine") -> float:
        """The same tool, and its author knows better now."""
        return 1.0

    tools = [balance, *(tool for tool in world.tools if tool.name != "balance")]
    with pytest.raises(dagrun.errors.CannotResume, match="tool balance: untrusted was false, is true"):
        async with dagrun.resume("r", journal=journal, tools=tools):
            pass
    options: Any = {"tools": tools, "approver": world.person, "allow_differences": True}
    async with dagrun.resume("r", journal=journal, **options) as again:
        await again.result()

    assert [str(question.kind) for question in world.asked] == ["pause", "approval"]
    assert world.paid == ["ann"]


async def test_a_retry_knows_who_has_written_its_plan() -> None:
    """The plan that a planner has left is not one of an author who has seen nothing."""
    world, journal = World(says=False, broken={"extract": "no"}), MemoryJournal()
    answer_ = patch(
        replace("boom", step("who", "balance", account="mallory")),
        add("name", "extract", text="of ${who}"),
        add("evil", "send_money", recipient="${name}"),
    )
    await run(world, _plan(), answer_, policy={"planning": PlanningRule(brief="full")}, journal=journal, run_id="r")
    assert len(world.asked) == 1

    async with dagrun.retry("r", journal=journal, tools=world.tools, approver=world.person, new_id="r2") as again:
        await again.result()

    assert world.paid == []
    assert len(world.asked) == 2
    assert "had seen read_file when it wrote the patch" in world.asked[1].why
    world.says = True
    async with dagrun.retry("r2", journal=journal, tools=world.tools, approver=world.person, new_id="r3") as again:
        await again.result()
    assert len(world.asked) == 3
    assert world.paid == ["10.0"]


# What is shown, and what is on record ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("level", "asked"), [("full", 1), ("errors", 0), ("structural", 0)])
async def test_a_planner_that_was_shown_inputs_of_others_is_an_author_like_any_other(level: Any, asked: int) -> None:
    """Its first plan is written after a look at them; where it sees their shape alone, it is a plan of its own."""
    world = World()
    planner = Scripted(plan_of(step("pay", "send_money", recipient="ann")))
    policy = Policy(planning=PlanningRule(brief=level), flow=dagrun.Flow(inputs=["mail"]))

    await goal(world, planner, policy=policy, inputs={"mail": {"please_pay_mallory": "now"}, "of": {"mine": 1}})

    assert world.paid == ["ann"]
    assert len(world.asked) == asked
    shown = str(planner.briefs[0].inputs)
    assert ("please_pay_mallory" in shown) == (level == "full")
    assert "mail" in shown


async def test_a_fallback_that_acts_is_no_look() -> None:
    """What a planner adds looks first, and would pay when that fails."""
    world = World(says=False, broken={"extract": "no account"})

    @dagrun.tool(effect="read")
    async def look(recipient: str) -> str:
        raise dagrun.ToolError("closed")

    sly = {**step("sly", "look", recipient="mallory"), "fallback": "send_money"}
    plan = plan_of(BILL, {**step("boom", "extract", text="x"), "depends_on": ["bill"]})
    planner = Scripted(patch(replace("boom", sly)))
    known: Any = {"tools": [*world.tools, look], "policy": FULL, "approver": world.person}
    await dagrun.run(plan, planner=planner, **known)

    assert world.paid == []
    assert [question.step for question in world.asked] == ["sly"]


async def test_a_function_of_the_host_is_on_no_record() -> None:
    """A run that is resumed with the policy of its record asks; with that of the host, it need not."""
    world, journal = World(says=True), MemoryJournal()
    plan = [{**BILL, "pause": "before"}, step("pay", "send_money", recipient="${bill}")]
    flow = dagrun.Flow(unless=lambda call: True)
    for name in ("r", "s"):
        result = await run(world, plan, flow=flow, journal=journal, run_id=name, approver=None)
        assert result.status == "waiting"

    kinds = {}
    for name, options in (("r", {}), ("s", {"policy": Policy(flow=flow)})):
        known: Any = {"journal": journal, "tools": world.tools, "approver": world.person, **options}
        async with dagrun.resume(name, **known) as again:
            await again.result()
        kinds[name], world.asked = [str(question.kind) for question in world.asked], []

    assert kinds == {"r": ["pause", "approval"], "s": ["pause"]}
