"""The tools that read the web, against real servers on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import anyio
import httpx
import pytest
from pydantic import ValidationError

import dagrun
from calls import make_call
from dagrun import Plan, PlanRefused, State, Status, Step, ToolError
from dagrun.kernel.decide.classify import classify
from dagrun.kernel.model.outcome import ErrorKind
from dagrun.sources.network import network_rules
from dagrun.sources.network.network_rules import NetworkRules
from dagrun_tools import settings
from dagrun_tools.web.fetch import fetch_json, fetch_url
from loopback import Request, Server, always, answer, serving, until_closed
from places import unplaced

pytestmark = [pytest.mark.anyio, pytest.mark.real_time]


@pytest.fixture(autouse=True)
def _own_rules() -> Iterator[None]:
    """Reset the rules after each test."""
    before = network_rules.rules.get()
    yield
    network_rules.rules.set(before)


async def _fetch(server: Server, path: str = "/", **arguments: Any) -> dict[str, Any]:
    network_rules.rules.set(server.rules)
    call = make_call(fetch_url, {"url": server.url + path, **arguments})
    return dict(await fetch_url.function(**call.arguments))


async def _fetch_json(server: Server, path: str = "/", **arguments: Any) -> Any:
    network_rules.rules.set(server.rules)
    return await fetch_json(server.url + path, **arguments)


async def test_a_page_comes_as_text_with_what_it_is() -> None:
    """A plan uses `${page.text}`, and a report names the address."""
    with serving(always(answer("Grüße".encode(), content_type="text/html; charset=utf-8"))) as server:
        page = await _fetch(server, "/index.html")

    assert page == {
        "url": f"{server.url}/index.html",
        "status": 200,
        "media_type": "text/html",
        "size": 7,
        "text": "Grüße",
    }


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/plain; charset=ISO-8859-1", "café".encode("latin-1")),
        ('text/plain; charset="utf-16"', "café".encode("utf-16")),
        ("text/plain", "café".encode()),
        ("text/plain", "café".encode("cp1252")),
        ("application/json; charset=no-such", "café".encode()),
        ("text/plain; charset=punycode", "café".encode()),  # a codec that takes quadratic time
    ],
)
async def test_text_is_read_in_the_letters_that_it_is_written_in(content_type: str, body: bytes) -> None:
    """Many pages are not UTF-8, and a server may name any codec of Python."""
    with serving(always(answer(body, content_type=content_type))) as server:
        assert (await _fetch(server))["text"] == "café"


async def test_what_is_not_text_comes_as_an_artifact() -> None:
    """Bytes are not a JSON value; the file has the same bytes, and the name that people know."""
    body = bytes(range(256))
    with serving(always(answer(body, content_type="image/png"))) as server:
        network_rules.rules.set(server.rules)
        call = make_call(fetch_url, {"url": f"{server.url}/charts/a%20b.png?x=1"})
        found = await fetch_url.function(**call.arguments)

    artifact = found["artifact"]
    assert "text" not in found
    assert (artifact.name, artifact.media_type, artifact.size) == ("a b.png", "image/png", 256)
    assert call.context().artifacts.path(artifact).read_bytes() == body


async def test_long_text_comes_as_an_artifact_unless_text_is_asked_for() -> None:
    """A step has room for 1 MiB of JSON; a plan that needs `${page.text}` can ask for text."""
    with serving(always(answer(b"x" * 300_000, content_type="text/plain"))) as server:
        assert "artifact" in await _fetch(server)
        assert len((await _fetch(server, form="text"))["text"]) == 300_000
        assert "artifact" in await _fetch(server, form="artifact")


async def test_text_that_is_asked_for_and_is_none_is_an_error() -> None:
    """This step fails, and not the later step that uses the text."""
    png = answer(b"\x89PNG\0", content_type="image/png")
    with serving(always(png)) as server, pytest.raises(ToolError, match="not text"):
        await _fetch(server, form="text")


async def test_headers_and_parameters_reach_the_server_as_they_were_given() -> None:
    """Parameters are encoded, so a value from another step cannot add a parameter."""
    with serving(always(answer(b"{}", content_type="application/json"))) as server:
        await _fetch_json(server, "/q?a=1", params={"b": "x&c=2", "n": 3}, headers={"Authorization": "Bearer t"})

    request = server.requests[0]
    assert request.target == "/q?a=1&b=x%26c%3D2&n=3"
    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["accept"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"


async def test_json_is_given_as_it_is() -> None:
    """The JSON of the server is the output of the step, whatever its type."""
    with serving(always(answer(b'[1, {"a": null}]'))) as server:
        assert await _fetch_json(server) == [1, {"a": None}]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1,", b"NaN", b"\xff"])
async def test_what_is_not_json_is_an_error_that_says_who_gave_it(body: bytes) -> None:
    """A page that says "please log in" must not become data."""
    text = r"127\.0\.0\.1 answered with something that is not JSON"
    with serving(always(answer(body))) as server, pytest.raises(ToolError, match=text):
        await _fetch_json(server)


async def test_redirects_are_followed_and_the_last_address_is_told() -> None:
    """Relative addresses, too, which most servers send."""

    def handler(request: Request, connection: socket.socket) -> None:
        moved = {"/": "b?x=1", "/b?x=1": "/c"}.get(request.target)
        connection.sendall(answer(status="302 Found", location=moved) if moved else answer(b"there"))

    with serving(handler) as server:
        page = await _fetch(server)

    assert (page["url"], page["text"]) == (f"{server.url}/c", "there")


@pytest.mark.parametrize(
    ("status", "kind", "is_transient"),
    [
        ("404 Not Found", ErrorKind.EXCEPTION, False),
        ("403 Forbidden", ErrorKind.PERMISSION, False),
        ("429 Too Many Requests", ErrorKind.RATE_LIMITED, True),
        ("503 Service Unavailable", ErrorKind.SERVER, True),
        ("304 Not Modified", ErrorKind.EXCEPTION, False),
    ],
)
async def test_the_status_of_an_error_decides_what_recovery_does(
    status: str, kind: ErrorKind, is_transient: bool
) -> None:
    """Only the recovery table retries, so it must be able to tell passing errors from lasting ones."""
    data = answer(b"no", status=status, retry_after="7")
    with serving(always(data)) as server, pytest.raises(httpx.HTTPStatusError) as caught:
        await _fetch(server, "/?key=hunter2")

    failure = classify(caught.value, fetch_url)
    assert (failure.kind, failure.is_transient) == (kind, is_transient)
    assert failure.retry_after == (7 if is_transient else None)
    assert unplaced(failure.message) == f"HTTPStatusError: 127.0.0.1 answered {status}"
    assert len(server.requests) == 1


async def test_nobody_listening_is_a_transient_failure_of_the_connection() -> None:
    """A server that restarts answers a second later."""
    with serving(always(answer())) as server:
        pass
    with pytest.raises(httpx.ConnectError) as caught:
        await _fetch(server)
    assert classify(caught.value, fetch_url).is_transient


async def test_a_failing_server_is_asked_again_by_dagrun_and_every_attempt_is_on_record() -> None:
    """The library must not retry, because hidden attempts are neither recorded nor charged."""

    def handler(_: Request, connection: socket.socket) -> None:
        busy = len(server.requests) == 1
        connection.sendall(answer(status="503 Busy", retry_after="0") if busy else answer(b'{"n": 1}'))

    with serving(handler) as server:
        network_rules.rules.set(server.rules)
        steps = [Step(id="a", tool="fetch_json", args={"url": server.url})]
        result = await dagrun.run(Plan(steps=steps), tools=[fetch_json])

    assert result.status is Status.SUCCEEDED
    assert result.output == {"n": 1}
    assert [a.outcome.state for a in result.steps["a"].attempts if a.outcome] == [State.FAILED, State.SUCCEEDED]
    assert len(server.requests) == 2


async def test_calls_side_by_side_share_connections_and_the_last_one_closes_them() -> None:
    """Parallel calls to one host share connections, and none outlives the calls, as `serving` asserts."""
    go_on = threading.Event()

    def handler(request: Request, connection: socket.socket) -> None:
        if request.target == "/slow":
            assert go_on.wait(20)
        connection.sendall(answer(b"ok"))

    with serving(handler) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_fetch, server, "/slow")
            while not server.requests:
                await anyio.sleep(0.01)
            for _ in range(3):
                await _fetch(server)
            go_on.set()
        assert server.connects == 2
        await _fetch(server)
        assert server.connects == 3


async def test_a_cancelled_call_hangs_up() -> None:
    """A branch that was dropped must not keep a socket; `serving` asserts that it is closed."""
    with serving(lambda _, connection: until_closed(connection)) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_fetch, server)
            while not server.requests:
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()


async def test_runs_side_by_side_have_their_own_rules() -> None:
    """A connection that one run may open must not serve another run."""
    states: dict[str, State] = {}

    async def run(name: str, server: Server, rules: NetworkRules) -> None:
        network_rules.rules.set(rules)
        plan = Plan(steps=[Step(id="a", tool="fetch_url", args={"url": server.url})])
        states[name] = (await dagrun.run(plan, tools=[fetch_url])).steps["a"].state

    def handler(_: Request, connection: socket.socket) -> None:
        connection.sendall(answer(b"ok"))

    with serving(handler) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, "trusted", server, server.rules)
            tasks.start_soon(run, "other", server, NetworkRules())

    assert states == {"trusted": State.SUCCEEDED, "other": State.FAILED}
    assert len(server.requests) == 1


@pytest.mark.parametrize("argument", ["rules", "context", "allow", "verify", "proxy"])
async def test_a_plan_has_no_say_in_the_rules(argument: str) -> None:
    """The author of a plan may have been misled."""
    plan = Plan(steps=[Step(id="a", tool="fetch_url", args={"url": "http://127.0.0.1/", argument: {}})])
    with pytest.raises(PlanRefused, match=argument):
        dagrun.check(plan, [fetch_url])


async def test_settings_hold_for_the_runs_that_follow_and_nowhere_else() -> None:
    """A policy file that allows an address must not allow it for the next run of the service."""
    with serving(always(answer(b"1"))) as server:
        tables = {"network": {"allow": [f"127.0.0.1:{server.port}"]}}
        plan = Plan(steps=[Step(id="a", tool="fetch_json", args={"url": server.url})])
        statuses: list[Status] = []

        async def run(configured: Mapping[str, Any]) -> None:
            settings.configure(configured)
            statuses.append((await dagrun.run(plan, tools=[fetch_json])).status)

        for configured in (tables, {}):
            async with anyio.create_task_group() as tasks:  # a task has a context of its own
                tasks.start_soon(run, configured)
    assert statuses == [Status.SUCCEEDED, Status.FAILED]


SLIPS: list[dict[str, Any]] = [
    {"allow": ["300.1.2.3"]},
    {"allow": ["10.0.0.0/33"]},
    {"allow": ["host:99999"]},
    {"allow": ["http://host/"]},
    {"allow": "10.0.0.0/8"},
    {"ports": [0]},
    {"schemes": ["file"]},
    {"deadline": 0},
    {"deadline": float("inf")},
    {"max_bytes": "10MB"},
    {"alow": []},
]


def test_a_slip_in_the_settings_is_an_error() -> None:
    """A misspelt rule that is ignored would allow or forbid too much."""
    before = network_rules.rules.get()
    for table in SLIPS:
        with pytest.raises(ValidationError):
            settings.configure({"network": table})
        assert network_rules.rules.get() is before, table
    with pytest.raises(ValidationError):
        settings.configure({"netwrok": {}})
