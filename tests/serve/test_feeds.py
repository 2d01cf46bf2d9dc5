"""Streams of the live page: what a reader applies leads from one view to the next, whoever carries out the run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest
from pydantic import SecretStr
from pydantic_core import to_json

import dagrun
from dagrun import MemoryJournal, Plan, PlanningRule, Policy, SQLiteJournal, Status, Step
from dagrun.events import QuestionAnswered
from dagrun.extend import Journal
from dagrun.kernel.model.tool import make_tool
from dagrun.observe.view.live_view import LiveView
from dagrun.serve import feeds, stream
from dagrun.serve.catalog import Catalog
from page_client import RUN, Client, Events, page_of
from persons import pay
from plain_steps import applied
from postgres_schemas import fresh_schema
from small_tools import toolset
from view_runs import RICH, Mirrors, rich_tools

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]
real = pytest.mark.real_time

# Only a whole view has these.
_LATER = ("path", "path_gaps", "log", "left_out", "cursor", "at")
_RUN_LATER = ("critical_path", "parallelism", "retries", "fallbacks", "ceilings", "handoff", "waits", "output", "slots")
_STEP_LATER = ("on_path", "args", "output", "progress")


async def wait_for_ever(_: object) -> None:
    """Answer no question: that is done on the page."""
    await anyio.sleep_forever()


def comparable(view: dict[str, Any]) -> dict[str, Any]:
    """Return what a view and its changes have in common."""
    kept = {key: deepcopy(part) for key, part in view.items() if key not in _LATER}
    kept["run"] = {key: part for key, part in view["run"].items() if key not in (*_RUN_LATER, "makespan")}
    kept["steps"] = [{key: part for key, part in step.items() if key not in _STEP_LATER} for step in kept["steps"]]
    return kept


async def to_the_end(events: Events) -> tuple[dict[str, Any], str, list[str]]:
    """Apply the events of a stream until it ends; return the view, the last cursor and the names of the events."""
    view: dict[str, Any] = {}
    names: list[str] = []
    while True:
        name, cursor, data = await events.next()
        names.append(name)
        if name == "snapshot":
            view = data
        elif name == "changes":
            view = applied(view, data)
        else:
            return view, cursor, names


def rich(journal: Journal, **options: Any) -> Any:
    """Begin the run that has everything: a replaced source, a retry, a for_each, an approval, a default."""

    async def approve(_: object) -> bool:
        await anyio.sleep(0.4)
        return True

    facts: dict[str, Any] = {"planner": Mirrors(), "approver": approve, "policy": Policy(max_running=3), **options}
    return dagrun.start(RICH, tools=rich_tools(), journal=journal, run_id=RUN, **facts)


# Streams -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_inside", [True, False])
async def test_a_stream_leads_to_the_view_of_the_end(is_inside: bool) -> None:
    """Nothing is lost on the way, in a run of this process and in one that is read from its record."""
    journal = MemoryJournal()
    async with rich(journal) as run:
        client = Client(page_of(journal, *([run] if is_inside else [])))
        await anyio.sleep(0.2)
        async with client.stream() as events:
            view, _, names = await to_the_end(events)
            assert (events.status, events.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert events.headers["x-accel-buffering"] == "no"
        await run.result()
        whole = (await client.get(f"/api/runs/{RUN}")).json()
    assert (names[0], names[-1], "changes" in names) == ("snapshot", "end", True)
    assert comparable(view) == comparable(whole)
    assert {step["state"] for step in view["steps"]} >= {"succeeded", "failed"}


@pytest.mark.parametrize("is_inside", [True, False])
async def test_a_reader_that_was_cut_goes_on_at_its_cursor(is_inside: bool) -> None:
    """Each event of the run is in exactly one part, so a cursor that is off by one shows."""
    journal = MemoryJournal()
    async with rich(journal) as run:
        client = Client(page_of(journal, *([run] if is_inside else [])))
        async with client.stream() as events:
            name, cursor, view = await events.next()
            assert name == "snapshot"
        seen = []
        while not run.has_ended:
            await anyio.sleep(0.15)
            async with client.stream(after=cursor) as events:
                name, cursor, data = await events.next()
                assert name == "changes"
                view = applied(view, data)
                seen.append(data["seq"])
        await run.result()
        await anyio.sleep(feeds.OWNER_EVERY)
        async with client.stream(after=cursor) as events:
            name, cursor, data = await events.next()
            view = applied(view, data)
        whole = (await client.get(f"/api/runs/{RUN}")).json()
    assert seen == sorted(seen)
    assert len(seen) > 5
    assert comparable(view) == comparable(whole)


async def test_a_cursor_of_another_server_gets_the_whole_view() -> None:
    """The server was started anew: what it would count from is gone."""
    journal = MemoryJournal()
    async with rich(journal) as run:
        async with Client(page_of(journal, run)).stream() as events:
            _, cursor, _ = await events.next()
        other = Client(page_of(journal, run))
        for wrong in (cursor, "x", "-1", f"{cursor}0", ""):
            async with other.stream(after=wrong) as events:
                assert (await events.next())[0] == "snapshot"
        refused = await other.get(f"/api/runs/{RUN}/changes?after={cursor}")
        assert refused.status_code == 409
        run.cancel()


async def test_a_hidden_page_asks_for_changes_now_and_then() -> None:
    journal = MemoryJournal()
    async with rich(journal) as run:
        client = Client(page_of(journal, run))
        view = (await client.get(f"/api/runs/{RUN}")).json()
        cursor = view["cursor"]
        for _ in range(2):
            await anyio.sleep(1)
            changes = (await client.get(f"/api/runs/{RUN}/changes?after={cursor}")).json()
            view, cursor = applied(view, changes), changes["cursor"]
        await run.result()
        changes = (await client.get(f"/api/runs/{RUN}/changes?after={cursor}")).json()
        assert comparable(applied(view, changes)) == comparable((await client.get(f"/api/runs/{RUN}")).json())


async def test_the_changes_of_one_instant_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many look: else a run would pay for each of them."""
    made: list[int] = []

    def counted(value: object) -> bytes:
        made.append(1)
        return to_json(value)

    monkeypatch.setattr(feeds, "to_json", counted)
    journal = MemoryJournal()
    async with rich(journal) as run:
        client = Client(page_of(journal, run))
        async with anyio.create_task_group() as tasks:

            async def look() -> None:
                async with client.stream() as events:
                    await to_the_end(events)

            for _ in range(8):
                tasks.start_soon(look)
        await run.result()
    assert len(made) < 8 + 2 * 30  # eight whole views, and about ten changes a second


