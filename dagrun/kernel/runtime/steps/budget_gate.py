"""The ceilings of a run: the worst case of a call is reserved before it, its usage is charged after it."""

from __future__ import annotations

import logging
from typing import Final

from dagrun.errors import OverCeiling, shorten
from dagrun.kernel.graph.ledger import Ledger, ModelCall, Reservation
from dagrun.kernel.graph.live_graph import PAUSE, LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.event import CeilingNear
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.record.record import Record

_LOG: Final = logging.getLogger("dagrun.run")
_READY: Final = State.READY


class BudgetGate:
    """Keeps the calls of one run under its ceilings, and drops optional steps when a ceiling is nearly spent.

    Args:
        graph: The state; read here, changed by the record.
        record: Makes the changes.
        policy: Says when a ceiling is nearly spent.
        ledger: Counts used and reserved amounts.

    Attributes:
        are_bound: Whether there is any ceiling on calls, tokens or cost.
        is_closed: Whether the run is being stopped: optional steps are not dropped any more.
        waiting: How many running calls wait for an element of a for_each, and so go on only when others have ended.
    """

    def __init__(self, graph: LiveGraph, record: Record, policy: Policy, ledger: Ledger) -> None:
        self.are_bound = ledger.binds_attempts
        self.is_closed = False
        self.waiting = 0
        self._graph = graph
        self._record = record
        self._policy = policy
        self._ledger = ledger
        self._starved: dict[str, list[Node]] = {}  # by tool: equal calls fit, or do not, together

    def reserve(self, live: LiveAttempt) -> bool:
        """Reserve the worst case of the call of *live*; if it does not fit now, its step waits."""
        reservation = self._ledger.reserve(live.tool)
        if reservation is None:
            self._line(live.tool.name).append(live.node)
            return False
        live.make_rare().reservation = reservation
        return True

    def reserve_more(self, live: LiveAttempt) -> bool:
        """Reserve the worst case of a hedged call; return whether it fits.

        Nothing waits for such room. It leaves room for such a call by every other step that has not settled, so that a
        second call does not end the run. A for_each that has no elements yet counts as the most that it may get, and a
        tool that costs more than this one counts like this one.
        """
        if not self.are_bound:
            return True
        graph, most = self._graph, self._policy.max_fan_out
        others = graph.unsettled - 1
        if graph.unsettled > 1:
            others += sum(_elements_to_come(node, most) for node in graph.planned())
        if self._ledger.room(live.tool, 1 + others) <= others:
            return False
        live.make_rare().reservation = self._ledger.reserve(live.tool)
        return True

    def _line(self, tool: str) -> list[Node]:
        line = self._starved.get(tool)
        if line is None:
            line = self._starved[tool] = []
            self._graph.frontier.elsewhere.append(line)
        return line

    def give_back(self, live: LiveAttempt) -> None:
        """Charge the attempt alone, because its call was not made."""
        rare = live.make_rare()
        if rare.reservation is not None:
            self._ledger.settle(rare.reservation, 0, 0.0, is_reported=True)
            rare.reservation = None
            self.feed()

    def withdraw(self, live: LiveAttempt) -> None:
        """Take a reservation back, because there was no attempt."""
        if live.rare is not None and live.rare.reservation is not None:
            self._ledger.withdraw(live.rare.reservation)
            live.rare.reservation = None
            self.feed()

    def settle(self, live: LiveAttempt) -> None:
        """Charge the usage of a call; wake the steps that wait for the room it has freed."""
        rare = live.rare
        if rare is None or rare.reservation is None:
            return
        if live.tool.is_metered:  # its models are charged already
            faults = self._ledger.settle(rare.reservation, 0, 0.0, is_reported=True)
        else:
            faults = self._ledger.settle(rare.reservation, live.tokens, live.cost, is_reported=rare.has_reported)
        for fault in faults:
            _LOG.warning("step %s: %s", live.node.id, fault)
        rare.reservation = None
        self.look()

    def reserve_model(self, who: str, tokens: int | None, cost: float | None) -> tuple[Reservation, int]:
        """Reserve the worst case of a call of a model; return the reservation, and the number of the call on record.

        Raises:
            OverCeiling: There is no room; the message names the ceiling.
        """
        call = ModelCall(shorten(who, 60), tokens, cost)
        reservation = self._ledger.reserve_model(call)
        if reservation is None:
            raise OverCeiling(self._ledger.why_no_model(call))
        return reservation, self._record.reserve_model(call.name, tokens, cost)

    def settle_model(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        """Charge the usage of a model call."""
        self._record.charge_model(number, tokens, cost)
        for fault in self._ledger.settle(reservation, tokens, cost, is_reported=tokens is not None or cost is not None):
            _LOG.warning("%s", fault)

    def look(self) -> None:
        """Follow a charge: drop optional steps, if a ceiling is near, and let the steps start that have room now."""
        near = self._ledger.near(self._policy.warn_at)
        if near is not None:
            self.save(*near)
        self.feed()

    def feed(self) -> bool:
        """Start the waiting steps for which there is room now; return whether others still wait."""
        for line in self._starved.values():
            if line:
                self._feed_line(line)
        return any(self._starved.values())

    def _feed_line(self, line: list[Node]) -> None:
        line[:] = [node for node in line if node.state is _READY]
        if not line:
            return
        # Not all of them: else a thousand waiting steps would be looked at whenever a call ends.
        room = self._ledger.room(line[0].tool, len(line))
        for node in line[:room]:
            self._graph.frontier.push(node)
        del line[:room]

    @property
    def in_line(self) -> int:
        """How many steps wait for room that no running call can free."""
        if not any(self._starved.values()):
            return 0
        lines = ([node for node in line if node.state is _READY] for line in self._starved.values())
        return sum(len(line) for line in lines if line and not self._ledger.may_fit_later(line[0].tool, self.waiting))

    def why_stuck(self) -> str:
        """Return the ceiling that stops the run, or an empty text; to be asked when no call of the run is running."""
        graph = self._graph
        starved = [node for line in self._starved.values() for node in line if node.state is _READY]
        if not starved or graph.triggers or graph.is_drafting or not graph.frontier.is_empty:
            return ""
        if any(self._ledger.may_fit_later(line[0].tool, self.waiting) for line in self._starved.values() if line):
            return ""
        waiting = set(starved)
        if any(self._may_go_on(node) for node in graph.nodes.values() if node not in waiting):
            return ""
        ready = sum(1 for node in graph.nodes.values() if node.state is _READY)
        return self._ledger.why_not(starved[0].tool, ready)

    def _may_go_on(self, node: Node) -> bool:
        """Whether this step, or one after it, could start once a person has answered, or a delay is over."""
        if PAUSE in self._graph.kept.get(node.id, ()):
            return any(self._ledger.may_fit_later(after.tool, self.waiting) for after in node.successors)
        if node.state is State.HELD and node.is_in_doubt:
            return True  # it may turn out that it has succeeded
        return node.state in (_READY, State.HELD) and self._ledger.may_fit_later(node.tool, self.waiting)

    def save(self, ceiling: str, used: float, limit: float) -> None:
        """Record that a ceiling is nearly spent, once, and drop the optional steps that have not started."""
        if self._graph.saving is not None or self.is_closed or self._graph.status is not None:
            return  # also after the end: a model that would not stop may be charged then
        record = self._record
        record.emit(CeilingNear(record.next_seq(), record.at(), ceiling, used, limit))
        self.drop_optional()

    def drop_optional(self) -> None:
        """Skip the optional steps that have not started, because of the ceiling that is near."""
        record, near = self._record, self._graph.saving
        assert near is not None
        record.backlog.finish()
        reason = f"optional, and {near.used:g} of {near.limit:g} {near.ceiling} are spent"
        for node in list(self._graph.planned()):
            if node.plan.step.optional and not node.state.is_settled and not node.has_started:
                record.settle(node, State.SKIPPED, reason, is_tolerated=True)


def _elements_to_come(node: Node, most: int) -> int:
    """Return how many calls a for_each may need besides the one that it counts for, while its list is unknown."""
    if node.plan.items is None or node.children is not None or node.state.is_settled:
        return 0
    items = node.plan.step.for_each
    return max(0, (len(items) if isinstance(items, list | tuple) else most) - 1)
