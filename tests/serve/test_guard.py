"""The rules of safety of the live page, S1 to S15 but for those that need a browser or the command line."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from starlette.requests import Request

import dagrun
from dagrun import MemoryJournal, Plan, Run, Step
from dagrun.errors import ContractError
from dagrun.events import QuestionAnswered
from dagrun.serve import actions, files, routes
from dagrun.serve.files import static_file
from dagrun.serve.measures import Measures
from page_client import POSTED, RUN, TOKEN, Client, page_of
from persons import pay
from small_tools import toolset

pytestmark = pytest.mark.anyio

STATIC: Final = files.FOLDER
# Every path of the page, with its method; each is tried with each rule.
PATHS: Final = [
    ("GET", "/"),
    ("GET", f"/r/{RUN}"),
    ("GET", "/static/live.js"),
    ("GET", "/static/missing.js"),
    ("GET", "/api/runs"),
    ("GET", "/api/questions"),
    ("GET", f"/api/runs/{RUN}"),
    ("GET", f"/api/runs/{RUN}/steps/0"),
    ("GET", f"/api/runs/{RUN}/changes?after=x-1"),
    ("GET", f"/api/runs/{RUN}/stream"),
    ("GET", f"/api/runs/{RUN}/graph.svg"),
    ("GET", f"/api/runs/{RUN}/report.html"),
    ("GET", f"/api/runs/{RUN}/questions/x/after.svg"),
    ("GET", f"/api/runs/{RUN}/artifacts/{'0' * 64}"),
    ("POST", f"/api/runs/{RUN}/answers"),
    ("POST", f"/api/runs/{RUN}/cancel"),
    ("POST", f"/api/runs/{RUN}/suspend"),
    ("POST", f"/api/runs/{RUN}/requeue"),
    ("GET", f"/api/runs/{RUN}/queue"),
    ("GET", "/missing"),
]
API: Final = [(method, path) for method, path in PATHS if path.startswith("/api")]


@asynccontextmanager
async def asking(**options: Any) -> AsyncIterator[tuple[Run, Client]]:
    """A run that asks a person, and its page."""
    plan = Plan(steps=[Step(id="pay", tool="pay", args={"value": 1})])
    journal = MemoryJournal()

    async def wait(_: object) -> None:
        await anyio.sleep_forever()

    async with dagrun.start(plan, tools=toolset(pay()), journal=journal, run_id=RUN, approver=wait) as run:
        while not run.pending:
            await anyio.sleep(0.01)
        yield run, Client(page_of(journal, run, **options))
        if not run.has_ended:
            run.cancel()


# S2: the name of the host --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost:x", "[::2]", "127.0.0.1:80:80"]
)
@pytest.mark.parametrize(("method", "path"), PATHS)
async def test_another_name_is_refused_on_every_path(method: str, path: str, host: str) -> None:
    """Before the token is looked at, and before there is anything to read."""
    client = Client(page_of(MemoryJournal()))
    answer = await client.request(method, path, {**POSTED, "host": host})
    assert answer.status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8321", "LOCALHOST:1", "[::1]", "[::1]:8321"])
async def test_a_name_of_this_machine_is_good_with_any_port(host: str) -> None:
    client = Client(page_of(MemoryJournal()))
    assert (await client.get("/api/runs", host=host)).status_code == 200


async def test_a_name_with_a_port_is_good_with_no_other() -> None:
    client = Client(page_of(MemoryJournal(), hosts=["runs.example:8321"]))
    told = [
        (await client.get("/api/runs", host=h)).status_code
        for h in ("runs.example:8321", "runs.example:1", "runs.example")
    ]
    assert told == [200, 421, 421]


# S3: the token -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [None, "", "Bearer", "Bearer ", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x", f"Basic {TOKEN}", TOKEN, "Bearer é"],
)
@pytest.mark.parametrize(("method", "path"), API)
async def test_nothing_is_told_without_the_token(method: str, path: str, sent: str | None) -> None:
    async with asking() as (run, client):
        headers = {name: value for name, value in POSTED.items() if name != "authorization"}
        answer = await client.request(
            method,
            path,
            headers | ({} if sent is None else {"authorization": sent}),
        )
        assert answer.status_code == 401
        assert "pay" not in answer.text
        assert len(run.pending) == 1


@pytest.mark.parametrize("path", ["/", f"/r/{RUN}", "/r/other", "/static/live.js", "/static/page.css"])
async def test_the_pages_themselves_hold_no_data(path: str) -> None:
    """So they need no token, and are equal whatever runs there are."""
    async with asking() as (_, client):
        full = await client.request("GET", path, {"host": "localhost"})
    empty = await Client(page_of(MemoryJournal())).request("GET", path, {"host": "localhost"})
    assert (full.status_code, full.content) == (200, empty.content)


def test_somebody_must_be_named_who_may_look() -> None:
    """L14: no page is open to all by a default."""
    for wrong in ({}, {"token": TOKEN, "authorize": lambda request: "ann"}, {"token": "short"}, {"token": "é" * 20}):
        with pytest.raises(ContractError):
            dagrun.web(journal=MemoryJournal(), **wrong)
    with pytest.raises(ContractError, match="who may see and answer"):
        dagrun.web(journal=MemoryJournal())
    with pytest.raises(ContractError, match="hosts"):
        dagrun.web(journal=MemoryJournal(), token=TOKEN, hosts="example.org")


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_host_application_says_who_asks(is_async: bool) -> None:
    """Nobody is refused; and the name goes on record (S12)."""

    def who(request: Request) -> str | None:
        return request.headers.get("x-user")

    async def who_later(request: Request) -> str | None:
        return who(request)

    async with asking(authorize=who_later if is_async else who) as (run, client):
        question = {"question": run.pending[0].id, "choice": "approve"}
        assert (await client.post(f"/api/runs/{RUN}/answers", question)).status_code == 401
        assert (await client.post(f"/api/runs/{RUN}/answers", question, **{"x-user": ""})).status_code == 401
        forged = await client.post(f"/api/runs/{RUN}/answers", {**question, "by": "bob"}, **{"x-user": "ann"})
        assert forged.status_code == 422
        assert (await client.post(f"/api/runs/{RUN}/answers", question, **{"x-user": "ann"})).status_code == 200
        await run.result()
        events = run.graph.rare
    (answered,) = [event for event in events if isinstance(event, QuestionAnswered)]
    assert answered.answer is not None
    assert answered.answer.by == "ann"


# S4, S6: headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "path"), [each for each in PATHS if "stream" not in each[1]])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
async def test_every_answer_has_the_headers_of_safety_and_no_cookie(method: str, path: str, host: str) -> None:
    client = Client(page_of(MemoryJournal()))
    headers = (await client.request(method, path, {**POSTED, "host": host, "cookie": "a=b"})).headers
    assert "set-cookie" not in headers
    assert not [name for name in headers if name.startswith("access-control")]
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cache-control"] == ("no-cache" if path == "/static/live.js" and host == "localhost" else "no-store")


# S5: requests of foreign pages ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"x-dagrun": ""}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-length": "65537"}, 413),
    ],
)
@pytest.mark.parametrize("action", ["answers", "cancel", "suspend", "requeue"])
async def test_a_foreign_page_can_change_nothing(changed: dict[str, str], status: int, action: str) -> None:
    """Also if the log-in of the host application is a cookie, which a browser sends by itself."""
    async with asking(token=None, authorize=lambda request: "ann") as (run, client):
        body = {"question": run.pending[0].id, "choice": "approve"} if action == "answers" else {}
        answer = await client.post(f"/api/runs/{RUN}/{action}", body, **changed)
        assert answer.status_code == status
        assert (len(run.pending), run.has_ended) == (1, False)


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_the_page_itself_can(site: str) -> None:
    async with asking() as (run, client):
        body = {"question": run.pending[0].id, "choice": "approve"}
        answer = await client.post(f"/api/runs/{RUN}/answers", body, **{"sec-fetch-site": site})
        assert (answer.status_code, answer.json()) == (200, {"taken": True})
        assert (await run.result()).status == "succeeded"


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"])
async def test_other_methods_are_refused(method: str) -> None:
    """No question of a browser whether a foreign page may read is answered."""
    client = Client(page_of(MemoryJournal()))
    for _, path in PATHS:
        answer = await client.request(method, path, {**POSTED, "origin": "https://evil.example"})
        assert answer.status_code == 405


@pytest.mark.parametrize("action", ["answers", "cancel", "suspend", "requeue"])
async def test_nothing_can_be_changed_where_only_looking_is_allowed(action: str) -> None:
    """L18."""
    async with asking(read_only=True) as (run, client):
        body = {"question": run.pending[0].id, "choice": "approve"} if action == "answers" else {}
        assert (await client.post(f"/api/runs/{RUN}/{action}", body)).status_code == 405
        assert (await client.get("/api/runs")).json()["read_only"] is True
        assert len(run.pending) == 1


# S8: limits ----------------------------------------------------------------------------------------------------------


async def test_a_body_that_lies_about_its_length_is_cut() -> None:
    async with asking() as (run, client):

        async def long() -> AsyncIterator[bytes]:
            for _ in range(80):
                yield b" " * 1024
            yield b'{"question":"%b","choice":"approve"}' % run.pending[0].id.encode()

        answer = await client.request(
            "POST", f"/api/runs/{RUN}/answers", POSTED, b"".join([part async for part in long()])
        )
        assert answer.status_code == 413
        assert len(run.pending) == 1


async def test_only_so_many_answers_are_taken_in_a_second() -> None:
    async with asking() as (_, client):
        told = [
            (await client.post(f"/api/runs/{RUN}/answers", {"question": "q", "choice": "deny"})).status_code
            for _ in range(actions.MOST + 1)
        ]
        assert told == [409] * actions.MOST + [429]
        await anyio.sleep(1.1)
        again = await client.post(f"/api/runs/{RUN}/answers", {"question": "q", "choice": "deny"})
        assert again.status_code == 409


async def test_only_so_many_streams_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MAX_STREAMS", 2)
    async with asking() as (_, client):
        async with client.stream() as first, client.stream() as second:
            await first.next()
            await second.next()
            assert (await client.get(f"/api/runs/{RUN}/stream")).status_code == 503
        async with client.stream() as third:  # a stream that has ended makes room
            assert (await third.next())[0] == "snapshot"


# S9, S15: names and paths --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["%2e%2e", "a%2fb", "..%2f..%2fetc%2fpasswd", "a b", "é", "x" * 101, ".hidden"])
async def test_what_is_no_name_of_a_run_is_no_path(name: str, tmp_path: Path) -> None:
    client = Client(page_of(dagrun.SQLiteJournal(tmp_path / "runs")))
    (tmp_path / "secret.txt").write_text("canary")
    for path in (f"/r/{name}", f"/api/runs/{name}", f"/api/runs/{name}/stream", f"/static/{name}"):
        answer = await client.get(path)
        assert (answer.status_code, "canary" in answer.text) == (404, False)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "name", ["../routes.py", "%2e%2e%2froutes.py", "..%5croutes.py", "page.css/../../routes.py", "__init__.py"]
)
async def test_only_the_files_of_the_page_are_served(name: str) -> None:
    answer = await Client(page_of(MemoryJournal())).get(f"/static/{name}")
    assert answer.status_code == 404


def test_no_route_can_start_or_load_anything() -> None:
    """S15: the page imports nothing that runs a plan, and every route that changes something is one of four."""
    sources = {path.name: path.read_text() for path in files.FOLDER.parent.glob("*.py")}
    for name, text in sources.items():
        assert not re.search(
            r"import_module|__import__|api\.(running|resuming|retrying)|subprocess|\beval\(|\bexec\(", text
        ), name
    made = routes.Routes(None, None, Measures(None), is_read_only=False)  # type: ignore[arg-type]
    all_routes = [*made.public(), *made.private()]
    posted = [route for route in all_routes if "POST" in (route.methods or ())]
    assert [route.path.rpartition("/")[2] for route in posted] == ["answers", "cancel", "suspend", "requeue"]


# S13: questions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"choice": "approve"}, 422),
        ({"question": "", "choice": "approve"}, 409),
        ({"question": 1, "choice": "approve"}, 422),
        ({"question": "RIGHT", "choice": "perhaps"}, 422),
        ({"question": "RIGHT", "choice": "approve", "by": "ann"}, 422),
        ({"question": "RIGHT"[:4], "choice": "approve"}, 409),
        (b"{", 422),
        (b"", 422),
        (b"[]", 422),
        (b'{"question":"RIGHT","choice":"approve","note":"\\ud800"}', 422),
    ],
)
async def test_an_answer_names_the_exact_question(body: Any, status: int) -> None:
    async with asking() as (run, client):
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = await client.post(f"/api/runs/{RUN}/answers", text.replace(b"RIGHT", run.pending[0].id.encode()))
        assert (answer.status_code, len(run.pending)) == (status, 1), answer.text


async def test_a_question_is_answered_once() -> None:
    """L5: the second one is told by whom."""
    async with asking(token=None, authorize=lambda request: request.headers["x-user"]) as (run, client):
        body = {"question": run.pending[0].id, "choice": "approve"}
        assert (await client.post(f"/api/runs/{RUN}/answers", body, **{"x-user": "ann"})).status_code == 200
        late = await client.post(f"/api/runs/{RUN}/answers", body, **{"x-user": "bob"})
        assert (late.status_code, late.json()["now"]["answer"]["by"]) == (409, "ann")


# S7, S10: what the scripts may do ------------------------------------------------------------------------------------


def test_the_scripts_put_texts_in_as_texts() -> None:
    """And touch no cookie; what they draw is made of elements."""
    for path in STATIC.glob("*.js"):
        text = path.read_text()
        for banned in (
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "cookie",
            "localStorage",
            'setAttribute("on',
            "javascript:",
        ):
            assert banned not in text, (path.name, banned)


def test_nothing_is_loaded_from_elsewhere() -> None:
    for path in STATIC.iterdir():
        found = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text()))
        assert found == set(), path.name


def test_the_scripts_are_small() -> None:
    """At most 20 KB are sent for all of them together; the decision about the page has the reasons."""
    sizes = [static_file(path.name) for path in STATIC.glob("*.js")]
    assert sum(len(file.packed) for file in sizes if file is not None) <= 20_000
