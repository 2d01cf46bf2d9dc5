"""Classify exceptions as failures, without importing the libraries that define them."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from dagrun.errors import (
    DagrunError,
    ModelError,
    OverCeiling,
    StepCancelled,
    ToolError,
    ValueRefused,
    class_name,
    shorten,
)
from dagrun.kernel.decide.exception_text import (
    Redact,
    in_words,
    leaves_of,
    name_of,
    only_of,
    place_in_words,
    quietly,
    text_of,
    with_error,
)
from dagrun.kernel.model.executor import CallFailed, ResultRefused, StillRunning, WorkerDied, WorkerLost
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.redaction.redactor import REDACTOR, Redactor
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.tool import Tool

MAX_MESSAGE: Final = 300

_TIMEOUT: Final = (ErrorKind.TIMEOUT, True)
_CONNECTION: Final = (ErrorKind.CONNECTION, True)
_BUSY: Final = (ErrorKind.SERVER, True)
_PERMISSION: Final = (ErrorKind.PERMISSION, False)
_EXCEPTION: Final = (ErrorKind.EXCEPTION, False)
_FORBIDDEN: Final = (ErrorKind.FORBIDDEN_EXCEPTION, False)
_FOREIGN_CANCELLATION: Final = (ErrorKind.FOREIGN_CANCELLATION, False)

# By "package.Class" of an exception, or of its first base class that stands here: the kind, and if it is transient.
_KINDS: Final[Mapping[str, tuple[ErrorKind, bool]]] = {
    "builtins.TimeoutError": _TIMEOUT,
    "builtins.ConnectionError": _CONNECTION,
    "builtins.PermissionError": _PERMISSION,
    "builtins.SystemExit": _FORBIDDEN,
    "builtins.KeyboardInterrupt": _FORBIDDEN,
    "builtins.GeneratorExit": _FORBIDDEN,
    "socket.gaierror": _CONNECTION,
    "urllib.URLError": _CONNECTION,
    "asyncio.CancelledError": _FOREIGN_CANCELLATION,
    "concurrent.CancelledError": _FOREIGN_CANCELLATION,
    "trio.Cancelled": _FOREIGN_CANCELLATION,
    "trio.TooSlowError": _TIMEOUT,
    "httpx.TimeoutException": _TIMEOUT,
    "httpx.TransportError": _CONNECTION,
    "httpx.UnsupportedProtocol": _EXCEPTION,  # a TransportError that a second attempt does not cure, like the next
    "httpx.LocalProtocolError": _EXCEPTION,
    "httpx2.TimeoutException": _TIMEOUT,
    "httpx2.TransportError": _CONNECTION,
    "httpx2.UnsupportedProtocol": _EXCEPTION,
    "httpx2.LocalProtocolError": _EXCEPTION,
    "openai.APITimeoutError": _TIMEOUT,
    "openai.APIConnectionError": _CONNECTION,
    "anthropic.APITimeoutError": _TIMEOUT,
    "anthropic.APIConnectionError": _CONNECTION,
    "requests.Timeout": _TIMEOUT,
    "requests.ConnectionError": _CONNECTION,
    "aiohttp.ClientConnectionError": _CONNECTION,
    **dict.fromkeys(("redis.ConnectionError", "valkey.ConnectionError"), _CONNECTION),
    **dict.fromkeys(("redis.TimeoutError", "valkey.TimeoutError"), _TIMEOUT),
    **dict.fromkeys(("redis.AuthenticationError", "valkey.AuthenticationError"), _PERMISSION),
    **dict.fromkeys(("redis.AuthorizationError", "valkey.AuthorizationError"), _PERMISSION),
    **dict.fromkeys(("redis.TryAgainError", "redis.ClusterDownError", "redis.ReadOnlyError"), _BUSY),
    **dict.fromkeys(("psycopg.OperationalError", "psycopg2.OperationalError"), _CONNECTION),  # without an SQLSTATE
    **dict.fromkeys(("psycopg_pool.PoolTimeout", "sqlalchemy.TimeoutError"), _TIMEOUT),
}
# Classes that say too little by themselves: the same, where the text of the exception holds these words.
_BY_TEXT: Final[Mapping[str, tuple[str, tuple[ErrorKind, bool]]]] = {
    "sqlite3.OperationalError": ("is locked", _BUSY),
    "asyncpg.InterfaceError": ("connection is closed", _CONNECTION),
    "psycopg2.InterfaceError": ("already closed", _CONNECTION),
}
# Where a library holds the exception of a database driver that it has caught.
_WRAPPERS: Final = {"sqlalchemy.DBAPIError": "orig", "django.Error": "__cause__"}
# SQLSTATE, besides class 08, connections: no serialization, deadlock, no lock, shutdown, crash, start, too many
# connections.
_BUSY_STATES: Final = frozenset(("40001", "40P01", "55P03", "57P01", "57P02", "57P03", "53300"))
# Drivers of MySQL and MariaDB, and the numbers of errors that pass: too many connections (also of one user), shutdown,
# no lock in time, deadlock, killed; no connection, lost, or closed (0).
_MYSQL: Final = ("pymysql.", "asyncmy.", "MySQLdb.", "mysql.")
_BUSY_NUMBERS: Final = frozenset((0, 1040, 1203, 1053, 1205, 1213, 1927, 2002, 2003, 2006, 2013, 2055))


def classify(
    error: BaseException, tool: Tool[..., Any], redactor: Redactor | None = None, retry_on: Collection[str] = ()
) -> Failure:
    """Turn *error* into a `Failure`, which has the exception itself, with its frames: see `drop_frames`.

    Args:
        error: The exception of a call of *tool* or of its executor. Its methods may raise, and its text may be huge.
        tool: The tool that was called.
        redactor: Redacts the text before it is cut; `None` for the redactor of the current run.
        retry_on: The classes of exceptions that are transient by the retry rule of the step, as "package.Class".
    """
    if isinstance(error, CallFailed):  # in another place: its base classes and its package are not known here
        is_named = error.failure.error in {name.rpartition(".")[2] for name in retry_on}
        return replace(error.failure, is_transient=True) if is_named else error.failure
    shown = (redactor or REDACTOR.get()).text
    return with_error(_Words(tool, error, shown, frozenset(retry_on)).failure(), error)


class _Words:
    """Classifies one exception, and puts it into words."""

    __slots__ = ("error", "retry_on", "shown", "tool")

    def __init__(self, tool: Tool[..., Any], error: BaseException, shown: Redact, retry_on: frozenset[str]) -> None:
        self.tool = tool
        self.error = error
        self.shown = shown
        self.retry_on = retry_on

    def failure(self) -> Failure:
        only = only_of(self.error)
        if only is not self.error:
            # A task group around one failing call. The tool does not vouch for the other tasks of the group, though.
            return replace(self._part(only), nothing_happened=False)
        failure = self._of_group(only) if isinstance(only, BaseExceptionGroup) else self._of_one()
        is_wanted = isinstance(only, Exception) and self._is_to_retry(only)
        return replace(failure, is_transient=True) if is_wanted else failure

    def _part(self, error: BaseException) -> Failure:
        return _Words(self.tool, error, self.shown, self.retry_on).failure()

    def _of_group(self, group: BaseException) -> Failure:
        """Classify several exceptions at once: they are transient if each of them is."""
        longest: Failure | None = None
        for leaf in leaves_of(group):
            part = self._part(leaf)
            if not part.is_transient or part.kind is ErrorKind.PERMISSION:
                return self._of_one()
            if longest is None or (part.retry_after or 0) > (longest.retry_after or 0):
                longest = part
        assert longest is not None  # a group has at least one
        return self._of(longest.kind, is_transient=True, retry_after=longest.retry_after)

    def _is_to_retry(self, error: Exception) -> bool:
        """Whether the tool or the retry rule declares the exception as transient."""
        is_named = not self.retry_on.isdisjoint(map(class_name, type(error).__mro__))
        test = self.tool.retry_on
        return is_named or (test is not None and bool(quietly(lambda: test(error))))

    def _of_one(self) -> Failure:
        error = self.error
        match error:
            case CallFailed():
                return error.failure
            case ToolError():
                return self._from_tool(error)
            case ValueRefused() | ResultRefused():
                return self._of(ErrorKind.BAD_OUTPUT, f"{self.tool.name}: {text_of(error)}")
            case ModelError():
                return self._from_model(error)
            case OverCeiling():
                return self._of(ErrorKind.CEILING)
            case WorkerDied():
                return self._of(ErrorKind.WORKER_DIED, text_of(error))
            case WorkerLost():
                return self._of(ErrorKind.WORKER_DIED, text_of(error), is_transient=True)
            case StillRunning():
                return self._of(ErrorKind.TIMEOUT, text_of(error))
            case StepCancelled():
                return self._of(ErrorKind.FOREIGN_CANCELLATION)
            case ValidationError():  # its own text shows the values
                return self._of(ErrorKind.EXCEPTION, f"{name_of(error)}: {explain(error)}{self._place()}")
        status = _status(error)
        return self._from_class() if status is None else self._from_status(status)

    def _from_tool(self, error: ToolError) -> Failure:
        if error.permission:
            kind = ErrorKind.PERMISSION
        elif error.missing_input is not None:
            kind = ErrorKind.MISSING_INPUT
        elif error.unreachable:
            kind = ErrorKind.UNREACHABLE
        else:
            kind = ErrorKind.TOOL
        return Failure(
            kind,
            in_words(error, self.shown, MAX_MESSAGE),
            name_of(error),
            is_transient=error.retryable,
            nothing_happened=True,
            retry_after=_seconds(error.retry_after),
            missing_input=None if error.missing_input is None else shorten(self.shown(str(error.missing_input))),
        )

    def _from_model(self, error: ModelError) -> Failure:
        # The caller of the model knows best whether to try again; the status tells the kind of the failure. No one
        # vouches for other effects of the tool.
        if type(error.status) is int and 400 <= error.status <= 599:
            failure = self._from_status(error.status)
        else:
            failure = self._of(ErrorKind.CONNECTION if error.is_transient else ErrorKind.EXCEPTION)
        return replace(failure, is_transient=bool(error.is_transient), retry_after=_seconds(error.retry_after))

    def _from_class(self) -> Failure:
        error, tool = self.error, self.tool
        kind, is_transient = kind_of(error)
        match kind:
            case ErrorKind.FORBIDDEN_EXCEPTION:
                text = f"{tool.name} raised {name_of(error)}, which would have ended more than this step"
            case ErrorKind.FOREIGN_CANCELLATION:
                text = f"{tool.name} raised {name_of(error)}, but was not cancelled"
            case _:
                text = ""
        return self._of(kind, text, is_transient=is_transient)

    def _from_status(self, status: int) -> Failure:
        """Classify an HTTP response that a client library has turned into an exception."""
        error = self.error
        if status == 429:
            # An account without credit also answers 429, and will do so tomorrow.
            is_transient = _attribute(error, "code") != "insufficient_quota"
            return self._of(ErrorKind.RATE_LIMITED, is_transient=is_transient, retry_after=_retry_after(error))
        if status == 408:
            return self._of(ErrorKind.TIMEOUT, is_transient=True, retry_after=_retry_after(error))
        if status >= 500:
            return self._of(ErrorKind.SERVER, is_transient=True, retry_after=_retry_after(error))
        return self._of(ErrorKind.PERMISSION if status in (401, 403) else ErrorKind.EXCEPTION)

    def _of(
        self, kind: ErrorKind, text: str = "", *, is_transient: bool = False, retry_after: float | None = None
    ) -> Failure:
        if text:
            message = shorten(self.shown(text), MAX_MESSAGE)
        else:
            message = in_words(self.error, self.shown, MAX_MESSAGE) + self._place()
        return Failure(kind, message, name_of(self.error), is_transient=is_transient, retry_after=retry_after)

    def _place(self) -> str:
        """Return the place in the user's code; empty for an error of dagrun's own."""
        return "" if isinstance(self.error, DagrunError) else place_in_words(self.error)


def kind_of(error: BaseException) -> tuple[ErrorKind, bool]:
    """Return the kind of an exception by its class and by the error codes of databases."""
    names = [class_name(kind) for kind in type(error).__mro__]
    inner = next((_attribute(error, _WRAPPERS[name]) for name in names if name in _WRAPPERS), None)
    if isinstance(inner, BaseException):
        if _attribute(error, "connection_invalidated") is True:  # as SQLAlchemy has found out
            return _CONNECTION
        error, names = inner, [class_name(kind) for kind in type(inner).__mro__]
    if any(name.startswith(_MYSQL) for name in names):
        number = _attribute(error, "errno") or quietly(lambda: error.args[0])
        return _BUSY if type(number) is int and number in _BUSY_NUMBERS else _EXCEPTION
    state = _attribute(error, "sqlstate") or _attribute(error, "pgcode")
    if isinstance(state, str):
        return _CONNECTION if state.startswith("08") else _BUSY if state in _BUSY_STATES else _EXCEPTION
    for name in names:
        if name in _BY_TEXT and _BY_TEXT[name][0] in text_of(error):
            return _BY_TEXT[name][1]
        if name in _KINDS:
            return _KINDS[name]
    return _EXCEPTION if isinstance(error, Exception) else _FORBIDDEN


def _status(error: BaseException) -> int | None:
    """Return the HTTP status in *error*, as httpx, the SDKs of models, requests and urllib hold it; `None` without."""
    for holder in (error, _attribute(error, "response")):
        for name in ("status_code", "status"):
            status = _attribute(holder, name)
            if type(status) is int and 400 <= status <= 599:
                return status
    return None


def _retry_after(error: BaseException) -> float | None:
    """Return the seconds of a Retry-After header. A date is ignored: it would need a clock."""
    headers = _attribute(_attribute(error, "response"), "headers") or _attribute(error, "headers")
    if headers is None:
        return None
    milliseconds = _seconds(quietly(lambda: headers.get("retry-after-ms")))
    return milliseconds / 1000 if milliseconds is not None else _seconds(quietly(lambda: headers.get("retry-after")))


def _seconds(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < math.inf else None


def _attribute(holder: object, name: str) -> Any:
    return None if holder is None else quietly(lambda: getattr(holder, name, None))
