"""`rehearse_cancel`: what it finds in tools that leave something, and that it finds nothing in those that do not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import dagrun
from dagrun.errors import ContractError
from dagrun.testing import Rehearsal, rehearse_cancel

pytestmark = pytest.mark.costly


class Line:
    """A client that answers in order, whoever waits: as request and reply over one WebSocket do.

    Args:
        is_safe: Whether it is opened anew after a call that was cut off.
    """

    def __init__(self, is_safe: bool) -> None:
        self._is_safe = is_safe
        self._replies: asyncio.Queue[str] = asyncio.Queue()

    async def ask(self, city: str) -> str:
        replies = self._replies
        asyncio.get_running_loop().call_later(0.02, replies.put_nowait, f"weather of {city}")
        try:
            return await replies.get()
        except asyncio.CancelledError:
            if self._is_safe:
                self._replies = asyncio.Queue()
            raise


def weather(is_safe: bool) -> Any:
    client = Line(is_safe)

    @dagrun.tool(effect="read", name="weather")
    async def ask(city: str) -> str:
        await asyncio.sleep(0)
        return await client.ask(city)

    return ask


async def waits() -> int:
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    return 1


async def swallows() -> int:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0.01)
    return 1


async def stays() -> int:
    with anyio.CancelScope(shield=True):
        await asyncio.sleep(0.5)
    return 1


async def starts_a_program() -> int:
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(1)")
    return await program.wait()


async def starts_a_task() -> int:
    task = asyncio.create_task(asyncio.sleep(0.2), name="background")
    await asyncio.sleep(0.01)
    task.cancel()
    return 1


_OPEN: list[socket.socket] = []


async def opens_a_socket() -> int:
    mine = socket.socket()
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        _OPEN.append(mine)
        raise
    mine.close()
    return 1


def breaks() -> Callable[[], Awaitable[int]]:
    lock = asyncio.Lock()

    async def breaks() -> int:
        if lock.locked():
            raise RuntimeError("another call is in progress")
        await lock.acquire()
        await asyncio.sleep(0.01)
        lock.release()
        return 1

    return breaks


def rehearsed(function: Any, **options: Any) -> Rehearsal:
    tool = function if not callable(function) else dagrun.tool(effect="read")(function)
    return asyncio.run(rehearse_cancel(tool, {}, grace=0.2, **options))


def test_a_tool_that_leaves_nothing_is_cut_off_at_each_await() -> None:
    assert str(rehearsed(waits)) == "waits: cut off at 2 of 2 awaits\n  nothing is left"


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (swallows, "swallowed the cancellation, and returned a value (await 1)"),
        (stays, "did not end within the grace period of 0.2 s (await 1)"),
        (starts_a_program, "left 1 program"),
        (starts_a_task, "left 1 task (background) (await 1)"),
        (opens_a_socket, "left 1 socket open (await 1)"),
        (breaks(), "the next call failed: RuntimeError: another call is in progress"),
    ],
)
def test_what_a_tool_leaves_is_named(function: Any, fault: str) -> None:
    seen = rehearsed(function)

    assert any(one.startswith(fault) for one in seen.faults), seen
    while _OPEN:
        _OPEN.pop().close()


def test_the_answer_of_a_call_that_was_cut_off_is_known_again() -> None:
    oslo, rome = {"city": "Oslo"}, {"city": "Rome"}

    unsafe = asyncio.run(rehearse_cancel(weather(is_safe=False), oslo, rome))
    safe = asyncio.run(rehearse_cancel(weather(is_safe=True), oslo, rome))

    assert unsafe.faults == ("the next call got the answer of the one that was cut off (await 2)",)
    assert safe.faults == ()


def test_calls_that_have_fewer_awaits_than_the_first_are_not_counted_as_cut_off() -> None:
    clients: list[int] = []

    @dagrun.tool(effect="read", fallback="other")
    async def connects() -> int:
        if not clients:
            for _ in range(5):
                await asyncio.sleep(0)
            clients.append(1)
        await asyncio.sleep(0.01)
        return 1

    seen = asyncio.run(rehearse_cancel(connects, {}))

    assert str(seen) == "connects: cut off at 1 of 6 awaits\n  nothing is left"


@pytest.mark.parametrize(
    ("effect", "args", "then", "words"),
    [
        ("effectful", {}, None, "ask has effects, and would be called many times; allow it with with_effects=True"),
        ("read", {"fails": True}, None, "ask fails without being cut off: ValueError: no"),
        ("read", {}, {"fails": False}, "ask gives the same for args and for then"),
    ],
)
def test_what_cannot_be_rehearsed_is_refused(effect: Any, args: Any, then: Any, words: str) -> None:
    async def ask(fails: bool = False) -> int:
        if fails:
            raise ValueError("no")
        return 1

    with pytest.raises(ContractError, match=words):
        asyncio.run(rehearse_cancel(dagrun.tool(effect=effect)(ask), args, then))


def test_a_plain_function_cannot_be_cut_off() -> None:
    def plain() -> int:
        return 1

    with pytest.raises(ContractError, match="plain is no async tool"):
        asyncio.run(rehearse_cancel(dagrun.tool(effect="read")(plain), {}))
