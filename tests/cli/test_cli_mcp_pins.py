"""`dagrun mcp pin`, `dagrun mcp pin --check`, and what `dagrun tools` says of tools of servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from command_line import Shell, shell
from dagrun.cli.records.resume_command import options_again
from dagrun.cli.setup.settings import configure

__all__ = ["shell"]
pytest.importorskip("mcp")
pytestmark = [pytest.mark.costly, pytest.mark.real_time, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SERVER = Path(__file__).parents[1] / "sources" / "mcp_server.py"
SETTINGS = """
mcp_files = ["mcp.json"]
mcp_pins = "mcp.lock.json"

[mcp.notes]
trust = "hints"
allow = ["add", "keep", "slow"]
effects = { keep = "effectful" }
"""
KEEP = {"id": "keep", "tool": "notes.keep", "args": {"text": "x"}}


def serve(shell: Shell, says: str = "Keep a note.", name: str = "notes") -> None:
    """Write the file of servers; with it, the server that it starts says something."""
    env = {"NOTES": "notes", "KEEP_SAYS": says}
    entry = {"command": sys.executable, "args": [str(SERVER)], "env": env}
    shell.file("mcp.json", json.dumps({"mcpServers": {name: entry}}))


def test_from_the_first_pin_to_a_rug_pull(shell: Shell) -> None:
    """As a user would: pin, run, be refused when the server says something else, look, pin again."""
    serve(shell)
    shell.file("dagrun.toml", SETTINGS)
    assert "somebody has agreed to" in shell("tools").err  # settings of a project need trust
    assert shell("config", "trust").code == 0

    assert "mcp.lock.json: there is no such file; dagrun mcp pin writes it" in shell("tools").err
    asked = shell("mcp", "pin")
    assert (asked.code, asked.out.splitlines()[:3]) == (
        2,
        ["+ notes is new", "+ notes.add is new, read:", "    Add two numbers."],
    )
    assert "here is nobody to ask; look at what has changed, and add --yes" in asked.err
    assert not (shell.folder / "mcp.lock.json").exists()
    written = shell("mcp", "pin", "--yes")
    assert (written.code, written.out.splitlines()[-1]) == (
        0,
        f"pinned 3 tools of 1 server in {shell.folder}/mcp.lock.json",
    )
    assert shell("mcp", "pin", "--check").code == 0
    assert "nothing has changed" in shell("mcp", "pin").out
    assert shell("run", shell.plan(KEEP)).code == 0

    serve(shell, says="Keep a note.\u200b")
    refused = shell("run", shell.plan(KEEP))
    assert refused.code == 3
    assert r"description was 'Keep a note.', is 'Keep a note.\u200b'" in refused.err + refused.out
    assert "notes.keep" not in json.dumps(json.loads(shell("schema", "toolset").out))
    found = shell("mcp", "pin", "--check", "--json")
    [difference] = json.loads(found.out)["differences"]
    assert (found.code, difference["tool"], difference["place"]) == (1, "keep", "description")
    assert shell("mcp", "pin", "--check").out.splitlines() == [
        "~ notes.keep has changed",
        r"    description was 'Keep a note.', is 'Keep a note.\u200b'",
    ]
    assert shell("mcp", "pin", "--yes").code == 0
    assert shell("run", shell.plan(KEEP)).code == 0


def test_who_said_so(shell: Shell) -> None:
    """The host, the server by a hint that counts, or nobody; and the pin, and whether it holds."""
    serve(shell)
    shell.file("dagrun.toml", SETTINGS)
    shell("config", "trust")
    shell("mcp", "pin", "--yes")
    serve(shell, says="Other.")
    rows = [line.split()[:3] for line in shell("tools").out.splitlines()]
    assert rows == [
        ["tool", "effect", "said"],
        ["notes.add", "read", "hint"],
        ["notes.keep", "effectful", "host"],
        ["notes.slow", "effectful", "nobody"],
    ]
    assert "REFUSED: it has changed since it was pinned: description was" in shell("tools").out
    origins = [tool["origin"] for tool in json.loads(shell("tools", "--json").out)["tools"]]
    assert [(one["server"], one["said_by"], bool(one["refusal"]), len(one["pin"])) for one in origins] == [
        ("notes", "hint", False, 64),
        ("notes", "host", True, 64),
        ("notes", "nobody", False, 64),
    ]
    shown = shell("tools", "notes.keep").out
    assert "effect: effectful (said by: host)" in shown
    assert "refused: it has changed since it was pinned" in shown


def test_pins_without_settings(shell: Shell) -> None:
    """The file stands beside the file of servers, and the command says how to use it."""
    serve(shell)
    assert 'hold runs to it: mcp_pins = "mcp.lock.json"' in shell("mcp", "pin", "--yes", "--mcp", "mcp.json").err
    serve(shell, name="other")
    refused = shell(
        "check", shell.plan({**KEEP, "tool": "other.keep"}), "--mcp", "mcp.json", "--mcp-pins", "mcp.lock.json"
    )
    assert "which has no pin in mcp.lock.json; see dagrun mcp pin" in refused.out + refused.err
    assert "name the MCP servers: --mcp FILE" in shell("mcp", "pin", "--check").err


def test_the_command_that_resumes_a_run_names_the_pins(shell: Shell) -> None:
    """Else a run would go on without them."""
    flags = {"mcp_files": ("mcp.json",), "mcp_pins": "mcp.lock.json", "critics": (), "compose": None}
    again = options_again(configure(flags), None, flags)
    assert again[again.index("--mcp-pins") + 1] == str(shell.folder / "mcp.lock.json")


@pytest.mark.parametrize(
    ("rules", "reason"),
    [
        ("[mcp.note]\n", "mcp.note: there is no such server; they are notes; did you mean notes?"),
        ("[mcp.tickets]\n", "mcp.tickets: there is no such server; they are notes"),
        ("mcp_files = ['more.json']\n[mcp.tickets]\n", ""),
    ],
)
def test_rules_for_a_server_that_is_nowhere_are_an_error(shell: Shell, rules: str, reason: str) -> None:
    """Also if the servers are named on the command line; but not for another file of the same settings."""
    serve(shell)
    shell.file("more.json", json.dumps({"servers": {"tickets": {"command": "no-such-program"}}}))
    shell.file("dagrun.toml", rules)
    shell("config", "trust")
    listed = shell("tools", "--mcp", "mcp.json")
    assert (listed.code, reason in listed.err) == (2 if reason else 0, True)
