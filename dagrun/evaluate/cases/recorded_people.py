"""What people have answered in a recorded run, as cases say it.

1. A stand-in does not ask in the middle of its work: what its tool was told there is in what came of the call.
2. A question that has ended without an answer gets none in a case, either: its reply takes for ever.
3. A run that has waited for answers, or ended in doubt, is resumed as it was: it has several lives. Whether somebody is
   there to be asked may differ from life to life, and is seen from what became of its questions and its failures.
4. If nobody was there in one of them, the people of the case write letters, but where somebody was there again. If
   somebody was there in the first, somebody is always asked. A question that was left open has found nobody.
5. A run that was suspended while it went on is carried out in one piece: questions that were open go on being asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dagrun.decide.questions import may_help
from dagrun.decide.recovery import was_cancelled
from dagrun.decide.run_status import NO_APPROVER
from dagrun.evaluate.cases.case_file import FOREVER, NOBODY
from dagrun.evaluate.cases.recorded_requests import whole_ms
from dagrun.graph.live_graph import LiveGraph
from dagrun.model import event as events
from dagrun.model.event import Event
from dagrun.model.outcome import ErrorKind, Recovery, State, Status
from dagrun.model.question import Answer, Asked, Question

_RECONCILED: Final = "reconcile of "
_YES: Final = ("took_effect", "approve")  # the latter in records of the first releases
_ASKED_ANEW: Final = "it is asked"  # after the run was resumed
_GIVEN_UP: Final = "nobody waits for the answer"  # the planner was stopped, and answers nothing in a case, either


@dataclass(slots=True)
class _Life:
    """A part of a run, from its begin or a resumption to where it was over, or waited.

    Attributes:
        since: When it began.
        was_answered: Whether somebody was there, and has answered.
        may_be_heard: Whether a question was open for some time, or left to its end, as if somebody were there.
        found_nobody: Whether it was left to wait, or did without a person whom it would have asked.
        asks_nobody: Whether it was the latter, so that those who have answered have written letters.
    """

    since: float = 0.0
    was_answered: bool = False
    may_be_heard: bool = False
    found_nobody: bool = False
    asks_nobody: bool = False

    @property
    def has_people(self) -> bool:
        """Whether somebody was there to be asked."""
        return (self.was_answered and not self.asks_nobody) or (self.may_be_heard and not self.found_nobody)


@dataclass(slots=True)
class _AskedQuestion:
    """A question on record.

    Attributes:
        question: The question.
        at: When it was asked.
        life: The number of the life in which it was asked.
        is_inside: Whether a tool has asked it in the middle of its work.
        is_draft: Whether the first plan was written when it was asked.
        end: How it ended; `None` if it has not.
        last_life: The number of the life in which it ended.
        is_lost: Whether a case does not ask it: it is about a patch that is not on record.
    """

    question: Question
    at: float
    life: int
    is_inside: bool
    is_draft: bool
    end: events.QuestionAnswered | None = None
    last_life: int = 0
    is_lost: bool = False

    @property
    def answer(self) -> Answer | None:
        """The answer, if there was one."""
        return None if self.end is None or self.end.reason else self.end.answer


class PeopleReader:
    """Looks at the questions of a run, event by event.

    Args:
        graph: The state of the run, after the event that is looked at.

    Attributes:
        asked_inside: Whether a tool has asked a person in the middle of its work.
        missing: What is not on record, in words.
        handed_over_inside: The steps whose tools asked in the middle of their work, where a person handed the run over.
        is_waiting: Whether the run is suspended, and waits for answers.
    """

    def __init__(self, graph: LiveGraph) -> None:
        self.asked_inside = False
        self.missing: list[str] = []
        self.handed_over_inside: list[str] = []
        self.is_waiting = False
        self._graph = graph
        self._asked: list[_AskedQuestion] = []
        self._open: dict[str, _AskedQuestion] = {}
        self._lives = [_Life()]
        self._is_plan_lost = False  # whether the last question was about a plan that is not on record
        self._agreed: _AskedQuestion | None = None  # about a patch of which it is not yet known whether it was used

    @property
    def questions(self) -> list[Question]:
        """The questions that were asked."""
        return [asked.question for asked in self._asked]

    # What happens -----------------------------------------------------------------------------------------

    def look(self, event: Event) -> None:
        """Note whether the run waits, and what it does without a person."""
        match event:
            case events.RunSuspended() if event.status is Status.WAITING:
                self.is_waiting = self._lives[-1].found_nobody = True
            case events.RunResumed():
                self.is_waiting = False
            case events.RunStopping() if event.status is Status.WAITING and self._is_plan_lost:
                self.missing.append("the plan to which nobody has agreed")
            case events.PatchRefused() | events.ReplanEnded() if self._agreed is not None:
                is_used = isinstance(event, events.ReplanEnded) and (event.result == "applied" or not event.number)
                self._agreed.is_lost, self._agreed = not is_used, None

    def live_again(self, at: float) -> None:
        """Begin another life: the case resumes the run, too."""
        self._lives.append(_Life(at))

    def see_decision(self, event: events.AttemptEnded) -> None:
        """Note whether a person would have been asked about a failure, had there been one."""
        node, failure = self._graph.nodes[event.step], event.outcome.failure
        if failure is None or was_cancelled(event.outcome) or event.decision.recovery in (Recovery.ASK, Recovery.RETRY):
            return
        if event.outcome.state is State.UNKNOWN:
            effect = node.called(node.attempts[-1].tool).effect
            is_first = len(node.attempts) == 1  # nobody is asked once more when as many as may be were made
            is_for_people = is_first and not effect.may_repeat and node.plan.step.on_failure != "stop"
        else:
            is_open = event.decision.recovery is Recovery.REPLAN and not node.is_in_doubt
            is_for_people = is_open and failure.kind in (ErrorKind.MISSING_INPUT, ErrorKind.PERMISSION)
        rule = node.plan.step.retry or self._graph.plan.policy.retry
        if is_for_people and may_help(node, event.outcome, rule.max_attempts):
            self._lives[-1].found_nobody = self._lives[-1].asks_nobody = True

    def ask(self, event: events.QuestionAsked, *, is_inside: bool) -> None:
        """Note a question."""
        asked = _AskedQuestion(event.question, event.at, len(self._lives) - 1, is_inside, self._graph.is_drafting)
        self._open[event.question.id] = asked
        self._asked.append(asked)
        self.asked_inside = self.asked_inside or is_inside

    def answer(self, event: events.QuestionAnswered) -> float:
        """Note how a question has ended; return the seconds that a tool has waited for it in the middle of its work."""
        asked = self._open.pop(event.question)
        asked.end, asked.last_life = event, len(self._lives) - 1
        answer, life = asked.answer, self._lives[-1]
        if answer is not None and not answer.by.startswith(_RECONCILED):
            life.was_answered = life.was_answered or asked.life == asked.last_life or event.at > life.since
            if event.hides_value and not asked.is_inside:
                self.missing.append(f"the value that a person gave for step {asked.question.step}")
        elif not event.reason.startswith(NO_APPROVER) and not self._can_reconcile(asked):
            life.may_be_heard = True
        is_patch = asked.question.kind is Asked.PATCH
        is_draft, choice = asked.is_draft, "" if answer is None else answer.choice
        asked.is_lost = is_patch and not is_draft and choice != "approve"
        self._is_plan_lost = is_patch and not (is_draft and self._graph.nodes)
        if choice == "escalate" and self._is_plan_lost:
            self.missing.append("the patch about which a person has handed the run over")
        if choice == "escalate" and asked.is_inside:
            self.handed_over_inside.append(asked.question.step)
        self._agreed = asked if is_patch and not is_draft and choice == "approve" else self._agreed
        return event.at - self._since(asked) if asked.is_inside else 0.0

    def _can_reconcile(self, asked: _AskedQuestion) -> bool:
        """Whether the tool is asked first, and so perhaps nobody else."""
        question = asked.question
        return question.kind is Asked.EFFECT and self._graph.plan.toolbox[question.tool].reconcile is not None

    def _since(self, asked: _AskedQuestion) -> float:
        """Return when a question was asked for the last time."""
        return max(asked.at, self._lives[asked.last_life].since)

    # What cases say ---------------------------------------------------------------------------------------

    @property
    def by_letters(self) -> bool:
        """Whether people answer by letters, rule 4."""
        return any(life.found_nobody for life in self._lives) and not self._lives[0].has_people

    @property
    def come_after_a_planner(self) -> bool:
        """Whether there was a planner: without one, the run would have waited for letters that could help."""
        return any(life.asks_nobody for life in self._lives)

    def resumptions(self) -> Iterator[bool]:
        """Yield of each resumption whether people are to be asked from then on, though they write letters."""
        yield from (self.by_letters and life.has_people for life in self._lives[1:])

    def replies(self) -> dict[str, list[dict[str, Any]]] | None:
        """Return the fields of a `PersonReply` each, by step or kind of question; `None` if there was nobody to ask."""
        if not self.by_letters and not any(life.has_people for life in self._lives):
            return None
        found: dict[str, list[dict[str, Any]]] = {}
        for number in range(len(self._lives)):
            for asked in self._asked:
                if not asked.is_inside and not asked.is_lost and (reply := self._reply(asked, number)) is not None:
                    named = found.setdefault(asked.question.step or str(asked.question.kind), [])
                    named.append({**reply, "kind": str(asked.question.kind)})
        by_name = {name: _without_unheard(told) for name, told in found.items()}
        return {name: told for name, told in by_name.items() if any(reply.get("choice") != NOBODY for reply in told)}

    def _reply(self, asked: _AskedQuestion, number: int) -> dict[str, Any] | None:
        """Return what is said of a question in one life of the run; `None` if nobody is asked."""
        if not self._is_open_in(asked, number):
            return None
        answer = asked.answer
        if asked.end is None or number < asked.last_life:
            return {"choice": NOBODY}
        if answer is None or answer.by.startswith(_RECONCILED):
            return self._no_reply(asked, answer)
        facts = {"value": answer.value, "takes": whole_ms(asked.end.at - self._since(asked)), "note": answer.note}
        told = {name: fact for name, fact in facts.items() if fact not in (None, 0.0, "")}
        return {"choice": answer.choice, **told}

    def _is_open_in(self, asked: _AskedQuestion, number: int) -> bool:
        return asked.life <= number and (asked.end is None or number <= asked.last_life)

    def _no_reply(self, asked: _AskedQuestion, answer: Answer | None) -> dict[str, Any] | None:
        assert asked.end is not None
        if answer is not None or asked.end.reason.startswith((_ASKED_ANEW, _GIVEN_UP)):
            return None
        if asked.end.reason.startswith(NO_APPROVER):
            return {"choice": NOBODY}
        if asked.end.at > self._since(asked):
            return {"takes": FOREVER}
        return None if asked.last_life > asked.life else {"takes": FOREVER, "unheard": True}

    def reconciled(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Return what tools said of calls in doubt, by tool and step, with the fields of a `ReconcileReply`."""
        found: dict[str, dict[str, list[dict[str, Any]]]] = {}
        for number in range(len(self._lives)):
            for asked in self._asked:
                if self._can_reconcile(asked) and self._is_open_in(asked, number):
                    said = found.setdefault(asked.question.tool, {}).setdefault(asked.question.step, [])
                    said += self._said(asked, number)
        return found

    def _said(self, asked: _AskedQuestion, number: int) -> Iterator[dict[str, Any]]:
        """Yield what a tool said of a call in one life; it did not know if somebody else was asked."""
        if asked.end is None or number < asked.last_life:
            yield {"unknown": True}
            return
        seconds, answer = whole_ms(asked.end.at - self._since(asked)), asked.answer
        if answer is not None and answer.by.startswith(_RECONCILED):
            known = {"applied": answer.value} if answer.choice in _YES else {"not_applied": True}
            yield known | ({"takes": seconds} if seconds else {})
        elif answer is not None or asked.end.reason.startswith(NO_APPROVER):
            yield {"unknown": True}
        elif seconds:
            yield {"takes": FOREVER}


def _without_unheard(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out the replies to questions that nobody may have heard, or they answer the next one; the last goes on."""
    kept = [reply for number, reply in enumerate(told, 1) if number == len(told) or "unheard" not in reply]
    return [{name: part for name, part in reply.items() if name != "unheard"} for reply in kept]
