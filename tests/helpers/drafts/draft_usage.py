"""Random drafts whose planner calls models, beside steps that use tokens too, under ceilings that are often reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Final

import anyio

from ceilings import NEARLY, TOOLS, Book, limits_of, random_plan, random_policy, step
from dagrun import Add, Brief, Budget, Engine, Event, Patch, Plan, PlanningRule, Policy, RetryRule, RunResult, Status
from dagrun.errors import ModelError, OverCeiling
from dagrun.events import AttemptEnded, PlannerCalled
from dagrun.kernel.graph.ledger import ModelCall
from dagrun.kernel.model.usage import METER
from dagrun.testing import run_virtual

WORST: Final = (5, 40, 90)  # tokens of a call
FOR_EVER: Final = 100_000.0  # virtual seconds
TOLD_TO_STOP: Final = "it was told to stop"


@dataclass
class Account:
    """What one call of a planner has used, by its own account.

    Attributes:
        tokens: Of its models, as far as they said so.
        costs: What each of them said that it costs.
        refused: The ceiling that kept a call from being made, in a sentence.
    """

    tokens: int = 0
    costs: list[float | None] = field(default_factory=list)
    refused: str = ""

    @property
    def cost(self) -> float | None:
        """All of it, if all of it is known."""
        return None if None in self.costs or not self.costs else sum(cost for cost in self.costs if cost is not None)


class Models:
    """The calls of models that the planner of one run makes, kept in the book of all.

    Attributes:
        calls: Of the planner, newest last.
    """

    def __init__(self, books: list[Book], run: int, rng: Random) -> None:
        self.calls: list[Account] = []
        self._books, self._run, self._rng = books, run, rng
        self._count = 0

    async def call(self) -> None:
        """Call a model: reserve the worst, take some time, and settle what it says that it has used."""
        rng, account = self._rng, self.calls[-1]
        most, dearest = rng.choice(WORST), rng.choice((0.05, 0.3))
        self._count += 1
        key = (self._run, f"model {self._count}")
        try:
            charge = METER.get().reserve("a-model", most, dearest)
        except OverCeiling as error:
            account.refused = str(error)
            raise
        for book in self._books:
            book.open[key] = ModelCall("a-model", most, dearest)  # type: ignore[assignment]
        self._look("reserved")
        tokens = rng.choice((None, most, rng.randint(1, most)))
        cost = None if tokens is None else rng.choice((dearest, dearest / 2))
        try:
            await anyio.sleep(rng.choice((0.0, 0.5, 2.0)))
        finally:
            account.tokens += tokens or 0
            account.costs.append(cost)
            for book in self._books:
                del book.open[key]
                for what, used in (("tokens", most if tokens is None else tokens), ("cost", cost or dearest)):
                    book.spent[what] = book.spent.get(what, 0) + used
            self._look("settled")
            charge.settle(tokens, cost)

    def _look(self, when: str) -> None:
        for book in self._books:
            reserved = {
                "tokens": sum(call.max_tokens or 0 for call in book.open.values()),
                "cost": sum(call.max_cost or 0.0 for call in book.open.values()),
            }
            for what, limit in book.limits.items():
                total = book.spent.get(what, 0) + reserved.get(what, 0)
                if total > limit + NEARLY:
                    book.faults.append(f"{what}: {total} of {limit}, a model has {when}")


class CostlyPlanner:
    """Writes a plan with the help of models, sometimes of a few at once; and is sometimes wrong, busy or cut off."""

    def __init__(self, plan: Plan, models: Models, rng: Random) -> None:
        self.kinds: list[str] = []
        self._plan, self._models, self._rng = plan, models, rng

    def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        self._models.calls.append(Account())
        if not brief.is_first:
            return self._leave_it()
        self.kinds.append("repair" if brief.refused else "first")
        return self._mend() if brief.refused else self._write()

    async def _leave_it(self) -> None:
        await self._models.call()

    async def _mend(self) -> Plan:
        await self._models.call()
        return self._plan

    async def _write(self) -> AsyncIterator[Any]:
        rng = self._rng
        await self._models.call()
        if rng.random() < 0.2:
            raise ModelError("busy", is_transient=True, retry_after=1.0)
        for number, one in enumerate(self._plan.steps):
            if rng.random() < 0.3:
                await self._think()
            yield Add(step=one)
            if number == 1 and rng.random() < 0.2:
                yield Add(step=step("wrong", "fly"))
        yield Patch(edits=(), confidence=1.0)

    async def _think(self) -> None:
        if self._rng.random() < 0.5:
            await self._models.call()
            return
        async with anyio.create_task_group() as tasks:
            for _ in range(2):
                tasks.start_soon(self._models.call)


@dataclass
class Usage:
    """What came of a case.

    Attributes:
        faults: Every ceiling that was exceeded, and every other rule that was broken.
        counts: What was exercised.
    """

    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def run_usage(seed: int) -> Usage:
    """Run a few drafts beside each other, on the back end that the seed chooses."""
    usage = Usage()

    async def main() -> None:
        with anyio.move_on_after(FOR_EVER) as whole:
            await _play(seed, usage)
        if whole.cancelled_caught:
            usage.faults.append("a run did not end")

    run_virtual(main, backend=("asyncio", "trio")[seed % 2])
    return usage


async def _play(seed: int, usage: Usage) -> None:
    rng = Random(f"usage {seed}")
    limits: dict[str, Any] = {"max_tokens": rng.choice((100, 300, 900)), "max_cost": rng.choice((0.5, 2.0))}
    kept = {name: limit for name, limit in limits.items() if rng.random() < 0.6}
    budget = Budget(**kept) if kept and rng.random() < 0.6 else None
    shared = Book({name.removeprefix("max_"): n for name, n in kept.items()} if budget is not None else {})
    async with Engine(budget=budget) as engine, anyio.create_task_group() as tasks:
        for number in range(rng.randint(1, 3)):
            tasks.start_soon(partial(_run, engine, number, shared, Random(rng.random()), usage))
    usage.faults += shared.faults
    if budget is not None and (budget.open or budget.waiting):
        usage.faults.append(f"{budget.open} calls are open, and {len(budget.waiting)} runs wait, after the end")


async def _run(engine: Engine, number: int, shared: Book, rng: Random, usage: Usage) -> None:
    policy = random_policy(rng).model_copy(
        update={
            "planning": PlanningRule(max_calls=rng.choice((None, 1, 2, 3)), max_edits=1_000),
            "retry": RetryRule(max_attempts=2, first_delay=0.0),
        }
    )
    own = Book(limits_of(policy))
    models = Models([own, shared], number, rng)
    planner = CostlyPlanner(random_plan(rng, rng.randint(1, 6)), models, rng)
    events: list[Event] = []
    readers: list[Callable[[Event], None]] = [own.reader(number), shared.reader(number), events.append]

    def see(event: Event) -> None:
        for reader in readers:
            reader(event)

    options: dict[str, Any] = {"tools": TOOLS, "policy": policy, "planner": planner, "on_event": see, "seed": number}
    async with engine.start(goal="the goal", **options) as running:
        if rng.random() < 0.2:
            await anyio.sleep(rng.choice((0.0, 1.0, 2.5)))
            running.cancel()
        result = await running.result()
    usage.faults += own.faults
    usage.faults += _told_wrong(events, models, result)
    usage.faults += _ended_wrong(policy, planner, models, result)
    usage.counts += _counted(events, planner, models, result)


def _told_wrong(events: list[Event], models: Models, result: RunResult) -> list[str]:
    """Compare what the record says of each call with what its models have said."""
    calls = [event for event in events if isinstance(event, PlannerCalled)]
    found: list[str] = []
    for event, account in ((event, models.calls[event.number - 1]) for event in calls):  # they may overlap
        # Of a call that was told to stop, the record tells what was known then.
        if event.fault == TOLD_TO_STOP:
            return found
        if event.tokens != account.tokens or not _is_near(event.cost, account.cost):
            found.append(f"{event}, but its models have used {account.tokens} and {account.costs}")
    if len(calls) == len(models.calls):
        known = sum(account.tokens for account in models.calls)
        known += sum(event.outcome.tokens for event in events if isinstance(event, AttemptEnded))
        if result.tokens != known:
            found.append(f"the result says {result.tokens} tokens, and models and tools have used {known}")
    return found


def _is_near(cost: float | None, wanted: float | None) -> bool:
    return cost is wanted if cost is None or wanted is None else abs(cost - wanted) < NEARLY


def _ended_wrong(policy: Policy, planner: CostlyPlanner, models: Models, result: RunResult) -> list[str]:
    """A call that does not fit ends a run that has no plan, and the ceiling is named."""
    found = []
    limit = policy.planning.max_calls
    if limit is not None and len(models.calls) > limit:
        found.append(f"the planner was called {len(models.calls)} times, and the ceiling is {limit}")
    if planner.kinds.count("first") > 2 or planner.kinds.count("repair") > 1:
        found.append(f"the planner was asked for {planner.kinds}")
    last = next((call for call in reversed(models.calls)), Account())
    if last.refused and result.status not in (Status.CANCELLED, Status.OVER_BUDGET) and not result.has_plan:
        found.append(f"{result.status}: {result.reason}, and {last.refused}")
    if result.status is Status.OVER_BUDGET and "ceiling of" not in result.reason:
        found.append(f"no ceiling is named: {result.reason}")
    if any(not ended.state.is_settled for ended in result.steps.values()):
        found.append("not every step has settled")
    return found


def _counted(events: list[Event], planner: CostlyPlanner, models: Models, result: RunResult) -> Counter[str]:
    costs = [cost for call in models.calls for cost in call.costs]
    return Counter(
        {
            "runs": 1,
            "runs with a plan": int(result.has_plan),
            "runs over budget without a plan": int(result.status is Status.OVER_BUDGET and not result.has_plan),
            "calls of models": len(costs),
            "calls that did not fit": sum(1 for call in models.calls if call.refused),
            "calls that nobody knows the use of": costs.count(None),
            "repairs": planner.kinds.count("repair"),
            "tries of a busy model": planner.kinds.count("first") - 1,
            "runs that ran out of calls": int("planner calls" in result.reason),
        }
    )
