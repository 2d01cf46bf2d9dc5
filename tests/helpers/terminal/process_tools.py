"""Tools that worker processes import by name: good ones, broken ones, and ones that break their process."""

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any

from pydantic import SecretStr

from dagrun import Artifact, ToolContext, ToolError, tool

process_tool = tool(effect="pure", executor="process", output_limit=100_000)


@process_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@process_tool
async def add_later(a: int, b: int) -> int:
    """Add, in a loop of its own."""
    await asyncio.sleep(0)
    return a + b


@process_tool
def which_process() -> int:
    """The process that it runs in."""
    return os.getpid()


@process_tool
def chatter() -> str:
    """Write to the standard output, on every level there is."""
    print("printed")
    sys.stdout.write("written\n")
    os.write(1, b"raw\n")
    subprocess.run(["echo", "by a child"], check=True)
    return "said"


@process_tool
def be_surprised(ctx: ToolContext) -> int:
    """Report something unexpected."""
    ctx.surprise("ten times as many rows")
    return 1


@process_tool
def describe_context(ctx: ToolContext) -> dict[str, Any]:
    """What a tool can see of its run, and report."""
    ctx.progress(0.5, "x" * 100_000)
    ctx.report_usage(tokens=7, cost=0.25)
    return {
        "run_id": ctx.run_id,
        "step": ctx.step,
        "attempt": ctx.attempt,
        "key": ctx.idempotency_key,
        "has_deadline": ctx.seconds_left is not None and 0 < ctx.seconds_left <= 60,
    }


@process_tool
def save_text(text: str, ctx: ToolContext) -> Artifact:
    """Keep a file."""
    return ctx.artifacts.save(text, media_type="text/plain")


@process_tool
def fail_clearly() -> None:
    """Fail with every field that a ToolError has."""
    raise ToolError("the door is shut", retryable=True, retry_after=3.0, missing_input="key")


@process_tool
def fail_with(name: str) -> None:
    """Raise a builtin exception."""
    raise vars(__import__("builtins"))[name]("on purpose")


@process_tool
def return_nonsense() -> int:
    """Return something else than it says."""
    return "text"  # type: ignore[return-value]


@process_tool
def return_text(characters: int) -> str:
    """Return so many characters."""
    return "x" * characters


@process_tool
def return_list(count: int) -> list[int] | Artifact:
    """Return a list, or the file that it is in."""
    return [7] * count


@tool(effect="pure", executor="process", output_limit=10_000_000)
def join_texts(texts: list[str]) -> str:
    """Return one text of many."""
    return "".join(texts)


@process_tool
def fill_memory(megabytes: int) -> int:
    """Take memory."""
    return len(bytearray(megabytes << 20))


@process_tool
def exit_hard(code: int) -> None:
    """End the process without an answer."""
    os._exit(code)


@process_tool
def exit_hard_with_a_fork(ctx: ToolContext) -> None:
    """The same, leaving behind a fork that holds every descriptor."""
    pid = os.fork()
    if pid == 0:
        time.sleep(600)
    ctx.progress(message=str(pid))
    os._exit(4)


@process_tool
def crash() -> None:
    """End the process as a segmentation fault does."""
    os.kill(os.getpid(), signal.SIGSEGV)


@process_tool
def hang_with_a_child(ctx: ToolContext) -> None:
    """Start a program, say which, and never end."""
    with subprocess.Popen(["sleep", "600"]) as child:
        ctx.progress(message=f"{os.getpid()} {child.pid}")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(600)


@process_tool
def send_raw(kind: str, size: int, text: str) -> None:
    """Write to the executor's socket past the worker, as a program gone mad might."""
    for number in range(3, 64):
        try:
            mine = socket.socket(fileno=os.dup(number))
            mine.getpeername()
        except OSError:
            continue
        mine.sendall(struct.pack(">Q", len(kind) + size) + kind.encode() + text.encode())
    time.sleep(600)


@process_tool
def wait_for_file(path: str, ctx: ToolContext) -> str:
    """Say that it runs, and end when there is a file."""
    ctx.progress(message=path)
    while not os.path.exists(path):
        time.sleep(0.001)
    return path


@process_tool
def loaded_modules() -> list[str]:
    """What its process has imported."""
    return sorted(sys.modules)


def _undecorated(a: int) -> int:
    return -a


negate = tool(name="negate", effect="pure", executor="process")(_undecorated)

LIE = json.dumps({"kind": "usage", "facts": {"tokens": -1_000_000, "cost": None}})


@tool(effect="pure")
def asks_in_a_thread(context: ToolContext) -> Any:
    """Asks a person, which it cannot."""
    return context.ask("Which?")


@process_tool
def asks_in_a_process(context: ToolContext) -> Any:
    """Asks a person, which it cannot."""
    return context.ask("Which?")


@process_tool
def gives_a_secret(key: SecretStr) -> str:
    """Give a secret away, if it is nowhere it could be read."""
    value = key.get_secret_value()
    around = json.dumps([sys.argv, dict(os.environ)])
    return value if json.dumps(value)[1:-1] not in around else "it stands around"


@process_tool
def raises_a_secret(key: SecretStr) -> str:
    """Fail with a secret."""
    raise ValueError(f"no: {key.get_secret_value()}")


@process_tool
def reports_a_secret(key: SecretStr, context: ToolContext) -> str:
    """Say a secret."""
    context.progress(0.5, f"at {key.get_secret_value()}")
    context.logger.info("at %s", key.get_secret_value())
    return "done"


@process_tool
def seconds_left(ctx: ToolContext) -> float | None:
    """The time that is left of its limit, when it begins."""
    return ctx.seconds_left


def open_descriptors() -> list[int]:
    """The numbers of the open descriptors of this process."""

    def is_open(number: int) -> bool:
        try:
            os.fstat(number)
        except OSError:
            return False
        return True

    return [number for number in range(1024) if is_open(number)]
