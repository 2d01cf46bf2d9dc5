"""`dagrun.run_program`: what a program writes, how it fails, and that nothing of it is left, on every loop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Policy, RetryRule, run_program
from dagrun.errors import ContractError, ToolError
from dagrun.executors.programs import ProgramFailed, end_of

pytestmark = [pytest.mark.costly, pytest.mark.skipif(sys.platform == "win32", reason="there are no process groups")]

LOOPS: dict[str, dict[str, Any]] = {
    "asyncio": {"backend": "asyncio"},
    "uvloop": {"backend": "asyncio", "backend_options": {"use_uvloop": True}},
    "trio": {"backend": "trio"},
}
OnLoop = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
# A shell with a child that holds its pipes open; it writes the ids of both.
FAMILY = "sleep 600 & echo $$ $!; "


@pytest.fixture(params=LOOPS)
def on_loop(request: pytest.FixtureRequest) -> OnLoop:
    """Run an async function on a real loop of each kind."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    return lambda main: anyio.run(main, **LOOPS[request.param])


def are_gone(pids: str) -> bool:
    """Whether none of the processes runs; one that nobody has waited for yet is gone."""
    return all("Z" in (state := state_of(int(pid))) or not state for pid in pids.split())


def state_of(pid: int) -> str:
    return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True).stdout


async def soon(is_so: Callable[[], bool]) -> bool:
    """Whether it is so within some seconds: a killed process takes a moment to die."""
    with anyio.move_on_after(20):
        while not is_so():
            await anyio.sleep(0.01)
    return is_so()


def test_it_returns_what_the_program_wrote(on_loop: OnLoop) -> None:
    async def main() -> subprocess.CompletedProcess[bytes]:
        return await run_program(["sh", "-c", "cat; echo careful >&2"], input="höhe")

    done = on_loop(main)

    assert (done.stdout.decode(), done.stderr, done.returncode) == ("höhe", b"careful\n", 0)


def test_a_program_that_ends_with_an_error_says_its_last_words(on_loop: OnLoop) -> None:
    async def main() -> None:
        await run_program(["sh", "-c", "echo half; for n in 1 2 3 4 5 6; do echo line $n >&2; done; exit 3"])

    with pytest.raises(ProgramFailed) as caught:
        on_loop(main)

    assert str(caught.value) == "sh ended with exit code 3: line 2; line 3; line 4; line 5; line 6"
    assert (caught.value.returncode, caught.value.stdout) == (3, b"half\n")


def test_without_a_check_the_exit_code_is_returned(on_loop: OnLoop) -> None:
    async def main() -> subprocess.CompletedProcess[bytes]:
        return await run_program(["sh", "-c", "printf abcdef; exit 3"], output_limit=4, check=False)

    done = on_loop(main)

    assert (done.returncode, done.stdout) == (3, b"abcd")


def test_a_program_that_writes_without_end_is_killed(on_loop: OnLoop) -> None:
    async def main() -> None:
        with anyio.fail_after(60):
            await run_program(["yes"], output_limit=1_000)

    with pytest.raises(ProgramFailed, match=r"^yes wrote more than 1000 bytes$") as caught:
        on_loop(main)

    assert len(caught.value.stdout) == 1_000


def test_much_input_that_nobody_reads_is_no_error(on_loop: OnLoop) -> None:
    async def main() -> subprocess.CompletedProcess[bytes]:
        return await run_program(["true"], input=b"x" * 10_000_000)

    assert on_loop(main).returncode == 0


def test_much_passes_through_in_both_directions(on_loop: OnLoop) -> None:
    data = os.urandom(3_000_000)

    async def main() -> subprocess.CompletedProcess[bytes]:
        return await run_program(["cat"], input=data, output_limit=len(data))

    assert on_loop(main).stdout == data


def test_children_do_not_outlive_a_program_that_has_ended(on_loop: OnLoop) -> None:
    """They hold its pipes, so the call would else end when the last of them does."""

    async def main() -> bool:
        with anyio.fail_after(60):
            done = await run_program(["sh", "-c", FAMILY])
        return await soon(lambda: are_gone(done.stdout.decode()))

    assert on_loop(main)


