"""Limits of an agent: time, tokens, and the effects of its tools."""

from __future__ import annotations

import json
import threading
from typing import Any

import anyio
import pytest

import dagrun
from agents import answer, call, failure_of, run, tokens_of
from dagrun import Answer, Effect, Plan, Policy, State, Step, ToolContext, ToolError, agent_tool, llm_tool
from dagrun.errors import ContractError, ModelError
from dagrun.extend import Usage
from dagrun.kernel.model.tool import make_tool
from persons import Person
from scripted_model import Said, ScriptedModel
from small_tools import near, scripted

pytestmark = pytest.mark.anyio


# Time -------------------------------------------------------------------------------------------------------


async def test_cancelling_the_step_stops_the_call_inside() -> None:
    stopped: list[float] = []

    @dagrun.tool(effect="read")
    async def slow() -> None:
        try:
            await anyio.sleep(100)
        finally:
            stopped.append(anyio.current_time())

    agent = agent_tool(ScriptedModel(call("slow")), [slow])
    plan = Plan(steps=[Step(id="work", tool="agent", args={"task": "x"})])

    async with dagrun.start(plan, tools=[agent]) as run:
        await anyio.sleep(5)
        run.cancel("work")
        result = await run.result()

    assert (result.steps["work"].state, result.makespan, len(stopped)) == (State.CANCELLED, near(5), 1)


async def test_the_time_limit_of_a_tool_holds_inside() -> None:
    """Without the limit, one call could use up the time of the step. A late value is not used."""

    @dagrun.tool(effect="read", timeout=3)
    async def late(context: ToolContext) -> str:
        assert context.seconds_left == near(3)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(4)
        return "late"

    model = ScriptedModel(call("late"), answer("without it"))

    result = await run(agent_tool(model, [late]))

    assert (result.output, result.makespan) == ("without it", near(4))
    assert "late took longer than 3 s" in model.requests[1].messages[-1].text


@pytest.mark.real_time
async def test_a_plain_function_runs_in_a_thread_and_hears_that_it_should_stop() -> None:
    """In the loop, it would block all other steps."""
    loop = threading.get_ident()
    began, told = threading.Event(), threading.Event()

    @dagrun.tool(effect="read")
    def where() -> bool:
        return threading.get_ident() == loop

    @dagrun.tool(effect="read")
    def wait(context: ToolContext) -> None:
        began.set()
        while not context.stop.wait(0.01):
            pass
        told.set()

    model = ScriptedModel(call("where"), call("wait"))
    agent = agent_tool(model, [where, wait])
    plan = Plan(steps=[Step(id="work", tool="agent", args={"task": "x"})])

    async with dagrun.start(plan, tools=[agent]) as run:
        with anyio.fail_after(20):
            while not began.is_set():
                await anyio.sleep(0.01)
        run.cancel()
        await run.result()

    assert told.is_set()
    assert '<data name="output">\nfalse\n' in model.requests[1].messages[-1].text


# Its word ---------------------------------------------------------------------------------------------------


async def test_all_its_turns_are_reported() -> None:
    model = ScriptedModel(
        Said(text=json.dumps(call("find")), usage=Usage(100, 10)), Said(text=json.dumps(answer()), usage=Usage(200, 20))
    )

    assert tokens_of(await run(agent_tool(model, [scripted("find", 1).tool]))) == 330


async def test_a_turn_that_could_break_its_word_is_not_taken() -> None:
    model = ScriptedModel(Said(text=json.dumps(call("find")), usage=Usage(9_000, 0)), answer())
    agent = agent_tool(model, [scripted("find", 1).tool], max_tokens=10_000)

    result = await run(agent)

    assert (model.closed, tokens_of(result)) == (1, 9_000)
    assert failure_of(result).message.startswith(
        "agent: ceiling max_tokens of 10000: 9000 used, and a call of scripted "
    )


async def test_what_its_tools_use_is_counted_and_bounded() -> None:
    """A tool that calls a model inside an agent sets a meter of its own; after it, the agent's meter is set again."""
    inner = llm_tool(ScriptedModel(*[Said(text="short", usage=Usage(5, 5))] * 3), name="sum_up", max_tokens=2_000)
    model = ScriptedModel(call("sum_up", prompt="a"), call("sum_up", prompt="b"), answer())

    result = await run(agent_tool(model, [inner], max_tokens=8_000))

    assert (result.output, tokens_of(result)) == ("done", 3 * 150 + 2 * 10)

    greedy = llm_tool(ScriptedModel("never"), name="sum_up", max_tokens=9_000)
    failed = failure_of(await run(agent_tool(ScriptedModel(call("sum_up", prompt="a")), [greedy], max_tokens=8_000)))
    assert failed.message == "agent: ceiling max_tokens of 8000: 150 used, and a call of sum_up may use 9000"


async def test_a_tool_that_says_nothing_is_charged_at_its_worst() -> None:
    silent = scripted("find", 1, max_tokens=700)

    assert tokens_of(await run(agent_tool(ScriptedModel(call("find"), answer()), [silent.tool]))) == 2 * 150 + 700


async def test_the_run_reserves_what_the_contract_says() -> None:
    """Two agents of 10,000 tokens do not run side by side under a ceiling of 15,000."""
    said = [Said(text=json.dumps(answer()), delay=1, piece=0) for _ in range(2)]
    agent = agent_tool(ScriptedModel(*said), [scripted("find", 1).tool], max_tokens=10_000)
    steps = [Step(id=id_, tool="agent", args={"task": "x"}) for id_ in ("a", "b")]

    result = await dagrun.run(Plan(steps=steps), tools=[agent], policy=Policy(max_tokens=15_000))

    assert (str(result.status), result.makespan) == ("succeeded", near(2))


