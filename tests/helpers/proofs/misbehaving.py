"""Tools that misbehave: one coroutine function for each way to hurt a run, by name in `BEHAVIOURS`.

None of them takes arguments. Those that need more than a moment hang until they are cancelled, or for ever.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any, TypeAlias

import anyio
import pytest
from anyio.lowlevel import checkpoint

from dagrun import ToolError
from dagrun.kernel.runtime.backend import is_asyncio

Behaviour: TypeAlias = Callable[[], Awaitable[Any]]

BEHAVIOURS: dict[str, Behaviour] = {}
ASYNCIO_ONLY: set[str] = set()

# They hang, and what is bad about them comes when they are told to stop.
WHEN_STOPPED: set[Behaviour] = set()

# What a step left behind in the loop, on purpose; a test ends it itself.
LEFT_BEHIND: list[asyncio.Task[None]] = []


# What could do its whole clean-up.
CLEANED_UP: list[str] = []


def _known(function: Behaviour) -> Behaviour:
    BEHAVIOURS[function.__name__] = function
    return function


def _on_asyncio(function: Behaviour) -> Behaviour:
    ASYNCIO_ONLY.add(function.__name__)
    return _known(function)


def _when_stopped(function: Behaviour) -> Behaviour:
    WHEN_STOPPED.add(function)
    return _known(function)


def skip_what_only_asyncio_has(name: str) -> None:
    """Skip the test around if it runs on trio, which has nothing of the kind that the behaviour needs."""
    if name in ASYNCIO_ONLY and not is_asyncio():
        pytest.skip("trio has nothing of the kind")


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


def once_cancelled(behaviour: Behaviour) -> Behaviour:
    """Hang, and misbehave only when cancelled."""
    if behaviour in WHEN_STOPPED:
        return behaviour

    async def waits_for_it() -> Any:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return await behaviour()

    return waits_for_it


# Exceptions -------------------------------------------------------------------------------------------------


class Unusual(BaseException):
    """Neither an `Exception` nor anything that Python knows."""


class Mute(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise SystemExit("and that is that")

    __repr__ = __str__


def _raising(name: str, make: Callable[[], BaseException]) -> None:
    async def raises() -> Any:
        raise make()

    raises.__name__ = raises.__qualname__ = name
    _known(raises)


_raising("raises_exception", lambda: Exception("no"))
_raising("raises_value_error", lambda: ValueError("no"))
_raising("raises_tool_error", lambda: ToolError("no"))
_raising("raises_retryable_tool_error", lambda: ToolError("no", retryable=True))
_raising("raises_permission_error", lambda: ToolError("no", permission=True))
_raising("raises_missing_input", lambda: ToolError("no", missing_input="region"))
_raising("raises_unreachable", lambda: ToolError("no", unreachable=True))
_raising("raises_timeout_error", TimeoutError)
_raising("raises_connection_error", ConnectionResetError)
_raising("raises_memory_error", MemoryError)
_raising("raises_cancelled_error", asyncio.CancelledError)
_raising("raises_system_exit", lambda: SystemExit(3))
_raising("raises_keyboard_interrupt", KeyboardInterrupt)
_raising("raises_generator_exit", GeneratorExit)
_raising("raises_base_exception", lambda: Unusual("no"))
_raising("raises_stop_iteration", lambda: StopIteration(7))
_raising("raises_stop_async_iteration", StopAsyncIteration)
_raising("raises_group", lambda: ExceptionGroup("two", [ValueError("one"), ToolError("two")]))
_raising("raises_group_of_one", lambda: ExceptionGroup("one", [ToolError("no")]))
_raising(
    "raises_group_with_cancellation",
    lambda: BaseExceptionGroup("both", [asyncio.CancelledError(), ValueError("no")]),
)
_raising("raises_group_of_one_cancellation", lambda: BaseExceptionGroup("one", [asyncio.CancelledError()]))
_raising("raises_mute_exception", Mute)
_raising("raises_100_mb_of_text", lambda: RuntimeError("x" * 100_000_000))


@_known
async def recurses_without_end() -> Any:
    return await recurses_without_end()


@_known
async def raises_an_old_cancellation() -> Any:
    """The cancellation was asked for, but of another scope, and it is over."""
    old: BaseException | None = None
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class() as error:
            old = error
    assert old is not None
    raise old


# Hanging and not stopping -----------------------------------------------------------------------------------


@_known
async def hangs() -> None:
    await anyio.sleep_forever()


@_known
async def swallows_a_cancellation() -> int:
    """The value comes after the deadline, however soon."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        return 7
    return 8


@_known
async def swallows_every_cancellation() -> Any:
    """With a pause between, or no virtual clock would ever move."""
    while True:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.2)
        try:
            await checkpoint()
        except anyio.get_cancelled_exc_class():
            continue


@_known
async def swallows_every_cancellation_without_a_shield() -> Any:
    while True:
        try:
            await anyio.sleep(0.2)
        except anyio.get_cancelled_exc_class():
            continue


@_known
async def raises_in_finally() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        raise ValueError("the cleanup failed")


@_known
async def vouches_in_finally() -> None:
    """Says on its way out that nothing happened."""
    try:
        await anyio.sleep_forever()
    finally:
        raise ToolError("rolled back")


@_when_stopped
async def cleans_up_quickly() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.1)


@_when_stopped
async def cleans_up_without_a_shield() -> None:
    """Every library for asyncio does so."""
    try:
        await anyio.sleep_forever()
    finally:
        await anyio.sleep(0.1)
        CLEANED_UP.append("without a shield")


