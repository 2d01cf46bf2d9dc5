"""The summary of a record: equal to what the graph says, at every record of every run."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Iterator
from functools import partial

import anyio
import pytest

from crash_cases import make_case
from crash_process import RUN, Process
from crash_world import World
from dagrun import Step
from dagrun.codec import RECORDED
from dagrun.errors import JournalDamaged
from dagrun.kernel.model.outcome import SETTLED as SETTLED_STATES
from dagrun.observe import run_summary
from dagrun.observe.run_summary import summary_of
from recorded_runs import Recorded, changed, lines_of
from simulation import simulate
from summary_checks import expect_summary


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


def test_a_summary_says_what_the_graph_says() -> None:
    """Splices, questions, elements, drafts, goals that change: no list and no metric may show other figures."""
    seen: set[str] = set()
    ends = 0
    for seed in range(14):
        records = records_of(seed)
        for texts in [*records[::5], records[-1]]:
            seen.update(json.loads(text)["event"] for text in texts)
            ends += expect_summary(RUN, lines_of(texts)).has_ended
    assert ends > 8
    assert {"Spliced", "StepExpanded", "QuestionAnswered", "DraftStarted", "Reviewed", "StepSettled"} <= seen


def test_every_event_has_its_place_in_the_count() -> None:
    """A new event that nobody has thought of would be counted as nothing."""
    assert set(run_summary._COUNT) == set(RECORDED)
    assert {str(state) for state in SETTLED_STATES} == run_summary.SETTLED


@pytest.mark.parametrize(
    "text",
    [b"{", b"[1]", b'{"event":"Unheard"}', b'{"event":"RunEnded"}', b'{"event":"AttemptEnded","step":"a"}'],
)
def test_a_record_that_no_run_writes_is_damaged(text: bytes) -> None:
    with pytest.raises(JournalDamaged):
        summary_of(RUN, lines_of([text]))


def test_a_record_whose_events_do_not_follow_from_each_other_is_damaged() -> None:
    lines = changed(lines_of(records_of(0)[-1]), "AttemptStarted", step="nobody")
    with pytest.raises(JournalDamaged, match="cannot be counted"):
        summary_of(RUN, lines)


@pytest.mark.anyio
async def test_a_summary_hides_what_the_policy_hides() -> None:
    """The record has the text already without it; one that was resumed under a stricter policy has it still."""
    recorded = Recorded()
    card = "pay with 4111 1111 1111 1111"
    await recorded.run("r", Step(id="a", tool="nap", args={"seconds": 1}), labels={"note": card})
    lines = await recorded.lines("r")
    policy = json.loads(lines[0].text)["opening"]["policy"] | {"redact": ["card"]}
    opening = json.loads(lines[0].text)["opening"] | {"policy": policy}
    stricter = changed(lines, "RunStarted", opening=opening)

    assert summary_of("r", lines).labels == {"note": card}
    assert "4111" not in str(summary_of("r", stricter))
    expect_summary("r", stricter)
