"""From a whole plan to a patch: what is kept, what comes under a new name, and what the plan does without."""

from __future__ import annotations

from typing import Any

import pytest

from dagrun import Add, Condition, Consequence, Drop, Plan, PlanHistory, Problem, Replace, Rewire, State, Step, Toolbox
from dagrun.kernel.graph.patches.plan_to_patch import patch_of
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.tool import make_tool
from played import Played
from replans import fails, nap, uses
from small_tools import SMALL_TOOLS


async def pay(amount: int = 1) -> None: ...


TOOLS = Toolbox(*SMALL_TOOLS, make_tool(pay, effect="effectful"))


def _played(*steps: Step, output: Any = None) -> Played:
    return Played(steps, TOOLS, output=output)


def _edits(played: Played, *steps: Step, **fields: Any) -> list[Any]:
    return list(patch_of(played.graph, Plan(steps=steps, **fields)).edits)


def _turn(played: Played, *steps: Step, **fields: Any) -> Consequence:
    """Make the plan of *played* that of *steps*, as a planner would."""
    patch = patch_of(played.graph, Plan(steps=steps, **fields), played.graph.revision)
    given = {"output": patch.output} if patch.changes_output else {}
    return played.splice(*patch.edits, origin="planner", base=patch.base, **given)


def _now(played: Played) -> Plan:
    return PlanHistory(played.graph.plan.plan, played.graph.revisions).current


def _as(id_: str, step: Step) -> Step:
    return step.model_copy(update={"id": id_})


PLAN = (nap("a", 1.0), uses("b", "a"), uses("c", "b"), nap("d", 1.0))


def test_the_same_plan_changes_nothing() -> None:
    """Also when it comes as JSON, and in another order."""
    played = _played(*PLAN, output="${c}")
    again = Plan.model_validate_json(Plan(steps=PLAN[::-1], output="${c}").model_dump_json(exclude_unset=True))

    patch = patch_of(played.graph, again)

    assert (patch.edits, patch.changes_output) == ((), False)


def test_what_is_new_is_added_and_what_is_missing_is_dropped() -> None:
    played = _played(*PLAN)

    assert _edits(played, *PLAN[:3], uses("e", "a")) == [Add(step=uses("e", "a")), Drop(id="d")]


def test_another_definition_comes_under_a_new_name_and_takes_the_place_of_the_old_one() -> None:
    """What the plan says about it, it says about the new one; what is kept gets it by itself."""
    played = _played(*PLAN, output="${b}")

    did = _turn(played, nap("a", 2.0), *PLAN[1:], uses("e", "a"), output="${b}")

    assert (did.replaced, did.rewired, did.added) == ({"a": "a-r1"}, ("b",), ("a-r1", "e"))
    assert played["b"].plan.step == uses("b", "a-r1")
    assert played["e"].plan.step == uses("e", "a-r1")
    assert _now(played).output == "${b}"


def test_a_step_that_has_succeeded_stays_and_the_new_one_comes_beside_it() -> None:
    """What has not started uses the new one, what runs or has ended goes on with the old one."""
    played = _played(*PLAN, uses("e", "a"))
    played.succeed("a", value=1)
    played.start("e")

    did = _turn(played, nap("a", 2.0), *PLAN[1:], uses("e", "a"))

    assert (did.added, did.rewired, did.replaced) == (("a-r1",), ("b",), {})
    assert played["b"].plan.step == uses("b", "a-r1")
    assert played["e"].plan.step == uses("e", "a")


def test_a_step_that_has_succeeded_and_is_not_wanted_any_more_stays_done() -> None:
    played = _played(*PLAN)
    played.succeed("d")

    assert _edits(played, *PLAN[:3]) == []


def test_a_failed_step_is_replaced_when_it_is_defined_anew() -> None:
    played = _played(fails("a"), uses("b", "a"))
    played.fail("a")

    did = _turn(played, nap("a", 1.0), uses("b", "a"))

    assert (did.replaced, did.unblocked) == ({"a": "a-r1"}, ("b",))
    assert played.states == {"a": "failed", "b": "waiting", "a-r1": "ready"}


