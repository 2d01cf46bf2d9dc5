"""The autonomy worksheet: what a plan may do by itself, when people decide, and what is still open."""

from __future__ import annotations

import json
from typing import Any

import pytest

from checking import TOOLBOX, find
from dagrun.checks.worksheet import QUESTIONS, RetrySafety, StepSheet, Worksheet, worksheet_of
from dagrun.cli.terminal.worksheet_text import worksheet_lines
from dagrun.model.outcome import TriggerKind
from dagrun.model.policy import ApprovalRule, Policy
from dagrun.model.tool import tool
from dagrun.model.toolbox import Toolbox

LOAD = {"id": "load", "tool": "load", "args": {"path": "a.csv"}}
SEND = {"id": "send", "tool": "send", "args": {"to": "x"}}
ADD = {"id": "add", "tool": "add", "args": {"a": 1}}


@tool(effect="idempotent", needs_approval=True, max_cost=0.5)
async def pay(amount: float) -> str:
    """Pay."""
    raise NotImplementedError


@tool
async def undeclared(path: str) -> Any:
    """A tool without any declaration."""
    raise NotImplementedError


@tool(effect="read", fallback="undeclared", max_tokens=10)
async def look(path: str) -> Any:
    """A harmless tool with a dangerous fallback."""
    raise NotImplementedError


BOX = Toolbox(TOOLBOX, pay, undeclared, look)


def sheet_of(*steps: dict[str, Any], policy: Policy | None = None) -> Worksheet:
    """Return the worksheet of a plan of these steps."""
    problems, checked = find(*steps, toolbox=BOX, policy=policy)
    assert checked is not None, problems
    return worksheet_of(checked)


def one(step: dict[str, Any], **policy: Any) -> StepSheet:
    """Return the sheet of a single step."""
    return sheet_of(step, policy=Policy(**policy)).steps[0]


