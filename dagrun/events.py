"""The classes of events: every change of a run is one. `Event` is their base class.

`run.events()` yields them, a journal keeps them, and `event_types` names their classes by the names in records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagrun._lazy import lazy_names
from dagrun.kernel.model.event import (
    AttemptEnded,
    AttemptStarted,
    CeilingNear,
    ConfidenceReported,
    DraftEnded,
    DraftStarted,
    Event,
    Gap,
    GoalChanged,
    HandedOn,
    Hedged,
    HedgeEnded,
    ModelCharged,
    ModelReserved,
    PatchRefused,
    PlannerAsked,
    PlannerCalled,
    Progress,
    QuestionAnswered,
    QuestionAsked,
    ReplanEnded,
    ReplanRequested,
    ReplanStarted,
    Reviewed,
    RunEnded,
    RunReopened,
    RunResumed,
    RunStarted,
    RunStopping,
    RunSuspended,
    Spliced,
    StepExpanded,
    StepResumed,
    StepSettled,
    event_types,
)

__all__ = [
    "AttemptEnded",
    "AttemptStarted",
    "CeilingNear",
    "ConfidenceReported",
    "DraftEnded",
    "DraftStarted",
    "Event",
    "Gap",
    "GoalChanged",
    "HandedOn",
    "HedgeEnded",
    "Hedged",
    "ModelCharged",
    "ModelReserved",
    "PatchRefused",
    "PlannerAsked",
    "PlannerCalled",
    "Progress",
    "QuestionAnswered",
    "QuestionAsked",
    "ReplanEnded",
    "ReplanRequested",
    "ReplanStarted",
    "Reviewed",
    "RunEnded",
    "RunReopened",
    "RunResumed",
    "RunStarted",
    "RunStopping",
    "RunSuspended",
    "Spliced",
    "StepExpanded",
    "StepResumed",
    "StepSettled",
    "event_types",
]
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, {})  # says of a misspelt name which one was meant
