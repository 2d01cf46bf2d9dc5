"""What it is worth that a plan runs while its planner still writes it.

    python benchmarks/streaming.py [--quick] [--gate] [--out FOLDER]

**What is measured.** A model on the loopback writes a plan of ten steps at 50 tokens a second, four characters to a
token: three searches, a page for each, a summary of each page, and a report. The real client reads it over HTTP, in
real time. Three ways to carry it out, in turn, twice:

- *streamed*: `dagrun.run(goal=…)`. A step starts when its object has closed and its inputs exist.
- *plan, then run*: `dagrun.draft(…)`, and then `dagrun.run` of what it gave.
- *barrier*: `dagrun.run(goal=…)` under a policy that lets nothing start before the whole plan is there.

**How to read it.** *First start* is when the first step starts, *makespan* when the last one has ended, both from the
call of the function, so that reading, checking and opening the run count. *Reaction* is the time from the moment at
which the server had handed over the closing brace of a step to the start of that step, for the steps that waited for
nothing else: what dagrun and the two ends of a socket on a busy loop take together. The must is that its median is
below 10 ms, whatever the planner does next.

With ``--gate`` the exit code is 1 if a must is missed. A full run writes ``results/streaming.json``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Final

import anyio

import command
import dagrun
import environment
from dagrun import OpenAIPlanner, Policy, RunResult, tool
from dagrun.testing import FakeModelServer, ModelAnswer

TOKENS_PER_SECOND: Final = 50.0
GOAL: Final = "compare what three towns have done about their traffic"
MUST_MS: Final = 10.0
SEARCH, FETCH, SUMMARISE, REPORT = 0.8, 1.2, 1.5, 1.0  # seconds


@tool(effect="read")
async def search(query: str) -> str:
    """Search the web, and give the address of the best page."""
    await anyio.sleep(SEARCH)
    return f"page about {query}"


@tool(effect="read")
async def fetch(address: str) -> str:
    """Fetch a page."""
    await anyio.sleep(FETCH)
    return f"text of the {address}"


@tool(effect="read")
async def summarise(text: str) -> str:
    """Put a text into a few words."""
    await anyio.sleep(SUMMARISE)
    return f"summary of the {text}"


@tool(effect="read")
async def report(parts: list[str]) -> str:
    """Write a report."""
    await anyio.sleep(REPORT)
    return "\n".join(parts)


TOOLS: Final = [search, fetch, summarise, report]


def plan_text() -> str:
    """The plan as the model writes it: the searches first, which need nothing."""
    towns = ("Ghent", "Bern", "Oslo")
    steps: list[dict[str, Any]] = [
        {"id": f"search{n}", "tool": "search", "args": {"query": f"traffic in {town}"}} for n, town in enumerate(towns)
    ]
    steps += [{"id": f"fetch{n}", "tool": "fetch", "args": {"address": f"${{search{n}}}"}} for n in range(3)]
    steps += [{"id": f"sum{n}", "tool": "summarise", "args": {"text": f"${{fetch{n}}}"}} for n in range(3)]
    steps.append({"id": "report", "tool": "report", "args": {"parts": ["${sum0}", "${sum1}", "${sum2}"]}})
    return json.dumps({"goal": GOAL, "steps": steps, "output": "${report}"})


@dataclass(frozen=True, slots=True)
class Measured:
    """One run. All times are in seconds since the call.

    Attributes:
        way: How it was carried out.
        planned: When the last token of the plan was sent.
        first_start: When the first step started.
        makespan: When the last one had ended.
        reactions: From the closing brace of each step that waited for nothing else to its start.
    """

    way: str
    planned: float
    first_start: float
    makespan: float
    reactions: tuple[float, ...] = ()


async def streamed(server: FakeModelServer) -> RunResult:
    """Carry it out while it is written."""
    return await dagrun.run(goal=GOAL, planner=_planner(server), tools=TOOLS)


async def plan_then_run(server: FakeModelServer) -> RunResult:
    """Get the plan, and then carry it out."""
    plan = await dagrun.draft(GOAL, planner=_planner(server), tools=TOOLS)
    return await dagrun.run(plan)


async def barrier(server: FakeModelServer) -> RunResult:
    """Take the plan in while it is written, and start nothing before its end."""

    async def agree(question: dagrun.Question) -> bool:
        return True

    policy = Policy(approve_patches="always")
    return await dagrun.run(goal=GOAL, planner=_planner(server), tools=TOOLS, policy=policy, approver=agree)


WAYS: Final[dict[str, Callable[[FakeModelServer], Awaitable[RunResult]]]] = {
    "streamed": streamed,
    "plan, then run": plan_then_run,
    "barrier": barrier,
}


def _planner(server: FakeModelServer) -> OpenAIPlanner:
    return OpenAIPlanner("a-model", base_url=server.base_url, api_key="none")


async def measure_one(way: str) -> Measured:
    """Carry the plan out once."""
    text = plan_text()
    async with FakeModelServer([ModelAnswer(text, tokens_per_second=TOKENS_PER_SECOND)]) as server:
        began = time.monotonic()
        result = (await WAYS[way](server)).raise_for_status()
        ended = time.monotonic()
        [call] = server.calls
        # Of the run alone; a plan that was made before has taken the rest.
        zero = ended - result.makespan
        starts = {id_: zero + (step.started or 0.0) for id_, step in result.steps.items()}
        reactions = _reactions(text, call.sent_at, starts) if way == "streamed" else ()
        planned = call.sent_at(len(text) - 1)
    return Measured(way, planned - began, min(starts.values()) - began, ended - began, reactions)


def _reactions(text: str, sent_at: Callable[[int], float], starts: dict[str, float]) -> tuple[float, ...]:
    """Seconds from the closing brace of each search to its start: a search waits for nothing else."""
    braces = [text.index("}}", text.index(f'"search{n}"')) + 1 for n in range(3)]
    return tuple(starts[f"search{n}"] - sent_at(brace) for n, brace in enumerate(braces))


def measure(count: int) -> Iterator[Measured]:
    """Carry the plan out *count* times in each way, in turn; once before that, because the first call loads much."""
    anyio.run(measure_one, "plan, then run")
    for _ in range(count):
        for way in WAYS:
            yield anyio.run(measure_one, way)


# Showing --------------------------------------------------------------------------------------------------------------

HEAD: Final = f"{'way':16}{'planned':>11}{'first start':>13}{'makespan':>11}{'reaction':>12}"


def line_of(found: Measured) -> str:
    """One line of the table."""
    reaction = f"{1000 * median(found.reactions):>9.2f} ms" if found.reactions else ""
    return f"{found.way:16}{found.planned:>9.3f} s{found.first_start:>11.3f} s{found.makespan:>9.3f} s{reaction}"


def _shown(all_: Iterator[Measured]) -> Iterator[Measured]:
    for found in all_:
        print(line_of(found), flush=True)
        yield found


def summary(all_: Sequence[Measured]) -> dict[str, Any]:
    """The medians of each way, and the ratios that the claim rests on."""
    ways = {
        way: {
            name: round(median(getattr(found, name) for found in all_ if found.way == way), 4)
            for name in ("planned", "first_start", "makespan")
        }
        for way in WAYS
    }
    reactions = [1000 * reaction for found in all_ for reaction in found.reactions]
    return {
        "ways": ways,
        "makespan_of_plan_then_run": round(ways["streamed"]["makespan"] / ways["plan, then run"]["makespan"], 3),
        "first_start_of_plan_then_run": round(
            ways["streamed"]["first_start"] / ways["plan, then run"]["first_start"], 3
        ),
        "reaction_ms": {"median": round(median(reactions), 3), "worst": round(max(reactions), 3)},
    }


def as_json(all_: Sequence[Measured]) -> dict[str, Any]:
    """The results as they are kept."""
    found = summary(all_)
    return environment.describe() | {
        "plan": {"steps": 10, "characters": len(plan_text()), "tokens_per_second": TOKENS_PER_SECOND},
        "must_ms": MUST_MS,
        **found,
        "runs": [asdict(one) for one in all_],
        "passed": found["reaction_ms"]["median"] < MUST_MS,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether the must is kept."""
    options = command.parser_of(__doc__, "each way once").parse_args(arguments)
    print(HEAD)
    all_ = list(_shown(measure(1 if options.quick else 2)))
    if (folder := command.folder_of(options)) is not None:
        command.write(folder, "streaming", as_json(all_))
    found = summary(all_)
    reaction, passed = found["reaction_ms"], found["reaction_ms"]["median"] < MUST_MS
    print(f"streamed / plan, then run: makespan {found['makespan_of_plan_then_run']:.2f}, "
          f"first start {found['first_start_of_plan_then_run']:.2f}")  # fmt: skip
    verdict = "ok" if passed else "MISSED"
    print(f"reaction: median {reaction['median']:.2f} ms, worst {reaction['worst']:.2f} ms: {verdict}")
    return 1 if options.gate and not passed else 0


if __name__ == "__main__":
    sys.exit(main())
