"""``dagrun eval``: exit codes, reports, and what it borrows from the settings."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from command_line import TOOLS, Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

CASE = """
tools: cli_tools
cases:
  - id: good
    plan: {steps: [{id: a, tool: add, args: {a: 1}}]}
    world: {add: 3}
    expect: {output: 3}
"""
BAD = (
    CASE
    + """
  - id: bad
    plan: {steps: [{id: a, tool: add, args: {a: 1}}]}
    world: {add: 4}
    expect: {output: "<|>"}
"""
)


def test_all_is_as_expected(shell: Shell) -> None:
    ended = shell("eval", shell.file("good.yaml", CASE))

    assert (ended.code, ended.err) == (0, "")
    assert "good  1/1 passed" in ended.out
    assert "task success 1/1 (21-100 %)" in ended.out


def test_a_miss_is_told_and_fails_the_gate(shell: Shell) -> None:
    ended = shell("eval", shell.file("bad.yaml", BAD))

    assert ended.code == 1
    assert '      output is 4, not "<|>"' in ended.out
    assert "gate task_success >= 1: FAILED, it is 0.5" in ended.out
    assert shell("eval", "bad.yaml", "--only", "good").code == 0


def test_wrong_usage(shell: Shell) -> None:
    for args in (
        [],
        ["none.yaml"],
        [shell.file("x.yaml", "cases: 3")],
        [shell.file("bad.yaml", BAD), "--only", "none"],
    ):
        assert shell("eval", *args).code == 2
    ended = shell("eval", "x.yaml", "--json")
    assert ended.json["exit_code"] == 2
    assert "x.yaml: cases: it must be a list, and is a number" in ended.err
    assert shell("eval", "bad.yaml", "--baseline", shell.file("base.json", "[]")).code == 2
    assert shell("eval", "bad.yaml", "--baseline", shell.file("base.json", '{"schema_version": 7}')).code == 2


def test_tools_of_the_command_line_are_for_files_that_name_none(shell: Shell) -> None:
    file = shell.file("good.yaml", CASE.replace("tools: cli_tools", ""))

    assert shell("eval", file).code == 2
    assert shell("eval", file, *TOOLS).code == 0


def test_a_baseline_is_kept_and_compared_with(shell: Shell) -> None:
    assert shell("eval", shell.file("case.yaml", CASE), "--record", "base.json").code == 0
    assert shell("eval", "case.yaml", "--baseline", "base.json").code == 0
    shell.file("case.yaml", CASE.replace("output: 3", "output: 5"))
    ended = shell("eval", "case.yaml", "--baseline", "base.json", "--json")

    assert ended.code == 1
    assert ended.json["files"]["case.yaml"]["regressions"] == ["case good passed in the baseline, and does not now"]


def test_junit_has_a_test_for_each_trial(shell: Shell) -> None:
    assert shell("eval", shell.file("bad.yaml", BAD), "--junit", "out.xml").code == 1
    root = ET.parse("out.xml").getroot()

    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "3", "2")
    assert [test.get("name") for test in root.iter("testcase")] == ["good", "bad", "gate task_success"]
    assert next(fault.text for fault in root.iter("failure")) == 'output is 4, not "<|>"'


def test_github_gets_a_table(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    file = shell.file("bad.yaml", BAD)
    assert shell("eval", file, "--github").code == 2
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(shell.folder / "summary.md"))
    assert shell("eval", file, "--github").code == 1

    table = (shell.folder / "summary.md").read_text(encoding="utf-8")
    assert '| bad | 0/1 | 0.000 | output is 4, not "&lt;&#124;>" |' in table


def test_a_case_with_a_model_gets_the_planner_of_the_command_line(shell: Shell) -> None:
    file = shell.file(
        "goal.yaml", CASE.replace("plan: {steps: [{id: a, tool: add, args: {a: 1}}]}", "goal: Add up\n    model: m")
    )
    ended = shell("eval", file)

    assert ended.code == 2
    assert "OPENAI_API_KEY" in ended.err


def test_the_schema_of_cases_is_printed(shell: Shell) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = shell("schema", "eval").json
    jsonschema.Draft202012Validator.check_schema(schema)

    import yaml

    for path in (Path(__file__).parents[1] / "evaluate" / "golden").glob("*.yaml"):
        jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(json.loads('{"cases": [{"id": "a", "gaol": 1}]}'), schema)
