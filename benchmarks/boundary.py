"""What a trust boundary costs: a check with it beside one without, and a run beside a run.

    python benchmarks/boundary.py [--quick] [--gate] [--out FOLDER]

**What is measured.** CPU time in one process, in turn, of the same random plan: a fifth of its steps reads what others
can write, a sixth acts with an argument of others that nobody guards, and the rest pass on two values of steps before.
*check* is `dagrun.check` with ``Policy(flow=Flow())``, over that with ``Policy()``; *run* is running what they gave.

**How to read it.** Both are ratios: 1.00 is no cost. A run looks at no label, so its ratio is noise around 1. With
``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/boundary.json``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import Flow, Plan, Policy, Step
from measure import Work, measure_pairs

SIZES: Final = (10, 100, 1_000)
STEPS_AT_ONCE: Final = 1_000  # in one measurement: a small plan alone is too short for the clock of the CPU
MUST_CHECK: Final = 1.03


@dagrun.tool(effect="read", untrusted=True)
async def read_file(path: str) -> str:
    """Return a text of others."""
    return path


@dagrun.tool(effect="pure")
async def extract(text: str, other: str = "") -> str:
    """Pass on a part of a text."""
    return text[:20]


@dagrun.tool(effect="effectful", needs_approval=False)
async def send(recipient: Annotated[str, dagrun.guarded], text: str = "") -> str:
    """Send a text."""
    return "sent"


TOOLS: Final = dagrun.Toolbox([read_file, extract, send])


@dataclass(frozen=True, slots=True)
class Row:
    """The cost for plans of one size.

    Attributes:
        steps: Of each plan.
        check: With a boundary, over without.
        run: The same of a run.
    """

    steps: int
    check: float
    run: float

    def misses(self) -> list[str]:
        """Say which must is missed."""
        if self.check <= MUST_CHECK:
            return []
        return [f"a check of {self.steps} steps takes {self.check:.3f} times as long, at most {MUST_CHECK} is wanted"]


def plan_of(size: int) -> Plan:
    """A plan in which data of others gets nearly everywhere, and nowhere that it must not."""
    dice, steps = random.Random(size), list[Step]()
    for number in range(size):
        kind = dice.random() if number > 2 else 0.0
        before = [f"${{s{dice.randrange(number)}}}" for _ in range(2)] if number else []
        if kind < 0.2:
            tool, args = "read_file", {"path": f"f{number}"}
        elif kind < 0.84:
            tool, args = "extract", {"text": before[0], "other": f"and {before[1]}"}
        else:
            tool, args = "send", {"recipient": f"r{number}", "text": before[0]}
        steps.append(Step(id=f"s{number}", tool=tool, args=args))
    return Plan(steps=steps)


def checking(plan: Plan, policy: Policy) -> Work:
    """The work of checking *plan* as often as fills a measurement."""

    async def work() -> None:
        for _ in range(max(1, STEPS_AT_ONCE // len(plan.steps))):
            dagrun.check(plan, TOOLS, policy=policy)

    return work


def running(plan: Plan, policy: Policy) -> Work:
    """The work of running *plan*, which is checked before."""
    checked = dagrun.check(plan, TOOLS, policy=policy)

    async def work() -> None:
        for _ in range(max(1, STEPS_AT_ONCE // len(plan.steps))):
            await dagrun.run(checked)

    return work


async def measure(sizes: Sequence[int], count: int) -> list[Row]:
    """Measure plans of these sizes, with *count* pairs for each figure."""
    rows = []
    for size in sizes:
        plan, with_it, without = plan_of(size), Policy(flow=Flow()), Policy()
        check = await measure_pairs(checking(plan, with_it), checking(plan, without), count)
        run = await measure_pairs(running(plan, with_it), running(plan, without), max(3, count // 3))
        rows.append(Row(size, check.ratio, run.ratio))
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results; return the exit code."""
    options = command.parser_of(__doc__, "fewer pairs").parse_args(arguments)
    rows: list[Row] = anyio.run(measure, SIZES, 5 if options.quick else 41)
    print("steps   check    run")
    for row in rows:
        print(f"{row.steps:5}   {row.check:.3f}  {row.run:.3f}")
    missed = [miss for row in rows for miss in row.misses()]
    print("\n".join(missed))
    if (folder := command.folder_of(options)) is not None:
        results: dict[str, Any] = {"environment": environment.describe(), "rows": [asdict(row) for row in rows]}
        command.write(folder, "boundary", results)
    return int(options.gate and bool(missed))


if __name__ == "__main__":
    sys.exit(main())
