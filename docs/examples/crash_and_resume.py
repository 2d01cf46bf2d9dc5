"""A crash: the process is killed in the middle of a run, and another one goes on where the record ends.

The child process below runs the plan and dies by `kill -9`, from within a step. The parent resumes the run.
"""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio

import dagrun

FOLDER = Path(os.environ.get("EXAMPLE_FOLDER", ""))


def note(line: str) -> None:
    """Write what is really called to a file, which both processes share."""
    with (FOLDER / "calls.txt").open("a") as file:
        file.write(line + "\n")


@dagrun.tool(effect="read")
def fetch(page: int) -> int:
    """Fetch a page."""
    note(f"fetch {page}")
    return page * 10


@dagrun.tool(effect="idempotent")
def book(total: int, context: dagrun.ToolContext = dagrun.PROVIDED) -> str:
    """Book the total. Both calls have the same key, so that the other side can see that they are one."""
    note(f"book {total} key {context.idempotency_key[:6]}")
    if len((FOLDER / "calls.txt").read_text().splitlines()) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"booked {total}"


@dagrun.tool(effect="pure")
def add(pages: list[int]) -> int:
    """Add up."""
    return sum(pages)


def make_plan() -> dagrun.Plan:
    pages = [fetch.step(page=number) for number in (1, 2, 3)]
    return dagrun.plan(output=book.step(total=add.step(pages=pages)))


async def child() -> None:
    await dagrun.run(make_plan(), run_id="night", journal=dagrun.SQLiteJournal(FOLDER / "runs"))


async def parent() -> None:
    journal = dagrun.SQLiteJournal(FOLDER / "runs")
    async with dagrun.resume("night", journal=journal, tools=[fetch, add, book]) as run:
        result = await run.result()
    print(result.status, "-", result.output)


if __name__ == "__main__":
    if os.environ.get("EXAMPLE_FOLDER"):
        anyio.run(child)
    else:
        with tempfile.TemporaryDirectory() as folder:
            died = subprocess.run([sys.executable, __file__], check=False, env={**os.environ, "EXAMPLE_FOLDER": folder})
            print("the child ended with", died.returncode)
            FOLDER = Path(folder)
            anyio.run(parent)
            lines = (FOLDER / "calls.txt").read_text().splitlines()
            print(
                len(lines), "calls; keys of the bookings:", len({line.split()[-1] for line in lines if "key" in line})
            )

# prints: the child ended with -9
# prints: succeeded - booked 60
# prints: 5 calls; keys of the bookings: 1
