"""A run that is interrupted ends with what there is; and nothing keeps the program alive that would not stop."""

import json
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from command_line import SECONDS, TOOLS, Ended, Shell, command, environment, finished, on_terminal, shell, started

__all__ = ["shell"]
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="signals as POSIX has them"),
]

NAP = {"id": "nap", "tool": "nap", "args": {"seconds": 60}}
QUICK = {"id": "quick", "tool": "add", "args": {"a": 1}}


def interrupted(shell: Shell, steps: list[dict[str, Any]], *args: str, how: signal.Signals = signal.SIGINT) -> Ended:
    """Start a run, and send it a signal when the last of *steps* runs (and a tool that sits in a thread says so)."""
    with started(shell, "run", shell.plan(*steps), *TOOLS, "--events", "jsonl", *args) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        awaited = {"sitting"} if any(step["tool"] == "stuck" for step in steps) else set()
        awaited.add("AttemptStarted")
        while awaited:
            line = process.stdout.readline()
            lines.append(line)
            if "sitting" in line or f'"{steps[-1]["id"]}"' in line:
                awaited -= {word for word in awaited if word in line}
        process.send_signal(how)
        out, err = process.communicate(timeout=SECONDS)
        return Ended(process.returncode, "".join(lines) + out, err)


@pytest.mark.parametrize(
    ("how", "code", "kept", "state"),
    [(signal.SIGINT, 130, [], "running"), (signal.SIGTERM, 143, ["--no-journal"], "cancelled")],
)
@pytest.mark.costly
def test_first_signal_hands_back_the_partial_result(
    shell: Shell, how: signal.Signals, code: int, kept: list[str], state: str
) -> None:
    """A run that is written down can go on, so what was running is left as it was."""
    ended = interrupted(shell, [QUICK, NAP], "-o", "left", *kept, how=how)

    result = ended.lines[-1]
    assert ended.code == code
    assert result["status"] == "cancelled"
    assert {id_: step["state"] for id_, step in result["steps"].items()} == {"quick": "succeeded", "nap": state}
    assert json.loads((shell.folder / "left" / "run.json").read_text())["status"] == "cancelled"
    assert "Stopping" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.rigs
def test_effect_in_doubt_outranks_the_signal(shell: Shell) -> None:
    """An effectful tool that was running may have done its work: that is what the caller must know."""
    shell.file(
        "effects.py",
        "import anyio, dagrun\n\n\n@dagrun.tool\nasync def send() -> int:\n    await anyio.sleep(60)\n    return 1\n",
    )

    shell.file("policy.toml", "grace = 0.1")

    ended = interrupted(shell, [{"id": "send", "tool": "send"}], "-t", "effects", "--policy", "policy.toml")

    assert (ended.code, ended.lines[-1]["status"]) == (7, "cancelled")
    assert "send may have taken effect" in ended.err


@pytest.mark.rigs
def test_what_would_not_stop_is_left_behind(shell: Shell) -> None:
    """Python would wait a minute for the thread, and the task group for the coroutine for ever."""
    shell.file("policy.toml", "grace = 0.1")

    ended = interrupted(
        shell, [{"id": "x", "tool": "stuck"}, {"id": "y", "tool": "stubborn"}], "--policy", "policy.toml"
    )

    assert ended.code == 130
    assert [ended.lines[-1]["steps"][id_]["state"] for id_ in "xy"] == ["running", "running"], "cut off, as by a crash"


@pytest.mark.rigs
def test_thread_stuck_in_an_effect_is_left_behind(shell: Shell) -> None:
    """Its state is `unknown`, which does not say that it still runs."""
    shell.file(
        "effects.py",
        "import time, dagrun\n\n\n@dagrun.tool(timeout=0.2)\ndef send() -> int:\n    time.sleep(60)\n    return 1\n",
    )
    shell.file("policy.toml", "grace = 0.1")

    ended = finished(shell, "run", shell.plan({"id": "a", "tool": "send"}), "-t", "effects", "--policy", "policy.toml")

    assert ended.code == 7


@pytest.mark.rigs
def test_second_signal_ends_the_program(shell: Shell) -> None:
    """Also while a step uses its grace period of a minute."""
    shell.file("policy.toml", "grace = 60.0")
    plan = shell.plan({"id": "x", "tool": "stubborn"})

    with on_terminal(shell, ["run", plan, *TOOLS, "--policy", "policy.toml"]) as terminal:
        terminal.read_until("1 running")
        terminal.send_interrupt()
        terminal.read_until("Stopping")
        terminal.send_interrupt()
        code = terminal.wait()

    assert code == 130
    assert terminal.shown.rindex("\x1b[?25h") > terminal.shown.rindex("\x1b[?25l"), "the cursor is shown again"


@pytest.mark.rigs
def test_interrupt_before_the_run_starts(shell: Shell) -> None:
    shell.file("slow_import.py", "import sys, time\nprint('importing', flush=True)\ntime.sleep(60)\n")

    with started(shell, "run", shell.plan(QUICK), "-t", "slow_import") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "importing\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)

    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.rigs
def test_reader_who_leaves_does_not_stop_the_run(shell: Shell) -> None:
    """A run changes the world; that nobody reads on is no reason to stop half way."""
    steps = [
        NAP | {"args": {"seconds": 0.3}},
        {"id": "w", "tool": "write_here", "args": {"name": "made"}, "depends_on": ["nap"]},
    ]

    with started(shell, "run", shell.plan(*steps), *TOOLS, "--events", "jsonl") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
        code = process.wait(SECONDS)

    assert code == 0
    assert (shell.folder / "made").exists()
    assert [line.split()[0] for line in err.splitlines()] == ["succeeded:", "report:"]


@pytest.mark.rigs
def test_slow_reader_does_not_hold_up_the_run(shell: Shell) -> None:
    """The pipe is full long before the last step; the run goes on all the same."""
    big = {"tool": "echo", "args": {"value": "x" * 50_000}}
    steps = [{"id": f"s{i}", **big} for i in range(15)]
    last = {"id": "w", "tool": "write_here", "args": {"name": "made"}, "depends_on": [step["id"] for step in steps]}

    with started(shell, "run", shell.plan(*steps, last), *TOOLS, "--events", "jsonl") as process:
        until = time.monotonic() + SECONDS
        while not (shell.folder / "made").exists():
            assert time.monotonic() < until, "the run waits for its reader"
            time.sleep(0.02)
        out, _ = process.communicate(timeout=SECONDS)

    assert json.loads(out.splitlines()[-1])["status"] == "succeeded"


@pytest.mark.rigs
def test_closed_standard_output_and_error(shell: Shell) -> None:
    """A daemon may have neither."""
    plan = shell.plan(QUICK)
    line = f"exec {' '.join(command('run', plan, *TOOLS))} >&- 2>&-"

    done = subprocess.run(["sh", "-c", line], cwd=shell.folder, env=environment(), timeout=SECONDS, check=False)

    assert done.returncode == 0
