"""The outcomes from outside in the last session of a run, by key.

1. Tools are found by step and attempt, the planner by request, people by the id of the question.
2. A run that was resumed is played from its last resumption on. What is on record before that is what it resumes from.
   A retry is played from behind the outputs that it took over.
3. What the host did has no key: it is done at its place in the record.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dagrun.errors import Problem
from dagrun.kernel.decide.run_status import NO_APPROVER, NO_PLAN_NOR_PLANNER, NO_PLANNER
from dagrun.kernel.model import event as events
from dagrun.kernel.model.event import Event, Opening
from dagrun.kernel.model.outcome import ErrorKind, Outcome, Recovery, State, Status
from dagrun.kernel.model.patch import Add
from dagrun.kernel.model.planner import HandOn
from dagrun.kernel.model.question import Asked, Question
from dagrun.kernel.model.toolbox import COMPOSE

RECONCILED: Final = "reconcile of "
_TAKEN_OVER: Final = "taken over from run "
_TRIES: Final = 2  # of a planner of a fallback chain, by default
_ENDS: Final = {Status.ESCALATED: "person", Status.OVER_BUDGET: "ceiling"}


@dataclass(slots=True)
class PlayedCall:
    """A call of a tool.

    Attributes:
        began: Its begin.
        ended: Its end; `None` if that is not on record.
        confidence: How sure it was of its output; `None` if it did not say.
        questions: What it asked people in the middle of its work.
    """

    began: events.AttemptStarted
    ended: events.AttemptEnded | None = None
    confidence: float | None = None
    questions: list[events.QuestionAsked] = field(default_factory=list)


@dataclass(slots=True)
class RecordedReply:
    """A call of the planner, and its answer.

    Attributes:
        asked: Its begin.
        called: Its end; `None` if that is not on record.
        splices: What was applied of the answer.
        problems: Why the answer was refused.
        charges: The reservations for its models, by number, and what they used.
        handed_on: Set if the next planner of a fallback chain was asked then.
        end: The end of the request; `None` if the planner was asked again, or there is none.
        is_asked_again: Whether the planner was asked the same again.
        kind: Who goes on if the planner cannot, as in `CannotPlan`.
    """

    asked: events.PlannerAsked
    called: events.PlannerCalled | None = None
    splices: list[events.Spliced] = field(default_factory=list)
    problems: tuple[Problem, ...] = ()
    charges: dict[int, tuple[events.ModelReserved, events.ModelCharged | None]] = field(default_factory=dict)
    handed_on: events.HandedOn | None = None
    end: events.DraftEnded | events.ReplanEnded | None = None
    is_asked_again: bool = False
    kind: str = "cannot"

    @property
    def early(self) -> list[events.Spliced]:
        """The steps that were applied while the planner still wrote."""
        return [one for one in self.splices if self.called is None or one.seq < self.called.seq]


@dataclass(slots=True)
class HostAction:
    """An action of the host; *event* is its place in the record.

    Attributes:
        event: What came of it: a splice, a new goal, a suspension, or the end of the run, a step or a call.
        step: The step that was cancelled; empty for the whole run.
        reason: The reason.
    """

    event: Event
    step: str = ""
    reason: str = ""

    @property
    def is_change(self) -> bool:
        """Whether it changed the plan or the goal."""
        return isinstance(self.event, events.Spliced | events.GoalChanged)


class RecordedOutcomes:
    """The outcomes from outside in the last session of a run.

    Args:
        recorded: All events of the run.

    Attributes:
        first: What the run was opened with.
        opening: What its last session was opened with.
        before: The events before the session, rule 2.
        events: The events of the session.
        calls: The calls of tools, by step and attempt.
        replies: The answers of the planner, in order, by request; 0 for the first plan, or more of one.
        requests: The steps that each request is about.
        cut: The answers that had not ended when the record did.
        rungs: The planners of a fallback chain, by name: how many of the answers of each were refused before the next.
        reviews: The reviews of outputs.
        reviewed: The steps whose outputs were reviewed, elements by their for_each.
        questions: The questions, by id; also those that were open when the session began.
        answers: The ends of questions, by id.
        host_actions: What the host did.
        has_planner: Whether there was a planner.
        has_people: Whether there was somebody to ask.
        composes: Whether the run composed its answer.
    """

    def __init__(self, recorded: Sequence[Event]) -> None:
        started = (event for event in recorded if isinstance(event, events.RunStarted | events.RunResumed))
        openings: list[Opening] = [event.opening for event in started if event.opening is not None]
        self.first, self.opening = openings[0], openings[-1]
        start = _start(recorded, self.first)
        self.before, self.events = recorded[:start], recorded[start:]
        self.requests: dict[int, frozenset[str]] = {0: frozenset(("",))}
        self.rungs: dict[str, int] = {}
        self._open: dict[str, Question] = {}
        self.has_planner = not self.first.plan.steps
        self.composes = False
        self._not_cancelled: set[str] = set()  # steps that end because of a splice, or with their elements
        self._is_over = False  # the run is being stopped: what ends now, ends because of that
        self._begin()
        for place, event in enumerate(recorded):
            if place == start:
                self._begin()
            self._look(event)
        self.has_planner = self.has_planner and not self._is_alone

    def _begin(self) -> None:
        """Begin a session, without outcomes yet."""
        self.calls: dict[tuple[str, int], PlayedCall] = {}
        self.replies: dict[int, list[RecordedReply]] = defaultdict(list)
        self.cut: list[RecordedReply] = []
        self.reviews: list[events.Reviewed] = []
        self.reviewed: set[str] = set()
        self.questions = dict(self._open)
        self.answers: dict[str, list[events.QuestionAnswered]] = defaultdict(list)
        self.host_actions: list[HostAction] = []
        self._running: dict[str, PlayedCall] = {}
        self._last: RecordedReply | None = None
        self._is_alone = False  # it goes on without its planner

    @property
    def has_people(self) -> bool:
        """Whether a person could be asked: a question was open, and neither left open nor closed for lack of one."""
        ends = [end for told in self.answers.values() for end in told]
        last = self.events[-1] if self.events else None
        waits = isinstance(last, events.RunSuspended) and last.status is Status.WAITING
        return bool(self.questions) and not waits and not any(end.reason.startswith(NO_APPROVER) for end in ends)

    def _look(self, event: Event) -> None:
        match event:
            case events.AttemptStarted():
                self._running[event.step] = self.calls[event.step, event.attempt] = PlayedCall(event)
            case events.ConfidenceReported():
                self._running[event.step].confidence = event.confidence
            case events.AttemptEnded():
                self._end_call(event)
            case events.Reviewed():
                self.reviews.append(event)
                if not event.verdicts:
                    self._note_cancelled(event.step, event.outcome, event)
            case events.QuestionAsked():
                self.questions[event.question.id] = self._open[event.question.id] = event.question
                if event.question.kind is Asked.INPUT and (call := self._running.get(event.question.step)) is not None:
                    call.questions.append(event)
            case events.QuestionAnswered():
                self.answers[event.question].append(event)
                self._open.pop(event.question, None)
            case _:
                self._look_at_planner(event)
                self._look_at_host(event)

    def _end_call(self, event: events.AttemptEnded) -> None:
        call = self._running.pop(event.step, None)
        if event.decision.recovery is Recovery.REVIEW:
            self.reviewed.add(event.step.partition("[")[0])
        if call is not None:  # else it was cut off before the session, and its end was made up for
            call.ended = event
            self._note_cancelled(event.step, event.outcome, event)

    # The host ---------------------------------------------------------------------------------------------

    def _note_cancelled(self, step: str, outcome: Outcome, event: Event) -> None:
        failure = outcome.failure
        is_cancelled = outcome.state is State.CANCELLED or (failure is not None and failure.kind is ErrorKind.CANCELLED)
        if is_cancelled and not self._is_over and step not in self._not_cancelled:
            self.host_actions.append(HostAction(event, step, "" if failure is None else failure.message))

    def _note_splice(self, event: events.Spliced) -> None:
        self._not_cancelled.update(event.consequence.dropped, event.consequence.replaced)
        self.composes = self.composes or any(
            isinstance(edit, Add) and edit.step.tool == COMPOSE for edit in event.edits
        )

    def _look_at_host(self, event: Event) -> None:
        match event:
            case events.Spliced():
                self._note_splice(event)
                if event.origin == "host" and not _composes(event):  # which the run adds by itself
                    self.host_actions.append(HostAction(event, reason=event.reason))
            case events.GoalChanged():
                self.host_actions.append(HostAction(event))
            case events.RunSuspended() | events.RunStopping() if event.status is Status.CANCELLED:
                self.host_actions.append(HostAction(event, reason=event.reason))
            case events.StepExpanded():
                self._not_cancelled.add(event.step)
            case events.StepSettled() if event.state is State.CANCELLED and not event.cause:
                self._note_cancelled(event.step, Outcome(event.state, None, event.failure), event)
                if self.host_actions and self.host_actions[-1].event is event:
                    self.host_actions[-1].reason = event.reason
        if isinstance(event, events.RunStopping | events.RunReopened):
            self._is_over = isinstance(event, events.RunStopping)

    # The planner ------------------------------------------------------------------------------------------

    def _latest(self, request: int) -> RecordedReply | None:
        return self.replies[request][-1] if self.replies[request] else None

    def _look_at_planner(self, event: Event) -> None:
        match event:
            case events.ReplanStarted():
                self.requests[event.number] = frozenset(event.steps)
            case events.PlannerAsked():
                self.cut.append(RecordedReply(event))
                if event.planner:
                    self.rungs.setdefault(event.planner, _TRIES)
            case events.ModelReserved() if self.cut:
                self.cut[-1].charges[event.number] = (event, None)
            case events.ModelCharged():
                for reply in (one for one in self.cut if event.number in one.charges):
                    reply.charges[event.number] = (reply.charges[event.number][0], event)
            case events.PlannerCalled():
                self._end_reply(event)
            case events.Spliced() if event.origin == "planner":
                answer = self.cut[-1] if self.cut and not event.request else self._latest(event.request)
                if answer is not None:
                    answer.splices.append(event)
            case _:
                self._look_at_answer(event)
        self.has_planner = self.has_planner or isinstance(event, events.ReplanRequested)

    def _look_at_answer(self, event: Event) -> None:
        """Note the result of an answer of the planner."""
        match event:
            case events.PatchRefused() if event.origin == "planner" and self._last is not None:
                self._last.problems = self._last.problems or event.problems
            case events.HandedOn():
                self._hand_on(event)
            case events.DraftEnded() | events.ReplanEnded():
                reply = self._latest(event.number if isinstance(event, events.ReplanEnded) else 0)
                if reply is not None and reply.end is None:
                    reply.end = event
                    reply.problems = event.problems if isinstance(event, events.DraftEnded) else reply.problems
                self._is_alone = self._is_alone or event.reason == NO_PLANNER
            case events.RunStopping():
                for reply in (told[-1] for told in self.replies.values() if told):
                    reply.kind = _ENDS.get(event.status, reply.kind)
                self._is_alone = self._is_alone or event.reason == NO_PLAN_NOR_PLANNER

    def _end_reply(self, event: events.PlannerCalled) -> None:
        before = self._latest(event.request)
        if before is not None and not before.problems and before.end is None and before.handed_on is None:
            before.is_asked_again = True
        self._last = reply = next(one for one in self.cut if one.asked.number == event.number)
        self.cut.remove(reply)
        reply.called = event
        self.replies[event.request].append(reply)

    def _hand_on(self, event: events.HandedOn) -> None:
        self.rungs.setdefault(event.next_planner, _TRIES)
        told = self.replies[event.request]
        if event.why is HandOn.INVALID:
            own = [one for one in told if one.called is not None and one.called.planner == event.planner]
            self.rungs[event.planner] = sum(bool(one.problems) for one in own)
        elif told:
            told[-1].handed_on = event


def _start(recorded: Sequence[Event], first: Opening) -> int:
    """Return the place of the first event of the last session, rule 2."""
    resumed = [place for place, event in enumerate(recorded) if isinstance(event, events.RunResumed)]
    if resumed or not first.parent:
        return resumed[-1] if resumed else 0
    begun = next((place for place, event in enumerate(recorded) if isinstance(event, events.AttemptStarted)), None)
    settled = [place for place, event in enumerate(recorded[:begun]) if isinstance(event, events.StepSettled)]
    return 1 + next((place for place in reversed(settled) if _is_taken_over(recorded[place])), 0)


def _is_taken_over(event: Event) -> bool:
    return isinstance(event, events.StepSettled) and event.reason.startswith(_TAKEN_OVER)


def _composes(event: events.Spliced) -> bool:
    return any(isinstance(edit, Add) and edit.step.tool == COMPOSE for edit in event.edits)
