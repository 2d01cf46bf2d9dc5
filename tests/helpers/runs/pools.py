"""Executors of a host, and ways in which one can go wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from typing import Any

import anyio

from dagrun.extend import ToolCall
from dagrun.kernel.model.executor import Encoded


class Pool:
    """Runs a few calls at once, in the loop, and counts them: a host's pool of connections, say.

    Attributes:
        calls: The names of the tools that were called.
        most: How many calls there were at once.
        closed: How often it was closed.
    """

    def __init__(self, places: int = 1) -> None:
        self.calls: list[str] = []
        self.most = 0
        self.closed = 0
        self._places = anyio.Semaphore(places)
        self._running = 0

    async def call(self, call: ToolCall) -> object:
        """Make a call when there is a place."""
        async with self._places:
            self.calls.append(call.tool.name)
            self._running += 1
            self.most = max(self.most, self._running)
            try:
                given = call.tool.function(**call.arguments)
                return await given if inspect.isawaitable(given) else given
            finally:
                self._running -= 1

    async def aclose(self) -> None:
        """Close it."""
        self.closed += 1


class Remote:
    """Sends the arguments away as text, and gets text back."""

    def __init__(self, *says: bytes) -> None:
        self.sent: list[bytes] = []
        self._says = list(says)

    async def call(self, call: ToolCall) -> object:
        """Answer with the next text."""
        self.sent.append(call.data)
        await anyio.sleep(1)
        return Encoded(self._says.pop(0))

    async def aclose(self) -> None:
        """Nothing to close."""


class Broken:
    """Does what it is told instead of making the call."""

    def __init__(self, act: Callable[[ToolCall], Any]) -> None:
        self._act = act

    def call(self, call: ToolCall) -> Coroutine[Any, Any, object]:
        """Do it."""
        made: Coroutine[Any, Any, object] = self._act(call)
        return made

    async def aclose(self) -> None:
        """Nothing to close."""
