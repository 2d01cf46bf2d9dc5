"""Whether simulated runs last as long as real ones, and what a simulation costs.

    python benchmarks/simulated_runs.py [--quick] [--gate] [--out FOLDER]

**What is measured.** Three plans of tools that sleep, in real time, for lognormal durations: 1,500 real runs of each,
and 4,000 that are simulated (`dagrun.simulate`), which know the distributions.

- *p50*, *p95*: of the makespan in seconds, real and simulated, and the difference in percent.
- *interval*: half of the 95 % interval of the real figure, in percent: so much differs from one try to the next.
- *learned*: the difference if the simulation knows only what the engine has learned of its newest calls. It remembers
  500 to 1,000 of each tool, so a long tail is a guess: nothing is promised here.
- *CPU*: seconds of CPU time for 1,000 simulated runs of a plan of 25 steps.

**How to read it.** A difference within the interval is none. The simulation leaves out what dagrun itself takes, about
0.1 ms a step; tools that last milliseconds would show it. Real runs go on 16 at a time, in one process; on a busy
machine that is too much for one loop, and makes them longer.

With ``--gate`` the exit code is 1 if p50 or p95 differ by more than 5 %, or 1,000 runs take 5 s of CPU time or more. A
full run writes ``results/simulated_runs.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from math import exp
from random import Random
from time import process_time
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import Policy, RetryRule, simulate
from dagrun.evaluate.intervals import quantile, quantile_interval
from dagrun.extend import Durations

AT_ONCE: Final = 16
MUST_DIFFER: Final = 5.0  # percent at most
MUST_CPU: Final = 5.0  # seconds for 1,000 runs of 25 steps
QUANTILES: Final = (0.5, 0.95)

CHANCE: Final = Random(1)


def drawn(median: float, sigma: float) -> float:
    """How long a call takes, in seconds."""
    return median * exp(sigma * CHANCE.gauss())


@dagrun.tool(effect="read")
async def fetch(n: int = 0) -> list[dict[str, int]]:
    """Get some rows."""
    await anyio.sleep(drawn(0.2, 0.5))
    return [{"n": i} for i in range(6)]


@dagrun.tool(effect="read")
async def look(row: dict[str, int]) -> dict[str, int]:
    """Look at a row."""
    await anyio.sleep(drawn(0.1, 0.8))
    return row


@dagrun.tool(effect="read")
async def busy(row: dict[str, int]) -> dict[str, int]:
    """Look at a row; one call in ten is refused for now."""
    await anyio.sleep(drawn(0.1, 0.3))
    if CHANCE.random() < 0.1:
        raise dagrun.ToolError("busy", retryable=True)
    return row


@dagrun.tool(effect="pure")
async def join(rows: Any) -> int:
    """Take all together."""
    await anyio.sleep(drawn(0.05, 0.2))
    return len(rows)


TOOLS: Final = (fetch, look, busy, join)


def two_layers(tool: str) -> list[dict[str, Any]]:
    """Twelve calls, twelve that need one of them each, and one that needs all: 25 steps."""
    firsts = [{"id": f"f{i}", "tool": "fetch", "args": {"n": i}} for i in range(12)]
    seconds = [{"id": f"l{i}", "tool": tool, "args": {"row": f"${{f{i}[0]}}"}} for i in range(12)]
    return [*firsts, *seconds, {"id": "end", "tool": "join", "args": {"rows": [f"${{l{i}.n}}" for i in range(12)]}}]


def fan() -> list[dict[str, Any]]:
    """A list, two calls for each of its six elements, and one that needs all."""
    return [
        {"id": "list", "tool": "fetch"},
        {"id": "first", "tool": "look", "for_each": "${list}", "args": {"row": "${item}"}},
        {"id": "second", "tool": "look", "for_each": "${first}", "args": {"row": "${item}"}},
        {"id": "end", "tool": "join", "args": {"rows": "${second}"}},
    ]


@dataclass(frozen=True, slots=True)
class Case:
    """A plan of sleeping tools.

    Attributes:
        name: Of it.
        steps: Its steps.
        policy: Its limits. A limit on running steps also makes the engine learn durations.
        durations: How long its tools take, as the simulation is told.
        facts: What the simulation is told besides.
    """

    name: str
    steps: list[dict[str, Any]]
    policy: Policy
    durations: Mapping[str, str]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """The plan as JSON."""
        return json.dumps({"steps": self.steps})


RETRIES: Final = Policy(max_running=4, retry=RetryRule(max_attempts=8, first_delay=0.1))
KNOWN: Final = {
    "fetch": "lognorm(0.2,0.5)",
    "look": "lognorm(0.1,0.8)",
    "busy": "lognorm(0.1,0.3)",
    "join": "lognorm(0.05,0.2)",
}
CASES: Final = (
    Case("two layers", two_layers("look"), Policy(max_running=1_000), KNOWN),
    Case("4 slots, retries", two_layers("busy"), RETRIES, KNOWN, {"failures": {"busy": "0.1:busy"}}),
    Case("two for_each", fan(), Policy(max_running=1_000), KNOWN, {"items": {"list": 6}}),
)


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of a plan: seconds, real and simulated; and percent.

    Attributes:
        case: The name of the plan.
        runs: The real runs that were measured.
        p50: The medians.
        p95: The 95th percentiles.
        interval: Half of the 95 % intervals of the real figures, in percent.
        learned: How much more a simulation says of p50 and p95, in percent, that knows what the engine has learned.
    """

    case: str
    runs: int
    p50: tuple[float, float]
    p95: tuple[float, float]
    interval: tuple[float, float]
    learned: tuple[float, float]

    @property
    def differences(self) -> tuple[float, float]:
        """How much more the simulation says, in percent, at p50 and at p95."""
        (real, simulated), (real_tail, simulated_tail) = self.p50, self.p95
        return (simulated / real - 1) * 100, (simulated_tail / real_tail - 1) * 100

    @property
    def passed(self) -> bool:
        """Whether both differences are as small as they must be."""
        return max(map(abs, self.differences)) <= MUST_DIFFER


