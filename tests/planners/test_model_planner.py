"""`ModelPlanner`: steps when they are complete, one repair, later patches, and a defined error for each bad end."""

from __future__ import annotations

import json
from contextlib import aclosing
from dataclasses import replace
from typing import Any, get_args

import anyio
import pytest

from dagrun import (
    Brief,
    ModelPlanner,
    Plan,
    PlanLimits,
    PlanRefused,
    Problem,
    Refusal,
    State,
    Step,
    StepView,
    Toolbox,
    Trigger,
    TriggerKind,
)
from dagrun.errors import CannotPlan, ContractError, ModelError
from dagrun.extend import Reply, Usage
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.planners.answers.plan_schemas import PlanForm, toolset_schema
from dagrun.planners.prompt_examples import Dialect
from scripted_model import Said, ScriptedModel
from test_prompts import brief_of

pytestmark = pytest.mark.anyio

STEPS = [
    {"id": "a", "tool": "look_up", "args": {"key": "A"}},
    {"id": "b", "tool": "look_up", "args": {"key": "B"}},
    {"id": "c", "tool": "look_up", "args": {"key": "${a} and ${b}"}},
]
PLAN = {"goal": "find the key", "steps": STEPS, "output": "c", "confidence": 0.8}
LINES = '1. look_up("A")\n2. look_up(key="B")\n3. look_up("$1 and $2")\n4. join($3)\n'
FAILED = (Trigger(TriggerKind.FAILED, "b", ""),)
RUNNING = {"a": StepView(Step(id="a", tool="look_up", args={"key": "A"}), State.SUCCEEDED)}


def texts(dialect: Dialect) -> str:
    """The plan in a dialect."""
    return LINES if dialect in ("compiler", "calls") else json.dumps(PLAN)


async def answer(planner: ModelPlanner, brief: Brief) -> tuple[list[Any], Exception | None]:
    """Return all answers of *planner* to *brief*, and the error that it raises."""
    said: Any = planner.revise(brief)
    found: list[Any] = []
    try:
        if not hasattr(said, "__aiter__"):
            return [await said], None
        async for edit in said:
            found.append(edit)  # noqa: PERF401  (answers before an error count)
    except Exception as error:  # noqa: BLE001  (the test examines any error)
        return found, error
    return found, None


def refused(*problems: Problem) -> tuple[Refusal, ...]:
    """Return a refusal in the form of a brief."""
    return (Refusal(None, problems or (Problem("DR111", "steps"),)),)


# First plans --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("piece", [1, 7, 0])
@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_a_plan_comes_step_by_step(dialect: Dialect, piece: int) -> None:
    """Then come the fields of the plan; the result equals the plan that is read from the whole text."""
    planner = ModelPlanner(ScriptedModel(Said(text=texts(dialect), piece=piece)), dialect=dialect)

    found, error = await answer(planner, brief_of())

    assert error is None
    steps = [edit.step for edit in found[:-1]]
    check_plan(Plan(steps=steps, output=found[-1].output), brief_of().toolbox or Toolbox())
    assert [step.args["key"] for step in steps[:2]] == ["A", "B"]
    assert found[-1].edits == ()
    assert found[-1].output == ("${3}" if dialect in ("compiler", "calls") else "c")
    assert found[-1].confidence == (None if dialect in ("compiler", "calls") else 0.8)


async def test_a_step_is_handed_on_when_its_object_has_closed() -> None:
    """Not when the next step begins, and not at the end: a model may think for seconds between two steps."""
    text = json.dumps(PLAN)
    model = ScriptedModel(Said(text=text, piece=1, delay=1))
    started = anyio.current_time()
    stream: Any = ModelPlanner(model).revise(brief_of())

    seen = [anyio.current_time() - started async for _ in stream]

    ends = [text.index(step) + len(step) for step in map(json.dumps, STEPS)]
    assert seen == pytest.approx([*ends, len(text)])


async def test_a_last_line_without_an_end_is_a_step_too() -> None:
    """Only the end of the answer shows that the line is complete."""
    model = ScriptedModel('1. look_up("A")\n2. look_up("B") <END_OF_PLAN>')

    found, error = await answer(ModelPlanner(model, dialect="compiler"), brief_of())

    assert error is None
    assert [edit.step.id for edit in found[:-1]] == ["1", "2"]


