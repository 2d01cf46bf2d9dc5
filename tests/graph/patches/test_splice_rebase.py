"""Patches that come late, and patches of a planner: what has happened since, what another has changed since, and what
no planner may loosen."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from dagrun import Add, ApprovalRule, Condition, Drop, Patch, Replace, RetryRule, Rewire, Step, Toolbox
from dagrun.events import GoalChanged
from dagrun.kernel.model.outcome import Recovery
from dagrun.kernel.model.tool import make_tool
from played import Played
from replans import fails, nap, uses
from small_tools import SMALL_TOOLS

AnyEdit = Add | Drop | Replace | Rewire


async def pay(amount: int = 1) -> None: ...


async def sign(amount: int = 1) -> None: ...


TOOLS = Toolbox(
    *SMALL_TOOLS,
    make_tool(pay, effect="effectful"),
    make_tool(sign, effect="effectful", needs_approval=True),
)


def _played(*steps: Step, output: Any = None, **policy: Any) -> Played:
    return Played(steps, TOOLS, output=output, **policy)


# What another has changed -----------------------------------------------------------------------------------


def _chains() -> Played:
    """Two chains and a step by itself; of the first, the second splice has changed b."""
    chains = _played(
        nap("a", 1.0), uses("b", "a"), uses("c", "b"), uses("z", "c"), nap("d", 1.0), uses("e", "d"), nap("f", 1.0)
    )
    chains.splice(Add(step=uses("new", "a")))
    chains.splice(Rewire(id="b", args={"value": ["${a}"]}))
    return chains


@pytest.mark.parametrize(
    "edit",
    [
        Rewire(id="b", depends_on=[]),
        Drop(id="a", cancel=True),
        Rewire(id="a", args={"seconds": 2.0}),
        Replace(id="a", step=nap("x", 1.0)),
        Rewire(id="c", args={"value": 1}),
        Drop(id="z", cancel=True),
        Add(step=uses("x", "b")),
        Add(step=nap("x", 1.0, "b")),
        Rewire(id="e", depends_on=["b"]),
    ],
    ids=[
        "the step",
        "dropped before it",
        "rewired before it",
        "replaced before it",
        "rewired behind it",
        "dropped behind it",
        "a use",
        "a new dependency",
        "a new neighbour",
    ],
)
def test_a_patch_is_stale_if_a_later_splice_has_changed_what_it_touches(edit: AnyEdit) -> None:
    chains = _chains()
    more: list[AnyEdit] = []
    if isinstance(edit, Drop):  # and what waits for it
        more = [Rewire(id="b", args={"value": 1}), Drop(id="new")] if edit.id == "a" else [Drop(id="c")]

    told = chains.refusal(edit, *more, base=1)

    assert told == ["DR408 base: the patch is stale: it was made from revision 1, and since then b changed"]


@pytest.mark.parametrize(
    "edit",
    [
        Drop(id="f"),
        Replace(id="d", step=nap("x", 1.0)),
        Rewire(id="z", depends_on=["d"]),
        Add(step=uses("x", "a")),
        Add(step=uses("x", "c")),
    ],
)
def test_a_patch_is_not_stale_if_what_changed_is_something_else(edit: AnyEdit) -> None:
    """Neighbours of neighbours do not count, and neither does that a changed step is near a step that is only used."""
    _chains().splice(edit, base=1)


@pytest.mark.parametrize("base", [2, None])
def test_a_patch_made_from_the_present_plan_is_never_stale(base: int | None) -> None:
    _chains().splice(Rewire(id="b", depends_on=["d"]), Rewire(id="c", depends_on=["d"]), base=base)


def test_what_is_only_added_makes_nothing_stale() -> None:
    """Nor do elements of a for_each, or a changed goal: they leave every step what it was."""
    played = _played(nap("a", 1.0), uses("b", "a"), uses("each", "b", for_each=[1]))
    played.splice(Add(step=uses("x", "b")), Add(step=nap("y", 1.0)))
    played.apply(GoalChanged, "another goal")

    played.splice(Rewire(id="b", depends_on=["y"]), Drop(id="x"), base=0)


def test_substitutes_change_those_that_waited_for_the_old_step() -> None:
    played = _played(nap("a", 1.0), uses("b", "a"), uses("c", "b"), nap("d", 1.0))
    played.splice(Replace(id="b", step=nap("b2", 1.0)))

    assert played.refusal(Rewire(id="c", depends_on=["d"]), base=0) == [
        "DR408 base: the patch is stale: it was made from revision 0, and since then c changed"
    ]
    assert [line[:5] for line in played.refusal(Drop(id="b"), base=0)] == ["DR408", "DR401"]


def test_many_changed_steps_are_counted_and_not_all_named() -> None:
    played = _played(nap("a", 1.0), *(uses(f"s{number:02}", "a") for number in range(30)))
    played.splice(Replace(id="a", step=nap("b", 1.0)))

    [told] = played.refusal(*(Drop(id=f"s{number:02}") for number in range(30)), base=0)

    assert told.endswith("since then s00, s01, s02, s03, s04, s05, s06, s07, s08, s09 and 20 more changed")


# What has happened since ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "edit",
    [Drop(id="a"), Replace(id="a", step=nap("a2", 1.0)), Rewire(id="a", depends_on=["d"])],
    ids=["drop", "replace", "rewire"],
)
def test_an_edit_of_a_step_that_has_succeeded_since_falls_away(edit: AnyEdit) -> None:
    """The rest of the patch counts; its author is told."""
    played = _played(nap("a", 1.0), uses("b", "a"), nap("d", 1.0))
    played.succeed("a", value=1)

    did = played.splice(edit, Add(step=uses("c", "b")), known=())

    assert (did.fallen, did.added, did.dropped, did.replaced, did.rewired) == (("a",), ("c",), (), {}, ())
    assert played.graph.revisions[-1].edits == (Add(step=uses("c", "b")),)
    assert played["b"].state == "ready"


def test_a_patch_that_has_come_too_late_altogether_changes_nothing() -> None:
    played = _played(nap("a", 1.0))
    played.succeed("a")

    checked, problems = played.check(Patch(edits=[Drop(id="a")]), known=())

    assert (problems, checked is not None and checked.edits) == ((), ())


@pytest.mark.parametrize("edit", [Drop(id="a"), Replace(id="a", step=nap("a2", 1.0))])
def test_an_edit_of_a_step_that_had_succeeded_before_is_refused(edit: AnyEdit) -> None:
    """Its author knew, or should have known."""
    played = _played(nap("a", 1.0))
    played.succeed("a")

    for known in (("a",), None):
        assert played.refusal(edit, known=known) == [
            "DR403 edits[0].id: step a has succeeded, and a settled step cannot be changed"
        ]


def test_what_would_have_used_a_substitute_that_fell_away_uses_the_step_that_stays() -> None:
    """Wherever the patch names it: the new step, the rewired ones, the output."""
    played = _played(nap("a", 1.0), nap("b", 1.0), uses("c", "b"), uses("d", "b"), output="${c}")
    played.succeed("a", value=1)

    played.splice(
        Replace(id="a", step=nap("a2", 1.0)),
        Add(step=uses("x", "a2", depends_on=["a2", "b"])),
        Rewire(id="c", use={"b": "a2"}),
        Rewire(id="d", args={"value": [{"$step": "a2"}, "${a2} and ${x}"]}, depends_on=["a2"]),
        output={"all": ["${a2}", "${x}"]},
        known=(),
    )

    assert "a2" not in played.graph.nodes
    assert played["x"].plan.step == uses("x", "a", depends_on=["a", "b"])
    assert played["c"].plan.step.args == {"value": "${a}"}
    assert played["d"].plan.step.args == {"value": [{"$step": "a"}, "${a} and ${x}"]}
    assert set(played["d"].plan.depends_on) == {"a", "x"}
    assert played.graph.revisions[-1].output == {"all": ["${a}", "${x}"]}
    assert played["c"].state == "ready"


def test_a_step_that_has_failed_since_can_be_edited_as_before() -> None:
    """It gives nothing, whoever looks; only what it waits for is settled."""
    played = _played(fails("a"), uses("b", "a"))
    played.fail("a")

    assert played.refusal(Rewire(id="a", depends_on=[]), known=())[0].startswith("DR403")
    played.splice(Replace(id="a", step=nap("a2", 1.0)), known=())
    assert played.states == {"a": "failed", "b": "waiting", "a2": "ready"}


def test_a_step_that_has_started_since_keeps_its_definition() -> None:
    played = _played(nap("a", 1.0))
    played.start("a")

    assert played.refusal(Rewire(id="a", args={"seconds": 2.0}), known=())[0].startswith("DR404")


# What no planner may loosen ---------------------------------------------------------------------------------


def _pays(**fields: Any) -> Step:
    return Step(id="p", tool="pay", **fields)


def _signs(**fields: Any) -> Step:
    return Step(id="p", tool="sign", **fields)


RULE = ApprovalRule(tool="pay", when=Condition(all=[Condition(ref="args.amount", op=">", value=[5])]), why="much")

LOOSER: dict[str, tuple[Step, AnyEdit, str]] = {
    "pause lost": (
        _pays(pause="before"),
        Replace(id="p", step=Step(id="q", tool="pay")),
        "DR411 edits[0].step.pause: step q asks a person less often than p did (pause: before)",
    ),
    "another pause": (
        _pays(pause="before"),
        Replace(id="p", step=Step(id="q", tool="pay", pause="after")),
        "DR411 edits[0].step.pause: step q asks a person less often than p did (pause: before)",
    ),
    "pause dropped": (
        nap("p", 1.0, pause="after"),
        Drop(id="p"),
        "DR411 edits[0].id: step p asks a person less often than p did (pause: after)",
    ),
    "more confidence": (
        _pays(confidence=0.3),
        Replace(id="p", step=Step(id="q", tool="pay", confidence=0.9)),
        "DR411 edits[0].step: step q asks a person less often than p did (confidence 0.3 is below 0.6)",
    ),
    "no confidence": (
        _pays(confidence=0.3),
        Replace(id="p", step=Step(id="q", tool="pay")),
        "DR411 edits[0].step: step q asks a person less often than p did (confidence 0.3 is below 0.6)",
    ),
    "more attempts": (
        nap("p", 1.0),
        Add(step=nap("q", 1.0, retry=RetryRule(max_attempts=4))),
        "DR412 edits[0].step.retry: step q: retry.max_attempts is 4, the policy says 3; a patch cannot raise a ceiling",
    ),
}


@pytest.mark.parametrize("name", LOOSER)
def test_a_planner_can_loosen_nothing(name: str) -> None:
    """The host can: it has made the policy."""
    step, edit, sentence = LOOSER[name]
    played = _played(step, nap("a", 1.0), retry=RetryRule(max_attempts=3))

    assert played.refusal(edit, origin="planner") == [sentence]
    played.splice(edit)


@pytest.mark.parametrize(
    ("step", "edit"),
    [
        (_pays(pause="before"), Replace(id="p", step=Step(id="q", tool="pay", pause="before"))),
        (_pays(), Replace(id="p", step=Step(id="q", tool="pay", pause="before"))),
        (_pays(pause="before"), Rewire(id="p", args={"amount": 9})),
        (_pays(args={"amount": 9}), Replace(id="p", step=Step(id="q", tool="pay", args={"amount": 1}))),
        (_pays(confidence=0.3), Replace(id="p", step=Step(id="q", tool="pay", confidence=0.2))),
        (_signs(), Replace(id="p", step=Step(id="q", tool="sign"))),
        (_signs(), Replace(id="p", step=Step(id="q", tool="pay"))),
        (_signs(), Drop(id="p")),
        (nap("p", 1.0), Add(step=nap("q", 1.0, retry=RetryRule(max_attempts=2)))),
    ],
)
def test_what_asks_as_often_as_before_or_is_another_tool_is_no_loosening(step: Step, edit: AnyEdit) -> None:
    """The rules of the policy look at the arguments of each call anew."""
    _played(step, nap("a", 1.0), approve=[RULE]).splice(edit, origin="planner")


def test_the_substitute_of_a_failed_step_keeps_its_pause() -> None:
    """That a person has let the first one through says nothing about the second."""
    played = _played(fails("p", pause="before"))
    played.fail("p")

    [told] = played.refusal(Replace(id="p", step=fails("q")), origin="planner")
    assert told.startswith("DR411")
    played.splice(Drop(id="p"), origin="planner")


def test_a_patch_has_no_words_for_goals_and_policies() -> None:
    """Only the host changes the goal (S47), and nobody the policy."""
    edits = [{"op": "drop", "id": "a"}]

    for field in ({"goal": "another"}, {"policy": {"max_steps": 9}}, {"max_replans": 9}):
        with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
            Patch.model_validate({"edits": edits} | field)
    with pytest.raises(ValidationError, match="Input tag 'rename' found"):
        Patch.model_validate({"edits": [{"op": "rename", "id": "a"}]})


# Steps that were passed, or are held ------------------------------------------------------------------------


def test_a_step_that_is_tolerated_can_be_waited_for_in_order_but_not_used() -> None:
    played = _played(fails("a", on_failure="skip"), nap("d", 1.0))
    played.fail("a", Recovery.SKIP)

    played.splice(Add(step=nap("b", 1.0, "a")))

    assert played["b"].state == "ready"
    assert played.refusal(Add(step=uses("c", "a")))[0].startswith("DR407")
