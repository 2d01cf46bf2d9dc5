"""Calls of an HTTP service: what a status means for an effect, credentials, redirects, and where connections may go."""

from __future__ import annotations

import base64
import gzip
import socket
from pathlib import Path
from typing import Any

import pytest

import dagrun
from dagrun.errors import ContractError
from loopback import Handler, Request, answer, serving, trap
from openapi_service import document, operation, parameter, run, step

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]

JSON = "application/json"
ONCE = dagrun.RetryRule(max_attempts=1)

# For each answer, how a step ends: GET, PUT and POST, each tried once.
STATUSES: dict[str, tuple[str, str, str]] = {
    "200": ("succeeded", "succeeded", "succeeded"),
    "201": ("succeeded", "succeeded", "succeeded"),
    "204": ("succeeded", "succeeded", "succeeded"),
    "302": ("failed", "unknown", "unknown"),
    "307": ("failed", "failed", "failed"),
    "400": ("failed", "failed", "failed"),
    "404": ("failed", "failed", "failed"),
    "408": ("failed", "unknown", "unknown"),
    "409": ("failed", "unknown", "unknown"),
    "410": ("failed", "failed", "failed"),
    "422": ("failed", "failed", "failed"),
    "429": ("failed", "failed", "failed"),
    "500": ("failed", "unknown", "unknown"),
    "503": ("failed", "unknown", "unknown"),
    "broken": ("failed", "unknown", "unknown"),
    "half": ("failed", "unknown", "unknown"),
    "garbage": ("failed", "unknown", "unknown"),
    "large": ("failed", "unknown", "unknown"),
    "unzipped": ("failed", "unknown", "unknown"),
}


def by_status(request: Request, connection: socket.socket) -> None:
    """Answer with the status that stands at the end of the path."""
    match request.target.rpartition("/")[2]:
        case "broken":
            connection.shutdown(socket.SHUT_RDWR)
        case "half":
            connection.sendall(answer(b"{}", content_length="100", content_type=JSON))
            connection.shutdown(socket.SHUT_RDWR)
        case "garbage":
            connection.sendall(answer(b"{nothing", content_type=JSON))
        case "large":
            connection.sendall(answer(b" " * 2_000, content_type=JSON))
        case "unzipped":
            connection.sendall(answer(b"{}", content_type=JSON, content_encoding="gzip"))
        case "204":
            connection.sendall(answer(status="204 No Content"))
        case "302" | "307" as code:
            connection.sendall(answer(status=f"{code} Elsewhere", location="https://elsewhere.example/a"))
        case code:
            connection.sendall(answer(b'{"message": "because"}', status=f"{code} Word", content_type=JSON))


def three(**more: Any) -> dict[str, Any]:
    """A service with one path and three methods."""
    code = parameter("code", "path")
    return document({"/{code}": {name: operation(name, code, **more) for name in ("get", "put", "post")}})


async def test_what_a_status_means_for_an_effect() -> None:
    """4xx says that nothing has happened, but for 408 and 409; after these, 5xx and a lost connection nobody knows."""
    with serving(by_status) as server:
        tools = dagrun.openapi_tools(three(), base_url=server.url, network={"max_bytes": 1_000})
        steps = [
            dagrun.Step(id=f"{method}_{code}", tool=method, args={"code": code}, retry=ONCE)
            for code in STATUSES
            for method in ("get", "put", "post")
        ]
        result = await run(tools, *steps)
    ended = {
        code: tuple(str(result.steps[f"{method}_{code}"].state) for method in ("get", "put", "post"))
        for code in STATUSES
    }
    assert ended == STATUSES
    assert result.steps["get_204"].output is None
    assert len(server.requests) == 3 * len(STATUSES)
    failure = result.steps["post_422"].failure
    assert failure is not None
    assert "127.0.0.1 answered 422 Unprocessable" in failure.message
    assert "because" in failure.message
    assert result.status == "unknown"
    for method in ("get", "post"):
        for code in ("broken", "half"):
            lost = result.steps[f"{method}_{code}"].failure
            assert lost is not None
            assert (str(lost.kind), "the connection to 127.0.0.1 was lost: " in lost.message) == ("connection", True)


