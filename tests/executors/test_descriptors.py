"""Processes of ours start with the descriptors that they were given, on every loop, and with none of the host's."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import dagrun
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.runtime.backend import command_alone
from process_tools import open_descriptors

pytestmark = [
    pytest.mark.costly,
    pytest.mark.skipif(sys.platform == "win32", reason="no descriptors are inherited there"),
]

TOOL = make_tool(open_descriptors, effect="read")
LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}
SHOW = """
import os, signal
def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
print([number for number in range(1024) if is_open(number)], signal.getsignal(signal.SIGXFSZ) is signal.SIG_IGN)
"""
COUNT = """
from os import fstat
result = []
for number in range(64):
    try:
        fstat(number)
        result.append(number)
    except OSError:
        pass
"""
SERVER = Path(__file__).parents[1] / "sources" / "mcp_server.py"


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]:
    """Run an async function on a real loop of each kind."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return lambda main: anyio.run(main, **LOOPS[request.param])


@pytest.fixture(autouse=True)
def _a_file_that_is_inherited() -> Iterator[None]:
    """A server has such descriptors: sockets that it hands to its workers."""
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 200, inheritable=True)
        try:
            yield
        finally:
            os.close(200)


def test_a_program_gets_its_standard_files_and_those_that_it_was_given(on_loop: Any) -> None:
    """It is the program itself that is started: its id and its signals are as with any loop."""

    async def main() -> tuple[str, bool]:
        ours, theirs = os.pipe()
        os.set_inheritable(theirs, True)
        try:
            command = command_alone([sys.executable, "-S", "-c", SHOW, "an argument"], keep=[theirs])
            options: Any = {"stdin": subprocess.DEVNULL, "pass_fds": [theirs]}
            async with await anyio.open_process(command, **options) as process:
                assert process.stdout is not None
                shown = b"".join([piece async for piece in process.stdout]).decode()
                return shown.strip().replace(str(theirs), "given"), os.path.exists(sys.executable)
        finally:
            os.close(ours)
            os.close(theirs)

    # Python itself ignores the signal, and would say so of a program that had inherited that.
    assert on_loop(main) == ("[0, 1, 2, given] True", True)


def test_a_program_that_is_not_there_is_refused_as_by_any_loop(on_loop: Any) -> None:
    async def main() -> None:
        for name in ("no-such-program", "/no/such/program", "./no-such-program"):
            with pytest.raises(FileNotFoundError):
                await anyio.open_process(command_alone([name], cwd="/"), cwd="/")

    on_loop(main)


def test_a_worker_process_gets_its_socket_alone(on_loop: Any) -> None:
    """Else it would keep the port of a server that has ended."""

    async def main() -> list[int]:
        step = dagrun.Step(id="a", tool="open_descriptors", executor="process")
        result = await dagrun.run(dagrun.Plan(steps=[step]), tools=[TOOL])
        found: list[int] = result.output
        return found

    found = on_loop(main)
    assert (found[:3], len(found)) == ([0, 1, 2], 4)


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="code is confined on Linux on x86-64 alone"
)
def test_code_of_a_plan_gets_the_standard_files_alone(on_loop: Any) -> None:
    from dagrun_tools import run_code

    async def main() -> Any:
        plan = dagrun.Plan(steps=[dagrun.Step(id="a", tool="run_code", args={"code": COUNT})])
        return (await dagrun.run(plan, tools=[run_code])).output["result"]

    assert on_loop(main) == [0, 1, 2]


def test_a_server_of_tools_gets_the_standard_files_alone(on_loop: Any, tmp_path: Path) -> None:
    """It is a program of somebody else, which says what it got before it becomes the server."""
    pytest.importorskip("mcp")
    seen, script = tmp_path / "seen", tmp_path / "server.py"
    script.write_text(
        f"import contextlib, os, sys\nwith contextlib.redirect_stdout(open({str(seen)!r}, 'w')):\n"
        + "".join(f"    {line}\n" for line in SHOW.strip().splitlines())
        + f"sys.stdout.flush()\nos.execv(sys.executable, [sys.executable, {str(SERVER)!r}])\n",
        encoding="utf-8",
    )
    entry = {"command": sys.executable, "args": [str(script)], "env": {"NOTES": str(tmp_path / "notes")}}

    async def main() -> list[str]:
        async with dagrun.mcp_tools({"mcpServers": {"notes": entry}}) as tools:
            return list(tools)

    assert "notes.add" in on_loop(main)
    assert seen.read_text(encoding="utf-8").startswith("[0, 1, 2, 3]")  # 3 is the file that it writes to
