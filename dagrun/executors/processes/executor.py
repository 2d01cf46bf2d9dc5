"""Functions run in worker processes: the one place where time and memory are bounded for code that misbehaves."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from typing import Final

import anyio

from dagrun.errors import ContractError
from dagrun.executors.processes.worker_handle import Child, NeverBegan
from dagrun.model.executor import CallFailed, Encoded, StillRunning, ToolCall
from dagrun.model.outcome import ErrorKind, Failure

_LOG: Final = logging.getLogger(__name__)
_CLOSE_SECONDS: Final = 5.0

# After these, a process may be in no state to go on.
_SPOILING: Final = frozenset((ErrorKind.FORBIDDEN_EXCEPTION, ErrorKind.FOREIGN_CANCELLATION))


class ProcessExecutor:
    """Runs functions in a pool of worker processes that stay warm between calls.

    A call that is cancelled, or does not answer, costs its process: the whole process group is killed. This bounds
    buggy tools, and is no defence against hostile ones. It needs a POSIX system.

    Args:
        max_processes: Calls that run at once; others wait their turn. `None` for one a core.
        max_memory: Bytes of address space of each process; `None` for any.
    """

    def __init__(self, max_processes: int | None = None, max_memory: int | None = None) -> None:
        self._max_memory = max_memory
        self._places = anyio.CapacityLimiter(max_processes or _cores())
        # Who is idle holds no place, and a process is started only when nobody is idle: so there are never more
        # processes than places.
        self._idle: list[Child] = []
        self._children: set[Child] = set()
        self._lost: list[Child] = []  # killed, and nobody could wait until they were gone
        self._is_closed = False

    @property
    def pids(self) -> frozenset[int]:
        """The ids of the processes that exist now."""
        return frozenset(child.pid for child in self._children)

    async def call(self, call: ToolCall) -> object:
        """Run the function of the tool in a process.

        Raises:
            CallFailed: The call failed.
            ContractError: This system has no process groups.
            ResultRefused: The answer is too large.
            StillRunning: It was told to stop, and its process could not be killed in time.
            WorkerDied: The process ended in the middle.
        """
        if not hasattr(os, "killpg"):
            raise ContractError("worker processes need a POSIX system; run the tool in a thread")
        async with self._places:
            while self._idle:
                try:
                    return await self._ask(self._idle.pop(), call)
                except NeverBegan:  # it had died while it was idle; nothing is lost
                    continue
            try:
                return await self._ask(await self._start(), call)
            except (NeverBegan, OSError) as error:
                failure = Failure(ErrorKind.WORKER_DIED, str(error), is_transient=True, nothing_happened=True)
                raise CallFailed(failure) from error

    async def aclose(self) -> None:
        """Kill all processes and wait until they are gone."""
        self._is_closed = True
        children = list(self._children)
        for child in children:  # all of them first, then the waiting
            child.kill()
        with anyio.CancelScope(shield=True):
            for child in children:
                try:
                    await self._end(child, _CLOSE_SECONDS)
                except StillRunning as error:  # the kernel holds it; nothing more can be done
                    _LOG.warning("%s", error)

    async def _start(self) -> Child:
        if self._is_closed:
            raise ContractError("the executor is closed already")
        await self._sweep()
        child = await Child.start(self._max_memory)
        self._children.add(child)
        return child

    async def _ask(self, child: Child, call: ToolCall) -> Encoded:
        try:
            answer = Encoded(await child.ask(call))
        except GeneratorExit:  # the runtime has dropped this coroutine: it must not await anything any more
            child.kill()
            self._lost.append(child)
            raise
        except CallFailed as error:
            if _is_spoilt_by(error.failure):
                await self._end(child, call.grace)
            else:
                self._idle.append(child)
            raise
        except BaseException:
            await self._end(child, call.grace)
            raise
        self._idle.append(child)
        return answer

    async def _end(self, child: Child, seconds: float) -> None:
        try:
            await child.end(seconds)
        except (StillRunning, GeneratorExit):
            self._lost.append(child)
            raise
        self._children.discard(child)

    async def _sweep(self) -> None:
        lost, self._lost = self._lost, []
        for child in lost:
            with suppress(StillRunning):
                await self._end(child, 0)


def _is_spoilt_by(failure: Failure) -> bool:
    return failure.kind in _SPOILING or failure.error == "MemoryError"


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
