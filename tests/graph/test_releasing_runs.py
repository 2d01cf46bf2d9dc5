"""Runs that release outputs: they hold little, answer the same, and go on from their records as if all were there."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from typing import Any, Final

import anyio
import pytest

import dagrun
from dagrun import Event, MemoryJournal, Plan, PlanningRule, Policy, Replace, Run, Step, ToolContext
from dagrun.codec import decode_event
from dagrun.events import AttemptEnded, RunStarted
from dagrun.kernel.graph.fold import state_hash
from dagrun.kernel.model.tool import make_tool
from dagrun.kernel.model.value import RELEASED
from hedge_tools import HEDGED, Act, Looker, known
from judges import Judge
from released import marks_held
from replans import Thinker, patch
from small_tools import AT_ONCE, states, toolset

pytestmark = pytest.mark.anyio

MEGABYTE: Final = 1_000_000
RELEASE: Final = Policy(release_outputs=True)
RUN: Final = "run"


async def fill(number: int = 0, of: Any = None) -> str:
    return chr(97 + number % 26) * MEGABYTE


FILL: Final = make_tool(fill, effect="pure")


def long_chain(count: int) -> Plan:
    """Each step hands on a megabyte."""
    steps = [Step(id="s0", tool="fill")]
    steps += [Step(id=f"s{n}", tool="fill", args={"number": n, "of": f"${{s{n - 1}}}"}) for n in range(1, count)]
    return Plan(steps=steps)


async def peak_of(plan: Plan, **options: Any) -> float:
    """The most that a run of *plan* takes, in megabytes."""
    await dagrun.run(long_chain(2), tools=[FILL])  # loads what is loaded on first use
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = await dagrun.run(plan, tools=[FILL], **options)
        assert result.output == "r" * MEGABYTE
        return (tracemalloc.get_traced_memory()[1] - before) / MEGABYTE
    finally:
        tracemalloc.stop()


async def test_a_chain_holds_what_its_last_steps_gave() -> None:
    """44 steps hand on a megabyte each: at no time there is more than a call takes, and what it has got."""
    assert await peak_of(long_chain(44), policy=RELEASE) < 8


async def test_without_the_policy_it_holds_all() -> None:
    """Else the test above would show nothing."""
    assert await peak_of(long_chain(44)) > 40


def echo(id_: str, value: Any, *after: str, **fields: Any) -> Step:
    return Step(id=id_, tool="echo", args={"value": value}, depends_on=after, **fields)


# Everything that holds it -------------------------------------------------------------------------------------------


def says(id_: str, *after: str, **fields: Any) -> Step:
    """A step that gives its mark, made of two parts: the plan itself does not have it."""
    return Step(id=id_, tool="say", args={"left": f"<<{id_}", "right": ">>"}, depends_on=after, **fields)


async def say(left: str, right: str, of: Any = None) -> dict[str, str]:
    return {"said": left + right}


async def numbered(left: str) -> list[str]:
    return [f"{left}{number}>>" for number in range(3)]


async def take(value: Any) -> dict[str, Any]:
    return {"took": f"<<e{str(value)[3:-2]}>>"}


async def stubborn(context: ToolContext) -> dict[str, str]:
    if context.attempt == 1:
        try:
            await anyio.sleep(60)
        except anyio.get_cancelled_exc_class():
            return {"said": "".join(["<<late", "1>>"])}
    return {"said": "".join(["<<late", "2>>"])}


def everything(probe: Any) -> tuple[list[Step], list[Any]]:
    """Steps of every sort that give a mark, and one in the end that looks at who still has it."""
    steps = [
        says("plain"),
        Step(id="list", tool="numbered", args={"left": "<<i"}),
        Step(id="each", tool="take", for_each="${list}", args={"value": "${item}"}),
        Step(id="late", tool="stubborn", timeout=1.0, retry=AT_ONCE),
        Step(id="joins", tool="say", args={"left": "<<joins", "right": ">>", "of": ["${each}", "${plain}", "${late}"]}),
        Step(id="probe", tool="probe", depends_on=["joins"]),
        says("last", "probe"),
    ]
    return steps, [make_tool(function, effect="read") for function in (say, numbered, take, stubborn, probe)]


async def test_nothing_of_a_run_holds_what_was_released() -> None:
    """Not the graph, not the attempts, not the events, not the calls: not while it runs, and not when it is over."""
    seen: list[set[str]] = []
    running: list[Run] = []

    async def probe() -> None:
        seen.append(marks_held(running[0]))

    steps, tools = everything(probe)
    async with dagrun.start(Plan(steps=steps, output="${last}"), tools=tools, policy=RELEASE) as run:
        running.append(run)
        result = await run.result()
        running.clear()
        held = marks_held(run, result)

    assert states(result)["last"] == "succeeded"
    assert seen == [set()]
    assert held == {"last"}
    assert result.output == {"said": "<<last>>"}


async def test_without_the_policy_all_of_it_is_held() -> None:
    """Else the test above would look in the wrong places."""
    steps, tools = everything(say)
    tools[-1] = make_tool(nothing, name="probe", effect="read")
    async with dagrun.start(Plan(steps=steps), tools=tools) as run:
        result = await run.result()
        held = marks_held(run, result)

    marks = {"plain", "late1", "late2", "joins", "last"}
    assert held == marks | {f"{kind}{number}" for kind in "ie" for number in range(3)}


async def nothing() -> None: ...


async def test_what_critics_have_looked_at_goes_too() -> None:
    """Whether it has passed or not."""
    critics = [Judge("pass", step="good"), Judge("fail", step="bad", name="other")]
    bad = echo("bad", ["x"], on_failure="skip")
    steps = [echo("good", ["x"]), bad, echo("last", 1, "good", "bad")]

    result = await dagrun.run(Plan(steps=steps, output="${last}"), tools=toolset(), policy=RELEASE, critics=critics)

    outcomes = [result.steps[id_].attempts[0].outcome for id_ in ("good", "bad")]
    assert states(result) == {"good": "succeeded", "bad": "failed", "last": "succeeded"}
    assert [outcome.value for outcome in outcomes if outcome is not None] == [RELEASED, RELEASED]


async def test_a_call_that_has_won_beside_a_slow_one_is_let_go() -> None:
    """An alarm knows the call for as long as the slow one may take to stop."""
    seen: list[set[str]] = []
    running: list[Run] = []

    async def fast(context: ToolContext) -> dict[str, str]:
        return {"said": "".join(["<<fast1", ">>"])}

    async def probe() -> None:
        await anyio.sleep(1)  # until the slow one has unwound
        seen.append(marks_held(running[0]))

    looker = Looker(Act(seconds=60.0), Act(seconds=0.1, gives=fast))
    steps = [Step(id="slow", tool="look"), Step(id="probe", tool="probe", depends_on=["slow"])]
    policy = Policy(release_outputs=True, hedge=HEDGED, grace=30.0)
    tools = [looker.tool, make_tool(probe, effect="read")]
    plan = Plan(steps=steps, output="${probe}")
    async with dagrun.start(plan, tools=tools, policy=policy, durations=known()) as run:
        running.append(run)
        result = await run.result()

    assert looker.ends == ["cancelled", "returned"]
    assert result.steps["slow"].attempts[0].hedge is not None
    assert seen == [set()]


# Who still sees it --------------------------------------------------------------------------------------------------


SHORT: Final = (echo("a", ["from a"]), echo("b", ["${a}"]), echo("c", ["${b}"]))
GAVE: Final = {"a": ["from a"], "b": [["from a"]], "c": [[["from a"]]]}


def given(events: Sequence[Event]) -> dict[str, Any]:
    """What the steps gave, as events say."""
    return {event.step: event.outcome.output for event in events if isinstance(event, AttemptEnded)}


async def test_observers_see_what_was_released() -> None:
    """Those that look at once, and those that look when all is over."""
    events: list[Event] = []
    async with dagrun.start(Plan(steps=SHORT), tools=toolset(), policy=RELEASE, on_event=events.append) as run:
        later = run.events()
        result = await run.result()

    assert result.steps["a"].stored is RELEASED
    assert given(events) == GAVE
    assert given([event async for event in later]) == GAVE


async def test_the_record_has_all_of_it() -> None:
    """And its replay gives the state that the run had, with what the run has let go."""
    journal = MemoryJournal()
    async with dagrun.start(Plan(steps=SHORT), tools=toolset(), policy=RELEASE, journal=journal, run_id=RUN) as run:
        result = await run.result()

    past = await dagrun.replay(RUN, journal=journal)

    assert given([decode_event(line.text) for line in await journal.read(RUN)]) == GAVE
    assert {id_: step.output for id_, step in past.steps.items()} == GAVE
    assert past.hash == state_hash(run._assembly.parts.graph)
    assert result.as_dict()["steps"]["b"]["output"] == {"unavailable": RELEASED.reason}


async def test_a_record_of_before_there_was_the_policy_is_read() -> None:
    """Its policy says nothing of it, and means that nothing is released."""
    journal = MemoryJournal()
    await dagrun.run(Plan(steps=SHORT), tools=toolset(), journal=journal, run_id=RUN)
    text = (await journal.read(RUN))[0].text
    assert b'"release_outputs":false' in text

    old = decode_event(text.replace(b',"release_outputs":false', b"").replace(b'"release_outputs":false,', b""))

    assert isinstance(old, RunStarted)
    assert old.opening is not None
    assert old.opening.policy == Policy()


# Planners -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("brief", ["structural", "full"])
async def test_a_planner_is_told_what_was_released(brief: str) -> None:
    """It may make it again, and what it still needs for that was kept: the arguments of the step that has failed."""
    bad = Step(id="bad", tool="fail", args={"message": "${b}"})
    better = Replace(id="bad", step=echo("better", ["${b}"]))
    planner = Thinker(patch(better))
    policy = Policy(release_outputs=True, planning=PlanningRule(brief=brief))  # type: ignore[arg-type]
    plan = Plan(steps=[echo("a", ["from a"]), echo("b", "${a[0]}"), bad], goal="find out")

    result = await dagrun.run(plan, tools=toolset(), policy=policy, planner=planner)

    assert planner.briefs[0].results["a"] == {"unavailable": RELEASED.reason}
    assert planner.briefs[0].results["b"] != {"unavailable": RELEASED.reason}
    assert result.output == ["from a"]


async def test_a_planner_that_wants_what_is_gone_is_told_and_can_mend_it() -> None:
    """Its patch is refused like any other that cannot be carried out."""
    bad = Step(id="bad", tool="fail", depends_on=["b"])
    wrong = patch(Replace(id="bad", step=echo("new", "${a}")))
    right = patch(Replace(id="bad", step=echo("new", "${a2}")), dagrun.Add(step=echo("a2", ["from a"])))
    planner = Thinker(wrong, right)
    plan = Plan(
        steps=[echo("a", ["from a"]), echo("b", "${a}"), bad.model_copy(update={"depends_on": ("b",)})],
        goal="x",
        output="${bad}",
    )

    result = await dagrun.run(plan, tools=toolset(), policy=RELEASE, planner=planner)

    (refused,) = planner.briefs[1].refused
    assert [problem.code for problem in refused.problems] == ["DR423"]
    assert result.output == ["from a"]
