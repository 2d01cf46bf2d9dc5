"""The trust boundary of a patch: the labels that it changes, and the calls that a person must agree to because of it.

1. Whoever writes a patch says what it has seen. A planner has seen what its briefs have shown as text, in all its calls
   in this run (`note_brief`): with full briefs, what the steps gave; in any but structural ones, why steps failed and
   what critics said, for both may quote what others wrote. The host is the author of its own patches.
2. What a planner adds after it has seen what others can write may look, and may not act. An argument that it leaves as
   it was, and a whole call with another id alone, keep their author.
3. A change of a label goes on to all that is made of it, and no further. So a step behind the patch may need a question
   that it did not need before, or none any more.
4. All of this follows from the plan, the patches and the contracts of the tools, also when a record is read back. What
   was accepted then is not refused then: a call that has become questionable since is asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Literal

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.findings import WHOLE_PLAN, Findings
from dagrun.kernel.checks.flow.crossings import crossings, with_asks
from dagrun.kernel.checks.flow.labels import PLANNED, Author, FlowLabels, author_after, is_same_call, renamed
from dagrun.kernel.checks.flow.sources import HOST, PLAN, PLANNER, rules_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.reference import Template


def flow_of(graph: LiveGraph) -> FlowLabels | None:
    """Return the labels of a run; `None` if its policy has no trust boundary. They are made when first needed."""
    flow = graph.plan.policy.flow
    if graph.flow is None and flow is not None:
        known = graph.plan.flow
        graph.flow = FlowLabels(rules_of(flow)) if known is None else known.copy()
    return graph.flow


def sources_of(graph: LiveGraph, step: str) -> list[str]:
    """Return the names of the sources of a step's output, in the current plan."""
    labels, node = flow_of(graph), graph.nodes[step]
    id_ = node.parent.id if node.parent is not None and node.is_defined_by_parent else step
    return [] if labels is None else labels.rules.names_of(labels.whole.get(id_, 0))


def note_brief(graph: LiveGraph) -> None:
    """Note the data that the planner sees in a brief made now: see rule 1."""
    labels, level = flow_of(graph), graph.plan.policy.planning.brief
    if labels is None or level == "structural":
        return
    for node in graph.nodes.values():
        family = node if node.parent is None else node.parent
        if level == "full" and node.state is State.SUCCEEDED:
            labels.seen |= labels.whole.get(family.id, 0)
        if _is_talked_about(node):
            author = labels.author(family.id if node.is_defined_by_parent else node.id)
            labels.seen |= labels.said(node.plan, author, family.plan.items)
    if level == "full":
        labels.seen |= labels.rules.of_input(())


def _is_talked_about(node: Node) -> bool:
    """Whether there is a text about how a step has ended, other than of dagrun's own making."""
    verdicts = node.extra.verdicts if node.extra is not None else ()
    if any(verdict.result != "pass" for verdict in verdicts):
        return True
    outcomes = [attempt.outcome for attempt in node.attempts if attempt.outcome is not None]
    if any(outcome.surprise for outcome in outcomes):
        return True
    has_failed = node.state is not State.SUCCEEDED
    return has_failed and (bool(node.reason) or any(outcome.failure is not None for outcome in outcomes))


# Retries --------------------------------------------------------------------------------------------------------------


def written_by_others(graph: LiveGraph) -> dict[str, tuple[str, ...]]:
    """Return the steps whose author had seen data that others can write, and the sources of it.

    A retry begins with the plan that the planner has left, and would take it for one of an author who has seen nothing.
    """
    labels = flow_of(graph)
    if labels is None:
        return {}
    planned = {node.id for node in graph.planned()}
    return {
        id_: tuple(labels.rules.names_of(author.whole))
        for id_, author in labels.authors.items()
        if id_ in planned and author.whole & labels.rules.suspect
    }


