"""Cancellation at every point: of the run and of the code around it, at each event and between any two task steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from dagrun.kernel.runtime.record.record import Backlog
from fuzz import AROUND, Report, run_case
from random_cases import Case, make_case
from seeds import choose_seeds

pytestmark = pytest.mark.rigs


def quiet_case(seed: int) -> Case:
    """The case of *seed* without the trouble that it has of its own."""
    return replace(make_case(seed), cancels=(), cancels_at=(), shared=None)


def everywhere(case: Case, replacements: Mapping[Any, Any] | None = None) -> Iterator[Report]:
    """Run *case* once without trouble, then once for each point and each way of cancelling."""
    whole = run_case(case, replacements)
    yield whole
    for what in (None, AROUND):
        for n in range(1, whole.counts["events"] + 1):
            yield run_case(replace(case, cancels_at=((n, what),)), replacements)
        for n in range(1, whole.resumed + 1):
            yield run_case(replace(case, cancels_between=((n, what),)), replacements)


def check_everywhere(seed: int) -> int:
    """Cancel the case of *seed* everywhere; give the number of points at which there was something to cancel."""
    cancelled = 0
    for report in everywhere(quiet_case(seed)):
        where = f"DAGRUN_SEED={seed}, {report.case.cancels_at or report.case.cancels_between}"
        assert not report.broken, f"{where}: " + "\n".join(report.broken[:10])
        cancelled += report.counts["cancels"]
    return cancelled


@pytest.mark.parametrize("seed", [11])
def test_a_run_settles_wherever_it_is_cancelled(seed: int) -> None:
    """Every step settles, every attempt ends, no task, slot or event is lost, whatever the cancellation interrupts."""
    assert check_everywhere(seed) > 30


@pytest.mark.parametrize("portion", [1, 3])
def test_a_run_settles_in_several_turns_wherever_it_is_cancelled(portion: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where what has not started is settled a few steps at a time."""
    monkeypatch.setattr(Backlog, "portion", portion)
    assert check_everywhere(11) > 30


@pytest.mark.rigs(seconds=40)
def test_many_runs_settle_wherever_they_are_cancelled() -> None:
    """The same for plans with failures, retries, lists, stubborn tools and limits of all kinds."""
    points = sum(check_everywhere(seed) for seed in choose_seeds(5, 150))
    print(f"{points} cancellations")
    assert points > 100
