"""Damaged answers of models: each gives a valid plan or a typed error, whatever the size of its pieces."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest

from checking import TOOLBOX
from dagrun import Patch, Plan, PlanRefused
from dagrun.planners.answers.model_answers import NextStepAnswer, read_answer, read_next_step
from judged_answers import LIMITS, MUTANTS, broken_rules, end_of, make_reader, read
from model_answers import FORMS, random_answer

pytestmark = pytest.mark.rigs


def play(seeds: Iterable[int]) -> Counter[str]:
    """Read the answers of *seeds* in every way, and count the results."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        answer = random_answer(seed)
        assert broken_rules(answer, random.Random(seed)) == [], f"seed {seed}: {answer.text[:500]!a}"
        patch = end_of(partial(read_answer, answer.text, TOOLBOX, LIMITS))
        step = end_of(partial(read_next_step, answer.text, TOOLBOX, LIMITS))
        assert isinstance(patch, Patch | Plan | tuple | str)
        assert isinstance(step, NextStepAnswer | tuple)
        if answer.is_whole and answer.form == "patch":
            assert isinstance(patch, Patch), patch
        if answer.is_whole and answer.form == "next":
            assert isinstance(step, NextStepAnswer), step
        counts[type(read(make_reader, [answer.text]).end).__name__] += 1
        counts[type(patch).__name__] += 1
        counts[answer.form] += 1
    return counts


def test_damaged_answers_end_in_a_plan_or_in_a_typed_error() -> None:
    """A few of them, in every test run."""
    play(range(150))


@pytest.mark.rigs
def test_two_thousand_damaged_answers_end_in_a_plan_or_in_a_typed_error() -> None:
    """All kinds of answers and damages; enough of them are read to test plans, too."""
    counts = play(range(10_000, 12_000))

    assert all(counts[form] > 300 for form in FORMS), counts
    assert counts["Plan"] > 200, counts
    assert counts["Patch"] > 50, counts
    assert counts["tuple"] > 1000, counts
    assert counts["str"] > 20, counts


@pytest.mark.parametrize("name", MUTANTS)
def test_the_rules_have_teeth(name: str) -> None:
    """Readers with the usual bugs of streaming readers are caught within a few answers."""
    caught = sum(bool(broken_rules(random_answer(seed), random.Random(seed), MUTANTS[name])) for seed in range(120))

    assert caught >= 3


def test_59_megabytes_are_refused_by_bytes_and_not_kept() -> None:
    """An endless answer must cost neither memory nor time."""
    import tracemalloc

    huge = '{"steps": [{"id": "a", "tool": "show", "args": {"text": "' + "x" * 59_000_000 + '"}}]}'
    tracemalloc.start()
    try:
        reader = make_reader()
        with pytest.raises(PlanRefused, match="more than 60000 bytes"):
            reader.feed(huge)
        for ask in (read_answer, read_next_step):
            with pytest.raises(PlanRefused, match="more than 60000 bytes"):
                ask(huge, TOOLBOX, LIMITS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert reader.text == ""
    assert peak < 1_000_000
