"""The autonomy worksheet: what a plan may do by itself, when people decide, and what is still open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dagrun.checks.checked_plan import Ask, CheckedPlan, CheckedStep
from dagrun.checks.tool_advice import untyped
from dagrun.errors import Problem
from dagrun.model.effect import Effect
from dagrun.model.outcome import TriggerKind
from dagrun.model.policy import Policy
from dagrun.model.toolbox import AnyTool

# The questions that a plan and its policy should answer. The first four are about a step.
QUESTIONS: Final[Mapping[str, str]] = {
    "effect": "what does its tool do to the world?",
    "approval": "must a person agree to it?",
    "time": "how long may it take?",
    "failure": "what follows when it has failed for good?",
    "max_attempts": "how many calls may a run make?",
    "max_seconds": "how long may a run take?",
    "max_tokens": "how many tokens may a run use?",
    "max_cost": "what may a run cost?",
    "answer_within": "how long is a person waited for?",
    "primary_metric": "by which figure are runs judged (the primary metric)?",
    "guardrail_metric": "which figure must not get worse meanwhile (the guardrail metric)?",
}

# The triggers for which a planner may be asked when a step has failed for good.
_FAILURES: Final = frozenset(TriggerKind) - {TriggerKind.SURPRISE, TriggerKind.CONTRADICTION, TriggerKind.GOAL_CHANGED}


class RetrySafety(StrEnum):
    """After which failures a step may be tried again without a person; only transient failures are tried again."""

    ANY = "any failure"
    NOTHING_HAPPENED = "only when nothing happened"
    NEVER = "never by itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSheet:
    """The answers of a plan and its policy for one step.

    Attributes:
        step: The id of the step.
        tool: The tool that it calls.
        effect: The effect of the tool.
        risks: The reasons why the step has a high risk, in a few words each; none if it has not.
        retry: After which failures the step may be tried again.
        max_attempts: The most calls of the tool, including the first.
        fallback: The tool that is tried last; empty if there is none.
        on_failure: What follows when the step has failed for good: ``go on without``, ``default``, ``stop the run``; or
            ``replan`` if a planner may be asked; else ``skip`` the steps that depend on it, or leave it to ``people``.
        people: When a person decides.
        unanswered: The open questions; keys of `QUESTIONS`.
    """

    step: str
    tool: str
    effect: str
    risks: tuple[str, ...]
    retry: RetrySafety
    max_attempts: int
    fallback: str
    on_failure: str
    people: tuple[str, ...]
    unanswered: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the sheet as plain JSON."""
        return {
            "step": self.step,
            "tool": self.tool,
            "effect": self.effect,
            "is_high_risk": bool(self.risks),
            "risks": list(self.risks),
            "retry": str(self.retry),
            "max_attempts": self.max_attempts,
            "fallback": self.fallback or None,
            "on_failure": self.on_failure,
            "people": list(self.people),
            "unanswered": list(self.unanswered),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Worksheet:
    """What a plan may do by itself.

    Attributes:
        steps: A sheet for each step, in plan order.
        ceilings: The ceilings of a run, by the field of the policy; `None` if a ceiling is not set.
        people: When a person decides, whatever the step.
        contracts: The contracts of tools that are not stable, by the name of the tool: what they leave open, in a few
            words each. References to what is left open cannot be checked, and may break from call to call.
        unknown: What is not known in advance about the steps, in a sentence each; none if the plan says it all.
        metrics: The figures by which runs are judged, by the field of the policy; empty if nobody has named one.
        unanswered: The questions that the policy leaves open; keys of `QUESTIONS`.
    """

    steps: tuple[StepSheet, ...]
    ceilings: Mapping[str, float | None]
    people: tuple[str, ...]
    contracts: Mapping[str, tuple[str, ...]]
    unknown: tuple[str, ...]
    metrics: Mapping[str, str]
    unanswered: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return the worksheet as plain JSON."""
        return {
            "has_stable_contracts": not self.contracts,
            "unstable_contracts": {tool: list(open_) for tool, open_ in self.contracts.items()},
            "has_known_steps": not self.unknown,
            "unknown_steps": list(self.unknown),
            "metrics": {name: text or None for name, text in self.metrics.items()},
            "steps": [sheet.as_dict() for sheet in self.steps],
            "ceilings": dict(self.ceilings),
            "people": list(self.people),
            "unanswered": list(self.unanswered),
        }

    def problems(self) -> tuple[Problem, ...]:
        """Return the open questions of the policy as advice; the check gives advice about those of steps.

        Metrics are left out: a run without them is no less safe.
        """
        open_ = (key for key in self.unanswered if key not in self.metrics)
        return tuple(Problem("DR915", f"policy.{key}", {"question": QUESTIONS[key]}) for key in open_)


def worksheet_of(plan: CheckedPlan) -> Worksheet:
    """Fill in the worksheet of a plan, according to the policy that it was checked against."""
    policy = plan.policy
    steps = tuple(_sheet_of(checked, policy) for checked in plan.steps.values())
    return Worksheet(
        steps=steps,
        ceilings=_ceilings_of(policy),
        people=tuple(_people_of(policy)),
        contracts=_unstable(plan),
        unknown=tuple(_unknown_in(plan)),
        metrics={"primary_metric": policy.primary_metric or "", "guardrail_metric": policy.guardrail_metric or ""},
        unanswered=tuple(_unanswered_of(plan, steps)),
    )


# Steps ----------------------------------------------------------------------------------------------------------------


def _sheet_of(checked: CheckedStep, policy: Policy) -> StepSheet:
    step, tool = checked.step, checked.tool
    rule = step.retry or policy.retry
    return StepSheet(
        step=step.id,
        tool=tool.name,
        effect=str(tool.effect),
        risks=tuple(_risks_of(checked)),
        retry=_safe_to_retry(tool.effect, rule.max_attempts),
        max_attempts=rule.max_attempts,
        fallback=checked.fallback.name if checked.fallback is not None else "",
        on_failure=_after_failure(checked, policy),
        people=tuple(_people_at(checked, policy)),
        unanswered=tuple(_unanswered_at(checked)),
    )


def _risks_of(checked: CheckedStep) -> Iterator[str]:
    step, fallback = checked.step, checked.fallback
    if not checked.tool.effect.is_free:
        yield str(checked.tool.effect)
    if fallback is not None and not fallback.effect.is_free:
        yield f"its fallback {fallback.name} is {fallback.effect}"
    # A step is also risky if only its fallback needs a person. A reason that concerns both is named once.
    yield from dict.fromkeys(ask.why for ask in (*checked.asks, *checked.fallback_asks))
    if step.pause is not None:
        yield f"pause {step.pause}"


def _safe_to_retry(effect: Effect, max_attempts: int) -> RetrySafety:
    if max_attempts == 1:
        return RetrySafety.NEVER
    return RetrySafety.ANY if effect.may_repeat else RetrySafety.NOTHING_HAPPENED


def _after_failure(checked: CheckedStep, policy: Policy) -> str:
    match checked.step.on_failure:
        case "skip":
            return "go on without"
        case "default":
            return "default"
        case "stop":
            return "stop the run"
    last = "people" if policy.last_resort == "escalate" else "skip"
    may_replan = policy.max_replans > 0 and not _FAILURES.isdisjoint(policy.replan_on)
    return f"replan, else {last}" if may_replan else last


def _people_at(checked: CheckedStep, policy: Policy) -> Iterator[str]:
    step = checked.step
    for what, asks in (("call", checked.asks), ("fallback", checked.fallback_asks)):
        if asks:
            yield f"before the {what}: {', '.join(map(_why, asks))}"
    if step.pause is not None:
        yield f"pause {step.pause} it"
    if checked.tool.effect is Effect.EFFECTFUL and step.on_failure != "stop":
        yield "if nobody knows whether it took effect"
    if policy.last_resort == "escalate" and step.on_failure in (None, "replan"):
        yield "when it has failed for good"


def _why(ask: Ask) -> str:
    depends = ask.rule is not None and ask.rule.when is not None
    return f"{ask.why} (depends on the arguments)" if depends else ask.why


def _unanswered_at(checked: CheckedStep) -> Iterator[str]:
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


# The run --------------------------------------------------------------------------------------------------------------


def _ceilings_of(policy: Policy) -> dict[str, float | None]:
    names = ("max_replans", "max_planner_calls", "max_steps", "max_attempts", "max_seconds", "max_tokens", "max_cost")
    ceilings: dict[str, float | None] = {name: getattr(policy, name) for name in names}
    if policy.max_replans_per_step is not None:
        ceilings["max_replans_per_step"] = policy.max_replans_per_step
    return ceilings | {f"max_calls_by_tool.{name}": most for name, most in policy.max_calls_by_tool.items()}


def _people_of(policy: Policy) -> Iterator[str]:
    yield "when a permission is refused, or an input is missing"
    if policy.approve_patches == "effects":
        yield "before the plan is changed by a patch that brings effects"
    elif policy.approve_patches == "always":
        yield "before the plan is changed by a patch"
    if policy.approve_output:
        yield "before the run hands out its answer"
    if policy.answer_within is not None:
        yield f"after {policy.answer_within:g} s without an answer it is taken for '{policy.default_answer}'"


def _tools_of(plan: CheckedPlan) -> list[AnyTool]:
    """Return the tools that the steps may call, each once."""
    called = {
        tool.name: tool for step in plan.steps.values() for tool in (step.tool, step.fallback) if tool is not None
    }
    return list(called.values())


def _unstable(plan: CheckedPlan) -> dict[str, tuple[str, ...]]:
    return {tool.name: found for tool in _tools_of(plan) if (found := tuple(_left_open(tool)))}


def _left_open(tool: AnyTool) -> Iterator[str]:
    """Yield what the contract of a tool leaves open."""
    if not tool.effect_declared:
        yield "no effect declared"
    if (kind := untyped(tool.output.schema)) and not tool.output.has_objects:
        yield f"returns {kind}"
    loose = [name for name, schema in tool.arguments.schema.get("properties", {}).items() if untyped(schema)]
    if loose:
        yield f"takes anything as {', '.join(loose)}"


def _unknown_in(plan: CheckedPlan) -> Iterator[str]:
    """Yield what is decided only in the run about the steps."""
    if not plan.steps:
        yield "the planner writes all steps"
    for id_, checked in plan.steps.items():
        if checked.items is not None and checked.items.sources:
            yield f"{id_} has as many elements as a list that exists only in the run"
        if checked.step.when is not None:
            yield f"{id_} runs only if its condition holds"
        if checked.tool.inner_tools:
            yield f"{id_} calls {', '.join(tool.name for tool in checked.tool.inner_tools)} as its agent chooses"
    if plan.policy.max_replans and (plan.policy.replan_on or not plan.steps):
        yield f"a planner, if there is one, may change the plan {plan.policy.max_replans} times"


def _unanswered_of(plan: CheckedPlan, steps: tuple[StepSheet, ...]) -> Iterator[str]:
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
    asks = policy.approve_output or policy.approve_patches != "never" or any(sheet.people for sheet in steps)
    if asks and policy.answer_within is None:
        yield "answer_within"
    if policy.primary_metric is None:
        yield "primary_metric"
    if policy.guardrail_metric is None:
        yield "guardrail_metric"
