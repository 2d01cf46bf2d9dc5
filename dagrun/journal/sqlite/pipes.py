"""Named pipes that wake processes of this machine, which so need not poll."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from dagrun.journal.run_folder import FILE_MODE, as_failure

_BELL: Final = "bell-"


def open_pipe(path: Path) -> int:
    """Open the pipe at *path* to wait for a wake-up; replace anything else of that name.

    Raises:
        OSError: It cannot be made.
    """
    try:
        is_pipe = stat.S_ISFIFO(os.lstat(path).st_mode)
    except FileNotFoundError:
        is_pipe = False
    if not is_pipe:
        path.unlink(missing_ok=True)
        os.mkfifo(path, FILE_MODE)
    # Opened for writing, too: a pipe whose last writer has closed it would be readable for ever.
    return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)


def empty(pipe: int) -> None:
    """Forget the wake-ups so far."""
    with suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass


def wake(path: Path) -> bool:
    """Wake the process that waits at a pipe; return false if none does, or there is no pipe."""
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            return False
        pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with suppress(BlockingIOError):  # it is full of wake-ups
            os.write(pipe, b".")
    finally:
        os.close(pipe)
    return True


class Bell:
    """A pipe for one waiting process, in a folder where any process can wake all of them.

    Args:
        folder: The folder.

    Raises:
        JournalFailed: The pipe cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        name = secrets.token_hex(8)
        new, self._path = folder / f".new-{name}", folder / f"{_BELL}{name}"
        with as_failure(f"cannot make a pipe in {folder}"):
            self._pipe = open_pipe(new)
            # Named when it is open: `ring` removes pipes at which nobody waits.
            os.rename(new, self._path)

    async def wait(self) -> None:
        """Wait until the pipe is rung."""
        await anyio.wait_readable(self._pipe)

    def close(self) -> None:
        """Remove the pipe."""
        with suppress(OSError):
            self._path.unlink()
        os.close(self._pipe)


def ring(folder: Path) -> None:
    """Wake all waiting processes of a folder; pipes of killed processes are removed."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(_BELL) and not wake(folder / name):
                (folder / name).unlink(missing_ok=True)
