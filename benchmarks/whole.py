"""What a whole job costs beside its steps as bare tasks: steps built, checked and run, outputs read.

    python benchmarks/whole.py [--quick] [--gate] [--out FOLDER]

**What is measured.** CPU time of a job, and of its parts, beside the same steps in a bare task group in the same
process, in turn. Each step takes the outputs of others as a dict under their ids, so that no two steps have the same
shape: a check can remember no step as a whole.

- *random3*: each step takes three earlier ones, drawn from all.
- *near*: each step takes up to three of the last fifty, 1.5 on average.

**How to read it.** All figures are ratios to the bare tasks, which check nothing. With ``--gate`` the exit code is 1
if a must is missed. A full run writes ``results/whole.json``.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from measure import cpu_seconds
from shapes import Dependencies, successors

SIZES: Final = (100, 1_000)
WINDOW: Final = 50
PARTS: Final = ("build", "check", "run", "read")
MUSTS: Final = {"random3": 2.2, "near": 2.0}  # of the whole
MUST_CHECK: Final = 0.8


@dataclass(frozen=True, slots=True)
class Row:
    """One graph.

    Attributes:
        shape: Of it.
        steps: Of it.
        whole: The whole job, as a ratio to bare tasks; likewise its parts.
        build: The plan is built.
        check: It is checked.
        run: It is run.
        read: The outputs are read.
    """

    shape: str
    steps: int
    whole: float
    build: float
    check: float
    run: float
    read: float

    @property
    def passed(self) -> bool:
        """Whether the musts are kept."""
        return self.whole <= MUSTS[self.shape] and self.check <= MUST_CHECK


def graph_of(shape: str, steps: int) -> Dependencies:
    """The steps that each step takes outputs of, in the order of the plan."""
    rng, ids = random.Random(7), [f"s{number}" for number in range(steps)]

    def needs(place: int) -> tuple[str, ...]:
        if shape == "random3":
            return tuple(sorted(rng.sample(ids[:place], min(place, 3))))
        return tuple(sorted(rng.sample(ids[max(0, place - WINDOW) : place], min(place, rng.randint(0, 3)))))

    return {id_: needs(place) for place, id_ in enumerate(ids)}


async def step(inputs: Mapping[str, int]) -> int:
    """What a step does."""
    return 1 + max(inputs.values(), default=0)


@dagrun.tool(effect="pure")
async def call(id: str, inputs: dict[str, Any]) -> Any:
    """Do one step."""
    return await step(inputs)


async def bare(graph: Dependencies) -> dict[str, int]:
    """Run the steps as tasks of anyio, each as soon as what it takes is there."""
    left, after, outputs = {id_: len(needs) for id_, needs in graph.items()}, successors(graph), dict[str, int]()
    async with anyio.create_task_group() as tasks:

        async def run(id_: str) -> None:
            outputs[id_] = await step({need: outputs[need] for need in graph[id_]})
            for other in after[id_]:
                left[other] -= 1
                if not left[other]:
                    tasks.start_soon(run, other)

        for id_ in [id_ for id_, count in left.items() if not count]:
            tasks.start_soon(run, id_)
    return outputs


async def whole(graph: Dependencies, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Do the job with dagrun; the CPU time of each part joins its list in *seconds*."""
    marks = [time.process_time()]
    args = {id_: {"id": id_, "inputs": {need: f"${{{need}}}" for need in needs}} for id_, needs in graph.items()}
    plan = dagrun.Plan(steps=[dagrun.Step(id=id_, tool="call", args=given) for id_, given in args.items()])
    marks.append(time.process_time())
    checked = dagrun.check(plan, [call])
    marks.append(time.process_time())
    result = await dagrun.run(checked)
    marks.append(time.process_time())
    outputs = {id_: step.output for id_, step in result.steps.items()}
    marks.append(time.process_time())
    for part, begin, end in zip(PARTS, marks, marks[1:], strict=False):
        seconds.setdefault(part, []).append(end - begin)
    return outputs


async def measure_row(shape: str, steps: int, pairs: int) -> Row:
    """Do both in turn, and compare the medians."""
    graph, seconds = graph_of(shape, steps), dict[str, list[float]]()

    async def base() -> None:
        await bare(graph)

    async def ours() -> None:
        await whole(graph, seconds)

    if await bare(graph) != await whole(graph, {}):
        raise AssertionError("the outputs differ")
    both = [(await cpu_seconds(base), await cpu_seconds(ours)) for _ in range(pairs)]
    bottom = median(first for first, _ in both)
    parts = {part: round(median(seconds[part]) / bottom, 3) for part in PARTS}
    return Row(shape, steps, round(median(second for _, second in both) / bottom, 3), **parts)


def line_of(row: Row) -> str:
    """One line of the table."""
    parts = "".join(f"{getattr(row, part):>7.2f}" for part in PARTS)
    return f"{row.shape:9}{row.steps:>6,}{row.whole:>7.2f}{parts}{'' if row.passed else '  MISSED'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the results."""
    options = command.parser_of(__doc__, "plans of 100 steps, three pairs").parse_args(arguments)
    print(f"{'graph':9}{'steps':>6}{'whole':>7}" + "".join(f"{part:>7}" for part in PARTS))
    rows = []
    for shape in MUSTS:
        for steps in SIZES[: 1 if options.quick else None]:
            rows.append(anyio.run(measure_row, shape, steps, 3 if options.quick else 31 if steps < 500 else 11))
            print(line_of(rows[-1]), flush=True)
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "whole", environment.describe() | {"whole": [asdict(row) for row in rows]})
    return 1 if options.gate and not all(row.passed for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
