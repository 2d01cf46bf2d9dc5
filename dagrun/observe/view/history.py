"""Time spans from the rare events of a run: questions, requests to the planner, pauses, reviews.

The nodes of a graph know when their calls began and ended. Everything else that explains why a step waited is in
`LiveGraph.rare`, from which `History` reads it, once, also while the run goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dagrun import events
from dagrun.events import Event, HandedOn, PlannerCalled, QuestionAnswered, QuestionAsked
from dagrun.kernel.graph.changes import GOAL
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.question import Answer, Asked, Question

FOREVER: Final = float("inf")


@dataclass(slots=True)
class Span:
    """A stretch of time, in seconds since the start of the run; it ends at `FOREVER` while it lasts."""

    start: float
    end: float = FOREVER


@dataclass(slots=True)
class PastQuestion:
    """A question to a person, and its end."""

    question: Question
    open: Span
    answer: Answer | None = None
    why_void: str = ""


@dataclass(slots=True)
class PlannerWork:
    """One request to the planner, from its beginning to its end."""

    kind: str
    number: int
    at: Span
    steps: tuple[str, ...] = ()
    result: str = ""
    reason: str = ""
    calls: list[PlannerCalled] = field(default_factory=list)
    handed_on: dict[int, HandedOn] = field(default_factory=dict)  # by the number of the call after which it happened


@dataclass(slots=True)
class ReplanWait:
    """The time in which the steps behind *step* waited for the planner."""

    step: str
    at: Span


@dataclass(slots=True)
class Pause:
    """A suspension of the run: its time in the run, and its beginning and end in seconds since 1970."""

    at: float
    began: float
    ended: float | None = None


@dataclass(slots=True)
class Origins:
    """Which revisions have brought and removed steps.

    Attributes:
        brought: The revision that has brought a step, and its time, by id; the first plan is missing.
        removed: The revision that has removed a step, by id.
    """

    brought: dict[str, tuple[int, float]] = field(default_factory=dict)
    removed: dict[str, int] = field(default_factory=dict)

    def read(self, graph: LiveGraph, first: int) -> int:
        """Take in the revisions of *graph* from number *first* on; return how many there are."""
        for revision in graph.revisions[first:]:
            did = revision.consequence
            self.brought.update(dict.fromkeys(did.added, (revision.number, revision.at)))
            self.removed.update(dict.fromkeys((*did.dropped, *did.replaced), revision.number))
        return len(graph.revisions)


class History:
    """The history of one run from its rare events. Call `read` to add new ones.

    Args:
        graph: The state of the run.

    Attributes:
        run_id: The id of the run; empty if there is no event yet.
        opening: What the run was opened with; `None` if its first event does not say.
        began: When it began, in seconds since 1970.
        ended: When it ended or was suspended for the last time, in seconds since its start; `None` if it goes on.
        seq: The number of the last rare event.
        last: The time of the last rare event.
        questions: The questions, by id, in the order in which they were asked first.
        planner: The planner's work.
        held: The times in which steps of the first plan were held back until it was complete.
        frozen: The times in which no step could start, because there was no valid plan for the goal.
        replans: The times in which steps waited for the planner.
        pauses: The times in which the run was suspended.
        triggers: The step because of which the planner was asked, by the revision that resulted.
        answers: The planner's work that a revision came of, by that revision.
        origins: Which revisions have brought and removed steps.
    """

    def __init__(self, graph: LiveGraph) -> None:
        self._graph = graph
        self._read = self._revisions = 0
        self._zero = 0.0  # the start of the run on the clock of day, later by each pause
        self.run_id = ""
        self.opening: Opening | None = None
        self.began: float | None = None
        self.ended: float | None = None
        self.seq = 0
        self.last = 0.0
        self.questions: dict[str, PastQuestion] = {}
        self.planner: list[PlannerWork] = []
        self.held: list[Span] = []
        self.frozen: list[Span] = []
        self.replans: list[ReplanWait] = []
        self.pauses: list[Pause] = []
        self.triggers: dict[int, str] = {}
        self.answers: dict[int, PlannerWork] = {}
        self.origins = Origins()
        self._asked: dict[str, list[PastQuestion]] = {}
        self._reviewed: dict[str, list[float]] = {}

    def read(self) -> None:
        """Take in the events since the last call."""
        rare = self._graph.rare
        for event in rare[self._read :]:
            self.seq, self.last = max(self.seq, event.seq), max(self.last, event.at)
            self._take(event)
        self._read = len(rare)
        self._revisions = self.origins.read(self._graph, self._revisions)

    def clock(self, at: float) -> float | None:
        """Return the time of day of a moment of the run, in seconds since 1970; `None` if the start is not known."""
        return None if self.began is None else self._zero + at

    def asked_about(self, step: str) -> list[PastQuestion]:
        """Return the questions about *step*; an empty id means the run."""
        return self._asked.get(step, [])

    def end_of(self, node: Node) -> float | None:
        """Return when a step has ended; `None` if it has not."""
        if not node.state.is_settled:
            return None
        if node.ended is not None:
            return node.ended.at
        if node.latest is None:
            return self._left_plan(node)
        ended = node.latest.ended
        return None if ended is None else self.reviewed_after(node.id, ended)

    def reviewed_after(self, step: str, at: float) -> float:
        """Return when the output of a call that ended at *at* had been reviewed; *at* itself, if it was not."""
        return max(at, *self._reviewed[step]) if step in self._reviewed else at

    def _left_plan(self, node: Node) -> float | None:
        gone = node.extra is not None and node.extra.is_gone and node.state is State.SUPERSEDED
        return self._graph.revisions[-1].at if gone and self._graph.revisions else None

    # Events -----------------------------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        match event:
            case QuestionAsked() | QuestionAnswered():
                self._take_question(event)
            case events.DraftStarted() | events.DraftEnded() | events.GoalChanged():
                self._take_draft(event)
            case events.ReplanRequested() | events.ReplanStarted() | events.ReplanEnded() | events.Spliced():
                self._take_replan(event)
            case PlannerCalled() if self.planner:
                self._work(event.request).calls.append(event)
            case HandedOn() if self.planner and (work := self._work(event.request)).calls:
                work.handed_on[work.calls[-1].number] = event
            case events.Reviewed():
                self._reviewed.setdefault(event.step, []).append(event.at)
            case _:
                self._take_run(event)

    def _take_run(self, event: Event) -> None:
        match event:
            case events.RunStarted():
                self.run_id, self.opening = event.run_id, event.opening
                self.began = event.wall_time
                self._zero = event.wall_time - event.at
            case events.RunSuspended():
                self.ended = event.at
                self.pauses.append(Pause(event.at, self._zero + event.at))
            case events.RunResumed():
                self.ended = None
                self._zero = event.wall_time - event.at
                if self.pauses and self.pauses[-1].ended is None:
                    self.pauses[-1].ended = event.wall_time
                self.opening = event.opening or self.opening
            case events.RunEnded():
                self.ended = event.at

    def _take_question(self, event: QuestionAsked | QuestionAnswered) -> None:
        if isinstance(event, QuestionAsked):
            past = PastQuestion(event.question, Span(event.at))
            self.questions[event.question.id] = past
            self._asked.setdefault(event.question.step, []).append(past)
            return
        known = self.questions.get(event.question)
        if known is not None:
            known.open.end, known.answer = event.at, event.answer
            known.why_void = event.reason

    def _take_draft(self, event: events.DraftStarted | events.DraftEnded | events.GoalChanged) -> None:
        match event:
            case events.DraftStarted():
                self.planner.append(PlannerWork("draft", 0, Span(event.at)))
                self.held.append(Span(event.at))
            case events.GoalChanged():
                self.frozen.append(Span(event.at))
            case events.DraftEnded():
                self._end_work(event)
                if self.held:
                    self.held[-1].end = event.at
                if event.result != "applied":
                    self.frozen.append(Span(event.at))

    def _take_replan(
        self, event: events.ReplanRequested | events.ReplanStarted | events.ReplanEnded | events.Spliced
    ) -> None:
        match event:
            case events.ReplanRequested():
                self.replans.append(ReplanWait(event.trigger.step, Span(event.at)))
            case events.ReplanStarted():
                self.planner.append(PlannerWork("replan", event.number, Span(event.at), event.steps))
            case events.Spliced() if event.origin == "planner" and self.planner:
                drafts = (work for work in self.planner if work.kind == "draft" and work.at.end == FOREVER)
                open_draft = None if event.request else next(drafts, None)
                work = self.answers[event.revision] = open_draft or self._work(event.request)
                if work.kind == "replan":
                    self.triggers[event.revision] = next(filter(None, work.steps), "")
            case events.ReplanEnded():
                if event.number:
                    self._end_work(event, event.number)
                for wait in self.replans:
                    if wait.step in event.steps and wait.at.end == FOREVER:
                        wait.at.end = event.at
                if GOAL in event.steps and self.frozen:
                    self.frozen[-1].end = min(self.frozen[-1].end, event.at)

    def _work(self, request: int) -> PlannerWork:
        """Return the work for a request; the last, if the event does not name its request."""
        found = (work for work in reversed(self.planner) if work.kind == "replan" and work.number == request)
        return next(found, self.planner[-1])

    def _end_work(self, event: events.DraftEnded | events.ReplanEnded, request: int = 0) -> None:
        if self.planner and (work := self._work(request)).at.end == FOREVER:
            work.at.end, work.result, work.reason = event.at, event.result, event.reason


def person_spans(history: History, node: Node) -> Iterator[Span]:
    """Yield the times of questions about *node*."""
    yield from (asked.open for asked in history.asked_about(node.id))
    if node.parent is not None:
        yield from (asked.open for asked in history.asked_about(node.parent.id))


def pause_spans(history: History, node: Node) -> Iterator[Span]:
    """Yield the times in which a person reviewed the output of a step that *node* depends on."""
    for need in node.plan.depends_on if history.questions and node.parent is None else ():
        yield from (asked.open for asked in history.asked_about(need) if asked.question.kind is Asked.PAUSE)
