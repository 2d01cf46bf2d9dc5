"""`join`: several outputs as one."""

from __future__ import annotations

from typing import Any

from dagrun import tool


@tool(effect="pure", timeout=60)
async def join(values: dict[str, Any] | list[Any]) -> Any:
    """Give several values as one, once all of them are there.

    Args:
        values: An object or a list of them.

    Returns:
        The same.
    """
    return values
