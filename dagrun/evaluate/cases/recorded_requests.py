"""What the planner of a recorded run has answered, as cases say it.

1. Answers that were refused are not on record. That they were is, and why.
2. A request that was stopped goes on for ever in a case: nobody knows how long it would have taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.decide.replanning import NO_CONFIDENCE
from dagrun.decide.run_status import UNKNOWN_TOOL
from dagrun.errors import CannotPlan, OverCeiling, Problem
from dagrun.evaluate.cases.case_file import FOREVER
from dagrun.graph.live_graph import LiveGraph
from dagrun.model import event as events
from dagrun.model.event import Event
from dagrun.model.outcome import ErrorKind, Status
from dagrun.model.patch import Add, edit_as_dict
from dagrun.model.question import Answer, Asked

_LAST_WORDS: Final = frozenset((CannotPlan.__name__, OverCeiling.__name__))  # after which it is not asked again
_OWN: Final = frozenset(("coroutine", "thread", "process"))  # executors that every run has
_KINDS: Final = {Status.ESCALATED: "person", Status.OVER_BUDGET: "ceiling"}


def whole_ms(value: float) -> float:
    """Return a duration in whole milliseconds, not more than it was: else it might meet a limit that it kept."""
    return math.floor(value * 1_000 + 1e-6) / 1_000


def just_below(limit: float) -> float:
    """Return the longest duration in whole milliseconds that keeps a limit."""
    return max(0.0, round(whole_ms(limit) - 0.001, 3))


def step_of_case(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without an executor of the host: stand-ins need none."""
    return {name: part for name, part in step.items() if name != "executor" or part in _OWN}


def edit_of_case(edit: Any) -> dict[str, Any]:
    """Return an edit as plain JSON, without executors of the host."""
    return {name: step_of_case(part) if name == "step" else part for name, part in edit_as_dict(edit).items()}


@dataclass(slots=True)
class _RecordedAnswer:
    """A call of the planner: how long it took, what its models used, and why its answer was not used, if it was not."""

    seconds: float
    fault: str
    kind: ErrorKind | None
    error: str
    used: dict[str, Any]
    most: float
    confidence: float | None = None
    refused: str = ""
    problems: Sequence[Problem] = ()  # for which it was refused
    wanted: dict[str, Any] = field(default_factory=dict)  # a step whose tool there is not, for which people go on
    was_handed_on: bool = False
    ends: str = ""  # what the run comes to with it, as in `CannotPlan`
    looked_at: float = 0.0  # seconds in which a person looked at it

    @property
    def message(self) -> str:
        return self.fault.partition(": ")[2] or self.fault

    @property
    def was_late(self) -> bool:
        return self.kind is ErrorKind.TIMEOUT and not self.error

    @property
    def facts(self) -> dict[str, Any]:
        return self._facts(self.seconds + self.looked_at)  # a case asks nobody about a patch that is not on record

    @property
    def facts_of_patch(self) -> dict[str, Any]:
        return self._facts(self.seconds)

    def _facts(self, seconds: float) -> dict[str, Any]:
        # Of a call that was not late, what is beyond its time was spent on waiting for its turn.
        takes = min(whole_ms(seconds), just_below(self.most))
        return ({"takes": takes} if takes else {}) | self.used

    def reply(self) -> dict[str, Any]:
        """Return what stands for an answer after which the planner was asked again; nothing if it did not count."""
        if self.was_handed_on:
            return {}
        if self.was_late or self.kind is ErrorKind.CANCELLED:
            return {"takes": FOREVER, **self.used}
        if self.error in _LAST_WORDS:
            kind = {"kind": self.ends} if self.ends else {}
            return {**self.facts, "fail": self.message, **kind}
        if self.wanted:
            return {**self.facts, "patch": {"edits": [{"op": "add", "step": self.wanted}]}}
        if self.refused:
            return {**self.facts, "refuse": self.refused}
        return {**self.facts, "busy": self.fault} if self.fault else {}


