"""Patches of a planner to a frozen plan, by hand: what each may do, and what it is refused with."""

from __future__ import annotations

from typing import Any

from dagrun import Add, Drop, Replace, Rewire, Step, Toolbox
from dagrun.kernel.model.tool import make_tool
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
AGAIN = {"tool": "find", "args": {"who": "${carl.name}"}}
EACH = {"tool": "find", "for_each": "${list}", "args": {"who": "${item}"}}
ALL = {"tool": "mail", "for_each": "${list}", "args": {"to": "${item}"}}


def step(id_: str, fields: dict[str, Any], **others: Any) -> Step:
    """A step of these fields; an argument that is not given stays."""
    args = {**fields.get("args", {}), **others.pop("args", {})}
    return Step.model_validate({**fields, **others, "args": args, "id": id_})


def add(id_: str, fields: dict[str, Any], **others: Any) -> Add:
    return Add(step=step(id_, fields, **others))


def instead(old: str, id_: str, fields: dict[str, Any], **others: Any) -> Replace:
    return Replace(id=old, step=step(id_, fields, **others))


def in_the_middle() -> Played:
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
        step("carl", {"tool": "find", "args": {"who": "carl"}}),
        step("again", AGAIN),
        step("each", EACH),
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
    "a look at another list": (
        [add("x", EACH, for_each=["mallory"])],
        ["DR427 edits[0].step: for_each differs from that of each"],
    ),
    "a look at another source": (
        [add("x", AGAIN, args={"who": "${bob.name}"})],
        ["DR427 edits[0].step: args.who differs from that of ann"],
    ),
    "what looks at another source": (
        [instead("carl", "x", BOB)],
        ["DR427 edits[0] -> again: args.who differs from that of again"],
    ),
    "a fallback that the call does not have": (
        [add("x", BOB, fallback="find_again")],
        ["DR427 edits[0].step: its fallback differs from bob's"],
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
