"""In which order steps start when only a few may run at once, and what that is worth.

    python benchmarks/ordering.py [--quick] [--gate] [--out FOLDER]

**What is measured.** Plans of 100 uneven steps, of several shapes and seeds, with 2 to 16 slots, in four orders:

- *first ready*: first ready, first started, as a queue would do it (the plain list schedule). dagrun does not have this
  order; the benchmark puts it into the same engine;
- *hops*: dagrun's longest remaining path first, where nothing is known of how long steps take: the path is as long as
  it has steps;
- *learned*: the same order, where one run before has learned how long the calls of each tool take;
- *estimates*: the same order, where each step says beforehand how long it takes.

*uniform* steps take 5 to 50 ms, *heavy tail* ones by a Pareto law 5 ms to 1 s. Each step by itself, with one tool for
all, of which there is nothing to learn; or *by tool*: eight tools, and all calls of a tool take about as long (+-20 %).

All runs are made by the engine on a virtual clock, where nothing but the steps takes time, so the figures are exact and
the same everywhere; a few are repeated in real time beside it.

**How to read it.** A ratio is the makespan over what no schedule can beat: the critical path, or the work divided by
the slots if that is longer. It is the mean over the seeds, with the worst behind it. *vs first ready* is the makespan
over that of the first ready order for the same graph and slots: below 1 the order has gained. The gate is on this
figure with 4 slots, for steps of 5 to 50 ms.

**Where nothing is gained**, which is shown at the end: a chain has no choice; one slot does all the work in any order;
without a limit everything starts when it can; equal steps that do not depend on each other are as good in any order;
and what is learned of one tool for all steps tells none of them from another.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/ordering.json`` and its plot.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import CheckedPlan
from dagrun.extend import Durations
from dagrun.testing import run_virtual
from first_ready import first_ready
from mixed import Mixed, make_mixed

STEPS: Final = 100
SLOTS: Final = (2, 4, 8, 16)
FIRST_READY: Final = "first ready"
HOPS: Final = "hops"
LEARNED: Final = "learned"
ESTIMATES: Final = "estimates"
ORDERS: Final = (FIRST_READY, HOPS, LEARNED, ESTIMATES)

SHAPES: Final = ("random3", "layered", "fan")
MIXES: Final = ("uniform", "uniform, by tool", "heavy tail", "heavy tail, by tool")
MUST: Final = 1.03  # of the makespan with 4 slots to that of the first ready order
AIM: Final = 0.99

# What no order can make better: shape, mix, slots.
NO_GAIN: Final[Mapping[str, tuple[str, str, int | None]]] = {
    "a chain": ("chain", "uniform, by tool", 4),
    "one slot": ("random3", "uniform, by tool", 1),
    "no limit": ("random3", "uniform, by tool", None),
    "equal and independent": ("independent", "equal", 4),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One kind of graph with so many slots; figures by the name of the order.

    Attributes:
        clock: ``virtual`` or ``real``.
        shape: Of the graph.
        mix: What its steps take.
        slots: Steps that may run at once; `None` for no limit.
        runs: How many graphs.
        ratio: Of the makespan to the bound, mean.
        worst: The highest of these.
        against: Of the makespan to that of the first ready order on the virtual clock, mean.
    """

    clock: str
    shape: str
    mix: str
    slots: int | None
    runs: int
    ratio: Mapping[str, float]
    worst: Mapping[str, float]
    against: Mapping[str, float]

    @property
    def must(self) -> float | None:
        """What no figure of *against* may exceed; `None` where nothing is promised."""
        return MUST if (self.clock, self.slots) == ("virtual", 4) and self.mix.startswith("uniform") else None

    @property
    def passed(self) -> bool:
        """Whether the must, if there is one, is kept."""
        return self.must is None or max(self.against.values()) <= self.must


# Measuring ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Case:
    """A graph, ready to be run in each order.

    Attributes:
        graph: What is run.
        blind: The plan of it in which nothing is known of how long steps take.
        told: The plan in which each step says it.
        known: What one run has learned of its tools, on the virtual clock.
    """

    graph: Mixed
    blind: CheckedPlan
    told: CheckedPlan
    known: Durations

    @classmethod
    def of(cls, shape: str, mix: str, seed: int, steps: int = STEPS) -> Case:
        """Make one, and let it learn."""
        graph = make_mixed(shape, mix, steps, seed)
        made = cls(graph, graph.plan(with_estimates=False), graph.plan(with_estimates=True), Durations())
        run_virtual(makespan, made, 4, LEARNED)
        return made

    def bound(self, slots: int | None) -> float:
        """The seconds that no schedule can beat."""
        graph = self.graph
        return graph.critical_path if slots is None else max(graph.critical_path, graph.work / slots)


async def makespan(case: Case, slots: int | None, order: str) -> float:
    """Run the graph of *case* in one of the orders, and give its makespan in seconds, by the clock of the loop."""
    plan = case.told if order == ESTIMATES else case.blind
    limited = replace(plan, policy=plan.policy.model_copy(update={"max_running": slots}))
    with first_ready() if order == FIRST_READY else nullcontext():
        result = await dagrun.run(limited, durations=case.known if order == LEARNED else None)
    return result.raise_for_status().makespan


