"""A warm process that forks one child for each job: to start a run or to go on with one, and to be killed meanwhile.

It reads jobs from its standard input, a line of JSON each, and writes a line when a child has ended, or was started.
Starting an interpreter for each would take most of the time. There is no thread in it when it forks.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from dagrun import (
    Answer,
    Applied,
    ApprovalRule,
    Asked,
    Brief,
    Engine,
    Patch,
    Plan,
    Policy,
    Question,
    Replace,
    Run,
    SQLiteJournal,
    Step,
    Toolbox,
    ToolContext,
    ToolError,
    tool,
)
from dagrun.errors import CannotResume, JournalDamaged, JournalError, RunHeld
from dagrun.journal.hash_chain import END, Chain
from dagrun.journal.lease import Lease
from dagrun.journal.sqlite.run_log import SQLiteWriter
from dagrun.kernel.graph.fold import state_hash
from simulation import replaced

RUN: Final = "run"
MOST_SECONDS: Final = 30  # no child needs three


class Outside:
    """The world outside of the run: a file to which every call adds lines, whoever is killed.

    Attributes:
        kill_at: The line after which this process kills itself; 0 for none.
    """

    def __init__(self, folder: Path, kill_at: int = 0) -> None:
        self._path = folder / "outside.log"
        self.kill_at = kill_at
        self._count = 0

    def note(self, what: str, step: str, key: str) -> None:
        """Add a line, all of it or nothing of it."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{what} {step} {key} {os.getpid()}\n".encode())
        os.close(file)
        self._count += 1
        if self._count == self.kill_at:
            die()

    def lines(self) -> list[list[str]]:
        """What was noted, word by word."""
        return [line.split() for line in self._path.read_text().splitlines()] if self._path.exists() else []

    def has(self, key: str) -> bool:
        """Whether the call with that key took effect."""
        return any(line[0] == "applied" and line[2] == key for line in self.lines())


def die() -> None:
    """End like kill -9, which it is."""
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


WORLD: list[Outside] = []  # that of this process; set before anything runs


async def _effect(name: str, context: ToolContext, seconds: float = 0.003) -> str:
    WORLD[0].note("enters", context.step, context.idempotency_key)
    await anyio.sleep(seconds)
    if name != "put" or not WORLD[0].has(context.idempotency_key):
        WORLD[0].note("applied", context.step, context.idempotency_key)
    await anyio.sleep(seconds)
    return f"{name} done"


async def find_out(key: str) -> Any:
    """Whether the call took effect."""
    return Applied("pay done") if WORLD[0].has(key) else False


@tool(effect="pure")
async def look(n: int, breaks: bool = False) -> list[int]:
    """Look at something."""
    await anyio.sleep(0.002)
    if breaks:
        raise ToolError("broken")
    return list(range(n))


@tool(effect="idempotent")
async def put(item: int, context: ToolContext) -> str:
    """Put something there, once."""
    return await _effect("put", context)


@tool(effect="effectful", needs_approval=False, reconcile=find_out, reconcile_after=0)
async def pay(amount: int, context: ToolContext) -> str:
    """Pay; it can be found out."""
    return await _effect("pay", context)


@tool(effect="effectful", needs_approval=False)
async def send(text: str, context: ToolContext) -> str:
    """Send; only people can find out."""
    return await _effect("send", context)


TOOLS: Final = Toolbox(look, put, pay, send)
PLAN: Final = Plan(
    steps=[
        Step(id="list", tool="look", args={"n": 3}),
        Step(id="each", tool="put", args={"item": "${item}"}, for_each="${list}", max_parallel=2),
        Step(id="bad", tool="look", args={"n": 2, "breaks": True}),
        Step(id="after", tool="look", args={"n": 1}, depends_on=["bad", "each"]),
        Step(id="pay", tool="pay", args={"amount": 3}, depends_on=["list"]),
        Step(id="send", tool="send", args={"text": "${pay}"}, depends_on=["after"]),
        Step(id="end", tool="look", args={"n": 1}, depends_on=["send", "each"]),
    ],
    output="${end}",
)
POLICY: Final = Policy(approve=[ApprovalRule(tool="pay")])
LONG: Final = Plan(
    steps=[
        Step(
            id=f"s{n}",
            tool=("put", "look")[n % 2],
            args=({"item": n}, {"n": n})[n % 2],
            depends_on=[f"s{n - 4}"] * (n > 3),
        )
        for n in range(32)
    ]
)


class Mender:
    """A planner that knows one thing to do."""

    async def revise(self, brief: Brief) -> Patch | None:
        await anyio.sleep(0.002)
        if "bad" not in brief.steps:
            return None
        return Patch(edits=[Replace(id="bad", step=Step(id="good", tool="look", args={"n": 2}))], reason="mend it")


async def person(question: Question) -> Answer | bool:
    """Somebody who looks before he says what has happened."""
    await anyio.sleep(0.002)
    if question.kind is not Asked.EFFECT:
        return True
    lines = [line for line in WORLD[0].lines() if line[0] == "applied" and line[1] == question.step]
    return Answer("took_effect", f"{question.tool} done") if lines else Answer("did_not")


