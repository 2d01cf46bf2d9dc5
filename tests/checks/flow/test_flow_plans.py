"""The trust boundary of plans: which calls of a plan are asked about, and what is said of them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

import dagrun
from dagrun import CheckedPlan, EndorseRule, Flow, GuardRule, PlanRefused, Policy
from dagrun.kernel.checks.flow import sources


@dagrun.tool(effect="read", untrusted=True)
async def read_file(path: str) -> str:
    """Read a file, which anybody may have written."""
    return path


@dagrun.tool(effect="read", untrusted=("[].subject", "[].body"))
async def mails(folder: str) -> list[dict[str, Any]]:
    """List mails; the server makes their ids."""
    return [{"id": folder, "subject": "", "body": ""}]


@dagrun.tool(effect="read", private=True)
async def crm(customer: str) -> dict[str, Any]:
    """Look a customer up."""
    return {"name": customer}


@dagrun.tool(effect="pure")
async def extract(text: Any) -> str:
    """Find the account number in a text."""
    return str(text)


@dagrun.tool(effect="read")
async def known_iban(name: str) -> str:
    """Return the account number of a known supplier."""
    return name


@dagrun.tool(effect="effectful")
async def send_money(recipient: Annotated[str, dagrun.guarded], amount: float = 1.0, subject: str = "") -> str:
    """Pay."""
    return "paid"


@dagrun.tool(effect="effectful")
async def post_note(text: str) -> str:
    """Write a note; it guards nothing itself."""
    return text


@dagrun.tool(effect="read", outbound=True)
async def fetch(url: Annotated[str, dagrun.guarded], body: str = "") -> str:
    """Fetch a page of any address."""
    return url


TOOLS = [read_file, mails, crm, extract, known_iban, send_money, post_note, fetch]


def step(id: str, tool: str, **args: Any) -> dict[str, Any]:
    return {"id": id, "tool": tool, "args": args}


def check(*steps: dict[str, Any], inputs: dict[str, Any] | None = None, **flow: Any) -> CheckedPlan:
    plan = dagrun.Plan.model_validate({"steps": list(steps)})
    return dagrun.check(plan, TOOLS, policy=Policy(flow=Flow(**flow)), inputs=inputs)


def asks(checked: CheckedPlan, id: str) -> list[str]:
    return [ask.why for ask in checked.steps[id].asks if ask.crossing is not None]


BILL = step("bill", "read_file", path="bill.txt")
IBAN = step("iban", "extract", text="${bill}")


def test_untrusted_data_in_a_guarded_argument_is_asked_about_with_its_way() -> None:
    """The text names the argument, the tools on the way, and whose data it is."""
    checked = check(BILL, IBAN, step("pay", "send_money", recipient="${iban}", amount=3.0))

    assert asks(checked, "pay") == [
        "step pay passes ${iban} as recipient of send_money; it comes from iban (extract) <- bill (read_file), which "
        "others can write"
    ]
    assert not checked.steps["pay"].is_plain


def test_a_refusing_policy_refuses_the_plan_at_the_argument() -> None:
    """With `otherwise="refuse"` the same is a problem of the plan, for planner and person alike."""
    with pytest.raises(PlanRefused) as refused:
        check(BILL, IBAN, step("pay", "send_money", recipient="${iban}"), otherwise="refuse")

    (problem,) = refused.value.problems
    assert (problem.code, problem.path) == ("DR501", "steps[2].args.recipient")


@pytest.mark.parametrize(
    "args",
    [
        {"recipient": "${bill}"},
        {"recipient": "to ${bill}, please"},
        {"recipient": {"$step": "bill"}},
    ],
)
def test_every_form_of_a_reference_counts(args: dict[str, Any]) -> None:
    """A value of its own, a part of a text, and the form of an object."""
    assert asks(check(BILL, step("pay", "send_money", **args)), "pay")


def test_an_unguarded_argument_and_a_literal_need_nobody() -> None:
    """A subject may be what it is; the recipient stands in the plan."""
    checked = check(BILL, step("pay", "send_money", recipient="ann", subject="${bill}"))

    assert asks(checked, "pay") == []
    assert checked.steps["pay"].asks == ()


def test_a_tool_that_guards_nothing_is_guarded_in_every_argument_if_it_acts() -> None:
    """Nothing is declared, so the safe side counts; a rule of the policy can narrow that."""
    note = step("note", "post_note", text="${bill}")

    assert asks(check(BILL, note), "note")
    assert not asks(check(BILL, note, guard=[GuardRule(tool="post_*", args=[])]), "note")
    assert not asks(check(BILL, IBAN), "iban")  # a tool that only looks


def test_outbound_reads_act() -> None:
    """An address of the caller's choice carries data out."""
    assert asks(check(BILL, step("page", "fetch", url="https://${bill}")), "page")
    assert not asks(check(BILL, step("page", "fetch", url="https://a.example", body="${bill}")), "page")


