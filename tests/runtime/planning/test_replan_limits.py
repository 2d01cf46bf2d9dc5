"""When the planner is not asked any more, or not heard: ceilings, repairs of refused patches, and the governor."""

from __future__ import annotations

from typing import Any

import pytest

from dagrun import (
    Add,
    Brief,
    Drop,
    Event,
    Patch,
    PlanningRule,
    QuestionRule,
    Replace,
    RetryRule,
    Rewire,
    Status,
    Step,
    Toolbox,
    ToolError,
)
from dagrun.events import PatchRefused, ReplanEnded
from dagrun.kernel.decide.replanning import fingerprint_of, signature_of
from replans import Thinker, endings, fails, instead, nap, patch, run, uses
from small_tools import AT_ONCE, ONCE, near, scripted, states, toolset

pytestmark = pytest.mark.anyio

UNKNOWN_TOOL = instead("bad", Step(id="good", tool="no_such_tool"))
GOOD = instead("bad", nap("good", 1.0))


class Endless(Thinker):
    """Puts another failing step in the place of each that failed, each with an argument of its own."""

    def __init__(self) -> None:
        super().__init__(*[self._next] * 100)

    def _next(self, brief: Brief) -> Patch:
        number, old = len(self.briefs), brief.triggers[0].step
        return instead(old, Step(id=f"bad{number}", tool="fail", args={"message": f"no {number}"}))


# Ceilings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 3])
async def test_requests_are_counted(most: int) -> None:
    """The run ends with what it has, and says which ceiling it was."""
    planner = Endless()

    result = await run([fails("bad"), nap("other", 5.0)], planner, max_replans=most)

    assert (len(planner.briefs), result.replans, result.status) == (most, most, Status.FAILED)
    assert result.reason.endswith(f"; the plan was not changed: ceiling of {most} replans is spent: {most} used")
    assert states(result)["other"] == "succeeded"


async def test_three_requests_unless_the_policy_says_otherwise() -> None:
    planner = Endless()

    await run([fails("bad")], planner)

    assert len(planner.briefs) == 3


@pytest.mark.parametrize(("most", "asked"), [(1, 1), (2, 2), (3, 3)])
async def test_calls_are_counted_and_repairs_are_calls(most: int, asked: int) -> None:
    planner = Thinker(UNKNOWN_TOOL, UNKNOWN_TOOL, UNKNOWN_TOOL, UNKNOWN_TOOL)

    result = await run(
        [fails("bad"), nap("a", 2.0), fails("worse", "a")], planner, planning=PlanningRule(max_calls=most)
    )

    assert len(planner.briefs) == asked
    assert f"ceiling of {most} planner calls is spent: {most} used" in result.reason


async def test_what_is_left_is_told() -> None:
    """The call that is being made is spent already."""
    planner = Thinker(UNKNOWN_TOOL, GOOD)
    spends = scripted("spends", ValueError("no"), max_tokens=100)

    await run(
        [nap("a", 2.0), Step(id="bad", tool="spends", depends_on=["a"])], planner, spends,
        max_replans=5, planning=PlanningRule(max_calls=9), max_attempts=50, max_tokens=1_000, max_seconds=60,
        max_steps=8, max_calls_by_tool={"nap": 7},
    )  # fmt: skip

    first, second = (brief.left for brief in planner.briefs)
    assert first == {
        "attempts": 48,
        "calls of nap": 6,
        "tokens": 900,
        "replans": 4,
        "planner calls": 8,
        "seconds": near(58),
        "steps": 6,
    }
    assert second == {**first, "planner calls": 7}


@pytest.mark.parametrize(("ceilings", "asked"), [({"max_attempts": 4}, 0), ({"max_attempts": 5}, 1), ({}, 1)])
async def test_a_ceiling_that_is_nearly_spent_stops_replanning(ceilings: dict[str, Any], asked: int) -> None:
    """Half of it: of four attempts two are made when the step fails, and of five that is less."""
    planner = Thinker(GOOD)

    result = await run([nap("a", 1.0), fails("bad", "a")], planner, warn_at=0.5, **ceilings)

    assert len(planner.briefs) == asked
    if not asked:
        assert result.reason.endswith("the ceiling of 4 attempts is nearly spent, so the plan is no longer changed")


