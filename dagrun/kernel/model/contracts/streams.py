"""Streams: an argument whose elements a tool takes one after another (``values: AsyncIterator[float]``).

1. To plans and planners it is a list, in every schema. A list in the plan, or one that is complete, is handed over as a
   stream that never waits (`ListStream`).
2. The elements of a for_each may come one by one, while the for_each runs: see `dagrun.kernel.graph.mapped_steps` and
   `dagrun.features.live_streams`. Each is checked against the type of the elements when it is handed over.
3. A tool has one stream at most, and it is required: there is no order in which several could be read that is right for
   every tool. It is a coroutine function, as nothing else can wait for an element.
"""

from __future__ import annotations

import collections.abc
import inspect
import typing
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, cast

from pydantic import AfterValidator
from pydantic.fields import FieldInfo

from dagrun.errors import ContractError
from dagrun.kernel.model.plan import Planned

T = TypeVar("T")

_STREAMS: Final = (collections.abc.AsyncIterator, collections.abc.AsyncIterable)
_ADVICE: Final = "write AsyncIterator[float] alone, and check the values in the tool"


class ListStream(AsyncIterator[T], Generic[T]):
    """The elements of a list that is complete, one after another.

    Args:
        values: The list.
    """

    __slots__ = ("_place", "values")

    def __init__(self, values: Sequence[T]) -> None:
        self.values = values
        self._place = 0

    def __repr__(self) -> str:
        return f"<ListStream: {self._place} of {len(self.values)} taken>"

    async def __anext__(self) -> T:
        if self._place >= len(self.values):
            raise StopAsyncIteration
        self._place += 1
        return self.values[self._place - 1]


def as_stream(values: Sequence[T]) -> AsyncIterator[T]:
    """Type a list, or a planned step, as the stream that a tool takes.

    A plan in Python does not need it: a step may be passed as it is. A type checker, which takes the step of a
    ``for_each`` for a list, does.

    Args:
        values: A list, or a step that gives one.

    Examples:
        >>> import anyio, dagrun
        >>> @dagrun.tool(effect="pure")
        ... async def total(values: AsyncIterator[float]) -> float:
        ...     return sum([value async for value in values])
        >>> anyio.run(total, dagrun.as_stream([1.0, 2.0]))
        3.0
    """
    return cast(AsyncIterator[T], values) if isinstance(values, Planned) else ListStream(values)


def element_type(hint: Any) -> Any:
    """Return the element type of a stream, or ``inspect.Parameter.empty`` if *hint* is no stream.

    Raises:
        ContractError: A stream is a part of the type.
    """
    inner = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    origin, parts = typing.get_origin(inner), typing.get_args(inner)
    if (origin or inner) in _STREAMS:
        return next(iter(parts), Any)
    if origin is not None and any((typing.get_origin(part) or part) in _STREAMS for part in parts):
        raise ContractError(f"{inner} has a stream inside; {_ADVICE}")
    return inspect.Parameter.empty


def list_type(function: Callable[..., Any], parameter: inspect.Parameter, hint: Any) -> Any:
    """Return the list type with which a stream parameter is checked and described.

    Raises:
        ContractError: The function cannot take it.
    """
    name = f"{function.__name__}: {parameter.name}"
    if not inspect.iscoroutinefunction(function):
        raise ContractError(f"{name} is a stream, which only an async function can read; make it async, or take a list")
    if parameter.default is not parameter.empty:
        raise ContractError(f"{name} is a stream, and has a default; a stream is required")
    metadata = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    if any(not isinstance(part, FieldInfo | str) or getattr(part, "metadata", None) for part in metadata):
        raise ContractError(f"{name} is a stream, which takes no limits and no validators; {_ADVICE}")
    kind: Any = list[element_type(hint)]  # type: ignore[misc]  # known at run time alone
    for part in metadata:
        kind = Annotated[kind, part]
    return Annotated[kind, AfterValidator(ListStream)]
