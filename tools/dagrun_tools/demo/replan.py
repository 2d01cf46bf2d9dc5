"""The scenario ``replan``: a column of the source has a new name, and the plan is changed while it runs."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from dagrun import RunResult
from dagrun.cli.jobs.execute import Executed
from dagrun.observe.timeline import Timeline, read_timeline, timeline_page
from dagrun.observe.view.document import view_of
from dagrun_tools.demo.demo_run import carry_out, files_in, packaged
from dagrun_tools.demo.mapping_planner import MappingPlanner

LATENCY: Final = 2.5  # seconds: long enough that the other sources have not answered when the plan is changed
FILE: Final = "texas_housing_sales_renamed.csv"
OLD_NAME: Final = "sales"
NEW_NAME: Final = "homes_sold"

# The columns that the steps after the cleaning need. The source had them until it changed.
COLUMNS: Final = ("city", "year", "month", "sales", "volume", "median", "listings", "inventory", "date")


def write_renamed_source(folder: Path) -> None:
    """Write the data set of the package into *folder*, with the column under its new name."""
    data = gzip.decompress((files("dagrun_tools") / "data" / "texas_housing_sales.csv.gz").read_bytes())
    header, _, rows = data.partition(b"\n")
    names = [NEW_NAME if name == OLD_NAME else name for name in json.loads(b"[%s]" % header)]
    (folder / FILE).write_bytes(json.dumps(names, separators=(",", ":"))[1:-1].encode() + b"\n" + rows)


def renamed_plan() -> str:
    """Return the plan of the demo for the changed source, with a condition on the columns after the cleaning."""
    plan: dict[str, Any] = json.loads(packaged("plan.json"))
    steps = {step["id"]: step for step in plan["steps"]}
    steps["load"]["args"]["file_path"] = FILE
    clean = steps["clean"]
    # The missing column is not named here: the condition has to find that it is missing, not the tool.
    clean["args"]["options"]["remove_nulls"] = ["volume"]
    clean["success"] = {"all": [{"ref": "clean.columns", "op": "contains", "value": name} for name in COLUMNS]}
    return json.dumps(plan)


def run_replan(output: Path) -> tuple[Executed, Timeline]:
    """Run the plan of the demo on the changed source, with a planner that knows the repair."""
    output.mkdir(parents=True, exist_ok=True)
    write_renamed_source(output)
    ran = carry_out(renamed_plan(), output, latency=LATENCY, planner=MappingPlanner())
    return ran, read_timeline(view_of(ran.result, values="none"))


def replan_facts(result: RunResult, timeline: Timeline, output: Path) -> dict[str, Any]:
    """Return the scenario as plain JSON."""
    return {
        "status": str(result.status),
        "steps": len(result.steps),
        "changes": [change.as_dict() for change in timeline.changes],
        "makespan": round(result.makespan, 3),
        "output": str(output),
        "files": files_in(output),
    }


def replan_lines(timeline: Timeline, output: Path, *, width: int, is_ascii: bool = False) -> list[str]:
    """Return the scenario as lines for people, of at most *width* characters."""
    drawn = timeline_page(timeline, width, is_ascii=is_ascii)
    unchanged = [] if timeline.changes else ["", "The plan was not changed."]
    return [*drawn, *unchanged, *wrap(f"Open {output}/report.html, and {output}/run.html for how the run went.", width)]
