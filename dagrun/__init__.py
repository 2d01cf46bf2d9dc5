"""Plan, run in parallel, and repair graphs of tool calls."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagrun._version import __version__

if TYPE_CHECKING:
    from dagrun.api import Engine, check, run, run_sync, start
    from dagrun.errors import (
        ContractError,
        DagrunError,
        MissingExtra,
        PlanRefused,
        Problem,
        RunFailed,
        StepNotFound,
        ToolError,
        UnknownTool,
    )
    from dagrun.graph.checked import CheckedPlan
    from dagrun.graph.reading import read_plan
    from dagrun.model.artifact import Artifact
    from dagrun.model.condition import Condition
    from dagrun.model.context import ToolContext
    from dagrun.model.effect import Effect
    from dagrun.model.event import (
        AttemptEnded,
        AttemptStarted,
        Event,
        Gap,
        Progress,
        RunEnded,
        RunStarted,
        StepExpanded,
        StepSettled,
    )
    from dagrun.model.outcome import State, Status
    from dagrun.model.plan import Plan, RetryRule, Step
    from dagrun.model.policy import PlanLimits, Policy
    from dagrun.model.tool import Tool, tool
    from dagrun.model.toolbox import Toolbox
    from dagrun.runtime.result import RunResult, StepResult
    from dagrun.runtime.run import Run

# The public names and where they live: importing dagrun must cost no more than what is used of it (PEP 562).
_HOMES = {
    "Artifact": "dagrun.model.artifact",
    "AttemptEnded": "dagrun.model.event",
    "AttemptStarted": "dagrun.model.event",
    "CheckedPlan": "dagrun.graph.checked",
    "Condition": "dagrun.model.condition",
    "ContractError": "dagrun.errors",
    "DagrunError": "dagrun.errors",
    "Effect": "dagrun.model.effect",
    "Engine": "dagrun.api",
    "Event": "dagrun.model.event",
    "Gap": "dagrun.model.event",
    "MissingExtra": "dagrun.errors",
    "Plan": "dagrun.model.plan",
    "PlanLimits": "dagrun.model.policy",
    "PlanRefused": "dagrun.errors",
    "Policy": "dagrun.model.policy",
    "Problem": "dagrun.errors",
    "Progress": "dagrun.model.event",
    "RetryRule": "dagrun.model.plan",
    "Run": "dagrun.runtime.run",
    "RunEnded": "dagrun.model.event",
    "RunFailed": "dagrun.errors",
    "RunResult": "dagrun.runtime.result",
    "RunStarted": "dagrun.model.event",
    "State": "dagrun.model.outcome",
    "Status": "dagrun.model.outcome",
    "Step": "dagrun.model.plan",
    "StepExpanded": "dagrun.model.event",
    "StepNotFound": "dagrun.errors",
    "StepResult": "dagrun.runtime.result",
    "StepSettled": "dagrun.model.event",
    "Tool": "dagrun.model.tool",
    "ToolContext": "dagrun.model.context",
    "ToolError": "dagrun.errors",
    "Toolbox": "dagrun.model.toolbox",
    "UnknownTool": "dagrun.errors",
    "check": "dagrun.api",
    "read_plan": "dagrun.graph.reading",
    "run": "dagrun.api",
    "run_sync": "dagrun.api",
    "start": "dagrun.api",
    "tool": "dagrun.model.tool",
}

__all__ = [
    "Artifact",
    "AttemptEnded",
    "AttemptStarted",
    "CheckedPlan",
    "Condition",
    "ContractError",
    "DagrunError",
    "Effect",
    "Engine",
    "Event",
    "Gap",
    "MissingExtra",
    "Plan",
    "PlanLimits",
    "PlanRefused",
    "Policy",
    "Problem",
    "Progress",
    "RetryRule",
    "Run",
    "RunEnded",
    "RunFailed",
    "RunResult",
    "RunStarted",
    "State",
    "Status",
    "Step",
    "StepExpanded",
    "StepNotFound",
    "StepResult",
    "StepSettled",
    "Tool",
    "ToolContext",
    "ToolError",
    "Toolbox",
    "UnknownTool",
    "__version__",
    "check",
    "read_plan",
    "run",
    "run_sync",
    "start",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
