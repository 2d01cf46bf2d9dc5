"""Random runs under a frozen plan, against what the first plan allows; and the rig catches plans with a hole."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from catching import Parts, survivors
from dagrun import Patch
from frozen_cases import REFUSED, in_the_middle
from frozen_mutants import FROZEN_MUTANTS
from frozen_rig import play
from seeds import choose_seeds
from simulation import replaced

pytestmark = [pytest.mark.rigs, pytest.mark.usefixtures("quiet")]

QUICK: Final = 60
SEEDS: Final = 1500


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of tools fail, and pytest would keep what each has said."""
    caplog.set_level(logging.CRITICAL, "dagrun")


def _counts_of(seeds: range) -> Counter[str]:
    counts = Counter[str]()
    for seed in seeds:
        report = play(seed)
        assert not report.broken, f"seed {seed}: {report.broken}"
        counts += report.counts
    return counts


def refused_patches(parts: Parts) -> Iterator[str]:
    """What is refused by hand."""
    for name, (edits, _) in REFUSED.items():
        with replaced(parts):
            checked, _ = in_the_middle().check(Patch(edits=edits), "planner")
        if checked is not None:
            yield f"nobody refuses {name}"


def frozen_runs(parts: Parts) -> Iterator[str]:
    """Random runs with a planner that tries everything."""
    for seed in range(SEEDS):
        for problem in play(seed, parts).broken:
            yield f"seed {seed}: {problem}"


def test_a_planner_that_tries_everything_makes_no_call_that_the_first_plan_did_not_hold() -> None:
    """Every kind of refusal is met, and repairs that repeat a call get through."""
    counts = _counts_of(range(QUICK))

    assert min(counts[name] for name in ("calls", "effects", "spliced", "split", "DR427", "DR428", "DR429")) > 0, counts


@pytest.mark.rigs(seconds=60)
def test_many_planners_that_try_everything() -> None:
    """As above, many more of them; also runs that wait for a person, and are resumed."""
    counts = _counts_of(choose_seeds(500, 10_000))

    assert min(counts[name] for name in ("resumed", "spliced", "split", "DR427", "DR428", "DR429")) > 15, counts


@pytest.mark.rigs(seconds=60)
def test_every_mutant_of_the_frozen_plan_is_caught() -> None:
    """A hole of each of these kinds cannot come back unnoticed."""
    assert len(FROZEN_MUTANTS) >= 14
    assert not survivors([refused_patches, frozen_runs], FROZEN_MUTANTS)
