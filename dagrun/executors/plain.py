"""Plain functions outside the loop, in a thread or a process: what they return must be there already."""

from __future__ import annotations

import inspect

from dagrun.errors import ValueRefused


def finished(value: object) -> object:
    """Give *value* back, unless it is a promise that only a loop, or a caller who goes on asking, could make good.

    Raises:
        ValueRefused: It is a coroutine or a generator of either kind; it is closed.
    """
    if inspect.iscoroutine(value):
        value.close()  # or it would complain, when it is collected, that nobody awaited it
        raise ValueRefused("a plain function returned a coroutine; make the tool async")
    if inspect.isgenerator(value):
        value.close()
        raise ValueRefused("returned a generator, which may never end; return a list")
    if inspect.isasyncgen(value):
        raise ValueRefused("a plain function returned an async generator; make the tool async and return a list")
    return value
