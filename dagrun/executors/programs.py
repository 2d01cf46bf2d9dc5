"""`run_program`: run a program from a tool, and leave nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from io import FileIO
from typing import Final

import anyio
from anyio.abc import Process

from dagrun.errors import ContractError, ToolError, shorten
from dagrun.kernel.runtime.backend import command_alone

_PIECE: Final = 1 << 16  # bytes
_LAST_LINES: Final = 5
_REST_SECONDS: Final = 1.0  # in which what is in the pipes is read, after the end of the program
_MAX_ERRORS: Final = 1 << 16  # bytes of standard error that are kept: the last ones


class ProgramFailed(subprocess.CalledProcessError):
    """A program has ended with an exit code other than 0, or wrote too much.

    Attributes:
        returncode: The exit code; minus the number of the signal that has killed it.
        cmd: The command.
        output: Its standard output, up to the limit.
        stderr: The last 64 KiB of its standard error.
    """

    def __init__(self, done: subprocess.CompletedProcess[bytes], reason: str) -> None:
        super().__init__(done.returncode, done.args, done.stdout, done.stderr)
        self._reason = reason

    def __str__(self) -> str:
        lines = [line.strip() for line in self.stderr[-4_096:].decode(errors="replace").splitlines()]
        said = "; ".join(list(filter(None, lines))[-_LAST_LINES:])
        return f"{shorten(os.path.basename(self.cmd[0]), 60)} {self._reason}{': ' if said else ''}{shorten(said, 500)}"


async def run_program(
    command: Sequence[str | os.PathLike[str]],
    *,
    input: str | bytes = b"",
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    output_limit: int = 1 << 20,
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program, and return its output. However the call ends, the program and all of its children are killed.

    The program leads a process group of its own. At its end, and when the call is cancelled or reaches its time limit,
    the group is killed. A child that has left the group lives on; what it writes later is dropped. This works alike on
    asyncio, uvloop and trio. The program gets none of the open files of this process. A plan that may choose parts of
    the command can choose options, too: put ``--`` before them where the program takes that.

    Args:
        command: The program and its arguments. No shell reads them; for a shell, write ``["sh", "-c", text]``.
        input: What the program reads from standard input.
        cwd: The folder that it starts in; by default, this process's.
        env: All of its environment; by default, this process's.
        output_limit: The most bytes of standard output. Of standard error, the last 64 KiB are kept.
        check: Whether to raise if the exit code is not 0, or the output has more than *output_limit* bytes. If false,
            the rest of the output is dropped.

    Raises:
        ProgramFailed: See *check*; a `subprocess.CalledProcessError` whose message ends with the last lines of standard
            error. For a tool with an effect, the step is then ``unknown``: the program may have had a part of it.
        ToolError: The program cannot be started, or cannot be given such a text.
        ContractError: *command* is no list, or this system has no process groups.
    """
    words = _checked(command)
    output, errors = bytearray(), bytearray()
    with ExitStack() as ours:
        process, feed, reading, scolding = await _start(words, cwd, env, ours)
        on_excess = partial(_kill, process) if check else _go_on
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_feed, feed, input.encode() if isinstance(input, str) else input)
                tasks.start_soon(_keep, reading, output, output_limit, on_excess)
                tasks.start_soon(_keep_last, scolding, errors)
                await process.wait()
                _kill(process)  # its children, which may hold the pipes open
                tasks.cancel_scope.deadline = anyio.current_time() + _REST_SECONDS
        finally:
            if process.returncode is None:
                _kill(process)
            with anyio.CancelScope(shield=True):
                await process.wait()
    assert process.returncode is not None
    done = subprocess.CompletedProcess(words, process.returncode, bytes(output[:output_limit]), bytes(errors))
    if check and len(output) > output_limit:
        raise ProgramFailed(done, f"wrote more than {output_limit} bytes")
    if check and done.returncode:
        raise ProgramFailed(done, end_of(done.returncode))
    return done


def _checked(command: Sequence[str | os.PathLike[str]]) -> list[str]:
    if isinstance(command, str | bytes) or not command:
        raise ContractError(f"a command is a list of texts, such as ['ls', '-l'], not {shorten(repr(command), 80)}")
    if not hasattr(os, "killpg"):
        raise ContractError("run_program needs process groups, which this system does not have")
    words = [os.fspath(word) for word in command]
    for word in words:
        try:
            if b"\0" not in os.fsencode(word):
                continue
        except UnicodeEncodeError:
            pass
        raise ToolError(f"no program can be given the text {shorten(repr(word), 80)}")  # uvloop would cut it off
    return words


async def _start(
    words: list[str], cwd: str | os.PathLike[str] | None, env: Mapping[str, str] | None, ours: ExitStack
) -> tuple[Process, FileIO, FileIO, FileIO]:
    """Start a program; return it with our ends of its standard files. Own pipes, as those of asyncio delay `wait`."""
    folder = None if cwd is None else os.fspath(cwd)
    with ExitStack() as theirs:
        files: list[FileIO] = []
        for is_input in (True, False, False):
            reader, writer = (FileIO(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
            own, other = (writer, reader) if is_input else (reader, writer)
            os.set_blocking(own.fileno(), False)
            files += (ours.enter_context(own), theirs.enter_context(other))
        feed, stdin, reading, stdout, scolding, stderr = files
        try:
            # Shielded: a cancellation in the middle could lose a program that already runs.
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    command_alone(words, cwd=folder),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    cwd=folder,
                    env=env,
                    start_new_session=True,
                )
        except OSError as error:
            where = "" if folder is None else f" in {shorten(folder)}"
            raise ToolError(f"{shorten(words[0], 60)} cannot be started{where}: {error.strerror}") from error
    return process, feed, reading, scolding


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError, PermissionError):  # it is gone; some systems say so by the second error
        os.killpg(process.pid, signal.SIGKILL)


def _go_on() -> None:
    """Do nothing."""


async def _feed(pipe: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    with pipe, suppress(BrokenPipeError):  # a program need not read all
        while rest:
            await anyio.wait_writable(pipe)
            rest = rest[pipe.write(rest[:_PIECE]) or 0 :]


async def _keep(pipe: FileIO, kept: bytearray, limit: int, on_excess: Callable[[], object]) -> None:
    """Read a pipe to its end, and keep *limit* bytes, and one more if there are more."""
    async for piece in _pieces(pipe):
        is_full = len(kept) > limit
        kept.extend(piece[: limit + 1 - len(kept)])
        if len(kept) > limit and not is_full:
            on_excess()


async def _keep_last(pipe: FileIO, kept: bytearray) -> None:
    async for piece in _pieces(pipe):
        kept.extend(piece)
        del kept[:-_MAX_ERRORS]


async def _pieces(pipe: FileIO) -> AsyncIterator[bytes]:
    while True:
        await anyio.wait_readable(pipe)
        piece = pipe.read(_PIECE)
        if piece:
            yield piece
        elif piece is not None:  # as long as there is nothing to read yet
            return


def end_of(code: int) -> str:
    """Return how a program ended, by its exit code, as the end of a sentence about it."""
    if code >= 0:
        return f"ended with exit code {code}"
    if -code == signal.SIGKILL:
        return "was killed by SIGKILL (as happens when the memory of the machine is full)"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
