"""dagrun inside a FastAPI service: a run for each request, its events as a stream, and approvals over HTTP.

    uvicorn service:app

`POST /refunds` starts a run, and answers with its events; a client that leaves cancels the run. `GET /questions` lists
what the runs ask people, and `POST /runs/{run}/questions/{question}` answers. One engine serves all requests. The
log-in is the service's own, here HTTP Basic; dagrun records who has answered. A server that is told to stop waits for
open responses, so the runs are cancelled then, and the clients get their results.
"""

from __future__ import annotations

import json
import secrets
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from queue import SimpleQueue
from types import FrameType
from typing import Annotated, Any, Literal

import anyio
import anyio.to_thread
from anyio.abc import TaskStatus
from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import StreamingResponse
from fastapi.security import HTTPBasic, HTTPBasicCredentials
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

import dagrun

USERS = {"ann": ("ann's word", True), "shop": ("shop's word", False)}  # password, and whether the user answers
ORDERS = {"A1": 40.0, "B2": 900.0}


@dagrun.tool(effect="read")
async def look_up(order: str) -> float:
    """Return what was paid for an order."""
    await anyio.sleep(0.05)  # stands for a slow database
    if order not in ORDERS:
        raise dagrun.ToolError(f"there is no order {order}")
    return ORDERS[order]


@dagrun.tool(effect="effectful", needs_approval=True)
async def pay_back(order: str, amount: float) -> str:
    """Pay an amount back."""
    return f"paid {amount:.2f} back for {order}"


ORDER = dagrun.input("order", str)
PLAN = dagrun.plan(output=pay_back.step(ORDER, look_up.step(ORDER)), goal="refund an order")


@contextmanager
def told_to_stop() -> Iterator[SimpleQueue[int]]:
    """Return a queue that gets the signals that stop the server, before the server takes them; and 0 at the end."""
    told: SimpleQueue[int] = SimpleQueue()  # a handler runs between any two instructions, and may put into this one
    handlers: dict[int, Callable[[int, FrameType | None], object]] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        told.put(number)
        handlers[number](number, frame)

    if threading.current_thread() is threading.main_thread():  # elsewhere Python takes no handlers
        for number in (int(signal.SIGINT), int(signal.SIGTERM)):
            if callable(handler := signal.getsignal(number)):  # that of the server: it starts before its application
                handlers[number] = handler
                signal.signal(number, handle)
    try:
        yield told
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        told.put(0)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open the engine before the first request; cancel what still runs when the service is told to stop."""
    runs: dict[str, dagrun.Run] = {}

    async def cancel_all(told: SimpleQueue[int]) -> None:
        await anyio.to_thread.run_sync(told.get)
        for run in list(runs.values()):
            run.cancel(reason="the service stops")

    async with dagrun.Engine(max_running=20) as app.state.engine, anyio.create_task_group() as app.state.tasks:
        app.state.runs = runs
        with told_to_stop() as told:
            app.state.tasks.start_soon(cancel_all, told)
            yield
        app.state.tasks.cancel_scope.cancel()


app = FastAPI(title="Refunds", lifespan=lifespan)


class EventStream(StreamingResponse):
    """The events of a run and its result, as server-sent events; the run ends with its response."""

    def __init__(self, run: dagrun.Run) -> None:
        lines = _lines(run, run.events())  # subscribed from here on, so that the first event is not missed
        super().__init__(lines, media_type="text/event-stream", headers={"X-Run": run.id})
        self.run = run

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; cancel the run if its client leaves first."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.run.cancel(reason="its client has left")  # changes nothing if the run has ended


async def _lines(run: dagrun.Run, events: AsyncIterator[dagrun.Event]) -> AsyncIterator[str]:
    async for event in events:  # to_dict() tells no secret, and no field whose name says that it is one
        yield f"id: {event.seq}\nevent: {type(event).__name__}\ndata: {json.dumps(event.to_dict())}\n\n"
    yield f"event: result\ndata: {json.dumps((await run.result()).as_dict())}\n\n"


async def carry_out(inputs: dict[str, Any], *, task_status: TaskStatus[EventStream]) -> None:
    """Carry out a run in a task of the service, not of a request: people answer in requests of their own."""
    async with app.state.engine.start(PLAN, inputs=inputs, attended=True) as run:
        app.state.runs[run.id] = run
        try:
            task_status.started(EventStream(run))
            await run.result()
        finally:
            del app.state.runs[run.id]


def user(login: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> str:
    """Return who asks; 401 for strangers."""
    password, _ = USERS.get(login.username, (secrets.token_hex(), False))
    if not secrets.compare_digest(login.password.encode(), password.encode()):
        raise HTTPException(401, "unknown user or password", {"WWW-Authenticate": "Basic"})
    return login.username


def reviewer(name: Annotated[str, Depends(user)]) -> str:
    """Return who answers; 403 for users who may not."""
    if not USERS[name][1]:
        raise HTTPException(403, f"{name} may not answer questions")
    return name


class Reply(BaseModel):
    """What a reviewer says, and why."""

    choice: Literal["approve", "deny"]
    note: str = ""


@app.post("/refunds", dependencies=[Depends(user)])
async def refund(order: str) -> EventStream:
    """Refund an order; the answer is the stream of events."""
    stream: EventStream = await app.state.tasks.start(carry_out, {"order": order})
    return stream


@app.get("/questions", dependencies=[Depends(reviewer)])
async def questions() -> list[dict[str, Any]]:
    """List the open questions of all runs, each with every argument of the call that it is about."""
    runs: dict[str, dagrun.Run] = app.state.runs
    return [{"run": run.id, **question.as_dict()} for run in runs.values() for question in run.pending]


@app.post("/runs/{run_id}/questions/{question}", status_code=204)
async def answer(run_id: str, question: str, reply: Reply, by: Annotated[str, Depends(reviewer)]) -> None:
    """Answer a question of a run."""
    if run_id not in app.state.runs:
        raise HTTPException(404, f"no run {run_id} is under way")
    try:
        await app.state.runs[run_id].answer(question, dagrun.Answer(reply.choice, by=by, note=reply.note))
    except (dagrun.errors.QuestionNotFound, dagrun.errors.AnswerRefused) as error:
        raise HTTPException(409, str(error)) from error