LEAVES: Final = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"


def test_a_child_that_has_left_the_group_does_not_hold_the_call(on_loop: OnLoop) -> None:
    """It holds the pipes of its parent for ten minutes."""

    async def main() -> bytes:
        with anyio.fail_after(60):
            return (await run_program([sys.executable, "-c", LEAVES])).stdout

    left = int(on_loop(main))

    assert "S" in state_of(left)  # it lives on
    os.kill(left, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["scope", "step"])
def test_nothing_outlives_a_call_that_is_cut_off(on_loop: OnLoop, kind: str, tmp_path: Path) -> None:
    """Neither in a scope of anyio, which cancels at every await, nor as a step, which is cancelled once."""
    note = tmp_path / "pids"

    @dagrun.tool(effect="read", timeout=0.5)
    async def family() -> str:
        done = await run_program(["sh", "-c", f"{FAMILY} wait".replace("echo", f"echo > {note}")])
        return done.stdout.decode()

    async def main() -> tuple[str, bool]:
        state = ""
        if kind == "scope":
            with anyio.move_on_after(0.5):
                await family.function()
        else:
            plan = dagrun.plan(family.options(retry=RetryRule(max_attempts=1)).step())
            result = await dagrun.run(plan, policy=Policy(grace=20))
            state = result.steps["family"].state
            assert "left" not in result.reason
        assert await soon(lambda: bool(re.fullmatch(r"\d+ \d+\n", note.read_text())))
        return state, await soon(lambda: are_gone(note.read_text()))

    assert on_loop(main) == ("timed_out" if kind == "step" else "", True)


def test_it_starts_in_a_folder_with_an_environment(on_loop: OnLoop, tmp_path: Path) -> None:
    async def main() -> subprocess.CompletedProcess[bytes]:
        return await run_program(["/bin/sh", "-c", "pwd; echo $COLOUR $HOME"], cwd=tmp_path, env={"COLOUR": "red"})

    assert on_loop(main).stdout.decode().split() == [str(tmp_path.resolve()), "red"]


@pytest.mark.parametrize(
    ("command", "options", "words"),
    [
        (["no-such-program"], {}, "no-such-program cannot be started: No such file or directory"),
        (["/"], {}, "/ cannot be started: Permission denied"),
        (["true"], {"cwd": "/no/such"}, "true cannot be started in /no/such: No such file or directory"),
        (["echo", "\ud800"], {}, "no program can be given the text '\\ud800'"),
        (["echo", "a\0b"], {}, "no program can be given the text 'a\\x00b'"),
    ],
)
def test_a_program_that_cannot_be_started_has_done_nothing(
    on_loop: OnLoop, command: list[str], options: dict[str, Any], words: str
) -> None:
    async def main() -> None:
        await run_program(command, **options)

    with pytest.raises(ToolError, match=f"^{re.escape(words)}$"):
        on_loop(main)


def test_a_command_is_no_text() -> None:
    with pytest.raises(ContractError, match=r"\['ls', '-l'\], not 'ls -l'"):
        anyio.run(run_program, "ls -l")


def test_a_failed_program_leaves_an_effect_unresolved() -> None:
    @dagrun.tool(effect="effectful")
    async def push() -> str:
        return (await run_program(["sh", "-c", "echo half >&2; exit 1"])).stdout.decode()

    step = dagrun.run_sync(dagrun.plan(push.step())).steps["push"]

    assert step.state == "unknown"
    assert step.failure is not None
    assert step.failure.message.startswith("ProgramFailed: sh ended with exit code 1: half")


@pytest.mark.parametrize(
    ("code", "words"),
    [(0, "ended with exit code 0"), (-15, "was killed by SIGTERM"), (-99, "was killed by signal 99")],
)
def test_the_end_of_a_program_in_words(code: int, words: str) -> None:
    assert end_of(code) == words
