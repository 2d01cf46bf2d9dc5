"""Durations of tools: what a sketch of fixed size says of the calls is near to what they were, and stays so."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagrun.errors import RecordRefused
from dagrun.extend import Durations
from dagrun.kernel.decide.durations import FADES_ABOVE, LONGEST, RELATIVE_ERROR, SHORTEST

NEAR = RELATIVE_ERROR + 1e-9
SECONDS = st.floats(math.log(SHORTEST), math.log(LONGEST)).map(math.exp)
QUANTILES = (0.0, 0.05, 0.5, 0.95, 0.99, 1.0)


def durations(seconds: list[float], tool: str = "tool") -> Durations:
    made = Durations()
    for one in seconds:
        made.add(tool, one)
    return made


def exact(seconds: list[float], q: float) -> float:
    """The shortest of *seconds* that at least the share *q* does not exceed."""
    return sorted(seconds)[max(0, math.ceil(q * len(seconds) - 1e-9) - 1)]


@given(st.lists(SECONDS, min_size=1, max_size=FADES_ABOVE), st.sampled_from(QUANTILES))
def test_quantiles_are_those_of_the_calls_to_within_5_percent(seconds: list[float], q: float) -> None:
    """From a microsecond to ten days, whatever the calls were: a bucket too wide or off by one would be seen."""
    assert durations(seconds).quantile("tool", q) == pytest.approx(exact(seconds, q), rel=NEAR)


@pytest.mark.parametrize("seconds", [SHORTEST * 1.01, SHORTEST * 1.1, 1.0, LONGEST / 1.1, LONGEST / 1.01])
def test_that_holds_up_to_both_ends(seconds: float) -> None:
    """The first and the last bucket are as narrow as the others."""
    assert durations([seconds]).median("tool") == pytest.approx(seconds, rel=NEAR)


def test_a_quantile_is_that_of_all_calls_up_to_now() -> None:
    """Also if it was asked for before the last of them: what was looked up then is out of date."""
    made = durations([1.0])
    assert made.median("tool") == pytest.approx(1.0, rel=NEAR)
    for _ in range(3):
        made.add("tool", 100.0)
    assert made.median("tool") == pytest.approx(100.0, rel=NEAR)
    made.merge(durations([0.01] * 9))
    assert made.median("tool") == pytest.approx(0.01, rel=NEAR)


@pytest.mark.parametrize("seconds", [0.0, -1.0, SHORTEST / 1000, float("nan")])
def test_what_is_too_short_counts_as_the_shortest(seconds: float) -> None:
    """Clocks are coarse, and virtual ones say 0; the logarithm of that is no number."""
    assert durations([seconds]).median("tool") == SHORTEST


@pytest.mark.parametrize("seconds", [LONGEST, LONGEST * 1000, float("inf")])
def test_what_is_too_long_counts_as_the_longest(seconds: float) -> None:
    """A call that waited for weeks must not make the sketch grow, or fail."""
    assert durations([seconds]).median("tool") == pytest.approx(LONGEST, rel=NEAR)


def test_tools_are_kept_apart() -> None:
    """Else the slow one would look fast."""
    both = durations([1.0], "slow")
    both.add("fast", 0.01)

    assert both.median("slow") == pytest.approx(1.0, rel=NEAR)
    assert both.median("fast") == pytest.approx(0.01, rel=NEAR)
    assert (both.count("slow"), both.count("never"), both.quantile("never", 0.5)) == (1, 0, None)
    assert both.medians_of(["fast", "never"]) == {"fast": both.median("fast")}


@pytest.mark.parametrize("q", [-0.1, 1.1, float("nan")])
def test_no_quantile_is_beyond_all_calls(q: float) -> None:
    """95 in place of 0.95 is a mistake, and not the longest call."""
    with pytest.raises(ValueError, match="from 0 to 1"):
        durations([1.0]).quantile("tool", q)


# Fading ---------------------------------------------------------------------------------------------------------------


def test_a_tool_whose_speed_has_changed_is_known_anew() -> None:
    """After half as many calls as are remembered, also if it has been slow for a million."""
    made = durations([1.0] * 10 * FADES_ABOVE)
    for _ in range(FADES_ABOVE):
        made.add("tool", 0.01)

    assert made.median("tool") == pytest.approx(0.01, rel=NEAR)


def test_what_is_remembered_is_bounded() -> None:
    """In calls and in bytes, however much there was and however it was spread."""
    random = Random(1)
    made = durations([math.exp(random.uniform(-20, 20)) for _ in range(5 * FADES_ABOVE)])

    assert FADES_ABOVE / 2 - 1 <= made.count("tool") <= FADES_ABOVE
    assert len(json.dumps(made.as_dict())) < 2000


def test_fading_keeps_the_tail() -> None:
    """Were each count halved by itself, the counts of 1 would all be lost: the slow calls, for which p95 is asked."""
    random = Random(2)
    seconds = [math.exp(random.gauss(0, 3)) for _ in range(FADES_ABOVE + 1)]
    faded = durations(seconds)

    assert faded.count("tool") == pytest.approx(FADES_ABOVE / 2, abs=1)
    for q in (0.05, 0.5, 0.95, 0.99):
        assert (faded.quantile("tool", q) or 0) == pytest.approx(exact(seconds, q), rel=0.2), q


# Merging --------------------------------------------------------------------------------------------------------------


@given(st.lists(SECONDS, max_size=100), st.lists(SECONDS, max_size=100))
def test_merged_is_as_if_all_had_been_added_to_one(some: list[float], others: list[float]) -> None:
    """Two processes have seen the same tool: neither what the first has seen nor what the other has may be lost."""
    merged = durations(some)
    merged.merge(durations(others))
    merged.merge(durations(others, "another"))

    together = durations([*some, *others])
    for second in others:
        together.add("another", second)
    assert merged.as_dict() == together.as_dict()


def test_merging_leaves_the_other_as_it_was() -> None:
    """What a run has learned is still to be given to the journal."""
    new, known = durations([1.0]), Durations()
    known.merge(new)
    known.add("tool", 9.0)

    assert (new.count("tool"), known.count("tool")) == (1, 2)


def test_merging_stays_within_the_bound() -> None:
    """Else what was learned long ago would count for ever."""
    merged = durations([1.0] * FADES_ABOVE)
    merged.merge(durations([0.01] * FADES_ABOVE))

    assert merged.count("tool") == FADES_ABOVE
    assert merged.quantile("tool", 0.4) == pytest.approx(0.01, rel=NEAR)
    assert merged.quantile("tool", 0.6) == pytest.approx(1.0, rel=NEAR)


# As JSON --------------------------------------------------------------------------------------------------------------


@given(st.dictionaries(st.text(min_size=1, max_size=20), st.lists(SECONDS, min_size=1, max_size=30), max_size=4))
def test_json_brings_it_all_back(seen: dict[str, list[float]]) -> None:
    """It goes through a file."""
    made = Durations()
    for tool, seconds in seen.items():
        made.merge(durations(seconds, tool))
    again = Durations.from_dict(json.loads(json.dumps(made.as_dict())))

    assert again.as_dict() == made.as_dict()
    assert all(again.quantile(tool, q) == made.quantile(tool, q) for tool in seen for q in QUANTILES)


def kept(**counts: Any) -> dict[str, Any]:
    return {"format": 1, "tools": {"tool": {"first": 0, "counts": [1]} | counts}}


@pytest.mark.parametrize(
    ("plain", "where"),
    [
        ([], "durations: an object"),
        (None, "durations: an object"),
        ({}, "durations.format"),
        ({"format": 2, "tools": {}}, "durations.format"),
        ({"format": 1, "tools": [], "more": 1}, "durations.tools"),
        ({"format": 1, "tools": {}, "more": 1}, "durations.more"),
        ({"format": 1, "tools": {"": {"first": 0, "counts": [1]}}}, "durations.tools"),
        (kept(counts=[]), r"tool\.counts"),
        (kept(counts=[0]), "no call is counted"),
        (kept(counts=[1.5]), r"tool\.counts\.0"),
        (kept(counts=[True]), r"tool\.counts\.0"),
        (kept(counts=[-1, 2]), r"tool\.counts\.0"),
        (kept(counts=[10**30]), r"tool\.counts\.0"),
        (kept(counts=[1] * 10_000), r"tool\.counts"),
        (kept(first=-1), r"tool\.first"),
        (kept(first=270, counts=[1] * 20), "beyond the last"),
        (kept(more=1), r"tool\.more"),
    ],
    ids=lambda value: value if isinstance(value, str) else json.dumps(value)[:40],
)
def test_what_it_has_not_written_is_refused(plain: Any, where: str) -> None:
    """The file may come from anybody: whatever is in it, the error says where, and nothing else happens."""
    with pytest.raises(RecordRefused, match=where):
        Durations.from_dict(plain)


def test_too_many_calls_in_a_file_fade() -> None:
    """A later version may remember more; that must not outweigh all that is learned here."""
    made = Durations.from_dict(kept(first=100, counts=[2000, 2000]))

    assert made.count("tool") == FADES_ABOVE