@dataclass(slots=True)
class RecordedRequest:
    """A request to the planner: about which steps, its calls, and what was spliced because of it."""

    about: tuple[str, ...]
    is_draft: bool = False
    calls: list[_RecordedAnswer] = field(default_factory=list)
    edits: list[Any] = field(default_factory=list)
    answer: dict[str, Any] = field(default_factory=dict)
    result: str = ""
    reason: str = ""
    why: str = ""
    more: bool = False
    kind: str = ""
    came: list[float] = field(default_factory=list)
    steps_again: list[Any] = field(default_factory=list)  # which it has written once more, and which were there
    life: int = 0
    was_repeated: bool = False

    def replies(self) -> Iterator[dict[str, Any]]:
        """Yield the replies to its calls, with the fields of a `PlannerReply`."""
        if self.result not in ("", "stopped") and not self.calls and not self.edits:
            return  # it was cut off, and made once more after the run was resumed
        about = [step for step in self.about if step]
        named = {"about": about} if about else {}
        is_open = self.is_cut and not self.edits
        ended = self.calls if is_open else self.calls[:-1]
        yield from (named | reply for call in ended if (reply := call.reply()))
        if not is_open:
            yield named | self._last()
        elif ended and ended[-1].error in _LAST_WORDS:
            return
        elif self.kind and not about:  # for a failed step, only the plan would stay as it is
            yield named | {"fail": self.reason, "kind": self.kind}
        elif not self.was_repeated:
            yield named | {"takes": FOREVER}

    @property
    def is_cut(self) -> bool:
        """Whether the run was stopped, or broke off, before the answer was complete."""
        return self.result in ("", "stopped")

    @property
    def has_failed_amid(self) -> bool:
        """Whether the planner could not continue amid the first plan, and was not asked again."""
        return self.is_draft and bool(self.edits) and (self.result == "failed" or (self.is_cut and self.kind != ""))

    def _last(self) -> dict[str, Any]:
        last = self.calls[-1] if self.calls else None
        if (last is None or last.was_late) and not self.edits:
            return {"takes": FOREVER, **({} if last is None else last.used)}
        has_patch = self.edits or self.answer or self.steps_again
        found: dict[str, Any] = {} if last is None else last.facts_of_patch if has_patch else last.facts
        if self.kind and self.result == "refused" and not self.edits:
            return {**found, "fail": self.reason, "kind": self.kind}  # it asked for a tool that there is not
        if (last is None and self.is_cut and not self.was_repeated) or (last is not None and last.was_late):
            found["takes"] = FOREVER
        if has_patch:
            found |= self._proposal()
        if self.came and (self.result == "refused" or last is None or last.was_late or self.came[0] < last.seconds):
            found["at"] = list(map(whole_ms, self.came))
        if self.more:
            found["more"] = True
        was_used = self.result in ("applied", "unchanged") or (self.is_cut and not self.was_repeated)
        is_denied = self.result == "denied" and self.is_draft and self.edits
        said = last.message if last is not None and last.error in _LAST_WORDS else self.reason or self.result
        if self.has_failed_amid:
            found["fail"] = said
        elif not was_used and not is_denied:  # a person who did not agree to the first plan says so again
            found["refuse" if self.result == "refused" or self.edits else "fail"] = said
        if "fail" in found and self.kind:
            found["kind"] = self.kind
        return found

    def _proposal(self) -> dict[str, Any]:
        confidence = self.calls[-1].confidence if self.calls else None
        sure = {} if confidence is None else {"confidence": confidence}
        if self.is_draft or self.steps_again:
            steps = [edit.step for edit in (self.edits or self.steps_again) if isinstance(edit, Add)]
            dumped = [step_of_case(step.model_dump(mode="json", by_alias=True, exclude_unset=True)) for step in steps]
            return {"plan": {"steps": dumped, **self.answer, **sure}}
        why = {"reason": self.why} if self.why else {}
        return {"patch": {"edits": list(map(edit_of_case, self.edits)), **self.answer, **why, **sure}}


def _has_tool(problem: Problem) -> bool:
    return {"step", "tool"} <= problem.facts.keys()


def _step_of(problem: Problem) -> dict[str, Any]:
    return {"id": problem.facts["step"], "tool": problem.facts["tool"].strip("'")}