async def real_makespans(case: Case, count: int) -> tuple[Durations, list[float]]:
    """Carry out real runs; return the makespans, and what the engine had learned in the middle.

    In the middle, because at the end the newest calls are the slow ones.
    """
    found: list[float] = []
    learned = Durations()
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            result = await engine.run(checked, inputs={})
            found.append(result.raise_for_status().makespan)
            if number == count // 2:
                learned.merge(engine.durations)

    async with dagrun.Engine(policy=case.policy) as engine:
        checked = dagrun.check(case.plan, TOOLS, policy=case.policy)
        async with anyio.create_task_group() as tasks:
            for _ in range(min(AT_ONCE, count)):
                tasks.start_soon(worker)
    return learned, sorted(found)


def measure_row(case: Case, count: int, simulated_runs: int) -> Row:
    """Measure one plan."""
    learned, real = anyio.run(partial(real_makespans, case, count))
    told = partial(simulate, case.plan, TOOLS, policy=case.policy, runs=simulated_runs, **case.facts)
    used = {step["tool"] for step in case.steps}
    (known,) = told(durations={tool: text for tool, text in case.durations.items() if tool in used}).variants
    (guessed,) = told(learned=learned).variants
    p50, p95 = ((quantile(real, q), known.quantile(q)) for q in QUANTILES)
    halves, guesses = [], []
    for q in QUANTILES:
        low, high = quantile_interval(real, q)
        halves.append((high - low) / 2 / quantile(real, q) * 100)
        guesses.append((guessed.quantile(q) / quantile(real, q) - 1) * 100)
    return Row(case.name, count, p50, p95, (halves[0], halves[1]), (guesses[0], guesses[1]))


def cpu_of_a_thousand() -> float:
    """Seconds of CPU time of 1,000 simulated runs of 25 steps."""
    durations = {tool: KNOWN[tool] for tool in ("fetch", "look", "join")}
    started = process_time()
    simulate(json.dumps({"steps": two_layers("look")}), TOOLS, runs=1_000, durations=durations)
    return process_time() - started


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = (
    f"{'seconds':18}{'p50 real':>9}{'sim':>7}{'differs':>9}{'interval':>10}{'learned':>9}"
    f"{'p95 real':>10}{'sim':>7}{'differs':>9}{'interval':>10}{'learned':>9}"
)


def line_of(row: Row) -> str:
    """One line of the table."""
    parts = [
        f"{real:>9.3f}{simulated:>7.3f}{difference:>+7.1f} %{f'±{interval:.1f} %':>10}{learned:>+7.1f} %"
        for (real, simulated), difference, interval, learned in zip(
            (row.p50, row.p95), row.differences, row.interval, row.learned, strict=True
        )
    ]
    return f"{row.case:18}{' '.join(parts)}  {'ok' if row.passed else 'MISSED'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer runs").parse_args(arguments)
    counts = (200, 500) if options.quick else (1_500, 4_000)
    cpu = cpu_of_a_thousand()
    print(f"1,000 simulated runs of 25 steps: {cpu:.2f} s of CPU time  {'ok' if cpu < MUST_CPU else 'MISSED'}")
    print(HEAD)
    rows = []
    for case in CASES:
        rows.append(measure_row(case, *counts))
        print(line_of(rows[-1]), flush=True)
    if (folder := command.folder_of(options)) is not None:
        facts: dict[str, Any] = {
            "cpu_seconds_of_1000_runs_of_25_steps": round(cpu, 2),
            "plans": [asdict(row) | {"differences": row.differences, "passed": row.passed} for row in rows],
        }
        command.write(folder, "simulated_runs", environment.describe() | facts)
    missed = sum(not row.passed for row in rows) + (cpu >= MUST_CPU)
    print(f"{missed} of {len(rows) + 1} musts missed")
    return 1 if options.gate and missed else 0


if __name__ == "__main__":
    sys.exit(main())
