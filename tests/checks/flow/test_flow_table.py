"""The table of the trust boundary, and its cost where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import Shell, shell

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

TOOLS = '''
from typing import Annotated
import dagrun

@dagrun.tool(effect="read", untrusted=True)
async def read_file(path: str) -> str:
    """Read a file."""
    return path

@dagrun.tool(effect="read")
async def known_iban(name: str) -> str:
    """Look an account up in our own book."""
    return name

@dagrun.tool(effect="effectful", needs_approval=False)
async def send_money(recipient: Annotated[str, dagrun.guarded]) -> str:
    """Pay."""
    return "paid"
'''
PLAN = [
    {"id": "bill", "tool": "read_file", "args": {"path": "x"}},
    {"id": "own", "tool": "known_iban", "args": {"name": "${bill}"}},
    {"id": "pay", "tool": "send_money", "args": {"recipient": "${bill}"}},
    {"id": "pay2", "tool": "send_money", "args": {"recipient": "${own}"}},
    {"id": "pay3", "tool": "send_money", "args": {"recipient": "ann"}},
]
ENDORSES = '[[flow.endorse]]\ntool = "known_iban"\n'


def _check(shell: Shell, policy: str, *options: str) -> Any:
    shell.file("bank_tools.py", TOOLS)
    shell.file("policy.toml", policy)
    named = ("--policy", "policy.toml") if policy else ()
    return shell("check", shell.plan(*PLAN), "--tools", "bank_tools", *named, *options)


def test_the_table_says_what_gets_where(shell: Shell) -> None:
    """Each guarded argument, its sources, the way, and the verdict."""
    shown = _check(shell, "[flow]\n" + ENDORSES, "--flow", "--json").json["flow"]

    assert [(row["step"], row["verdict"], row["code"]) for row in shown["rows"]] == [
        ("pay", "asks", "DR501"),
        ("pay2", "passes", ""),
        ("pay3", "passes", ""),
    ]
    assert shown["rows"][0]["way"] == "bill (read_file)"
    assert (shown["endorsed"], shown["passes_by_endorsement"]) == (["known_iban"], 1)


def test_it_is_drawn_for_people(shell: Shell) -> None:
    """Also where the plan is refused for it, and where the policy has no boundary."""
    drawn = _check(shell, "[flow]\n", "--flow")
    refused = _check(shell, '[flow]\notherwise = "refuse"\n', "--flow")
    preview = _check(shell, "", "--flow")

    assert "Trust boundary: 3 guarded arguments, 2 not accepted" in drawn.out
    assert refused.code == 3
    assert "Trust boundary: 3 guarded arguments, 2 not accepted" in refused.out
    assert "DR501 steps[2].args.recipient" in refused.err
    assert "The policy has no [flow]" in preview.out


def test_a_strict_check_counts_endorsements(shell: Shell) -> None:
    """Whoever vouches for much gets to see it."""
    told = "The policy endorses 1 tool of the plan, so that 1 more pass: known_iban"

    assert told in _check(shell, "[flow]\n" + ENDORSES, "--strict").out
    assert told in _check(shell, "[flow]\n" + ENDORSES, "--flow").out
    assert told not in _check(shell, "[flow]\n" + ENDORSES).out


def test_the_page_of_a_tool_has_its_marks(shell: Shell) -> None:
    """Whoever reads a policy looks up what the tools say themselves."""
    shell.file("bank_tools.py", TOOLS)

    pages = [shell("tools", name, "--tools", "bank_tools").out for name in ("read_file", "send_money")]
    facts = shell("tools", "send_money", "--tools", "bank_tools", "--json").json

    assert "others can write: all of what it gives" in pages[0]
    assert "guards: recipient" in pages[1]
    assert (facts["untrusted"], facts["guarded"]) == (False, ["recipient"])


@pytest.mark.costly
def test_without_a_boundary_none_of_it_is_loaded(tmp_path: Path) -> None:
    """Neither by the check, nor by a run with a patch."""
    script = tmp_path / "no_boundary.py"
    script.write_text(
        """
import sys
import dagrun
from dagrun import Patch, Plan, Replace, Step

@dagrun.tool(effect="read", untrusted=True)
async def fails(path: str) -> str:
    raise dagrun.ToolError("no")

@dagrun.tool(effect="pure")
async def works() -> str:
    return "x"

class Planner:
    async def revise(self, brief):
        return Patch(edits=[Replace(id="a", step=Step(id="b", tool="works"))])

plan = Plan(steps=[Step(id="a", tool="fails", args={"path": "x"})])
result = dagrun.run_sync(plan, tools=[fails, works], planner=Planner())
assert result.status == "succeeded", result
late = ("dagrun.kernel.checks.flow", "dagrun.kernel.graph.patches.flow_after")
found = [name for name in sys.modules if name.startswith(late)]
assert not found, found
""",
        encoding="utf-8",
    )

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_a_run_holds_nothing_more() -> None:
    """Labels are no attributes of steps or of calls: what is not there costs nothing."""
    from dagrun.kernel.graph.node import Node, OptionalStepState
    from dagrun.kernel.runtime.live_attempt import LiveAttempt

    held = {*Node.__slots__, *OptionalStepState.__slots__, *LiveAttempt.__slots__}

    assert not [name for name in held if "flow" in name or "label" in name or "source" in name or "taint" in name]
