"""Redact the texts of events before the events change the run; values of steps are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun.kernel.model import event as events
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.event import AttemptEnded, Event, HedgeEnded, PlannerCalled, Reviewed, StepSettled
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.redaction.redactor import Redactor


def _clean_attempt(event: AttemptEnded | Reviewed, redactor: Redactor) -> None:
    outcome = event.outcome
    if outcome.failure is not None or outcome.surprise:
        _clean_outcome(outcome, redactor)
        reason = redactor.text(event.decision.reason)
        if reason != event.decision.reason:
            event.decision = replace(event.decision, reason=reason)


def _clean_outcome(outcome: Outcome, redactor: Redactor) -> None:
    if outcome.failure is not None:
        outcome.failure = redactor.failure(outcome.failure)
    outcome.surprise = redactor.text(outcome.surprise)


def _clean_review(event: Reviewed, redactor: Redactor) -> None:
    _clean_attempt(event, redactor)
    event.verdicts = tuple(_clean_verdict(verdict, redactor) for verdict in event.verdicts)


def _clean_verdict(verdict: Verdict, redactor: Redactor) -> Verdict:
    answer = redactor.answers((verdict.answer,))[0] if verdict.answer else ""
    return replace(verdict, reason=redactor.text(verdict.reason), answer=answer)


def _clean_settled(event: StepSettled, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)
    if event.failure is not None:
        event.failure = redactor.failure(event.failure)
    if event.errors:
        event.errors = tuple((index, redactor.text(text)) for index, text in event.errors)


def _clean_problems(event: events.PatchRefused, redactor: Redactor) -> None:
    event.problems = tuple(redactor.problem(problem) for problem in event.problems)


def _clean_splice(event: events.Spliced, redactor: Redactor) -> None:
    _clean_reason(event, redactor)
    event.refused = tuple(redactor.problem(problem) for problem in event.refused)


def _clean_draft(event: events.DraftEnded, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)
    event.problems = tuple(redactor.problem(problem) for problem in event.problems)


def _clean_trigger(event: events.ReplanRequested, redactor: Redactor) -> None:
    trigger = event.trigger
    event.trigger = replace(trigger, reason=redactor.text(trigger.reason), error=redactor.text(trigger.error))


def _clean_answer(event: events.QuestionAnswered, redactor: Redactor) -> None:
    event.reason = redactor.text(event.reason)
    if event.answer is not None and event.answer.note:
        event.answer = replace(event.answer, note=redactor.text(event.answer.note))


def _clean_reason(event: Any, redactor: Redactor) -> None:
    if event.reason:
        event.reason = redactor.text(event.reason)


def _clean_fault(event: PlannerCalled | HedgeEnded, redactor: Redactor) -> None:
    event.fault = redactor.text(event.fault)


def _clean_call(event: PlannerCalled, redactor: Redactor) -> None:
    _clean_fault(event, redactor)
    event.answers = redactor.answers(event.answers)
    if event.notes:
        event.notes = redactor.answers((event.notes,))[0]
    if event.failure is not None:
        event.failure = redactor.failure(event.failure)


def _clean_message(event: events.Progress, redactor: Redactor) -> None:
    event.message = redactor.text(event.message)


def _clean_differences(event: events.RunResumed, redactor: Redactor) -> None:
    event.differences = tuple(map(redactor.text, event.differences))


def _clean_goal(event: Any, redactor: Redactor) -> None:
    # Registered secrets only: tokens and personal data in a goal are there on purpose.
    event.goal = redactor.secrets.replaced_in(event.goal)


# For each type of event, a function that redacts its texts in place. Events that are missing here have no texts but
# names; questions are redacted where they are made, in `dagrun.kernel.decide.questions`.
CLEANERS: Final[Mapping[type[Event], Callable[[Any, Redactor], None]]] = {
    AttemptEnded: _clean_attempt,
    Reviewed: _clean_review,
    StepSettled: _clean_settled,
    events.RunStarted: _clean_goal,
    events.RunSuspended: _clean_reason,
    events.RunResumed: _clean_differences,
    events.RunReopened: _clean_reason,
    events.RunStopping: _clean_reason,
    events.RunEnded: _clean_reason,
    events.Spliced: _clean_splice,
    events.PatchRefused: _clean_problems,
    events.GoalChanged: _clean_goal,
    events.DraftStarted: _clean_goal,
    events.DraftEnded: _clean_draft,
    PlannerCalled: _clean_call,
    HedgeEnded: _clean_fault,
    events.HandedOn: _clean_reason,
    events.ReplanRequested: _clean_trigger,
    events.ReplanEnded: _clean_reason,
    events.QuestionAnswered: _clean_answer,
    events.Progress: _clean_message,
}
