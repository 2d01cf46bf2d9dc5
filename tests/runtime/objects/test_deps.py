"""Dependencies: tools get objects of the host by type, and nothing else ever sees them."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest

import dagrun
from agents import answer, call
from dagrun import MemoryJournal, Plan, PlanRefused, Policy, Status, Step
from dagrun.errors import ContractError
from dagrun.kernel.model.contracts.deps import Deps
from objects import CANARY, texts_of
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio


class Client:
    """A client of a service."""

    def __init__(self, factor: int = 2) -> None:
        self.factor = factor
        self.secret = CANARY

    def __repr__(self) -> str:
        return CANARY


SEVEN = Client(7)


class Special(Client):
    """A special one."""


class Pool:
    """Something else."""


@dagrun.tool(effect="read")
async def by_parameter(number: int, client: Annotated[Client, dagrun.dep] = dagrun.PROVIDED) -> int:
    """Multiply."""
    return number * client.factor


@dagrun.tool(effect="read")
def by_context(number: int, context: dagrun.ToolContext[Client] = dagrun.PROVIDED) -> int:
    """Multiply in a thread."""
    return number * context.deps.factor


@dagrun.tool(effect="read")
async def all_of_them(context: dagrun.ToolContext = dagrun.PROVIDED) -> str:
    """Say what there is."""
    return type(context.deps).__name__


@dagrun.tool(effect="read")
async def optional(
    pool: Annotated[Pool | None, dagrun.dep] = dagrun.PROVIDED, client: Annotated[Client, dagrun.dep] = SEVEN
) -> list[Any]:
    """Say what came."""
    return [pool is not None, client.factor]


@dagrun.tool(effect="read", executor="process")
def elsewhere(client: Annotated[Client, dagrun.dep] = dagrun.PROVIDED) -> int:
    """Run where no object of the host can get."""
    return client.factor


def plan() -> Plan:
    """A plan that uses it in both ways."""
    return dagrun.plan(output=[by_parameter.step(number=1), by_context.step(number=2)])


@pytest.mark.parametrize(
    "deps",
    [Client(), [Client(), Pool()], {"client": Client(), "context": Client(), "other": Client(9)}, {Client: Special()}],
    ids=["one", "list", "by name", "by type"],
)
async def test_tools_get_them_by_type_and_by_name(deps: Any) -> None:
    """One object; several; and names where several fit."""
    assert (await dagrun.run(plan(), deps=deps)).output == [2, 4]


async def test_an_engine_has_them_for_every_run_and_a_run_its_own() -> None:
    """A service makes its clients once."""
    async with dagrun.Engine(deps=Client(3)) as engine:
        assert (await engine.run(plan())).output == [3, 6]
        assert (await engine.run(plan(), deps=Client(5))).output == [5, 10]


async def test_a_checked_plan_brings_them_or_is_given_them() -> None:
    """A plan can be checked where the objects do not exist yet."""
    checked = dagrun.check(plan())
    assert (await dagrun.run(checked, deps=Client())).output == [2, 4]
    assert (await dagrun.run(dagrun.check(plan(), deps=Client(4)))).output == [4, 8]
    with pytest.raises(PlanRefused, match="DR218"):
        await dagrun.run(checked)


async def test_what_is_missing_is_a_problem_before_anything_runs() -> None:
    """The tool, the parameter and the type are named."""
    with pytest.raises(PlanRefused) as refused:
        await dagrun.run(plan(), deps=Pool())
    lines = [problem.sentence for problem in refused.value.problems]
    assert lines[0] == (
        "step by_parameter calls by_parameter, whose parameter client takes a dependency of the host, of type "
        "test_deps.Client: deps has no test_deps.Client; pass it with deps=…"
    )
    assert "whose parameter context takes" in lines[1]
    with pytest.raises(PlanRefused, match=r"deps has 2 objects of test_deps[.]Client, none of which is named client"):
        dagrun.check(plan(), deps=[Client(), Client()])
    with pytest.raises(ContractError, match="by name or by type"):
        dagrun.check(plan(), deps={1: Client()})


async def test_what_has_a_default_may_be_missing() -> None:
    """And `Client | None` gets none."""
    assert (await dagrun.run(dagrun.plan(output=optional.step()))).output == [False, 7]
    assert (await dagrun.run(dagrun.plan(output=optional.step()), deps=[Pool(), Client(1)])).output == [True, 1]
    assert (await dagrun.run(dagrun.plan(output=all_of_them.step()), deps=Client())).output == "Client"


def test_no_plan_can_fill_them() -> None:
    """They are in no schema."""
    assert "client" not in json.dumps(by_parameter.describe())
    step = Step(id="a", tool="by_parameter", args={"number": 1, "client": 2})
    with pytest.raises(PlanRefused, match=r"DR206.*the runtime fills it in, never a plan"):
        dagrun.check(Plan(steps=[step]), [by_parameter], deps=Client())


def test_no_worker_process_gets_them() -> None:
    """They are in the memory of the host."""
    with pytest.raises(PlanRefused, match=r"DR219.*runs elsewhere in a worker process, which cannot receive client"):
        dagrun.check(dagrun.plan(output=elsewhere.step()), deps=Client())


async def test_a_resumed_run_and_a_retry_are_given_them_again() -> None:
    """They are in no record."""
    journal = MemoryJournal()
    policy = Policy(approve=[dagrun.ApprovalRule(tool="by_parameter")], retry=dagrun.RetryRule(max_attempts=1))
    tools = [by_parameter, by_context]
    await dagrun.run(plan(), deps=Client(), journal=journal, run_id="one", policy=policy)
    with pytest.raises(dagrun.errors.CannotResume, match=r"deps has no test_deps[.]Client"):
        async with dagrun.resume("one", journal=journal, tools=tools):
            pass

    async def no(question: dagrun.Question) -> dagrun.Answer:
        return dagrun.Answer("deny")

    async with dagrun.resume("one", journal=journal, tools=tools, deps=Client(3), approver=no) as run:
        result = await run.result()
    assert result.status is Status.FAILED
    assert result.output == [None, 4]

    async def yes(question: dagrun.Question) -> dagrun.Answer:
        return dagrun.Answer("approve")

    async with dagrun.retry("one", journal=journal, tools=tools, deps=Client(3), approver=yes, new_id="two") as run:
        assert (await run.result()).output == [3, 4]
    assert CANARY not in b"".join([*await texts_of(journal), *await texts_of(journal, "two")]).decode()


async def test_a_patch_is_checked_for_them_too() -> None:
    """A planner may call a tool that the first plan did not call."""
    refusals = []

    class Repairs:
        async def revise(self, brief: dagrun.Brief) -> dagrun.Patch | None:
            assert CANARY not in repr(brief)
            if brief.refused:
                refusals.append(str(brief.refused[-1].problems[0]))
                return None
            new = Step(id="b", tool="by_parameter", args={"number": 1})
            return dagrun.Patch(edits=[dagrun.Replace(id="a", step=new)], reason="another way")

    @dagrun.tool(effect="pure")
    async def fail() -> int:
        raise ValueError("no")

    steps = [Step(id="a", tool="fail")]
    found = await dagrun.run(Plan(steps=steps), tools=[fail, by_parameter], planner=Repairs(), deps=Client())
    assert found.output == 2
    await dagrun.run(Plan(steps=steps), tools=[fail, by_parameter], planner=Repairs(), deps=Pool())
    assert "DR218" in refusals[0]


async def test_the_tools_of_an_agent_get_them() -> None:
    """And they are missed before the agent runs."""
    model = ScriptedModel(call("by_parameter", number=4), answer("done"))
    agent = dagrun.agent_tool(model, [by_parameter], name="agent")
    steps = [Step(id="a", tool="agent", args={"task": "multiply"})]

    with pytest.raises(PlanRefused, match="calls by_parameter, whose parameter client"):
        await dagrun.run(Plan(steps=steps), tools=[agent])
    result = await dagrun.run(Plan(steps=steps), tools=[agent], deps=Client())
    assert result.output == "done", result.reason
    assert "8" in model.prompts[1]


def test_the_same_object_fits_by_its_bases() -> None:
    """And a type as a key is meant exactly."""
    special = Special()
    assert Deps(special).find(Client, "x") is special
    assert Deps({Client: special, "other": Client()}).find(Client, "x") is special
    with pytest.raises(LookupError, match=r"deps has no test_deps[.]Pool"):
        Deps([special]).find(Pool, "x")