@pytest.mark.rigs
async def test_readers_that_came_at_different_times_share_what_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them begins at an event of its own; from its first changes on it is told the same as all others."""
    made: list[int] = []
    changes = LiveView.changes

    def counted(self: LiveView, after: int, at: float | None = None) -> dict[str, Any]:
        made.append(after)
        return changes(self, after, at)

    monkeypatch.setattr(LiveView, "changes", counted)

    @dagrun.tool(effect="pure")
    async def nap() -> None:
        """Take a moment."""
        await anyio.sleep(0.03)

    steps = [Step(id=f"s{n}", tool="nap", depends_on=[f"s{n - 1}"] if n else []) for n in range(100)]
    async with dagrun.start(Plan(steps=steps), tools=[nap], run_id=RUN) as run:
        page = page_of(None, run)
        ends: list[dict[str, Any]] = []

        async def look(later: float) -> None:
            await anyio.sleep(later)
            async with Client(page).stream() as events:
                ends.append((await to_the_end(events))[0])

        async with anyio.create_task_group() as tasks:
            for n in range(8):
                tasks.start_soon(look, 0.13 * n)
    assert all(comparable(end) == comparable(ends[0]) for end in ends)
    assert {step["state"] for step in ends[0]["steps"]} == {"succeeded"}
    assert len(made) < 50, "eight readers, three seconds, ten changes a second"


async def test_a_server_that_closes_ends_its_streams() -> None:
    """L12: no stream keeps it from that."""
    journal = MemoryJournal()
    async with rich(journal) as run:
        page = page_of(journal, run)
        async with Client(page).stream() as events:
            await events.next()
            page.close()
            names = [(await events.next())[0] for _ in range(1)]
            while names[-1] == "changes":
                names.append((await events.next())[0])
        assert names[-1] == "bye"
        run.cancel()


async def test_a_reader_that_takes_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """S8: what it does not take is kept for nobody."""
    monkeypatch.setattr(stream, "PATIENCE", 3.0)
    journal = MemoryJournal()
    async with rich(journal) as run:
        catalog = Catalog(journal, None)
        feed = catalog.watch(run)

        async def send(_: object) -> None:
            await anyio.sleep_forever()

        with anyio.fail_after(10):
            await stream.Stream(feed, catalog, "", anyio.Event())({}, anyio.sleep_forever, send)  # type: ignore[arg-type]
        assert not feed.readers
        run.cancel()


async def test_progress_is_told_and_costs_no_record() -> None:
    @dagrun.tool(effect="read")
    async def slowly(context: dagrun.ToolContext) -> int:
        """Report."""
        await anyio.sleep(0.5)
        context.progress(0.5, "page 4")
        await anyio.sleep(1)
        return 1

    plan = Plan(steps=[Step(id="slowly", tool="slowly")])
    async with dagrun.start(plan, tools=[slowly], run_id=RUN) as run:
        client = Client(page_of(None, run))
        async with client.stream() as events:
            await events.next()
            while True:
                _, _, data = await events.next()
                if data["progress"]:
                    break
        assert data["progress"] == {"0": [0.5, "page 4"]}


async def test_a_run_that_is_not_there_is_not_found() -> None:
    journal = MemoryJournal()
    await journal.create("begun")
    client = Client(page_of(journal))
    for name in ("missing", "begun"):
        assert (await client.get(f"/api/runs/{name}")).status_code == 404
        assert (await client.get(f"/api/runs/{name}/stream")).status_code == 404
    assert (await Client(page_of()).get("/api/runs/missing")).status_code == 404


# Engines -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "opened"), [(2.5, 3), (1.0, 6), (None, 1)])
async def test_a_stream_ends_for_a_server_that_may_want_to_stop(seconds: float | None, opened: int) -> None:
    """A server waits for open responses; so they are short, and the reader opens the next one where the last ended."""
    async with dagrun.Engine() as engine:
        client = Client(page_of(engine=engine, stream_seconds=seconds))
        plan = Plan(steps=[Step(id="nap", tool="nap", args={"seconds": 6.0})])
        async with engine.start(plan, tools=toolset(), run_id=RUN), client.stream() as events:
            view, _, names = await to_the_end(events)
            assert (names[0], names.count("snapshot"), names[-1]) == ("snapshot", 1, "end")
            assert view["run"]["status"] == "succeeded"
            assert events.opened == opened


async def test_the_runs_of_an_engine_are_seen_from_inside() -> None:
    """Also without a journal; and nothing is done for them before somebody looks."""
    async with dagrun.Engine() as engine:
        client = Client(page_of(engine=engine))
        assert (await client.get("/api/runs")).json()["runs"] == []
        plan = Plan(goal="rest", steps=[Step(id="nap", tool="nap", args={"seconds": 5.0})])
        async with engine.start(plan, tools=toolset(), run_id=RUN) as run:
            await anyio.sleep(0.1)
            (listed,) = (await client.get("/api/runs")).json()["runs"]
            assert (listed["run_id"], listed["state"], listed["goal"]) == (RUN, "running", "rest")
            async with client.stream() as events:
                view, _, names = await to_the_end(events)
            assert (names[-1], view["run"]["status"]) == ("end", "succeeded")
            await run.result()
        assert engine.runs == {}


async def test_a_run_of_this_process_is_seen_from_inside_although_it_has_a_record() -> None:
    """Also after the list was looked at: else its readers would wait for the record, and see no progress."""
    journal = MemoryJournal()
    async with paying(journal) as run:
        client = Client(page_of(journal, run))
        for _ in range(2):
            (listed,) = (await client.get("/api/runs")).json()["runs"]
            assert (listed["owner"], listed["state"]) == ("this process", "running")
            view = (await client.get(f"/api/runs/{RUN}")).json()
            assert view["run"]["owner"] == "this process"
        run.cancel()


# Runs of other processes ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def two_journals(kind: str, tmp_path: Path, postgres: str) -> AsyncIterator[tuple[Journal, Journal]]:
    """Two journal objects on one place, as two processes have them."""
    if kind == "sqlite":
        yield SQLiteJournal(tmp_path / "runs"), SQLiteJournal(tmp_path / "runs")
        return
    with fresh_schema(postgres) as schema:
        async with (
            dagrun.PostgresJournal(postgres, schema=schema) as one,
            dagrun.PostgresJournal(postgres, schema=schema) as other,
        ):
            yield one, other


def paying(journal: Journal, **options: Any) -> Any:
    """Begin a run that asks a person, and has another step meanwhile."""

    plan = Plan(
        goal="pay",
        steps=[Step(id="pay", tool="pay", args={"value": 1}), Step(id="nap", tool="nap", args={"seconds": 30.0})],
    )
    return dagrun.start(plan, tools=toolset(pay()), journal=journal, run_id=RUN, approver=wait_for_ever, **options)


async def _asked(client: Client, *, is_held: bool = True) -> dict[str, Any]:
    with anyio.fail_after(20):
        while not (found := (await client.get("/api/questions")).json()["questions"]):
            await anyio.sleep(0.1)
    (question,) = found
    assert (question["run"], question["goal"], question["is_held"]) == (RUN, "pay", is_held)
    return dict(question["question"])


@real
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_run_of_another_process_is_answered_and_stopped(kind: str, tmp_path: Path, postgres: str) -> None:
    """L7: the list, the stream, an answer, and orders to stop a step and the run."""
    async with two_journals(kind, tmp_path, postgres) as (inside, outside):
        client = Client(page_of(outside))
        async with paying(inside) as run:
            question = await _asked(client)
            assert question["arguments"]["text"] == '{\n  "value": 1\n}'
            async with client.stream() as events:
                name, _, view = await events.next()
                assert (name, view["run"]["state"]) == ("snapshot", "running")
                assert view["run"]["owner"].startswith("process ")
                told = await client.post(
                    f"/api/runs/{RUN}/answers", {"question": question["id"], "choice": "approve", "note": "ok"}
                )
                assert (told.status_code, told.json()) == (200, {"taken": False, "counts": True, "is_held": True})
                stopped = await client.post(f"/api/runs/{RUN}/cancel", {"step": "nap", "reason": "too long"})
                assert stopped.status_code == 202
                while (event := await events.next())[0] != "end":
                    view = applied(view, event[2])
            assert {step["id"]: step["state"] for step in view["steps"]} == {"pay": "succeeded", "nap": "cancelled"}
            await run.result()
        events_ = await outside.records(RUN)  # type: ignore[attr-defined]
        (answered,) = [event for event in events_ if isinstance(event, QuestionAnswered)]
        assert answered.answer is not None
        assert (answered.answer.choice, answered.answer.note, bool(answered.answer.by)) == ("approve", "ok", True)


@real
async def test_the_second_answer_to_a_sleeping_run_is_refused_with_the_one_that_stands() -> None:
    journal = MemoryJournal()
    plan = Plan(goal="pay", steps=[Step(id="pay", tool="pay", args={"value": 1})])
    assert (await dagrun.run(plan, tools=toolset(pay()), journal=journal, run_id=RUN)).status is Status.WAITING
    client = Client(page_of(journal))
    question = await _asked(client, is_held=False)
    body = {"question": question["id"], "choice": "approve"}
    first = await client.post(f"/api/runs/{RUN}/answers", body)
    second = await client.post(f"/api/runs/{RUN}/answers", {**body, "choice": "deny"})

    assert (first.status_code, first.json()) == (200, {"taken": False, "counts": True, "is_held": False})
    assert (second.status_code, "it was answered already: approve" in second.text) == (409, True)


@real
async def test_a_run_that_is_suspended_from_outside_is_resumed_on_the_same_page(tmp_path: Path) -> None:
    """L7: the stream goes on when another process has taken the run up."""
    inside, outside = SQLiteJournal(tmp_path / "runs"), SQLiteJournal(tmp_path / "runs")
    client = Client(page_of(outside))
    async with paying(inside) as run:
        await _asked(client)
        assert (await client.post(f"/api/runs/{RUN}/suspend", {"reason": "later"})).status_code == 202
        with anyio.fail_after(20):
            await run.result()
    async with client.stream() as events:
        _, _, view = await events.next()
        assert (view["run"]["state"], view["run"]["reason"].endswith("later")) == ("interrupted", True)
        assert (await client.post(f"/api/runs/{RUN}/cancel")).status_code == 409
        async with dagrun.resume(RUN, tools=toolset(pay()), journal=inside, approver=wait_for_ever) as again:
            while view["run"]["state"] != "running":
                view = applied(view, (await events.next())[2])
            again.cancel()
            while (event := await events.next())[0] != "end":
                view = applied(view, event[2])
    assert view["run"]["status"] == "cancelled"


@pytest.mark.rigs
@real
async def test_a_process_that_has_gone_leaves_an_interrupted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: nothing is written then, so the page must look who holds the run."""
    journal = SQLiteJournal(tmp_path / "runs")
    client = Client(page_of(journal))
    async with paying(journal) as run:
        await _asked(client)
        async with client.stream() as events:
            _, _, view = await events.next()
            monkeypatch.setattr("dagrun.journal.lease.Owner.is_dead", lambda _: True)
            while view["run"]["state"] == "running":
                view = applied(view, (await events.next())[2])
        assert (view["run"]["state"], view["run"]["owner"]) == ("interrupted", "")
        monkeypatch.undo()
        run.cancel()


