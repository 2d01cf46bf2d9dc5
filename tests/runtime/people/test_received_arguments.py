"""Rules look at what a tool receives: after aliases, validators and defaults, at every depth, and on every way."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Final

import pytest
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypedDict

import dagrun
from agents import answer, call
from dagrun import Add, ApprovalRule, Condition, Drop, Flow, Patch, Plan, PlanRefused, Policy, Replace, Step, ToolError
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import decode
from persons import Person
from scripted_model import ScriptedModel

pytestmark = pytest.mark.anyio


class Aliased(BaseModel):
    """An order whose amount is written as ``sum``."""

    amount: float = Field(alias="sum")


class Either(BaseModel):
    """An order whose amount has two other names."""

    amount: float = Field(validation_alias=AliasChoices("sum", "total"))


class Tidied(BaseModel):
    """An order whose recipient is tidied."""

    model_config = ConfigDict(str_strip_whitespace=True, str_to_lower=True)
    to: str


class Times(BaseModel):
    """An order in hundreds."""

    amount: Decimal = Decimal(500)

    @field_validator("amount", mode="before")
    @classmethod
    def _hundreds(cls, value: Any) -> Any:
        return value * 100


class Many(BaseModel):
    """Orders inside."""

    orders: list[Aliased] = []
    by_name: dict[str, Aliased | None] = {}


class Rows(RootModel[list[Aliased]]):
    """A list of orders."""


class Typed(TypedDict):
    """An order that is an object."""

    amount: Annotated[float, Field(alias="sum")]


@dataclass
class Plain:
    """An order that is a dataclass."""

    to: Annotated[str, BeforeValidator(lambda text: str(text).strip())] = "mallory"
    rows: list[int] = field(default_factory=lambda: [900])


class Speed(Enum):
    """An order that is a choice."""

    SLOW = 1
    FAST = 2


DECOY: Final = {"amount": 1, "sum": 900}
BIG: Final = ("args.order.amount", ">", 100)


def payments(kind: Any, default: Any = ..., **options: Any) -> tuple[AnyTool, list[Any]]:
    """A tool that pays an order of this type, and what it has paid."""
    paid: list[Any] = []

    async def pay(order: Any) -> str:
        paid.append(order)
        return "paid"

    pay.__annotations__["order"] = kind
    pay.__defaults__ = None if default is ... else (default,)
    return dagrun.tool(effect="effectful", **options)(pay), paid


def rule(ref: str, op: str, value: Any, **fields: Any) -> ApprovalRule:
    """A rule about ``pay``."""
    return ApprovalRule(tool="pay", when=Condition.model_validate({"ref": ref, "op": op, "value": value}), **fields)


@dagrun.tool(effect="read")
async def give(value: Any) -> Any:
    """Return a value, so that no check of the plan sees it as an argument."""
    return value


async def run(tool: AnyTool, order: Any, *rules: ApprovalRule, says: bool = False, **options: Any) -> Person:
    """Pay an order that another step returns; the person who is asked says no."""
    person = Person(says)
    steps = [Step(id="give", tool="give", args={"value": order}), Step(id="pay", tool="pay", args={"order": "${give}"})]
    await dagrun.run(Plan(steps=steps), tools=[give, tool], policy=Policy(approve=rules), approver=person, **options)
    return person


# What is looked at ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "order", "ref", "op", "value"),
    [
        (Aliased, DECOY, *BIG),
        (Aliased, {"amount": 900}, "args.order.sum", ">", 100),
        (Either, {"sum": 900, "total": 1}, "args.order.total", ">", 100),
        (Tidied, {"to": " Mallory"}, "args.order.to", "==", "mallory"),
        (Tidied, {"to": " Mallory"}, "args.order.to", "in", ["mallory", "bob"]),
        (Tidied, {"to": " Mallory"}, "args.order", "==", {"to": "mallory"}),
        (Times, {"amount": 9}, *BIG),
        (Times | None, {"amount": 9}, *BIG),
        (Many, {"orders": [{"sum": 1}, DECOY]}, "args.order.orders[1].amount", ">", 100),
        (Many, {"by_name": {"a": DECOY}}, "args.order.by_name.a.amount", ">", 100),
        (Many, {"by_name": {"a": {"sum": "900"}}}, "args.order.by_name.a", "==", {"sum": 900}),
        (Rows, [DECOY], "args.order[0].amount", ">", 100),
        (tuple[Aliased, ...], [DECOY], "args.order[0].amount", ">", 100),
        (Typed, {"sum": 900}, *BIG),
        (Plain, {"to": "mallory "}, "args.order.to", "==", "mallory"),
        (Plain, {}, "args.order.rows", "contains", 900),
        (Annotated[int, BeforeValidator(lambda n: n * 100)], 9, "args.order", ">", 100),
        (Annotated[bool, BeforeValidator(bool)], 1, "args.order", "==", True),
        (Annotated[Speed, BeforeValidator(lambda n: n * 2)], 1, "args.order", "==", 2),
    ],
)
async def test_a_rule_that_fits_what_the_tool_receives_asks(
    kind: Any, order: Any, ref: str, op: str, value: Any
) -> None:
    """The JSON of the call does not fit the rule, or a decoy in it does not; the tool would have paid."""
    tool, paid = payments(kind)

    person = await run(tool, order, rule(ref, op, value))

    assert (len(person.asked), paid) == (1, [])
    await run(tool, order)
    assert len(paid) == 1


@pytest.mark.parametrize(
    ("kind", "order", "ref", "op", "value"),
    [
        (Aliased, {"amount": 900, "sum": 1}, *BIG),
        (Tidied, {"to": " Mallory"}, "args.order.to", "==", " Mallory"),
    ],
)
async def test_a_rule_that_fits_the_call_as_it_is_written_asks_as_well(
    kind: Any, order: Any, ref: str, op: str, value: Any
) -> None:
    """Where the two forms differ, either one is enough."""
    tool, paid = payments(kind)

    person = await run(tool, order, rule(ref, op, value))

    assert (len(person.asked), paid) == (1, [])


@pytest.mark.parametrize(
    ("kind", "order", "rules"),
    [
        (Aliased, {"sum": 99}, [BIG, ("args.order.sum", ">", 100), ("args.order", "==", {"sum": 100})]),
        (Aliased, {"amount": 99}, [BIG, ("args.order.sum", ">", 100)]),
        (Either, {"total": 99}, [BIG, ("args.order.sum", ">", 100), ("args.order.total", ">", 100)]),
        (Typed, {"sum": 99}, [BIG, ("args.order.sum", ">", 100)]),
        (Tidied, {"to": " Bob"}, [("args.order.to", "==", "mallory")]),
        (Many, {"orders": [{"sum": 1}]}, [("args.order.orders[0].amount", ">", 100), ("args.order.orders", "==", [])]),
        (Plain, {"to": "bob", "rows": [1]}, [("args.order.rows", "contains", 900)]),
    ],
)
async def test_a_rule_that_fits_neither_asks_nobody(kind: Any, order: Any, rules: list[Any]) -> None:
    """By whichever of its names the rule, and the call, knows a field."""
    tool, paid = payments(kind)

    person = await run(tool, order, *(rule(*facts) for facts in rules))

    assert (len(person.asked), len(paid)) == (0, 1)


async def test_a_default_of_the_tool_is_looked_at() -> None:
    """With an operator that takes a field that is left out for no mismatch."""
    tool, paid = payments(int, 900)
    policy = Policy(approve=[rule("args.order", "exists", True)])
    person = Person(False)

    plan = Plan(steps=[Step(id="pay", tool="pay")])
    await dagrun.run(plan, tools=[tool], policy=policy, approver=person)

    assert (len(person.asked), paid) == (1, [])


async def test_a_default_of_a_foreign_schema_is_looked_at() -> None:
    """Who answers the call adds it; a rule about the field itself holds anyway when it is left out."""
    calls: list[Any] = []

    async def call(arguments: Any, context: Any) -> str:
        calls.append(arguments)
        return "paid"

    order = {"type": "object", "properties": {"urgent": {"type": "boolean", "default": True}, "to": {}}}
    schema = {
        "properties": {"orders": {"type": "array", "items": {"$ref": "#/$defs/Order"}}},
        "$defs": {"Order": order},
    }
    tool = dagrun.schema_tool("pay", call, schema, effect="effectful")
    plan = Plan(steps=[Step(id="pay", tool="pay", args={"orders": [{"to": "bob"}]})])

    for condition, asked in (("exists", 1), ("==", 1)):
        person, policy = Person(False), Policy(approve=[rule("args.orders[0].urgent", condition, True)])
        await dagrun.run(plan, tools=[tool], policy=policy, approver=person)
        assert (len(person.asked), calls) == (asked, [])
        assert decode(person.asked[0].arguments) == {"orders": [{"to": "bob"}]}  # what is sent, and no more

    await dagrun.run(plan, tools=[tool], policy=Policy(approve=[rule("args.orders[0].to", "==", "eve")]))
    assert calls == [{"orders": [{"to": "bob"}]}]


# The question ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "order", "shown"),
    [
        (Aliased, DECOY, {"amount": 900}),
        (Aliased, {"sum": 900}, {"sum": 900}),
        (Aliased, {"amount": 900}, {"amount": 900}),
        (Tidied, {"to": " Mallory"}, {"to": "mallory"}),
        (Times, {}, {"amount": 500}),
        (Many, {"orders": [DECOY]}, {"orders": [{"amount": 900}], "by_name": {}}),
        (dict[str, Any], {"b": {"sum": 1.0}, "a": None}, {"b": {"sum": 1.0}, "a": None}),
    ],
)
async def test_the_question_shows_what_the_tool_receives(kind: Any, order: Any, shown: Any) -> None:
    """Under the names that the call uses, with the defaults, and without what the tool does not look at."""
    tool, _ = payments(kind, needs_approval=True)

    (question,) = (await run(tool, order)).asked

    assert decode(question.arguments) == {"order": shown}


# Every way into a run -------------------------------------------------------------------------------------------------


def pay_step(id_: str = "pay", order: Any = "${give}", **fields: Any) -> Step:
    """A payment."""
    return Step(id=id_, tool=fields.pop("tool", "pay"), args={"order": order}, **fields)


GIVE: Final = Step(id="give", tool="give", args={"value": DECOY})
BOOM: Final = Step(id="boom", tool="boom")


class Proposes:
    """A planner that answers with one patch."""

    def __init__(self, *edits: Any) -> None:
        self._patch = Patch(edits=edits)

    async def revise(self, brief: dagrun.Brief) -> Patch:
        """Propose the edits."""
        return self._patch


@dagrun.tool(effect="read")
async def boom(order: Any = None) -> str:
    """Fail, so that the planner or the fallback comes in."""
    raise ToolError("no")


@pytest.mark.parametrize(
    ("steps", "edits"),
    [
        ([GIVE, pay_step()], ()),
        ([GIVE, pay_step(order={"amount": 1, "sum": "${give.sum}"})], ()),
        ([GIVE, BOOM], (Add(step=pay_step()),)),
        ([GIVE, Step(id="boom", tool="boom", depends_on=["give"])], (Replace(id="boom", step=pay_step()),)),
        ([GIVE, pay_step(order="${item}", for_each=[DECOY])], ()),
        ([GIVE, pay_step(tool="boom", fallback="pay", on_failure="skip")], (Drop(id="pay"),)),
        ([GIVE, pay_step(retry=dagrun.RetryRule(max_attempts=3))], ()),
    ],
    ids=["plan", "parts", "added", "replaced", "for_each", "fallback", "retry"],
)
async def test_no_way_into_a_run_goes_round_what_the_tool_receives(steps: list[Step], edits: Any) -> None:
    """There is one gate, where the call is started."""
    tool, paid = payments(Aliased)
    person, policy = Person(False), Policy(approve=[rule(*BIG)])

    planner = Proposes(*edits) if edits else None
    result = await dagrun.run(
        Plan(steps=steps), tools=[give, boom, tool], policy=policy, approver=person, planner=planner
    )

    assert (len(person.asked), paid) == (1, []), result


async def test_what_a_person_has_given_is_looked_at_as_the_tool_receives_it() -> None:
    """An answer to a missing input becomes an argument of the next attempt, which is asked about."""
    paid: list[Any] = []

    @dagrun.tool(effect="effectful")
    async def pay(order: Aliased | None = None) -> str:
        if order is None:
            raise ToolError("which order?", missing_input="order")
        paid.append(order)
        return "paid"

    person = Person(dagrun.Answer("approve"), dagrun.Answer("approve", value=DECOY), dagrun.Answer("deny"))
    plan = Plan(steps=[Step(id="pay", tool="pay")])
    await dagrun.run(plan, tools=[pay], policy=Policy(approve=[rule(*BIG)]), approver=person)

    assert ([str(question.kind) for question in person.asked], paid) == (["approval", "input", "approval"], [])


async def test_a_resumed_run_asks_for_what_the_tool_receives() -> None:
    """And a yes that was given before is valid for the same call."""
    journal, policy = dagrun.MemoryJournal(), Policy(approve=[rule(*BIG)])
    tool, paid = payments(Aliased)
    known: dict[str, Any] = {"tools": [give, tool], "journal": journal}

    first = await dagrun.run(Plan(steps=[GIVE, pay_step()]), policy=policy, run_id="r", **known)
    async with dagrun.resume("r", approver=Person(True), **known) as again:
        second = await again.result()

    assert (str(first.status), str(second.status), len(paid)) == ("waiting", "succeeded", 1)


# The host's function --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "is_asked"), [(DECOY, True), ({"sum": 9}, False)])
async def test_a_call_is_let_off_only_if_both_forms_are(order: Any, is_asked: bool) -> None:
    """The function of the host sees each form, once if they are the same."""
    seen: list[Any] = []
    tool, paid = payments(Aliased)

    def unless(call: dagrun.GuardedCall) -> bool:
        order = call.arguments["order"]
        seen.append(order)
        return bool(order.get("amount", order.get("sum")) < 100)

    person = Person(False)
    flow = Flow(untrusted=["give"], unless=unless)
    steps = [Step(id="give", tool="give", args={"value": order}), pay_step()]
    await dagrun.run(Plan(steps=steps), tools=[give, tool], policy=Policy(flow=flow), approver=person)

    assert (len(person.asked), len(paid)) == (int(is_asked), int(not is_asked))
    assert seen == ([order, {"amount": 900}] if is_asked else [order])


async def test_a_call_of_an_agent_is_let_off_only_if_both_forms_are() -> None:
    """The agent has read what others can write, so its payments ask; the host knows small ones."""
    tool, paid = payments(Aliased)
    model = ScriptedModel(call("give", value="x"), call("pay", order=DECOY), call("pay", order={"sum": 9}), answer())
    agent = dagrun.agent_tool(model, [give, tool], allow_effects=True)
    flow = Flow(untrusted=["give"], unless=lambda call: call.arguments["order"].get("amount", 0) < 100)

    person = Person(False)
    plan = Plan(steps=[Step(id="work", tool="agent", args={"task": "pay"})])
    await dagrun.run(plan, tools=[agent], policy=Policy(flow=flow), approver=person)

    assert [decode(question.arguments)["args"] for question in person.asked] == [{"order": {"amount": 900}}]
    assert [order.amount for order in paid] == [9]


# The check ------------------------------------------------------------------------------------------------------------


def problems(tool: AnyTool, order: Any, *rules: ApprovalRule) -> list[str]:
    """The problems of a plan that pays an order."""
    plan = Plan(steps=[GIVE, pay_step(order=order)])
    try:
        dagrun.check(plan, [give, tool], policy=Policy(approve=rules))
    except PlanRefused as refused:
        return [f"{p.code} {p.path}" for p in refused.problems]
    return []


@pytest.mark.parametrize(
    ("kind", "order", "found"),
    [
        (Aliased, DECOY, ["DR205 steps[1].args.order.sum"]),
        (Aliased, {"sum": 900, "amount": "${give}"}, ["DR205 steps[1].args.order.amount"]),
        (Many, {"orders": [{"sum": 1}, DECOY]}, ["DR205 steps[1].args.order.orders[1].sum"]),
        (Many, {"by_name": {"amount": DECOY}}, ["DR205 steps[1].args.order.by_name.amount.sum"]),
        (Either, {"sum": 1, "total": 1}, ["DR205 steps[1].args.order.total"]),
        (Typed, DECOY, ["DR205 steps[1].args.order.amount"]),
        (Aliased | dict[str, int], {"amount": 1, "total": 2}, []),
        (dict[str, Aliased], {"sum": {"sum": 1}, "amount": {"amount": 1}}, []),
    ],
)
def test_a_field_that_is_given_by_two_names_is_refused_at_every_depth(kind: Any, order: Any, found: list[str]) -> None:
    """As at the top: one of them would be a decoy for who reads the plan."""
    assert problems(payments(kind)[0], order) == found


@pytest.mark.parametrize(
    ("kind", "ref", "is_taken"),
    [
        (Aliased, "args.order.amount", True),
        (Aliased, "args.order.sum", True),
        (Aliased, "args.order.amuont", False),
        (Either, "args.order.total", True),
        (Many, "args.order.orders[3].amount", True),
        (Many, "args.order.orders[3].price", False),
        (Many, "args.order.by_name.x.sum", True),
        (Many, "args.order.by_name.x.su", False),
        (dict[str, Any], "args.order.anything.at.all", True),
        (str, "args.order.to", False),
    ],
)
def test_a_rule_names_what_the_tool_takes_at_every_depth(kind: Any, ref: str, is_taken: bool) -> None:
    """A misspelled field would make the rule hold for every call, or for none."""
    found = problems(payments(kind)[0], "${give}", rule(ref, "==", 1))

    assert found == ([] if is_taken else ["DR215 policy.approve[0].when"])
