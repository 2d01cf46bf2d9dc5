"""A frozen plan: what patches of a planner may do to it, what they may not, and what they are told then."""

from __future__ import annotations

import pytest

from dagrun import Drop, Patch, Rewire, State
from frozen_cases import ALLOWED, ANN, PAY, REFUSED, TOOLS, add, in_the_middle, instead, step
from played import Played


@pytest.fixture
def played() -> Played:
    """A run in the middle."""
    return in_the_middle()


@pytest.mark.parametrize("name", ALLOWED)
def test_calls_are_dropped_and_repeated(played: Played, name: str) -> None:
    """All that a repair needs which brings nothing new."""
    played.splice(*ALLOWED[name], origin="planner")


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_first_plan_did_not_hold_is_refused(played: Played, name: str) -> None:
    """Each refusal says what differs, and from which step; the graph stays as it was."""
    edits, said = REFUSED[name]

    checked, problems = played.check(Patch(edits=edits), "planner")

    assert checked is None
    told = [" ".join(problem.facts.get(fact, "") for fact in ("reason", "old", "dependency")) for problem in problems]
    assert [f"{p.code} {p.path}: {about.strip()}" for p, about in zip(problems, told, strict=True)] == said


@pytest.mark.parametrize("name", REFUSED)
def test_the_host_may_do_all_of_it(played: Played, name: str) -> None:
    """It is the host's plan; only the planner is bound."""
    played.splice(*REFUSED[name][0])


def test_a_refusal_is_a_sentence_that_a_planner_can_act_on(played: Played) -> None:
    """It names the policy, what differs, and what may be done instead."""
    refused = [played.refusal(*REFUSED[name][0], origin="planner")[0] for name in ("another argument", *LAST)]

    assert refused == [
        "DR427 edits[0].step: step ann2 calls find, and is not a call of the first plan, which the policy freezes "
        "(freeze_plan): args.who differs from that of ann; a patch may drop calls, and repeat them unchanged or "
        "with their fallback",
        "DR428 edits[0].step: step x repeats the call of note, and the policy freezes the plan (freeze_plan), which "
        "makes it once; it may replace note only if that had no effect",
        "DR429 edits[0]: step thanks would no longer wait for asked, which comes before it in the first plan; the "
        "policy freezes this order (freeze_plan)",
    ]


LAST = ("an effect once more", "an effect that does not wait")


def test_an_effect_that_did_not_take_place_is_tried_once_more(played: Played) -> None:
    """Once: the first one is known to have done nothing, of the second nobody knows yet."""
    played.succeed("bob", value={"iban": "b", "name": "b"})
    played.fail("late", nothing_happened=True)
    again = {"tool": "pay", "args": {"iban": "${bob.iban}"}}

    played.splice(add("late2", again), origin="planner")

    assert played.refusal(add("late3", again), origin="planner")[0].startswith("DR428")
    played.fail("late2", nothing_happened=True)
    played.splice(instead("late2", "late3", again), origin="planner")
    played.succeed("late3")
    assert played.refusal(add("late4", again), origin="planner")[0].startswith("DR428")


def test_a_call_in_doubt_is_repeated_in_its_own_place_alone(played: Played) -> None:
    """There it has the same key, so the service takes the two for one; anywhere else it is a second payment."""
    played.succeed("bob", value={"iban": "b", "name": "b"})
    played.fail("late", state=State.UNKNOWN)
    again = {"tool": "pay", "args": {"iban": "${bob.iban}"}}

    assert played.refusal(add("late2", again), origin="planner")[0].startswith("DR428")
    played.splice(instead("late", "late2", again), origin="planner")


def test_two_equal_calls_may_be_made_twice() -> None:
    """As the first plan says; which of the two comes first does not matter."""
    tip = {"tool": "mail", "args": {"to": "ann"}}
    played = Played([step("one", tip), step("two", tip)], TOOLS, freeze_plan=True)
    played.fail("one", nothing_happened=True)
    played.splice(add("three", tip), origin="planner")

    assert played.refusal(add("four", tip), origin="planner")[0].startswith("DR428")


def test_repeats_of_repeats_are_calls_of_the_first_plan(played: Played) -> None:
    """A chain of repairs may be as long as the ceilings let it be."""
    played.splice(instead("ann", "ann2", ANN), origin="planner")
    played.fail("ann2")
    played.splice(instead("ann2", "ann3", ANN), origin="planner")

    played.splice(instead("pay", "pay2", PAY, args={"iban": "${ann3.iban}"}), origin="planner")
    refused = played.refusal(instead("pay2", "pay3", PAY, args={"iban": "${bob.iban}"}), origin="planner")
    assert refused[0].startswith("DR427")


def test_what_the_host_adds_belongs_to_the_plan_and_what_it_takes_out_does_not(played: Played) -> None:
    """The plan is the host's: frozen is what it has left."""
    carol, gone = {"tool": "find", "args": {"who": "carol"}}, {"tool": "mail", "args": {"to": "ann"}}
    played.splice(instead("ann", "ann2", ANN), origin="planner")

    played.splice(add("carol", carol), Drop(id="thanks"))

    played.splice(add("carol2", carol), origin="planner")
    assert played.refusal(add("x", gone), origin="planner")[0].startswith("DR427")


def test_an_effect_that_the_host_has_changed_is_made_once(played: Played) -> None:
    """The host's new definition takes the place of the old one, in the plan and among the calls that may be made."""
    late, changed = {"tool": "pay", "args": {"iban": "${bob.iban}"}}, {"iban": "${bob.iban}", "amount": 4}
    played.splice(instead("late", "late2", late), origin="planner")
    played.splice(Rewire(id="late2", args=changed))

    assert played.refusal(add("x", late), origin="planner")[0].startswith("DR427")
    assert played.refusal(add("x", late, args=changed), origin="planner")[0].startswith("DR428")


def test_a_check_that_has_succeeded_need_not_be_waited_for(played: Played) -> None:
    """It has done its work."""
    played.succeed("asked", value={"ok": True})

    played.splice(Rewire(id="thanks", depends_on=[]), origin="planner")


def test_without_the_policy_nothing_is_frozen() -> None:
    """And nothing is kept."""
    played = Played([step("ann", ANN)], TOOLS)

    played.splice(add("x", {"tool": "mail", "args": {"to": "mallory"}}), origin="planner")

    assert played.graph.frozen_plan is None
