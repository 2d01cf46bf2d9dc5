"""`dagrun run`: the answer on the standard output, all else on the standard error, and an exit code that says why."""

import io
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from command_line import TOOLS, Shell, command, environment, finished, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

ADD = {"id": "sum", "tool": "add", "args": {"a": 1}}


def test_answer_is_data_and_summary_is_not(shell: Shell) -> None:
    ended = shell("run", shell.plan(ADD), *TOOLS)

    assert (ended.code, ended.out) == (0, "2\n")
    assert ended.err.startswith("succeeded: 1 succeeded (")
    assert ended.err.count("\n") == 2  # the second line says how to write a report


def test_text_is_printed_as_text_and_the_rest_as_json(shell: Shell) -> None:
    text = shell.plan({"id": "a", "tool": "echo", "args": {"value": "grüß\tGott"}}, name="text.json")
    both = shell.plan(ADD, {"id": "b", "tool": "echo", "args": {"value": [1]}})

    assert shell("run", text, *TOOLS).out == "grüß\tGott\n"
    assert shell("run", both, *TOOLS).json == {"sum": 2, "b": [1]}


def test_quiet_says_nothing_of_a_success(shell: Shell) -> None:
    assert shell("run", shell.plan(ADD), *TOOLS, "-q").err == ""


def test_quiet_hides_no_failure(shell: Shell) -> None:
    """A script that runs quietly has nothing else to tell its user."""
    plan = shell.plan(ADD, {"id": "no", "tool": "fail"})
    quiet = shell("run", plan, *TOOLS, "-q")

    assert quiet.code == 1
    assert "no failed: there is nothing" in quiet.err
    assert "dagrun retry" in quiet.err


def test_json_is_one_object_with_every_step(shell: Shell) -> None:
    ended = shell("run", shell.plan(ADD, {"id": "no", "tool": "fail"}), *TOOLS, "--json")

    assert ended.code == 1
    assert ended.json["schema_version"] == 1
    assert ended.json["status"] == "failed"
    assert {id_: step["state"] for id_, step in ended.json["steps"].items()} == {"sum": "succeeded", "no": "failed"}


def test_events_are_lines_and_end_with_the_result(shell: Shell) -> None:
    ended = shell("run", shell.plan(ADD), *TOOLS, "--events", "jsonl")

    events = [line["event"] for line in ended.lines]
    assert events == ["RunStarted", "AttemptStarted", "AttemptEnded", "RunEnded", "Result"]
    assert ended.lines[-1]["output"] == 2


@pytest.mark.parametrize(
    ("given", "value"),
    [("x=3", 3), ("x=text", "text"), ("x=007", "007"), ('x={"a": [1]}', {"a": [1]}), ("x=", ""), ("x=NaN", "NaN")],
)
def test_input_is_json_or_else_a_text(shell: Shell, given: str, value: Any) -> None:
    plan = shell.plan({"id": "a", "tool": "echo", "args": {"value": "${input.x}"}})

    assert shell("run", plan, *TOOLS, "--input", given, "--json").json["output"] == value


def test_input_comes_from_a_file(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "echo", "args": {"value": "${input.x}"}})
    shell.file("x.json", b'\xef\xbb\xbf{"rows": [1, 2]}')

    assert shell("run", plan, *TOOLS, "-i", "x=@x.json").json == {"rows": [1, 2]}
    assert shell("run", plan, *TOOLS, "-i", "x=@@x.json").out == "@x.json\n"


@pytest.mark.parametrize(
    ("step", "policy", "code", "status"),
    [
        ({"tool": "fail"}, "", 1, "failed"),
        ({"tool": "nap", "args": {"seconds": 60}}, "max_seconds = 0.05", 4, "over_budget"),
        ({"tool": "needs_a_person"}, "", 5, "waiting"),
        ({"tool": "doubtful"}, "", 7, "waiting"),  # for somebody who knows; that it is in doubt matters more
    ],
)
def test_exit_code_says_how_it_ended(shell: Shell, step: dict[str, Any], policy: str, code: int, status: str) -> None:
    shell.file("policy.toml", policy)

    ended = shell("run", shell.plan({"id": "a", **step}), *TOOLS, "--policy", "policy.toml")

    assert ended.code == code
    assert ended.err.startswith(f"{status}: ")


