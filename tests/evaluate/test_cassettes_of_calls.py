"""A recorded run comes to the same again: what calls use, second calls, shared results, reviews that take a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest
from pydantic import SecretStr

import dagrun
from dagrun import (
    Brief,
    Cassette,
    HedgeRule,
    MemoryJournal,
    Patch,
    Plan,
    Policy,
    Replace,
    Step,
    Toolbox,
    ToolCall,
    ToolContext,
    ToolError,
    Verdict,
    tool,
)
from dagrun.evaluate.cases.case_file import Case
from dagrun.model.event import AttemptStarted, Event
from dagrun.model.outcome import Outcome
from dagrun.testing import run_virtual
from hedge_tools import known
from played_again import differs_again

pytestmark = pytest.mark.real_time  # a virtual clock of its own

STARTED: list[str] = []


@tool(effect="read", max_cost=1.0)
async def ask(context: ToolContext) -> str:
    """Ask a model that costs nothing."""
    await anyio.sleep(1)
    context.report_usage(cost=0.0)
    return "answered"


@tool(effect="read", max_tokens=50)
async def look(context: ToolContext) -> str:
    """Never return in the first call, and at once in the second."""
    STARTED.append(context.step)
    context.report_usage(tokens=50 if len(STARTED) == 1 else 40)
    await anyio.sleep(100 if len(STARTED) == 1 else 0.5)
    return "seen"


@tool(effect="read", max_tokens=60, cache="run")
async def find(what: str, context: ToolContext) -> str:
    """Find it, once."""
    await anyio.sleep(1)
    context.report_usage(tokens=60)
    return what


@tool(effect="effectful")
async def pay() -> str:
    """Pay."""
    return "paid"


@tool(effect="read")
async def read(what: Any = None) -> Any:
    """Read it, in three seconds."""
    await anyio.sleep(3)
    return what


@tool(effect="read")
async def refuse() -> None:
    """Do nothing."""
    raise ToolError("no")


@tool(effect="read")
async def cling() -> None:
    """Take more time to stop than there is."""
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(60)


@tool(effect="effectful")
async def guarded(key: SecretStr, amount: int) -> int:
    """Pay."""
    return amount


class Ponders:
    """Judges what was paid, for four seconds; or for ever."""

    name = "ponders"

    def __init__(self, seconds: float = 4.0) -> None:
        self._seconds = seconds

    def applies_to(self, step: Step) -> bool:
        """What was paid."""
        return step.tool == "pay"

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge."""
        await anyio.sleep(self._seconds)
        return Verdict("fail", reason="too much")


def plan(*steps: Step, goal: str = "") -> Plan:
    return Plan(steps=steps, goal=goal)


async def a_call_that_costs_nothing(journal: MemoryJournal) -> None:
    """That is known of it, so there is room for the next one."""
    three = plan(*(Step(id=name, tool="ask") for name in "abc"))
    policy = Policy(max_cost=1.5, max_running=1)
    result = await dagrun.run(three, tools=[ask], policy=policy, journal=journal, run_id="r")
    assert result.status == "succeeded"


async def a_second_call(journal: MemoryJournal) -> None:
    """What it has used leaves no room for what is optional."""
    STARTED.clear()
    extra = Step(id="extra", tool="look", depends_on=("slow",), optional=True)
    facts: dict[str, Any] = {"policy": Policy(max_tokens=150, warn_at=0.5, hedge=HedgeRule()), "journal": journal}
    async with dagrun.Engine(durations=known("look")) as engine:
        result = await engine.run(plan(Step(id="slow", tool="look"), extra), tools=[look], run_id="r", **facts)
    assert [str(step.state) for step in result.steps.values()] == ["succeeded", "skipped"]


async def a_shared_result(journal: MemoryJournal) -> None:
    """It costs nothing, while three calls would pass the ceiling."""
    steps = [
        Step(id=id_, tool="find", args={"what": "x"}, depends_on=(*after,)) for id_, after in (("a", ""), "ba", "cb")
    ]
    policy = Policy(max_tokens=160)
    result = await dagrun.run(plan(*steps), tools=[find], policy=policy, journal=journal, run_id="r")
    assert (result.status, result.tokens) == ("succeeded", 60)


READS = plan(
    Step(id="pay", tool="pay"), Step(id="read", tool="read"), Step(id="last", tool="read", args={"what": "${pay}"})
)


async def a_review_that_takes_longer_than_a_call(journal: MemoryJournal) -> None:
    """The host splices between the ends of both."""
    async with dagrun.start(READS, tools=[pay, read], critics=[Ponders()], journal=journal, run_id="r") as run:
        await anyio.sleep(3.5)
        await run.splice(
            Patch(edits=[Replace(id="pay", step=Step(id="again", tool="read", args={"what": "good"}), cancel=True)])
        )
        await run.result()


