"""The live graph: the one place where the state of a run changes, and only by an event.

`LiveGraph.apply` is how a running run changes, and how a record of it is folded into the same state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dagrun.graph.checked import CheckedPlan, CheckedStep
from dagrun.graph.frontier import Cap, Frontier
from dagrun.model.event import AttemptEnded, AttemptStarted, Event, RunEnded, RunStarted, StepExpanded, StepSettled
from dagrun.model.outcome import SETTLED, Attempt, Recovery, State, Status
from dagrun.model.reference import Reference
from dagrun.model.toolbox import AnyTool
from dagrun.model.value import Stored, decode, dig, encode, select

_WAITING: Final = State.WAITING
_READY: Final = State.READY
_RUNNING: Final = State.RUNNING
_SUCCEEDED: Final = State.SUCCEEDED


class Node:
    """A step of one run, with where it stands. Changed by `LiveGraph.apply` alone.

    Attributes:
        id: Of the step; ``id[0]`` for an element of a for_each.
        plan: The checked step; an element shares that of its parent.
        order: Place in the plan, for ties.
        state: Where it stands.
        missing: Dependencies, or elements, that have not settled yet.
        successors: The nodes that wait for this one.
        attempts: Its calls so far.
        value: What it gave, once it has succeeded.
        caps: The limits that count it while it runs.
        parent: The for_each that it is an element of, or none.
        index: Which element.
        item: The element itself.
        children: The elements of a for_each, once its list is known.
        expanded: When that was, in seconds since the start of the run.
        ended: How it settled, if not by an attempt.
        is_tolerated: Whether it may fail or be skipped without taking along what depends on its order alone.
        on_fallback: Whether the next attempt calls the fallback.
    """

    __slots__ = (
        "attempts",
        "caps",
        "children",
        "ended",
        "expanded",
        "id",
        "index",
        "is_tolerated",
        "item",
        "missing",
        "on_fallback",
        "order",
        "parent",
        "plan",
        "state",
        "successors",
        "value",
    )

    def __init__(self, id: str, plan: CheckedStep, order: int, missing: int = 0) -> None:
        self.id = id
        self.plan = plan
        self.order = order
        self.state = _WAITING if missing else _READY
        self.missing = missing
        self.successors: list[Node] = []
        self.attempts: list[Attempt] = []
        self.value: Stored = None
        self.caps: tuple[Cap, ...] = ()
        self.parent: Node | None = None
        self.index = 0
        self.item: Stored = None
        self.children: list[Node] | None = None
        self.expanded: float | None = None
        self.ended: StepSettled | None = None
        self.is_tolerated = False
        self.on_fallback = False

    def __repr__(self) -> str:
        return f"<{self.id} {self.state}>"

    @property
    def reason(self) -> str:
        """Why it did not succeed, in a sentence; empty if it did, or has not ended."""
        if self.ended is not None:
            return self.ended.reason
        outcome = self.attempts[-1].outcome if self.attempts else None
        return outcome.failure.message if outcome is not None and outcome.failure is not None else ""

    @property
    def tool(self) -> AnyTool:
        """What its next attempt calls."""
        plan = self.plan
        return plan.fallback if self.on_fallback and plan.fallback is not None else plan.tool

    @property
    def is_expandable(self) -> bool:
        """Whether its list must be looked at before anything can be called."""
        return self.plan.items is not None and self.parent is None


class LiveGraph:
    """The steps of a run and their states.

    Args:
        plan: What is run.
        inputs: The inputs of the run, stored.
        frontier: Gets every step that becomes ready.
        caps_of: The caps that count a step; called where caps are set at all.
    """

    def __init__(
        self,
        plan: CheckedPlan,
        inputs: Stored,
        frontier: Frontier,
        caps_of: Callable[[CheckedStep], tuple[Cap, ...]] | None = None,
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.frontier = frontier
        self.status: Status | None = None
        self.reason = ""
        self.unsettled = len(plan.steps)
        self._caps_of = caps_of
        self.nodes = nodes = {
            id_: Node(id_, step, order, len(step.depends_on)) for order, (id_, step) in enumerate(plan.steps.items())
        }
        for id_, after in plan.successors.items():
            nodes[id_].successors = [nodes[next_id] for next_id in after]
        if caps_of is not None:
            for node in nodes.values():
                node.caps = caps_of(node.plan)

    def begin(self) -> None:
        """Put what waits for nothing on the frontier."""
        for node in self.nodes.values():
            if node.state is _READY:
                self.frontier.push(node)

    def apply(self, event: Event) -> None:
        """Change the state as *event* says. Never fails on an event that a run has made."""
        _APPLY[type(event)](self, event)

    # Values -----------------------------------------------------------------------------------------------

    def look_up(self, reference: Reference, node: Node | None = None) -> Stored:
        """Give what *reference* stands for, in the arguments of *node*.

        Raises:
            LookupError: There is no such part.
        """
        value = self._source(reference.step, node)
        try:
            return select(value, reference.path) if reference.path else value
        except LookupError as error:
            raise LookupError(f"{reference}: {error}") from None

    def look_at(self, reference: Reference, own: tuple[str, Stored] | None = None) -> Any:
        """Give the decoded value of *reference*, for a condition; *own* is the fresh output of a step.

        Raises:
            LookupError: There is no such part.
        """
        value = own[1] if own is not None and own[0] == reference.step else self._source(reference.step, None)
        return dig(decode(value), reference.path)

    def _source(self, step: str, node: Node | None) -> Stored:
        if step == "input":
            return self.inputs
        if step == "item" and node is not None:
            return node.item
        source = self.nodes[step]
        if source.state is not _SUCCEEDED:
            raise LookupError(f"step {step} has no output: it is {source.state}")
        return source.value

    # Events -----------------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        self.begin()

    def _attempt_started(self, event: AttemptStarted) -> None:
        node = self.nodes[event.step]
        node.state = _RUNNING
        node.attempts.append(Attempt(event.attempt, event.tool, event.at))

    def _attempt_ended(self, event: AttemptEnded) -> None:
        node = self.nodes[event.step]
        attempt = node.attempts[-1]
        attempt.ended = event.at
        outcome = attempt.outcome = event.outcome
        decision = attempt.decision = event.decision
        node.state = event.state
        if event.state is _SUCCEEDED:
            is_default = decision.recovery is Recovery.DEFAULT
            node.value = encode(node.plan.step.default) if is_default else outcome.value
            self._settled(node)
        elif event.state in SETTLED:
            node.is_tolerated = decision.recovery is Recovery.SKIP
            self._settled(node)
        else:
            node.on_fallback = decision.recovery is Recovery.FALL_BACK or node.on_fallback

    def _step_settled(self, event: StepSettled) -> None:
        node = self.nodes[event.step]
        node.state = event.state
        node.value = event.value
        node.is_tolerated = event.is_tolerated
        node.ended = event
        self._settled(node)

    def _settled(self, node: Node) -> None:
        """Count a step that has ended; release what waited only for it, block what cannot run without it."""
        self.unsettled -= 1
        if node.parent is not None:
            node.parent.missing -= 1
        succeeded = node.state is _SUCCEEDED
        for after in node.successors:
            after.missing = missing = after.missing - 1
            if succeeded and missing:
                continue  # by far the most frequent case
            if after.state is not _WAITING:
                continue
            if not succeeded and self._blocks(node, after):
                after.state = State.BLOCKED
            elif not missing:
                after.state = _READY
                self.frontier.push(after)

    @staticmethod
    def _blocks(node: Node, after: Node) -> bool:
        """Whether *after* cannot run because *node* did not succeed."""
        plan = after.plan
        return node.id not in plan.gates and (not node.is_tolerated or node.id in plan.value_sources)

    def _step_expanded(self, event: StepExpanded) -> None:
        parent = self.nodes[event.step]
        parent.state = _RUNNING
        parent.children = children = []
        parent.expanded = event.at
        parent.missing = len(event.items)
        limit = parent.plan.step.max_parallel
        caps = parent.caps if limit is None else (*parent.caps, Cap(limit))
        for index, item in enumerate(event.items):
            child = Node(f"{parent.id}[{index}]", parent.plan, parent.order)
            child.parent, child.index, child.item, child.caps = parent, index, item, caps
            children.append(child)
            self.nodes[child.id] = child
            self.frontier.push(child)
        self.unsettled += len(children)

    def _run_ended(self, event: RunEnded) -> None:
        self.status = event.status
        self.reason = event.reason

    # Questions ---------------------------------------------------------------------------------------------

    def planned(self) -> Iterator[Node]:
        """The steps of the plan, in its order, without the elements of for_each."""
        return (node for node in self.nodes.values() if node.parent is None)

    def sinks(self) -> list[Node]:
        """The steps that nothing waits for, but for the end of a wave."""
        return [node for node in self.planned() if all(node.id in after.plan.gates for after in node.successors)]


_APPLY: Final[Mapping[type[Event], Callable[[LiveGraph, Any], None]]] = {
    RunStarted: LiveGraph._run_started,
    AttemptStarted: LiveGraph._attempt_started,
    AttemptEnded: LiveGraph._attempt_ended,
    StepSettled: LiveGraph._step_settled,
    StepExpanded: LiveGraph._step_expanded,
    RunEnded: LiveGraph._run_ended,
}