@pytest.mark.parametrize(("code", "tried"), [("401", 1), ("403", 1), ("404", 1), ("409", 1), ("503", 2), ("408", 2)])
async def test_only_what_may_pass_is_tried_again(code: str, tried: int) -> None:
    """A permission that is missing now is missing in a second."""
    with serving(by_status) as server:
        tools = dagrun.openapi_tools(three(), base_url=server.url)
        retry = dagrun.RetryRule(max_attempts=2, first_delay=0.01)
        result = await run(tools, dagrun.Step(id="a", tool="get", args={"code": code}, retry=retry))
    assert len(server.requests) == tried
    assert result.status != "succeeded"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("Wed, 25 Nov 2026 10:00:09 GMT", 9.0), ("Wed, 25 Nov 2026 09:00:00 GMT", 0.0), ("soon", None)],
)
async def test_429_says_when_to_try_again_and_that_nothing_has_happened(said: str, seconds: float | None) -> None:
    """A date counts from the date of the answer, by the clock of the service."""
    date = "Wed, 25 Nov 2026 10:00:00 GMT"
    answers = iter([answer(status="429 Too Many Requests", retry_after=said, date=date)])

    def busy(request: Request, connection: socket.socket) -> None:
        connection.sendall(next(answers, answer(b"1", content_type=JSON)))

    with serving(busy) as server:
        tools = dagrun.openapi_tools(three(), base_url=server.url)
        result = await run(tools, dagrun.Step(id="pay", tool="post", args={"code": "a"}, retry=ONCE))
        failure = result.steps["pay"].failure
        assert failure is not None
        assert (failure.nothing_happened, failure.is_transient, failure.retry_after) == (True, True, seconds)


async def test_429_is_tried_again_even_with_an_effect() -> None:
    """The service has done nothing, so nothing can be done twice."""
    answers = iter([answer(status="429 Too Many Requests", retry_after="0.01")])

    def busy(request: Request, connection: socket.socket) -> None:
        connection.sendall(next(answers, answer(b"1", content_type=JSON)))

    with serving(busy) as server:
        tools = dagrun.openapi_tools(three(), base_url=server.url)
        retry = dagrun.RetryRule(max_attempts=2, first_delay=0.01)
        result = await run(tools, dagrun.Step(id="pay", tool="post", args={"code": "a"}, retry=retry))
    assert result.status == "succeeded"
    assert [request.method for request in server.requests] == ["POST", "POST"]


