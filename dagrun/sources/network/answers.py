"""The answer of a server, read within limits of size, and decoded as it comes."""

from __future__ import annotations

import re
import zlib
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol

import httpx

from dagrun.errors import ToolError

MAX_ANSWER_HEADERS: Final = 256

_MEDIA_TYPE: Final = re.compile(r"[a-z0-9!#$&^_.+-]{1,80}/[a-z0-9!#$&^_.+-]{1,80}")
_CHARSET: Final = re.compile(r";\s*charset=\"?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
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


async def read_answer(response: httpx.Response, max_bytes: int) -> ServerAnswer:
    """Read the body of an answer, whatever its status.

    Args:
        response: The answer, of which only the headers have been read.
        max_bytes: The most bytes of its body, decoded.

    Raises:
        ToolError: The answer is too large, or cannot be decoded.
        httpx.TransportError: The connection was lost.
    """
    url = response.request.url
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
        body=await _body(response, max_bytes),
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
    """Return the decoder of a body. Requests ask for no encoding, but some servers use one anyway."""
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding in ("", "identity"):
        return _Identity()
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(_GZIP)
    raise ToolError(f"{response.request.url.host} answered in an encoding that nobody asked for")


def phrase(status: int) -> str:
    """Return the phrase of a status, such as "Not Found"; empty for an unknown one."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""
