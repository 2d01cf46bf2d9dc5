"""Functions that the host program hands over."""

from __future__ import annotations

import inspect

from dagrun.errors import ContractError


def refuse_async(function: object, what: str) -> None:
    """Refuse what is no plain function: where it is called, nothing would await its answer.

    Args:
        function: What the host gave.
        what: What it is for, to begin the message with.

    Raises:
        ContractError: It is async, or cannot be called.
    """
    if not callable(function):
        raise ContractError(f"{what} must be a function, got {type(function).__name__}")
    # Of an object with `__call__`, it is that method which may be async.
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):
        raise ContractError(f"{what} must be a plain function, not an async one")
