"""`max_replans_per_step`: each part of a plan has replans of its own, under the ceiling of the whole run."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Add, Brief, Event, MemoryJournal, Patch, Plan, PlanningRule, Policy, Replace, Status, Step
from dagrun.events import ReplanEnded, ReplanStarted
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import run_virtual
from replans import Thinker, endings, fails, nap, patch, run, start
from seeds import choose_seeds
from small_tools import states

pytestmark = pytest.mark.anyio


def failing(id_: str, *after: str) -> Step:
    """A step that fails in a way of its own: the planner is not asked twice about the same failure."""
    return fails(id_, *after, args={"message": f"{id_} is broken"})


class Hopeless:
    """Puts another failing step in for each that fails, or adds one and drops nothing; *good* steps it mends.

    Attributes:
        asked: The steps that it was asked about, by request.
        left: How many replans it was told are left, by request.
    """

    def __init__(self, *good: str, seconds: float = 1.0) -> None:
        self.good = good
        self.seconds = seconds
        self.asked: list[tuple[str, ...]] = []
        self.left: list[float] = []

    async def revise(self, brief: Brief) -> Patch:
        steps = tuple(trigger.step for trigger in brief.triggers)
        self.asked.append(steps)
        self.left.append(brief.left["replans"])
        await anyio.sleep(self.seconds)
        return patch(*(self.edit(step) for step in steps))

    def edit(self, step: str) -> Replace:
        return Replace(id=step, step=nap(f"{step}x", 1.0) if step in self.good else failing(f"{step}x"))


async def test_a_hopeless_step_takes_no_replans_from_others() -> None:
    """Without a budget of its own, it would use up the ceiling of the run before the second step fails."""
    steps = [failing("f"), nap("f-behind", 1.0, "f"), nap("a", 30.0), failing("g", "a"), nap("g-behind", 1.0, "g")]
    alone = await run(steps, Hopeless("g"), max_replans=4)
    assert states(alone)["g-behind"] == "skipped"

    planner, events = Hopeless("g"), list[Event]()
    result = await run(
        steps, planner, max_replans=4, planning=PlanningRule(max_replans_per_step=2), on_event=events.append
    )

    assert planner.asked == [("f",), ("fx",), ("g",)]
    assert endings(events) == [("applied", ("f",)), ("applied", ("fx",)), ("stopped", ("fxx",)), ("applied", ("g",))]
    assert (states(result)["f-behind"], states(result)["g-behind"]) == ("skipped", "succeeded")
    [stopped] = [event for event in events if isinstance(event, ReplanEnded) and event.result == "stopped"]
    assert stopped.reason == "ceiling of 2 replans per step is spent: 2 used for f, which fxx belongs to"


async def test_the_planner_is_told_the_smaller_rest() -> None:
    planner = Hopeless()
    await run([failing("f")], planner, max_replans=9, planning=PlanningRule(max_replans_per_step=3))
    assert planner.left == [2, 1, 0]

    planner = Hopeless()
    await run([failing("f")], planner, max_replans=2, planning=PlanningRule(max_replans_per_step=9))
    assert planner.left == [1, 0]


async def test_the_ceiling_of_the_run_stays() -> None:
    planner = Hopeless()
    steps = [failing("f"), nap("a", 0.5), failing("g", "a")]
    await run(steps, planner, max_replans=3, planning=PlanningRule(max_replans_per_step=2))
    assert planner.asked == [("f",), ("g",), ("fx",)]


async def test_steps_that_a_repair_adds_belong_to_what_it_repairs() -> None:
    """Else a planner that adds a step in place of replacing one would be asked for ever."""
    answers = [patch(Add(step=failing(f"more{n}"))) for n in range(9)]
    planner = Thinker(*answers)
    await run([failing("f")], planner, max_replans=9, planning=PlanningRule(max_replans_per_step=2))

    assert planner.steps == [["f"], ["more0"]]


async def test_elements_count_for_their_list() -> None:
    async def moody(value: float) -> None:
        await anyio.sleep(value)
        raise dagrun.ToolError(f"no {value}")

    each = Step(id="each", tool="moody", args={"value": "${item}"}, for_each=[0.0, 10.0, 20.0, 30.0])
    planner = Hopeless()
    planner.edit = lambda step: Replace(id=step, step=nap(f"x{len(planner.asked)}", 1.0))  # type: ignore[method-assign]
    result = await run(
        [each], planner, make_tool(moody, effect="read"), max_replans=9, planning=PlanningRule(max_replans_per_step=2)
    )

    assert planner.asked == [("each[0]",), ("each[1]",)]
    assert states(result)["each[2]"] == "failed"


async def test_a_request_about_several_steps_counts_for_each() -> None:
    """They fail together, and are one request; later each is a part with one replan less."""
    planner = Hopeless()
    planner.edit = lambda step: Replace(  # type: ignore[method-assign]
        id=step, step=failing(f"{step}x", *(["a"] if step == "g" else []))
    )
    steps = [failing("f"), failing("g"), nap("a", 9.0)]
    events: list[Event] = []
    await run(steps, planner, max_replans=9, planning=PlanningRule(max_replans_per_step=2), on_event=events.append)

    assert planner.asked == [("f", "g"), ("fx",), ("gx",)]
    assert [e.steps for e in events if isinstance(e, ReplanEnded) and e.result == "stopped"] == [("fxx",), ("gxx",)]


async def test_what_the_host_puts_in_begins_anew() -> None:
    """The host has looked at it, and may have mended what made the planner fail."""
    planner = Hopeless()
    async with start(
        [failing("f"), nap("a", 9.0)], planner, max_replans=9, planning=PlanningRule(max_replans_per_step=1)
    ) as handle:
        await anyio.sleep(5)
        assert planner.asked == [("f",)]
        await handle.splice(Patch(edits=(Add(step=failing("host")),)))
        await handle.result()

    assert planner.asked == [("f",), ("host",)]


async def test_a_changed_goal_is_about_no_step() -> None:
    planner = Thinker(
        patch(Replace(id="f", step=failing("fx"))),
        lambda brief: patch(Add(step=nap("new", 1.0))),
        seconds=1,
    )  # fmt: skip
    async with start(
        [failing("f"), nap("a", 9.0)], planner, max_replans=9, planning=PlanningRule(max_replans_per_step=1)
    ) as handle:
        await anyio.sleep(5)
        await handle.change_goal("another")
        result = await handle.result()

    assert planner.steps == [["f"], [""]]
    assert states(result)["new"] == "succeeded"


async def test_a_spent_budget_escalates_where_the_policy_says_so() -> None:
    result = await run(
        [failing("f")], Hopeless(), max_replans=9, planning=PlanningRule(max_replans_per_step=1), last_resort="escalate"
    )

    assert result.status is Status.ESCALATED
    assert "ceiling of 1 replans per step" in result.reason


# The law --------------------------------------------------------------------------------------------------------


async def _nap(seconds: float, gives: Any = None) -> Any:
    await anyio.sleep(seconds)
    return gives


async def _fail(message: str = "no") -> Any:
    raise ValueError(message)


TOOLS = [make_tool(_nap, name="nap", effect="read"), make_tool(_fail, name="fail", effect="read")]


class Random:
    """Repairs by chance; what it brings is called after the step that has failed, so that names say where all began."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    async def revise(self, brief: Brief) -> Patch:
        await anyio.sleep(self.rng.choice((0.5, 2.0, 5.0)))
        edits: list[Any] = []
        for trigger in brief.triggers:
            name = f"{trigger.step.partition('.')[0]}.{brief.number}"
            new = nap(name, 1.0) if self.rng.random() < 0.3 else failing(name)
            edits.append(Replace(id=trigger.step, step=new) if self.rng.random() < 0.7 else Add(step=new))
        return patch(*edits)


