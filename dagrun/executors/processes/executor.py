"""A pool of worker processes, which limit the time and the memory of tools."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

import anyio

from dagrun.errors import ContractError
from dagrun.executors.processes.worker_handle import NeverBegan, WorkerHandle
from dagrun.executors.wire.requests import CallRequest
from dagrun.executors.wire.requests import request as request_of
from dagrun.kernel.model.executor import CallFailed, Encoded, StillRunning, ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure

_LOG: Final = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0
START_SECONDS: Final = 60.0  # for a new process to begin its first call: it imports dagrun and the module of the tool

# Failures after which the process is not used again, because its state is unknown.
_UNSAFE: Final = frozenset((ErrorKind.FORBIDDEN_EXCEPTION, ErrorKind.FOREIGN_CANCELLATION))


class ProcessExecutor:
    """Runs functions in a pool of worker processes that stay warm between calls.

    If a call is cancelled or does not answer, its process is killed with its whole process group. This limits buggy
    tools, and does not protect against hostile ones. It needs a POSIX system.

    Args:
        max_processes: The most calls that run at once; others wait for their turn. `None` for one per core.
        max_memory: Bytes of address space of each process; `None` for no limit.
    """

    def __init__(self, max_processes: int | None = None, max_memory: int | None = None) -> None:
        self._max_memory = max_memory
        self._places = anyio.CapacityLimiter(max_processes or _cores())
        # An idle process holds no place, and a process is started only if none is idle. So there are never more
        # processes than places.
        self._idle: list[WorkerHandle] = []
        self._workers: set[WorkerHandle] = set()
        self._lost: list[WorkerHandle] = []  # killed, but their end could not be awaited
        self._is_closed = False

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes that exist now."""
        return frozenset(worker.pid for worker in self._workers)

    async def call(self, call: ToolCall) -> object:
        """Run the function of the tool in a process.

        Raises:
            CallFailed: The call failed.
            ContractError: This system has no process groups.
            ResultRefused: The answer is too large.
            StillRunning: The call was told to stop, and its process could not be killed in time.
            WorkerDied: The process ended in the middle of the call.
        """
        if not hasattr(os, "killpg"):
            raise ContractError("worker processes need a POSIX system; run the tool in a thread")
        async with self._places:
            request = await request_of(call, is_child=True)
            while self._idle:
                try:
                    return await self._ask(self._idle.pop(), call, request)
                except NeverBegan:  # it died while it was idle, so nothing has happened
                    continue
            try:
                return await self._ask_new(call, request)
            except (NeverBegan, OSError) as error:
                failure = Failure(ErrorKind.WORKER_DIED, str(error), is_transient=True, nothing_happened=True)
                raise CallFailed(failure) from error

    async def aclose(self) -> None:
        """Kill all processes, and wait until they are gone."""
        self._is_closed = True
        workers = list(self._workers)
        for worker in workers:  # kill all before waiting for the first
            worker.kill()
        with anyio.CancelScope(shield=True):
            for worker in workers:
                try:
                    await self._end(worker, _CLOSE_SECONDS)
                except StillRunning as error:  # the kernel keeps the process; nothing more can be done
                    _LOG.warning("%s", error)

    async def _ask_new(self, call: ToolCall, request: CallRequest) -> Encoded:
        """Make the call in a new process. The time limit of the call runs from when the function begins.

        Raises:
            NeverBegan: The process has not begun in time, or ended before.
        """
        with anyio.CancelScope(deadline=anyio.current_time() + START_SECONDS) as starting, ExitStack() as preparing:
            preparing.enter_context(call.clock_stopped())

            def on_begin() -> None:
                starting.deadline = math.inf
                preparing.close()

            return await self._ask(await self._start(), call, request, on_begin)
        raise NeverBegan(f"the worker process of {call.tool.name} has not begun within {START_SECONDS:g} s")

    async def _start(self) -> WorkerHandle:
        if self._is_closed:
            raise ContractError("the executor is closed already")
        await self._end_lost()
        worker = await WorkerHandle.start(self._max_memory)
        self._workers.add(worker)
        return worker

    async def _ask(
        self, worker: WorkerHandle, call: ToolCall, request: CallRequest, on_begin: Callable[[], object] = lambda: None
    ) -> Encoded:
        try:
            answer = await worker.ask(call, request, on_begin)
        except GeneratorExit:  # the runtime has dropped this coroutine, so it must not await any more
            worker.kill()
            self._lost.append(worker)
            raise
        except CallFailed as error:
            if _is_unsafe_after(error.failure):
                await self._end(worker, call.grace)
            else:
                self._idle.append(worker)
            raise
        except BaseException:
            await self._end(worker, call.grace)
            raise
        self._idle.append(worker)
        return answer

    async def _end(self, worker: WorkerHandle, seconds: float) -> None:
        try:
            await worker.end(seconds)
        except (StillRunning, GeneratorExit):
            self._lost.append(worker)
            raise
        self._workers.discard(worker)

    async def _end_lost(self) -> None:
        lost, self._lost = self._lost, []
        for worker in lost:
            with suppress(StillRunning):
                await self._end(worker, 0)


def _is_unsafe_after(failure: Failure) -> bool:
    return failure.kind in _UNSAFE or failure.error == "MemoryError"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
