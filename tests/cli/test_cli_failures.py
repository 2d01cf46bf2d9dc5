"""What the command line shows of failures: one line, with ``-v`` the traceback, and the answers of models."""

import anyio
import pytest

from command_line import TOOLS, Shell, shell
from dagrun.testing import ModelAnswer
from goal_shell import SECRET, served

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

BROKEN = """
import dagrun

def price_of(row):
    return row["price"]

@dagrun.tool(effect="pure")
async def double() -> int:
    \"\"\"Look for a price that is not there.\"\"\"
    return 2 * price_of({"prize": 1})
"""

# More than the first lines of an error, with a key and with what steers a terminal.
LINES = ["I am sorry.", "I cannot do that.", "Nobody can.", f"My key is {SECRET}.", "\x1b[2Jgone", "The end."]


@pytest.fixture
def broken(shell: Shell) -> Shell:
    """A tool with a bug, in a plan."""
    shell.file("broken_tools.py", BROKEN)
    shell.plan({"id": "s", "tool": "double", "args": {}})
    return shell


def test_a_failure_is_one_line_with_type_and_place(broken: Shell) -> None:
    ended = broken("run", "plan.json", "--tools", "broken_tools")

    assert ended.code == 1
    assert "s failed: KeyError: 'price' (broken_tools.py:5)" in ended.err
    assert ended.err.count("KeyError") == 1
    assert "Traceback" not in ended.err


def test_verbose_prints_the_traceback(broken: Shell) -> None:
    ended = broken("run", "plan.json", "--tools", "broken_tools", "-v")

    assert ended.code == 1
    assert "warning s: step s failed: KeyError: 'price' (broken_tools.py:5)" in ended.err
    assert "Traceback (most recent call last):" in ended.err
    assert 'return row["price"]' in ended.err
    assert ended.err.count("Traceback") == 1


def test_inspect_names_the_place_with_its_path(broken: Shell) -> None:
    broken("run", "plan.json", "--tools", "broken_tools")

    shown = " ".join(broken("inspect", "last").out.split())

    assert "exception: KeyError: 'price' (broken_tools.py:5)" in shown
    assert "at /" in shown


def test_inspect_shows_answers_whole_and_redacted(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the first lines; the record has them all, and no key."""
    with served(monkeypatch, ModelAnswer("\n".join(LINES))):
        ended = shell("do", "Add one and one", *TOOLS)
    hint, whole = shell("inspect", "last").out, shell("inspect", "last", "--answers").out
    listed = shell("inspect", "last", "--json").json["answers"]

    assert ended.code == 3
    assert "its model answered: I am sorry." in ended.err
    assert "The end." not in ended.err
    assert "2 answers of models on record: --answers shows all of it" in hint
    assert whole.count("planner answered:") == 2
    assert whole.count("The end.") == 2
    assert [answer["about"] for answer in listed] == ["planner", "planner"]
    assert listed[0]["text"].startswith("I am sorry.\nI cannot do that.")
    for shown in (ended.err, hint, whole, listed[0]["text"]):
        assert SECRET not in shown
    for shown in (ended.err, hint, whole):
        assert "\x1b" not in shown


def test_without_an_answer_inspect_says_so(shell: Shell) -> None:
    shell("run", shell.plan({"id": "s", "tool": "add", "args": {"a": 1}}), *TOOLS)

    assert "no answer of a model is on record" in shell("inspect", "last", "--answers").out
    assert "--answers" not in shell("inspect", "last").out


def test_a_run_that_was_stopped_from_outside_is_no_success(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a result there is nothing to report, and no exit code either: 0 would be a lie."""

    async def cancelled(*_: object) -> None:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await anyio.sleep(1)

    monkeypatch.setattr("dagrun.cli.jobs.execute._execute", cancelled)
    ended = shell("run", shell.plan({"id": "one", "tool": "add", "args": {"a": 1}}), *TOOLS)

    assert ended.code == 1
    assert "the run was stopped from outside, and has no result" in ended.err
