"""The request: a call as bytes, made where the run is."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import struct
import sys
import typing
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from dagrun.errors import ValueRefused, shorten
from dagrun.executors.wire.messages import MAX_FILES, framed
from dagrun.kernel.model.contracts.imported_tools import (
    asks_people,
    contract_hash,
    found_tool,
    import_fault,
    is_named,
)
from dagrun.kernel.model.executor import CallFailed, ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.secrets import KEY
from dagrun.kernel.model.tool import Tool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.model.value import Artifact

_HEAD: Final = struct.Struct(">4s16sQQ")  # the version, the id, and the lengths of the facts and the arguments
_VERSION: Final = b"dgw1"
_KNOWN: Final[WeakKeyDictionary[Tool[..., Any], dict[bool, bytes]]] = WeakKeyDictionary()
_ARTIFACT: Final = re.compile(rb'"sha256":"([0-9a-f]{64})"')


class CallRequest:
    """A call on its way. It holds the secrets of the call, and does not show them.

    Attributes:
        id: The id of the call: by it, the other side is told to stop the call, and makes it at most once.
        data: The data to send.
    """

    __slots__ = ("_tool", "data", "id")

    def __init__(self, id: str, tool: str, data: bytes) -> None:
        self.id = id
        self.data = data
        self._tool = tool

    def __repr__(self) -> str:
        return f"<CallRequest {self.id} of {self._tool}, {len(self.data)} bytes>"


async def request(call: ToolCall, *, is_child: bool = False, shares_files: bool = True) -> CallRequest:
    """Return the request of a call, which `serve` or a `CallServer` answers elsewhere.

    Args:
        call: The call.
        is_child: Whether it goes to a child process of this one, on this machine. A child gets our module search path,
            and a copy of a function that is defined in the program itself.
        shares_files: Whether the folder of artifacts is there, too, at the same path. If not, artifacts among the
            arguments travel with the request, and those that the call saves with its answer, 16 MiB each way.

    Raises:
        CallFailed: The call cannot be carried there: see `refusal_of`; or its artifacts are too large. Nothing has
            happened.
    """
    try:
        if not call.objects and (shares_files or not _ARTIFACT.search(call.data)):
            return _request(call, is_child, shares_files)
        from anyio import to_thread  # here: files are written or read first, which takes its time

        return await to_thread.run_sync(_request, call, is_child, shares_files)
    except ValueRefused as error:
        text = shorten(f"{call.tool.name}: {error}", 500)
        raise CallFailed(Failure(ErrorKind.BAD_ARGUMENTS, text, nothing_happened=True)) from error


def _request(call: ToolCall, is_child: bool, shares_files: bool) -> CallRequest:
    tool, data = call.tool, call.data
    facts: dict[str, Any] = {"output_limit": call.output_limit, "grace": call.grace, "shares_files": shares_files}
    if tool.arguments.context is not None:
        facts["context"] = _context_facts(call.context(), shares_files)
    if tool.arguments.secrets and (revealed := _secrets(call)):
        facts["secrets"] = revealed
    if call.headers is not None:
        facts["headers"] = dict(call.headers)
    if call.objects or tool.output.has_frames:
        from dagrun.features.frame_files import with_files

        context = call.context()
        facts["frames"] = {"folder": _folder(context, shares_files), "call": f"{context.step}#{context.attempt}"}
        data = with_files(data, call.objects, context.artifacts)
    files = b"" if shares_files else _files_in(data, call)
    parts = (
        _facts_of(tool, is_child),
        _path_fact(tuple(search_path())) if is_child else b"",
        json.dumps(facts).encode()[1:],
    )
    head, id = b",".join(filter(None, parts)), os.urandom(8).hex()
    return CallRequest(id, tool.name, _HEAD.pack(_VERSION, id.encode(), len(head), len(data)) + head + data + files)


def id_of(data: bytes) -> str:
    """Return the id of the call of a request.

    Raises:
        ValueError: It is no request, or one of another version of dagrun.
    """
    if len(data) < _HEAD.size or data[:4] != _VERSION:
        raise ValueError("not a request of this version of dagrun")
    return data[4:20].decode("ascii", "replace")


def read_request(data: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Return the facts of a request, its arguments as JSON text, and the files that travel with it.

    Raises:
        ValueError: It is no request, or one of another version of dagrun.
    """
    id_of(data)
    _, _, facts, arguments = _HEAD.unpack_from(data)
    begin, end = _HEAD.size + facts, _HEAD.size + facts + arguments
    try:
        return json.loads(data[_HEAD.size : begin]), data[begin:end], data[end:]
    except ValueError:  # its traceback would hold the text, with the secrets
        raise ValueError("not a request: its facts are no JSON") from None


