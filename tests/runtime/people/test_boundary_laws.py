"""The labels against a shadow run that tracks every value: they are never too small, and no call gets round them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from flow_mutants import FLOW_MUTANTS
from seeds import ONE_SEED, choose_seeds
from shadow import play

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about half of what they do. Below that the rig has gone blind.
LEAST: Final = {"labels": 200, "calls": 90, "splices": 50, "asked": 35, "tainted calls": 10, "resumed": 5, "split": 1}


def fuzz(seeds: Iterable[int]) -> Counter[str]:
    """Play these seeds; return counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        report = play(seed)
        assert not report.broken, f"DAGRUN_SEED={seed}: {report.broken[0]}"
        done.update(report.counts)
    return done


def test_labels_hold_what_values_are_made_of_on_some_seeds() -> None:
    """Plans, patches, lists, fallbacks, resumes; what breaks often is seen without waiting for the rig."""
    assert fuzz(range(60))["labels"] > 100


@pytest.mark.rigs(seconds=20)
def test_labels_hold_what_values_are_made_of_on_many_seeds() -> None:
    """Ten thousand at night."""
    seeds = choose_seeds(200, 20_000)
    done = fuzz(seeds)
    print(done)
    if ONE_SEED is None:
        found = {what: done[what] / len(seeds) * 100 for what in LEAST}
        assert not {what: rate for what, rate in found.items() if rate < LEAST[what]}, "the rig has gone blind"


@pytest.mark.rigs(seconds=4)
@pytest.mark.parametrize("name", FLOW_MUTANTS)
@pytest.mark.filterwarnings("ignore")
def test_every_hole_is_found(name: str) -> None:
    """A boundary that forgets one way of data is caught by the same runs."""
    caught = next((seed for seed in range(400) if play(seed, FLOW_MUTANTS[name]).broken), None)

    assert caught is not None
    print(f"{name}: seed {caught}")
