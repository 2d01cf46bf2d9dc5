"""An MCP server of the tests: over stdio as a program, or inside a test. Its notes are lines of a file."""

from __future__ import annotations

import os
import socket
import sys
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer  # type: ignore[import-not-found,unused-ignore]
from mcp.server.mcpserver.exceptions import ToolError  # type: ignore[import-not-found,unused-ignore]
from mcp.server.mcpserver.resolve import (  # type: ignore[import-not-found,unused-ignore]
    Elicit,
    ElicitationResult,
    Resolve,
)
from mcp_types import (  # type: ignore[import-not-found,unused-ignore]
    ElicitRequest,
    ElicitRequestURLParams,
    InputRequiredResult,
    ToolAnnotations,
)
from pydantic import BaseModel


class Total(BaseModel):
    """What `add` returns."""

    total: int


def note(text: str) -> None:
    """Write a line to the file of notes."""
    with open(os.environ["NOTES"], "a", encoding="utf-8") as file:
        file.write(f"{text}\n")


def add(a: int, b: int) -> Total:
    """Add two numbers."""
    return Total(total=a + b)


def keep(text: str, context: Context) -> str:
    """Keep a note."""
    meta = dict(context.request_context.meta or {})
    note(f"{text} {meta.get('dagrun/idempotency-key', '')}")
    return text


async def slow(context: Context) -> str:
    """Take a minute, and say how far it is."""
    await context.report_progress(1, 4, "a quarter")
    try:
        await anyio.sleep(60)
    except anyio.get_cancelled_exc_class():
        note("cancelled")
        raise
    return "done"


def picture() -> Image:
    """Draw a picture."""
    return Image(data=b"PNG", format="png")


def fail(text: str) -> str:
    """Report an error."""
    raise ToolError(text)


def die(once: str) -> str:
    """End the process, the first time."""
    if os.path.exists(once):
        return "alive"
    with open(once, "w", encoding="utf-8"):
        os._exit(3)


def die_in_effect() -> str:
    """End the process in the middle of an effect."""
    note("begun")
    os._exit(3)


class Size(BaseModel):
    """What `order` asks for."""

    pieces: int
    gift: bool = False


async def ask_size(what: str) -> Elicit[Size]:
    """Ask how many are wanted."""
    return Elicit(f"How many of {what}?", Size)


async def order(what: str, size: Annotated[ElicitationResult[Size], Resolve(ask_size)]) -> str:
    """Order something, after a question."""
    text = f"{what} {size.action}" + (f" {size.data.pieces} {size.data.gift}" if size.action == "accept" else "")
    note(text)
    return text


async def visit(context: Context) -> Any:
    """Ask somebody to open an address, in the way of either revision."""
    address, message = "https://pay.example/1", "please pay"
    if context.request_context.protocol_version < "2026":
        return (await context.elicit_url(message, address, "1")).action
    answers = context.input_responses
    if answers is not None:
        return getattr(answers["pay"], "action", "")
    asked = ElicitRequest(params=ElicitRequestURLParams(message=message, url=address))
    return InputRequiredResult(input_requests={"pay": asked})


def make_server() -> Any:
    """Return the server."""
    server = MCPServer("notes")
    reads = ToolAnnotations(read_only_hint=True)
    server.add_tool(add, annotations=reads)
    says = os.environ.get("KEEP_SAYS", "Keep a note.")
    server.add_tool(keep, description=says, annotations=ToolAnnotations(idempotent_hint=True))
    server.add_tool(picture, annotations=reads, structured_output=False)
    server.add_tool(die, annotations=reads, structured_output=False)
    server.add_tool(slow, structured_output=False)
    server.add_tool(fail, structured_output=False)
    server.add_tool(die_in_effect, structured_output=False)
    server.add_tool(order, structured_output=False)
    server.add_tool(visit, structured_output=False)
    return server


def serve_http() -> None:
    """Serve on a free port of this machine, whose number is printed; a note is made of each caller's proof.

    What is asked of /away is sent to another origin, and of /moved to the right place.
    """
    import uvicorn
    from starlette.responses import RedirectResponse

    app = make_server().streamable_http_app(streamable_http_path="/mcp")

    async def front(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            note(f"{scope['path']} {headers.get(b'authorization', b'').decode()}")
            if scope["path"] in {"/away", "/moved"}:
                place = "/mcp" if scope["path"] == "/moved" else os.environ["AWAY"]
                await RedirectResponse(place, status_code=307)(scope, receive, send)
                return
        await app(scope, receive, send)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        uvicorn.Server(uvicorn.Config(front, log_level="error")).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1:] == ["broken"]:
        sys.exit(2)
    if sys.argv[1:] == ["http"]:
        serve_http()
    else:
        make_server().run()
