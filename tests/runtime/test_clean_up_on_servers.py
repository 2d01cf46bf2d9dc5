"""Invariant 4 with real clients and servers: whoever ends a step, nothing that it began goes on on the server."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import anyio
import asyncpg
import httpx
import pytest

import dagrun
from dagrun import Engine, HedgeRule, Plan, Policy, RetryRule, Status, Step
from dagrun.kernel.model.tool import AnyTool, make_tool
from hedge_tools import known

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.costly]

Work: TypeAlias = Callable[[str], Awaitable[None]]
Count: TypeAlias = Callable[[], Awaitable[int]]

POLICY = Policy(grace=10.0, retry=RetryRule(max_attempts=1))


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The clients of databases are for asyncio alone."""
    return "asyncio", {}


# Clients ------------------------------------------------------------------------------------------------------------


async def _ask_by_asyncpg(dsn: str, query: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(query)
    finally:
        await connection.close()


async def _ask_by_psycopg(dsn: str, query: str) -> None:
    psycopg: Any = pytest.importorskip("psycopg")
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await connection.execute(query)


class Jobs:
    """A server that does whatever it is asked for until it is told to leave that.

    ``POST /JOB`` begins a job and answers when it is over; ``DELETE /JOB`` ends it.
    """

    def __init__(self) -> None:
        self.running: dict[str, asyncio.Event] = {}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()  # it was cancelled while it connected
            return
        method, job = head.split()[:2]
        name = job.decode()
        if method == b"DELETE":
            self.running.pop(name, asyncio.Event()).set()
        elif name != "/quick":
            over = self.running[name] = asyncio.Event()
            await over.wait()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()


async def _ask_by_httpx(url: str, job: str) -> None:
    async with httpx.AsyncClient(timeout=60.0, verify=False) as client:
        try:
            await client.post(f"{url}/{job}")
        except asyncio.CancelledError:
            await client.delete(f"{url}/{job}")
            raise


# Servers ------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _database(dsn: str, ask: Callable[[str, str], Awaitable[None]]) -> AsyncIterator[tuple[Work, Count]]:
    mark = f"/* {uuid.uuid4().hex} */"
    watch = await asyncpg.connect(dsn)

    async def work(how: str) -> None:
        await ask(dsn, f"select pg_sleep({30 if how == 'slow' else 0}) {mark}")

    async def count() -> int:
        text = "select count(*) from pg_stat_activity where state = 'active' and query like $1"
        found = await watch.fetchval(f"{text} and pid <> pg_backend_pid()", f"select pg_sleep%{mark}")
        return int(found)

    try:
        yield work, count
    finally:
        await watch.close()


@asynccontextmanager
async def _web() -> AsyncIterator[tuple[Work, Count]]:
    jobs = Jobs()
    server = await asyncio.start_server(jobs.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def work(how: str) -> None:
        await _ask_by_httpx(f"http://127.0.0.1:{port}", uuid.uuid4().hex if how == "slow" else "quick")

    async def count() -> int:
        return len(jobs.running)

    try:
        yield work, count
    finally:
        for over in jobs.running.values():
            over.set()
        server.close()
        await server.wait_closed()


@pytest.fixture(params=["asyncpg", "psycopg", "httpx"])
def serving(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Opens a server: the work that it can be asked for, and how much of that goes on."""
    if request.param == "httpx":
        return _web
    if request.param == "psycopg":
        pytest.importorskip("psycopg")
    dsn: str = request.getfixturevalue("postgres")
    ask = _ask_by_asyncpg if request.param == "asyncpg" else _ask_by_psycopg
    return lambda: _database(dsn, ask)


async def _has(count: Count, expected: int) -> None:
    """Wait until so much goes on on the server; it hears of the end of a query a moment later."""
    with anyio.move_on_after(10):
        while await count() != expected:
            await anyio.sleep(0.01)
    assert await count() == expected


QUERY = Step(id="q", tool="query", args={"how": "slow"})


def _tool(work: Work) -> AnyTool:
    async def query(how: str) -> None:
        await work(how)

    return make_tool(query, effect="read")


# Who ends it ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_timeout(serving: Callable[[], Any], attempts: int) -> None:
    """Each attempt of a step that is tried three times asks the server to leave it."""
    async with serving() as (work, count):
        rule = RetryRule(max_attempts=attempts, first_delay=0.01)
        step = QUERY.model_copy(update={"timeout": 1.0, "retry": rule})
        result = await dagrun.run(Plan(steps=[step]), tools=[_tool(work)], policy=POLICY)

        assert (result.status, len(result.steps["q"].attempts)) == (Status.FAILED, attempts)
        await _has(count, 0)


@pytest.mark.parametrize("what", ["run", "step"])
async def test_a_cancelled_run_or_step(serving: Callable[[], Any], what: str) -> None:
    async with serving() as (work, count):
        async with dagrun.start(Plan(steps=[QUERY]), tools=[_tool(work)], policy=POLICY) as run:
            await _has(count, 1)
            run.cancel("q" if what == "step" else None)
            result = await run.result()

        assert str(result.steps["q"].state) == "cancelled"
        await _has(count, 0)


@pytest.mark.parametrize("way", ["task", "timeout", "scope"])
async def test_a_cancelled_host(serving: Callable[[], Any], way: str) -> None:
    async with serving() as (work, count):
        steps = [QUERY.model_copy(update={"id": f"q{n}"}) for n in range(3)]
        running = dagrun.run(Plan(steps=steps), tools=[_tool(work)], policy=POLICY)
        if way == "task":
            task = asyncio.ensure_future(running)
            await _has(count, 3)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        elif way == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await running
        else:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_await, running)
                await _has(count, 3)
                tasks.cancel_scope.cancel()

        await _has(count, 0)


async def _await(running: Awaitable[Any]) -> None:
    await running


async def test_a_lost_hedge(serving: Callable[[], Any]) -> None:
    """The second call is quick, and the first one asks the server to leave what it has begun."""
    calls = 0
    async with serving() as (work, count):

        async def query() -> None:
            nonlocal calls
            calls += 1
            await work("slow" if calls == 1 else "quick")

        policy = Policy(grace=10.0, hedge=HedgeRule())
        async with Engine(durations=known("query", seconds=0.2)) as engine:
            plan = Plan(steps=[Step(id="q", tool="query")])
            result = await engine.run(plan, tools=[make_tool(query, effect="read")], policy=policy)

        assert (result.status, calls) == (Status.SUCCEEDED, 2)
        await _has(count, 0)
