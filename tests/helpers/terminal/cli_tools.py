"""Tools for tests of the command line."""

import os
import sys
import time
from pathlib import Path

import anyio

import dagrun

HOSTILE = "\x1b[2J\x1b]52;c;ZXZpbA==\x07[bold red]x[/]\r\nforged: line \u202e \x9b1m"


@dagrun.tool(effect="pure")
async def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@dagrun.tool(effect="pure")
async def echo(value: object) -> object:
    """Give back what it got."""
    return value


@dagrun.tool(effect="pure")
async def nap(seconds: float = 0.05) -> str:
    """Sleep."""
    await anyio.sleep(seconds)
    return "slept"


@dagrun.tool(effect="read")
async def fail(message: str = "there is nothing") -> str:
    """Fail for good."""
    raise dagrun.ToolError(message)


@dagrun.tool(effect="read")
async def fail_once(context: dagrun.ToolContext) -> str:
    """Fail at the first attempt."""
    if context.attempt == 1:
        raise dagrun.ToolError("busy", retryable=True)
    return "ok"


@dagrun.tool
async def doubtful() -> str:
    """Break in the middle of an effect."""
    raise RuntimeError("connection lost")


@dagrun.tool(effect="idempotent", needs_approval=True)
async def needs_a_person() -> str:
    """Wait for a yes."""
    return "done"


@dagrun.tool(effect="read")
def stuck(context: dagrun.ToolContext) -> str:
    """Sit in a thread, whatever it is told."""
    context.progress(message="sitting")
    time.sleep(60)
    return "late"


@dagrun.tool(effect="read")
async def stubborn() -> str:
    """Swallow every cancellation."""
    while True:
        try:
            await anyio.sleep(60)
        except (
            anyio.get_cancelled_exc_class()
        ):  # that is the point; to catch more would spin in a thread without a loop
            continue


@dagrun.tool(effect="read")
def noisy() -> str:
    """Print by all ways there are."""
    print("printed by Python")
    sys.stdout.buffer.write(b"printed as bytes\n")
    os.write(1, b"printed by C\n")
    os.system("echo printed by a program")
    return "quiet"


@dagrun.tool(effect="read")
def floods(lines: int, context: dagrun.ToolContext) -> str:
    """Log and print far too much."""
    for number in range(lines):
        context.logger.warning("record %d", number)
        print(f"line {number}")
    return "done"


@dagrun.tool(effect="read")
async def hostile(context: dagrun.ToolContext) -> str:
    """Say what should steer a terminal, by every way there is."""
    context.progress(0.5, HOSTILE)
    context.logger.warning("log %s", HOSTILE)
    print("print", HOSTILE)
    await anyio.sleep(0.6)
    raise dagrun.ToolError(f"error {HOSTILE}")


@dagrun.tool(effect="pure")
async def says_hostile() -> str:
    """Return what should steer a terminal."""
    return HOSTILE


@dagrun.tool(effect="read")
async def fails_at_length() -> str:
    """Fail with 100 MB of text."""
    raise dagrun.ToolError("x" * 100_000_000)


@dagrun.tool(effect="idempotent")
def write_here(name: str) -> list[str]:
    """Write a file in the current directory, and tell where else to read."""
    Path(name).write_text("made by a tool")
    return [os.getcwd(), os.environ.get("DAGRUN_READ_FROM", "")]
