"""The remote sources of the demo: a real HTTP server on loopback, slow as remote sources are."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from dagrun_tools.demo.figures import PRICES

LATENCY: Final = 0.9  # seconds that an answer takes
MOODY: Final = "2004-2005"  # the page that fails the first time that it is asked for

_PAGE: Final = re.compile(r"/v1/prices/(\d{4})-(\d{4})")


class DemoServer(ThreadingHTTPServer):
    """Serves prices by pages of years; the rates have moved away for good.

    Args:
        latency: Seconds that an answer takes.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, latency: float) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.latency = latency
        self._lock = threading.Lock()
        self._has_failed = False

    @property
    def url(self) -> str:
        """Where it is; the system has chosen the port."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up; what is wrong with an answer, its client says."""

    def answer(self, path: str) -> tuple[int, Any]:
        """The status and the JSON for a path."""
        if path == "/v1/rates":
            return 410, {"error": "this service has been shut down"}
        page = _PAGE.fullmatch(path)
        if page is None:
            return 404, {"error": "no such page"}
        if f"{page[1]}-{page[2]}" == MOODY and self._fails_now():
            return 503, {"error": "overloaded, try again"}
        years = range(int(page[1]), int(page[2]) + 1)
        return 200, {"index": {str(year): PRICES[year] for year in years if year in PRICES}}

    def _fails_now(self) -> bool:
        with self._lock:
            had, self._has_failed = self._has_failed, True
        return not had


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: DemoServer

    def do_GET(self) -> None:
        time.sleep(self.server.latency)
        status, value = self.server.answer(self.path)
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """The demo shows its own progress."""


@contextmanager
def serving(latency: float | None = None) -> Iterator[DemoServer]:
    """Run the sources beside the body.

    Args:
        latency: Seconds that an answer takes; `None` for what is usual.
    """
    server = DemoServer(LATENCY if latency is None else latency)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
