"""Random calls that are cut while their server works on, none of which pays twice; `cut_calls.py` has the cases."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final

import pytest

from catching import Parts, first_catch
from cut_calls import EARLY_MUTANTS, FATES, WAYS, run_cut_calls
from seeds import ONE_SEED, choose_seeds

pytestmark = pytest.mark.rigs

# What a hundred seeds must exercise at least; about half of what they do. Below that the rig has gone blind.
LEAST: Final = {
    **dict.fromkeys(WAYS, 5.0),
    **{f"call {fate}": 12.0 for fate in FATES},
    "asked too early": 60.0,
    "succeeded": 30.0,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Calls in doubt are logged as such, thousands of times."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def fuzz(seeds: range) -> None:
    """Carry out the cases of *seeds*: none may pay twice, and they must exercise enough."""
    met: Counter[str] = Counter()
    for seed, service in run_cut_calls(seeds):
        assert service.payments <= 1, f"DAGRUN_SEED={seed}: paid {service.payments} times, {service.met}"
        met += service.met
    print(", ".join(f"{count} {what}" for what, count in met.most_common()))
    if ONE_SEED is None:
        found = {what: met[what] / len(seeds) * 100 for what in LEAST}
        assert not {what: rate for what, rate in found.items() if rate < LEAST[what]}, "the rig has gone blind"


def test_some_cut_calls_are_not_made_twice() -> None:
    """What breaks often is seen without waiting for the rig."""
    fuzz(range(60))


@pytest.mark.rigs(seconds=30)
def test_many_cut_calls_are_not_made_twice() -> None:
    """Time limits, lost connections, cancelled runs and steps, splices, suspensions, crashes; more at night."""
    fuzz(choose_seeds(1_000, 200_000))


def paid_twice(parts: Parts) -> Iterator[str]:
    """Say which random runs pay twice, with these parts of the engine replaced."""
    for seed, service in run_cut_calls(range(600), parts):
        if service.payments > 1:
            yield f"seed {seed}: paid {service.payments} times"


@pytest.mark.parametrize("name", EARLY_MUTANTS)
def test_a_no_that_is_believed_too_early_pays_twice(name: str) -> None:
    """Else the tests above would be blind."""
    assert first_catch((paid_twice,), EARLY_MUTANTS[name])
