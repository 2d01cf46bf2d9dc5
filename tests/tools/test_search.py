"""The search tool, with a real server on loopback that answers like SearXNG."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from pydantic import ValidationError

import dagrun
from dagrun import Plan, PlanRefused, Status, Step, ToolError
from dagrun.sources.network import network_rules
from dagrun.sources.network.guarded_transport import NotAllowed
from dagrun.sources.network.network_rules import NetworkRules
from dagrun_tools import settings
from dagrun_tools.web import search_web as search_module
from dagrun_tools.web.search_web import SearchSettings, search_web
from loopback import Server, always, answer, serving, trap

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


@pytest.fixture(autouse=True)
def _own_settings() -> Iterator[None]:
    """Reset the settings after each test."""
    before = search_module.settings.get()
    yield
    search_module.settings.set(before)


def _use(server: Server, path: str = "/search", **limits: Any) -> None:
    search_module.settings.set(SearchSettings(endpoint=server.url + path, **limits))


def _found(*results: Any, **more: Any) -> bytes:
    return answer(json.dumps({"query": "q", "results": results, **more}).encode(), content_type="application/json")


async def test_results_are_plain_text_with_their_addresses() -> None:
    """Planners read the results, and reports show them, so markup and escapes are removed."""
    result = {
        "title": "Houses &amp; <b>prices</b>",
        "url": "https://example.org/a?b=1",
        "content": "up\n by <em>4&nbsp;%</em>\x1b[2J &lt;script&gt;",
        "engine": "x",
    }
    with serving(always(_found(result))) as server:
        _use(server)
        hits = await search_web("texas houses")
    assert hits == {
        "query": "texas houses",
        "results": [
            {"title": "Houses & prices", "url": "https://example.org/a?b=1", "snippet": "up by 4 % [2J <script>"}
        ],
    }


async def test_the_question_reaches_the_server_encoded_with_the_parameters_of_the_endpoint() -> None:
    """A query from another step must not add parameters; the parameters of the host program stay."""
    with serving(always(_found())) as server:
        _use(server, "/search?categories=it")
        await search_web("a&format=html #1", language="de")
    asked = parse_qs(urlsplit(server.requests[0].target).query)
    assert asked == {"categories": ["it"], "q": ["a&format=html #1"], "format": ["json"], "language": ["de"]}


@pytest.mark.parametrize(("wanted", "given"), [(None, 4), (2, 2), (0, 1), (-5, 1), (100, 4)])
async def test_there_are_never_more_results_than_the_host_allows(wanted: int | None, given: int) -> None:
    """A plan may ask for fewer."""
    results = [{"title": str(n), "url": f"http://example.org/{n}"} for n in range(9)]
    with serving(always(_found(*results))) as server:
        _use(server, max_results=4)
        hits = await search_web("q", max_results=wanted)
    assert [hit["title"] for hit in hits["results"]] == [str(n) for n in range(given)]


async def test_results_that_lead_nowhere_are_left_out() -> None:
    """Their addresses would be used by `fetch_url` and as links in reports."""
    urls = ["javascript:alert(1)", "file:///etc/passwd", "", None, 5, "http://a b", "https://ok.test/", "//x", ["u"]]
    with serving(always(_found(*({"url": url, "title": None} for url in urls), "text", None))) as server:
        _use(server)
        hits = await search_web("q")
    assert hits["results"] == [{"title": "", "url": "https://ok.test/", "snippet": ""}]


async def test_a_long_snippet_is_cut() -> None:
    """One result must not use the space of all."""
    with serving(always(_found({"url": "https://a.test/", "content": "<" * 900_000 + "x"}))) as server:
        _use(server)
        hits = await search_web("q")
    assert len(hits["results"][0]["snippet"]) == search_module.MAX_TEXT


@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b'{"results": {}}', b"<html>"])
async def test_an_answer_of_another_kind_is_an_error(body: bytes) -> None:
    """An empty list would claim that nothing was found."""
    with serving(always(answer(body))) as server:
        _use(server)
        with pytest.raises(ToolError, match=r"no results|not JSON"):
            await search_web("q")


async def test_without_a_server_the_error_says_what_to_set() -> None:
    """By default, no search engine is asked."""
    with pytest.raises(ToolError, match=r"\[tools\.search\]"):
        await search_web("q")


async def test_a_server_that_does_not_speak_json_is_explained() -> None:
    """By default, SearXNG answers 403."""
    with serving(always(answer(status="403 Forbidden"))) as server:
        _use(server)
        with pytest.raises(ToolError, match=r"search\.formats"):
            await search_web("q")


async def test_other_errors_of_the_server_stay_what_they_are() -> None:
    """Recovery decides by the status."""
    with serving(always(answer(status="429 Slow down"))) as server:
        _use(server)
        with pytest.raises(httpx.HTTPStatusError):
            await search_web("q")


async def test_the_endpoint_may_be_private_and_what_it_redirects_to_may_not() -> None:
    """The endpoint is allowed because the host names it; nothing else on that machine is."""
    with trap() as here, serving(always(answer(status="302 F", location=f"http://127.0.0.1:{here.port}/"))) as server:
        _use(server)
        with pytest.raises(NotAllowed):
            await search_web("q")
        assert here.connects == 0
    assert network_rules.rules.get() == NetworkRules()


@pytest.mark.parametrize("query", ["", "  ", "x" * 1001])
async def test_a_query_has_a_sensible_length(query: str) -> None:
    """A query sends data out, so a whole document must not fit into it."""
    with serving(always(_found())) as server:
        _use(server)
        with pytest.raises(ToolError, match="a query has"):
            await search_web(query)
    assert server.connects == 0


async def test_a_plan_searches_and_cannot_say_where() -> None:
    """Only the host names the endpoint."""
    with serving(always(_found({"url": "https://a.test/", "title": "A"}))) as server:
        _use(server)
        plan = Plan(steps=[Step(id="s", tool="search_web", args={"query": "q"})])
        result = await dagrun.run(plan, tools=[search_web])
    assert result.status is Status.SUCCEEDED
    assert result.output["results"][0]["title"] == "A"
    with pytest.raises(PlanRefused, match="endpoint"):
        dagrun.check(Plan(steps=[Step(id="s", tool="search_web", args={"query": "q", "endpoint": "x"})]), [search_web])


@pytest.mark.parametrize(
    "endpoint", ["file:///x", "example.org/search", "http://user:pw@example.org/", "http://", "http://a\n", 5]
)
def test_an_endpoint_that_is_none_is_refused_when_it_is_set(endpoint: Any) -> None:
    """It fails at the start of the program, not in the middle of a run."""
    with pytest.raises(ValidationError):
        settings.configure({"search": {"endpoint": endpoint}})
    assert search_module.settings.get().endpoint is None
