"""The scenario ``replan`` of the demo: a renamed column, a planner without a model, and steps that never stop."""

from __future__ import annotations

import csv
import gzip
import json
import re
import shutil
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import dagrun
from dagrun import Add, Brief, Patch, Replace, State, Step, StepView, Trigger, TriggerKind
from dagrun.observe.timeline import Change, Timeline
from dagrun_tools.demo.demo import demo
from dagrun_tools.demo.demo_run import policy_of, toolbox
from dagrun_tools.demo.mapping_planner import MappingPlanner, match_columns
from dagrun_tools.demo.replan import COLUMNS, FILE, renamed_plan, replan_lines, write_renamed_source
from dagrun_tools.tables.clean_data import CleanOptions, clean_data
from dagrun_tools.tables.load_csv import load_csv
from dagrun_tools.tables.map_columns import map_columns
from data_steps import plain, steps_in
from folders import ROOT

PACKAGED = ROOT / "tools" / "dagrun_tools" / "data" / "texas_housing_sales.csv.gz"
PRESENT = [name if name != "sales" else "homes_sold" for name in COLUMNS]
RAN_ON = {"rates", *(f"prices[{n}]" for n in range(8))}


def brief(**changes: Any) -> Brief:
    """Return the brief after the cleaning step has not met its condition."""
    steps = {step["id"]: Step.model_validate(step) for step in json.loads(renamed_plan())["steps"]}
    told = Brief(
        run_id="run",
        goal="",
        revision=0,
        triggers=(Trigger(TriggerKind.SUCCESS_CONDITION, "clean", ""),),
        steps={id_: StepView(step, State.WAITING) for id_, step in steps.items()},
        results={"load": {"kind": "table", "columns": PRESENT}},
    )
    return replace(told, **changes)


# The source -----------------------------------------------------------------------------------------------------------


def test_source_differs_in_one_name_and_nothing_else(tmp_path: Path) -> None:
    """It is made from the data of the package when the demo runs."""
    write_renamed_source(tmp_path)
    with gzip.open(PACKAGED, "rt", encoding="utf-8") as file:
        before = list(csv.reader(file))
    with (tmp_path / FILE).open(encoding="utf-8") as file:
        after = list(csv.reader(file))
    assert before[0] == list(COLUMNS)
    assert after[0] == PRESENT
    assert after[1:] == before[1:]


def test_plan_is_accepted() -> None:
    policy = copy_context().run(policy_of, 8080)  # it sets rules for tools, which must not stay after the test
    plan = dagrun.check(renamed_plan(), toolbox(), policy=policy, inputs={"server": "http://127.0.0.1:8080"})
    assert len(plan.steps) == 14


def test_cleaning_works_and_misses_its_condition(tmp_path: Path) -> None:
    """The condition fails, not the tool; after the mapping, the rows are those of the demo."""
    write_renamed_source(tmp_path)
    steps = {step["id"]: step for step in json.loads(renamed_plan())["steps"]}
    options = CleanOptions.model_validate(steps["clean"]["args"]["options"])
    with steps_in(tmp_path) as calls:
        loaded = load_csv(calls.context, FILE)
        cleaned = clean_data(calls.context, loaded, options)
        assert "sales" not in cleaned.columns

        mapped = clean_data(calls.context, map_columns(calls.context, loaded, {"homes_sold": "sales"}), options)

    assert tuple(mapped.columns) == COLUMNS
    assert (mapped.rows, mapped.missing.get("sales", 0)) == (8_034, 0)
    excerpt = len(json.dumps(plain(loaded)))
    assert excerpt < dagrun.Policy().planning.max_brief_bytes, "a planner would only see the shape of the table"


# The planner ----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_planner_puts_a_mapping_before_a_new_cleaning() -> None:
    """The new cleaning is the old one, with the mapped table and a condition about itself."""
    patch = await MappingPlanner().revise(brief(revision=3))

    assert isinstance(patch, Patch)
    add, swap = patch.edits
    assert isinstance(add, Add)
    assert isinstance(swap, Replace)
    assert add.step.args == {"data": "${load}", "columns": {"homes_sold": "sales"}}
    assert (swap.id, swap.step.id, swap.step.tool) == ("clean", "clean_mapped", "clean_data")
    assert swap.step.args["data"] == "${map_columns}"
    assert swap.step.success is not None
    assert {leaf.ref for leaf in swap.step.success.leaves()} == {"clean_mapped.columns"}
    assert (patch.base, patch.reason) == (3, "load has changed: sales is called homes_sold now")


