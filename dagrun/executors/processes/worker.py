"""The program of a worker process: it serves the calls of its executor until the executor is gone.

It imports the tool by name and reads JSON. Only a function of the host program itself, or of its notebook, cannot be
imported: the host pickles it for this process, which is its own child. The host never unpickles anything.

Its arguments are the number of its socket, and the most bytes of memory that it may use (0 for no limit). The output
that tools print goes to the standard error.
"""

from __future__ import annotations

import base64
import functools
import inspect
import io
import json
import logging
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from pydantic import ValidationError

from dagrun.decide.classify import classify
from dagrun.decide.exception_text import with_error
from dagrun.errors import ValueRefused, shorten
from dagrun.executors.processes import frames
from dagrun.model.codec.type_codecs import codec_of
from dagrun.model.contracts.held_objects import HeldObjects, tokens_in
from dagrun.model.executor import plain_result
from dagrun.model.outcome import ErrorKind, Failure
from dagrun.model.redaction.logs import RedactingLogger
from dagrun.model.redaction.redactor import Redactor
from dagrun.model.secrets.secret import KEY, NO_SECRETS, Secrets
from dagrun.model.signature import explain
from dagrun.model.tool import Tool, make_tool
from dagrun.model.tool_context import ToolContext
from dagrun.model.toolbox import import_target
from dagrun.model.value import to_json
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.frame_files import FramesInFiles, write_frame

MAX_TEXT: Final = 1000  # of a progress message

_LOG: Final = logging.getLogger("dagrun.tool")
_FAILURES: Final = codec_of(Failure)


class Channel:
    """The socket to the executor.

    Args:
        descriptor: The number of the socket; programs that a tool starts do not inherit it.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor: int | None = descriptor
        self._incoming = io.BufferedReader(io.FileIO(descriptor, closefd=False))
        self._lock = threading.Lock()
        # A forked child that kept the socket would hide the death of this process from the executor.
        os.register_at_fork(after_in_child=self._release)

    def receive(self) -> tuple[bytes, bytes] | None:
        """Return the next frame; `None` when the executor is gone."""
        header = self._incoming.read(frames.HEADER.size)
        if len(header) < frames.HEADER.size:
            return None
        kind, size = frames.HEADER.unpack(header)
        data = self._incoming.read(size)
        return (kind, data) if len(data) == size else None

    def send(self, kind: bytes, data: bytes = b"") -> None:
        """Send one frame; may be called in any thread."""
        with self._lock:
            if self._descriptor is None:
                raise OSError("a forked child has no executor")
            left = memoryview(frames.frame(kind, data))
            while left:
                left = left[os.write(self._descriptor, left) :]

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None
        self._lock = threading.Lock()  # another thread may have held the old lock at the fork


def main() -> None:
    """Serve calls until the executor closes the socket; never return."""
    channel = Channel(int(sys.argv[1]))
    _redirect_prints()
    calls: SimpleQueue[tuple[bytes, bytes]] = SimpleQueue()
    threading.stack_size(256 * 1024)
    threading.Thread(target=_listen, args=(channel, calls), daemon=True).start()
    threading.stack_size(0)
    _limit_memory(int(sys.argv[2]))
    while True:
        channel.send(*_serve(*calls.get(), channel))
        _flush()


def _listen(channel: Channel, calls: SimpleQueue[tuple[bytes, bytes]]) -> None:
    """Receive calls, also while a tool runs, so that this process ends as soon as the executor is gone."""
    try:
        while (call := channel.receive()) and (arguments := channel.receive()):
            calls.put((call[1], arguments[1]))
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # the children of the tool too
        os._exit(1)


def _serve(request: bytes, data: bytes, channel: Channel) -> tuple[bytes, bytes]:
    """Make one call, and return the frame that answers it."""
    facts: Mapping[str, Any] = json.loads(request)
    redactor = Redactor(Secrets(facts["secrets"]) if facts["secrets"] else NO_SECRETS)
    try:
        tool = _find(facts)
        arguments = _parsed(tool, facts, data)
        for name in tool.arguments.secrets & arguments.keys():
            if arguments[name] is not None:
                arguments[name] = redactor.secrets.reveal(tool.name, arguments[name][KEY])
    except ValidationError as error:
        return _failed(Failure(ErrorKind.BAD_ARGUMENTS, explain(error), nothing_happened=True), channel)
    except BaseException as error:  # noqa: BLE001  (a module may raise anything while it is imported)
        text = f"a worker process cannot import {facts['target']}: {type(error).__name__}: {error}"
        failure = Failure(ErrorKind.EXCEPTION, shorten(text), type(error).__name__, nothing_happened=True)
        return _failed(redactor.failure(with_error(failure, error)), channel)
    if tool.arguments.context is not None:
        arguments[tool.arguments.context] = _context(facts["context"], channel, redactor)
    channel.send(frames.BEGUN)
    try:
        with _within_trace(facts["headers"]):
            value = _run(tool, arguments)
        return frames.VALUE, _encoded(tool, value, facts)
    except BaseException as error:  # noqa: BLE001  (a SystemExit is the failure of this call, as in the other executors)
        return _failed(redactor.failure(classify(error, tool, redactor)), channel)


def _find(facts: Mapping[str, Any]) -> Tool[..., Any]:
    sys.path[:] = facts["path"]
    if facts["function"] is not None:
        return _copied_tool(facts["function"], facts["tool"], facts["effect"])
    return _load_tool(facts["target"], facts["tool"], facts["effect"])


@functools.cache
def _load_tool(target: str, name: str, effect: str) -> Tool[..., Any]:
    value = import_target(target)
    # In the module, the name stands for the tool, or for a function of which a tool was made under another name.
    return make_tool(value.function if isinstance(value, Tool) else value, name=name, effect=effect, executor="process")


@functools.lru_cache(maxsize=100)
def _copied_tool(function: str, name: str, effect: str) -> Tool[..., Any]:
    """Make a tool of a function that the host program has copied for this process."""
    copied, hints = pickle.loads(base64.b64decode(function))  # sent by the parent of this process alone
    copied.__annotations__ = hints
    return make_tool(copied, name=name, effect=effect, executor="process")


@contextmanager
def _within_trace(headers: Mapping[str, str] | None) -> Iterator[None]:
    """Make the span of the call the current one, if the tool has loaded OpenTelemetry; else nobody would look."""
    if not headers or "opentelemetry" not in sys.modules:
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    token = context.attach(TraceContextTextMapPropagator().extract(headers))
    try:
        yield
    finally:
        context.detach(token)


def _run(tool: Tool[..., Any], arguments: dict[str, Any]) -> object:
    if not inspect.iscoroutinefunction(tool.function):
        return plain_result(tool.function(**arguments))
    import anyio  # imported only here: most tools are plain functions, and start faster without it

    return anyio.run(functools.partial(tool.function, **arguments))


def _parsed(tool: Tool[..., Any], facts: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the arguments; frames come as files, which their tokens name."""
    if facts["frames"] is None:
        return tool.arguments.parse(data)
    named = json.loads(data)
    tokens = {name: list(tokens_in(value)) for name, value in named.items()}
    inside = FramesInFiles([token for found in tokens.values() for token in found], _frame_folder(facts))
    given = frozenset(tool.arguments.names.get(name, "") for name, found in tokens.items() if found)
    return tool.arguments.parse_with(data, dict(inside), given)


