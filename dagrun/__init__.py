"""Plan, run in parallel, and repair graphs of tool calls.

In: a plan, or a goal and a planner that writes a plan; tools; and a policy with the limits. Out: a `RunResult`, and
an `Event` for each change of the run. The entry points are `run`, `start` and `Engine`.

To read the code, open ``dagrun/api/running.py`` first; each package says in its docstring which of its files to open
first. This file has no logic but one: it imports each public name when that is first used.

What a program uses most is here. `dagrun.events` has the classes of events, `dagrun.errors` all errors, and
`dagrun.extend` what authors of executors, journals, models and planners need. `dagrun.records` and `dagrun.texts` are
for programs that read records, and files that people write; `dagrun.network` has guarded HTTP for tools.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from dagrun._lazy import lazy_names
from dagrun._version import __version__

if TYPE_CHECKING:
    from dagrun import errors, events, extend, network, records, texts
    from dagrun.advice.tool_advice import check_tools
    from dagrun.api import Engine, check, draft, resume, retry, run, run_sync, start
    from dagrun.api.preloading import preload
    from dagrun.api.replaying import Replayed, replay
    from dagrun.critics.rubric import RubricCritic
    from dagrun.critics.rules import AgreementCritic, CountCritic, RuleCritic, SchemaCritic
    from dagrun.errors import DagrunError, PlanRefused, Problem, RunFailed, ToolError
    from dagrun.evaluate.comparison.compare import compare
    from dagrun.evaluate.comparison.comparison import VariantComparison
    from dagrun.evaluate.comparison.variants import RunVariant
    from dagrun.evaluate.learning.memory_planner import MemoryPlanner
    from dagrun.evaluate.metrics.metrics import Metrics, metrics
    from dagrun.evaluate.replay import Cassette
    from dagrun.evaluate.simulation.call_models import failure_rates
    from dagrun.evaluate.simulation.simulate import simulate
    from dagrun.evaluate.simulation.simulation import Simulation, Variant
    from dagrun.executors.programs import ProgramFailed, run_program
    from dagrun.executors.ray.executor import RayExecutor
    from dagrun.features.python_plans.collect import plan
    from dagrun.features.python_plans.planned_values import input, item, where
    from dagrun.journal.memory import MemoryJournal
    from dagrun.journal.postgres.journal import PostgresJournal
    from dagrun.journal.private_folders import is_private_folder
    from dagrun.journal.sqlite.journal import SQLiteJournal
    from dagrun.kernel.checks.checked_plan import CheckedPlan
    from dagrun.kernel.graph.ledger import Budget
    from dagrun.kernel.graph.plan_history import PlanDiff, PlanHistory, Revision
    from dagrun.kernel.model.contracts.deps import dep
    from dagrun.kernel.model.contracts.objects import Object
    from dagrun.kernel.model.contracts.sharing import Batch
    from dagrun.kernel.model.contracts.streams import as_stream
    from dagrun.kernel.model.critic import Critic, Verdict
    from dagrun.kernel.model.effect import Applied, Effect
    from dagrun.kernel.model.event import Event
    from dagrun.kernel.model.flow.boundary import EndorseRule, Flow, GuardRule
    from dagrun.kernel.model.flow.marks import GuardedCall, guarded
    from dagrun.kernel.model.journal import Durability
    from dagrun.kernel.model.outcome import State, Status, TriggerKind
    from dagrun.kernel.model.patch import Add, Consequence, Drop, Patch, Replace, Rewire
    from dagrun.kernel.model.plan import Plan, RetryRule, Step
    from dagrun.kernel.model.planner import Brief, FallbackPlanner, Planner, Refusal, StepView, Trigger
    from dagrun.kernel.model.policy import (
        ApprovalRule,
        HedgeRule,
        PlanLimits,
        PlanningRule,
        Policy,
        PoolLimits,
        QuestionRule,
        WorkerLimits,
    )
    from dagrun.kernel.model.question import Answer, Asked, Question
    from dagrun.kernel.model.reference import Condition
    from dagrun.kernel.model.secrets import Secret, Secrets, env
    from dagrun.kernel.model.tool import Tool, Toolbox, tool
    from dagrun.kernel.model.tool_context import PROVIDED, ToolContext
    from dagrun.kernel.model.value import Artifact, Unavailable
    from dagrun.kernel.runtime.result import RunResult, StepResult
    from dagrun.kernel.runtime.run import Run
    from dagrun.kernel.runtime.run_features import AnswerPiece
    from dagrun.llm.provider_models import AnthropicModel, OpenAIModel
    from dagrun.model_tools.agent_tool import agent_tool
    from dagrun.model_tools.llm_tool import llm_tool
    from dagrun.observe.presenters import report, show
    from dagrun.observe.tracing import Tracing
    from dagrun.planners.fallback_chain import EnsemblePlanner, FallbackChain, PersonPlanner
    from dagrun.planners.host_plans import Route, RouterPlanner, StaticPlanner
    from dagrun.planners.model_choice import ModelChooser, ToolPicker
    from dagrun.planners.model_planner import ModelPlanner
    from dagrun.planners.provider_planners import AnthropicPlanner, OpenAIPlanner
    from dagrun.planners.route_files import read_routes
    from dagrun.planners.stepwise import StepwisePlanner
    from dagrun.plans.read_plan import read_plan
    from dagrun.serve.page import web
    from dagrun.sources.mcp import mcp_tools
    from dagrun.sources.openapi.openapi_tools import openapi_tools
    from dagrun.sources.schemas import schema_tool, schema_tools
    from dagrun.workers.submitting import cancel, follow, requeue, submit
    from dagrun.workers.worker import ClaimEvent, Worker

# The public names by module. Each is imported on first use (PEP 562), so that `import dagrun` costs only what is used.
_NAMES = {
    "dagrun": "errors events extend network records texts",
    "dagrun.observe.presenters": "report show",
    "dagrun.api": "Engine check draft resume retry run run_sync start",
    "dagrun.api.preloading": "preload",
    "dagrun.api.replaying": "Replayed replay",
    "dagrun.workers.submitting": "cancel follow requeue submit",
    "dagrun.workers.worker": "ClaimEvent Worker",
    "dagrun.critics.rules": "AgreementCritic CountCritic RuleCritic SchemaCritic",
    "dagrun.critics.rubric": "RubricCritic",
    "dagrun.evaluate.comparison.compare": "compare",
    "dagrun.evaluate.comparison.comparison": "VariantComparison",
    "dagrun.evaluate.comparison.variants": "RunVariant",
    "dagrun.evaluate.learning.memory_planner": "MemoryPlanner",
    "dagrun.evaluate.metrics.metrics": "Metrics metrics",
    "dagrun.evaluate.replay": "Cassette",
    "dagrun.errors": "DagrunError PlanRefused Problem RunFailed ToolError",
    "dagrun.evaluate.simulation.call_models": "failure_rates",
    "dagrun.evaluate.simulation.simulate": "simulate",
    "dagrun.evaluate.simulation.simulation": "Simulation Variant",
    "dagrun.model_tools.agent_tool": "agent_tool",
    "dagrun.model_tools.llm_tool": "llm_tool",
    "dagrun.executors.programs": "ProgramFailed run_program",
    "dagrun.executors.ray.executor": "RayExecutor",
    "dagrun.kernel.graph.ledger": "Budget",
    "dagrun.kernel.checks.checked_plan": "CheckedPlan",
    "dagrun.advice.tool_advice": "check_tools",
    "dagrun.kernel.graph.plan_history": "PlanDiff PlanHistory Revision",
    "dagrun.plans.read_plan": "read_plan",
    "dagrun.journal.memory": "MemoryJournal",
    "dagrun.journal.postgres.journal": "PostgresJournal",
    "dagrun.journal.private_folders": "is_private_folder",
    "dagrun.journal.sqlite.journal": "SQLiteJournal",
    "dagrun.llm.provider_models": "AnthropicModel OpenAIModel",
    "dagrun.kernel.model.planner": "Brief FallbackPlanner Planner Refusal StepView Trigger",
    "dagrun.kernel.model.reference": "Condition",
    "dagrun.kernel.model.contracts.deps": "dep",
    "dagrun.kernel.model.contracts.objects": "Object",
    "dagrun.kernel.model.contracts.sharing": "Batch",
    "dagrun.kernel.model.contracts.streams": "as_stream",
    "dagrun.kernel.model.tool_context": "PROVIDED ToolContext",
    "dagrun.kernel.model.effect": "Applied Effect",
    "dagrun.kernel.model.event": "Event",
    "dagrun.kernel.model.flow.boundary": "EndorseRule Flow GuardRule",
    "dagrun.kernel.model.flow.marks": "GuardedCall guarded",
    "dagrun.kernel.model.journal": "Durability",
    "dagrun.kernel.model.outcome": "State Status TriggerKind",
    "dagrun.kernel.model.patch": "Add Consequence Drop Patch Replace Rewire",
    "dagrun.kernel.model.plan": "Plan RetryRule Step",
    "dagrun.kernel.model.policy": (
        "ApprovalRule HedgeRule PlanLimits PlanningRule Policy PoolLimits QuestionRule WorkerLimits"
    ),
    "dagrun.features.python_plans.collect": "plan",
    "dagrun.features.python_plans.planned_values": "input item where",
    "dagrun.kernel.model.question": "Answer Asked Question",
    "dagrun.kernel.model.secrets": "Secret Secrets env",
    "dagrun.kernel.model.tool": "Tool Toolbox tool",
    "dagrun.kernel.model.value": "Artifact Unavailable",
    "dagrun.kernel.model.critic": "Critic Verdict",
    "dagrun.observe.tracing": "Tracing",
    "dagrun.planners.provider_planners": "AnthropicPlanner OpenAIPlanner",
    "dagrun.planners.fallback_chain": "EnsemblePlanner FallbackChain PersonPlanner",
    "dagrun.planners.model_planner": "ModelPlanner",
    "dagrun.planners.model_choice": "ModelChooser ToolPicker",
    "dagrun.planners.route_files": "read_routes",
    "dagrun.planners.host_plans": "Route RouterPlanner StaticPlanner",
    "dagrun.planners.stepwise": "StepwisePlanner",
    "dagrun.kernel.runtime.run_features": "AnswerPiece",
    "dagrun.kernel.runtime.result": "RunResult StepResult",
    "dagrun.serve.page": "web",
    "dagrun.sources.schemas": "schema_tool schema_tools",
    "dagrun.sources.mcp": "mcp_tools",
    "dagrun.sources.openapi.openapi_tools": "openapi_tools",
    "dagrun.kernel.runtime.run": "Run",
}

__all__ = [
    "PROVIDED",
    "Add",
    "AgreementCritic",
    "Answer",
    "AnswerPiece",
    "AnthropicModel",
    "AnthropicPlanner",
    "Applied",
    "ApprovalRule",
    "Artifact",
    "Asked",
    "Batch",
    "Brief",
    "Budget",
    "Cassette",
    "CheckedPlan",
    "ClaimEvent",
    "Condition",
    "Consequence",
    "CountCritic",
    "Critic",
    "DagrunError",
    "Drop",
    "Durability",
    "Effect",
    "EndorseRule",
    "Engine",
    "EnsemblePlanner",
    "Event",
    "FallbackChain",
    "FallbackPlanner",
    "Flow",
    "GuardRule",
    "GuardedCall",
    "HedgeRule",
    "MemoryJournal",
    "MemoryPlanner",
    "Metrics",
    "ModelChooser",
    "ModelPlanner",
    "Object",
    "OpenAIModel",
    "OpenAIPlanner",
    "Patch",
    "PersonPlanner",
    "Plan",
    "PlanDiff",
    "PlanHistory",
    "PlanLimits",
    "PlanRefused",
    "Planner",
    "PlanningRule",
    "Policy",
    "PoolLimits",
    "PostgresJournal",
    "Problem",
    "ProgramFailed",
    "Question",
    "QuestionRule",
    "RayExecutor",
    "Refusal",
    "Replace",
    "Replayed",
    "RetryRule",
    "Revision",
    "Rewire",
    "Route",
    "RouterPlanner",
    "RubricCritic",
    "RuleCritic",
    "Run",
    "RunFailed",
    "RunResult",
    "RunVariant",
    "SQLiteJournal",
    "SchemaCritic",
    "Secret",
    "Secrets",
    "Simulation",
    "State",
    "StaticPlanner",
    "Status",
    "Step",
    "StepResult",
    "StepView",
    "StepwisePlanner",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolPicker",
    "Toolbox",
    "Tracing",
    "Trigger",
    "TriggerKind",
    "Unavailable",
    "Variant",
    "VariantComparison",
    "Verdict",
    "Worker",
    "WorkerLimits",
    "__version__",
    "agent_tool",
    "as_stream",
    "cancel",
    "check",
    "check_tools",
    "compare",
    "dep",
    "draft",
    "env",
    "errors",
    "events",
    "extend",
    "failure_rates",
    "follow",
    "guarded",
    "input",
    "is_private_folder",
    "item",
    "llm_tool",
    "mcp_tools",
    "metrics",
    "network",
    "openapi_tools",
    "plan",
    "preload",
    "read_plan",
    "read_routes",
    "records",
    "replay",
    "report",
    "requeue",
    "resume",
    "retry",
    "run",
    "run_program",
    "run_sync",
    "schema_tool",
    "schema_tools",
    "show",
    "simulate",
    "start",
    "submit",
    "texts",
    "tool",
    "web",
    "where",
]


# Names and places of earlier releases, until 0.4.
_MOVED = {
    "errors": (
        "AnswerRefused CannotPlan CannotResume ContractError ExecutorFailed JournalDamaged JournalError "
        "JournalFailed MissingExtra ModelError NoRoute OverCeiling OwnerLost QuestionNotFound RecordRefused "
        "RunExists RunHeld RunNotFound SpliceRefused StepNotFound UnknownFormat UnknownTool WrongRecordKey"
    ),
    "events": (
        "AttemptEnded AttemptStarted CeilingNear ConfidenceReported DraftEnded DraftStarted Gap GoalChanged "
        "HandedOn HedgeEnded Hedged ModelCharged ModelReserved PatchRefused PlannerAsked PlannerCalled "
        "Progress QuestionAnswered QuestionAsked ReplanEnded ReplanRequested ReplanStarted Reviewed RunEnded "
        "RunReopened RunResumed RunStarted RunStopping RunSuspended Spliced StepExpanded StepResumed "
        "StepSettled event_types"
    ),
    "extend": (
        "Durations Executor Form HandOn Journal LanguageModel Message NOTES Notes PastRequest "
        "Reply Request SOURCES StillRunning ToolCall Usage WorkerDied WorkerLost"
    ),
}
_RENAMED = {
    "Before": "extend.EarlierPlanner",
    "ClaimNews": "ClaimEvent",
    "Ladder": "FallbackChain",
    "Rate": "PoolLimits",
    "RemembersDurations": "extend.SupportsDurations",
    "Rung": "FallbackPlanner",
    "Tape": "extend.RunLog",
    "Way": "RunVariant",
    "WayComparison": "VariantComparison",
    **{name: f"{tier}.{name}" for tier, names in _MOVED.items() for name in names.split()},
}
_get = lazy_names(__name__, _NAMES)


if not TYPE_CHECKING:  # or type checkers would take any name

    def __getattr__(name: str) -> Any:
        if name not in _RENAMED:
            return _get(name)
        new = _RENAMED[name]
        text = f"dagrun.{name} is now dagrun.{new}; the old name is removed in 0.4"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return attrgetter(new)(import_module(__name__))


def __dir__() -> list[str]:
    return sorted(__all__)
