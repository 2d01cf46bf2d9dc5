"""Repairs that have nothing to do with each other: each asks the planner at once, and none makes another stale."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import anyio
import pytest

import dagrun
from dagrun import Brief, Drop, Event, MemoryJournal, Patch, Plan, PlanningRule, Policy, Replace, Rewire, Status, Step
from dagrun.events import PlannerCalled, ReplanEnded, ReplanStarted, Spliced
from dagrun.kernel.model.tool import make_tool
from dagrun.testing import run_virtual
from replans import Thinker, endings, fails, instead, nap, patch, run, start
from seeds import choose_seeds
from small_tools import near, states

pytestmark = [pytest.mark.anyio, pytest.mark.both_backends]


class Repairer:
    """A planner that replaces what has failed, after as many seconds as *seconds* says for each step."""

    def __init__(self, **seconds: float) -> None:
        self.seconds = seconds
        self.live = self.most = 0
        self.briefs: list[Brief] = []

    async def revise(self, brief: Brief) -> Patch:
        self.briefs.append(brief)
        self.live += 1
        self.most = max(self.most, self.live)
        try:
            await anyio.sleep(max(self.seconds.get(t.step, 5.0) for t in brief.triggers))
        finally:
            self.live -= 1
        return patch(*(Replace(id=t.step, step=nap(f"{t.step}-new", 1.0)) for t in brief.triggers))


def branches(count: int, *, joined: bool = False) -> list[Step]:
    """Branches that fail half a second after one another, and a step behind each; perhaps one behind all of those."""
    steps = []
    for n in range(count):
        steps += [nap(f"a{n}", 1 + n * 0.5), fails(f"f{n}", f"a{n}"), nap(f"g{n}", 1.0, f"f{n}")]
    return [*steps, nap("all", 1.0, *(f"g{n}" for n in range(count)))] if joined else steps


@pytest.mark.parametrize("joined", [False, True], ids=["apart", "joined in the end"])
async def test_a_repair_does_not_wait_for_another_one(joined: bool) -> None:
    """Two failures half a second apart, a planner of 5 seconds: 8.5 seconds, and not 13."""
    planner, events = Repairer(), list[Event]()
    result = await run(branches(2, joined=joined), planner, on_event=events.append)

    assert (result.status, result.makespan, planner.most) == (Status.SUCCEEDED, near(8.5 + joined), 2)
    assert [brief.triggers[0].step for brief in planner.briefs] == ["f0", "f1"]
    assert endings(events) == [("applied", ("f0",)), ("applied", ("f1",))]


async def test_the_record_says_which_request_a_call_and_a_patch_belong_to() -> None:
    events: list[Event] = []
    await run(branches(2), Repairer(f0=9.0, f1=2.0), on_event=events.append)

    assert [(e.number, e.steps) for e in events if isinstance(e, ReplanStarted)] == [(1, ("f0",)), (2, ("f1",))]
    assert [e.request for e in events if isinstance(e, PlannerCalled)] == [2, 1]
    assert [(e.request, e.consequence.replaced) for e in events if isinstance(e, Spliced)] == [
        (2, {"f1": "f1-new"}), (1, {"f0": "f0-new"}),
    ]  # fmt: skip
    assert [e.number for e in events if isinstance(e, ReplanEnded)] == [2, 1]


async def test_a_repair_near_another_one_waits_for_it() -> None:
    """The same step waits for both, and each patch may change that one."""
    planner = Repairer()
    result = await run([fails("f0"), nap("a", 1.0), fails("f1", "a"), nap("g", 1.0, "f0", "f1")], planner)

    assert (result.status, result.makespan, planner.most) == (Status.SUCCEEDED, near(12), 1)


async def test_elements_of_one_list_are_near_each_other() -> None:
    """A list of a hundred is no reason for a hundred planners at once."""
    planner = Thinker(lambda brief: patch(*(Drop(id=t.step) for t in brief.triggers)), None, None, seconds=5.0)

    async def moody(value: float) -> None:
        await anyio.sleep(value)
        raise dagrun.ToolError("no")

    each = Step(id="each", tool="moody", args={"value": "${item}"}, for_each=[0.0, 1.0, 2.0, 3.0])
    await run([each], planner, make_tool(moody, effect="read"))

    assert [len(steps) for steps in planner.steps] == [1, 3]


async def test_a_patch_that_a_person_looks_at_keeps_other_patches_from_being_applied() -> None:
    """Else the yes to the one could count for the other."""
    events: list[Event] = []
    async with start(
        branches(2), Repairer(f0=1.0, f1=1.0), attended=True, approve_patches="always", on_event=events.append
    ) as handle:
        await anyio.sleep(4)
        [question] = handle.pending
        assert "f0" in str(question.as_dict())
        await handle.answer(question, True)
        await anyio.sleep(1)
        [question] = handle.pending
        assert "f1" in str(question.as_dict())
        await handle.answer(question, False)
        result = await handle.result()

    assert endings(events) == [("applied", ("f0",)), ("denied", ("f1",))]
    assert (states(result)["g0"], states(result)["g1"]) == ("succeeded", "skipped")


async def test_ceilings_count_all_requests_together() -> None:
    for limits, asked in (({"max_replans": 2}, 2), ({"planning": PlanningRule(max_calls=2)}, 2)):
        planner = Repairer()
        result = await run(branches(4), planner, **limits)
        assert (len(planner.briefs), planner.most) == (asked, 2), limits
        assert [states(result)[f"g{n}"] for n in range(4)] == ["succeeded"] * 2 + ["skipped"] * 2


async def test_each_request_has_two_answers_of_its_own() -> None:
    """A refused answer of the one takes nothing from the other."""
    wrong = patch(Drop(id="nowhere"))
    answers = {"f0": [wrong, wrong], "f1": [wrong, instead("f1", nap("good", 1.0))]}

    class Clumsy:
        async def revise(self, brief: Brief) -> Any:
            await anyio.sleep(3)
            return answers[brief.triggers[0].step].pop(0)

    events: list[Event] = []
    result = await run(branches(2), Clumsy(), on_event=events.append)

    assert endings(events) == [("refused", ("f0",)), ("applied", ("f1",))]
    assert result.makespan == near(1.5 + 6 + 1 + 1)


async def test_a_changed_goal_waits_for_open_requests_and_is_alone() -> None:
    planner = Thinker(
        instead("f0", nap("one", 1.0)),
        instead("f1", nap("two", 1.0)),
        lambda brief: patch(Drop(id="g0")),
        seconds=4,
    )  # fmt: skip
    async with start(branches(2), planner) as handle:
        await anyio.sleep(2)
        await handle.change_goal("another")
        result = await handle.result()

    assert planner.steps == [["f0"], ["f1"], [""]]
    assert planner.asked_at == near([1, 1.5, 5.5])
    assert result.status is Status.SUCCEEDED


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_killed_run_goes_on_with_all_open_requests(backend: str) -> None:
    """Both were counted, both go on under their numbers, and each with its own step."""

    async def life(journal: MemoryJournal) -> Any:
        with anyio.move_on_after(4):
            async with dagrun.start(
                Plan(steps=branches(2)), tools=TOOLS, planner=Repairer(), journal=journal, run_id="r"
            ) as handle:
                await handle.result()
        events: list[Event] = []
        planner = Repairer()
        async with dagrun.resume("r", tools=TOOLS, planner=planner, journal=journal, on_event=events.append) as handle:
            result = await handle.result()
        return result, planner, events

    result, planner, events = run_virtual(partial(life, MemoryJournal()), backend=backend)
    assert (result.status, result.replans, planner.most) == (Status.SUCCEEDED, 2, 2)
    assert not [e for e in events if isinstance(e, ReplanStarted)]
    assert sorted((e.number, e.steps) for e in events if isinstance(e, ReplanEnded)) == [(1, ("f0",)), (2, ("f1",))]


async def _nap(seconds: float, gives: Any = None) -> Any:
    await anyio.sleep(seconds)
    return gives


async def _fail(message: str = "no") -> Any:
    raise ValueError(message)


TOOLS = [make_tool(_nap, name="nap", effect="read"), make_tool(_fail, name="fail", effect="read")]


# The law --------------------------------------------------------------------------------------------------------


def edits_of(rng: random.Random, n: int, *, joined: bool) -> list[Any]:
    """A repair of branch *n*: the failed step is replaced, and perhaps what is behind it."""
    edits: list[Any] = [Replace(id=f"f{n}", step=nap(f"r{n}", rng.choice((0.5, 1.0))))]
    choice = rng.random()
    if choice < 0.3:
        edits.append(Replace(id=f"g{n}", step=nap(f"h{n}", 1.0, f"r{n}")))
    elif choice < 0.5:
        edits.append(Rewire(id=f"g{n}", depends_on=(f"a{n}",)))
    elif choice < 0.6 and not joined:
        edits.append(Drop(id=f"g{n}"))
    if rng.random() < 0.3:
        edits.append(dagrun.Add(step=nap(f"extra{n}", 1.0, f"r{n}")))
    return edits


async def apply(repairs: list[Patch], steps: list[Step]) -> dict[str, Any]:
    """Apply patches that were all made from the first plan, in this order, while everything in it waits."""
    async with dagrun.start(Plan(steps=steps), tools=TOOLS, policy=Policy(max_running=1)) as handle:
        await anyio.sleep(0.1)
        for repair in repairs:
            await handle.splice(repair)
        plan = {step.id: step.model_dump() for step in handle.plan.current.steps}
        handle.cancel()
        await handle.result()
    return plan


def test_disjoint_repairs_commute() -> None:
    """In every order the plan is the same, though each was made from the plan without the others."""
    for seed in choose_seeds(20, 2_000):
        rng = random.Random(f"commute {seed}")
        count, joined = rng.randint(2, 4), rng.random() < 0.6
        steps = [nap("first", 99.0), *branches(count, joined=joined)]
        repairs = [Patch(edits=tuple(edits_of(rng, n, joined=joined)), base=0) for n in range(count)]
        orders = [rng.sample(repairs, count) for _ in range(3)]
        plans = [run_virtual(partial(apply, order, steps)) for order in orders]

        assert plans[0] == plans[1] == plans[2], seed
