"""No text of a plan or a tool can control a terminal, forge a line, leave its label or flood the log.

The hostile inputs S84, S85 and S86 of the threat model, on every output of the command line.
"""

import io
import json
import logging
import re
import sys
import threading
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cli_tools import HOSTILE
from command_line import TOOLS, Shell, finished, on_terminal, shell
from dagrun.cli.terminal.display import BURST, MAX_LINE, RATE, RateLimiter, guarded
from dagrun.cli.terminal.live_table import LiveTable
from dagrun.cli.terminal.text import Data, columns, printable, to_json
from dagrun.events import Progress, RunStarted
from dagrun.observe.progress import ProgressTable

__all__ = ["shell"]
pytestmark = pytest.mark.real_time


def steering(text: str) -> set[str]:
    """Return the characters that a terminal could take for something else than text."""
    return {c for c in text if c not in "\n" and unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")}


# S85: control characters ----------------------------------------------------------------------------------------------


def test_escape_reaches_no_stream(shell: Shell) -> None:
    """Progress, log, print and error of one step; and the id of an input."""
    ended = shell("run", shell.plan({"id": "x", "tool": "hostile"}), *TOOLS, "--input", f"{HOSTILE}=1")

    assert ended.code == 1
    assert steering(ended.err) == steering(ended.out) == set()


def test_log_record_is_one_line(shell: Shell) -> None:
    """The logs and prints of a tool cannot look like another record, or like the summary of dagrun."""
    ended = shell("run", shell.plan({"id": "x", "tool": "hostile"}), *TOOLS)

    lines = ended.err.splitlines()
    assert [line.split()[0] for line in lines] == ["warning", "|", "|", "failed:", "run", "dagrun", "report:"]
    assert "\\nforged: line" in lines[0]
    assert lines[2].startswith("| forged: line")


@pytest.mark.parametrize("form", [["--json"], ["--events", "jsonl"]])
def test_json_is_escaped_and_still_says_the_same(shell: Shell, form: list[str]) -> None:
    ended = shell("run", shell.plan({"id": "x", "tool": "says_hostile"}), *TOOLS, *form)

    assert steering(ended.out) == set()
    assert json.loads(ended.out.splitlines()[-1] if "jsonl" in form else ended.out)["output"] == HOSTILE


@pytest.mark.skipif(sys.platform == "win32", reason="terminals as POSIX has them")
@pytest.mark.rigs
def test_live_table_is_steered_by_nobody(shell: Shell) -> None:
    with on_terminal(shell, ["run", shell.plan({"id": "x", "tool": "hostile"}), *TOOLS]) as terminal:
        assert terminal.wait() == 1

    own = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|1A|2K)")
    assert steering(own.sub("", terminal.shown)) - {"\r"} == set()
    assert "\\x1b[2J" in terminal.shown
    assert "[bold red]x[/]" in terminal.shown


def test_answer_is_escaped_on_a_terminal_and_untouched_in_a_pipe() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    pipe, screen = io.StringIO(), Screen()
    Data(pipe).value(HOSTILE)
    Data(screen).value("tab\tand\nline " + HOSTILE)

    assert pipe.getvalue() == HOSTILE + "\n"
    assert steering(screen.getvalue()) == {"\t"}
    assert screen.getvalue().startswith("tab\tand\nline \\x1b[2J")


@pytest.mark.parametrize("args", [["show"], ["show", "--format", "mermaid"], ["show", "--format", "dot"], ["check"]])
def test_texts_of_a_plan_are_escaped(shell: Shell, args: list[str]) -> None:
    plan = shell.plan({"id": "end", "tool": HOSTILE, "description": HOSTILE, "depends_on": [HOSTILE]}, goal=HOSTILE)

    ended = shell(args[0], plan, *args[1:], *(TOOLS if args[0] == "check" else ()))

    assert steering(ended.out + ended.err) == set()


def test_name_of_a_file_is_escaped(shell: Shell) -> None:
    ended = shell("check", f"{HOSTILE[:20]}.json", *TOOLS)

    assert ended.code == 2
    assert steering(ended.err) == set()


def test_docstring_of_a_tool_is_escaped(shell: Shell) -> None:
    source = f"import dagrun\n\n\ndef bad() -> int:\n    return 1\n\n\nbad.__doc__ = {HOSTILE!r}\nTOOLS = [bad]\n"
    shell.file("bad_docs.py", source)

    shown = [shell("tools", *args, "-t", "bad_docs").out for args in ((), ("bad",))]

    assert steering("".join(shown)) == set()
    assert "\\x1b[2J" in shown[0]


@given(st.text())
@pytest.mark.rigs
def test_no_text_steers(text: str) -> None:
    assert steering(printable(text)) <= {"\t"}
    assert steering(to_json({text: [text]}, indent=2)) == set()
    assert json.loads(to_json({text: [text]})) == {text: [text]}
    assert steering(columns([(text, "b")], head=("x", "y"))) == set()
    assert columns([(text, "b")]).count("\n") == 1


