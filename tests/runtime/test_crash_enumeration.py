"""Crashes everywhere: whatever the instant, what a crash leaves is enough to go on, and nothing is done twice.

What is enumerated is every record that a run writes, also in the middle of a change that no journal of ours cuts in
two, and the instants before and after every effect. See `crashing.py` for how, and `crash_rules.py` for what must hold.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from crash_cases import make_case
from crashing import crash_everywhere
from seeds import NIGHT, ONE_SEED, choose_seeds

pytestmark = pytest.mark.rigs

# What a thousand crashes must hit at least; about a third of what they do. Below that the rig has gone blind.
LEAST: Final = {
    "record": 300,
    "before the effect": 15,
    "after the effect": 15,
    "end": 10,
    "cut in two": 100,
    "whole": 100,
    "crashed again": 30,
    "over": 15,
    "ready": 50,
    "free in flight": 50,
    "idempotent in flight": 20,
    "effectful in flight": 40,
    "again in flight": 20,
    "fallback in flight": 5,
    "gone and in flight": 0.5,
    "asks inside": 0.5,
    "under review": 4,
    "back-off": 15,
    "held": 15,
    "in doubt": 15,
    "for_each open": 30,
    "for_each half done": 20,
    "draft open": 5,
    "draft refused": 5,
    "frozen": 5,
    "replan requested": 20,
    "planner asked": 10,
    "stopping": 10,
    "saving": 1,
    "suspended": 1,
    "paused after": 2,
    "approval open": 10,
    "pause open": 2,
    "effect open": 2,
    "input open": 1,
    "permission open": 0.6,
    "patch open": 1,
    "output open": 0.5,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def crashes(seeds: Iterable[int], *, backend: str = "trio", part: float = 1.0, most: int = 10**9) -> Counter[str]:
    """Crash the cases of *seeds* everywhere, or in *part* of the instants; give counts of what was hit."""
    met: Counter[str] = Counter()
    for seed in seeds:
        report = crash_everywhere(make_case(seed), backend=backend, part=part)
        shown = "\n".join(report.broken[:5])
        assert not report.broken, f"DAGRUN_SEED={seed} {backend}, of {report.points} points: {shown}"
        met.update(report.met)
        met["points"] += report.points
        if met["points"] >= most:
            break
    return met


def test_a_few_crashes_lose_nothing() -> None:
    """What breaks often is seen without waiting for the rig."""
    assert crashes(range(8), part=0.2)["points"] > 25


FIXED: Final = (2, 10, 11, 17, 30, 144, 164, 199, 474)


@pytest.mark.parametrize("seed", FIXED)
@pytest.mark.rigs
def test_crashes_that_once_were_too_much(seed: int) -> None:
    """Each of these seeds has shown that a run could not go on, or not rightly, from some instant."""
    crashes([seed], part=1.0)


@pytest.mark.rigs(seconds=30)
def test_many_crashes_lose_nothing() -> None:
    """Nothing that was acknowledged is lost, no effect happens twice, all keys stay, everything settles.

    And: no ceiling is broken, replays give the state of the live run, and where a crash has hit no effect in flight,
    the run gives what it would have given.
    """
    began, seeds = time.process_time(), choose_seeds(10_000, 10**6)
    met = crashes(seeds, most=300_000 if NIGHT else 2_300)
    print(f"{met['points']} crashes in {time.process_time() - began:.0f} s: {dict(met.most_common())}")
    if ONE_SEED is None:
        assert met["points"] >= 2_300
        rates = {what: met[what] / met["points"] * 1_000 for what in LEAST}
        assert not {what: rate for what, rate in rates.items() if rate < LEAST[what]}, "the rig has gone blind"


@pytest.mark.rigs(seconds=15)
def test_crashes_on_asyncio_lose_nothing() -> None:
    """The other backend cancels, wakes and closes in other ways."""
    assert crashes(range(5_000, 6_000), backend="asyncio", most=10_000 if NIGHT else 250)["points"] >= 250
