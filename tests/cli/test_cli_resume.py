"""A run that ended before its time goes on, by the command that was printed, whatever has ended it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from command_line import SECONDS, TOOLS, Ended, Shell, command, environment, finished, on_terminal, shell, started
from dagrun.journal import anchor

__all__ = ["shell"]
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them"),
]

QUICK = {"id": "quick", "tool": "count", "args": {"name": "quick"}}
NAP = {"id": "nap", "tool": "slow", "args": {"name": "nap"}, "depends_on": ["quick"]}
SEND = {"id": "send", "tool": "send", "args": {"name": "send"}, "depends_on": ["quick"]}
END = {"id": "end", "tool": "count", "args": {"name": "end"}, "depends_on": ["nap"]}
ASK = {"id": "pay", "tool": "needs_a_person"}

# Each call leaves a line in a file: what was called twice is seen. What is slow goes on once there is a file `go`.
COUNTING = """
import anyio, dagrun
from pathlib import Path
from typing import Literal

async def note(name, is_slow):
    with open(Path(__file__).parent / "calls.txt", "a") as file:
        file.write(name + "\\n")
    while is_slow and not (Path(__file__).parent / "go").exists():
        await anyio.sleep(0.01)
    return name

@dagrun.tool(effect="pure")
async def count(name: str) -> str:
    return await note(name, False)

@dagrun.tool(effect="read")
async def slow(name: str) -> str:
    return await note(name, True)

@dagrun.tool(effect="effectful")
async def send(name: str) -> str:
    return await note(name, True)

@dagrun.tool(effect="read")
async def ask(region: Literal["EU", "US"] | None = None) -> str:
    if region is None:
        raise dagrun.ToolError("nobody has said which region", missing_input="region")
    return region

@dagrun.tool(effect="idempotent")
async def flaky(file: dagrun.Artifact, context: dagrun.ToolContext) -> str:
    if not (Path(__file__).parent / "go").exists():
        raise dagrun.ToolError("not yet")
    return context.artifacts.path(file).read_text() + context.idempotency_key[:0]

@dagrun.tool(effect="read")
async def make(context: dagrun.ToolContext) -> dagrun.Artifact:
    await note("make", False)
    return context.artifacts.save("made once", name="made.txt")
"""


@pytest.fixture
def counting(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """The same with tools that keep count, imported anew."""
    monkeypatch.delitem(sys.modules, "counting", raising=False)
    shell.file("counting.py", COUNTING)
    shell.file("policy.toml", "grace = 0.1")
    return shell


def calls(shell: Shell) -> list[str]:
    return (shell.folder / "calls.txt").read_text().split()


@contextmanager
def at_work(shell: Shell, *steps: dict[str, Any], options: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[str]]:
    """A run of steps in a process of its own, at the moment when the last slow one is being called."""
    plan, slow = shell.plan(*steps), next(step["id"] for step in steps if step["tool"] in ("slow", "send"))
    with started(shell, "run", plan, "-t", "counting", "--run-id", "one", *options) as process:
        until = time.monotonic() + SECONDS
        # What only looks waits for no record, so a kill may come before the first one is there.
        while not (shell.folder / "calls.txt").exists() or slow not in calls(shell) or not is_written(shell):
            assert time.monotonic() < until, "the step was not called"
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        yield process


def is_written(shell: Shell) -> bool:
    """Whether the two calls are on record, besides how the run was opened."""
    mark = anchor.read(shell.runs / "one" / "anchor")
    return mark is not None and mark.seq >= 4


def command_in(text: str, verb: str = "resume") -> list[str]:
    """The words of the command that was printed, without the program."""
    line = next(line for line in text.splitlines() if line.strip().startswith(f"dagrun {verb} "))
    return shlex.split(line)[1:]


# In this process ------------------------------------------------------------------------------------------------------


def test_waiting_run_prints_the_commands_and_they_work(shell: Shell) -> None:
    ended = shell("run", shell.plan(ASK), *TOOLS)
    assert ended.code == 5

    answered = shell(*command_in(ended.err, "answer"), "--yes", "--by", "ann")
    assert answered.code == 0
    assert "no process holds the run now" in answered.out
    assert "May step pay call needs_a_person?" in answered.err, "nothing is agreed to that was not shown"

    again = shell(*command_in(answered.out))
    assert (again.code, again.out) == (0, "done\n")


@pytest.mark.parametrize("where", [[], ["-o", "left"]])
def test_printed_command_works_from_another_folder(
    counting: Shell, where: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says where the run was started, where its files and its record are, and which limits hold."""
    steps = [{"id": "make", "tool": "make"}, {"id": "which", "tool": "ask"}]
    flaky = {"id": "flaky", "tool": "flaky", "args": {"file": "${make}"}, "depends_on": ["which"]}
    given = ("-t", "counting", "--policy", "policy.toml", "-j", "3", "--runs", "a folder")
    ended = counting("run", counting.plan(*steps, flaky), *given, *where)
    assert ended.code == 5
    counting.file("go", "")
    (counting.folder / "elsewhere").mkdir()
    monkeypatch.chdir(counting.folder / "elsewhere")
    monkeypatch.delitem(sys.modules, "counting")  # as a process of its own, which has not imported anything
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if folder != str(counting.folder)])
    runs = str(counting.folder / "a folder")

    assert counting("answer", "last", "which", "EU", "--yes", "--runs", runs).code == 0
    again = counting(*command_in(ended.err))

    assert (again.code, again.out) == (0, "made once\n")
    assert calls(counting) == ["make"], "what has succeeded is not called again"
    named = next(name for name in os.listdir(runs) if not name.startswith("."))  # durations lie there as well
    place = counting.folder / "left" if where else counting.folder / "a folder" / named
    assert len(list((place / "artifacts").iterdir())) == 1, "files have one place"
    assert json.loads((place / "run.json").read_text())["status"] == "succeeded"


