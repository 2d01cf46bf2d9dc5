"""What people have answered in a recorded run, as cases say it.

1. A stand-in does not ask in the middle of its work: what its tool was told there is in what came of the call.
2. A question that has ended without an answer gets none in a case, either: its reply takes for ever.
3. A run that has waited for answers waits again, and is resumed as it was. If people have answered only in between,
   they answer by letters; else a question that was left open has found nobody, once for each time that it was asked.
4. A run that was suspended while it went on is carried out in one piece: questions that were open go on being asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dagrun.decide.run_status import NO_APPROVER
from dagrun.evaluate.cases.case_file import FOREVER, NOBODY
from dagrun.evaluate.cases.recorded_requests import whole_ms
from dagrun.graph.live_graph import LiveGraph
from dagrun.model import event as events
from dagrun.model.event import Event
from dagrun.model.outcome import Status
from dagrun.model.question import Answer, Asked, Question

_RECONCILED: Final = "reconcile of "
_ASKED_ANEW: Final = "it is asked"  # after the run was resumed
_GIVEN_UP: Final = "nobody waits for the answer"  # the planner was stopped, and answers nothing in a case, either


_NEVER: Final[dict[str, Any]] = {"takes": FOREVER}
_NOT_AT_ONCE: Final[dict[str, Any]] = {"takes": FOREVER, "unheard": True}  # nobody may have heard a question so short


@dataclass(slots=True)
class _AskedQuestion:
    """A question on record.

    Attributes:
        question: The question.
        since: When it was asked; or when the run was resumed that had waited for its answer.
        is_inside: Whether a tool has asked it in the middle of its work.
        waits: How often the run has waited for its answer.
    """

    question: Question
    since: float
    is_inside: bool
    waits: int = 0


class PeopleReader:
    """Looks at the questions of a run, event by event.

    Args:
        graph: The state of the run, after the event that is looked at.

    Attributes:
        questions: The questions that were asked.
        asked_inside: Whether a tool has asked a person in the middle of its work.
        reconcile: What tools said of calls in doubt, by tool and step, with the fields of a `ReconcileReply`.
        missing: What is not on record, in words.
        is_waiting: Whether the run is suspended, and waits for answers.
    """

    def __init__(self, graph: LiveGraph) -> None:
        self.questions: list[Question] = []
        self.asked_inside = False
        self.reconcile: dict[str, dict[str, list[dict[str, Any]]]] = {}
        self.missing: list[str] = []
        self.is_waiting = False
        self._graph = graph
        self._open: dict[str, _AskedQuestion] = {}
        self._present: dict[str, list[dict[str, Any]]] = {}  # replies of people who are asked while the run goes on
        self._letters: dict[str, list[dict[str, Any]]] = {}  # replies of people who answer while it waits
        self._has_waited = False
        self._was_answered = False  # while it went on
        self._could_ask = False

    @property
    def by_letters(self) -> bool:
        """Whether nobody has answered but when the run waited for it."""
        return self._has_waited and not self._was_answered

    def replies(self) -> dict[str, list[dict[str, Any]]] | None:
        """Return the fields of a `PersonReply` each, by step or kind of question; `None` if there was nobody to ask."""
        found = self._letters if self.by_letters else self._present
        if not (self._could_ask or self.by_letters):
            return None
        by_name = {name: _without_unheard(told) for name, told in found.items()}
        return {name: told for name, told in by_name.items() if any(reply.get("choice") != NOBODY for reply in told)}

    def look(self, event: Event) -> None:
        """Note whether the run waits."""
        match event:
            case events.RunSuspended() if event.status is Status.WAITING:
                self._has_waited = self.is_waiting = True
                for asked in self._open.values():
                    asked.waits += 1
                    self._reply(self._present, asked, {"choice": NOBODY})
            case events.RunResumed() if self.is_waiting:
                self.is_waiting = False
                for asked in self._open.values():
                    asked.since = event.at

    def ask(self, event: events.QuestionAsked, *, is_inside: bool) -> None:
        """Note a question."""
        question = event.question
        self._open[question.id] = _AskedQuestion(question, event.at, is_inside)
        self.questions.append(question)
        self.asked_inside = self.asked_inside or is_inside

    def answer(self, event: events.QuestionAnswered) -> float:
        """Note how a question has ended; return the seconds that a tool has waited for it in the middle of its work."""
        asked = self._open.pop(event.question)
        answer = None if event.reason else event.answer
        self._note_what_the_tool_said(asked, event, answer)
        self._note_who_was_there(asked, event, answer)
        if asked.is_inside:
            return event.at - asked.since
        if answer is None:  # in time, or at all
            self._left_open(asked, event)
        elif not answer.by.startswith(_RECONCILED):
            self._answered(asked, event, answer)
        return 0.0

    def _note_what_the_tool_said(
        self, asked: _AskedQuestion, event: events.QuestionAnswered, answer: Answer | None
    ) -> None:
        """Note what came of a question that is put to the tool first; it did not know if somebody else was asked."""
        seconds, question = whole_ms(event.at - asked.since), asked.question
        if question.kind is not Asked.EFFECT or self._graph.plan.toolbox[question.tool].reconcile is None:
            return
        said = self.reconcile.setdefault(question.tool, {}).setdefault(question.step, [])
        if answer is not None and answer.by.startswith(_RECONCILED):
            takes = {"takes": seconds} if seconds else {}
            known = {"applied": answer.value} if answer.choice == "approve" else {"not_applied": True}
            said.append(known | takes)
        elif answer is not None or event.reason.startswith(NO_APPROVER):
            said += [{"unknown": True}] * (1 + asked.waits)
        else:
            said += [{"unknown": True}] * asked.waits
            if seconds:
                said.append({"takes": FOREVER})

    def _note_who_was_there(self, asked: _AskedQuestion, event: events.QuestionAnswered, answer: Answer | None) -> None:
        question = asked.question
        if answer is not None and not answer.by.startswith(_RECONCILED):
            self._could_ask = True
            self._was_answered = self._was_answered or not asked.waits or event.at > asked.since
        elif question.kind is Asked.PATCH:  # it is asked whether or not there is anybody
            self._could_ask = self._could_ask or not event.reason.startswith(NO_APPROVER)
        elif question.kind is not Asked.EFFECT or self._graph.plan.toolbox[question.tool].reconcile is None:
            self._could_ask = True

    def _left_open(self, asked: _AskedQuestion, event: events.QuestionAnswered) -> None:
        for _ in range(asked.waits):
            self._reply(self._letters, asked, {"choice": NOBODY})
        if event.reason.startswith(NO_APPROVER):
            self._reply(self._present, asked, {"choice": NOBODY})
        elif not event.reason.startswith((_ASKED_ANEW, _GIVEN_UP)):
            self._reply(self._present, asked, _NEVER if event.at > asked.since else _NOT_AT_ONCE)

    def _answered(self, asked: _AskedQuestion, event: events.QuestionAnswered, answer: Answer) -> None:
        if event.hides_value:
            self.missing.append(f"the value that a person gave for step {asked.question.step}")
        facts = {"value": answer.value, "note": answer.note}
        told = {"choice": answer.choice, **{name: fact for name, fact in facts.items() if fact not in (None, "")}}
        takes = whole_ms(event.at - asked.since)
        self._reply(self._present, asked, {**told, **({"takes": takes} if takes else {})})
        for _ in range(asked.waits - 1):
            self._reply(self._letters, asked, {"choice": NOBODY})
        self._reply(self._letters, asked, told)

    def _reply(self, replies: dict[str, list[dict[str, Any]]], asked: _AskedQuestion, reply: dict[str, Any]) -> None:
        question = asked.question
        is_lost = question.kind is Asked.PATCH and reply.get("choice") != "approve" and not self._graph.is_drafting
        if not asked.is_inside and not is_lost:  # a patch to which nobody has agreed is not on record
            named = replies.setdefault(question.step or str(question.kind), [])
            named.append({**reply, "kind": str(question.kind)})


def _without_unheard(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the replies to questions that nobody may have heard, or they answer the next one; the last goes on."""
    kept = [reply for number, reply in enumerate(told, 1) if number == len(told) or "unheard" not in reply]
    return [{name: part for name, part in reply.items() if name != "unheard"} for reply in kept]
