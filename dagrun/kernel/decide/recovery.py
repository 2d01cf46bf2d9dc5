"""The recovery table: from the outcome of an attempt to a decision; and the status of a run, from its steps.

Only this table retries.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from dagrun.errors import shorten
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.outcome import PROCEED, Decision, ErrorKind, Outcome, Recovery, State, Status, TriggerKind
from dagrun.kernel.model.plan import OnFailure, RetryRule

# A server may ask for a pause; it may not park a run for a day.
MAX_RETRY_AFTER: Final = 120.0


NOT_NOW: Final = "the provider takes fewer calls at once"
"""The reason for another attempt after one that was refused beside others."""
ANEW: Final = "an element that it had taken was changed, so it is called anew"
"""The reason for another attempt after one that has taken, one by one, what a patch has changed since."""
UNCOUNTED: Final = frozenset((NOT_NOW, ANEW))
"""The reasons for another attempt after one that does not count."""


def is_refused_for_now(outcome: Outcome) -> bool:
    """Whether the other side has refused a call because it takes no more at the moment."""
    failure = outcome.failure
    if failure is None or not failure.is_transient:
        return False
    return failure.kind is ErrorKind.RATE_LIMITED or failure.retry_after is not None


def retry_delay(rule: RetryRule, attempt: int, draw: float, retry_after: float | None = None) -> float:
    """Return the seconds to wait after a failed attempt: exponential back-off with full jitter.

    Args:
        rule: The first delay, the factor and the longest delay.
        attempt: The attempt that has failed; 1 for the first.
        draw: Uniform in [0, 1).
        retry_after: Seconds that the other side asked for; honoured as a minimum, up to 120.

    Returns:
        ``draw * min(max_delay, first_delay * factor ** (attempt - 1))``, or *retry_after* if that is longer.

    Source: M. Brooker, Exponential Backoff And Jitter, AWS Architecture Blog, 2015.
    """
    delay = draw * _longest_delay(rule, attempt)
    return delay if retry_after is None else max(delay, min(retry_after, MAX_RETRY_AFTER))


def _longest_delay(rule: RetryRule, attempt: int) -> float:
    ceiling = sys.float_info.max if rule.max_delay is None else rule.max_delay
    try:
        return min(ceiling, rule.first_delay * rule.factor ** (attempt - 1))
    except OverflowError:  # a factor of 1e300 is allowed, and its square is not a float
        return ceiling if rule.first_delay > 0 else 0.0


# Decisions after which a step continues: not allowed once the run is being stopped or the step is being dropped.
GOES_ON: Final = frozenset((Recovery.RETRY, Recovery.FALL_BACK, Recovery.REPLAN, Recovery.ASK))

# Another tool with the same arguments would fail for the same reason.
_NO_FALLBACK: Final = frozenset((ErrorKind.BAD_ARGUMENTS, ErrorKind.MISSING_INPUT, ErrorKind.CEILING))


CANCELLED: Final = Decision(Recovery.GIVE_UP, "the step was cancelled")
"""The decision about every attempt that was cancelled; shared, because a cancelled run may have a thousand of them."""

# Failures that say nothing about the call itself: such attempts do not count.
SPOILT: Final = {
    ErrorKind.STRAY_CANCELLATION: "a cancellation left behind by another step hit this one",
    ErrorKind.INTERRUPTED: "the process that made the call has ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """The facts besides the outcome that decide.

    Attributes:
        effect: The effect of the tool that was called.
        attempt: The attempts of this step so far, without those that others have spoilt; at least 1.
        rule: When to try again.
        fallback: The name of a fallback that was not tried yet.
        on_failure: The wish of the plan for a step that has failed for good; `None` if the plan names none.
        seconds_left: The seconds until the deadline of the step; `None` if it has none.
        draw: Uniform in [0, 1), for the jitter of the delay.
        replan_on: The triggers that a planner may be asked about; empty if there is no planner.
        can_ask: Whether there is a person to ask.
        can_reconcile: Whether the tool itself can find out whether a call took effect.
        last_resort: The wish of the policy for a step that has failed for good, where neither planner nor person helps.
        contradicts: Whether a surprise is that the sources of the output do not agree.
        in_doubt: Whether an attempt before this one may have taken effect. Until an attempt succeeds, the step can only
            end in doubt, and only the same call may follow.
    """

    effect: Effect
    attempt: int
    rule: RetryRule
    fallback: str | None = None
    on_failure: OnFailure | None = None
    seconds_left: float | None = None
    draw: float = 0.0
    replan_on: Collection[TriggerKind] = ()
    can_ask: bool = False
    can_reconcile: bool = False
    last_resort: Literal["skip", "escalate"] = "skip"
    in_doubt: bool = False
    contradicts: bool = False

    @property
    def is_open(self) -> bool:
        """Whether the plan leaves the decision about a failure to planner and policy."""
        return self.on_failure in (None, "replan")


def decide(outcome: Outcome, situation: Situation) -> Decision:
    """Decide how to react to *outcome*: the first matching row.

    Args:
        outcome: The outcome of the attempt.
        situation: The step, its tool and its limits.
    """
    if outcome.state is State.SUCCEEDED:
        return _after_success(outcome, situation)
    if was_cancelled(outcome):
        return CANCELLED
    failure = outcome.failure
    if failure is not None:
        if failure.kind in SPOILT and situation.effect.may_repeat:
            return Decision(Recovery.RETRY, SPOILT[failure.kind])
        # A permission that was refused will be refused the next time, whatever the tool says.
        if failure.is_transient and failure.kind is not ErrorKind.PERMISSION and _may_repeat(outcome, situation):
            delay = retry_delay(situation.rule, situation.attempt, situation.draw, failure.retry_after)
            if situation.seconds_left is None or delay < situation.seconds_left:
                return Decision(Recovery.RETRY, f"{failure.kind} is transient", delay)
        if situation.can_ask and (question := _question(outcome, situation)):
            return Decision(Recovery.ASK, question)
        if (
            situation.fallback
            and failure.kind not in _NO_FALLBACK
            and not _is_in_doubt(outcome, situation)
            and surely_nothing_happened(outcome, situation.effect)
        ):
            return Decision(Recovery.FALL_BACK, f"{situation.fallback} takes the same arguments")
    return _last_resort(outcome, situation)


def was_cancelled(outcome: Outcome) -> bool:
    """Whether the attempt was cancelled on request: then the decision is `CANCELLED` in every situation."""
    # The kind tells it, not the state alone: a cancelled attempt may be unknown or abandoned as well.
    failure = outcome.failure
    return outcome.state is State.CANCELLED or (failure is not None and failure.kind is ErrorKind.CANCELLED)


def _after_success(outcome: Outcome, situation: Situation) -> Decision:
    if not outcome.surprise:
        return PROCEED
    trigger = TriggerKind.CONTRADICTION if situation.contradicts else TriggerKind.SURPRISE
    if situation.is_open and trigger in situation.replan_on:
        return Decision(Recovery.REPLAN, outcome.surprise, trigger=trigger)
    return Decision(Recovery.PROCEED, f"surprising, and nobody is asked: {outcome.surprise}")


def _question(outcome: Outcome, situation: Situation) -> str:
    """Return the question that only a person can answer, in a few words; empty if there is none."""
    failure = outcome.failure
    is_settled_by_repeating = situation.effect.may_repeat and not situation.can_reconcile
    if outcome.state is State.UNKNOWN and not is_settled_by_repeating and situation.on_failure != "stop":
        return "nobody knows whether it took effect"
    if failure is None or not situation.is_open or outcome.state is State.UNKNOWN:
        return ""
    if failure.missing_input is not None:
        # A call that may have taken effect can only be repeated as it was, not with an argument that a person adds.
        return "" if _is_in_doubt(outcome, situation) else f"{failure.missing_input} is missing"
    return "permission was refused" if failure.kind is ErrorKind.PERMISSION else ""


def _may_repeat(outcome: Outcome, situation: Situation) -> bool:
    if situation.attempt >= situation.rule.max_attempts:
        return False
    return situation.effect.may_repeat or surely_nothing_happened(outcome, situation.effect)


def surely_nothing_happened(outcome: Outcome, effect: Effect) -> bool:
    """Whether the attempt certainly had no effect, so that another attempt or another tool is safe."""
    return effect.is_free or (outcome.failure is not None and outcome.failure.nothing_happened)


def _is_in_doubt(outcome: Outcome, situation: Situation) -> bool:
    return outcome.state is State.UNKNOWN or (situation.in_doubt and not outcome.has_returned)


def _last_resort(outcome: Outcome, situation: Situation) -> Decision:
    in_doubt = _is_in_doubt(outcome, situation)
    match situation.on_failure:
        case "stop":
            return Decision(Recovery.STOP, "on_failure: stop")
        case "default" if not in_doubt:  # a default must not hide an effect in doubt
            return Decision(Recovery.DEFAULT, "on_failure: default")
        case "skip" if not in_doubt:
            return Decision(Recovery.SKIP, "on_failure: skip")
    trigger = TriggerKind.UNKNOWN_EFFECT if in_doubt else trigger_of(outcome, situation.attempt)
    if situation.is_open and trigger in situation.replan_on:
        return Decision(Recovery.REPLAN, f"{trigger}, and a planner can revise", trigger=trigger)
    if situation.last_resort == "escalate":
        return Decision(Recovery.ESCALATE, "last_resort: escalate")
    return Decision(Recovery.GIVE_UP, "no retry, fallback, on_failure or planner helps")


_TRIGGERS: Final = {
    ErrorKind.SUCCESS_CONDITION: TriggerKind.SUCCESS_CONDITION,
    ErrorKind.CRITIC: TriggerKind.SUCCESS_CONDITION,
    ErrorKind.UNREACHABLE: TriggerKind.UNREACHABLE,
}


def trigger_of(outcome: Outcome, attempt: int) -> TriggerKind:
    """Return the trigger of a request to the planner after a failure for good.

    Args:
        outcome: The outcome of the last attempt.
        attempt: The number of attempts.
    """
    if outcome.state is State.UNKNOWN:
        return TriggerKind.UNKNOWN_EFFECT
    kind = outcome.failure.kind if outcome.failure is not None else None
    trigger = _TRIGGERS.get(kind) if kind is not None else None
    return trigger or (TriggerKind.FAILED_TWICE if attempt > 1 else TriggerKind.FAILED)


def settled_state(outcome: Outcome, decision: Decision, *, in_doubt: bool = False) -> State:
    """Return the state of the step after *decision*: settled, held, or ready for another attempt.

    Args:
        outcome: The outcome of the last attempt.
        decision: The decision about it.
        in_doubt: Whether an attempt before that one may have taken effect.
    """
    match decision.recovery:
        case Recovery.RETRY | Recovery.FALL_BACK:
            return State.READY
        case Recovery.ASK:
            return State.HELD
        case Recovery.PROCEED | Recovery.DEFAULT:
            return State.SUCCEEDED
        case _:
            return State.UNKNOWN if in_doubt and not outcome.has_returned else outcome.state


def state_after_stop(effect: Effect, asked: State, *, is_known: bool, still_running: bool) -> State:
    """Return the state of an attempt that was stopped while it ran: the effect table.

    Args:
        effect: The effect of the tool.
        asked: ``timed_out``, ``cancelled`` or ``superseded``: why it was stopped.
        is_known: Whether its effect is known: the tool said that nothing happened, or had ended before.
        still_running: Whether it would not stop.
    """
    if not effect.is_free and not is_known:
        return State.UNKNOWN
    return State.ABANDONED if still_running else asked


@dataclass(slots=True)  # not frozen, as there is one for each step that did not succeed
class Ended:
    """The end of a step, as far as the status of the run depends on it."""

    id: str
    state: State
    reason: str
    is_tolerated: bool
    is_optional: bool


NO_APPROVER: Final = "no approver"
"""The reason of a denial where nobody can be asked."""
NO_PLANNER: Final = "the run has gone on without a planner"
"""The reason of a request for a new plan in a run without a planner."""
NO_PLAN_NOR_PLANNER: Final = f"there is no plan, and {NO_PLANNER}"
"""The reason of a resumed run that had no plan yet and has no planner."""
ONLY_ITS_PLAN: Final = "only the plan was wanted"
UNKNOWN_TOOL: Final = "the planner asks for a tool that the run does not have"
_NAMED: Final = 10  # of each kind


@dataclass(slots=True)
class Some:
    """Steps of one kind: the first few, and their number."""

    first: list[Ended] = field(default_factory=list)
    count: int = 0

    def add(self, step: Ended) -> None:
        """Count *step*."""
        if self.count < _NAMED:
            self.first.append(step)
        self.count += 1

    @property
    def names(self) -> str:
        """The ids of the first steps, and the number of the others."""
        shown = ", ".join(step.id for step in self.first)
        return shown if self.count <= _NAMED else f"{shown} and {self.count - _NAMED} more"


_NONE: Final = Some()


class Tally:
    """The ends of the steps of a run, as far as its status depends on them.

    Args:
        planned: The number of steps of the plan.
        steps: The steps that did not succeed, in the order of the plan.

    Attributes:
        planned: The number of steps of the plan.
        states: The number of steps that have ended in each state, without those that succeeded.
        in_doubt: The steps with unresolved effects.
        bad: The steps that kept the run from success.
        unskipped: The bad steps that were not skipped.
        held: The bad steps that were skipped because there was no approver.
        gaps: The steps with for_each that succeeded without elements that failed.
    """

    __slots__ = ("bad", "gaps", "held", "in_doubt", "planned", "states", "unskipped")

    def __init__(self, planned: int = 0, steps: Iterable[Ended] = ()) -> None:
        self.planned = planned
        self.states: dict[State, int] = {}
        self.in_doubt = self.bad = self.unskipped = self.held = _NONE
        self.gaps: list[str] = []
        for step in steps:
            self.add(step)

    def add(self, step: Ended) -> None:
        """Count *step*, the next in the order of the plan."""
        if not self.states:  # every run has a tally, and most stay empty
            self.in_doubt, self.bad, self.unskipped, self.held = Some(), Some(), Some(), Some()
        self.states[step.state] = self.states.get(step.state, 0) + 1
        if step.state is State.UNKNOWN:
            self.in_doubt.add(step)
        if not is_bad(step):
            return
        self.bad.add(step)
        if step.state is not State.SKIPPED:
            self.unskipped.add(step)
        elif step.reason.startswith(NO_APPROVER):
            self.held.add(step)


def status_of(tally: Tally, stopped: tuple[Status, str] | None = None) -> tuple[Status, str]:
    """Return the status of a run and the reason for it: the worst that applies.

    Args:
        tally: The ends of its steps.
        stopped: The status and reason with which the run was ended early, if it was.
    """
    if tally.in_doubt.count:
        return Status.UNKNOWN, f"it is not known whether these took effect: {tally.in_doubt.names}"
    if stopped is not None:
        return stopped
    if not tally.bad.count:
        return Status.SUCCEEDED, _summary(tally)
    if tally.held.count and not tally.unskipped.count:
        return Status.WAITING, f"nobody was there to approve {tally.held.names}"
    causes = tally.unskipped if tally.unskipped.count else tally.bad
    reasons = "; ".join(f"{step.id} {step.state}: {shorten(step.reason)}" for step in causes.first[:3])
    return Status.FAILED, reasons + (f"; and {causes.count - 3} more" if causes.count > 3 else "")


def is_bad(step: Ended) -> bool:
    """Whether the run did not succeed because of *step*."""
    if step.is_optional:
        return False
    return not (step.state is State.SKIPPED and step.is_tolerated)


def _summary(tally: Tally) -> str:
    others = "".join(f", {number} {state}" for state, number in sorted((str(s), n) for s, n in tally.states.items()))
    more = [f"and {len(tally.gaps) - 3} more"] if len(tally.gaps) > 3 else []
    return "; ".join((f"{tally.planned - sum(tally.states.values())} succeeded{others}", *tally.gaps[:3], *more))
