"""An MCP server of the tests with effects, which dies at a point of a call that the caller names, once.

Its ledger is a file of lines. Over HTTP, a parent process holds the port, and starts the server anew whenever it dies.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer  # type: ignore[import-not-found,unused-ignore]
from mcp_types import ToolAnnotations  # type: ignore[import-not-found,unused-ignore]

is_half = False  # whether the next answer ends in the middle


def _note(text: str) -> None:
    with open(os.environ["LEDGER"], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def _die(point: str, at: str, once: str) -> None:
    if at != point or os.path.exists(once):
        return
    Path(once).touch()
    if point != "half":
        os._exit(3)
    if "http" in sys.argv:
        global is_half
        is_half = True
        return
    os.write(1, b'{"jsonrpc": "2.0", "id": 1, "res')
    os._exit(3)


def _booked(kind: str, at: str, once: str, key: str) -> str:
    _die("sent", at, once)
    _note(f"{kind} begun {key}")
    _die("begun", at, once)
    _note(f"{kind} done {key}")
    _die("done", at, once)
    _die("half", at, once)
    return key


def _key(context: Context) -> str:
    return str(dict(context.request_context.meta or {}).get("dagrun/idempotency-key", ""))


def pay(at: str, once: str, context: Context) -> str:
    """Pay an invoice."""
    return _booked("pay", at, once, _key(context))


def put(at: str, once: str, context: Context) -> str:
    """Set a limit; with a key that it knows, it does nothing."""
    key = _key(context)
    ledger = Path(os.environ["LEDGER"])
    if ledger.exists() and f"put done {key}" in ledger.read_text(encoding="utf-8").splitlines():
        return key
    return _booked("put", at, once, key)


def look(at: str, once: str) -> str:
    """Look at the balance."""
    for point in ("sent", "begun", "done", "half"):
        _die(point, at, once)
    return "100"


def pid() -> str:
    """Return the number of the process."""
    return str(os.getpid())


def make_server() -> Any:
    """Return the server."""
    server = MCPServer("bank")
    server.add_tool(pay, annotations=ToolAnnotations(destructive_hint=True), structured_output=False)
    server.add_tool(put, annotations=ToolAnnotations(idempotent_hint=True), structured_output=False)
    for read in (look, pid):
        server.add_tool(read, annotations=ToolAnnotations(read_only_hint=True), structured_output=False)
    return server


def _serve(listening: socket.socket) -> None:
    import uvicorn

    app = make_server().streamable_http_app(streamable_http_path="/mcp")

    async def front(scope: Any, receive: Any, send: Any) -> None:
        async def cut(message: Any) -> None:
            body = message.get("body", b"")
            if not (is_half and body):
                await send(message)
                return
            await send({**message, "body": body[: len(body) // 2], "more_body": True})
            os._exit(3)

        await app(scope, receive, cut)

    uvicorn.Server(uvicorn.Config(front, log_level="error")).run(sockets=[listening])


def main() -> None:
    """Serve over stdio; or over HTTP, again and again, on a port that is printed."""
    if sys.argv[1:] != ["http"]:
        make_server().run()
        return
    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        while (child := os.fork()) != 0:
            os.waitpid(child, 0)
        _serve(listening)


if __name__ == "__main__":
    main()