def test_private_data_does_not_leave_by_any_argument_of_an_outbound_tool() -> None:
    """Private is another question about the same set; also after a step that has changed the data."""
    steps = step("who", "crm", customer="7"), step("text", "extract", text="${who}")
    page = step("page", "fetch", url="https://a.example", body="${text}")

    (why,) = asks(check(*steps, page), "page")
    assert why == (
        "step page passes ${text} as body of fetch, which sends it outside; it comes from text (extract) <- who (crm), "
        "which must not leave"
    )
    assert not asks(check(*steps, page, guard=[GuardRule(tool="fetch", keeps="nothing")]), "page")


def test_a_policy_names_tools_inputs_and_guards() -> None:
    """What tools do not say of themselves, the policy says for them, with patterns."""
    note = step("note", "post_note", text="${iban}")
    steps = step("iban", "known_iban", name="x"), note

    assert not asks(check(*steps), "note")
    assert asks(check(*steps, untrusted=["known_*"]), "note")
    assert asks(check(*steps, private=["known_iban"], guard=[GuardRule(tool="post_*", keeps="private")]), "note")
    assert asks(check(*steps, private=["known_iban"], outbound=["post_note"]), "note")


def test_inputs_that_others_wrote_are_untrusted() -> None:
    """An input stands for the user, unless the policy names it."""
    plan = dagrun.Plan.model_validate({"steps": [step("pay", "send_money", recipient="${input.mail}")]})
    policy = Policy(flow=Flow(inputs=["mail"]))

    (why,) = asks(dagrun.check(plan, TOOLS, policy=policy), "pay")
    assert "it comes from the input mail, which others can write" in why


def test_parts_that_the_server_makes_are_clean() -> None:
    """A reference to an id of a mail is clean, one to its subject is not; nor is one to all of it."""
    inbox = step("inbox", "mails", folder="in")

    def pays(reference: str) -> list[str]:
        return asks(check(inbox, step("pay", "send_money", recipient=reference)), "pay")

    assert not pays("${inbox[0].id}")
    assert pays("${inbox[0].subject}")
    assert pays("about ${inbox[0].body.text}")
    assert pays("all of ${inbox[0]}")
    assert pays("all of ${inbox}")


def test_elements_carry_the_label_of_their_list_part_by_part() -> None:
    """The element of a for_each is a part of its list."""
    inbox = step("inbox", "mails", folder="in")

    def pays(reference: str) -> list[str]:
        each = {**step("pay", "send_money", recipient=reference), "for_each": "${inbox}"}
        return asks(check(inbox, each), "pay")

    assert not pays("${item.id}")
    assert pays("${item.subject}")
    assert pays("all of ${item}")


def test_what_a_for_each_gives_is_a_list_of_answers() -> None:
    """The paths of parts begin behind the index of the element."""
    boxes = {**step("boxes", "mails", folder="${item}"), "for_each": ["a", "b"]}

    assert not asks(check(boxes, step("pay", "send_money", recipient="${boxes[1][0].id}")), "pay")
    assert asks(check(boxes, step("pay", "send_money", recipient="${boxes[1][0].subject}")), "pay")


