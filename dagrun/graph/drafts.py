"""The first plan while it is written: what its events do to the live graph, and which of its steps can come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from dagrun.graph.findings import Findings
from dagrun.graph.plain_json import compile_value
from dagrun.model.event import DraftEnded, DraftStarted
from dagrun.model.outcome import State
from dagrun.model.plan import Step
from dagrun.model.reference import RESERVED, BadReference

if TYPE_CHECKING:
    from dagrun.graph.checked import CheckedStep
    from dagrun.graph.live import LiveGraph


def draft_started(graph: LiveGraph, event: DraftStarted) -> None:
    """A planner writes the plan."""
    graph.goal = event.goal
    graph.is_drafting = True
    graph.is_frozen = event.is_held


def draft_ended(graph: LiveGraph, event: DraftEnded) -> None:
    """The plan is ended: all of it may run, or what has not started waits for a better one."""
    graph.is_drafting = False
    graph.draft_end = (event.result, event.reason)
    graph.problems = event.problems
    if event.result == "applied":
        graph.wants_more, graph.has_plan = event.more, True
        if not graph.triggers.get(""):  # else the goal is another one now
            thaw(graph)
    else:
        freeze(graph)


def freeze(graph: LiveGraph) -> None:
    """Let nothing start that has not started."""
    graph.is_frozen = True
    ready = [node for node in graph.nodes.values() if node.state is State.READY and not node.attempts]
    graph.frontier.withdraw(ready)
    for node in ready:
        node.state = State.BLOCKED


def thaw(graph: LiveGraph) -> None:
    """Let everything start that waits for nothing else."""
    graph.is_frozen = False
    for node in list(graph.nodes.values()):
        if node.state is State.BLOCKED and node.is_defined_by_parent:
            graph.release(node)  # it waits for nothing but its turn
        elif node.state is State.BLOCKED:
            graph.reassess(node)


def may_start_early(graph: LiveGraph, plan: CheckedStep) -> bool:
    """Whether a step may be called before the plan is ended: nothing can come of it that a better plan would regret."""
    tools = (plan.tool,) if plan.fallback is None else (plan.tool, plan.fallback)
    safe = graph.plan.policy.stream_safe
    return all(tool.effect.is_free or tool.stream_safe or tool.name in safe for tool in tools)


class Arrivals:
    """The steps of a plan in the order in which they are written; each waits for those that it names.

    Attributes:
        steps: All that have come, in that order.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._here: set[str] = set()
        self._lacking: dict[int, set[str]] = {}  # by place: the ids that have not come in
        self._waiting: dict[str, list[int]] = {}  # by such an id: who waits for it

    def take(self, step: Step) -> bool:
        """Note a step that has come; say whether everything that it names is in the plan already."""
        place = len(self.steps)
        self.steps.append(step)
        lacking = named_in(step) - self._here
        if not lacking:
            return True
        self._lacking[place] = lacking
        for id_ in lacking:
            self._waiting.setdefault(id_, []).append(place)
        return False

    def let_in(self, id_: str) -> Iterator[Step]:
        """Note that the step *id_* is in the plan; give those that waited only for that."""
        self._here.add(id_)
        for place in self._waiting.pop(id_, ()):
            self._lacking[place].discard(id_)
            if not self._lacking[place]:
                del self._lacking[place]
                yield self.steps[place]


def named_in(step: Step) -> set[str]:
    """The ids of the steps that *step* names, declared or referred to; what is no reference is left to the checker."""
    names = set(step.depends_on)
    for value in (step.args, step.for_each):
        template = compile_value(value, Findings(), 0, "") if value is not None else None
        if template is not None:
            names.update(template.sources)
    for leaf in step.when.leaves() if step.when is not None else ():
        try:
            names.add(leaf.reference.step)
        except BadReference:
            continue
    return names - RESERVED.keys() - {step.id}
