"""``dagrun check --goals`` says which goals need no planner any more."""

import json
from typing import Any, cast

import pytest

from command_line import TOOLS, Shell, shell
from goal_shell import GOOD, ONE, served

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

GOAL = "Add one and one, and then five"


def answer(*steps: dict[str, Any]) -> str:
    """A plan as a model writes it."""
    return json.dumps({"steps": list(steps), "output": None, "confidence": 0.9, "refusal": None})


def did(shell: Shell, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
    """Do the goal, once for each answer of the model."""
    for said in answers:
        with served(monkeypatch, said):
            ended = shell("do", GOAL, *TOOLS)
        assert ended.code == 0, ended.err


def test_goal_that_always_took_the_same_steps(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ids and other values are the same steps; the values that differed are named as inputs."""
    named = {**ONE, "id": "other"}
    did(shell, monkeypatch, answer(ONE), answer(named), answer({**ONE, "args": dict(cast("Any", ONE["args"]), a=7)}))

    told = shell("check", "--goals")
    (found,) = json.loads(shell("check", "--goals", "--json").out)["goals"]

    assert (told.code, told.err) == (0, "")
    assert "3 runs, all with the same steps: one (add)" in told.out
    assert "a fixed plan or a route would do" in told.out
    assert (found["goal"], len(found["runs"]), found["planner_calls"]) == (GOAL, 3, 3)
    assert found["differing"] == ["one.a"]
    assert found["plan"]["steps"][0]["tool"] == "add"


def test_goal_with_other_steps_or_few_runs_needs_its_planner(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    did(shell, monkeypatch, answer(ONE), answer(ONE))
    assert "no goal in" in shell("check", "--goals").out

    did(shell, monkeypatch, GOOD)
    assert "no goal in" in shell("check", "--goals").out
    assert json.loads(shell("check", "--goals", "--json").out)["goals"] == []


@pytest.mark.parametrize("args", [(), ("plan.json", "--goals")])
def test_plan_or_goals_but_not_both(shell: Shell, args: tuple[str, ...]) -> None:
    ended = shell("check", *args)

    assert (ended.code, ended.out) == (2, "")
