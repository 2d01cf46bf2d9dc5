#!/usr/bin/env bash
# The Python MCP libraries: a server of 1.30.0 writes 94 lines to stderr, like a fault, for the first message of a client of 2.3.0.
#
# Guess: a client that is newer than its server begins with `initialize`, or with a message that an older server passes over quietly.
# Seen:  the client of 2.3.0 begins with `server/discover`. The server answers with an error, as it should, and all works; but it
#        also logs "Failed to validate request: 31 validation errors for ClientRequest" as a warning, with three lines for each.
#        A host that shows the stderr of its servers shows this at each start.
#
# Exits with 0 if that is seen, else with 1. Takes about a minute. Needs Python 3.11 or newer, and no server.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for name in old new; do "${PYTHON:-python3}" -m venv "$folder/$name"; done
"$folder/old/bin/pip" install --quiet --disable-pip-version-check 'mcp==1.30.0'
"$folder/new/bin/pip" install --quiet --disable-pip-version-check 'mcp==2.3.0'

cat > "$folder/server.py" <<'PYTHON'
from mcp.server.fastmcp import FastMCP

server = FastMCP("old")


@server.tool()
def look() -> str:
    return "seen"


server.run()
PYTHON

cat > "$folder/finding.py" <<'PYTHON'
import asyncio
import sys
from importlib.metadata import version

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main() -> int:
    old, server, log = sys.argv[1:]
    with open(log, "w") as errors:
        command = StdioServerParameters(command=old, args=[server])
        async with Client(stdio_client(command, errlog=errors)) as client:
            said = (await client.call_tool("look", {})).content[0].text
    lines = open(log).read().splitlines()
    noise = [line for line in lines if not line.startswith("Processing request")]
    print(f"client: mcp {version('mcp')}, server: mcp 1.30.0; the tool said {said!r}")
    print(f"lines on stderr: {len(noise)}; the first: {noise[0] if noise else '-'}")
    return int(said != "seen" or len(noise) != 94 or "Failed to validate request" not in noise[0])


sys.exit(asyncio.run(main()))
PYTHON

"$folder/new/bin/python" "$folder/finding.py" "$folder/old/bin/python" "$folder/server.py" "$folder/log"
