"""Classify exceptions as failures, without importing the libraries that they come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from dagrun.errors import ModelError, OverCeiling, StepCancelled, ToolError, ValueRefused, shorten
from dagrun.model.executor import CallFailed, ResultRefused, StillRunning, WorkerDied
from dagrun.model.outcome import ErrorKind, Failure
from dagrun.model.signature import explain
from dagrun.model.tool import Tool

MAX_MESSAGE: Final = 300

_TIMEOUT: Final = (ErrorKind.TIMEOUT, True)
_CONNECTION: Final = (ErrorKind.CONNECTION, True)
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
}


def classify(error: BaseException, tool: Tool[..., Any]) -> Failure:
    """Turn *error* into a `Failure`.

    Args:
        error: The exception of a call of *tool* or of its executor. Its methods may raise, and its text may be huge.
        tool: The tool that was called.
    """
    if isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        # A task group around one failing call. The tool does not vouch for the other tasks of the group, though.
        return replace(classify(_innermost(error), tool), nothing_happened=False)
    match error:
        case CallFailed():
            return error.failure
        case ToolError():
            return _from_tool(error)
        case ValueRefused() | ResultRefused():
            return _failure(error, ErrorKind.BAD_OUTPUT, f"{tool.name}: {_text(error)}")
        case ModelError():
            return _from_model(error)
        case OverCeiling():
            return _failure(error, ErrorKind.CEILING)
        case WorkerDied():
            return _failure(error, ErrorKind.WORKER_DIED)
        case StillRunning():
            return _failure(error, ErrorKind.TIMEOUT)
        case StepCancelled():
            return _failure(error, ErrorKind.FOREIGN_CANCELLATION)
        case ValidationError():
            return _failure(error, ErrorKind.EXCEPTION, explain(error))  # its own text shows the values
    status = _status(error)
    return _from_class(error, tool) if status is None else _from_status(error, status)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _from_tool(error: ToolError) -> Failure:
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
        shorten(_text(error), MAX_MESSAGE),
        _name(error),
        is_transient=error.retryable,
        nothing_happened=True,
        retry_after=_seconds(error.retry_after),
        missing_input=None if error.missing_input is None else shorten(str(error.missing_input)),
    )


def _from_model(error: ModelError) -> Failure:
    # The caller of the model knows best whether to try again; the status tells the kind of the failure. No one vouches
    # for other effects of the tool.
    if type(error.status) is int and 400 <= error.status <= 599:
        failure = _from_status(error, error.status)
    else:
        failure = _failure(error, ErrorKind.CONNECTION if error.is_transient else ErrorKind.EXCEPTION)
    return replace(failure, is_transient=bool(error.is_transient), retry_after=_seconds(error.retry_after))


def _from_class(error: BaseException, tool: Tool[..., Any]) -> Failure:
    names = (f"{str(kind.__module__).partition('.')[0]}.{kind.__name__}" for kind in type(error).__mro__)
    default = _EXCEPTION if isinstance(error, Exception) else _FORBIDDEN
    kind, is_transient = next((_KINDS[name] for name in names if name in _KINDS), default)
    match kind:
        case ErrorKind.FORBIDDEN_EXCEPTION:
            text = f"{tool.name} raised {_name(error)}, which would have ended more than this step"
        case ErrorKind.FOREIGN_CANCELLATION:
            text = f"{tool.name} raised {_name(error)}, though nobody had cancelled it"
        case _:
            text = ""
    return _failure(error, kind, text, is_transient=is_transient)


def _from_status(error: BaseException, status: int) -> Failure:
    """Classify an HTTP response that a client library has turned into an exception."""
    if status == 429:
        # An account without credit also answers 429, and will do so tomorrow.
        is_transient = _attribute(error, "code") != "insufficient_quota"
        return _failure(error, ErrorKind.RATE_LIMITED, is_transient=is_transient, retry_after=_retry_after(error))
    if status == 408:
        return _failure(error, ErrorKind.TIMEOUT, is_transient=True, retry_after=_retry_after(error))
    if status >= 500:
        return _failure(error, ErrorKind.SERVER, is_transient=True, retry_after=_retry_after(error))
    return _failure(error, ErrorKind.PERMISSION if status in (401, 403) else ErrorKind.EXCEPTION)


def _failure(
    error: BaseException,
    kind: ErrorKind,
    text: str = "",
    *,
    is_transient: bool = False,
    retry_after: float | None = None,
) -> Failure:
    message = shorten(text or _text(error), MAX_MESSAGE)
    return Failure(kind, message, _name(error), is_transient=is_transient, retry_after=retry_after)


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
    milliseconds = _seconds(_quietly(lambda: headers.get("retry-after-ms")))
    return milliseconds / 1000 if milliseconds is not None else _seconds(_quietly(lambda: headers.get("retry-after")))


def _seconds(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds < math.inf else None


def _name(error: BaseException) -> str:
    return shorten(type(error).__name__, 100)


def _text(error: BaseException) -> str:
    """Return the text of *error*, or the name of its class if the text is empty."""
    text = _quietly(lambda: str(error))
    return text if isinstance(text, str) and text.strip() else _name(error)


def _attribute(holder: object, name: str) -> Any:
    return None if holder is None else _quietly(lambda: getattr(holder, name, None))


def _quietly(get: Callable[[], Any]) -> Any:
    """Return the result of *get*, or `None` if it raises.

    It reads a foreign object, whose ``__str__`` may raise anything, even SystemExit. Nothing is awaited here, so no
    cancellation is lost.
    """
    try:
        return get()
    except BaseException:  # noqa: BLE001
        return None
