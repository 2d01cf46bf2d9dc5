"""What authors of parts of dagrun need: executors, journals, models, planners and critics of their own.

In: nothing. Out: the protocols that such a part fulfils, and the values that it gets and returns. Programs that only
run plans need none of these names. Each is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names

if TYPE_CHECKING:
    from dagrun.kernel.decide.durations import Durations
    from dagrun.kernel.model.critic import SOURCES
    from dagrun.kernel.model.executor import Executor, StillRunning, ToolCall, WorkerDied, WorkerLost
    from dagrun.kernel.model.journal import Journal, RunLog, SupportsDurations
    from dagrun.kernel.model.planner import NOTES, EarlierPlanner, HandOn, Notes, PastRequest
    from dagrun.llm.language_model import Form, LanguageModel, Message, Reply, Request, Usage

_NAMES = {
    "dagrun.kernel.decide.durations": "Durations",
    "dagrun.llm.language_model": "Form LanguageModel Message Reply Request Usage",
    "dagrun.kernel.model.critic": "SOURCES",
    "dagrun.kernel.model.executor": "Executor StillRunning ToolCall WorkerDied WorkerLost",
    "dagrun.kernel.model.journal": "Journal RunLog SupportsDurations",
    "dagrun.kernel.model.planner": "EarlierPlanner HandOn NOTES Notes PastRequest",
}

__all__ = [
    "NOTES",
    "SOURCES",
    "Durations",
    "EarlierPlanner",
    "Executor",
    "Form",
    "HandOn",
    "Journal",
    "LanguageModel",
    "Message",
    "Notes",
    "PastRequest",
    "Reply",
    "Request",
    "RunLog",
    "StillRunning",
    "SupportsDurations",
    "ToolCall",
    "Usage",
    "WorkerDied",
    "WorkerLost",
]
__getattr__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return sorted(__all__)
