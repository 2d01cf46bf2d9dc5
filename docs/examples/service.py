"""dagrun inside an async web service: one engine for the life of the service, one run per request.

Run it with ``uvicorn service:app`` and ask ``/compare?left=Austin&right=Dallas``. All requests together never run
more than 20 steps at once; a client that goes away cancels its run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import dagrun

CLIENT_CLOSED_REQUEST = 499  # the usual code; the client is gone and does not read it


@dagrun.tool(effect="read", timeout=5)
async def population(city: str) -> int:
    """Look up how many people live in a city."""
    await anyio.sleep(0.05)  # stands for a slow database
    return {"Austin": 979_882, "Dallas": 1_302_868}.get(city, 0)


@dagrun.tool(effect="pure")
async def larger(left: int, right: int) -> str:
    """Say which of two numbers is larger."""
    return "left" if left > right else "right"


PLAN = dagrun.Plan(
    steps=[
        dagrun.Step(id="left", tool="population", args={"city": "${input.left}"}),
        dagrun.Step(id="right", tool="population", args={"city": "${input.right}"}),
        dagrun.Step(id="larger", tool="larger", args={"left": "${left}", "right": "${right}"}),
    ]
)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[dict[str, object]]:
    """Open the engine before the first request, and close it after the last; check the plan once."""
    checked = dagrun.check(PLAN, [population, larger])
    async with dagrun.Engine(max_running=20) as engine:
        yield {"engine": engine, "plan": checked}


async def compare(request: Request) -> Response:
    """Run the plan for one request."""
    inputs = {"left": request.query_params.get("left", ""), "right": request.query_params.get("right", "")}
    result = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_disconnect, request, tasks.cancel_scope)
        result = await request.state.engine.run(request.state.plan, inputs=inputs)
        tasks.cancel_scope.cancel()
    if result is None:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    return JSONResponse(result.as_dict(), status_code=200 if result.status == "succeeded" else 502)


async def _cancel_on_disconnect(request: Request, scope: anyio.CancelScope) -> None:
    # A server does not cancel a handler when its client leaves, so wait for the message that says so.
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


app = Starlette(routes=[Route("/compare", compare)], lifespan=lifespan)
