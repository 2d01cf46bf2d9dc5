"""`dagrun plan`: a plan on the standard output or in a file, whole or not at all; and nothing is run."""

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from command_line import SECONDS, TOOLS, Shell, command, environment, on_terminal, shell, started
from dagrun.testing import FakeModelServer, Fault, ModelAnswer
from goal_shell import BAD, GOOD, ONE, TWO, served, written

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

GOAL = "Add one and one, and then five"


def test_plan_goes_to_the_standard_output_and_can_be_run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, GOOD) as server:
        ended = shell("plan", GOAL, *TOOLS)

    assert ended.code == 0
    assert ended.json == {"steps": [ONE, TWO], "goal": GOAL, "output": "two"}
    assert ended.err.startswith("planned: 2 steps (")
    assert "1 call of the planner, 150 tokens, cost unknown)" in ended.err
    assert len(server.calls) == 1
    shell.file("plan.json", ended.out)
    assert shell("run", "plan.json", *TOOLS).out == "7\n"


def test_nothing_is_run(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, ModelAnswer(written({"id": "a", "tool": "write_here", "args": {"name": "made.txt"}}))):
        assert shell("plan", GOAL, *TOOLS).code == 0

    assert not (shell.folder / "made.txt").exists()


def test_file_gets_the_whole_plan(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, GOOD):
        ended = shell("plan", GOAL, *TOOLS, "-o", "plan.json", "-q")
        listed = shell("plan", GOAL, *TOOLS, "-o", "again.json", "--json")

    assert (ended.code, ended.out, ended.err) == (0, "", "")
    plan = json.loads((shell.folder / "plan.json").read_text())
    assert listed.json["plan"] == plan == json.loads((shell.folder / "again.json").read_text())
    assert (listed.json["status"], listed.json["planner_calls"], listed.json["tokens"]) == ("planned", 1, 150)
    assert sorted(path.name for path in shell.folder.iterdir()) == ["again.json", "plan.json"], "no draft is left"


@pytest.mark.parametrize("act", [BAD, Fault.status(401), Fault.cut(3)], ids=["refused", "no key", "cut"])
def test_file_stays_as_it_was_without_a_plan(shell: Shell, monkeypatch: pytest.MonkeyPatch, act: Any) -> None:
    shell.file("plan.json", "the one before")

    with served(monkeypatch, act):
        ended = shell("plan", GOAL, *TOOLS, "-o", "plan.json")

    assert ended.code == (3 if act is BAD else 1)
    assert (shell.folder / "plan.json").read_text() == "the one before"
    assert ended.err.splitlines()[-2].startswith("no plan (")


