"""What happened in a run can be read afterwards, with the reason of each decision, on any terminal."""

import json
import re
from typing import Any

import pytest

from cli_tools import HOSTILE
from command_line import TOOLS, Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

ADD = {"id": "sum", "tool": "add", "args": {"a": 1}}
ONCE = {"id": "once", "tool": "fail_once", "depends_on": ["sum"]}
ASK = {"id": "pay", "tool": "needs_a_person", "depends_on": ["once"]}
BAD = {"id": "bad", "tool": "fail", "args": {"message": "the source is gone"}}

PLANNER = """
import dagrun

class Planner:
    async def revise(self, brief):
        failed = brief.triggers[0].step
        new = dagrun.Step(id=f"{failed}-new", tool="add", args={"a": 41})
        return dagrun.Patch(edits=[dagrun.Replace(id=failed, step=new)], reason="there is another source")

planner = Planner()
"""


@pytest.fixture
def told(shell: Shell) -> Shell:
    """A run with a retry, a question with its answer, a resumption and a change of the plan."""
    shell.file("policy.toml", "retry = { first_delay = 0.0 }")
    shell.file("told_rules.py", PLANNER)
    options = ("--planner", "told_rules:planner", "--policy", "policy.toml")
    shell("run", shell.plan(ADD, ONCE, ASK, BAD), *TOOLS, *options, "--run-id", "one")
    shell("answer", "one", "pay", "--yes", "--by", "ann", "--note", "seen")
    assert shell("resume", "one", *TOOLS, *options).code == 0
    return shell


def test_every_decision_comes_with_its_reason(told: Shell) -> None:
    shown = told("inspect", "one").out

    for words in (
        r"once: failed after \d",
        r"tried again: .*transient",
        r"bad: failed after",
        r"the source is gone",
        r"the planner is asked: .*a planner can revise",
        r"trigger failed",
        r"plan: revision 1, by the planner: replaces bad by bad-new",
        r"why: there is another source",
        r'- \{"id":"bad"',
        r'\+ \{"id":"bad-new"',
        r"pay: asked: May step pay call needs_a_person\?",
        r"why: needs_a_person needs approval",
        r"suspended as waiting",
        r"goes on",
        r"pay: answered: yes by ann: seen",
        r"ended as succeeded",
    ):
        assert re.search(words, shown), words


def test_order_is_that_of_the_record(told: Shell) -> None:
    entries = told("inspect", "one", "--json").json["entries"]

    assert [entry["seq"] for entry in entries] == sorted(entry["seq"] for entry in entries)
    assert entries[0]["event"] == "RunStarted"
    assert entries[-1]["event"] == "RunEnded"


def test_step_has_its_own_story(told: Shell) -> None:
    shown = told("inspect", "one", "once").out
    entries = told("inspect", "one", "once", "--json").json

    assert "step once: succeeded" in shown
    assert 'definition: {"id":"once","tool":"fail_once"' in shown
    assert 'output: "ok"' in shown
    assert {entry["about"] for entry in entries["entries"]} == {"once"}
    assert entries["step"]["output"] == "ok"


def test_step_that_is_not_there_is_told_with_one_that_is(told: Shell) -> None:
    ended = told("inspect", "one", "onec")

    assert (ended.code, "did you mean once" in ended.err) == (2, True)


