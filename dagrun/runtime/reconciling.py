"""Reconciling: a tool finds out by itself whether a call of it took effect of which nobody knows."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import anyio.to_thread

from dagrun.errors import ContractError
from dagrun.model.effect import Applied
from dagrun.model.question import Answer
from dagrun.model.toolbox import AnyTool
from dagrun.model.value import decode


async def reconcile(tool: AnyTool, key: str) -> Answer | None:
    """Ask *tool* whether the call with the idempotency *key* took effect.

    Returns:
        A yes with what the call gave, a no, or `None` if the tool does not know either.

    Raises:
        ContractError: What it said is no answer.
        ValueRefused: What the call gave, as it says, is not what the tool gives.
    """
    assert tool.reconcile is not None
    if inspect.iscoroutinefunction(tool.reconcile):
        said: Any = await tool.reconcile(key)
    else:
        said = await anyio.to_thread.run_sync(partial(tool.reconcile, key), abandon_on_cancel=True)
    by = f"reconcile of {tool.name}"
    match said:
        case None:
            return None
        case False:
            return Answer("deny", by=by)
        case Applied():
            return Answer("approve", value=decode(tool.output.encode(said.value, tool.output_limit)), by=by)
        case _:
            raise ContractError(f"{by} gives Applied(value), False, or None if it does not know; got {said!r:.100}")
