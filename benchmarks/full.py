"""Plans of up to 100,000 steps: what a step costs, what it takes of memory, and how long the loop stands still.

    python benchmarks/full.py [--quick] [--gate] [--out FOLDER]

**What is measured.** A chain and a fan of 10,000 and of 100,000 no-op steps, made as `Plan` and `Step` objects, checked
and run by `dagrun.start`: the engine alone, without a journal and without a subscriber. Each in a process of its own,
beside a task that wants its turn every millisecond; in several rounds over both sizes. The figures of memory and lag
are medians. Those of CPU time are means, with more rounds of the smaller size: where another guest of the same hardware
slows a processor down for half a second now and then, a run of 100,000 steps mostly gets its share of that, and a run
of 10,000 steps, a tenth as long, mostly does not. The medians would differ by it, the means do not.

- *build*: making the objects, which is the host's own work and gates nothing; *open*: from the call of `start` to the
  run, its check included; *run*: from there to its result. CPU microseconds per step.
- *growth*: the exponent k of CPU time = c * steps ** k, of open and run together; 1 is linear. It is only
  shown: from 10,000 steps on, Python's collector looks at ever more objects. ``overhead.py`` has a must up to 10,000.
- *memory*: the growth of the peak of the process from before the plan is made, in bytes per step.
- *lag*: the most CPU time that the process took between two turns of that task, in milliseconds: for so long nothing
  else in the loop would have got its turn. It is CPU time, so that other processes do not count; work in a thread
  does, although the loop gets its turn beside it: the figure is an upper bound. Must: 20 ms at 10,000 steps. Nothing
  is promised beyond.

Then a chain of 100,000 steps (quick: 10,000), each of which hands on a text of 1,000 characters, run with
``release_outputs`` off (*kept*) and on (*released*): CPU microseconds per step of the whole, and the growth of the peak
as above. What both differ by is what the outputs take. Must: 800 bytes per step.

Last, a chain and a fan of 10,000 steps are cancelled while their first step is at work, or that step fails: CPU
microseconds per step until the run has ended, and the lag as above, with the same must.

With ``--gate`` the exit code is 1 if a must is missed. A full run takes five minutes and 1 GB, and writes
``results/full.json``; a quick one is one round, and takes less than a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

import anyio

import command
import dagrun
import environment
import memory
from measure import growth_exponent
from shapes import SHAPES
from stopped import Stopped, measure_stopped
from subject import noop
from ticker import Ticker

GRAPHS: Final = ("chain", "fan")
HANDED_ON: Final = 100_000
QUICKLY_HANDED_ON: Final = 10_000
TEXT: Final = 1_000  # characters that each step hands on
LEAST_SAVED: Final = 800.0  # of their bytes
SIZES: Final = (10_000, 100_000)
STOPPED: Final = 10_000
ENDS: Final = ("cancelled", "failed")
ROUNDS: Final = {10_000: 30, 100_000: 10}
CPU_TIMES: Final = ("build", "open", "run")
MAX_LAG: Final = 20.0  # up to `SIZES[0]` steps


@dataclass(frozen=True, slots=True)
class Row:
    """One shape of one size.

    Attributes:
        shape: In `shapes.SHAPES`.
        steps: How many.
        build: Making the objects of the plan; CPU microseconds per step, like what follows.
        open: Checking it, and beginning to run it.
        run: Running it.
        bytes: Of memory, per step, at most.
        lag_open: The longest that the loop stood still until the run had begun, in milliseconds.
        lag_run: The same from there to its end.
    """

    shape: str
    steps: int
    build: float
    open: float
    run: float
    bytes: float
    lag_open: float
    lag_run: float

    @property
    def lag(self) -> float:
        """The longer of the two lags."""
        return max(self.lag_open, self.lag_run)


@dataclass(frozen=True, slots=True)
class Held:
    """A chain whose steps hand on a text, with its outputs kept or released.

    Attributes:
        outputs: ``kept`` or ``released``.
        steps: How many.
        cpu: To check it and to run it; microseconds per step.
        bytes: Of memory, per step, at most.
    """

    outputs: str
    steps: int
    cpu: float
    bytes: float


@dataclass(frozen=True, slots=True)
class Growth:
    """How the CPU time of one shape grows, from its check to its end."""

    shape: str
    sizes: tuple[int, ...]
    exponent: float


def measure(shape: str, count: int) -> Row:
    """Measure one shape of one size, in this process."""
    anyio.run(_run, dagrun.Plan(steps=[dagrun.Step(id="one", tool=noop.name)]))  # loads what is loaded on first use
    graph = SHAPES[shape](count)
    before, began = memory.peak(), time.process_time()
    plan = dagrun.Plan(steps=[dagrun.Step(id=id_, tool=noop.name, depends_on=needs) for id_, needs in graph.items()])
    build = time.process_time() - began
    opened, ran, lag_open, lag_run = anyio.run(_run, plan)
    micro = 1e6 / count
    grown = (memory.peak() - before) / count
    return Row(shape, count, build * micro, opened * micro, ran * micro, grown, lag_open, lag_run)


async def _run(plan: dagrun.Plan) -> tuple[float, float, float, float]:
    """CPU seconds to open and to run *plan*; and the lag of each, in milliseconds."""
    ticker = Ticker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ticker.tick)
        await anyio.sleep(0.01)
        ticker.take()
        began = time.process_time()
        async with dagrun.start(plan, tools=[noop]) as running:
            opened = time.process_time()
            await anyio.sleep(0.002)
            lag_open = ticker.take()
            result = await running.result()
            ended = time.process_time()
            if result.status != "succeeded" or len(result.steps) != len(plan.steps):
                raise AssertionError(f"{result.status} ({result.reason}) after {len(result.steps)} steps")
            await anyio.sleep(0.002)
            lag_run = ticker.take()
        tasks.cancel_scope.cancel()
    return opened - began, ended - opened, lag_open, lag_run


@dagrun.tool(effect="pure")
async def write(number: int, before: str = "") -> str:
    """Give a text that no other step gives."""
    return f"{number:0{TEXT}}"


def measure_outputs(outputs: str, count: int) -> Held:
    """Measure a chain that hands on texts, in this process."""
    policy = dagrun.Policy(release_outputs=outputs == "released")
    anyio.run(_hand_on, _texts(2), policy)  # loads what is loaded on first use
    before = memory.peak()
    plan = _texts(count)
    began = time.process_time()
    anyio.run(_hand_on, plan, policy)
    return Held(outputs, count, (time.process_time() - began) * 1e6 / count, (memory.peak() - before) / count)


def _texts(count: int) -> dagrun.Plan:
    steps = [dagrun.Step(id="s0", tool=write.name, args={"number": 0})]
    for number in range(1, count):
        args = {"number": number, "before": f"${{s{number - 1}}}"}
        steps.append(dagrun.Step(id=f"s{number}", tool=write.name, args=args))
    return dagrun.Plan(steps=steps)


async def _hand_on(plan: dagrun.Plan, policy: dagrun.Policy) -> None:
    result = await dagrun.run(plan, tools=[write], policy=policy)
    if result.output != f"{len(plan.steps) - 1:0{TEXT}}":
        raise AssertionError(f"{result.status} ({result.reason}), with another output")


def is_short(lag: float, steps: int) -> bool:
    """Whether the loop stood still for no longer than it may, in a run of so many *steps*."""
    return lag <= MAX_LAG or steps > SIZES[0]


def saved_by(held: Sequence[Held]) -> float:
    """Bytes per step that are saved by releasing outputs."""
    found = {one.outputs: one.bytes for one in held}
    return found["kept"] - found["released"]


def held_apart(outputs: str, count: int) -> Held:
    """`measure_outputs` in a process of its own."""
    return Held(**_apart(outputs, count))


def stopped_apart(shape: str, how: str, count: int) -> Stopped:
    """`measure_stopped` in a process of its own."""
    return Stopped(**_apart(f"{shape} {how}", count))


def measure_apart(shape: str, count: int) -> Row:
    """The same in a process of its own: memory that another run has given back would hide what this one takes."""
    return Row(**_apart(shape, count))


def _apart(what: str, count: int) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), "--one", what, str(count)]
    found = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # it imports what this process would
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=found).stdout
    found_there: dict[str, Any] = json.loads(text)
    return found_there


def rounds(shape: str, sizes: Sequence[int], *, is_quick: bool) -> list[Row]:
    """Measure one shape in all *sizes*, in rounds, of which those of each size are spread evenly; by size."""
    found: dict[int, list[Row]] = {count: [] for count in sizes}
    most = max(ROUNDS.values())
    for number in range(1 if is_quick else most):
        for count in sizes:
            if number % (most // ROUNDS.get(count, most)) == 0:
                found[count].append(measure_apart(shape, count))
    return [middle_of(rows) for rows in found.values()]


def middle_of(rows: Sequence[Row]) -> Row:
    """The mean of each CPU time, and the median of each other figure."""
    found: dict[str, Any] = {name: fmean(getattr(row, name) for row in rows) for name in CPU_TIMES}
    found |= {name: median(getattr(row, name) for row in rows) for name in ("bytes", "lag_open", "lag_run")}
    return replace(rows[0], **found)


def growth_of(rows: Sequence[Row]) -> list[Growth]:
    """The growth of each shape that was measured in more than one size."""
    found = []
    for shape in dict.fromkeys(row.shape for row in rows):
        mine = [row for row in rows if row.shape == shape]
        if len(mine) > 1:
            sizes = tuple(row.steps for row in mine)
            found.append(Growth(shape, sizes, growth_exponent(sizes, [(r.open + r.run) * r.steps for r in mine])))
    return found


# Showing ----------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'shape':8}{'steps':>10}{'μs/step build':>15}{'open':>8}{'run':>8}{'bytes/step':>12}{'lag ms open':>13}{'run':>8}"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    figures = (
        f"{row.build:>15.1f}{row.open:>8.1f}{row.run:>8.1f}{row.bytes:>12,.0f}{row.lag_open:>13.1f}{row.lag_run:>8.1f}"
    )
    return f"{row.shape:8}{row.steps:>10,}{figures}  {_verdict(is_short(row.lag, row.steps))}"


def growth_line(growth: Growth) -> str:
    """The exponent of one shape."""
    sizes = f"{growth.sizes[0]:,} to {growth.sizes[-1]:,}"
    return f"{growth.shape:8}growth, {sizes}: {growth.exponent:.3f}"


def held_lines(held: Sequence[Held]) -> list[str]:
    """What outputs take, and what is saved by releasing them."""
    saved = saved_by(held)
    lines = [f"{one.outputs:10}{one.steps:>8,}{one.cpu:>15.1f}{one.bytes:>12,.0f}" for one in held]
    head = f"{'outputs':10}{'steps':>8}{'μs/step':>15}{'bytes/step':>12}"
    return [head, *lines, f"saved of {TEXT:,} bytes: {saved:,.0f}  {_verdict(saved >= LEAST_SAVED)}"]


def stopped_lines(stopped: Sequence[Stopped]) -> list[str]:
    """What it takes to end early."""
    lines = [f"{'shape':8}{'ended':10}{'steps':>10}{'μs/step':>15}{'lag ms':>8}"]
    for one in stopped:
        verdict = _verdict(is_short(one.lag, one.steps))
        lines.append(f"{one.shape:8}{one.how:10}{one.steps:>10,}{one.cpu:>15.1f}{one.lag:>8.1f}  {verdict}")
    return lines


def _verdict(is_kept: bool) -> str:
    return "ok" if is_kept else "MISSED"


def as_json(
    rows: Sequence[Row], growth: Sequence[Growth], held: Sequence[Held], stopped: Sequence[Stopped]
) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {
        "musts": {"lag_ms": MAX_LAG, "saved_bytes": LEAST_SAVED},
        "rows": [_rounded(asdict(row) | {"passed": is_short(row.lag, row.steps)}) for row in rows],
        "growth": [_rounded(asdict(one)) for one in growth],
        "outputs": [_rounded(asdict(one)) for one in held],
        "stopped": [_rounded(asdict(one) | {"passed": is_short(one.lag, one.steps)}) for one in stopped],
    }


def _rounded(facts: dict[str, Any]) -> dict[str, Any]:
    return {key: round(value, 3) if isinstance(value, float) else value for key, value in facts.items()}


def _measure_one(what: str, count: int) -> Row | Held | Stopped:
    if what in SHAPES:
        return measure(what, count)
    shape, _, how = what.partition(" ")
    return measure_stopped(shape, how, count) if how else measure_outputs(what, count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    parser = command.parser_of(__doc__, "one round, within a minute")
    parser.add_argument("--one", nargs=2, metavar=("SHAPE", "STEPS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.one:
        what, count = options.one[0], int(options.one[1])
        print(json.dumps(asdict(_measure_one(what, count))))
        return 0
    print(HEAD, flush=True)
    rows: list[Row] = []
    for shape in GRAPHS:
        measured = rounds(shape, SIZES, is_quick=options.quick)
        print(*map(line_of, measured), sep="\n", flush=True)
        rows += measured
    growth = growth_of(rows)
    print(*map(growth_line, growth), sep="\n", flush=True)
    size = QUICKLY_HANDED_ON if options.quick else HANDED_ON
    held = [held_apart(outputs, size) for outputs in ("kept", "released")]
    print(*held_lines(held), sep="\n", flush=True)
    stopped = [stopped_apart(shape, how, STOPPED) for shape in GRAPHS for how in ENDS]
    print(*stopped_lines(stopped), sep="\n", flush=True)
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "full", as_json(rows, growth, held, stopped))
    verdicts = [is_short(row.lag, row.steps) for row in rows] + [is_short(one.lag, one.steps) for one in stopped]
    verdicts.append(saved_by(held) >= LEAST_SAVED)
    print(f"{verdicts.count(False)} of {len(verdicts)} musts missed")
    return 1 if options.gate and not all(verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