def test_a_failed_step_is_kept_as_it_is_when_nothing_about_it_is_new() -> None:
    """The same call would fail in the same way."""
    played = _played(fails("a"), uses("b", "a"), nap("d", 1.0))
    played.fail("a")

    assert _edits(played, fails("a"), uses("b", "a"), nap("d", 2.0)) == [
        Replace(id="d", step=_as("d-r1", nap("d", 2.0)))
    ]


def test_what_has_failed_is_done_again_if_what_it_waits_for_is() -> None:
    """And what was skipped behind it. Its definition is the same, but its input is not."""
    steps = [nap("a", 1.0), fails("b", "a"), uses("c", "b"), uses("e", "c"), nap("d", 9.0)]
    played = _played(*steps)
    played.succeed("a")
    played.fail("b", Recovery.SKIP)
    for id_ in ("c", "e"):
        played.graph.nodes[id_].state = State.SKIPPED
    played.graph.unsettled -= 2

    did = _turn(played, nap("a", 2.0), *steps[1:])

    assert did.replaced == {"b": "b-r1", "c": "c-r1", "e": "e-r1"}
    assert did.added == ("a-r1", "b-r1", "c-r1", "e-r1")
    assert played["b-r1"].plan.step == fails("b-r1", "a-r1")
    assert played["e-r1"].plan.depends_on == ("c-r1",)


def test_a_call_in_doubt_is_not_made_again_for_a_new_input() -> None:
    """It is frozen: the plan is refused for the sake of nothing if it had to change."""
    steps = [nap("a", 1.0), Step(id="p", tool="pay", depends_on=["a"]), nap("d", 1.0)]
    played = _played(*steps)
    played.succeed("a")
    played.fail("p", Recovery.SKIP, State.UNKNOWN)

    did = _turn(played, nap("a", 2.0), *steps[1:])

    assert (did.added, did.replaced) == (("a-r1",), {})


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Step(id="a", tool="echo", args={"value": 10}), Step(id="a", tool="echo", args={"value": 10.0})),
        (Step(id="a", tool="echo", args={"value": [1]}), Step(id="a", tool="echo", args={"value": [True]})),
        (uses("a", "x", depends_on=["x"]), uses("a", "x")),
        (
            nap("a", 1.0, when=Condition(ref="x", op="==", value=1)),
            nap("a", 1.0, when=Condition(ref="x", op="==", value=1.0)),
        ),
        (nap("a", 1.0), nap("a", 1.0, description="what it is for")),
    ],
)
def test_definitions_are_equal_only_to_the_last_sign(before: Step, after: Step) -> None:
    played = _played(nap("x", 1.0), before)

    [edit] = _edits(played, nap("x", 1.0), after)

    assert isinstance(edit, Replace)


def test_the_order_of_keys_and_defaults_that_are_written_out_make_no_difference() -> None:
    played = _played(Step(id="a", tool="nap", args={"seconds": 1.0, "gives": {"b": 1, "c": 2}}))
    same = Step(id="a", tool="nap", args={"gives": {"c": 2, "b": 1}, "seconds": 1.0}, optional=False, depends_on=[])

    assert _edits(played, same) == []


def test_new_names_were_never_used() -> None:
    """Not in other letters either, not by steps that have left, not twice in one plan, and not longer than an id."""
    long = "x" * 48
    played = _played(nap("a", 1.0), nap("A-R2", 1.0), nap(long, 1.0), nap("gone", 1.0))
    played.splice(Drop(id="gone"))

    did = _turn(played, nap("a", 2.0), nap("a-r2", 1.0), nap(long, 2.0), nap("gone", 1.0), nap("gone-r2", 1.0))

    assert did.replaced == {"a": "a-r3", long: f"{'x' * 45}-r2"}
    assert did.added == ("a-r3", "a-r2-r2", f"{'x' * 45}-r2", "gone-r2", "gone-r2-r2")
    assert did.dropped == ("A-R2",)


