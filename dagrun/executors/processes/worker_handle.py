"""One worker process, as its executor sees it."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import Process, UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from dagrun.errors import ValueRefused, shorten
from dagrun.executors.processes import frames
from dagrun.model.codec.type_codecs import codec_of
from dagrun.model.executor import CallFailed, ResultRefused, StillRunning, ToolCall, WorkerDied
from dagrun.model.outcome import Failure
from dagrun.model.secrets.secret import KEY
from dagrun.model.tool import Tool
from dagrun.model.tool_context import ToolContext
from dagrun.runtime.frame_files import with_files

# The program of the process. It gets the module search path of this process as an argument, and does not search its
# working directory unless this process does. An environment variable would be inherited by every program that a tool
# starts.
_ENTRY: Final = (
    "import sys; sys.path[:] = sys.argv.pop().split({!r}); from dagrun.executors.processes.worker import main; main()"
)
_EXIT_SECONDS: Final = 1.0  # to wait for the exit code of a process that has closed its socket
_FAILURES: Final = codec_of(Failure)
_CLOSED: Final = (anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


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
        self._incoming = BufferedByteReceiveStream(stream)
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
                    command + arguments,
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

    async def ask(self, call: ToolCall, request: bytes, on_begin: Callable[[], object] = _nothing) -> bytes:
        """Send *call* to the process, and return the value of the tool as JSON text.

        Args:
            call: The call.
            request: What `request_of` has made of it.
            on_begin: Called when the process enters the function.

        Raises:
            CallFailed: The call failed; the process can be used again.
            NeverBegan: The process ended before it entered the function.
            ResultRefused: The answer is too large.
            WorkerDied: The process ended after it had entered the function, or it sent an invalid frame.
        """
        has_begun, trace = False, ""
        try:
            await self._stream.send(request)
            while True:
                kind, data = await self._receive(call)
                match kind:
                    case frames.BEGUN:
                        has_begun = True
                        on_begin()
                    case frames.REPORT:
                        _pass_on(data, call.context())
                    case frames.VALUE:
                        return data
                    case frames.FAILURE:
                        raise CallFailed(_failure(data, trace))
                    case frames.TRACEBACK:
                        trace = data.decode("utf-8", "ignore")
                    case _:
                        raise ValueError(f"a frame of kind {kind!r}")
        except _CLOSED as error:
            text = f"the worker process of {call.tool.name} {await self._ending()}"
            if has_begun:
                raise WorkerDied(f"{text}, without an answer") from error
            raise NeverBegan(f"{text}, before it entered the function") from error
        except ValueError as error:
            raise WorkerDied(f"the worker process of {call.tool.name} talked nonsense") from error

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

    async def _receive(self, call: ToolCall) -> tuple[bytes, bytes]:
        kind, size = frames.HEADER.unpack(await self._incoming.receive_exactly(frames.HEADER.size))
        limit = call.output_limit if kind == frames.VALUE else frames.MAX_NOTE
        if size > limit:
            raise ResultRefused(f"the worker process wants to answer with {size} bytes, the ceiling is {limit}")
        return kind, await self._incoming.receive_exactly(size)

    async def _ending(self) -> str:
        with anyio.move_on_after(_EXIT_SECONDS):
            await self._process.wait()
        match self._process.returncode:
            case None:
                return "hung up"
            case code if code >= 0:
                return f"ended with exit code {code}"
            case code if -code == signal.SIGKILL:
                return "was killed by SIGKILL (as happens when the memory of the machine is full)"
            case code:
                return f"was killed by {_signal_name(-code)}"


def _failure(data: bytes, trace: str) -> Failure:
    text = data.decode()
    failure, end = _FAILURES.read(text, 0)
    if end != len(text) or not isinstance(failure, Failure):
        raise ValueError("more than a failure")
    return replace(failure, render=partial(str, trace)) if trace else failure


def search_path() -> list[str]:
    """Return the module search path of this process, in a form that another process can use."""
    return [str(entry) or os.getcwd() for entry in sys.path]


def request_of(call: ToolCall) -> bytes:
    """Return what is sent to a process for a call."""
    facts = {
        "tool": call.tool.name,
        "target": call.tool.import_name,
        "effect": str(call.tool.effect),
        "output_limit": call.output_limit,
        "path": search_path(),
        "context": None if call.tool.arguments.context is None else _context_facts(call.context()),
        "secrets": _secrets(call),
        "headers": None if call.headers is None else dict(call.headers),
        "frames": None,
        "function": pickled_function(call.tool) if call.tool.function.__module__ == "__main__" else None,
    }
    data = call.data
    if call.objects or call.tool.output.has_frames:
        context = call.context()
        facts["frames"] = {"folder": _folder(context), "call": f"{context.step}#{context.attempt}"}
        data = with_files(data, call.objects, context.artifacts)
    return frames.frame(frames.CALL, json.dumps(facts).encode()) + frames.frame(frames.ARGUMENTS, data)


def pickled_function(tool: Tool[..., Any]) -> str:
    """Return a copy of the function of a tool that no process can import, for a child of this process alone.

    Raises:
        ValueRefused: cloudpickle is not installed; or the function holds something that cannot be copied.
    """
    try:
        from dagrun.executors.processes.function_copies import copy_of

        # Its annotations may be texts, and the names in them are not in the copy.
        hints = typing.get_type_hints(tool.function, include_extras=True)
        return base64.b64encode(copy_of((tool.function, hints))).decode()
    except Exception as error:  # whatever the things raise that the function refers to
        reason = shorten(f"{type(error).__name__}: {error}")
        text = f"{tool.name} is defined in the program itself, and cannot be copied into a worker process ({reason})"
        raise ValueRefused(f"{text}; move it to a module") from error


def _folder(context: ToolContext) -> str:
    folder = getattr(context.artifacts, "folder", None)
    if folder is None:
        raise ValueRefused("frames get to a worker process as files, and this store of artifacts has no folder")
    return str(folder)


def _secrets(call: ToolCall) -> Mapping[str, str]:
    """Return the secrets of the call, by name: the arguments themselves hold only handles."""
    wanted = call.tool.arguments.secrets & call.arguments.keys()
    if not wanted:
        return {}
    handles = call.tool.arguments.parse(call.data)
    return {handles[name][KEY]: call.arguments[name].get_secret_value() for name in wanted if handles[name] is not None}


def _context_facts(context: ToolContext) -> Mapping[str, Any]:
    folder = getattr(context.artifacts, "folder", None)  # other stores do not work across processes
    return {
        "run_id": context.run_id,
        "step": context.step,
        "attempt": context.attempt,
        "idempotency_key": context.idempotency_key,
        "seconds_left": context.seconds_left,
        "artifacts": None if folder is None else str(folder),
    }


def _pass_on(data: bytes, context: ToolContext) -> None:
    """Pass a report of the tool to its context. It is checked again, because figures count against ceilings."""
    match json.loads(data):
        case {"kind": "progress", "facts": {"fraction": int() | float() | None as done, "message": str() as message}}:
            context.progress(done, message)
        case {"kind": "usage", "facts": {"tokens": int() as tokens, "cost": int() | float() | None as cost}}:
            context.report_usage(tokens=tokens, cost=cost)
        case {"kind": "confidence", "facts": {"confidence": int() | float() as confidence}}:
            context.report_confidence(confidence)
        case _:
            raise ValueError("a report of an unknown kind")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
