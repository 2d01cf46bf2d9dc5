"""The remote sources of the demo: an HTTP server on loopback, as slow as remote sources are."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

LATENCY: Final = 0.9  # seconds that an answer takes
FLAKY: Final = "2004-2005"  # the page whose first request fails

# Consumer Price Index for All Urban Consumers, annual average, 1982 to 1984 = 100.
# Source: U.S. Bureau of Labor Statistics (public domain).
PRICES: Final = {
    2000: 172.2,
    2001: 177.1,
    2002: 179.9,
    2003: 184.0,
    2004: 188.9,
    2005: 195.3,
    2006: 201.6,
    2007: 207.342,
    2008: 215.303,
    2009: 214.537,
    2010: 218.056,
    2011: 224.939,
    2012: 229.594,
    2013: 232.957,
    2014: 236.736,
    2015: 237.017,
}

_PAGE: Final = re.compile(r"/v1/prices/(\d{4})-(\d{4})")


class DemoServer(ThreadingHTTPServer):
    """Serves prices by pages of years; the rates are gone for good.

    Args:
        latency: Seconds that an answer takes.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, latency: float) -> None:
        super().__init__(("127.0.0.1", 0), _SourceHandler)
        self.latency = latency
        self._lock = threading.Lock()
        self._has_failed = False

    @property
    def url(self) -> str:
        """The URL of the server; the system has chosen the port."""
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up; if an answer is wrong, its client reports it."""

    def answer(self, path: str) -> tuple[int, Any]:
        """Return the status and the JSON for a path."""
        if path == "/v1/rates":
            return 410, {"error": "this service has been shut down"}
        page = _PAGE.fullmatch(path)
        if page is None:
            return 404, {"error": "no such page"}
        if f"{page[1]}-{page[2]}" == FLAKY and self._fails_now():
            return 503, {"error": "overloaded, try again"}
        years = range(int(page[1]), int(page[2]) + 1)
        return 200, {"index": {str(year): PRICES[year] for year in years if year in PRICES}}

    def _fails_now(self) -> bool:
        with self._lock:
            had, self._has_failed = self._has_failed, True
        return not had


class _SourceHandler(BaseHTTPRequestHandler):
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
        """Log nothing: the demo shows its own progress."""


@contextmanager
def serving(latency: float | None = None) -> Iterator[DemoServer]:
    """Run the sources during the body of the ``with``.

    Args:
        latency: Seconds that an answer takes; `None` for the usual ones.
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
