"""Bad input of any kind ends in one clear error: everything that is wrong, no traceback, the right exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import TOOLS, Shell, finished, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

ADD = {"id": "sum", "tool": "add", "args": {"a": 1}}


def deep(levels: int) -> str:
    return '{"steps": ' + "[" * levels + "]" * levels + "}"


BAD_PLANS = [
    pytest.param(b'{"steps": [\n  {"id": "a",, }]}', ["line 2", "column"], id="broken JSON"),
    pytest.param(b"\x89PNG\r\n\x1a\n\x00\xff", ["not text"], id="binary file"),
    pytest.param(b"", ["line 1"], id="empty file"),
    pytest.param(b"[1, 2]", ["expected an object"], id="no object"),
    pytest.param(b" " * 1_000_001, ["1000001 bytes", "1000000"], id="over the ceiling of bytes"),
    pytest.param(json.dumps({"steps": [ADD] * 1_001}).encode(), ["1001 steps", "1000"], id="over the ceiling of steps"),
    pytest.param(deep(100_000).encode(), ["nested deeper"], id="deep nesting"),
    pytest.param(b'{"steps": [{"id": "a", "id": "b", "tool": "add"}]}', ["'id'", "twice"], id="duplicate key"),
    pytest.param(b'{"steps": [{"id": "a", "tool": "add", "args": {"a": NaN}}]}', ["NaN"], id="NaN"),
    pytest.param(b'{"steps": [{"id": "a\\nb", "tool": "nap"}]}', ["DR101", "\\n"], id="newline in an id"),
    pytest.param(
        '{"steps": [{"id": "l\N{CYRILLIC SMALL LETTER O}ad", "tool": "nap"}]}'.encode(),
        ["DR101"],
        id="Cyrillic letter in an id",
    ),
    pytest.param(b'{"steps": [{"id": "a", "tool": "ad"}]}', ["did you mean add?"], id="unknown tool"),
    pytest.param(b'{"steps": [{"id": "a", "tool": "nap", "tol": 1}]}', ["did you mean tool?"], id="unknown field"),
    pytest.param(
        b'{"steps": [{"id": "a", "tool": "nap", "depends_on": ["b"]},'
        b'           {"id": "b", "tool": "nap", "depends_on": ["a"]}]}',
        ["a -> b -> a"],
        id="cycle",
    ),
]


@pytest.mark.parametrize(("content", "words"), BAD_PLANS)
@pytest.mark.parametrize("command", ["run", "check"])
def test_bad_plan_is_refused(shell: Shell, command: str, content: bytes, words: list[str]) -> None:
    shell.file("plan.json", content)

    ended = shell(command, "plan.json", *TOOLS)

    assert (ended.code, ended.out) == (3, "")
    assert ended.err.startswith("Error: ")
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err


def test_all_problems_are_listed(shell: Shell) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "a", "tool": "nope"},
        {"id": "b", "tool": "add"},
        {"id": "c", "tool": "nap", "depends_on": ["x"]},
    ]

    ended = shell("check", shell.plan(*steps), *TOOLS)

    assert ended.err.splitlines()[0] == "Error: the plan has 3 problems:"
    assert [line.split()[0] for line in ended.err.splitlines()[1:]] == ["DR201", "DR203", "DR104"]


def test_a_thousand_problems_do_not_flood_the_terminal(shell: Shell) -> None:
    plan = shell.plan(*({"id": f"s{i}", "tool": "nope"} for i in range(1_000)))

    short = shell("check", plan, *TOOLS)
    full = shell("check", plan, *TOOLS, "--json")

    assert len(short.err.splitlines()) < 250
    assert "--json has them all" in short.err
    assert len(full.json["problems"]) == 1_000


@pytest.mark.parametrize("command", ["run", "check"])
def test_refusal_as_json(shell: Shell, command: str) -> None:
    ended = shell(command, shell.plan({"id": "a", "tool": "nope"}), *TOOLS, "--json")

    assert ended.code == ended.json["exit_code"] == 3
    assert ended.json["status"] == "refused"
    assert ended.json["problems"][0]["code"] == "DR201"
    assert ended.json["problems"][0]["path"] == "steps[0].tool"


def test_wrong_usage_as_json(shell: Shell) -> None:
    ended = shell("run", shell.plan(ADD), "--json")

    assert (ended.code, ended.json["status"]) == (2, "usage")
    assert "--tools" in ended.json["error"]


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_plan_that_cannot_be_opened_is_wrong_usage(shell: Shell, name: str) -> None:
    ended = shell("run", name, *TOOLS)

    assert ended.code == 2
    assert name in ended.err


BROKEN_MODULE = "import nothing_of_that_name\n"

USAGE = [
    (["run", "plan.json"], ["name the tools"]),
    (["run", "plan.json", "-t", "no_such_tools"], ["no_such_tools"]),
    (["run", "plan.json", "-t", "cli_tols"], ["did you mean cli_tools_here?"]),
    (["run", "plan.json", "-t", "cli_tools:ad"], ["did you mean add?"]),
    (["run", "plan.json", "-t", "no_tools.py"], ["--tools no_tools.py: there is no such file"]),
    (["run", "plan.json", "-t", "."], ["--tools .: it is a folder"]),
    (["run", "plan.json", "-t", "./plan.json"], ["--tools ./plan.json: it is no file of Python"]),
    (["run", "plan.json", "-t", "unfinished"], ["SyntaxError", "(unfinished.py, line 1)\n"]),
    (["run", "plan.json", "-t", "./raises.py"], ["ZeroDivisionError", "raises.py:2"]),
    (["run", "plan.json", "-t", "json"], ["no tool"]),
    (["run", "plan.json", "-t", "raises"], ["ZeroDivisionError", "raises.py:2"]),
    (["run", "plan.json", "-t", "exits"], ["SystemExit"]),
    (["run", "plan.json", "-t", "needs_more"], ["nothing_of_that_name"]),
    (["run", "plan.json", "-t", "raises", "-t", "no_such_tools"], ["ZeroDivisionError", "no_such_tools"]),
    (["run", "plan.json", *TOOLS, "-i", "x"], ["'x'", "name=value"]),
    (["run", "plan.json", *TOOLS, "-i", "x=1", "-i", "x=2"], ["twice"]),
    (["run", "plan.json", *TOOLS, "-i", "x=@missing.txt"], ["missing.txt"]),
    (["run", "plan.json", *TOOLS, "-i", "x=@binary"], ["not text"]),
    (["run", "plan.json", *TOOLS, "-i", "x=" + "[" * 100_000], ["nested"]),
    (["run", "plan.json", *TOOLS, "--policy", "missing.toml"], ["missing.toml"]),
    (["run", "plan.json", *TOOLS, "--policy", "broken.toml"], ["broken TOML", "line 2"]),
    (["run", "plan.json", *TOOLS, "--policy", "wrong.toml"], ["max_runing", "did you mean max_running?", "grace"]),
    (["run", "plan.json", *TOOLS, "--policy", "nested.toml"], ["retry.max_atempts", "did you mean max_attempts?"]),
    (["run", "plan.json", *TOOLS, "--policy", "for_tools.toml"], ["none of these tools takes any"]),
    (["run", "plan.json", *TOOLS, "--policy", "binary"], ["not text"]),
    (["run", "plan.json", *TOOLS, "-o", "plan.json"], ["plan.json"]),
    (["run", "-C", "nowhere", "plan.json", *TOOLS], ["nowhere"]),
    (["run", "plan.json", *TOOLS, "--max-running", "0"], ["0"]),
    (["run", "plan.json", *TOOLS, "--mode", "fast"], ["parallel"]),
    (["rum", "plan.json"], ["run"]),
    (["bench", "plan.json", *TOOLS, "--plot", "x.txt"], [".png"]),
    (["tools", "show", "ad", *TOOLS], ["did you mean add?"]),
]


@pytest.mark.parametrize(("args", "words"), USAGE, ids=lambda value: " ".join(value)[:60])
def test_wrong_usage_is_told_in_a_line(shell: Shell, args: list[str], words: list[str]) -> None:
    shell.plan(ADD)
    shell.file("binary", b"\x89PNG\xff")
    shell.file("cli_tools_here.py", "")
    shell.file("raises.py", "\n1 / 0\n")
    shell.file("exits.py", "raise SystemExit(0)\n")
    shell.file("unfinished.py", "def a(:\n")
    shell.file("needs_more.py", BROKEN_MODULE)
    shell.file("broken.toml", "max_running = 1\nmax_running = = 2\n")
    shell.file("wrong.toml", 'max_runing = 1\ngrace = "long"\n')
    shell.file("nested.toml", "[retry]\nmax_atempts = 2\n")
    shell.file("for_tools.toml", "[tools.network]\nallow = []\n")

    ended = shell(*args)

    assert (ended.code, ended.out) == (2, "")
    assert "Error: " in ended.err
    assert "Traceback" not in ended.err
    for word in words:
        assert word in ended.err


def test_nothing_was_run_when_the_usage_is_wrong(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "write_here", "args": {"name": "made.txt"}})

    assert shell("run", plan, *TOOLS, "-i", "wrong").code == 2
    assert not (shell.folder / "made.txt").exists()


@pytest.mark.parametrize("name", ["plan.json", "/dev/zero"])
@pytest.mark.rigs
def test_refusal_in_a_process_of_its_own(shell: Shell, name: str) -> None:
    """Nothing is added to the message on the way out of the interpreter; a device has no end."""
    if not Path("/dev/zero").exists():
        pytest.skip("needs /dev/zero")
    shell.file("plan.json", "{")

    ended = finished(shell, "run", name, *TOOLS)

    assert ended.code == 3
    assert ended.err.startswith("Error: ")
    assert "Traceback" not in ended.err
