"""Questions for tests, and somebody who types at a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from command_line import Shell, Terminal, environment
from dagrun import Asked, Question
from dagrun.kernel.model.value import encode


def ask(kind: Asked = Asked.APPROVAL, arguments: Any = None, **fields: Any) -> Question:
    """A question about a step that pays."""
    options = {"text": "May it?", "step": "pay", "tool": "send_money", "effect": "effectful", **fields}
    return Question(id="q", kind=kind, arguments=encode(arguments), **options)


class Typist(Terminal):
    """A terminal at which somebody types."""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    def read_for(self, seconds: float) -> None:
        """Read what is drawn within some time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._read()


# Only the terminal that a process is controlled by turns Ctrl-C into a signal.
_PRELUDE = """
import fcntl, os, sys, termios
for fd in (0, 2):
    if os.isatty(fd):
        fcntl.ioctl(fd, termios.TIOCSCTTY, 0)
        break
"""


@contextmanager
def on_script(shell: Shell, script: str, *, stdin: str | None = None, stderr: str | None = None) -> Iterator[Typist]:
    """Run a script on a terminal of its own; its input may come from a file, and its errors go to one."""
    ours, theirs = pty.openpty()
    with ExitStack() as files:
        source = files.enter_context(open(stdin, "rb")) if stdin else theirs
        sink = files.enter_context((shell.folder / stderr).open("wb")) if stderr else theirs
        process = subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + script],
            stdin=source,
            stdout=sink,
            stderr=sink,
            cwd=shell.folder,
            env=environment(COLUMNS="80", LINES="24"),
            start_new_session=True,
        )
    os.close(theirs)
    try:
        yield Typist(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
