"""The time in which a run has only waited for people, from its record; no time limit includes it.

1. A question is open, and nothing else goes on: no call, no review, no planner. A call whose tool asks in its middle
   does not go on meanwhile.
2. A tool that is asked whether its call took effect goes on, until its "no" would count.
3. The delay before another attempt belongs to it, if a question is open then.
4. So it is the same for a run that was resumed, and for one that is looked at later.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import TypeAlias

from dagrun.kernel.decide.questions import seconds_until_no_counts
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.event import PlannerAsked, PlannerCalled, QuestionAnswered, QuestionAsked, RunResumed
from dagrun.kernel.model.question import Asked, Question

_Change: TypeAlias = tuple[float, int, int]  # when, how much more goes on, and how many more questions are open


def only_waiting(graph: LiveGraph, now: float) -> tuple[float, bool]:
    """Return for how long a run has only waited for people, in seconds, and whether it does so now.

    Args:
        graph: The run.
        now: Seconds since its start.
    """
    waited, last, going_on, asked = 0.0, 0.0, 0, 0
    for at, more, opened in sorted(change for change in _changes(graph) if change[0] <= now):
        waited += at - last if asked > 0 and going_on <= 0 else 0.0
        last, going_on, asked = at, going_on + more, asked + opened
    is_waiting = asked > 0 and going_on <= 0
    return waited + (now - last if is_waiting else 0.0), is_waiting


def _changes(graph: LiveGraph) -> Iterator[_Change]:
    calls = [one for one in graph.nodes.values() if one.children is None]
    for node, attempt in [(one, attempt) for one in calls for attempt in one.attempts]:
        yield attempt.started, 1, 0
        if attempt.ended is not None and not (attempt is node.latest and node.is_under_review):
            yield attempt.ended, -1, 0
    asked: dict[str, tuple[int, float]] = {}  # how much more goes on while it is open, and until when at most
    planning = 0
    for event in graph.rare:
        match event:
            case QuestionAsked(question=question):
                more, seconds = _meanwhile(graph, question)
                asked[question.id] = more, event.at + seconds
                yield event.at, more, 1
            case QuestionAnswered():
                more, until = asked.pop(event.question, (0, inf))
                yield min(event.at, until), -more, 0
                yield event.at, 0, -1
            case PlannerAsked():
                planning += 1
                yield event.at, 1, 0
            case PlannerCalled():
                planning -= 1
                yield event.at, -1, 0
            case RunResumed():  # a call of the planner that was cut off has no end on record
                yield event.at, -planning, 0
                planning = 0
    yield from ((until, -more, 0) for more, until in asked.values())


def _meanwhile(graph: LiveGraph, question: Question) -> tuple[int, float]:
    if question.kind is Asked.EFFECT and question.step in graph.nodes:
        return 1, seconds_until_no_counts(graph.nodes[question.step])
    return -(question.kind is Asked.INPUT and bool(question.step) and not question.name), inf  # its tool asks
