"""Tools that are found by name on the other side of a wire, which in most tests is in the same process."""

from __future__ import annotations

import threading
import time
from typing import Any

import anyio
from pydantic import SecretStr

import dagrun
from dagrun import Artifact, ToolContext, ToolError

done: list[Any] = []  # what the tools have done; tests clear it
threads: list[threading.Thread] = []
gate = threading.Event()


@dagrun.tool(effect="read")
async def far_add(a: int, b: int) -> int:
    """Add."""
    return a + b


@dagrun.tool(effect="effectful")
async def far_pay(order: int, seconds: float = 0) -> str:
    """Pay, and take a while."""
    done.append(("began", order))
    try:
        await anyio.sleep(seconds)
    except BaseException:
        done.append(("told to stop", order))
        await anyio.sleep(0.25)
        done.append(("cleaned up", order))
        raise
    done.append(("paid", order))
    return f"paid {order}"


@dagrun.tool(effect="idempotent")
async def far_keyed_pay(order: int, seconds: float = 0) -> str:
    """Pay in a way that may be repeated."""
    return await far_pay(order, seconds)


@dagrun.tool(effect="read")
async def far_report(context: ToolContext) -> dict[str, Any]:
    """Report while it runs."""
    for number in range(3):
        context.progress(number / 4, f"part {number}" if number else "")
        context.report_usage(tokens=10 * (number + 1), cost=0.5)
        await anyio.sleep(1)
    context.report_confidence(0.5)
    context.surprise("more than ever")
    return {
        "step": context.step,
        "attempt": context.attempt,
        "key": len(context.idempotency_key),
        "left": context.seconds_left is not None,
        "wanted": context.expected_output,
    }


@dagrun.tool(effect="read")
def far_threaded(context: ToolContext) -> str:
    """Run in a thread until it is told to stop."""
    context.progress(0.5, "in a thread")
    while not context.is_cancelled:
        time.sleep(0.001)
    done.append("stopped")
    return "stopped"


@dagrun.tool(effect="read")
def far_stubborn(context: ToolContext) -> str:
    """Run in a thread until the test opens the gate."""
    context.progress(0.5, "in a thread")
    gate.wait(20)
    return "at last"


@dagrun.tool(effect="read")
def far_left_behind(context: ToolContext) -> int:
    """Leave a thread behind that reports when the call has ended."""

    def report() -> None:
        gate.wait(20)
        context.report_usage(tokens=1_000)
        done.append("reported")

    threads.append(threading.Thread(target=report))
    threads[-1].start()
    context.report_usage(tokens=1)
    return 1


@dagrun.tool(effect="read")
async def far_login(password: SecretStr) -> str:
    """Say the secret in every way there is."""
    raise ToolError(f"wrong password {password.get_secret_value()}")


@dagrun.tool(effect="read")
async def far_fail(word: str) -> str:
    """Fail with a word."""
    raise {"value": ValueError, "connection": ConnectionResetError, "exit": SystemExit}[word](word)


@dagrun.tool(effect="read")
async def far_copy(context: ToolContext, file: Artifact, size: int) -> list[Artifact]:
    """Read a file, and save one as large as *size* besides."""
    text = context.artifacts.path(file).read_text()
    return [
        context.artifacts.save(text.upper(), media_type="text/plain", name="upper.txt"),
        context.artifacts.save(bytes(size)),
    ]


@dagrun.tool(effect="read", version="1")
async def far_versioned(a: int) -> int:
    """One version of a tool."""
    return a


@dagrun.tool(effect="read")
async def far_asks(context: ToolContext) -> str:
    """Ask a person."""
    return str(await context.ask("Which one?"))


@dagrun.tool(effect="read")
async def far_nested(context: ToolContext) -> str:
    """Ask nobody, in spite of a name that looks so."""
    return str({"ask": context.step})


def signed(a: int, b: int) -> int:
    """A function of which tools are made elsewhere."""
    return a - b
