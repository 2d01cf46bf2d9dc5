"""One worker process, as its executor sees it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

import anyio
from anyio.abc import Process, UNIXSocketStream

from dagrun.executors.programs import end_of
from dagrun.executors.wire.answers import accept
from dagrun.executors.wire.messages import MessageStream, has_begun
from dagrun.executors.wire.requests import CallRequest, search_path
from dagrun.kernel.model.executor import Encoded, StillRunning, ToolCall, WorkerDied
from dagrun.kernel.runtime.backend import command_alone

# The program of the process. It gets the module search path of this process as an argument, and does not search its
# working directory unless this process does. An environment variable would be inherited by every program that a tool
# starts.
_ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv.pop().split({!r}); from dagrun.executors.processes.worker import main; main()"
)
_EXIT_SECONDS: Final = 1.0  # to wait for the exit code of a process that has closed its socket
_CLOSED: Final = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


def _nothing() -> None:
    pass


class NeverBegan(Exception):
    """The process ended before it entered the function: nothing has happened."""


class WorkerHandle:
    """A worker process and the socket to it. It is made by `start`, and must be ended by `end`.

    Args:
        process: The leader of its own process group.
        stream: This end of the socket.
    """

    def __init__(self, process: Process, stream: UNIXSocketStream) -> None:
        self._process = process
        self._stream = stream
        self._messages = MessageStream(stream)
        self._is_gone = False

    @classmethod
    async def start(cls, max_memory: int | None) -> WorkerHandle:
        """Start a worker process.

        Args:
            max_memory: Bytes of address space that the process may use; `None` for no limit.
        """
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-P", "-c", _ENTRY.format(os.pathsep)]
        arguments = [str(theirs.fileno()), str(max_memory or 0), os.pathsep.join(search_path())]
        try:
            # Shielded: a cancellation in the middle could lose a process that already runs.
            with anyio.CancelScope(shield=True):
                process = await anyio.open_process(
                    command_alone(command + arguments, keep=[theirs.fileno()]),
                    stdin=subprocess.DEVNULL,
                    stdout=None,
                    stderr=None,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                )
                stream = await UNIXSocketStream.from_socket(ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, stream)

    @property
    def pid(self) -> int:
        """The id of the process, and of its process group."""
        return self._process.pid

    async def ask(self, call: ToolCall, request: CallRequest, on_begin: Callable[[], object] = _nothing) -> Encoded:
        """Send *call* to the process, and return its value.

        Args:
            call: The call.
            request: Its request.
            on_begin: Called when the process enters the function.

        Raises:
            CallFailed: The call failed; the process can be used again.
            NeverBegan: The process ended before it entered the function.
            ResultRefused: The answer is too large.
            WorkerDied: The process ended after it had entered the function, or it sent an invalid message.
        """
        begun, value = False, None
        try:
            await self._messages.send(request.data)
            while value is None:
                message = await self._messages.receive(call)
                if has_begun(message):
                    begun = True
                    on_begin()
                else:
                    value = await accept(message, call)
        except _CLOSED as error:
            text = f"the worker process of {call.tool.name} {await self._ending()}"
            if begun:
                raise WorkerDied(f"{text}, without an answer") from error
            raise NeverBegan(f"{text}, before it entered the function") from error
        return value

    def kill(self) -> None:
        """Kill the process, and all processes of its process group."""
        if self._is_gone:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):  # it is gone; some systems report a zombie by the second error
            return

    async def end(self, seconds: float) -> None:
        """Kill the process, and wait at most *seconds* until it is gone.

        Raises:
            StillRunning: The process is not gone by then.
        """
        self.kill()
        with anyio.move_on_after(seconds, shield=True):
            await self._process.wait()
        with anyio.CancelScope(shield=True):
            await self._stream.aclose()
        if self._process.returncode is None:
            raise StillRunning(f"the worker process {self.pid} was killed and is not gone after {seconds:g} s")
        self._is_gone = True

    async def _ending(self) -> str:
        with anyio.move_on_after(_EXIT_SECONDS):
            await self._process.wait()
        return "hung up" if self._process.returncode is None else end_of(self._process.returncode)
