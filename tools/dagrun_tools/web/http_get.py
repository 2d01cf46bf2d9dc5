"""One HTTP GET, with every redirect checked, and with limits of time and size."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import anyio
import httpx

from dagrun import ToolError, __version__
from dagrun_tools.web.guarded_transport import CLOSE_SECONDS, NotAllowed, shared_transport
from dagrun_tools.web.network_rules import NetworkRules

MAX_URL: Final = 8 << 10
MAX_HEADERS: Final = 32  # headers that a plan may send
MAX_ANSWER_HEADERS: Final = 256

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}")
_VALUE: Final = re.compile(r"[\x20-\x7e]{0,4096}")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}")
# A name or an address: no zones, and no characters that look like others.
_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9a-f:.]{2,45}", re.IGNORECASE)
_CHARSET: Final = re.compile(r";\s*charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
# Headers that a plan may not set: they decide where a request goes and how it is framed.
_OURS: Final = frozenset(
    (
        *("host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect"),
        *("content-length", "transfer-encoding", "accept-encoding"),
    )
)
_DEFAULTS: Final = {"user-agent": f"dagrun-tools/{__version__}", "accept": "*/*"}
_GZIP: Final = 31  # the `wbits` of zlib for gzip


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer of a server.

    Attributes:
        url: The URL of the answer, after all redirects.
        status: The HTTP status, from 200 to 299.
        media_type: The media type that the server names; ``application/octet-stream`` if it names none that is valid.
        charset: The character set that the server names, or `None`.
        body: The body, decoded.
    """

    url: str
    status: int
    media_type: str
    charset: str | None
    body: bytes


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
    """Get *url* by *transport*, and follow redirects; the errors are those of `get`."""
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
        text = f"{url.host} answered {response.status_code} {_phrase(response.status_code)}".rstrip()
        raise httpx.HTTPStatusError(text, request=response.request, response=response)
    if len(response.headers) > MAX_ANSWER_HEADERS:
        raise ToolError(f"{url.host} answered with over {MAX_ANSWER_HEADERS} headers")
    content_type = response.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower()
    charset = _CHARSET.search(content_type[:1000])
    return ServerAnswer(
        url=str(url),
        status=response.status_code,
        media_type=media_type if _MEDIA_TYPE.fullmatch(media_type) else "application/octet-stream",
        charset=charset[1] if charset else None,
        body=await _body(response, rules.max_bytes),
    )


async def _body(response: httpx.Response, limit: int) -> bytes:
    host = response.request.url.host
    too_large = ToolError(f"{host} answered with more than the ceiling of {limit} bytes")
    declared = response.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > limit:
        raise too_large
    decoder = _decoder(response)
    body = bytearray()
    assert isinstance(response.stream, httpx.AsyncByteStream)
    chunks = aiter(response.stream)
    try:
        async for chunk in chunks:
            body += decoder.decompress(chunk, limit + 1 - len(body))
            if len(body) > limit:
                raise too_large
    except (ToolError, zlib.error) as error:
        await _cut(response, chunks)
        if isinstance(error, ToolError):
            raise
        raise ToolError(f"{host} answered with gzip that cannot be read") from error
    if not decoder.eof or decoder.unused_data:
        raise ToolError(f"{host} answered with gzip that ends in the middle, or goes on after its end", retryable=True)
    return bytes(body)


async def _cut(response: httpx.Response, chunks: AsyncIterator[bytes]) -> None:
    """End a body early.

    Generators that are dropped in the middle are left to the garbage collector. So the connection is closed under them,
    and they end by themselves.
    """
    await response.aclose()
    with suppress(httpx.TransportError):
        async for _ in chunks:
            pass


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int, /) -> bytes: ...


class _Identity:
    eof = True
    unused_data = b""

    @staticmethod
    def decompress(data: bytes, max_length: int) -> bytes:
        return data[:max_length]


def _decoder(response: httpx.Response) -> _Decoder:
    """Return the decoder of a body. Requests ask for no encoding, but some servers use one all the same."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return _Identity()
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(_GZIP)
    raise ToolError(f"{response.request.url.host} answered in an encoding that nobody asked for")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
