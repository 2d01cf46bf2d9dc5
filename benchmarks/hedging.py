"""What a second call beside a slow one is worth, and what it costs.

    python benchmarks/hedging.py [--quick] [--gate] [--out FOLDER]

**What is measured.** Every call of a tool takes 80 to 120 ms, and one in twenty takes ten times as long. A pipeline of
such calls is run many times in one engine, without ``Policy.hedge`` and with it (its defaults: after the 95th
percentile of the tool, at most one more call, only where the end of the run waits for it). The first call of a step
takes the same time in both. The clock is virtual, so the figures are exact and the same on every machine.

- *p50*, *p95*, *p99*: of the makespan, in milliseconds, without and with.
- *extra*: calls that were made besides, in percent of those of the plan.

**How to read it.** The gain is in the tail: of one call in p99, of more calls sooner. Where a run waits for many, some
call is slow twice so often that p99 gains little. The last rows are cases with nothing to gain: a longer branch beside
the slow call, a tool all of whose calls have become slow, and a limit that leaves no room while others wait.

With ``--gate`` the exit code is 1 if the percentile that should gain (named at the end of the row) is above 0.6 of what
it was, or if more than 15 % extra calls were made. A full run writes ``results/hedging.json``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import HedgeRule, Plan, Policy, Step
from dagrun.testing import run_virtual

SHORTEST, LONGEST = 0.08, 0.12  # seconds
STRAGGLERS: Final = 0.05  # of all calls
FACTOR: Final = 10.0
WARM_UP: Final = 100  # runs before the figures count: the engine learns how long the calls take
MUST_GAIN: Final = 0.6
MUST_EXTRA: Final = 15.0  # percent

CALLS: Counter[str] = Counter()  # of each step of each run


def seconds_of(name: str, number: int, straggles: float = STRAGGLERS) -> float:
    """How long call *number* of the step *name* takes: the same in every comparison."""
    chance = Random(f"{name} {number}")
    usual = chance.uniform(SHORTEST, LONGEST)
    return usual * FACTOR if chance.random() < straggles else usual


@dagrun.tool(effect="read")
async def search(name: str, straggles: float = STRAGGLERS) -> str:
    """Look something up; now and then that takes long."""
    CALLS[name] += 1
    await anyio.sleep(seconds_of(name, CALLS[name], straggles))
    return name


@dagrun.tool(effect="read")
async def ponder(seconds: float) -> None:
    """Take as long as always."""
    await anyio.sleep(seconds)


def single(run: str) -> list[Step]:
    """One call."""
    return [_search(run, "s0")]


def chain(run: str, length: int = 5) -> list[Step]:
    """Calls one after another."""
    return [_search(run, f"s{i}", [f"s{i - 1}"] if i else []) for i in range(length)]


def fan(run: str, width: int = 8) -> list[Step]:
    """Calls at the same time, and one that waits for them all."""
    return [_search(run, f"s{i}") for i in range(width)] + [_search(run, "join", [f"s{i}" for i in range(width)])]


def wide(run: str) -> list[Step]:
    """Forty calls at the same time."""
    return [_search(run, f"s{i}") for i in range(40)]


def beside(run: str) -> list[Step]:
    """One call beside a branch that takes longer than any straggler."""
    return [_search(run, "s0"), Step(id="long", tool="ponder", args={"seconds": 2.0})]


def all_slow(run: str) -> list[Step]:
    """Calls of which every one is slow, after the tool was learned as fast."""
    is_warm = run.startswith("warm")
    return [_search(run, f"s{i}", straggles=STRAGGLERS if is_warm else 1.0) for i in range(8)]


def _search(run: str, id_: str, before: Sequence[str] = (), straggles: float = STRAGGLERS) -> Step:
    args = {"name": f"{run} {id_}", "straggles": straggles}
    return Step(id=id_, tool="search", args=args, depends_on=list(before))


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline.

    Attributes:
        name: Of it.
        make: Its steps, for a run of a name.
        slots: Steps that run at once; `None` for no limit.
        part: The percentile of the makespan that should gain; `None` if none should. The more calls a run waits for,
            the more often one of them is slow twice, which a second call cannot help.
    """

    name: str
    make: Callable[[str], list[Step]]
    slots: int | None = None
    part: float | None = None