async def test_nobody_listens_so_nothing_has_happened() -> None:
    """No connection, no request: an effect that never left is not in doubt."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    tools = dagrun.openapi_tools(three(), base_url=f"http://127.0.0.1:{port}")
    steps = [dagrun.Step(id=each, tool=each, args={"code": "a"}, retry=ONCE) for each in ("get", "put", "post")]
    result = await run(tools, *steps)
    assert {str(each.state) for each in result.steps.values()} == {"failed"}
    for each in result.steps.values():
        assert "127.0.0.1 cannot be reached: All connection attempts failed" in str(each.failure)
    assert [str(each.failure.kind) for each in result.steps.values() if each.failure] == ["connection", "tool", "tool"]


async def test_the_key_of_the_step_goes_into_the_declared_header_and_makes_a_post_idempotent() -> None:
    """The same at every attempt, and nothing that a plan could set."""
    answers = iter(("503 Busy", "200 OK"))

    def second(request: Request, connection: socket.socket) -> None:
        connection.sendall(answer(b"{}", status=next(answers), content_type=JSON))

    key = parameter("Idempotency-Key", "header", required=True)
    with serving(second) as server:
        tools = dagrun.openapi_tools(document({"/pay": {"post": operation("pay", key)}}), base_url=server.url)
        assert str(tools["pay"].effect) == "idempotent"
        assert list(tools["pay"].arguments.schema["properties"]) == []
        retry = dagrun.RetryRule(max_attempts=2, first_delay=0.01)
        result = await run(tools, dagrun.Step(id="pay", tool="pay", retry=retry))
    first, again = (request.headers["idempotency-key"] for request in server.requests)
    assert first == again
    assert len(first) > 20
    assert result.status == "succeeded"


async def test_answers_are_json_texts_and_files_and_are_held_to_their_schemas(tmp_path: Path) -> None:
    """What the document says is checked when a plan refers to it, and when it comes back."""

    def various(request: Request, connection: socket.socket) -> None:
        match request.target:
            case "/json":
                connection.sendall(answer(b'{"n": 1}', content_type="application/vnd.x+json; charset=utf-8"))
            case "/text":
                connection.sendall(answer("ü".encode("latin-1"), content_type="text/plain; charset=latin-1"))
            case "/file":
                connection.sendall(answer(b"%PDF", content_type="application/pdf"))
            case "/zipped":
                connection.sendall(answer(gzip.compress(b'{"n": 2}'), content_type=JSON, content_encoding="gzip"))
            case _:
                connection.sendall(answer(b'{"n": "one"}', content_type=JSON))

    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    text = {"responses": {"200": {"description": "ok", "content": {"text/plain": {}}}}}
    paths = {
        "/json": {"get": operation("json", answer=number)},
        "/zipped": {"get": operation("zipped", answer=number)},
        "/wrong": {"get": operation("wrong", answer=number)},
        "/text": {"get": operation("text", **text)},
        "/file": {"get": operation("file")},
    }
    with serving(various) as server:
        tools = dagrun.openapi_tools(document(paths), base_url=server.url)
        result = await run(tools, *(step(name, name) for name in tools), artifacts=tmp_path)
        free = dagrun.openapi_tools(document(paths), base_url=server.url, check_answers=False)
        unchecked = await run(free, step("wrong", "wrong"))
    assert result.steps["json"].output == {"n": 1}
    assert result.steps["zipped"].output == {"n": 2}
    assert result.steps["text"].output == "ü"
    assert result.steps["file"].output["media_type"] == "application/pdf"
    assert result.steps["file"].output["size"] == 4
    failure = result.steps["wrong"].failure
    assert failure is not None
    assert "does not return what it declares: n: " in failure.message
    assert unchecked.steps["wrong"].output == {"n": "one"}
    with pytest.raises(dagrun.PlanRefused, match="DR303"):
        dagrun.check(dagrun.Plan(steps=[step("a", "json"), step("b", "text", x="${a.m}")]), tools=[tools])


# Credentials ---------------------------------------------------------------------------------------------------------

SECRET = "s3cret-value-17"
SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "token"},
    "oauth": {"type": "oauth2", "flows": {}},
}


@pytest.mark.parametrize(
    ("scheme", "header", "value"),
    [
        ("bearer", "authorization", f"Bearer {SECRET}"),
        ("basic", "authorization", f"Basic {base64.b64encode(SECRET.encode()).decode()}"),
        ("key", "x-api-key", SECRET),
        ("oauth", "authorization", f"Bearer {SECRET}"),
        (None, "authorization", f"Bearer {SECRET}"),
    ],
)
async def test_a_secret_goes_where_the_document_says(scheme: str | None, header: str, value: str) -> None:
    """And is no argument of any tool, though the document may declare its parameter."""
    declared = [parameter("X-Api-Key", "header"), parameter("Authorization", "header"), parameter("c", "cookie")]
    more: dict[str, Any] = {} if scheme is None else {"security": [{scheme: []}]}
    paths = {"/a": {"get": operation("a", *declared)}, "/open": {"get": operation("open", security=[])}}
    schemes = {"components": {"securitySchemes": SCHEMES}}

    def echo(request: Request, connection: socket.socket) -> None:
        connection.sendall(answer(request.headers.get(header, "").encode(), content_type="text/plain"))

    with serving(echo) as server:
        tools = dagrun.openapi_tools(
            document(paths, **schemes, **more), base_url=server.url, auth=dagrun.Secret(SECRET)
        )
        assert list(tools["a"].arguments.schema["properties"]) == []
        result = await run(tools, step("a", "a"), step("open", "open"))
    sent = {request.target: request.headers.get(header) for request in server.requests}
    assert sent == {"/a": value, "/open": None}
    assert SECRET not in result.steps["a"].output
    assert "[secret:auth]" in result.steps["a"].output


async def test_a_secret_in_the_query_and_a_function_of_the_host() -> None:
    """The function is called for each request, so that it can renew a token; several secrets go by scheme."""
    made: list[str] = []

    async def token() -> dict[str, str]:
        made.append(f"Bearer number-{len(made)}")
        return {"Authorization": made[-1]}

    schemes = {"components": {"securitySchemes": SCHEMES}}
    both: dict[str, Any] = {"security": [{"query": [], "key": []}]}
    paths = {"/a": {"get": operation("a", parameter("q"), parameter("token"), **both)}}
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        tools = dagrun.openapi_tools(
            document(paths, **schemes), base_url=server.url, auth={"query": "tok&en-1", "key": SECRET}
        )
        await run(tools, step("a", "a", q=1))
        with_function = dagrun.openapi_tools(document(paths, **schemes), base_url=server.url, auth=token)
        await run(with_function, step("a", "a"), dagrun.Step(id="b", tool="a", depends_on=("a",)))
    first, second, third = server.requests
    assert first.target == "/a?q=1&token=tok%26en-1"
    assert first.headers["x-api-key"] == SECRET
    assert [second.headers["authorization"], third.headers["authorization"]] == made


async def test_a_function_that_fails_sends_nothing() -> None:
    """So an effect has not happened, whatever the function raised."""

    def broken() -> dict[str, str]:
        raise RuntimeError("no token today")

    def wrong() -> Any:
        return ["Authorization"]

    paths = {"/a": {"post": operation("a")}}
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        for function, reason in (
            (broken, "RuntimeError: no token today"),
            (wrong, "returned a list"),
            (lambda: {"authorization": f"{SECRET}\r\nx: y"}, "a character that no header may have"),
            (lambda: {"x\r\ny": "z"}, "a character that no header may have"),
            (dagrun.Secret(f"{SECRET}\nü"), "a character that no header may have"),
        ):
            tools = dagrun.openapi_tools(document(paths), base_url=server.url, auth=function)
            result = await run(tools, step("a", "a"))
            assert str(result.steps["a"].state) == "failed"
            assert reason in str(result.steps["a"].failure)
            assert SECRET not in str(result.steps["a"].failure)
        assert server.requests == []


async def test_a_secret_is_kept_from_the_tools_that_may_not_have_it() -> None:
    """As in any other tool."""
    paths = {f"/{name}": {"get": operation(name)} for name in ("may", "may_not")}
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        secret = dagrun.Secret(SECRET, tools=("may",))
        tools = dagrun.openapi_tools(document(paths), base_url=server.url, auth=secret)
        await run(tools, step("a", "may"), step("b", "may_not"))
    sent = {request.target: "authorization" in request.headers for request in server.requests}
    assert sent == {"/may": True, "/may_not": False}


def test_a_secret_that_has_no_place_is_an_error_at_once() -> None:
    """Not a 401 an hour later."""
    with pytest.raises(ContractError, match="auth names nothing; the document has the schemes: bearer, "):
        dagrun.openapi_tools(
            document({"/a": {"get": operation("a")}}, components={"securitySchemes": SCHEMES}), auth={"nothing": SECRET}
        )
    with pytest.raises(ContractError, match="DAGRUN_NO_SUCH_KEY is not set"):
        dagrun.openapi_tools(document({"/a": {"get": operation("a")}}), auth=dagrun.env("DAGRUN_NO_SUCH_KEY"))


# Addresses -----------------------------------------------------------------------------------------------------------


def redirecting(status: str, location: str) -> Handler:
    """Redirect ``/a`` there, and answer everything else."""

    def handler(request: Request, connection: socket.socket) -> None:
        if request.target == "/a":
            connection.sendall(answer(status=status, location=location))
        else:
            connection.sendall(answer(b'"there"', content_type=JSON))

    return handler


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
async def test_redirects_within_the_service_are_followed_where_that_repeats_nothing(status: str) -> None:
    """A GET goes anywhere within it; a POST only where the service asks for the same request again."""
    paths = {"/a": {"get": operation("get"), "post": operation("post", body={})}}
    with serving(redirecting(status, "/b?x=%2F1")) as server:
        tools = dagrun.openapi_tools(document(paths), base_url=server.url)
        result = await run(tools, step("get", "get"), dagrun.Step(id="post", tool="post", args={"body": 1}, retry=ONCE))
    assert result.steps["get"].output == "there"
    is_same = status[:3] in ("307", "308")
    assert str(result.steps["post"].state) == ("succeeded" if is_same else "unknown")
    posts = [(request.target, request.body) for request in server.requests if request.method == "POST"]
    assert posts == ([("/a", b"1"), ("/b?x=%2F1", b"1")] if is_same else [("/a", b"1")])


async def test_no_redirect_leads_to_another_host_and_none_goes_on_for_ever() -> None:
    """Another port is another host, and so is another spelling of this one."""
    with trap() as other, serving(redirecting("302 Found", "/a")) as circle:
        for target in (f"http://127.0.0.1:{other.port}/", f"http://localhost:{other.port}/", "//127.1/", "ftp://x/"):
            with serving(redirecting("302 Found", target)) as server:
                tools = dagrun.openapi_tools(document({"/a": {"get": operation("get")}}), base_url=server.url)
                result = await run(tools, dagrun.Step(id="a", tool="get", retry=ONCE))
            failure = result.steps["a"].failure
            assert failure is not None
            assert "redirects to another host" in failure.message
            assert len(server.requests) == 1
        tools = dagrun.openapi_tools(document({"/a": {"get": operation("get")}}), base_url=circle.url)
        result = await run(tools, dagrun.Step(id="a", tool="get", retry=ONCE))
        assert "redirects more than 5 times" in str(result.steps["a"].failure)
        assert other.connects == 0


async def test_private_addresses_are_called_only_if_the_host_names_them() -> None:
    """A document that names a server on this machine has not been asked; nor does a name become its address."""
    paths = {"/a": {"get": operation("get")}}
    with trap() as inside:
        url = f"http://127.0.0.1:{inside.port}"
        from_document = document(paths) | {"servers": [{"url": url}]}
        result = await run(dagrun.openapi_tools(from_document), dagrun.Step(id="a", tool="get", retry=ONCE))
        assert "is not a public address" in str(result.steps["a"].failure)
        assert inside.connects == 0
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        given = document(paths) | {"servers": [{"url": server.url}]}
        allowed = dagrun.openapi_tools(given, network={"allow": ["127.0.0.0/8"]})
        assert (await run(allowed, step("a", "get"))).status == "succeeded"


async def test_a_path_of_the_address_stays_in_front() -> None:
    """``https://host/api/v3`` and ``/pets`` are one path."""
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        tools = dagrun.openapi_tools(document({"/pets": {"get": operation("get")}}), base_url=f"{server.url}/api/v3/")
        assert (await run(tools, step("a", "get"))).status == "succeeded"
    assert server.requests[0].target == "/api/v3/pets"


