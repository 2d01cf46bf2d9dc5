"""`fetch_url` and `fetch_json`: tools that read the web, where `network.rules` allows it."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any, Final, NotRequired, TypeAlias
from urllib.parse import unquote, urlsplit

import anyio
from pydantic_core import from_json
from typing_extensions import TypedDict

from dagrun import Artifact, Tool, ToolContext, ToolError, network, tool
from dagrun_tools.files.content import Content, ContentForm, as_content
from dagrun_tools.web.http_get import get

Headers: TypeAlias = dict[str, str]
Params: TypeAlias = dict[str, str | int | float | bool]


class Fetched(TypedDict):
    """The answer of a server.

    Attributes:
        url: Where it came from in the end.
        status: The status of the answer, from 200 to 299.
        media_type: Such as ``text/html``.
        size: In bytes.
        text: The content, if it is given as text.
        artifact: The content, if it is given as a file.
    """

    url: str
    status: int
    media_type: str
    size: int
    text: NotRequired[str]
    artifact: NotRequired[Artifact]


@tool(effect="read", untrusted=True, outbound=True)
async def fetch_url(
    url: str,
    context: ToolContext,
    headers: Headers | None = None,
    params: Params | None = None,
    form: ContentForm = "auto",
) -> Fetched:
    """Read a page or a file from the web.

    Args:
        url: The address, beginning with http:// or https://.
        context: Of the call.
        headers: More headers to send, by name; they do not follow a redirect to another host.
        params: More parameters of the query, by name; they are encoded as a URL needs it.
        form: "text" gives the content as text, "artifact" as a file; "auto" gives text of moderate length as text.

    Raises:
        ToolError: The address may not be read, or the server does not give it.
    """
    answer = await get(url, network.rules.get(), headers=headers, params=params)

    def content() -> Content:
        return as_content(
            answer.body,
            form,
            context,
            media_type=answer.media_type,
            name=_file_name(answer.url),
            charset=answer.charset,
        )

    # In a thread: an artifact is a file, and decoding megabytes takes a while.
    body = await anyio.to_thread.run_sync(content)
    return Fetched(url=answer.url, status=answer.status, media_type=answer.media_type, size=len(answer.body), **body)


@tool(effect="read", untrusted=True, outbound=True)
async def fetch_json(url: str, headers: Headers | None = None, params: Params | None = None) -> Any:
    """Read JSON from the web, and give what it says.

    Args:
        url: The address, beginning with http:// or https://.
        headers: More headers to send, by name; they do not follow a redirect to another host.
        params: More parameters of the query, by name; they are encoded as a URL needs it.

    Raises:
        ToolError: The same; or the answer is not JSON.
    """
    wanted = {"accept": "application/json"} | {name.lower(): value for name, value in (headers or {}).items()}
    answer = await get(url, network.rules.get(), headers=wanted, params=params)
    return parse_json(answer.body, answer.url)


def parse_json(body: bytes, url: str) -> Any:
    """Parse *body*, the answer of *url*.

    Raises:
        ToolError: It is not JSON.
    """
    host = urlsplit(url).hostname
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        # The reason names a line and a column, and shows nothing of the content.
        raise ToolError(f"{host} answered with something that is not JSON: {error}") from error


def _file_name(url: str) -> str:
    """Return a name for people: the last part of the path."""
    name = PurePosixPath(unquote(urlsplit(url).path)).name
    return "".join(c for c in name if c.isprintable())[:100]


TOOLS: Final[list[Tool[..., Any]]] = [fetch_url, fetch_json]
