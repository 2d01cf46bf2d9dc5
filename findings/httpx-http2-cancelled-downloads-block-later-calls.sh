#!/usr/bin/env bash
# httpx with HTTP/2: what was not read of cancelled downloads is counted for ever, until a small call on the same client gets no answer.
#
# Guess: a download that is cancelled costs nothing afterwards, as with HTTP/1.1: later calls on the same client are right.
# Seen:  with HTTP/2 the connection stays open after each cancellation, and after the fifth cancelled download of 4 MiB a call of five
#        bytes ends with ReadTimeout, though the server answers at once. httpcore neither resets the stream of a cancelled response
#        nor acknowledges its data, so the data stays in the flow-control window of the connection (16 MiB). The client then opens another
#        connection, and the same begins again. With HTTP/1.1 all calls are right, as a cancelled download closes its connection.
#
# Exits with 0 if that is seen, else with 1. Takes about a minute. Needs Python 3.11 or newer, and no network but loopback.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check \
    'httpx[http2]==0.28.1' 'httpcore==1.0.9' 'h2==4.4.1' 'anyio==4.16.0' 'hypercorn==0.18.0'

cat > "$folder/application.py" <<'PYTHON'
MIB = 1 << 20


async def app(scope, receive, send):
    """Send 4 MiB, or five bytes."""
    if scope["type"] != "http":
        return
    await send({"type": "http.response.start", "status": 200, "headers": []})
    if scope["path"] == "/large":
        for _ in range(64):
            await send({"type": "http.response.body", "body": bytes(MIB // 16), "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "http.response.body", "body": b"small"})
PYTHON

cat > "$folder/finding.py" <<'PYTHON'
import asyncio
import socket
import subprocess
import sys
from importlib.metadata import version

import httpx


async def cancelled_downloads(client, address):
    """Cancel eight downloads, and make a small call after each; return how these calls ended."""
    ends = []
    for _ in range(8):

        async def download():
            async with client.stream("GET", f"{address}/large") as response:
                async for _ in response.aiter_raw():
                    await asyncio.sleep(3600)  # a slow reader, who is cancelled

        reading = asyncio.create_task(download())
        await asyncio.sleep(1)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        try:
            ends.append((await client.get(f"{address}/small")).text)
        except httpx.HTTPError as error:
            ends.append(type(error).__name__)
    return ends


async def main(address):
    found = {}
    for name, is_new in ("HTTP/1.1", False), ("HTTP/2", True):
        async with httpx.AsyncClient(http1=not is_new, http2=is_new, timeout=5) as client:
            response = await client.get(f"{address}/small")
            assert response.http_version == name, response.http_version
            found[name] = await cancelled_downloads(client, address)
    print(", ".join(f"{name} {version(name)}" for name in ("httpx", "httpcore", "h2", "hypercorn")))
    print(f"guess: each small call after a cancelled download: {['small'] * 8}")
    for name, ends in found.items():
        print(f"seen:  {name:8} {ends}")
    as_told = found["HTTP/1.1"] == ["small"] * 8 and found["HTTP/2"][0] == "small" and "ReadTimeout" in found["HTTP/2"]
    print("as told" if as_told else "CHANGED")
    return not as_told


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    place = "127.0.0.1:{}".format(free.getsockname()[1])
server = subprocess.Popen(
    [sys.executable, "-m", "hypercorn", "--bind", place, "application:app"],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
)
try:
    for _ in range(100):
        try:
            httpx.get(f"http://{place}/small")
            break
        except httpx.ConnectError:
            subprocess.run(["sleep", "0.2"], check=True)
    raise SystemExit(asyncio.run(main(f"http://{place}")))
finally:
    server.terminate()
    server.wait()
PYTHON
cd "$folder"
"$folder/venv/bin/python" finding.py
