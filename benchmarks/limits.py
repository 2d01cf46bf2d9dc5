"""A provider that takes so many calls at once, and nobody has written down how many: what a run makes of it.

    python benchmarks/limits.py [--quick] [--gate] [--out FOLDER]

**What is measured.** 60 calls of a second each to a provider that refuses what is above its limit (429, "come back in a
second"), on virtual time; for peers, in real time. *Ideal* is ``calls / limit`` seconds. The ways:

- *dagrun*: the default policy; the limit is found out from refusals.
- *dagrun, told*: `max_running_by_tool` is the limit.
- *asyncio, back-off*: all at once, each call tried up to ten times with exponential back-off and jitter, and no earlier
  than the provider says.
- *asyncio, two tries*: the same, tried twice.
- *asyncio, told*: a semaphore with the right number.
- *LangGraph, back-off*: a task by `Send` for each call, with its `RetryPolicy` of ten tries, which does not know what
  the provider says; a call whose tries are used up ends the run. *LangGraph, told*: its ``max_concurrency``.
- *Hamilton, told*: `Parallelizable`, with as many threads. It has no retries, so it has to be told.

Neither can find the limit out. Peers are measured in environments of their own (``make bench-peers`` makes them), and
left out where there is none.

**How to read it.** *Done* is how many of the calls succeeded, *refused* how many requests the provider refused,
*ratio* the makespan over the ideal. With ``--gate`` the exit code is 1 unless dagrun has all calls done within its
must. A full run writes ``results/limits.json`` with a plot.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import Plan, Policy, Step, ToolError
from dagrun.testing import run_virtual
from peers.environments import python_of
from peers.registry import PEERS

CALLS: Final = 60
LIMITS: Final = (1, 2, 4, 8, 16)
MUST: Final = 1.15


class Provider:
    """Takes *limit* calls at once."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.live = self.refused = self.done = 0

    async def call(self) -> None:
        """Take a second, or refuse.

        Raises:
            ToolError: It takes no more now.
        """
        if self.live >= self.limit:
            self.refused += 1
            raise ToolError("429", retryable=True, retry_after=1)
        self.live += 1
        try:
            await anyio.sleep(1)
        finally:
            self.live -= 1
        self.done += 1


async def by_dagrun(provider: Provider, calls: int, *, is_told: bool) -> None:
    """Run a plan of independent calls."""

    @dagrun.tool(effect="read")
    async def ask(number: int) -> int:
        await provider.call()
        return number

    plan = Plan(steps=[Step(id=f"c{n}", tool="ask", args={"number": n}) for n in range(calls)])
    policy = Policy(max_running_by_tool={"ask": provider.limit}) if is_told else Policy()
    await dagrun.run(plan, tools=[ask], policy=policy, seed=1)


async def by_backoff(provider: Provider, calls: int, *, tries: int) -> None:
    """Start all, and try again what was refused."""
    rng = random.Random(1)

    async def one() -> None:
        for attempt in range(tries):
            try:
                await provider.call()
                return
            except ToolError:
                await anyio.sleep(max(1.0, rng.random() * min(30.0, 0.5 * 2**attempt)))

    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(one)


async def by_semaphore(provider: Provider, calls: int) -> None:
    """Start as many as are known to be taken."""
    places = anyio.Semaphore(provider.limit)

    async def one() -> None:
        async with places:
            await provider.call()

    async with anyio.create_task_group() as tasks:
        for _ in range(calls):
            tasks.start_soon(one)


WAYS: Final[dict[str, Callable[[Provider, int], Coroutine[Any, Any, None]]]] = {
    "dagrun": partial(by_dagrun, is_told=False),
    "dagrun, told": partial(by_dagrun, is_told=True),
    "asyncio, back-off": partial(by_backoff, tries=10),
    "asyncio, two tries": partial(by_backoff, tries=2),
    "asyncio, told": by_semaphore,
}


# By our name, that of the peer in the registry.
OTHERS: Final = {
    "LangGraph, back-off": "LangGraph graph",
    "LangGraph, told": "LangGraph graph",
    "Hamilton, told": "Hamilton",
}
SCRIPT: Final = Path(__file__).parent / "peers" / "limited_provider.py"


@dataclass(frozen=True, slots=True)
class Row:
    """One way, against a provider of one limit."""

    way: str
    limit: int
    done: int
    refused: int
    makespan: float
    ratio: float


def measure(way: str, limit: int, calls: int) -> Row:
    """Run *calls* calls one way."""
    provider = Provider(limit)

    async def timed() -> float:
        await WAYS[way](provider, calls)
        return anyio.current_time()

    seconds = run_virtual(timed)
    return Row(way, limit, provider.done, provider.refused, seconds, seconds / -(-calls // limit))


def measure_peer(way: str, limit: int, calls: int) -> Row | None:
    """Run *calls* calls by a peer, in its own environment and in real time; `None` if there is none."""
    python = python_of(next(peer for peer in PEERS if peer.name == OTHERS[way]))
    if python is None:
        return None
    facts = json.dumps({"limit": limit, "calls": calls, "seconds": 1.0})
    done = subprocess.run(
        [str(python), str(SCRIPT), way], input=facts, capture_output=True, text=True, timeout=600, check=True
    )
    found = json.loads(done.stdout)
    return Row(way, limit, **found, ratio=found["makespan"] / -(-calls // limit))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and keep the results."""
    options = command.parser_of(__doc__, "a provider of four, 20 calls").parse_args(arguments)
    limits, calls = ((4,), 20) if options.quick else (LIMITS, CALLS)
    print(f"{'limit':>5}  {'way':20}{'done':>5}{'refused':>9}{'makespan':>10}{'ratio':>7}")
    rows = [measure(way, limit, calls) for limit in limits for way in WAYS]
    if not options.quick:
        found = [measure_peer(way, limit, calls) for limit in limits for way in OTHERS]
        rows += [row for row in found if row is not None]
    for row in rows:
        print(f"{row.limit:5}  {row.way:20}{row.done:5}{row.refused:9}{row.makespan:10.1f}{row.ratio:7.2f}")
    own = [row for row in rows if row.way.startswith("dagrun")]
    passed = all(row.done == calls and row.ratio <= MUST for row in own)
    if (folder := command.folder_of(options)) is not None:
        from plot_pipelines import draw_limits

        results = environment.describe() | {"limits": [asdict(row) for row in rows], "calls": calls}
        command.write(folder, "limits", results)
        draw_limits(results, folder / "limits")
    return 1 if options.gate and not passed else 0


if __name__ == "__main__":
    sys.exit(main())