def test_files_stay_with_the_record_where_they_were(counting: Shell) -> None:
    """A folder that is named only when the run goes on gets what tools write from then on; values lead to the old."""
    steps: list[dict[str, Any]] = [{"id": "make", "tool": "make"}, {"id": "which", "tool": "ask"}]
    flaky = {"id": "flaky", "tool": "flaky", "args": {"file": "${make}"}, "depends_on": ["which"]}
    counting("run", counting.plan(*steps, flaky), "-t", "counting", "--run-id", "one")
    counting.file("go", "")
    counting("answer", "one", "which", "EU", "--yes")

    ended = counting("resume", "one", "-t", "counting", "-o", "late")

    assert (ended.code, ended.out) == (0, "made once\n")
    assert json.loads((counting.folder / "late" / "run.json").read_text())["status"] == "succeeded"


def test_output_folder_of_the_run_must_be_named(counting: Shell) -> None:
    """A record is not acted on by itself: somebody else may have written it."""
    counting("run", counting.plan(ASK), *TOOLS, "-o", "left")

    ended = counting("resume", "last", *TOOLS)

    assert ended.code == 2
    assert f"-o {counting.folder / 'left'}" in ended.err


def test_run_that_has_ended_is_not_resumed(shell: Shell) -> None:
    shell("run", shell.plan({"id": "a", "tool": "add", "args": {"a": 1}}), *TOOLS)

    ended = shell("resume", "last", *TOOLS)

    assert (ended.code, "has ended as succeeded" in ended.err) == (2, True)


def test_difference_is_shown_and_can_be_allowed(shell: Shell) -> None:
    shell("run", shell.plan(ASK), *TOOLS, "--run-id", "one")
    shell.file("policy.toml", "max_attempts = 7")

    refused = shell("resume", "one", *TOOLS, "--policy", "policy.toml")
    allowed = shell("resume", "one", *TOOLS, "--policy", "policy.toml", "--allow-differences")

    assert refused.code == 2
    assert "policy: max_attempts" in refused.err
    assert "--allow-differences" in refused.err
    assert allowed.code == 5
    assert "differs: policy: max_attempts" in shell("inspect", "one").out