def test_partial_result_is_printed(shell: Shell) -> None:
    """What came furthest is not lost because another branch failed."""
    plan = shell.plan(
        ADD,
        {"id": "more", "tool": "add", "args": {"a": "${sum}"}},
        {"id": "no", "tool": "fail", "depends_on": ["more"]},
    )

    ended = shell("run", plan, *TOOLS)

    assert ended.code == 1
    assert ended.json == {"more": 3}


def test_summary_counts_retries(shell: Shell) -> None:
    ended = shell("run", shell.plan({"id": "a", "tool": "fail_once", "retry": {"first_delay": 0}}), *TOOLS)

    assert "1 retry" in ended.err


DIAMOND = [
    {"id": "slow", "tool": "nap", "args": {"seconds": 0.2}},
    {"id": "fast", "tool": "nap", "args": {"seconds": 0.01}},
    {"id": "next", "tool": "nap", "args": {"seconds": 0.01}, "depends_on": ["fast"]},
]


def _times(shell: Shell, mode: str) -> dict[str, tuple[float, float]]:
    steps = shell("run", shell.plan(*DIAMOND), *TOOLS, "--mode", mode, "--json").json["steps"]
    return {id_: (step["attempts"][0]["started"], step["attempts"][0]["ended"]) for id_, step in steps.items()}


def test_parallel_starts_what_is_ready(shell: Shell) -> None:
    times = _times(shell, "parallel")

    assert times["next"][0] < times["slow"][1]


def test_waves_wait_for_the_whole_generation(shell: Shell) -> None:
    times = _times(shell, "waves")

    assert times["fast"][0] < times["slow"][1], "one wave runs side by side"
    assert times["next"][0] >= times["slow"][1]


def test_sequential_runs_one_at_a_time(shell: Shell) -> None:
    spans = sorted(_times(shell, "sequential").values())

    assert all(before[1] <= after[0] for before, after in pairwise(spans))


def test_max_running_never_exceeds_the_policy(shell: Shell) -> None:
    """The flag can make the policy stricter, never looser."""
    shell.file("policy.toml", "max_running = 1")

    ended = shell("run", shell.plan(*DIAMOND), *TOOLS, "--policy", "policy.toml", "-j", "9", "--events", "jsonl")

    running, most = 0, 0
    for line in ended.lines:
        running += (line["event"] == "AttemptStarted") - (line["event"] == "AttemptEnded")
        most = max(most, running)
    assert most == 1


def test_dry_run_runs_nothing(shell: Shell) -> None:
    plan = shell.plan({"id": "a", "tool": "write_here", "args": {"name": "made.txt"}}, {**ADD, "depends_on": ["a"]})

    shown = shell("run", plan, *TOOLS, "-n")
    listed = shell("run", plan, *TOOLS, "-n", "--json")

    assert shown.code == listed.code == 0
    assert [line.split()[:3] for line in shown.out.splitlines()[1:]] == [["1", "a", "write_here"], ["2", "sum", "add"]]
    assert [(step["wave"], step["id"]) for step in listed.json["steps"]] == [(1, "a"), (2, "sum")]
    assert not (shell.folder / "made.txt").exists()


def test_output_folder_gets_what_a_run_leaves(shell: Shell) -> None:
    """Tools write there, and are told where else to read; afterwards we are where we were."""
    plan = shell.plan({"id": "a", "tool": "write_here", "args": {"name": "made.txt"}})
    before = Path.cwd()

    ended = shell("run", plan, *TOOLS, "-o", "made/here", "--json")

    folder = shell.folder / "made" / "here"
    assert ended.json["output"] == [str(folder), str(before)]
    assert (folder / "made.txt").read_text() == "made by a tool"
    kept = json.loads((folder / "run.json").read_text())
    assert kept.pop("view")["steps"][0]["id"] == "a"
    assert kept == {**ended.json, "schema_version": 2}
    assert Path.cwd() == before


