"""The chronicle of a run: an entry for each event of its record, with the reasons of each decision."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from dagrun import events
from dagrun.api.replaying import Replayed
from dagrun.errors import first_lines, shorten
from dagrun.events import AttemptEnded, Event, Hedged, HedgeEnded, ModelCharged, PlannerCalled, Reviewed
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.plan_history import PlanDiff, PlanHistory
from dagrun.kernel.model.outcome import Attempt, Decision, Failure, Outcome, Recovery
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.usage import ModelUse
from dagrun.observe.run_summary import handlers_of
from dagrun.observe.state_styles import RECOVERIES, counted, spending_words

MAX_TEXT: Final = 1_000
MAX_DETAILS: Final = 100

# The subject of an entry that is not about a step. Steps may have these ids, too.
RUN: Final = "run"
PLAN: Final = "plan"
PLANNER: Final = "planner"

_CHOICES: Final[Mapping[str, str]] = MappingProxyType({"approve": "yes", "deny": "no", "escalate": "escalate"})


@dataclass(frozen=True, slots=True)
class Entry:
    """One event of a run in words. Each text is one line, without control characters.

    Attributes:
        seq: The number of its record.
        at: Seconds since the start of the run.
        event: The name of the event.
        about: The step that the entry is about, or `RUN`, `PLAN` or `PLANNER`.
        text: What happened.
        details: The reasons and the consequences, one line each.
        steps: The ids of all steps that the entry is about.
    """

    seq: int
    at: float
    event: str
    about: str
    text: str
    details: tuple[str, ...] = ()
    steps: frozenset[str] = frozenset()

    def as_dict(self) -> dict[str, Any]:
        """Return the entry as plain JSON."""
        return {
            "seq": self.seq,
            "at": self.at,
            "event": self.event,
            "about": self.about,
            "text": self.text,
            "details": list(self.details),
            "steps": sorted(self.steps),
        }


def chronicle(past: Replayed, step: str | None = None) -> Iterator[Entry]:
    """Yield an entry for each event of a run.

    Args:
        past: The run, read from its record.
        step: Yield only entries about this step or its elements; `None` for all entries.
    """
    for entry in tell(past.graph, past.events, past.opening.parent):
        if step is None or any(_is_of(step, id_) for id_ in entry.steps):
            yield entry


def tell(graph: LiveGraph, seen: Iterable[Event], parent: str = "") -> Iterator[Entry]:
    """Yield an entry for each event that belongs in the chronicle.

    Args:
        graph: The state of the run.
        seen: Events of the run, in order.
        parent: The run that this one retries; empty if there is none.
    """
    teller = _Narrator(graph, parent)
    return (entry for event in seen if (entry := teller.entry(event)) is not None)


def _is_of(step: str, id_: str) -> bool:
    return id_ == step or id_.startswith(f"{step}[")


EntryParts = tuple[str, str, Sequence[str], Sequence[str]]  # about, text, details, steps


class _Narrator:
    """Writes the events of one run in words, in their order. The method for an event has its name."""

    def __init__(self, graph: LiveGraph, parent: str) -> None:
        self._graph = graph
        self._parent = parent
        self._started: dict[str, float] = {}
        self._questions: dict[str, str] = {}
        self._diffs: list[PlanDiff] | None = None

    def entry(self, event: Event) -> Entry | None:
        tell = _TELLERS.get(type(event).__name__)
        parts = None if tell is None else tell(self, event)
        if parts is None:
            return None
        about, text, details, steps = parts
        shown = [shorten(detail, MAX_TEXT) for detail in details[:MAX_DETAILS]]
        if len(details) > MAX_DETAILS:
            shown.append(f"… and {len(details) - MAX_DETAILS} more lines")
        name = type(event).__name__
        return Entry(
            event.seq, event.at, name, about, shorten(text, MAX_TEXT), tuple(filter(None, shown)), frozenset(steps)
        )

    # The run ----------------------------------------------------------------------------------------------

    def _on_run_started(self, event: events.RunStarted) -> EntryParts:
        goal = [f"goal: {event.goal}"] if event.goal else []
        again = [f"does again run {self._parent}"] if self._parent else []
        return RUN, f"begins, {counted(event.steps, 'step')}", [*goal, *again], ()

    def _on_run_resumed(self, event: events.RunResumed) -> EntryParts:
        return RUN, "goes on", [f"differs: {line}" for line in event.differences], ()

    def _on_run_reopened(self, event: events.RunReopened) -> EntryParts:
        return RUN, f"open again: {', '.join(event.steps)}", [event.reason], event.steps

    def _on_run_ended(self, event: events.RunSuspended | events.RunStopping | events.RunEnded) -> EntryParts:
        word = {"RunSuspended": "suspended", "RunStopping": "is being ended"}.get(type(event).__name__, "ended")
        return RUN, f"{word} as {event.status}", [event.reason], ()

    _on_run_suspended = _on_run_stopping = _on_run_ended

    def _on_ceiling_near(self, event: events.CeilingNear) -> EntryParts:
        return RUN, f"the ceiling {event.ceiling} is near: {event.used:g} of {event.limit:g}", (), ()

    # Steps ------------------------------------------------------------------------------------------------

    def _on_attempt_started(self, event: events.AttemptStarted) -> EntryParts:
        self._started[event.step] = event.at
        return event.step, f"call {event.attempt} of {event.tool}", (), (event.step,)

    def _on_attempt_ended(self, event: events.AttemptEnded) -> EntryParts:
        seconds = event.at - self._started.pop(event.step, event.at)
        return event.step, f"{event.outcome.state} after {seconds:.2f} s", why(event), (event.step,)

    def _on_hedged(self, event: Hedged) -> EntryParts:
        return event.step, f"a second call, as the first has taken {event.after:.2f} s", (), (event.step,)

    def _on_hedge_ended(self, event: HedgeEnded) -> EntryParts:
        text = "the second call was faster" if event.has_won else "the second call failed"
        if not event.has_won and not event.fault:
            text = "the second call was not needed"
        return event.step, text, [event.fault, spent(event.tokens, event.cost)], (event.step,)

    def _on_confidence_reported(self, event: events.ConfidenceReported) -> EntryParts:
        return event.step, f"its tool gives its output a confidence of {event.confidence:g}", (), (event.step,)

    def _on_reviewed(self, event: events.Reviewed) -> EntryParts:
        verdicts = [
            f"{verdict.critic}: {verdict.result}{'' if verdict.score is None else f' ({verdict.score:g})'}"
            f"{'' if verdict.confidence is None else f', confidence {verdict.confidence:g}'}"
            f"{': ' if verdict.reason else ''}{verdict.reason}"
            f"{'; answered: ' if verdict.answer else ''}{first_lines(verdict.answer)}"
            for verdict in event.verdicts
        ]
        return event.step, f"reviewed: {event.outcome.state}", [*verdicts, *why(event)], (event.step,)

    def _on_step_settled(self, event: events.StepSettled) -> EntryParts:
        errors = [f"element {index}: {reason}" for index, reason in event.errors]
        because = [f"because of {event.cause}"] if event.cause else []
        asks = ["the planner is asked"] if event.asks_planner else []
        return event.step, str(event.state), [event.reason, *because, *errors, *asks], (event.step,)

    def _on_step_expanded(self, event: events.StepExpanded) -> EntryParts:
        return event.step, f"for each of {counted(len(event.items), 'element')}", (), (event.step,)

    def _on_step_resumed(self, event: events.StepResumed) -> EntryParts:
        return event.step, "continues its call", (), (event.step,)

    # The plan ---------------------------------------------------------------------------------------------

    def _on_spliced(self, event: events.Spliced) -> EntryParts:
        if self._diffs is None:
            self._diffs = list(PlanHistory(self._graph.plan.plan, self._graph.revisions).diffs())
        lines = self._diffs[event.revision - 1].lines() if event.revision else iter(())
        did = event.consequence
        steps = {*did.added, *did.dropped, *did.replaced, *did.rewired, *did.superseded}
        refused = (f"refused: {problem}" for problem in event.refused)
        details = [f"why: {event.reason}" if event.reason else "", *lines, *refused]
        return PLAN, f"revision {event.revision}, by the {event.origin}: {did}", details, sorted(steps)

    def _on_patch_refused(self, event: events.PatchRefused) -> EntryParts:
        return PLAN, f"a patch of the {event.origin} was refused", [str(problem) for problem in event.problems], ()

    def _on_goal_changed(self, event: events.GoalChanged) -> EntryParts:
        return PLAN, f"the goal is now: {event.goal}", (), ()

    def _on_draft_started(self, event: events.DraftStarted) -> EntryParts:
        return PLANNER, "writes the plan", ["nothing starts before its end"] if event.is_held else (), ()

    def _on_draft_ended(self, event: events.DraftEnded) -> EntryParts:
        problems = [str(problem) for problem in event.problems]
        # The reason of a refusal is its first problem, with the answer of the model, which the call before it shows.
        reason = [] if problems and event.reason.startswith(problems[0]) else [event.reason]
        return PLANNER, f"the plan is ended: {event.result}", [*reason, *problems], ()

    def _on_replan_requested(self, event: events.ReplanRequested) -> EntryParts:
        trigger = event.trigger
        why = f"trigger {trigger.kind}: {trigger.reason}"
        return trigger.step or PLAN, "a reason to change the plan", [why], (trigger.step,)

    def _on_replan_started(self, event: events.ReplanStarted) -> EntryParts:
        about = ", ".join(filter(None, event.steps)) or "the goal"
        return PLANNER, f"request {event.number}, because of {about}", (), event.steps

    def _on_replan_ended(self, event: events.ReplanEnded) -> EntryParts:
        which = f"request {event.number}" if event.number else "no request"
        return PLANNER, f"{which}: {event.result}", [event.reason], event.steps

    def _on_planner_called(self, event: PlannerCalled) -> EntryParts:
        words = [f"fault: {event.fault}" if event.fault else "", spent(event.tokens, event.cost)]
        words += [f"prompt {event.prompt}"] if event.prompt else []
        words += [f"answered: {first_lines(answer)}" for answer in event.answers]
        words += [f"notes: {event.notes}"] if event.notes else []
        whom = f" of {event.planner}" if event.planner else ""
        return PLANNER, f"call {event.number}{whom} took {event.seconds:.2f} s", words, ()

    def _on_handed_on(self, event: events.HandedOn) -> EntryParts:
        text = f"{event.planner} hands on to {event.next_planner}: {event.why.replace('_', ' ')}"
        return PLANNER, text, [event.reason], ()

    def _on_model_charged(self, event: ModelCharged) -> EntryParts | None:
        words = spent(event.tokens or 0, event.cost)
        return (RUN, f"call {event.number} of a model: {words}", (), ()) if words else None

    # People -----------------------------------------------------------------------------------------------

    def _on_question_asked(self, event: events.QuestionAsked) -> EntryParts:
        question = event.question
        self._questions[question.id] = question.text
        why = [f"why: {question.why}" if question.why else "", *question.diff]
        return question.step or PLAN, f"asked: {question.text}", why, (question.step,)

    def _on_question_answered(self, event: events.QuestionAnswered) -> EntryParts:
        asked = self._questions.get(event.question, "")
        answer = event.answer
        text = "the question needs no answer now" if answer is None else f"answered: {answer_words(answer)}"
        details = [f"to: {asked}" if asked else "", self._value(answer), event.reason]
        return event.step or PLAN, text, details, (event.step,)

    def _value(self, answer: Answer | None) -> str:
        if answer is None or answer.value is None:
            return ""
        return f"value: {json.dumps(self._graph.plan.redactor.value(answer.value), ensure_ascii=False)}"


_TELLERS: Final = handlers_of(_Narrator)


def why(event: AttemptEnded | Reviewed | Attempt) -> list[str]:
    """Return the failure of an attempt, the decision about it with its reason, and the usage."""
    outcome, decision = event.outcome, event.decision
    if outcome is None or decision is None:
        return []
    return [*_failure(outcome.failure), *_surprise(outcome), *_shared(outcome), _decision(decision), _spent_by(outcome)]


def _failure(failure: Failure | None) -> list[str]:
    if failure is None:
        return []
    error = f" ({failure.error})" if failure.error and not failure.message.startswith(failure.error) else ""
    details = [f"{failure.kind}: {failure.message}{error}"]
    if failure.where:
        details.append(f"at {failure.where}")
    return [*details, f"answered: {first_lines(failure.answer)}"] if failure.answer else details


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A recorded answer of a model: whole, but at most 64 KiB, and redacted.

    Attributes:
        seq: The number of the record.
        at: Seconds since the start of the run.
        about: The step that the answer belongs to, or `PLANNER`.
        text: The answer.
    """

    seq: int
    at: float
    about: str
    text: str

    def as_dict(self) -> dict[str, Any]:
        """Return the answer as plain JSON."""
        return {"seq": self.seq, "at": self.at, "about": self.about, "text": self.text}


