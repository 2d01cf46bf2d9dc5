"""Rules taken from other people's bugs, each held while the plan changes under way.

They are the rules of section 7 of a study of twenty systems, by their numbers. Of two of them, 10 (a resume with
another plan or other tools is refused) and 11 (a failed step is not completed by a resume), only the part that needs no
record to resume from can be tested here.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import anyio
import pytest
import trio

import dagrun
from dagrun import (
    Add,
    Brief,
    Drop,
    Plan,
    PlanningRule,
    Policy,
    Question,
    Replace,
    Rewire,
    State,
    Status,
    Step,
    Toolbox,
    ToolError,
)
from dagrun.errors import ContractError, SpliceRefused
from dagrun.kernel.model.tool import make_tool
from misbehaving import BEHAVIOURS
from replans import Thinker, fails, instead, nap, patch, run, start
from small_tools import AT_ONCE, near, scripted, states, toolset

pytestmark = pytest.mark.anyio


def _tasks() -> set[int]:
    return {task.id for task in anyio.get_running_tasks()}


@pytest.mark.parametrize("how", ["returns", "raises", "is cancelled"])
async def test_rule_1_after_a_run_no_task_of_it_is_alive(how: str) -> None:
    """Neither of its steps nor of its planner, whatever they were at."""
    before, seen = _tasks(), [0]

    async def around() -> None:
        async with start([fails("bad"), nap("slow", 9.0)], Thinker(seconds=20)) as handle:
            await anyio.sleep(1)
            seen[0] = len(_tasks() - before)
            if how == "raises":
                raise KeyError
            if how == "is cancelled":
                handle.cancel()

    try:
        await around()
    except KeyError:
        assert how == "raises"

    assert seen[0] >= 2
    assert _tasks() == before


@pytest.mark.parametrize("name", ["raises_exception", "raises_system_exit", "raises_generator_exit", "raises_group"])
async def test_rule_2_nothing_that_raises_can_leave_the_scheduler_waiting(name: str) -> None:
    """A tool, its substitute and the planner raise the same; the run ends, and at once."""

    class Raises:
        async def revise(self, brief: Brief) -> Any:
            if brief.number > 1:
                await BEHAVIOURS[name]()
            return instead("bad", Step(id="worse", tool="bad", args={}))

    bad = make_tool(BEHAVIOURS[name], name="bad", effect="read")

    result = await run([Step(id="bad", tool="bad"), nap("after", 1.0, "bad")], Raises(), bad)

    assert (states(result)["after"], result.makespan) == ("skipped", 0)


async def test_rule_3_readiness_reacts_to_completions_alone() -> None:
    """A planner that streams for a long time keeps no step waiting."""

    class Streams:
        async def revise(self, brief: Brief) -> Any:
            for number in range(3):
                await anyio.sleep(100)
                yield Add(step=nap(f"n{number}", 1.0))

    steps = [fails("bad"), nap("a", 1.0), nap("b", 1.0, "a"), nap("c", 1.0, "b")]

    result = await run(steps, Streams(), planning=PlanningRule(timeout=1_000))

    assert [result.steps[id_].started for id_ in "abc"] == near([0, 1, 2])
    assert result.steps["n0"].started == near(300)


async def test_rule_3_nothing_polls_while_a_planner_thinks(anyio_backend_name: str) -> None:
    """For a week the loop has nothing to do, and does nothing."""
    if anyio_backend_name != "trio":
        pytest.skip("asyncio cannot be watched while it waits")

    class Waits(trio.abc.Instrument):
        count = 0

        def before_io_wait(self, timeout: float) -> None:
            self.count += 1

    waits, week = Waits(), 7 * 24 * 3_600.0
    trio.lowlevel.add_instrument(waits)

    await run([fails("bad"), nap("slow", week)], Thinker(seconds=week), planning=PlanningRule(timeout=2 * week))
    trio.lowlevel.remove_instrument(waits)

    assert waits.count < 50


@pytest.mark.parametrize(
    ("value", "given"),
    [
        ("${load}", {"price": 12.5, "n": [1, None]}),
        ("${load.n[0]}", 1),
        ("costs $100 for ${load.n[0]}", "costs $100 for 1"),
        ("$${load} is $1", "${load} is $1"),
        ({"q": ["${load.price}", {"$step": "load", "path": "n[1]"}]}, {"q": [12.5, None]}),
    ],
)
async def test_rule_4_references_keep_types_through_a_splice(value: Any, given: Any) -> None:
    """A step that waits for a substitute gets what that gave: nested, typed, and no text taken for a reference."""
    good = Step(id="load2", tool="echo", args={"value": {"price": 12.5, "n": [1, None]}})

    result = await run(
        [fails("load"), Step(id="report", tool="echo", args={"value": value}, depends_on=["load"])],
        Thinker(instead("load", good)),
    )

    assert result.output == given
    assert [result.steps.latest(name).id for name in ("load", "load2", "report")] == ["load2", "load2", "report"]


@pytest.mark.parametrize("answer", [None, patch(Add(step=nap("x", 1.0))), ValueError("no")])
async def test_rule_5_a_dependent_never_runs_on_an_error(answer: Any) -> None:
    """Not while the planner thinks, not after it has not helped."""
    after = scripted("after", 1)
    steps = [
        fails("bad"),
        Step(id="uses", tool="after", args={"value": "${bad}"}),
        Step(id="waits", tool="after", depends_on=["bad"]),
    ]

    result = await run(steps, Thinker(answer, seconds=3), after)

    assert after.calls == []
    assert {states(result)["uses"], states(result)["waits"]} == {"skipped"}


async def test_rule_6_a_join_resolves_whatever_becomes_of_its_parents() -> None:
    """One is replaced, one dropped, one skipped, one cancelled: each join ends, and the run with it."""
    steps = [
        fails("replaced"), nap("dropped", 50.0), fails("skipped", on_failure="skip"), nap("cancelled", 50.0),
        nap("one", 1.0, "replaced", "dropped"), nap("two", 1.0, "skipped", "replaced"),
        nap("three", 1.0, "cancelled", "replaced"), nap("all", 1.0, "one", "two"),
    ]  # fmt: skip
    planner = Thinker(
        patch(Replace(id="replaced", step=nap("good", 1.0)), Drop(id="dropped"), Rewire(id="one", depends_on=["good"])),
        seconds=2,
    )

    async with start(steps, planner) as handle:
        await anyio.sleep(1)
        handle.cancel("cancelled")
        result = await handle.result()

    assert {id_: states(result)[id_] for id_ in ("one", "two", "three", "all")} == {
        "one": "succeeded",
        "two": "succeeded",
        "three": "skipped",
        "all": "succeeded",
    }


async def test_rule_7_the_graph_that_was_checked_is_the_graph_that_runs() -> None:
    """After two splices every step of the plan has run once, behind all that the plan says it waits for."""
    planner = Thinker(
        patch(
            Add(step=nap("extra", 1.0, "a")),
            Replace(id="bad", step=Step(id="bad2", tool="other", depends_on=["extra"])),
            Rewire(id="last", depends_on=["slow"], args={"seconds": 1.0, "gives": "${bad2}"}),
        ),
        lambda brief: instead("bad2", nap("good", 1.0, "slow")),
    )
    steps = [nap("a", 1.0), nap("slow", 5.0), fails("bad", "a"), nap("last", 1.0, "bad")]

    result = await run(steps, planner, scripted("other", ToolError("no")))

    plan = result.plan.current
    assert {step.id for step in plan.steps} == {"a", "slow", "extra", "good", "last"}
    for step in plan.steps:
        ran = result.steps[step.id]
        assert len(ran.attempts) == 1
        needs = [result.steps[id_].ended for id_ in step.depends_on]
        assert (ran.started or 0) >= max((ended or 0 for ended in needs), default=0)
    assert result.steps["last"].output == "good"
    dagrun.check(plan, tools=toolset())  # and it would pass as a plan of its own


@pytest.mark.parametrize("effect", ["read", "effectful"])
async def test_rule_8_what_runs_keeps_its_definition(effect: str) -> None:
    """It cannot be rewired; to start it anew is explicit, and where it has an effect, twice so."""
    slow = make_tool(anyio.sleep, name="slow", effect=effect, needs_approval=False)
    again = Step(id="again", tool="slow", args={"delay": 1.0})

    async with start([Step(id="runs", tool="slow", args={"delay": 5.0})], None, slow) as handle:
        await anyio.sleep(1)
        with pytest.raises(SpliceRefused, match=r"DR404 .* step runs has started, and keeps"):
            await handle.splice(patch(Rewire(id="runs", args={"delay": 9.0})))
        if effect == "effectful":
            with pytest.raises(SpliceRefused, match="DR405"):
                await handle.splice(instead("runs", again))
        else:
            await handle.splice(instead("runs", again))
        result = await handle.result()

    assert result.makespan == near(5 if effect == "effectful" else 2)


async def test_rule_9_one_cause_has_one_open_replan() -> None:
    """Many failures that keep one step waiting, while the planner is busy: it is never asked twice at a time."""
    asking = [0, 0]

    class Busy(Thinker):
        async def revise(self, brief: Brief) -> Any:
            asking[0] += 1
            asking[1] = max(asking)
            await super().revise(brief)
            asking[0] -= 1

    planner = Busy(seconds=2)
    steps = [step for n in range(9) for step in (nap(f"n{n}", n / 2), fails(f"bad{n}", f"n{n}"))]
    steps.append(nap("all", 1.0, *(f"bad{n}" for n in range(9))))

    await run(steps, planner, max_replans=99)

    assert asking == [0, 1]
    assert sorted(id_ for request in planner.steps for id_ in request) == [f"bad{n}" for n in range(9)]


async def test_rule_10_a_checked_plan_keeps_its_tools_and_its_policy() -> None:
    """What was checked with other tools, or another policy, is not run with these without a word."""
    checked = dagrun.check(Plan(steps=[nap("a", 1.0)]), tools=toolset())

    with pytest.raises(ContractError, match="a checked plan has its tools, its policy"):
        dagrun.check(checked, tools=toolset(scripted("more", 1)))
    with pytest.raises(ContractError, match="a checked plan has its tools, its policy"):
        dagrun.check(checked, policy=Policy(max_running=1))


async def test_rule_11_a_failed_step_is_not_done() -> None:
    """Not for those who take over, not for the planner, and not because its substitute is."""
    planner = Thinker(instead("bad", nap("good", 1.0)), None)
    steps = [fails("bad"), fails("worse", "bad", on_failure="replan", description="again")]

    result = await run(steps, planner, last_resort="escalate")

    assert result.handoff is not None
    assert result.handoff["done"] == ["good"]
    assert list(planner.briefs[1].results) == ["good"]
    assert result.steps["bad"].state is State.FAILED


@pytest.mark.parametrize(
    ("limit", "reached"),
    [
        ({"max_attempts": 4}, "ceiling of 4 attempts is spent"),
        ({"max_calls_by_tool": {"nap": 3}}, "ceiling of 3 calls of nap is spent"),
    ],
)
async def test_rule_12_a_limit_holds_on_every_path(limit: dict[str, Any], reached: str) -> None:
    """For the steps of the plan, of a patch and of a list, for retries and for fallbacks."""
    seen: list[str] = []

    async def nap_(seconds: float = 0.0, gives: Any = None) -> str:
        seen.append("nap")
        return "x"

    busy = scripted("busy", ToolError("busy", retryable=True), fallback="nap")
    steps = [Step(id="busy", tool="busy", retry=AT_ONCE), fails("bad")]
    each = Step(id="each", tool="nap", args={"seconds": "${item}"}, for_each=[0.0] * 9, depends_on=["x"])
    planner = Thinker(patch(Add(step=nap("x", 0.0)), Add(step=each), Replace(id="bad", step=nap("good", 0.0))))
    box = Toolbox(make_tool(nap_, name="nap", effect="read"), *toolset(busy)[1:])

    result = await run(steps, planner, toolbox=box, **limit)

    calls = [a.tool for step in result.steps.values() for a in step.attempts]
    assert (result.status, reached in result.reason) == (Status.OVER_BUDGET, True)
    assert len(calls) <= limit.get("max_attempts", 99)
    assert calls.count("nap") == len(seen) <= limit.get("max_calls_by_tool", {"nap": 99})["nap"]


async def test_rule_13_an_approval_in_one_branch_stops_no_other() -> None:
    """Nor a planner that thinks meanwhile, nor the approval of its patch."""

    async def approver(question: Question) -> bool:
        await anyio.sleep(10)
        return True

    pay = scripted("pay", "paid", effect="effectful", needs_approval=True)
    steps = [Step(id="pay", tool="pay"), fails("bad"), nap("a", 1.0), nap("b", 1.0, "a"), nap("c", 1.0, "b")]
    planner = Thinker(instead("bad", nap("good", 1.0)), seconds=2)

    result = await run(steps, planner, pay, approver=approver, approve_patches="always")

    assert [result.steps[id_].started for id_ in "abc"] == near([0, 1, 2])
    assert (result.steps["pay"].started, result.steps["good"].started) == near((10, 12))


WHO: ContextVar[str] = ContextVar("who", default="nobody")


async def test_rule_14_what_each_step_stands_under_is_its_run() -> None:
    """Context variables carry the span that is open; what a step, a substitute or a planner sets is its own."""
    seen: dict[str, str] = {}

    async def look(value: str) -> str:
        seen[value] = WHO.get()
        WHO.set(value)
        await anyio.sleep(1)
        assert WHO.get() == value
        return value

    class Sets:
        async def revise(self, brief: Brief) -> Any:
            seen["planner"] = WHO.get()
            WHO.set("planner")
            await anyio.sleep(1)
            assert WHO.get() == "planner"
            return instead("bad", Step(id="good", tool="look", args={"value": "good"}))

    def step(id_: str, *after: str) -> Step:
        return Step(id=id_, tool="look", args={"value": id_}, depends_on=after)

    WHO.set("the host")

    await run(
        [step("a"), step("b"), step("c", "a"), fails("bad"), step("d", "bad")], Sets(), make_tool(look, effect="read")
    )

    assert set(seen) == {"a", "b", "c", "d", "good", "planner"}
    assert set(seen.values()) == {"the host"}
    assert WHO.get() == "the host"


@pytest.mark.parametrize("ends", ["fails", "is cancelled", "runs out of calls"])
async def test_rule_15_steps_that_never_ran_are_in_the_result(ends: str) -> None:
    """Those of the plan and those of a patch, each with a state and the reason."""
    planner = Thinker(patch(Add(step=nap("added", 1.0, "slow"))))
    limits = {"max_attempts": 3} if ends == "runs out of calls" else {}

    async with start(
        [fails("bad"), nap("slow", 5.0), nap("never", 1.0, "bad"), nap("late", 1.0, "slow")], planner, **limits
    ) as handle:
        await anyio.sleep(1)
        if ends == "is cancelled":
            handle.cancel(reason="enough")
        if ends == "fails":
            handle.cancel("slow", reason="enough")
        result = await handle.result()

    assert set(result.steps) == {"bad", "slow", "never", "late", "added"} == result.as_dict()["steps"].keys()
    unexecuted = [step for step in result.steps.values() if not step.attempts]
    assert {step.id for step in unexecuted} >= {"never", "added"}
    assert all(step.state.is_settled and step.reason for step in unexecuted)
