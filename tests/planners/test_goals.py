"""A dozen goals, planned from streamed text: in every dialect, with every form of output, over real HTTP."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

import dagrun
from dagrun import ModelPlanner, Question, Status
from dagrun.extend import LanguageModel
from dagrun.llm.language_model import Structure
from dagrun.planners.answers.plan_schemas import toolset_schema
from dagrun.planners.prompt_examples import Dialect
from dagrun.testing import FakeModelServer, ModelAnswer
from goals import GOALS, WORLD, Goal
from model_calls import EVERYBODY, Speaks, model_at
from scripted_model import Said, ScriptedModel
from small_tools import states

pytestmark = pytest.mark.anyio

WITH_LINES = [goal for goal in GOALS if goal.lines]


async def _yes(question: Question) -> bool:
    return True


async def must_reach(goal: Goal, model: LanguageModel, dialect: Dialect = "json") -> None:
    """Run *goal*, and see that it is reached."""
    planner = ModelPlanner(model, dialect=dialect)
    asks = _yes if dialect == "compiler" else None  # lines say no confidence, so a person is asked about effects
    result = await dagrun.run(goal=goal.goal, planner=planner, tools=WORLD, approver=asks)

    assert result.status is Status.SUCCEEDED, f"{goal.name}: {result.reason}"
    assert result.output == goal.gives
    ended = states(result)
    assert tuple(id_ for id_ in ended if ended[id_] == "skipped") == goal.skipped


def text_of(goal: Goal, structure: Structure) -> str:
    """Return the text of a model: strict where the API enforces that, and with a code fence in plain JSON mode."""
    return (
        f"```json\n{json.dumps({**goal.plan(), 'confidence': 0.9}, indent=1)}\n```"
        if structure == "json"
        else json.dumps(goal.strict())
    )


def test_there_are_enough_of_them() -> None:
    assert len(GOALS) >= 11
    assert len(WITH_LINES) >= 6


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_strict_modes_can_say_the_plan(goal: Goal) -> None:
    """If the form could not express one of these plans, the model would write another plan than it wants."""
    Draft202012Validator(toolset_schema(WORLD)).validate(goal.strict())


@pytest.mark.parametrize("structure", ["schema", "json"])
@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
async def test_a_plan_in_json_reaches_its_goal(goal: Goal, structure: Structure) -> None:
    """The text comes letter by letter; with a tool, it follows the schema."""
    await must_reach(goal, ScriptedModel(Said(text=text_of(goal, structure), piece=1)))


@pytest.mark.parametrize("goal", WITH_LINES, ids=lambda goal: goal.name)
async def test_a_plan_in_lines_reaches_its_goal(goal: Goal) -> None:
    await must_reach(goal, ScriptedModel(Said(text=goal.lines, piece=1)), "compiler")


@pytest.mark.real_time
@pytest.mark.costly
@pytest.mark.parametrize("structure", get_args(Structure))
@pytest.mark.parametrize("speaks", EVERYBODY)
async def test_every_goal_is_reached_over_http(speaks: Speaks, structure: Structure) -> None:
    """For each provider and form of output, with the library of the provider; the server checks the form."""
    answers: list[Any] = [ModelAnswer(text_of(goal, structure), piece=32) for goal in GOALS]

    async with FakeModelServer(answers) as server, model_at(server, speaks, structure=structure) as model:
        for goal in GOALS:
            await must_reach(goal, model)

    assert [call.status for call in server.calls] == [200] * len(GOALS)
    # Messages have no JSON mode, so only the prompt asks for JSON.
    asked = None if (speaks, structure) == ("messages", "json") else structure
    assert {call.structure for call in server.calls} == {asked}
