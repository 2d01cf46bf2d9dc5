"""``dagrun submit``, ``worker``, ``follow``, ``requeue``, and ``runs --state``: runs that others carry out."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import anyio
import pytest

import cli_tools
import dagrun
from command_line import SECONDS, TOOLS, Shell, shell, started
from dagrun import MemoryJournal, PostgresJournal, SQLiteJournal
from dagrun.cli.commands.submit import read_moment
from dagrun.cli.option_table import OPTIONS
from dagrun.cli.records.run_list import QUEUE_STATUSES
from dagrun.cli.records.run_store import RunStore
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.queue import QueuedRun, QueueStatus, QueueTicket, Wanted
from postgres_schemas import fresh_database, say

__all__ = ["shell"]
pytestmark = pytest.mark.real_time

ECHO = {"id": "a", "tool": "echo", "args": {"value": "done"}}
PAUSED = {**ECHO, "pause": "before"}
LONG = {"id": "a", "tool": "nap", "args": {"seconds": 60}}
NOWHERE = ("--journal", "postgresql://me:secret@127.0.0.1:1/none")


@pytest.fixture
def database(shell: Shell, postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty database, where the commands of the shell keep runs."""
    with fresh_database(postgres) as dsn:
        monkeypatch.setenv("DAGRUN_JOURNAL", dsn)
        yield dsn


def submitted(shell: Shell, run_id: str, step: dict[str, Any], *more: str) -> None:
    """Submit a run of one step."""
    ended = shell("submit", shell.plan(step), *TOOLS, "--run-id", run_id, *more)
    assert (ended.code, ended.out) == (0, f"{run_id}\n"), ended.err


class AtWork:
    """A worker in a process of its own, and what it tells."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.said: list[dict[str, Any]] = []

    def told(self, event: str, **facts: Any) -> dict[str, Any]:
        """Wait until it tells of an event, or has told."""
        wanted = {"event": event, **facts}
        while True:
            found = [said for said in self.said if said.items() >= wanted.items()]
            if found:
                self.said.remove(found[0])
                return found[0]
            assert self._listen(), f"{wanted} was not told: {self.process.stderr and self.process.stderr.read()}"

    def end(self) -> int:
        """Stop it, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        while self._listen():
            pass
        return self.process.wait(SECONDS)

    def _listen(self) -> bool:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.said += [json.loads(line)] if line else []
        return bool(line)


@contextmanager
def at_work(shell: Shell, *args: str) -> Iterator[AtWork]:
    """Start a worker."""
    with started(shell, "worker", *TOOLS, "--events", "jsonl", *args) as process:
        worker = AtWork(process)
        assert worker.told("WorkerStarted")["at_once"] == 20
        yield worker


def standings(shell: Shell, *args: str) -> dict[str, str]:
    """Where runs stand in the queue."""
    return {run["run_id"]: run["queue"]["status"] for run in shell("runs", "--json", *args).json["runs"]}


@pytest.mark.costly
@pytest.mark.usefixtures("database")
def test_a_worker_carries_out_what_was_submitted(shell: Shell) -> None:
    """It answers for nobody, takes a run up again that was answered from elsewhere, and suspends what SIGTERM cuts."""
    for run_id, step in (("quick", ECHO), ("asked", PAUSED), ("long", LONG), ("gone", LONG)):
        submitted(shell, run_id, step)
    cancelled = shell("stop", "gone", "--reason", "too long")
    assert (cancelled.code, cancelled.out) == (0, "run cancelled: the next worker ends it\n")
    assert standings(shell) == dict.fromkeys(("quick", "asked", "long", "gone"), "queued")
    with at_work(shell) as worker:
        worker.told("RunReleased", run_id="quick", standing="ended", status="succeeded")
        worker.told("RunReleased", run_id="asked", standing="waiting")
        assert "too long" in worker.told("RunReleased", run_id="gone", standing="ended", status="cancelled")["reason"]
        worker.told("RunClaimed", run_id="long")
        assert standings(shell, "--state", "waiting,running") == {"asked": "waiting", "long": "running"}
        answered = shell("answer", "asked", "--yes")
        assert "dagrun resume" not in answered.out
        worker.told("RunReleased", run_id="asked", standing="ended", status="succeeded")
        assert worker.end() == 0
    assert worker.told("RunReleased", run_id="long")["standing"] == "queued"
    assert worker.told("WorkerStopped")
    assert standings(shell) == {"quick": "ended", "asked": "ended", "gone": "ended", "long": "queued"}
    followed = shell("inspect", "quick", "--follow")
    assert (followed.code, followed.out) == (0, "done\n")
    assert "a: succeeded" in followed.err
    assert "succeeded" in shell("inspect", "asked", "--follow", "--events", "jsonl").out
    assert shell("inspect", "gone", "--follow", "-q").code == 130