def refusal_of(tool: Tool[..., Any]) -> str | None:
    """Return why *tool* can be called only in this process and its children; `None` if it can be called elsewhere.

    It is what an executor over this wire form answers to `accepts`, so that a check refuses the step.
    """
    name = tool.name
    if fault := import_fault(tool, is_child=False):
        return f"no other place can import {name}: {fault}"
    if tool.arguments.deps or tool.arguments.context_deps is not None:
        wanted = min(tool.arguments.deps, default=f"{tool.arguments.context}.deps")
        return f"{wanted}, an object of the host, does not reach another place"
    if tool.output.has_objects or tool.arguments.objects:
        return f"{name} takes or returns objects in memory, which do not reach another place"
    if asks_people(tool):
        return f"{name} asks people, and its question does not reach them from another place"
    if tool.inner_tools:
        return f"{name} calls other tools by itself, for which its run must be asked; no other place can ask it"
    return None


def copied_function(tool: Tool[..., Any]) -> str:
    """Return a copy of the function of a tool that no process can import, for a child of this process alone.

    Raises:
        ValueRefused: cloudpickle is not installed; or the function holds something that cannot be copied.
    """
    try:
        from dagrun.executors.wire.function_copies import copy_of

        # Its annotations may be texts, and the names in them are not in the copy.
        hints = typing.get_type_hints(tool.function, include_extras=True)
        return base64.b64encode(copy_of((tool.function, hints))).decode()
    except Exception as error:  # whatever the things raise that the function refers to
        reason = shorten(f"{type(error).__name__}: {error}")
        text = f"{tool.name} is defined in the program itself, and cannot be copied into a worker process ({reason})"
        raise ValueRefused(f"{text}; move it to a module") from error


def search_path() -> list[str]:
    """Return the module search path of this process, in a form that another process can use."""
    return [str(entry) or os.getcwd() for entry in sys.path]


def _facts_of(tool: Tool[..., Any], is_child: bool) -> bytes:
    """Return the constant part of all calls of *tool*, as JSON without its end; computed once."""
    known = _KNOWN.setdefault(tool, {})
    if is_child not in known:
        if not is_child and (reason := refusal_of(tool)) is not None:
            raise ValueRefused(reason)
        effect = str(tool.effect)
        facts: dict[str, Any] = {"tool": tool.name, "target": tool.import_name, "effect": effect}
        if is_child and tool.function.__module__ == "__main__":
            return json.dumps({**facts, "function": copied_function(tool)}).encode()[:-1]  # its globals may change
        facts["is_named"] = is_named(tool)
        found = tool if facts["is_named"] else found_tool(tool.function, tool.name, effect, is_named=False)
        known[is_child] = json.dumps({**facts, "contract": contract_hash(found)}).encode()[:-1]
    return known[is_child]


@functools.lru_cache(maxsize=4)
def _path_fact(path: tuple[str, ...]) -> bytes:
    """Return a module search path as a part of the facts."""
    return b'"path":' + json.dumps(path).encode()


def _folder(context: ToolContext, shares_files: bool) -> str:
    folder = getattr(context.artifacts, "folder", None)
    if folder is None or not shares_files:
        raise ValueRefused("frames get to a worker process as files, and this store of artifacts has no folder there")
    return str(folder)


def _files_in(data: bytes, call: ToolCall) -> bytes:
    """Return the artifacts that the arguments name, one after another."""
    found, left = [], MAX_FILES
    for name in sorted(set(_ARTIFACT.findall(data))):
        try:
            path = call.context().artifacts.path(Artifact(sha256=name.decode()))
        except FileNotFoundError:
            continue  # a text that looks like one
        content = path.read_bytes() if path.stat().st_size <= left else None
        if content is None:
            text = f"the artifacts among the arguments of {call.tool.name} take over {MAX_FILES >> 20} MiB"
            raise ValueRefused(f"{text}, which needs a folder that both places share")
        left -= len(content)
        found.append(framed(content))
    return b"".join(found)


def _secrets(call: ToolCall) -> Mapping[str, str]:
    """Return the secrets of the call, by name: the arguments themselves hold only handles."""
    wanted = call.tool.arguments.secrets & call.arguments.keys()
    if not wanted:
        return {}
    handles = call.tool.arguments.parse(call.data)
    return {handles[name][KEY]: call.arguments[name].get_secret_value() for name in wanted if handles[name] is not None}


def _context_facts(context: ToolContext, shares_files: bool) -> Mapping[str, Any]:
    folder = getattr(context.artifacts, "folder", None) if shares_files else None
    return {
        "run_id": context.run_id,
        "step": context.step,
        "attempt": context.attempt,
        "idempotency_key": context.idempotency_key,
        "seconds_left": context.seconds_left,
        "artifacts": None if folder is None else str(folder),
        "expected_output": context.expected_output,
    }
