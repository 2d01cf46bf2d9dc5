"""For testing pipelines: a virtual clock, and stand-ins that keep the contract of the tools they replace.

On the virtual clock a timeout of an hour costs nothing and a makespan is exact. Threads, processes and sockets live
in real time: test those on a real loop.
"""

from __future__ import annotations

import asyncio
import dataclasses
import selectors
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import anyio

from dagrun.errors import ContractError
from dagrun.model.toolbox import AnyTool

T = TypeVar("T")


class _VirtualSelector(selectors.BaseSelector):
    """Answers at once: where the real one would sleep, the clock of the loop jumps."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # With nothing scheduled, only a thread or a socket can go on: then wait for it, in real time.
        ready = self._real.select(None if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def close(self) -> None:
        self._real.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock starts at 0 and jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)
        # A timer that is due within this much is due now; real loops need it, exact times must not have it.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._virtual.now


def virtual_backend(name: str = "asyncio") -> tuple[str, dict[str, Any]]:
    """Name a backend on the virtual clock, as anyio's pytest plugin and `anyio.run` take it.

    Args:
        name: ``asyncio``, or ``trio`` (which must be installed).

    Example:
        >>> import pytest
        >>> @pytest.fixture(params=["asyncio", "trio"])
        ... def anyio_backend(request):
        ...     return virtual_backend(request.param)
    """
    if name == "asyncio":
        return name, {"loop_factory": VirtualClockLoop}
    if name == "trio":
        import trio.testing

        return name, {"clock": trio.testing.MockClock(autojump_threshold=0)}
    raise ContractError(f"the backend is asyncio or trio, not {name!r}")


def run_virtual(function: Callable[..., Awaitable[T]], *args: Any, backend: str = "asyncio") -> T:
    """Run an async function on a virtual clock, from code that is not async.

    Args:
        function: What to run.
        args: For the function.
        backend: ``asyncio`` or ``trio``.
    """
    name, options = virtual_backend(backend)
    return anyio.run(function, *args, backend=name, backend_options=options)


@dataclasses.dataclass(frozen=True, slots=True)
class Takes:
    """An act of a stand-in: it lasts some time, and then returns or raises.

    Attributes:
        seconds: How long.
        then: What it returns; an exception is raised.
    """

    seconds: float
    then: Any = None


class StandIn:
    """Plays a tool: the same name, arguments, output type and effect, but a script in place of the function.

    Args:
        tool: The tool to play.
        acts: One for each call; the last one goes on for ever. A value is returned, an exception raised, `Takes`
            lasts, and a function is called with the arguments.

    Attributes:
        tool: What goes into the toolbox.
        calls: The arguments of each call so far.

    Example:
        >>> from dagrun import tool
        >>> @tool(effect="read")
        ... def load(path: str) -> int: ...
        >>> flaky = StandIn(load, TimeoutError(), Takes(2, 7))
    """

    def __init__(self, tool: AnyTool, *acts: Any) -> None:
        if not acts:
            raise ContractError(f"the stand-in for {tool.name} has no act")
        self._acts = acts
        self.calls: list[dict[str, Any]] = []
        self.tool: AnyTool = dataclasses.replace(tool, function=self._play, executor="coroutine")

    async def _play(self, **arguments: Any) -> Any:
        act = self._acts[min(len(self.calls), len(self._acts) - 1)]
        self.calls.append(arguments)
        if isinstance(act, Takes):
            await anyio.sleep(act.seconds)
            act = act.then
        if isinstance(act, BaseException):
            raise act
        return act(**arguments) if callable(act) else act
