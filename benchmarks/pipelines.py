"""Two maps one after the other and a reduce: does an element wait for the slowest of a list that it does not need?

    python benchmarks/pipelines.py [--quick] [--gate] [--out FOLDER]

**What is measured.** The makespan of a map, a map over its results and a reduce, in real time. Each call sleeps; how
long is drawn for each element and stage (log-normal, mean 0.4 s, at most 4 s). The *chain* is the longest sum over one
element: no engine can be faster. A *wave* is the sum of the longest of each stage (and of all the work). The peers:

- *dagrun*: two `for_each`, the second over the output of the first.
- *asyncio, by element*: a coroutine for each element, written by hand; *asyncio, in waves*: a `gather` for each stage.
- *Hamilton*: `Parallelizable` and `Collect`, with a thread for each element.
- *LangGraph*: `Send` for each element of a stage; a superstep ends when all of its tasks have.

**And a reduce that works on each element**, for 20 ms. The *chain* is then the time at which the last one is done, each
as soon as it is there and those before it are done:

- *dagrun, a stream*: the reducer takes the elements one by one (``AsyncIterator``); *dagrun, the list*: all of them.
- *asyncio, in order*: a task for each element, awaited in their order, written by hand.

Peers are measured in environments of their own (``make bench-peers`` makes them), and left out where there is none.

**How to read it.** *Ratio* is the makespan over the chain: 1 is ideal. With ``--gate`` the exit code is 1 if dagrun's
is over its must, without a list. A full run writes ``results/pipelines.json`` with a plot.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import Plan, Step, tool
from peers.environments import python_of
from peers.registry import PEERS

SIZES: Final = (10, 50)
SEEDS: Final = 3
MUST: Final = 1.15
WORK: Final = 0.02  # seconds for each element
OTHERS: Final = {"Hamilton": "Hamilton", "LangGraph": "LangGraph graph"}  # by our name, that of the registry
SCRIPT: Final = Path(__file__).parent / "peers" / "by_element.py"

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Row:
    """One way, with one number of elements: seconds, as the mean over the seeds."""

    way: str
    elements: int
    chain: float
    wave: float
    makespan: float

    @property
    def ratio(self) -> float:
        """The makespan over the longest chain of one element."""
        return self.makespan / self.chain


def rows_of(elements: int, seed: int) -> Rows:
    """Draw the seconds of both stages for each element."""
    rng = random.Random(f"pipelines {elements} {seed}")
    seconds = [round(min(rng.lognormvariate(-1.2, 0.8), 4.0), 3) for _ in range(2 * elements)]
    return [{"n": n, "first": seconds[n], "then": seconds[n + elements]} for n in range(elements)]


def chain_of(rows: Rows, work: float) -> float:
    """Return when the last element has gone through both stages, and has been worked on for *work* seconds."""
    at = 0.0
    for row in rows:
        at = max(at, row["first"] + row["then"]) + work
    return at


@tool(effect="read")
async def fetch(row: dict[str, Any]) -> dict[str, Any]:
    """Sleep for the first stage."""
    await anyio.sleep(row["first"])
    return row


@tool(effect="read")
async def parse(row: dict[str, Any]) -> int:
    """Sleep for the second stage."""
    await anyio.sleep(row["then"])
    return int(row["n"])


@tool(effect="pure")
async def count(numbers: list[int]) -> int:
    """Reduce."""
    return len(numbers)


async def by_dagrun(rows: Rows) -> None:
    """Run two `for_each` and a reduce."""
    steps = [
        Step(id="pages", tool="fetch", args={"row": "${item}"}, for_each=rows),
        Step(id="texts", tool="parse", args={"row": "${item}"}, for_each="${pages}"),
        Step(id="count", tool="count", args={"numbers": "${texts}"}),
    ]
    result = await dagrun.run(Plan(steps=steps), tools=[fetch, parse, count])
    assert result.output == len(rows)


async def by_element(rows: Rows) -> None:
    """What a careful programmer writes."""

    async def one(row: dict[str, Any]) -> None:
        await asyncio.sleep(row["first"])
        await asyncio.sleep(row["then"])

    await asyncio.gather(*map(one, rows))


async def in_waves(rows: Rows) -> None:
    """What most programs do."""
    await asyncio.gather(*(asyncio.sleep(row["first"]) for row in rows))
    await asyncio.gather(*(asyncio.sleep(row["then"]) for row in rows))


@tool(effect="pure")
async def work_on_list(numbers: list[int]) -> int:
    """Work on each number of the list."""
    for _ in numbers:
        await anyio.sleep(WORK)
    return len(numbers)


@tool(effect="pure")
async def work_on_stream(numbers: AsyncIterator[int]) -> int:
    """Work on each number as it comes."""
    count = 0
    async for _ in numbers:
        await anyio.sleep(WORK)
        count += 1
    return count


async def _reduced(rows: Rows, reducer: dagrun.Tool[..., Any]) -> None:
    steps = [
        Step(id="pages", tool="fetch", args={"row": "${item}"}, for_each=rows),
        Step(id="texts", tool="parse", args={"row": "${item}"}, for_each="${pages}"),
        Step(id="sum", tool=reducer.name, args={"numbers": "${texts}"}),
    ]
    result = await dagrun.run(Plan(steps=steps), tools=[fetch, parse, reducer])
    assert result.output == len(rows)


async def by_stream(rows: Rows) -> None:
    """Two `for_each`, and a reducer that takes a stream."""
    await _reduced(rows, work_on_stream)


async def by_list(rows: Rows) -> None:
    """Two `for_each`, and a reducer that takes the list."""
    await _reduced(rows, work_on_list)


async def in_order(rows: Rows) -> None:
    """Work on what is there, in order, as a careful programmer writes it."""

    async def one(row: dict[str, Any]) -> None:
        await asyncio.sleep(row["first"])
        await asyncio.sleep(row["then"])

    for task in [asyncio.create_task(one(row)) for row in rows]:
        await task
        await asyncio.sleep(WORK)


OWN: Final[dict[str, Callable[[Rows], Coroutine[Any, Any, None]]]] = {
    "dagrun": by_dagrun,
    "asyncio, by element": by_element,
    "asyncio, in waves": in_waves,
    "dagrun, a stream": by_stream,
    "dagrun, the list": by_list,
    "asyncio, in order": in_order,
}
REDUCES: Final = ("dagrun, a stream", "dagrun, the list", "asyncio, in order")


async def seconds_of(way: str, rows: Rows) -> float:
    """Measure one of our own ways."""
    await OWN[way]([{**row, "first": 0.0, "then": 0.0} for row in rows])  # what is loaded on first use
    began = anyio.current_time()
    await OWN[way](rows)
    return anyio.current_time() - began


def seconds_of_peer(way: str, rows: Rows) -> float | None:
    """Measure a peer in its own environment; `None` if there is none."""
    python = python_of(next(peer for peer in PEERS if peer.name == OTHERS[way]))
    if python is None:
        return None
    done = subprocess.run(
        [str(python), str(SCRIPT), way], input=json.dumps(rows), capture_output=True, text=True, timeout=60, check=True
    )
    return float(done.stdout)


def measure(way: str, elements: int, seeds: int) -> Row | None:
    """Measure one way with *elements*; `None` if it cannot be."""
    drawn = [rows_of(elements, seed) for seed in range(seeds)]
    found = [anyio.run(seconds_of, way, rows) if way in OWN else seconds_of_peer(way, rows) for rows in drawn]
    known = [seconds for seconds in found if seconds is not None]
    if len(known) < len(found):
        return None
    work = WORK if way in REDUCES else 0.0
    chains = [chain_of(rows, work) for rows in drawn]
    waves = [sum(max(row[stage] for row in rows) for stage in ("first", "then")) + work * elements for rows in drawn]
    return Row(way, elements, sum(chains) / seeds, sum(waves) / seeds, sum(known) / seeds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the results."""
    options = command.parser_of(__doc__, "10 elements, one seed, no peers").parse_args(arguments)
    sizes, seeds, ways = ((10,), 1, tuple(OWN)) if options.quick else (SIZES, SEEDS, (*OWN, *OTHERS))
    print(f"{'elements':>8}  {'way':21}{'chain':>7}{'wave':>7}{'makespan':>10}{'ratio':>7}")
    rows = [row for elements in sizes for way in ways if (row := measure(way, elements, seeds)) is not None]
    for row in rows:
        figures = f"{row.chain:7.2f}{row.wave:7.2f}{row.makespan:10.2f}{row.ratio:7.2f}"
        print(f"{row.elements:8}  {row.way:21}{figures}")
    is_soon = all(row.ratio <= MUST for row in rows if row.way in ("dagrun", "dagrun, a stream"))
    if (folder := command.folder_of(options)) is not None:
        from plot_pipelines import draw_pipelines

        results = environment.describe() | {"pipelines": [asdict(row) | {"ratio": row.ratio} for row in rows]}
        command.write(folder, "pipelines", results)
        draw_pipelines(results, folder / "pipelines")
    return 1 if options.gate and not is_soon else 0


if __name__ == "__main__":
    sys.exit(main())
