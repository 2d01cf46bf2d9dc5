"""The README tells the truth: its example runs and prints what it says."""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest

import dagrun
from folders import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def _run(block: str) -> None:
    # Annotations of tools are looked up in the module of the function, as they would be in a script.
    exec(compile(block, "README.md", "exec"), {"__name__": "__main__"})


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The examples in Python, in order."""
    monkeypatch.chdir(ROOT)
    return re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.real_time
def test_the_first_example_runs_and_prints_what_it_says(blocks: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It is the first thing that a newcomer tries."""
    assert len(blocks) == 6
    assert len([line for line in blocks[0].splitlines() if line.strip()]) <= 20

    _run(blocks[0])

    printed = capsys.readouterr().out.strip()
    assert f"It prints `{printed}`" in README


def test_the_plan_in_json_is_a_plan_of_the_tools_of_the_first_example(blocks: list[str]) -> None:
    """The README says that a file would look like that."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(blocks[0].split("path = ")[0], "README.md", "exec", dont_inherit=True), space)
    (plan,) = re.findall(r"```json\n(.*?)```", README, re.DOTALL)
    checked = dagrun.check(plan, [space["monthly_sales"], space["busiest"]], inputs={"path": "x"})
    assert checked.steps["busiest"].depends_on == ("sales",)


def test_the_example_of_large_outputs_takes_both_kinds(blocks: list[str]) -> None:
    """A list that fits, and one that became a file."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(blocks[1], "README.md", "exec", dont_inherit=True), space)
    for n in (10, 300_000):
        steps = [
            dagrun.Step(id="load", tool="load", args={"n": n}),
            dagrun.Step(id="count", tool="count", args={"rows": "${load}"}),
        ]
        assert dagrun.run_sync(dagrun.Plan(steps=steps), tools=[space["load"], space["count"]]).output == n


@pytest.mark.real_time
def test_the_example_of_a_goal_runs_and_prints_what_it_says(
    blocks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _run(blocks[2])

    assert f"It prints `{capsys.readouterr().out.strip()}`" in README


@pytest.mark.real_time
def test_the_example_of_a_splice_runs_and_prints_what_it_says(
    blocks: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    _run(blocks[3])

    status, output, *difference = capsys.readouterr().out.strip().splitlines()
    assert f"It prints `{status}`, then `{output}`, then the difference" in README
    assert [line[0] for line in difference] == ["-", "-", "+", "+"]


def test_the_examples_of_a_journal_stand_on_what_there_is(blocks: list[str]) -> None:
    """They are parts of programs: the tool can be made, and the other one is Python whose names exist."""
    again, tool = blocks[4], blocks[5]
    space: dict[str, Any] = {"dagrun": dagrun}

    exec(compile(tool, "README.md", "exec"), space)
    tree = compile(again, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)

    assert space["pay"].reconcile is space["find_payment"]
    used = [
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    ]
    assert [name for name in used if name != "result" and not hasattr(dagrun, name)] == []
