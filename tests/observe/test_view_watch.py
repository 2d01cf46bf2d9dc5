"""`LiveView`: whoever applies the changes to an old view has the new view, from whatever cursor."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Plan, Policy, Step, tool
from dagrun.observe.view.live_view import LiveView
from plain_steps import applied, comparable
from view_runs import RICH, Mirrors, rich_tools, valid

pytestmark = pytest.mark.anyio


async def watched(every: float) -> tuple[LiveView, list[dict[str, Any]], list[dict[str, Any]]]:
    """Play the rich run; return its watch, and the views and changes as of every so many seconds."""

    async def approve(question: dagrun.Question) -> bool:
        await anyio.sleep(0.4)
        return True

    views: list[dict[str, Any]] = []
    changes: list[dict[str, Any]] = []
    options: dict[str, Any] = {"planner": Mirrors(), "approver": approve, "policy": Policy(max_running=3)}
    async with dagrun.start(RICH, tools=rich_tools(), **options) as run:
        watch = LiveView(run.graph)
        run.watch(watch)
        while not run.has_ended:
            changes.append(watch.changes(views[-1]["seq"] if views else 0, run.seconds))
            views.append(dict(watch.document(at=run.seconds)))
            await anyio.sleep(every)
        await run.result()
    changes.append(watch.changes(views[-1]["seq"]))
    views.append(dict(watch.document()))
    return watch, views, changes


@pytest.mark.parametrize("every", [0.01, 0.3])
@pytest.mark.rigs
async def test_changes_lead_from_one_view_to_the_next(every: float) -> None:
    """No step, no state and no fact is lost on the way."""
    _, views, changes = await watched(every)

    for before, after, change in zip(views, views[1:], changes[1:], strict=False):
        assert comparable(applied(before, change)) == comparable(after)
    valid(views[-1])


async def test_any_cursor_leads_to_the_end() -> None:
    """A page that slept for any time gets all that it has missed, at once."""
    watch, views, _ = await watched(0.05)

    for view in views:
        assert comparable(applied(view, watch.changes(view["seq"]))) == comparable(views[-1])


async def test_nothing_new_is_nothing() -> None:
    """A reader that is up to date gets no step."""
    watch, views, _ = await watched(0.5)
    change = watch.changes(views[-1]["seq"])

    assert change["steps"] == change["progress"] == {}
    assert change["plain"] == change["added"] == change["questions"] == change["planner"] == change["revisions"] == []


async def test_changes_are_as_small_as_what_has_changed() -> None:
    """Of a thousand steps, those that ended and those that they released."""

    @tool(effect="read")
    async def nap(seconds: float) -> None:
        """Sleep."""
        await anyio.sleep(seconds)

    plan = Plan(steps=[Step(id=f"s{n}", tool="nap", args={"seconds": n + 1}) for n in range(1000)])
    async with dagrun.start(plan, tools=[nap]) as run:
        watch = LiveView(run.graph)
        run.watch(watch)
        await anyio.sleep(0.5)
        seq = watch.document()["seq"]
        await anyio.sleep(1)
        change = watch.changes(seq)
        run.cancel()

    assert change["steps"] == {}
    assert change["plain"] == [{"state": "succeeded", "wait": None, "rows": [0, 0, 0, 1_000_000]}]
    assert change["run"]["counts"] == {"running": 999, "succeeded": 1}


async def test_progress_of_running_tools_is_passed_on() -> None:
    """It has no number of its own, so it is never behind the cursor of a reader."""

    @tool(effect="read")
    async def crawl(context: dagrun.ToolContext) -> None:
        """Report progress."""
        await anyio.sleep(1)
        context.progress(0.4, "page 4")
        await anyio.sleep(1)

    async with dagrun.start(Plan(steps=[Step(id="a", tool="crawl")]), tools=[crawl]) as run:
        watch = LiveView(run.graph)
        run.watch(watch)
        await anyio.sleep(0.5)
        seq = watch.document()["seq"]
        await anyio.sleep(1)
        change, step = watch.changes(seq), watch.document()["steps"][0]
        await run.result()

    assert change["progress"] == {"0": [0.4, "page 4"]}
    assert step["progress"] == [0.4, "page 4"]
    assert watch.document()["steps"][0]["progress"] is None


async def test_one_step_has_its_values() -> None:
    """They are asked for step by step, and are as whole as the page wants them."""
    watch, views, _ = await watched(0.5)
    n = next(step["n"] for step in views[-1]["steps"] if step["id"] == "pay")

    assert watch.step(n)["args"] == {"$value": {"json": '{"amount":15.0,"to":"ann@example.org"}', "bytes": 38}}
    with pytest.raises(LookupError):
        watch.step(1_000)
    with pytest.raises(LookupError):
        watch.step(-1)


async def test_watch_that_begins_late_knows_what_was_before() -> None:
    """Whoever looks after the end sees the whole run."""
    watch, views, _ = await watched(0.5)
    late = LiveView(watch._graph)
    late.seq = watch.seq

    assert late.document() == views[-1]
