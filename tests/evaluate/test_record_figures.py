"""The figures of a record: equal to what the graph says, at every record of every run."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator, Sequence
from functools import partial

import anyio
import pytest

from crash_cases import make_case
from crash_process import RUN, Process
from crash_world import World
from dagrun.api.replaying import Replayed, replayed
from dagrun.errors import JournalDamaged
from dagrun.evaluate.metrics import record_figures
from dagrun.evaluate.metrics.record_figures import figures_of
from dagrun.graph import figures
from dagrun.model.codec.event_codec import RECORDED, events_of
from dagrun.model.event import AttemptEnded, PatchRefused, QuestionAnswered, QuestionAsked, Reviewed
from dagrun.model.outcome import State
from recorded_runs import lines_of
from simulation import simulate

STOPPED = (State.CANCELLED, State.SUPERSEDED)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def records_of(seed: int) -> list[list[bytes]]:
    """What a random run had on record, at every instant until it ended or was suspended."""
    process = Process(make_case(seed), World(), lambda _: True, random.Random(seed))

    async def carry_out() -> None:
        with anyio.move_on_after(100_000):
            await process.carry_out(None)

    simulate(partial(carry_out), seed)
    return [list(instant.texts) for instant in process.instants]


def judgements(past: Replayed) -> list[State]:
    """How each call ended that was not told to stop: as its tool left it, or as its critics have judged it."""
    last = {}
    for event in past.events:
        if isinstance(event, AttemptEnded | Reviewed) and event.outcome.state not in STOPPED:
            last[event.step, event.attempt] = event.outcome.state
    return list(last.values())


def expect_figures(past: Replayed, texts: Sequence[bytes]) -> set[str]:
    """Compare the figures of a record with its graph; return the events that were counted."""
    counted, graph = figures_of(RUN, lines_of(texts)), past.graph
    used = figures.used(graph)
    assert counted.steps == len(list(graph.planned()))
    assert counted.use.tokens == used.tokens
    assert counted.use.known_cost == pytest.approx(used.known_cost)
    if used.unpriced:
        assert not counted.use.is_cost_known
    attempts = [attempt for node in graph.nodes.values() for attempt in node.attempts]
    ended = judgements(past)
    assert counted.attempts == len(attempts)
    assert sum(calls.ended for calls in counted.calls) == len(ended)
    assert sum(calls.succeeded for calls in counted.calls) == ended.count(State.SUCCEEDED)
    for calls in counted.calls:
        assert sum(calls.failures.values()) == calls.judged - calls.succeeded
        assert min(calls.failures.values(), default=0) >= 0
    assert counted.replans == graph.replans
    assert counted.refused == sum(isinstance(event, PatchRefused) for event in past.events)
    assert counted.questions == sum(isinstance(event, QuestionAsked) for event in past.events)
    by_people = [e for e in past.events if isinstance(e, QuestionAnswered) and e.answer is not None and not e.reason]
    assert counted.answered == len(by_people) == len(counted.waits)
    assert counted.has_ended == past.has_ended
    if past.has_ended:
        assert counted.status == str(past.status)
        assert counted.critical_path == pytest.approx(figures.critical_path(graph))
        assert counted.makespan == past.events[-1].at
    return {json.loads(text)["event"] for text in texts}


def test_figures_say_what_the_graph_says() -> None:
    """Splices, questions, elements, drafts, reopened steps: no metric may be made of other numbers than the run has."""
    seen: set[str] = set()
    ends = 0
    for seed in range(14):
        records = records_of(seed)
        for texts in [*records[::7], records[-1]]:
            past = replayed(RUN, events_of(RUN, lines_of(texts)))
            seen |= expect_figures(past, texts)
            ends += past.has_ended
    assert ends > 8
    assert {"Spliced", "StepExpanded", "QuestionAnswered", "DraftStarted", "Reviewed", "StepSettled"} <= seen


def test_every_event_has_its_place_in_the_count() -> None:
    """A new event that nobody has thought of would be counted as nothing."""
    assert set(record_figures._COUNT) == set(RECORDED)


@pytest.mark.parametrize("text", [b"{", b"[1]", b'{"event":"Unheard"}', b'{"event":"RunEnded"}'])
def test_a_record_that_no_run_writes_is_damaged(text: bytes) -> None:
    with pytest.raises(JournalDamaged, match="cannot be counted"):
        figures_of(RUN, lines_of([text]))
