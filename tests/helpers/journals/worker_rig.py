"""A rig of worker processes on one PostgreSQL, and a nemesis: each run has to end once, and nobody pays twice.

Each run has three steps; the second pays, which is a line in a book (`worker_process`). After each part of the runs has
been submitted, the nemesis makes its next move. At the end, a person answers for what is in doubt: by the book, and
when nobody who could still pay is stopped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import anyio

import dagrun
import worker_process
from dagrun import Answer, Asked, Plan, PostgresJournal, Status, Step
from dagrun.errors import JournalFailed, RunExists
from dagrun.events import RunEnded
from dagrun.journal.queue import QueueStatus
from dagrun.kernel.model.question import AnswerMessage
from postgres_server import Server

SCHEMA = "rig"
SLOWNESS = "10"  # so that the nemesis meets runs before, in and after the payment
GRACE = 10.0  # seconds within which a worker that is told to stop has stopped, also on a busy machine
MOVES = ("kill", "stop", "restart", "terminate", "crash")
OPEN = [QueueStatus.QUEUED, QueueStatus.RUNNING]
PLAN = Plan(
    steps=[
        Step(id="look", tool="look"),
        Step(id="pay", tool="pay", args={"run": "${input.run}", "sum": "${look}"}),
        Step(id="check", tool="look", depends_on=["pay"]),
    ]
)


@dataclass(slots=True)
class Figures:
    """What a rig has seen.

    Attributes:
        moves: The moves of the nemesis, by their names.
        codes: The exit codes of the workers that were told to stop.
        slowest_stop: The seconds until the slowest of them had stopped.
        doubts: The answers to what was in doubt, by their choices.
        standings: The runs at the end, by where they stand.
        paid: The lines of the book, by run.
        ends: The ends on record, by run.
        succeeded: The runs that have succeeded.
        seconds: How long it took.
    """

    moves: Counter[str] = field(default_factory=Counter)
    codes: list[int] = field(default_factory=list)
    slowest_stop: float = 0.0
    doubts: Counter[str] = field(default_factory=Counter)
    standings: Counter[QueueStatus] = field(default_factory=Counter)
    paid: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    succeeded: int = 0
    seconds: float = 0.0

    def faults(self, runs: int) -> list[str]:
        """Return what is wrong, in words."""
        twice = [run for run, times in self.paid.items() if times > 1]
        found = {
            f"{len(twice)} runs paid more than once: {twice[:3]}": twice,
            f"{runs - len(self.paid)} runs did not pay": len(self.paid) != runs,
            f"not each run ended once: {self.ends.most_common(3)}": self.ends != Counter(dict.fromkeys(self.paid, 1)),
            f"only {self.succeeded} runs succeeded": self.succeeded != runs,
            f"runs that stand where they should not: {self.standings}": self.standings != {QueueStatus.ENDED: runs},
            f"workers that were told to stop ended with {self.codes}": any(self.codes),
            f"a worker took {self.slowest_stop:.1f} s to stop": self.slowest_stop > GRACE,
        }
        return [words for words, is_so in found.items() if is_so]

    def __str__(self) -> str:
        paid = f"paid {sum(self.paid.values())} times for {len(self.paid)} runs"
        doubts = f"{sum(self.doubts.values())} in doubt {dict(self.doubts)}"
        stops = f"stopped in {self.slowest_stop:.2f} s at most"
        return f"{self.seconds:.0f} s, {dict(self.moves)}, {stops}: {paid}, {self.succeeded} succeeded, {doubts}"


class Rig:
    """Workers, a server and a nemesis.

    Args:
        server: The server, which nobody else uses: it is restarted.
        book: The file of the payments.
        runs: How many runs there are.
        moves: The moves of the nemesis, in order.
        mutant: Which mutant the workers are; see `worker_process`.
    """

    def __init__(self, server: Server, book: Path, runs: int, moves: Sequence[str], *, mutant: str = "") -> None:
        self._server = server
        self._book = book
        self._runs = [f"run-{number}" for number in range(runs)]
        self._moves = moves
        words = [server.dsn, SCHEMA, str(book), "power", SLOWNESS, *([mutant] if mutant else [])]
        self._command = [sys.executable, worker_process.__file__, *words]
        self._alive: list[subprocess.Popen[bytes]] = []
        self._figures = Figures()

    async def run(self) -> Figures:
        """Submit all runs, let the nemesis move, answer what is in doubt, and look what has come of it."""
        begun = time.monotonic()
        journal = PostgresJournal(self._server.dsn, schema=SCHEMA, durability="power")
        async with journal:
            try:
                self._start(3)
                await self._submit_all(journal)
                await self._until_done(journal)
                await self._answer_all(journal)
            finally:
                await anyio.to_thread.run_sync(self._end)
            await self._look(journal)
        self._figures.seconds = time.monotonic() - begun
        return self._figures

    # Workers and the nemesis ------------------------------------------------------------------------------------------

    def _start(self, count: int = 1) -> None:
        for _ in range(count):
            self._alive.append(subprocess.Popen(self._command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL))

    def _terminate(self, child: subprocess.Popen[bytes]) -> None:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"  # it hears the signal
        begun = time.monotonic()
        child.terminate()
        self._figures.codes.append(_closed(child))
        self._figures.slowest_stop = max(self._figures.slowest_stop, time.monotonic() - begun)

    def _end(self) -> None:
        for child in self._alive:
            child.send_signal(signal.SIGCONT)
            self._terminate(child)

    async def _busiest(self, journal: PostgresJournal) -> subprocess.Popen[bytes]:
        """Return the worker with the most runs, when it has a few."""
        busiest = self._alive[0]
        with anyio.move_on_after(30):  # a worker of a busy machine starts for that long
            while True:
                still_open = await journal.queue.runs(OPEN)
                owners = Counter(each.owner for each in still_open)
                runs = {child.pid: owners[f"process {child.pid} on {os.uname().nodename}"] for child in self._alive}
                busiest = max(self._alive, key=lambda child: runs[child.pid])
                if runs[busiest.pid] >= 3 or not still_open:
                    break
                await anyio.sleep(0.02)
        return busiest

    def _move(self, move: str, victim: subprocess.Popen[bytes]) -> None:
        """Do harm; in a thread."""
        self._figures.moves[move] += 1
        if move == "stop":  # for longer than its lease; it wakes up when others have its runs
            victim.send_signal(signal.SIGSTOP)
            time.sleep(worker_process.LEASE * 2.5)
            victim.send_signal(signal.SIGCONT)
        elif move in ("restart", "crash"):
            self._server.restart("fast" if move == "restart" else "immediate")
        else:
            self._alive.remove(victim)
            if move == "kill":
                victim.kill()
                _closed(victim)
            else:
                self._terminate(victim)
            self._start()

    # Runs -------------------------------------------------------------------------------------------------------------

    async def _submit_all(self, journal: PostgresJournal) -> None:
        tools = worker_process.tools(str(self._book))
        part = max(1, len(self._runs) // (len(self._moves) + 1))
        moves = list(self._moves)
        for number, run_id in enumerate(self._runs):
            with suppress(RunExists):
                await dagrun.submit(PLAN, tools=tools, inputs={"run": run_id}, run_id=run_id, journal=journal)
            if (number + 1) % part == 0 and moves:
                victim = await self._busiest(journal)
                await anyio.to_thread.run_sync(self._move, moves.pop(0), victim)

    async def _until_done(self, journal: PostgresJournal) -> None:
        with anyio.fail_after(60 + len(self._runs) / 5):
            while True:
                with suppress(JournalFailed):
                    if not await journal.queue.runs(OPEN):
                        return
                await anyio.sleep(0.1)

    async def _answer_all(self, journal: PostgresJournal) -> None:
        """Say of each payment in doubt whether it is in the book."""
        await anyio.sleep(0.5)  # who was stopped has paid by now, or never will
        paid = self._paid()
        for each in await journal.queue.runs([QueueStatus.WAITING]):
            key = await journal.answer_key(each.run_id)
            for question in (await dagrun.replay(each.run_id, journal=journal)).pending:
                assert question.kind is Asked.EFFECT
                answer = Answer("took_effect", 7) if paid[each.run_id] else Answer("did_not")
                self._figures.doubts["paid" if paid[each.run_id] else "not paid"] += 1
                letter = AnswerMessage.of(question.id, answer, key)
                await journal.post(each.run_id, letter.model_dump_json().encode())
        await self._until_done(journal)

    def _paid(self) -> Counter[str]:
        return Counter(self._book.read_text().split() if self._book.exists() else [])

    async def _look(self, journal: PostgresJournal) -> None:
        figures = self._figures
        figures.standings = Counter(each.standing for each in await journal.queue.runs())
        figures.paid = self._paid()
        for run_id in self._runs:
            ends = [event for event in await journal.records(run_id) if isinstance(event, RunEnded)]
            figures.ends[run_id] = len(ends)
            figures.succeeded += any(event.status is Status.SUCCEEDED for event in ends)


def _closed(child: subprocess.Popen[bytes]) -> int:
    code = child.wait(30)
    assert child.stdout is not None
    child.stdout.close()
    return code
