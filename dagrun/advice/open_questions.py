"""The questions that a plan and its policy leave to a default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from dagrun.errors import Problem
from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.policy import Policy

# The questions that a plan and its policy should answer. The first four are about a step.
QUESTIONS: Final[Mapping[str, str]] = {
    "effect": "what does its tool change outside?",
    "approval": "must a person agree to it?",
    "time": "how long may it take?",
    "failure": "what happens after its final failure?",
    "max_attempts": "how many calls may a run make?",
    "max_seconds": "how long may a run take?",
    "max_tokens": "how many tokens may a run use?",
    "max_cost": "what may a run cost?",
    "questions.answer_within": "how long is a person waited for?",
}
_MAX_NAMES: Final = 10


def open_questions(plan: CheckedPlan) -> dict[str, tuple[str, ...]]:
    """Return the open questions.

    Returns:
        By the key of the question, the steps that leave it open; none for a question that the policy leaves open.
    """
    found: dict[str, list[str]] = {key: [] for key in _of_run(plan)}
    for id_, checked in plan.steps.items():
        for key in _of_step(checked):
            found.setdefault(key, []).append(id_)
    return {key: tuple(found[key]) for key in QUESTIONS if key in found}


def question_problems(questions: Mapping[str, tuple[str, ...]]) -> tuple[Problem, ...]:
    """Return the open questions of the policy as advice; the check gives advice about the questions of steps."""
    open_ = (key for key, steps in questions.items() if not steps)
    return tuple(Problem("DR915", f"policy.{key}", {"question": QUESTIONS[key]}) for key in open_)


def question_text(key: str, steps: tuple[str, ...]) -> str:
    """Return an open question as one line."""
    more = len(steps) - _MAX_NAMES
    names = ", ".join(steps[:_MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
    return f"{names or f'policy ({key})'}: {QUESTIONS[key]}"


def _of_step(checked: CheckedStep) -> Iterator[str]:
    step, tool = checked.step, checked.tool
    if not tool.effect_declared:
        yield "effect"
    asked_by_policy = any(ask.rule is not None for ask in checked.asks)
    if not tool.effect.is_free and tool.needs_approval is None and not asked_by_policy:
        yield "approval"
    if checked.timeout is None and step.deadline is None:
        yield "time"
    if tool.effect is not Effect.PURE and checked.fallback is None and step.on_failure is None:
        yield "failure"


def _of_run(plan: CheckedPlan) -> Iterator[str]:
    policy = plan.policy
    tools = [tool for step in plan.steps.values() for tool in (step.tool, step.fallback) if tool is not None]
    if policy.max_attempts is None:
        yield "max_attempts"
    if policy.max_seconds is None:
        yield "max_seconds"
    if policy.max_tokens is None and any(tool.max_tokens is not None for tool in tools):
        yield "max_tokens"
    if policy.max_cost is None and any(tool.max_cost is not None for tool in tools):
        yield "max_cost"
    asks = policy.approve_output or policy.approve_patches != "never"
    if policy.questions.answer_within is None and (asks or any(_may_ask(step, policy) for step in plan.steps.values())):
        yield "questions.answer_within"


def _may_ask(checked: CheckedStep, policy: Policy) -> bool:
    """Whether a person may be asked about a step."""
    step = checked.step
    if checked.asks or checked.fallback_asks or step.pause is not None:
        return True
    if checked.tool.effect is Effect.EFFECTFUL and step.on_failure != "stop":  # a call may be left in doubt
        return True
    return policy.last_resort == "escalate" and step.on_failure in (None, "replan")
