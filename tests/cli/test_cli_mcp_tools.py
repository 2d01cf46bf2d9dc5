"""`--mcp` and `[mcp.NAME]`: MCP servers as sources of tools, wherever tools are named."""

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
PLAN = [
    {"id": "sum", "tool": "notes.add", "args": {"a": 1, "b": 2}},
    {"id": "keep", "tool": "notes.keep", "args": {"text": "is ${sum.total}"}},
]


@pytest.fixture
def file(shell: Shell) -> Path:
    """A file with one server."""
    env = {"NOTES": "${NOTES_FILE}"}
    entry = {"command": sys.executable, "args": [str(SERVER)], "env": env}
    shell.file("secret", str(shell.folder / "notes"))
    (shell.folder / "secret").chmod(0o600)
    shell.file("mcp.json", json.dumps({"mcpServers": {"notes": entry}}))
    return shell.folder / "notes"


def test_a_plan_runs_on_the_servers_of_a_file(shell: Shell, file: Path) -> None:
    """A variable of the file is a secret of the command; the rules are a table of the settings, which need trust."""
    options = ("--mcp", "mcp.json", "--secret", "NOTES_FILE=file:secret")
    listed = shell("tools", *options)
    assert "notes.add" in listed.out, listed.err
    assert {line.split()[1] for line in listed.out.splitlines()[1:]} == {"effectful"}
    shell.file(
        "dagrun.toml", '[mcp.notes]\ntrust = "hints"\nallow = ["add", "keep"]\neffects = { keep = "idempotent" }\n'
    )
    assert "say what tools of MCP servers may do without a question" in shell("tools", *options).err
    assert shell("config", "trust").code == 0
    listed = shell("tools", *options)
    assert [line.split()[:2] for line in listed.out.splitlines()[1:]] == [
        ["notes.add", "read"],
        ["notes.keep", "idempotent"],
    ]
    assert shell("check", shell.plan(*PLAN), *options).code == 0
    ended = shell("run", shell.plan(*PLAN), *options)
    assert ended.code == 0, ended.err
    assert file.read_text().startswith("is 3 ")


def test_files_in_the_settings_of_a_project_start_nothing_before_the_user_says_yes(shell: Shell, file: Path) -> None:
    """They name programs."""
    shell.file("dagrun.toml", 'mcp_files = ["mcp.json"]\nsecrets = ["NOTES_FILE=file:secret"]\n')
    refused = shell("tools")
    assert (refused.code, "start programs, and send requests to addresses" in refused.err) == (2, True)
    assert shell("config", "trust").code == 0
    assert "notes.add" in shell("tools").out


@pytest.mark.parametrize(
    ("toml", "options", "reason"),
    [
        ("", ("--mcp", "nope.json"), "nope.json: it cannot be read"),
        ("", ("--mcp", "mcp.json"), "NOTES_FILE is no secret and no variable that is set"),
        ("[mcp.notes]\ntrust = 'all'\n", ("--mcp", "mcp.json"), "mcp.notes"),
        ("mcp = 3\n", ("--mcp", "mcp.json"), "mcp: "),
        ("", ("--mcp", "mcp.json", "--mcp", "mcp.json", "--secret", "NOTES_FILE=file:secret"), "two servers notes"),
        (
            "mcp_files = ['mcp.json']\nsecrets = ['NOTES_FILE=file:secret']\n[mcp.other]\n",
            (),
            "mcp.other: there is no such server; they are notes",
        ),
    ],
)
@pytest.mark.usefixtures("file")
def test_a_fault_has_its_place(shell: Shell, toml: str, options: tuple[str, ...], reason: str) -> None:
    """And the exit code of wrong usage."""
    shell.file("dagrun.toml", toml)
    shell("config", "trust")
    failed = shell("tools", *options)
    assert failed.code == 2
    assert reason in failed.err


@pytest.mark.usefixtures("file")
def test_the_command_that_resumes_a_run_names_the_file() -> None:
    """Else its tools would be gone."""
    flags = {"mcp_files": ("mcp.json",), "critics": (), "compose": None}
    again = options_again(configure(flags), None, flags)
    assert again[again.index("--mcp") + 1] == "mcp.json"
