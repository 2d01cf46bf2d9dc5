"""What it costs to write a run down.

    python benchmarks/journal.py [--quick] [--gate] [--out FOLDER]

**What is measured.** The same plan of 1,000 steps is run without a journal and with one, in turn, in one process, and
beside them the baseline x of ``overhead.py``, one bare task per step. Two records are written for each step: that it
started, and how it ended. How many steps run at once is 1 (a chain), 64 (a limit), or 1,000 (all at once). The figure
is the CPU time of the whole process, that of the thread that writes included.

- *added*: CPU microseconds per step with the journal, less those without; and the same in x. What a run takes to be
  opened and closed (files, a thread) is left out, and told by itself as *open*, in milliseconds.
- *lag*: how late a timer of the same loop is at worst while the run goes on, in milliseconds, with and without.
- *effect*: milliseconds from step to step in a chain of calls with effects: none is made before its start is durable.

**How to read it.** Compare *added* in x: microseconds differ between machines. For SQLite at the level ``process`` the
musts are 15 microseconds, 0.7 x, and a lag below 10 ms. A PostgreSQL server is measured if ``DAGRUN_TEST_POSTGRES``
names one.

With ``--gate`` the exit code is 1 if a must is missed (the ratio and nothing else, as times depend on the machine). A
full run writes ``results/journal.json``.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import uuid4

import anyio

import baseline
import command
import dagrun
import environment
import subject
from dagrun import CheckedPlan
from measure import cpu_seconds
from shapes import SHAPES, Dependencies, successors

MUST_X: Final = 0.7
MUST_MICROSECONDS: Final = 15.0
MUST_LAG: Final = 10.0
STEPS: Final = 1_000
TICK: Final = 0.001  # seconds


@dataclass(frozen=True, slots=True)
class Width:
    """How many steps run at once.

    Attributes:
        running: That.
        shape: Of the plan, in `shapes.SHAPES`.
        work: Of the steps, in `subject.STEPS`.
    """

    running: int
    shape: str
    work: str


WIDTHS: Final = (
    Width(1, "chain", "no-op"),
    Width(64, "independent", "suspending"),
    Width(1_000, "independent", "burst"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One journal at one width; medians of the pairs, lags the worst of a run."""

    journal: str
    running: int
    pairs: int
    without: float
    added: float
    x: float
    ratio: float
    lag: float
    lag_without: float

    @property
    def is_bound(self) -> bool:
        """Whether the musts are about this journal."""
        return self.journal == "sqlite process"

    @property
    def passed(self) -> bool:
        """Whether the must is kept that can be compared between machines."""
        return not self.is_bound or self.ratio <= MUST_X


def plan_of(shape: Dependencies, width: Width) -> CheckedPlan:
    """The plan of *shape*, with the limit that *width* wants."""
    tool = subject.STEPS[width.work]
    limit = width.running if 1 < width.running < STEPS else None
    steps = [dagrun.Step(id=id_, tool=tool.name, depends_on=list(before)) for id_, before in shape.items()]
    return dagrun.check(dagrun.Plan(steps=steps), [tool], policy=dagrun.Policy(max_running=limit))


async def run(plan: CheckedPlan, journal: dagrun.extend.Journal | None) -> None:
    """Run *plan*, written down in *journal*, and make sure that it has succeeded."""
    async with dagrun.start(plan, journal=journal, run_id=uuid4().hex) as running:
        result = await running.result()
    if result.status != "succeeded":
        raise AssertionError(f"{result.status}: {result.reason}")


async def worst_lag(work: Callable[[], Any]) -> float:
    """Milliseconds by which a timer on this loop is late at worst while *work* goes on."""
    worst = 0.0

    async def tick() -> None:
        nonlocal worst
        while True:
            due = time.perf_counter() + TICK
            await anyio.sleep(TICK)
            worst = max(worst, time.perf_counter() - due)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        await work()
        tasks.cancel_scope.cancel()
    return worst * 1e3


async def opening_seconds(journal: dagrun.extend.Journal, count: int) -> float:
    """The CPU seconds that it adds to a run of a single step to be written down."""
    plan = plan_of(SHAPES["chain"](1), WIDTHS[0])
    added = []
    for _ in range(4 * count):
        without = await cpu_seconds(partial(run, plan, None))
        added.append(await cpu_seconds(partial(run, plan, journal)) - without)
    return median(added)


