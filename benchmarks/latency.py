"""How soon things happen: a step after its inputs, a graph after its text, a run, the end after a cancel.

    python benchmarks/latency.py [--quick] [--gate] [--out FOLDER]

**What is measured**, each beside the same on bare tasks (the plan: beside pydantic alone):

- *lag*: from the return of the last tool that a step waits for to the first line of its own, in plans of 100 random
  steps of 5 to 50 ms; in real time, by the clock inside the tools;
- *makespan*: of those runs, over the critical path of the durations that the steps really had; *asked* is the same by
  the durations that they asked for, which the timers of a loop exceed under bare tasks too;
- *4 slots*: the makespan in four slots, over that of a list schedule which takes the step that has been ready for
  longest, computed from the durations of the same run;
- *check*: CPU time from the text of a plan of 1,000 steps to the checked graph, each step with three dependencies that
  it names, or refers to; and the same over what pydantic alone takes for that text;
- *start-up*: CPU time of a whole run of ten steps that do nothing, its plan checked before: in an open engine with one
  subscriber, and with `dagrun.start`, which opens an engine of its own; and over the same in a bare task group;
- *cancel*: CPU time from the cancellation of a run in which 1,000 steps wait until all of it has unwound.

**How to read it.** Each line has the figure, the same without dagrun, the aim and the must. Only ratios (x) gate;
milliseconds depend on the machine.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/latency.json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median, quantiles
from typing import Any, Final

import anyio

import baseline
import command
import dagrun
import environment
import subject
from dagrun import CheckedPlan, Event
from lags import SLOTS, Timed, by_dagrun, by_hand, in_slots, timed
from measure import Pairs, Work, measure_pairs
from shapes import SHAPES, successors
from uneven import make_uneven

STEPS: Final = 100
PLAN_STEPS: Final = 1_000
START_STEPS: Final = 10
STARTS: Final = 20  # runs of ten steps in one measurement: one alone is too short for the clock of the CPU
WAITING: Final = 1_000


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        name: What was measured.
        unit: ``ms``, or ``x`` for a ratio.
        value: Of dagrun.
        bare: The same without dagrun, where there is such a thing.
        aim: What is wanted, if anything was said.
        must: What it may not exceed; `None` where nothing is promised.
    """

    name: str
    unit: str
    value: float
    bare: float | None = None
    aim: float | None = None
    must: float | None = None

    @property
    def passed(self) -> bool:
        """Whether the must, if there is one, is kept."""
        return self.must is None or self.value <= self.must


# Measuring ------------------------------------------------------------------------------------------------------------


def measure_lags(seeds: Sequence[int], steps: int = STEPS) -> Iterator[Figure]:
    """Lag and makespan of random graphs, one for each seed; the three ways take turns."""
    graphs = [make_uneven("random3", steps, seed) for seed in seeds]

    async def main() -> list[tuple[Timed, Timed, Timed]]:
        await timed(make_uneven("random3", 10, 0), by_dagrun)  # loads what is loaded on first use
        return [(await timed(g, by_hand), await timed(g, by_dagrun), await timed(g, in_slots)) for g in graphs]

    bare, ours, slots = zip(*anyio.run(main), strict=True)
    for name, place, aim in (("lag p50", 49, 0.08), ("lag p99", 98, 0.4)):
        mine, theirs = (quantiles([lag for run in runs for lag in run.lags], n=100)[place] for runs in (ours, bare))
        yield Figure(name, "ms", 1e3 * mine, 1e3 * theirs, aim)
    yield Figure(
        "makespan / path", "x", median(r.ratio for r in ours), median(r.ratio for r in bare), aim=1.025, must=1.03
    )
    yield Figure("makespan / asked", "x", median(r.asked for r in ours), median(r.asked for r in bare), aim=1.025)
    yield Figure(f"{SLOTS} slots / listed", "x", median(run.listed for run in slots), aim=0.99, must=1.03)


def checking(case: str, steps: int, count: int) -> Pairs:
    """Pairs of reading and checking the text of a plan, and of what pydantic alone takes for it."""
    tool = subject.STEPS[case]
    toolbox = dagrun.Toolbox(tool)
    text = subject.planned(SHAPES["random3"](steps), tool).model_dump_json(exclude_unset=True)

    async def ours() -> None:
        dagrun.check(text, toolbox)

    async def base() -> None:
        dagrun.Plan.model_validate_json(text)

    return anyio.run(measure_pairs, ours, base, count)


def measure_check(count: int, steps: int = PLAN_STEPS) -> Iterator[Figure]:
    """From the text of a plan to the checked graph."""
    for case, name in (("no-op", "check, named"), ("by reference", "check, referred")):
        pairs = checking(case, steps, count)
        yield Figure(name, "ms", 1e3 * median(pairs.ours), 1e3 * median(pairs.base), aim=9.0)
        yield Figure(f"{name} / pydantic", "x", pairs.ratio, must=5.0)


async def in_engine(engine: dagrun.Engine, plan: CheckedPlan) -> None:
    """Run *plan* in *engine*, with a subscriber that keeps every event."""
    log: list[Event] = []
    result = await engine.run(plan, on_event=log.append)
    if result.status != "succeeded" or len(log) != 2 * len(plan.steps) + 2:
        raise AssertionError(f"{result.status} ({result.reason}) after {len(log)} events")


