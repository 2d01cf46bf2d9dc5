"""Bodies with files: what arrives at a service, what may be a file, and what nobody gets into a request by a name."""

from __future__ import annotations

import json
from email import message_from_bytes
from email.message import Message
from typing import Any

import pytest

import dagrun
from dagrun import Artifact, ToolContext
from dagrun.errors import ContractError
from dagrun.sources.openapi import bodies
from loopback import Request, always, answer, serving
from openapi_service import document, operation, run, step

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

OK = always(answer(b"{}", content_type="application/json"))
BINARY = {"type": "string", "format": "binary"}
ODD = b'\x00\xff--\r\n--boundary\r\nContent-Disposition: form-data; name="admin"\r\n\r\nyes'


@dagrun.tool(effect="read")
async def draw(context: ToolContext, name: str = "a.png", media_type: str = "image/png") -> Artifact:
    """Return a file."""
    return context.artifacts.save(ODD, media_type=media_type, name=name)


def uploads(schema: Any, **more: Any) -> dict[str, Any]:
    """A service with one form with files."""
    content = {"multipart/form-data": {"schema": schema, **more}}
    return document({"/up": {"post": operation("up", requestBody={"required": True, "content": content})}})


def takes(content: Any) -> dict[str, Any]:
    """A service with one body of these media types."""
    return document({"/up": {"post": operation("up", requestBody={"required": True, "content": content})}})


def parts_of(request: Request) -> list[tuple[str, str | None, str | None, bytes]]:
    """Name, file name, media type and content of each part, as the library of mails reads them."""
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    found = message_from_bytes(head + request.body).get_payload()
    assert isinstance(found, list)
    return [_part(part) for part in found if isinstance(part, Message)]


def _part(part: Message) -> tuple[str, str | None, str | None, bytes]:
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    name = part.get_param("name", header="content-disposition")
    return str(name), part.get_filename(), part["content-type"], content


async def sent(service: dict[str, Any], *steps: dagrun.Step) -> tuple[dagrun.RunResult, list[Request]]:
    """The requests that a plan makes."""
    with serving(OK) as server:
        tools = dagrun.openapi_tools(service, base_url=server.url)
        result = await dagrun.run(dagrun.Plan(steps=list(steps)), tools=[tools, draw])
        return result, server.requests


async def test_a_form_with_files_arrives_as_it_was_meant() -> None:
    """Files by an artifact or a text, lists of them, and beside them texts, numbers, lists and objects."""
    properties = {
        "file": BINARY,
        "more": {"type": "array", "items": {"$ref": "#/components/schemas/File"}},
        "note": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "about": {"type": "object"},
        "none": {"type": ["string", "null"]},
    }
    service = uploads(
        {"type": "object", "properties": properties}, encoding={"tags": {"contentType": "application/json"}}
    )
    service["components"] = {"schemas": {"File": {"type": "string", "contentMediaType": "application/pdf"}}}
    body = {
        "file": "${d}",
        "more": ["${d}", "a\nb"],
        "note": "x=1&ü",
        "count": 3,
        "tags": ["p", "q"],
        "about": {"k": [1]},
        "none": None,
    }
    result, [request] = await sent(service, step("d", "draw"), step("u", "up", body=body))

    assert result.status == "succeeded", result
    assert parts_of(request) == [
        ("file", "a.png", "image/png", ODD),
        ("more", "a.png", "image/png", ODD),
        ("more", "more", "text/plain; charset=utf-8", b"a\nb"),
        ("note", None, None, "x=1&ü".encode()),
        ("count", None, None, b"3"),
        ("tags", None, "application/json", b'["p", "q"]'),
        ("about", None, "application/json", b'{"k": [1]}'),
    ]


@pytest.mark.parametrize(
    ("media_type", "value", "said", "content"),
    [
        ("application/octet-stream", "${d}", "application/octet-stream", ODD),
        ("application/pdf", "a text", "application/pdf", b"a text"),
        ("image/*", "${d}", "image/png", ODD),
        ("application/xml", "<a/>", "application/xml", b"<a/>"),
    ],
)
async def test_one_file_is_a_body(media_type: str, value: str, said: str, content: bytes) -> None:
    result, [request] = await sent(
        takes({media_type: {"schema": BINARY}}), step("d", "draw"), step("u", "up", body=value)
    )

    assert result.status == "succeeded", result
    assert (request.headers["content-type"], request.body) == (said, content)


