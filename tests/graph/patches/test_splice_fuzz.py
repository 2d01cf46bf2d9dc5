"""Random patches at random instants, valid and then spoilt by one fault, against a model of what a splice may do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

from fuzz import run_case
from seeds import NIGHT, ONE_SEED, choose_seeds
from splice_cases import make_splice_case
from splice_faults import FAULTS, WHOLE

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about half of what they do. Below that the fuzzer has gone blind.
LEAST: Final = {
    "spliced by the host": 200,
    "spliced by the planner": 25,
    "valid add": 120,
    "valid drop": 85,
    "valid replace": 105,
    "valid rewire": 135,
    "expansions": 60,
    "superseded": 28,
    "late patches": 18,
    "late patches on a changed plan": 3,
    "late patches refused": 20,
    "fallen edits": 0.9,
    "fresh runs": 35,
    "replan applied": 25,
    "replan failed": 3,
    "replan refused": 1,
    "replan repaired": 1,
    "replan stopped": 18,
    "replan unchanged": 2,
    "ask": 0.9,
}
MOST_DISCARDED: Final = 0.05  # of the patches that are meant to be valid; more, and the generator has lost its guide
LEAST_SPLICED: Final = 300
SPOILT: Final = "spoilt: "


def fuzz(seeds: Iterable[int]) -> Counter[str]:
    """Run the cases of *seeds*; give counts of what they exercised."""
    done: Counter[str] = Counter()
    for seed in seeds:
        report = run_case(make_splice_case(seed))
        assert not report.broken, f"DAGRUN_SEED={seed}: " + "\n".join(report.broken[:10])
        done.update(report.counts)
    return done


def spliced(done: Counter[str]) -> int:
    """How many patches were accepted and applied."""
    return done["spliced by the host"] + done["spliced by the planner"]


def test_some_patches_keep_all_rules() -> None:
    """What breaks often is seen without waiting for the rig."""
    done = fuzz(range(25))

    assert spliced(done) > 80
    assert sum(count for name, count in done.items() if name.startswith(SPOILT)) > 30


@pytest.mark.rigs(seconds=25)
def test_many_patches_keep_all_rules() -> None:
    """No finished step changes, none runs twice, no input of an untouched step changes, all settle, come what may.

    Every verdict is that of the model, a refusal leaves no trace, and each step gives in the end what it gives in a
    fresh run of the last plan. Accepted patches are counted: a rig whose patches are all refused proves nothing.
    """
    seeds = choose_seeds(200, 30_000)
    done = fuzz(seeds)
    print(", ".join(f"{count} {what}" for what, count in done.most_common()))
    if ONE_SEED is not None:
        return
    assert spliced(done) >= LEAST_SPLICED
    assert done["discarded"] <= MOST_DISCARDED * done["valid patches"]
    met = {what: done[what] / len(seeds) * 100 for what in LEAST}
    assert not {what: rate for what, rate in met.items() if rate < LEAST[what]}, "the fuzzer has gone blind"
    refused = {name: done[SPOILT + name] for name in (*FAULTS, *WHOLE)}
    print(f"refused for one fault each: {refused}")
    assert all(count >= (20 if NIGHT else 1) for name, count in refused.items() if name not in ONLY_BY_PLANNERS)


# A planner's spoilt patches are no calls of the host, so they are compared with the model, and not counted by name.
ONLY_BY_PLANNERS: Final = frozenset(("more attempts than the policy allows",))


def test_a_seed_gives_the_same_trace_again() -> None:
    """A failing seed is worth something only if it fails again."""
    for seed in range(100, 106):
        assert run_case(make_splice_case(seed)).trace == run_case(make_splice_case(seed)).trace, seed
