"""``dagrun learn``, as a user calls it: from recorded runs to a file, and from the file to a run without a model."""

import json

import pytest

from command_line import TOOLS, Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

PLANNER = """
import re
from dagrun import Plan, Step

class Once:
    async def revise(self, brief):
        number = int(re.search(r"[0-9]+", brief.goal).group())
        return Plan(steps=[Step(id="sum", tool="add", args={"a": number})])

planner = Once()
"""
ROUTER = "from dagrun import RouterPlanner, read_routes\nrouter = RouterPlanner(read_routes('routes'))\n"


@pytest.fixture
def planned(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A run that a planner has planned."""
    shell.file("once.py", PLANNER)
    shell.file("routed.py", ROUTER)
    monkeypatch.syspath_prepend(str(shell.folder))
    ended = shell("do", "Add to 17", *TOOLS, "--planner", "once:planner", "--run-id", "first")
    assert ended.code == 0, ended.err
    return shell


def test_from_a_record_to_a_run_without_a_model(planned: Shell) -> None:
    ended = planned("learn", "-o", "routes")
    assert "redact functions of programs that ran them are not applied" in ended.err
    assert ended.code == 0
    assert "Add to {a}" in ended.out
    (path,) = (planned.folder / "routes").glob("*.json")
    assert json.loads(path.read_text())["parameters"] == {"a": "integer"}

    again = planned("do", "add to 40", *TOOLS, "--planner", "routed:router", "--json", "--run-id", "second")
    assert again.code == 0, again.err
    assert planned("inspect", "second", "--json").code == 0
    other = planned("do", "Multiply by 4", *TOOLS, "--planner", "routed:router")
    assert other.code == 2
    assert "no route fits the goal" in other.err


def test_the_golden_task_of_a_route_passes_until_somebody_changes_the_route(planned: Shell) -> None:
    found = planned("learn", "-o", "routes", "--json").json
    (path,) = found["cases"].values()
    assert found["no_case"] == {}
    assert planned("eval", "routes", *TOOLS).code == 0

    route = planned.folder / path.replace(".yaml", ".json")
    route.write_text(route.read_text().replace('"${input.a}"', "4711"))
    ended = planned("eval", "routes", *TOOLS)
    assert ended.code == 1
    assert "plan: step sum.args.a is 4711, not 17" in ended.out


def test_a_route_without_a_golden_task_says_why(planned: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The route is of use all the same; the case of an earlier route of that name would be about another one."""
    monkeypatch.setattr("dagrun.evaluate.learning.route_cases._MAX_BYTES", 100)
    planned("learn", "-o", "routes")
    (route,) = (planned.folder / "routes").iterdir()
    old = route.with_suffix(".yaml")
    old.write_text("cases: []")
    ended = planned("learn", "-o", "routes", "--force")

    assert ended.code == 0
    assert "no golden task of" in ended.err
    assert "first: its outputs take more than 100 bytes" in ended.err
    assert not old.exists()


def test_files_are_not_written_over(planned: Shell) -> None:
    """Somebody may have edited them."""
    assert planned("learn", "-o", "routes").code == 0
    refused = planned("learn", "-o", "routes")

    assert refused.code == 2
    assert "--force" in refused.err
    assert planned("learn", "-o", "routes", "--force").code == 0


def test_routes_for_the_same_goal_are_named(planned: Shell) -> None:
    """A planner has written another plan for the same goal; one of the two would never be used."""
    planned.file("twice.py", PLANNER.replace('"a": number', '"a": number, "b": 2'))
    assert planned("do", "Add to 4", *TOOLS, "--planner", "twice:planner").code == 0
    ended = planned("learn", "-o", "routes")
    first, second = sorted(planned.folder.glob("routes/*.json"))

    said = f"routes/{first.name} and routes/{second.name} are both for the goal 'Add to {{a}}', and the first is used"
    assert ended.code == 0
    assert f"{said}: take it out of one of them\n" in ended.err
    (again,) = planned("learn", "-o", "routes", "--force", "--json").json["conflicts"]
    assert again.startswith(said)


def test_what_makes_no_route_is_said(planned: Shell) -> None:
    found = planned("learn", "--json", "--min-runs", "2").json

    assert found["routes"] == []
    assert "1 of the 2 runs" in found["left_out"]["first"]
    assert "no route from first" in planned("learn", "--min-runs", "2").err


def test_no_runs_and_wrong_use(shell: Shell) -> None:
    assert shell("learn").out == "0 routes in 0 runs that a planner has planned\n"
    assert shell("learn", "--since", "yesterday").code == 2
    shell.file("taken", "")
    assert shell("learn", "-o", "taken").code == 2
