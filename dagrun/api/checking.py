"""The public `check`, and the checked plan that a run begins with, from whatever the host passes."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from inspect import isfunction
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any, Final, TypeAlias

from dagrun.errors import ContractError, PlanRefused, Problem, shorten
from dagrun.features.python_plans.planned_values import PlannedValue
from dagrun.kernel.checks.check_context import context_of
from dagrun.kernel.checks.check_objects import check_deps
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.checks.checked_plan import CheckedPlan, empty_plan, executors_by_name
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.policy_names import REDACT_RECORDS, redacts_nothing
from dagrun.kernel.checks.reference_sources import look_up_input
from dagrun.kernel.model.contracts.deps import NO_DEPS, UNKNOWN_DEPS, Deps, deps_from
from dagrun.kernel.model.executor import Executor, refusal_by
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.planner import must_be_planner
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.redaction.redactor import Hook
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets, secrets_from
from dagrun.kernel.model.tool import COMPOSE, AnyTool, Tool, Toolbox, Tools, make_tool
from dagrun.kernel.runtime.run_options import AnySecrets, Inputs, RunOptions
from dagrun.plans.read_plan import read_plan

AnyPlan: TypeAlias = Plan | CheckedPlan | str | bytes | Path
"""A plan in any form that `dagrun.run` takes: an object, a checked plan, JSON or YAML text, or a path."""

_MAX_KEPT: Final = 64  # plans of an engine
_MAX_KEPT_STEPS: Final = 2_000  # of a plan that is kept; a run of a larger one costs far more than its check
_MAX_FITTING: Final = 100


def check(
    plan: AnyPlan,
    tools: Tools | None = None,
    *,
    policy: Policy | None = None,
    inputs: Inputs | None = None,
    strict: bool = False,
    executors: Collection[str] = (),
    secrets: AnySecrets | None = None,
    deps: Any = UNKNOWN_DEPS,
    redact: Hook | None = None,
) -> CheckedPlan:
    """Check a plan. The checked plan may be run any number of times.

    Args:
        plan: A plan; or its text as JSON; or the path of a JSON or YAML file.
        tools: A `Toolbox`; or functions, tools and modules to make one of. A plan written in Python (`dagrun.plan`)
            brings the tools of its steps.
        policy: The limits of the run.
        inputs: The values of ``${input…}``, if they are known yet.
        strict: Whether the plan is refused for advice, too.
        executors: The executors of the host that steps may name, such as those passed to `start`: by name, so that
            each is asked whether it takes the tools of its steps; or only their names.
        secrets: The secrets of the host, by name. A run of the checked plan has them.
        deps: The dependencies of the tools, as for `start`. A run of the checked plan has them. Without them, the run
            checks whether they are there.
        redact: The function of the host that redacts texts, as for `start`. A run of the checked plan has it.

    Raises:
        PlanRefused: The plan has problems; all of them are in the error.
        ContractError: The tools cannot be used, or an argument has a wrong type.
    """
    if isinstance(plan, CheckedPlan):
        if tools is not None or policy is not None or strict or executors:
            raise ContractError("a checked plan has its tools, its policy and its executors; give them to check()")
        plan = plan if redact is None else replace(plan, redact=redact)
        plan = plan if deps is UNKNOWN_DEPS else with_deps(plan, deps_from(deps))
        return plan if secrets is None else _with_secrets(plan, secrets_from(secrets))
    if isinstance(plan, PlannedValue):
        raise ContractError(f"plan got {plan!r}; make a plan of it: dagrun.plan(output=…)")
    must_be("plan", plan, (Plan, str, bytes, Path), "a Plan (for a dict: Plan.model_validate), its text or a Path")
    must_be("policy", policy, (Policy, type(None)), "a dagrun.Policy")
    must_be("inputs", inputs, (Mapping, type(None)), "values by name: inputs={…}")
    if isinstance(executors, str):
        raise ContractError(f"executors is a list of names, or the executors by name, got {executors!r}")
    toolbox = toolbox_of(tools, plan._source.tools if isinstance(plan, Plan) else ())
    written = plan if isinstance(plan, Plan) else read_plan(plan, toolbox=toolbox)
    known = secrets_from(secrets)
    checked = check_plan(
        written,
        toolbox,
        policy or _no_limits(),
        inputs=inputs,
        strict=strict,
        executors=executors,
        secrets=known,
        deps=deps if isinstance(deps, Deps) else deps_from(deps),
        is_hooked=redact is not None,
    )
    return checked if redact is None else replace(checked, redact=redact)


@cache
def _no_limits() -> Policy:
    """Return the policy of a run that names none; it is frozen, so all share it."""
    return Policy()


def _with_secrets(plan: CheckedPlan, secrets: Secrets) -> CheckedPlan:
    if missing := plan.secrets.keys() - secrets.keys():
        raise ContractError(f"the plan was checked with the secrets {', '.join(sorted(missing))}: secrets={{…}}")
    return replace(plan, secrets=secrets)


def with_deps(plan: CheckedPlan, deps: Deps) -> CheckedPlan:
    """Return a checked plan with the dependencies of a run.

    Raises:
        PlanRefused: One is missing.
    """
    plan = replace(plan, deps=deps)
    index = {id_: place for place, id_ in enumerate(plan.steps)}
    findings = Findings()
    context = context_of(
        plan.plan,
        index,
        plan.toolbox,
        plan.policy,
        findings,
        inputs=None,
        executors=plan.executors,
        secrets=plan.secrets,
        deps=deps,
    )
    for place, checked in enumerate(plan.steps.values()) if plan.takes_deps else ():
        check_deps(context, place, checked)
    if findings.has_errors:
        raise PlanRefused(findings.problems())
    return plan


def with_executors(plan: CheckedPlan, named: Mapping[str, Executor], *, is_begun: bool = False) -> CheckedPlan:
    """Return a checked plan with the executors of a run, where it was checked with other ones or their names alone.

    The executors are asked about its steps, but not if the run *is_begun*: it may have ended those steps already. An
    executor that does not take a call fails that call.

    Raises:
        PlanRefused: One of them does not take the tool of a step.
    """
    new = {name: named[name] for name, known in plan.executors.items() if name in named and named[name] is not known}
    if not new:
        return plan
    findings = Findings()
    for place, checked in enumerate(() if is_begun else plan.steps.values()):
        name = checked.executor
        if name in new and (reason := refusal_by(new[name], checked.tool)):
            facts = {"step": checked.step.id, "tool": checked.tool.name, "executor": name, "reason": reason}
            findings.add("DR222", place, "executor", **facts)
    if findings.has_errors:
        raise PlanRefused(findings.problems())
    return replace(plan, executors={**plan.executors, **new})


def must_fit_inputs(plan: CheckedPlan, inputs: Inputs) -> None:
    """Refuse inputs of a run that a checked plan refers to in vain, as if it were checked with them.

    Inputs that have the same types, where the plan refers to them, are checked once.

    Raises:
        PlanRefused: An input is missing, or has a type that its step does not take.
    """
    if not plan.input_paths:
        return
    found = tuple(look_up_input(inputs, path) for path in plan.input_paths)
    if found in plan.fitting:
        return
    check_plan(
        plan.plan,
        plan.toolbox,
        plan.policy,
        inputs=inputs,
        executors=plan.executors,
        secrets=plan.secrets,
        deps=plan.deps,
        is_hooked=plan.redact is not None,
    )
    if len(plan.fitting) >= _MAX_FITTING:
        plan.fitting.clear()
    plan.fitting.add(found)


class CheckedPlans:
    """The plans that an engine has checked last, so that equal ones are checked once.

    A plan is equal if it has the same text, or is the same object and still says the same (what its steps hold may
    have been changed in place), and has the same tools, policy and executors. Plans with secrets, dependencies or a
    function that redacts are checked each time; so are files, which may change, and tools of modules, which may too.
    """

    def __init__(self) -> None:
        self._lock = Lock()  # large plans are checked in threads
        self._known: dict[Hashable, tuple[CheckedPlan, object]] = {}

    def check(
        self, plan: AnyPlan, tools: Tools | None, policy: Policy | None, inputs: Inputs, executors: Collection[str]
    ) -> CheckedPlan:
        """Check a plan as `check` does, unless an equal one was checked before.

        Raises:
            PlanRefused: As for `check`.
            ContractError: As for `check`.
        """
        key = _key_of(plan, tools, policy, executors)
        if key is None:
            return check(plan, tools, policy=policy, inputs=inputs, executors=executors, deps=NO_DEPS)
        with self._lock:
            known = self._known.pop(key, None)
            if known is not None:
                self._known[key] = known  # the last of those that are kept
        if known is not None:
            must_fit_inputs(known[0], inputs)
            return known[0]
        checked = check(plan, tools, policy=policy, inputs=inputs, executors=executors, deps=NO_DEPS)
        if len(checked.steps) <= _MAX_KEPT_STEPS and not checked.takes_deps:
            if checked.input_paths:
                checked.fitting.add(tuple(look_up_input(inputs, path) for path in checked.input_paths))
            with self._lock:
                kept = tuple(tools) if isinstance(tools, list) else tools  # the list itself may lose them
                self._known[key] = checked, (plan, kept, policy)  # kept alive, so that no other gets its id
                if len(self._known) > _MAX_KEPT:
                    del self._known[next(iter(self._known))]
        return checked


def _key_of(plan: AnyPlan, tools: Tools | None, policy: Policy | None, executors: Collection[str]) -> Hashable:
    """Return a cache key for a check, valid while its objects are alive; `None` if there is none."""
    named = _names_of(tools)
    if named is None or not isinstance(plan, Plan | str | bytes) or not isinstance(policy, Policy | None):
        return None
    try:  # both are frozen, but not the lists and mappings in them
        says = plan.model_dump_json(exclude_unset=True, warnings=False) if isinstance(plan, Plan) else plan
        limits = None if policy is None else policy.model_dump_json(exclude_unset=True, warnings=False)
    except ValueError:  # a value that is no JSON; the check has words for it
        return None
    return says, id(plan) if isinstance(plan, Plan) else 0, named, limits, id(policy), _named(executors)


def _named(executors: Collection[str]) -> Hashable:
    """Return a cache key for executors: a checked plan keeps them alive."""
    return frozenset((name, id(one)) for name, one in executors_by_name(executors).items()) if executors else ()


def _names_of(tools: Tools | None) -> Hashable:
    """Return a cache key for tools, valid while they are alive; `None` if they may change."""
    if tools is None or isinstance(tools, Toolbox | Tool) or isfunction(tools):
        return (id(tools),)
    if isinstance(tools, list | tuple) and all(isinstance(one, Toolbox | Tool) or isfunction(one) for one in tools):
        return tuple(map(id, tools))
    return None


def first_plan(
    options: RunOptions,
    plan: AnyPlan | None,
    policy: Policy | None,
    executors: Mapping[str, Executor],
    known: CheckedPlans,
) -> CheckedPlan:
    """Return the checked plan that a run begins with; it has no steps if the planner has still to write them.

    Args:
        options: The options of the run.
        plan: The plan of the caller.
        policy: The limits, if the options name none.
        executors: The executors of the host, by name.
        known: The plans that the engine has checked.

    Raises:
        PlanRefused: The plan has problems.
        ContractError: There is neither a plan nor a goal with a planner, or both.
    """
    checked = _first_plan(options, plan, policy, executors, known)
    if (not checked.deps.is_known and checked.takes_deps) or (
        options["deps"] is not None and isinstance(plan, CheckedPlan)
    ):
        checked = with_deps(checked, deps_from(options["deps"]))
    if checked.executors:
        checked = with_executors(checked, executors)
    if missing := checked.secrets.missing:
        raise ContractError(f"the plan was checked with the secrets {', '.join(missing)}: secrets={{…}}")
    if options["compose"] is not None:
        checked = replace(checked, toolbox=with_compose(checked.toolbox, options["compose"]))
    if redacts_nothing(checked.policy, is_hooked=checked.redact is not None):  # there was no plan to check yet
        raise PlanRefused((Problem("DR216", REDACT_RECORDS),))
    return checked


def _first_plan(
    options: RunOptions,
    plan: AnyPlan | None,
    policy: Policy | None,
    executors: Mapping[str, Executor],
    checked: CheckedPlans,
) -> CheckedPlan:
    if isinstance(plan, CheckedPlan):
        policy, executors = None, {}
    goal, tools, planner, redact = options["goal"], options["tools"], options["planner"], options["redact"]
    secrets = secrets_from(options["secrets"]) if options["secrets"] else None  # a checked plan keeps its own
    limits, inputs = options["policy"] or policy, options["inputs"] or {}
    if goal is None:
        if plan is None:
            raise ContractError("give a plan, or a goal and a planner: goal=…, planner=…")
        if isinstance(plan, CheckedPlan):
            must_fit_inputs(plan, inputs)
            return check(plan, tools, policy=limits, executors=executors, secrets=secrets, redact=redact)
        if secrets is None and options["deps"] is None and redact is None:
            return checked.check(plan, tools, limits, inputs, executors)
        deps = NO_DEPS if options["deps"] is None else deps_from(options["deps"])
        return check(
            plan, tools, policy=limits, inputs=inputs, executors=executors, secrets=secrets, deps=deps, redact=redact
        )
    if plan is not None:
        raise ContractError("a run begins with a plan or with a goal, not with both; the plan has a goal of its own")
    must_be("goal", goal, (str,), "a text")
    if planner is None or not goal.strip():
        raise ContractError("a goal needs words, and a planner that makes a plan of it: planner=…")
    must_be_planner(planner, "planner")
    knows = getattr(planner, "plan", None)
    # It has the plan at hand, which is checked whole before anything runs; but who chooses by a call is awaited later.
    if callable(knows) and getattr(planner, "chooser", None) is None:
        known: Any = knows(goal, options["inputs"])
        return check(known, tools, policy=limits, inputs=inputs, executors=executors, secrets=secrets, redact=redact)
    must_be("policy", limits, (Policy, type(None)), "a dagrun.Policy")
    nothing_yet = empty_plan(goal, toolbox_of(tools), limits or _no_limits(), executors, secrets or NO_SECRETS)
    return nothing_yet if redact is None else replace(nothing_yet, redact=redact)


def toolbox_of(tools: Tools | None, own: Sequence[AnyTool] = ()) -> Toolbox:
    """Return *tools* as a toolbox.

    Args:
        tools: The tools that the host names; what a `Toolbox` does not hold, its plans cannot call.
        own: The tools that a plan written in Python brings.

    Raises:
        ContractError: They are no tools.
    """
    if isinstance(tools, Toolbox):
        return tools
    if own:
        return Toolbox(own) if tools is None else Toolbox(toolbox_of(tools), own)
    if tools is None:
        raise ContractError("name the tools that the plan may call: tools=[…]")
    if isinstance(tools, str | ModuleType) or callable(tools):
        return Toolbox(tools)
    if isinstance(tools, Mapping) or not isinstance(tools, Iterable):
        raise ContractError(f"tools is a list of tools or a Toolbox, got {type(tools).__name__}")
    return Toolbox(*tools)


def must_be(name: str, value: object, types: tuple[type, ...], wanted: str) -> None:
    """Refuse an option of a wrong type.

    Args:
        name: The name of the option.
        value: Its value.
        types: The types that it may have.
        wanted: These types in words, for the error.

    Raises:
        ContractError: *value* is of none of *types*.
    """
    if not isinstance(value, types):
        raise ContractError(f"{name} must be {wanted}; got {type(value).__name__}")


# What takes as long to read and check as a step:
_BYTES_OF_A_STEP: Final = 100
_EDGES_OF_A_STEP: Final = 50


def steps_to_check(plan: AnyPlan | None) -> int:
    """Return how many steps of *plan* are to be checked, or how many take as long; 0 if that is not known."""
    match plan:
        case Plan():
            return max(len(plan.steps), sum(len(step.depends_on) for step in plan.steps) // _EDGES_OF_A_STEP)
        case str() | bytes():
            return len(plan) // _BYTES_OF_A_STEP
        case Path():
            try:
                return plan.stat().st_size // _BYTES_OF_A_STEP
            except (OSError, ValueError):
                return 0  # reading it will tell the error
        case _:
            return 0


def with_compose(toolbox: Toolbox, compose: Any) -> Toolbox:
    """Return *toolbox* with the tool that composes the answer.

    Args:
        toolbox: The tools of the run.
        compose: A tool or a function with an argument ``results``, and perhaps ``goal``; or a language model.

    Raises:
        ContractError: It is neither, or has an effect.
    """
    if COMPOSE in toolbox:
        return toolbox
    tool = _tool_of(compose)
    return Toolbox(toolbox, tool, allow={*toolbox.allowed, tool.name})


def _tool_of(compose: Any) -> AnyTool:
    if callable(getattr(compose, "stream", None)) and not isinstance(compose, type):
        from dagrun.model_tools.llm_tool import composing_tool  # here: few runs have a model of their own

        return composing_tool(compose)
    if not isinstance(compose, Tool) and not callable(compose):
        shown = shorten(repr(compose), 100)
        raise ContractError(f"compose is a tool, a function, or a model such as OpenAIModel('gpt-5'); got {shown}")
    try:
        made = compose if isinstance(compose, Tool) else make_tool(compose, name=COMPOSE, effect="read")
    except ContractError as error:
        raise ContractError(f"compose: {error}") from error
    if not made.effect.is_free or made.needs_approval:
        raise ContractError(f"compose={made.name}: what composes an answer only reads; it is {made.effect}")
    if "results" not in made.arguments.names:
        raise ContractError(f"compose={made.name}: it needs an argument results, which gets what the plan answers")
    return replace(made, name=COMPOSE)