@_when_stopped
async def cleans_up_with_and_without_a_shield() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        await anyio.sleep(0.1)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.1)
        await anyio.sleep(0.1)
        CLEANED_UP.append("with and without a shield")


@_when_stopped
async def cleans_up_and_returns() -> int:
    """The value comes after the deadline, with the clean-up in between."""
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        await anyio.sleep(0.1)
        CLEANED_UP.append("and returns")
    return 7


@_when_stopped
async def cleans_up_in_a_task() -> None:
    """Whoever waits for another task hands the cancellation on to that, which cleans up then."""
    await asyncio.gather(cleans_up_without_a_shield())


ASYNCIO_ONLY.add(cleans_up_in_a_task.__name__)


@_when_stopped
async def cleans_up_for_ever() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        await anyio.sleep_forever()


@_when_stopped
async def cleans_up_for_ever_three_times() -> None:
    try:
        await cleans_up_for_ever()
    finally:
        try:
            await anyio.sleep_forever()
        finally:
            await anyio.sleep_forever()


@_when_stopped
async def cleans_up_for_too_long() -> None:
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(5)


# Leaving things open ----------------------------------------------------------------------------------------


@_known
async def leaks_a_scope() -> int:
    anyio.CancelScope().__enter__()
    return 7


@_known
async def leaks_a_cancelled_scope() -> int:
    scope = anyio.CancelScope()
    scope.__enter__()
    scope.cancel()
    return 7


@_known
async def leaks_a_scope_and_raises() -> int:
    anyio.CancelScope(deadline=anyio.current_time() + 0.1).__enter__()
    raise ToolError("no")


@_known
async def leaks_a_task_group() -> int:
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    tasks.start_soon(anyio.sleep_forever)
    return 7


@_known
async def leaks_a_shielded_scope() -> int:
    anyio.CancelScope(shield=True).__enter__()
    return 7


# Tricks with the loop ---------------------------------------------------------------------------------------


class _Nonsense:
    """Yields something to the loop that no loop understands."""

    def __await__(self) -> Generator[Any, Any, None]:
        yield 42


@_known
async def yields_nonsense_to_the_loop() -> None:
    await _Nonsense()


@_known
async def runs_a_loop_inside() -> Any:
    return anyio.run(checkpoint)


@_on_asyncio
async def awaits_a_cancelled_future() -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@_on_asyncio
async def cancels_itself() -> None:
    _current_task().cancel()
    await anyio.sleep_forever()


@_on_asyncio
async def cancels_itself_and_returns() -> int:
    _current_task().cancel()
    return 7


@_on_asyncio
async def cancels_itself_and_exits() -> int:
    """The cancellation has not arrived when the task is given up."""
    _current_task().cancel()
    raise SystemExit(3)


@_on_asyncio
async def uncancels_itself() -> int:
    for _ in range(3):
        _current_task().uncancel()
    return 7


@_on_asyncio
async def leaves_a_cancellation_behind() -> int:
    asyncio.get_running_loop().call_later(0.05, _current_task().cancel)
    return 7


@_on_asyncio
async def leaves_a_task_behind() -> int:
    async def lives_on() -> None:
        await asyncio.sleep(100)

    LEFT_BEHIND.append(asyncio.get_running_loop().create_task(lives_on()))
    return 7


async def end_what_was_left_behind() -> None:
    """End the tasks that `leaves_a_task_behind` has left behind; they belong to nobody."""
    while LEFT_BEHIND:
        task = LEFT_BEHIND.pop()
        task.cancel()
        await asyncio.wait([task])


# Values -----------------------------------------------------------------------------------------------------


class HostileDict(dict[str, Any]):
    """Ends the program when it is looked at."""

    def items(self) -> Any:
        raise SystemExit("do not look at me")

    values = keys = __iter__ = items


class HostileObject:
    """Every question about it is answered by an exception."""

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise KeyboardInterrupt

    def __repr__(self) -> str:
        raise KeyboardInterrupt


def _returning(name: str, make: Callable[[], object]) -> None:
    async def returns() -> Any:
        return make()

    returns.__name__ = returns.__qualname__ = name
    _known(returns)


def _endless() -> Iterator[int]:
    yield from itertools.count()


async def _never_awaited() -> None:
    await checkpoint()


def _holding_itself() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


def _nested(depth: int) -> list[Any]:
    nest: list[Any] = []
    for _ in range(depth):
        nest = [nest]
    return nest


@_known
async def returns_the_wrong_type() -> int:
    return "seven"  # type: ignore[return-value]


_returning("returns_a_generator", _endless)
_returning("returns_a_coroutine", _never_awaited)
_returning("returns_a_list_of_generators", lambda: [_endless()])
_returning("returns_nan", lambda: [float("nan")])
_returning("returns_half_a_character", lambda: {"text": "\ud800"})
_returning("returns_a_gigantic_number", lambda: [10**5000])
_returning("returns_a_circle", _holding_itself)
_returning("returns_a_hostile_dict", lambda: HostileDict(a=1))
_returning("returns_a_hostile_object", HostileObject)
_returning("returns_5000_levels", lambda: _nested(5_000))
_returning("returns_too_long_a_text", lambda: "x" * 2_000_000)
_returning("returns_a_gigantic_list", lambda: [0] * 1_000_000)
_returning("returns_a_billion_laughs", lambda: _laughs(30))
_returning("returns_bytes", lambda: b"seven")
_returning("returns_a_function", lambda: _nested)


def _laughs(levels: int) -> list[Any]:
    """A small object that is 2 ** *levels* items long when it is written down."""
    laugh: list[Any] = ["ha"]
    for _ in range(levels):
        laugh = [laugh, laugh]
    return laugh