async def test_names_and_types_of_a_file_bring_no_header_and_no_part() -> None:
    """They come from wherever the file does. Nor does its content end a part: the boundary is a hash of all parts."""
    name, kind = 'a"; x="\r\nX-Evil: 1\r\n\r\nü', "text/plain\r\nX-Evil: 1"
    made = step("d", "draw", name=name, media_type=kind)
    service = uploads({"type": "object", "properties": {"file": BINARY}})
    result, [request] = await sent(service, made, step("u", "up", body={"file": "${d}"}))

    assert result.status == "succeeded", result
    assert b"X-Evil: 1\r\n" not in request.body
    [(field, _, media_type, content)] = parts_of(request)
    assert (field, media_type, content) == ("file", "application/octet-stream", ODD)
    boundary = request.headers["content-type"].partition("boundary=")[2].encode()
    assert request.body.count(boundary) == 2


@pytest.mark.parametrize(
    ("service", "body", "why"),
    [
        (uploads({"properties": {"f": BINARY}}), {"f": {"sha256": "0" * 64}}, "the run has no artifact 000000000000"),
        (uploads({"properties": {"f": BINARY}}), {"f": {"sha256": "../../etc"}}, "body.f is a file: pass an artifact"),
        (uploads({"properties": {"f": BINARY}}), {"f": "x" * 2_000}, "bytes, the ceiling is 1000"),
        (takes({"image/*": {}}), "text", "body is a text, and image/* is wanted"),
        (takes({"image/png": {}}), {"sha256": "1" * 64}, "the run has no artifact 111111111111"),
    ],
)
async def test_what_cannot_be_sent_has_not_happened(
    service: dict[str, Any], body: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool has an effect, and the step is failed, not in doubt."""
    monkeypatch.setattr(bodies, "MAX_SENT", 1_000)
    result, requests = await sent(service, step("u", "up", body=body))

    assert (result.steps["u"].state, requests) == ("failed", [])
    assert why in result.steps["u"].reason


@pytest.mark.parametrize(
    ("schema", "is_file"),
    [
        (BINARY, True),
        (BINARY | {"nullable": True}, True),
        ({"anyOf": [BINARY, {"type": "null"}]}, True),
        ({"type": ["string", "null"], "contentMediaType": "image/png"}, True),
        ({"type": "string", "contentMediaType": "image/png", "contentEncoding": "base64"}, False),
        ({"type": "string", "format": "byte"}, False),
        ({"type": "string", "enum": ["a"]}, False),
        ({"type": "integer"}, False),
    ],
)
async def test_which_fields_are_files(schema: Any, is_file: bool) -> None:
    """A plan that passes anything else is refused when it is checked."""
    service = uploads({"allOf": [{"type": "object", "properties": {"f": schema}}]})
    tools = dagrun.openapi_tools(service)
    steps = [step("d", "draw"), step("u", "up", body={"f": "${d}"})]
    if is_file:
        dagrun.check(dagrun.Plan(steps=steps), tools=[tools, draw])
        steps = [step("u", "up", body={"f": 17})]
    with pytest.raises(dagrun.PlanRefused, match=r"args.body.f"):
        dagrun.check(dagrun.Plan(steps=steps), tools=[tools, draw])


async def test_the_form_that_can_be_had_is_taken() -> None:
    """JSON before all; a form with files before one that has none, if there are files."""
    form, multipart = "application/x-www-form-urlencoded", "multipart/form-data"
    files, texts = ({"schema": {"properties": {"f": each}}} for each in (BINARY, {"type": "string"}))
    for content, wanted in (
        ({multipart: files, "application/json": {}}, "application/json"),
        ({form: files, multipart: files}, multipart),
        ({multipart: texts, form: texts}, form),
        ({"image/png": {}, multipart: texts}, multipart),
    ):
        _, [request] = await sent(takes(content), step("u", "up", body={"f": "x"}))
        assert request.headers["content-type"].startswith(wanted)
    for refused, why in (
        ({"multipart/mixed": {}}, "a body of multipart/mixed"),
        ({multipart: {"schema": {"type": "array"}}}, "no object"),
    ):
        with pytest.raises(ContractError, match=why):
            dagrun.openapi_tools(takes(refused), include=["up"])


async def test_a_large_output_becomes_a_file_where_a_file_is_taken() -> None:
    """As with any tool that takes an `Artifact`."""

    @dagrun.tool(effect="read", output_limit=100)
    async def rows() -> list[int] | Artifact:
        return list(range(500))

    service = uploads({"type": "object", "properties": {"f": BINARY}})
    with serving(OK) as server:
        tools = dagrun.openapi_tools(service, base_url=server.url)
        await run(dagrun.Toolbox([*tools.values(), rows]), step("r", "rows"), step("u", "up", body={"f": "${r}"}))
        [request] = server.requests
    [(_, _, media_type, content)] = parts_of(request)
    assert media_type == "application/json"
    assert json.loads(content) == list(range(500))