CASES: Final = (
    Case("one call", single, part=0.99),
    Case("chain of 5", chain, part=0.95),
    Case("8 and a join", fan, part=0.95),
    Case("40 at once", wide, part=0.5),
    Case("40, 4 slots", wide, 4),
    Case("beside 2 s", beside),
    Case("all slow now", all_slow),
)


@dataclass(frozen=True, slots=True)
class Row:
    """One case: milliseconds, each without and with, and percent."""

    case: str
    runs: int
    p50: tuple[float, float]
    p95: tuple[float, float]
    p99: tuple[float, float]
    extra: float
    part: float | None

    @property
    def passed(self) -> bool:
        """Whether the musts are kept."""
        if self.part is None:
            return self.extra <= MUST_EXTRA
        without, hedged = {0.5: self.p50, 0.95: self.p95, 0.99: self.p99}[self.part]
        return self.extra <= MUST_EXTRA and hedged <= MUST_GAIN * without


async def makespans(case: Case, count: int, rule: HedgeRule | None) -> tuple[list[float], float]:
    """Run *case* that often in one engine; give the makespans in seconds, sorted, and the calls per step."""
    CALLS.clear()
    policy = Policy(max_running=case.slots, hedge=rule)
    found, planned, before = [], 0, 0
    async with dagrun.Engine(policy=policy) as engine:
        for number in range(-WARM_UP, count):
            if number == 0:
                before = CALLS.total()
            steps = case.make(f"warm {number}" if number < 0 else str(number))
            result = (await engine.run(Plan(steps=steps), tools=[search, ponder])).raise_for_status()
            if number >= 0:
                found.append(result.makespan)
                planned += sum(step.tool == "search" for step in steps)
    return sorted(found), (CALLS.total() - before) / planned


def measure_row(case: Case, count: int) -> Row:
    """Measure one case."""
    without, _ = run_virtual(partial(makespans, case, count, None))
    hedged, calls = run_virtual(partial(makespans, case, count, HedgeRule()))

    def both(part: float) -> tuple[float, float]:
        place = int(part * (count - 1))
        return without[place] * 1e3, hedged[place] * 1e3

    return Row(case.name, count, both(0.5), both(0.95), both(0.99), (calls - 1) * 100, case.part)


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'milliseconds':14}{'p50 without':>12}{'with':>7}{'p95 without':>13}{'with':>7}{'p99 without':>13}{'with':>7}"
    f"{'extra':>9}"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    figures = f"{row.p50[0]:>12.0f}{row.p50[1]:>7.0f}{row.p95[0]:>13.0f}{row.p95[1]:>7.0f}"
    tail = f"{row.p99[0]:>13.0f}{row.p99[1]:>7.0f}{row.extra:>7.1f} %"
    wanted = "no gain wanted" if row.part is None else f"p{100 * row.part:.0f}"
    verdict = f"{wanted}: {'ok' if row.passed else 'MISSED'}"
    return f"{row.case:14}{figures}{tail}  {verdict}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer runs").parse_args(arguments)
    print(HEAD)
    rows = []
    for case in CASES:
        rows.append(measure_row(case, 100 if options.quick else 200))
        print(line_of(rows[-1]), flush=True)
    if (folder := command.folder_of(options)) is not None:
        facts: dict[str, Any] = {
            "calls": {"seconds": [SHORTEST, LONGEST], "stragglers": STRAGGLERS, "factor": FACTOR},
            "hedging": [
                {key: _rounded(value) for key, value in asdict(row).items()} | {"passed": row.passed} for row in rows
            ],
        }
        command.write(folder, "hedging", environment.describe() | facts)
    missed = sum(not row.passed for row in rows)
    print(f"{missed} of {len(rows)} musts missed")
    return 1 if options.gate and missed else 0


def _rounded(value: Any) -> Any:
    if isinstance(value, tuple):
        return [round(part, 2) for part in value]
    return round(value, 2) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
