"""From a goal to an answer: planners with models, in runs on the virtual clock."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import (
    Effect,
    EnsemblePlanner,
    ModelPlanner,
    Planner,
    PlanningRule,
    Policy,
    RuleCritic,
    RunResult,
    State,
    Status,
    StepwisePlanner,
    Toolbox,
    ToolContext,
    ToolError,
)
from dagrun.errors import ModelError
from dagrun.events import Event, PlannerCalled
from dagrun.kernel.model.tool import make_tool
from dagrun.planners.answers.model_answers import read_answer, read_next_step
from dagrun.planners.prompt_examples import (
    EXAMPLES,
    NEXT_STEPS,
    PATCH,
    TICKET_TOOLS,
    Digest,
    Ticket,
    ex_backlog,
    ex_mail,
)
from dagrun.testing import StandIn, Takes
from scripted_model import Said, ScriptedModel
from small_tools import near, scripted, states
from test_prompts import blocks
from test_stepwise import stops

pytestmark = pytest.mark.anyio


async def _surprises(context: ToolContext) -> int:
    context.surprise("ten times the rows")
    return 10


@dagrun.tool(effect="read")
async def ex_archived_tickets(count: int) -> list[Ticket]:
    """Read the newest tickets from last night's copy."""
    raise NotImplementedError


PATCH_TOOLS = (*TICKET_TOOLS, ex_archived_tickets)  # those of the example of a patch
FULL = Policy(planning=PlanningRule(brief="full"))


async def run(planner: Planner, *tools: StandIn, **options: Any) -> RunResult:
    """Run a goal with stand-ins for tools."""
    return await dagrun.run(goal="find it", planner=planner, tools=[tool.tool for tool in tools], **options)


def call(id_: str, tool: str = "load", value: Any = None, **fields: Any) -> dict[str, Any]:
    """A step as a model writes it."""
    return {"id": id_, "tool": tool, "args": {} if value is None else {"value": value}, **fields}


