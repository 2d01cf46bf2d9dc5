"""An executor over the wire form whose other side is in the same loop; tests may delay, repeat and cut its messages."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from dagrun.executors import wire
from dagrun.extend import ToolCall, WorkerLost


@dataclass
class Loopback:
    """Makes each call by a `CallServer` in a task of its own.

    Attributes:
        tasks: Holds the tasks of the other side.
        late: Seconds that a request takes; a stop takes none.
        times: How often each request arrives.
        cut: Seconds after which the way is cut, for each attempt in turn.
        shares_files: Whether both sides have the same folder of artifacts.
        sent: The requests.
        came: All messages that came back.
    """

    tasks: TaskGroup
    server: wire.CallServer = field(default_factory=lambda: wire.CallServer())
    late: float = 0
    times: int = 1
    cut: list[float] = field(default_factory=list)
    shares_files: bool = True
    sent: list[wire.CallRequest] = field(default_factory=list)
    came: list[bytes] = field(default_factory=list)

    accepts = staticmethod(wire.refusal_of)

    async def call(self, call: ToolCall) -> object:
        request = await wire.request(call, shares_files=self.shares_files)
        self.sent.append(request)
        there, here = anyio.create_memory_object_stream[bytes](math.inf)
        for _ in range(self.times):
            self.tasks.start_soon(self._serve, request, there.clone())
        there.close()
        cut = anyio.current_time() + self.cut.pop(0) if self.cut else math.inf

        async def receive() -> bytes:
            with anyio.CancelScope(deadline=cut):
                self.came.append(await here.receive())
                return self.came[-1]
            raise WorkerLost("node 2 has gone")

        async def stop() -> None:
            self.server.stop(request.id)

        with here:
            return await wire.answer_of(call, receive, stop, place="node 2")

    async def aclose(self) -> None:
        self.server.stop_all()

    async def _serve(self, request: wire.CallRequest, way: MemoryObjectSendStream[bytes]) -> None:
        with way, suppress(anyio.BrokenResourceError):  # nobody waits for it any more
            await anyio.sleep(self.late)
            way.send_nowait(await self.server.serve(request.data, way.send_nowait))


@asynccontextmanager
async def loopback(**options: object) -> AsyncIterator[Loopback]:
    async with anyio.create_task_group() as tasks:
        yield Loopback(tasks, **options)  # type: ignore[arg-type]
        tasks.cancel_scope.cancel()
