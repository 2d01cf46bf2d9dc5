"""The program of a worker process: it serves the calls of its executor until the executor is gone.

It imports the tool by name and reads JSON. Only a function of the host program itself, or of its notebook, cannot be
imported: the host pickles it for this process, which is its own child. The host never unpickles anything.

Its arguments are the number of its socket, and the most bytes of memory that it may use (0 for no limit). The output
that tools print goes to the standard error.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from queue import SimpleQueue

from dagrun.executors.wire.messages import LENGTH, framed
from dagrun.executors.wire.serving import serve


class Channel:
    """The socket to the executor.

    Args:
        descriptor: The number of the socket; programs that a tool starts do not inherit it.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._descriptor: int | None = descriptor
        self._incoming = io.BufferedReader(io.FileIO(descriptor, closefd=False))
        # A forked child that kept the socket would hide the death of this process from the executor.
        os.register_at_fork(after_in_child=self._release)

    def receive(self) -> bytes | None:
        """Return the next message; `None` when the executor is gone."""
        header = self._incoming.read(LENGTH.size)
        if len(header) < LENGTH.size:
            return None
        [size] = LENGTH.unpack(header)
        message = self._incoming.read(size)
        return message if len(message) == size else None

    def send(self, message: bytes) -> None:
        """Send one message; may be called in any thread, but in one at a time."""
        if self._descriptor is None:
            raise OSError("a forked child has no executor")
        left = memoryview(framed(message))
        while left:
            left = left[os.write(self._descriptor, left) :]

    def _release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


def main() -> None:
    """Serve calls until the executor closes the socket; never return."""
    channel = Channel(int(sys.argv[1]))
    _redirect_prints()
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.stack_size(256 * 1024)
    threading.Thread(target=_listen, args=(channel, calls), daemon=True).start()
    threading.stack_size(0)
    _limit_memory(int(sys.argv[2]))
    while True:
        channel.send(serve(calls.get(), channel.send))
        _flush()


def _listen(channel: Channel, calls: SimpleQueue[bytes]) -> None:
    """Receive calls, also while a tool runs, so that this process ends as soon as the executor is gone."""
    try:
        while call := channel.receive():
            calls.put(call)
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # the children of the tool too
        os._exit(1)


def _redirect_prints() -> None:
    """Redirect printed output to the standard error, because the standard output belongs to the host program."""
    try:
        os.dup2(2, 1)
    except OSError:  # the host has closed its standard error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # the tool has closed or replaced it
            continue


def _limit_memory(max_memory: int) -> None:
    if max_memory:
        import resource  # some systems lack it

        resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))


if __name__ == "__main__":
    main()
