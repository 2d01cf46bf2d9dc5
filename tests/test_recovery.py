"""The recovery table row by row, and the two tables beside it, without a loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagrun.decide.recovery import Situation, decide, settled_state, state_after_stop, surely_nothing_happened
from dagrun.decide.status import NO_APPROVER, Ended, is_bad, status_of
from dagrun.model.effect import Effect
from dagrun.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery, State, Status
from dagrun.model.plan import OnFailure, RetryRule

FREE = (Effect.PURE, Effect.READ)
WITH_EFFECT = (Effect.IDEMPOTENT, Effect.EFFECTFUL)

RULE = RetryRule(max_attempts=3, first_delay=8, factor=2, max_delay=None)


def _situation(**changes: Any) -> Situation:
    return replace(Situation(effect=Effect.READ, attempt=1, rule=RULE, draw=0.25), **changes)


def _failed(kind: ErrorKind = ErrorKind.EXCEPTION, state: State = State.FAILED, **facts: Any) -> Outcome:
    return Outcome(state, None, Failure(kind, "it did not work", **facts))


TRANSIENT = _failed(ErrorKind.CONNECTION, is_transient=True)


# What needs no recovery -------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("on_failure", [None, "skip", "default", "stop", "replan"])
def test_success_proceeds_whatever_the_plan_says(effect: Effect, on_failure: OnFailure | None) -> None:
    """Fallback and on_failure are for failures: a step that succeeded never looks at them."""
    situation = _situation(effect=effect, on_failure=on_failure, fallback="other", attempt=3)

    assert decide(Outcome(State.SUCCEEDED, 1), situation).recovery is Recovery.PROCEED


@pytest.mark.parametrize("state", [State.CANCELLED, State.ABANDONED, State.UNKNOWN])
@pytest.mark.parametrize("on_failure", [None, "skip", "default", "stop", "replan"])
def test_a_cancelled_step_is_not_recovered(on_failure: OnFailure | None, state: State) -> None:
    """Somebody asked for its end, however it ended then: a retry, a fallback or a default would disobey."""
    outcome = _failed(ErrorKind.CANCELLED, state, is_transient=True, nothing_happened=True)

    assert decide(outcome, _situation(on_failure=on_failure, fallback="other")).recovery is Recovery.GIVE_UP


# Retries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [*FREE, Effect.IDEMPOTENT])
@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT])
def test_what_may_repeat_retries_a_transient_failure(effect: Effect, state: State) -> None:
    outcome = replace(TRANSIENT, state=state)

    assert decide(outcome, _situation(effect=effect)) == Decision(Recovery.RETRY, "connection is transient", 2.0)


def test_idempotent_retries_an_attempt_of_unknown_outcome() -> None:
    """The key is the same, so the second call is the first one once more."""
    outcome = _failed(ErrorKind.TIMEOUT, State.UNKNOWN, is_transient=True)

    assert decide(outcome, _situation(effect=Effect.IDEMPOTENT)).recovery is Recovery.RETRY


def test_effectful_is_never_retried_when_it_may_have_applied() -> None:
    outcome = _failed(ErrorKind.TIMEOUT, State.UNKNOWN, is_transient=True)

    assert decide(outcome, _situation(effect=Effect.EFFECTFUL)).recovery is Recovery.GIVE_UP


def test_effectful_is_retried_when_the_tool_vouches_that_nothing_happened() -> None:
    outcome = _failed(ErrorKind.TOOL, is_transient=True, nothing_happened=True)

    assert decide(outcome, _situation(effect=Effect.EFFECTFUL)).recovery is Recovery.RETRY


@pytest.mark.parametrize("effect", Effect)
def test_what_is_not_transient_is_not_retried(effect: Effect) -> None:
    """The same call would fail in the same way."""
    outcome = _failed(ErrorKind.PERMISSION, nothing_happened=True)

    assert decide(outcome, _situation(effect=effect)).recovery is Recovery.GIVE_UP


@pytest.mark.parametrize(("attempt", "expected"), [(1, "retry"), (2, "retry"), (3, "give_up"), (4, "give_up")])
def test_attempts_are_counted(attempt: int, expected: str) -> None:
    assert str(decide(TRANSIENT, _situation(attempt=attempt)).recovery) == expected


def test_one_attempt_means_no_retry() -> None:
    assert decide(TRANSIENT, _situation(rule=RetryRule(max_attempts=1))).recovery is Recovery.GIVE_UP


@pytest.mark.parametrize(("attempt", "delay"), [(1, 2.0), (2, 4.0)])
def test_delays_grow_with_the_attempts_and_the_draw(attempt: int, delay: float) -> None:
    assert decide(TRANSIENT, _situation(attempt=attempt)).delay == delay


def test_retry_after_is_a_minimum() -> None:
    assert decide(_failed(ErrorKind.RATE_LIMITED, is_transient=True, retry_after=7), _situation()).delay == 7
    assert decide(_failed(ErrorKind.RATE_LIMITED, is_transient=True, retry_after=1), _situation()).delay == 2


@pytest.mark.parametrize(("seconds_left", "expected"), [(2.001, "retry"), (2.0, "give_up"), (-1.0, "give_up")])
def test_no_retry_that_would_begin_after_the_deadline(seconds_left: float, expected: str) -> None:
    """Waiting for a deadline only to fail at it helps nobody."""
    assert str(decide(TRANSIENT, _situation(seconds_left=seconds_left)).recovery) == expected


@pytest.mark.parametrize("effect", [*FREE, Effect.IDEMPOTENT])
def test_a_stray_cancellation_is_retried_at_once_and_without_limit(effect: Effect) -> None:
    """It was not this step's fault, so it uses up neither its attempts nor its time."""
    outcome = _failed(ErrorKind.STRAY_CANCELLATION)
    decision = decide(outcome, _situation(effect=effect, attempt=99, rule=RetryRule(max_attempts=1)))

    assert (decision.recovery, decision.delay) == (Recovery.RETRY, 0.0)