def test_a_fallback_counts_on_both_sides() -> None:
    """What a step gives may come from its fallback, and its fallback may be the guarded one."""
    iban = {**step("iban", "known_iban", name="x"), "fallback": "lookup"}
    note = {**step("note", "quiet", text="${bill}"), "fallback": "post_note"}

    @dagrun.tool(effect="read", untrusted=True)
    async def lookup(name: str) -> str:
        return name

    @dagrun.tool(effect="pure")
    async def quiet(text: str) -> str:
        return text

    tools = [*TOOLS, lookup, quiet]
    plan = {"steps": [BILL, iban, note, step("pay", "send_money", recipient="${iban}")]}
    checked = dagrun.check(dagrun.Plan.model_validate(plan), tools, policy=Policy(flow=Flow()))

    assert asks(checked, "pay")
    assert checked.steps["note"].asks == ()
    assert [ask.crossing is not None for ask in checked.steps["note"].fallback_asks] == [True]


def test_a_condition_counts_only_where_a_guard_looks_at_it() -> None:
    """The author of the plan wrote the condition; `control` makes whose data it looks at count."""
    pay = {**step("pay", "send_money", recipient="ann"), "when": {"ref": "bill", "op": "==", "value": "yes"}}

    assert not asks(check(BILL, pay), "pay")
    (why,) = asks(check(BILL, pay, guard=[GuardRule(tool="send_money", control=True)]), "pay")
    assert why.startswith("whether step pay calls send_money depends on ${bill}")


def test_the_policy_endorses_and_no_plan_can() -> None:
    """An endorsed tool launders what others can write, and keeps what is private."""
    iban = step("iban", "known_iban", name="${bill}")
    pay = step("pay", "send_money", recipient="${iban}")
    endorse = [EndorseRule(tool="known_iban")]

    assert asks(check(BILL, iban, pay), "pay")
    assert not asks(check(BILL, iban, pay, endorse=endorse), "pay")

    who = step("who", "crm", customer="7")
    page = step("page", "fetch", url="https://a.example", body="${iban}")
    assert asks(check(who, step("iban", "known_iban", name="${who.name}"), page, endorse=endorse), "page")


def test_accepts_names_the_only_sources() -> None:
    """Data that is made of several sources needs all of them."""
    contacts = step("iban", "known_iban", name="x")
    pay = step("pay", "send_money", recipient="${iban}")
    only = [GuardRule(tool="send_money", args=["recipient"], accepts=["user", "plan", "person", "known_*"])]
    nobody = [GuardRule(tool="send_money", args=["recipient"], accepts=["user", "plan"])]

    assert not asks(check(contacts, pay, guard=only), "pay")
    assert asks(check(contacts, pay, guard=nobody), "pay")
    assert asks(check(BILL, contacts, step("pay", "send_money", recipient="${iban}${bill}"), guard=only), "pay")


def test_order_of_writing_makes_no_difference() -> None:
    """A plan need not be written in an order in which it can run."""
    checked = check(step("pay", "send_money", recipient="${iban}"), IBAN, BILL)

    assert asks(checked, "pay")


def test_without_a_boundary_nothing_is_imported() -> None:
    """A policy without `flow` runs no line of it."""
    checked = dagrun.check(dagrun.Plan.model_validate({"steps": [BILL]}), TOOLS)

    assert checked.flow is None


def test_names_that_fit_nothing_are_told() -> None:
    """A guard for a tool or an argument that does not exist would guard nothing."""
    for flow, code in (
        ({"untrusted": ["read_fil"]}, "DR214"),
        ({"endorse": [EndorseRule(tool="known_ibann")]}, "DR214"),
        ({"guard": [GuardRule(tool="send_money", args=["recipent"])]}, "DR215"),
    ):
        with pytest.raises(PlanRefused) as refused:
            check(BILL, **flow)
        assert [problem.code for problem in refused.value.problems] == [code]

    advice = check(BILL, untrusted=["something_else", "mail.*"]).advice
    assert [problem.path for problem in advice if problem.code == "DR913"] == ["policy.flow.untrusted[0]"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"untrusted": "yes"}, "untrusted is True, or a list of paths"),
        ({"untrusted": ["a..b"]}, "is no path"),
        ({"untrusted": [""]}, "an empty path is the whole answer"),
        ({"private": ["x"]}, "private is True or False"),
    ],
)
def test_marks_that_say_nothing_are_refused(options: dict[str, Any], message: str) -> None:
    """A mark that holds nothing back would be taken for one that does."""
    with pytest.raises(dagrun.errors.ContractError, match=message):
        dagrun.tool(name="x", effect="read", **options)(lambda: None)


