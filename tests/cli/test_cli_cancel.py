"""``dagrun stop`` tells the process at a run to stop."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from command_line import SECONDS, TOOLS, Ended, Shell, finished, shell, started
from dagrun.cli.commands import stop
from dagrun.kernel.model.question import ControlMessage

__all__ = ["shell"]
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="pipes as POSIX has them"),
]

NAP = {"id": "nap", "tool": "nap", "args": {"seconds": 60}}
AFTER = {"id": "after", "tool": "echo", "args": {"value": 1}, "depends_on": ["nap"]}
OTHER = {"id": "other", "tool": "nap", "args": {"seconds": 1}}


@contextmanager
def at_work(shell: Shell, *args: str) -> Iterator[subprocess.Popen[str]]:
    """A run in a process of its own, whose steps run and are on record."""
    plan = shell.plan(NAP, AFTER, OTHER)
    with started(shell, "run", plan, *TOOLS, "--run-id", "one", *args) as process:
        _wait_for(shell, "AttemptStarted")
        yield process


def _wait_for(shell: Shell, event: str) -> None:
    until = time.monotonic() + SECONDS
    while f'"{event}"' not in shell("inspect", "one", "--export").out:
        assert time.monotonic() < until, f"{event} is not on record"
        time.sleep(0.05)


def _end(process: subprocess.Popen[str]) -> Ended:
    out, err = process.communicate(timeout=SECONDS)
    return Ended(process.returncode, out, err)


@pytest.mark.costly
def test_a_run_of_another_process_is_cancelled(shell: Shell) -> None:
    """The command tells what the record then says."""
    with at_work(shell) as process:
        told = shell("stop", "one", "--by", "ann", "--reason", "too dear")
        ended = _end(process)

    assert (told.code, told.out) == (0, "run cancelled: cancelled by ann: too dear\n")
    assert ended.code == 130
    assert shell("runs", "--json").json["runs"][0]["reason"] == "cancelled by ann: too dear"
    again = shell("stop", "one")
    assert (again.code, "run one has ended: cancelled" in again.err) == (2, True)


@pytest.mark.costly
def test_a_step_of_another_process_is_cancelled(shell: Shell) -> None:
    with at_work(shell) as process:
        told = shell("stop", "one", "nap", "--json")
        ended = _end(process)

    assert (told.code, told.json["result"], told.json["text"]) == (0, "done", "step nap cancelled")
    assert (ended.code, "other" in ended.out) == (1, True)


@pytest.mark.costly
def test_a_suspended_run_can_be_resumed(shell: Shell) -> None:
    with at_work(shell) as process:
        told = shell("stop", "one", "--suspend", "--by", "ann")
        ended = _end(process)

    assert (told.code, told.out) == (0, "run cancelled: suspended by ann\n")
    assert (ended.code, "dagrun resume one" in ended.err) == (130, True)
    nobody = shell("stop", "one")
    assert (nobody.code, "no process is at run one" in nobody.err) == (5, True)
    assert "dagrun resume one" in nobody.err
    with started(shell, "resume", "one", *TOOLS) as again:
        until = time.monotonic() + SECONDS
        while shell("stop", "one").code != 0:
            assert time.monotonic() < until
        assert _end(again).code == 130


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("stop", "one", "nop"), "no step nop; did you mean nap?"),
        (("stop", "two"), "there is no run two"),
        (("stop", "one", "nap", "--suspend"), "--suspend is for a whole run"),
    ],
)
@pytest.mark.costly
def test_what_is_not_there_is_refused(shell: Shell, args: tuple[str, ...], said: str) -> None:
    with at_work(shell) as process:
        refused = shell(*args)
        process.kill()

    assert (refused.code, said in refused.err) == (2, True), refused.err


def test_a_run_that_has_just_ended_is_told_to_have_ended(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    """Between the two looks of the command, at the record and at its owner; nothing is left to resume."""
    assert shell("run", shell.plan({"id": "ask", "tool": "doubtful"}), *TOOLS, "--run-id", "one").code == 7
    order = stop.RunOrder("cancel", "one", None, {"reason": "", "by": "ann", "as_json": False})
    assert shell("answer", "one", "ask", "took_effect", "sent", "--yes").code == 0
    assert shell("resume", "one").code == 0
    capsys.readouterr()

    assert order.carry_out() == 0
    assert capsys.readouterr().out.startswith("run succeeded")


@pytest.mark.costly
def test_a_step_that_has_ended_is_refused(shell: Shell) -> None:
    with at_work(shell) as process:
        _wait_for(shell, "AttemptEnded")
        refused = shell("stop", "one", "other")
        process.kill()

    assert (refused.code, refused.err) == (2, "Error: step other of run one has ended: succeeded\n")


@pytest.mark.costly
def test_an_order_that_nobody_takes_is_reported(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a process of an older dagrun, which throws such letters away."""
    monkeypatch.setattr(stop, "PATIENCE", 0.2)
    with at_work(shell) as process:
        monkeypatch.setattr(ControlMessage, "model_dump_json", lambda _: '{"order":"cancel"}')
        told = shell("stop", "one")
        process.kill()

    assert (told.code, "has not reacted" in told.err) == (1, True), told.err


@pytest.mark.costly
def test_a_process_that_was_killed_takes_no_order(shell: Shell) -> None:
    with at_work(shell) as process:
        process.kill()
        process.wait()
    told = finished(shell, "stop", "one", "--suspend")
    assert told.code == 5, told.err