def _frame_folder(facts: Mapping[str, Any]) -> ArtifactFolder:
    return ArtifactFolder(Path(facts["frames"]["folder"]))


def _encoded(tool: Tool[..., Any], value: object, facts: Mapping[str, Any]) -> bytes:
    limit, hold = facts["output_limit"], tool.output.hold
    if hold is None:
        return to_json(tool.output.encode(value, limit))
    folder = _frame_folder(facts)
    stored = hold(value, facts["frames"]["call"], limit, lambda frame: write_frame(frame, folder))
    if type(stored) is HeldObjects and not stored.is_filed:
        raise ValueRefused("what it returned cannot be written to a file as it is, so it cannot leave a worker process")
    return to_json(stored)


def _failed(failure: Failure, channel: Channel) -> tuple[bytes, bytes]:
    trace = failure.traceback.encode("utf-8", "backslashreplace")
    if trace:
        channel.send(frames.TRACEBACK, trace[-frames.MAX_TRACEBACK :])  # the end of it names the exception
    return frames.FAILURE, _FAILURES.write(failure)


def _context(facts: Mapping[str, Any], channel: Channel, redactor: Redactor) -> ToolContext:
    def report(kind: str, reported: Mapping[str, Any]) -> None:
        short = {
            key: redactor.text(value)[:MAX_TEXT] if isinstance(value, str) else value for key, value in reported.items()
        }
        channel.send(frames.REPORT, json.dumps({"kind": kind, "facts": short}).encode())

    seconds_left = facts["seconds_left"]
    folder = facts["artifacts"]
    return ToolContext(
        run_id=facts["run_id"],
        step=facts["step"],
        attempt=facts["attempt"],
        idempotency_key=facts["idempotency_key"],
        deadline=None if seconds_left is None else time.monotonic() + seconds_left,
        logger=logging.LoggerAdapter(
            RedactingLogger(_LOG, redactor), {"run_id": facts["run_id"], "step": facts["step"]}
        ),
        artifacts=ArtifactFolder(None if folder is None else Path(folder)),
        report=report,
        clock=time.monotonic,
    )


def _redirect_prints() -> None:
    """Redirect printed output to the standard error, because the standard output belongs to the host program."""
    try:
        os.dup2(2, 1)
    except OSError:  # the host has closed its standard error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the tool has closed or replaced it
            continue


def _limit_memory(max_memory: int) -> None:
    if max_memory:
        import resource  # some systems lack it

        resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))


if __name__ == "__main__":
    main()
