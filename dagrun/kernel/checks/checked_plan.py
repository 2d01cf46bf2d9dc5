"""The result of a check: a plan with all properties computed that are known before it runs."""

from __future__ import annotations

import pathlib
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagrun.errors import Problem, short_repr
from dagrun.kernel.model.contracts.deps import UNKNOWN_DEPS, Deps
from dagrun.kernel.model.flow.marks import FlowViolation
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.policy import ApprovalRule, Policy, PoolLimits
from dagrun.kernel.model.redaction.redactor import Hook, Redactor
from dagrun.kernel.model.reference import Condition, Template
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.tool import AnyTool, Toolbox
from dagrun.kernel.model.value import Path
from dagrun.presenters import notebook_bundle, write_report

EVERY_TOOL = "*"


@dataclass(frozen=True, slots=True)
class Ask:
    """A reason why a person must agree to a call.

    Attributes:
        why: The reason in a few words.
        rule: The rule of the policy, which may depend on the arguments; `None` if the call needs a person in any case.
        crossing: What gets over the trust boundary with this call; `None` for any other reason.
    """

    why: str
    rule: ApprovalRule | None = None
    crossing: FlowViolation | None = None


@dataclass(slots=True)
class CheckedStep:
    """A step with its tool, its templates and its limits. Shared by all runs of the plan, and never changed.

    Attributes:
        step: The step as it was planned.
        tool: The tool that it calls.
        fallback: The tool that is tried last, if any.
        executor: Where the tool runs: the executor of the step, or else of the tool.
        pool: The pool of the step, or else of the tool.
        args: The template of the arguments.
        items: The template of the list of a for_each.
        depends_on: Every step to wait for, declared or implied, in the order of first mention, without repetitions.
        value_sources: The steps among *depends_on* whose output is used, in arguments, list or condition.
        timeout: Seconds for an attempt: the shortest time of step, tool and policy; or none.
        gates: The steps among *depends_on* that only need to have ended, whatever their state: the barrier of a wave.
        asks: The reasons why a person must agree before the tool is called; empty if no person is needed.
        fallback_asks: The reasons why a person must agree before the fallback is called.
        inner_asks: For an agent: the tools before whose calls it has to ask a person, each with the reason; or none.
        is_plain: Whether it can start without further questions: no condition, list, approval or effect.
        may_repeat: Whether a call of unknown outcome may be made again.
        has_arguments: Whether any argument is passed.
        is_timed: Whether an attempt of its own tool has a time limit.
        success: The condition that its output must meet, or none.
        pauses_after: Whether the steps that depend on it wait until a person has looked at its output.
        waits_for_all: Whether it waits for whole steps, never for single elements of one: it runs in waves.
        may_stream: Whether its tool may take elements that come after its start: there is no trust boundary.
        when_by_element: Whether its condition is about each element of its for_each, and not about the whole step.
        stream: The step whose outputs its tool takes one by one, if that is a for_each
            (`dagrun.kernel.graph.mapped_steps`); or empty.
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
    inner_asks: Mapping[str, FlowViolation] | None = None
    waits_for_all: bool = False
    may_stream: bool = True
    # Derived once, because the hot path needs them at every step.
    is_plain: bool = field(init=False)
    may_repeat: bool = field(init=False)
    has_arguments: bool = field(init=False)
    is_timed: bool = field(init=False)
    success: Condition | None = field(init=False)
    pauses_after: bool = field(init=False)
    when_by_element: bool = field(init=False)
    stream: str = field(init=False)

    __repr__ = short_repr

    def __post_init__(self) -> None:
        step, tool = self.step, self.tool
        effect, pause = tool.effect, step.pause
        asks = bool(self.asks) or pause == "before"
        self.is_plain = not asks and self.items is None and effect.is_free and step.when is None
        self.may_repeat = effect.may_repeat
        self.has_arguments = bool(step.args) or tool.arguments.context is not None or bool(tool.arguments.deps)
        self.is_timed = self.timeout is not None or step.deadline is not None
        self.success = step.success
        self.pauses_after = pause == "after"
        self.when_by_element = step.when is not None and self.items is not None and step.when.looks_at("item")
        self.stream = self._streamed() if tool.arguments.stream and self.may_stream and not asks else ""

    def _streamed(self) -> str:
        """Return the step whose whole output is the stream, if nothing about the call needs that to be complete."""
        tool, args = self.tool, self.args
        is_bounded = tool.max_tokens is not None or tool.max_cost is not None
        is_shared = tool.cache is not None or tool.batch is not None
        if not tool.effect.is_free or self.executor != "coroutine" or is_bounded or is_shared:
            return ""
        if self.fallback is not None or self.items is not None or self.step.deadline is not None:
            return ""
        names, found = tool.arguments.names, ""
        for hole in args.holes:
            if len(hole.place) == 1 and not hole.is_text and names.get(str(hole.place[0])) == tool.arguments.stream:
                found = "" if hole.reference.path else hole.reference.step
        conditions = [condition for condition in (self.step.when, self.step.success) if condition is not None]
        is_used_else = any(condition.looks_at(found) for condition in conditions)
        is_alone = sum(1 for reference in args.references if reference.step == found) == 1
        return found if found and is_alone and not is_used_else else ""

    @property
    def asks_by_rule(self) -> bool:
        """Whether a person must agree to a call of it for another reason than the trust boundary."""
        return any(ask.crossing is None for ask in (*self.asks, *self.fallback_asks))


def effects_of(checked: CheckedStep) -> frozenset[str]:
    """Return the names of the tools with an effect that a step may call, by itself or through an agent."""
    return frozenset(tool.name for tool in callable_tools(checked) if not tool.effect.is_free)


def callable_tools(checked: CheckedStep) -> Iterator[AnyTool]:
    """Yield the tools that a step may call, by itself or through an agent."""
    for outer in (checked.tool, checked.fallback):
        if outer is not None:
            yield outer
            yield from outer.inner_tools


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan that has passed its check. It may run any number of times, also concurrently.

    Attributes:
        plan: The plan as it was written.
        toolbox: The tools that its steps may call.
        policy: The policy that it was checked against.
        steps: The checked steps by id, in plan order.
        after: For each step, in plan order, the places of the steps that wait for it.
        output: The template of the run's answer; `None` if the answer is the outputs of the sinks.
        advice: Remarks that are no errors.
        is_ordered: Whether every step is written after all steps that it waits for.
        executors: The host's executors by name, which steps may name, also those of patches; `None` for one of which
            only the name is known.
        secrets: The secrets of the host, which are passed to tools and kept out of records.
        deps: The dependencies of the tools.
        redact: The hook of the host for texts that are shown.
        flow: Whose data each step is made of (`dagrun.kernel.checks.flow.labels.FlowLabels`); `None` if the policy has
            no trust boundary.
        input_paths: The parts of the inputs that it refers to.
        fitting: What was found there in inputs that were checked with it, as `dagrun.api.checking` notes it.
        redactor: Redacts texts that are shown.
        takes_deps: Whether a tool gets dependencies.
    """

    plan: Plan
    toolbox: Toolbox
    policy: Policy
    steps: Mapping[str, CheckedStep]
    after: Sequence[Sequence[int]]
    output: Template | None
    advice: tuple[Problem, ...] = field(default=())
    is_ordered: bool = False
    executors: Mapping[str, object] = field(default_factory=dict)
    secrets: Secrets = field(default=NO_SECRETS, repr=False, compare=False)
    deps: Deps = field(default=UNKNOWN_DEPS, repr=False, compare=False)
    redact: Hook | None = field(default=None, repr=False, compare=False)
    flow: Any = field(default=None, repr=False, compare=False)
    input_paths: tuple[Path, ...] = field(default=(), repr=False, compare=False)
    fitting: set[Hashable] = field(default_factory=set, repr=False, compare=False)
    takes_deps: bool = field(init=False, repr=False, compare=False)
    redactor: Redactor = field(init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        advice = len(self.advice)
        remarks = f"\n  {advice} remark{'s' * (advice != 1)}: see .advice" if advice else ""
        return f"<Checked{repr(self.plan)[1:-1]}{remarks}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return notebook_bundle(self)

    def report(self, path: str | pathlib.Path | None = None, **options: Any) -> str:
        """Draw the plan, which has not run, as one HTML file that loads nothing, or in another form.

        See `dagrun.report`.

        Args:
            path: The file to write; `None` to return the report as text.
            options: ``format``, ``values``, ``title``, ``max_nodes``.
        """
        return write_report(self, path, options)

    def __post_init__(self) -> None:
        object.__setattr__(self, "policy", with_limits_of(self.toolbox, self.policy))
        redactor = Redactor(self.secrets, self.policy.redact, self.redact)
        object.__setattr__(self, "redactor", redactor)
        object.__setattr__(self, "takes_deps", any(map(takes_deps, self.toolbox.values())))


def with_limits_of(toolbox: Toolbox, policy: Policy) -> Policy:
    """Return the policy with the limits that tools bring along for their pools; of two limits, the lower one holds."""
    if not toolbox.max_running_by_pool:
        return policy
    pools = dict(policy.pools)
    for name, limit in toolbox.max_running_by_pool.items():
        pool = pools.get(name, PoolLimits())
        if pool.max_running is None or limit < pool.max_running:
            pools[name] = pool.model_copy(update={"max_running": limit})
    return policy if pools == policy.pools else policy.model_copy(update={"pools": pools})


def takes_deps(tool: AnyTool) -> bool:
    """Whether a tool gets dependencies, or one that it calls by itself."""
    arguments = tool.arguments
    if tool.batch is not None and takes_deps(tool.batch.form):
        return True
    return bool(arguments.deps) or arguments.context_deps is not None or any(map(takes_deps, tool.inner_tools))


def executors_by_name(executors: Collection[str]) -> Mapping[str, object]:
    """Return executors by name, with `None` for one that is given by its name only."""
    return dict(executors) if isinstance(executors, Mapping) else dict.fromkeys(executors)


def empty_plan(
    goal: str, toolbox: Toolbox, policy: Policy, executors: Collection[str] = (), secrets: Secrets = NO_SECRETS
) -> CheckedPlan:
    """Return a plan without steps, for a run that begins with nothing but a goal."""
    return CheckedPlan(
        plan=Plan(steps=(), goal=goal),
        toolbox=toolbox,
        policy=policy,
        steps={},
        after=(),
        output=None,
        is_ordered=True,
        executors=executors_by_name(executors),
        secrets=secrets,
    )


def asks_of(step: Step, tool: AnyTool, policy: Policy) -> tuple[Ask, ...]:
    """Return the known reasons why a call needs a person's approval, before its arguments are known.

    Args:
        step: The step.
        tool: The tool that is called: that of the step, or its fallback.
        policy: The policy of the run.

    Returns:
        The reasons; if there are none, the call may be made without a person.
    """
    asks = [Ask(f"{tool.name} needs approval")] if tool.needs_approval else []
    asks += [Ask(rule.why or f"rule {number} of the policy", rule) for number, rule in _rules(tool, policy)]
    for inner in tool.inner_tools:  # the arguments of its calls are not known yet
        rules = _rules(inner, policy) if not inner.effect.is_free else ()
        asks += [
            Ask(f"it may call {inner.name}: {rule.why or f'rule {number} of the policy'}") for number, rule in rules
        ]
    confidence, required = step.confidence, policy.min_confidence
    if confidence is not None and confidence < required and not tool.effect.is_free:
        asks.append(Ask(f"confidence {confidence:g} is below {required:g}"))
    return tuple(asks)


def _rules(tool: AnyTool, policy: Policy) -> list[tuple[int, ApprovalRule]]:
    numbered = enumerate(policy.approve, start=1)
    return [(number, rule) for number, rule in numbered if rule.tool in (tool.name, EVERY_TOOL)]