@pytest.mark.parametrize("columns", [40, 60, 80, 100, 120])
def test_page_fits_the_terminal(told: Shell, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    assert max(map(len, told("inspect", "one").out.splitlines())) <= columns


def test_waiting_run_is_told_with_the_commands(shell: Shell) -> None:
    shell("run", shell.plan({"id": "pay", "tool": "needs_a_person"}), *TOOLS, "--run-id", "one")

    shown = shell("inspect", "one").out

    assert "  dagrun answer one pay" in shown.splitlines()
    assert any(line.startswith("  dagrun resume one ") for line in shown.splitlines())


def test_nothing_in_a_record_steers_the_terminal(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what a tool says, not a goal, not a label, and not a note."""
    steps: list[dict[str, Any]] = [
        {"id": "a", "tool": "hostile"},
        {"id": "b", "tool": "says_hostile"},
        {"id": "pay", "tool": "needs_a_person"},
    ]
    shell("run", shell.plan(*steps, goal=HOSTILE), *TOOLS, "--run-id", "one", "-i", f"x={HOSTILE}")
    shell("answer", "one", "pay", "--yes", "--note", HOSTILE, "--by", HOSTILE)
    shell("resume", "one", *TOOLS)

    for args in (
        ["inspect", "one"],
        ["inspect", "one", "b"],
        ["runs"],
        ["inspect", "one", "--state"],
        ["runs", "--verify", "one"],
    ):
        ended = shell(*args)
        shown = ended.out + ended.err
        assert not set(shown) & set("\x1b\x9b\u202e\r\x07"), args
        assert not any(line.startswith("forged") for line in shown.splitlines()), args
    assert json.loads(shell("inspect", "one", "--json").out)["goal"]


def test_what_looks_like_a_secret_is_not_shown(shell: Shell) -> None:
    key = "sk-proj-" + "a1B2" * 12
    shell("run", shell.plan({"id": "a", "tool": "echo", "args": {"value": {"text": key}}}), *TOOLS, "--run-id", "one")

    assert key not in shell("inspect", "one", "a").out
    assert key not in shell("inspect", "one", "a", "--json").out


def test_elements_belong_to_their_step(shell: Shell) -> None:
    step = {"id": "each", "tool": "add", "for_each": [1, 2], "args": {"a": "${item}"}}
    shell("run", shell.plan(step), *TOOLS, "--run-id", "one")

    entries = shell("inspect", "one", "each", "--json").json["entries"]

    assert {"each[0]", "each[1]"} <= {step for entry in entries for step in entry["steps"]}


def test_elements_that_failed_are_told_wherever_the_run_is_shown(shell: Shell) -> None:
    """The run has succeeded without them, and its answer has gaps."""
    step = {"id": "each", "tool": "fail", "for_each": ["a", "b"], "args": {"message": "${item}"}, "on_failure": "skip"}
    told = "2 of 2 elements failed"

    run = shell("run", shell.plan(step), *TOOLS, "--run-id", "one", "--report", "report.html")

    assert (run.code, f"succeeded: 1 succeeded; each: {told}" in run.err) == (0, True)
    assert f"step each: succeeded: {told}" in shell("inspect", "one", "each").out
    assert f"1 succeeded; each: {told}" in shell("inspect", "one").out
    assert f"1 succeeded; each: {told}" in shell("runs", "--json").out
    assert f"1 succeeded; each: {told}" in (shell.folder / "report.html").read_text(encoding="utf-8")
    assert "succeeded: 1 succeeded; each" in shell("runs").out


def test_what_a_run_has_released_is_shown_from_its_record(shell: Shell) -> None:
    """The run let go of it; the record did not."""
    shell.file("policy.toml", "release_outputs = true")
    first = {"id": "first", "tool": "nap", "args": {"seconds": 0.0}}
    last = {"id": "last", "tool": "add", "args": {"a": 1}, "depends_on": ["first"]}
    plan = shell.plan(first, last, output="${last}")
    shell("run", plan, *TOOLS, "--policy", "policy.toml", "--run-id", "one")

    assert 'output: "slept"' in shell("inspect", "one", "first").out
    assert shell("inspect", "one", "first", "--json").json["step"]["output"] == "slept"


def test_the_timeline_of_a_run_is_drawn_afterwards_and_at_its_end(shell: Shell) -> None:
    shell.file("told_rules.py", PLANNER)
    options = ("--planner", "told_rules:planner", "--run-id", "one", "--timeline")
    ran = shell("run", shell.plan(ADD, BAD), *TOOLS, *options)

    shown = shell("inspect", "one", "--timeline")

    rows = [line.split(" ")[0] for line in shown.out.splitlines()]
    assert [row for row in ("sum", "bad", "bad-new") if row not in rows] == []
    assert "Why: there is another source." in shown.out
    assert shown.out.strip() in ran.err
    drawn = shell("inspect", "one", "--timeline", "--json").json["timeline"]
    assert [change["change"] for change in drawn["changes"]] == ["replaces bad by bad-new"]
    assert {bar["row"]: bar["is_good"] for bar in drawn["bars"]} == {
        "sum": True,
        "bad": False,
        "(planner)": True,
        "bad-new": True,
    }


def test_a_resumed_run_draws_its_whole_timeline(shell: Shell) -> None:
    """Also the calls of the process that was there before."""
    shell("run", shell.plan(ADD, ASK | {"depends_on": ["sum"]}), *TOOLS, "--run-id", "one")
    shell("answer", "one", "pay", "--yes")

    resumed = shell("resume", "one", *TOOLS, "--timeline")

    rows = [line.split(" ")[0] for line in resumed.err.splitlines()]
    assert [row for row in ("sum", "pay") if row not in rows] == []


def test_a_timeline_is_about_a_whole_run(shell: Shell) -> None:
    shell("run", shell.plan(ADD), *TOOLS, "--run-id", "one")

    shown = shell("inspect", "one", "sum", "--timeline")

    assert shown.code == 2
    assert "leave the step out" in shown.err


BANK = '''
from typing import Annotated
import dagrun

@dagrun.tool(effect="read", untrusted=True)
async def read_file(path: str) -> str:
    """Read a file."""
    return path

@dagrun.tool(effect="effectful", needs_approval=False)
async def send_money(recipient: Annotated[str, dagrun.guarded]) -> str:
    """Pay."""
    return "paid"
'''


def test_a_step_tells_whose_data_it_is_made_of(shell: Shell) -> None:
    """The record has no labels: they follow from the plan and the contracts of the tools."""
    shell.file("bank.py", BANK)
    shell.file("policy.toml", "[flow]\n")
    bill = {"id": "bill", "tool": "read_file", "args": {"path": "x"}}
    pay = {"id": "pay", "tool": "send_money", "args": {"recipient": "${bill}"}}
    options = ("--tools", "bank", "--policy", "policy.toml", "--run-id", "one")
    assert shell("run", shell.plan(bill, pay), *options).code == 5

    page, facts = shell("inspect", "one", "pay").out, shell("inspect", "one", "pay", "--json").json["step"]

    assert "made of data of: plan, read_file, send_money" in page
    assert facts["boundary"] == [
        "step pay passes ${bill} as recipient of send_money; it comes from bill (read_file), which others can write"
    ]
    assert "open: May step pay call send_money?" in page


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--timeline", "--follow"], "--timeline and --follow are two pages"),
        (["--export", "--hash"], "--state and --export are two pages"),
        (["add", "--state"], "--state is about a whole run; leave the step out"),
        (["--full"], "--full is for --export"),
        (["--quiet"], "--quiet is for --follow"),
        (["--events", "jsonl", "--state"], "--events is for --follow"),
    ],
)
def test_options_that_do_not_go_together_are_refused(shell: Shell, options: list[str], said: str) -> None:
    ended = shell("inspect", "last", *options)

    assert (ended.code, said in ended.err) == (2, True)
