"""Every schema that a model is sent, by every part that asks one, has only what all servers honour."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, Field

import dagrun
from dagrun import (
    ModelPlanner,
    Problem,
    Refusal,
    Route,
    RubricCritic,
    State,
    Step,
    StepwisePlanner,
    Trigger,
    TriggerKind,
)
from dagrun.errors import DagrunError
from dagrun.extend import Request
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.value import encode
from dagrun.planners.prompt_examples import Dialect
from dagrun.testing.model_server.schema_rules import schema_faults
from scripted_model import ScriptedModel
from test_prompts import brief_of

pytestmark = pytest.mark.anyio


class Order(BaseModel):
    """Rules of all kinds that some server refuses, drops or misreads."""

    number: Annotated[str, Field(pattern=r"^\d+$")]
    word: Annotated[str, Field(pattern=r"[\w.]+")]
    quoted: Annotated[str, Field(pattern='^[^"]+$')]
    counted: Annotated[str, Field(pattern="^[A-Z]{3}$", min_length=3)]
    dotted: Annotated[str, Field(pattern="^a.c$")]
    plain: Annotated[str, Field(pattern="^[a-z]+-[0-9]+$")]
    address: Annotated[str, Field(json_schema_extra={"format": "uri"})]
    amounts: list[Annotated[float, Field(ge=0)]]


@dagrun.tool(effect="read")
async def order(number: Annotated[str, Field(pattern=r"^\d+$")], what: Order, much: int = 1) -> Order:
    """Orders it."""
    return what


BRIEF: dict[str, Any] = {"toolbox": dagrun.Toolbox([order])}
FAILED = (Trigger(TriggerKind.FAILED, "b", ""),)
NEXT = (Trigger(TriggerKind.NEXT, "", ""),)
REFUSED = (Refusal(None, (Problem("DR421", "", {"reason": "too long"}),)),)
PLAN = dagrun.Plan(steps=[Step(id="s", tool="asked", args={"prompt": "x"})])
AGENT = dagrun.Plan(steps=[Step(id="s", tool="agent", args={"task": "x"})])


async def _asked(planner: Any, **brief: Any) -> None:
    said = planner.revise(brief_of(**BRIEF, **brief))
    with suppress(DagrunError):
        if not inspect.isasyncgen(said):
            await said
            return
        async for _ in said:
            pass


async def _requests() -> list[Request]:
    """Return a request of each kind that some part sends; the answers are of no use."""
    models = iter(lambda: ScriptedModel(*["-"] * 9), None)
    used: list[ScriptedModel] = []

    def model() -> ScriptedModel:
        used.append(next(models))
        return used[-1]

    for dialect in get_args(Dialect):
        for brief in ({}, {"refused": REFUSED}, {"triggers": FAILED, "revision": 1}):
            await _asked(ModelPlanner(model(), dialect=dialect), **brief)
    for keeps in (False, True):
        await _asked(StepwisePlanner(model(), keeps_plan=keeps), triggers=NEXT)
    with suppress(DagrunError):
        await dagrun.ModelChooser(model())("goal", None, [Route("a", ["a"], PLAN), Route("b", ["b"], PLAN)])
    with suppress(DagrunError):
        await dagrun.ToolPicker(model(), most=1)("goal", [order.describe(), {"name": "other", "description": ""}])
    with suppress(DagrunError):
        await RubricCritic(model(), {"good": "It is."}).review(PLAN.steps[0], Outcome(State.SUCCEEDED, encode("x")))
    for confidence in (False, True):
        tool = dagrun.llm_tool(model(), name="asked", output=Order, confidence=confidence)
        await dagrun.run(PLAN, tools=[tool])
    await dagrun.run(AGENT, tools=[dagrun.agent_tool(model(), [order], name="agent", output=Order)])
    return [request for each in used for request in each.requests]


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the first argument of each ``Form(…)``, as it is written."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Form":
            yield ast.unparse(node.args[0]).strip("'")


async def test_every_schema_that_is_sent_has_only_what_all_servers_honour() -> None:
    """A call is refused for one pattern, or its answer is no JSON."""
    forms = [request.form for request in await _requests() if request.form is not None]

    assert [(form.name, fault) for form in forms for fault in schema_faults(form.schema, limits_unions=False)] == []
    names = {"answer", "change_plan", "create_plan", "marks", "next_step", "pick_tools", "route", "turn"}
    assert {form.name for form in forms} == names
    source = Path(dagrun.__file__).parent
    made = {name for path in source.rglob("*.py") for name in _names(ast.parse(path.read_text(encoding="utf-8")))}
    known = {"answer", "*_PATCH_FORM", "*_PLAN_FORM", "marks", "*_FORM", "pick_tools", "route", "turn"}
    assert made == known, "a new form is asked for above, so that its schema is held to the rules"


async def test_the_rules_that_are_left_out_are_told_in_words() -> None:
    forms = [request.form for request in await _requests() if request.form is not None]
    plan = next(form for form in forms if form.name == "create_plan")

    args = plan.schema["properties"]["steps"]["items"]["anyOf"][0]["properties"]["args"]["properties"]
    fields = args["what"]["anyOf"][0]["properties"]
    assert args["number"]["description"] == r"Pattern ^\d+$."
    assert fields["counted"]["description"] == "At least 3 characters, pattern ^[A-Z]{3}$."
    assert fields["address"]["description"] == "Format uri."
    assert fields["plain"] == {"type": "string", "pattern": "^[a-z]+-[0-9]+$"}