@given(st.text(max_size=300))
def test_no_text_steers_the_live_table(text: str) -> None:
    table = ProgressTable()
    table.on_event(RunStarted(1, 0.0, "run", 1, text, 0.0))
    from dagrun.events import AttemptStarted

    table.on_event(AttemptStarted(2, 0.0, "s", 1, "tool"))
    table.on_event(Progress(3, 0.0, "s", None, text))
    stream = io.StringIO()
    console = Console(file=stream, width=60, height=20, force_terminal=False)

    console.print(LiveTable(table, console).frame())

    assert steering(stream.getvalue()) == set()
    assert stream.getvalue().count("\n") == 2


# S84: drawings --------------------------------------------------------------------------------------------------------

BREAKOUT = 'x"]; click n0 "javascript:alert(1)" %%{init: {}}%% <script>alert(1)</script> end; subgraph "];y[label="'


def test_label_of_a_mermaid_drawing_is_never_left(shell: Shell) -> None:
    plan = shell.plan({"id": "end", "tool": BREAKOUT, "description": BREAKOUT}, {"id": "click", "tool": "nap"})

    lines = shell("show", plan, "-f", "mermaid").out.splitlines()

    assert lines[0] == "flowchart TD"
    for number, line in enumerate(lines[1:]):
        assert re.fullmatch(rf'  n{number}\["[^"<>;%\[\]{{}}]*(?:#\d+;[^"<>;%\[\]{{}}]*)*"\]', line), line


def test_label_of_a_dot_drawing_is_never_left(shell: Shell) -> None:
    plan = shell.plan({"id": "end", "tool": BREAKOUT + "\\", "description": BREAKOUT + "\\"})

    (line,) = [line for line in shell("show", plan, "-f", "dot").out.splitlines() if line.startswith("  n0 ")]

    quoted = r'"(?:[^"\\]|\\.)*"'
    assert re.fullmatch(rf"  n0 \[label={quoted}, tooltip={quoted}\];", line), line
    assert "<" not in line


# S86: too much --------------------------------------------------------------------------------------------------------


@pytest.mark.rigs
def test_flood_of_a_tool_is_cut(shell: Shell) -> None:
    """Of 20,000 records and as many printed lines, a part is shown, with the number of the rest."""
    ended = finished(shell, "run", shell.plan({"id": "x", "tool": "floods", "args": {"lines": 20_000}}), *TOOLS)

    shown = ended.err.splitlines()
    assert ended.code == 0
    assert BURST <= len(shown) < 10_000
    said = [int(line.split()[1]) for line in shown if "more lines, not shown" in line]
    lost = 40_000 - (len(shown) - len(["summary", "report"]) - len(said))
    assert sum(said) == lost


def test_error_of_100_mb_is_a_line(shell: Shell) -> None:
    ended = shell("run", shell.plan({"id": "x", "tool": "fails_at_length"}), *TOOLS)

    assert ended.code == 1
    assert len(ended.err) < 2_000


def test_valve_lets_a_burst_through_and_then_a_trickle() -> None:
    now = 0.0
    shown: list[str] = []
    valve = RateLimiter(shown.append, lambda: now)
    for _ in range(BURST + 500):
        valve.line("x")
    assert len(shown) == BURST

    now = 1.0
    valve.line("after")

    assert shown[BURST:] == [f"… 500 more lines, not shown: over {RATE:g} a second", "after"]


def test_line_without_an_end_is_cut() -> None:
    """A progress bar of a tool writes one line again and again, and never ends it."""
    shown: list[str] = []
    with guarded(shown.append):
        for percent in range(100_000):
            sys.stdout.write(f"\r{percent % 100} %" + "." * 50)
        sys.stdout.write("\n" + "y" * 100_000 + "\n")

    assert len(shown) == 2
    assert all(len(line) < MAX_LINE + 50 for line in shown)


def test_prints_of_many_threads_stay_whole() -> None:
    shown: list[str] = []

    def talk(name: str) -> None:
        for _ in range(50):
            print(name * 20)

    with guarded(shown.append):
        threads = [threading.Thread(target=talk, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert sorted(shown) == sorted("| " + name * 20 for name in "abcd" for _ in range(50))


def test_logging_is_as_before_afterwards() -> None:
    root = logging.getLogger()
    before: Any = (root.level, list(root.handlers), sys.stdout, sys.stderr)
    with guarded(lambda line: None, logging.DEBUG):
        assert root.level == logging.DEBUG

    assert (root.level, list(root.handlers), sys.stdout, sys.stderr) == before


def test_record_that_cannot_be_formatted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # the streams of the test runner raise
    shown: list[str] = []
    with guarded(shown.append):
        logging.getLogger("x").warning("%d rows", "many")
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            logging.getLogger("x").exception("it broke")

    assert "cannot be formatted" in shown[0]
    assert shown[1].startswith("error x: it broke (ValueError: \\x1b[2J")
    assert len(shown) == 2
