"""The plan as it stood at every revision, and what is different between any two of them."""

from __future__ import annotations

import anyio
import pytest

import dagrun
from dagrun import Add, Drop, Patch, Plan, PlanHistory, Replace, Revision, Rewire, Step, Toolbox
from dagrun.events import GoalChanged
from played import Played
from replans import Thinker, nap, patch, start, uses
from small_tools import SMALL_TOOLS, near, toolset

TOOLS = Toolbox(*SMALL_TOOLS)


def _history(played: Played) -> PlanHistory:
    return PlanHistory(played.graph.plan.plan, played.graph.revisions)


@pytest.fixture
def played() -> Played:
    """A plan with three splices and a change of the goal behind it."""
    played = Played([nap("a", 1.0), uses("b", "a"), uses("c", "b")], TOOLS, output="${b}")
    played.splice(Add(step=nap("d", 1.0)), Rewire(id="c", depends_on=["d"]))
    played.splice(Replace(id="b", step=nap("b2", 2.0, "d")), reason="slower")
    played.apply(GoalChanged, "another goal")
    played.splice(Drop(id="c"), output=None)
    return played


def test_each_revision_is_a_whole_plan(played: Played) -> None:
    """With the steps, the goal and the output that it had then; it could be run as it is."""
    history = _history(played)
    plans = [history.at(number) for number in range(history.revision + 1)]

    assert [[step.id for step in plan.steps] for plan in plans] == [
        ["a", "b", "c"],
        ["a", "b", "c", "d"],
        ["a", "c", "d", "b2"],
        ["a", "c", "d", "b2"],
        ["a", "d", "b2"],
    ]
    assert [plan.output for plan in plans] == ["${b}", "${b}", "${b2}", "${b2}", None]
    assert [plan.goal for plan in plans] == ["the goal"] * 3 + ["another goal"] * 2
    assert plans[1].steps[2] == uses("c", "b", depends_on=["d"])
    assert plans[2].steps[1] == uses("c", "b2", depends_on=["d"])
    for plan in plans:
        dagrun.check(plan, toolset())


def test_the_last_revision_is_the_plan_as_it_now_stands(played: Played) -> None:
    history = _history(played)

    assert (history.revision, history.goal) == (4, "another goal")
    assert history.current == history.at(4)
    assert list(history.steps) == ["a", "d", "b2"]
    assert {id_: node.plan.step for id_, node in played.graph.nodes.items() if not node.is_gone} == dict(history.steps)


def test_a_history_stands_still_while_the_plan_goes_on(played: Played) -> None:
    history = _history(played)
    played.splice(Add(step=nap("late", 1.0)))

    assert (history.revision, list(history.steps)) == (4, ["a", "d", "b2"])


def test_revisions_say_what_they_did_and_why(played: Played) -> None:
    said = [(r.number, r.origin, r.goal, str(r.consequence)) for r in _history(played).revisions]

    assert said == [
        (1, "host", "the goal", "adds d; rewires c"),
        (2, "host", "the goal", "replaces b by b2; rewires c"),
        (3, "host", "another goal", "changes nothing"),
        (4, "host", "another goal", "drops c"),
    ]
    assert [sorted(r.touched) for r in _history(played).revisions] == [["c"], ["b", "c"], [], ["c"]]
    assert [sorted(r.gone) for r in _history(played).revisions] == [[], ["b"], [], ["c"]]


@pytest.mark.parametrize(
    ("before", "after", "added", "removed", "changed"),
    [
        (0, None, "d b2", "b c", ""),
        (0, 1, "d", "", "c"),
        (1, 2, "b2", "b", "c"),
        (2, 3, "", "", ""),
        (3, 4, "", "c", ""),
        (4, 0, "b c", "d b2", ""),
        (2, 2, "", "", ""),
    ],
)
def test_any_two_revisions_can_be_compared(
    played: Played, before: int, after: int | None, added: str, removed: str, changed: str
) -> None:
    """In both directions; a step that came and went in between is not mentioned."""
    diff = _history(played).diff(before, after)

    assert (" ".join(diff.added), " ".join(diff.removed), " ".join(diff.changed)) == (added, removed, changed)
    assert bool(diff) == bool(added or removed or changed)