async def measure_row(name: str, journal: dagrun.extend.Journal, width: Width, count: int, opening: float) -> Row:
    """Measure one journal at one width."""
    shape = SHAPES[width.shape](STEPS)
    plan = plan_of(shape, width)
    without, written = partial(run, plan, None), partial(run, plan, journal)
    bare = partial(baseline.run, shape, successors(shape), subject.BARE[width.work])
    triples = []
    for number in range(count + 1):
        triple = [await cpu_seconds(work) for work in (bare, without, written)]
        if number:  # the first fills caches
            triples.append(triple)
    micro = 1e6 / STEPS
    x = median(triple[0] for triple in triples) * micro
    return Row(
        journal=name,
        running=width.running,
        pairs=count,
        without=median(triple[1] for triple in triples) * micro,
        added=median(triple[2] - triple[1] - opening for triple in triples) * micro,
        x=x,
        ratio=median((triple[2] - triple[1] - opening) / triple[0] for triple in triples),
        lag=median([await worst_lag(written) for _ in range(3)]),
        lag_without=median([await worst_lag(without) for _ in range(3)]),
    )


@dagrun.tool(effect="effectful")
async def change() -> None:
    """Change the world."""


async def effect_milliseconds(journal: dagrun.extend.Journal | None, count: int = 100) -> float:
    """Milliseconds from step to step in a chain of calls with effects."""
    shape = SHAPES["chain"](count)
    steps = [dagrun.Step(id=id_, tool="change", depends_on=list(before)) for id_, before in shape.items()]
    plan = dagrun.check(dagrun.Plan(steps=steps), [change])
    began = time.perf_counter()
    await run(plan, journal)
    return (time.perf_counter() - began) / count * 1e3


@asynccontextmanager
async def journals(folder: Path) -> AsyncIterator[dict[str, dagrun.extend.Journal]]:
    """Every journal that there is here, by name."""
    found: dict[str, dagrun.extend.Journal] = {
        "memory": dagrun.MemoryJournal(),
        "sqlite process": dagrun.SQLiteJournal(folder / "process"),
        "sqlite power": dagrun.SQLiteJournal(folder / "power", durability="power"),
    }
    address = os.environ.get("DAGRUN_TEST_POSTGRES")
    if address is None:
        yield found
        return
    async with dagrun.PostgresJournal(address, schema=f"bench_{uuid4().hex[:8]}") as server:
        yield found | {"postgres": server}


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'journal':16}{'running':>8}{'without μs':>12}{'added μs':>10}{'x μs':>7}{'added x':>9}{'lag ms':>8}{'(none)':>8}"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    figures = f"{row.without:>12.1f}{row.added:>10.1f}{row.x:>7.1f}{row.ratio:>9.2f}"
    lags = f"{row.lag:>8.1f}{row.lag_without:>8.1f}"
    missed = [] if row.passed else [f"over {MUST_X} x"]
    if row.is_bound and row.added > MUST_MICROSECONDS:
        missed.append(f"over {MUST_MICROSECONDS:g} μs")
    if row.is_bound and row.lag > MUST_LAG:
        missed.append(f"lag over {MUST_LAG:g} ms")
    return f"{row.journal:16}{row.running:>8,}{figures}{lags}  {', '.join(missed) or 'ok'}"


def _rounded(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in facts.items()}


async def measure(count: int, folder: Path) -> tuple[list[Row], dict[str, float], dict[str, float]]:
    """Measure everything, and print each line as soon as it is there."""
    rows: list[Row] = []
    openings: dict[str, float] = {}
    async with journals(folder) as found:
        for name, journal in found.items():
            opening = await opening_seconds(journal, count)
            openings[name] = opening * 1e3
            for width in WIDTHS:
                rows.append(await measure_row(name, journal, width, count, opening))
                print(line_of(rows[-1]), flush=True)
        effects = {name: await effect_milliseconds(journal) for name, journal in {"none": None, **found}.items()}
        for journal in found.values():
            await journal.aclose()
    print("open:", ", ".join(f"{name} {figure:.2f} ms" for name, figure in openings.items()))
    print("effect to effect:", ", ".join(f"{name} {figure:.2f} ms" for name, figure in effects.items()))
    return rows, openings, effects


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "three pairs each").parse_args(arguments)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        rows, openings, effects = anyio.run(measure, 3 if options.quick else 9, Path(folder))
    if (out := command.folder_of(options)) is not None:
        results = environment.describe() | {
            "steps": STEPS,
            "journal": [_rounded(asdict(row)) | {"passed": row.passed} for row in rows],
            "open_ms": _rounded(openings),
            "effect_ms": _rounded(effects),
        }
        command.write(out, "journal", results)
    missed = sum(not row.passed for row in rows)
    print(f"{missed} of {sum(row.is_bound for row in rows)} musts missed")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