@pytest.mark.costly
@pytest.mark.usefixtures("database")
def test_a_tool_that_would_not_stop_keeps_no_worker(shell: Shell) -> None:
    """After the grace period and a moment, the process ends by force; another worker takes the run over."""
    shell.file("short.toml", "grace = 0.1\n")
    submitted(shell, "one", {"id": "a", "tool": "stuck"}, "--policy", "short.toml")
    with at_work(shell) as worker:
        worker.told("RunClaimed")
        while "AttemptStarted" not in shell("inspect", "one", "--export").out:
            pass
        assert worker.end() == 0


@pytest.mark.costly
@pytest.mark.usefixtures("database")
def test_a_worker_serves_the_pools_that_it_names(shell: Shell) -> None:
    submitted(shell, "near", ECHO)
    submitted(shell, "far", ECHO, "--pool", "far", "--priority", "3")
    _, row = sorted(shell("runs", "--state", "queued", "--json").json["runs"], key=lambda run: -len(run["run_id"]))
    facts = {name: row["queue"][name] for name in ("pool", "priority", "takeovers", "owner", "next_command")}
    assert facts == {"pool": "far", "priority": 3, "takeovers": 0, "owner": None, "next_command": None}
    with at_work(shell, "--pool", "far") as worker:
        worker.told("RunReleased", run_id="far", status="succeeded")
        assert worker.end() == 0
    assert standings(shell) == {"near": "queued", "far": "ended"}
    assert shell("inspect", "last", "--follow", "--json").json["output"] == "done"


@pytest.mark.costly
def test_a_worker_is_told_when_runs_are_stuck(shell: Shell, database: str) -> None:
    """After no takeover here, and a moment without a worker that fits."""
    submitted(shell, "dead", ECHO)

    @dagrun.tool(effect="read")
    async def unknown() -> int:
        return 1

    async def leave() -> None:
        async with PostgresJournal(database) as journal:
            await dagrun.submit(dagrun.plan(unknown.step()), tools=[unknown], run_id="other", journal=journal)

    say(database, "UPDATE dagrun.queue SET standing = 'running'")  # as after `kill -9` and the end of the lease
    anyio.run(leave)
    with at_work(shell, "--max-takeovers", "0", "--unfit-after", "0.01") as worker:
        more = count()
        while not standings(shell).items() >= {"dead": "stuck", "other": "stuck"}.items():
            submitted(shell, f"more-{next(more)}", ECHO)  # it looks again at once, and not only after a minute
        assert worker.end() == 0
    assert "dead is stuck: 1 worker has ended while at it" in shell("runs").out


@pytest.mark.costly
def test_what_a_worker_leaves_says_why(shell: Shell, database: str) -> None:
    """A run that is stuck is named with its reason and the commands for it, and goes back into the queue by one."""
    submitted(shell, "bad", ECHO)

    async def set_aside() -> None:
        async with PostgresJournal(database) as journal:
            run_log = await journal.queue.claim(Wanted())
            assert run_log is not None
            run_log.leave(QueueStatus.STUCK, "3 workers have ended while at it")
            await run_log.aclose()

    anyio.run(set_aside)
    shown = shell("runs", "--state", "stuck").out
    assert "bad is stuck: 3 workers have ended while at it" in shown
    assert "dagrun resume bad --requeue" in shown
    with started(shell, "inspect", "bad", "--follow") as process:
        assert process.stderr is not None
        told = [process.stderr.readline() for _ in range(2)]
    assert told[0] == "bad is stuck in pool default: 3 workers have ended while at it\n"
    assert told[1].startswith("no worker takes it up before: dagrun resume bad --requeue")
    with started(shell, "inspect", "bad", "--follow", "--quiet") as process:
        assert process.stderr is not None
        line = process.stderr.readline()
    assert line.startswith(f"{told[0].strip()}; {told[1].split(' bad')[0]} bad")
    assert shell("runs", "--state", "queued,ended").out.startswith("no queued,ended runs in ")
    back = shell("resume", "bad", "--requeue")
    assert (back.code, back.out) == (0, "bad is in the queue of pool default\n")
    assert standings(shell) == {"bad": "queued"}
    again = shell("resume", "bad", "--requeue")
    assert (again.code, "run bad is queued" in again.err) == (2, True)
    assert shell("run", shell.plan(ECHO), *TOOLS, "--run-id", "own").code == 0
    own = shell("resume", "own", "--requeue")
    assert (own.code, "was not submitted" in own.err) == (2, True)
    assert [run["queue"] for run in shell("runs", "--json").json["runs"]][1] is None


