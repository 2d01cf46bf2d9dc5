"""The tools of the measurements on Ray: the nodes import them."""

from __future__ import annotations

import asyncio
import os
import time

import dagrun
from dagrun import ToolContext


@dagrun.tool(effect="read")
async def nothing(after: int = 0) -> int:
    """Return the number."""
    return after


@dagrun.tool(effect="read")
async def nap(seconds: float) -> int:
    """Wait, and return the id of the process."""
    await asyncio.sleep(seconds)
    return os.getpid()


@dagrun.tool(effect="read")
def doze(seconds: float) -> int:
    """Wait in a thread, and return the id of the process."""
    time.sleep(seconds)
    return os.getpid()


@dagrun.tool(effect="read")
async def count(context: ToolContext, parts: int = 3, every: float = 1) -> int:
    """Report each part, which takes *every* seconds, and ten tokens for it."""
    for part in range(parts):
        context.progress(part / parts, f"part {part}")
        context.report_usage(tokens=10)
        await asyncio.sleep(every)
    return os.getpid()
