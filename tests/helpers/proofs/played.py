"""A live graph that is driven by hand, event by event, without a loop; and a picture of all that it holds."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

from dagrun import (
    Add,
    CheckedPlan,
    Consequence,
    Drop,
    Event,
    Patch,
    Plan,
    Policy,
    Problem,
    Replace,
    Rewire,
    State,
    Status,
    Step,
    Toolbox,
)
from dagrun.events import AttemptEnded, AttemptStarted, RunEnded, RunStarted, Spliced, StepExpanded
from dagrun.kernel.checks.check_plan import check_plan
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.live_graph import LiveGraph, make_frontier
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.check_patch import Origin, Splicer
from dagrun.kernel.model.outcome import Decision, ErrorKind, Failure, Outcome, Recovery
from dagrun.kernel.model.value import encode


class Played:
    """A run without a runtime.

    Args:
        steps: The plan.
        toolbox: What they may call.
        output: What the plan answers.
        inputs: Of the run.
        policy: The fields of its policy.

    Attributes:
        graph: The graph.
        splicer: Checks patches.
        events: All that has happened to it.
    """

    def __init__(
        self, steps: Collection[Step], toolbox: Toolbox, output: Any = None, inputs: Any = None, **policy: Any
    ) -> None:
        plan = Plan(steps=tuple(steps), output=output, goal="the goal")
        self._begin(check_plan(plan, toolbox, Policy(**policy), inputs=inputs or {}), inputs)

    @classmethod
    def of(cls, plan: CheckedPlan, inputs: Any = None) -> Played:
        """The same of a plan that is checked already."""
        played = cls.__new__(cls)
        played._begin(plan, inputs)
        return played

    def _begin(self, plan: CheckedPlan, inputs: Any) -> None:
        frontier, caps_of = make_frontier(plan, None)
        self.graph = LiveGraph(plan, encode(inputs or {}), frontier, caps_of)
        self.splicer = Splicer(self.graph)
        self.events: list[Event] = []
        self.apply(RunStarted, "run", len(plan.steps), plan.plan.goal, 0.0)

    def apply(self, kind: type[Event], *facts: Any) -> None:
        """Let something happen."""
        event = kind(len(self.events) + 1, float(len(self.events)), *facts)
        self.events.append(event)
        apply(self.graph, event)

    def __getitem__(self, id_: str) -> Node:
        return self.graph.nodes[id_]

    @property
    def states(self) -> dict[str, str]:
        """Where every step stands."""
        return {id_: str(node.state) for id_, node in self.graph.nodes.items()}

    # What steps do ----------------------------------------------------------------------------------------

    def start(self, *ids: str) -> None:
        """Call the tools of steps that are ready."""
        for id_ in ids:
            node = self[id_]
            assert node.state is State.READY, node
            self.graph.frontier.withdraw([node])
            self.apply(AttemptStarted, id_, len(node.attempts) + 1, node.tool.name)

    def end(self, id_: str, value: Any = None) -> None:
        """Let a call that runs succeed."""
        number = len(self[id_].attempts)
        outcome = Outcome(State.SUCCEEDED, encode(value))
        self.apply(AttemptEnded, id_, number, State.SUCCEEDED, outcome, Decision(Recovery.PROCEED))

    def succeed(self, *ids: str, value: Any = None) -> None:
        """Call tools, with success."""
        for id_ in ids:
            self.start(id_)
            self.end(id_, value)

    def fail(
        self,
        id_: str,
        recovery: Recovery = Recovery.REPLAN,
        state: State = State.FAILED,
        *,
        nothing_happened: bool = False,
    ) -> None:
        """Call a tool, without success."""
        self.start(id_)
        failure = Failure(ErrorKind.TOOL, "no", nothing_happened=nothing_happened)
        outcome = Outcome(state, None, failure)
        now = State.READY if recovery is Recovery.RETRY else state
        self.apply(AttemptEnded, id_, len(self[id_].attempts), now, outcome, Decision(recovery))

    def expand(self, id_: str, *items: Any) -> None:
        """Give a for_each its elements."""
        self.graph.frontier.withdraw([self[id_]])
        self.apply(StepExpanded, id_, tuple(encode(item) for item in items))

    def finish(self) -> None:
        """End the run."""
        self.apply(RunEnded, Status.SUCCEEDED, "done")

    # Patches ----------------------------------------------------------------------------------------------

    def check(
        self, patch: Patch, origin: Origin = "host", known: Collection[str] | None = None
    ) -> tuple[CheckedPatch | None, tuple[Problem, ...]]:
        """Check a patch; whatever comes of it, the check itself changes nothing."""
        before = snapshot(self.graph)
        checked, problems = self.splicer.check(patch, origin, known)
        assert snapshot(self.graph) == before
        assert (checked is None) == any(not problem.is_advice for problem in problems)
        return checked, problems

    def refusal(self, *edits: Add | Drop | Replace | Rewire, origin: Origin = "host", **fields: Any) -> list[str]:
        """Check a patch that is wrong: what is wrong with it, sentence by sentence."""
        known = fields.pop("known", None)
        checked, problems = self.check(Patch(edits=edits, **fields), origin, known)
        assert checked is None
        return [str(problem) for problem in problems]

    def splice(
        self, *edits: Add | Drop | Replace | Rewire, origin: Origin = "host", known: Any = None, **fields: Any
    ) -> Consequence:
        """Check a patch that is right, and apply it."""
        checked, problems = self.check(Patch(edits=edits, **fields), origin, known)
        assert checked is not None, [str(problem) for problem in problems]
        output = (checked.changes_output, checked.written_output if checked.changes_output else None)
        facts = (self.graph.revision + 1, origin, "", checked.edits, checked.consequence)
        self.apply(Spliced, *facts, *output, checked)
        return checked.consequence


def snapshot(graph: LiveGraph) -> dict[str, Any]:
    """All that a graph holds, bit for bit, in a form that does not change with it."""
    whole = {name: copy.copy(value) for name, value in vars(graph).items() if name not in ("nodes", "frontier")}
    # Looked up for the first time, and kept: that is no change.
    whole = {name: value for name, value in whole.items() if name not in ("labels", "expected")}
    frontier, releasing = graph.frontier, graph.releasing
    caps = {id(cap): cap for node in graph.nodes.values() for cap in node.caps}
    waiting = (list(frontier._queue), list(frontier._heap), copy.copy(frontier.priorities))
    return whole | {
        "nodes": {id_: _parts(node) for id_, node in graph.nodes.items()},
        "order": list(graph.nodes),
        "labels": dict(graph.labels),
        "frontier": waiting,
        "releasing": releasing and {name: copy.copy(getattr(releasing, name)) for name in releasing.__slots__},
        "caps": {key: (cap.used, list(cap.parked)) for key, cap in caps.items()},
    }


def _parts(node: Node) -> dict[str, Any]:
    parts = {name: getattr(node, name) for name in node.__slots__}
    # What is shared is compared by identity, what is changed in place by a copy.
    shared = {name: id(parts.pop(name)) for name in ("plan", "parent")}
    return {name: copy.copy(value) for name, value in parts.items()} | shared
