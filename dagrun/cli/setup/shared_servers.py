"""MCP servers that a command starts once: their tools are listed before a run, and called in it.

1. A command is plain code that lists tools, checks a plan, and then starts a loop for the run. A connection belongs to
   the loop on which it was opened. So the loop of the listing is kept, and the run goes on with it: its first call
   finds a server that has started.
2. The connections belong to one task on that loop, which waits until they are closed. While no loop runs, it stands
   still; a server does not notice.
3. A command that calls nothing closes them at its end.
4. A run on any other loop, such as the second run of a command, closes what is open, and connects anew.
"""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from types import TracebackType

import anyio
import anyio.to_thread
import click

from dagrun.model.toolbox import Toolbox
from dagrun.runtime.backend import loop_options


class KeptServers:
    """Connections to servers that stay open from the listing of their tools until a run has ended.

    Args:
        servers: The servers: a block that returns their tools, and that may be entered again.
    """

    def __init__(self, servers: AbstractAsyncContextManager[Toolbox]) -> None:
        self._servers = servers
        self._runner: asyncio.Runner | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._is_own = False  # whether the present block has opened the servers itself

    def listed(self) -> Toolbox:
        """Start the servers, and return their tools; the end of the command closes those that no run uses.

        Raises:
            ContractError: A server cannot be reached.
        """
        library = import_module("uvloop") if "use_uvloop" in loop_options() else asyncio
        self._runner = asyncio.Runner(loop_factory=library.new_event_loop)
        if (command := click.get_current_context(silent=True)) is not None:
            command.call_on_close(self.close)
        try:
            return self._runner.run(self._open())
        except BaseException:
            self.close()
            raise

    async def _open(self) -> Toolbox:
        opened: asyncio.Future[Toolbox] = asyncio.get_running_loop().create_future()
        self._keeping = asyncio.create_task(self._keep(opened))
        return await opened

    async def _keep(self, opened: asyncio.Future[Toolbox]) -> None:
        """Open the servers, and close them when that is wanted, or when the loop is closed."""
        try:
            async with self._servers as tools:
                opened.set_result(tools)
                await self._closing.wait()
        except Exception as error:
            if opened.done():
                raise
            opened.set_exception(error)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The loop with the open servers; `None` if they are closed."""
        if self._runner is None or self._keeping is None or self._keeping.done():
            return None
        return self._runner.get_loop()

    def close(self) -> None:
        """Close the servers that were listed; nothing happens if they are closed, or a run has their loop."""
        runner, self._runner = self._runner, None
        if runner is not None and not (loop := runner.get_loop()).is_closed() and not loop.is_running():
            runner.close()  # cancels the task that keeps them, and waits for its end

    async def __aenter__(self) -> None:
        """Open the servers, if they are not open on the loop that runs."""
        if self.loop is asyncio.get_running_loop():
            return
        if self._runner is not None:  # they are open on a loop that stands still
            await anyio.to_thread.run_sync(self.close)
        await self._servers.__aenter__()
        self._is_own = True

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the servers."""
        if self._is_own:
            self._is_own = False
            await self._servers.__aexit__(kind, error, trace)
        elif self._keeping is not None:
            self._closing.set()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([self._keeping])
            if not self._keeping.cancelled():
                self._keeping.result()  # what has gone wrong while they were closed
