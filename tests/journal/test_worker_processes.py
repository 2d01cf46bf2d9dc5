"""Worker processes on one PostgreSQL, killed and stopped: each run ends once, and nobody pays twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import anyio
import pytest

import dagrun
import worker_process
from dagrun import Plan, PostgresJournal, Step
from dagrun.journal.queue import QueueStanding
from dagrun.model.codec.event_codec import decode
from dagrun.model.event import RunEnded
from postgres_schemas import fresh_schema

pytestmark = [pytest.mark.anyio, pytest.mark.real_time, pytest.mark.rigs(seconds=20)]

RUNS = int(os.environ.get("DAGRUN_WORKER_RUNS", "90"))  # by hand: 2000


@pytest.fixture
def anyio_backend() -> str:
    """Once: the processes are what is tried."""
    return "asyncio"


class Crew:
    """Worker processes.

    Args:
        words: What each is started with.
    """

    def __init__(self, *words: str) -> None:
        self._words = words
        self.alive: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start one more, and wait until it works."""
        command = [sys.executable, worker_process.__file__, *self._words]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        self.alive.append(child)

    def kill(self) -> None:
        """Kill the oldest, as the system does without memory."""
        child = self.alive.pop(0)
        child.kill()
        _closed(child)

    def end(self) -> list[int]:
        """Tell all to stop; return their exit codes."""
        for child in self.alive:
            child.send_signal(signal.SIGCONT)
            child.terminate()
        return [_closed(child) for child in self.alive]


def _closed(child: subprocess.Popen[bytes]) -> int:
    code = child.wait(30)
    assert child.stdout is not None
    child.stdout.close()
    return code


async def test_each_run_ends_once_and_no_effect_happens_twice(postgres: str, tmp_path: Path) -> None:
    """Three workers; two are killed, and one is stopped for longer than its lease, and wakes up again."""
    book = tmp_path / "book"
    with fresh_schema(postgres) as schema:
        crew = Crew(postgres, schema, str(book))
        async with PostgresJournal(postgres, schema=schema, durability="process") as journal:
            plan = Plan(
                steps=[
                    Step(id="look", tool="look"),
                    Step(id="pay", tool="pay", args={"run": "${input.run}", "sum": "${look}"}),
                    Step(id="check", tool="look", depends_on=["pay"]),
                ]
            )
            tools = worker_process.tools(str(book))
            try:
                for _ in range(3):
                    crew.start()
                for number in range(RUNS):
                    run_id = f"run-{number}"
                    await dagrun.submit(plan, tools=tools, inputs={"run": run_id}, run_id=run_id, journal=journal)
                    if number in (RUNS // 4, RUNS // 2):
                        crew.kill()
                        crew.start()
                    if number in (RUNS // 3, RUNS * 2 // 3):
                        crew.alive[0].send_signal(signal.SIGSTOP)
                        await anyio.sleep(worker_process.LEASE * 2.5)
                        crew.alive[0].send_signal(signal.SIGCONT)
                with anyio.fail_after(60 + RUNS / 10):
                    while await journal.queue.runs([QueueStanding.QUEUED, QueueStanding.RUNNING]):
                        await anyio.sleep(0.1)
            finally:
                codes = crew.end()
            assert codes == [0, 0, 0]
            standings = Counter(each.standing for each in await journal.queue.runs())
            paid = Counter(book.read_text().split())
            ends = [await _ends(journal, f"run-{number}") for number in range(RUNS)]
    assert standings[QueueStanding.STUCK] == 0
    # What was being paid when its worker was killed is in doubt, and waits for a person.
    assert standings[QueueStanding.ENDED] + standings[QueueStanding.WAITING] == RUNS
    assert standings[QueueStanding.ENDED] >= RUNS * 0.6
    assert max(paid.values()) == 1, f"paid twice: {paid.most_common(3)}"
    assert max(ends) == 1
    assert sum(ends) == standings[QueueStanding.ENDED]


async def _ends(journal: PostgresJournal, run_id: str) -> int:
    return sum(isinstance(decode(line.text), RunEnded) for line in await journal.read(run_id))
