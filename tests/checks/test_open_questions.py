"""The questions that a plan and its policy leave to a default."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from checking import TOOLBOX, find
from dagrun import ApprovalRule, Policy, QuestionRule, Toolbox, tool
from dagrun.advice.open_questions import QUESTIONS, open_questions, question_problems, question_text
from dagrun.codec import codec_of

LOAD = {"id": "load", "tool": "load", "args": {"path": "a.csv"}}
SEND = {"id": "send", "tool": "send", "args": {"to": "x"}}
ADD = {"id": "add", "tool": "add", "args": {"a": 1}}
PAY = {"id": "pay", "tool": "pay", "args": {"amount": 5.0}}


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


def questions_of(*steps: dict[str, Any], policy: Policy | None = None) -> dict[str, tuple[str, ...]]:
    """Return the open questions of a plan of these steps."""
    problems, checked = find(*steps, toolbox=BOX, policy=policy)
    assert checked is not None, problems
    return open_questions(checked)


def test_there_are_nine_questions() -> None:
    """Four about a step, and five about the run."""
    assert len(QUESTIONS) == 9


@pytest.mark.parametrize(
    ("step", "policy", "keys"),
    [
        (LOAD, {}, []),
        (ADD, {}, []),
        (SEND, {}, ["failure"]),
        (SEND | {"on_failure": "stop"}, {}, []),
        (PAY, {"timeout": 5.0}, ["failure"]),
        (PAY, {}, ["time", "failure"]),
        (PAY | {"deadline": 9}, {}, ["failure"]),
        (LOAD | {"tool": "undeclared"}, {}, ["effect", "approval", "time", "failure"]),
        (LOAD | {"tool": "undeclared"}, {"approve": [ApprovalRule(tool="undeclared")]}, ["effect", "time", "failure"]),
    ],
)
def test_what_nobody_has_answered_about_a_step(step: dict[str, Any], policy: dict[str, Any], keys: Any) -> None:
    """Effect, approval, time, failure: a default is no answer."""
    found = questions_of(step, policy=Policy(**policy))

    assert {key: steps for key, steps in found.items() if steps} == dict.fromkeys(keys, (step["id"],))


FULL = Policy(
    max_attempts=20,
    max_seconds=60,
    max_tokens=1_000_000,
    max_cost=2.5,
    approve_patches="effects",
    approve_output=True,
    questions=QuestionRule(answer_within=30),
)
LIMITED: dict[str, Any] = {"max_seconds": 9, "max_attempts": 9}


@pytest.mark.parametrize(
    ("steps", "policy", "keys"),
    [
        ([ADD], Policy(), ["max_attempts", "max_seconds"]),
        ([PAY], Policy(), ["max_attempts", "max_seconds", "max_cost", "questions.answer_within"]),
        ([LOAD | {"tool": "look"}], Policy(max_seconds=9), ["max_attempts", "max_tokens"]),
        ([LOAD | {"tool": "load_copy", "fallback": "look"}], Policy(**LIMITED), ["max_tokens"]),
        ([PAY, LOAD | {"tool": "look"}], FULL, []),
    ],
)
def test_what_the_policy_leaves_open(steps: list[dict[str, Any]], policy: Policy, keys: list[str]) -> None:
    """Only questions that matter for this plan: a ceiling of cost is missing only if a tool costs money."""
    found = questions_of(*steps, policy=policy)

    assert [key for key, steps_of in found.items() if not steps_of] == keys
    assert [str(problem) for problem in question_problems(found)] == [
        f"DR915 policy.{key}: open question: {QUESTIONS[key]}" for key in keys
    ]


@pytest.mark.parametrize(
    ("step", "policy", "asks"),
    [
        (ADD, {}, False),
        (ADD, {"approve_output": True}, True),
        (ADD, {"approve_patches": "effects"}, True),
        (LOAD, {"last_resort": "escalate"}, True),
        (LOAD | {"on_failure": "skip"}, {"last_resort": "escalate"}, False),
        (LOAD | {"pause": "after"}, {}, True),
        (LOAD, {"approve": [ApprovalRule(tool="*")]}, True),
        (LOAD | {"tool": "load_copy", "fallback": "look"}, {"approve": [ApprovalRule(tool="look")]}, True),
        (SEND, {}, True),
        (SEND | {"on_failure": "stop"}, {}, False),
    ],
)
def test_how_long_a_person_is_waited_for_is_asked_where_one_may_be_asked(
    step: dict[str, Any], policy: dict[str, Any], asks: bool
) -> None:
    """By approval, pause, an effect in doubt, and the last resort."""
    found = questions_of(step, policy=Policy(**LIMITED, **policy))

    assert ("questions.answer_within" in found) is asks


def test_a_question_names_ten_steps_at_most() -> None:
    """A plan of a thousand steps does not flood the terminal."""
    found = questions_of(*(SEND | {"id": f"s{number}"} for number in range(1000)))

    assert question_text("failure", found["failure"]) == (
        "s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 and 990 more: what happens after its final failure?"
    )
    assert question_text("max_seconds", ()) == "policy (max_seconds): how long may a run take?"


def test_policy_fields_that_no_longer_exist_are_refused_with_what_to_do_and_read_from_records() -> None:
    """They had no effect: a policy file is told, and a record of an earlier release is read without them."""
    with pytest.raises(ValidationError, match="take out primary_metric: a policy has no such field any more"):
        Policy.model_validate({"primary_metric": "reports accepted"})

    recorded = '{"max_cost":2.5,"approve":[{"tool":"pay"}],"primary_metric":"reports accepted","guardrail_metric":null}'
    read = codec_of(Policy).read(recorded, 0)

    assert read == (Policy(max_cost=2.5, approve=[ApprovalRule(tool="pay")]), len(recorded))
    assert read[0].model_fields_set == {"max_cost", "approve"}
    assert TypeAdapter(Policy).validate_json("{}") == Policy()
