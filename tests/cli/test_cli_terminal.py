"""Progress is drawn on a terminal and nowhere else, and says nothing in colour to who wants none."""

import re
import sys

import pytest

from command_line import TOOLS, Shell, finished, on_terminal, shell

__all__ = ["shell"]
pytestmark = [
    pytest.mark.rigs,
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="terminals as POSIX has them"),
]

STEPS = [{"id": f"step-{i:02}", "tool": "nap", "args": {"seconds": 0.6}} for i in range(40)]
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


def frames(shown: str) -> list[list[str]]:
    """What was drawn, as plain lines: a new frame begins where the cursor is moved up."""
    drawn = re.split(r"(?:\x1b\[1A\x1b\[2K|\x1b\[2K)+", shown)
    plain = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part) for part in drawn]
    return [part.replace("\r", "").strip("\n").split("\n") for part in plain if part.strip()]


def test_table_fits_a_narrow_terminal_and_its_last_rows_stay(shell: Shell) -> None:
    plan = shell.plan(*STEPS, {"id": "bad", "tool": "fail"})

    with on_terminal(shell, ["run", plan, *TOOLS], columns=40) as terminal:
        assert terminal.wait() == 1

    drawn = frames(terminal.shown)
    running = [frame for frame in drawn if "running" in frame[-1]]
    assert running, terminal.shown
    for frame in running:
        assert len(frame) <= 23
        assert max(map(len, frame)) < 40
    last = drawn[-1]
    assert last[0].startswith("✗ bad")
    assert "there is nothing" in last[0]
    assert sum("✓" in line for line in last) == 13
    assert COLOUR.search(terminal.shown)


def test_no_colour_where_none_is_wanted(shell: Shell) -> None:
    with on_terminal(shell, ["run", shell.plan(*STEPS[:2]), *TOOLS], NO_COLOR="1") as terminal:
        assert terminal.wait() == 0

    assert "✓ step-00" in terminal.shown
    assert not COLOUR.search(terminal.shown)


def test_dumb_terminal_gets_plain_lines(shell: Shell) -> None:
    with on_terminal(shell, ["run", shell.plan(*STEPS[:2]), *TOOLS], TERM="dumb") as terminal:
        assert terminal.wait() == 0

    assert "\x1b" not in terminal.shown
    assert [line.split()[0] for line in terminal.shown.splitlines()] == ["succeeded:", "report:"]


def test_terminal_without_unicode_gets_ascii(shell: Shell) -> None:
    with on_terminal(shell, ["run", shell.plan(*STEPS[:2]), *TOOLS], PYTHONIOENCODING="ascii") as terminal:
        assert terminal.wait() == 0

    assert terminal.shown.isascii()
    assert "+ step-00" in terminal.shown


@pytest.mark.parametrize(("variables", "expected"), [({}, False), ({"FORCE_COLOR": "1"}, True)])
def test_without_a_terminal_colour_must_be_forced(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    ended = shell("run", shell.plan(STEPS[0]), *TOOLS)

    assert bool(COLOUR.search(ended.err)) is expected
    assert ended.out == "slept\n"


REPAIR = '''
import dagrun
from dagrun import Add, Patch, Replace, Step

_calls = []

@dagrun.tool(effect="read")
async def moody(place: str) -> str:
    """Fail at the first call."""
    _calls.append(place)
    if len(_calls) == 1:
        raise dagrun.ToolError("gone", unreachable=True)
    return place

@dagrun.tool(effect="effectful", needs_approval=False)
async def tell(text: str) -> str:
    """Tell somebody."""
    return text

class Eager:
    async def revise(self, brief):
        again = Step(id="again", tool="moody", args={"place": "a"})
        more = Step(id="more", tool="tell", args={"text": "done"})
        return Patch(edits=[Replace(id="first", step=again), Add(step=more)], reason="try once more")

planner = Eager()
'''


@pytest.mark.parametrize("drawn", [True, False])
def test_a_refused_part_of_a_change_is_told(shell: Shell, *, drawn: bool) -> None:
    """The rest of the change is carried out, so nothing else would say that a part of it is missing."""
    (shell.folder / "repair.py").write_text(REPAIR)
    (shell.folder / "policy.toml").write_text("freeze_plan = true\n")
    plan = shell.plan({"id": "first", "tool": "moody", "args": {"place": "a"}})
    args = ["run", plan, "-t", "repair", "--planner", "repair:planner", "--policy", "policy.toml"]

    if drawn:
        with on_terminal(shell, args) as terminal:
            assert terminal.wait() == 0
        told = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.shown)
    else:
        ended = finished(shell, *args)
        assert ended.code == 0, ended.err
        told = ended.err
    assert " ".join(told.split()).count("planner, change 1, refused: DR427") == 1, told
