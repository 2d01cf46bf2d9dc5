"""A worker on a node of the cluster: an actor of Ray that makes calls, and exchanges messages with its run.

1. The run asks, the worker answers: a message of a tool waits here until the run asks for messages.
2. A question without an answer is held until there are messages, for `HELD_SECONDS` at most, or until the next question
   comes. So an idle worker is heard of twice a second, and nothing polls.
3. A worker that no question reaches for *max_silence* seconds has lost its run: it ends its calls, and makes no more.
"""

from __future__ import annotations

import asyncio
import os
from asyncio import TaskGroup
from functools import partial
from typing import Final, TypeAlias

from dagrun.executors.wire import CallServer
from dagrun.executors.wire.messages import NEVER_BEGUN

HELD_SECONDS: Final = 0.5

Message: TypeAlias = tuple[str, bytes]  # the id of a call; and a request, or a message about the call
STOP: Final = b""  # in place of a request: the call shall end


class RayWorker:
    """Makes the calls of one executor, in the process of an actor.

    Args:
        max_silence: Seconds without a question of the run after which its calls are ended.
        max_threads: The most plain functions that run at once.
    """

    def __init__(self, max_silence: float, max_threads: int) -> None:
        self._max_silence = max_silence
        self._server = CallServer(max_threads)
        self._outgoing: list[Message] = []
        self._number = 0  # of answers with messages, which may overtake each other
        self._held = asyncio.Event()  # set to let the question go that is held
        self._heard = asyncio.get_running_loop().time()
        self._tasks = TaskGroup()  # open while `run` runs
        self._is_open = asyncio.Event()
        self._is_over = False  # set before the calls are ended; some may take long to end, or never do

    async def place(self) -> str:
        """Return where this is: the address and the id of the node, and the id of the process."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        return f"node {ray.util.get_node_ip_address()} ({node[:8]}), process {os.getpid()}"

    async def run(self) -> None:
        """Own the calls until the run is silent for too long, then end them: it is over when all have ended."""
        loop = asyncio.get_running_loop()
        async with self._tasks:
            self._is_open.set()
            # A deadline that moves, and no event that says so.
            while (seconds := self._heard + self._max_silence - loop.time()) > 0:  # noqa: ASYNC110
                await asyncio.sleep(seconds)
            self._is_over = True
            self._server.stop_all()

    async def exchange(self, messages: list[Message]) -> tuple[int, list[Message]]:
        """Take the messages of the run, and return those for it, with the number of this answer.

        The number is 0 without messages; the answers with messages are numbered from 1.
        """
        await self._is_open.wait()  # calls of an actor may overtake each other
        self._heard = asyncio.get_running_loop().time()
        for id, data in messages:
            if data == STOP:
                self._server.stop(id)
            elif self._is_over:
                self._send(id, NEVER_BEGUN)
            else:
                self._tasks.create_task(self._make(id, data))
        self._held.set()  # the newest question alone gets messages, so that their order is known
        held = self._held = asyncio.Event()
        if not self._outgoing:
            try:
                async with asyncio.timeout(HELD_SECONDS):
                    await held.wait()
            except TimeoutError:
                pass
        if held is not self._held or not self._outgoing:
            return 0, []
        outgoing, self._outgoing = self._outgoing, []
        self._number += 1
        return self._number, outgoing

    async def _make(self, id: str, request: bytes) -> None:
        send = partial(self._send, id)
        send(await self._server.serve(request, send))

    def _send(self, id: str, message: bytes) -> None:
        self._outgoing.append((id, message))
        self._held.set()