async def test_no_output_is_not_the_output_null() -> None:
    """A patch with an output of null would remove the run's default answer."""
    plan = {"steps": [STEPS[0]], "output": None, "confidence": None}

    (_, last), _ = await answer(ModelPlanner(ScriptedModel(plan)), brief_of())

    assert not last.changes_output
    assert last.confidence is None


async def test_a_model_that_does_not_stream_is_heard_too() -> None:
    """A whole answer at the end is slow, but not wrong."""

    class AtOnce(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            yield Reply(text=json.dumps(PLAN), stop="end", usage=Usage(), cost=None, model="x")

    found, error = await answer(ModelPlanner(AtOnce()), brief_of())

    assert error is None
    assert len(found) == 4


@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_the_request_says_what_is_wanted(dialect: Dialect) -> None:
    """The form is that of the toolset, lines of calls have none, and the options are passed on."""
    model = ScriptedModel(texts(dialect))
    brief = brief_of()

    await answer(ModelPlanner(model, dialect=dialect, max_output_tokens=77, temperature=0.2), brief)

    (request,) = model.requests
    assert (request.max_output_tokens, request.temperature) == (77, 0.2)
    assert (request.form is None) == (dialect in ("compiler", "calls"))
    if request.form is not None:
        form: PlanForm = "lean" if dialect == "lean" else "full"
        assert request.form.schema == toolset_schema(brief.toolbox or Toolbox(), form)
    assert brief.goal in request.messages[-1].text


@pytest.mark.parametrize("code", ["DR005", "DR108", "DR421"])
async def test_a_plan_that_did_not_end_is_asked_for_in_the_lean_form(code: str) -> None:
    """A small model that is offered every field fills it in, and never ends; so it gets fewer the second time."""
    model = ScriptedModel(texts("lean"), texts("json"))
    planner = ModelPlanner(model)
    facts = {"size": "9", "limit": "1", "count": "9", "reason": "cut off"}

    await answer(planner, brief_of(refused=(Refusal(None, (Problem(code, "", facts),)),)))
    await answer(planner, brief_of(refused=(Refusal(None, (Problem("DR111", "steps"),)),)))

    forms = [request.form.schema for request in model.requests if request.form is not None]
    toolbox = brief_of().toolbox or Toolbox()
    assert forms == [toolset_schema(toolbox, "lean"), toolset_schema(toolbox, "full")]


async def test_a_small_model_may_forget_the_end_of_its_plan() -> None:
    """If its answer has ended by itself, it is whole; an answer that was cut off is not, with or without an end."""
    lines = LINES.rpartition("4. join")[0]
    said, cut = Said(text=lines), Said(text=lines, stop="length")

    found, error = await answer(ModelPlanner(ScriptedModel(said), dialect="calls"), brief_of())
    assert error is None
    assert [edit.step.id for edit in found[:-1]] == ["1", "2", "3"]
    cases: list[tuple[Said, Dialect]] = [(cut, "calls"), (said, "compiler")]
    for model, dialect in cases:
        _, error = await answer(ModelPlanner(ScriptedModel(model), dialect=dialect), brief_of())
        assert isinstance(error, PlanRefused)
        assert [problem.code for problem in error.problems] == ["DR421"]


async def test_a_small_model_is_asked_coldly_first_and_warmly_after_a_refusal() -> None:
    """At temperature 0 it would give the refused answer again; the host may set another one for both."""
    for option, temperatures in ((None, [0.0, 0.6]), (0.3, [0.3, 0.3])):
        model = ScriptedModel(LINES, LINES)
        planner = ModelPlanner(model, dialect="calls", temperature=option)
        await answer(planner, brief_of())
        await answer(planner, brief_of(refused=refused()))
        assert [request.temperature for request in model.requests] == temperatures


# Bad ends -----------------------------------------------------------------------------------------------------------


async def test_an_invalid_plan_is_refused_after_its_valid_steps() -> None:
    """They were passed on when they arrived, before the fault was known."""
    plan = {"steps": [STEPS[0], {"id": "b", "tool": 3}]}

    found, error = await answer(ModelPlanner(ScriptedModel(plan)), brief_of())

    assert [edit.step.id for edit in found] == ["a"]
    assert isinstance(error, PlanRefused)
    assert any(problem.path.startswith("steps[1]") for problem in error.problems)


@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_an_answer_that_is_cut_off_is_refused_as_such(dialect: Dialect) -> None:
    """Even if it looks complete: lines may end anywhere, and more steps may have followed."""
    said = Said(text=texts(dialect), stop="length")

    found, error = await answer(ModelPlanner(ScriptedModel(said), dialect=dialect, max_output_tokens=99), brief_of())

    assert len(found) == 3
    assert isinstance(error, PlanRefused)
    assert [problem.code for problem in error.problems] == ["DR421"]
    assert "99 tokens" in str(error)


@pytest.mark.parametrize("dialect", get_args(Dialect))
async def test_a_refusal_of_the_plan_is_not_an_invalid_plan(dialect: Dialect) -> None:
    """Asking again would only press the model to invent a plan."""
    model = ScriptedModel({"refusal": "no tool books tables"})

    found, error = await answer(ModelPlanner(model, dialect=dialect), brief_of())

    assert found == []
    assert isinstance(error, CannotPlan)
    assert (error.reason, error.kind) == ("no tool books tables", "cannot")


async def test_a_model_that_does_not_want_to_cannot_plan() -> None:
    found, error = await answer(ModelPlanner(ScriptedModel(Said(text="I must not.", stop="refused"))), brief_of())

    assert found == []
    assert isinstance(error, CannotPlan)
    assert "I must not." in error.reason


@pytest.mark.parametrize("triggers", [None, FAILED])
async def test_a_broken_transport_stays_what_it_is(triggers: Any) -> None:
    """The run asks again if that may help; retries of the planner itself would not be charged."""
    fault = ModelError("reset", is_transient=True, retry_after=3)
    model = ScriptedModel(Said(text=json.dumps(PLAN)[:150], fault=fault))

    found, error = await answer(ModelPlanner(model), brief_of(**({} if triggers is None else {"triggers": triggers})))

    assert error is fault
    assert len(model.requests) == 1
    assert [edit.step.id for edit in found] == ([] if triggers else ["a", "b"])


async def test_a_stream_without_an_end_is_a_fault_of_the_model() -> None:
    """A model of the host that ends without a reply must not look complete."""

    class Endless(ScriptedModel):
        async def stream(self, request: Any) -> Any:
            yield json.dumps(PLAN)

    _, error = await answer(ModelPlanner(Endless()), brief_of())

    assert isinstance(error, ModelError)


@pytest.mark.parametrize("triggers", [None, FAILED])
async def test_a_flood_is_left_at_its_ceiling(triggers: Any) -> None:
    """59 MB are neither read nor kept: the connection is closed at the ceiling of bytes."""
    model = ScriptedModel(Said(text='{"goal": "' + " ".join(map(str, range(9_000))), piece=100, delay=1))
    began = anyio.current_time()
    fields = {} if triggers is None else {"triggers": triggers}

    _, error = await answer(ModelPlanner(model, limits=PlanLimits(max_bytes=1_000)), brief_of(**fields))

    assert isinstance(error, PlanRefused)
    assert [problem.code for problem in error.problems] == ["DR005"]
    assert anyio.current_time() - began == pytest.approx(11)
    assert model.closed == 1


async def test_closing_the_stream_closes_that_of_the_model() -> None:
    """Otherwise the connection would continue to the end of the answer, with its cost."""
    model = ScriptedModel(Said(text=json.dumps(PLAN), delay=1))
    stream: Any = ModelPlanner(model).revise(brief_of())

    async with aclosing(stream):
        await anext(stream)

    assert model.closed == 1


@pytest.mark.parametrize("triggers", [None, FAILED])
async def test_cancelling_closes_the_stream_of_the_model(triggers: Any) -> None:
    model = ScriptedModel(Said(text=json.dumps(PLAN), then=3600))

    with anyio.move_on_after(10) as scope:
        await answer(ModelPlanner(model), brief_of(**({} if triggers is None else {"triggers": triggers})))

    assert scope.cancelled_caught
    assert model.closed == 1


# Options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"dialect": "yaml"}, {"max_output_tokens": 0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        ModelPlanner(ScriptedModel(), **options)


async def test_a_brief_without_tools_is_a_fault_of_the_host() -> None:
    _, error = await answer(ModelPlanner(ScriptedModel(PLAN)), replace(brief_of(), toolbox=None))

    assert isinstance(error, ContractError)
