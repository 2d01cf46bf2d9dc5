"""Calls from other processes, many at once in one event loop.

1. A call is made at most once: a request that comes again is refused.
2. A stop may overtake its call, as two messages on different ways do. It is kept until the call comes, which then never
   begins.
3. Reports and the answer leave in the order in which they are made, and nothing leaves after the answer.
"""

from __future__ import annotations

import math
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Final

from anyio import (
    BrokenResourceError,
    ClosedResourceError,
    EndOfStream,
    create_memory_object_stream,
    create_task_group,
    to_thread,
)
from anyio.abc import ByteStream, TaskGroup
from anyio.streams.memory import MemoryObjectSendStream

from dagrun.executors.executors import CoroutineExecutor
from dagrun.executors.threads import ThreadExecutor
from dagrun.executors.wire import messages
from dagrun.executors.wire.messages import MessageStream, is_answer
from dagrun.executors.wire.requests import id_of
from dagrun.executors.wire.serving import BadRequest, IncomingCall, Send, is_warm, refused
from dagrun.kernel.model.executor import StillRunning, ToolCall
from dagrun.kernel.runtime.backend import clock, is_being_cancelled, is_cancellation
from dagrun.kernel.runtime.coroutine_driver import Suspended
from dagrun.kernel.runtime.stop_scope import StopScope, stop_scopes

REMEMBERED: Final = 10_000  # ids of calls
_GONE: Final = (OSError, EndOfStream, BrokenResourceError, ClosedResourceError)


class _Job:
    """A call that has come and not ended."""

    __slots__ = ("is_stopped", "scope")

    def __init__(self) -> None:
        self.is_stopped = False
        self.scope: StopScope | None = None  # from when the function is called

    def stop(self) -> None:
        self.is_stopped = True
        if self.scope is not None:
            self.scope.stop()


class CallServer:
    """Makes the calls of an executor in another process or on another machine: async functions, and plain in threads.

    Anybody who can send it requests can run code here: any importable function. So its requests must come over a
    way that nobody else has, such as a Unix socket, an SSH tunnel or the network of a cluster.

    Args:
        max_threads: The most plain functions that run at once; others wait for their turn.
    """

    def __init__(self, max_threads: int = 40) -> None:
        self._coroutines = CoroutineExecutor()
        self._threads = ThreadExecutor(max_threads)
        self._running: dict[str, _Job] = {}
        self._come: dict[str, None] = {}
        self._stopped_early: dict[str, None] = {}

    @property
    def running(self) -> int:
        """The number of calls that have come and not ended."""
        return len(self._running)

    async def serve(self, request: bytes, send: Send) -> bytes:
        """Make the call of a request, and return the answer. Each call needs a task of its own.

        Args:
            request: The data of a `CallRequest`.
            send: Sends a message to the other side; it is called in this event loop, in order, and not after the end.
        """
        try:
            id = id_of(request)
        except ValueError as error:
            return refused(str(error), nothing_happened=True)
        if id in self._come:
            return refused("the request of this call has come before, and a call is made once")
        _remember(self._come, id)
        if id in self._stopped_early:
            del self._stopped_early[id]
            return messages.NEVER_BEGUN
        job = self._running[id] = _Job()
        try:
            return await self._make(job, request, send)
        finally:
            del self._running[id]

    async def serve_stream(self, stream: ByteStream) -> None:
        """Make the call of a stream of its own, such as a socket connection, and close the stream.

        The request and all messages come as a `MessageStream` sends them. When the other side closes its end, or is
        gone, the call is stopped.
        """
        sender = MessageStream(stream)
        async with stream, create_task_group() as tasks:
            with suppress(*_GONE):
                request = await sender.receive()
                tasks.start_soon(self._stop_at_end, request, stream)
                await self._carry(request, sender, tasks)
            tasks.cancel_scope.cancel()

    async def _carry(self, request: bytes, sender: MessageStream, tasks: TaskGroup) -> None:
        """Make the call of a request, and send its messages while they come, the answer last."""
        out, messages = create_memory_object_stream[bytes](math.inf)
        with out, messages:
            tasks.start_soon(self._answer, request, out)
            async for message in messages:
                await sender.send(message)
                if is_answer(message):
                    return

    async def _answer(self, request: bytes, out: MemoryObjectSendStream[bytes]) -> None:
        with suppress(BrokenResourceError, ClosedResourceError):  # nobody reads it any more
            out.send_nowait(await self.serve(request, out.send_nowait))

    async def _stop_at_end(self, request: bytes, stream: ByteStream) -> None:
        with suppress(*_GONE):
            await stream.receive()  # nothing but the end comes after a request
        with suppress(ValueError):
            self.stop(id_of(request))

    def stop(self, id: str) -> None:
        """Cancel a call, even one that has not arrived yet; its answer reports how it has ended."""
        if (job := self._running.get(id)) is not None:
            job.stop()
        elif id not in self._come:
            _remember(self._stopped_early, id)

    def stop_all(self) -> None:
        """Cancel all calls, for example because the server closes, or nobody waits for their answers."""
        for job in self._running.values():
            job.stop()

    async def _make(self, job: _Job, request: bytes, send: Send) -> bytes:
        arrive = partial(IncomingCall, request, send, is_child=False)
        try:
            call = arrive() if is_warm(request) else await to_thread.run_sync(arrive)
        except BadRequest as bad:
            return bad.answer
        if job.is_stopped:
            return messages.NEVER_BEGUN
        job.scope = stop_scopes(call.grace, clock())()
        send(messages.BEGUN)
        try:
            with job.scope:
                return await self._perform(job.scope, call)
        finally:
            call.close()
        return messages.STOPPED

    async def _perform(self, scope: StopScope, call: IncomingCall) -> bytes:
        """Call the function, and catch everything that it raises, as the runtime does for a call of its own."""
        executor = self._coroutines if call.tool.is_async else self._threads
        tool_call = ToolCall(call.tool, call.data, call.arguments, call.context, call.grace, call.output_limit)
        with call.within_trace():
            context = copy_context()
        scope.is_inside = True
        try:
            coroutine = executor.call(tool_call)
            try:
                got = context.run(coroutine.send, None)
            except StopIteration as done:
                value = done.value
            else:
                value = await Suspended(coroutine, context, got, scope)
            return call.answer(value)
        except StillRunning:
            return messages.STILL_RUNS
        except BaseException as error:
            if is_cancellation(error) and (scope.is_told or is_being_cancelled()):
                raise
            return call.failed(error)
        finally:
            scope.is_inside = False


def _remember(ids: dict[str, None], id: str) -> None:
    """Remember *id*, and forget the oldest one of too many."""
    ids[id] = None
    if len(ids) > REMEMBERED:
        del ids[next(iter(ids))]
