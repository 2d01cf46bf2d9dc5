"""What a step on a Ray cluster costs, and what happens to its calls when they are cancelled, or their node is gone.

    make ray      (or, in benchmarks/: python -m on_ray.measure [--quick] [--gate] [--out FOLDER])

**What is measured.** Two nodes on 127.0.0.1, started and ended by the program itself, with a worker each.

- *chain*, *wide*: 100 steps one after another, and 2,000 side by side, which do nothing: on Ray, in worker processes,
  and in this process. *CPU* is that of this process.
- *naps*: 64 steps of half a second, side by side.
- *cancel*: a call that waits is cancelled after 0.1 s: when the tool begins to clean up, and when the run knows.
- *early*: calls that are cancelled 0 to 2.5 ms after their start. Lost is one whose tool goes on, or of which the run
  knows no end.
- *dies*: a tool ends its process: with an effect, and without.
- *kills*: the process of a payment that is under way is killed, again and again.
- *blocked*: the loop of this program stands still for three seconds, in which it hears nothing.
- *silent*: it stands still for twelve seconds: when the worker ends the call that nobody seems to wait for.
- *files*: a file of 1 MiB from one call to another, without a shared folder.
- *node*: all processes of a node stand still at once, as when its power is cut, with half of eight calls on it.

**How to read it.** The ratios to the same steps in worker processes are worth more than the figures, which depend on
what else the machine does. A full run writes ``results/ray.json``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import command
import dagrun
import environment
from dagrun import Plan, Policy, RayExecutor, RetryRule, RunResult, State, Step, Tool
from dagrun.events import AttemptEnded, Progress
from on_ray import tools
from on_ray.nodes import HOST, Nodes, two_nodes

TOOLS: Final = [tool for tool in vars(tools).values() if isinstance(tool, Tool)]
PLACES: Final = ("ray", "process", None)

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class World:
    """What a scene works with.

    Attributes:
        nodes: The cluster.
        ray: The executor, open.
        folder: An empty folder of the scene.
        is_quick: Whether a scene does less.
    """

    nodes: Nodes
    ray: RayExecutor
    folder: Path
    is_quick: bool

    def options(self) -> dict[str, Any]:
        """The options of every run."""
        policy = Policy(retry=RetryRule(max_attempts=3, first_delay=0.1))
        return {"tools": TOOLS, "executors": {"ray": self.ray}, "policy": policy}

    async def run(self, *steps: Step) -> RunResult:
        """Run steps."""
        return await dagrun.run(Plan(steps=steps), **self.options())


def on_ray(tool: str, id: str = "", **args: Any) -> Step:
    """Return a step on Ray."""
    return Step(id=id or tool, tool=tool, args=args, executor="ray")


# Cost -----------------------------------------------------------------------------------------------------------------


async def chain(world: World) -> Facts:
    """Steps one after another."""
    return {str(place or "here"): await _cost(world, place, 100, is_chain=True) for place in PLACES}


async def wide(world: World) -> Facts:
    """Steps side by side."""
    return {str(place or "here"): await _cost(world, place, 2000, is_chain=False) for place in PLACES}


async def _cost(world: World, place: str | None, count: int, *, is_chain: bool) -> Facts:
    steps = [
        Step(
            id=f"s{number}",
            tool="nothing",
            args={"after": number},
            executor=place,
            depends_on=[f"s{number - 1}"] if is_chain and number else [],
        )
        for number in range(count)
    ]
    await world.run(*steps[:10])
    wall, cpu = time.perf_counter(), time.process_time()
    result = await world.run(*steps)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert result.status == "succeeded", result
    return {"ms": wall / count * 1000, "per_second": count / wall, "cpu_ms": cpu / count * 1000}


async def naps(world: World) -> Facts:
    """Steps that wait."""
    begin = time.perf_counter()
    result = await world.run(*[on_ray("nap", f"s{number}", seconds=0.5) for number in range(64)])
    return {"seconds": time.perf_counter() - begin, "processes": len({step.output for step in result.steps.values()})}


# Cancellation ---------------------------------------------------------------------------------------------------------


async def cancel(world: World) -> Facts:
    """Calls that are cancelled while they wait."""
    cleaned, known = [], []
    for number in range(5 if world.is_quick else 20):
        plan = Plan(steps=[on_ray("linger", "s", folder=str(world.folder), name=str(number))])
        async with dagrun.start(plan, **world.options()) as run:
            await asyncio.sleep(0.1)
            begin = time.time()
            run.cancel()
            result = await run.result()
            known.append(time.time() - begin)
        assert result.steps["s"].state is State.CANCELLED, result
        cleaned.append(float((world.folder / f"{number}.ended").read_text()) - begin)
    return {"cleaned_ms": statistics.median(cleaned) * 1000, "known_ms": statistics.median(known) * 1000}


async def early(world: World) -> Facts:
    """Calls that are cancelled as soon as they have started."""
    count = 40 if world.is_quick else 200
    states: Counter[str] = Counter()
    for number in range(count):
        plan = Plan(steps=[on_ray("linger", "s", folder=str(world.folder), name=str(number))])
        async with dagrun.start(plan, **world.options()) as run:
            until = time.perf_counter() + number / count * 0.0025
            while time.perf_counter() < until:  # noqa: ASYNC110  (no timer is as fine)
                await asyncio.sleep(0)
            run.cancel()
            states[str((await run.result()).steps["s"].state)] += 1
    await asyncio.sleep(0.5)
    begun = {file.stem for file in world.folder.glob("*.begun")}
    lost = begun - {file.stem for file in world.folder.glob("*.ended")}
    return {"calls": count, "begun": len(begun), "lost": len(lost) + count - states["cancelled"]}


# Workers and nodes that are gone --------------------------------------------------------------------------------------


async def dies(world: World) -> Facts:
    """Tools that end their process."""
    facts: Facts = {}
    for name in ("reading", "paying"):
        begin = time.perf_counter()
        result = await world.run(on_ray(f"die_{name}", folder=str(world.folder)))
        state, calls = result.steps[f"die_{name}"].state, len((world.folder / name).read_text())
        facts[name] = {"state": str(state), "calls": calls, "seconds": time.perf_counter() - begin}
    return facts


async def kills(world: World) -> Facts:
    """Payments whose process is killed."""
    chance, states, killed = random.Random(1), Counter[str](), 0
    log = world.folder / "payments"
    log.touch()
    while killed < (5 if world.is_quick else 50):
        before = len(log.read_text().splitlines())
        steps = [on_ray("pay", f"s{number}", folder=str(world.folder), seconds=0.3) for number in range(4)]
        paying = asyncio.create_task(world.run(*steps))
        await asyncio.sleep(chance.uniform(0.02, 0.25))
        if under_way := log.read_text().splitlines()[before:]:
            os.kill(int(chance.choice(under_way).split()[1]), signal.SIGKILL)
            killed += 1
        states.update(str(step.state) for step in (await paying).steps.values())
    paid = Counter(line.split()[0] for line in log.read_text().splitlines())
    return {"kills": killed, "payments": len(paid), "twice": sum(count > 1 for count in paid.values()), **states}


async def blocked(world: World) -> Facts:
    """A loop that stands still."""
    steps = [on_ray("nap", f"s{number}", seconds=1) for number in range(4)]
    waiting = asyncio.create_task(world.run(*steps))
    await asyncio.sleep(0.3)
    time.sleep(3)  # noqa: ASYNC251  (on purpose)
    result = await waiting
    return {"attempts": sum(len(step.attempts) for step in result.steps.values()), "status": str(result.status)}


async def silent(world: World) -> Facts:
    """A program that says nothing for longer than a worker waits for it."""
    plan = Plan(steps=[on_ray("linger", "s", folder=str(world.folder), name="s")])
    async with dagrun.start(plan, **world.options()) as run:
        await asyncio.sleep(0.5)
        begin = time.time()
        time.sleep(12)  # noqa: ASYNC251  (on purpose)
        ended = world.folder / "s.ended"
        seconds = float(ended.read_text()) - begin if ended.exists() else None
        run.cancel()
        result = await run.result()
    return {"ended_after_s": seconds, "state": str(result.steps["s"].state)}


async def files(world: World) -> Facts:
    """A file that travels with calls."""
    drawn = on_ray("draw", size=1 << 20)
    result = await world.run(drawn, on_ray("measure_file", file="${draw}"))
    return {"bytes": result.steps["measure_file"].output}


async def node(world: World) -> Facts:
    """A node that stands still."""
    plan = Plan(steps=[on_ray("nap", f"s{number}", seconds=3) for number in range(8)])
    other = world.nodes.others[0]
    on_it, known, begin = set[str](), list[float](), 0.0
    async with dagrun.start(plan, **world.options()) as run:
        async for event in run.events():
            match event:
                case Progress() if other.node_id[:8] in event.message:
                    on_it.add(event.step)
                    if len(on_it) == 4 and not begin:
                        begin = time.perf_counter()
                        world.nodes.freeze(other)
                case AttemptEnded() if event.outcome.failure is not None:
                    known.append(time.perf_counter() - begin)
        result = await run.result()
    whole = time.perf_counter() - begin
    ended = Counter(str(step.state) for step in result.steps.values())
    return {"calls_on_it": len(on_it), "noticed": len(known), "known_s": max(known), "whole_s": whole, **ended}


# All of it ------------------------------------------------------------------------------------------------------------

SCENES: Final[tuple[Callable[[World], Awaitable[Facts]], ...]] = (
    chain, wide, naps, cancel, early, dies, kills, blocked, silent, files, node,
)  # fmt: skip

MUSTS: Final[Mapping[str, Callable[[Mapping[str, Any]], bool]]] = {
    "at least 800 steps a second": lambda facts: facts["wide"]["ray"]["per_second"] >= 800,
    "naps overlap on two nodes": lambda facts: facts["naps"]["seconds"] < 2 and facts["naps"]["processes"] == 2,
    "a cancelled call cleans up": lambda facts: facts["cancel"]["cleaned_ms"] < 1000,
    "no early cancellation is lost": lambda facts: facts["early"]["lost"] == 0,
    "a read step is tried again": lambda facts: _ended(facts, "reading") == ("succeeded", 2),
    "an effect is in doubt, and made once": lambda facts: _ended(facts, "paying") == ("unknown", 1),
    "no payment happens twice": lambda facts: facts["kills"]["kills"] > 0 and facts["kills"]["twice"] == 0,
    "a blocked loop loses no call": lambda facts: facts["blocked"] == {"attempts": 4, "status": "succeeded"},
    "a worker without its run ends its calls": lambda facts: 9 < (facts["silent"]["ended_after_s"] or 0) < 11,
    "files travel without a shared folder": lambda facts: facts["files"]["bytes"] == 1 << 20,
    "a lost node is known after 3 s": lambda facts: facts["node"]["noticed"] == 4 and facts["node"]["known_s"] <= 3,
    "and its read steps succeed": lambda facts: facts["node"].get("succeeded") == 8,
}


def _ended(facts: Mapping[str, Any], name: str) -> tuple[str, int]:
    return facts["dies"][name]["state"], facts["dies"][name]["calls"]


async def measure(nodes: Nodes, *, is_quick: bool) -> Facts:
    """Play every scene, each with workers of its own, and print its facts."""
    found: Facts = {}
    for scene in SCENES:
        with tempfile.TemporaryDirectory() as folder:
            async with RayExecutor(nodes.address, node_address=HOST, workers=2) as ray:
                found[scene.__name__] = await scene(World(nodes, ray, Path(folder), is_quick))
        print(f"{scene.__name__:8} {found[scene.__name__]}", flush=True)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and say by the exit code whether every must is kept."""
    options = command.parser_of(__doc__, "fewer calls").parse_args(arguments)
    logging.getLogger("dagrun").setLevel(logging.CRITICAL)  # steps fail on purpose
    with two_nodes() as nodes:
        facts = asyncio.run(measure(nodes, is_quick=options.quick))
    missed = [text for text, is_kept in MUSTS.items() if not is_kept(facts)]
    for text in MUSTS:
        print(f"{'MISSED' if text in missed else 'ok':8}{text}")
    if (folder := command.folder_of(options)) is not None:
        musts = {text: text not in missed for text in MUSTS}
        command.write(folder, "ray", environment.describe() | {"ray": _rounded(facts), "musts": musts})
    return 1 if options.gate and missed else 0


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 3) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
