"""What dagrun costs per step, against the least that a task per step can cost.

    python benchmarks/overhead.py [--quick] [--gate] [--out FOLDER]

**What is measured.** The same graph of the same steps is run in two ways, in turn, in one process: by dagrun, a checked
plan through `dagrun.start` with a subscriber that keeps every event (their number is asserted); and by the baseline x,
one `start_soon` per step in an anyio task group, with counters and values and nothing else. The figure is the CPU time
of the process, so waiting and other processes do not count, and the median of the ratios of the pairs.

- *no-op*: the step returns at once. Nothing but the engine is left.
- *suspending*: each step lets the loop come by once, so none can be run on by the worker that released it.
- *burst*: steps that do not wait for each other, and all wait for a timer at the same time: each needs a live task.
- *by reference*: each step gets a small JSON object of each that it waits for by ``${…}``, into a typed parameter, and
  gives one. The baseline hands over the same objects and checks them with the same adapter of pydantic.

The musts are for 1,000 steps and more; 100 steps are shown, and gate nothing. There are at least seven pairs.

**How to read it.** The ratio is what to compare: microseconds differ between machines, and on one from hour to hour;
the ratio much less. Below 1 a complete step (scope, states, two events, failure contract) costs less than a bare task.
*Growth* is the exponent k of CPU time = c * steps ** k: 1 is linear. *In turn* is the same of two sizes whose runs take
turns, so that a machine that changes its speed hits both alike. *Memory* is what a run takes beyond its plan: states,
results and every event are counted, though the must is for what comes on top of states and results; that of other
shapes and bigger plans is in ``full.py``.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/overhead.json`` and its plot.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

import baseline
import command
import environment
import memory
import subject
from measure import Pairs, Work, growth_exponent, measure_pairs
from shapes import SHAPES, successors

MAX_EXPONENT: Final = 1.05
MAX_BYTES: Final = 1024
GATED_FROM: Final = 1_000  # steps
GRAPHS: Final = ("chain", "fan", "random3")


@dataclass(frozen=True, slots=True)
class Case:
    """Steps of one kind on some shapes.

    Attributes:
        name: Of the steps, in `subject.STEPS`.
        shapes: On which shapes, in `shapes.SHAPES`.
        sizes: In steps.
        must: The ratio that may not be exceeded.
        aim: The ratio that is wanted.
    """

    name: str
    shapes: tuple[str, ...]
    sizes: tuple[int, ...]
    must: float
    aim: float


FULL: Final = (
    Case("no-op", GRAPHS, (100, 1_000, 10_000), 0.7, 0.45),
    Case("suspending", GRAPHS, (100, 1_000, 10_000), 0.9, 0.7),
    Case("burst", ("independent",), (1_000,), 1.3, 1.0),
    Case("by reference", ("chain", "random3"), (1_000, 10_000), 1.3, 0.8),
)
QUICK: Final = tuple(replace(case, sizes=tuple(size for size in case.sizes if size <= 1_000)) for case in FULL)


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one shape of one size; times are CPU microseconds per step, medians."""

    case: str
    shape: str
    steps: int
    pairs: int
    ours: float
    base: float
    ratio: float
    must: float | None
    aim: float

    @property
    def passed(self) -> bool:
        """Whether the must, if there is one, is kept."""
        return self.must is None or self.ratio <= self.must


