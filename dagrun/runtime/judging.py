"""From how an attempt ended to what is done about it: the facts of the run that the recovery table looks at."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from dagrun.decide.recovery import CANCELLED, GOES_ON, SPOILT, Situation, decide, was_cancelled
from dagrun.model.outcome import Decision, Outcome, Recovery, State
from dagrun.model.policy import Policy
from dagrun.runtime.people import People
from dagrun.runtime.record import Record
from dagrun.runtime.slot import Slot
from dagrun.runtime.starting import Starting

_GONE: Final = Decision(Recovery.GIVE_UP, "a later revision of the plan does without it")


class Judge:
    """Asks the recovery table on behalf of one run.

    Args:
        record: What the planner may be asked about.
        policy: What holds where a step says nothing.
        people: Whether there is anybody to ask.
        starting: How much time a step has left.
        random: For the jitter of retry delays.
    """

    def __init__(
        self,
        *,
        record: Record,
        policy: Policy,
        people: People,
        starting: Starting,
        random: Random,
    ) -> None:
        self._record = record
        self._policy = policy
        self._people = people
        self._starting = starting
        self._random = random

    def decide(self, slot: Slot, outcome: Outcome) -> Decision:
        """Say what to do about *outcome*, the end of the attempt of *slot*."""
        if was_cancelled(outcome):
            return _GONE if slot.node.is_gone else CANCELLED
        situation = self.situation(slot)
        if outcome.state is State.UNKNOWN and slot.tool.reconcile is not None:
            situation = replace(situation, can_ask=True, can_reconcile=True)  # the tool itself is asked first
        if situation.can_ask and not self._people.may_help(slot.node, outcome):
            situation = replace(situation, can_ask=False)
        decision = decide(outcome, situation)
        if decision.recovery in GOES_ON and self._record.graph.stopping is not None:
            return Decision(Recovery.GIVE_UP, "the run is being stopped")
        if decision.recovery is not Recovery.PROCEED and slot.node.is_gone:  # nor does it end the run, say
            return _GONE
        return decision

    def situation(self, slot: Slot) -> Situation:
        """What the recovery table looks at besides the outcome."""
        node, step = slot.node, slot.node.plan.step
        fallback = node.plan.fallback
        forgiven = node.extra.forgiven if node.extra is not None else 0
        mine = [a for a in node.attempts[forgiven:] if a.tool == slot.tool.name]
        spoilt = sum(1 for a in mine if a.outcome and a.outcome.failure and a.outcome.failure.kind in SPOILT)
        return Situation(
            effect=slot.tool.effect,
            attempt=max(1, len(mine) - spoilt),
            rule=step.retry or self._policy.retry,
            fallback=fallback.name if fallback is not None and not node.on_fallback else None,
            on_failure=step.on_failure,
            seconds_left=self._starting.seconds_left(node),
            draw=self._random.random(),
            replan_on=self._record.replan_on,
            # Where nobody is there now, a planner is asked before it is left to people who may come later.
            can_ask=self._people.can_ask or (self._people.can_wait and not self._record.replan_on),
            last_resort="skip" if step.optional else self._policy.last_resort,
            in_doubt=node.is_in_doubt,
        )
