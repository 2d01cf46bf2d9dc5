"""The steps that all peers run, and the book in which they write what they got, and when.

They are functions of a module, and the book is a variable of it, because some peers pickle the steps they are given:
a step that arrives as a copy would write into a copy of the book.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from peers.interface import Shape, Step


class StepFailed(Exception):
    """A step fails because it was told to."""


class WrongRun(Exception):
    """A run left out steps, or gave them what they did not ask for: its time is no measurement."""


@dataclass(slots=True)
class Book:
    """What the steps of one run are to do, and what they did.

    Attributes:
        seconds: How long each step takes; a step that is not in it ends at once.
        failing: The step that fails after its time.
        got: What each step got from its dependencies.
        began: When each step started, in seconds of the monotonic clock.
        ended: When it ended with a value.
        stopped: When it was cancelled, or failed.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    failing: str | None = None
    got: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    stopped: dict[str, float] = field(default_factory=dict)

    def check(self, shape: Shape, values: Mapping[str, Any]) -> None:
        """Make sure that each step ran, got what each of its dependencies gave, and that its own value came out.

        Raises:
            WrongRun: With the first step for which that is not so.
        """
        for step, before in shape.items():
            if self.got.get(step) != {one: value_of(one) for one in before}:
                raise WrongRun(f"step {step} waits for {before} and got {self.got.get(step, 'no call')}")
            if values.get(step) != value_of(step):
                raise WrongRun(f"step {step} came out as {values.get(step)!r}")
        if len(self.got) != len(shape):
            raise WrongRun(f"{len(self.got)} steps ran of {len(shape)}")


def value_of(step: str) -> str:
    """What *step* gives."""
    return f"<{step}>"


_open = [Book()]


def opened(book: Book) -> Book:
    """Let the steps write into *book* from now on."""
    _open[0] = book
    return book


def step_for(*, is_blocking: bool, is_timed: bool) -> Step:
    """The step that a measure runs: one that takes its time, or one that ends at once and only notes what it got."""
    if is_timed:
        return take_blocking if is_blocking else take
    return note_blocking if is_blocking else note


async def note(id_: str, values: dict[str, Any]) -> str:
    """End at once."""
    _open[0].got[id_] = values
    return f"<{id_}>"


def note_blocking(id_: str, values: dict[str, Any]) -> str:
    """End at once, on a thread."""
    _open[0].got[id_] = values
    return f"<{id_}>"


async def take(id_: str, values: dict[str, Any]) -> str:
    """Take the time that the book says, and fail if it says so."""
    book = _open[0]  # a step that outlives its run must not write into the next one's
    _begin(book, id_, values)
    try:
        await asyncio.sleep(book.seconds[id_])
        return _end(book, id_)
    except BaseException:
        book.stopped[id_] = time.monotonic()
        raise


def take_blocking(id_: str, values: dict[str, Any]) -> str:
    """Take the time that the book says on a thread, and fail if it says so."""
    book = _open[0]
    _begin(book, id_, values)
    try:
        time.sleep(book.seconds[id_])
        return _end(book, id_)
    except BaseException:
        book.stopped[id_] = time.monotonic()
        raise


def _begin(book: Book, id_: str, values: dict[str, Any]) -> None:
    book.got[id_] = values
    book.began[id_] = time.monotonic()


def _end(book: Book, id_: str) -> str:
    if id_ == book.failing:
        raise StepFailed(id_)
    book.ended[id_] = time.monotonic()
    return value_of(id_)
