"""A failure in one of 200 branches, and a planner that thinks about it for 2 s: the other 199 do not notice."""

from __future__ import annotations

import json
from functools import cache, partial
from typing import Any

import pytest

import command
import replanning
from dagrun import RunResult
from dagrun.testing import run_virtual
from replanning import (
    BRANCHES,
    BROKEN,
    LENGTH,
    THINKING,
    Pair,
    as_json,
    makespan_of,
    pair_of,
    run_once,
    times_of,
    verdicts,
)
from small_tools import near

both = pytest.mark.parametrize("backend", replanning.BACKENDS)


@cache
def _runs(backend: str) -> tuple[RunResult, RunResult]:
    """The run without the failure, and the run with it; each on a clock of its own, as sums of floats differ."""
    whole, broken = (
        run_virtual(partial(run_once, is_broken=is_broken), backend=backend) for is_broken in (False, True)
    )
    return whole, broken


@both
@pytest.mark.rigs
def test_the_other_branches_do_not_notice(backend: str) -> None:
    """On virtual time every one of their steps starts and ends at the very same instant: not approximately."""
    before, after = map(times_of, _runs(backend))

    assert len(before) == (BRANCHES - 1) * LENGTH
    assert before == after
    assert makespan_of(before) == makespan_of(after)


@both
@pytest.mark.rigs
def test_the_branch_with_the_failure_waits_for_the_planner_and_for_nothing_else(backend: str) -> None:
    """It thinks while the others run; so the measurement would notice if they waited for it."""
    whole, broken = _runs(backend)

    failed, again = broken.steps[BROKEN], broken.steps[f"{BROKEN}-again"]
    assert failed.ended is not None
    assert again.started == near(failed.ended + THINKING)
    last = f"b0-{LENGTH - 1}"
    assert broken.steps[last].ended == near((whole.steps[last].ended or 0) + THINKING + again.work)
    assert makespan_of(times_of(broken)) > failed.ended + THINKING


# The figures ------------------------------------------------------------------------------------------------


def _pair(clock: str = "real", change: float = 0.0, shift: float = 0.0) -> Pair:
    return Pair(clock, 4.0, 4.0 * (1 + change / 100), shift, 9.0)


def test_a_pair_compares_the_unaffected_branches_alone() -> None:
    whole, broken = _runs("asyncio")

    pair = pair_of("virtual", whole, broken)

    assert (pair.shift, pair.change, pair.without) == (0, 0, makespan_of(times_of(whole)))
    assert pair.branch == broken.makespan > pair.with_failure


@pytest.mark.parametrize(
    ("pairs", "kept"),
    [
        ([_pair(change=0.99)], {"virtual": True, "real": True}),
        ([_pair(change=1.0)], {"virtual": True, "real": False}),
        ([_pair(change=9), _pair(), _pair()], {"virtual": True, "real": True}),
        ([_pair("virtual, trio", shift=1e-12)], {"virtual": False}),
        ([_pair("virtual, trio", change=1e-9)], {"virtual": False}),
    ],
)
def test_the_musts_are_nothing_on_virtual_time_and_one_percent_in_real_time(pairs: Any, kept: dict[str, bool]) -> None:
    assert verdicts(pairs) == kept


def test_kept_results_are_complete() -> None:
    kept = json.loads((command.RESULTS / "replanning.json").read_text())

    assert kept.keys() == as_json([_pair()]).keys()
    assert [pair["clock"] for pair in kept["pairs"]] == ["virtual, asyncio", "virtual, trio", *["real"] * 3]
    assert kept["passed"] == {"virtual": True, "real": True}