@real
async def test_a_damaged_record_is_told_as_such(tmp_path: Path) -> None:
    """And hides no other run."""
    journal = SQLiteJournal(tmp_path / "runs")
    plan = Plan(steps=[Step(id="echo", tool="echo", args={"value": 1})])
    for run_id in ("good", RUN):
        await dagrun.run(plan, tools=toolset(), journal=journal, run_id=run_id)
    (tmp_path / "runs" / RUN / "journal.db").write_bytes(b"no database" * 1000)
    client = Client(page_of(journal))
    listed = {run["run_id"]: run["state"] for run in (await client.get("/api/runs")).json()["runs"]}
    assert listed == {"good": "ended", RUN: "damaged"}
    assert (await client.get(f"/api/runs/{RUN}")).status_code == 409
    assert (await client.get("/api/runs/good")).status_code == 200


# What must not be seen ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_inside", [True, False])
async def test_secrets_and_personal_data_are_on_no_page(is_inside: bool) -> None:
    """S11: also in questions, reasons, goals and outputs."""
    key, mail = "canary-of-a-secret-key", "ann.canary@example.com"
    steps = [
        Step(id="look", tool="look", args={"to": mail, "key": {"$secret": "K"}}),
        Step(id="pay", tool="pay", args={"value": mail}),
    ]

    async def look(to: str, key: SecretStr) -> str:
        """Look."""
        raise dagrun.ToolError(f"{to} is not known to {key.get_secret_value()}")

    journal = MemoryJournal()
    facts: dict[str, Any] = {
        "tools": toolset(make_tool(look, effect="read"), pay()),
        "secrets": {"K": key},
        "policy": Policy(redact=["email"], planning=PlanningRule(replan_on=[])),
        "approver": wait_for_ever,
    }
    async with dagrun.start(Plan(goal=f"to {mail}", steps=steps), journal=journal, run_id=RUN, **facts) as run:
        client = Client(page_of(journal, *([run] if is_inside else [])))
        await anyio.sleep(0.5)
        (question,) = (await client.get("/api/questions")).json()["questions"]
        about = f"/api/runs/{RUN}"
        pages = ["/api/runs", "/api/questions", about, f"{about}/steps/0?values=full", f"{about}/steps/1?values=full"]
        pages.append(f"{about}/questions/{question['question']['id']}")
        texts = [(await client.get(page)).text for page in pages]
        async with client.stream() as events:
            texts.append(json.dumps(await events.next()))
        run.cancel()
    for text in texts:
        assert text
        assert "canary" not in text


