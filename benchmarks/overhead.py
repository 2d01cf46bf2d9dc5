"""What dagrun costs per step, against the least that a task per step can cost.

    python benchmarks/overhead.py [--quick] [--gate] [--out FOLDER]

**What is measured.** The same graph of the same steps is run in two ways, in turn, in one process: by dagrun, a checked
plan through `dagrun.start` with a subscriber that keeps every event (their number is asserted); and by the baseline x,
one `start_soon` per step in an anyio task group, with counters and values and nothing else. The figure is the CPU time
of the process, so waiting and other processes do not count, and the median of the ratios of the pairs.

- *no-op*: the step returns at once. Nothing but the engine is left.
- *suspending*: each step lets the loop come by once, so none can be run on by the worker that released it.
- *burst*: steps that do not wait for each other, and all wait for a timer at the same time: each needs a live task.

**How to read it.** The ratio is what to compare: microseconds differ between machines, and on one from hour to hour;
the ratio much less. Below 1 a complete step (scope, states, two events, failure contract) costs less than a bare task.
*Growth* is the exponent k of CPU time = c * steps ** k: 1 is linear. *Memory* is what a run takes beyond its plan.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/overhead.json`` and its plot.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

import baseline
import environment
import memory
import subject
from measure import Pairs, growth_exponent, measure_pairs
from shapes import SHAPES, successors

RESULTS: Final = Path(__file__).parent / "results"
MAX_EXPONENT: Final = 1.1
GRAPHS: Final = ("chain", "fan", "random3")


@dataclass(frozen=True, slots=True)
class Case:
    """Steps of one kind on some shapes.

    Attributes:
        name: Of the steps, in `subject.STEPS`.
        shapes: On which shapes, in `shapes.SHAPES`.
        sizes: In steps.
        must: The ratio that may not be exceeded.
    """

    name: str
    shapes: tuple[str, ...]
    sizes: tuple[int, ...]
    must: float


FULL: Final = (
    Case("no-op", GRAPHS, (100, 1_000, 10_000, 100_000), 0.8),
    Case("suspending", GRAPHS, (100, 1_000, 10_000), 1.0),
    Case("burst", ("independent",), (1_000,), 1.6),
)
QUICK: Final = (
    Case("no-op", GRAPHS, (100, 1_000, 10_000), 0.8),
    Case("suspending", GRAPHS, (100, 1_000), 1.0),
    Case("burst", ("independent",), (1_000,), 1.6),
)


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
    must: float

    @property
    def passed(self) -> bool:
        """Whether the must is kept."""
        return self.ratio <= self.must


@dataclass(frozen=True, slots=True)
class Growth:
    """How CPU time grows with the size of one shape."""

    case: str
    shape: str
    sizes: tuple[int, ...]
    ours: float
    base: float
    must: float = MAX_EXPONENT

    @property
    def passed(self) -> bool:
        """Whether the must is kept."""
        return self.ours <= self.must


def pairs_for(steps: int) -> int:
    """How many pairs a size gets: small runs scatter more, and big ones take long."""
    return {100: 21, 1_000: 9, 10_000: 3}.get(steps, 9 if steps < 10_000 else 2)


def measure_case(case: Case) -> Iterator[Row]:
    """Measure every shape and size of *case*."""
    for shape in case.shapes:
        for steps in case.sizes:
            yield measure_row(case, shape, steps)


def measure_row(case: Case, shape: str, steps: int) -> Row:
    """Measure one shape of one size."""
    graph, tool = SHAPES[shape](steps), subject.STEPS[case.name]
    ours = partial(subject.run, subject.checked_plan(graph, tool))
    base = partial(baseline.run, graph, successors(graph), subject.BARE[case.name])

    async def main() -> Pairs:
        if steps <= 1_000:
            await measure_pairs(ours, base, 1)  # the first ones fill caches, and are not counted
        return await measure_pairs(ours, base, pairs_for(steps))

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
        must=case.must,
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


def measure_memory(*, quick: bool) -> Iterator[dict[str, Any]]:
    """Bytes per step of each shape, no-op steps; of the last one only, if it must be quick."""
    for shape in GRAPHS[-1:] if quick else GRAPHS:
        yield _memory_row(shape, 10_000, "traced")
        if not quick:
            yield _memory_row(shape, 100_000, "resident")


def _memory_row(shape: str, steps: int, how: memory.How) -> dict[str, Any]:
    return {"shape": shape, "steps": steps, "how": how, "bytes": round(memory.bytes_per_step(shape, steps, how))}


# Showing ----------------------------------------------------------------------------------------------------------

HEAD: Final = f"{'case':12}{'shape':13}{'n':>8}{'μs/step ours':>14}{'μs/step x':>11}{'ratio':>8}{'must':>8}  verdict"


def line_of(row: Row) -> str:
    """One line of the table."""
    figures = f"{row.steps:>8,}{row.ours:>14.1f}{row.base:>11.1f}{row.ratio:>8.2f}{row.must:>8.2f}"
    return f"{row.case:12}{row.shape:13}{figures}  {_verdict(row)}"


def growth_line(growth: Growth) -> str:
    """The exponent of one shape, in the columns of the table."""
    sizes = f"{growth.sizes[0]:,} to {growth.sizes[-1]:,}"
    figures = f"{growth.ours:>14.3f}{growth.base:>11.3f}{'':8}{growth.must:>8.2f}"
    return f"{'growth':12}{growth.shape:9}{sizes:>12}{figures}  {_verdict(growth)}"


def _verdict(row: Row | Growth) -> str:
    return "ok" if row.passed else "MISSED"


def as_json(rows: Sequence[Row], growth: Sequence[Growth], memory_rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {
        "overhead": [_rounded(row) for row in rows],
        "growth": [_rounded(one) for one in growth],
        "memory": list(memory_rows),
    }


def _rounded(row: Row | Growth) -> dict[str, Any]:
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

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "overhead.json").write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    draw_overhead(results, folder / "overhead")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes, within a minute; writes nothing")
    parser.add_argument("--gate", action="store_true", help="exit with 1 if a must is missed")
    parser.add_argument("--out", type=Path, help="where the results go (by default benchmarks/results)")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    print(HEAD)
    rows = [row for case in (QUICK if options.quick else FULL) for row in _shown(measure_case(case))]
    growth = list(growth_of(rows))
    print(*map(growth_line, growth), sep="\n", flush=True)
    memory_rows = list(measure_memory(quick=options.quick))
    for row in memory_rows:
        print(f"{'memory':12}{row['shape']:13}{row['steps']:>8,}{row['bytes']:>8,} bytes/step, {row['how']}")
    if options.out is not None or not options.quick:
        write(as_json(rows, growth, memory_rows), options.out or RESULTS)
    verdicts = [row.passed for row in rows] + [one.passed for one in growth]
    missed = verdicts.count(False)
    print(f"{missed} of {len(verdicts)} musts missed; {time.monotonic() - began:.0f} s")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
