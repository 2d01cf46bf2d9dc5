"""A virtual clock: a timeout of an hour costs nothing, and a makespan is exact."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from math import ulp
from typing import Any, Final, TypeVar

import anyio

from dagrun.errors import ContractError

T = TypeVar("T")
_TURN: Final = 0.01  # virtual seconds, for each turn of a loop in which something spins


class _VirtualSelector(selectors.BaseSelector):
    """Returns at once: where a real selector would sleep, the clock of the loop jumps."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0
        self.turns = 0  # of the loop, in a row, in which something was ready to run and the clock stood still
        self.on_turn: Callable[[int], None] | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # If no timer is set, only a thread or a socket can wake the loop, so wait for it in real time.
        ready = self._real.select(None if timeout is None else 0)
        if not ready and timeout is not None and timeout > 0:
            self.now += timeout
        self.turns = self.turns + 1 if timeout == 0 and not ready else 0
        if self.on_turn is not None:
            self.on_turn(self.turns)
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
    """An asyncio loop whose clock starts at 0 and jumps to the next timer instead of waiting for it.

    Attributes:
        jumps: True: no thread is waited for while there is a timer.
    """

    jumps: Final = True

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    @property
    def _clock_resolution(self) -> float:
        """How much too early a timer may run. Real clocks need that, and exact times must not have it.

        But after half a year, the next float is further away than a nanosecond, and a timer that is due would never
        run.
        """
        return max(1e-9, 2 * ulp(self._virtual.now))

    @_clock_resolution.setter
    def _clock_resolution(self, seconds: float) -> None:
        """Ignore asyncio's measurement of the real clock."""

    def time(self) -> float:
        """Return the virtual seconds since the loop was made."""
        return self._virtual.now

    @contextmanager
    def bounded(self, most: int, on_spin: Callable[[], object]) -> Iterator[None]:
        """Call a function once if code spins: it is always ready to run, so the clock never advances.

        No time limit ends that on a virtual clock. From the call on, turns of the loop take time, as on a real clock:
        the spinning code may get a grace period to stop.

        Args:
            most: The turns of the loop in a row, without a pause and without an event, that are no spinning.
            on_spin: Is called in the loop.
        """
        before = self._virtual.on_turn

        def count(turns: int) -> None:
            if turns > most:
                self._virtual.on_turn = pass_time
                self.call_soon(on_spin)

        def pass_time(turns: int) -> None:
            if turns:
                self._virtual.now += _TURN

        self._virtual.turns, self._virtual.on_turn = 0, count
        try:
            yield
        finally:
            self._virtual.on_turn = before


def virtual_backend(name: str = "asyncio") -> tuple[str, dict[str, Any]]:
    """Return a backend on the virtual clock, in the form that anyio's pytest plugin and `anyio.run` accept.

    Args:
        name: ``asyncio``, or ``trio`` (which must be installed).

    Examples:
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
        function: The async function.
        args: The arguments of the function.
        backend: ``asyncio`` or ``trio``.
    """
    name, options = virtual_backend(backend)
    return anyio.run(function, *args, backend=name, backend_options=options)