def test_without_output_folder_nothing_is_left(shell: Shell) -> None:
    shell("run", shell.plan(ADD), *TOOLS)

    assert [entry.name for entry in shell.folder.iterdir()] == ["plan.json"]


@pytest.mark.parametrize("args", [("-C", "sub", "run"), ("run", "-C", "sub")])
def test_directory_is_where_names_begin(shell: Shell, args: tuple[str, ...]) -> None:
    (shell.folder / "sub").mkdir()
    shell.plan({"id": "a", "tool": "write_here", "args": {"name": "made.txt"}}, name="sub/plan.json")

    assert shell(*args, "plan.json", *TOOLS).code == 0
    assert (shell.folder / "sub" / "made.txt").exists()
    assert Path.cwd() == shell.folder


def test_tools_are_found_in_the_current_directory(shell: Shell) -> None:
    shell.file(
        "tools_right_here.py", "import dagrun\n\n\n@dagrun.tool(effect='pure')\nasync def one() -> int:\n    return 1\n"
    )

    assert shell("run", shell.plan({"id": "a", "tool": "one"}), "-t", "tools_right_here").out == "1\n"


def test_a_file_in_the_place_of_the_output_folder_is_refused(shell: Shell) -> None:
    """Other commands write a file to `-o`: a folder called out.json would surprise."""
    ended = shell("run", shell.plan(ADD), *TOOLS, "-o", "out.json")

    assert (ended.code, ended.out) == (2, "")
    assert "--report out.json" in ended.err
    assert not (shell.folder / "out.json").exists()
    (shell.folder / "out.json").mkdir()
    assert shell("run", shell.plan(ADD), *TOOLS, "-o", "out.json").code == 0


class _Typed(io.TextIOWrapper):
    """A standard input with a text."""

    def __init__(self, text: str) -> None:
        super().__init__(io.BytesIO(text.encode()))


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"steps": [ADD]}),
        "# by hand\nsteps:\n- {id: a, tool: add, args: {a: 1}}\n",
        "1. add(a=1)\n2. join()\n",
    ],
    ids=["json", "yaml", "calls"],
)
def test_plan_comes_from_the_standard_input(text: str, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no name whose ending would say what it is written in."""
    monkeypatch.setattr(sys, "stdin", _Typed(text))

    ended = shell("run", "-", *TOOLS, "-q")
    assert (ended.code, ended.out) == (0, "2\n")


def test_what_is_no_plan_is_called_what_it_is(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken JSON would not help whoever has a pipe that is empty, or names the program that makes the plan."""
    monkeypatch.setattr(sys, "stdin", _Typed(""))

    assert "there is no plan on the standard input" in shell("run", "-", *TOOLS).err
    shell.file("shop.py", "import dagrun\n")
    ended = shell("run", "shop.py", *TOOLS)
    assert ended.code == 2
    assert "shop.py is a program" in ended.err
    assert "to_yaml()" in ended.err


@pytest.mark.rigs
def test_what_tools_print_never_gets_into_the_data(shell: Shell) -> None:
    """Also what C code and other programs print: whoever reads the JSON must be able to parse it."""
    ended = finished(shell, "run", shell.plan({"id": "a", "tool": "noisy"}), *TOOLS, "--json")

    assert ended.json["output"] == "quiet"
    for how in ("by Python", "as bytes", "by C", "by a program"):
        assert f"printed {how}" in ended.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.rigs
def test_full_disk_is_no_success(shell: Shell) -> None:
    """Half of the data with exit code 0 would be taken for all of it."""
    plan = shell.plan(ADD)

    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command("run", plan, *TOOLS, "-q"), stdout=full, stderr=subprocess.PIPE, check=False, env=environment()
        )

    assert (done.returncode, done.stderr) == (
        1,
        b"Error: cannot write to the standard output: No space left on device\n",
    )