def take_over_authors(graph: LiveGraph, written: Mapping[str, Iterable[str]]) -> None:
    """Set the authors of steps in a retried run; see `written_by_others`."""
    labels = flow_of(graph)
    if labels is None:
        return
    for id_, names in written.items():
        sources = PLAN
        for name in names:
            sources |= labels.rules.named(name, graph.plan.toolbox)
        labels.authors[id_] = Author(sources)
    nothing: Mapping[str, Node] = {}
    trial = FlowValidation(graph, labels, {}, {}, frozenset(), nothing, order={}, place_of=lambda _: WHOLE_PLAN)
    trial.follow([id_ for id_ in written if id_ in graph.nodes], Findings(), refuses=False).apply(graph)


# Patches --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FlowChange:
    """The changes that a patch makes to the flow labels of a run.

    Attributes:
        labels: The labels that change, over those of the run.
        plans: The steps that the patch itself leaves alone, and that need other questions from now on.
    """

    labels: FlowLabels
    plans: Mapping[str, CheckedStep]

    def apply(self, graph: LiveGraph) -> None:
        """Change the run."""
        assert graph.flow is not None
        self.labels.commit(graph.flow)
        for id_, plan in self.plans.items():
            node = graph.nodes[id_]
            old, node.plan = node.plan, plan
            for child in node.children or ():
                if child.plan is old:  # an element has the definition of its for_each, be it settled or not
                    child.plan = plan