def test_a_function_that_saves_questions_needs_questions() -> None:
    """Where the policy refuses, it would never be called; an async one could not be awaited."""

    async def later(call: object) -> bool:
        return True

    with pytest.raises(ValueError, match="there are none"):
        Flow(otherwise="refuse", unless=lambda call: True)
    with pytest.raises(dagrun.errors.ContractError, match="unless must be a plain function"):
        Flow(unless=later)  # type: ignore[arg-type]


def test_a_schema_tool_names_its_guarded_arguments() -> None:
    """What an annotation says for a function, a list says for a schema."""
    schema = {"properties": {"to": {"type": "string"}, "text": {"type": "string"}}}

    async def call(arguments: dict[str, Any], context: object) -> str:
        return "sent"

    mail = dagrun.schema_tool("mail", call, schema, guarded=["to"], effect="effectful")
    plan = {"steps": [BILL, step("a", "mail", to="ann", text="${bill}"), step("b", "mail", to="${bill}", text="x")]}
    checked = dagrun.check(dagrun.Plan.model_validate(plan), [*TOOLS, mail], policy=Policy(flow=Flow()))

    assert not asks(checked, "a")
    assert asks(checked, "b")
    with pytest.raises(dagrun.errors.ContractError, match="guarded is a list of names of arguments"):
        dagrun.schema_tool("mail", call, schema, guarded=["whom"])


def test_the_mark_is_no_part_of_the_type() -> None:
    """It stands beside limits, aliases and secrets, and planners see the same schema as without it."""
    schema = send_money.arguments.schema

    assert schema["properties"]["recipient"] == {"title": "Recipient", "type": "string"}
    assert send_money.arguments.guarded == {"recipient"}


def test_a_call_with_thousands_of_arguments_is_told_shortly() -> None:
    """A hostile plan for a tool that takes any argument costs no more than its size."""

    async def call(arguments: dict[str, Any], context: object) -> str:
        return ""

    anything = dagrun.schema_tool("anything", call, {"type": "object"}, effect="effectful")
    args = {f"a{number}": "${bill}" for number in range(5_000)}
    plan = dagrun.Plan.model_validate({"steps": [BILL, {"id": "many", "tool": "anything", "args": args}]})

    checked = dagrun.check(plan, [*TOOLS, anything], policy=Policy(flow=Flow()))

    assert len(asks(checked, "many")) == 10


def test_checks_in_turn_have_the_rules_of_their_own_boundary() -> None:
    """The rules of the check before are at hand; equal boundaries share theirs, and another one never gets them."""
    bill = {"id": "bill", "tool": "read_file", "args": {"path": "a"}}
    kinds: list[dict[str, Any]] = [{}, {"untrusted": ("crm",)}] * 2

    kept = [check(bill, **kind) for kind in kinds]
    first, other, again, other_again = (checked.flow.rules for checked in kept if checked.flow is not None)

    assert first is again
    assert other is other_again
    assert first is not other
    assert [tuple(rules.flow.untrusted) for rules in (first, other)] == [(), ("crm",)]


def test_a_check_on_another_thread_lends_nobody_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may begin between two looks at what the check before has left."""
    mine, other = Flow(), Flow(untrusted=("crm",))
    kept, wrong = sources.rules_of(mine), sources.rules_of(other)

    def same() -> Flow:
        sources._last = (lambda: other, lambda: wrong)
        return mine

    monkeypatch.setattr(sources, "_last", (same, lambda: kept))
    assert sources.rules_of(mine) is kept
