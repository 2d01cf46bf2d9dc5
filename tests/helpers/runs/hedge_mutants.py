"""Ways to hedge that do harm, or none of the good; each must be noticed by a test of hedging."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from dagrun import State
from dagrun.features.hedging import Hedges, HedgeShare, Rest, is_waited_for, longest_rests
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.runtime.live_attempt import HedgedCall, LiveAttempt
from dagrun.kernel.runtime.run_callbacks import RunCallbacks
from dagrun.kernel.runtime.steps.attempt import AskPerson, AttemptRunner
from dagrun.kernel.runtime.steps.budget_gate import BudgetGate


class HedgesEffects(Hedges):
    """Calls twice what changes the world."""

    def _patience(self, live: LiveAttempt) -> float | None:
        found = self._durations.quantile(live.tool.name, self._rule.quantile)
        return super()._patience(live) or found


class ForgetsThePlace(Hedges):
    """The place of the extra call is never given back."""

    def _release(self, second: HedgedCall) -> None:
        pass


class ReleasesAtOnce(Hedges):
    """The place is free as soon as the attempt has ended, although the loser is still at it."""

    def _first_ended(self, live: LiveAttempt, second: HedgedCall, is_recorded: bool) -> None:
        super()._first_ended(live, second, is_recorded)
        self._release(second)


class TakesNoPlace(Frontier):
    """A second call does not count among what runs."""

    def has_more_room(self, node: Node) -> bool:
        return True


class ChargesOne(BudgetGate):
    """Room for the second call is not asked for, and it costs nothing."""

    def reserve_more(self, live: LiveAttempt) -> bool:
        return True


class RecordsNoEnd(Hedges):
    """How a second call has ended is not on record."""

    def _close(self, live: LiveAttempt, second: HedgedCall, fault: str = "") -> None:
        second.is_closed = second.live.is_done = True
        self._accounts.settle(second.live)


class LetsTheSecondRunOn(Hedges):
    """Nobody tells the second call that it has lost."""

    def _first_ended(self, live: LiveAttempt, second: HedgedCall, is_recorded: bool) -> None:
        if not second.is_closed:
            self._close(live, second)


class LetsTheFirstRunOn(Hedges):
    """Nobody tells the first call that it has lost."""

    def _second_ended(self, live: LiveAttempt, second: HedgedCall) -> None:
        scope, live.scope = live.scope, self._new_scope()
        try:
            super()._second_ended(live, second)
        finally:
            live.scope = scope


class TakesTheFailure(Hedges):
    """Whichever call ends first decides, also if it has failed."""

    def _second_ended(self, live: LiveAttempt, second: HedgedCall) -> None:
        outcome = second.outcome
        failed = outcome is not None and outcome.state is not State.SUCCEEDED and not second.is_closed
        super()._second_ended(live, second)
        if failed and outcome is not None and not live.is_done:
            self._up.conclude(live, outcome)
            live.tell_to_stop(State.CANCELLED, "the other call has failed", 1.0)


class WaitsForNobody(Hedges):
    """The first call has failed: the second one is not waited for."""

    async def perform(self, live: LiveAttempt) -> Outcome:
        return await self._perform_alone(live) if self._patience(live) is not None else await super().perform(live)

    async def _perform_alone(self, live: LiveAttempt) -> Outcome:
        now, patience = self._now(), self._patience(live)
        assert patience is not None
        self._alarms.at(now + patience, partial(self._consider, live, now))
        return await self._attempts.perform(live)


def always_waited_for(graph: LiveGraph, node: Node, rests: Iterable[Rest]) -> bool:
    """The end of the run is taken to wait for every step."""
    return True


@contextmanager
def _steps_alone(graph: LiveGraph) -> Iterator[None]:
    alone = {id_: graph.expected.seconds(other.plan) for id_, other in graph.nodes.items()}
    known, graph.frontier.priorities = graph.frontier.priorities, alone
    try:
        yield
    finally:
        graph.frontier.priorities = known


def goes_by_the_step_alone(graph: LiveGraph, node: Node, rests: Iterable[Rest]) -> bool:
    """What comes after a step does not count."""
    with _steps_alone(graph):
        return is_waited_for(graph, node, rests)


def rests_of_steps_alone(graph: LiveGraph, running: Iterable[Node], at: float) -> tuple[Rest, ...]:
    """The same of the others."""
    with _steps_alone(graph):
        return longest_rests(graph, running, at)


class HedgesTheHeld(Hedges):
    """Takes a call that waits for a person for a slow one."""

    def _consider(self, live: LiveAttempt, started: float) -> None:
        rare = live.rare
        asking, lock = (None, None) if rare is None else (rare, rare.asking)
        if asking is not None:
            asking.asking = None
        super()._consider(live, started)
        if asking is not None:
            asking.asking = lock


class AsksTwice(AttemptRunner):
    """A second call asks people, too."""

    def _asking(self, live: LiveAttempt) -> AskPerson | None:
        rare, live.rare = live.rare, None
        try:
            return super()._asking(live)
        finally:
            live.rare = rare


class NoShare(HedgeShare):
    """Where all has become slow, every call is made twice."""

    def allows(self, tool: str, share: float) -> bool:
        return True


class WakesNobody(Hedges):
    """What a second call has released waits until something else wakes a worker."""

    def _second_ended(self, live: LiveAttempt, second: HedgedCall) -> None:
        up = self._up
        self._up = RunCallbacks(conclude=up.conclude)
        try:
            super()._second_ended(live, second)
        finally:
            self._up = up


MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "effects are hedged": {Hedges: HedgesEffects},
    "the place is forgotten": {Hedges: ForgetsThePlace},
    "the place is free at once": {Hedges: ReleasesAtOnce},
    "a second call takes no place": {Frontier: TakesNoPlace},
    "a second call costs nothing": {BudgetGate: ChargesOne},
    "its end is not recorded": {Hedges: RecordsNoEnd},
    "the second call runs on": {Hedges: LetsTheSecondRunOn},
    "the first call runs on": {Hedges: LetsTheFirstRunOn},
    "the failure of the first call decides": {Hedges: WaitsForNobody},
    "the failure of the second call counts": {Hedges: TakesTheFailure},
    "every step is taken to be waited for": {is_waited_for: always_waited_for},
    "what comes after a step does not count": {
        is_waited_for: goes_by_the_step_alone,
        longest_rests: rests_of_steps_alone,
    },
    "whoever waits for a person is slow": {Hedges: HedgesTheHeld},
    "a second call asks people": {AttemptRunner: AsksTwice},
    "there is no share": {HedgeShare: NoShare},
    "nobody is woken": {Hedges: WakesNobody},
}
