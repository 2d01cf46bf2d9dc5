"""Runs to be looked at: one in which everything happens, and plans of many steps. On the virtual clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

import anyio

import dagrun
from dagrun import (
    Answer,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    Question,
    Replace,
    Replayed,
    RetryRule,
    Step,
    ToolError,
    tool,
)
from dagrun.observe.view.shape import view_schema
from dagrun.testing import virtual_backend

T = TypeVar("T")


@dataclass(frozen=True)
class Played:
    """A run that has ended: its result, and the same run read back from its record."""

    result: dagrun.RunResult
    past: Replayed


async def play(plan: Plan, tools: list[Any], *, run_id: str = "r1", **options: Any) -> Played:
    """Run *plan* with a journal in memory."""
    journal = MemoryJournal()
    result = await dagrun.run(plan, tools=tools, journal=journal, run_id=run_id, **options)
    return Played(result, await dagrun.replay(run_id, journal=journal))


def at_once(function: Callable[[], Awaitable[T]]) -> T:
    """Call an async function on a virtual clock, in a thread: Playwright has a loop of its own in that of the test."""
    backend, options = virtual_backend("asyncio")
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: anyio.run(function, backend=backend, backend_options=options)).result()


def valid(view: dict[str, Any]) -> None:
    """Fail unless *view* is as the published schema says."""
    validator: Any = import_module("jsonschema")
    validator.validate(view, view_schema())


# The rich run ---------------------------------------------------------------------------------------------------------

RICH = Plan(
    goal="Pay the bonus of the quarter from three sources",
    steps=[
        Step(id="orders", tool="fetch", args={"source": "old"}, description="Orders of the quarter"),
        Step(id="moody", tool="fetch", args={"source": "moody"}, retry=RetryRule(first_delay=0.2)),
        Step(id="big", tool="fetch", args={"source": "big", "seconds": 1.1}),
        Step(id="clean-orders", tool="clean", args={"data": "${orders}"}),
        Step(id="clean-moody", tool="clean", args={"data": "${moody}"}),
        Step(id="clean-big", tool="clean", args={"data": "${big}"}),
        Step(id="rates", tool="rates", args={}, on_failure="default", default={"eur": 1.0}),
        Step(id="news", tool="news", args={}, on_failure="skip", optional=True),
        Step(id="scores", tool="score", for_each="${clean-big.rows}", args={"row": "${item}"}, max_parallel=2),
        Step(
            id="total",
            tool="total",
            args={"parts": ["${clean-orders}", "${clean-moody}", "${clean-big}"], "rate": "${rates.eur}"},
        ),
        Step(id="pay", tool="pay", args={"amount": "${total}", "to": "ann@example.org"}, depends_on=["scores"]),
        Step(id="check", tool="fetch", args={"source": "audit", "seconds": 0.2}, depends_on=["pay"]),
    ],
)


class Mirrors:
    """A planner that replaces a source that cannot be reached by its mirror."""

    async def revise(self, brief: dagrun.Brief) -> Patch:
        """Think for a while, and replace the step."""
        await anyio.sleep(0.35)
        gone = brief.triggers[0].step
        substitute = Step(id=f"{gone}-mirror", tool="fetch", args={"source": "mirror"})
        reason = "the old source is gone, a mirror has the same rows"
        return Patch(edits=[Replace(id=gone, step=substitute)], reason=reason)


def rich_tools() -> list[Any]:
    """Tools that fail, wait and surprise as the rich plan needs it."""
    tries: dict[str, int] = {}

    @tool(effect="read")
    async def fetch(source: str, seconds: float = 0.3) -> dict[str, Any]:
        """Fetch the rows of a source."""
        tries[source] = tries.get(source, 0) + 1
        await anyio.sleep(seconds)
        if source == "old":
            raise ToolError("this source was switched off", unreachable=True)
        if source == "moody" and tries[source] == 1:
            raise ConnectionError("connection reset by peer")
        return {"source": source, "rows": [{"i": i, "v": i * 1.5} for i in range(5)]}

    @tool(effect="pure")
    async def clean(data: dict[str, Any]) -> dict[str, Any]:
        """Leave out empty rows."""
        await anyio.sleep(0.12)
        return {"rows": data["rows"], "<script>": "alert(1)</script>", "n": len(data["rows"])}

    @tool(effect="pure")
    async def score(row: dict[str, Any]) -> float:
        """Rate one row."""
        await anyio.sleep(0.05 + 0.02 * row["i"])
        return float(row["v"])

    @tool(effect="pure")
    async def total(parts: list[dict[str, Any]], rate: float) -> float:
        """Add up the rows."""
        await anyio.sleep(0.1)
        return float(rate * sum(part["n"] for part in parts))

    @tool(effect="read")
    async def rates() -> dict[str, float]:
        """Get the exchange rates, of which there are none today."""
        await anyio.sleep(0.05)
        raise ToolError("the bank is closed")

    @tool(effect="read")
    async def news() -> str:
        """Get the news, which nobody needs."""
        await anyio.sleep(0.05)
        raise ToolError("no news")

    @tool(effect="effectful", needs_approval=True)
    async def pay(amount: float, to: str) -> str:
        """Pay an amount."""
        await anyio.sleep(0.1)
        return f"paid {amount} to {to}"

    return [fetch, clean, score, total, rates, news, pay]


async def rich() -> Played:
    """Play the run in which everything happens: 22 steps, three slots, a patch, a retry, a question, 2 seconds."""

    async def approve(question: Question) -> Answer:
        await anyio.sleep(0.4)
        return Answer("approve", by="ann", note="invoice seen")

    return await play(
        RICH, rich_tools(), run_id="rich", planner=Mirrors(), approver=approve, policy=Policy(max_running=3), seed=3
    )


# Many steps, and texts that would do harm -----------------------------------------------------------------------------


async def large(count: int = 2_000) -> Played:
    """Play a plan of many steps, of which every hundredth fails."""

    @tool(effect="read")
    async def fetch(number: int) -> dict[str, int]:
        """Fetch something."""
        await anyio.sleep(0.01 * (number % 17 + 1))
        if number % 100 == 99:
            raise ToolError("not there")
        return {"number": number}

    @tool(effect="pure")
    async def refine(number: int) -> int:
        """Refine something."""
        await anyio.sleep(0.02)
        return number

    steps = []
    for n in range(count):
        name = "fetch" if n % 10 else "refine"
        needs = [f"s{m}" for m in {max(0, n - 37), max(0, n - 50 - n % 7)} if n >= 100 and m % 100 != 99]
        failure: dict[str, Any] = {"on_failure": "skip", "optional": True} if n % 100 == 99 else {}
        steps.append(Step(id=f"s{n}", tool=name, args={"number": n}, depends_on=needs, **failure))
    return await play(Plan(goal="Many steps", steps=steps), [fetch, refine], policy=Policy(max_running=40))


EVIL = (
    "<script>canary=1</script>",
    "</script><script>canary=1</script>",
    "<!--<script>canary=1//-->",
    "javascript:canary=1",
    '" onload="canary=1" x="',
    "' onmouseover='canary=1",
    "<img src=x onerror=canary=1>",
    "a\u202eb\u2066c",
    "nul\x00esc\x1b[31m",
    "line\u2028para\u2029",
    "]]><svg onload=canary=1>",
    "`{canary=1}` #1; [x](javascript:canary=1) ![x](http://127.0.0.1:9/x)",
)


SECRET, CARD = "s3cr3t-canary-value", "4111 1111 1111 1111"
LEAKS = (SECRET, "4111", "open-sesame")
GUARDED: dict[str, Any] = {"secrets": dagrun.Secrets({"key": SECRET}), "policy": dagrun.Policy(redact=["card"])}
LEAKY = (
    Step(id="read", tool="read"),
    Step(id="fail", tool="fail", args={"text": "${read.text}"}, on_failure="skip", optional=True),
)


def leaky_tools() -> list[Any]:
    """Tools that hand on a registered secret, a card number and a field with the name of a secret."""

    @tool(effect="read")
    async def read() -> dict[str, Any]:
        """Read."""
        return {"text": f"the key is {SECRET}, the card {CARD}", "password": "open-sesame-please"}

    @tool(effect="read")
    async def fail(text: str) -> str:
        """Fail."""
        raise dagrun.ToolError(f"no: {text}")

    return [read, fail]


async def hostile() -> Played:
    """Play a run whose goal, arguments, outputs, descriptions, failures and answers are all meant to do harm."""

    @tool(effect="read")
    async def say(text: str) -> dict[str, Any]:
        """Say it again."""
        return {text: [text, text * 3]}

    @tool(effect="read")
    async def fail(text: str) -> str:
        """Fail with it."""
        raise ToolError(text)

    @tool(effect="effectful", needs_approval=True)
    async def do(text: str) -> str:
        """Do it."""
        return text

    async def approve(question: Question) -> Answer:
        return Answer("approve", by=EVIL[0], note=EVIL[1])

    steps = [Step(id=f"say-{n}", tool="say", args={"text": evil}, description=evil) for n, evil in enumerate(EVIL)]
    steps += [
        Step(id=f"fail-{n}", tool="fail", args={"text": evil}, on_failure="skip", optional=True)
        for n, evil in enumerate(EVIL)
    ]
    steps += [
        Step(id="do", tool="do", args={"text": EVIL[0]}),
        Step(id="long", tool="say", args={"text": "x" * 200_000}),
    ]
    plan = Plan(goal=" ".join(EVIL), steps=steps)
    labels = {"command": ["dagrun", *EVIL]}
    return await play(plan, [say, fail, do], approver=approve, labels=labels)


# Runs that did not end well, or not yet ------------------------------------------------------------------------------


def shop_tools(paid: list[int] | None = None) -> list[Any]:
    """Tools of a shop whose supplier is down; `pay` needs a person."""

    @tool(effect="read")
    async def look_up(item: str, seconds: float = 0.4) -> dict[str, Any]:
        """Look up an item."""
        await anyio.sleep(seconds)
        if item == "lamp":
            raise ConnectionError("connection refused by supplier-2")
        return {"item": item, "price": len(item) * 10}

    @tool(effect="pure")
    async def sum_up(parts: list[Any]) -> int:
        """Add up the prices."""
        await anyio.sleep(0.1)
        return sum(part["price"] for part in parts)

    @tool(effect="effectful", needs_approval=True)
    async def pay(amount: int, to: str) -> str:
        """Pay an amount."""
        await anyio.sleep(0.2)
        if paid is not None:
            paid.append(amount)
        return "paid"

    return [look_up, sum_up, pay]


def shop_plan(*items: str, goal: str) -> Plan:
    """Return a plan that looks up items, adds up their prices, and pays."""
    steps = [
        Step(id=item, tool="look_up", args={"item": item, "seconds": 0.3 + 0.1 * n}) for n, item in enumerate(items)
    ]
    parts = [f"${{{item}}}" for item in items]
    return Plan(
        goal=goal,
        steps=[
            *steps,
            Step(id="sum", tool="sum_up", args={"parts": parts}),
            Step(id="pay", tool="pay", args={"amount": "${sum}", "to": "supplier@example.org"}, description="The bill"),
            Step(id="file", tool="look_up", args={"item": "invoice"}, depends_on=["pay"]),
        ],
    )


async def failed() -> Played:
    """Play a run that fails: its supplier is down, twice, and what depends on it is skipped."""
    return await play(shop_plan("chair", "lamp", "table", goal="Order the furniture"), shop_tools(), run_id="failed")


async def waiting() -> Played:
    """Play a run that waits for a person, and is suspended because nobody is there."""
    plan = shop_plan("chair", "table", "shelf", goal="Order what is missing")
    return await play(plan, shop_tools(), run_id="waits")


async def killed() -> Played:
    """Return a run as its record has it when its process is killed in the middle."""
    journal = MemoryJournal()
    plan = shop_plan("chair", "table", "bookcase", goal="Order before noon")
    async with dagrun.start(plan, tools=shop_tools(), journal=journal, run_id="killed") as run:
        await anyio.sleep(0.45)
        past = await dagrun.replay("killed", journal=journal)
        run.cancel()
        return Played(await run.result(), past)


async def slept() -> Played:
    """Play a run in which a person answers after three hours."""

    async def sleepy(question: Question) -> bool:
        await anyio.sleep(3 * 3600 + 240)
        return True

    plan = shop_plan("chair", "table", goal="Order, once somebody has agreed")
    return await play(plan, shop_tools(), run_id="slept", approver=sleepy)


async def revised(count: int = 50) -> Played:
    """Play a run whose plan the host changes many times."""

    @tool(effect="read")
    async def work(number: int) -> int:
        """Work."""
        await anyio.sleep(0.1)
        return number

    journal = MemoryJournal()
    plan = Plan(goal="A moving goal", steps=[Step(id="s0", tool="work", args={"number": 0})])
    async with dagrun.start(plan, tools=[work], journal=journal, run_id="revised") as run:
        for n in range(1, count + 1):
            step = Step(id=f"s{n}", tool="work", args={"number": n}, depends_on=[f"s{n - 1}"])
            await run.splice(Patch(edits=[dagrun.Add(step=step)], reason=f"one more, number {n}"))
            await anyio.sleep(0.05)
        result = await run.result()
    return Played(result, await dagrun.replay("revised", journal=journal))


async def wide(count: int = 1_000) -> Played:
    """Play a for_each over many elements."""

    @tool(effect="read")
    async def fetch(number: int) -> int:
        """Fetch something."""
        await anyio.sleep(0.01 * (number % 13 + 1))
        return number

    steps = [
        Step(id="each", tool="fetch", for_each=list(range(count)), args={"number": "${item}"}, max_parallel=40),
        Step(id="last", tool="fetch", args={"number": 1}, depends_on=["each"]),
    ]
    return await play(Plan(goal="Many of one kind", steps=steps), [fetch], run_id="wide")
