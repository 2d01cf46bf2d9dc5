"""An application with a log-in of its own, the page of runs below a path of it, and a run that asks.

python mounted_app.py: serves on a free port of this machine, which it prints. Servers take `mounted_app:application()`.
"""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI, Response
from starlette.requests import Request

import dagrun

USERS = {"ticket-of-ann": "ann", "ticket-of-bob": "bob"}


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay(amount: float) -> float:
    """Pay."""
    return amount


PLAN = dagrun.Plan(goal="Pay the bonus", steps=[dagrun.Step(id="pay", tool="pay", args={"amount": 15.0})])


def who(request: Request) -> str | None:
    """Return whose ticket the cookie is."""
    return USERS.get(request.cookies.get("ticket", ""))


def application() -> FastAPI:
    """Make the application; its run begins with it."""
    engine = dagrun.Engine()
    page = dagrun.web(engine=engine, authorize=who)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine, engine.start(PLAN, tools=[pay], run_id="r1", approver=page.approver) as run:
            yield
            run.cancel()
            print("the lifespan has ended", flush=True)

    app = FastAPI(lifespan=lifespan)
    app.mount("/runs", page)

    @app.get("/login/{ticket}")
    async def login(ticket: str) -> Response:
        response = Response("welcome")
        response.set_cookie("ticket", ticket, httponly=True, samesite="strict")
        return response

    return app


if __name__ == "__main__":
    found = socket.create_server(("127.0.0.1", 0))
    print(found.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(application(), log_level="warning")).run(sockets=[found])
