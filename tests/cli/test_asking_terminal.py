"""Questions on a real terminal: a prompt keeps neither the run nor the process, and nothing is drawn over it."""

from __future__ import annotations

import itertools
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from command_line import Shell, shell
from dagrun.cli.terminal.ask_person import LONGEST, open_keyboard
from typist import on_script

__all__ = ["shell"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="terminals as POSIX has them")


@asynccontextmanager
async def terminal() -> AsyncIterator[tuple[int, Any]]:
    ours, theirs = pty.openpty()
    try:
        with open_keyboard(theirs) as keyboard:
            yield ours, keyboard
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.anyio
@pytest.mark.real_time
async def test_lines_come_as_they_are_typed() -> None:
    async with terminal() as (ours, keyboard):
        os.write(ours, "première\nsecond\n".encode())
        assert [await keyboard.line(), await keyboard.line()] == ["première", "second"]


@pytest.mark.anyio
@pytest.mark.real_time
async def test_other_tasks_go_on_while_a_line_is_awaited() -> None:
    async with terminal() as (ours, keyboard), anyio.create_task_group() as tasks:
        ticks = itertools.count()

        async def work() -> None:
            for _ in range(10):
                await anyio.lowlevel.checkpoint()
                next(ticks)
            os.write(ours, b"done\n")

        tasks.start_soon(work)
        assert await keyboard.line() == "done"
        assert next(ticks) == 10


@pytest.mark.anyio
@pytest.mark.real_time
async def test_waiting_can_be_cancelled() -> None:
    """And what is typed next goes to who asks next."""
    async with terminal() as (ours, keyboard):
        with anyio.move_on_after(0.01) as scope:
            await keyboard.line()
        assert scope.cancelled_caught
        os.write(ours, b"later\n")
        assert await keyboard.line() == "later"


@pytest.mark.anyio
@pytest.mark.real_time
async def test_end_of_input_is_none() -> None:
    """Ctrl-D; after half a line it only hands that out."""
    async with terminal() as (ours, keyboard):
        os.write(ours, b"\x04")
        assert await keyboard.line() is None
        os.write(ours, b"half\x04\x04")
        assert await keyboard.line() == "half"


@pytest.mark.anyio
@pytest.mark.real_time
async def test_terminal_that_hangs_up_is_none() -> None:
    ours, theirs = pty.openpty()
    with open_keyboard(theirs) as keyboard:
        os.close(ours)
        assert await keyboard.line() is None
    os.close(theirs)


@pytest.mark.anyio
@pytest.mark.real_time
async def test_what_was_typed_before_is_forgotten() -> None:
    """A yes to something else, and half of one."""
    async with terminal() as (ours, keyboard):
        os.write(ours, b"yes\nye")
        await anyio.wait_readable(theirs_of(keyboard))
        keyboard.forget()
        os.write(ours, b"n\n")
        assert await keyboard.line() == "n"


@pytest.mark.anyio
@pytest.mark.real_time
async def test_line_that_lost_its_end_is_refused() -> None:
    async with terminal() as (ours, keyboard):
        os.write(ours, b"x" * 3_000)
        os.write(ours, b"x" * (LONGEST - 2_000) + b"\n")
        with pytest.raises(ValueError, match="no line of more than"):
            await keyboard.line()


def theirs_of(keyboard: Any) -> int:
    return int(keyboard._descriptor)


SCRIPT = """
import sys, anyio, logging
from dagrun.cli.terminal.ask_person import make_approver
from dagrun.cli.terminal.display import Display
from dagrun.cli.terminal.signals import Interrupts
from dagrun.cli.terminal.live_table import LiveTable
from dagrun.events import AttemptStarted, RunStarted
from dagrun import Asked, Question
from dagrun.observe.progress import ProgressTable

async def main():
    table = ProgressTable()
    with Interrupts() as signals, Display(LiveTable(table), logging.WARNING) as display:
        approver = make_approver(display)
        if approver is None:
            print("nobody there")
            return
        table.on_event(RunStarted(1, 0.0, "run", 2, "", 0.0))
        table.on_event(AttemptStarted(2, 0.0, "sibling", 1, "nap"))
        question = Question(id="q", kind=Asked.APPROVAL, text="May it?", step="pay", arguments=5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(display.keep_fresh)
            import asyncio
            loop = asyncio.get_running_loop()
            signals.on_first(lambda number: loop.call_soon_threadsafe(tasks.cancel_scope.cancel))
            await anyio.sleep(0.3)
            tasks.start_soon(chatter)
            answer = await approver(question)
            print("ANSWER", answer.choice)
            await anyio.sleep(0.6)
            tasks.cancel_scope.cancel()
    print("over", signals.first, file=sys.stderr)

async def chatter():
    await anyio.sleep(0.1)
    print("said meanwhile")

anyio.run(main)
"""


@pytest.mark.rigs
def test_table_makes_room_for_the_question(shell: Shell) -> None:
    with on_script(shell, SCRIPT) as screen:
        screen.read_until("1 running")
        screen.read_until("[?] help: ")
        before = screen.shown
        screen.read_for(0.6)
        assert screen.shown == before, "something was drawn over the question"
        assert "said meanwhile" not in before
        screen.type("y\n")
        screen.read_until("| ANSWER approve")
        assert screen.wait() == 0

    after = screen.shown[len(before) :]
    assert "| said meanwhile" in after
    assert after.index("| said meanwhile") < after.index("| ANSWER")
    assert "1 running" in after, "the table is drawn again"


@pytest.mark.rigs
def test_interrupt_gets_through_while_a_question_is_open(shell: Shell) -> None:
    """Typed as Ctrl-C, as people do it; and nothing keeps the process."""
    with on_script(shell, SCRIPT) as screen:
        screen.read_until("[?] help: ")
        screen.type("\x03")
        screen.read_until("needs no answer now")
        screen.read_until("over 2")
        assert screen.wait() == 0
    assert "Traceback" not in screen.shown


@pytest.mark.rigs
def test_end_of_input_ends_no_process(shell: Shell) -> None:
    with on_script(shell, SCRIPT.replace("answer.choice", "answer")) as screen:
        screen.read_until("[?] help: ")
        screen.type("\x04")
        screen.read_until("ANSWER None")
        assert screen.wait() == 0


@pytest.mark.rigs
def test_nobody_is_asked_without_a_terminal(shell: Shell) -> None:
    """Neither where the answer cannot be typed, nor where the question would not be seen."""
    for redirection in ({"stdin": "/dev/null"}, {"stderr": "err.txt"}):
        with on_script(shell, SCRIPT, **redirection) as screen:
            assert screen.wait() == 0
        err = shell.folder / "err.txt"
        assert "nobody there" in screen.shown + (err.read_text() if err.exists() else "")
