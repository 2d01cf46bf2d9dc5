"""Worker processes for functions of the program itself, or of a notebook: a child gets a copy, and only a child."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.costly, pytest.mark.real_time]

PROGRAM = """
from __future__ import annotations
import os, threading
from dataclasses import dataclass
import dagrun

FACTOR = 3

@dataclass
class Row:
    number: int

def helper(number: int) -> int:
    return number * FACTOR

@dagrun.tool(effect="pure", executor="process")
def work(row: Row, more: list[Row]) -> list[Row]:
    return [Row(helper(row.number)), *more]

@dagrun.tool(effect="pure", executor="process")
async def where(context: dagrun.ToolContext = dagrun.PROVIDED) -> list[object]:
    return [context.step, os.getpid() != PARENT]

LOCK = threading.Lock()

@dagrun.tool(effect="pure", executor="process")
def locked() -> bool:
    return LOCK.locked()

PARENT = os.getpid()
plan = dagrun.plan(output=[work.step(row=Row(2), more=[Row(5)]), where.step(), locked.step()])
"""
RUN = """
result = dagrun.run_sync(plan)
print(result.output[:2])
print(result.steps["locked"].reason)
"""
WITHOUT = """
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "cloudpickle" else found(name, *rest)
"""
CHECK = """
try:
    dagrun.check(plan)
except dagrun.PlanRefused as refused:
    print(refused.problems[0])
"""


def run(tmp_path: Path, text: str) -> list[str]:
    """Run a program, and return the lines that it prints."""
    script = tmp_path / "program.py"
    script.write_text(text)
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_a_process_gets_a_copy_of_a_function_of_the_program(tmp_path: Path) -> None:
    """With what it refers to: functions, values and classes; and says what cannot be copied."""
    output, reason = run(tmp_path, PROGRAM + RUN)

    assert output == "[[{'number': 6}, {'number': 5}], ['where', True]]"
    assert reason.startswith(
        "locked: locked is defined in the program itself, and cannot be copied into a worker process ("
    )
    assert "lock" in reason
    assert reason.endswith("; move it to a module")


def test_without_cloudpickle_the_check_says_what_to_do(tmp_path: Path) -> None:
    """Before anything runs."""
    (line,) = run(tmp_path, PROGRAM + WITHOUT + CHECK)

    assert line == (
        "DR208 steps[0].tool: step work runs work in a worker process, which cannot import it: it is defined in the "
        "program or the notebook itself; move it to a module, or install cloudpickle (pip install "
        "'dagrun-engine[notebook]')"
    )
