"""One HTTP GET, with every redirect checked, and with limits of time and size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import anyio
import httpx

from dagrun import ToolError, __version__
from dagrun.network import NetworkRules, NotAllowed, ServerAnswer, read_answer, shared_transport

MAX_URL: Final = 8 << 10
CLOSE_SECONDS: Final = 2.0  # the longest that the end of a connection may take
MAX_HEADERS: Final = 32  # headers that a plan may send

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VALUE: Final = re.compile(r"[\x20-\x7e]{0,4096}")
# A name or an address: no zones, and no characters that look like others.
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9a-f:.]{2,45}", re.IGNORECASE)
# Headers that a plan may not set: they decide where a request goes and how it is framed.
_OURS: Final = frozenset(
    (
        *("host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"),
        *("content-length", "transfer-encoding", "accept-encoding"),
    )
)
_DEFAULTS: Final = {"user-agent": f"dagrun-tools/{__version__}", "accept": "*/*"}


async def get(
    url: str,
    rules: NetworkRules,
    *,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> ServerAnswer:
    """Get *url*. Nothing is tried twice: dagrun decides about retries.

    Args:
        url: The address, without user and password.
        rules: Where connections may go.
        headers: More headers; they are not sent to another host.
        params: More parameters of the query.

    Raises:
        NotAllowed: The rules forbid the address, or one that it redirects to.
        ToolError: The address, a header or the answer is not valid.
        TimeoutError: The call took too long.
        httpx.HTTPStatusError: The server answered with an error.
        httpx.TransportError: The server cannot be reached, or does not speak HTTP.
    """
    sent = {name.lower(): value for name, value in _checked_headers(headers or {}).items()}
    target = read_url(url, rules, params)
    try:
        with anyio.fail_after(rules.deadline):
            async with shared_transport(rules) as transport:
                return await follow(transport, target, sent, rules)
    except TimeoutError:
        raise TimeoutError(f"{target.host} gave no whole answer within {rules.deadline:g} s") from None


def read_url(url: str, rules: NetworkRules, params: Mapping[str, Any] | None = None) -> httpx.URL:
    """Parse *url*, and make all checks that are possible before its host is looked up.

    Raises:
        NotAllowed: The rules forbid its scheme.
        ToolError: The text is not a URL, or the URL cannot be trusted.
    """
    if len(url) > MAX_URL:
        raise ToolError(f"the URL has {len(url)} characters, the ceiling is {MAX_URL}")
    # Programs read these characters differently, so the host that is checked might not be the host that is called.
    if any(c <= " " or c in "\x7f\\" for c in url):
        raise ToolError("the URL holds a space, a control character or a backslash")
    try:
        read = httpx.URL(url)
        if params:
            read = read.copy_merge_params(params)
        host = read.host
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError("this is not a URL that can be called") from error
    if read.scheme not in rules.schemes:
        raise NotAllowed(f"URLs must begin with {' or '.join(f'{s}://' for s in rules.schemes)}")
    if read.userinfo:
        raise ToolError("the URL holds a user or a password, which would end up in records; use a header")
    if not _HOST.fullmatch(read.raw_host.decode("ascii")):
        raise ToolError(f"the URL names no host that can be called: {host[:100]!r}")
    if read.port is not None and not 1 <= read.port <= 65535:  # the HTTP library takes 0 for "no port"
        raise ToolError(f"port {read.port} does not exist")
    return read


async def follow(
    transport: httpx.AsyncBaseTransport, url: httpx.URL, headers: Mapping[str, str], rules: NetworkRules
) -> ServerAnswer:
    """Get *url* by *transport*, and follow redirects; the errors are as for `get`."""
    for _ in range(rules.max_redirects + 1):
        request = httpx.Request("GET", url, headers={**_DEFAULTS, **headers, "accept-encoding": "identity"})
        response = await transport.handle_async_request(request)
        try:
            location = response.headers.get("location") if response.is_redirect else None
            if location is None:
                return await _read(response, rules)
        finally:
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await response.aclose()
        url, headers = _next_hop(url, location, headers, rules)
    raise ToolError(f"{url.host} redirects more than {rules.max_redirects} times")


def _next_hop(
    url: httpx.URL, location: str, headers: Mapping[str, str], rules: NetworkRules
) -> tuple[httpx.URL, Mapping[str, str]]:
    try:
        target = read_url(str(url.join(location)) if len(location) <= MAX_URL else location, rules)
    except (httpx.InvalidURL, ValueError) as error:
        raise ToolError(f"{url.host} redirects to something that is not a URL") from error
    if url.scheme == "https" and target.scheme != "https":
        raise NotAllowed(f"{url.host} redirects from https to http")
    if _origin(url) != _origin(target):
        headers = {name: value for name, value in headers.items() if name.startswith("accept")}
    return target, headers


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or {"http": 80, "https": 443}[url.scheme]


def _checked_headers(headers: Mapping[str, str]) -> Mapping[str, str]:
    if len(headers) > MAX_HEADERS:
        raise ToolError(f"{len(headers)} headers, the ceiling is {MAX_HEADERS}")
    for number, (name, value) in enumerate(headers.items(), start=1):
        # Messages repeat neither: the value may be a secret, and a bad name may be a forged line.
        if not _NAME.fullmatch(name):
            raise ToolError(f"header {number} has a name that HTTP does not allow")
        if not _VALUE.fullmatch(value):
            raise ToolError(f"the header {name} has a value that HTTP does not allow: use printable ASCII")
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise ToolError(f"the header {name} is not for a plan to set")
    return headers


async def _read(response: httpx.Response, rules: NetworkRules) -> ServerAnswer:
    url = response.request.url
    if not response.is_success:
        # The message of httpx would show the query, which may hold a key.
        phrase = httpx.codes.get_reason_phrase(response.status_code)
        text = f"{url.host} answered {response.status_code} {phrase}".rstrip()
        raise httpx.HTTPStatusError(text, request=response.request, response=response)
    return await read_answer(response, rules.max_bytes)