# Repairs ----------------------------------------------------------------------------------------------------


async def test_a_patch_with_problems_goes_back_once_with_all_of_them() -> None:
    """The second answer counts, if nothing is wrong with it."""
    wrong = patch(Replace(id="bad", step=Step(id="good", tool="no_such_tool")), Drop(id="nowhere"))
    planner = Thinker(wrong, GOOD)
    events: list[Event] = []

    result = await run([fails("bad")], planner, on_event=events.append)

    [refusal] = planner.briefs[1].refused
    assert planner.briefs[0].refused == ()
    assert refusal.patch == wrong.model_copy(update={"base": 0})
    assert [(p.code, p.path) for p in refusal.problems] == [("DR201", "edits[0].step.tool"), ("DR401", "edits[1].id")]
    assert [e.problems for e in events if isinstance(e, PatchRefused)] == [refusal.problems]
    assert (result.status, result.replans, [e.calls for e in events if isinstance(e, ReplanEnded)]) == (
        Status.SUCCEEDED,
        1,
        [2],
    )


async def test_a_patch_that_is_wrong_twice_is_refused() -> None:
    planner = Thinker(UNKNOWN_TOOL, UNKNOWN_TOOL, GOOD)
    events: list[Event] = []

    result = await run([fails("bad"), nap("after", 1.0, "bad")], planner, on_event=events.append)

    assert (len(planner.briefs), endings(events)) == (2, [("refused", ("bad",))])
    assert states(result) == {"bad": "failed", "after": "skipped"}
    assert "the plan was not changed: DR201 edits[0].step.tool: step good calls 'no_such_tool'" in result.reason


@pytest.mark.parametrize(
    ("edits", "code"),
    [
        ([Add(step=Step(id="x", tool="closed"))], "DR202"),
        ([Add(step=nap("a", 1.0))], "DR402"),
        ([Drop(id="a")], "DR403"),
        ([Rewire(id="a", depends_on=["late"])], "DR403"),
        ([Add(step=nap("x", 1.0, "y")), Add(step=nap("y", 1.0, "x"))], "DR106"),
        ([Add(step=nap("x", 1.0, "nowhere"))], "DR104"),
        ([Drop(id="late")], "DR406"),
        ([Add(step=fails("x", retry=RetryRule(max_attempts=9)))], "DR412"),
        ([Replace(id="last", step=nap("x", 1.0, "late"))], "DR411"),
        ([], "DR414"),
    ],
)
async def test_a_planner_is_held_to_the_rules_of_patches(edits: list[Any], code: str) -> None:
    """The plan is as it was."""
    box = Toolbox(*toolset(scripted("closed", 1)), allow=["nap", "fail"])
    steps = [nap("a", 1.0), fails("bad", "a"), nap("late", 3.0, "a"), nap("last", 1.0, "late", pause="before")]
    planner = Thinker(patch(*edits))

    result = await run(steps, planner, toolbox=box, questions=QuestionRule(answer_within=1, default_answer="approve"))

    assert [p.code for p in planner.briefs[1].refused[0].problems] == [code]
    assert (states(result), result.plan.revision) == (
        {"a": "succeeded", "bad": "failed", "late": "succeeded", "last": "succeeded"},
        0,
    )


# The governor -----------------------------------------------------------------------------------------------


async def test_a_substitute_that_fails_in_the_same_way_ends_it() -> None:
    """The same call, the same failure: there is no new evidence, whatever the step is called."""
    planner = Thinker(*[lambda brief: instead(brief.triggers[0].step, fails(f"bad{brief.number}"))] * 9)
    events: list[Event] = []

    result = await run([fails("bad"), nap("after", 1.0, "bad")], planner, on_event=events.append)

    assert (len(planner.briefs), endings(events)) == (1, [("applied", ("bad",)), ("stopped", ("bad1",))])
    assert states(result) == {"bad": "failed", "bad1": "failed", "after": "skipped"}
    assert result.reason.endswith("the plan was not changed: the planner was asked about the very same failure before")


