"""Orders to stop that come as letters: `ControlMessage`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import MemoryJournal, Plan, PostgresJournal, Run, RunResult, SQLiteJournal, Status, Step
from dagrun.errors import OwnerLost
from dagrun.events import RunResumed, RunStarted, RunSuspended
from dagrun.extend import Journal
from dagrun.kernel.model.question import ControlMessage
from postgres_schemas import fresh_schema
from small_tools import toolset

pytestmark = pytest.mark.anyio

RUN: Final = "r1"


def _plan() -> Plan:
    slow = Step(id="slow", tool="doze", args={"seconds": 60.0, "gives": 1})
    after = Step(id="after", tool="doze", args={"seconds": 0.0}, depends_on=["slow"])
    other = Step(id="other", tool="doze", args={"seconds": 2.0, "gives": 2})
    return Plan(steps=[slow, after, other])


@dagrun.tool(effect="read")
async def doze(seconds: float, gives: int = 0) -> int:
    """Sleep."""
    await anyio.sleep(seconds)
    return gives


@asynccontextmanager
async def _begun(journal: Journal, **options: Any) -> AsyncIterator[Run]:
    async with dagrun.start(_plan(), tools=toolset(doze), journal=journal, run_id=RUN, **options) as run:
        await anyio.sleep(0.5)
        yield run


async def _post(journal: Journal, **fields: Any) -> None:
    facts = {"key": await journal.answer_key(RUN), "after": 1, **fields}
    await journal.post(RUN, ControlMessage(**facts).model_dump_json().encode())


async def _resumed(journal: Journal) -> RunResult:
    async with dagrun.resume(RUN, tools=toolset(doze), journal=journal) as run:
        return await run.result()


async def _left(journal: Journal) -> list[bytes]:
    run_log = await journal.open(RUN)
    try:
        return [letter.text for letter in await run_log.backlog()]
    finally:
        await run_log.aclose()


async def test_a_letter_cancels_the_run() -> None:
    """And the record says who has done so, and why."""
    journal = MemoryJournal()
    async with _begun(journal) as run:
        await _post(journal, control="cancel", by="ann", reason="too dear")
        result = await run.result()

    assert result.status is Status.CANCELLED
    assert result.reason == "cancelled by ann: too dear"
    assert await _left(journal) == []


class _OldRunLog:
    """Wraps one of our run logs, as the journal of a user did under the last release: with `letters`, not `inbox`."""

    def __init__(self, inner: Any, *, is_lost: bool) -> None:
        self.inner, self.is_lost = inner, is_lost
        self.run_id, self.durability, self.lines = inner.run_id, inner.durability, inner.lines
        self.artifacts, self.answer_key = inner.artifacts, inner.answer_key
        self.append, self.flush, self.durable = inner.append, inner.flush, inner.durable
        self.backlog, self.discard, self.aclose = inner.backlog, inner.discard, inner.aclose

    def letters(self) -> Any:
        return self.inner.letters()

    async def held(self) -> None:
        if self.is_lost:
            raise OwnerLost("another process has the run")


class _LastRelease(MemoryJournal):
    is_lost = False

    async def create(self, run_id: str) -> Any:
        return _OldRunLog(await super().create(run_id), is_lost=self.is_lost)


async def test_a_journal_of_the_last_release_is_read() -> None:
    """Both its own `letters`, and that of our run log, which it calls, say the new name."""
    journal = _LastRelease()

    async def cancelled() -> RunResult:
        async with _begun(journal) as run:
            await _post(journal, control="cancel", by="ann", reason="too dear")
            return await run.result()

    with pytest.warns(DeprecationWarning, match="letters is removed in 0.4") as warned:
        result = await cancelled()

    assert result.reason == "cancelled by ann: too dear"
    assert [str(one.message).split(" ")[0] for one in warned] == ["_OldRunLog.letters", "run_log.letters"]


@pytest.mark.filterwarnings("ignore:.*letters is removed:DeprecationWarning")
async def test_a_journal_of_the_last_release_is_asked_who_has_the_run_before_an_effect() -> None:
    journal = _LastRelease()
    journal.is_lost = True
    paid = []

    @dagrun.tool(effect="effectful")
    async def pay() -> None:
        paid.append(1)

    plan = Plan(steps=[Step(id="pay", tool="pay")])
    result = await dagrun.run(plan, tools=toolset(pay), journal=journal, run_id=RUN)

    assert "another process has the run" in str(result.steps["pay"].failure)
    assert not paid


async def test_a_letter_cancels_one_step() -> None:
    """What depends on it is skipped, and the rest runs on."""
    journal = MemoryJournal()
    async with _begun(journal) as run:
        await _post(journal, control="cancel", step="slow", by="ann")
        result = await run.result()

    states = {id_: str(step.state) for id_, step in result.steps.items()}
    assert states == {"slow": "cancelled", "after": "skipped", "other": "succeeded"}
    assert "cancelled by ann" in result.steps["slow"].reason


async def test_a_letter_suspends_the_run() -> None:
    """It can be resumed, and the letter is gone by then."""
    journal = MemoryJournal()
    async with _begun(journal) as run:
        await _post(journal, control="suspend", by="ann", reason="later")
        await run.result()

    assert isinstance((await journal.records(RUN))[-1], RunSuspended)
    assert (await dagrun.replay(RUN, journal=journal)).reason == "suspended by ann: later"
    assert (await _resumed(journal)).status is Status.SUCCEEDED


async def test_an_order_to_an_earlier_process_does_not_stop_a_later_one() -> None:
    """The first one was killed before it read the letter; whoever resumes the run wants it to run."""
    journal = MemoryJournal()
    async with _begun(journal) as run:
        run.suspend()
        await run.result()
    last = len(await journal.read(RUN))
    for order in ("suspend", "cancel"):
        await _post(journal, control=order, after=last)

    assert (await _resumed(journal)).status is Status.SUCCEEDED
    assert await _left(journal) == []


async def test_an_order_to_the_process_that_has_resumed_the_run_counts() -> None:
    journal = MemoryJournal()
    async with _begun(journal) as run:
        run.suspend()
        await run.result()
    async with dagrun.resume(RUN, tools=toolset(doze), journal=journal) as again:
        await anyio.sleep(0.5)
        (resumed,) = [event for event in await journal.records(RUN) if isinstance(event, RunResumed)]
        await _post(journal, control="cancel", after=resumed.seq)
        assert (await again.result()).status is Status.CANCELLED


@pytest.mark.parametrize("key", ["", "0" * 64])
async def test_an_order_without_the_key_is_ignored(key: str, caplog: pytest.LogCaptureFixture) -> None:
    """A tool that writes files could have put it there."""
    journal = MemoryJournal()
    async with _begun(journal) as run:
        await _post(journal, key=key, control="cancel")
        assert (await run.result()).status is Status.SUCCEEDED
    assert "does not carry the answer key" in caplog.text
    assert await _left(journal) == []


@pytest.mark.parametrize(("step", "wait"), [("missing", 0.0), ("other", 3.0)])
async def test_an_order_about_what_is_over_changes_nothing(step: str, wait: float) -> None:
    journal = MemoryJournal()
    async with _begun(journal) as run:
        await anyio.sleep(wait)
        await _post(journal, control="cancel", step=step)
        assert (await run.result()).status is Status.SUCCEEDED
    assert await _left(journal) == []


@pytest.mark.parametrize(
    "text",
    [
        b'{"control":"restart","after":1}',
        b'{"control":"cancel"}',
        b'{"control":"cancel","after":"1"}',
        b'{"control":"cancel","after":1,"more":2}',
        b'{"control":"cancel","after":1,"reason":"\\ud800"}',
    ],
)
async def test_what_is_no_order_is_thrown_away(text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """As an older dagrun does with each order: it knows answers alone."""
    journal = MemoryJournal()
    async with _begun(journal) as run:
        await journal.post(RUN, text)
        assert (await run.result()).status is Status.SUCCEEDED
    assert "was discarded" in caplog.text
    assert await _left(journal) == []


@pytest.mark.real_time
@pytest.mark.parametrize("order", ["cancel", "suspend"])
async def test_orders_arrive_in_files(tmp_path: Any, order: str) -> None:
    """From another journal object on the folder, as from another process."""
    await _arrives(SQLiteJournal(tmp_path / "runs"), SQLiteJournal(tmp_path / "runs"), order)


@pytest.mark.real_time
@pytest.mark.parametrize("order", ["cancel", "suspend"])
async def test_orders_arrive_in_a_database(postgres: str, order: str) -> None:
    with fresh_schema(postgres) as schema:
        async with PostgresJournal(postgres, schema=schema) as one, PostgresJournal(postgres, schema=schema) as other:
            await _arrives(one, other, order)


async def _arrives(journal: Journal, other: Journal, order: str) -> None:
    with anyio.fail_after(20):
        async with dagrun.start(_plan(), tools=toolset(doze), journal=journal, run_id=RUN) as run:
            await _post(other, control=order, by="ann")
            await run.result()
    events = await other.records(RUN)  # type: ignore[attr-defined]
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunSuspended) is (order == "suspend")
    assert events[-1].status is Status.CANCELLED
    assert events[-1].reason.startswith("suspended by ann" if order == "suspend" else "cancelled by ann")