def test_a_stray_cancellation_of_an_effectful_call_leaves_it_unknown() -> None:
    outcome = _failed(ErrorKind.STRAY_CANCELLATION, State.UNKNOWN)
    decision = decide(outcome, _situation(effect=Effect.EFFECTFUL))

    assert decision.recovery is Recovery.GIVE_UP
    assert settled_state(outcome, decision) is State.UNKNOWN


# Fallback ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", FREE)
def test_fallback_follows_the_last_attempt(effect: Effect) -> None:
    situation = _situation(effect=effect, fallback="other")

    assert decide(TRANSIENT, situation).recovery is Recovery.RETRY
    assert decide(TRANSIENT, replace(situation, attempt=3)).recovery is Recovery.FALL_BACK
    assert decide(_failed(), situation).recovery is Recovery.FALL_BACK


@pytest.mark.parametrize("effect", WITH_EFFECT)
def test_fallback_is_forbidden_after_a_possible_effect(effect: Effect) -> None:
    """Another tool would do the same thing a second time, and no key ties the two together."""
    situation = _situation(effect=effect, fallback="other", attempt=3)

    assert decide(_failed(state=State.UNKNOWN), situation).recovery is Recovery.GIVE_UP
    assert decide(_failed(ErrorKind.TOOL, nothing_happened=True), situation).recovery is Recovery.FALL_BACK


@pytest.mark.parametrize("kind", [ErrorKind.BAD_ARGUMENTS, ErrorKind.MISSING_INPUT, ErrorKind.CEILING])
def test_fallback_does_not_help_where_the_arguments_are_to_blame(kind: ErrorKind) -> None:
    assert decide(_failed(kind), _situation(fallback="other")).recovery is Recovery.GIVE_UP


def test_fallback_comes_before_the_last_resort() -> None:
    assert decide(_failed(), _situation(fallback="other", on_failure="stop")).recovery is Recovery.FALL_BACK


# The last resort --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_failure", "expected"),
    [(None, "give_up"), ("replan", "give_up"), ("skip", "skip"), ("default", "default"), ("stop", "stop")],
)
def test_on_failure_is_the_last_resort(on_failure: OnFailure | None, expected: str) -> None:
    """Without a planner ``replan`` is nothing that anybody could do."""
    assert str(decide(_failed(), _situation(on_failure=on_failure)).recovery) == expected


@pytest.mark.parametrize("state", [State.TIMED_OUT, State.ABANDONED])
@pytest.mark.parametrize("on_failure", ["skip", "default", "stop"])
def test_on_failure_is_for_every_way_to_fail(state: State, on_failure: OnFailure) -> None:
    outcome = _failed(ErrorKind.TIMEOUT, state)

    assert decide(outcome, _situation(on_failure=on_failure)).recovery == Recovery(on_failure)


@pytest.mark.parametrize("on_failure", ["skip", "default"])
def test_an_effect_in_doubt_is_not_papered_over(on_failure: OnFailure) -> None:
    """A default, or a tolerated skip, would make the run look well while nobody knows what took effect."""
    outcome = _failed(state=State.UNKNOWN)
    decision = decide(outcome, _situation(effect=Effect.EFFECTFUL, on_failure=on_failure))

    assert decision.recovery is Recovery.GIVE_UP
    assert settled_state(outcome, decision) is State.UNKNOWN


def test_an_effect_in_doubt_may_stop_the_run() -> None:
    outcome = _failed(state=State.UNKNOWN)
    decision = decide(outcome, _situation(effect=Effect.EFFECTFUL, on_failure="stop"))

    assert decision.recovery is Recovery.STOP
    assert settled_state(outcome, decision) is State.UNKNOWN


