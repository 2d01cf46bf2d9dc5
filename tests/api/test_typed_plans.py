"""Plans written in Python are typed: mypy and pyright accept right calls, and refuse a wrong name or type."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RIGHT = """
from dataclasses import dataclass
from typing_extensions import assert_type
import dagrun

@dataclass
class Sales:
    rows: list[float]
    city: str

@dagrun.tool(effect="read")
def monthly_sales(city: str, path: str) -> Sales:
    return Sales([], city)

@dagrun.tool(effect="pure")
async def busiest(cities: dict[str, list[float]], limit: int = 3) -> str:
    return ""

@dagrun.tool(effect="pure")
async def length(text: str, context: dagrun.ToolContext = dagrun.PROVIDED) -> int:
    return len(text)

austin = monthly_sales.step("Austin", path=dagrun.input("path", str))
best = busiest.options(when=austin.rows[0] > 1, timeout=3).step(cities={"a": austin.rows}, limit=2)
long = length.step(f"{best} of {austin.city}")
each = length.each(["a", "b"]).step(text=dagrun.item)
result = dagrun.run_sync(dagrun.plan(output={"best": best, "long": long, "each": each}))
assert_type(result[austin], Sales)
assert_type(result[best], str)
assert_type(result[long], int)
assert_type(result[each], list[int])
assert_type(result.output_as(dict[str, int]), dict[str, int])
"""

TIERS = """
from typing_extensions import assert_type
import dagrun
from dagrun.errors import RunHeld
from dagrun.events import StepSettled
from dagrun.extend import Journal, ToolCall

def watch(event: dagrun.Event) -> None:
    if isinstance(event, StepSettled):
        assert_type(event.step, str)
    elif isinstance(event, dagrun.events.Progress):
        assert_type(event.fraction, float | None)

class Local:
    async def call(self, call: ToolCall) -> object:
        assert_type(call.data, bytes)
        raise dagrun.extend.WorkerLost("gone")

def known(journal: Journal) -> dagrun.extend.Journal:
    return journal

def wide(error: RunHeld) -> dagrun.errors.JournalError:
    return error
"""

TOOLS = """
import dagrun

@dagrun.tool(effect="pure")
async def length(text: str) -> int:
    return len(text)

@dagrun.tool(effect="read")
def load(path: str) -> list[float]:
    return []

"""

# One line each; both checkers must refuse every one of them.
WRONG = (
    'length.step(txt="a")',
    "length.step(3)",
    'length.step(load.step("p"))',
    "length.step()",
    'length.options(tiemout=3).step("a")',
    "length.each([1]).step(number=dagrun.item)",
    'load.step("p").rows',
    'dagrun.run_sync(dagrun.plan(length.step("a")))[load.step("p")].lower()',
)


def refused_by_mypy(path: Path) -> Mapping[int, str]:
    """The first complaint about each line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty", str(path)]
    lines = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    faults = [re.match(r".*\.py:(\d+): error: (.*)", line) for line in lines]
    return {int(fault.group(1)): fault.group(2) for fault in faults if fault is not None}


def refused_by_pyright(path: Path) -> Mapping[int, str]:
    """The first complaint about each line."""
    config = path.with_name("pyrightconfig.json")
    config.write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(ROOT)]}))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    answer = subprocess.run([*command, "-p", str(config), str(path)], capture_output=True, text=True, check=False)
    faults = json.loads(answer.stdout)["generalDiagnostics"]
    return {f["range"]["start"]["line"] + 1: f["message"] for f in faults if f["severity"] == "error"}


@pytest.mark.parametrize("refused", [refused_by_mypy, refused_by_pyright], ids=["mypy", "pyright"])
@pytest.mark.rigs(seconds=10)
def test_type_checkers_tell_right_calls_from_wrong_ones(refused: object, tmp_path: Path) -> None:
    assert callable(refused)
    right, tiers, wrong = (tmp_path / f"{name}.py" for name in ("right_calls", "tiers_of_names", "wrong_calls"))
    right.write_text(RIGHT)
    tiers.write_text(TIERS)
    wrong.write_text(TOOLS + "\n".join(WRONG) + "\n")
    assert refused(right) == {}
    assert refused(tiers) == {}
    first = TOOLS.count("\n") + 1
    faults = refused(wrong)
    assert [line for line in range(first, first + len(WRONG)) if line not in faults] == []
    assert min(faults) == first