@pytest.mark.parametrize("is_inside", [True, False])
async def test_large_arguments_are_loaded_on_request_and_exact(is_inside: bool) -> None:
    """A browser would round the number; and what is only begun cannot be agreed to."""
    value = {"amount": 12345678901234567890, "text": "x" * 70_000}
    plan = Plan(steps=[Step(id="pay", tool="pay", args={"value": value})])
    journal = MemoryJournal()
    facts: dict[str, Any] = {"tools": toolset(pay()), "approver": wait_for_ever}
    async with dagrun.start(plan, journal=journal, run_id=RUN, **facts) as run:
        client = Client(page_of(journal, *([run] if is_inside else [])))
        await anyio.sleep(0.5)
        question = (await client.get("/api/questions")).json()["questions"][0]["question"]
        shown = question["arguments"]
        assert "12345678901234567890" in shown["text"]
        assert len(shown["text"]) < shown["characters"]
        whole = (await client.get(f"/api/runs/{RUN}/questions/{question['id']}")).json()["arguments"]
        assert (len(whole["text"]), whole["sha256"]) == (shown["characters"], shown["sha256"])
        assert json.loads(whole["text"]) == {"value": value}
        run.cancel()


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"choice": "approve"}, 422, "not ticked"),
        ({"choice": "approve", "ticked": ["amount"]}, 422, "recipient"),
        ({"choice": "approve", "ticked": ["amount", "recipient"]}, 200, ""),
        ({"choice": "deny"}, 200, ""),
        ({"choice": "escalate", "note": "I do not know"}, 200, ""),
    ],
)
async def test_the_checklist_must_be_ticked(body: dict[str, Any], status: int, said: str) -> None:
    """L2, L3: the server says so, whatever the script does."""
    rule = dagrun.ApprovalRule(tool="pay", checklist=["amount", "recipient"])
    async with paying(MemoryJournal(), policy=Policy(approve=[rule])) as run:
        client = Client(page_of(None, run))
        await anyio.sleep(0.1)
        answer = await client.post(f"/api/runs/{RUN}/answers", {"question": run.pending[0].id, **body})
        assert (answer.status_code, said in answer.text) == (status, True)
        assert len(run.pending) == (status != 200)
        run.cancel()


