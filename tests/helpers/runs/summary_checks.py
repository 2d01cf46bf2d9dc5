"""The summary of a record, held against the graph that the same record is folded into."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from dagrun import Event, Replayed, State, Status
from dagrun.api.replaying import replayed
from dagrun.codec import events_of
from dagrun.errors import shorten
from dagrun.evaluate.metrics.metrics import measured_run
from dagrun.events import AttemptEnded, PatchRefused, QuestionAnswered, QuestionAsked, Reviewed, RunResumed, RunStarted
from dagrun.features.redacted_records.records import shown_events
from dagrun.kernel.graph.figures import RunFigures, critical_path
from dagrun.kernel.model.journal import Held, Line
from dagrun.observe.run_standing import RunState, standing_of
from dagrun.observe.run_summary import RunSummary, summary_of

STOPPED = (State.CANCELLED, State.SUPERSEDED)


def judgements(events: Sequence[Event]) -> list[State]:
    """How each call ended that was not told to stop: as its tool left it, or as its critics have judged it."""
    last = {}
    for event in events:
        if isinstance(event, AttemptEnded | Reviewed) and event.outcome.state not in STOPPED:
            last[event.step, event.attempt] = event.outcome.state
    return list(last.values())


def expect_summary(run_id: str, lines: Sequence[Line]) -> Replayed:
    """Compare the summary of a record with its graph, and return that."""
    past = replayed(run_id, shown_events(events_of(run_id, lines)))
    run = measured_run(run_id, lines)
    _expect_run(run, past)
    _expect_steps(run, past)
    _expect_calls(run, past)
    _expect_people(run, past)
    listed = summary_of(run_id, lines)
    assert replace(run, shape="", tools_planned=(), critical_path=None) == listed
    return past


def _expect_run(run: RunSummary, past: Replayed) -> None:
    graph, first, last = past.graph, past.events[0], past.events[-1]
    assert isinstance(first, RunStarted)
    assert (run.status, run.reason) == ("" if past.status is None else str(past.status), shorten(past.reason))
    assert (run.has_ended, run.records, run.goal) == (past.has_ended, len(past.events), shorten(graph.goal))
    clock = [event.wall_time - event.at for event in past.events if isinstance(event, RunStarted | RunResumed)]
    assert (run.began, run.last, run.expires) == (first.wall_time, clock[-1] + last.at, past.opening.expires_at)
    assert run.labels == past.opening.labels
    held = standing_of(run, Held(run.run_id, "somebody", is_held=True)).state
    left = standing_of(run, Held(run.run_id)).state
    if past.has_ended:
        assert (held, left) == (RunState.ENDED, RunState.ENDED)
        assert run.makespan == last.at
        assert run.critical_path == pytest.approx(critical_path(graph), abs=1e-9)
    else:
        is_waiting = run.is_suspended and past.status is Status.WAITING
        assert (held, left) == (RunState.RUNNING, RunState.WAITING if is_waiting else RunState.INTERRUPTED)
        assert run.critical_path is None


def _expect_steps(run: RunSummary, past: Replayed) -> None:
    planned = list(past.graph.planned())
    assert run.steps == len(planned)
    assert run.counts == Counter(str(node.state) for node in planned if node.state.is_settled)
    assert run.tools_planned == tuple(node.plan.step.tool for node in planned)


def _expect_calls(run: RunSummary, past: Replayed) -> None:
    graph, used, ended = past.graph, RunFigures(past.graph).used, judgements(past.events)
    assert run.use.tokens == used.tokens
    assert run.use.known_cost == pytest.approx(used.known_cost)
    if used.unpriced:
        assert not run.use.is_cost_known
    assert run.attempts == sum(len(node.attempts) for node in graph.nodes.values())
    assert sum(calls.ended for calls in run.calls) == len(ended)
    assert sum(calls.succeeded for calls in run.calls) == ended.count(State.SUCCEEDED)
    for calls in run.calls:
        assert sum(calls.failures.values()) == calls.judged - calls.succeeded
        assert min(calls.failures.values(), default=0) >= 0
    assert run.replans == graph.replans


def _expect_people(run: RunSummary, past: Replayed) -> None:
    assert run.refused == sum(isinstance(event, PatchRefused) for event in past.events)
    assert run.questions == sum(isinstance(event, QuestionAsked) for event in past.events)
    assert run.waits_for == tuple(dict.fromkeys(shorten(asked.step or asked.text) for asked in past.pending))
    by_people = [e for e in past.events if isinstance(e, QuestionAnswered) and e.answer is not None and not e.reason]
    assert run.answered == len(by_people) == len(run.waits)
