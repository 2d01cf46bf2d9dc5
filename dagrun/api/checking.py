"""Checking plans, whatever they and their tools are given as."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from dagrun.checks.check_plan import check_plan
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.errors import ContractError
from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.secrets.secret import AnySecret, Secrets, secrets_from
from dagrun.model.toolbox import Toolbox, Tools
from dagrun.plans.read_plan import read_plan

AnyPlan: TypeAlias = Plan | CheckedPlan | str | bytes | Path
Inputs: TypeAlias = Mapping[str, Any]
AnySecrets: TypeAlias = Secrets | Mapping[str, AnySecret]


def check(
    plan: AnyPlan,
    tools: Tools | None = None,
    *,
    policy: Policy | None = None,
    inputs: Inputs | None = None,
    strict: bool = False,
    executors: Collection[str] = (),
    secrets: AnySecrets | None = None,
) -> CheckedPlan:
    """Check a plan; what comes back may be run any number of times.

    Args:
        plan: A plan; or its text as JSON; or the path of a JSON or YAML file.
        tools: A `Toolbox`; or what one is made of: functions, tools, modules.
        policy: The limits of the run.
        inputs: What ``${input…}`` refers to, if it is known yet.
        strict: Whether advice is a reason to refuse the plan.
        executors: The names of the host's executors that steps may name; those that `start` gets, say.
        secrets: Those of the host, by name; or `Secrets`. A run of the checked plan has them.

    Raises:
        PlanRefused: The plan has problems; all of them are in the error.
        ContractError: The tools cannot be used; or something is not of the type that it should be.
    """
    if isinstance(plan, CheckedPlan):
        if tools is not None or policy is not None or strict or executors:
            raise ContractError("a checked plan has its tools, its policy and its executors; give them to check()")
        return plan if secrets is None else _with_secrets(plan, secrets_from(secrets))
    must_be("plan", plan, (Plan, str, bytes, Path), "a Plan (for a dict: Plan.model_validate), its text or a Path")
    must_be("policy", policy, (Policy, type(None)), "a dagrun.Policy")
    must_be("inputs", inputs, (Mapping, type(None)), "values by name: inputs={…}")
    if isinstance(executors, str):
        raise ContractError(f"executors is a list of names, or the executors by name, got {executors!r}")
    toolbox = toolbox_of(tools)
    read = plan if isinstance(plan, Plan) else read_plan(plan, toolbox=toolbox)
    known = secrets_from(secrets)
    return check_plan(
        read, toolbox, policy or Policy(), inputs=inputs, strict=strict, executors=executors, secrets=known
    )


def _with_secrets(plan: CheckedPlan, secrets: Secrets) -> CheckedPlan:
    if missing := plan.secrets.keys() - secrets.keys():
        raise ContractError(f"the plan was checked with the secrets {', '.join(sorted(missing))}: secrets={{…}}")
    return replace(plan, secrets=secrets)


def toolbox_of(tools: Tools | None) -> Toolbox:
    """Give the toolbox that *tools* stand for.

    Raises:
        ContractError: They are none.
    """
    if isinstance(tools, Toolbox):
        return tools
    if tools is None:
        raise ContractError("name the tools that the plan may call: tools=[…]")
    if isinstance(tools, str | ModuleType) or callable(tools):
        return Toolbox(tools)
    if isinstance(tools, Mapping) or not isinstance(tools, Iterable):
        raise ContractError(f"tools is a list of tools or a Toolbox, got {type(tools).__name__}")
    return Toolbox(*tools)


def must_be(name: str, value: object, types: tuple[type, ...], wanted: str) -> None:
    """Refuse an option of the wrong type.

    Raises:
        ContractError: *value* is of none of *types*.
    """
    if not isinstance(value, types):
        raise ContractError(f"{name} must be {wanted}; got {type(value).__name__}")
