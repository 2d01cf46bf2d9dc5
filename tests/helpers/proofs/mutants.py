"""Broken parts: each has one plausible bug, and the proofs of the scheduler must notice every one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, Self

from dagrun import Event, State
from dagrun.events import AttemptStarted
from dagrun.kernel.decide.recovery import Situation, decide
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Cap, Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.outcome import Decision, ErrorKind, Outcome, Recovery
from dagrun.kernel.runtime.backend import Timers
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.steps.attempt import AttemptRunner
from dagrun.kernel.runtime.steps.attempt_completion import AttemptCompletion, RecoveryDecider
from dagrun.kernel.runtime.steps.run_completion import Cancellation
from dagrun.kernel.runtime.steps.scheduler import Scheduler, Workers, WorkerScope

# Frontier and caps ----------------------------------------------------------------------------------------------------


class HandsOutTwice(Frontier):
    """A step that becomes ready is queued twice, and nobody looks whether it runs already."""

    def push(self, node: Node) -> None:
        super().push(node)
        super().push(node)

    def take(self) -> Node | None:
        if self.priorities is not None:
            return super().take()
        return self._queue.popleft() if self._queue else None


class StartsAnything(Scheduler):
    """Takes the frontier's word for it that a step may start."""

    def _is_startable(self, node: Node) -> bool:
        return super()._is_startable(node) or node.state is State.RUNNING


class FirstComeFirstServed(Frontier):
    """Under a cap, the order of becoming ready decides."""

    def push(self, node: Node) -> None:
        if self.priorities is None:
            super().push(node)
        else:
            self._pushed = getattr(self, "_pushed", 0) + 1
            heappush(self._heap, (0.0, self._pushed, 0, node))


class KeepsSlotsOfFailures(Frontier):
    """Gives a slot back only when all went well."""

    def release(self, node: Node) -> None:
        if node.state is not State.FAILED:
            super().release(node)


class ForgetsThoseBehind(Frontier):
    """A step that was settled while it waited at a cap takes its chance with it."""

    def _take_best(self) -> Node | None:
        while self._heap and self._heap[0][-1].state is not State.READY:
            heappop(self._heap)
        return super()._take_best()


class BlocksAtItsCap(Frontier):
    """A step whose own cap is full is not put aside: all others wait behind it."""

    def _take_best(self) -> Node | None:
        if self._heap and any(cap.is_full for cap in self._heap[0][-1].caps):
            return None
        return super()._take_best()


class OneTooMany(Cap):
    """Looks first and counts later: two get through where one may."""

    @property
    def is_full(self) -> bool:
        return self.used > self.limit

    def free_for(self, frontier: object) -> int:
        return super().free_for(frontier) + 1


class BreaksPromises(Cap):
    """A slot goes to whoever comes first, not to the run that waits for it."""

    def free_for(self, frontier: object) -> int:
        return self.limit - self.used


class KeepsPromises(Cap):
    """A slot that was promised to a run which has no use for it any more is lost."""

    def decline(self, frontier: object) -> None:
        pass


# Graph and record -----------------------------------------------------------------------------------------------------


def releases_early(graph: LiveGraph, event: Event, node: Node | None = None) -> None:
    """What waits for a step is released when the step starts."""
    apply(graph, event, node)
    if isinstance(event, AttemptStarted):
        for after in graph.nodes[event.step].successors:
            if after.missing == 1 and after.state is State.WAITING:
                after.state = State.READY
                graph.frontier.push(after)


class RunsOnFailures(LiveGraph):
    """What depends on a failed step by order runs all the same."""

    def settled(self, node: Node) -> None:
        was, node.is_tolerated = node.is_tolerated, True
        super().settled(node)
        node.is_tolerated = was


def miscounts_children(graph: LiveGraph, event: Event, node: Node | None = None) -> None:
    """The elements of a for_each are not counted among what has to settle."""
    before = len(graph.nodes)
    apply(graph, event, node)
    graph.unsettled -= len(graph.nodes) - before


