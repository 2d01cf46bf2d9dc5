"""MCP servers behind an address, on every backend; and both revisions of the protocol on both transports."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun.errors import ContractError
from dagrun.sources.mcp_config import read_config

client_module = pytest.importorskip("mcp.client.client")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.costly,
    pytest.mark.real_time,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SERVER = Path(__file__).with_name("mcp_server.py")
TOKEN = "s3cret-value-17"
PLAN = dagrun.Plan(
    steps=[
        dagrun.Step(id="sum", tool="notes.add", args={"a": 1, "b": 2}),
        dagrun.Step(id="keep", tool="notes.keep", args={"text": "is ${sum.total}"}),
    ]
)
HINTS = {"notes": {"trust": "hints"}}


@contextmanager
def served(notes: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    env = {**os.environ, "NOTES": str(notes), **environment}
    with subprocess.Popen([sys.executable, SERVER, "http"], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        try:
            yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def config(url: str) -> dict[str, Any]:
    headers = {"Authorization": "Bearer ${NOTES_KEY}"}
    return {"servers": {"notes": {"type": "http", "url": url, "headers": headers}}}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_both_revisions_on_both_transports(
    tmp_path: Path, mode: str, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header has a secret in it, which comes with every request, and a redirect within the origin is followed."""
    monkeypatch.setattr(client_module, "Client", partial(client_module.Client, mode=mode))
    notes = tmp_path / "notes"
    with served(notes) as (_, address):
        known: dict[str, Any] = config(f"{address}/moved")
        if transport == "stdio":
            known = {"notes": {"command": sys.executable, "args": [str(SERVER)], "env": {"NOTES": str(notes)}}}
        async with dagrun.mcp_tools(known, rules=HINTS, secrets={"NOTES_KEY": TOKEN}) as tools:
            result = await dagrun.run(PLAN, tools=[tools])
    assert result.status == "succeeded", result
    lines = notes.read_text().splitlines()
    assert [line.split()[:2] for line in lines if line[0] != "/"] == [["is", "3"]]
    asked = [line for line in lines if line[0] == "/"]
    assert {line.split(" ", 1)[1] for line in asked} == ({f"Bearer {TOKEN}"} if transport == "http" else set())


async def test_a_redirect_to_another_origin_is_refused(tmp_path: Path) -> None:
    """Else whoever controls an address could have the headers sent elsewhere."""
    with (
        served(tmp_path / "other") as (_, other),
        served(tmp_path / "notes", AWAY=f"{other}/mcp") as (_, address),
        pytest.raises(ContractError, match="MCP server notes cannot be reached: ") as caught,
    ):
        async with dagrun.mcp_tools(config(f"{address}/away"), secrets={"NOTES_KEY": TOKEN}):
            pytest.fail("it has followed")
    assert TOKEN not in str(caught.value)
    assert "/away" in (tmp_path / "notes").read_text()
    assert not (tmp_path / "other").exists()


async def test_an_address_where_nobody_answers_is_an_error_that_names_the_server(tmp_path: Path) -> None:
    """At the start, and without the secret."""
    with pytest.raises(ContractError, match="MCP server notes cannot be reached: ") as caught:
        async with dagrun.mcp_tools(config("http://127.0.0.1:9/mcp"), secrets={"NOTES_KEY": TOKEN}):
            pytest.fail("nobody answers")
    assert TOKEN not in str(caught.value)


def test_secrets_come_before_variables_and_not_to_servers_they_are_not_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret says which tools may have it; here, which servers."""
    monkeypatch.setenv("NOTES_KEY", "of the environment")
    [server] = read_config(config("https://a.example"), None, dagrun.Secrets({"NOTES_KEY": TOKEN}))
    assert (server.target, server.extra) == ("https://a.example", {"Authorization": f"Bearer {TOKEN}"})
    assert TOKEN not in repr(server)
    [server] = read_config(config("https://a.example"), None)
    assert server.extra == {"Authorization": "Bearer of the environment"}
    elsewhere = dagrun.Secrets({"NOTES_KEY": dagrun.Secret(TOKEN, tools=("other",))})
    with pytest.raises(ContractError, match="server notes: it may not have the secret NOTES_KEY"):
        read_config(config("https://a.example"), None, elsewhere)


@pytest.mark.parametrize("words", ["import dagrun", "from dagrun.cli.main import main; main(['--version'])"])
def test_who_uses_no_server_loads_none_of_it(words: str) -> None:
    """The library alone takes most of a second."""
    loaded = (
        "import atexit, sys; atexit.register(lambda: print(*[n for n in sys.modules if 'mcp' in n], file=sys.stderr))"
    )
    done = subprocess.run([sys.executable, "-c", f"{loaded}; {words}"], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


async def test_a_server_behind_an_address_that_dies_in_an_effect_leaves_a_doubt(tmp_path: Path) -> None:
    """The effect is not repeated; a later call finds nobody, so nothing has happened."""
    notes = tmp_path / "notes"
    with served(notes) as (_, address):
        async with dagrun.mcp_tools(config(f"{address}/mcp"), rules=HINTS, secrets={"NOTES_KEY": TOKEN}) as tools:
            step = dagrun.Step(id="die", tool="notes.die_in_effect")
            effect = await dagrun.run(dagrun.Plan(steps=[step]), tools=[tools])
            after = await dagrun.run(PLAN, tools=[tools])
    assert effect.status == "unknown"
    assert [line for line in notes.read_text().splitlines() if line[0] != "/"] == ["begun"]
    failure = after.steps["sum"].failure
    assert failure is not None
    assert (after.status, failure.nothing_happened) == ("failed", True)
