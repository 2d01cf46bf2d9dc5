"""The dialect of step_number and action: arguments that its plans leave out are filled in, and no others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field

from checking import places, refusal, refused, waiting_for
from dagrun import PlanRefused, Toolbox, read_plan, tool
from dagrun.kernel.checks.check_plan import check_plan
from folders import DATA

Q4 = DATA / "q4_plan.json"
Rows = list[dict[str, Any]]


@tool(effect="read")
def load_csv(file_path: Annotated[str, Field(alias="filePath")]) -> Rows:
    """Return rows."""
    raise NotImplementedError


@tool(effect="pure")
def clean_data(data: Rows, options: dict[str, Any] | None = None) -> Rows:
    """Clean rows."""
    raise NotImplementedError


@tool(effect="pure")
def calculate_stats(data: Rows, metrics: list[str]) -> dict[str, Any]:
    """Compute statistics."""
    raise NotImplementedError


@tool(effect="pure")
def detect_trends(stats: Annotated[Any, Field(alias="data")], config: dict[str, Any]) -> dict[str, Any]:
    """Look for trends; its argument is called `data` only by an alias."""
    raise NotImplementedError


@tool(effect="pure")
def generate_chart(data: Any, chart_type: Annotated[str, Field(alias="chartType")], title: str, output: str) -> str:
    """Draw a chart."""
    raise NotImplementedError


@tool(effect="idempotent")
def write_report(data: Any, format: str, sections: list[str], path: Annotated[str, Field(alias="output")] = "") -> str:
    """Write a report."""
    raise NotImplementedError


TOOLBOX = Toolbox(load_csv, clean_data, calculate_stats, detect_trends, generate_chart, write_report)


def plan(*steps: dict[str, Any], **fields: Any) -> str:
    """Return a plan in the dialect."""
    return json.dumps({"task_summary": "A task", **fields, "steps": steps})


def step(number: Any, action: Any = "load_csv", **fields: Any) -> dict[str, Any]:
    """Return a step in the dialect."""
    return {"step_number": number, "action": action, **fields}


def args(*steps: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the last of these steps, after conversion."""
    return read_plan(plan(*steps), toolbox=TOOLBOX).steps[-1].args


def test_the_plan_of_six_steps_is_normalised_and_checks() -> None:
    """The best-known plan of the dialect, from the file to a checked plan."""
    made = read_plan(Q4, toolbox=TOOLBOX)

    checked = check_plan(made, TOOLBOX)

    assert made.goal == "Analyse the Q4 2025 sales and write a trend report"
    assert {step.id: step.tool for step in made.steps} == {
        "1": "load_csv",
        "2": "clean_data",
        "3": "calculate_stats",
        "4": "detect_trends",
        "5": "generate_chart",
        "6": "write_report",
    }
    assert made.steps[1].args["data"] == {"$step": "1"}
    assert made.steps[3].args["data"] == {"$step": "3"}
    assert made.steps[4].args["output"] == "revenue_trends.png"
    assert made.steps[5].args["data"] == {f"step_{n}_output": {"$step": str(n)} for n in (3, 4, 5)}
    assert made.steps[5].args["output"] == "q4_report.md"
    assert made.steps[5].description == "Write it all up"
    assert waiting_for(checked)["3"] == ["4", "5", "6"]
    assert checked.steps["6"].value_sources == {"3", "4", "5"}


def test_without_a_toolbox_nothing_is_bound() -> None:
    """Only the tool says which arguments a step leaves out."""
    made = read_plan(Q4)

    assert "data" not in made.steps[1].args
    assert "output" not in made.steps[4].args
    assert "DR203 steps[1].args" in places(_problems(Q4))


def _problems(path: Path) -> Any:
    with pytest.raises(PlanRefused) as caught:
        check_plan(read_plan(path), TOOLBOX)
    return caught.value.problems