def measure(
    shape: str, mix: str, slots: Sequence[int | None], seeds: Sequence[int], steps: int = STEPS
) -> Iterator[Row]:
    """Run graphs of one kind in all orders, one graph for each seed, on the virtual clock."""
    cases = [Case.of(shape, mix, seed, steps) for seed in seeds]
    for count in slots:
        times = {order: [run_virtual(makespan, case, count, order) for case in cases] for order in ORDERS}
        yield row_of("virtual", (shape, mix, count), cases, times, times[FIRST_READY])


def measure_real(shape: str, mix: str, slots: int, seeds: Sequence[int], steps: int = STEPS) -> Row:
    """The same on a real clock, compared to what the first ready order is on the virtual one; the orders take turns."""
    cases = [Case.of(shape, mix, seed, steps) for seed in seeds]
    ideal = [run_virtual(makespan, case, slots, FIRST_READY) for case in cases]

    async def main() -> dict[str, list[float]]:
        times: dict[str, list[float]] = {order: [] for order in ORDERS}
        for case in cases:
            for order in ORDERS:
                times[order].append(await makespan(case, slots, order))
        return times

    return row_of("real", (shape, mix, slots), cases, anyio.run(main), ideal)


def row_of(
    clock: str,
    kind: tuple[str, str, int | None],
    cases: Sequence[Case],
    times: Mapping[str, Sequence[float]],
    first: Sequence[float],
) -> Row:
    """Sum up the makespans of *cases*, by order; *first* are those of the first ready order."""
    bounds = [case.bound(kind[2]) for case in cases]
    ratios = {order: _over(spans, bounds) for order, spans in times.items()}
    return Row(
        clock,
        *kind,
        len(cases),
        ratio={order: fmean(found) for order, found in ratios.items()},
        worst={order: max(found) for order, found in ratios.items()},
        against={order: fmean(_over(spans, first)) for order, spans in times.items()},
    )


def _over(spans: Iterable[float], others: Iterable[float]) -> list[float]:
    return [span / other for span, other in zip(spans, others, strict=True)]


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = f"{'':34}{'makespan / bound: mean (worst)':^60}{'vs first ready: mean':^28}\n" + (
    f"{'shape':12}{'steps':20}{'':2}"
    + "".join(f"{order:>15}" for order in ORDERS)
    + "".join(f"{order:>10}" for order in ORDERS[1:])
)


def line_of(row: Row) -> str:
    """One line of the table."""
    slots = "-" if row.slots is None else str(row.slots)
    ratios = "".join(f"{f'{row.ratio[order]:.3f} ({row.worst[order]:.2f})':>15}" for order in ORDERS)
    against = "".join(f"{row.against[order]:>10.3f}" for order in ORDERS[1:])
    verdict = "" if row.must is None else f"  {_verdict(row)}"
    return f"{row.shape:12}{row.mix:20}{slots:>2}{ratios}{against}{verdict}"


def _verdict(row: Row) -> str:
    if not row.passed:
        return f"MISSED {row.must}"
    return "ok, aim met" if row.against[ESTIMATES] <= AIM else "ok"


def as_json(rows: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {
        name: [_rounded(asdict(row)) | {"must": row.must, "passed": row.passed} for row in part]
        for name, part in rows.items()
    }


def _rounded(facts: dict[str, Any]) -> dict[str, Any]:
    return {
        key: {order: round(figure, 4) for order, figure in value.items()} if isinstance(value, dict) else value
        for key, value in facts.items()
    }


def write(results: dict[str, Any], folder: Path) -> None:
    """Keep *results* as ``ordering.json`` in *folder*, with the plot beside it."""
    from plot_ordering import draw_ordering

    command.write(folder, "ordering", results)
    draw_ordering(results, folder / "ordering")


def _shown(rows: Iterable[Row]) -> Iterator[Row]:
    """Print each row as soon as it is there."""
    for row in rows:
        print(line_of(row), flush=True)
        yield row


def measure_all(*, is_quick: bool) -> dict[str, list[Row]]:
    """Measure everything, and print it meanwhile."""
    seeds, slots = (range(2), (2, 4)) if is_quick else (range(3), SLOTS)
    mixes = MIXES[:2] if is_quick else MIXES
    print(HEAD)
    rows = {
        "ordering": [row for shape in SHAPES for mix in mixes for row in _shown(measure(shape, mix, slots, seeds))],
        "real": [],
    }
    if not is_quick:
        print("in real time, against the first ready order on the virtual clock")
        rows["real"] = list(_shown(measure_real(s, "uniform, by tool", 4, range(2)) for s in ("random3", "layered")))
    print("where no order is better than another")
    kinds = NO_GAIN.values()
    rows["no_gain"] = [row for shape, mix, n in kinds for row in _shown(measure(shape, mix, [n], seeds[:2]))]
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer seeds and slots, no real time").parse_args(arguments)
    began = time.monotonic()
    rows = measure_all(is_quick=options.quick)
    if (folder := command.folder_of(options)) is not None:
        write(as_json(rows), folder)
    verdicts = [row.passed for row in rows["ordering"] if row.must is not None]
    missed = verdicts.count(False)
    print(f"{missed} of {len(verdicts)} musts missed; {time.monotonic() - began:.0f} s")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
