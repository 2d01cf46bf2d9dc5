"""The recovery table row by row, and the two tables beside it, without a loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dagrun import Effect, RetryRule, State, TriggerKind
from dagrun.kernel.decide.recovery import Situation, decide, settled_state, state_after_stop, surely_nothing_happened
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery
from dagrun.kernel.model.plan import OnFailure

FREE = (Effect.PURE, Effect.READ)
WITH_EFFECT = (Effect.IDEMPOTENT, Effect.EFFECTFUL)

RULE = RetryRule(max_attempts=3, first_delay=8, factor=2, max_delay=None)


def _situation(**changes: Any) -> Situation:
    return replace(Situation(effect=Effect.READ, attempt=1, rule=RULE, draw=0.25), **changes)


def _failed(kind: ErrorKind = ErrorKind.EXCEPTION, state: State = State.FAILED, **facts: Any) -> Outcome:
    return Outcome(state, None, Failure(kind, "it did not work", **facts))


TRANSIENT = _failed(ErrorKind.CONNECTION, is_transient=True)
SURPRISING = Outcome(State.SUCCEEDED, 1, surprise="ten times as many")
EVERYTHING = tuple(TriggerKind)


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


@pytest.mark.parametrize("can_ask", [False, True])
@pytest.mark.parametrize("effect", Effect)
def test_a_refused_permission_is_never_retried(effect: Effect, can_ask: bool) -> None:
    """Not even where the tool calls it transient: knocking again only makes it look like an attack."""
    outcome = _failed(ErrorKind.PERMISSION, is_transient=True, nothing_happened=True)

    assert decide(outcome, _situation(effect=effect, can_ask=can_ask)).recovery is not Recovery.RETRY


# A person ---------------------------------------------------------------------------------------------------

MISSING = _failed(ErrorKind.MISSING_INPUT, nothing_happened=True, missing_input="region")
FORBIDDEN = _failed(ErrorKind.PERMISSION, nothing_happened=True)
IN_DOUBT = _failed(state=State.UNKNOWN)


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(MISSING, "region is missing"), (FORBIDDEN, "permission was refused")],
)
@pytest.mark.parametrize("effect", Effect)
def test_a_person_is_asked_for_what_only_a_person_has(outcome: Outcome, reason: str, effect: Effect) -> None:
    """Before the fallback and the planner; if there is a person at all."""
    situation = _situation(effect=effect, can_ask=True, fallback="other", replan_on=EVERYTHING)

    assert decide(outcome, situation) == Decision(Recovery.ASK, reason)
    assert decide(outcome, replace(situation, can_ask=False)).recovery is not Recovery.ASK


@pytest.mark.parametrize("outcome", [MISSING, FORBIDDEN])
@pytest.mark.parametrize("on_failure", ["skip", "default", "stop"])
def test_a_plan_that_says_what_to_do_bothers_nobody(outcome: Outcome, on_failure: OnFailure) -> None:
    assert decide(outcome, _situation(can_ask=True, on_failure=on_failure)).recovery == Recovery(on_failure)


@pytest.mark.parametrize("on_failure", [None, "skip", "default", "replan"])
def test_a_person_is_asked_whether_it_took_effect(on_failure: OnFailure | None) -> None:
    """Whatever the plan says of failures: this may be none."""
    situation = _situation(effect=Effect.EFFECTFUL, can_ask=True, on_failure=on_failure, replan_on=EVERYTHING)

    assert decide(IN_DOUBT, situation) == Decision(Recovery.ASK, "nobody knows whether it took effect")


def test_a_run_that_is_to_stop_asks_nobody() -> None:
    situation = _situation(effect=Effect.EFFECTFUL, can_ask=True, on_failure="stop")

    assert decide(IN_DOUBT, situation).recovery is Recovery.STOP


def test_what_can_be_repeated_is_repeated_before_a_person_is_asked() -> None:
    """The same call with the same key finds out by itself."""
    outcome = _failed(ErrorKind.TIMEOUT, State.UNKNOWN, is_transient=True)
    situation = _situation(effect=Effect.IDEMPOTENT, can_ask=True)

    assert decide(outcome, situation).recovery is Recovery.RETRY
    assert decide(outcome, replace(situation, attempt=3)).recovery is Recovery.GIVE_UP


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


# The planner ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "attempt", "kind"),
    [
        (_failed(ErrorKind.SUCCESS_CONDITION), 1, TriggerKind.SUCCESS_CONDITION),
        (_failed(ErrorKind.CRITIC), 1, TriggerKind.SUCCESS_CONDITION),
        (_failed(ErrorKind.UNREACHABLE), 2, TriggerKind.UNREACHABLE),
        (_failed(ErrorKind.CONNECTION, is_transient=True), 3, TriggerKind.FAILED_TWICE),
        (_failed(ErrorKind.EXCEPTION), 1, TriggerKind.FAILED),
        (_failed(ErrorKind.TIMEOUT, State.TIMED_OUT), 1, TriggerKind.FAILED),
        (_failed(ErrorKind.DENIED), 1, TriggerKind.FAILED),
        (_failed(ErrorKind.SUCCESS_CONDITION, State.UNKNOWN), 1, TriggerKind.UNKNOWN_EFFECT),
    ],
)
@pytest.mark.parametrize("on_failure", [None, "replan"])
def test_each_failure_for_good_is_a_reason_of_its_kind(
    outcome: Outcome, attempt: int, kind: TriggerKind, on_failure: OnFailure | None
) -> None:
    """Asked only if the policy names this kind; and the step is left as it ended."""
    situation = _situation(attempt=attempt, on_failure=on_failure, replan_on=[kind], effect=Effect.IDEMPOTENT)
    decision = decide(outcome, situation)

    assert (decision.recovery, decision.trigger) == (Recovery.REPLAN, kind)
    assert settled_state(outcome, decision) is outcome.state
    others = [other for other in TriggerKind if other is not kind]
    assert decide(outcome, replace(situation, replan_on=others)).recovery is Recovery.GIVE_UP


@pytest.mark.parametrize("on_failure", ["skip", "default", "stop"])
def test_a_plan_that_says_what_to_do_asks_no_planner(on_failure: OnFailure) -> None:
    situation = _situation(on_failure=on_failure, replan_on=EVERYTHING)

    assert decide(_failed(), situation).recovery == Recovery(on_failure)
    assert decide(SURPRISING, situation).recovery is Recovery.PROCEED
    # Unless the effect is in doubt, which no default and no skip may hide. A person is asked first, if there is one.
    assert decide(IN_DOUBT, situation).recovery is (Recovery.STOP if on_failure == "stop" else Recovery.GIVE_UP)


@pytest.mark.parametrize("on_failure", [None, "replan"])
def test_a_surprise_is_the_planners_if_there_is_one(on_failure: OnFailure | None) -> None:
    """Without one it goes on, and the reason says that it was surprising."""
    asks = _situation(on_failure=on_failure, replan_on=[TriggerKind.SURPRISE])

    assert decide(SURPRISING, asks) == Decision(Recovery.REPLAN, "ten times as many", trigger=TriggerKind.SURPRISE)
    alone = decide(SURPRISING, replace(asks, replan_on=[TriggerKind.FAILED]))
    assert (alone.recovery, alone.reason) == (
        Recovery.PROCEED,
        "surprising, and nobody is asked: ten times as many",
    )
    assert settled_state(SURPRISING, decide(SURPRISING, asks)) is State.SUCCEEDED


def test_retries_and_fallback_come_before_the_planner() -> None:
    situation = _situation(replan_on=EVERYTHING, fallback="other")

    assert decide(TRANSIENT, situation).recovery is Recovery.RETRY
    assert decide(TRANSIENT, replace(situation, attempt=3)).recovery is Recovery.FALL_BACK
    assert decide(TRANSIENT, replace(situation, attempt=3, fallback=None)).recovery is Recovery.REPLAN


def test_people_are_called_when_nobody_else_could_help() -> None:
    """After the planner, which may have none to ask; never for a step that the plan does without."""
    situation = _situation(last_resort="escalate", replan_on=EVERYTHING)

    assert decide(_failed(), situation).recovery is Recovery.REPLAN
    assert decide(_failed(), replace(situation, replan_on=())).recovery is Recovery.ESCALATE
    assert decide(_failed(), replace(situation, on_failure="skip")).recovery is Recovery.SKIP
    assert decide(IN_DOUBT, replace(situation, replan_on=(), on_failure="skip")).recovery is Recovery.ESCALATE


# What follows -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("recovery", Recovery)
def test_every_decision_names_a_state(recovery: Recovery) -> None:
    state = settled_state(_failed(), Decision(recovery))
    expected = {
        Recovery.RETRY: State.READY,
        Recovery.FALL_BACK: State.READY,
        Recovery.ASK: State.HELD,
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

    assert state_after_stop(effect, asked, is_known=vouched, still_running=still_running) is expected
