"""Which calls need a person, as far as that can be known before their arguments are."""

from __future__ import annotations

from dataclasses import dataclass

from dagrun.model.plan import Step
from dagrun.model.policy import ApprovalRule, Policy
from dagrun.model.toolbox import AnyTool

EVERY_TOOL = "*"


@dataclass(frozen=True, slots=True)
class Ask:
    """One reason why a person must agree to a call.

    Attributes:
        why: In a few words.
        rule: The rule of the policy, which may look at the arguments; `None` if the call needs a person in any case.
    """

    why: str
    rule: ApprovalRule | None = None


def asks_of(step: Step, tool: AnyTool, policy: Policy) -> tuple[Ask, ...]:
    """Say why a person must agree to a call.

    Args:
        step: The step.
        tool: What it calls: its tool, or the fallback.
        policy: What the run may do by itself.

    Returns:
        The reasons; none if the call may be made without asking.
    """
    found = [Ask(f"{tool.name} needs approval")] if tool.needs_approval else []
    found += [Ask(rule.why or f"rule {number}", rule) for number, rule in _rules(tool, policy)]
    for inner in tool.inner_tools:  # what it will pass to them, nobody knows yet
        rules = _rules(inner, policy) if not inner.effect.is_free else ()
        found += [Ask(f"it may call {inner.name}: {rule.why or f'rule {number}'}") for number, rule in rules]
    confidence, least = step.confidence, policy.min_confidence
    if confidence is not None and confidence < least and not tool.effect.is_free:
        found.append(Ask(f"confidence {confidence:g} is below {least:g}"))
    return tuple(found)


def _rules(tool: AnyTool, policy: Policy) -> list[tuple[int, ApprovalRule]]:
    numbered = enumerate(policy.approve, start=1)
    return [(number, rule) for number, rule in numbered if rule.tool in (tool.name, EVERY_TOOL)]