async def test_once_or_twice_is_the_same_failure() -> None:
    """A substitute that is tried less often, and fails like the first, is no new evidence either."""
    busy = scripted("busy", ToolError("busy", retryable=True))
    once = Step(id="again", tool="busy", retry=ONCE)
    planner = Thinker(instead("bad", once), instead("again", nap("good", 1.0)))

    await run([Step(id="bad", tool="busy", retry=AT_ONCE)], planner, busy)

    assert planner.kinds == [["failed_twice"]]


async def test_other_arguments_that_cannot_be_filled_in_are_another_failure() -> None:
    """Nothing was called, so what was written is compared."""
    planner = Thinker(instead("pick", uses("pick2", "load.b")), instead("pick2", uses("pick3", "load.c")))

    result = await run([Step(id="load", tool="echo", args={"value": {"c": 1}}), uses("pick", "load.a")], planner)

    assert (planner.steps, result.output) == ([["pick"], ["pick2"]], 1)


async def test_the_rest_of_a_request_is_asked_about_all_the_same() -> None:
    """One failure is known, the other is not."""
    planner = Thinker(instead("bad", fails("bad2", "a")), lambda brief: instead("other", nap("good", 1.0)), seconds=2)
    other = Step(id="other", tool="fail", args={"message": "another"}, depends_on=["b"])

    result = await run([nap("a", 3.0), nap("b", 3.0), fails("bad"), other], planner)

    assert planner.steps == [["bad"], ["other"]]
    assert states(result)["good"] == "succeeded"


async def test_the_same_patch_again_is_refused() -> None:
    """Under other names, for another failure: it was tried. The planner may say something else once."""
    same = [patch(Replace(id=old, step=Step(id=new, tool="other"))) for old, new in (("bad", "one"), ("one", "two"))]
    other = scripted("other", ToolError("busy"), ConnectionResetError("gone"))
    planner = Thinker(same[0], same[1], instead("one", nap("good", 1.0)))

    result = await run([fails("bad"), uses("report", "bad")], planner, other)

    assert [p.code for p in planner.briefs[2].refused[0].problems] == ["DR419"]
    assert (result.output, len(other.calls)) == ("good", 1)


async def test_a_patch_that_was_refused_may_be_right_later() -> None:
    """It has not been tried."""
    same = patch(Add(step=nap("x", 1.0)), Replace(id="bad2", step=nap("good", 1.0)))
    bad2 = Step(id="bad2", tool="fail", args={"message": "other"})
    planner = Thinker(same, instead("bad", bad2), same)

    result = await run([fails("bad"), uses("report", "bad")], planner)

    assert (planner.steps, result.status) == ([["bad"], ["bad"], ["bad2"]], Status.SUCCEEDED)
    assert result.steps["report"].output == "good"


def _signature(*edits: Any, roots: dict[str, str] | None = None) -> str:
    return signature_of(patch(*edits), roots or {})


def test_names_make_no_difference_to_a_patch() -> None:
    """Neither those of new steps nor those of what they stand for; everything else does."""
    one = _signature(
        Add(step=nap("x", 1.0, "a")), Replace(id="bad", step=uses("y", "x")), Rewire(id="c", use={"a": "x"})
    )
    two = _signature(
        Add(step=nap("p", 1.0, "a2")),
        Replace(id="bad2", step=uses("q", "p")),
        Rewire(id="c", use={"a2": "p"}),
        roots={"bad2": "bad", "a2": "a"},
    )

    assert one == two


@pytest.mark.parametrize(
    "edit",
    [
        Replace(id="other", step=nap("x", 1.0)),
        Replace(id="bad", step=nap("x", 2.0)),
        Replace(id="bad", step=nap("x", 1.0, "a")),
        Replace(id="bad", step=fails("x")),
        Replace(id="bad", step=nap("x", 1.0), cancel=True),
        Drop(id="bad"),
        Add(step=nap("x", 1.0)),
    ],
)
def test_what_a_patch_does_makes_the_difference(edit: Any) -> None:
    assert _signature(edit) != _signature(Replace(id="bad", step=nap("x", 1.0)))


def test_facts_do_not_run_into_each_other() -> None:
    assert fingerprint_of("ab", "c") != fingerprint_of("a", "bc")
