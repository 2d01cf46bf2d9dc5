#!/usr/bin/env bash
# anyio on asyncio: a receive of a UNIX socket that is cancelled in the turn in which data comes leaves an error at the loop.
#
# Guess: a cancelled `receive()` ends with the cancellation, the data stays in the socket for the next `receive()`, and nothing
#        else is seen.
# Seen:  both are so, and besides, the loop is told of an InvalidStateError ("Exception in callback Future.set_result(None)"): the
#        reader of the socket sets the result of the future that the cancellation has ended a moment before. It is harmless and
#        logged as an error, and makes tests fail that watch the loop, such as those of anyio's own pytest plug-in. A TCP
#        stream of anyio, which stands on asyncio's transports, says nothing.
#
# Exits with 0 if that is seen, else with 1. Takes about ten seconds. Needs Python 3.11 or newer, and no network but loopback.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check 'anyio==4.16.0'

cat > "$folder/finding.py" <<'PYTHON'
import asyncio
import os
import sys
from importlib.metadata import version

import anyio


async def cancel_as_data_comes(client, peer):
    """Cancel a receive in the turn in which its data comes; return how it ended, the next one, and what the loop was told."""
    told = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: told.append(type(context.get("exception")).__name__))
    reading = asyncio.create_task(client.receive())
    await asyncio.sleep(0.1)
    await peer.send(b"data")
    loop.call_soon(reading.cancel)  # called first in the next turn, in which the socket is found to be readable
    (end,) = await asyncio.gather(reading, return_exceptions=True)
    with anyio.fail_after(5):
        following = await client.receive()
    return type(end).__name__, following, told


async def main(folder):
    seen = {}
    path = os.path.join(folder, "socket")
    for name in ("UNIX", "TCP"):
        if name == "UNIX":
            listener = await anyio.create_unix_listener(path)
        else:
            listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        accepted = asyncio.get_running_loop().create_future()

        async def serve(stream, accepted=accepted):
            accepted.set_result(stream)
            await asyncio.sleep(3600)

        serving = asyncio.create_task(listener.serve(serve))
        if name == "UNIX":
            client = await anyio.connect_unix(path)
        else:
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            client = await anyio.connect_tcp("127.0.0.1", port)
        seen[name] = await cancel_as_data_comes(client, await accepted)
        await client.aclose()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
    print(f"anyio {version('anyio')}, Python {sys.version.split()[0]}")
    print("guess: a cancelled receive, the data for the next one, and nothing told to the loop")
    for name, (end, following, told) in seen.items():
        print(f"seen:  {name}: {end}, next {following!r}, told to the loop: {told}")
    as_told = seen["UNIX"] == ("CancelledError", b"data", ["InvalidStateError"]) and seen["TCP"][2] == []
    print("as told" if as_told else "CHANGED")
    return not as_told


sys.exit(asyncio.run(main(sys.argv[1])))
PYTHON
"$folder/venv/bin/python" "$folder/finding.py" "$folder"
