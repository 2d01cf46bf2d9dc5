"""The rules of safety of every request: `Guard` is asked before any route, `KnownOnly` before the routes with data.

1. ``Host`` is one of the allowed names, on every path: another name may be that of a foreign page whose address was
   turned to this machine (DNS rebinding). The names are given when the page is made, never taken from the request.
2. Whatever is not one of the public routes (the pages themselves, which hold no data) needs the token, or a name from
   *authorize*. The router of the public routes says which those are, and leaves all else to `KnownOnly`; no other code
   looks at the path, which servers and mounts write differently (``root_path``).
3. No cookie is set or read, so a browser adds nothing by itself to a request of a foreign page.
4. A request that changes something is JSON, has a header that no form can send, and comes from no foreign page. So it
   is safe behind the log-in of a host application with cookies, too.
5. Nothing may be framed, sniffed, cached, or loaded from elsewhere; no foreign page may read an answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from hmac import compare_digest
from typing import Any, Final, TypeAlias

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from dagrun.errors import ContractError

Authorize: TypeAlias = Callable[[Request], "str | Awaitable[str | None] | None"]

MAX_BODY: Final = 64 * 1024  # bytes
_LEAST_TOKEN: Final = 16  # characters
USER: Final = "dagrun.user"  # in the scope: who asks

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Passes a request to an application, if the rules allow it, and adds security headers to each answer.

    Args:
        app: The application.
        hosts: The allowed names, each with a port, or without one for any port.
        is_read_only: Whether nothing may be changed.
    """

    def __init__(self, app: ASGIApp, *, hosts: Iterable[str], is_read_only: bool) -> None:
        self._app = app
        self._hosts = frozenset(host.casefold() for host in hosts)
        self._is_read_only = is_read_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":  # a WebSocket: the page has none
            await WebSocketClose(1008)(scope, receive, send)
            return
        refused = self._refusal(scope)
        await (self._app if refused is None else refused)(scope, receive, _with_headers(send))

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        if not self._knows_host(headers.get("host", "")):
            return problem(421, "this page is not served under this name; its owner names the allowed ones (hosts)")
        method = scope["method"]
        if method in ("GET", "HEAD"):
            return None
        if method != "POST" or self._is_read_only:
            return problem(405, "only looking is allowed here" if method == "POST" else f"{method} is not known here")
        if headers.get("content-type", "").split(";")[0].strip().casefold() != "application/json":
            return problem(415, "send JSON")
        if headers.get("x-dagrun") != "1" or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return problem(403, "this request does not come from the page")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > MAX_BODY:
            return problem(413, f"at most {MAX_BODY} bytes")
        return None

    def _knows_host(self, host: str) -> bool:
        host = host.casefold()
        name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
        return host in self._hosts or (port.isdecimal() and name in self._hosts)


class KnownOnly:
    """Passes a request to an application, if it is authenticated; the MCP server over HTTP stands behind it, too.

    Args:
        app: The application.
        token: What a request must carry as ``Authorization: Bearer``; `None` if *authorize* decides.
        authorize: Returns who sends a request; `None` for nobody.
        user: Who answers, for the record, with *token*.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, authorize: Authorize | None, user: str) -> None:
        self._app = app
        self._token = token
        self._authorize = authorize
        self._user = user

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose(1008)(scope, receive, send)
        else:
            scope[USER] = user = await self._who(Request(scope, receive))
            advice = "send the token" if self._authorize is None else "log in"
            refused = problem(401, f"not authenticated: {advice}")
            refused.headers["www-authenticate"] = "Bearer"
            await (refused if user is None else self._app)(scope, receive, send)

    async def _who(self, request: Request) -> str | None:
        if self._authorize is not None:
            said = self._authorize(request)
            user = await said if inspect.isawaitable(said) else said
            if user is not None and not isinstance(user, str):
                raise ContractError(f"authorize returns a name or None, not {type(user).__name__}")
            return user or None
        scheme, _, sent = request.headers.get("authorization", "").partition(" ")
        assert self._token is not None
        is_right = compare_digest(sent.strip().encode(), self._token.encode())
        return self._user if is_right and scheme.casefold() == "bearer" else None


def check_token(token: str) -> None:
    """Check that a token can be sent, and is long enough.

    Raises:
        ContractError: It is shorter than 16 characters, or not ASCII.
    """
    if len(token) < _LEAST_TOKEN or not token.isascii():
        raise ContractError(
            f"a token has at least {_LEAST_TOKEN} characters of ASCII; secrets.token_urlsafe() makes one"
        )


def problem(status: int, text: str, **facts: Any) -> Response:
    """Return an error answer, with the problem in a sentence."""
    return JSONResponse({"error": text, **facts}, status)


def _with_headers(send: Send) -> Send:
    async def guarded(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return guarded


async def body_of(request: Request) -> bytes:
    """Return the body of a request; an empty text if it is longer than `MAX_BODY`.

    A request may lie about its length, or name none: so the parts are counted as they come.
    """
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_BODY:
            return b""
        parts.append(part)
    return b"".join(parts)