@pytest.mark.parametrize("recovery", Recovery)
def test_every_decision_names_a_state(recovery: Recovery) -> None:
    state = settled_state(_failed(), Decision(recovery))
    expected = {
        Recovery.RETRY: State.READY,
        Recovery.FALL_BACK: State.READY,
        Recovery.PROCEED: State.SUCCEEDED,
        Recovery.DEFAULT: State.SUCCEEDED,
    }

    assert state is expected.get(recovery, State.FAILED)


def test_every_decision_but_success_gives_its_reason() -> None:
    """The record shows which row spoke; an empty reason would leave a reader guessing."""
    outcomes = [TRANSIENT, _failed(), _failed(state=State.UNKNOWN), _failed(ErrorKind.STRAY_CANCELLATION)]
    situations = [_situation(on_failure=w, fallback=f) for w in (None, "skip", "stop") for f in (None, "other")]

    assert all(decide(outcome, situation).reason for outcome in outcomes for situation in situations)


@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("vouched", [False, True])
def test_only_the_tool_can_vouch_for_an_effect(effect: Effect, vouched: bool) -> None:
    outcome = _failed(nothing_happened=vouched)

    assert surely_nothing_happened(outcome, effect) is (vouched or effect in FREE)


# Stopped while it ran ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [State.TIMED_OUT, State.CANCELLED])
@pytest.mark.parametrize("still_running", [False, True])
@pytest.mark.parametrize("effect", Effect)
@pytest.mark.parametrize("vouched", [False, True])
def test_the_effect_decides_what_a_stopped_attempt_was(
    effect: Effect, asked: State, vouched: bool, still_running: bool
) -> None:
    """Doubt about an effect outweighs everything else; then a step that would not stop is told from one that did."""
    if effect in WITH_EFFECT and not vouched:
        expected = State.UNKNOWN
    elif still_running:
        expected = State.ABANDONED
    else:
        expected = asked

    assert state_after_stop(effect, asked, vouched=vouched, still_running=still_running) is expected


# The status of the run --------------------------------------------------------------------------------------


def _ended(state: State, reason: str = "why", *, tolerated: bool = False, optional: bool = False) -> Ended:
    return Ended(f"step-{state}", state, reason, tolerated, optional)


def test_nothing_unsuccessful_is_success() -> None:
    assert status_of([], 3) == (Status.SUCCEEDED, "3 succeeded")


def test_tolerated_skips_are_success_and_counted() -> None:
    assert status_of([_ended(State.SKIPPED, tolerated=True)], 3) == (Status.SUCCEEDED, "2 succeeded, 1 skipped")


@pytest.mark.parametrize("state", [State.FAILED, State.TIMED_OUT, State.ABANDONED, State.CANCELLED, State.SKIPPED])
def test_any_step_that_did_not_end_well_fails_the_run(state: State) -> None:
    status, reason = status_of([_ended(state)], 2)

    assert status is Status.FAILED
    assert reason == f"step-{state} {state}: why"


def test_optional_steps_may_fail() -> None:
    assert status_of([_ended(State.FAILED, optional=True)], 2)[0] is Status.SUCCEEDED


def test_a_tolerated_failure_still_fails_the_run() -> None:
    """``on_failure: skip`` lets the rest go on; it does not turn a failure into a success."""
    assert is_bad(_ended(State.FAILED, tolerated=True))
    assert not is_bad(_ended(State.SKIPPED, tolerated=True))


def test_an_effect_in_doubt_outweighs_everything() -> None:
    steps = [_ended(State.FAILED), _ended(State.UNKNOWN, optional=True)]

    status, reason = status_of(steps, 4, stopped=(Status.OVER_BUDGET, "ceiling"))

    assert status is Status.UNKNOWN
    assert "step-unknown" in reason


def test_a_run_that_was_stopped_says_so() -> None:
    assert status_of([_ended(State.CANCELLED)], 2, (Status.OVER_BUDGET, "ceiling")) == (Status.OVER_BUDGET, "ceiling")


def test_nobody_to_approve_is_waiting_unless_something_failed() -> None:
    held, behind = _ended(State.SKIPPED, NO_APPROVER), _ended(State.SKIPPED, "step-held skipped")

    assert status_of([held, behind], 3) == (Status.WAITING, "nobody was there to approve step-skipped")
    assert status_of([held, _ended(State.FAILED)], 3)[0] is Status.FAILED


def test_the_causes_are_named_before_what_they_took_along() -> None:
    steps = [_ended(State.SKIPPED, "because"), _ended(State.FAILED, "broken")]

    assert status_of(steps, 2) == (Status.FAILED, "step-failed failed: broken")


def test_many_failures_are_counted_not_listed() -> None:
    steps = [Ended(f"s{n}", State.FAILED, "x" * 10_000, False, False) for n in range(50)]

    reason = status_of(steps, 50)[1]

    assert reason.endswith("; and 47 more")
    assert len(reason) < 1_000