def answers(past: Replayed, step: str | None = None) -> Iterator[RecordedAnswer]:
    """Yield every recorded answer of a model: all of planners, and the failed ones of tools and critics.

    Args:
        past: The run, read from its record.
        step: Yield only answers that belong to this step or its elements; `None` for all.
    """
    for event in past.events:
        about, texts = _answers_in(event)
        if step is None or _is_of(step, about):
            yield from (RecordedAnswer(event.seq, event.at, about, text) for text in texts if text)


def _answers_in(event: Event) -> tuple[str, Sequence[str]]:
    match event:
        case PlannerCalled():
            return PLANNER, event.answers
        case AttemptEnded(step=step, outcome=Outcome(failure=Failure(answer=answer))):
            return step, (answer,)
        case Reviewed():
            failure = event.outcome.failure
            return event.step, (*(verdict.answer for verdict in event.verdicts), failure.answer if failure else "")
        case _:
            return "", ()


def _surprise(outcome: Outcome) -> list[str]:
    return [f"surprising: {outcome.surprise}"] if outcome.surprise else []


def _shared(outcome: Outcome) -> list[str]:
    return [] if outcome.shared is None else [f"shared: {outcome.shared}"]


def _decision(decision: Decision) -> str:
    if decision.recovery is Recovery.PROCEED and not decision.reason:
        return ""
    delay = f" in {decision.delay:.1f} s" if decision.delay else ""
    return f"{RECOVERIES[decision.recovery]}{delay}{': ' if decision.reason else ''}{decision.reason}"


def _spent_by(outcome: Outcome) -> str:
    return spent(outcome.tokens, outcome.cost)


def spent(tokens: int, cost: float | None) -> str:
    """Describe the model usage of a call; empty for none."""
    used = ModelUse()
    used.add(tokens, cost)
    return ", ".join(spending_words(used))


def answer_words(answer: Answer) -> str:
    """Write the answer of a person, with the name and the note of that person."""
    by = f" by {answer.by}" if answer.by else ""
    ticked = f", ticked: {'; '.join(answer.ticked)}" if answer.ticked else ""
    return f"{_CHOICES.get(answer.choice, answer.choice)}{by}{ticked}{': ' if answer.note else ''}{answer.note}"
