"""Submitted runs on the live page: in which pool each is, who has it, and why none does; and the orders about them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, Status, Step, Worker
from dagrun.codec import encode_event
from dagrun.events import RunSuspended
from dagrun.journal.queue import QueueStatus, Wanted
from page_client import RUN, Client, page_of
from persons import pay
from small_tools import toolset

pytestmark = pytest.mark.anyio
PAY = Plan(goal="pay", steps=[Step(id="pay", tool="pay", args={"value": 1})])


async def submitted(journal: MemoryJournal, **options: Any) -> Client:
    """Submit a run, and return who looks at it."""
    await dagrun.submit(PAY, tools=toolset(pay()), journal=journal, run_id=RUN, pool="mail", **options)
    return Client(page_of(journal))


async def listed(client: Client, state: str = "") -> dict[str, Any]:
    """Return the one run of the list."""
    (run,) = (await client.get(f"/api/runs?state={state}")).json()["runs"]
    return dict(run)


@asynccontextmanager
async def at_work(journal: MemoryJournal) -> AsyncIterator[None]:
    """A worker of the pool."""
    async with dagrun.Engine() as engine, anyio.create_task_group() as tasks:
        worker = Worker(engine, journal=journal, tools=toolset(pay()), pools=["mail"])
        tasks.start_soon(worker.run)
        yield
        worker.stop()


async def set_aside(journal: MemoryJournal) -> None:
    """Let the run be stuck."""
    run_log = await journal.queue.claim(Wanted(pools=["mail"]))
    assert run_log is not None
    run_log.leave(QueueStatus.STUCK, "3 workers have ended while at it")
    await run_log.aclose()


async def test_the_list_has_pool_and_owner() -> None:
    journal = MemoryJournal()
    client = await submitted(journal, priority=2)
    queue = (await listed(client, "queued"))["queue"]
    facts = ("queued", "mail", 2, 0, None)
    assert tuple(queue[name] for name in ("status", "pool", "priority", "takeovers", "owner")) == facts
    assert (await client.get("/api/runs?state=stuck")).json()["runs"] == []
    assert (await client.get(f"/api/runs/{RUN}/queue")).json()["queue"]["words"] == queue["words"] == "pool mail"
    async with at_work(journal):
        while not (asked := (await client.get("/api/questions")).json()["questions"]):
            await anyio.sleep(0.1)
        assert (asked[0]["queue"]["pool"], asked[0]["is_held"]) == ("mail", False)
        assert (await listed(client))["queue"]["status"] == "waiting"
        answer = {"question": asked[0]["question"]["id"], "choice": "approve"}
        assert (await client.post(f"/api/runs/{RUN}/answers", answer)).status_code == 200
        while (run := await listed(client))["state"] != "ended":
            await anyio.sleep(0.1)
    assert (run["status"], run["queue"]) == ("succeeded", None)


async def test_a_run_that_is_stuck_is_put_back() -> None:
    """With its reason beforehand; and no other run is."""
    journal = MemoryJournal()
    client = await submitted(journal)
    assert (await client.post(f"/api/runs/{RUN}/requeue")).status_code == 409
    await set_aside(journal)
    assert (await listed(client, "stuck"))["queue"]["reason"] == "3 workers have ended while at it"
    told = await client.post(f"/api/runs/{RUN}/requeue")
    assert (told.status_code, told.json()) == (202, {"taken": True})
    assert (await listed(client))["queue"]["status"] == "queued"
    await dagrun.run(PAY, tools=toolset(pay()), journal=journal, run_id="own")
    assert (await client.post("/api/runs/own/requeue")).status_code == 409


async def test_an_order_does_not_wait_for_a_lease() -> None:
    """A worker has suspended the run, and ended before it let go of it: who cancels is told to come back, and why."""
    journal = MemoryJournal()
    client = await submitted(journal)
    run_log = await journal.queue.claim(Wanted(pools=["mail"]))
    assert run_log is not None
    run_log.append(encode_event(RunSuspended(2, 1.0, Status.CANCELLED, "its worker stops")))
    await run_log.durable()
    with anyio.fail_after(60):  # of virtual time; the lease of a worker on another machine lasts 30 s
        refused = await client.post(f"/api/runs/{RUN}/cancel")
    assert refused.status_code == 409
    assert "try again" in refused.json()["error"]
    await run_log.aclose()
    assert (await client.post(f"/api/runs/{RUN}/cancel")).status_code == 202


async def test_a_run_that_no_worker_has_is_cancelled() -> None:
    journal = MemoryJournal()
    client = await submitted(journal)
    assert (await client.post(f"/api/runs/{RUN}/suspend")).status_code == 409
    assert (await client.post(f"/api/runs/{RUN}/cancel", {"step": "pay"})).status_code == 409
    assert (await client.post(f"/api/runs/{RUN}/cancel", {"reason": "not wanted"})).status_code == 202
    async with at_work(journal):
        while (run := await listed(client))["state"] != "ended":
            await anyio.sleep(0.1)
    assert (run["status"], "not wanted" in run["reason"]) == ("cancelled", True)
    assert (await client.post(f"/api/runs/{RUN}/cancel")).status_code == 409


async def test_who_may_only_look_puts_nothing_back() -> None:
    journal = MemoryJournal()
    await submitted(journal)
    await set_aside(journal)
    client = Client(page_of(journal, read_only=True))
    assert (await client.post(f"/api/runs/{RUN}/requeue")).status_code in (403, 405)
    assert (await client.post(f"/api/runs/{RUN}/cancel")).status_code in (403, 405)
    assert (await listed(client))["queue"]["status"] == "stuck"
