"""Tools of the tests of `dagrun mcp serve`: in this process, and in one of its own."""

from __future__ import annotations

import os
from typing import Literal

import anyio

import dagrun


def note(text: str) -> None:
    """Write a line to the file that the environment names."""
    with open(os.environ["NOTES"], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


@dagrun.tool(effect="read")
async def look(city: str, days: int = 1) -> dict[str, int]:
    """Look at the weather.

    Args:
        city: Where.
        days: How many days.
    """
    return {"degrees": len(city) * days}


@dagrun.tool(effect="read")
async def unit(name: Literal["C", "F"], scale: float = 1.0) -> str:
    """Return a unit."""
    print("a print of a tool is no message of the protocol")
    return name


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay(amount: float, to: str) -> str:
    """Pay."""
    note(f"paid {amount:g} to {to}")
    return f"paid {to}"


@dagrun.tool(effect="read")
async def slow(name: str) -> str:
    """Take a minute."""
    note(f"begun {name}")
    try:
        await anyio.sleep(60)
    finally:
        note(f"stopped {name}")
    return name


@dagrun.tool(effect="read")
async def fail(text: str) -> str:
    """Fail."""
    raise dagrun.ToolError(text)