@pytest.mark.parametrize(("text", "status", "said"), [("Mars", 422, "one of"), ('"US"', 200, ""), ("EU", 200, "")])
async def test_a_typed_value_is_read_as_the_question_wants_it(text: str, status: int, said: str) -> None:
    """L3: wrong → the sentence of the server; right → taken."""

    @dagrun.tool(effect="read")
    async def choose(region: Literal["EU", "US"] | None = None) -> str:
        """Choose."""
        if region is None:
            raise dagrun.ToolError("nobody has said which region", missing_input="region")
        return region

    plan = Plan(steps=[Step(id="which", tool="choose")])
    async with dagrun.start(plan, tools=[choose], run_id=RUN, approver=wait_for_ever) as run:
        client = Client(page_of(None, run))
        await anyio.sleep(0.1)
        body = {"question": run.pending[0].id, "choice": "approve", "text": text}
        answer = await client.post(f"/api/runs/{RUN}/answers", body)
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
        if status != 200:
            run.cancel()
        result = await run.result()
    assert result.status is (Status.SUCCEEDED if status == 200 else Status.CANCELLED)


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"choice": "approve"}, 422, "one of took_effect, did_not, unknown, escalate"),
        ({"choice": "deny"}, 422, "one of took_effect, did_not, unknown, escalate"),
        ({"choice": "took_effect", "text": "paid"}, 200, ""),
        ({"choice": "unknown"}, 200, ""),
    ],
)
async def test_whether_a_call_took_effect_is_answered_in_words_of_its_own(
    body: dict[str, Any], status: int, said: str
) -> None:
    calls = 0

    @dagrun.tool(effect="effectful")
    async def pay() -> str:
        """Pay."""
        nonlocal calls
        calls += 1
        raise RuntimeError("the line is lost")

    async with dagrun.start(Plan(steps=[Step(id="p", tool="pay")]), tools=[pay], run_id=RUN, attended=True) as run:
        client = Client(page_of(None, run))
        await anyio.sleep(0.1)
        answer = await client.post(f"/api/runs/{RUN}/answers", {"question": run.pending[0].id, **body})
        assert (answer.status_code, said in answer.text) == (status, True), answer.text
        if status != 200:
            run.cancel()
        await run.result()
    assert calls == 1


async def test_a_run_without_a_journal_cannot_be_suspended() -> None:
    async with dagrun.start(
        Plan(steps=[Step(id="nap", tool="nap", args={"seconds": 9.0})]), tools=toolset(), run_id=RUN
    ) as run:
        client = Client(page_of(None, run))
        refused = await client.post(f"/api/runs/{RUN}/suspend")
        assert (refused.status_code, "journal" in refused.text) == (422, True)
        assert (await client.post(f"/api/runs/{RUN}/cancel", {"step": "nope"})).status_code == 422
        assert (await client.post(f"/api/runs/{RUN}/cancel", {"reason": "enough"})).status_code == 202
        result = await run.result()
        assert (result.status, result.reason.endswith(": enough")) == (Status.CANCELLED, True)
        assert (await client.post(f"/api/runs/{RUN}/cancel")).status_code == 409
