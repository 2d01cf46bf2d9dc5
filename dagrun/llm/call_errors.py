"""The errors of model calls: one form for all servers, libraries and HTTP clients."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from email.utils import mktime_tz, parsedate_tz
from typing import Any, Final

from dagrun.errors import ModelError, shorten

# The providers' names for errors that pass by themselves.
_PASSING: Final = frozenset(
    (
        "api_error",
        "internal_error",
        "internal_server_error",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "server_overloaded",
        "timeout_error",
    )
)
# Signs of an account without credit, which does not pass by itself although its status is 429 as well.
_NO_CREDIT: Final = ("insufficient_quota", "billing_hard_limit_reached", "billing_error", "credit balance")
_TRANSIENT: Final = frozenset((408, 409, 425, 429))
_NEVER: Final = frozenset((501, 505))
_UNREACHED: Final = frozenset(("ConnectError", "ConnectTimeout", "PoolTimeout"))
_TURNED_AWAY: Final = frozenset((501, 503, 529))


class CallError(Exception):
    """A call that gave no answer.

    It never leaves this package: `HttpModel` either asks the server in another form, or raises a `ModelError`.

    Attributes:
        reason: What happened, in a few words.
        status: The status of the HTTP answer, if there was one.
        code: The provider's name for the error; empty if it has none.
        text: Everything that the server said about the error; only to be searched, as it may hold secrets.
        retry_after: Seconds after which the server wants to be asked again.
        is_transient: Whether the same call may succeed later.
        is_foreign: Whether the answer does not have the form of this API: the server does not support it.
        is_free: Whether the model has surely not worked: the call did not reach it, or was turned away.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        code: str = "",
        text: str = "",
        retry_after: float | None = None,
        is_transient: bool = False,
        is_foreign: bool = False,
        is_free: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.code = code
        self.text = text
        self.retry_after = retry_after
        self.is_transient = is_transient
        self.is_foreign = is_foreign
        self.is_free = is_free

    def error(self, model: str, secret: str) -> ModelError:
        """Return the error for callers, without *secret* in its message."""
        # The secret is replaced before the text is shortened: half a secret would not be found.
        text = self.reason.replace(secret, "***") if secret else self.reason
        return ModelError(
            f"{shorten(model, 60)}: {shorten(text)}",
            status=self.status,
            is_transient=self.is_transient,
            retry_after=self.retry_after,
        )


def broke_off(what: str) -> CallError:
    """Return the error for an answer that has begun and does not reach its end."""
    return CallError(f"the answer broke off: {what}", is_transient=True)


def no_stream() -> CallError:
    """Return the error for an answer that is neither a stream nor the JSON of this API."""
    return CallError("its answer is no stream of events (is the address of the server right?)", is_foreign=True)


def reported(error: Any) -> CallError:
    """Return the error for one that the server has reported in the middle of its answer, as an object or a text."""
    code, message = _code_and_message(error)
    text = f"{code} {message}"
    status = int(code) if code.isdecimal() and 400 <= int(code[:4]) <= 599 else None
    is_transient = _is_transient(status, text) if status is not None else code in _PASSING
    return CallError(f"the server reports {_quote(code, message)}", code=code, text=text, is_transient=is_transient)


def call_error_of(error: Exception) -> CallError:
    """Return the meaning of *error*, raised by the library of a provider or by its HTTP client."""
    status = getattr(error, "status_code", None)
    response = getattr(error, "response", None)
    if isinstance(status, int) and response is not None:
        return _from_status(status, getattr(error, "body", None), response.headers)
    names = {kind.__name__ for kind in type(error).__mro__}
    cause = _root(error)
    is_free = type(error.__cause__).__name__ in _UNREACHED
    if "CERTIFICATE_VERIFY_FAILED" in str(cause) or names & {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}:
        return CallError(f"the server cannot be asked: {_sentence(cause)}")
    if names & {"APITimeoutError", "TimeoutException"}:
        return CallError("the server did not say anything in time", is_transient=True, is_free=is_free)
    if names & {"APIConnectionError", "RequestError", "SSLError", "EndOfStream"}:
        server = f"the server{_place(error)}"
        return CallError(f"no connection to {server}: {_sentence(cause)}", is_transient=True, is_free=is_free)
    return CallError(f"the call failed with {_sentence(error)}")


def _place(error: Exception) -> str:
    """Return where the server is, without anything of the address that may be secret; empty if it is not known."""
    try:
        url = error.request.url  # type: ignore[attr-defined]
        return f" at {url.host}{f':{url.port}' if url.port else ''}"
    except (AttributeError, RuntimeError):  # httpx raises the latter if there was no request
        return ""


def _from_status(status: int, body: Any, headers: Mapping[str, str]) -> CallError:
    code, message = _code_and_message(body)
    text = f"{code} {body}"[:10_000]
    if 300 <= status < 400:
        message = "it sends us to another address, which we do not follow"
    elif status in {404, 405} and "model" not in message:
        message = f"{message or 'no such path'} (is the address of the server right?)"
    elif status == 401:
        message = f"{message or 'no access'} (is the key right?)"
    wait = _retry_after(headers)
    later = f"; it asks for {wait:g} s of patience" if wait else ""
    return CallError(
        f"status {status}: {_quote('' if code == str(status) else code, message)}{later}",
        status=status,
        code=code,
        text=text,
        retry_after=wait,
        is_transient=_is_transient(status, text),
        is_free=status < 500 or status in _TURNED_AWAY,
    )


def _code_and_message(body: Any) -> tuple[str, str]:
    """Return the code and the message of an error, from any of the forms that servers use."""
    while isinstance(body, Mapping) and isinstance(body.get("error"), Mapping | str):
        body = body["error"]
    if not isinstance(body, Mapping):
        return "", body[:10_000] if isinstance(body, str) else ""
    code = next((body[key] for key in ("code", "type") if isinstance(body.get(key), str | int)), "")
    message = next((body[key] for key in ("message", "detail") if body.get(key)), "")
    return str(code)[:100], str(message)[:10_000]


def _quote(code: str, message: str) -> str:
    return ": ".join(part for part in (code, message) if part) or "an error without words"


def _is_transient(status: int, text: str) -> bool:
    if any(word in text for word in _NO_CREDIT):
        return False
    return status in _TRANSIENT or (status >= 500 and status not in _NEVER)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, scale in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * scale
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    date = parsedate_tz(headers.get("retry-after", ""))
    try:
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    except (OverflowError, ValueError):
        return None


def _root(error: BaseException) -> BaseException:
    for _ in range(10):
        cause = error.__cause__ or error.__context__
        if cause is None or not str(cause):
            break
        error = cause
    return error


def _sentence(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
