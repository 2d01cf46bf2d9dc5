"""Start the server of a small model on loopback, and stop it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from real_model.prepare import HERE, CannotPrepare, Prepared

START_WITHIN: Final = 120.0  # seconds
STOP_WITHIN: Final = 10.0


@contextmanager
def serving(prepared: Prepared, *, log: Path, port: int = 0) -> Iterator[str]:
    """Serve the model until the block ends.

    Args:
        prepared: The model and its server.
        log: Where the server writes what it does.
        port: On loopback; 0 for any that is free.

    Yields:
        The base URL for OpenAI-compatible clients.

    Raises:
        CannotPrepare: The server does not start; the message ends with what it said last.
    """
    # Who ends this program must not leave the server behind.
    signal.signal(signal.SIGTERM, _leave)
    port = port or free_port()
    options = (str(prepared.server), str(prepared.file), prepared.model.name, str(port))
    command = [sys.executable, str(HERE / "server.py"), *options]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=_environment())
        try:
            wait_for_health(process, port, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            stop(process)


def wait_for_health(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the model is loaded.

    Raises:
        CannotPrepare: It is not, in time.
    """
    until = time.monotonic() + START_WITHIN
    # The proxies of this machine are none of loopback's business.
    with httpx.Client(trust_env=False, timeout=2) as client:
        while process.poll() is None and time.monotonic() < until:
            if is_healthy(client, port):
                return
            time.sleep(0.1)
    said = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
    code = process.poll()
    how = f"is not ready after {START_WITHIN:g} s" if code is None else f"has ended with code {code}"
    raise CannotPrepare(f"The server {how}. The last that it said ({log}):\n{said}")


def is_healthy(client: httpx.Client, port: int) -> bool:
    """Whether the server answers that it is ready."""
    try:
        return client.get(f"http://127.0.0.1:{port}/health").status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server, hard if it takes its time."""
    process.terminate()
    try:
        process.wait(STOP_WITHIN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _leave(number: int, frame: object) -> None:
    sys.exit(128 + number)


def _environment() -> dict[str, str]:
    # Variables of its own would change what it does.
    given = {name: value for name, value in os.environ.items() if not name.startswith(("LLAMA_", "GGML_"))}
    # Its threads wait for each other after every layer, and on a busy machine they must not spin while they do.
    return given | {"OMP_WAIT_POLICY": "PASSIVE"}
