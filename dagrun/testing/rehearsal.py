"""`rehearse_cancel`: cut a call of a tool off at each of its awaits, and see what it leaves."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Final

import anyio

import dagrun
from dagrun.errors import ContractError
from dagrun.extend import AnyTool
from dagrun.texts import shorten

_ONCE: Final = dagrun.RetryRule(max_attempts=1)
_MOMENT: Final = 0.05  # seconds in which what was told to stop may end


@dataclasses.dataclass(frozen=True, slots=True)
class Rehearsal:
    """The calls of a rehearsal, and what was wrong with them.

    Attributes:
        tool: The name of the tool.
        awaits: How often a whole call gives the loop a turn.
        cuts: How many calls were cut off. It may be fewer than there are awaits: the first call on a client often has
            more of them than the next ones.
        faults: What was seen: a sentence for each fault, with the first await at which it was seen.
    """

    tool: str
    awaits: int
    cuts: int
    faults: tuple[str, ...]

    def __str__(self) -> str:
        seen = self.faults or ("nothing is left",)
        begin = f"{self.tool}: cut off at {self.cuts} of {self.awaits} awaits"
        return "\n".join((begin, *(f"  {one}" for one in seen)))


async def rehearse_cancel(
    tool: AnyTool,
    args: Mapping[str, Any],
    then: Mapping[str, Any] | None = None,
    *,
    deps: Any = None,
    grace: float = 1.0,
    max_cuts: int = 20,
    with_effects: bool = False,
) -> Rehearsal:
    """Call a tool, cut the call off at its first await, at its second, and so on, and look at what it leaves.

    Each call is cancelled as a run does it: once, with a grace period for its clean-up. Looked for are programs,
    threads, tasks and sockets that are left; a call that goes on, or that swallows the cancellation; and a next call
    on the same client that fails, or gets the answer of the one that was cut off. Run it on a real loop.

    Args:
        tool: An async tool.
        args: The arguments of the calls that are cut off.
        then: The arguments of the call after each of them: others than *args*, with another answer, which must be the
            same each time. Without it, the answer of the next call is not compared.
        deps: What the tool gets from the host, as in `dagrun.run`.
        grace: The grace period, in seconds.
        max_cuts: The most calls that are cut off; of more awaits, the last are left out.
        with_effects: Whether a tool with effects may be called. Each call may then have its effect.

    Returns:
        What was seen.

    Raises:
        ContractError: The tool is no coroutine, or has effects; or it fails without being cut off.
    """
    if not iscoroutinefunction(tool.function) or tool.executor != "coroutine":
        raise ContractError(f"{tool.name} is no async tool: nothing can cut off a function in a thread")
    if not (tool.effect.is_free or with_effects):
        text = f"{tool.name} has effects, and would be called many times; allow it with with_effects=True"
        raise ContractError(text)
    calls = _Calls(tool, deps, grace)
    old, awaits = await calls.whole(args)
    expected, _ = await calls.whole(then or args)
    if then is not None and old == expected:
        raise ContractError(f"{tool.name} gives the same for args and for then, so that answers cannot be told apart")
    faults: dict[str, int] = {}
    cuts = 0
    for at in range(1, min(awaits, max_cuts) + 1):
        before = _sockets()
        seen = await calls.cut(args, at)
        if seen is None:
            break
        cuts += 1
        seen += await calls.after(then or args, old, expected if then else None)
        if (more := _sockets() - before) > 0:
            seen.append(f"left {more} socket{'s'[: more > 1]} open")
        for fault in seen:
            faults.setdefault(fault, at)
    return Rehearsal(tool.name, awaits, cuts, tuple(f"{fault} (await {at})" for fault, at in faults.items()))


class _Calls:
    """Makes single calls of a tool, each in a run of its own."""

    def __init__(self, tool: AnyTool, deps: Any, grace: float) -> None:
        self._tool = tool
        self._deps = deps
        self._policy = dagrun.Policy(grace=grace, retry=_ONCE)

    async def whole(self, args: Mapping[str, Any]) -> tuple[Any, int]:
        """Make a call; return its output and the number of its awaits."""
        counter = _Counter()
        step = await self._call(args, counter)
        if step.state != "succeeded":
            raise ContractError(f"{self._tool.name} fails without being cut off: {step.reason}")
        return step.output, counter.count

    async def cut(self, args: Mapping[str, Any], at: int) -> list[str] | None:
        """Cut a call off at one of its awaits; return what was wrong, or `None` if it has fewer of them."""
        counter, before = _Counter(at), _tasks()
        step = await self._call(args, counter)
        if counter.count < at:
            return None
        await anyio.sleep(_MOMENT)
        seen = []
        if step.state == "abandoned":
            seen.append(f"did not end within the grace period of {self._policy.grace:g} s")
        elif counter.is_told and counter.has_returned:
            seen.append("swallowed the cancellation, and returned a value")
        if "; left " in step.reason:
            seen.append(f"left {step.reason.partition('; left ')[2]}")
        elif more := _tasks() - before:
            seen.append(f"left {len(more)} task{'s'[: len(more) > 1]} ({', '.join(sorted(more))})")
        return seen

    async def after(self, args: Mapping[str, Any], old: Any, expected: Any) -> list[str]:
        """Make the call after one that was cut off; return what was wrong."""
        step = await self._call(args, _Counter())
        if step.state != "succeeded":
            return [f"the next call failed: {shorten(step.reason)}"]
        if expected is None or step.output == expected:
            return []
        whose = "got the answer of the one that was cut off" if step.output == old else "got another answer than before"
        return [f"the next call {whose}"]

    async def _call(self, args: Mapping[str, Any], counter: _Counter) -> dagrun.StepResult:
        function = self._tool.function

        async def counted(*given: Any, **named: Any) -> Any:
            value = await _Awaits(function(*given, **named), counter)
            counter.has_returned = True
            return value

        tool = dataclasses.replace(self._tool, function=counted, cache=None, batch=None, fallback=None)
        plan = dagrun.Plan(steps=[dagrun.Step(id="call", tool=tool.name, args=dict(args))])
        async with dagrun.start(plan, tools=[tool], policy=self._policy, deps=self._deps) as run:
            counter.cut = lambda: run.cancel("call", "rehearsal")
            return (await run.result()).steps["call"]


class _Counter:
    """Counts the awaits of a call, and cuts it off at one of them.

    Attributes:
        count: How many there were.
        cut: Cuts the call off.
        is_told: Whether the cancellation has reached the tool.
        has_returned: Whether the tool has returned a value.
    """

    def __init__(self, at: int = 0) -> None:
        self._at = at
        self.count = 0
        self.cut: Callable[[], object] = _nothing
        self.is_told = False
        self.has_returned = False

    def add(self) -> None:
        """Count one more."""
        self.count += 1
        if self.count == self._at:
            self.cut()


class _Awaits:
    """Awaits the coroutine of a tool, and tells a counter of each suspension.

    Attributes:
        cr_await: The coroutine: a run looks through it for what a call waits for.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], counter: _Counter) -> None:
        self.cr_await = coroutine
        self._counter = counter

    def __await__(self) -> _Awaits:
        return self

    def __iter__(self) -> _Awaits:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        """Go on to the next suspension."""
        waits_for = self.cr_await.send(value)
        self._counter.add()
        return waits_for

    def throw(
        self, kind: type[BaseException] | BaseException, value: Any = None, trace: TracebackType | None = None
    ) -> Any:
        """Raise an exception at the last suspension."""
        self._counter.is_told = True
        waits_for = self.cr_await.throw(kind) if value is None else self.cr_await.throw(kind, value, trace)
        self._counter.add()
        return waits_for

    def close(self) -> None:
        """End the coroutine."""
        self.cr_await.close()


def _nothing() -> None:
    """Do nothing."""


def _tasks() -> set[str]:
    try:
        return {task.get_name() for task in asyncio.all_tasks() if not task.done()}
    except RuntimeError:  # another loop
        return set()


def _sockets() -> int:
    """Return how many sockets are open in this process; 0 where the system does not tell."""
    count = 0
    with suppress(OSError):
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # it was the list itself
                count += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
    return count
