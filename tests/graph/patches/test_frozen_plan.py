"""A frozen plan: what patches of a planner may do to it, what they may not, and what they are told then."""

from __future__ import annotations

from typing import Any

import pytest

from dagrun import Add, Drop, Patch, Replace, Rewire, Step, Toolbox
from dagrun.model.outcome import State
from dagrun.model.tool import make_tool
from played import Played


async def find(who: str) -> dict[str, str]:
    return {"iban": who, "name": who}


async def find_again(who: str) -> dict[str, str]:
    return {"iban": who, "name": who}


async def names() -> list[str]:
    return []


async def peek() -> str:
    return ""


async def check(amount: int) -> dict[str, bool]:
    return {"ok": True}


async def pay(iban: str, amount: int = 1) -> str:
    return iban


async def pay_slowly(iban: str, amount: int = 1) -> str:
    return iban


async def mail(to: str) -> str:
    return to


READS = [make_tool(function, effect="read") for function in (find, find_again, names, peek, check)]
ACTS = [make_tool(pay, effect="idempotent"), *(make_tool(one, effect="effectful") for one in (pay_slowly, mail))]
TOOLS = Toolbox(*READS, *ACTS)

ANN = {"tool": "find", "args": {"who": "ann"}, "fallback": "find_again"}
BOB = {"tool": "find", "args": {"who": "bob"}}
OK = {"tool": "check", "args": {"amount": 5}}
PAY: dict[str, Any] = {
    "tool": "pay_slowly",
    "args": {"iban": "${ann.iban}", "amount": 5},
    "when": {"ref": "ok.ok", "op": "==", "value": True},
}
ALL = {"tool": "mail", "for_each": "${list}", "args": {"to": "${item}"}}


def step(id_: str, fields: dict[str, Any], **others: Any) -> Step:
    """A step of these fields; an argument that is not given stays."""
    args = {**fields.get("args", {}), **others.pop("args", {})}
    return Step.model_validate({**fields, **others, "args": args, "id": id_})


def add(id_: str, fields: dict[str, Any], **others: Any) -> Add:
    return Add(step=step(id_, fields, **others))


def instead(old: str, id_: str, fields: dict[str, Any], **others: Any) -> Replace:
    return Replace(id=old, step=step(id_, fields, **others))


@pytest.fixture
def played() -> Played:
    """A run in the middle: ann could not be found, so nobody is paid; one of two mails has gone."""
    steps = [
        step("ann", ANN),
        step("bob", BOB),
        step("ok", OK),
        step("asked", OK, args={"amount": 6}),
        step("pay", PAY),
        step("list", {"tool": "names"}),
        step("all", ALL),
        step("thanks", {"tool": "mail", "args": {"to": "ann"}}, depends_on=["asked"]),
        step("note", {"tool": "mail", "args": {"to": "me"}}),
        step("late", {"tool": "pay", "args": {"iban": "${bob.iban}"}}),
    ]
    played = Played(steps, TOOLS, freeze_plan=True)
    played.fail("ann")
    played.succeed("list", value=["a", "b"])
    played.expand("all", "a", "b")
    played.succeed("all[0]")
    played.fail("all[1]", nothing_happened=True)
    played.succeed("note")
    return played