def test_retry_takes_over_what_has_succeeded_with_its_files(counting: Shell) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "make", "tool": "make"},
        {"id": "flaky", "tool": "flaky", "args": {"file": "${make}"}},
    ]
    failed = counting("run", counting.plan(*steps), "-t", "counting", "--run-id", "one")
    counting.file("go", "")

    ended = counting(*command_in(failed.err, "retry"), "--run-id", "two")

    assert (failed.code, ended.code, ended.out) == (1, 0, "made once\n")
    assert calls(counting) == ["make"]
    assert "does again: one" in counting("inspect", "two").out
    assert counting("prune", "one", "--force").code == 0
    assert len(list((counting.runs / "two" / "artifacts").iterdir())) == 1, "it has files of its own"


def test_file_that_is_gone_is_made_again(counting: Shell) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "make", "tool": "make"},
        {"id": "flaky", "tool": "flaky", "args": {"file": "${make}"}},
    ]
    counting("run", counting.plan(*steps), "-t", "counting", "--run-id", "one")
    counting.file("go", "")
    for file in (counting.runs / "one" / "artifacts").iterdir():
        file.unlink()

    assert counting("retry", "one", "-t", "counting").out == "made once\n"
    assert calls(counting) == ["make", "make"]


def test_failed_plan_that_never_was_is_not_offered_again(shell: Shell) -> None:
    shell.file(
        "none.py",
        "import dagrun\nclass Planner:\n    async def revise(self, brief):\n"
        "        raise dagrun.errors.CannotPlan('no idea')\nplanner = Planner()\n",
    )

    ended = shell("do", "anything", *TOOLS, "--planner", "none:planner")

    assert (ended.code, "dagrun retry" in ended.err) == (1, False)


# Answers --------------------------------------------------------------------------------------------------------------


def test_answer_that_does_not_fit_is_refused_at_once(counting: Shell) -> None:
    """Not hours later, when the run reads it."""
    counting("run", counting.plan({"id": "which", "tool": "ask"}), "-t", "counting")

    for wrong in (["XX"], ["EU", "US"], []):
        assert counting("answer", "last", "which", *wrong, "--yes").code == 2
    assert list((counting.runs / counting.run_id / "inbox").glob("*.json")) == []


def test_without_a_terminal_one_has_to_say_yes(shell: Shell) -> None:
    shell("run", shell.plan(ASK), *TOOLS)

    ended = shell("answer", "last", "pay")

    assert ended.code == 2
    assert "May step pay call needs_a_person?" in ended.err
    assert "--yes" in ended.err


def test_no_is_an_answer(shell: Shell) -> None:
    shell("run", shell.plan(ASK), *TOOLS)

    shell("answer", "last", "pay", "--deny", "--yes", "--note", "too dear")
    ended = shell("resume", "last", *TOOLS)

    assert ended.code == 1
    assert "too dear" in shell("inspect", "last").out


def test_checklist_has_to_be_ticked(shell: Shell) -> None:
    shell.file("policy.toml", 'approve = [{ tool = "needs_a_person", checklist = ["invoice seen", "amount fits"] }]')
    shell("run", shell.plan(ASK), *TOOLS, "--policy", "policy.toml")

    missing = shell("answer", "last", "pay", "--yes", "--tick", "invoice seen")
    strange = shell("answer", "last", "pay", "--yes", "--tick", "nonsense")
    whole = shell("answer", "last", "--yes", "--tick", "invoice seen", "--tick", "amount fits")

    assert (missing.code, strange.code, whole.code) == (2, 2, 0)
    assert "amount fits" in missing.err


@pytest.mark.parametrize("step", ["nosuch", "sum"])
def test_question_that_is_not_open_is_told_with_those_that_are(shell: Shell, step: str) -> None:
    shell("run", shell.plan({"id": "sum", "tool": "add", "args": {"a": 1}}, ASK), *TOOLS)

    ended = shell("answer", "last", step, "--yes")

    assert (ended.code, "it asks about pay" in ended.err) == (2, True)


def test_a_value_is_not_given_by_a_yes(counting: Shell) -> None:
    counting("run", counting.plan({"id": "which", "tool": "ask"}), "-t", "counting")

    ended = counting("answer", "last", "which", "--yes")

    assert (ended.code, "dagrun answer" in ended.err) == (2, True)
    assert "This is answered by" in counting("answer", "last", "which", "--deny", "--yes").err


