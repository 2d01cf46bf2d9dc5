"""What an application serves for long ends when its server stops, on the servers that people use."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import mounted_app
from command_line import environment

pytestmark = [pytest.mark.costly, pytest.mark.real_time]

SERVERS: Final = {
    "uvicorn": ("uvicorn", "--port", "{port}", "--log-level", "warning", "{app}"),
    "hypercorn": ("hypercorn", "-b", "127.0.0.1:{port}", "{app}"),
    "gunicorn": (
        "gunicorn",
        "-b",
        "127.0.0.1:{port}",
        "-k",
        "uvicorn.workers.UvicornWorker",
        "--no-control-socket",
        "{app}",
    ),
}
EXAMPLES: Final = Path(__file__).resolve().parents[2] / "docs" / "examples"
PAGES: Final = Path(mounted_app.__file__).parent
SECONDS: Final = 25  # less than the 30 after which gunicorn kills a worker
TICKET: Final = {"cookie": "ticket=ticket-of-ann"}


@contextmanager
def served(server: str, app: str, folder: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [word.format(port=port, app=app) for word in SERVERS[server]]
    command = [sys.executable, "-m", *words, *more]
    env = environment(PYTHONWARNINGS="ignore")
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            for _ in range(500):
                try:
                    socket.create_connection(("127.0.0.1", port), 0.2).close()
                    break
                except OSError:
                    assert process.poll() is None, process.communicate()[0]
                    time.sleep(0.05)
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


class Reader(threading.Thread):
    """Reads a stream, and opens it again as often as it says so, as a browser does.

    Attributes:
        begun: Set when something has come.
        lines: What has come.
        error: What a stream broke off with, other than that the server is gone.
    """

    def __init__(self, method: str, url: str, **options: Any) -> None:
        super().__init__()
        self._request: Mapping[str, Any] = {"method": method, "url": url, **options}
        self.begun = threading.Event()
        self.lines: list[str] = []
        self.error: httpx.HTTPError | None = None

    def run(self) -> None:
        """Read until the server is gone."""
        is_open = True
        with httpx.Client(trust_env=False, timeout=60) as client:
            while is_open:
                is_open, is_answered = False, False
                try:
                    with client.stream(**self._request) as answer:
                        is_answered = True
                        for line in answer.iter_lines():
                            self.lines.append(line)
                            self.begun.set()
                            is_open = is_open or line == "event: again"
                except httpx.HTTPError as error:
                    self.error = error if is_answered else None


def stopped(process: subprocess.Popen[str], reader: Reader) -> str:
    """Stop a server while somebody reads; return what it has written."""
    reader.start()
    try:
        assert reader.begun.wait(SECONDS)
        process.send_signal(signal.SIGTERM)
        return process.communicate(timeout=SECONDS)[0]
    finally:
        process.kill()
        reader.join()


@pytest.mark.parametrize("server", SERVERS)
def test_an_open_page_does_not_keep_a_server_from_stopping(server: str) -> None:
    """A server waits for its open responses, and says nothing; the browser reads on until nobody answers."""
    app = "mounted_app:application()" if server != "uvicorn" else "mounted_app:application"
    more = ["--factory"] if server == "uvicorn" else []
    with served(server, app, PAGES, *more) as (process, url):
        reader = Reader("GET", f"{url}/runs/api/runs/r1/stream", headers=TICKET)
        told = stopped(process, reader)
    assert "the lifespan has ended" in told
    assert reader.error is None
    assert "Traceback" not in told


@pytest.mark.parametrize("server", ["uvicorn", "gunicorn"])
def test_the_service_of_the_documentation_ends_its_streams(server: str) -> None:
    """Its client gets the result of the run, which nobody answers. Hypercorn cuts it by itself."""
    with served(server, "service:app", EXAMPLES) as (process, url):
        reader = Reader("POST", f"{url}/refunds?order=B2", auth=("shop", "shop's word"))
        told = stopped(process, reader)
    assert reader.error is None
    assert '"status": "cancelled", "reason": "the service stops"' in reader.lines[-2]
    assert "Traceback" not in told
