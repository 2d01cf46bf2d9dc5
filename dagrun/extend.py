"""What authors of parts of dagrun need: executors, journals, models, planners, critics, and programs that judge runs.

In: nothing. Out: the protocols that such a part fulfils, and the values that it gets and returns. Programs that only
run plans need none of these names. Each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.api.checking import AnyPlan, toolbox_of
    from dagrun.api.running import run_on_own_loop
    from dagrun.executors.executors import CoroutineExecutor
    from dagrun.journal.queue import ClaimedRunLog, Queues, QueueStatus, QueueTicket, RunQueue, Wanted
    from dagrun.kernel.checks.checked_plan import CheckedStep
    from dagrun.kernel.decide.classify import classify
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.critic import SOURCES, Result
    from dagrun.kernel.model.executor import (
        CallFailed,
        Executor,
        KeptResult,
        StillRunning,
        ToolCall,
        WorkerDied,
        WorkerLost,
    )
    from dagrun.kernel.model.journal import InboxMessage, Journal, RunLog, SupportsDurations, SupportsVersions
    from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome
    from dagrun.kernel.model.planner import (
        NOTES,
        EarlierPlanner,
        HandOn,
        Notes,
        PastRequest,
        RevisedBy,
        must_be_planner,
    )
    from dagrun.kernel.model.question import AnswerMessage, Approver, Choice
    from dagrun.kernel.model.tool import AnyTool, Tools, make_tool
    from dagrun.kernel.model.usage import ANSWERS, METER, ModelUse
    from dagrun.kernel.runtime.plugin_calls import PluginFailed, call_plugin
    from dagrun.kernel.runtime.run_options import Inputs
    from dagrun.llm.budget_meter import BudgetMeter
    from dagrun.llm.language_model import Form, LanguageModel, Message, Reply, Request, Structure, Usage, must_be_model
    from dagrun.planners.route_files import RouteFile

_NAMES = {
    "dagrun.api.checking": "AnyPlan toolbox_of",
    "dagrun.api.running": "run_on_own_loop",
    "dagrun.executors.executors": "CoroutineExecutor",
    "dagrun.journal.queue": "ClaimedRunLog QueueStatus QueueTicket Queues RunQueue Wanted",
    "dagrun.kernel.checks.checked_plan": "CheckedStep",
    "dagrun.kernel.decide.classify": "classify",
    "dagrun.kernel.decide.durations": "Durations",
    "dagrun.kernel.model.critic": "Result SOURCES",
    "dagrun.kernel.model.executor": "CallFailed Executor KeptResult StillRunning ToolCall WorkerDied WorkerLost",
    "dagrun.kernel.model.journal": "InboxMessage Journal RunLog SupportsDurations SupportsVersions",
    "dagrun.kernel.model.outcome": "ErrorKind Failure Outcome",
    "dagrun.kernel.model.planner": "EarlierPlanner HandOn NOTES Notes PastRequest RevisedBy must_be_planner",
    "dagrun.kernel.model.question": "AnswerMessage Approver Choice",
    "dagrun.kernel.model.tool": "AnyTool Tools make_tool",
    "dagrun.kernel.model.usage": "ANSWERS METER ModelUse",
    "dagrun.llm.budget_meter": "BudgetMeter",
    "dagrun.kernel.runtime.plugin_calls": "PluginFailed call_plugin",
    "dagrun.kernel.runtime.run_options": "Inputs",
    "dagrun.llm.language_model": "Form LanguageModel Message Reply Request Structure Usage must_be_model",
    "dagrun.planners.route_files": "RouteFile",
}

__all__ = [
    "ANSWERS",
    "METER",
    "NOTES",
    "SOURCES",
    "AnswerMessage",
    "AnyPlan",
    "AnyTool",
    "Approver",
    "BudgetMeter",
    "CallFailed",
    "CheckedStep",
    "Choice",
    "ClaimedRunLog",
    "CoroutineExecutor",
    "Durations",
    "EarlierPlanner",
    "ErrorKind",
    "Executor",
    "Failure",
    "Form",
    "HandOn",
    "InboxMessage",
    "Inputs",
    "Journal",
    "KeptResult",
    "LanguageModel",
    "Message",
    "ModelUse",
    "Notes",
    "Outcome",
    "PastRequest",
    "PluginFailed",
    "QueueStatus",
    "QueueTicket",
    "Queues",
    "Reply",
    "Request",
    "Result",
    "RevisedBy",
    "RouteFile",
    "RunLog",
    "RunQueue",
    "StillRunning",
    "Structure",
    "SupportsDurations",
    "SupportsVersions",
    "ToolCall",
    "Tools",
    "Usage",
    "Wanted",
    "WorkerDied",
    "WorkerLost",
    "call_plugin",
    "classify",
    "make_tool",
    "must_be_model",
    "must_be_planner",
    "run_on_own_loop",
    "toolbox_of",
]
if not TYPE_CHECKING:  # or type checkers would take any name
    __getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
