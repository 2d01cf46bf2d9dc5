"""A process that was stopped for longer than its lease, between the record of a call and the call itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

import dagrun
from dagrun import Plan, PostgresJournal, SQLiteJournal, Status, Step
from dagrun.codec import decode_event
from dagrun.errors import OwnerLost
from dagrun.events import AttemptStarted
from dagrun.journal.run_log import BufferedRunLog
from dagrun.journal.write_queue import WriteQueue, uninterrupted_time
from postgres_schemas import fresh_schema
from simulation import replaced

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.costly]

RUN: Final = "run"


class Slept:
    """The clock of a process that is stopped now and then."""

    seconds = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return uninterrupted_time() + self.seconds


@pytest.fixture
def slept() -> Any:
    """The clock that the journals read."""
    clock = Slept()
    with replaced({uninterrupted_time: clock}):
        yield clock


@pytest.fixture(params=["sqlite", "postgres"])
async def journals(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Makes journals over the same records, as several processes would."""
    if request.param == "sqlite":
        yield lambda: SQLiteJournal(tmp_path / "runs")
        return
    dsn, made = request.getfixturevalue("postgres"), list[PostgresJournal]()
    with fresh_schema(dsn) as schema:

        def make() -> PostgresJournal:
            made.append(PostgresJournal(dsn, schema=schema))
            return made[-1]

        yield make
        for journal in made:
            await journal.aclose()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The looks that the loop has asked for."""
    asked, request_look = list[float](), WriteQueue.request_look

    def noted(self: WriteQueue) -> None:
        asked.append(self.seen)
        request_look(self)

    monkeypatch.setattr(WriteQueue, "request_look", noted)
    return asked


async def test_a_run_that_was_just_seen_is_not_looked_at_again(
    journals: Callable[[], Any], looks: list[float], slept: Slept
) -> None:
    """The usual start of a call with an effect costs nothing more."""
    run_log = await journals().create(RUN)
    slept.seconds = -60.0  # however slow this machine is
    await run_log.held()
    assert looks == []
    await run_log.aclose()


async def test_a_process_that_slept_looks_whether_it_still_holds_the_run(
    journals: Callable[[], Any], looks: list[float], slept: Slept
) -> None:
    """Its lease has expired, and nobody has taken the run: it is renewed, and the call may be made."""
    run_log = await journals().create(RUN)
    run_log.append(b'{"seq":1}')
    await run_log.durable()
    slept.seconds = 3_600.0
    await run_log.held()
    assert looks
    run_log.append(b'{"seq":2}')
    await run_log.held()
    await run_log.aclose()


async def test_a_process_that_slept_finds_that_it_has_lost_the_run(journals: Callable[[], Any], slept: Slept) -> None:
    """Its record was durable before: that alone says nothing about now."""
    run_log = await journals().create(RUN)
    run_log.append(b'{"seq":1}')
    await run_log.durable()
    other = await journals().open(RUN, steal=True)
    slept.seconds = 3_600.0
    await run_log.durable(1)  # true still
    with pytest.raises(OwnerLost):
        await run_log.held()
    await run_log.aclose()
    await other.aclose()


async def test_no_effect_is_entered_after_a_sleep_in_which_the_run_was_taken(
    journals: Callable[[], Any], slept: Slept, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is stopped when the start of the payment has just become durable; the other one sees it in doubt."""
    paid, taken, durable = list[int](), list[Any](), BufferedRunLog.durable
    other = journals()

    async def sleeping(self: Any, seq: int | None = None) -> None:
        await durable(self, seq)
        lines = [] if taken else await other.read(RUN)
        if any(isinstance(decode_event(line.text), AttemptStarted) for line in lines):
            taken.append(await other.open(RUN, steal=True))
            slept.seconds = 3_600.0

    monkeypatch.setattr(BufferedRunLog, "durable", sleeping)

    @dagrun.tool(effect="effectful")
    async def pay(n: int) -> int:
        """Pay."""
        paid.append(n)
        return n

    with pytest.raises(OwnerLost):
        await dagrun.run(
            Plan(steps=[Step(id="p", tool="pay", args={"n": 1})]), tools=[pay], journal=journals(), run_id=RUN
        )
    assert taken
    assert paid == []
    await taken[0].aclose()
    async with dagrun.resume(RUN, journal=other, tools=[pay]) as run:
        assert (await run.result()).status is Status.WAITING  # for somebody who knows whether it was paid
    assert paid == []
