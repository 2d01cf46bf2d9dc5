"""What checking a plan costs beside running it, and what is saved where it is checked once and run many times.

    python benchmarks/prepare.py [--quick] [--gate] [--out FOLDER]

**What is measured.** CPU time per step, beside the same steps in a bare task group (which checks nothing) in the same
process, in turn. Steps end at once; each has up to three dependencies, which it names, or refers to.

- *check*: `dagrun.check` of a `Plan`.
- *text*: `dagrun.check` of its text, which is read before.
- *new text*: reading, checking and running a text that the engine has not seen before.
- *same text*: running a text again in an engine, which checks it once. The inputs are others each time.
- *checked*: running what `dagrun.check` gave, with other inputs each time.

Of peers, *new* is building the graph and running it, *again* is running alone; as `peers.compare` measures them, for
those whose environment is there (``make bench-peers`` makes them).

*One step* is the time from the text of a plan of one step to the checked plan, in microseconds.

**How to read it.** All but *one step* are ratios to bare tasks. With ``--gate`` the exit code is 1 if a must is missed.
A full run writes ``results/prepare.json`` with a plot.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from statistics import median
from typing import Any, Final

import anyio

import baseline
import command
import dagrun
import environment
import subject
from measure import Work, cpu_seconds, measure_pairs
from shapes import SHAPES, successors

SHAPE: Final = "random3"
SIZES: Final = (10, 100, 1_000)
STEPS_AT_ONCE: Final = 1_000  # in one measurement: a small plan alone is too short for the clock of the CPU
CASES: Final = {"no-op": "named", "by reference": "referred"}
PEERS: Final = ("Hamilton", "LangGraph graph", "LangGraph @task")
ONE_STEP: Final = '{"steps": [{"id": "only", "tool": "noop"}]}'
# (case, way): the most that it may be, for plans of 100 steps or more
MUSTS: Final = {("named", "check"): 1.0, ("referred", "check"): 1.5, ("named", "checked"): 0.8}
MUST_FROM: Final = 100
MUST_ONE_STEP: Final = 150.0  # microseconds


@dataclass(frozen=True, slots=True)
class Row:
    """One way to run plans of one size.

    Attributes:
        case: Whether steps name or refer to others.
        steps: Of a plan.
        way: As the benchmark describes it.
        ratio: To bare tasks.
        must: The most that it may be, or none.
    """

    case: str
    steps: int
    way: str
    ratio: float
    must: float | None

    @property
    def passed(self) -> bool:
        """Whether the must is kept."""
        return self.must is None or self.ratio <= self.must


def plan_of(case: str, steps: int) -> dagrun.Plan:
    """The plan; where steps refer to others, the first takes an input of the run."""
    plan = subject.planned(SHAPES[SHAPE](steps), subject.STEPS[case])
    if case == "no-op":
        return plan
    first, *others = plan.steps
    return plan.model_copy(
        update={"steps": (first.model_copy(update={"args": {"parcels": "${input.parcels}"}}), *others)}
    )


def inputs_of(case: str) -> Iterator[dict[str, Any]]:
    """The inputs of one run after another; each has others."""
    for number in count():
        yield {} if case == "no-op" else {"parcels": [subject.PARCEL | {"id": f"p-{number}"}]}


async def _run(engine: dagrun.Engine, plan: Any, case: str, inputs: Iterator[dict[str, Any]]) -> None:
    given = next(inputs)
    tools = None if isinstance(plan, dagrun.CheckedPlan) else [subject.STEPS[case]]
    result = await engine.run(plan, tools=tools, inputs=given)
    if result.status != "succeeded":
        raise AssertionError(f"{result.status}: {result.reason}")


def ways_of(engine: dagrun.Engine, case: str, steps: int) -> dict[str, Work]:
    """What is done once for each plan, by the name of the way."""
    tool, plan, inputs = subject.STEPS[case], plan_of(case, steps), inputs_of(case)
    toolbox, text = dagrun.Toolbox(tool), plan_of(case, steps).model_dump_json(exclude_unset=True)
    fresh = (text[:-1] + " " * number + "}" for number in count(1))  # another text, of the same plan

    async def check(what: dagrun.Plan | str) -> None:
        dagrun.check(what, toolbox)

    async def run_new() -> None:
        await _run(engine, next(fresh), case, inputs)

    return {
        "check": partial(check, plan),
        "text": partial(check, text),
        "new text": run_new,
        "same text": partial(_run, engine, text, case, inputs),
        "checked": partial(_run, engine, dagrun.check(plan, toolbox), case, inputs),
    }


async def measure_case(case: str, steps: int, pairs: int) -> list[Row]:
    """One row for each way."""
    shape = SHAPES[SHAPE](steps)
    times = max(1, STEPS_AT_ONCE // steps)
    base = _times(partial(baseline.run, shape, successors(shape), subject.BARE[case]), times)
    rows, name = [], CASES[case]
    async with dagrun.Engine() as engine:
        for way, work in ways_of(engine, case, steps).items():
            await work()
            ratio = (await measure_pairs(_times(work, times), base, pairs)).ratio
            must = MUSTS.get((name, way)) if steps >= MUST_FROM else None
            rows.append(Row(name, steps, way, round(ratio, 4), must))
    return rows


def _times(work: Work, number: int) -> Work:
    async def done() -> None:
        for _ in range(number):
            await work()

    return done


def one_step(rounds: int) -> float:
    """Microseconds from the text of a plan of one step to the checked plan."""
    toolbox = dagrun.Toolbox(subject.noop)

    async def check() -> None:
        dagrun.check(ONE_STEP, toolbox)

    async def measured() -> float:
        return median([await cpu_seconds(_times(check, 100)) for _ in range(rounds)])

    return round(1e6 * anyio.run(measured) / 100, 1)


def measure_peers() -> Iterator[dict[str, Any]]:
    """A row for each size of each peer whose environment is there."""
    from peers.compare import FULL, measure_cost
    from peers.registry import PEERS as ALL

    rows = (row for peer in ALL if peer.name in PEERS for row in measure_cost(peer, FULL))
    for row in rows:
        if row["shape"] == SHAPE and "ratio" in row:
            yield {"peer": row["peer"], "steps": row["steps"], "new": row["ratio"], "again": row["running"]}


def line_of(row: Row) -> str:
    """One line of the table."""
    must = "" if row.must is None else f"{row.must:>6}{'' if row.passed else '  MISSED'}"
    return f"{row.case:10}{row.steps:>7,}  {row.way:12}{row.ratio:>7.2f}{must}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the results."""
    options = command.parser_of(__doc__, "plans of 10 steps, one pair").parse_args(arguments)
    sizes, pairs = ((10,), 1) if options.quick else (SIZES, 9)
    print(f"{'steps':10}{'':>7}  {'way':12}{'x':>7}{'must':>6}")
    rows: list[Row] = []
    for case in CASES:
        for steps in sizes:
            mine = anyio.run(measure_case, case, steps, pairs)
            rows += mine
            print(*map(line_of, mine), sep="\n", flush=True)
    micro = one_step(3 if options.quick else 30)
    is_soon = micro <= MUST_ONE_STEP
    print(f"one step: {micro:.0f} us (must {MUST_ONE_STEP:.0f}){'' if is_soon else '  MISSED'}")
    peers = [] if options.quick else list(measure_peers())
    for row in peers:
        print(f"{row['peer']:17}{row['steps']:>5,}  new {row['new']:.2f}, again {row['again']:.2f}")
    if (folder := command.folder_of(options)) is not None:
        from plot_prepare import draw_prepare

        results = environment.describe() | {"prepare": [asdict(row) for row in rows], "one_step": micro, "peers": peers}
        command.write(folder, "prepare", results)
        draw_prepare(results, folder / "prepare")
    return 1 if options.gate and not (is_soon and all(row.passed for row in rows)) else 0


if __name__ == "__main__":
    sys.exit(main())
