"""A question shows no secret in any of its fields, and its answer still gets where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest
from pydantic import SecretStr

import dagrun
from dagrun import Answer, Plan, Policy, Secret, Step, ToolContext
from persons import settle

pytestmark = pytest.mark.anyio

VALUE, MAIL = "zq-8812-canary-5561-long", "ann.private@example.org"
SAID: Final = f"{VALUE} {MAIL}"
SCHEMA: Final[Mapping[str, Any]] = {
    "type": "object",
    "title": SAID,
    "properties": {
        "account": {"type": "string", "default": SAID, "description": SAID, "examples": [{"deep": [SAID]}]},
        "password": {"type": "string", "description": "of the account"},
        SAID: {"enum": [SAID, "other"]},
    },
}


@dagrun.tool(effect="read")
async def form(token: SecretStr, context: ToolContext) -> Any:
    """Ask with what it was called with, as a server may."""
    return await context.ask(f"Which? {SAID}", schema=SCHEMA, about={"text": SAID})


@dagrun.tool(effect="effectful")
async def pay(amount: float) -> str:
    """Pay."""
    return "paid"


async def test_no_field_of_a_question_shows_a_secret_or_personal_data() -> None:
    """Names in a schema stay, also those that would hide a value: they stand for none."""
    rule = dagrun.ApprovalRule(tool="pay", checklist=[f"told {SAID}"], why=SAID)
    plan = Plan(
        steps=[
            Step(id="f", tool="form", args={"token": {"$secret": "bank"}}),
            Step(id="p", tool="pay", args={"amount": 1.0}),
        ]
    )
    policy = Policy(redact=["email"], approve=[rule])
    secrets = {"bank": Secret(VALUE, tools=("form",))}
    async with dagrun.start(plan, tools=[form, pay], secrets=secrets, policy=policy, attended=True) as run:
        await settle()
        asked = {question.step: question for question in run.pending}
        shown = {step: {**q.as_dict(), "arguments": None} for step, q in asked.items()}
        assert VALUE not in str([q.as_dict() for q in asked.values()])
        assert MAIL not in str(shown)
        fields = shown["f"]["schema"]["properties"]
        assert fields["password"] == SCHEMA["properties"]["password"]
        assert fields["account"]["type"] == "string"
        assert asked["p"].checklist[0].startswith("told ")
        await run.answer(asked["f"], Answer("approve", {"account": "x"}))
        await run.answer(asked["p"], Answer("approve", ticked=asked["p"].checklist))
        result = await run.result()

    assert (result.steps["f"].output, result.steps["p"].output) == ({"account": "x"}, "paid")
