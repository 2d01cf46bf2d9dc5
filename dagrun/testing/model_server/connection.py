"""A connection as the server sees it: it can be written to, waited on, and seen to be closed by the other side."""

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
        handler: Of the request that is answered.
        stop: Becomes readable, for good, when the server stops.
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
        """Wait until this time (`time.monotonic`), for ever if it is `None`, or until somebody has had enough.

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
        # The next request, too early: it is read in its turn, but the line can't be watched any more.
        self._selector.unregister(self._socket)

    def _lost(self) -> Exception:
        # A server that stops shuts down every connection, so as to end a write to a client that does not read.
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
        """Send a chunk of a body in chunks; an empty one ends it.

        Raises:
            HungUp: The client has closed the connection.
            ServerStopped: The server stops.
        """
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def close(self, *, reset: bool = False) -> None:
        """Close the connection after this answer; with a reset, all at once and whatever is still under way."""
        self._handler.close_connection = True
        if reset:
            # To linger for 0 seconds is to reset; the server that would close it politely finds it closed.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            socket.close(self._socket.detach())