@dataclass(slots=True)
class FlowValidation:
    """The plan as a patch would leave it.

    Attributes:
        graph: The plan as it is.
        base: Its labels.
        steps: The steps that come or change, by id; those that need questions are replaced here.
        substitutes: Old id to new id.
        leaving: The ids that leave the plan.
        elements: For each substitute of an element of a ``for_each``: that element.
        order: The order labels that the patch changes.
        place_of: Returns the place of a step for a problem.
    """

    graph: LiveGraph
    base: FlowLabels
    steps: dict[str, CheckedStep]
    substitutes: Mapping[str, str]
    leaving: frozenset[str]
    elements: Mapping[str, Node]
    order: Mapping[str, float]
    place_of: Callable[[str], int]
    labels: FlowLabels = field(init=False)
    _after: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.labels = self.base.overlay()
        self._after = {}
        for id_, checked in self.steps.items():
            for need in checked.depends_on:
                self._after.setdefault(need, []).append(id_)

    def look(self, origin: Literal["host", "planner"], findings: Findings, *, refuses: bool) -> FlowChange:
        """Compute the changes of a patch.

        Args:
            origin: Who made it.
            findings: Collects the problems.
            refuses: Whether what is not accepted is a problem; else a person is asked.
        """
        seen = self.base.seen
        mark = PLANNER if seen & self.base.rules.untrusted else 0
        writer = HOST if origin == "host" else PLAN | seen | mark
        olds = {new: old for old, new in self.substitutes.items()}
        for id_, checked in self.steps.items():
            old = self.graph.nodes.get(olds.get(id_, id_))
            author = Author(writer) if old is None else self._author(checked, old, writer)
            if author != PLANNED or id_ in self.base.authors:
                self.labels.authors[id_] = author
        return self.follow(self.steps, findings, refuses=refuses)

    def follow(self, first: Iterable[str], findings: Findings, *, refuses: bool) -> FlowChange:
        """Compute the changes that follow from the labels of the *first* steps."""
        plans: dict[str, CheckedStep] = {}
        for id_ in self._relabel(first):
            known = self._definition(id_)
            if known is None or (id_ not in self.steps and self.graph.nodes[id_].state.is_settled):
                continue
            asked = self._look_at(id_, known, findings, refuses=refuses)
            if asked is not known:
                (self.steps if id_ in self.steps else plans)[id_] = asked
        return FlowChange(self.labels, plans)

    def _author(self, checked: CheckedStep, old: Node, writer: int) -> Author:
        """Return the author of a replaced or rewired step: see rule 2."""
        new, was = checked.step, renamed(old.plan.step, self.substitutes)
        if old.parent is not None:  # a substitute of an element has no list
            was = was.model_copy(update={"for_each": None, "max_parallel": None})
        nodes = self.graph.nodes
        needs = frozenset(checked.depends_on)
        lost = [
            need
            for need in old.plan.depends_on
            if self.substitutes.get(need, need) not in needs
            and not (old.parent is not None and old.is_defined_by_parent)  # its for_each waits for them
            and nodes[need].state is not State.SUCCEEDED
        ]
        before = self.base.author(old.parent.id if old.is_defined_by_parent and old.parent is not None else old.id)
        return author_after(new, was, before, writer, is_call_kept=is_same_call(new, was) and not lost)

    def _relabel(self, first: Iterable[str]) -> Iterator[str]:
        """Label the *first* steps, and all that their labels get to; yield each that was looked at, in order."""
        labels, looked = self.labels, dict[str, None]()
        heap = sorted((self._place(id_), id_) for id_ in first)
        waiting = {id_ for _, id_ in heap}
        while heap:
            id_ = heappop(heap)[1]
            waiting.discard(id_)
            checked = self._definition(id_)
            if checked is None:
                continue
            looked.pop(id_, None)
            looked[id_] = None
            given = labels.given(checked, labels.author(id_), self._items(id_))
            has_changed = labels.label(id_, checked, given)
            for after in {*self._behind(id_)} - waiting if has_changed else ():
                waiting.add(after)
                heappush(heap, (self._place(after), after))
        yield from looked

    def _behind(self, id_: str) -> Iterator[str]:
        """Yield the steps that a label gets to."""
        node = self.elements.get(id_) or self.graph.nodes.get(id_)
        if node is not None and node.parent is not None and (id_ in self.elements or not node.is_defined_by_parent):
            parent, whole = node.parent.id, self.labels.whole[id_]  # an element that has a definition of its own
            self.labels.joined[parent] = self.labels.joined.get(parent, 0) | whole
            yield parent
        yield from self._after.get(id_, ())
        own = self.graph.nodes.get(id_)
        for after in own.successors if own is not None else ():
            if not after.is_defined_by_parent:
                yield after.id
            elif after.parent is not None:
                yield after.parent.id

    def _definition(self, id_: str) -> CheckedStep | None:
        if id_ in self.steps:
            return self.steps[id_]
        node = self.graph.nodes.get(id_)
        return None if node is None or node.is_gone or id_ in self.leaving else node.plan

    def _any_definition(self, id_: str) -> CheckedStep | None:
        """Return the definition of a step, also of one that has left the plan, to explain a path of data."""
        known = self.steps.get(id_)
        return self.graph.nodes[id_].plan if known is None and id_ in self.graph.nodes else known

    def _items(self, id_: str) -> Template | None:
        """Return the list of the for_each that a step is an element of."""
        node = self.elements.get(id_) or self.graph.nodes.get(id_)
        if node is None or node.parent is None:
            return None
        parent = self._definition(node.parent.id)
        return parent.items if parent is not None else None

    def _place(self, id_: str) -> float:
        found = self.order.get(id_)
        return self.graph.labels.get(id_, 0.0) if found is None else found

    def _look_at(self, id_: str, checked: CheckedStep, findings: Findings, *, refuses: bool) -> CheckedStep:
        tools = [tool for tool in (checked.tool, checked.fallback) if tool is not None]
        author, items = self.labels.author(id_), self._items(id_)
        found = [
            crossings(self.labels, self._any_definition, id_, checked, tool, items=items, author=author)
            for tool in tools
        ]
        if refuses:
            for one in (one for of_tool in found for one in of_tool):
                findings.add(one.code, self.place_of(id_), one.place, **one.facts)
            return checked
        return with_asks(self.labels, checked, found[0], found[1] if len(found) > 1 else [])
