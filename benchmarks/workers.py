"""How many submitted runs two worker processes carry out in a second, and how soon an idle worker takes one up.

    PYTHONPATH=tests/helpers/journals .venv/bin/python benchmarks/workers.py [--runs N] [--workers N]

Runs of three steps, one with an effect, on a server of PostgreSQL of its own (`tests/helpers/journals`). Printed are
the milliseconds of a submission, and of a list of all runs, the runs per second, the time from a submission until the
run was taken up, and the CPU time of the workers, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

import dagrun
import postgres_server
import worker_process
from dagrun import Plan, PostgresJournal, Step
from dagrun.events import RunResumed, RunStarted
from dagrun.journal.queue import QueueStatus

OPEN = [QueueStatus.QUEUED, QueueStatus.RUNNING]
PLAN = Plan(
    steps=[
        Step(id="look", tool="look"),
        Step(id="pay", tool="pay", args={"run": "${input.run}", "sum": "${look}"}),
        Step(id="check", tool="look", depends_on=["pay"]),
    ]
)
IDLE = 60  # runs that are submitted one by one


async def measure(dsn: str, book: str, runs: int, count: int) -> None:
    """Measure, and print the figures."""
    tools = worker_process.tools(book)
    async with PostgresJournal(dsn, durability="process", lease_seconds=worker_process.LEASE) as journal:

        async def submit(run_id: str) -> None:
            await dagrun.submit(PLAN, tools=tools, inputs={"run": run_id}, run_id=run_id, journal=journal)

        begun = time.perf_counter()
        for number in range(runs):
            await submit(f"run-{number}")
        print(f"submit: {(time.perf_counter() - begun) / runs * 1000:.1f} ms")
        begun = time.perf_counter()
        listed = len(await journal.queue.runs())
        print(f"a list of {listed} runs: {(time.perf_counter() - begun) * 1000:.0f} ms")
        command = [sys.executable, worker_process.__file__, dsn, "dagrun", book]
        workers = [_started(command) for _ in range(count)]
        try:
            begun = time.perf_counter()
            while await journal.queue.runs(OPEN):  # noqa: ASYNC110  (other processes set no event here)
                await anyio.sleep(0.05)
            print(f"{count} workers: {runs / (time.perf_counter() - begun):.0f} runs/s")
            seconds = sorted([await _taken_up(journal, submit, f"idle-{number}") for number in range(IDLE)])
            p50, p95, most = (round(seconds[at] * 1000) for at in (IDLE // 2, IDLE * 95 // 100, -1))
            print(f"idle: p50 {p50} ms, p95 {p95} ms, at most {most} ms")
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait(30)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        each = (used.ru_utime + used.ru_stime) / (runs + IDLE) * 1000
        print(f"CPU of the workers: {each:.1f} ms a run, with their start")


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    worker = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert worker.stdout is not None
    worker.stdout.readline()  # it is ready
    return worker


async def _taken_up(journal: PostgresJournal, submit: object, run_id: str) -> float:
    """Submit a run, and return the seconds until it was taken up."""
    assert callable(submit)
    await submit(run_id)
    events = [event async for event in dagrun.follow(run_id, journal=journal)]
    await anyio.sleep(0.1)  # the workers are idle again
    first = events[0]
    assert isinstance(first, RunStarted)
    return next(event.wall_time for event in events if isinstance(event, RunResumed)) - first.wall_time


def main() -> None:
    """Start a server, and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = postgres_server.started()
        try:
            anyio.run(measure, server.dsn, str(Path(folder) / "book"), options.runs, options.workers)
        finally:
            server.remove()


if __name__ == "__main__":
    main()
