"""A thousand runs at once on one loop, as a service has them: how soon each begins, and what it costs.

    python benchmarks/many_runs.py [--quick] [--out FOLDER]

**What is measured.** 1,000 runs of the same checked plan of ten steps are asked for at the same instant, each in a task
of its own, in four ways that take turns:

- *one engine*: ``engine.run(plan)`` of one open engine;
- *own engines*: ``dagrun.run(plan)``, which opens an engine for each run by ``dagrun.start``;
- *bare groups*: the same steps as bare tasks, in a task group for each run;
- *plain*: ten awaits one after another in a coroutine, which only a chain allows.

Each step lets the loop come by once. *Start* is from the instant at which all were asked for to the first line of the
first step of a run, *total* to the end of the run, both in milliseconds of wall time; a run among 1,000 waits for the
others, so they say how the work is shared out: with nothing but the steps, the last begins as the first.

**How to read it.** *CPU* is that of the process per run, in microseconds, and *x* the same over bare groups in the same
round. They are medians over the rounds. Nothing gates: there is no must. A full run writes ``results/many_runs.json``.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel

import baseline
import command
import dagrun
import environment
import subject
from dagrun import CheckedPlan
from shapes import SHAPES, Dependencies, successors

RUNS: Final = 1_000
STEPS: Final = 10
GRAPHS: Final = ("chain", "fan")

OneRun: TypeAlias = Callable[[], Awaitable[object]]

# Where the run that the running code belongs to notes when its first step began.
_FIRST: ContextVar[list[float]] = ContextVar("first step")


def _note() -> None:
    first = _FIRST.get()
    if not first:
        first.append(time.perf_counter())


@dagrun.tool(effect="pure")
async def work() -> None:
    """Note the time, and let the loop come by once."""
    _note()
    await anyio.lowlevel.checkpoint()


async def bare_work(id_: str, values: Mapping[str, object]) -> None:
    """The same."""
    _note()
    await anyio.lowlevel.checkpoint()


@dataclass(frozen=True, slots=True)
class Round:
    """All runs of one way, once; times are in seconds.

    Attributes:
        starts: Of each run, until its first step began.
        totals: Of each run, until it had ended.
        cpu: Of the process, per run.
    """

    starts: Sequence[float]
    totals: Sequence[float]
    cpu: float


async def all_at_once(run: OneRun, count: int) -> Round:
    """Ask for *run* that many times at once."""
    starts: list[float] = []
    totals: list[float] = []
    gc.collect()  # or these runs would pay for the garbage of those before
    began, cpu = time.perf_counter(), time.process_time()

    async def one() -> None:
        first: list[float] = []
        _FIRST.set(first)
        await run()
        totals.append(time.perf_counter() - began)
        starts.append(first[0] - began)

    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(one)
    return Round(starts, totals, (time.process_time() - cpu) / count)


async def by_engine(engine: dagrun.Engine, plan: CheckedPlan) -> None:
    """One run in *engine*."""
    (await engine.run(plan)).raise_for_status()


async def by_itself(plan: CheckedPlan) -> None:
    """One run in an engine of its own."""
    (await dagrun.run(plan)).raise_for_status()


async def plain(graph: Dependencies) -> None:
    """One run of a chain in a coroutine."""
    for id_ in graph:
        await bare_work(id_, {})


def ways_of(shape: str, engine: dagrun.Engine) -> dict[str, OneRun]:
    """Each way to run a plan of *shape*, by name."""
    graph = SHAPES[shape](STEPS)
    plan = subject.checked_plan(graph, work)
    ways: dict[str, OneRun] = {
        "one engine": partial(by_engine, engine, plan),
        "own engines": partial(by_itself, plan),
        "bare groups": partial(baseline.run, graph, successors(graph), bare_work),
    }
    return ways | {"plain": partial(plain, graph)} if shape == "chain" else ways


@dataclass(frozen=True, slots=True)
class Row:
    """One way with one shape; milliseconds, but *cpu* in microseconds per run, and *ratio* of it to bare groups."""

    shape: str
    way: str
    runs: int
    rounds: int
    start_p50: float
    start_p99: float
    total_p50: float
    total_p99: float
    cpu: float
    ratio: float


def row_of(shape: str, way: str, rounds: Sequence[Round], bare: Sequence[Round]) -> Row:
    """Sum up the rounds of one way; *bare* are those of bare groups."""

    def middle(what: Callable[[Round], Sequence[float]], place: int) -> float:
        return 1e3 * median(quantiles(what(one), n=100)[place - 1] for one in rounds)

    return Row(
        shape,
        way,
        len(rounds[0].totals),
        len(rounds),
        start_p50=middle(lambda one: one.starts, 50),
        start_p99=middle(lambda one: one.starts, 99),
        total_p50=middle(lambda one: one.totals, 50),
        total_p99=middle(lambda one: one.totals, 99),
        cpu=1e6 * median(one.cpu for one in rounds),
        ratio=median(one.cpu / base.cpu for one, base in zip(rounds, bare, strict=True)),
    )


def measure(shape: str, runs: int, rounds: int) -> list[Row]:
    """Measure every way with one shape; the ways take turns."""

    async def main() -> dict[str, list[Round]]:
        async with dagrun.Engine() as engine:
            ways = ways_of(shape, engine)
            for run in ways.values():
                await all_at_once(run, 10)  # the first ones load what is loaded on first use
            found: dict[str, list[Round]] = {way: [] for way in ways}
            for _ in range(rounds):
                for way, run in ways.items():
                    found[way].append(await all_at_once(run, runs))
            return found

    found = anyio.run(main)
    return [row_of(shape, way, mine, found["bare groups"]) for way, mine in found.items()]


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'shape':8}{'way':13}{'runs':>6}{'start p50':>11}{'p99':>9}{'total p50':>11}{'p99':>9}{'CPU μs':>9}{'x':>7}"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    times = f"{row.start_p50:>11.1f}{row.start_p99:>9.1f}{row.total_p50:>11.1f}{row.total_p99:>9.1f}"
    return f"{row.shape:8}{row.way:13}{row.runs:>6,}{times}{row.cpu:>9.0f}{row.ratio:>7.2f}"


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The results as they are kept."""
    kept = [{k: round(v, 3) if isinstance(v, float) else v for k, v in asdict(row).items()} for row in rows]
    return environment.describe() | {"steps": STEPS, "many_runs": kept}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    options = command.parser_of(__doc__, "one round", has_musts=False).parse_args(arguments)
    began = time.monotonic()
    print(HEAD)
    rows: list[Row] = []
    for shape in GRAPHS:
        found = measure(shape, RUNS, 1 if options.quick else 2)
        print(*map(line_of, found), sep="\n", flush=True)
        rows += found
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "many_runs", as_json(rows))
    print(f"{time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
