"""The call itself, made on the other side: a request becomes the answer."""

from __future__ import annotations

import base64
import functools
import inspect
import json
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dagrun.codec import codec_of
from dagrun.errors import ContractError, ValueRefused, shorten
from dagrun.executors.wire import messages
from dagrun.executors.wire.messages import MAX_FILES, framed, parts_of
from dagrun.executors.wire.requests import read_request
from dagrun.features.frame_files import FramesInFiles, write_frame
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.decide.exception_text import with_error
from dagrun.kernel.model.contracts.held_objects import HeldObjects, tokens_in
from dagrun.kernel.model.contracts.imported_tools import contract_hash, found_tool
from dagrun.kernel.model.executor import plain_result
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.redaction.redactor import RedactingLogger, Redactor
from dagrun.kernel.model.secrets import KEY, NO_SECRETS, Secrets
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.tool import Tool, import_target, make_tool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.value import Artifact, to_json
from dagrun.kernel.runtime.artifacts import ArtifactFolder

_LOG: Final = logging.getLogger("dagrun.tool")
_FAILURES: Final = codec_of(Failure)

Send = Callable[[bytes], object]


class _Sending:
    """A lock around sending reports: no two at once, and none after the answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.Lock()  # another thread may have held the old one at the fork


_SENDING: Final = _Sending()


def serve(request: bytes, send: Send) -> bytes:
    """Make the call of a request in this thread, and return the answer: for a child process of the run.

    An async function runs in an event loop of its own. Everywhere else, a `CallServer` makes the calls.

    Args:
        request: The data of a `CallRequest`.
        send: Sends a message to the other side. Threads of the tool may call it, but one at a time, and never after
            this function has returned.
    """
    try:
        call = IncomingCall(request, send, is_child=True)
    except BadRequest as bad:
        return bad.answer
    send(messages.BEGUN)
    try:
        with call.within_trace():
            value = _result_of(call.tool, call.arguments)
        return call.answer(value)
    except BaseException as error:  # noqa: BLE001  (a SystemExit is the failure of this call, as in the other executors)
        return call.failed(error)
    finally:
        call.close()


def is_warm(request: bytes) -> bool:
    """Whether a call can be read without importing a module or writing a file, which would hold up a loop."""
    try:
        facts, _, files = read_request(request)
    except ValueError:
        return True
    return not files and facts["target"].partition(":")[0] in sys.modules


class BadRequest(Exception):
    """The call cannot be made here: nothing has happened.

    Attributes:
        answer: The answer that says so.
    """

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer


class _OtherContract(Exception):
    """The tool was found, and is not the one of the run."""


class IncomingCall:
    """A call that has arrived.

    Args:
        request: The data of a `CallRequest`.
        send: Sends a message to the other side; no two threads call it at once.
        is_child: Whether the request comes from the parent of this process, which may send functions and its own path.

    Attributes:
        tool: The tool, found in this process.
        arguments: Its keyword arguments, including secrets and the context.
        data: Its arguments as JSON text.
        grace: Seconds that it may take to end when it was told to stop.
        output_limit: The most bytes of JSON that it may return.

    Raises:
        BadRequest: The tool cannot be imported here, has another contract, or does not take the arguments.
    """

    def __init__(self, request: bytes, send: Send, *, is_child: bool) -> None:
        self._send = send
        self._is_over = False
        self._redactor = Redactor(NO_SECRETS)
        self._facts: Mapping[str, Any] = {"target": "a tool"}
        try:
            self._facts, self.data, files = read_request(request)
            if secrets := self._facts.get("secrets"):
                self._redactor = Redactor(Secrets(secrets))
            self.tool = _find(self._facts, is_child=is_child)
            self.grace: float = self._facts["grace"]
            self.output_limit: int = self._facts["output_limit"]
            self._artifacts = self._store(files)
            self.arguments = self._parsed()
            for name in self.tool.arguments.secrets & self.arguments.keys():
                if self.arguments[name] is not None:
                    self.arguments[name] = self._redactor.secrets.reveal(self.tool.name, self.arguments[name][KEY])
        except _OtherContract as error:
            raise BadRequest(_failed(Failure(ErrorKind.EXCEPTION, str(error), nothing_happened=True))) from None
        except ValidationError as error:
            failure = Failure(ErrorKind.BAD_ARGUMENTS, explain(error), nothing_happened=True)
            raise BadRequest(_failed(failure)) from None
        except BaseException as error:  # noqa: BLE001  (a module may raise anything while it is imported)
            text = f"a worker process cannot import {self._facts['target']}: {type(error).__name__}: {error}"
            failure = Failure(ErrorKind.EXCEPTION, shorten(text), type(error).__name__, nothing_happened=True)
            raise BadRequest(_failed(self._redactor.failure(with_error(failure, error)))) from None
        if self.tool.arguments.context is not None:
            self.arguments[self.tool.arguments.context] = self.context()

    def context(self) -> ToolContext:
        """Return the context of the call."""
        facts = self._facts.get("context", _NO_CONTEXT)
        seconds_left = facts["seconds_left"]
        logger = RedactingLogger(_LOG, self._redactor)
        return ToolContext(
            run_id=facts["run_id"],
            step=facts["step"],
            attempt=facts["attempt"],
            idempotency_key=facts["idempotency_key"],
            deadline=None if seconds_left is None else time.monotonic() + seconds_left,
            logger=logging.LoggerAdapter(logger, {"run_id": facts["run_id"], "step": facts["step"]}),
            artifacts=self._artifacts,
            report=self._report,
            clock=time.monotonic,
            expected_output=facts["expected_output"],
        )

    def answer(self, value: object) -> bytes:
        """Return the answer with the value that the function returned.

        Raises:
            ValueRefused: The value is not JSON, is too large, or cannot leave this process.
        """
        output = self.tool.output
        if output.hold is not None:
            return messages.VALUE + self._with_frames(value)
        data = to_json(output.encode(value, self.output_limit))
        if isinstance(self._artifacts, _CarriedArtifacts) and (files := self._artifacts.saved()):
            return messages.VALUE_WITH_FILES + b"".join(map(framed, (data, *files)))
        return messages.VALUE + data

    def failed(self, error: BaseException) -> bytes:
        """Return the answer with the error that the function raised."""
        return _failed(self._redactor.failure(classify(error, self.tool, self._redactor)))

    def close(self) -> None:
        """Send nothing more: a thread that the tool has left behind has no call to report for."""
        with _SENDING.lock:
            self._is_over = True

    @contextmanager
    def within_trace(self) -> Iterator[None]:
        """Make the span of the call the current one, if the tool has loaded OpenTelemetry."""
        headers = self._facts.get("headers")
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

    def _store(self, files: bytes) -> ArtifactFolder:
        """Return the store of artifacts: the folder that is shared, or one with the artifacts that came along."""
        facts = self._facts.get("context")
        if self._facts["shares_files"]:
            folder = None if facts is None else facts["artifacts"]
            return ArtifactFolder(None if folder is None else Path(folder))
        store = _CarriedArtifacts()
        for content in parts_of(files):
            ArtifactFolder.save(store, content)  # the run has it: it does not travel back
        return store

    def _parsed(self) -> dict[str, Any]:
        """Return the arguments; frames come as files, which their tokens name."""
        arguments, data = self.tool.arguments, self.data
        if "frames" not in self._facts:
            return arguments.parse(data)
        named = json.loads(data)
        tokens = {name: list(tokens_in(value)) for name, value in named.items()}
        inside = FramesInFiles([token for found in tokens.values() for token in found], self._frame_folder())
        given = frozenset(arguments.names.get(name, "") for name, found in tokens.items() if found)
        return arguments.parse_with(data, dict(inside), given)

    def _with_frames(self, value: object) -> bytes:
        folder, hold = self._frame_folder(), self.tool.output.hold
        assert hold is not None
        stored = hold(value, self._facts["frames"]["call"], self.output_limit, lambda frame: write_frame(frame, folder))
        if type(stored) is HeldObjects and not stored.is_filed:
            text = "what it returned cannot be written to a file as it is, so it cannot leave a worker process"
            raise ValueRefused(text)
        return to_json(stored)

    def _frame_folder(self) -> ArtifactFolder:
        return ArtifactFolder(Path(self._facts["frames"]["folder"]))

    def _report(self, kind: str, reported: Mapping[str, Any]) -> None:
        short = {
            key: self._redactor.text(value)[: messages.MAX_TEXT] if isinstance(value, str) else value
            for key, value in reported.items()
        }
        message = messages.REPORT + json.dumps({"kind": kind, "facts": short}).encode()
        with _SENDING.lock:
            if not self._is_over:
                self._send(message)


_NO_CONTEXT: Final[Mapping[str, Any]] = {
    "run_id": "",
    "step": "",
    "attempt": 1,
    "idempotency_key": "",
    "seconds_left": None,
    "expected_output": "",
}


class _CarriedArtifacts(ArtifactFolder):
    """A temporary folder, for a place that shares none with the run: saved files travel with the answer."""

    def __init__(self) -> None:
        super().__init__()
        self._size = 0
        self._names: dict[str, None] = {}

    def save(
        self, data: bytes | str | Path, *, media_type: str = "application/octet-stream", name: str = ""
    ) -> Artifact:
        """Keep *data* for the answer.

        Raises:
            ValueRefused: The artifacts of the call are too large to travel.
        """
        artifact = super().save(data, media_type=media_type, name=name)
        if artifact.sha256 not in self._names:
            self._size += artifact.size
            self._names[artifact.sha256] = None
        if self._size > MAX_FILES:
            text = f"the artifacts that it saved take over {MAX_FILES >> 20} MiB"
            raise ValueRefused(f"{text}, which needs a folder that both places share")
        return artifact

    def saved(self) -> list[bytes]:
        """Return the files for the answer."""
        return [(self.folder / name).read_bytes() for name in self._names]


def _result_of(tool: Tool[..., Any], arguments: dict[str, Any]) -> object:
    if not inspect.iscoroutinefunction(tool.function):
        return plain_result(tool.function(**arguments))
    import anyio  # imported only here: most tools are plain functions, and start faster without it

    return anyio.run(functools.partial(tool.function, **arguments))


def refused(text: str, *, nothing_happened: bool = False) -> bytes:
    """Return the answer to a request that cannot be served; without *nothing_happened*, an effect stays unresolved."""
    return _failed(Failure(ErrorKind.WORKER_DIED, text, is_transient=True, nothing_happened=nothing_happened))


def _failed(failure: Failure) -> bytes:
    trace = failure.traceback.encode("utf-8", "backslashreplace")[-messages.MAX_TRACEBACK :]  # it ends in the exception
    return messages.FAILURE + _FAILURES.write(failure) + trace.decode("utf-8", "ignore").encode()


# The tool -------------------------------------------------------------------------------------------------------------


def _find(facts: Mapping[str, Any], *, is_child: bool) -> Tool[..., Any]:
    if "path" in facts:
        if not is_child:
            raise ContractError("the request is for a child process of the run alone")
        sys.path[:] = facts["path"]
    if "function" in facts and is_child:
        return _copied_tool(facts["function"], facts["tool"], facts["effect"])
    tool = _load_tool(facts["target"], facts["tool"], facts["effect"], facts["is_named"])
    if contract_hash(tool) != facts["contract"]:
        what = "name, effect, version, arguments or output differ"
        raise _OtherContract(f"{facts['tool']} has another contract here than in the run ({what}); deploy one version")
    return tool


@functools.cache
def _load_tool(target: str, name: str, effect: str, is_named: bool) -> Tool[..., Any]:
    return found_tool(import_target(target), name, effect, is_named=is_named)


@functools.lru_cache(maxsize=100)
def _copied_tool(function: str, name: str, effect: str) -> Tool[..., Any]:
    """Make a tool of a function that the host program has copied for this process."""
    copied, hints = pickle.loads(base64.b64decode(function))  # sent by the parent of this process alone
    copied.__annotations__ = hints
    return make_tool(copied, name=name, effect=effect, executor="process")
