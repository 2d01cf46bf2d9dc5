"""What an adapter has to offer; the worker drives all of them alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

Shape: TypeAlias = Mapping[str, tuple[str, ...]]  # for each step what it waits for, in a valid order
Step: TypeAlias = Callable[[str, dict[str, Any]], Any]  # gets its id and its dependencies' values; maybe a coroutine
Values: TypeAlias = Mapping[str, Any]  # what each step gave
Run: TypeAlias = Callable[[], Awaitable[Values]]


class Cannot(Exception):
    """The peer cannot do what is asked; the message says why, and is shown in place of a figure."""


class Adapter(Protocol):
    """A module in `peers.adapters`. It may import its peer and `peers.interface`, never dagrun (`with_dagrun` may).

    Attributes:
        IS_BLOCKING: Whether its steps are plain functions, run in threads.
    """

    IS_BLOCKING: bool

    def session(self) -> AbstractAsyncContextManager[object]:
        """What has to be open around all runs: a cluster, a server; its cost is not measured."""

    def prepare(self, shape: Shape, step: Step) -> Run:
        """Build what the peer can build before a run, as it has to for each new plan.

        Raises:
            Cannot: The peer has no way to express *shape*.
        """
