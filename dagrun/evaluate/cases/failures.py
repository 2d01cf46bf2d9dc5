"""Failures that stubs raise, by their names in files of cases; and recorded failures in these names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dagrun import ToolError
from dagrun.extend import AnyTool, CallFailed, ErrorKind, Failure, WorkerDied, classify


class HttpStatusError(Exception):
    """A service has answered with an HTTP status that is an error.

    Args:
        status_code: The status, from 400 to 599.
        text: What the service says.
    """

    def __init__(self, status_code: int, text: str = "") -> None:
        super().__init__(status_code, text)
        self.status_code = status_code
        self.text = text

    def __str__(self) -> str:
        return self.text or f"the service has answered with status {self.status_code}"


def _exception(text: str) -> Exception:
    """Return an exception with the class named in the text, if it begins with one."""
    name, sign, rest = text.partition(": ")
    if not (sign and name.isidentifier() and name[:1].isupper()):
        return RuntimeError(text or "something is broken")
    named: type[RuntimeError] = type(name, (RuntimeError,), {})
    return named(rest)


def _missing(text: str) -> ToolError:
    return ToolError(f"{text} is missing", missing_input=text or "value")


_MAKERS: Final[Mapping[str, Callable[[str], BaseException]]] = {
    "tool_error": lambda text: ToolError(text or "it cannot be done"),
    "retryable": lambda text: ToolError(text or "it cannot be done now", retryable=True),
    "timeout": lambda text: TimeoutError(text or "the service has not answered in time"),
    "connection": lambda text: ConnectionError(text or "the connection was lost"),
    "permission": lambda text: ToolError(text or "that is not allowed", permission=True),
    "unreachable": lambda text: ToolError(text or "it can no longer be reached", unreachable=True),
    "missing_input": _missing,
    "exception": _exception,
    "dies": lambda text: WorkerDied(text or "the process of the call has died"),
}
WRONG_TYPE: Final = "wrong_type"  # the call returns what the tool does not declare, so nothing is raised
_WHOLE: Final = "failure"  # every field of a failure, where no name says as much
FAILURE_NAMES: Final = (*_MAKERS, WRONG_TYPE, _WHOLE)
# What decides about a failure. Its text and its class are for people, and are not the same in a stand-in.
_FACTS: Final = ("kind", "is_transient", "nothing_happened", "retry_after", "missing_input")
_STATUSES: Final = {ErrorKind.RATE_LIMITED: 429, ErrorKind.SERVER: 503}


def is_failure(said: Any) -> bool:
    """Whether *said* is a failure that `failure_of` can make."""
    if isinstance(said, dict):
        if len(said) != 1:
            return False
        name, text = next(iter(said.items()))
        return _is_whole(text) if name == _WHOLE else is_failure(_status(name)) and isinstance(text, str)
    if isinstance(said, int) and not isinstance(said, bool):
        return 400 <= said <= 599
    return isinstance(said, str) and (said == WRONG_TYPE or said in _MAKERS)


def _is_whole(fields: Any) -> bool:
    if not isinstance(fields, dict) or not fields.keys() <= {*_FACTS, "message", "error"}:
        return False
    return fields.get("kind") in tuple(ErrorKind) and isinstance(fields.get("message"), str)


def _status(name: Any) -> Any:
    """Return the key of a mapping as a status, if it is one: keys of YAML are texts."""
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def failure_of(said: Any) -> BaseException:
    """Make the exception named by *said*.

    Args:
        said: A name such as ``timeout``, an HTTP status, one of both with a text (``{tool_error: gone}``), or a whole
            failure (``{failure: {kind: exception, error: KeyError, message: "'total'"}}``).
    """
    if isinstance(said, dict) and _WHOLE in said:
        fields = said[_WHOLE]
        return CallFailed(Failure(**{**fields, "kind": ErrorKind(fields["kind"])}))
    name, text = next(iter(said.items())) if isinstance(said, dict) else (said, "")
    name = _status(name)
    return HttpStatusError(name, text) if isinstance(name, int) else _MAKERS[name](text)


def said_of(failure: Failure, tool: AnyTool) -> Any:
    """Return a failure of a record as a case has it: `failure_of` makes one of it about which is decided equally.

    Args:
        failure: The failure.
        tool: The tool whose call has failed.
    """
    is_plain = failure.kind is ErrorKind.EXCEPTION  # only its class tells it from others
    text = failure.message if is_plain else failure.message.removeprefix(f"{failure.error}: ")
    text = text.removesuffix(f" ({failure.where.replace(os.sep, '/').rpartition('/')[2]})")
    if failure.missing_input is not None:
        text = failure.missing_input
    names: Iterable[str | int] = (_STATUSES[failure.kind],) if failure.kind in _STATUSES else _MAKERS
    for name in names:
        made = classify(failure_of({str(name): text}), tool)
        if all(getattr(made, fact) == getattr(failure, fact) for fact in _FACTS):
            return {name: text}
    facts = {name: getattr(failure, name) for name in ("message", "error", *_FACTS[1:])}
    told = {name: fact for name, fact in facts.items() if fact not in (None, "", False)}
    return {_WHOLE: {"kind": str(failure.kind), "message": failure.message, **told}}
