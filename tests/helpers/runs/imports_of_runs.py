"""A program that makes runs of every kind in one engine, and prints which modules the loop has loaded meanwhile.

    python imports_of_runs.py asyncio|trio

A line for each kind of run that loads a module in the thread of the loop, with the names of the modules.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import anyio

import dagrun
from dagrun import Add, HedgeRule, Patch, Policy, Replace, RetryRule, Step

_TIMES = {"flaky": 0, "hedged": 0}
AT_ONCE = RetryRule(first_delay=0)


@dagrun.tool(effect="read")
async def look(n: int = 1) -> int:
    await anyio.sleep(0.01)
    return n


@dagrun.tool(effect="read")
def look_in_thread(n: int = 1) -> int:
    return n


@dagrun.tool(effect="read")
async def fails(n: int = 1) -> int:
    raise ValueError("no")


@dagrun.tool(effect="read")
async def hangs(n: int = 1) -> int:
    await anyio.sleep(60)
    return n


@dagrun.tool(effect="read")
async def flaky(n: int = 1) -> int:
    _TIMES["flaky"] += 1
    if _TIMES["flaky"] % 2:
        raise ConnectionResetError("reset")
    return n


@dagrun.tool(effect="read")
async def hedged(n: int = 1) -> int:
    _TIMES["hedged"] += 1
    await anyio.sleep(2 if _TIMES["hedged"] == 5 else 0.01)
    return n


@dagrun.tool(effect="effectful", reconcile=lambda key: None, reconcile_after=0)
async def pay(n: int = 1) -> int:
    return n


@dagrun.tool(effect="effectful", needs_approval=True)
async def send(n: int = 1) -> int:
    return n


@dagrun.tool(effect="effectful")
async def lost(n: int = 1) -> int:
    raise ConnectionResetError("reset")


@dagrun.tool(effect="read", cache="run")
async def cached(n: int = 1) -> int:
    return n


@dagrun.tool(effect="read")
async def asks(context: dagrun.ToolContext = dagrun.PROVIDED) -> str:
    return str(await context.ask("which?", schema={"type": "string"}))


@dagrun.tool(effect="read")
async def saves(context: dagrun.ToolContext = dagrun.PROVIDED) -> dagrun.Artifact:
    context.surprise("odd")
    return context.artifacts.save(b"text", media_type="text/plain")


@dagrun.tool(effect="pure")
async def total(numbers: AsyncIterator[int | None]) -> int:
    return sum([number or 0 async for number in numbers])


TOOLS = [look, look_in_thread, fails, hangs, flaky, hedged, pay, send, lost, cached, asks, saves, total]


def steps(*names: str, **fields: Any) -> dagrun.Plan:
    return dagrun.Plan(steps=[Step(id=name, tool=name, **fields) for name in names])


async def yes(question: dagrun.Question) -> Any:
    return dagrun.Answer("approve", value="a" if question.schema else None, by="me")


async def splices(engine: dagrun.Engine) -> None:
    async with engine.start(steps("hangs", "look"), tools=TOOLS) as run:
        await anyio.sleep(0.05)
        more = Step(id="more", tool="look", depends_on=["other"])
        await run.splice(Patch(edits=[Replace(id="hangs", step=Step(id="other", tool="look")), Add(step=more)]))
        await anyio.sleep(0.05)
        _ = (run.plan.current, run.states)
        await run.result()


async def cancels(engine: dagrun.Engine) -> None:
    async with engine.start(steps("hangs", "look"), tools=TOOLS) as run:
        await anyio.sleep(0.02)
        run.cancel()
        await run.result()


async def is_seen(engine: dagrun.Engine) -> None:
    async with engine.start(steps("look", "fails"), tools=TOOLS) as run:
        async for event in run.events():
            event.to_dict()
        result = await run.result()
        _ = (repr(result), result.as_dict(), result.plan.current.to_json(), result.as_error())
        _ = (result.critical_path, result.confidence, result.warnings, result.handoff, result.steps["fails"].failure)


async def is_refused(engine: dagrun.Engine) -> None:
    circle = dagrun.Plan(
        steps=[Step(id="a", tool="look", depends_on=["b"]), Step(id="b", tool="look", depends_on=["a"])]
    )
    for plan in (circle, '{"steps": [{"id": "a"}]}', '{"steps": ['):
        try:
            await engine.run(plan, tools=TOOLS)
        except dagrun.PlanRefused as error:
            str(error)


async def resumes(engine: dagrun.Engine, journal: Any) -> None:
    first = await engine.run(steps("look", "send"), tools=TOOLS, journal=journal, run_id="first")
    assert str(first.status) == "waiting", first
    async with engine.resume("first", journal=journal, tools=TOOLS, approver=yes) as run:
        await run.result()
    await engine.run(steps("look", "fails"), tools=TOOLS, journal=journal, run_id="second")
    async with engine.retry("second", journal=journal, tools=TOOLS) as run:
        await run.result()


async def waits(engine: dagrun.Engine) -> None:
    async with engine.start(steps("send"), tools=TOOLS, attended=True) as run:
        while not run.pending:
            await anyio.sleep(0.01)
        await run.answer(run.pending, True)
        await run.result()


class Writer:
    """A planner that streams its first plan, and then answers with a patch and a whole plan."""

    def __init__(self) -> None:
        self.asked = 0

    async def revise(self, brief: dagrun.Brief) -> AsyncIterator[Any]:
        self.asked += 1
        yield Add(step=Step(id=f"s{self.asked}", tool="fails" if self.asked < 3 else "look", args={"n": self.asked}))


class Babbles:
    """A model whose answer has no end."""

    name = "babbles"

    async def stream(self, request: Any) -> AsyncIterator[str]:
        """Write a piece of an answer."""
        yield "it is"


def kinds() -> dict[str, Callable[[dagrun.Engine], Awaitable[object]]]:
    """Every kind of run, by name."""

    def run(plan: Any, **options: Any) -> Callable[[dagrun.Engine], Awaitable[object]]:
        return lambda engine: engine.run(plan, tools=TOOLS, **options)

    pages = look.options(id="each").each([1, 2, 3]).step(n=dagrun.item)
    streamed = total.step(numbers=dagrun.as_stream(pages))
    later = look.options(id="later").each(pages).step(n=dagrun.item)
    ordered = [Step(id="a", tool="look"), Step(id="b", tool="look", args={"n": "${a}"})]
    is_one = dagrun.Condition(ref="look", op="==", value=1)
    is_many = dagrun.Condition(ref="b", op=">", value=9)
    conditional = Step(id="b", tool="look", when=is_one, success=is_many)
    hedging = Policy(max_running=2, hedge=HedgeRule(min_calls=1, max_share=1))
    redacted = Policy(redact=["email"], redact_records=True)
    planned = dagrun.StaticPlanner(patches=[Patch(edits=[Replace(id="fails", step=Step(id="x", tool="look"))])])
    return {
        "in order": run(dagrun.Plan(steps=ordered)),
        "out of order": run(dagrun.Plan(steps=ordered[::-1])),
        "text": run('{"steps": [{"id": "a", "tool": "look"}]}'),
        "calls": run("1. look(n=1)\n2. join()\n"),
        "thread": run(steps("look_in_thread")),
        "for_each, pipeline and stream": run(dagrun.plan(output=[streamed, later])),
        "condition": run(dagrun.Plan(steps=[Step(id="look", tool="look"), conditional])),
        "failure": run(steps("fails", "look", "pay")),
        "default and fallback": run(steps("fails", fallback="look", on_failure="default", default=3)),
        "retry": run(steps("flaky", retry=AT_ONCE)),
        "time limit": run(steps("hangs", timeout=0.02)),
        "limits": run(steps("look", "flaky", "look_in_thread"), policy=Policy(max_running=1, max_attempts=2)),
        "hedging": run(dagrun.plan(output=hedged.each(list(range(6))).step(n=dagrun.item)), policy=hedging),
        "unknown": run(steps("lost", "pay"), approver=yes),
        "approval": run(steps("send", "asks"), approver=yes),
        "nobody there": run(steps("send")),
        "answered by the host": waits,
        "cache": run(dagrun.Plan(steps=[Step(id=id_, tool="cached") for id_ in "ab"])),
        "artifact and surprise": run(steps("saves")),
        "confidence": run(steps("look", "pay", confidence=0.1), approver=yes),
        "pause": run(steps("look", pause="after"), approver=yes),
        "patch of a planner": run(steps("fails", "look"), planner=planned),
        "plan of a planner": lambda engine: engine.run(goal="it", tools=TOOLS, planner=Writer(), approver=yes),
        "frozen plan": run(steps("fails", "look"), planner=Writer(), policy=Policy(freeze_plan=True)),
        "boundary": run(steps("fails", "pay"), planner=Writer(), policy=Policy(flow=dagrun.Flow())),
        "redacted": run(steps("fails"), policy=redacted, journal=dagrun.MemoryJournal()),
        "released": run(dagrun.Plan(steps=ordered), policy=Policy(release_outputs=True)),
        "critics": run(steps("look"), critics=[dagrun.CountCritic("few", at_least=3)]),
        "composed by a model": run(steps("look"), compose=Babbles()),
        "splice": splices,
        "cancel": cancels,
        "events": is_seen,
        "refused": is_refused,
        "memory": lambda engine: resumes(engine, dagrun.MemoryJournal()),
    }


class _Finder:
    """Notes which modules are looked for in the thread of the loop."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.thread = threading.get_ident()

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find nothing, so that the next finder is asked."""
        if threading.get_ident() == self.thread:
            self.names.append(name)
        return None


async def main() -> None:
    """Make the runs, one after the other."""
    made = kinds()
    with tempfile.TemporaryDirectory() as folder:
        journal = dagrun.SQLiteJournal(Path(folder) / "runs")
        made["SQLite"] = partial(resumes, journal=journal)
        async with dagrun.Engine() as engine:
            finder = _Finder()
            sys.meta_path.insert(0, finder)
            for name, run in made.items():
                finder.names.clear()
                with anyio.fail_after(20):
                    ended = await run(engine)
                print(name, getattr(ended, "status", ""), file=sys.stderr)
                if loaded := [each for each in finder.names if each in sys.modules]:
                    print(name, "->", *loaded)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    anyio.run(main, backend=sys.argv[1])