class SkipsOneLevel(Record):
    """What cannot run any more is skipped, but not what comes after that."""

    def skipping(self, cause: Node) -> Iterator[None]:
        for node in cause.successors:
            if node.state is State.BLOCKED:
                node.successors, kept = (), node.successors
                yield from super().skipping(cause)
                node.successors = kept


class JoinsEarly(Record):
    """A for_each ends when its last element but one has."""

    def after_end(self, node: Node) -> None:
        super().after_end(node)
        parent = node.parent
        if parent is not None and parent.missing == 1 and not parent.state.is_settled:
            self.join_elements(parent)


class JoinsInOrderOfEnd(Record):
    """The list that a for_each gives is in the order in which its elements came home."""

    def _join_values(self, parent: Node, children: list[Node], errors: tuple[tuple[int, str], ...]) -> None:
        super()._join_values(parent, sorted(children, key=lambda c: (c.attempts[-1].ended or 0, -c.index)), errors)


class DeliversBackwards(Record):
    """Observers get a batch in the wrong order."""

    def deliver(self) -> None:
        self._pending.reverse()
        super().deliver()


class ChangesBehindTheRecord(AttemptCompletion):
    """Keeps something in the state that no event says."""

    def _end(self, live: LiveAttempt, outcome: Outcome) -> None:
        super()._end(live, outcome)
        live.node.on_fallback = True


# Attempts -------------------------------------------------------------------------------------------------------------


class TakesLateValues(AttemptCompletion):
    """A value counts, whenever it comes."""

    def conclude(self, live: LiveAttempt, outcome: Outcome | None) -> None:
        if outcome is not None and outcome.state is State.SUCCEEDED:
            live.asked = live.deadline = None
        super().conclude(live, outcome)


class BelievesCancelledCaught(AttemptCompletion):
    """Takes a step that swallowed its cancellation for one that was never cancelled."""

    def conclude(self, live: LiveAttempt, outcome: Outcome | None) -> None:
        if outcome is not None and outcome.state is not State.ABANDONED and not live.scope.raw.cancelled_caught:
            live.asked = live.deadline = None
        super().conclude(live, outcome)


class CountsNoAttempts(RecoveryDecider):
    """Every attempt is the first one."""

    def situation(self, live: LiveAttempt, *, counts: bool = True) -> Situation:
        found = super().situation(live, counts=counts)
        return Situation(effect=found.effect, attempt=1, rule=found.rule, on_failure=found.on_failure)


class StopsTheNextAttempt(Cancellation):
    """The alarm of an attempt that is over goes off in the next one."""

    def _out_of_patience(self, live: LiveAttempt) -> None:
        super()._out_of_patience(live)
        late = self._running.get(live.node.id)
        if late is not None and late is not live:
            self.tell(late, State.TIMED_OUT, "an old alarm")


class NeverAbandons(Cancellation):
    """Waits for a step that will not stop, however long it takes."""

    def _give_up(self, slots: Sequence[LiveAttempt]) -> None:
        pass


def retries_in_doubt(outcome: Outcome, situation: Situation) -> Decision:
    """Try again after a timeout, whatever the call may have done already."""
    decision = decide(outcome, situation)
    is_in_doubt = outcome.state is State.UNKNOWN and situation.attempt < situation.rule.max_attempts
    return Decision(Recovery.RETRY) if is_in_doubt else decision


class CatchesExceptionOnly(AttemptRunner):
    """Lets through what is no `Exception`."""

    async def perform(self, live: LiveAttempt) -> Outcome:
        outcome = await super().perform(live)
        if outcome.failure is not None and outcome.failure.kind is ErrorKind.FORBIDDEN_EXCEPTION:
            raise SystemExit(outcome.failure.message)
        return outcome