ALLOWED: dict[str, list[Any]] = {
    "the same call": [instead("ann", "ann2", ANN)],
    "the same call, added": [add("ann2", ANN), Rewire(id="pay", use={"ann": "ann2"})],
    "the fallback": [instead("ann", "ann2", {**ANN, "tool": "find_again", "fallback": None})],
    "other limits and words": [
        instead("ann", "ann2", ANN, timeout=3, description="once more", retry={"max_attempts": 1}, estimate=2.0)
    ],
    "another way of writing references": [
        instead("ann", "ann2", ANN),
        instead("pay", "pay2", PAY, args={"iban": {"$step": "ann2", "path": ["iban"]}}),
    ],
    "steps that are dropped": [Drop(id="pay"), Drop(id="ann"), Drop(id="thanks")],
    "a chain": [instead("ann", "ann2", ANN), instead("pay", "pay2", PAY, args={"iban": "${ann2.iban}"})],
    "an element": [instead("all[1]", "b", {**ALL, "for_each": None})],
    "a look twice": [add("bob2", BOB), add("bob3", BOB)],
    "one more thing to wait for": [Rewire(id="thanks", depends_on=["asked", "bob"])],
    "a check once more": [instead("asked", "asked2", OK, args={"amount": 6})],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_calls_are_dropped_and_repeated(played: Played, name: str) -> None:
    """All that a repair needs which brings nothing new."""
    played.splice(*ALLOWED[name], origin="planner")


REPEAT = instead("ann", "ann2", ANN)
REFUSED: dict[str, tuple[list[Any], list[str]]] = {
    "a new recipient": (
        [add("x", {"tool": "pay", "args": {"iban": "mallory"}})],
        ["DR427 edits[0].step: args.iban differs from that of late"],
    ),
    "a tool that no step calls": (
        [add("x", {"tool": "peek"})],
        ["DR427 edits[0].step: no step of it calls that tool"],
    ),
    "a fallback of another call": (
        [instead("late", "x", {"tool": "pay_slowly", "args": {"iban": "${bob.iban}"}})],
        ["DR427 edits[0].step: args.amount and args.iban and when differ from that of pay"],
    ),
    "another argument": (
        [instead("ann", "ann2", ANN, args={"who": "mallory"})],
        ["DR427 edits[0].step: args.who differs from that of ann"],
    ),
    "one more argument": (
        [instead("late", "late2", {"tool": "pay", "args": {"iban": "${bob.iban}", "amount": 1}})],
        ["DR427 edits[0].step: args.amount differs from that of late"],
    ),
    "another source": (
        [Rewire(id="pay", args={"iban": "${bob.iban}", "amount": 5})],
        ["DR427 edits[0]: args.iban differs from that of pay"],
    ),
    "another part of the same source": (
        [instead("late", "late2", {"tool": "pay", "args": {"iban": "${bob.name}"}})],
        ["DR427 edits[0].step: args.iban differs from that of late"],
    ),
    "another call in the place of the source": (
        [instead("ann", "x", BOB)],
        ["DR427 edits[0] -> pay: args.iban differs from that of pay"],
    ),
    "another source by way of use": (
        [Rewire(id="pay", use={"ann": "bob"})],
        ["DR427 edits[0]: args.iban differs from that of pay"],
    ),
    "no condition": (
        [REPEAT, instead("pay", "pay2", PAY, when=None, depends_on=["ok"], args={"iban": "${ann2.iban}"})],
        ["DR427 edits[1].step: when differs from that of pay"],
    ),
    "another condition": (
        [REPEAT, instead("pay", "p", {**PAY, "when": {"ref": "ok", "op": "exists"}}, args={"iban": "${ann2.iban}"})],
        ["DR427 edits[1].step: when differs from that of pay"],
    ),
    "a value in the place of an answer": (
        [instead("ann", "ann2", ANN, on_failure="default", default={"iban": "mallory", "name": ""})],
        ["DR427 edits[0].step: default and on_failure differ from that of ann"],
    ),
    "a null in the place of an answer": (
        [instead("ann", "ann2", ANN, on_failure="default", default=None)],
        ["DR427 edits[0].step: default and on_failure differ from that of ann"],
    ),
    "a check that need not hold": (
        [instead("ok", "ok2", OK, success={"ref": "ok2.ok", "op": "exists"})],
        ["DR427 edits[0].step: success differs from that of ok"],
    ),
    "a check that may be left out": (
        [instead("ok", "ok2", OK, optional=True)],
        ["DR427 edits[0].step: optional differs from that of ok"],
    ),
    "another list": (
        [add("x", ALL, for_each=["mallory"])],
        ["DR427 edits[0].step: for_each differs from that of all"],
    ),
    "another element": (
        [instead("all[1]", "b", {"tool": "mail", "args": {"to": "mallory"}})],
        ["DR427 edits[0].step: args.to differs from that of all"],
    ),
    "what uses such a step": (
        [add("x", {"tool": "find", "args": {"who": "mallory"}}), Rewire(id="pay", use={"ann": "x"})],
        ["DR427 edits[0].step: args.who differs from that of ann", "DR427 edits[1]: it uses x, which is none either"],
    ),
    "an effect once more": ([add("x", {"tool": "mail", "args": {"to": "me"}})], ["DR428 edits[0].step: note"]),
    "an effect that is still to come": (
        [add("x", {"tool": "pay", "args": {"iban": "${bob.iban}"}})],
        ["DR428 edits[0].step: late"],
    ),
    "an effect for all once more": ([add("x", ALL)], ["DR428 edits[0].step: all"]),
    "another call made into it": ([Rewire(id="thanks", args={"to": "me"})], ["DR428 edits[0]: note"]),
    "an effect that does not wait": (
        [Rewire(id="thanks", depends_on=[]), Drop(id="asked")],
        ["DR429 edits[0]: asked"],
    ),
    "an effect that waits for another check": (
        [instead("asked", "x", OK)],
        ["DR429 edits[0] -> thanks: asked"],
    ),
}


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
        "DR427 edits[0].step: step ann2 calls find, and is no call of the first plan, which the policy freezes "
        "(freeze_plan): args.who differs from that of ann; a patch may drop calls, and repeat them as they were or "
        "with their fallback",
        "DR428 edits[0].step: step x makes the call of note once more, and the policy freezes the plan (freeze_plan), "
        "which makes it once; it may take the place of note only if that has had no effect",
        "DR429 edits[0]: step thanks would no longer wait for asked, which stands before it in the first plan; the "
        "policy freezes that (freeze_plan)",
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
