"""The ends of attempts: recovery decides about the outcome, which is recorded and followed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from dagrun.errors import ValueRefused
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.decide.recovery import (
    CANCELLED,
    GOES_ON,
    NOT_NOW,
    SPOILT,
    UNCOUNTED,
    Situation,
    decide,
    is_refused_for_now,
    settled_state,
    was_cancelled,
)
from dagrun.kernel.graph.live_graph import limits_steps
from dagrun.kernel.graph.node import Cap, Node
from dagrun.kernel.model.event import Reviewed
from dagrun.kernel.model.outcome import PROCEED, Decision, Outcome, Recovery, State, TriggerKind
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.runtime.backend import Timers
from dagrun.kernel.runtime.live_attempt import (
    LiveAttempt,
    OptionalAttemptState,
    interrupted_outcome,
    stopped_outcome,
)
from dagrun.kernel.runtime.run_features import ProviderGate
from dagrun.kernel.runtime.run_parts import RunParts
from dagrun.kernel.runtime.steps.admission import Admission
from dagrun.kernel.runtime.steps.attempt import AttemptRunner
from dagrun.kernel.runtime.steps.run_completion import RunCompletion

if TYPE_CHECKING:
    from dagrun.kernel.runtime.steps.leftover_calls import KeptPlaces

_READY: Final = State.READY
_SUCCEEDED: Final = State.SUCCEEDED

CANCELLED_AROUND: Final = "the code around the run was cancelled"
_GONE: Final = Decision(Recovery.GIVE_UP, "a later revision of the plan does without it")


class RecoveryDecider:
    """Asks the recovery table on behalf of one run.

    Args:
        parts: What the parts of the run share.
        starting: Knows how much time a step has left.
    """

    def __init__(self, parts: RunParts, starting: Admission) -> None:
        self._record = parts.record
        self._policy = parts.policy
        self._people = parts.people
        self._random = parts.random
        self._starting = starting

    def decide(self, live: LiveAttempt, outcome: Outcome, *, counts: bool = True) -> Decision:
        """Return the decision about *outcome*, the end of the attempt of *live*.

        Args:
            live: The attempt.
            outcome: Its end.
            counts: Whether it is one of the attempts that the retry rule allows.
        """
        if was_cancelled(outcome):
            return _GONE if live.node.is_gone else CANCELLED
        situation = self.situation(live, counts=counts)
        if outcome.state is State.UNKNOWN and live.tool.reconcile is not None:
            situation = replace(situation, can_ask=True, can_reconcile=True)  # the tool itself is asked first
        if situation.can_ask and not self._people.may_help(live.node, outcome):
            situation = replace(situation, can_ask=False)
        decision = decide(outcome, situation)
        if decision.recovery in GOES_ON and self._record.graph.stopping is not None:
            return Decision(Recovery.GIVE_UP, "the run is being stopped")
        if decision.recovery is not Recovery.PROCEED and live.node.is_gone:  # nor may its failure end the run
            return _GONE
        return decision

    def situation(self, live: LiveAttempt, *, counts: bool = True) -> Situation:
        """Return the inputs of the recovery table besides the outcome."""
        node, step = live.node, live.node.plan.step
        fallback = node.plan.fallback
        forgiven = node.extra.forgiven if node.extra is not None else 0
        mine = [a for a in node.attempts[forgiven:] if a.tool == live.tool.name]
        spoilt = sum(1 for a in mine if a.outcome and a.outcome.failure and a.outcome.failure.kind in SPOILT)
        spoilt += sum(1 for a in mine if a.decision is not None and a.decision.reason in UNCOUNTED) + (not counts)
        return Situation(
            effect=live.tool.effect,
            attempt=max(1, len(mine) - spoilt),
            rule=step.retry or self._policy.retry,
            fallback=fallback.name if fallback is not None and not node.on_fallback else None,
            on_failure=step.on_failure,
            seconds_left=self._starting.seconds_left(node),
            draw=self._random.random(),
            contradicts=_contradicts(live),
            replan_on=self._record.replan_on,
            # If nobody can answer now, the planner is asked before people who may come later.
            can_ask=self._people.can_ask or (self._people.can_wait and not self._record.replan_on),
            last_resort="skip" if step.optional else self._policy.last_resort,
            in_doubt=node.is_in_doubt,
        )


def learns(policy: Policy, shared: Cap | None) -> bool:
    """Whether a run has any use for how long calls take: its steps are put in order, or slow calls are hedged.

    Args:
        policy: The policy of the run.
        shared: A cap that counts the steps of several runs, or none.
    """
    return policy.hedge is not None or limits_steps(policy, shared)


class DurationRecorder:
    """Records call durations in the engine's estimates, and separately per run for the journal.

    Args:
        known: The durations known from all runs of an engine.

    Attributes:
        new: The durations of this run alone.
    """

    __slots__ = ("_known", "new")

    def __init__(self, known: Durations) -> None:
        self._known = known
        self.new = Durations()

    def note(self, live: LiveAttempt) -> None:
        """Add the duration of an attempt that has succeeded, and whose end is recorded."""
        if live.rare is not None and live.rare.asking is not None:
            return  # it has waited for a person, or for elements of a for_each
        if live.rare is not None and live.rare.shared is not None:
            return  # it has waited for a call of another step
        attempt = live.node.latest
        assert attempt is not None
        seconds = attempt.duration
        if attempt.hedge is not None and attempt.hedge.has_won:
            # The first call was stopped, so its duration is not known. Add the time after which it counted as slow,
            # so that this limit stays: a longer time would raise the limit until no call is slow any more, and the
            # time of the second call would lower it to the usual duration.
            seconds = attempt.hedge.started - attempt.started
        self._known.add(live.tool.name, seconds)
        self.new.add(live.tool.name, seconds)


class AttemptCompletion:
    """Ends the attempts of one run.

    Args:
        parts: What the parts of the run share.
        judge: Decides the reaction to an outcome.
        finish: Knows whether the run is being ended or suspended.
        running: The running attempts, by step; attempts that end are removed from it.

    Attributes:
        alarms: The alarms of the run.
        attempts: Fills in the arguments of a call again.
        learning: Is told how long calls took; `None` if the run has no use for that.
        kept: The places of calls that go on in the world; `None` as long as there is none.
        make_limits: Makes the limits of the providers.
    """

    def __init__(
        self, parts: RunParts, judge: RecoveryDecider, finish: RunCompletion, running: dict[str, LiveAttempt]
    ) -> None:
        self._parts = parts
        self._graph = parts.graph
        self._record = parts.record
        self._frontier = parts.frontier
        self._people = parts.people
        self._accounts = parts.accounts
        self._now = parts.now
        self._up = parts.up
        self._judge = judge
        self._finish = finish
        self._running = running
        self._windows = parts.windows
        self._limits: ProviderGate | None = None
        self._policy = parts.policy
        self.learning: DurationRecorder | None = None
        self.kept: KeptPlaces | None = None
        self.make_limits: Callable[[Timers], ProviderGate]
        self.alarms: Timers
        self.attempts: AttemptRunner

    def conclude(self, live: LiveAttempt, outcome: Outcome | None) -> None:
        """Record the end of an attempt; *outcome* is none if it was cancelled."""
        if live.is_done:
            return  # abandoned before; whatever comes now is too late
        asked = live.asked
        if self._finish.suspending is not None and self._graph.stopping is None:
            if live.leaves_no_end(outcome):
                self._drop(live)
                return
            asked = None if live.is_let_go else asked
        if asked is None and live.deadline is not None and self._now() > live.deadline:
            asked, live.reason = State.TIMED_OUT, "it came back after its deadline"
        elif asked is None and outcome is None:
            asked, live.reason = State.CANCELLED, CANCELLED_AROUND
        if asked is not None:
            outcome = stopped_outcome(live, asked, outcome)
        assert outcome is not None
        self._end(live, outcome)

    def _drop(self, live: LiveAttempt) -> None:
        """Forget an attempt without recording its end: the run is suspended, and handles it when it is resumed."""
        live.is_done, live.call = True, None
        del self._running[live.node.id]
        self.leave_provider(live, None)
        self._end_second(live.rare, is_recorded=False)
        if live.rare is None or live.rare.has_place:
            self._frontier.release(live.node)
        if live.rare is not None and live.rare.stream is not None:
            live.rare.stream.close()
        self._finish.suspend_if_idle(self._running)

    def _end(self, live: LiveAttempt, outcome: Outcome) -> None:
        """Decide about *outcome*, record both, and apply the consequences."""
        node = live.node
        live.is_done = True
        call, live.call = live.call, None  # it leads back to the slot, and a circle per step would need collecting
        del self._running[node.id]
        if live.rare is not None:
            outcome = self._handed_back(live, live.rare, outcome)
        if outcome.state is _SUCCEEDED and not outcome.surprise:
            decision, state = PROCEED, _SUCCEEDED
        else:
            decision = self._decide(live, outcome)
            state = settled_state(outcome, decision, in_doubt=node.is_in_doubt)
        has_asked = False
        if live.rare is None:
            self._record.end_attempt(node, state, outcome, decision)
            self._release(live)
        else:
            self._end_rare(live, live.rare, state, outcome, decision)
            # The second call may have won while the first asks a person, whose answer is not needed any more.
            has_asked = live.rare.asking is not None
        if self.learning is not None and outcome.state is _SUCCEEDED:
            self.learning.note(live)
        if decision is not PROCEED or node.parent is not None or node.plan.pauses_after or has_asked:
            self._follow(node, outcome, decision, call.data if call is not None else b"")
        if not self._graph.unsettled or self._may_be_stuck():
            self._up.end_if_nothing_is_left()

    def _may_be_stuck(self) -> bool:
        """Whether the run may have to end despite open steps, because they may wait forever."""
        if self._graph.questions:  # also of calls that are running, and wait for people
            return True
        is_bound = self._accounts.are_bound or self._finish.is_closing
        return is_bound and (not self._running or self._accounts.waiting > 0)

    def _handed_back(self, live: LiveAttempt, rare: OptionalAttemptState, outcome: Outcome) -> Outcome:
        """Close the attempt's stream and release its provider slot; return the outcome, which closing may change."""
        if rare.stream is not None:
            outcome = rare.stream.close(outcome)
        if rare.window is not None and outcome.state is _SUCCEEDED and not outcome.surprise:
            self.leave_provider(live, outcome)  # else `_decide` does so
        return outcome

    def _decide(self, live: LiveAttempt, outcome: Outcome) -> Decision:
        """Return the decision about an end that is not a plain success."""
        if live.rare is not None and live.rare.on_refused is not None and outcome.has_returned:
            live.rare.on_refused()
        counts = not self.leave_provider(live, outcome)
        if live.rare is not None and live.rare.stream is not None:
            decision = live.rare.stream.decision(is_stopping=self._graph.stopping is not None)
            if decision is not None:
                return cast(Decision, decision)
        decision = self._judge.decide(live, outcome, counts=counts)
        return decision if counts or decision.recovery is not Recovery.RETRY else replace(decision, reason=NOT_NOW)

    @property
    def provider_limits(self) -> ProviderGate:
        """The limits of providers in this run; made when a provider has one."""
        if self._limits is None:
            self._limits = self.make_limits(self.alarms)
        return self._limits

    def _known_limits(self) -> ProviderGate | None:
        return self.provider_limits if self._windows else None

    def provider_has_room(self, node: Node) -> bool:
        """Whether the provider of a step accepts a hedged call now."""
        has_limits = self._windows or any(pool.has_rate for pool in self._policy.pools.values())
        return not has_limits or self.provider_limits.has_room(node)

    def leave_provider(self, live: LiveAttempt, outcome: Outcome | None) -> bool:
        """Report the end of a call to its provider's limits; return whether concurrent calls made it refuse."""
        is_counted = live.rare is not None and live.rare.window is not None
        if not is_counted and (outcome is None or not is_refused_for_now(outcome)):
            return False
        return self.provider_limits.end(live, outcome, self._running.values())

    def release_kept(self) -> None:
        """Release the slots of calls whose leftovers still run: the run has ended."""
        if self.kept is not None:
            self.kept.release_all()

    def close(self) -> None:
        """Stop waiting for providers: the run has ended."""
        self.release_kept()
        if self._limits is not None:
            self._limits.leave()

    def _end_rare(
        self, live: LiveAttempt, rare: OptionalAttemptState, state: State, outcome: Outcome, decision: Decision
    ) -> None:
        """Record the end of an attempt that was reviewed, has a reservation, or has asked a person."""
        record, node = self._record, live.node
        self._end_second(rare, is_recorded=True)
        if rare.verdicts is None:
            record.end_attempt(node, state, outcome, decision)
        else:
            facts = (node.id, len(node.attempts), state, rare.verdicts, outcome, decision)
            record.emit(Reviewed(record.next_seq(), record.at(), *facts))
        if rare.has_place:
            self._release(live)
        else:
            self._frontier.withdraw((node,))  # it may have stood in line for a place to continue
        self._accounts.settle(live)

    def _release(self, live: LiveAttempt) -> None:
        """Release the slot of an attempt that has ended, unless a leftover of it still runs."""
        if not live.scope.left or self._finish.has_ended:
            self._frontier.release(live.node)
            return
        if self.kept is None:
            from dagrun.kernel.runtime.steps.leftover_calls import KeptPlaces  # here: few calls leave anything behind

            self.kept = KeptPlaces(self._parts, self.alarms, self._running, self._known_limits)
        left, live.scope.left = live.scope.left, {}
        self.kept.keep(live, left.values())

    @staticmethod
    def _end_second(rare: OptionalAttemptState | None, *, is_recorded: bool) -> None:
        """Notify the hedged call of an attempt, if there is one, of the attempt's end."""
        if rare is not None and rare.second is not None and rare.second.on_first_end is not None:
            rare.second.on_first_end(is_recorded)

    def _follow(self, node: Node, outcome: Outcome, decision: Decision, call: bytes) -> None:
        """Apply the decision about an attempt whose end is recorded."""
        record, recovery = self._record, decision.recovery
        if node.state is _READY:
            self.try_again(node, decision.delay)
            return
        if recovery is Recovery.ASK:
            self._people.hold_after(node, outcome)
            return
        if recovery is Recovery.REPLAN:
            record.request_replan(node, decision, outcome.failure, call)
        record.after_end(node)
        if node.state is _SUCCEEDED and node.pauses_after:
            self._people.hold_at_pause(node)
        record.follow(node, decision)

    def try_again(self, node: Node, delay: float) -> None:
        """Make a step ready again, after *delay* seconds."""
        if delay <= 0:
            self._frontier.push(node)
            return
        self.alarms.at(self._now() + delay, lambda: self._ready_again(node))

    def _ready_again(self, node: Node) -> None:
        if node.state is _READY:
            self._frontier.push(node)
            self._up.nudge()

    # After a crash ----------------------------------------------------------------------------------------

    def end_interrupted(self, live: LiveAttempt, stopped: str = "") -> None:
        """Record the end of an attempt that ended with the process that made it.

        Args:
            live: The slot of the attempt, newly made.
            stopped: Why the run is being ended early, if it is. Else the caller does what follows: that may end the
                run, and all such ends must be on record before.
        """
        node = live.node
        outcome = interrupted_outcome(live, stopped)
        decision = self._judge.decide(live, outcome)
        state = settled_state(outcome, decision, in_doubt=node.is_in_doubt)
        record, attempt = self._record, len(node.attempts)
        if node.is_under_review:
            facts = (node.id, attempt, state, (), outcome, decision)
            record.emit(Reviewed(record.next_seq(), record.at(), *facts))
        else:
            record.end_attempt(node, state, outcome, decision)
        if stopped:
            record.after_end(node)

    def request_replan(self, node: Node) -> None:
        """Record a request to the planner that was decided when a step ended, and is not on record."""
        last = node.attempts[-1] if node.attempts and node.ended is None else None
        outcome = last.outcome if last is not None else None
        decision = last.decision if last is not None else None
        failure = outcome.failure if outcome is not None else None
        if node.ended is not None:  # it failed before anything was called
            failure = node.ended.failure
        if decision is None or decision.trigger is None:
            kind = TriggerKind.UNKNOWN_EFFECT if node.state is State.UNKNOWN else TriggerKind.FAILED
            decision = Decision(Recovery.REPLAN, "", trigger=kind)
        self._record.request_replan(node, decision, failure, self._call_of(node) if last is not None else b"")

    def _call_of(self, node: Node) -> bytes:
        """Return the arguments of the last call of a step, which the next call repeats."""
        try:
            return self.attempts.fill(node)
        except (LookupError, ValueRefused):
            return b""


def _contradicts(live: LiveAttempt) -> bool:
    """Whether a critic has found that the sources of the output do not agree."""
    verdicts = live.rare.verdicts if live.rare is not None else None
    return any(verdict.result == "contradictory" for verdict in verdicts or ())
