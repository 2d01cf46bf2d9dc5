"""A source whose schema has changed: the real data of the demo, with one column under another name."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from dagrun_tools.demo.running import packaged

FILE: Final = "texas_housing_sales_renamed.csv"
OLD_NAME: Final = "sales"
NEW_NAME: Final = "homes_sold"

# What the steps after the cleaning count on, and what the source had until it changed.
COLUMNS: Final = ("city", "year", "month", "sales", "volume", "median", "listings", "inventory", "date")


def write_renamed_source(folder: Path) -> None:
    """Write the data of the package into *folder*, as its source would send it from today on."""
    data = gzip.decompress((files("dagrun_tools") / "data" / "texas_housing_sales.csv.gz").read_bytes())
    header, _, rows = data.partition(b"\n")
    names = [NEW_NAME if name == OLD_NAME else name for name in json.loads(b"[%s]" % header)]
    (folder / FILE).write_bytes(json.dumps(names, separators=(",", ":"))[1:-1].encode() + b"\n" + rows)


def renamed_plan() -> str:
    """The plan of the demo, reading that source, and with a condition that says what the cleaning must give."""
    plan: dict[str, Any] = json.loads(packaged("plan.json"))
    steps = {step["id"]: step for step in plan["steps"]}
    steps["load"]["args"]["file_path"] = FILE
    clean = steps["clean"]
    # Named here, the column would be missed by the tool. That it is missing is to be found by the condition.
    clean["args"]["options"]["remove_nulls"] = ["volume"]
    clean["success"] = {"all": [{"ref": "clean.columns", "op": "contains", "value": name} for name in COLUMNS]}
    return json.dumps(plan)
