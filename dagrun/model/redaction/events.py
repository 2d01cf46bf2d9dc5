"""Events as everybody may see them: their texts are cleaned before they change anything. Values of steps stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun.model import event as events
from dagrun.model.event import AttemptEnded, Event, HedgeEnded, PlannerCalled, Reviewed, StepSettled
from dagrun.model.outcome import Outcome
from dagrun.model.redaction.redactor import Redactor


def _attempt_ended(event: AttemptEnded | Reviewed, redactor: Redactor) -> None:
    outcome = event.outcome
    if outcome.failure is not None or outcome.surprise:
        _outcome(outcome, redactor)
        reason = redactor.text(event.decision.reason)
        if reason != event.decision.reason:
            event.decision = replace(event.decision, reason=reason)


def _outcome(outcome: Outcome, redactor: Redactor) -> None:
    if outcome.failure is not None:
        outcome.failure = redactor.failure(outcome.failure)
    outcome.surprise = redactor.text(outcome.surprise)


def _reviewed(event: Reviewed, redactor: Redactor) -> None:
    _attempt_ended(event, redactor)
    event.verdicts = tuple(replace(verdict, reason=redactor.text(verdict.reason)) for verdict in event.verdicts)


def _settled(event: StepSettled, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)
    if event.failure is not None:
        event.failure = redactor.failure(event.failure)
    if event.errors:
        event.errors = tuple((index, redactor.text(text)) for index, text in event.errors)


def _problems(event: events.PatchRefused, redactor: Redactor) -> None:
    event.problems = tuple(redactor.problem(problem) for problem in event.problems)


def _draft_ended(event: events.DraftEnded, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)
    event.problems = tuple(redactor.problem(problem) for problem in event.problems)


def _requested(event: events.ReplanRequested, redactor: Redactor) -> None:
    trigger = event.trigger
    event.trigger = replace(trigger, reason=redactor.text(trigger.reason), error=redactor.text(trigger.error))


def _answered(event: events.QuestionAnswered, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)
    if event.answer is not None and event.answer.note:
        event.answer = replace(event.answer, note=redactor.text(event.answer.note))


def _reason(event: Any, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)


def _called(event: PlannerCalled | HedgeEnded, redactor: Redactor) -> None:
    event.fault = redactor.text(event.fault)


def _progress(event: events.Progress, redactor: Redactor) -> None:
    event.message = redactor.text(event.message)


def _resumed(event: events.RunResumed, redactor: Redactor) -> None:
    event.differences = tuple(map(redactor.text, event.differences))


def _goal(event: Any, redactor: Redactor) -> None:
    event.goal = redactor.secrets.replaced_in(event.goal)  # it says what is wanted; all else in it is meant


# What is not here has no texts but names. Questions are cleaned where they are made: they are known by themselves.
# What takes out of the texts of an event what may not be shown; the other events have none.
CLEANERS: Final[Mapping[type[Event], Callable[[Any, Redactor], None]]] = {
    AttemptEnded: _attempt_ended,
    Reviewed: _reviewed,
    StepSettled: _settled,
    events.RunStarted: _goal,
    events.RunSuspended: _reason,
    events.RunResumed: _resumed,
    events.RunReopened: _reason,
    events.RunStopping: _reason,
    events.RunEnded: _reason,
    events.Spliced: _reason,
    events.PatchRefused: _problems,
    events.GoalChanged: _goal,
    events.DraftStarted: _goal,
    events.DraftEnded: _draft_ended,
    PlannerCalled: _called,
    HedgeEnded: _called,
    events.ReplanRequested: _requested,
    events.ReplanEnded: _reason,
    events.QuestionAnswered: _answered,
    events.Progress: _progress,
}