def test_data_is_bound_only_where_it_is_missing_and_required() -> None:
    """Arguments of the plan stay, and optional arguments are not invented."""
    first = step(1)

    given = args(first, step(2, "clean_data", parameters={"data": []}, depends_on=[1]))
    by_other_name = args(first, step(2, "detect_trends", parameters={"stats": 1}, depends_on=[1]))
    alone = args(step(2, "clean_data"))
    not_taken = args(first, step(2, "load_csv", parameters={"filePath": "x"}, depends_on=[1]))

    assert given == {"data": []}
    assert by_other_name == {"stats": 1}
    assert alone == {}
    assert not_taken == {"filePath": "x"}


def test_a_dependency_named_twice_is_one() -> None:
    """The check reports the repetition; here it does not turn one output into an object of outputs."""
    assert args(step(1), step(2, "clean_data", depends_on=[1, 1])) == {"data": {"$step": "1"}}


@pytest.mark.parametrize(
    "text", ["a chart", "charts/a.png", "../a.png", "a.png and b.png", "", ".png", "a", "1.5", "done."]
)
def test_only_a_bare_file_name_is_an_output(text: str) -> None:
    """Sentences, folders and numbers are words for people."""
    assert "output" not in args(step(1), step(2, "generate_chart", depends_on=[1], expected_output=text))


def test_an_output_that_the_plan_gives_stays() -> None:
    """By whatever name the plan calls the argument."""
    named = step(1, "write_report", parameters={"path": "mine.md"}, expected_output="theirs.md")

    assert args(named) == {"path": "mine.md"}


def test_references_name_steps_by_number() -> None:
    """The ids are the numbers, so references have their usual form."""
    first = step(1, parameters={"filePath": "a.csv"})
    second = step(2, "calculate_stats", parameters={"data": "${1}", "metrics": []})

    made = read_plan(plan(first, second))

    assert check_plan(made, TOOLBOX).steps["2"].depends_on == ("1",)


def test_total_steps_must_agree() -> None:
    """So a plan that was cut off is recognised."""
    assert len(read_plan(plan(step(1), total_steps=1)).steps) == 1
    assert "the plan has 1 steps, got 6" in str(refusal(plan(step(1), total_steps=6)))


def test_all_problems_of_shape_come_at_once() -> None:
    """As in our own dialect, with the field names of this one."""
    steps = [
        step("1", None),
        step(True, parameters=[], depends_on=["1", 2.0], description=3),
        step(-1, depend_on=[]),
        {"action": "x", "depends_on": 1},
        "step",
    ]

    assert refused(plan(*steps, summary="x", total_steps="6")) == [  # type: ignore[arg-type]
        "DR010 summary",
        "DR009 total_steps",
        "DR009 steps[0].step_number",
        "DR009 steps[0].action",
        "DR009 steps[1].step_number",
        "DR009 steps[1].description",
        "DR009 steps[1].parameters",
        "DR009 steps[1].depends_on[0]",
        "DR009 steps[1].depends_on[1]",
        "DR010 steps[2].depend_on",
        "DR012 steps[2].step_number",
        "DR011 steps[3]",
        "DR009 steps[3].depends_on",
        "DR009 steps[4]",
    ]


@pytest.mark.parametrize("fields", [{"task_summary": "x"}, {"total_steps": 0}, {"task_summary": 3, "steps": {}}])
def test_a_plan_of_this_dialect_needs_steps(fields: dict[str, Any]) -> None:
    """One sign of the dialect is enough to apply its rules."""
    assert refused(json.dumps(fields))[-1] in ("DR011 ", "DR009 steps")


def test_yaml_takes_the_same_dialect() -> None:
    """The syntax is independent of the dialect."""
    text = "task_summary: A task\nsteps:\n- step_number: 1\n  action: load_csv\n  parameters: {filePath: a.csv}\n"

    assert read_plan(text, syntax="yaml", toolbox=TOOLBOX).steps[0].args == {"filePath": "a.csv"}
