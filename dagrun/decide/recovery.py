"""The recovery table: what follows from how an attempt ended. Only this table retries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dagrun.decide.delays import retry_delay
from dagrun.model.effect import Effect
from dagrun.model.outcome import Decision, ErrorKind, Outcome, Recovery, State
from dagrun.model.plan import OnFailure, RetryRule

PROCEED: Final = Decision(Recovery.PROCEED)

# Another tool with the same arguments would fail for the same reason.
_NO_FALLBACK: Final = frozenset((ErrorKind.BAD_ARGUMENTS, ErrorKind.MISSING_INPUT, ErrorKind.CEILING))


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What the table looks at besides the outcome.

    Attributes:
        effect: Of the tool that was called.
        attempt: Attempts of this step so far, those that a stray cancellation spoilt not counted; at least 1.
        rule: When to try again.
        fallback: The name of a fallback that was not tried yet.
        on_failure: What the author of the plan wants when the step has failed for good; `None` if nothing was said.
        seconds_left: Until the deadline of the whole step; `None` if it has none.
        draw: Uniform in [0, 1), for the jitter of the delay.
    """

    effect: Effect
    attempt: int
    rule: RetryRule
    fallback: str | None = None
    on_failure: OnFailure | None = None
    seconds_left: float | None = None
    draw: float = 0.0


def decide(outcome: Outcome, situation: Situation) -> Decision:
    """Say what to do about *outcome*: the first row that fits.

    Args:
        outcome: How the attempt ended.
        situation: The step, its tool, its limits.
    """
    failure = outcome.failure
    if outcome.state is State.SUCCEEDED:
        return PROCEED
    # By its kind, not its state: it may be unknown or abandoned as well.
    if outcome.state is State.CANCELLED or (failure is not None and failure.kind is ErrorKind.CANCELLED):
        return Decision(Recovery.GIVE_UP, "the step was cancelled")
    if failure is not None:
        if failure.kind is ErrorKind.STRAY_CANCELLATION and situation.effect.may_repeat:
            return Decision(Recovery.RETRY, "a cancellation left behind by another step hit this one")
        if failure.is_transient and _may_repeat(outcome, situation):
            delay = retry_delay(situation.rule, situation.attempt, situation.draw, failure.retry_after)
            if situation.seconds_left is None or delay < situation.seconds_left:
                return Decision(Recovery.RETRY, f"{failure.kind} is transient", delay)
        if (
            situation.fallback
            and failure.kind not in _NO_FALLBACK
            and surely_nothing_happened(outcome, situation.effect)
        ):
            return Decision(Recovery.FALL_BACK, f"{situation.fallback} takes the same arguments")
    return _last_resort(outcome, situation.on_failure)


def _may_repeat(outcome: Outcome, situation: Situation) -> bool:
    if situation.attempt >= situation.rule.max_attempts:
        return False
    return situation.effect.may_repeat or surely_nothing_happened(outcome, situation.effect)


def surely_nothing_happened(outcome: Outcome, effect: Effect) -> bool:
    """Whether the attempt certainly had no effect on the world, so that another tool, or another try, is safe."""
    return effect.is_free or (outcome.failure is not None and outcome.failure.nothing_happened)


def _last_resort(outcome: Outcome, on_failure: OnFailure | None) -> Decision:
    match on_failure:
        case "stop":
            return Decision(Recovery.STOP, "on_failure: stop")
        case "default" if outcome.state is not State.UNKNOWN:  # a default must not hide an effect in doubt
            return Decision(Recovery.DEFAULT, "on_failure: default")
        case "skip" if outcome.state is not State.UNKNOWN:
            return Decision(Recovery.SKIP, "on_failure: skip")
        case _:
            return Decision(Recovery.GIVE_UP, "no row of the recovery table helps")


def settled_state(outcome: Outcome, decision: Decision) -> State:
    """The state of the step after *decision*: settled, or ready for another attempt."""
    match decision.recovery:
        case Recovery.RETRY | Recovery.FALL_BACK:
            return State.READY
        case Recovery.PROCEED | Recovery.DEFAULT:
            return State.SUCCEEDED
        case _:
            return outcome.state


def state_after_stop(effect: Effect, asked: State, *, vouched: bool, still_running: bool) -> State:
    """The state of an attempt that was told to stop while it ran: the effect table.

    Args:
        effect: Of the tool.
        asked: ``timed_out`` or ``cancelled``: why it was told to stop.
        vouched: Whether the tool itself said that nothing happened.
        still_running: Whether it would not stop.
    """
    if not effect.is_free and not vouched:
        return State.UNKNOWN
    return State.ABANDONED if still_running else asked