def test_a_diff_is_shown_line_by_line(played: Played) -> None:
    """Each step as it was written, as JSON; what is gone, what has changed, what is new."""
    lines = str(_history(played).diff(0, 2)).splitlines()

    assert lines == [
        '- {"id":"b","tool":"echo","args":{"value":"${a}"}}',
        '- {"id":"c","tool":"echo","args":{"value":"${b}"}}',
        '+ {"id":"c","tool":"echo","args":{"value":"${b2}"},"depends_on":["d"]}',
        '+ {"id":"d","tool":"nap","args":{"seconds":1.0,"gives":"d"},"depends_on":[]}',
        '+ {"id":"b2","tool":"nap","args":{"seconds":2.0,"gives":"b2"},"depends_on":["d"]}',
    ]


@pytest.mark.parametrize("number", [-1, 5])
def test_there_are_no_other_revisions(played: Played, number: int) -> None:
    history = _history(played)

    for ask in (history.at, history.diff):
        with pytest.raises(ValueError, match=rf"there is no revision {number}: the plan is at revision 4"):
            ask(number)
    with pytest.raises(ValueError, match=r"there is no revision 5"):
        history.diff(0, 5)


def test_substitutes_for_elements_are_in_the_revisions_and_not_in_the_plan() -> None:
    """A plan has no words for them; the for_each that they are part of stays what it was."""
    each = uses("each", "a", for_each=[1, 2])
    played = Played([nap("a", 1.0), each], TOOLS)
    played.succeed("a")
    played.expand("each", 1, 2)
    played.splice(Replace(id="each[1]", step=Step(id="x", tool="echo", args={"value": "${item}"})))

    history = _history(played)
    assert history.current.steps == history.at(0).steps
    assert (history.revisions[0].consequence.replaced, history.diff(0)) == ({"each[1]": "x"}, history.diff(1))
    assert played.graph.nodes["x"].plan.step == Step(id="x", tool="echo", args={"value": "${item}"})


# Of a run ---------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_run_shows_its_plan_at_any_time_and_its_result_in_the_end() -> None:
    async with start([nap("a", 1.0), nap("b", 9.0)], None) as run:
        before = run.plan
        await anyio.sleep(0.5)
        await run.splice(patch(Drop(id="b"), reason="too slow"))
        after = run.plan
        result = await run.result()

    assert (before.revision, [step.id for step in before.current.steps]) == (0, ["a", "b"])
    [revision] = after.revisions
    assert isinstance(revision, Revision)
    assert (revision.at, revision.origin, revision.reason, revision.edits) == (
        near(0.5), "host", "too slow", (Drop(id="b"),),
    )  # fmt: skip
    assert str(result.plan.diff()) == '- {"id":"b","tool":"nap","args":{"seconds":9.0,"gives":"b"},"depends_on":[]}'
    assert result.plan.current == Plan(steps=[nap("a", 1.0)], goal="the first goal")


@pytest.mark.anyio
async def test_revisions_of_the_planner_are_told_from_those_of_the_host() -> None:
    planner = Thinker(Patch(edits=[Replace(id="bad", step=nap("good", 1.0))], reason="another way"))

    async with start([Step(id="bad", tool="fail"), uses("c", "bad")], planner) as run:
        await anyio.sleep(0.5)
        await run.splice(patch(Add(step=nap("more", 1.0))))
        result = await run.result()

    assert [(r.origin, r.reason) for r in result.plan.revisions] == [("planner", "another way"), ("host", "")]


@pytest.mark.anyio
async def test_a_check_says_what_a_patch_would_do_and_does_nothing() -> None:
    async with start([nap("a", 1.0), uses("b", "a")], None) as run:
        wanted = patch(Replace(id="a", step=nap("a2", 2.0)), Add(step=nap("c", 1.0)))
        await anyio.sleep(0.5)
        told = run.check(wanted)
        assert (run.plan.revision, run.states) == (0, {"a": "running", "b": "waiting"})
        assert told == await run.splice(wanted)
        await run.result()

    assert told.as_dict() == {
        "added": ["a2", "c"], "dropped": [], "replaced": {"a": "a2"}, "rewired": ["b"], "cancelled": ["a"],
        "superseded": [], "unblocked": [], "reused": [], "fallen": [],
    }  # fmt: skip
