"""Plan, run in parallel, and repair graphs of tool calls."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dagrun._version import __version__

if TYPE_CHECKING:
    from dagrun.api import Engine, check, draft, run, run_sync, start
    from dagrun.critics.counts import CountCritic
    from dagrun.critics.rubric import RubricCritic
    from dagrun.critics.rules import RuleCritic
    from dagrun.critics.schemas import SchemaCritic
    from dagrun.errors import (
        AnswerRefused,
        CannotPlan,
        ContractError,
        DagrunError,
        MissingExtra,
        ModelError,
        NoRoute,
        OverCeiling,
        PlanRefused,
        Problem,
        QuestionNotFound,
        RunFailed,
        SpliceRefused,
        StepNotFound,
        ToolError,
        UnknownTool,
    )
    from dagrun.executors.agent_tool import agent_tool
    from dagrun.executors.llm_tool import llm_tool
    from dagrun.graph.budget import Budget
    from dagrun.graph.checked import CheckedPlan
    from dagrun.graph.history import PlanDiff, PlanHistory, Revision
    from dagrun.graph.reading import read_plan
    from dagrun.llm.anthropic_model import AnthropicModel
    from dagrun.llm.openai_model import OpenAIModel
    from dagrun.llm.request import Form, LanguageModel, Message, Reply, Request, Usage
    from dagrun.model.artifact import Artifact
    from dagrun.model.brief import Brief, Planner, Refusal, StepView, Trigger
    from dagrun.model.condition import Condition
    from dagrun.model.context import ToolContext
    from dagrun.model.effect import Effect
    from dagrun.model.event import (
        AttemptEnded,
        AttemptStarted,
        CeilingNear,
        DraftEnded,
        DraftStarted,
        Event,
        Gap,
        GoalChanged,
        PatchRefused,
        PlannerCalled,
        Progress,
        QuestionAnswered,
        QuestionAsked,
        ReplanEnded,
        ReplanRequested,
        ReplanStarted,
        Reviewed,
        RunEnded,
        RunStarted,
        Spliced,
        StepExpanded,
        StepResumed,
        StepSettled,
    )
    from dagrun.model.outcome import State, Status, TriggerKind
    from dagrun.model.patch import Add, Consequence, Drop, Patch, Replace, Rewire
    from dagrun.model.plan import Plan, RetryRule, Step
    from dagrun.model.policy import ApprovalRule, PlanLimits, Policy
    from dagrun.model.protocols import Executor, StillRunning, ToolCall
    from dagrun.model.question import Answer, Asked, Question
    from dagrun.model.tool import Tool, tool
    from dagrun.model.toolbox import Toolbox
    from dagrun.model.verdict import Critic, Verdict
    from dagrun.planners.ensemble import EnsemblePlanner
    from dagrun.planners.hosted import AnthropicPlanner, OpenAIPlanner
    from dagrun.planners.model_planner import ModelPlanner
    from dagrun.planners.router import Route, RouterPlanner
    from dagrun.planners.static import StaticPlanner
    from dagrun.planners.stepwise import StepwisePlanner
    from dagrun.runtime.result import RunResult, StepResult
    from dagrun.runtime.run import Run

# The public names and where they live: importing dagrun must cost no more than what is used of it (PEP 562).
_HOMES = {
    "Add": "dagrun.model.patch",
    "Answer": "dagrun.model.question",
    "AnswerRefused": "dagrun.errors",
    "AnthropicModel": "dagrun.llm.anthropic_model",
    "AnthropicPlanner": "dagrun.planners.hosted",
    "ApprovalRule": "dagrun.model.policy",
    "Artifact": "dagrun.model.artifact",
    "Asked": "dagrun.model.question",
    "AttemptEnded": "dagrun.model.event",
    "AttemptStarted": "dagrun.model.event",
    "Brief": "dagrun.model.brief",
    "Budget": "dagrun.graph.budget",
    "CannotPlan": "dagrun.errors",
    "CeilingNear": "dagrun.model.event",
    "CheckedPlan": "dagrun.graph.checked",
    "Condition": "dagrun.model.condition",
    "Consequence": "dagrun.model.patch",
    "ContractError": "dagrun.errors",
    "CountCritic": "dagrun.critics.counts",
    "Critic": "dagrun.model.verdict",
    "DagrunError": "dagrun.errors",
    "DraftEnded": "dagrun.model.event",
    "DraftStarted": "dagrun.model.event",
    "Drop": "dagrun.model.patch",
    "Effect": "dagrun.model.effect",
    "Engine": "dagrun.api",
    "EnsemblePlanner": "dagrun.planners.ensemble",
    "Event": "dagrun.model.event",
    "Executor": "dagrun.model.protocols",
    "Form": "dagrun.llm.request",
    "Gap": "dagrun.model.event",
    "GoalChanged": "dagrun.model.event",
    "LanguageModel": "dagrun.llm.request",
    "Message": "dagrun.llm.request",
    "MissingExtra": "dagrun.errors",
    "ModelError": "dagrun.errors",
    "ModelPlanner": "dagrun.planners.model_planner",
    "NoRoute": "dagrun.errors",
    "OpenAIModel": "dagrun.llm.openai_model",
    "OpenAIPlanner": "dagrun.planners.hosted",
    "OverCeiling": "dagrun.errors",
    "Patch": "dagrun.model.patch",
    "PatchRefused": "dagrun.model.event",
    "Plan": "dagrun.model.plan",
    "PlanDiff": "dagrun.graph.history",
    "PlanHistory": "dagrun.graph.history",
    "PlanLimits": "dagrun.model.policy",
    "PlanRefused": "dagrun.errors",
    "Planner": "dagrun.model.brief",
    "PlannerCalled": "dagrun.model.event",
    "Policy": "dagrun.model.policy",
    "Problem": "dagrun.errors",
    "Progress": "dagrun.model.event",
    "Question": "dagrun.model.question",
    "QuestionAnswered": "dagrun.model.event",
    "QuestionAsked": "dagrun.model.event",
    "QuestionNotFound": "dagrun.errors",
    "Refusal": "dagrun.model.brief",
    "Replace": "dagrun.model.patch",
    "ReplanEnded": "dagrun.model.event",
    "ReplanRequested": "dagrun.model.event",
    "ReplanStarted": "dagrun.model.event",
    "Reply": "dagrun.llm.request",
    "Request": "dagrun.llm.request",
    "RetryRule": "dagrun.model.plan",
    "Reviewed": "dagrun.model.event",
    "Revision": "dagrun.graph.history",
    "Rewire": "dagrun.model.patch",
    "Route": "dagrun.planners.router",
    "RouterPlanner": "dagrun.planners.router",
    "RubricCritic": "dagrun.critics.rubric",
    "RuleCritic": "dagrun.critics.rules",
    "Run": "dagrun.runtime.run",
    "RunEnded": "dagrun.model.event",
    "RunFailed": "dagrun.errors",
    "RunResult": "dagrun.runtime.result",
    "RunStarted": "dagrun.model.event",
    "SchemaCritic": "dagrun.critics.schemas",
    "SpliceRefused": "dagrun.errors",
    "Spliced": "dagrun.model.event",
    "State": "dagrun.model.outcome",
    "StaticPlanner": "dagrun.planners.static",
    "Status": "dagrun.model.outcome",
    "Step": "dagrun.model.plan",
    "StepExpanded": "dagrun.model.event",
    "StepNotFound": "dagrun.errors",
    "StepResult": "dagrun.runtime.result",
    "StepResumed": "dagrun.model.event",
    "StepSettled": "dagrun.model.event",
    "StepView": "dagrun.model.brief",
    "StepwisePlanner": "dagrun.planners.stepwise",
    "StillRunning": "dagrun.model.protocols",
    "Tool": "dagrun.model.tool",
    "ToolCall": "dagrun.model.protocols",
    "ToolContext": "dagrun.model.context",
    "ToolError": "dagrun.errors",
    "Toolbox": "dagrun.model.toolbox",
    "Trigger": "dagrun.model.brief",
    "TriggerKind": "dagrun.model.outcome",
    "UnknownTool": "dagrun.errors",
    "Usage": "dagrun.llm.request",
    "Verdict": "dagrun.model.verdict",
    "agent_tool": "dagrun.executors.agent_tool",
    "check": "dagrun.api",
    "draft": "dagrun.api",
    "llm_tool": "dagrun.executors.llm_tool",
    "read_plan": "dagrun.graph.reading",
    "run": "dagrun.api",
    "run_sync": "dagrun.api",
    "start": "dagrun.api",
    "tool": "dagrun.model.tool",
}

__all__ = [
    "Add",
    "Answer",
    "AnswerRefused",
    "AnthropicModel",
    "AnthropicPlanner",
    "ApprovalRule",
    "Artifact",
    "Asked",
    "AttemptEnded",
    "AttemptStarted",
    "Brief",
    "Budget",
    "CannotPlan",
    "CeilingNear",
    "CheckedPlan",
    "Condition",
    "Consequence",
    "ContractError",
    "CountCritic",
    "Critic",
    "DagrunError",
    "DraftEnded",
    "DraftStarted",
    "Drop",
    "Effect",
    "Engine",
    "EnsemblePlanner",
    "Event",
    "Executor",
    "Form",
    "Gap",
    "GoalChanged",
    "LanguageModel",
    "Message",
    "MissingExtra",
    "ModelError",
    "ModelPlanner",
    "NoRoute",
    "OpenAIModel",
    "OpenAIPlanner",
    "OverCeiling",
    "Patch",
    "PatchRefused",
    "Plan",
    "PlanDiff",
    "PlanHistory",
    "PlanLimits",
    "PlanRefused",
    "Planner",
    "PlannerCalled",
    "Policy",
    "Problem",
    "Progress",
    "Question",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionNotFound",
    "Refusal",
    "Replace",
    "ReplanEnded",
    "ReplanRequested",
    "ReplanStarted",
    "Reply",
    "Request",
    "RetryRule",
    "Reviewed",
    "Revision",
    "Rewire",
    "Route",
    "RouterPlanner",
    "RubricCritic",
    "RuleCritic",
    "Run",
    "RunEnded",
    "RunFailed",
    "RunResult",
    "RunStarted",
    "SchemaCritic",
    "SpliceRefused",
    "Spliced",
    "State",
    "StaticPlanner",
    "Status",
    "Step",
    "StepExpanded",
    "StepNotFound",
    "StepResult",
    "StepResumed",
    "StepSettled",
    "StepView",
    "StepwisePlanner",
    "StillRunning",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolError",
    "Toolbox",
    "Trigger",
    "TriggerKind",
    "UnknownTool",
    "Usage",
    "Verdict",
    "__version__",
    "agent_tool",
    "check",
    "draft",
    "llm_tool",
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
