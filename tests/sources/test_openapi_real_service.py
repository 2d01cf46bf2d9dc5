"""A service that writes its own document: FastAPI reads what is sent, with a decoder that is not ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any

import pytest

import dagrun
from openapi_service import step

fastapi = pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

from fastapi import FastAPI, File, Form, Header, HTTPException, Path, Query, Response, UploadFile  # noqa: E402
from pydantic import BaseModel, Field  # noqa: E402

pytestmark = [pytest.mark.anyio, pytest.mark.costly, pytest.mark.real_time]


class Kind(Enum):
    """Of things."""

    BIG = "big"
    SMALL = "small"


class Part(BaseModel):
    """A part, which may have parts."""

    name: str
    weight: float | None = None
    parts: list[Part] = Field(default_factory=list)


class Thing(BaseModel):
    """What the service keeps."""

    id: int
    kind: Kind
    part: Part
    tags: set[str] = Field(default_factory=set)


class NewThing(BaseModel):
    """What it takes."""

    kind: Kind
    part: Part
    tags: list[str] = Field(default_factory=list, max_length=3)


app = FastAPI(title="Things")
THINGS: dict[int, Thing] = {}


@app.get("/things/{name:path}", tags=["look"])
def echo(
    name: Annotated[str, Path()],
    many: Annotated[list[int] | None, Query()] = None,
    is_on: bool = False,
    ratio: float = 0.5,
    kind: Kind | None = None,
    text: str | None = None,
    x_trace: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Return what has arrived."""
    kind_name = None if kind is None else kind.value
    return {
        "name": name,
        "many": many,
        "is_on": is_on,
        "ratio": ratio,
        "kind": kind_name,
        "text": text,
        "trace": x_trace,
    }


@app.post("/things", status_code=201, tags=["change"])
def make(new: NewThing) -> Thing:
    """Make a thing."""
    thing = Thing(id=len(THINGS) + 1, kind=new.kind, part=new.part, tags=set(new.tags))
    THINGS[thing.id] = thing
    return thing


@app.post("/files", status_code=201, tags=["change"])
async def upload(
    picture: UploadFile,
    note: Annotated[str, Form()],
    raw: Annotated[bytes, File()],
    pages: list[UploadFile] | None = None,
    count: Annotated[int, Form()] = 1,
) -> dict[str, Any]:
    """Return what has arrived of files and fields."""
    read = [(page.filename, page.content_type, len(await page.read())) for page in [picture, *(pages or ())]]
    return {"files": read, "note": note, "count": count, "raw": raw.decode()}


@app.delete("/things/{ident}", status_code=204, tags=["change"])
def remove(ident: int) -> Response:
    """Remove a thing."""
    if THINGS.pop(ident, None) is None:
        raise HTTPException(404, "no such thing")
    return Response(status_code=204)


@contextmanager
def running() -> Iterator[str]:
    """Serve it on a port of loopback."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(10)


async def test_what_is_sent_arrives_as_it_was_meant() -> None:
    """Names with slashes, lists, booleans, enums, nested bodies; and its own words for what is wrong."""
    THINGS.clear()
    part = {"name": "a/b & c=ü", "weight": 2.5, "parts": [{"name": "d"}]}
    with running() as url:
        tools = dagrun.openapi_tools(app.openapi(), base_url=url)
        names = {name.split("_things")[0]: name for name in tools}
        assert set(names) == {"echo", "make", "remove", "upload_files_post"}
        steps = [
            step("e", names["echo"], **{
                "name": "a b+c%2F?#&ü", "many": [1, 2, 3], "is_on": True, "ratio": 2.0, "kind": "big",
                "text": "x&y=z +%", "x-trace": "t-1",
            }),
            step("m", names["make"], body={"kind": "small", "part": part, "tags": ["t"]}),
            step("r", names["remove"], ident="${m.id}"),
            dagrun.Step(id="again", tool=names["remove"], args={"ident": 1}, depends_on=("r",)),
        ]  # fmt: skip
        result = await dagrun.run(dagrun.Plan(steps=steps), tools=[tools])
    assert result.steps["e"].output == {
        "name": "a b+c%2F?#&ü", "many": [1, 2, 3], "is_on": True, "ratio": 2.0, "kind": "big", "text": "x&y=z +%",
        "trace": "t-1",
    }  # fmt: skip
    made = result.steps["m"].output
    assert (made["id"], made["part"]["parts"][0]["name"], made["part"]["name"]) == (1, "d", part["name"])
    assert result.steps["r"].output is None
    assert str(result.steps["again"].state) == "failed"
    assert "404 Not Found" in str(result.steps["again"].failure)
    assert "no such thing" in str(result.steps["again"].failure)
    assert THINGS == {}
    wrong = step("m", names["make"], body={"kind": "huge", "part": {"name": 1}, "tags": list("abcd")})
    with pytest.raises(dagrun.PlanRefused) as refused:
        dagrun.check(dagrun.Plan(steps=[wrong]), tools=[tools])
    assert {problem.path for problem in refused.value.problems} == {
        "steps[0].args.body.kind",
        "steps[0].args.body.part.name",
        "steps[0].args.body.tags",
    }


async def test_files_are_read_by_a_service_that_is_not_ours() -> None:
    """What an artifact is called, what type it has, and that a text may stand for a file."""

    @dagrun.tool(effect="read")
    async def draw(context: dagrun.ToolContext) -> dagrun.Artifact:
        return context.artifacts.save(bytes(range(256)), media_type="image/png", name='a "b" ü.png')

    with running() as url:
        tools = dagrun.openapi_tools(app.openapi(), base_url=url, include=["upload*"])
        body = {"picture": "${d}", "pages": ["${d}", "a page"], "note": "x=1 & ü", "raw": "raw", "count": 7}
        plan = dagrun.Plan(steps=[step("d", "draw"), step("u", next(iter(tools)), body=body)])
        result = await dagrun.run(plan, tools=[tools, draw])
    assert result.status == "succeeded", result
    name = "a %22b%22 ü.png"  # as browsers write it
    picture, page = [name, "image/png", 256], ["pages", "text/plain; charset=utf-8", 6]
    assert result.steps["u"].output == {"files": [picture, picture, page], "note": "x=1 & ü", "count": 7, "raw": "raw"}
