"""Random plans that are written bit by bit end as the same plans in one piece, whatever happens while they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from draft_cases import FAULTS, make_draft
from draft_players import WATCHED, run_draft
from draft_usage import run_usage
from seeds import NIGHT, ONE_SEED, choose_seeds

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about half of what they do. Below that the fuzzer has gone blind.
LEAST: Final[dict[str, float]] = {
    "draft applied": 20,
    "draft refused": 14,
    "draft stopped": 6,
    "draft denied": 5,
    "repairs that helped": 6,
    "forward references": 180,
    "calls before the plan was ended": 60,
    "steps written after what they need had failed": 2,
    "host changed the plan while it was written": 7,
    "goals changed while it was written": 2,
    "cancelled while it was written": 6,
    "retried calls of the planner": 4,
}
LEAST_USAGE: Final[dict[str, float]] = {
    "calls of models": 150,
    "calls that did not fit": 40,
    "calls that nobody knows the use of": 50,
    "runs over budget without a plan": 50,
    "runs with a plan": 35,
    "repairs": 6,
    "tries of a busy model": 8,
    "runs that ran out of calls": 7,
}


def fuzz(seeds: Iterable[int]) -> Counter[str]:
    """Run the cases of *seeds*; give counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        report = run_draft(make_draft(seed), is_watched=seed % WATCHED == 0)
        assert not report.broken, f"DAGRUN_SEED={seed}: " + "\n".join(report.broken[:10])
        done += report.counts
    return done


def test_some_drafts_keep_all_rules() -> None:
    """What breaks often is seen without waiting for the rig."""
    done = fuzz(range(40))

    assert done["draft applied"] > 10
    assert done["draft refused"] > 5
    assert done["calls before the plan was ended"] > 25


def too_rare(done: Counter[str], least: dict[str, float], seeds: int) -> dict[str, float]:
    """What was met less often than it should be, per hundred seeds."""
    met = {what: done[what] / seeds * 100 for what in least}
    return {what: rate for what, rate in met.items() if rate < least[what]}


@pytest.mark.rigs(seconds=40)
def test_many_drafts_keep_all_rules() -> None:
    """Steps start exactly when they may, effects wait, a refused plan freezes what waits, and every run ends."""
    seeds = choose_seeds(500, 30_000)
    done = fuzz(seeds)
    print(", ".join(f"{count} {what}" for what, count in done.most_common()))
    if ONE_SEED is not None:
        return
    assert not too_rare(done, LEAST, len(seeds)), "the fuzzer has gone blind"
    refused = {name: done[f"refused: {name}"] for name in FAULTS}
    assert all(count >= (100 if NIGHT else 1) for count in refused.values()), refused


def use(seeds: Iterable[int]) -> Counter[str]:
    """Run the cases of usage of *seeds*; give counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        usage = run_usage(seed)
        assert not usage.faults, f"DAGRUN_SEED={seed}: " + "\n".join(usage.faults[:10])
        done += usage.counts
    return done


def test_some_planners_stay_below_every_ceiling() -> None:
    """What breaks often is seen without waiting for the rig."""
    assert use(range(12))["calls that did not fit"] > 1


@pytest.mark.rigs
def test_many_planners_stay_below_every_ceiling() -> None:
    """Models of planners and steps, of runs that share a budget: spent and reserved are never more than there is."""
    seeds = choose_seeds(150, 10_000)
    done = use(seeds)
    print(", ".join(f"{count} {what}" for what, count in done.most_common()))
    if ONE_SEED is None:
        assert not too_rare(done, LEAST_USAGE, len(seeds)), "the fuzzer has gone blind"


def test_a_seed_gives_the_same_counts_again() -> None:
    """A failing seed is worth something only if it fails again."""
    for seed in range(60, 63):
        assert run_draft(make_draft(seed)).counts == run_draft(make_draft(seed)).counts