@pytest.mark.anyio
async def test_second_request_gets_ids_of_its_own() -> None:
    """An id is never used twice in a run, not even if the first repair has failed."""
    patch = await MappingPlanner().revise(brief(number=2))
    assert patch is not None
    assert [edit.step.id for edit in patch.edits if isinstance(edit, Add | Replace)] == [
        "map_columns_2",
        "clean_mapped_2",
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "changes",
    [
        {"triggers": (Trigger(TriggerKind.FAILED, "clean", ""),)},
        {"triggers": (Trigger(TriggerKind.SUCCESS_CONDITION, "gone", ""),)},
        {"triggers": (Trigger(TriggerKind.SUCCESS_CONDITION, "load", ""),)},
        {"results": {}},
        {"results": {"load": {"columns": {"list of": 9, "first": "text of 4 characters"}}}},
        {"results": {"load": {"kind": "table", "columns": list(COLUMNS)}}},
        {"results": {"load": {"kind": "table", "columns": ["a", "b"]}}},
    ],
)
async def test_planner_proposes_nothing_where_its_repair_does_not_fit(changes: dict[str, Any]) -> None:
    """It does not guess, not even if it sees only the shape of the table."""
    assert await MappingPlanner().revise(brief(**changes)) is None


@pytest.mark.parametrize(
    ("wanted", "present", "mapping"),
    [
        (["a", "b"], ["a", "zz"], {"zz": "b"}),
        (["sales", "volume"], ["sales_2", "volume_usd"], {"sales_2": "sales", "volume_usd": "volume"}),
        (["sales", "volume"], ["x", "y"], {}),
        (["sales"], ["sales"], {}),
        (["sales", "volume"], ["volumes"], {}),
    ],
)
def test_columns_are_matched_by_elimination_or_by_likeness(
    wanted: list[str], present: list[str], mapping: dict[str, str]
) -> None:
    assert match_columns(wanted, present) == mapping


# What is printed ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 60])
def test_story_fits_the_terminal(width: int) -> None:
    change = Change(
        at=1.25,
        asked_at=0.84,
        text="adds map_columns; replaces clean by clean_mapped",
        reason="load has changed: sales is called homes_sold now",
        ran_on=("rates", *(f"prices[{n}]" for n in range(8))),
        started=(),
        ended=(),
    )
    lines = replan_lines(Timeline((), (change,), 2.0), Path("dagrun-demo"), width=width)
    text = " ".join(" ".join(lines).split())
    assert all(len(line) <= width for line in lines)
    assert "9 steps ran on through these 0.41 s without a break: rates, prices[0]," in text
    assert "the plan was changed: adds map_columns; replaces clean by clean_mapped." in text


# The whole ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def ran(folder: Path) -> Result:
    """Run the scenario once for the module, because matplotlib keeps its font files open.

    Where a machine has so much else to do that its planner comes after what should wait meanwhile, it is run again.
    """
    result = _carried_out(folder)
    for _ in range(2):
        if result.return_value != 0 or set(json.loads(result.stdout)["changes"][0]["ran_on"]) == RAN_ON:
            break
        shutil.rmtree(folder)
        result = _carried_out(folder)
    return result


def _carried_out(folder: Path) -> Result:
    arguments = ["--scenario", "replan", "--json", "-o", str(folder)]
    return CliRunner().invoke(demo, arguments, standalone_mode=False, catch_exceptions=False)


@pytest.mark.rigs
@pytest.mark.real_time
def test_other_branches_never_stop(ran: Result, folder: Path) -> None:
    """With a real server and a real splice, nine steps wait for their sources during the splice."""
    assert ran.return_value == 0, ran.stderr
    assert re.search(r"^ +\d\.\d\d s  clean: failed$", ran.stderr, re.MULTILINE), "in a pipe, each step has a line"
    facts = json.loads(ran.stdout)
    (change,) = facts["changes"]
    assert change["change"].startswith("adds map_columns")
    assert "replaces clean by clean_mapped" in change["change"]
    assert set(change["ran_on"]) == RAN_ON
    record = json.loads((folder / "run.json").read_text("utf-8"))
    states = {id_: step["state"] for id_, step in record["steps"].items()}
    assert {id_ for id_, state in states.items() if state != "succeeded"} == {"clean"}
    assert "8,034 of 8,602 rows" in (folder / "report.md").read_text("utf-8")
    assert "\u254b" in ran.stderr, "the line of the change goes through what ran on"
