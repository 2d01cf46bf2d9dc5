"""Many tools: the host, or a first cheap call of a model, picks those that the planner's model is told of."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

import dagrun
from dagrun import (
    ModelChooser,
    ModelPlanner,
    Problem,
    Refusal,
    Route,
    RouterPlanner,
    State,
    Step,
    StepView,
    Toolbox,
    ToolPicker,
)
from dagrun.errors import ContractError, ModelError
from dagrun.events import PlannerCalled
from dagrun.kernel.model.tool import make_tool
from dagrun.planners.answers.plan_schemas import toolset_schema
from dagrun.planners.prompt_texts import Wording
from scripted_model import Said, ScriptedModel
from test_model_planner import FAILED, answer
from test_prompts import blocks, brief_of

pytestmark = pytest.mark.anyio


def many(count: int) -> Toolbox:
    async def look_up(key: str) -> str:
        """Look a key up. There is a lot more to be said of it, of no interest to someone who only has to know its
        purpose, and it goes on like that for a good while. Not even this.
        """
        return key

    return Toolbox([make_tool(look_up, name=f"t{number}", effect="read") for number in range(count)])


PLAN = {"steps": [{"id": "a", "tool": "t7", "args": {"key": "A"}}]}
BRIEF = {"toolbox": many(40)}


def shown(model: ScriptedModel, place: int = -1) -> list[str]:
    """Return the names of the tools in a prompt."""
    return [tool["name"] for tool in blocks(model.requests[place].messages[0].text)["tools"]]


async def test_the_host_selects_the_tools() -> None:
    """In the prompt and in the schema; once for a run, and again for another goal."""
    asked: list[tuple[str, int]] = []

    def select(goal: str, tools: Sequence[Mapping[str, Any]]) -> list[str]:
        asked.append((goal, len(tools)))
        return ["t7", "t9"]

    model = ScriptedModel(*[PLAN] * 4)
    planner = ModelPlanner(model, select_tools=select)
    for brief in (brief_of(**BRIEF), brief_of(**BRIEF), brief_of(**BRIEF, run_id="b"), brief_of(**BRIEF, goal="other")):
        _, error = await answer(planner, brief)
        assert error is None
        assert shown(model) == ["t7", "t9"]

    assert model.requests[0].form is not None
    assert model.requests[0].form.schema == toolset_schema(Toolbox(list(many(40).values()), allow=["t7", "t9"]))
    assert asked == [("find the key", 40), ("find the key", 40), ("other", 40)]


async def test_tools_of_steps_that_are_there_are_shown_too() -> None:
    """A change of the plan must be able to name them."""

    async def select(goal: str, tools: Sequence[Mapping[str, Any]]) -> set[str]:
        return {"t1"}

    view = StepView(Step(id="a", tool="t3", args={"key": "A"}), State.SUCCEEDED)
    model = ScriptedModel({"edits": [], "reason": "fits"})

    await answer(ModelPlanner(model, select_tools=select), brief_of(**BRIEF, triggers=FAILED, steps={"a": view}))

    assert shown(model) == ["t1", "t3"]


async def test_a_plan_that_calls_others_gets_all_tools() -> None:
    """The selection was wrong, then, and the second answer is the last."""
    model = ScriptedModel(PLAN)
    refused = (Refusal(None, (Problem("DR201", "steps[0]", {"step": "a", "tool": "t8", "hint": ""}),)),)

    await answer(ModelPlanner(model, select_tools=lambda *_: ["t7"]), brief_of(**BRIEF, refused=refused))

    assert len(shown(model)) == 40


@pytest.mark.parametrize(("names", "said"), [(["t99"], "t99, which the run does not have"), ([3], "not [3]")])
async def test_a_selection_that_makes_no_sense_is_a_fault_of_the_host(names: Any, said: str) -> None:
    _, error = await answer(ModelPlanner(ScriptedModel(PLAN), select_tools=lambda *_: names), brief_of(**BRIEF))

    assert isinstance(error, ContractError)
    assert said in str(error)
    with pytest.raises(ContractError):
        ModelPlanner(ScriptedModel(), select_tools=["t1"])  # type: ignore[arg-type]


async def test_a_picker_asks_a_cheap_model_once() -> None:
    """It reads a sentence for each tool, and no schema."""
    cheap, dear = ScriptedModel({"tools": ["t7", "t9", "t7", "nothing"]}), ScriptedModel(PLAN)
    planner, told_all = ModelPlanner(dear, select_tools=ToolPicker(cheap, most=5)), ScriptedModel(PLAN)

    await answer(ModelPlanner(told_all), brief_of(**BRIEF))
    _, error = await answer(planner, brief_of(**BRIEF))

    assert error is None
    assert shown(dear) == ["t7", "t9"]
    [request] = cheap.requests
    assert "at most 5" in request.system
    assert len(cheap.prompts[0]) < len(told_all.prompts[0]) / 2
    assert "Not even this" not in cheap.prompts[0]
    assert request.form is not None
    assert request.form.schema["properties"]["tools"]["items"]["enum"] == [f"t{number}" for number in range(40)]


@pytest.mark.parametrize("said", ["I do not know.", '{"tools": []}', '{"tools": [1]}', Said(text="{", stop="length")])
async def test_a_picker_without_an_answer_hides_nothing(said: Any) -> None:
    """The plan is what is wanted, and the choice only makes it cheaper."""
    dear = ScriptedModel(PLAN)

    _, error = await answer(ModelPlanner(dear, select_tools=ToolPicker(ScriptedModel(said))), brief_of(**BRIEF))

    assert error is None
    assert len(shown(dear)) == 40


async def test_a_picker_is_not_asked_for_few_tools_and_its_dead_server_is_told() -> None:
    few = ScriptedModel()
    dead = ScriptedModel(Said(text="", fault=ModelError("reset", is_transient=True)))

    assert await ToolPicker(few, most=40)("goal", [tool.describe() for tool in many(40).values()])
    _, error = await answer(ModelPlanner(ScriptedModel(PLAN), select_tools=ToolPicker(dead)), brief_of(**BRIEF))

    assert few.requests == []
    assert isinstance(error, ModelError)


async def test_the_call_of_a_picker_is_charged_to_the_run_and_on_record() -> None:
    calls: list[Any] = []
    picker = ToolPicker(ScriptedModel({"tools": ["t7"]}), most=2)
    planner = ModelPlanner(ScriptedModel(PLAN), select_tools=picker)

    result = await dagrun.run(goal="find A", planner=planner, tools=many(9), on_event=calls.append)

    [call] = [event for event in calls if type(event).__name__ == "PlannerCalled"]
    assert result.output == "A"
    assert call.answers == (json.dumps({"tools": ["t7"]}), json.dumps(PLAN))
    assert call.tokens == 300


async def test_the_record_has_the_versions_of_all_words_that_models_were_asked_with() -> None:
    """Those of the planner, and, where a model picks the tools or the route, those of that."""
    seen: list[str] = []
    plan = {"steps": [{"id": "a", "tool": "t7", "args": {}}], "confidence": 0.9}
    tools = [_small(f"t{number}") for number in range(9)]

    async def ask_with(planner: Any, goal: str = "g") -> None:
        def note(event: Any) -> None:
            if isinstance(event, PlannerCalled):
                seen.append(event.prompt)

        await dagrun.run(goal=goal, planner=planner, tools=tools, on_event=note)

    picker = ToolPicker(ScriptedModel({"tools": ["t7"]}), most=3)
    await ask_with(ModelPlanner(ScriptedModel(plan), select_tools=picker))
    await ask_with(ModelPlanner(ScriptedModel(plan), select_tools=ToolPicker(ScriptedModel(), most=30)))
    route = Route("seven", ["seven"], dagrun.Plan(steps=[dagrun.Step(id="a", tool="t7")]), description="calls t7")
    router = RouterPlanner([route], chooser=ModelChooser(ScriptedModel({"route": "seven"})))
    await ask_with(router, "something")
    await ask_with(router, "seven")

    own = Wording().version
    assert seen[0].startswith(f"{own}, tools ")
    assert re.fullmatch(r"tools [0-9a-f]{8}", seen[0].removeprefix(f"{own}, "))
    assert seen[1] == own
    assert re.fullmatch(r"route [0-9a-f]{8}", seen[2])
    assert seen[3] == ""


def _small(name: str) -> Any:
    async def gives() -> int:
        return 7

    return make_tool(gives, name=name, effect="pure")
