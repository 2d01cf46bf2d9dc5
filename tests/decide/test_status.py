"""The status of a run, from how its steps ended."""

from __future__ import annotations

import pytest

from dagrun import State, Status
from dagrun.kernel.decide.recovery import NO_APPROVER, Ended, Tally, is_bad, status_of


def _ended(state: State, reason: str = "why", *, tolerated: bool = False, optional: bool = False) -> Ended:
    return Ended(f"step-{state}", state, reason, tolerated, optional)


def test_nothing_unsuccessful_is_success() -> None:
    assert status_of(Tally(3)) == (Status.SUCCEEDED, "3 succeeded")


def test_tolerated_skips_are_success_and_counted() -> None:
    assert status_of(Tally(3, [_ended(State.SKIPPED, tolerated=True)])) == (Status.SUCCEEDED, "2 succeeded, 1 skipped")


def test_elements_that_failed_are_told_of_a_run_that_succeeded() -> None:
    tally = Tally(5)
    tally.gaps = [f"f{number}: 2 of 5 elements failed" for number in range(5)]

    told = "; ".join(["5 succeeded", *tally.gaps[:3], "and 2 more"])
    assert status_of(tally) == (Status.SUCCEEDED, told)


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.ABANDONED, State.CANCELLED, State.SKIPPED])
def test_any_step_that_did_not_end_well_fails_the_run(state: State) -> None:
    status, reason = status_of(Tally(2, [_ended(state)]))

    assert status is Status.FAILED
    assert reason == f"step-{state} {state}: why"


def test_optional_steps_may_fail() -> None:
    assert status_of(Tally(2, [_ended(State.FAILED, optional=True)]))[0] is Status.SUCCEEDED


def test_a_tolerated_failure_still_fails_the_run() -> None:
    """``on_failure: skip`` lets the rest go on; it does not turn a failure into a success."""
    assert is_bad(_ended(State.FAILED, tolerated=True))
    assert not is_bad(_ended(State.SKIPPED, tolerated=True))


def test_an_effect_in_doubt_outweighs_everything() -> None:
    steps = [_ended(State.FAILED), _ended(State.UNKNOWN, optional=True)]

    status, reason = status_of(Tally(4, steps), stopped=(Status.OVER_BUDGET, "ceiling"))

    assert status is Status.UNKNOWN
    assert "step-unknown" in reason


def test_a_run_that_was_stopped_says_so() -> None:
    assert status_of(Tally(2, [_ended(State.CANCELLED)]), (Status.OVER_BUDGET, "ceiling")) == (
        Status.OVER_BUDGET,
        "ceiling",
    )


def test_nobody_to_approve_is_waiting_unless_something_failed() -> None:
    held, behind = _ended(State.SKIPPED, NO_APPROVER), _ended(State.SKIPPED, "step-held skipped")

    assert status_of(Tally(3, [held, behind])) == (Status.WAITING, "nobody was there to approve step-skipped")
    assert status_of(Tally(3, [held, _ended(State.FAILED)]))[0] is Status.FAILED


def test_the_causes_are_named_before_what_they_took_along() -> None:
    steps = [_ended(State.SKIPPED, "because"), _ended(State.FAILED, "broken")]

    assert status_of(Tally(2, steps)) == (Status.FAILED, "step-failed failed: broken")


def test_many_failures_are_counted_not_listed() -> None:
    steps = [Ended(f"s{n}", State.FAILED, "x" * 10_000, False, False) for n in range(50)]

    reason = status_of(Tally(50, steps))[1]

    assert reason.endswith("; and 47 more")
    assert len(reason) < 1_000
