"""A connection of the server: written to, waited on, and watched for its end by the client."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.server import BaseHTTPRequestHandler
    from types import TracebackType


class HungUp(Exception):
    """The client has closed the connection."""


class ServerStopped(Exception):
    """The server is being stopped."""


class ServerConnection:
    """One connection, while it is answered.

    Args:
        handler: The handler of the request.
        stop: A socket that becomes readable, for good, when the server stops.
    """

    def __init__(self, handler: BaseHTTPRequestHandler, stop: socket.socket) -> None:
        self._handler = handler
        self._socket: socket.socket = handler.connection
        self._stop = stop
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> ServerConnection:
        self._selector.register(self._stop, selectors.EVENT_READ)
        self._selector.register(self._socket, selectors.EVENT_READ)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._selector.close()

    def wait_until(self, due: float | None) -> None:
        """Wait until *due* (`time.monotonic`), forever if it is `None`.

        Raises:
            HungUp: The client has closed the connection.
            ServerStopped: The server stops.
        """
        while True:
            left = None if due is None else max(0.0, due - time.monotonic())
            ready = {key.fileobj for key, _ in self._selector.select(left)}
            if self._stop in ready:
                raise ServerStopped
            if self._socket in ready:
                self._look()
            elif not ready:
                return

    def _look(self) -> None:
        try:
            is_open = bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError as error:
            raise HungUp from error
        if not is_open:
            raise HungUp
        # The client has sent its next request early. It is read later, but the connection cannot be watched any more.
        self._selector.unregister(self._socket)

    def _lost(self) -> Exception:
        # A server that stops shuts down every connection, to end writes to clients that do not read.
        is_stopping = any(key.fileobj is self._stop for key, _ in self._selector.select(0))
        return ServerStopped() if is_stopping else HungUp()

    def head(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the status and the headers.

        Raises:
            HungUp: The client has closed the connection.
            ServerStopped: The server stops.
        """
        self._handler.send_response(status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        try:
            self._handler.end_headers()
        except OSError as error:
            raise self._lost() from error

    def write(self, data: bytes) -> None:
        """Send bytes of the body.

        Raises:
            HungUp: The client has closed the connection.
            ServerStopped: The server stops.
        """
        try:
            self._handler.wfile.write(data)
        except OSError as error:
            raise self._lost() from error

    def write_chunk(self, data: bytes) -> None:
        """Send a chunk of a chunked body; an empty chunk ends the body.

        Raises:
            HungUp: The client has closed the connection.
            ServerStopped: The server stops.
        """
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self, *, reset: bool = False) -> None:
        """Close the connection after this answer; with *reset*, at once, and drop all data that is not sent yet."""
        self._handler.close_connection = True
        if reset:
            # Lingering for 0 seconds makes a reset. The socket is detached, so that the server does not close it again.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self._socket.detach())
