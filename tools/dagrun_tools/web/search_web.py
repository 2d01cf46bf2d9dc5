"""`search_web`: a tool that searches the web with a SearXNG server, which the host program names."""

from __future__ import annotations

import html
import re
from contextvars import ContextVar
from typing import Annotated, Any, Final

import httpx
from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from dagrun import Tool, ToolError, network, tool
from dagrun_tools.web.fetch import parse_json
from dagrun_tools.web.http_get import get

MAX_TEXT: Final = 500  # characters of a title or a snippet
MAX_QUERY: Final = 1000

_TAG: Final = re.compile(r"<[^<>]{0,300}>")
_WEB: Final = re.compile(r"https?://[\x21-\x7e]{1,2000}")


class Hit(TypedDict):
    """One result: plain text, without markup."""

    title: str
    url: str
    snippet: str


class Hits(TypedDict):
    """The results of a search, best first."""

    query: str
    results: list[Hit]


def _checked_endpoint(text: str) -> str:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError("the endpoint is not a URL") from error
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        raise ValueError("the endpoint is a URL with http:// or https:// and without a user")
    return text


class SearchSettings(BaseModel):
    """Which server searches. The host program sets it; a plan cannot change it.

    Attributes:
        endpoint: The URL of the search page of a SearXNG server that answers ``format=json``, such as
            ``http://127.0.0.1:8888/search``. It may have parameters, such as ``?categories=general``. The search tool
            may call it even if its address is not public.
        max_results: The most results of one search.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    endpoint: Annotated[str, AfterValidator(_checked_endpoint)] | None = None
    max_results: Annotated[int, Field(ge=1, le=100)] = 10


_DEFAULT: Final = SearchSettings()

settings: ContextVar[SearchSettings] = ContextVar("dagrun_tools.web.search_web.settings", default=_DEFAULT)


@tool(effect="read", untrusted=True)
async def search_web(query: str, max_results: int | None = None, language: str | None = None) -> Hits:
    """Search the web, and return titles, addresses and excerpts, best first.

    Args:
        query: What to search for.
        max_results: The most results; the host program may allow fewer.
        language: Of the results, such as "en" or "de-DE".

    Raises:
        ToolError: No search server is set, or it refuses.
    """
    current = settings.get()
    if current.endpoint is None:
        raise ToolError(
            "no search server is configured: set endpoint in [tools.search], or call dagrun_tools.configure"
        )
    if not query.strip() or len(query) > MAX_QUERY:
        raise ToolError(f"a query has 1 to {MAX_QUERY} characters, not {len(query)}")
    params = {"q": query, "format": "json"} | ({"language": language} if language else {})
    answer = await _ask(current.endpoint, params)
    limit = min(current.max_results, current.max_results if max_results is None else max(1, max_results))
    return Hits(query=query, results=_hits(answer)[:limit])


async def _ask(endpoint: str, params: dict[str, str]) -> Any:
    url = httpx.URL(endpoint)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    host = f"[{url.host}]" if ":" in url.host else url.raw_host.decode("ascii")
    rules = network.rules.get().allowing(f"{host}:{port}")
    try:
        answer = await get(endpoint, rules, headers={"accept": "application/json"}, params=params)
    except httpx.HTTPStatusError as error:
        if error.response.status_code != 403:
            raise
        raise ToolError("the search server refuses: its settings must list json among search.formats") from error
    return parse_json(answer.body, answer.url)


def _hits(answer: Any) -> list[Hit]:
    results = answer.get("results") if isinstance(answer, dict) else None
    if not isinstance(results, list):
        raise ToolError("the search server answered with JSON that holds no results")
    hits: list[Hit] = []
    for result in results:
        match result:
            case {"url": str() as url} if _WEB.fullmatch(url):
                hits.append(Hit(title=_plain(result.get("title")), url=url, snippet=_plain(result.get("content"))))
    return hits


def _plain(text: object) -> str:
    """Remove markup, control characters and line breaks from *text*."""
    if not isinstance(text, str):
        return ""
    bare = html.unescape(_TAG.sub("", text[: 10 * MAX_TEXT]))
    return " ".join("".join(c if c.isprintable() else " " for c in bare).split())[:MAX_TEXT]


TOOLS: Final[list[Tool[..., Any]]] = [search_web]