# Effects ----------------------------------------------------------------------------------------------------


def test_tools_that_change_the_world_need_the_word_of_the_host() -> None:
    pay = scripted("pay", 1, effect="effectful").tool

    with pytest.raises(ContractError, match="agent: pay may change the world; if that is meant: allow_effects=True"):
        agent_tool(ScriptedModel(), [pay])

    assert agent_tool(ScriptedModel(), [pay], allow_effects=True).effect is Effect.EFFECTFUL


@pytest.mark.parametrize(
    ("effects", "own"),
    [
        (["pure"], "read"),
        (["pure", "read"], "read"),
        (["read", "idempotent"], "effectful"),
        (["effectful"], "effectful"),
    ],
)
def test_its_effect_follows_from_those_of_its_tools(effects: list[str], own: str) -> None:
    """In another attempt the model may make other calls, so an agent is never pure and never idempotent."""
    tools = [scripted(f"t{number}", 1, effect=effect).tool for number, effect in enumerate(effects)]

    assert str(agent_tool(ScriptedModel(), tools, allow_effects=True).effect) == own


@pytest.mark.parametrize(
    "then",
    [
        [{"cannot": "no"}],
        [call("pay", value=2)] * 9,
        ["nonsense", "nonsense"],
        [Said(text="", fault=ModelError("busy", status=429, is_transient=True))],
    ],
)
async def test_an_agent_that_has_changed_something_never_says_that_nothing_happened(then: list[Any]) -> None:
    """A retry, or a fallback, would pay twice."""
    pay = scripted("pay", "paid", effect="effectful")
    agent = agent_tool(ScriptedModel(call("pay", value=1), *then), [pay.tool], allow_effects=True)

    step = (await run(agent)).steps["work"]

    assert (step.state, len(step.attempts)) == (State.UNKNOWN, 1)
    assert step.failure is not None
    assert not step.failure.nothing_happened


async def test_an_agent_that_has_changed_nothing_yet_may_be_tried_again() -> None:
    """The mere possibility of a change is no reason to ask a person."""
    pay = scripted("pay", ToolError("declined"), "paid", effect="effectful")
    busy = Said(text="", fault=ModelError("busy", status=429, is_transient=True))
    model = ScriptedModel(call("pay", value=1), busy, call("pay", value=1), answer())
    agent = agent_tool(model, [pay.tool], allow_effects=True)

    result = await dagrun.run(Plan(steps=[Step(id="work", tool="agent", args={"task": "x"})]), tools=[agent])

    assert (result.output, len(result.steps["work"].attempts)) == ("done", 2)


async def test_a_call_inside_whose_effect_is_in_doubt_ends_the_agent() -> None:
    """The model must not continue or retry: reconcile, a person or the planner settles the doubt."""
    pay = scripted("pay", ConnectionError("lost"), effect="effectful")
    model = ScriptedModel(call("pay", value=1), call("pay", value=1), answer())

    step = (await run(agent_tool(model, [pay.tool], allow_effects=True))).steps["work"]

    assert (step.state, len(pay.calls), len(model.requests)) == (State.UNKNOWN, 1, 1)
    assert "its call of pay may have taken effect: ConnectionError: lost" in step.reason


async def test_every_call_has_a_key_of_its_own() -> None:
    """With the key of the step, a service would take two payments for one; for equal calls it should."""
    keys: list[str] = []

    async def pay(value: int, context: ToolContext) -> None:
        keys.append(context.idempotency_key)

    model = ScriptedModel(call("pay", value=1), call("pay", value=2), call("pay", value=1), answer())
    tool = make_tool(pay, effect="idempotent")

    await run(agent_tool(model, [tool], allow_effects=True))

    assert keys[0] == keys[2] != keys[1]
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize(
    ("says", "calls", "told"),
    [
        (Answer("approve"), [{"value": 9}], '<data name="output">'),
        (Answer("deny", note="too much"), [], "a person said no: too much"),
    ],
)
async def test_a_tool_that_needs_approval_asks_a_person_each_time(says: Answer, calls: list[Any], told: str) -> None:
    """The plan does not name the call, so the approval of the agent does not cover it."""
    pay = scripted("pay", "paid", effect="effectful", needs_approval=True)
    model = ScriptedModel(call("pay", value=9), answer())
    person = Person(says)

    result = await run(agent_tool(model, [pay.tool], allow_effects=True), approver=person)

    assert (result.output, pay.calls) == ("done", calls)
    assert told in model.requests[1].messages[-1].text
    (question,) = person.asked
    assert question.as_dict()["arguments"] == {"tool": "pay", "args": {"value": 9}}


async def test_the_person_sees_what_the_tool_of_an_agent_receives() -> None:
    """Also the defaults, which the model did not write."""

    @dagrun.tool(effect="effectful", needs_approval=True)
    async def pay(value: int, to: str = "bob") -> str:
        raise NotImplementedError

    model, person = ScriptedModel(call("pay", value=9), answer()), Person(Answer("deny"))

    await run(agent_tool(model, [pay], allow_effects=True), approver=person)

    (question,) = person.asked
    assert question.as_dict()["arguments"] == {"tool": "pay", "args": {"value": 9, "to": "bob"}}


async def test_a_tool_inside_can_ask_a_person_itself() -> None:
    @dagrun.tool(effect="read")
    async def which(context: ToolContext) -> Any:
        return await context.ask("Which?")

    model = ScriptedModel(call("which"), answer())

    await run(agent_tool(model, [which]), approver=Person(Answer("approve", value="Bonn")))

    assert '"Bonn"' in model.requests[1].messages[-1].text
