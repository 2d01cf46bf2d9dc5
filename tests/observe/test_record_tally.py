"""The tally of a record: equal to what the graph says, at every record of every run."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

import anyio
import pytest

from crash_cases import make_case
from crash_process import RUN, Process
from crash_world import World
from dagrun.api.replaying import replayed
from dagrun.model.codec.event_codec import RECORDED, events_of
from dagrun.model.journal import Held
from dagrun.model.outcome import SETTLED as SETTLED_STATES
from dagrun.model.redaction.records import shown_events
from dagrun.observe import record_tally
from dagrun.observe.record_tally import tally_of
from dagrun.observe.run_standing import Standing, standing_of
from recorded_runs import lines_of
from simulation import simulate


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def by_graph(texts: Sequence[bytes], held: Held) -> Standing:
    return standing_of(replayed(RUN, shown_events(events_of(RUN, lines_of(texts)))), held)


def counts_by_graph(texts: Sequence[bytes]) -> dict[str, int]:
    graph = replayed(RUN, shown_events(events_of(RUN, lines_of(texts)))).graph
    return dict(Counter(str(node.state) for node in graph.planned()))


def records_of(seed: int) -> list[list[bytes]]:
    """What a random run had on record, at every instant until it ended or was suspended."""
    process = Process(make_case(seed), World(), lambda _: True, random.Random(seed))

    async def carry_out() -> None:
        with anyio.move_on_after(100_000):
            await process.carry_out(None)

    simulate(partial(carry_out), seed)
    return [list(instant.texts) for instant in process.instants]


def test_a_tally_says_what_the_graph_says() -> None:
    """Splices, questions, elements, drafts, goals that change, reopened steps: `runs` must not show another state."""
    seen: set[str] = set()
    counted = plain = complete = 0
    for seed in range(12):
        for texts in records_of(seed):
            held = Held(RUN, "process 1", is_held=len(texts) % 2 == 0)
            tally = tally_of(lines_of(texts), held)
            counted += 1
            if tally is not None:
                plain += 1
                seen.update(json.loads(text)["event"] for text in texts)
                assert tally.standing == by_graph(texts, held)
                if tally.counts:
                    complete += 1
                    assert tally.counts == counts_by_graph(texts)
    assert complete > 10
    assert plain > 0.9 * counted > 200, (plain, counted)
    assert {"Spliced", "StepExpanded", "QuestionAnswered", "DraftStarted", "Reviewed", "StepSettled"} <= seen


def test_every_event_has_its_place_in_the_tally() -> None:
    """A new event that nobody has thought of would be counted as nothing."""
    assert set(record_tally._COUNT) == set(RECORDED)
    assert {str(state) for state in SETTLED_STATES} == record_tally.SETTLED


@pytest.mark.parametrize(
    "text",
    [b"{", b"[1]", b'{"event":"Unheard"}', b'{"event":"RunEnded"}', b'{"event":"AttemptEnded","step":"a"}'],
)
def test_a_record_that_is_not_plain_has_no_tally(text: bytes) -> None:
    """Then the graph is asked, which says what is wrong with the record."""
    assert tally_of(lines_of([text]), Held(RUN)) is None