def test_a_run_that_an_older_version_left_in_the_queue_of_a_folder_is_resumed(shell: Shell) -> None:
    """It has its first record, nobody holds it, and no worker will come."""

    async def leave() -> None:
        memory = MemoryJournal()
        await dagrun.submit(json.dumps({"steps": [ECHO]}), tools=[cli_tools.echo], run_id="old", journal=memory)
        run_log = await SQLiteJournal(shell.runs).create("old")
        run_log.append((await memory.read("old"))[0].text)
        await run_log.aclose()

    anyio.run(leave)
    (shell.runs / "old" / "ticket").write_text("0" * 32)
    (shell.runs / ".queue").mkdir()
    assert [run["state"] for run in shell("runs", "--json").json["runs"]] == ["interrupted"]
    resumed = shell("resume", "old", *TOOLS)
    assert (resumed.code, resumed.out) == (0, "done\n"), resumed.err


def test_an_answer_to_a_run_that_its_worker_has_just_ended_asks_for_no_resume(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may claim the run and be at its end before anybody looks where it stands."""
    shell("run", shell.plan(PAUSED), *TOOLS, "--run-id", "asked")
    rows = iter([QueuedRun(run_id="asked", standing=QueueStatus.WAITING, ticket=QueueTicket(pool="mail")), None])
    monkeypatch.setattr(RunStore, "in_queue", lambda records, run_id: next(rows))
    answered = shell("answer", "asked", "--yes")
    assert (answered.code, answered.out) == (0, "answered; a worker of pool mail has brought the run to its end\n")


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("submit",), 2, "submit a PLAN, or a goal"),
        (("submit", "plan.json", "--goal", "more"), 2, "not both"),
        (("submit", "plan.json", *TOOLS, "--not-before", "soon", *NOWHERE), 2, "--not-before soon"),
        (("submit", "bad.json", *TOOLS, *NOWHERE), 3, "DR2"),
        (("submit", "plan.json", *TOOLS), 2, "none from a folder: name the database by --journal"),
        (("submit", "plan.json", *TOOLS, "--runs", "here"), 2, "dagrun run carries a run out in this process"),
        (("worker", *TOOLS, "--runs", "here"), 2, "none from a folder"),
        (("resume", "last", "--requeue", "--journal", "here"), 2, "none from a folder"),
        (("runs", "--state", "lost"), 2, "--state lost: write queued"),
        (("inspect", "none", "-f"), 2, "there are no runs"),
        (("worker", *TOOLS, *NOWHERE), 1, "cannot use PostgreSQL"),
    ],
)
def test_what_does_not_fit_is_refused(shell: Shell, args: tuple[str, ...], code: int, said: str) -> None:
    shell.plan(ECHO)
    shell.plan({"id": "a", "tool": "unknown"}, name="bad.json")
    ended = shell(*args)
    assert (ended.code, ended.out) == (code, "")
    assert said in ended.err
    assert "secret" not in ended.err
    assert not shell.runs.exists()
    assert not (shell.folder / "here").exists()


@pytest.mark.parametrize(
    ("secret", "said"),
    [
        ("bank=env:NO_SUCH_VARIABLE", "NO_SUCH_VARIABLE"),
        ("bank=file:key.txt", "--secret bank: cannot read key.txt: others may read or change it"),
    ],
)
@pytest.mark.parametrize("what", [("plan.json",), ("--goal", "do something")])
def test_secrets_must_be_there_so_that_none_gets_into_the_record(
    shell: Shell, what: tuple[str, ...], secret: str, said: str
) -> None:
    shell.plan(ECHO)
    (shell.folder / "key.txt").write_text("a-long-secret-value")
    (shell.folder / "key.txt").chmod(0o644)
    ended = shell("submit", *what, *TOOLS, "--planner", "x", "--secret", secret, *NOWHERE)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err


def test_a_moment_is_from_now_on_or_by_the_clock() -> None:
    now = datetime(2026, 11, 25, 12, tzinfo=UTC)
    assert read_moment("90m", now) == now + timedelta(minutes=90)
    assert read_moment("2026-11-26", now) == datetime(2026, 11, 26, tzinfo=UTC)
    assert read_moment("2026-11-26T08:30+02:00", now) == datetime(2026, 11, 26, 6, 30, tzinfo=UTC)
    for text in ("", "-1h", "1w", "2026-13-01"):
        with pytest.raises(BadInput, match="--not-before"):
            read_moment(text, now)


def test_the_words_of_lists_are_those_of_the_queue() -> None:
    """They are written twice, since a list is printed without the libraries of the queue."""
    assert set(QUEUE_STATUSES) == {str(standing) for standing in QueueStatus}
    help_of_state = next(row.text for row in OPTIONS if "runs" in row.usual and row.setting == "state")
    assert [name for name in QUEUE_STATUSES if name not in help_of_state] == []