class BlamesTheVictim(AttemptRunner):
    """Takes a cancellation that another step left behind for the fault of the step that it hits."""

    def _foreign_cancellation(self, live: LiveAttempt, error: BaseException) -> Outcome:
        live.is_fresh = True
        return super()._foreign_cancellation(live, error)


# Workers and alarms ---------------------------------------------------------------------------------------------------


class LosesWakeUps(Workers):
    """One wake-up in four gets lost."""

    _nudges = 0

    def nudge(self) -> None:
        self._nudges += 1
        if self._nudges % 4:
            super().nudge()


class OverlooksWhatWasLeftOpen(WorkerScope):
    """A step that has left a scope of its own open in that of its worker is taken for one that ended as it should."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.is_innermost = lambda: True
        return self


class StaysInACancelledScope(Scheduler):
    """A worker goes on after a step that was told to stop, in the scope that was cancelled for that."""

    async def run_step(self, node: Node, own: WorkerScope, is_fresh: bool) -> bool:
        try:
            return await super().run_step(node, own, is_fresh) or not own.has_leaked
        except BaseException:
            if not own.scope.is_told:
                raise
            return True


class HitsWhoeverIsThere(LiveAttempt):
    """What comes too late for a step cancels the scope that it was in, whoever is in it by now."""

    __slots__ = ()

    def tell_to_stop(self, asked: State, reason: str, grace: float) -> None:
        self.has_left = False
        super().tell_to_stop(asked, reason, grace)


class OversleepsAlarms(Timers):
    """An alarm before the one that is slept for does not shorten the sleep."""

    def at(self, time: float, ring: Callable[[], None]) -> None:
        deadline = self._nap.deadline if self._nap is not None else None
        super().at(time, ring)
        if self._nap is not None and deadline is not None:
            self._nap.deadline = deadline


MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "a step is started twice": {Frontier: HandsOutTwice, Scheduler: StartsAnything},
    "first come, first served under a cap": {Frontier: FirstComeFirstServed},
    "a failure keeps its slot": {Frontier: KeepsSlotsOfFailures},
    "a cancelled step blocks those behind it at a cap": {Frontier: ForgetsThoseBehind},
    "a step at its own cap blocks all others": {Frontier: BlocksAtItsCap},
    "a cap lets one too many through": {Cap: OneTooMany},
    "a long run starves a short one": {Cap: BreaksPromises},
    "a promised slot is lost": {Cap: KeepsPromises},
    "dependents start with their dependency": {apply: releases_early},
    "dependents of a failure run": {LiveGraph: RunsOnFailures},
    "elements are not counted": {apply: miscounts_children},
    "a skip is not handed on": {Record: SkipsOneLevel},
    "a for_each ends before its last element": {Record: JoinsEarly},
    "a for_each mixes its values up": {Record: JoinsInOrderOfEnd},
    "events come in the wrong order": {Record: DeliversBackwards},
    "state is changed without an event": {AttemptCompletion: ChangesBehindTheRecord},
    "a late value is used": {AttemptCompletion: TakesLateValues},
    "cancelled_caught instead of cancel_called": {AttemptCompletion: BelievesCancelledCaught},
    "attempts are not counted": {RecoveryDecider: CountsNoAttempts},
    "an old alarm stops a new attempt": {Cancellation: StopsTheNextAttempt},
    "a stubborn step is waited for": {Cancellation: NeverAbandons},
    "an effect in doubt is repeated": {decide: retries_in_doubt},
    "SystemExit gets out of a step": {AttemptRunner: CatchesExceptionOnly},
    "a stray cancellation fails the next step": {AttemptRunner: BlamesTheVictim},
    "a wake-up is lost": {Workers: LosesWakeUps},
    "what a step left open is overlooked": {WorkerScope: OverlooksWhatWasLeftOpen},
    "a worker stays in a cancelled scope": {Scheduler: StaysInACancelledScope},
    "a late word hits the next step": {LiveAttempt: HitsWhoeverIsThere},
    "an early alarm is overslept": {Timers: OversleepsAlarms},
}