def test_a_yes_is_not_given_by_a_value(shell: Shell) -> None:
    assert shell("run", shell.plan(ASK), *TOOLS).code == 5

    ended = shell("answer", "last", "pay", "yes", "--yes")

    assert (ended.code, "Answer by --yes or --deny; it takes no VALUE" in ended.err) == (2, True)


def test_effect_in_doubt_is_answered_with_what_the_call_gave(shell: Shell) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "a", "tool": "doubtful"},
        {"id": "b", "tool": "echo", "args": {"value": "${a}"}},
    ]
    assert shell("run", shell.plan(*steps), *TOOLS).code == 7

    assert shell("answer", "last", "a", "perhaps", "--yes").code == 2
    for words in (("yes",), ("no",), ("approve",), ("deny",), ("did_not", "17"), ("took_effect/did_not/unknown",)):
        assert "say took_effect" in shell("answer", "last", "a", *words, "--yes").err
    assert "This is answered by: dagrun answer" in shell("answer", "last", "a", "--yes").err
    assert shell("answer", "last", "a", "took_effect", '"sent"', "--yes").code == 0

    assert shell("resume", "last", *TOOLS).out == "sent\n"


def test_a_second_answer_is_refused_with_the_one_that_stands(shell: Shell) -> None:
    assert shell("run", shell.plan({"id": "p", "tool": "needs_a_person"}), *TOOLS).code == 5
    assert shell("answer", "last", "p", "--yes", "--by", "ann").code == 0

    second = shell("answer", "last", "p", "--deny", "--yes", "--by", "bob")

    assert (second.code, "it was answered already: approve by ann" in second.err) == (2, True)
    assert shell("resume", "last", *TOOLS).code == 0


# Processes that end before their time ---------------------------------------------------------------------------------


@pytest.mark.rigs
@pytest.mark.parametrize(
    ("how", "times", "code"),
    [
        (signal.SIGINT, 1, 130),
        (signal.SIGINT, 2, 130),
        (signal.SIGTERM, 1, 143),
        (signal.SIGHUP, 1, 129),
        (signal.SIGKILL, 1, -9),
    ],
)
def test_run_that_was_ended_goes_on(counting: Shell, how: signal.Signals, times: int, code: int) -> None:
    """The second signal may come before the first was written down: that is no worse than a crash."""
    with at_work(counting, QUICK, NAP, END) as process:
        for _ in range(times):
            process.send_signal(how)
        _, err = process.communicate(timeout=SECONDS)
    counting.file("go", "")
    words = command_in(err) if times == 1 and how != signal.SIGKILL else ["resume", "one", "-t", "counting"]

    again = finished(counting, *words, "--json")

    assert process.returncode == code
    assert (again.code, again.json["status"]) == (0, "succeeded"), again.err
    assert calls(counting) == ["quick", "nap", "nap", "end"]
    assert "Traceback" not in err + again.err


@pytest.mark.rigs
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("level", ["process", "power"])
def test_call_in_doubt_is_asked_about_and_never_made_again(counting: Shell, how: signal.Signals, level: str) -> None:
    with at_work(counting, QUICK, SEND, options=("--policy", "policy.toml", "--durability", level)) as process:
        process.send_signal(how)
        _, err = process.communicate(timeout=SECONDS)
    counting.file("go", "")

    again = finished(counting, "resume", "one", "-t", "counting")
    answered = finished(counting, "answer", "one", "send", "took_effect", "sent", "--yes")
    last = finished(counting, "resume", "one", "-t", "counting")

    assert process.returncode == (7 if how == signal.SIGINT else -9)
    assert how == signal.SIGKILL or "send may have taken effect" in err
    assert (again.code, answered.code, last.code) == (7, 0, 0)
    assert calls(counting) == ["quick", "send"]


@pytest.mark.rigs
def test_answer_reaches_a_run_that_goes_on_elsewhere(counting: Shell) -> None:
    """And the list says which process is at it."""
    with at_work(counting, QUICK, NAP, ASK | {"tool": "ask"}) as process:
        until = time.monotonic() + SECONDS
        while not (found := _one(finished(counting, "runs", "--json")))["waits_for"]:
            assert time.monotonic() < until, "it asks nothing"
        answered = finished(counting, "answer", "one", "pay", "US", "--yes")
        counting.file("go", "")
        out, err = process.communicate(timeout=SECONDS)

    assert (found["state"], f"process {process.pid} on" in found["owner"]) == ("running", True)
    assert f"process {process.pid} on" in answered.out
    assert (process.returncode, json.loads(out)["pay"]) == (0, "US"), err


