"""The server of the live page on the command line: an address, a token, and uvicorn inside the loop of the command."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import anyio
import click

from dagrun.cli.terminal.signals import Interrupts, next_in_loop
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import MissingExtra

if TYPE_CHECKING:
    from dagrun.extend import Journal
    from dagrun.serve.page import RunsPage

PORT: Final = 8321
LOOPBACK: Final = "127.0.0.1"
TOKEN: Final = "DAGRUN_PAGE_TOKEN"  # the variable with the token; without it, each server makes its own
_TRIES: Final = 50  # ports that are tried, if none was named
_LAST_SECONDS: Final = 2.0  # for browsers to take the last changes
_OPENED_SECONDS: Final = 10.0  # until the file that a browser is sent to is deleted


class PageServer:
    """Serves the live page until it is closed.

    Args:
        journal: The journal with the runs to show; `None` for runs of this process alone.
        flags: The flags of the command line: ``port``, ``host``, ``allow_host``, ``read_only``, ``open_browser``.

    Attributes:
        page: The page.

    Raises:
        BadInput: The port is in use, or the host needs a name.
        MissingExtra: Starlette or uvicorn is not installed.
    """

    def __init__(self, journal: Journal | None, flags: Mapping[str, Any]) -> None:
        self._host: str = flags.get("host") or LOOPBACK
        names = tuple(flags.get("allow_host", ()))
        if not _is_loopback(self._host) and not names:
            raise BadInput(
                f"--host {self._host} lets other machines in: name the address that they use, by --allow-host NAME"
            )
        token = os.environ.get(TOKEN) or secrets.token_urlsafe(24)
        self._socket = bound_socket(self._host, flags.get("port"))
        self.port: int = self._socket.getsockname()[1]
        self._token = token
        self._ended = anyio.Event()
        self._is_opened: bool = flags.get("open_browser", False)
        own = [f"{name}:{self.port}" for name in (LOOPBACK, "localhost", "[::1]")]
        try:
            import dagrun

            self.page: RunsPage = dagrun.web(
                journal=journal,
                token=token,
                hosts=[*own, *names],
                read_only=flags.get("read_only", False),
                stream_seconds=None,  # `stop` closes the page
            )
            self._server = quiet_server(self.page)
        except BaseException:
            self._socket.close()
            raise

    def address(self, run_id: str = "") -> str:
        """Return the address of the page, or of a run, with the token; it is for the person at the terminal."""
        host = f"[{self._host}]" if ":" in self._host else LOOPBACK if self._host == "0.0.0.0" else self._host
        return f"http://{host}:{self.port}/{f'r/{run_id}' if run_id else ''}#token={self._token}"

    def announce(self, say: Callable[[str], object], run_id: str = "") -> None:
        """Print the address of the page, and open it in a browser if requested.

        Args:
            say: Takes each line.
            run_id: The run to look at; empty for the list.
        """
        if not _is_loopback(self._host):
            say("watch: other machines can reach this page, and there is no TLS: what they send can be read on the way")
        say(f"watch: {self.address(run_id)}")
        if self._is_opened:
            _open_in_browser(self.address(run_id))

    async def serve(self) -> None:
        """Serve, until `close_after` or `stop` is called."""
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            self._ended.set()

    async def close_after(self, signals: Interrupts | None) -> None:
        """Give browsers up to two seconds for the last changes, and end.

        Args:
            signals: Where a signal says that it is time to end; `None` to end now.
        """
        if signals is not None and signals.first is None:
            click.echo("the page stays open; Ctrl-C ends it", err=True)
            over = anyio.Event()
            signals.on_first(next_in_loop(lambda _: over.set()))
            await over.wait()
        with anyio.move_on_after(_LAST_SECONDS):
            await self.page.drained()
        self.stop()
        with anyio.move_on_after(_LAST_SECONDS):
            await self._ended.wait()

    def stop(self) -> None:
        """End now."""
        self.page.close()
        self._server.should_exit = True


def quiet_server(app: Any, *, lifespan: Literal["on", "off"] = "off") -> Any:
    """Return a server of an application. It takes no signals: the command line has its own meaning for Ctrl-C.

    Args:
        app: The application of ASGI.
        lifespan: Whether it is told about begin and end of the server.

    Raises:
        MissingExtra: uvicorn is not installed.
    """
    try:
        import uvicorn
    except ImportError as error:
        raise MissingExtra("a server needs uvicorn: pip install 'dagrun-engine[ui]'") from error

    class QuietServer(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan=lifespan,
        server_header=False,
        timeout_graceful_shutdown=1,
        ws="none",
    )
    return QuietServer(config)


def bound_socket(host: str, port: int | None) -> socket.socket:
    """Return a socket on *port*; without one, on the first free port from `PORT` on.

    Raises:
        BadInput: The port is in use, or cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in range(PORT, PORT + _TRIES) if port is None else [port]:
        found = socket.socket(family, socket.SOCK_STREAM)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind((host, number))
            found.listen(100)
        except OSError as error:
            found.close()
            if port is not None or error.errno != errno.EADDRINUSE:
                raise BadInput(f"cannot serve on {host}, port {number}: {error.strerror}") from error
            continue
        if number not in (PORT, port):
            click.echo(f"port {PORT} is in use, so this is port {number}", err=True)
        return found
    raise BadInput(f"ports {PORT} to {PORT + _TRIES - 1} are in use; name another one by --port")


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def _open_in_browser(address: str) -> None:
    """Open a page in a browser, by a file that only the user can read: other users can see the words of a command."""
    descriptor, name = tempfile.mkstemp(prefix="dagrun-", suffix=".html")
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(
            f'<!doctype html><meta http-equiv="refresh" content="0; url={escape(address)}"><title>dagrun</title>'
        )
    webbrowser.open(Path(name).as_uri())
    timer = threading.Timer(_OPENED_SECONDS, lambda: Path(name).unlink(missing_ok=True))
    timer.daemon = True
    timer.start()