@dataclass(frozen=True, slots=True)
class Growth:
    """How CPU time grows with the size of one shape.

    Attributes:
        case: Of the steps.
        shape: Of the plans.
        sizes: Of the plans, in steps.
        ours: The exponent.
        base: That of the baseline.
        in_turn: Whether the runs of the sizes took turns.
        must: What the exponent may not exceed.
    """

    case: str
    shape: str
    sizes: tuple[int, ...]
    ours: float
    base: float
    in_turn: bool = False
    must: float = MAX_EXPONENT

    @property
    def passed(self) -> bool:
        """Whether the must is kept."""
        return self.ours <= self.must


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of memory per step that a run takes beyond its plan; *how* as in `memory`."""

    shape: str
    steps: int
    how: memory.How
    bytes: float
    must: int = MAX_BYTES

    @property
    def passed(self) -> bool:
        """Whether the must is kept."""
        return self.bytes <= self.must


def pairs_for(steps: int) -> int:
    """How many pairs a size gets: small runs scatter more."""
    return {100: 21, 1_000: 9}.get(steps, 7)


def measure_case(case: Case) -> Iterator[Row]:
    """Measure every shape and size of *case*."""
    for shape in case.shapes:
        for steps in case.sizes:
            yield measure_row(case, shape, steps)


def work_of(case: str, shape: str, steps: int) -> tuple[Work, Work]:
    """A run of dagrun, and the same of the baseline."""
    graph, tool = SHAPES[shape](steps), subject.STEPS[case]
    ours = partial(subject.run, subject.checked_plan(graph, tool))
    return ours, partial(baseline.run, graph, successors(graph), subject.BARE[case])


def measure_row(case: Case, shape: str, steps: int, count: int | None = None) -> Row:
    """Measure one shape of one size, in *count* pairs or as many as that size gets."""
    ours, base = work_of(case.name, shape, steps)

    async def main() -> Pairs:
        if steps <= 1_000:
            await measure_pairs(ours, base, 1)  # the first ones fill caches, and are not counted
        return await measure_pairs(ours, base, count or pairs_for(steps))

    pairs = anyio.run(main)
    micro = 1e6 / steps
    return Row(
        case.name,
        shape,
        steps,
        len(pairs.ours),
        ours=median(pairs.ours) * micro,
        base=median(pairs.base) * micro,
        ratio=pairs.ratio,
        must=case.must if steps >= GATED_FROM else None,
        aim=case.aim,
    )


def growth_of(rows: Sequence[Row], case: str = "no-op") -> Iterator[Growth]:
    """The growth of each shape of *case* that has more than one size."""
    for shape in dict.fromkeys(row.shape for row in rows if row.case == case):
        mine = [row for row in rows if (row.case, row.shape) == (case, shape)]
        if len(mine) > 1:
            sizes = tuple(row.steps for row in mine)
            ours = growth_exponent(sizes, [row.ours * row.steps for row in mine])
            base = growth_exponent(sizes, [row.base * row.steps for row in mine])
            yield Growth(case, shape, sizes, ours, base)


def growth_in_turn(shape: str, small: int, big: int, count: int, *, of_base: bool = True) -> Growth:
    """The growth from *small* to *big* no-op steps: *count* pairs of a big run and as many steps in small runs."""
    of_small, of_big = work_of("no-op", shape, small), work_of("no-op", shape, big)

    async def exponent(one: Work, whole: Work) -> float:
        async def parts() -> None:
            for _ in range(big // small):
                await one()

        pairs = await measure_pairs(whole, parts, count)
        return 1 + math.log(pairs.ratio, big / small)

    ours = anyio.run(exponent, of_small[0], of_big[0])
    base = anyio.run(exponent, of_small[1], of_big[1]) if of_base else math.nan
    return Growth("no-op", shape, (small, big), ours, base, in_turn=True)


def measure_memory(*, quick: bool) -> Iterator[Memory]:
    """Bytes per step of one shape, no-op steps; `full` has those of others."""
    shape = GRAPHS[-1]
    yield Memory(shape, 10_000, "traced", memory.bytes_per_step(shape, 10_000, "traced"))
    if not quick:
        yield Memory(shape, 100_000, "resident", memory.bytes_per_step(shape, 100_000, "resident"))


# Showing ----------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'case':13}{'shape':13}{'n':>8}{'μs/step ours':>14}{'μs/step x':>11}{'ratio':>8}{'must':>8}{'aim':>6}  verdict"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    must = f"{'-':>8}" if row.must is None else f"{row.must:>8.2f}"
    figures = f"{row.steps:>8,}{row.ours:>14.1f}{row.base:>11.1f}{row.ratio:>8.2f}{must}{row.aim:>6.2f}"
    return f"{row.case:13}{row.shape:13}{figures}  {'-' if row.must is None else _verdict(row)}"


def growth_line(growth: Growth) -> str:
    """The exponent of one shape, in the columns of the table."""
    sizes = f"{growth.sizes[0]:,} to {growth.sizes[-1]:,}"
    figures = f"{growth.ours:>14.3f}{growth.base:>11.3f}{'in turn' if growth.in_turn else '':>8}{growth.must:>8.2f}"
    return f"{'growth':13}{growth.shape:8}{sizes:>13}{figures}{'':6}  {_verdict(growth)}"


def memory_line(taken: Memory) -> str:
    """The memory of one shape, in the columns of the table."""
    return (
        f"{'memory':13}{taken.shape:13}{taken.steps:>8,}{taken.bytes:>8,.0f} bytes/step, {taken.how}; {_verdict(taken)}"
    )


def _verdict(row: Row | Growth | Memory) -> str:
    return "ok" if row.passed else "MISSED"


def as_json(rows: Sequence[Row], growth: Sequence[Growth], memory_rows: Sequence[Memory]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {
        "overhead": [_rounded(row) for row in rows],
        "growth": [_rounded(one) for one in growth],
        "memory": [_rounded(one) for one in memory_rows],
    }


def _rounded(row: Row | Growth | Memory) -> dict[str, Any]:
    facts = asdict(row) | {"passed": row.passed}
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in facts.items()}


def _shown(rows: Iterable[Row]) -> list[Row]:
    """Print each row as soon as it is there."""
    kept = []
    for row in rows:
        print(line_of(row), flush=True)
        kept.append(row)
    return kept


def write(results: dict[str, Any], folder: Path) -> None:
    """Keep *results* as ``overhead.json`` in *folder*, with the plot beside it."""
    from plots import draw_overhead

    command.write(folder, "overhead", results)
    draw_overhead(results, folder / "overhead")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer and smaller sizes, within a minute").parse_args(arguments)
    began = time.monotonic()
    print(HEAD)
    rows = [row for case in (QUICK if options.quick else FULL) for row in _shown(measure_case(case))]
    growth = list(growth_of(rows))
    growth.append(growth_in_turn("random3", 1_000, 10_000, 3 if options.quick else 5))
    print(*map(growth_line, growth), sep="\n", flush=True)
    memory_rows = list(measure_memory(quick=options.quick))
    print(*map(memory_line, memory_rows), sep="\n", flush=True)
    if (folder := command.folder_of(options)) is not None:
        write(as_json(rows, growth, memory_rows), folder)
    gated = [row for row in rows if row.must is not None]
    verdicts = [row.passed for row in gated] + [one.passed for one in growth] + [one.passed for one in memory_rows]
    missed = verdicts.count(False)
    print(f"{missed} of {len(verdicts)} musts missed; {time.monotonic() - began:.0f} s")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
