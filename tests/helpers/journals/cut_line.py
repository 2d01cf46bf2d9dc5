"""A line to a server of PostgreSQL that is cut when a test says so: before a request arrives, or before its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

Cut = Literal["request", "answer"]
SOCKET = ".s.PGSQL.5432"


class Line:
    """Stands between a client and the server; both talk through sockets of files.

    Attributes:
        cut: Asked for each piece of text from the client: what of it is cut, if anything.
        cuts: How often each was.
    """

    def __init__(self, server: Path) -> None:
        self.cut: Callable[[bytes], Cut | None] = lambda _: None
        self.cuts = {"request": 0, "answer": 0}
        self._server = server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry what one client and the server say to each other."""
        try:
            far_reader, far_writer = await asyncio.open_unix_connection(str(self._server / SOCKET))
        except OSError:  # the server is away
            writer.close()
            return
        is_mute = asyncio.Event()
        back = asyncio.create_task(self._carry_back(far_reader, writer, is_mute))
        try:
            while text := await reader.read(65536):
                cut = self.cut(text)
                if cut is not None:
                    self.cuts[cut] += 1
                    if cut == "answer":
                        is_mute.set()
                        far_writer.write(text)
                        await asyncio.sleep(0.05)  # it is done now, and nobody hears of it
                    return
                far_writer.write(text)
        except OSError:
            pass
        finally:
            back.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await back
            for each in (writer, far_writer):
                each.transport.abort()

    async def _carry_back(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, is_mute: asyncio.Event
    ) -> None:
        while text := await reader.read(65536):
            if not is_mute.is_set():
                writer.write(text)
        writer.close()


@asynccontextmanager
async def cut_line(server: Path, folder: Path) -> AsyncIterator[Line]:
    """A line to the server whose socket is in *server*; clients find it in *folder*."""
    line = Line(server)
    door = await asyncio.start_unix_server(line.serve, str(folder / SOCKET))
    try:
        yield line
    finally:
        door.close()