class KillingWriter(SQLiteWriter):
    """Writes unit by unit, and kills its process right before, or right after, a certain one is durable."""

    kill_at = 0
    is_before = False
    count = 0
    counted: Path | None = None

    def _gather(self) -> list[bytes]:
        most, self._most = self._most, 1
        try:
            return super()._gather()
        finally:
            self._most = most

    def _write(self, batch: list[bytes]) -> None:
        if not batch:
            return super()._write(batch)
        type(self).count += 1
        if self.count == self.kill_at and self.is_before:
            die()
        super()._write(batch)
        if self.count == self.kill_at:
            die()
        return None


class Unfenced(Lease):
    """A lease that keeps others away while it lasts, and nothing after that."""

    def is_ours(self, token: object) -> bool:
        return True


class UnfencedJournal(SQLiteJournal):
    lease_type = Unfenced


class UnfencedWriter(SQLiteWriter):
    """Adds to what is there, whoever has written it."""

    def _add(self, database: sqlite3.Connection, batch: list[bytes]) -> None:
        rows = database.execute("SELECT text FROM records ORDER BY seq").fetchall()
        there = [text for (row,) in rows for text in row.split(END)]
        if there:
            self._chain = Chain(self._lease.run_id, there)
            texts = []
            for number, text in enumerate(batch, len(there) + 1):
                record = json.loads(text)
                if record.get("seq") != number:
                    record["seq"] = number
                    text = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
                texts.append(text)
            batch = texts
        super()._add(database, batch)

    def _check_files(self) -> None:
        pass


# Jobs -----------------------------------------------------------------------------------------------------------------


async def _carry_out(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    is_long, unfenced = job.get("plan") == "long", job.get("unfenced", False)
    kind = UnfencedJournal if unfenced else SQLiteJournal
    journal = kind(folder, job.get("level", "process"), lease_seconds=job.get("lease", 10.0))
    facts: dict[str, Any] = {"journal": journal, "tools": TOOLS}
    if not is_long:
        facts |= {"planner": Mender(), "approver": person}
    async with Engine() as engine:
        if job["do"] == "start":
            opened = engine.start(LONG if is_long else PLAN, run_id=RUN, policy=POLICY, **facts)
        else:
            opened = engine.resume(RUN, **facts)
        async with opened as run:
            result = await run.result()
            return told(run, str(result.status), result.output)


def told(run: Run, status: str, output: Any) -> dict[str, Any]:
    """What is written down of the end of a run."""
    states = {id_: str(state) for id_, state in run.states.items()}
    return {"status": status, "states": states, "output": output, "hash": state_hash(run._assembly.parts.graph)}


async def _compete(folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Go on with the run whenever nobody else does, until it is over."""
    lost = 0
    while True:
        try:
            return await _carry_out(folder, {**job, "do": "resume"}) | {"lost": lost}
        except CannotResume as error:
            return {"status": f"over: {error}", "lost": lost}
        except RunHeld:
            await anyio.sleep(0.02)
        except JournalDamaged as error:
            return {"status": f"damaged: {error}", "lost": lost}
        except JournalError:
            lost += 1


@contextmanager
def _as_told(job: dict[str, Any]) -> Iterator[None]:
    kind = UnfencedWriter if job.get("unfenced") else KillingWriter
    KillingWriter.kill_at, KillingWriter.is_before = job.get("kill", 0), job.get("before", False)
    with replaced({SQLiteWriter: kind}) if job.get("unfenced") or not job.get("plain") else replaced({}):
        yield


def _child(job: dict[str, Any]) -> None:
    signal.alarm(MOST_SECONDS)
    folder = Path(job["folder"])
    WORLD.append(Outside(folder, job.get("kill_effect", 0)))
    act = _compete if job["do"] == "compete" else _carry_out
    try:
        with _as_told(job):
            found = anyio.run(act, folder / "runs", job)
        found["units"] = KillingWriter.count
    except BaseException as error:  # noqa: BLE001  (it is told to the one who asked)
        import traceback

        found = {"error": type(error).__name__, "text": "".join(traceback.format_exception(error))[-3000:]}
    name = folder / f"result-{os.getpid()}.json"
    part = name.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.rename(name)


def main() -> None:
    """Fork for each job; those that compete are not waited for."""
    for line in sys.stdin:
        job = json.loads(line)
        if job["do"] == "reap":
            print(json.dumps(_reap()), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                _child(job)
            finally:
                os._exit(0)
        if job["do"] != "compete":
            _, status = os.waitpid(pid, 0)
            print(json.dumps([pid, status]), flush=True)
        else:
            print(json.dumps([pid, None]), flush=True)


def _reap() -> list[int]:
    gone = []
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            gone.append(found[0])
    except ChildProcessError:
        gone.append(0)  # there is none left
    return gone


if __name__ == "__main__":
    main()