def times(work: Work, count: int) -> Work:
    """*work*, done *count* times."""

    async def run() -> None:
        for _ in range(count):
            await work()

    return run


def starting(count: int, starts: int = STARTS) -> tuple[Pairs, Pairs]:
    """Pairs of *starts* runs of ten steps and the same as bare tasks: in an open engine, and each in its own."""
    graph = SHAPES["random3"](START_STEPS)
    plan = subject.checked_plan(graph, subject.noop)
    base = times(partial(baseline.run, graph, successors(graph), subject.BARE["no-op"]), starts)

    async def main() -> tuple[Pairs, Pairs]:
        async with dagrun.Engine() as engine:
            inside, alone = times(partial(in_engine, engine, plan), starts), times(partial(subject.run, plan), starts)
            await measure_pairs(inside, base, 1)
            return await measure_pairs(inside, base, count), await measure_pairs(alone, base, count)

    return anyio.run(main)


def measure_start(count: int, starts: int = STARTS) -> Iterator[Figure]:
    """A run of ten steps that do nothing."""
    inside, alone = starting(count, starts)
    for name, pairs, aim, must in (("start-up", inside, 1.0, 1.5), ("start-up, own engine", alone, None, None)):
        milli = 1e3 / starts
        yield Figure(name, "ms", milli * median(pairs.ours), milli * median(pairs.base))
        yield Figure(f"{name} / bare", "x", pairs.ratio, aim=aim, must=must)


class Waiting:
    """Steps that wait until they are cancelled, and tell when all of them do.

    Args:
        count: How many there are.
    """

    def __init__(self, count: int) -> None:
        self.all_wait = anyio.Event()
        self._missing = count

    async def forever(self) -> None:
        """Wait until cancelled."""
        self._missing -= 1
        if not self._missing:
            self.all_wait.set()
        await anyio.sleep_forever()


async def cancel_ours(count: int) -> float:
    """CPU seconds from the cancellation of a run of *count* waiting steps to its end."""
    waiting = Waiting(count)
    plan = subject.checked_plan(SHAPES["independent"](count), dagrun.tool(effect="pure")(waiting.forever))
    async with dagrun.start(plan) as run:
        await waiting.all_wait.wait()
        began = time.process_time()
        run.cancel()
        result = await run.result()
    taken = time.process_time() - began
    if result.status != "cancelled" or {step.state for step in result.steps.values()} != {"cancelled"}:
        raise AssertionError(f"{result.status}: {result.reason}")
    return taken


async def cancel_bare(count: int) -> float:
    """The same for bare tasks."""
    waiting = Waiting(count)
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(waiting.forever)
        await waiting.all_wait.wait()
        began = time.process_time()
        tasks.cancel_scope.cancel()
    return time.process_time() - began


def cancelling(count: int, waiting: int = WAITING) -> Pairs:
    """Pairs of both."""

    async def main() -> list[tuple[float, float]]:
        await cancel_ours(10)
        return [(await cancel_bare(waiting), await cancel_ours(waiting)) for _ in range(count)]

    base, ours = zip(*anyio.run(main), strict=True)
    return Pairs(ours, base)


def measure_cancel(count: int, waiting: int = WAITING) -> Iterator[Figure]:
    """The end of a run that is cancelled."""
    pairs = cancelling(count, waiting)
    yield Figure("cancel", "ms", 1e3 * median(pairs.ours), 1e3 * median(pairs.base), aim=20.0)
    yield Figure("cancel / bare", "x", pairs.ratio)


def measure(*, quick: bool) -> Iterator[Figure]:
    """Everything."""
    yield from measure_lags(range(2 if quick else 7))
    yield from measure_check(5 if quick else 11)
    yield from measure_start(7 if quick else 15)
    yield from measure_cancel(3 if quick else 9)


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = f"{'figure':28}{'':4}{'dagrun':>9}{'without':>9}{'aim':>8}{'must':>8}"


def line_of(figure: Figure) -> str:
    """One line of the table."""
    cells = "".join(f"{'-':>8}" if one is None else f"{one:>8.3g}" for one in (figure.aim, figure.must))
    bare = f"{'-':>9}" if figure.bare is None else f"{figure.bare:>9.3f}"
    verdict = "" if figure.must is None else "  ok" if figure.passed else "  MISSED"
    return f"{figure.name:28}{figure.unit:4}{figure.value:>9.3f}{bare}{cells}{verdict}"


def as_json(figures: Sequence[Figure]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {"latency": [_rounded(figure) for figure in figures]}


def _rounded(figure: Figure) -> dict[str, Any]:
    facts = asdict(figure) | {"passed": figure.passed}
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer runs").parse_args(arguments)
    began = time.monotonic()
    print(HEAD)
    figures = []
    for figure in measure(quick=options.quick):
        print(line_of(figure), flush=True)
        figures.append(figure)
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "latency", as_json(figures))
    verdicts = [figure.passed for figure in figures if figure.must is not None]
    missed = verdicts.count(False)
    print(f"{missed} of {len(verdicts)} musts missed; {time.monotonic() - began:.0f} s")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