class RequestReader:
    """Looks at the requests to the planner of a run, event by event.

    Args:
        graph: The state of the run, after the event that is looked at.

    Attributes:
        was_asked: Whether the planner was asked anything so far.
    """

    def __init__(self, graph: LiveGraph) -> None:
        self.was_asked = False
        self._graph = graph
        self._closed: list[RecordedRequest] = []
        self._used: dict[int, tuple[int | None, float | None]] = {}  # by model call: what it has used, at the most
        self._life = 0
        self._is_asked = False
        self._asked = 0.0  # when it was called last
        self._shown: dict[str, float] = {}  # by question about a patch: when a person was asked
        self._own: set[str] = set()  # questions that the planner asks
        self._requests: dict[int, RecordedRequest] = {}
        self._called: _RecordedAnswer | None = None  # the last call that has ended
        self._first: RecordedRequest | None = None  # about the goal, which has no number

    def all_replies(self) -> list[dict[str, Any]]:
        """Return the replies, with the fields of a `PlannerReply`, at the end of the record."""
        made = [*self._closed, *self._requests.values(), *([] if self._first is None else [self._first])]
        for number, request in enumerate(made):
            later = ((other.about, other.life) for other in made[number + 1 :])
            request.was_repeated = (request.about, request.life) in later
        return [reply for request in made for reply in request.replies()]

    def look(self, event: Event) -> None:
        """Note what an event says of the planner."""
        match event:
            case events.ReplanRequested():
                self.was_asked = True
            case events.DraftStarted():
                self.was_asked = True
                self._first = RecordedRequest((), is_draft=True, life=self._life)
            case events.ReplanStarted():
                self._requests[event.number] = RecordedRequest(event.steps, life=self._life)
            case events.DraftEnded() | events.ReplanEnded():
                self._close(event)
            case events.RunStopping():
                self._note_why(event)
            case events.RunEnded():
                self._life += 1
            case events.QuestionAsked() | events.QuestionAnswered():
                self._look_at_question(event)
            case _:
                self._look_at_answer(event)

    def _look_at_question(self, event: Event) -> None:
        """Note how long people look at its answers, and what they say to a planner that asks them."""
        match event:
            case events.QuestionAsked() if event.question.kind is Asked.PATCH:
                self._shown[event.question.id] = event.at
                if self._called is not None and NO_CONFIDENCE in event.question.text:
                    self._called.confidence = 0.0  # a case asks no model, of which a confidence would be wanted
            case events.QuestionAsked() if not event.question.step and self._is_asked:
                self._own.add(event.question.id)
            case events.QuestionAnswered() if event.question in self._shown and self._called is not None:
                self._called.looked_at += event.at - self._shown[event.question]
            case events.QuestionAnswered(answer=Answer() as answer) if event.question in self._own:
                if answer.choice == "escalate" and self._first is not None:
                    self._first.kind = "person"  # a case does not ask him, and its planner hands the run over

    def _note_why(self, event: events.RunStopping) -> None:
        """Note whether it is for what the planner has said that the run stops, and who goes on."""
        kind, called = _KINDS.get(event.status, ""), self._called
        is_for_tool = event.reason.startswith(UNKNOWN_TOOL)
        closed = self._closed[-1] if self._closed else None
        if closed is not None and closed.reason and (event.reason.endswith(closed.reason) or is_for_tool):
            closed.kind = kind
        if called is None:
            return
        if called.error in _LAST_WORDS and event.reason.endswith(called.message):
            called.ends = kind
        if is_for_tool:
            called.wanted = next(map(_step_of, filter(_has_tool, called.problems)), {})

    def _look_at_answer(self, event: Event) -> None:
        match event:
            case events.PlannerAsked():
                self._is_asked, self._asked = True, event.at
            case events.ModelReserved() if self._is_asked:  # else it is a model that judges
                self._used[event.number] = (event.tokens, event.cost)
            case events.ModelCharged() if event.number in self._used and (event.tokens, event.cost) != (None, None):
                self._used[event.number] = (event.tokens, event.cost)
            case events.PlannerCalled():
                self._is_asked, failure = False, event.failure
                kind, error = (None, "") if failure is None else (failure.kind, failure.error)
                self._called = _RecordedAnswer(
                    event.seconds, event.fault, kind, error, self._usage(), self._most(), event.confidence
                )
                if (request := self._request(event.request)) is not None:  # else it was told to stop, and ended late
                    request.calls.append(self._called)
            case events.PatchRefused() if event.origin == "planner" and self._called is not None:
                self._called.refused = "; ".join(map(str, event.problems))
                self._called.problems = event.problems
            case events.HandedOn() if self._called is not None:
                self._called.was_handed_on = True
            case events.Spliced() if event.origin == "planner":
                request = self._request(event.request)
                assert request is not None, "what is spliced was asked for"
                request.edits += event.edits
                if request.is_draft and self._is_asked:  # else all of it comes at once
                    request.came += [event.at - self._asked] * len(event.edits)
                request.why = event.reason
                request.answer |= {"output": event.output} if event.changes_output else {}

    def _most(self) -> float:
        """Return how long a call of the planner of a case may take."""
        return self._graph.plan.policy.planner_timeout

    def _usage(self) -> dict[str, Any]:
        """Return what the models of the call that has ended have used, with the fields of a `PlannerReply`."""
        used, self._used = [*self._used.values()], {}
        tokens = sum(tokens or 0 for tokens, _ in used)
        costs = [cost for _, cost in used if cost is not None]
        return {**({"tokens": tokens} if tokens else {}), **({"cost": sum(costs)} if costs else {})}

    def _request(self, number: int) -> RecordedRequest | None:
        """Return a request that is open; the one about the goal is opened by what is known of it first."""
        if number:
            return self._requests.get(number)
        if self._first is None and self._graph.stopping is None:
            self._first = RecordedRequest((), life=self._life)
        return self._first

    def _close(self, event: events.DraftEnded | events.ReplanEnded) -> None:
        if isinstance(event, events.ReplanEnded) and event.number:
            request: RecordedRequest | None = self._requests.pop(event.number)
        elif isinstance(event, events.DraftEnded) or "" in event.steps:
            # It is opened by what is known of it, which is nothing if the run was stopped meanwhile.
            request, self._first = self._first or RecordedRequest((), life=self._life), None
        elif event.calls and self._first is not None:  # the goal has changed since, and is asked about anew
            request, self._first = self._first, None
        else:
            request = None  # the planner was not asked
        if request is not None:
            request.result, request.reason, request.more = event.result, event.reason, event.more
            former = self._closed[-1] if self._closed else None
            if former is not None and former.is_draft and former.result == "refused" and event.result == "unchanged":
                request.steps_again = former.edits
            self._closed.append(request)
