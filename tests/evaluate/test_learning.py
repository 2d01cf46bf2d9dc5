"""Routes learned from runs: what becomes a parameter, what does not, and what a route gives without any model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun import Add, Condition, Patch, Plan, RouterPlanner, Step
from dagrun.errors import ContractError, NoRoute
from dagrun.evaluate.learning.learn_routes import Learned, learn_routes, planned_run
from dagrun.planners.route_files import RouteFile, read_route
from recorded_runs import Recorded
from replans import Thinker
from small_tools import scripted, toolset

pytestmark = pytest.mark.anyio


def echo(id_: str, value: Any, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="echo", args={"value": value}, depends_on=after, **fields)


async def learned(*runs: tuple[str, list[Step], Any], **options: Any) -> Learned:
    """What is learned of runs, each with its goal, the steps that its planner writes, and its inputs."""
    recorded = Recorded()
    for number, (goal, steps, inputs) in enumerate(runs):
        given = {} if inputs is None else {"inputs": inputs}
        await recorded.run(f"r{number}", goal=goal, planner=Thinker(Plan(steps=steps)), **given)
    found = [planned_run(f"r{n}", await recorded.lines(f"r{n}")) for n in range(len(runs))]
    return learn_routes([run for run in found if not isinstance(run, str)], **options)


async def one_route(*runs: tuple[str, list[Step], Any]) -> RouteFile:
    (route,) = (await learned(*runs)).routes
    return route


async def test_a_number_in_the_goal_becomes_a_parameter() -> None:
    """One run is enough: nobody asks for order 17 each time. Ids of steps and blanks do not count."""
    route = await one_route(("Refund order 17", [echo("a", 17), echo("b", "${a}")], None))

    assert route.goals == ["Refund order {value}"]
    assert route.parameters == {"value": "integer"}
    assert route.plan["steps"][0]["args"] == {"value": "${input.value}"}
    assert [step.args["value"] for step in route.fill("refund  ORDER 4711").steps] == [4711, "${a}"]


async def test_a_word_becomes_a_parameter_only_if_it_differs() -> None:
    """A text that was always the same is part of what the task is: without it, the route would be for other tasks."""
    once = await one_route(("Sales of North", [echo("a", "North")], None))
    twice = await one_route(
        ("Sales of North", [echo("a", "North"), echo("b", "Sales", "a")], None),
        ("Sales of South", [echo("x", "South"), echo("y", "Sales", "x")], None),
    )

    assert (once.goals, once.parameters) == (["Sales of North"], {})
    assert (twice.goals, twice.parameters) == (["Sales of {value}"], {"value": "word"})
    assert [step.args["value"] for step in twice.fill("Sales of West").steps] == ["West", "Sales"]
    assert twice.values_in("Costs of West") is None
    assert twice.values_in("Sales of West, and delete all of it") is None, "one word, as it always was"


async def test_values_of_inputs_refer_to_them() -> None:
    """The plan had the value of the input in it; the route takes that of the next run."""
    route = await one_route(
        ("Sales of my region", [echo("a", "North")], {"region": "North"}),
        ("Sales of my region", [echo("a", "South")], {"region": "South"}),
    )

    assert (route.inputs, route.parameters) == (["region"], {})
    assert route.plan["steps"][0]["args"] == {"value": "${input.region}"}
    router = RouterPlanner([route.as_route()])
    assert router.plan("Sales of my region", {"region": "West"}).steps[0].args == {"value": "${input.region}"}
    with pytest.raises(NoRoute):
        router.plan("Sales of my region", {})


def limited(most: int) -> list[Step]:
    """Return a step, and one that runs if its output is below a number."""
    small = Condition(ref="${a}", op="<", value=most)
    return [echo("a", 17), Step(id="b", tool="echo", args={"value": "paid"}, when=small)]


async def test_a_condition_with_a_value_of_the_goal_makes_no_route() -> None:
    """Conditions take no inputs, so a route would compare with the value of another goal."""
    for runs in (
        [("Refund 17 below 500", limited(500), None)],
        [("Refund 17 below 500", limited(500), None), ("Refund 17 below 90", limited(90), None)],
        [("Refund 17 if it is small", limited(500), None), ("Refund 17 if it is small", limited(90), None)],
    ):
        found = await learned(*runs)
        assert not found.routes
        (why,) = found.left_out.values()
        assert "compares with" in why or "differs between" in why
    assert (await one_route(("Refund 17 if it is small", limited(500), None))).parameters == {"value": "integer"}


async def test_words_about_one_run_are_no_part_of_a_route() -> None:
    steps = [Step(id="a", tool="echo", args={"value": 17}, description="Refund order 17", expected_output="17 is paid")]
    route = await one_route(("Refund order 17", steps, None))
    assert "17" not in json.dumps(route.plan)


async def test_a_goal_of_pages_fits_no_route() -> None:
    """Matching takes time, in the loop of all runs."""
    route = await one_route(
        ("Sales of North", [echo("a", "North")], None), ("Sales of South", [echo("a", "South")], None)
    )
    assert route.values_in("Sales of " + "x" * 1_900) == {"value": "x" * 1_900}
    assert route.values_in("Sales of " + "x" * 3_000) is None


async def test_routes_under_two_policies_have_two_names() -> None:
    """Each is a file of its own."""
    recorded = Recorded()
    for name, most in (("r0", 50), ("r1", 60)):
        plan = Plan(steps=[echo("a", 17)])
        await recorded.run(name, goal="Refund order 17", planner=Thinker(plan), max_steps=most)
    found = [planned_run(name, await recorded.lines(name)) for name in ("r0", "r1")]
    routes = learn_routes([run for run in found if not isinstance(run, str)]).routes
    assert len({route.name for route in routes}) == 2


async def test_a_value_from_nowhere_makes_no_route() -> None:
    found = await learned(("Do it", [echo("a", 1)], None), ("Do it", [echo("a", 2)], None))

    assert not found.routes
    assert "differs between the runs, and is in no goal" in found.left_out["r0"]


async def test_parameters_that_cannot_be_told_apart() -> None:
    """Two values that are equal in every goal are one parameter; values that are equal once leave that goal out."""
    same = await one_route(("Move 3 to 3", [echo("a", 3), echo("b", 3)], None))
    assert same.parameters == {"value": "integer"}
    assert same.values_in("Move 4 to 5") is None

    other = await one_route(
        ("Move 3 to 3", [echo("a", 3), echo("b", 3)], None), ("Move 4 to 5", [echo("a", 4), echo("b", 5)], None)
    )
    assert other.goals == ["Move {value} to {value_2}"]
    assert [step.args["value"] for step in other.fill("Move 8 to 9").steps] == [8, 9]


async def test_failures_count_and_repairs_are_not_learned() -> None:
    """A plan that a planner had to repair is no plan that worked."""
    recorded = Recorded()
    flaky = scripted("flaky", "done", ValueError("no"))
    for name, number in (("good", 7), ("bad", 8)):
        plan = Plan(steps=[Step(id="a", tool="flaky", args={"value": number})])
        await recorded.run(name, goal=f"Count to {number}", planner=Thinker(plan), tools=[flaky], max_replans=0)
    mended = Patch(edits=[Add(step=echo("b", 1))])
    failing = Plan(steps=[Step(id="x", tool="fail")])
    await recorded.run("mended", goal="Count to 9", planner=Thinker(failing, mended))
    await recorded.run("plan", echo("a", 7))
    said = {name: planned_run(name, await recorded.lines(name)) for name in ("good", "bad", "mended", "plan")}

    assert said["mended"] == "its plan was repaired, or its goal changed"
    assert said["plan"] == "it did not begin with a goal"
    runs = [run for run in said.values() if not isinstance(run, str)]
    (route,) = learn_routes(runs).routes
    assert (route.learned["runs"], route.learned["succeeded"]) == (2, 1)
    assert not learn_routes(runs, min_runs=2).routes


async def test_secrets_are_not_learned() -> None:
    """What looks like a key must not get into a file that is committed."""
    recorded = Recorded()
    key = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2
    await recorded.run("r", goal="Use it", planner=Thinker(Plan(steps=[echo("a", key)])))

    assert "a possible secret" in str(planned_run("r", await recorded.lines("r")))


async def test_a_route_is_run_without_a_model(tmp_path: Path) -> None:
    """And what stands in the goal is data: a reference in it is a text."""
    route = await one_route(
        ("Say hello to Ann", [echo("a", "Ann")], None), ("Say hello to Bob", [echo("a", "Bob")], None)
    )
    (tmp_path / "hello.json").write_text(route.model_dump_json())
    router = RouterPlanner(dagrun.read_routes(tmp_path))
    for name in ("Eve", "${input}", "$${x}"):
        result = await dagrun.run(goal=f"Say hello to {name}", planner=router, tools=toolset(), inputs={"k": "secret"})
        assert result.output == name
        assert result.tokens == 0


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"goals": []}, "is no route"),
        ({"plan": {"steps": [{"id": "a"}]}}, "is no route"),
        ({"parameters": {"other": "integer"}}, "has no place for other"),
        ({"parameters": {"value": "regex"}}, "is no route"),
        ({"route": 2}, "is no route"),
        ({"more": 1}, "is no route"),
    ],
)
async def test_a_file_that_is_no_route(tmp_path: Path, change: dict[str, Any], why: str) -> None:
    route = await one_route(("Refund order 17", [echo("a", 17)], None))
    path = tmp_path / "r.json"
    path.write_text(json.dumps(route.model_dump() | change))

    with pytest.raises(ContractError, match=why) as caught:
        read_route(path)
    assert str(path) in str(caught.value)


SAME = {"goals": ["Count to {n}", "Count up to {n}"], "parameters": {"n": "integer"}}


@pytest.mark.parametrize(
    ("later", "goal"),
    [
        (SAME, "'Count to {n}' (and 1 more)"),
        ({"goals": ["count  TO {other}"], "parameters": {"other": "integer"}}, "'count  TO {other}'"),
        ({"goals": ["Count to 17"]}, "'Count to 17'"),
        ({**SAME, "inputs": ["region"]}, "'Count to {n}' (and 1 more)"),
        ({"goals": ["Count to {n}"], "parameters": {"n": "word"}}, ""),  # the narrower one comes first
        ({"goals": ["Count down to {n}"], "parameters": {"n": "integer"}}, ""),
    ],
)
async def test_routes_for_the_same_goal_are_named_when_they_are_loaded(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, later: dict[str, Any], goal: str
) -> None:
    """Which one is used hangs on the names of the files."""
    plan = {"steps": [{"id": "a", "tool": "echo"}]}
    for name, route in (("a", SAME), ("b", later)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "plan": plan, **route}))
    routes = dagrun.read_routes(tmp_path)

    first, second = tmp_path / "a.json", tmp_path / "b.json"
    said = f"{first} and {second} are both for the goal {goal}, and the first is used: take it out of one of them"
    assert caplog.messages == ([said] if goal else [])
    assert RouterPlanner(routes).choose("Count to 17").name == "a"


async def test_a_route_that_needs_an_input_may_come_before_one_that_does_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plan = {"steps": [{"id": "a", "tool": "echo"}]}
    for name, inputs in (("a", ["region"]), ("b", [])):
        (tmp_path / f"{name}.json").write_text(json.dumps({"name": name, "plan": plan, "inputs": inputs, **SAME}))

    router = RouterPlanner(dagrun.read_routes(tmp_path))
    assert [router.choose("Count to 17", inputs).name for inputs in ({"region": "North"}, {})] == ["a", "b"]
    assert not caplog.messages


def test_a_file_of_any_name_is_a_route(tmp_path: Path) -> None:
    """Only in a folder do names tell which files are routes."""
    file = tmp_path / "count.route"
    file.write_text(json.dumps({"name": "count", "plan": {"steps": [{"id": "a", "tool": "echo"}]}, **SAME}))

    assert [route.name for route in dagrun.read_routes(file)] == ["count"]


def test_a_folder_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="there is no folder of routes"):
        dagrun.read_routes(tmp_path / "none")