PAY = {"id": "pay", "tool": "pay", "args": {"amount": 5.0}}
RULE = ApprovalRule(tool="send", why="strangers", when={"ref": "args.recipient", "op": "!=", "value": "me"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("step", "policy", "risks"),
    [
        (LOAD, {}, ()),
        (ADD, {}, ()),
        (LOAD | {"confidence": 0.1}, {}, ()),
        (LOAD | {"pause": "before"}, {}, ("pause before",)),
        (LOAD, {"approve": [ApprovalRule(tool="*")]}, ("rule 1 of the policy",)),
        (SEND, {}, ("effectful",)),
        (SEND | {"confidence": 0.5}, {}, ("effectful", "confidence 0.5 is below 0.6")),
        (SEND | {"confidence": 0.6}, {}, ("effectful",)),
        (SEND | {"confidence": 0.6}, {"min_confidence": 0.7}, ("effectful", "confidence 0.6 is below 0.7")),
        (SEND, {"approve": [ApprovalRule(tool="pay"), RULE]}, ("effectful", "strangers")),
        (PAY, {}, ("idempotent", "pay needs approval")),
        (LOAD | {"tool": "look"}, {}, ("its fallback undeclared is effectful",)),
    ],
)
def test_what_is_of_high_risk_says_why(step: dict[str, Any], policy: dict[str, Any], risks: tuple[str, ...]) -> None:
    """Because of its effect, the effect of its fallback, approval, the rules, confidence, or a pause."""
    assert one(step, **policy).risks == risks


@pytest.mark.parametrize(
    ("step", "retry"),
    [
        (ADD, RetrySafety.ANY),
        (LOAD, RetrySafety.ANY),
        (PAY, RetrySafety.ANY),
        (SEND, RetrySafety.NOTHING_HAPPENED),
        (SEND | {"retry": {"max_attempts": 1}}, RetrySafety.NEVER),
        (LOAD | {"retry": {"max_attempts": 1}}, RetrySafety.NEVER),
        (SEND | {"retry": {"max_attempts": 5}}, RetrySafety.NOTHING_HAPPENED),
    ],
)
def test_what_is_safe_to_retry_goes_by_effect_and_rule(step: dict[str, Any], retry: RetrySafety) -> None:
    """As in the recovery table, an effect that must not be repeated is retried only if nothing happened."""
    assert one(step).retry is retry


def test_the_rule_of_the_policy_counts_where_the_step_has_none() -> None:
    """A step without a retry rule has that of the run."""
    assert one(LOAD).max_attempts == 2
    assert one(LOAD, retry={"max_attempts": 1}).retry is RetrySafety.NEVER
    assert one(LOAD | {"retry": {"max_attempts": 3}}, retry={"max_attempts": 1}).max_attempts == 3


def test_the_fallback_is_that_of_the_step_or_its_tool() -> None:
    """The fallback of the step comes first."""
    assert one(LOAD).fallback == "load_copy"
    assert one(LOAD | {"tool": "load_copy", "fallback": "load"}).fallback == "load"
    assert one(ADD).fallback == ""


@pytest.mark.parametrize(
    ("step", "policy", "follows"),
    [
        ({}, {}, "replan, else skip"),
        ({"on_failure": "replan"}, {"last_resort": "escalate"}, "replan, else people"),
        ({}, {"max_replans": 0}, "skip"),
        ({}, {"replan_on": [TriggerKind.SURPRISE, TriggerKind.GOAL_CHANGED]}, "skip"),
        ({}, {"replan_on": [TriggerKind.UNREACHABLE]}, "replan, else skip"),
        ({}, {"replan_on": [], "last_resort": "escalate"}, "people"),
        ({"on_failure": "skip"}, {"last_resort": "escalate"}, "go on without"),
        ({"on_failure": "default", "default": {"rows": [], "count": 0}}, {}, "default"),
        ({"on_failure": "stop"}, {}, "stop the run"),
    ],
)
def test_what_follows_a_failure_for_good(step: dict[str, Any], policy: dict[str, Any], follows: str) -> None:
    """What the step says; else the planner, if it may be asked about failures at all; else the last resort."""
    assert one(LOAD | step, **policy).on_failure == follows


@pytest.mark.parametrize(
    ("step", "policy", "people"),
    [
        (LOAD, {}, ()),
        (LOAD | {"pause": "after"}, {}, ("pause after it",)),
        (LOAD, {"last_resort": "escalate"}, ("when it has failed for good",)),
        (LOAD | {"on_failure": "skip"}, {"last_resort": "escalate"}, ()),
        (SEND, {}, ("if nobody knows whether it took effect",)),
        (SEND | {"on_failure": "stop"}, {}, ()),
        (PAY | {"confidence": 0.0}, {}, ("before the call: pay needs approval, confidence 0 is below 0.6",)),
        (
            SEND | {"on_failure": "stop"},
            {"approve": [RULE]},
            ("before the call: strangers (depends on the arguments)",),
        ),
        (
            LOAD | {"tool": "look"},
            {"approve": [ApprovalRule(tool="undeclared", why="dangerous")]},
            ("before the fallback: dangerous",),
        ),
    ],
)
def test_when_a_person_takes_over(step: dict[str, Any], policy: dict[str, Any], people: tuple[str, ...]) -> None:
    """Approval, rule, confidence, pause, an effect in doubt, and the last resort."""
    assert one(step, **policy).people == people


@pytest.mark.parametrize(
    ("step", "policy", "keys"),
    [
        (LOAD, {}, ()),
        (ADD, {}, ()),
        (SEND, {}, ("failure",)),
        (SEND | {"on_failure": "stop"}, {}, ()),
        (PAY, {"timeout": 5.0}, ("failure",)),
        (PAY, {}, ("time", "failure")),
        (PAY | {"deadline": 9}, {}, ("failure",)),
        (LOAD | {"tool": "undeclared"}, {}, ("effect", "approval", "time", "failure")),
        (LOAD | {"tool": "undeclared"}, {"approve": [ApprovalRule(tool="undeclared")]}, ("effect", "time", "failure")),
    ],
)
def test_what_nobody_has_answered_about_a_step(step: dict[str, Any], policy: dict[str, Any], keys: Any) -> None:
    """Effect, approval, time, failure: a default is no answer."""
    assert one(step, **policy).unanswered == keys


FULL = Policy(
    max_attempts=20,
    max_seconds=60,
    max_tokens=1_000_000,
    max_cost=2.5,
    max_calls_by_tool={"pay": 3},
    approve_patches="effects",
    approve_output=True,
    answer_within=30,
)


@pytest.mark.parametrize(
    ("steps", "policy", "keys"),
    [
        ([ADD], Policy(), ["max_attempts", "max_seconds"]),
        ([PAY], Policy(), ["max_attempts", "max_seconds", "max_cost", "answer_within"]),
        ([LOAD | {"tool": "look"}], Policy(max_seconds=9), ["max_attempts", "max_tokens"]),
        ([LOAD | {"tool": "load_copy", "fallback": "look"}], Policy(max_seconds=9, max_attempts=9), ["max_tokens"]),
        ([ADD], Policy(max_seconds=9, max_attempts=9, approve_output=True), ["answer_within"]),
        ([PAY, LOAD | {"tool": "look"}], FULL, []),
    ],
)
def test_what_the_policy_leaves_open(steps: list[dict[str, Any]], policy: Policy, keys: list[str]) -> None:
    """Only questions that matter for this plan: a ceiling of cost is missing only if a tool costs money."""
    sheet = sheet_of(*steps, policy=policy)

    assert list(sheet.unanswered) == [*keys, "primary_metric", "guardrail_metric"]
    assert [str(problem) for problem in sheet.problems()] == [
        f"DR915 policy.{key}: nobody has answered: {QUESTIONS[key]}" for key in keys
    ]


def test_metrics_are_asked_for() -> None:
    """Nothing is refused without them, as a run is no less safe."""
    named = Policy(primary_metric="reports accepted unchanged", guardrail_metric="cost per report below 0.50")
    sheet = sheet_of(ADD, policy=named)

    assert not {"primary_metric", "guardrail_metric"} & set(sheet.unanswered)
    assert sheet.as_dict()["metrics"] == {
        "primary_metric": "reports accepted unchanged",
        "guardrail_metric": "cost per report below 0.50",
    }
    assert "  guardrail: cost per report below 0.50" in worksheet_lines(sheet, 80)


def test_contracts_that_are_not_stable() -> None:
    """What a tool leaves open may differ from call to call, and no check sees it."""
    sheet = sheet_of(ADD, PAY, {"id": "u", "tool": "undeclared", "args": {"path": "x"}})

    assert sheet.contracts == {"undeclared": ("no effect declared", "returns anything")}
    assert sheet.as_dict()["has_stable_contracts"] is False
    assert sheet_of(ADD).as_dict()["has_stable_contracts"] is True
    assert "  undeclared: no effect declared, returns anything" in worksheet_lines(sheet, 80)


def test_what_is_not_known_before_the_run() -> None:
    """The length of a list, whether a condition holds, and what a planner does."""
    listed = {"id": "each", "tool": "add", "args": {"a": "${item}"}, "for_each": "${n}"}
    fixed = {"id": "fixed", "tool": "add", "args": {"a": "${item}"}, "for_each": [1, 2]}
    asked = ADD | {"id": "if", "when": {"ref": "fixed", "op": "exists"}}
    source = {"id": "n", "tool": "anything", "args": {"value": [1]}}

    assert sheet_of(source, listed, fixed, asked, policy=Policy(max_replans=2)).unknown == (
        "each has as many elements as a list that exists only in the run",
        "if runs only if its condition holds",
        "a planner, if there is one, may change the plan 2 times",
    )
    assert sheet_of(ADD, policy=Policy(max_replans=0)).as_dict()["has_known_steps"] is True


def test_what_holds_for_the_whole_run() -> None:
    """Ceilings, and questions to people that do not depend on the step."""
    sheet = sheet_of(ADD, policy=FULL)

    assert sheet.ceilings == {
        "max_replans": 3,
        "max_planner_calls": None,
        "max_steps": None,
        "max_attempts": 20,
        "max_seconds": 60,
        "max_tokens": 1_000_000,
        "max_cost": 2.5,
        "max_calls_by_tool.pay": 3,
    }
    assert sheet.people == (
        "when a permission is refused, or an input is missing",
        "before the plan is changed by a patch that brings effects",
        "before the run hands out its answer",
        "after 30 s without an answer it is taken for 'deny'",
    )


def test_the_worksheet_is_plain_json() -> None:
    """It is a part of the output of `dagrun check --json`."""
    found = sheet_of(SEND, LOAD, policy=FULL).as_dict()

    assert json.loads(json.dumps(found)) == found
    assert found["steps"][0] == {
        "step": "send",
        "tool": "send",
        "effect": "effectful",
        "is_high_risk": True,
        "risks": ["effectful"],
        "retry": "only when nothing happened",
        "max_attempts": 2,
        "fallback": None,
        "on_failure": "replan, else skip",
        "people": ["if nobody knows whether it took effect"],
        "unanswered": ["failure"],
    }
    assert not found["steps"][1]["is_high_risk"]


# As text --------------------------------------------------------------------------------------------------------------


def test_the_table_fits_eighty_columns() -> None:
    """One line for each step, if ids and names are not too long."""
    lines = worksheet_lines(sheet_of(SEND, LOAD, PAY, policy=FULL), 80)

    assert lines[3:7] == [
        "step  risk  safe to retry        fallback   failed for good",
        "send  high  if nothing happened  -          replan, else skip",
        "load  -     any failure          load_copy  replan, else skip",
        "pay   high  any failure          -          replan, else skip",
    ]
    assert "  replans 3, planner calls none, steps none, attempts 20, seconds 60, tokens" in lines
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("width", [80, 60, 40, 30, 0])
@pytest.mark.parametrize("length", [1, 48])
def test_no_line_is_wider_than_the_terminal(width: int, length: int) -> None:
    """Also with ids of 48 characters; parts that do not fit in columns are on lines below, and nothing is cut."""
    ids = [f"{number}".rjust(length, "x") for number in range(3)]
    steps: list[dict[str, Any]] = [
        {**PAY, "id": ids[0]},
        {**SEND, "id": ids[1], "confidence": 0.1},
        {**LOAD, "id": ids[2]},
    ]

    lines = worksheet_lines(sheet_of(*steps, policy=Policy(approve_patches="always")), width)

    assert max(map(len, lines)) <= max(width, 20)
    text = "".join("".join(lines).split())
    assert all(id_ in text for id_ in ids)
    assert "onlywhennothing" not in text
    assert "ifnothinghappened" in text
    assert "confidence0.1isbelow0.6" in text


def test_a_thousand_steps_do_not_flood_the_terminal() -> None:
    """The JSON has all of them."""
    steps = [SEND | {"id": f"s{number}", "confidence": number / 2000} for number in range(1000)]

    for width in (80, 40):
        lines = worksheet_lines(sheet_of(*steps), width)
        assert len(lines) < 1000
        assert "… and 900 more (--json has them all)" in "\n".join(" ".join(line.split()) for line in lines)


def test_a_text_of_the_policy_steers_no_terminal() -> None:
    """The reason of a rule is free text."""
    rule = ApprovalRule(tool="send", why="\x1b[2J\nforged: line")

    lines = worksheet_lines(sheet_of(SEND, policy=Policy(approve=[rule])), 80)

    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("forged") for line in lines)