@pytest.mark.parametrize(
    "url",
    ["", "api.example.com", "ftp://a.b/", "https://user:pass@a.b", "https://a.b?x=1", "http://a.b:99999", "https://{x}/",
     "http://a b/", "http://[::1", "https:///x"],
)  # fmt: skip
def test_an_address_that_cannot_be_called_is_refused(url: str) -> None:
    """At once, not at the first call."""
    with pytest.raises(ContractError, match="base_url"):
        dagrun.openapi_tools(document({"/a": {"get": operation("get")}}), base_url=url)


async def test_a_block_keeps_connections_open_between_calls() -> None:
    """A chain of calls makes one connection, and none is left after the block."""
    chain = [dagrun.Step(id=f"s{n}", tool="get", depends_on=(f"s{n - 1}",) if n else ()) for n in range(4)]
    found = document({"/a": {"get": operation("get")}})
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        async with dagrun.openapi_tools(found, base_url=server.url) as tools:
            await run(tools, *chain)
            await run(tools, *chain)
        assert (server.connects, len(server.requests)) == (1, 8)
    with serving(lambda _request, connection: connection.sendall(answer(b"1", content_type=JSON))) as server:
        await run(dagrun.openapi_tools(found, base_url=server.url), *chain)
        assert server.connects == 4
