"""Drift: a planted idle call and an early stop are found, and a step that is used is not accused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dagrun import Add, Brief, Patch, Plan, RunVariant, StaticPlanner, Step, compare
from dagrun.evaluate.comparison.differences import Sample
from dagrun.kernel.model.planner import Revision
from scripted_model import ScriptedModel

pytestmark = pytest.mark.real_time  # a virtual clock of its own

WORLD: dict[str, Any] = {
    "get_order": {"takes": 1, "return": {"id": 17, "total": 30.5}},
    "search": {"takes": 1, "return": ["sunny in Lima"]},
    "read_page": {"takes": 1, "return": "1"},
    "notify": "sent",
    "ship": "gone",
}
TOLD: dict[str, Any] = {"calls": {"must": ["notify"]}}


class Loop:
    """A planner that adds one step a turn, and ends with an answer: what a model does step by step."""

    def __init__(self, steps: Sequence[Step], output: Any = None) -> None:
        self._steps = list(steps)
        self._end: dict[str, Any] = {} if output is None else {"output": output}

    async def revise(self, brief: Brief) -> Revision:
        if not self._steps:
            return Patch(edits=(), confidence=1, **self._end)
        return Patch(edits=(Add(step=self._steps.pop(0)),), confidence=1, more=True)


def step(id_: str, tool: str, **args: Any) -> Step:
    return Step(id=id_, tool=tool, args=args)


def order(id_: str = "order") -> Step:
    return step(id_, "get_order", order=17)


def tell(text: str, id_: str = "tell") -> Step:
    return step(id_, "notify", to="ann", text=text)


def in_plan(folder: Path, steps: Sequence[Step], output: Any = None, **case: Any) -> Sample:
    plan = Plan(steps=tuple(steps), output=output)
    return played(folder, lambda: StaticPlanner(plan), **case)


def in_loop(folder: Path, steps: Sequence[Step], output: Any = None, **case: Any) -> Sample:
    return played(folder, lambda: Loop(steps, output), **case)


def played(folder: Path, make_planner: Any, **case: Any) -> Sample:
    """Carry a goal out by one planner, twice; return the first run."""
    file = folder / "case.yaml"
    golden = str(Path(__file__).parent / "golden" / "golden_tools.py")
    one = {"id": "it", "goal": "Tell ann about order 17", "world": WORLD, "expect": TOLD, **case}
    file.write_text(json.dumps({"tools": golden, "cases": [one]}), encoding="utf-8")
    return compare(file, {"one": make_planner, "same": make_planner}, runs=1).samples[0]


# Calls in steps that nothing uses -------------------------------------------------------------------------------------


def test_a_step_of_a_plan_that_nothing_uses_is_idle(tmp_path: Path) -> None:
    weather = step("weather", "search", query="Lima")
    ran = in_plan(tmp_path, [order(), weather, tell("due: ${order.total}")], "${tell}")

    assert (ran.passed, ran.calls, ran.idle) == (True, 3, 1)


def test_a_step_of_a_plan_serves_by_reference_and_not_by_what_happens_to_stand_there(tmp_path: Path) -> None:
    """A plan is written before its outputs are there: equal words are chance."""
    ran = in_plan(tmp_path, [step("weather", "search", query="a"), tell("it will be sunny")], "${tell}")

    assert ran.idle == 1


def test_a_step_serves_through_other_steps_by_order_and_by_condition(tmp_path: Path) -> None:
    first = step("first", "search", query="a")
    second = Step(id="second", tool="read_page", args={"name": "${first[0]}"})
    third = Step(id="tell", tool="notify", args={"to": "ann", "text": "x"}, depends_on=("second",))

    assert in_plan(tmp_path, [first, second, third], "${tell}").idle == 0
    assert in_plan(tmp_path, [first, second, tell("x")], "${tell}").idle == 2


def test_a_sink_of_a_plan_without_an_output_is_a_part_of_the_answer(tmp_path: Path) -> None:
    assert in_plan(tmp_path, [step("weather", "search", query="a"), tell("x")]).idle == 0


@pytest.mark.parametrize(
    "expect",
    [{"calls": {"must": ["search"]}}, {"steps": {"weather": {"state": "succeeded"}}}, {"calls": {"once": ["search"]}}],
    ids=str,
)
def test_what_the_case_expects_serves(tmp_path: Path, expect: dict[str, Any]) -> None:
    steps = [step("weather", "search", query="a"), tell("x")]

    assert in_plan(tmp_path, steps, "${tell}").idle == 1
    assert in_plan(tmp_path, steps, "${tell}", expect=expect).idle == 0


def test_elements_of_a_list_serve_with_their_step(tmp_path: Path) -> None:
    fan = Step(id="fan", tool="read_page", for_each=["a", "b"], args={"name": "${item}"})

    assert in_plan(tmp_path, [fan, tell("x")], "${fan}").idle == 0
    assert in_plan(tmp_path, [fan, tell("x")], "${tell}").idle == 2


def test_what_a_planner_may_have_read_is_used(tmp_path: Path) -> None:
    """A planner that decides after each step sees its output; a plan that was there before has seen none."""
    weather, told = step("weather", "search", query="a"), tell("x")

    assert in_loop(tmp_path, [weather, told], "${tell}").idle == 0
    assert in_loop(tmp_path, [told, weather], "It will be sunny").idle == 0
    assert in_plan(tmp_path, [weather, told], "${tell}").idle == 1


def test_an_effect_serves_even_where_nobody_looks_at_it(tmp_path: Path) -> None:
    assert in_plan(tmp_path, [step("ship", "ship", order=17), tell("x")], "${tell}").idle == 0


def test_a_failed_call_is_not_idle(tmp_path: Path) -> None:
    world = {**WORLD, "search": {"raise": "tool_error"}}

    assert in_plan(tmp_path, [step("weather", "search", query="a"), tell("x")], "${tell}", world=world).idle == 0


# Agents ---------------------------------------------------------------------------------------------------------------


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"thought": "", "call": {"tool": tool, "args": args}}


def by_agent(folder: Path, *turns: dict[str, Any], answer: str = "done", **case: Any) -> Sample:
    """Let an agent make calls, one a turn."""
    end = {"thought": "", "answer": answer}
    way = RunVariant(agent=lambda: ScriptedModel(*turns, end))
    return played(folder, way, clock="virtual", **{"expect": {"status": "succeeded"}, **case})


def test_an_agent_has_no_steps_that_could_be_idle(tmp_path: Path) -> None:
    """It reads what each call returns."""
    ran = by_agent(tmp_path, call("search", query="a"), call("notify", to="ann", text="x"), answer="no idea")

    assert (ran.passed, ran.calls, ran.idle) == (True, 2, 0)


# Early stops ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expect", "is_early"),
    [
        ({"output": "sent"}, False),
        ({"output": "gone"}, True),
        ({"calls": {"must": ["ship"]}}, True),
        ({"calls": {"once": ["ship"]}}, True),
        ({"calls": {"args": {"notify": [{"text": "x"}, {"text": "y"}]}}}, True),
        ({"status": "escalated"}, True),
        ({"steps": {"tell": {"output": "lost"}}}, True),
        ({"ceilings": {"calls": 0}}, False),  # it did too much, not too little
        ({"calls": {"never": ["notify"]}}, False),
        ({"calls": {"args": {"notify": {"text": "y"}}}}, False),
    ],
    ids=str,
)
def test_a_run_stops_early_if_it_says_succeeded_and_something_is_not_there(
    tmp_path: Path, expect: dict[str, Any], is_early: bool
) -> None:
    ran = in_plan(tmp_path, [tell("x")], expect=expect)

    assert ran.status == "succeeded"
    assert ran.passed is (expect == {"output": "sent"})
    assert ran.stopped_early is is_early


def test_a_call_that_the_world_does_not_have_is_a_miss_and_no_early_stop(tmp_path: Path) -> None:
    turns = [call("search", query="a"), call("notify", to="ann", text="x")]
    ran = by_agent(tmp_path, *turns, world={"notify": "sent"}, expect=TOLD)

    assert (ran.status, ran.passed, len(ran.misses)) == ("succeeded", False, 1)
    assert "search" in ran.misses[0]
    assert ran.stopped_early is False


def test_a_run_that_fails_does_not_stop_early(tmp_path: Path) -> None:
    world = {**WORLD, "notify": {"raise": "tool_error"}}

    assert in_plan(tmp_path, [tell("x")], world=world, expect={"output": "sent"}).stopped_early is False
