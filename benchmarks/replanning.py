"""What a failure in one branch costs the others while a planner thinks about it: nothing.

    python benchmarks/replanning.py [--quick] [--gate] [--out FOLDER]

**What is measured.** A plan of 200 independent branches, each a chain of ten steps that sleep for 0.1 to 0.5 s, is run
twice, in turn: as it is, and with one step of the first branch failing. Then a planner is asked, thinks for 2 s, and
puts a substitute in its place, while the other 199 branches run. The figure is the makespan of those 199: when the last
of them ended, as the median of three pairs. On virtual time, where a step takes as long as it says to the last digit,
every step of the unaffected branches must start and end at the very same instant in both runs.

**How to read it.** *Change* is by how much the unaffected branches took longer, in percent; below zero they were
faster, which is the noise of the machine. *Shift* is the largest delay of any of their 1,990 steps. *Branch* is when
the branch with the failure ended: later by what the planner took.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/replanning.json``.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from statistics import median
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import Brief, Patch, Plan, Replace, RunResult, Step, tool
from dagrun.testing import run_virtual

BRANCHES: Final = 200
LENGTH: Final = 10
SHORTEST, LONGEST = 0.1, 0.5  # seconds
THINKING: Final = 2.0  # seconds
MUST: Final = 1.0  # percent, in real time
BACKENDS: Final = ("asyncio", "trio")
BROKEN: Final = "b0-2"


@tool(effect="read")
async def work(seconds: float) -> float:
    """Sleep."""
    await anyio.sleep(seconds)
    return seconds


@tool(effect="read")
async def breaks(seconds: float) -> float:
    """Sleep, and fail."""
    await anyio.sleep(seconds)
    raise ValueError("the source has changed")


@cache
def make_plan(*, is_broken: bool) -> Plan:
    """Make the plan; equal durations whether a step of it is to fail or not."""
    rng = random.Random("replanning")
    steps = []
    for branch in range(BRANCHES):
        for place in range(LENGTH):
            id_ = f"b{branch}-{place}"
            called = breaks.name if is_broken and id_ == BROKEN else work.name
            needs = [f"b{branch}-{place - 1}"] if place else []
            steps.append(Step(id=id_, tool=called, args={"seconds": rng.uniform(SHORTEST, LONGEST)}, depends_on=needs))
    return Plan(steps=steps)


class Repairs:
    """A planner that thinks, and then puts the working tool in the place of the broken one."""

    async def revise(self, brief: Brief) -> Patch:
        """Answer *brief*."""
        await anyio.sleep(THINKING)
        [trigger] = brief.triggers
        again = brief.steps[trigger.step].step.model_copy(update={"id": f"{trigger.step}-again", "tool": work.name})
        return Patch(edits=[Replace(id=trigger.step, step=again)], reason="the other tool still works")


async def run_once(*, is_broken: bool) -> RunResult:
    """Run the plan; it succeeds, repaired or not."""
    plan = dagrun.check(make_plan(is_broken=is_broken), tools=[work, breaks])
    result = await dagrun.run(plan, planner=Repairs())
    return result.raise_for_status()


def times_of(result: RunResult) -> dict[str, tuple[float | None, float | None]]:
    """When each step of the unaffected branches started and ended, in seconds since the start of the run."""
    return {id_: (step.started, step.ended) for id_, step in result.steps.items() if not id_.startswith("b0-")}


def makespan_of(times: dict[str, tuple[float | None, float | None]]) -> float:
    """When the last of them ended."""
    return max(ended or 0.0 for _, ended in times.values())


@dataclass(frozen=True, slots=True)
class Pair:
    """The same plan with and without the failure. All times are in seconds.

    Attributes:
        clock: ``real``, or ``virtual`` on which backend.
        without: The makespan of the unaffected branches in the run without a failure.
        with_failure: The same in the run with one.
        shift: The largest difference of any start or end of their steps.
        branch: When the branch with the failure ended.
    """

    clock: str
    without: float
    with_failure: float
    shift: float
    branch: float

    @property
    def change(self) -> float:
        """By how much the unaffected branches took longer, in percent."""
        return 100 * (self.with_failure - self.without) / self.without


def pair_of(clock: str, whole: RunResult, broken: RunResult) -> Pair:
    """Compare two runs."""
    before, after = times_of(whole), times_of(broken)
    shift = max(abs((a or 0.0) - (b or 0.0)) for id_ in before for a, b in zip(before[id_], after[id_], strict=True))
    branch = broken.steps[f"b0-{LENGTH - 1}"].ended or 0.0
    return Pair(clock, makespan_of(before), makespan_of(after), shift, branch)


def measure(count: int) -> Iterator[Pair]:
    """Compare on virtual time, and then *count* times in real time."""
    for backend in BACKENDS:
        runs = [run_virtual(partial(run_once, is_broken=broken), backend=backend) for broken in (False, True)]
        yield pair_of(f"virtual, {backend}", runs[0], runs[1])
    for _ in range(count):
        whole, broken = anyio.run(partial(run_once, is_broken=False)), anyio.run(partial(run_once, is_broken=True))
        yield pair_of("real", whole, broken)


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = f"{'clock':18}{'without':>12}{'with':>12}{'change':>12}{'shift':>12}{'branch':>12}"


def line_of(pair: Pair) -> str:
    """One line of the table."""
    seconds = f"{pair.without:>10.4f} s{pair.with_failure:>10.4f} s"
    return f"{pair.clock:18}{seconds}{pair.change:>10.4f} %{pair.shift * 1000:>9.3f} ms{pair.branch:>10.4f} s"


def _shown(pairs: Iterator[Pair]) -> Iterator[Pair]:
    """Print each pair as soon as it is there."""
    for pair in pairs:
        print(line_of(pair), flush=True)
        yield pair


def verdicts(pairs: Sequence[Pair]) -> dict[str, bool]:
    """Which musts are kept: exactly nothing on virtual time, and less than 1 % in real time."""
    real = [pair.change for pair in pairs if pair.clock == "real"]
    virtual = [pair for pair in pairs if pair.clock != "real"]
    kept = {"virtual": all(pair.shift == 0 and pair.change == 0 for pair in virtual)}
    return kept | ({"real": median(real) < MUST} if real else {})


def as_json(pairs: Sequence[Pair]) -> dict[str, Any]:
    """The results as they are kept."""
    return environment.describe() | {
        "plan": {"branches": BRANCHES, "length": LENGTH, "seconds": [SHORTEST, LONGEST], "thinking": THINKING},
        "must_percent": MUST,
        "pairs": [{k: v if isinstance(v, str) else round(v, 6) for k, v in asdict(p).items()} for p in pairs],
        "change_percent": round(median(pair.change for pair in pairs if pair.clock == "real"), 4),
        "passed": verdicts(pairs),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "one pair in real time").parse_args(arguments)
    print(HEAD)
    pairs = list(_shown(measure(1 if options.quick else 3)))
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "replanning", as_json(pairs))
    kept = verdicts(pairs)
    print("; ".join(f"{clock} time: {'ok' if passed else 'MISSED'}" for clock, passed in kept.items()))
    return 1 if options.gate and not all(kept.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