@pytest.mark.parametrize("name", ["no/such/folder.json", "."])
def test_file_is_looked_at_before_anything_is_paid(shell: Shell, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with served(monkeypatch, GOOD) as server:
        ended = shell("plan", GOAL, *TOOLS, "-o", name)

    assert ended.code == 2
    assert name in ended.err
    assert not server.calls


def test_plan_that_cannot_be_written_is_not_lost(shell: Shell) -> None:
    """It was paid for."""
    shell.file(
        "vanishing.py",
        "import shutil\n\nimport dagrun\n\n\nclass Planner:\n    async def revise(self, brief):\n"
        "        shutil.rmtree('there')\n"
        "        yield dagrun.Add(step=dagrun.Step(id='one', tool='add', args={'a': 1}))\n",
    )
    (shell.folder / "there").mkdir()

    ended = shell("plan", GOAL, *TOOLS, "--planner", "vanishing:Planner", "-o", "there/plan.json")

    assert ended.code == 1
    assert "cannot write" in ended.err
    assert ended.json["steps"] == [ONE]


@pytest.mark.skipif(not os.path.exists("/dev/null"), reason="needs devices")
def test_device_is_written_to_and_not_replaced(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, GOOD):
        nowhere = shell("plan", GOAL, *TOOLS, "-o", "/dev/null")
        here = shell("plan", GOAL, *TOOLS, "-o", "/dev/stdout")

    assert (nowhere.code, nowhere.out) == (0, "")
    assert not os.path.isfile("/dev/null")
    assert here.json["goal"] == GOAL


def test_refused_plan_lists_its_problems(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, BAD):
        ended = shell("plan", GOAL, *TOOLS, "--json")

    assert ended.code == ended.json["exit_code"] == 3
    assert (ended.json["status"], ended.json["problems"][0]["code"]) == ("refused", "DR201")
    assert "2 calls of the planner, 300 tokens, cost unknown" in ended.err


def test_values_of_inputs_stay_here(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planner sees what shape they have; what they are is for the tools."""
    steps = {"id": "a", "tool": "echo", "args": {"value": "${input.salary}"}}
    with served(monkeypatch, ModelAnswer(written(steps))) as server:
        ended = shell("plan", GOAL, *TOOLS, "-i", 'salary={"of": "Ada-Lovelace", "is": 987654}')
        unknown = shell("plan", GOAL, *TOOLS)

    assert ended.code == 0
    assert "salary" in server.calls[0].prompt
    assert "Ada-Lovelace" not in server.calls[0].prompt
    assert "987654" not in server.calls[0].prompt
    assert unknown.code == 3
    assert "DR306" in unknown.err
    assert "an input is given by --input NAME=VALUE" in unknown.err


def test_planner_without_whole_plans_is_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, GOOD) as server:
        for args in (["plan"], ["do", "-n"]):
            ended = shell(*args, GOAL, *TOOLS, "--planner", "stepwise")
            assert ended.code == 2
            assert "dagrun do" in ended.err

    assert not server.calls


@pytest.mark.parametrize("goal", ["", "  \n ", "x" * 100_001])
def test_goal_needs_words_and_not_too_many(shell: Shell, goal: str) -> None:
    ended = shell("plan", goal, *TOOLS)

    assert ended.code == 2
    assert "the goal" in ended.err
    assert len(ended.err) < 1_000


# In a process of its own ---------------------------------------------------------------------------------------------


def variables(server: FakeModelServer) -> dict[str, str]:
    return {**server.environment, "DAGRUN_MODEL": "m"}


@pytest.mark.rigs
def test_goal_comes_through_a_pipe_and_the_plan_goes_on_through_one(shell: Shell) -> None:
    with FakeModelServer([GOOD]) as server:
        env = environment(**variables(server))
        made = subprocess.run(
            command("plan", "-", *TOOLS), input=GOAL.encode(), capture_output=True, check=False, env=env
        )
        done = subprocess.run(
            command("run", "-", *TOOLS, "-q"), input=made.stdout, capture_output=True, check=False, env=env
        )

    assert json.loads(made.stdout)["goal"] == GOAL
    assert (done.returncode, done.stdout) == (0, b"7\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
@pytest.mark.parametrize(
    ("name", "how", "code"),
    [
        ("plan", signal.SIGINT, 130),
        pytest.param("do", signal.SIGINT, 130, marks=pytest.mark.rigs),
        pytest.param("plan", signal.SIGTERM, 143, marks=pytest.mark.rigs),
        pytest.param("do", signal.SIGTERM, 143, marks=pytest.mark.rigs),
    ],
)
@pytest.mark.costly
def test_interrupted_planner_lets_go_of_the_connection(shell: Shell, name: str, how: signal.Signals, code: int) -> None:
    """What has been written so far is shown, but never where a whole plan is expected."""
    with FakeModelServer([Fault.hang(24, of=GOOD)]) as server:
        with started(shell, name, GOAL, *TOOLS, "--json", **variables(server)) as process:
            assert server.wait_until_called(seconds=SECONDS)
            until = time.monotonic() + SECONDS
            while len(server.calls[0].sent) < 24 and time.monotonic() < until:
                time.sleep(0.01)
            time.sleep(1)  # the last piece is on its way
            process.send_signal(how)
            out, err = process.communicate(timeout=SECONDS)
        assert server.wait_until_closed(server.calls[0], SECONDS), "the server has seen it"

    shown = json.loads(out)
    assert process.returncode == code
    assert shown["status"] == "cancelled"
    assert "Stopping." in err
    assert "Traceback" not in err
    if name == "plan":
        assert (shown["plan"], shown["written"], shown["cost"]) == (None, [ONE], None)
        assert err.splitlines()[-1] == "  one: add"
    else:
        assert shown["steps"]["one"]["output"] == 2, "it ran while the planner was still writing"


@pytest.mark.rigs
@pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them")
def test_refused_steps_are_not_shown_as_written(shell: Shell) -> None:
    """The second answer takes the place of the first; of that one, nothing has come."""
    with FakeModelServer([ModelAnswer(written(ONE, {"id": "x", "tool": "nope", "args": {}})), Fault.hang(0)]) as server:
        with started(shell, "plan", GOAL, *TOOLS, "--json", **variables(server)) as process:
            assert server.wait_until_called(2, seconds=SECONDS)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=SECONDS)
        assert server.wait_until_closed(server.calls[1], SECONDS)

    assert (process.returncode, json.loads(out)["written"]) == (130, [])


@pytest.mark.rigs
@pytest.mark.skipif(sys.platform == "win32", reason="terminals as POSIX has them")
def test_terminal_shows_planning_until_there_is_a_plan(shell: Shell) -> None:
    """A refused draft is not its end, and no step of a plan that is not run was cancelled."""
    bad = ModelAnswer(written(ONE, {"id": "x", "tool": "nope", "args": {}}))
    slow = ModelAnswer(GOOD.text, tokens_per_second=15)
    with (
        FakeModelServer([bad, slow]) as server,
        on_terminal(shell, ["plan", GOAL, *TOOLS], columns=100, **variables(server)) as terminal,
    ):
        terminal.read_until(" s 150 tokens")  # the first answer is there, and refused
        assert terminal.wait() == 0

    assert "s 150 tokens" in terminal.shown.partition("planning… ")[2]
    assert "0/0" not in terminal.shown
    assert "cancelled" not in terminal.shown


@pytest.mark.rigs
@pytest.mark.skipif(sys.platform == "win32", reason="terminals as POSIX has them")
@pytest.mark.parametrize("name", ["plan", "do"])
@pytest.mark.parametrize("columns", [40, 80])
def test_terminal_shows_that_the_planner_writes(shell: Shell, name: str, columns: int) -> None:
    slow = ModelAnswer(GOOD.text, tokens_per_second=25)
    with (
        FakeModelServer([Fault.status(429, retry_after=0.6), slow]) as server,
        on_terminal(shell, [name, GOAL, *TOOLS], columns=columns, NO_COLOR="1", **variables(server)) as terminal,
    ):
        terminal.read_until("status 429")
        terminal.read_until("planning… 1 step so far")
        assert terminal.wait() == 0

    assert "\x1b[3" not in terminal.shown, "no colour"
    assert "150 tokens" in terminal.shown
