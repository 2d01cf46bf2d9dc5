"""What the checker hands to the runtime: a plan in which everything that can be known beforehand is settled."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dagrun.errors import Problem
from dagrun.model.condition import Condition
from dagrun.model.plan import Plan, Step
from dagrun.model.policy import ApprovalRule, Policy
from dagrun.model.redaction.redactor import Hook, Redactor
from dagrun.model.reference import Template
from dagrun.model.secrets.secret import NO_SECRETS, Secrets
from dagrun.model.toolbox import AnyTool, Toolbox

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


@dataclass(slots=True)
class CheckedStep:
    """A step with its tool, its templates and its limits. Shared by all runs of the plan, and never changed.

    Attributes:
        step: As it was planned.
        tool: The tool that it calls.
        fallback: The tool that is tried last, if any.
        executor: Where the tool runs: the step's word, else the tool's.
        pool: The step's word, else the tool's.
        args: The arguments, ready to be filled.
        items: The list of a for_each, ready to be filled.
        depends_on: Every step to wait for, declared or implied, in the order of first mention; no repetitions.
        value_sources: Those of them whose output is used, in arguments, list or condition.
        timeout: Seconds for an attempt: the least that step, tool and policy say; or none.
        gates: Those of *depends_on* that need only have ended, however they did: the barrier of a wave.
        asks: Why a person must agree before the tool is called; none if nobody needs to.
        fallback_asks: The same for the fallback.
        is_plain: Whether nothing has to be asked before it starts: no condition, no list, no approval, no effect.
        may_repeat: Whether a call of unknown outcome may be made again.
        has_arguments: Whether anything is passed at all.
        is_timed: Whether an attempt of its own tool may run into a time limit.
        success: The condition that its output must meet, or none.
        pauses_after: Whether what depends on it waits until a person has looked at what it gave.
    """

    step: Step
    tool: AnyTool
    fallback: AnyTool | None
    executor: str
    pool: str | None
    args: Template
    items: Template | None
    depends_on: tuple[str, ...]
    value_sources: frozenset[str]
    timeout: float | None
    gates: frozenset[str] = frozenset()
    asks: tuple[Ask, ...] = ()
    fallback_asks: tuple[Ask, ...] = ()
    # Derived once, because the hot path asks for them at every step.
    is_plain: bool = field(init=False)
    may_repeat: bool = field(init=False)
    has_arguments: bool = field(init=False)
    is_timed: bool = field(init=False)
    success: Condition | None = field(init=False)
    pauses_after: bool = field(init=False)

    def __post_init__(self) -> None:
        step, tool = self.step, self.tool
        effect, pause = tool.effect, step.pause
        asks = bool(self.asks) or pause == "before"
        self.is_plain = not asks and self.items is None and effect.is_free and step.when is None
        self.may_repeat = effect.may_repeat
        self.has_arguments = bool(step.args) or tool.arguments.context is not None
        self.is_timed = self.timeout is not None or step.deadline is not None
        self.success = step.success
        self.pauses_after = pause == "after"


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan that may run, any number of times and at the same time.

    Attributes:
        plan: As it was written.
        toolbox: What its steps may call.
        policy: The limits that it was checked against.
        steps: By id, in the order of the plan.
        after: For each step, by its place in the plan: the places of those that wait for it.
        output: What the run answers, ready to be filled; `None` for the outputs of the sinks.
        advice: What is not wrong, but worth a look.
        is_ordered: Whether every step stands after all that it waits for.
        executors: The names of the executors of the host that steps may name, those of patches too.
        secrets: Those of the host; what may be passed to which tool, and what is kept out of records.
        redact: The hook of the host for texts that are shown.
        redactor: Takes out of texts what may not be shown.
    """

    plan: Plan
    toolbox: Toolbox
    policy: Policy
    steps: Mapping[str, CheckedStep]
    after: Sequence[Sequence[int]]
    output: Template | None
    advice: tuple[Problem, ...] = field(default=())
    is_ordered: bool = False
    executors: frozenset[str] = frozenset()
    secrets: Secrets = field(default=NO_SECRETS, repr=False, compare=False)
    redact: Hook | None = field(default=None, repr=False, compare=False)
    redactor: Redactor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        redactor = Redactor(self.secrets, self.policy.redact, self.redact)
        object.__setattr__(self, "redactor", redactor)


def empty_plan(
    goal: str, toolbox: Toolbox, policy: Policy, executors: Collection[str] = (), secrets: Secrets = NO_SECRETS
) -> CheckedPlan:
    """A plan without steps, for a run that begins with nothing but a goal."""
    return CheckedPlan(
        plan=Plan(steps=(), goal=goal),
        toolbox=toolbox,
        policy=policy,
        steps={},
        after=(),
        output=None,
        is_ordered=True,
        executors=frozenset(executors),
        secrets=secrets,
    )


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
    for inner in tool.inner_tools:  # the arguments of its calls are not known yet
        rules = _rules(inner, policy) if not inner.effect.is_free else ()
        found += [Ask(f"it may call {inner.name}: {rule.why or f'rule {number}'}") for number, rule in rules]
    confidence, least = step.confidence, policy.min_confidence
    if confidence is not None and confidence < least and not tool.effect.is_free:
        found.append(Ask(f"confidence {confidence:g} is below {least:g}"))
    return tuple(found)


def _rules(tool: AnyTool, policy: Policy) -> list[tuple[int, ApprovalRule]]:
    numbered = enumerate(policy.approve, start=1)
    return [(number, rule) for number, rule in numbered if rule.tool in (tool.name, EVERY_TOOL)]