@pytest.mark.rigs
@pytest.mark.parametrize(("typed", "code", "again"), [("y\n", 0, 0), ("n too dear\n", 0, 1), ("\x04", 130, 5)])
def test_question_is_answered_at_a_terminal(shell: Shell, typed: str, code: int, again: int) -> None:
    """As a run would ask it; who goes away has not answered."""
    shell("run", shell.plan(ASK), *TOOLS, "--run-id", "one")

    with on_terminal(shell, ["answer", "one", "pay"]) as terminal:
        terminal.read_until("pay: [y]es, [n]o")
        os.write(terminal.descriptor, typed.encode())
        ended = terminal.wait()

    assert "needs_a_person" in terminal.shown
    assert ended == code
    assert shell("resume", "one", *TOOLS).code == again


@pytest.mark.rigs
def test_value_is_asked_at_a_terminal(counting: Shell) -> None:
    """As a run would ask it."""
    counting("run", counting.plan({"id": "which", "tool": "ask"}), "-t", "counting", "--run-id", "one")

    with on_terminal(counting, ["answer", "one", "which"]) as terminal:
        terminal.read_until("nobody has said which region")
        os.write(terminal.descriptor, b"EU\n")
        ended = terminal.wait()

    assert ended == 0
    assert len(list((counting.runs / "one" / "inbox").glob("*.json"))) == 1


@pytest.mark.rigs
@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 130)])
def test_value_is_confirmed_at_a_terminal(counting: Shell, typed: str, code: int) -> None:
    counting("run", counting.plan({"id": "which", "tool": "ask"}), "-t", "counting", "--run-id", "one")

    with on_terminal(counting, ["answer", "one", "which", "EU"]) as terminal:
        terminal.read_until("Is that your answer?")
        os.write(terminal.descriptor, typed.encode())
        ended = terminal.wait()

    assert "nobody has said which region" in terminal.shown
    assert ended == code
    assert len(list((counting.runs / "one" / "inbox").glob("*.json"))) == (code == 0)


@pytest.mark.rigs
def test_run_that_is_held_is_refused_unless_it_is_stolen(counting: Shell) -> None:
    with at_work(counting, QUICK, NAP) as process:
        refused = finished(counting, "resume", "one", "-t", "counting")
        kept = finished(counting, "prune", "one", "--force")
        with started(counting, "resume", "one", "-t", "counting", "--steal") as thief:
            until = time.monotonic() + SECONDS
            while calls(counting).count("nap") < 2:
                assert time.monotonic() < until, "it was not stolen"
                time.sleep(0.01)
            counting.file("go", "")
            thief.communicate(timeout=SECONDS)
        _, err = process.communicate(timeout=SECONDS)

    assert (refused.code, "--steal" in refused.err) == (2, True)
    assert "kept: running" in kept.out
    assert thief.returncode == 0
    assert process.returncode == 1, err
    assert "Traceback" not in err


def _one(ended: Ended) -> dict[str, Any]:
    (run,) = ended.json["runs"]
    found: dict[str, Any] = run
    return found


@pytest.mark.rigs
@pytest.mark.parametrize(
    "args", [["runs"], ["inspect", "one"], ["inspect", "one", "--export"], ["inspect", "one", "--state"]]
)
def test_reader_who_leaves_sees_no_traceback(counting: Shell, args: list[str]) -> None:
    steps = [{"id": f"s{i}", "tool": "count", "args": {"name": f"s{i}"}} for i in range(200)]
    counting("run", counting.plan(*steps), "-t", "counting", "--run-id", "one")
    line = f"{shlex.join(command(*args))} | head -c 10"

    done = subprocess.run(
        ["sh", "-c", line],
        cwd=counting.folder,
        env=environment(),
        timeout=SECONDS,
        check=False,
        capture_output=True,
        text=True,
    )

    assert len(done.stdout) == 10
    assert done.stderr == ""
