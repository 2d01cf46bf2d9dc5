"""The tools of the measurements on Ray: the nodes import them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import dagrun
from dagrun import Artifact, ToolContext, ToolError


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


@dagrun.tool(effect="read")
async def linger(folder: str, name: str) -> int:
    """Wait for long, and note when it began and when it was stopped."""
    _note(folder, f"{name}.begun", repr(time.time()))
    try:
        await asyncio.sleep(30)
    finally:
        _note(folder, f"{name}.ended", repr(time.time()))
    return 0


@dagrun.tool(effect="read")
async def die_reading(folder: str) -> int:
    """End the whole process at the first call, and return the number of calls at a later one."""
    return _die_once(Path(folder, "reading"))


@dagrun.tool(effect="effectful")
async def die_paying(folder: str) -> int:
    """As `die_reading`, with an effect."""
    return _die_once(Path(folder, "paying"))


@dagrun.tool(effect="effectful")
async def pay(context: ToolContext, folder: str, seconds: float) -> None:
    """Note the payment and the process, and take a while."""
    _note(folder, "payments", f"{context.idempotency_key} {os.getpid()}\n")
    await asyncio.sleep(seconds)


@dagrun.tool(effect="read")
async def draw(context: ToolContext, size: int) -> Artifact:
    """Return a file."""
    return context.artifacts.save(b"." * size, name="drawing")


@dagrun.tool(effect="read")
async def measure_file(context: ToolContext, file: Artifact) -> int:
    """Return the size of a file."""
    return len(context.artifacts.path(file).read_bytes())


@dagrun.tool(effect="read")
async def fetch(source: str) -> list[float]:
    """Read a source; the old one was switched off."""
    await asyncio.sleep(1)
    if source == "old":
        raise ToolError("this source was switched off", unreachable=True)
    return [1.0, 2.0, 3.5]


@dagrun.tool(effect="read")
async def simulate(context: ToolContext, parts: int) -> float:
    """Compute for *parts* seconds, and report each."""
    for part in range(parts):
        context.progress(part / parts, f"part {part + 1} of {parts}")
        await asyncio.sleep(1)
    return 100.0


@dagrun.tool(effect="pure")
async def add_up(values: list[float], rest: float) -> float:
    """Add all."""
    return sum(values) + rest


def _note(folder: str, name: str, text: str) -> None:
    with Path(folder, name).open("a") as file:
        file.write(text)


def _die_once(file: Path) -> int:
    calls = len(file.read_text()) if file.exists() else 0
    file.write_text("x" * (calls + 1))
    if not calls:
        os._exit(1)
    return calls + 1
