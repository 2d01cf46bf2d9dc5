"""The crash rig is worth what it catches: each way to go on wrongly must be noticed within a few hundred crashes."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest

from catching import Parts, survivors
from crash_cases import Case, make_case
from crash_process import RUN, Instant, Process, letter_to
from crash_world import World
from crashing import crash_everywhere
from dagrun import Plan, Policy, Step
from dagrun.api.replaying import replayed
from dagrun.codec import decode_event
from dagrun.testing import run_virtual
from resume_mutants import MUTANTS, RARE
from simulation import replaced

pytestmark = pytest.mark.rigs

MOST_POINTS: Final = 1_500


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Broken runs complain a lot."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def crashes(parts: Parts) -> Iterator[str]:
    """Random runs, crashed at a part of their instants."""
    points = 0
    for seed in range(1_000):
        with replaced(parts):
            report = crash_everywhere(make_case(seed), part=0.35)
        points += report.points
        yield from (f"seed {seed}, {points} points: {problem}" for problem in report.broken)
        if points > MOST_POINTS:
            return


def effects_after_an_old_no() -> int:
    """A call is in doubt, and a person says by letter that it did not happen; the next call is in doubt as well."""
    step = Step(
        id="deal", tool="deal", args={"acts": [{"does": "succeeds", "seconds": 1.0, "gives": 2}], "who": "deal"}
    )
    case = Case(0, Plan(steps=[step]), Policy(), people="nobody")
    instant = _crashed(case, World(), None, "before the effect")
    suspended = _crashed(case, instant.world, instant, "end")
    _write(case, suspended)
    instant = _crashed(case, suspended.world, suspended, "after the effect")
    instant.letters |= suspended.letters  # that it was thrown away is lost
    ended = _crashed(case, instant.world, instant, "end")
    if _write(case, ended):
        ended = _crashed(case, ended.world, ended, "end")
    return len(ended.world.applied["deal", "deal[0]"])


def _write(case: Case, suspended: Instant) -> bool:
    """Answer by letter what is open; say whether anything was."""
    pending = replayed(RUN, [decode_event(text) for text in suspended.texts]).pending
    for question in pending:
        suspended.letters[max(suspended.letters, default=0) + 1] = letter_to(case, question, suspended.world)
    return bool(pending)


def _crashed(case: Case, world: World, before: Instant | None, kind: str) -> Instant:
    """What a crash leaves at the last instant of *kind*."""
    process = Process(case, world, lambda _: True, Random(0))
    run_virtual(lambda: process.carry_out(before), backend="trio")
    return [instant for instant in process.instants if instant.kind == kind][-1]


def test_an_old_letter_answers_no_later_question() -> None:
    """A no by letter, whose letter outlives a crash, must not be taken for a no about the next call."""
    assert effects_after_an_old_no() == 1


@pytest.mark.parametrize("name", RARE)
def test_an_answer_that_is_good_for_two_questions_repeats_an_effect(name: str) -> None:
    """Else the test above would be blind."""
    with replaced(RARE[name]):
        assert effects_after_an_old_no() == 2


@pytest.mark.rigs(seconds=20)
@pytest.mark.filterwarnings("ignore")
def test_every_way_to_go_on_wrongly_is_noticed() -> None:
    """A bug of each of these kinds cannot come back unnoticed."""
    assert len(MUTANTS) >= 12
    assert not survivors((crashes,), MUTANTS)
