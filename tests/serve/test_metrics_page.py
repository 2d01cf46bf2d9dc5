"""The metrics on the live page: under its rules, as JSON and for Prometheus."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

import dagrun
from dagrun import Plan, Step
from page_client import HEADERS, Client, page_of
from recorded_runs import Recorded
from small_tools import toolset

pytestmark = pytest.mark.anyio


async def recorded() -> Recorded:
    """A run that succeeded, and one that failed."""
    made = Recorded()
    await made.run("good", Step(id="a", tool="nap", args={"seconds": 2}))
    await made.run("bad", Step(id="x", tool="fail"))
    return made


async def test_metrics_as_json() -> None:
    client = Client(page_of((await recorded()).journal))
    found = (await client.get("/api/metrics?by=tool&since=7d")).json()

    assert found["metrics"]["task_success"]["value"] == 0.5
    assert found["groups"].keys() == {"fail", "nap"}
    assert found["metrics"]["question_wait"]["value"] is None


async def test_metrics_as_a_table() -> None:
    """The page itself holds no data; the table is well-formed XML in which whatever comes from a run is text."""
    made = await recorded()
    await made.run("evil", Step(id="a", tool="nap", args={"seconds": 1}), labels={"team": "<script>alert(1)</script>&"})
    client = Client(page_of(made.journal))
    table = ElementTree.fromstring((await client.get("/api/metrics/table?by=label:team&since=7d")).text)
    cells = ["".join(row.itertext()) for row in table.iter("{http://www.w3.org/1999/xhtml}tr")]

    assert any(text.startswith("task success66.7 %") for text in cells)
    assert any(text.startswith("<script>alert(1)</script>&1") for text in cells)
    assert not list(table.iter("{http://www.w3.org/1999/xhtml}script"))
    links = [link.get("href") for link in table.iter("{http://www.w3.org/1999/xhtml}a")]
    assert "?since=7d&by=tool" in links
    shell = (await client.get("/metrics")).text
    assert shell.startswith("<!doctype html>")
    assert "task success" not in shell


async def test_metrics_follow_the_records() -> None:
    """What is kept of a record counts only until the record changes."""
    made = await recorded()
    client = Client(page_of(made.journal))
    assert (await client.get("/api/metrics")).json()["metrics"]["runs"]["value"] == 2
    await made.run("third", Step(id="a", tool="nap", args={"seconds": 2}))
    await made.journal.delete("bad")

    found = (await client.get("/api/metrics")).json()["metrics"]
    assert (found["runs"]["value"], found["task_success"]["value"]) == (2, 1)


async def test_prometheus_needs_the_token() -> None:
    """Figures of runs are data: nobody gets them without the token."""
    client = Client(page_of((await recorded()).journal))
    answer = await client.get("/api/metrics/prometheus")

    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "dagrun_task_success_ratio 0.5\n" in answer.text
    for path in ("/api/metrics", "/api/metrics/prometheus", "/api/metrics/table"):
        assert (await client.request("GET", path, {"host": HEADERS["host"]})).status_code == 401
        assert (await client.request("GET", path, {**HEADERS, "host": "evil.example"})).status_code == 421


@pytest.mark.parametrize("query", ["by=colour", "since=yesterday", "by=label:"])
async def test_what_cannot_be_asked(query: str) -> None:
    answer = await Client(page_of((await recorded()).journal)).get(f"/api/metrics?{query}")

    assert answer.status_code == 422
    assert answer.json()["error"]


async def test_without_a_journal_nothing_is_measured() -> None:
    async with dagrun.start(Plan(steps=[Step(id="a", tool="echo", args={"value": 1})]), tools=toolset()) as run:
        answer = await Client(page_of(None, run)).get("/api/metrics")
        await run.result()

    assert answer.status_code == 404
