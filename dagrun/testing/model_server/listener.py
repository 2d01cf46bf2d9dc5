"""The HTTP side of a `FakeModelServer`: one thread accepts connections, and each connection has a thread."""

from __future__ import annotations

import contextlib
import json
import selectors
import socket
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from dagrun.testing.model_server.anthropic_messages import read_messages
from dagrun.testing.model_server.calls import Api, RecordedCall, without_keys
from dagrun.testing.model_server.openai_chat import read_chat
from dagrun.testing.model_server.openai_responses import read_responses

_PATHS: Mapping[tuple[str, str], Api] = {
    ("POST", "/v1/responses"): "responses",
    ("POST", "/v1/chat/completions"): "chat",
    ("POST", "/v1/messages"): "messages",
    ("GET", "/v1/models"): "models",
}
_READERS: Mapping[str, Callable[[RecordedCall], None]] = {
    "responses": read_responses,
    "chat": read_chat,
    "messages": read_messages,
}
_MAX_BODY = 256 * 2**20  # bytes


@dataclass(frozen=True, slots=True)
class Received:
    """A request that has been read.

    Attributes:
        problem: The status and the message of the refusal, if the body is not a JSON object.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    problem: tuple[int, str] | None

    def as_call(self, number: int) -> RecordedCall:
        """Return the request as a `RecordedCall`."""
        call = RecordedCall(
            number=number,
            arrived=time.monotonic(),
            method=self.method,
            path=self.path,
            api=_PATHS.get((self.method, self.path)),
            headers=without_keys(self.headers),
            body=self.body,
        )
        model = self.body.get("model")
        call.model = model if isinstance(model, str) else None
        call.streams = self.body.get("stream") is True
        if call.api is not None and call.api in _READERS:
            _READERS[call.api](call)
        return call


class RequestHandler(BaseHTTPRequestHandler):
    """Reads requests, and passes them to *answer*."""

    protocol_version = "HTTP/1.1"  # connections stay open
    server_version = "FakeModelServer"
    sys_version = ""
    disable_nagle_algorithm = True  # otherwise a piece waits for the acknowledgement of the piece before
    server: Listener

    def __init__(self, answer: Callable[[RequestHandler, str], None], *args: Any) -> None:
        self._answer = answer
        super().__init__(*args)

    @property
    def stop(self) -> socket.socket:
        """The socket that becomes readable when the server stops."""
        return self.server.stop

    def receive(self, method: str) -> Received:
        """Read the body of the request; its headers have been read already."""
        length = self.headers.get("Content-Length", "0")
        size = int(length) if length.isdecimal() else 0
        problem: tuple[int, str] | None = None
        body: Any = {}
        if "Transfer-Encoding" in self.headers or size > _MAX_BODY:
            self.close_connection = True  # the start of the next request is unknown
            problem = (413, "The body is too long, or does not say how long it is.")
        elif size:
            try:
                body = json.loads(self.rfile.read(size))
            except (ValueError, RecursionError):
                body = None
        if not isinstance(body, dict):
            body, problem = {}, (400, "We could not parse the JSON body of your request.")
        return Received(method, urlsplit(self.path).path, dict(self.headers.items()), body, problem)

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer(self, "GET")

    def do_POST(self) -> None:
        """Answer a POST."""
        self._answer(self, "POST")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the recorded calls are the log."""


class Listener(ThreadingHTTPServer):
    """Listens on a free port of the loopback, from its construction until it is closed.

    Args:
        handler: Makes the handler of a connection.
        errors: The list to which exceptions of the server's threads are appended.

    Attributes:
        stop: A socket that becomes readable when the server stops.
    """

    daemon_threads = True
    request_queue_size = 128
    timeout = 0

    def __init__(self, handler: Callable[..., RequestHandler], errors: list[Exception]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._errors = errors
        self._connections: dict[threading.Thread, socket.socket] = {}
        self._stopper, self.stop = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="FakeModelServer", daemon=True)
        self._thread.start()

    def server_bind(self) -> None:
        """Bind without looking up the name of the machine, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def close(self) -> None:
        """Close everything, and wait for the threads."""
        self._stopper.close()
        self._thread.join(5)
        connections = list(self._connections.items())
        for _, connection in connections:
            with contextlib.suppress(OSError):  # its own thread has closed it
                connection.shutdown(socket.SHUT_RDWR)
        for thread, _ in connections:
            thread.join(5)
        self.server_close()
        self.stop.close()

    def _accept(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self.stop, selectors.EVENT_READ)
            selector.register(self.socket, selectors.EVENT_READ)
            while self.stop not in {key.fileobj for key, _ in selector.select()}:
                self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, and remember it, so that `close` can end it."""
        work = (request, client_address)
        thread = threading.Thread(target=self.process_request_thread, args=work, name="FakeModelServer", daemon=True)
        self._connections[thread] = request
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection until it is closed."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.pop(threading.current_thread(), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Store the exception, unless it only reports a lost connection."""
        error = sys.exc_info()[1]
        if isinstance(error, Exception) and not isinstance(error, OSError):
            self._errors.append(error)
