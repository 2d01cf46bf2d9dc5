"""The executor of a Ray cluster: a fixed number of workers, and each call to the one that has the fewest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Final, Self

import anyio
import anyio.lowlevel

from dagrun.errors import ContractError, ExecutorFailed
from dagrun.executors.ray.cluster import ClusterConnection, check_address
from dagrun.executors.ray.link import Link, NeverSent
from dagrun.executors.ray.worker import RayWorker
from dagrun.executors.wire import CallRequest, answer_of, refusal_of, request
from dagrun.kernel.model.executor import CallFailed, Encoded, ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure
from dagrun.kernel.model.tool import Tool
from dagrun.kernel.runtime.backend import is_asyncio

START_SECONDS: Final = 60.0  # for workers to start: each is a process that imports dagrun
MAX_SILENCE: Final = 10.0  # seconds without its run after which a worker ends its calls
_RETRY_SECONDS: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)  # before a worker is started again, by failures in a row
# Options of actors that dagrun sets: a call is made once, and a worker that is gone is never the same again.
_OWN: Final = {"max_restarts": 0, "max_task_retries": 0, "lifetime": None, "name": None, "max_concurrency": 1000}


class RayExecutor:
    """Runs the tools of steps on the nodes of a Ray cluster (the extra ``ray``); on asyncio only.

    Open it around the runs that use it::

        async with dagrun.RayExecutor("10.0.0.5:6379", workers=4) as cluster:
            await dagrun.run(plan, tools=tools, executors={"ray": cluster})

    The run stays here: a worker on a node gets single calls. A worker that is gone, or not heard of for *lost_after*
    seconds, is replaced, and its calls have failed: a tool that may be repeated is tried again on another worker, and
    an effect is in doubt. Every node must be able to import dagrun and the modules of the tools.

    Args:
        address: ``HOST:PORT`` of the cluster, as ``ray start --head`` has printed it.
        workers: The number of workers, spread over the nodes. A worker makes many calls at once: async functions in
            its event loop, plain functions in threads. Limit them with
            ``Policy(pools={"ray": PoolLimits(max_running=8)})``.
        threads: The most plain functions that run at once in one worker.
        node_address: The address of the node on this machine, if it was started with ``--node-ip-address``.
        shares_files: Whether the folder of artifacts is on all nodes, at the same path. If not, artifacts travel with
            the calls, 16 MiB each way.
        lost_after: Seconds after which a worker that is not heard of is lost; at least 1. A tool that blocks the loop
            of its worker, or holds the lock of the interpreter, for as long, loses it.
        options: More options of the actors, such as ``{"num_gpus": 1}`` or ``{"runtime_env": …}``. By default, a worker
            takes one CPU.

    Raises:
        ContractError: An argument is wrong.
        MissingExtra: Ray is not installed.
    """

    def __init__(
        self,
        address: str,
        *,
        workers: int = 2,
        threads: int = 40,
        node_address: str | None = None,
        shares_files: bool = False,
        lost_after: float = 2.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._connection = ClusterConnection(check_address(address), node_address)
        if min(workers, threads) < 1 or not 1 <= lost_after < math.inf:
            raise ContractError("RayExecutor needs at least one worker, one thread, and 1 s for lost_after")
        if taken := sorted(_OWN.keys() & (options or {}).keys()):
            raise ContractError(f"RayExecutor sets {', '.join(taken)} by itself; leave it out of options")
        self._address = address
        self._workers = workers
        self._threads = threads
        self._shares_files = shares_files
        self._lost_after = lost_after
        self._options = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **(options or {}), **_OWN}
        self._links: list[Link] = []
        self._changed = asyncio.Event()  # set, and replaced, when a worker has come
        self._fault = ""  # why the last worker did not start, or was lost
        self._opened: AsyncExitStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ray: Any = None
        self._actors: Any = None  # makes actors

    # Open and close ---------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Connect to the cluster, and wait until all workers have started.

        Raises:
            ContractError: The loop is not one of asyncio; or the executor is open already.
            ExecutorFailed: The cluster cannot be reached, or its workers do not start within a minute.
        """
        if not is_asyncio():
            raise ContractError("RayExecutor needs asyncio: Ray knows no other loop; run this program without trio")
        if self._opened is not None:
            raise ContractError("this RayExecutor is open already")
        async with AsyncExitStack() as stack:
            ray = await self._connection.open()
            stack.push_async_callback(self._connection.close)
            try:
                self._actors = ray.remote(RayWorker).options(**self._options)
            except (TypeError, ValueError) as error:
                raise ContractError(f"Ray does not take the options of RayExecutor: {error}") from error
            self._ray, self._loop = ray, asyncio.get_running_loop()
            tasks = await stack.enter_async_context(anyio.create_task_group())
            stack.callback(tasks.cancel_scope.cancel)
            for _ in range(self._workers):
                tasks.start_soon(self._keep_worker)
            with anyio.move_on_after(START_SECONDS):
                while len(self._links) < self._workers:
                    await self._changed.wait()
            self._opened = stack.pop_all()
        if len(self._links) < self._workers:
            text = self._too_few()
            await self.aclose()
            raise ExecutorFailed(text)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the workers, and disconnect; calls that are still open are lost."""
        await self.aclose()

    async def aclose(self) -> None:
        """End the workers, and disconnect; calls that are still open are lost."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()

    # Calls ------------------------------------------------------------------------------------------------------------

    def accepts(self, tool: Tool[..., Any]) -> str | None:
        """Return why *tool* cannot be called on a node; `None` if it can. The check of a plan uses it."""
        return refusal_of(tool)

    async def call(self, call: ToolCall) -> Encoded:
        """Make a call on a node.

        Raises:
            CallFailed: The call has failed; or it was never made: no worker has started in time, or this is not open.
            StillRunning: The call was told to stop, and has not ended within its grace period.
            WorkerLost: The worker is gone, and nobody knows how far the call had come.
        """
        if self._opened is None or asyncio.get_running_loop() is not self._loop:
            raise _not_made(
                "open the RayExecutor around the run, in its event loop: async with RayExecutor(…) as cluster"
            )
        sent = await request(call, shares_files=self._shares_files)
        while True:
            try:
                return await self._make(call, sent, await self._free_link(call))
            except NeverSent:  # so another worker gets it, unless the call was told to stop in this very turn
                await anyio.lowlevel.checkpoint()

    async def _make(self, call: ToolCall, sent: CallRequest, link: Link) -> Encoded:
        line = link.open(sent)
        try:
            return await answer_of(call, line.receive, line.stop, place=link.place)
        finally:  # also if this coroutine is dropped
            line.close()

    async def _free_link(self, call: ToolCall) -> Link:
        """Return the way to the worker with the fewest calls; without any, wait for one."""
        if (link := self._freest()) is not None:
            return link
        with call.clock_stopped(), anyio.move_on_after(START_SECONDS):
            while (link := self._freest()) is None:
                await self._changed.wait()
            return link
        raise _not_made(self._too_few(), is_transient=True)

    def _freest(self) -> Link | None:
        return min((link for link in self._links if not link.fault), key=_calls, default=None)

    def _too_few(self) -> str:
        text = (
            f"{len(self._links)} of {self._workers} workers run on the Ray cluster at {self._address}, and none came "
        )
        why = self._fault or "has it as many free CPUs?"
        return f"{text}within {START_SECONDS:g} s: {why}"

    # Workers ----------------------------------------------------------------------------------------------------------

    async def _keep_worker(self) -> None:
        """Keep one worker: start it, and another one when it is lost. Ends by being cancelled."""
        failures = 0
        while True:
            await anyio.sleep(_RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)])
            has_started = await self._one_worker()
            failures = 0 if has_started else failures + 1

    async def _one_worker(self) -> bool:
        """Start a worker, and wait until it is lost; return whether it had started."""
        actor = self._actors.remote(MAX_SILENCE, self._threads)
        try:
            place = await actor.place.remote()
            await self._use(Link(actor, place, self._lost_after))
        except self._ray.exceptions.RayError as error:
            self._fault = str(error)[-500:]
            return False
        finally:
            self._ray.kill(actor, no_restart=True)
        return True

    async def _use(self, link: Link) -> None:
        self._links.append(link)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        try:
            await link.run()
        finally:
            link.lose("the executor was closed")
            self._links.remove(link)
            self._fault = link.fault


def _not_made(text: str, *, is_transient: bool = False) -> CallFailed:
    return CallFailed(Failure(ErrorKind.WORKER_DIED, text, is_transient=is_transient, nothing_happened=True))


def _calls(link: Link) -> int:
    return link.calls
