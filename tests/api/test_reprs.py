"""What a notebook or a debugger shows of plans and results fits a screen, and hides what must not be shown."""

from __future__ import annotations

from typing import Any

import pytest

import dagrun
from dagrun import Plan, Policy, RetryRule, Secrets, Step
from small_tools import toolset

pytestmark = pytest.mark.anyio

SECRET = "correct-horse-battery"
LINES = 20


def _fan(count: int, **fields: Any) -> Plan:
    return Plan(steps=[Step(id=f"s{n}", tool="nap", args={"seconds": 1.0, "gives": n}) for n in range(count)], **fields)


def test_fields_with_their_defaults_are_left_out() -> None:
    assert repr(Step(id="a", tool="nap")) == "Step(id='a', tool='nap')"
    assert repr(Policy()) == "Policy()"
    assert repr(Policy(max_steps=3, retry=RetryRule(max_attempts=5))) == (
        "Policy(max_steps=3, retry=RetryRule(max_attempts=5))"
    )


def test_a_plan_shows_its_steps_and_its_output() -> None:
    plan = Plan(steps=[Step(id="a", tool="nap", args={"seconds": 1.0})], output="${a}")

    assert repr(plan) == str(plan) == "<Plan of 1 step; output ${a}\n  Step(id='a', tool='nap', args={'seconds': 1.0})>"


async def test_none_is_longer_than_a_screen() -> None:
    plan = _fan(40, output={f"part{n}": f"${{s{n}}}" for n in range(40)})
    checked = dagrun.check(plan, toolset())
    result = await dagrun.run(plan, tools=toolset())

    for shown in map(repr, (plan, checked, result, result.steps)):
        lines = shown.splitlines()
        assert len(lines) <= LINES
        assert max(map(len, lines)) <= 160
        assert "… and 25 more" in shown


async def test_what_failed_comes_first_and_tells_no_secret() -> None:
    async def leak() -> None:
        raise dagrun.ToolError(f"refused \x1b[31m{SECRET}")

    tools = toolset(dagrun.tool(effect="pure")(leak))
    plan = Plan(steps=[*_fan(20).steps, Step(id="bad", tool="leak", retry=RetryRule(max_attempts=1))])
    result = await dagrun.run(plan, tools=tools, secrets=Secrets({"key": SECRET}))
    title, first, *_ = repr(result).splitlines()

    assert title.startswith(f"<RunResult {result.run_id}: failed in ")
    assert first.split()[:2] == ["bad", "failed"]
    assert "refused" in first
    assert SECRET not in repr(result)
    assert "\x1b" not in repr(result)
