"""`dagrun do`: from a sentence to an answer; and whatever the model does, a clear end."""

import json
import socket
from pathlib import Path

import pytest

from command_line import TOOLS, Shell, shell
from dagrun.testing import Fault, ModelAnswer
from dagrun.testing.model_server.script import Act
from goal_shell import BAD, GOOD, ONE, SECRET, served, without_keys, written

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

GOAL = "Add one and one, and then five"


def test_goal_becomes_an_answer(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, GOOD) as server:
        ended = shell("do", GOAL, *TOOLS)

    assert (ended.code, ended.out) == (0, "7\n")
    assert ended.err.startswith("succeeded: 2 succeeded (")
    assert "150 tokens, cost unknown)" in ended.err
    assert [line.split()[0] for line in ended.err.splitlines()] == ["succeeded:", "report:"]
    assert [(call.model, call.streams) for call in server.calls] == [("model-one", True)]
    assert GOAL in server.calls[0].prompt


def test_first_step_starts_before_the_plan_is_ended(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """That is what `do` is for; it reads the events, so it is no matter of speed."""
    slow = ModelAnswer(GOOD.text, tokens_per_second=100)
    with served(monkeypatch, slow):
        ended = shell("do", GOAL, *TOOLS, "--events", "jsonl")

    events = [(line["event"], line.get("step")) for line in ended.lines]
    assert events[1] == ("DraftStarted", None)
    assert events.index(("AttemptEnded", "one")) < events.index(("DraftEnded", None))
    assert events[-1] == ("Result", None)
    assert ended.lines[-1]["output"] == 7


@pytest.mark.parametrize(
    ("act", "policy", "code", "words"),
    [
        (BAD, "", 3, "failed: the plan has 1 problem"),
        (BAD, "planning = {max_calls = 1}", 3, "the plan has 1 problem"),
        (GOOD, "max_tokens = 10", 4, "tokens"),
        (ModelAnswer(written(ONE, confidence=0.1)), "", 5, "confidence"),
        (ModelAnswer(json.dumps({"refusal": "no tool books tables"})), "", 1, "no tool books tables"),
        (ModelAnswer(written({"id": "a", "tool": "doubtful", "args": {}})), "max_replans = 0", 7, "unknown: "),
        (ModelAnswer(""), "", 3, "the plan has 1 problem"),
    ],
)
def test_exit_code_says_how_it_ended(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, act: Act, policy: str, code: int, words: str
) -> None:
    shell.file("policy.toml", policy)

    with served(monkeypatch, act):
        ended = shell("do", GOAL, *TOOLS, "--policy", "policy.toml")

    assert ended.code == code
    assert words in ended.err
    assert "Traceback" not in ended.err


def test_wrong_usage_ends_a_stream_of_events_in_one_line(shell: Shell) -> None:
    """Whoever reads line by line can read this one, too."""
    ended = shell("do", GOAL, "--tools", "no_such_module", "--events", "jsonl")

    assert ended.code == 2
    last = json.loads(ended.out)
    assert ended.out.count("\n") == 1
    assert (last["event"], last["exit_code"]) == ("Result", 2)


def test_answer_that_is_no_plan_is_told_in_words_for_people(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as an exception that was raised, and with no line breaks spelled out."""
    with served(monkeypatch, ModelAnswer("Which cities?")):
        ended = shell("do", GOAL, *TOOLS)

    assert ended.code == 3
    warning, reason = ended.err.splitlines()[:2]
    assert "the server seems to ignore the form of answers" in warning
    assert "s: DR009 expected" in reason
    assert "PlanRefused" not in ended.err
    assert "\\n" not in ended.err


def test_plan_without_steps_is_no_success(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, ModelAnswer('{"steps": []}')):
        ended = shell("do", GOAL, *TOOLS)

    assert (ended.code, ended.out) == (3, "")
    assert "DR111" in ended.err


def test_every_problem_of_a_plan_is_listed(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"id": "x", "tool": "nope", "args": {}}, {"id": "y", "tool": "add", "args": {}}]
    with served(monkeypatch, ModelAnswer(written(*steps))) as server:
        ended = shell("do", GOAL, *TOOLS, "--json")

    assert ended.code == 3
    *problems, said, report = ended.err.splitlines()[1:]
    assert [line.split()[0] for line in problems] == ["DR201", "DR203"]
    assert report.startswith("report: dagrun report ")
    assert said.startswith('  its model answered: {"steps": [{"id": "x", "tool": "nope"')
    assert [problem["code"] for problem in ended.json["problems"]] == ["DR201", "DR203"]
    assert len(server.calls) == 2, "it was told once what is wrong"


ERRORS: list[tuple[Act, str]] = [
    (Fault.status(401, message=f"Incorrect API key provided: {SECRET}"), "(is the key right?)"),
    (Fault.status(403), "status 403"),
    (Fault.status(404, code="model_not_found"), "status 404"),
    (Fault.status(429, retry_after=0.01), "status 429"),
    (Fault.status(500, message=f"the key {SECRET} broke me"), "status 500"),
    (Fault.not_sse(), "model-one: "),
    (Fault.empty(), "model-one: "),
    (Fault.page('{"hello": "world"}', "application/json"), "model-one: "),
    (Fault.cut(3), "broke off"),
    (Fault.malformed(3), "model-one: "),
    (Fault.failed(3), "server_error"),
    (Fault.error(3), "overloaded_error"),
]


@pytest.mark.parametrize(("act", "words"), ERRORS, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("command", ["do", "plan"])
def test_error_of_the_model_is_told_in_a_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str, act: Act, words: str
) -> None:
    """No traceback, nothing to scroll through, and never the key, whatever the server says."""
    with served(monkeypatch, act):
        ended = shell(command, GOAL, *TOOLS, "--json")

    assert ended.code == 1
    assert ended.json["status"] == "failed"
    told = [line for line in ended.err.splitlines() if not line.startswith("report: ")]
    assert words in told[-1]
    assert len(ended.err.splitlines()) <= 3
    assert "Traceback" not in ended.err
    assert SECRET not in ended.err + ended.out


@pytest.mark.parametrize("command", ["do", "plan"])
def test_a_goal_without_quotation_marks_is_told_to_have_them(shell: Shell, command: str) -> None:
    ended = shell(command, "Add", "one", "and", "one", *TOOLS)

    assert ended.code == 2
    assert "a goal of several words stands in quotation marks" in ended.err


def test_inspect_names_a_problem_of_a_plan_once_and_marks_an_answer_that_it_cuts(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = '{"steps": [\n{"id": "x", "tool": "nope"}\n],\n"output": "x"}'
    with served(monkeypatch, ModelAnswer(bad), GOOD):
        assert shell("do", GOAL, *TOOLS).code == 0

    page = " ".join(shell("inspect", "last").out.split())
    assert page.count("DR201 steps[0].tool: step x calls 'nope'") == 1
    assert 'answered: {"steps": [\\n{"id": "x", "tool": "nope"}\\n], …' in page


def test_server_that_is_not_there_is_told_in_a_line(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    without_keys(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    ended = shell("do", GOAL, *TOOLS, "--model", "m", "--base-url", f"http://127.0.0.1:{port}/v1")

    assert ended.code == 1
    assert f"no connection to the server at 127.0.0.1:{port}: " in ended.err
    assert "Traceback" not in ended.err


def test_fault_of_a_call_that_was_made_again_is_told(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(monkeypatch, Fault.status(429, retry_after=0.01), GOOD):
        ended = shell("do", GOAL, *TOOLS)
    with served(monkeypatch, Fault.status(429, retry_after=0.01), GOOD):
        quiet = shell("do", GOAL, *TOOLS, "-q")

    assert (ended.code, ended.out) == (0, "7\n")
    assert ended.err.startswith("planner, call 1, after ")
    assert "status 429" in ended.err.splitlines()[0]
    assert (quiet.out, quiet.err) == ("7\n", "")


def test_dry_run_shows_what_would_run_and_runs_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [{"id": "make", "tool": "write_here", "args": {"name": "made.txt"}}, {**ONE, "depends_on": ["make"]}]
    with served(monkeypatch, ModelAnswer(written(*steps))):
        shown = shell("do", GOAL, *TOOLS, "-n")
        listed = shell("do", GOAL, *TOOLS, "-n", "--json", "--save-plan", "kept.json")

    assert shown.code == listed.code == 0
    assert [line.split()[:3] for line in shown.out.splitlines()[1:]] == [
        ["1", "make", "write_here"],
        ["2", "one", "add"],
    ]
    assert [(step["wave"], step["id"]) for step in listed.json["steps"]] == [(1, "make"), (2, "one")]
    assert not (shell.folder / "made.txt").exists()
    assert shell("check", "kept.json", *TOOLS).code == 0


def test_plan_is_kept_as_it_stood_at_the_end(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the run has a folder of its own, which is the current one meanwhile."""
    with served(monkeypatch, GOOD):
        ended = shell("do", GOAL, *TOOLS, "--save-plan", "kept.json", "-o", "left")

    kept = json.loads((shell.folder / "kept.json").read_text())
    assert (kept["goal"], kept["output"]) == (GOAL, "two")
    assert json.loads((shell.folder / "left" / "run.json").read_text())["output"] == 7
    assert shell("run", "kept.json", *TOOLS).out == ended.out == "7\n"


def test_no_plan_leaves_no_file(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.file("kept.json", "the one before")

    with served(monkeypatch, BAD):
        ended = shell("do", GOAL, *TOOLS, "--save-plan", "kept.json")

    assert "there is no plan to write to kept.json" in ended.err
    assert (shell.folder / "kept.json").read_text() == "the one before"
    assert sorted(path.name for path in shell.folder.iterdir()) == ["kept.json"]


def test_one_at_a_time_if_that_is_wanted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    naps = [{"id": f"n{i}", "tool": "nap", "args": {"seconds": 0.02}} for i in range(3)]
    with served(monkeypatch, ModelAnswer(written(*naps))):
        ended = shell("do", GOAL, *TOOLS, "--mode", "sequential", "--events", "jsonl")

    running, most = 0, 0
    for line in ended.lines:
        running += (line["event"] == "AttemptStarted") - (line["event"] == "AttemptEnded")
        most = max(most, running)
    assert (ended.code, most) == (0, 1)


def test_waves_are_refused_before_anything_is_asked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wave is made of a whole plan, also if a file of settings wants waves."""
    shell.file("dagrun.toml", "mode = 'waves'\n")

    with served(monkeypatch, GOOD) as server:
        ended = shell("do", GOAL, *TOOLS)

    assert ended.code == 2
    assert "dagrun plan" in ended.err
    assert not server.calls


def test_warnings_are_shown(shell: Shell) -> None:
    """What was surprising, and changed nothing, must not be lost because the run has succeeded."""
    shell.file(
        "odd.py",
        "import dagrun\n\n\n@dagrun.tool(effect='read')\nasync def odd(context: dagrun.ToolContext) -> int:\n"
        "    context.surprise('only \\x1b[2J 3 rows')\n    return 1\n\n\n"
        "class Planner:\n    async def revise(self, brief):\n        return None\n",
    )

    ended = shell("run", shell.plan({"id": "a", "tool": "odd"}), "-t", "odd", "--planner", "odd:Planner")

    assert ended.code == 0
    assert ended.err.splitlines()[0].startswith("warning: a was surprising (only \\x1b[2J 3 rows)")
    assert "\x1b[2J" not in ended.err


def test_dialect_of_numbered_calls_is_read_from_files(shell: Shell) -> None:
    shell.file("plan.txt", "1. add(1)\n2. add($1, 5)\n3. join($2)\n")

    assert shell("check", "plan.txt", *TOOLS).code == 0
    assert shell("run", "plan.txt", *TOOLS).out == "7\n"
    assert Path("plan.txt").exists()