def test_the_second_plan_is_compared_with_the_plan_as_it_stands_then() -> None:
    """By the names that its author was shown."""
    played = _played(*PLAN, output="${c}")
    _turn(played, nap("a", 2.0), *PLAN[1:], output="${c}")
    shown = _now(played)

    assert _edits(played, *shown.steps, output=shown.output) == []
    did = _turn(played, *(nap("a-r1", 3.0) if step.id == "a-r1" else step for step in shown.steps), output="${c}")
    assert did.replaced == {"a-r1": "a-r1-r2"}


@pytest.mark.parametrize(
    ("output", "written", "told"),
    [("${c}", "${d}", "${d}"), ("${b}", "b", "b"), ("${c}", None, None), ("${b}", "${b}", "${b-r1}")],
)
def test_the_output_of_the_new_plan_counts(output: str, written: str | None, told: str | None) -> None:
    """Under the names that its steps have now; none stands for the sinks."""
    played = _played(*PLAN, output=output)
    steps = list(PLAN)
    if told == "${b-r1}":
        steps[1] = uses("b", "a", description="new")

    _turn(played, *steps, output=written)

    assert _now(played).output == told


def test_the_goal_of_the_new_plan_does_not_count() -> None:
    """Only the host changes it."""
    played = _played(*PLAN)
    _turn(played, *PLAN, nap("e", 1.0), goal="another goal")

    assert (played.graph.goal, _now(played).goal) == ("the goal", "the goal")


def test_what_has_succeeded_since_its_author_looked_is_kept() -> None:
    """What the plan says of it came too late; what uses it uses what it gave."""
    played = _played(*PLAN)
    played.succeed("a", value=1)

    patch = patch_of(played.graph, Plan(steps=[nap("a", 2.0), *PLAN[1:], uses("e", "a")]), known=())

    assert patch.edits == (Add(step=uses("e", "a")),)


def _codes(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.code for problem in problems]


@pytest.mark.parametrize(
    ("steps", "codes"),
    [
        ([*PLAN, uses("e", "f")], ["DR302"]),
        ([*PLAN, nap("e", 1.0), nap("e", 2.0)], ["DR402"]),
        ([*PLAN, nap("a b", 1.0)], ["DR101"]),
        ([nap("a", 1.0, "c"), *PLAN[1:]], ["DR106"]),
        ([PLAN[0], *PLAN[2:]], ["DR406"]),
    ],
)
def test_a_wrong_plan_is_refused_like_any_patch(steps: list[Step], codes: list[str]) -> None:
    played = _played(*PLAN)

    _, problems = played.check(patch_of(played.graph, Plan(steps=steps)), "planner")

    assert _codes(problems) == codes


def test_what_cannot_be_stopped_must_stay_in_the_plan() -> None:
    """A whole plan has no word for stopping an effect."""
    played = _played(Step(id="p", tool="pay"), nap("a", 1.0))
    played.start("p")

    _, problems = played.check(patch_of(played.graph, Plan(steps=[nap("a", 1.0)])), "planner")

    assert _codes(problems) == ["DR405"]


def test_rewired_steps_are_named_once() -> None:
    """A step that is kept, with two producers of which one is replaced and the other has succeeded."""
    both = Step(id="c", tool="echo", args={"value": ["${a}", "${b}"]})
    played = _played(nap("a", 1.0), nap("b", 1.0), both)
    played.succeed("a")

    edits = _edits(played, nap("a", 2.0), nap("b", 2.0), both)

    assert edits == [
        Add(step=_as("a-r1", nap("a", 2.0))),
        Replace(id="b", step=_as("b-r1", nap("b", 2.0))),
        Rewire(id="c", use={"a": "a-r1"}),
    ]
    played.splice(*edits)
    assert played["c"].plan.step.args == {"value": ["${a-r1}", "${b-r1}"]}
