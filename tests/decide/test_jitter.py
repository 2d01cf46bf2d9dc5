"""The jitter of delays can be foretold of a run with a seed, and of no other."""

from __future__ import annotations

from random import Random

from dagrun.kernel.runtime.run_parts import random_of


def test_a_seed_gives_the_same_numbers_each_time() -> None:
    """Whatever runs without one have drawn meanwhile."""
    expected = [Random(7).random()] * 2
    first = random_of(7).random()
    random_of(None).random()

    assert [first, random_of(7).random()] == expected


def test_without_a_seed_no_two_numbers_are_the_same() -> None:
    """All such runs draw from one generator: it must not begin anew with each."""
    assert len({random_of(None).random() for _ in range(50)}) == 50
    assert random_of(None) is random_of(None)