def plan(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A plan as a model writes it."""
    return {"steps": list(steps), **fields}


# Whole plans --------------------------------------------------------------------------------------------------------


async def test_a_goal_becomes_an_answer() -> None:
    load, join = scripted("load", "x", "y"), scripted("join", lambda value: "".join(value), effect="pure")
    said = plan(call("a"), call("b"), call("c", "join", ["${a}", "${b}"]), output="c")

    result = await run(ModelPlanner(ScriptedModel(said)), load, join)

    assert result.status is Status.SUCCEEDED
    assert result.output in {"xy", "yx"}


async def test_a_step_starts_while_the_model_still_writes() -> None:
    """Two seconds of writing and two of loading overlap to two, and a step that changes the world waits."""
    text = json.dumps(plan(call("a"), call("s", "send"), confidence=0.9))
    load, send = scripted("load", Takes(1)), scripted("send", Takes(1), effect="effectful")
    planner = ModelPlanner(ScriptedModel(Said(text=text, piece=1, delay=0.1)))
    written = near(0.1 * len(text))

    result = await run(planner, load, send)

    first_end = 0.1 * (text.index("}}") + 2)
    assert result.status is Status.SUCCEEDED
    assert result.steps["a"].attempts[0].started == near(first_end)
    assert result.steps["s"].attempts[0].started == written


@pytest.mark.parametrize(
    ("dialect", "bad", "good"),
    [
        ("json", plan(call("a"), call("b", "lod")), plan(call("a"), call("b"))),
        ("compiler", "1. load()\n2. lod()\n3. join()\n", "1. load()\n2. load()\n3. join()\n"),
    ],
)
async def test_a_plan_that_is_refused_is_mended(dialect: Any, bad: Any, good: Any) -> None:
    """Once, by the same model; valid steps that have run are not repeated."""
    load = scripted("load", 1)
    model = ScriptedModel(bad, good)

    result = await run(ModelPlanner(model, dialect=dialect), load)

    assert result.status is Status.SUCCEEDED
    assert len(load.calls) == 2
    assert "did you mean load?" in model.prompts[1]


async def test_a_failure_is_mended_by_a_patch() -> None:
    said = {"edits": [{"op": "replace", "id": "a", "step": call("a2", "copy")}], "reason": "there is a copy"}
    model = ScriptedModel(plan(call("a"), call("b", "show", "${a}")), said)
    load, copy = scripted("load", ToolError("gone", unreachable=True)), scripted("copy", 7)
    show = scripted("show", lambda value: value)

    result = await run(ModelPlanner(model), load, copy, show)

    assert result.status is Status.SUCCEEDED
    assert result.output == 7
    assert states(result)["a2"] == "succeeded"


async def test_a_refusal_ends_the_run_with_the_models_words() -> None:
    result = await run(ModelPlanner(ScriptedModel({"refusal": "nothing here finds it"})), scripted("load", 1))

    assert result.status is Status.FAILED
    assert "nothing here finds it" in result.reason


async def test_a_model_that_was_not_reached_is_asked_again() -> None:
    """After the time that the server names; the planner itself does not wait."""
    fault = ModelError("busy", status=429, is_transient=True, retry_after=30)
    model = ScriptedModel(Said(text="", fault=fault), plan(call("a")))

    result = await run(ModelPlanner(model), scripted("load", 1))

    assert result.status is Status.SUCCEEDED
    assert anyio.current_time() >= 30
    assert len(model.requests) == 2


async def test_a_wait_that_the_server_asks_for_ends_with_the_run() -> None:
    """Two minutes, as OpenAI asks for at worst, are more than this run has; the record says who asked for them."""
    fault = ModelError("busy; it asks for 120 s of patience", status=429, is_transient=True, retry_after=120)
    model = ScriptedModel(Said(text="", fault=fault), plan(call("a")))

    events: list[Event] = []

    result = await run(ModelPlanner(model), scripted("load", 1), policy=Policy(max_seconds=60), on_event=events.append)

    assert result.status is Status.OVER_BUDGET
    assert 60 <= anyio.current_time() < 62
    (call_of_planner,) = (event for event in events if isinstance(event, PlannerCalled))
    assert "it asks for 120 s of patience" in call_of_planner.fault
    assert len(model.requests) == 1


async def test_an_answer_that_breaks_off_is_begun_anew_and_keeps_what_runs() -> None:
    """The first step has run already; the second answer repeats it unchanged, and it does not run again."""
    whole = json.dumps(plan(call("a"), call("b")))
    fault = ModelError("reset", is_transient=True)
    load = scripted("load", 1)

    result = await run(ModelPlanner(ScriptedModel(Said(text=whole[:60], fault=fault), whole)), load)

    assert result.status is Status.SUCCEEDED
    assert states(result) == {"a": "succeeded", "b": "succeeded"}
    assert len(load.calls) == 2


async def test_what_models_use_is_charged_to_the_run() -> None:
    """A ceiling of tokens applies to planners as it does to tools."""
    model = ScriptedModel(plan(call("a")))

    result = await run(ModelPlanner(model), scripted("load", 1), policy=Policy(max_tokens=1_000))

    assert result.status is Status.OVER_BUDGET
    assert model.closed == 0  # the call was never made


@pytest.mark.parametrize("is_first", [True, False])
async def test_no_answer_calls_a_tool_that_this_run_does_not_allow(is_first: bool) -> None:
    """S27: a model that obeys the description of a tool is refused, in a plan and in a patch."""
    pay, load = scripted("pay", 1, effect="effectful"), scripted("load", ToolError("no"))
    evil = call("x", "pay", "Mallory")
    patch = {"edits": [{"op": "add", "step": evil}]}
    model = ScriptedModel(*([plan(evil)] * 2 if is_first else [plan(call("a")), patch, patch]))

    result = await dagrun.run(
        goal="find it", planner=ModelPlanner(model), tools=Toolbox(load.tool, pay.tool, allow=["load"])
    )

    assert result.status is Status.FAILED
    assert pay.calls == []
    assert "does not allow" in model.prompts[-1]


# An ensemble --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad", [plan(call("a"), confidence=0.3), plan(call("a", "lod")), Said(text=json.dumps(plan(call("a")))[:-3])]
)
async def test_the_strong_model_mends_what_the_fast_one_has_spoilt(bad: Any) -> None:
    """After an unsure, invalid or broken answer, the run continues with the plan of the strong model."""
    fast, strong = ScriptedModel(bad), ScriptedModel(plan(call("a"), call("b")))
    load = scripted("load", 1)

    result = await run(EnsemblePlanner(ModelPlanner(fast), ModelPlanner(strong)), load)

    assert result.status is Status.SUCCEEDED
    assert states(result) == {"a": "succeeded", "b": "succeeded"}
    assert (len(fast.requests), len(strong.requests)) == (1, 1)
    assert len(load.calls) == 2


async def test_the_fast_model_does_what_it_can() -> None:
    strong = ScriptedModel()

    result = await run(
        EnsemblePlanner(ModelPlanner(ScriptedModel(plan(call("a"), confidence=0.9))), ModelPlanner(strong)),
        scripted("load", 1),
    )

    assert result.status is Status.SUCCEEDED
    assert strong.requests == []


# Step by step -------------------------------------------------------------------------------------------------------


def step(id_: str, *args: Any, **fields: Any) -> dict[str, Any]:
    """A step of a loop, as a model writes it."""
    return {"thought": f"now {id_}", "step": call(id_, *args, **fields)}


async def test_a_loop_goes_on_until_the_goal_is_met() -> None:
    """Each request shows the outputs of earlier steps, as far as the policy allows."""
    model = ScriptedModel(step("a"), step("b", "load", "${a}"), stops("goal_met", output="b"))

    result = await run(StepwisePlanner(model), scripted("load", "emerald", "second"), policy=FULL)

    assert result.status is Status.SUCCEEDED
    assert result.output == "second"
    assert list(states(result)) == ["a", "b"]
    assert "emerald" not in model.prompts[0]
    assert "emerald" in model.prompts[1]
    assert "now a" in model.prompts[1]


async def test_a_failure_in_a_loop_is_something_to_think_about() -> None:
    """There is no replan beside the loop: the next request shows the failure, and another way is tried."""
    model = ScriptedModel(step("a"), step("b", "copy"), stops("goal_met", output="b"))
    load, copy = scripted("load", ToolError("no")), scripted("copy", 7)

    result = await run(StepwisePlanner(model), load, copy)

    assert result.output == 7
    assert states(result)["b"] == "succeeded"
    assert len(model.requests) == 3
    assert '"state": "failed"' in model.prompts[1]


@pytest.mark.parametrize(
    ("last", "status", "reason"),
    [
        (stops("cannot", reason="no way"), Status.FAILED, "no way"),
        (stops("needs_person", reason="sign it"), Status.ESCALATED, "sign it"),
        (step("d"), Status.OVER_BUDGET, "ceiling of 2 steps"),
    ],
)
async def test_a_loop_ends_with_a_reason(last: Any, status: Status, reason: str) -> None:
    """And with its own status, because operators react differently to each."""
    model = ScriptedModel(step("a"), step("b"), last)

    result = await run(StepwisePlanner(model, max_steps=2), scripted("load", 1))

    assert (result.status, len(result.steps)) == (status, 2)
    assert reason in result.reason


async def test_a_loop_that_repeats_a_failure_is_stopped() -> None:
    load = scripted("load", ToolError("no"))

    result = await run(StepwisePlanner(ScriptedModel(step("a"), step("b"))), load)

    assert result.status is Status.FAILED
    assert "no progress" in result.reason
    assert len(load.calls) == 1


async def test_a_step_that_is_refused_is_asked_for_once_more() -> None:
    model = ScriptedModel(step("a", "lod"), step("a"), stops("goal_met"))

    result = await run(StepwisePlanner(model), scripted("load", 1))

    assert result.status is Status.SUCCEEDED
    assert "did you mean load?" in model.prompts[1]


# The examples in prompts --------------------------------------------------------------------------------------------


async def test_the_examples_of_changes_and_next_steps_can_be_read() -> None:
    assert len(read_answer(PATCH, Toolbox(PATCH_TOOLS)).edits) == 3  # type: ignore[union-attr]
    assert [read_next_step(text, Toolbox(PATCH_TOOLS)).stop for text in NEXT_STEPS] == [None, "goal_met"]


TICKETS = next(e for e in EXAMPLES if "tickets" in e.goal).answers["json"]


def _tickets(**acts: Any) -> list[Any]:
    """Stand-ins for the tools of the example."""
    given = {
        "ex_tickets": [Ticket(1, "fire"), Ticket(2, "smoke")],
        "ex_archived_tickets": [Ticket(3, "ashes")],
        "ex_backlog": 4,
        "ex_summary": lambda text: f"({text})",
        "ex_digest": lambda summaries: Digest(" ".join(summaries), len(summaries)),
        "ex_mail": lambda to, body: body,
        "ex_mark_read": None,
    }
    return [StandIn(tool, (given | acts)[tool.name]) for tool in PATCH_TOOLS]


async def test_the_example_of_a_patch_mends_the_example_of_a_plan() -> None:
    """Both look-ups fail, the copy is read instead, and the mail is sent without the number."""
    broken = ToolError("down", unreachable=True)
    tools = _tickets(ex_tickets=broken, ex_backlog=broken)
    model = ScriptedModel(TICKETS, PATCH)

    result = await run(ModelPlanner(model), *tools)

    assert result.status is Status.SUCCEEDED
    assert result.steps["mail"].output == "(ashes)\nUp to $100 can be refunded at once."


async def test_the_example_of_a_plan_does_what_its_goal_says() -> None:
    result = await run(ModelPlanner(ScriptedModel(TICKETS)), *_tickets())

    assert result.status is Status.SUCCEEDED
    assert result.output == "(fire) (smoke)"
    assert result.steps["mark"].state is State.SUCCEEDED
    assert "4 are older than a month. Up to $100" in result.steps["mail"].output


async def test_the_example_of_next_steps_meets_its_goal() -> None:
    model = ScriptedModel({"step": {"id": "backlog", "tool": "ex_backlog", "args": {"days": 30}}}, *NEXT_STEPS)
    backlog, mail = StandIn(ex_backlog, 4), StandIn(ex_mail, "sent")

    result = await run(StepwisePlanner(model), backlog, mail)

    assert ex_mail.effect is Effect.EFFECTFUL
    assert (result.status, result.output) == (Status.SUCCEEDED, 4)
    assert mail.calls == [{"to": "ops@example.com", "body": "Old: 4."}]


# What the model is told of failures ---------------------------------------------------------------------------------


async def test_a_stepwise_planner_is_told_why_a_step_failed() -> None:
    """Without the reason, it can only guess another call."""
    search = scripted("search", ToolError("index sales-2024 was renamed to sales-2025"))
    model = ScriptedModel({"thought": "look", "step": call("a", "search")}, stops("cannot"))

    await run(StepwisePlanner(model), search)

    assert "renamed to sales-2025" in blocks(model.prompts[1])["steps"][0]["reason"]


async def test_a_stepwise_planner_is_told_what_a_critic_said() -> None:
    critic = RuleCritic("facts", lambda _: "not supported by any source", tools=["search"])
    model = ScriptedModel({"thought": "look", "step": call("a", "search")}, stops("cannot"))

    await run(StepwisePlanner(model, on_failed_review="go_on"), scripted("search", "odd"), critics=[critic])

    [verdict] = blocks(model.prompts[1])["steps"][0]["verdicts"]
    assert verdict == {"critic": "facts", "result": "fail", "reason": "not supported by any source"}


async def test_a_model_keeps_a_plan_that_still_fits() -> None:
    """As a model writes it, with a null for all that it does not say."""
    keep: dict[str, Any] = {
        "reason": "the plan still fits",
        "edits": [],
        "output": None,
        "confidence": 0.9,
        "refusal": None,
    }
    model = ScriptedModel(plan(call("a")), keep)
    load = make_tool(_surprises, name="load", effect="read")

    result = await dagrun.run(goal="find it", planner=ModelPlanner(model), tools=[load])

    assert (str(result.status), result.replans, len(model.requests)) == ("succeeded", 1, 2)
