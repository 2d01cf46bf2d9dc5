"""How long whole plans take: one step after another, in waves, and each step as soon as it can run.

    python benchmarks/modes.py [--quick] [--gate] [--out FOLDER]

**What is measured.** Plans of 100 steps that only wait, 5 to 50 ms each, in two shapes with three seeds; and, once, the
plan of the demo, which reads, computes, draws and asks a real server. Each is run by the same engine as five schedules:

- *sequential*: one step at a time;
- *waves*: a generation starts when all of the one before have ended, as simple runners of graphs do it;
- *ready-driven*: each step starts when the last of its inputs exists, which is what dagrun does;
- *4 slots*: the same, but at most four steps at once, longest remaining path first; and *4 slots, blind*, without
  estimates of how long steps take, where the path is counted in steps.

*bare tasks* is no engine at all: a task per step, with counters.

**How to read it.** The ratio is the makespan over what no schedule can beat: the critical path of the same run, by the
durations that its steps really had (for the demo: of the ready-driven run of the same round); with slots, the work
divided by the slots if that is longer. It is the median over the seeds. *Ideal* is the ratio of the same schedule on a
virtual clock, where nothing but the steps takes time: what a ratio has above it, the engine costs; what the ideal has
above 1, the schedule does. *Asked* is the ratio to the same bound by the durations that the steps asked for: timers of
a loop fire late, under bare tasks as under dagrun.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/modes.json`` and its plot.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from bare import run_bare
from dagrun import CheckedPlan, RunResult
from dagrun.kernel.checks.waves import in_waves
from dagrun.testing import run_virtual
from demo_plan import demo
from uneven import SHAPES, Uneven, longest_chain, make_uneven

STEPS: Final = 100


@dataclass(frozen=True, slots=True)
class Mode:
    """A schedule.

    Attributes:
        name: Of it.
        slots: Steps that may run at once, or no limit.
        is_in_waves: Whether generations wait for each other as a whole.
        has_estimates: Whether it is known beforehand how long steps take.
        must: How far the ratio may lie above the ideal, as a factor; `None` where nothing is promised.
    """

    name: str
    slots: int | None = None
    is_in_waves: bool = False
    has_estimates: bool = True
    must: float | None = None

    def apply(self, plan: CheckedPlan) -> CheckedPlan:
        """Give *plan* as this mode runs it; the engine is the same for all."""
        limited = replace(plan, policy=plan.policy.model_copy(update={"max_running": self.slots}))
        return in_waves(limited) if self.is_in_waves else limited


SEQUENTIAL: Final = Mode("sequential", slots=1)
WAVES: Final = Mode("waves", is_in_waves=True)
READY: Final = Mode("ready-driven", must=1.03)
FOUR: Final = Mode("4 slots", slots=4, must=1.05)
BLIND: Final = Mode("4 slots, blind", slots=4, has_estimates=False, must=1.05)
BARE: Final = Mode("bare tasks")  # no plan of dagrun, so nothing to apply it to
MODES: Final = (SEQUENTIAL, WAVES, READY, FOUR, BLIND)
DEMO_MODES: Final = (SEQUENTIAL, WAVES, READY)


@dataclass(frozen=True, slots=True)
class Times:
    """What one run came to, in seconds.

    Attributes:
        makespan: From its start to its end.
        critical_path: Of the durations that its steps really had.
        work: The sum of them.
    """

    makespan: float
    critical_path: float
    work: float

    @classmethod
    def of(cls, result: RunResult) -> Times:
        """The times of a run, which must have succeeded: one that ends early is fast."""
        result.raise_for_status()
        return cls(result.makespan, result.critical_path, result.work)

    def bound(self, mode: Mode) -> float:
        """What no schedule of these steps in the slots of *mode* can beat; one slot is compared to no limit."""
        if mode.slots is None or mode.slots == 1:
            return self.critical_path
        return max(self.critical_path, self.work / mode.slots)

    def ratio(self, mode: Mode) -> float:
        """How many times the bound the run took."""
        return self.makespan / self.bound(mode)


@dataclass(frozen=True, slots=True)
class Row:
    """One mode on one kind of plan; all figures but the last two are medians over the runs.

    Attributes:
        plan: The kind of plan.
        mode: The name of the mode.
        runs: How many.
        makespan: In seconds.
        ratio: Of the makespan to the bound, in the same run.
        ideal: The same on a virtual clock, if that is known.
        asked: The same to the bound by what the steps asked for, if that is known.
        worst: The highest ratio of all runs.
        must: What the ratio may not exceed; `None` where nothing is promised.
    """

    plan: str
    mode: str
    runs: int
    makespan: float
    ratio: float
    ideal: float | None
    asked: float | None
    worst: float
    must: float | None

    @property
    def passed(self) -> bool:
        """Whether the must, if there is one, is kept."""
        return self.must is None or self.ratio <= self.must


# Measuring ------------------------------------------------------------------------------------------------------------


async def run_once(graph: Uneven, mode: Mode) -> Times:
    """Run *graph* once, on the clock of the loop that this runs on."""
    if mode is BARE:
        makespan, took = await run_bare(graph)
        return Times(makespan, longest_chain(graph.needs, took), sum(took.values()))
    return Times.of(await dagrun.run(mode.apply(graph.plan(with_estimates=mode.has_estimates))))


def measure_uneven(shape: str, seeds: Sequence[int], steps: int = STEPS) -> Iterator[Row]:
    """Measure every mode on graphs of one shape, one graph for each seed; the modes take turns."""
    graphs = [make_uneven(shape, steps, seed) for seed in seeds]
    modes = (*MODES, BARE)

    async def main() -> list[list[Times]]:
        await run_once(make_uneven(shape, 10, 0), READY)  # loads what is loaded on first use
        return [[await run_once(graph, mode) for mode in modes] for graph in graphs]

    by_graph = anyio.run(main)
    for mode, runs in zip(modes, zip(*by_graph, strict=True), strict=True):
        ideal = median(run_virtual(run_once, graph, mode).ratio(mode) for graph in graphs)
        asked = median(
            replace(times, critical_path=graph.critical_path, work=graph.work).ratio(mode)
            for times, graph in zip(runs, graphs, strict=True)
        )
        yield row_of(f"{shape} {steps}", mode, runs, ideal=ideal, asked=asked)


def measure_demo(repeats: int) -> Iterator[Row]:
    """Measure the modes on the plan of the demo; nothing at all, with the reason, if its tools are not installed."""
    try:
        with demo() as run:
            by_round = [beside_ready([Times.of(run(mode.apply)) for mode in DEMO_MODES]) for _ in range(repeats)]
    except ImportError as error:
        print(f"demo: left out, because the extra 'tools' is not installed ({error})", file=sys.stderr)
        return
    for mode, runs in zip(DEMO_MODES, zip(*by_round, strict=True), strict=True):
        yield row_of("demo", mode, runs)


def beside_ready(times: Sequence[Times]) -> list[Times]:
    """Give the runs of one round with the critical path of the ready-driven one, which is the last.

    A step with for_each is as long as its slot is narrow: by its own measure, a sequential run would look short.
    """
    return [replace(one, critical_path=times[-1].critical_path) for one in times]


def row_of(
    plan: str, mode: Mode, runs: Sequence[Times], *, ideal: float | None = None, asked: float | None = None
) -> Row:
    """Sum up the runs of one mode."""
    ratios = [times.ratio(mode) for times in runs]
    return Row(
        plan,
        mode.name,
        len(runs),
        makespan=median(times.makespan for times in runs),
        ratio=median(ratios),
        ideal=ideal,
        asked=asked,
        worst=max(ratios),
        must=None if mode.must is None else mode.must * (ideal or 1.0),
    )


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'plan':13}{'mode':16}{'runs':>5}{'makespan':>11}{'ratio':>8}{'ideal':>8}{'asked':>8}{'worst':>8}{'must':>8}"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    figures = "".join(_cell(figure) for figure in (row.ratio, row.ideal, row.asked, row.worst, row.must))
    verdict = "" if row.must is None else "  ok" if row.passed else "  MISSED"
    return f"{row.plan:13}{row.mode:16}{row.runs:>5}{row.makespan:>9.3f} s{figures}{verdict}".rstrip()


def _cell(figure: float | None) -> str:
    return f"{'-':>8}" if figure is None else f"{figure:>8.3f}"


def as_json(rows: Sequence[Row]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {"modes": [_rounded(row) for row in rows]}


def _rounded(row: Row) -> dict[str, Any]:
    facts = asdict(row) | {"passed": row.passed}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}


def _shown(rows: Iterable[Row]) -> Iterator[Row]:
    """Print each row as soon as it is there."""
    for row in rows:
        print(line_of(row), flush=True)
        yield row


def write(results: dict[str, Any], folder: Path) -> None:
    """Keep *results* as ``modes.json`` in *folder*, with the plot beside it."""
    from plot_modes import draw_modes

    command.write(folder, "modes", results)
    draw_modes(results, folder / "modes")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer seeds, without the demo").parse_args(arguments)
    began = time.monotonic()
    print(HEAD)
    seeds = range(2) if options.quick else range(3)
    rows = [row for shape in SHAPES for row in _shown(measure_uneven(shape, seeds))]
    if not options.quick:
        rows += _shown(measure_demo(repeats=1))
    if (folder := command.folder_of(options)) is not None:
        write(as_json(rows), folder)
    verdicts = [row.passed for row in rows if row.must is not None]
    missed = verdicts.count(False)
    print(f"{missed} of {len(verdicts)} musts missed; {time.monotonic() - began:.0f} s")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