async def lives(rng: random.Random, policy: Policy) -> list[Event]:
    """Run branches that fail at different times; the process is killed now and then. Return all events."""
    steps = [s for n in range(4) for s in (nap(f"a{n}", rng.choice((0.5, 1.0, 3.0))), failing(f"f{n}", f"a{n}"))]
    journal, events, plan = MemoryJournal(), list[Event](), Plan(steps=steps)
    options: dict[str, Any] = {"tools": TOOLS, "journal": journal, "on_event": events.append}
    with anyio.move_on_after(rng.choice((2.0, 4.0, 8.0))):
        async with dagrun.start(plan, policy=policy, planner=Random(rng), run_id="r", **options) as handle:
            await handle.result()
            return events
    while True:
        with anyio.move_on_after(rng.choice((3.0, 6.0, 90.0))):
            async with dagrun.resume("r", planner=Random(rng), **options) as handle:
                await handle.result()
                return events


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_no_part_is_asked_about_more_often_and_none_less(backend: str) -> None:
    """Whatever runs side by side, and however often the run is killed; the names of the steps are the oracle."""
    for seed in choose_seeds(10, 500):
        rng = random.Random(f"budgets {seed}")
        limit = rng.randint(1, 3)
        policy = Policy(max_replans=99, planning=PlanningRule(max_replans_per_step=limit))
        events = run_virtual(partial(lives, rng, policy), backend=backend)

        requests = {event.number: event.steps for event in events if isinstance(event, ReplanStarted)}
        asked = Counter(part for steps in requests.values() for part in {step.partition(".")[0] for step in steps})
        stopped = [step for e in events if isinstance(e, ReplanEnded) and e.result == "stopped" for step in e.steps]
        assert max(asked.values()) <= limit, seed
        for step in stopped:
            assert asked[step.partition(".")[0]] == limit, seed
