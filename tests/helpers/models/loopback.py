"""Real servers on loopback, for tests of what goes over the wire."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from dagrun.sources.network.network_rules import NetworkRules

END = b"\r\n\r\n"


@dataclass
class Request:
    """One request, as it came."""

    head: bytes
    body: bytes = b""

    @property
    def method(self) -> str:
        return self.head.split(b" ", 1)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> dict[str, str]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}


@dataclass
class Server:
    """What a server has seen so far."""

    port: int
    connects: int = 0
    requests: list[Request] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def rules(self) -> NetworkRules:
        """Rules that allow this server and nothing else that is not public."""
        return NetworkRules(allow=(f"127.0.0.1:{self.port}",), deadline=20)


Handler = Callable[[Request, socket.socket], None]


def answer(body: bytes = b"", status: str = "200 OK", **headers: str) -> bytes:
    """The bytes of an answer; underscores in names of headers are hyphens."""
    given = {"content_length": str(len(body))} | headers
    lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in given.items())]
    return "\r\n".join(lines).encode("latin-1") + END + body


def always(data: bytes) -> Handler:
    """A handler that gives the same answer to everybody."""
    return lambda _request, connection: connection.sendall(data)


def until_closed(connection: socket.socket, piece: bytes = b"", every: float = 0.02) -> None:
    """Send *piece* again and again, until the other side has hung up."""
    while True:
        readable, _, _ = select.select([connection], [], [], every)
        if readable and not connection.recv(4096):
            return
        connection.sendall(piece)


@contextmanager
def serving(handler: Handler) -> Iterator[Server]:
    """Serve on a port of 127.0.0.1. At the end every client must have closed its connections: that is asserted."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = Server(listener.getsockname()[1])
    threads: list[threading.Thread] = []

    def serve(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while (request := _read_request(connection)) is not None:
                server.requests.append(request)
                handler(request, connection)

    def accept() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                server.connects += 1
                threads.append(threading.Thread(target=serve, args=(connection,), daemon=True))
                threads[-1].start()

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield server
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts; closing alone would not
        accepting.join(10)
        listener.close()
        for thread in threads:
            thread.join(10)
    assert not any(thread.is_alive() for thread in threads), "a client left a connection open"


def _read_request(connection: socket.socket) -> Request | None:
    data = b""
    while END not in data:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        data += chunk
    head, _, body = data.partition(END)
    request = Request(head + END)
    length = int(request.headers.get("content-length", "0"))
    while len(body) < length:
        chunk = connection.recv(65536)
        if not chunk:
            return None
        body += chunk
    request.body = body
    return request


class Trap:
    """Listens, and answers nobody; it counts who has connected."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.port: int = listener.getsockname()[1]

    @property
    def connects(self) -> int:
        """Connections that are waiting to be accepted: the system has completed them, whether or not we look."""
        count = 0
        with suppress(BlockingIOError):
            while True:
                self._listener.accept()[0].close()
                count += 1
        return count


@contextmanager
def trap() -> Iterator[Trap]:
    """A port of loopback, in both families where there are both, that nobody should connect to."""
    dual = socket.has_dualstack_ipv6()
    where = ("::", 0) if dual else ("127.0.0.1", 0)
    family = socket.AF_INET6 if dual else socket.AF_INET
    with socket.create_server(where, family=family, dualstack_ipv6=dual) as listener:
        listener.setblocking(False)
        yield Trap(listener)
