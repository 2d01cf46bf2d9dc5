"""Stops in every turn of the loop: each leaves a record that can be read, resumed and replayed, and hides no doubt.

A stop is a crash, `run.cancel`, `run.suspend`, a cancelled scope around the run, or a cancelled task of asyncio. The
runs are those of the crashes: planners write and repair plans, people and critics are asked. See `turns.py`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from catching import Parts, survivors
from crash_cases import make_case
from seeds import NIGHT, ONE_SEED, choose_seeds
from simulation import replaced
from turn_mutants import MUTANTS
from turns import WAYS, stop_everywhere

pytestmark = pytest.mark.rigs

BACKENDS: Final = ("asyncio", "trio")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def stops(seeds: Iterable[int], backend: str, *, part: float) -> Counter[str]:
    """Stop the runs of *seeds* in a part of their turns; give counts of the ways, and of what was left."""
    met: Counter[str] = Counter()
    for seed in seeds:
        report = stop_everywhere(make_case(seed), backend, part=part)
        shown = "\n".join(report.broken[:5])
        assert not report.broken, f"DAGRUN_SEED={seed} {backend}: {shown}"
        met += report.met + report.stops
        met["turns"] += report.turns
    return met


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_few_stops_lose_nothing(backend: str) -> None:
    """What breaks often is seen without waiting for the rig."""
    assert stops(range(20), backend, part=0.08)["resumed"] > 10


def test_a_cancelled_task_that_meets_a_cancelled_scope_is_cancelled() -> None:
    """anyio takes the one for the other; the run must not swallow what has ended the code around it."""
    report = stop_everywhere(make_case(74), "asyncio", ways=("task",))
    assert report.stops["task"] > 10
    assert not report.broken


@pytest.mark.rigs(seconds=20)
@pytest.mark.parametrize("backend", BACKENDS)
def test_many_stops_lose_nothing(backend: str) -> None:
    """Of 40 runs a part of the turns, at night all: nothing follows an end, and a doubt ends the run as unknown."""
    met = stops(choose_seeds(40, 3_000), backend, part=1.0 if NIGHT else 0.12)
    print(f"{backend}: {dict(met.most_common())}")
    if ONE_SEED is None:
        assert sum(met[way] for way in WAYS[backend]) > 100
        assert min(met[way] for way in WAYS[backend]) > 6, "the rig has gone blind"


def stopped(parts: Parts) -> Iterator[str]:
    """Random runs, stopped in a part of their turns."""
    for seed in range(60):
        with replaced(parts):
            report = stop_everywhere(make_case(seed), BACKENDS[seed % 2], part=0.15)
        yield from (f"seed {seed}: {problem}" for problem in report.broken)


def suspended(parts: Parts) -> Iterator[str]:
    """Runs with a planner, suspended in every turn: one of them is that in which the planner answers."""
    for case in filter(lambda case: case.has_planner, map(make_case, range(100))):
        with replaced(parts):
            report = stop_everywhere(case, "asyncio", ways=("suspend",))
        yield from (f"seed {case.seed}: {problem}" for problem in report.broken)


@pytest.mark.rigs(seconds=60)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.bad_records
def test_every_way_to_end_wrongly_is_noticed() -> None:
    """A bug of each of these kinds cannot come back unnoticed."""
    assert len(MUTANTS) >= 6
    assert not survivors((stopped, suspended), MUTANTS)
