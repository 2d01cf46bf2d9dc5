"""Outputs that nobody needs any more are let go of while the run goes on, if its policy says so.

A live graph of its own does that, so that runs whose policy does not say so pay nothing. What it releases follows from
the events alone: a graph that is folded from a record shows the same. But such a graph only marks what is released, and
has all values still: they are what is read back, taken over by another run, and needed once more by steps that are
opened again. A run that goes on drops them when nothing of the past is missing any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.event import Event, RunReopened, Spliced
from dagrun.model.outcome import SETTLED
from dagrun.model.reference import Template
from dagrun.model.value import RELEASED, Stored

# Numbers and truth values take no more room than what would stand in their place.
_LARGE: Final = frozenset((bytes, str))


class ReleasingGraph(LiveGraph):
    """A live graph that lets go of what nobody needs any more.

    A step is needed as long as a step that reads it has not settled, or has failed and waits for what the planner says
    to that; and if the run answers with it. Where the sinks are the answer, a step that only waits for it counts as one
    that reads it: were that one dropped, the run would answer with what it has waited for. An element of a for_each is
    needed until all of them are joined. While the planner writes, is asked, or wants to be asked again, everything is
    needed: what it says next may name any step.

    Attributes:
        drops: Whether values are dropped; else it is only marked what is released.
        marked: The ids of the steps that are.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.drops = True
        self.marked: set[str] = set()
        self._news: list[Node] = []  # what has settled, or has other steps behind it, and was not looked at since
        self._first: dict[str, int] = {}  # among the successors of a step: the first that may still read it
        self._named: tuple[Template | None, frozenset[str]] = (None, frozenset())

    # What happens -----------------------------------------------------------------------------------------

    def apply(self, event: Event, node: Node | None = None) -> None:
        """Change the state as *event* says, and release what nobody needs after that."""
        kind = type(event)
        if kind is Spliced:
            self._note_splice(event)
        elif kind is RunReopened:
            self._take_back(event)
        super().apply(event, node)
        if self._news and not self._may_be_named:
            news, self._news = self._news, []
            for settled in news:
                self._look_around(settled)

    def settled(self, node: Node) -> None:
        """Count a step that has ended; see `LiveGraph`."""
        super().settled(node)
        self._news.append(node)

    def let_go(self, node: Node, why: str) -> None:
        """A reason for which the dependents of a settled step had to wait is gone."""
        super().let_go(node, why)
        self._news.append(node)

    def _note_splice(self, event: Any) -> None:
        """What a patch touches may lose readers, and be the answer of the run no longer."""
        patch = event.checked
        before = [self.nodes[id_].plan for id_ in (*patch.steps, *patch.leaving) if id_ in self.nodes]
        for id_ in dict.fromkeys(need for plan in (*before, *patch.steps.values()) for need in plan.depends_on):
            if id_ in self.nodes:
                self._first.pop(id_, None)
                self._news.append(self.nodes[id_])
        if patch.changes_output:
            self._first.clear()
            ids = self._answering()
            self._news += self.sinks() if ids is None else [self.nodes[id_] for id_ in ids if id_ in self.nodes]

    def _take_back(self, event: Any) -> None:
        """What opens again needs what it has read before; that happens only to what was folded, and has it still."""
        self._first.clear()
        for id_ in event.steps:
            node = self.nodes[id_]
            self.marked.difference_update((id_, *node.plan.value_sources), (c.id for c in node.children or ()))

    # What follows from it ---------------------------------------------------------------------------------

    @property
    def _may_be_named(self) -> bool:
        """Whether somebody is about to say what comes next, who has seen what is there."""
        return bool(self.triggers) or self.is_drafting or self.is_frozen or self.wants_more

    def _look_around(self, node: Node) -> None:
        """Release what *node* was the last to need."""
        if node.state in SETTLED and not node.is_defined_by_parent:  # its for_each reads for all its elements
            for id_ in node.plan.value_sources if self.output is not None else node.plan.depends_on:
                self._look_at(self._nodes[id_])
        self._look_at(node)
        for child in node.children or ():
            self._look_at(child)

    def _look_at(self, node: Node) -> None:
        if node.state not in SETTLED or node.id in self.kept or self._is_needed(node):
            return
        self._first.pop(node.id, None)
        if self.drops:
            _drop(node)
        else:
            self.marked.add(node.id)

    def _is_needed(self, node: Node) -> bool:
        if node.parent is not None:
            return node.parent.state not in SETTLED
        if self._is_read(node):
            return True
        if node.is_gone:
            return False
        named = self._answering()
        return self._is_sink(node) if named is None else node.id in named

    def _is_read(self, node: Node) -> bool:
        """Whether a step is open that reads *node*; who has been found to be over is not looked at again."""
        id_, successors, any_counts = node.id, node.successors, self.output is None
        for place in range(self._first.get(id_, 0), len(successors)):
            after = successors[place]
            counts = id_ not in after.plan.gates if any_counts else id_ in after.plan.value_sources
            if counts and (after.state not in SETTLED or after.id in self.kept):
                self._first[id_] = place
                return True
        return False

    def _answering(self) -> frozenset[str] | None:
        """The steps that the output of the plan names; `None` if the sinks are the answer."""
        if self.output is None:
            return None
        if self._named[0] is not self.output:
            self._named = (self.output, self.output.sources)
        return self._named[1]

    def _is_sink(self, node: Node) -> bool:
        return all(node.id in after.plan.gates for after in self.after(node))

    # After a fold -----------------------------------------------------------------------------------------

    def drop_marked(self) -> None:
        """Drop what is marked, and from now on everything at once: nothing of the past will be needed any more."""
        self.drops = True
        for id_ in self.marked:
            node = self.nodes[id_]
            # With another policy than that by which the run went before, more may be needed than its record says.
            if not self._is_needed(node):
                _drop(node)
        self.marked.clear()


def _drop(node: Node) -> None:
    """Let go of what *node* gave. Events and outcomes are never changed: others have them, and may still write them."""
    if type(node.value) in _LARGE:
        node.value = RELEASED
    for attempt in node.attempts:
        if attempt.outcome is not None and type(attempt.outcome.value) in _LARGE:
            attempt.outcome = replace(attempt.outcome, value=RELEASED)
    if node.ended is not None and type(node.ended.value) in _LARGE:
        node.ended = replace(node.ended, value=RELEASED)
    if type(node.item) in _LARGE:
        node.item = RELEASED


# For others ----------------------------------------------------------------------------------------------------------


def keep_values(graph: LiveGraph) -> None:
    """Only mark what is released from now on: the past is folded."""
    if isinstance(graph, ReleasingGraph):
        graph.drops = False


def drop_values(graph: LiveGraph) -> None:
    """Drop what is released, now and from now on: the run goes on, and what it needs of the past is open again."""
    if isinstance(graph, ReleasingGraph):
        graph.drop_marked()


def as_released(graph: LiveGraph) -> Callable[[Node, Stored], Stored]:
    """Give what shows a value of a node as the run itself has it, whether it was dropped here or is only marked."""
    marked: Iterable[str] = graph.marked if isinstance(graph, ReleasingGraph) else ()
    if not marked:
        return lambda node, value: value
    return lambda node, value: RELEASED if node.id in marked and type(value) in _LARGE else value