async def _stopped_in_its_review(journal: MemoryJournal, step: str) -> None:
    critics = [Ponders(1_000)]
    async with dagrun.start(READS, tools=[pay, read], critics=critics, journal=journal, run_id="r") as run:
        await anyio.sleep(2)
        run.cancel(*([step] if step else []))
        await run.result()


async def a_step_that_is_cancelled_in_its_review(journal: MemoryJournal) -> None:
    await _stopped_in_its_review(journal, "pay")


async def a_run_that_is_cancelled_in_a_review(journal: MemoryJournal) -> None:
    await _stopped_in_its_review(journal, "")


async def a_call_that_does_not_stop(journal: MemoryJournal) -> None:
    """Nobody waits for it longer than the grace."""
    async with dagrun.start(plan(Step(id="a", tool="cling")), tools=[cling], journal=journal, run_id="r") as run:
        await anyio.sleep(2)
        run.cancel()
        assert str((await run.result()).steps["a"].state) == "abandoned"


class Prepares:
    """Calls a tool after five seconds that nobody's time limit counts."""

    async def call(self, call: ToolCall) -> object:
        """Prepare, and call it."""
        with call.clock_stopped():
            await anyio.sleep(5)
        return await call.tool.function(**call.arguments)

    async def aclose(self) -> None:
        """Do nothing."""


async def a_call_that_is_prepared(journal: MemoryJournal) -> None:
    """It took eight seconds of the four that it may take."""
    steps = plan(Step(id="a", tool="read", timeout=4.0, executor="far"))
    facts: dict[str, Any] = {"executors": {"far": Prepares()}, "journal": journal, "run_id": "r"}
    assert (await dagrun.run(steps, tools=[read], **facts)).makespan == 8.0


class Mends:
    """Replaces what has failed, at once."""

    async def revise(self, brief: Brief) -> Patch:
        """Replace it."""
        return Patch(edits=[Replace(id=brief.triggers[0].step, step=Step(id="b", tool="read"))])


async def a_call_that_is_stopped_as_it_begins(journal: MemoryJournal) -> None:
    """The step before it has failed, a patch has come, and no time has passed."""
    begun = anyio.Event()

    def see(event: Event) -> None:
        if isinstance(event, AttemptStarted) and event.step == "b":
            begun.set()

    facts: dict[str, Any] = {"tools": [refuse, read], "planner": Mends(), "journal": journal, "on_event": see}
    async with dagrun.start(plan(Step(id="a", tool="refuse")), run_id="r", **facts) as run:
        await begun.wait()
        run.cancel()
        assert len((await run.result()).steps["b"].attempts) == 1


async def a_call_with_a_secret(journal: MemoryJournal) -> None:
    """A case makes one up, without the tool, too."""
    step = Step(id="a", tool="guarded", args={"key": {"$secret": "crm"}, "amount": 3})
    secrets = {"crm": dagrun.Secret("k9Xb27Qz81")}
    result = await dagrun.run(plan(step), tools=[guarded], secrets=secrets, journal=journal, run_id="r")
    assert result.output == 3, result.reason


KINDS = (
    a_call_with_a_secret,
    a_call_that_is_prepared,
    a_call_that_is_stopped_as_it_begins,
    a_call_that_costs_nothing,
    a_second_call,
    a_shared_result,
    a_review_that_takes_longer_than_a_call,
    a_step_that_is_cancelled_in_its_review,
    a_run_that_is_cancelled_in_a_review,
    a_call_that_does_not_stop,
)


@pytest.mark.parametrize(
    "tools", [None, [ask, look, find, pay, read, refuse, cling, guarded]], ids=["by its contracts", "by today's tools"]
)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_run_comes_to_the_same_again(kind: Callable[[MemoryJournal], Awaitable[object]], tools: Any) -> None:
    """What is charged, too, which decides what there is room for."""
    assert differs_again(kind, tools) == []


def test_a_plan_of_thousands_of_steps_is_checked_in_no_time() -> None:
    """On a real clock that is done in a thread, and a virtual one would jump to the next time limit meanwhile."""
    steps = [{"id": f"s{number}", "tool": "pay"} for number in range(2_500)]
    facts = {"id": "big", "plan": {"steps": steps}, "world": {"pay": "paid"}, "policy": {"max_steps": 5_000}}

    async def main() -> list[Any]:
        cassette = Cassette(Case.model_validate(facts), Toolbox([pay]))
        with anyio.fail_after(60):
            result = await cassette.run()
        return [str(result.status), anyio.current_time()]

    assert run_virtual(main) == ["succeeded", 0.0]
