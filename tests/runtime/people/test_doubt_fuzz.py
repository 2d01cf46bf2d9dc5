"""A doubt stays: random runs whose calls get lost, against a planner that hides it; `doubt_rig.py` has the rules."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from catching import Parts, chosen_mutants, first_catch
from doubt_mutants import DOUBT_MUTANTS
from doubt_rig import WAYS, run_doubts
from seeds import ONE_SEED, choose_seeds

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about half of what they do. Below that the rig has gone blind.
LEAST: Final = {
    **dict.fromkeys(WAYS, 10.0),
    "calls": 80.0,
    "in a list": 25.0,
    "element by element": 2.0,
    "by an agent": 10.0,
    "as a fallback": 8.0,
    "repeated in doubt": 8.0,
    "doubts": 15.0,
    "doubts about what has left the plan": 5.0,
    "told": 12.0,
    "resumed": 12.0,
    "retried": 5.0,
    "not retried": 5.0,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Tools that break on purpose are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def fuzz(seeds: Iterable[int]) -> Counter[str]:
    """Run the cases of *seeds*; return counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        report = run_doubts(seed)
        story = "\n".join(report.story)
        assert not report.broken, f"DAGRUN_SEED={seed}: {report.broken[0]}\n\n{story}"
        done += report.counts
    return done


def test_some_doubts_stay() -> None:
    """What breaks often is seen without waiting for the rig."""
    assert fuzz(range(80))["doubts"] > 15


@pytest.mark.rigs(seconds=40)
def test_many_doubts_stay() -> None:
    """Twenty thousand at night; streamed, repaired, patched, replaced as a whole, in lists, as fallbacks, by agents."""
    seeds = choose_seeds(500, 20_000)
    done = fuzz(seeds)
    print(", ".join(f"{count} {what}" for what, count in done.most_common()))
    if ONE_SEED is None:
        found = {what: done[what] / len(seeds) * 100 for what in LEAST}
        assert not {what: rate for what, rate in found.items() if rate < LEAST[what]}, "the rig has gone blind"


def doubted(parts: Parts) -> Iterator[str]:
    """Say what is wrong in random runs, with these parts of the engine replaced."""
    for seed in range(2_000):
        yield from (f"seed {seed}: {problem}" for problem in run_doubts(seed, parts).broken)


@pytest.mark.rigs(seconds=30)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.bad_records
@pytest.mark.parametrize("name", chosen_mutants(DOUBT_MUTANTS))
def test_every_way_to_lose_a_doubt_is_noticed(name: str) -> None:
    """A hole of each of these kinds cannot come back unnoticed."""
    assert first_catch((doubted,), DOUBT_MUTANTS[name])
