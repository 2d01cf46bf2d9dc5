"""Fans by element: a step that needs single elements of a for_each starts when those are there, not when all are.

1. A for_each over the whole output of another one (``"for_each": "${pages}"``) *follows* it element by element: it gets
   its elements as soon as the other one has, and its element i starts when element i of the other one has ended.
2. A step that refers to certain elements alone (``${pages[2].title}``) follows it, too: it starts when those are there.
3. A tool that takes a *stream* follows it as well: its step starts when the other one has its elements, and gets each
   of them in the order of the list as soon as that has ended. A step with an effect, or to whose call a person has to
   agree, needs all of them first (`CheckedStep.stream`).
4. Any other use of the output needs all of it: the whole list as an argument or in a condition, a person who looks at
   it first (``pause``), or the barrier of a wave. A declared dependency is no use of the output.
5. An element that has failed stops what needs that element, and nothing else: of a stream, whoever comes to it. One
   that was left out (``skip``, or a condition that did not hold) is null, as it is in the list.
6. Whether a step follows a for_each depends on their definitions alone, never on which of them was faster: so the same
   elements are called whatever the limits of the run are, and a resumed run goes on where the other stood.

Only steps after a for_each get here, and only once that has its elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.step_order import Frontier
from dagrun.kernel.model.outcome import SETTLED, State
from dagrun.kernel.model.reference import Reference

EACH: Final[frozenset[int]] = frozenset()
"""Stands for every element in its turn."""


class Graph(Protocol):
    """The part of a `LiveGraph` that this file needs; `LiveGraph` itself imports this file."""

    nodes: dict[str, Node]
    frontier: Frontier

    def reassess(self, node: Node) -> None:
        """Compute the state of a step that has not started."""

    def blocks(self, node: Node, after: Node) -> bool:
        """Whether *after* cannot run because of how *node* has settled."""

    def would_block(self, node: Node, plan: CheckedStep) -> bool:
        """Whether *node* blocks a step with that definition."""


_FREE: Final = frozenset((State.WAITING, State.READY, State.BLOCKED))


def needed(plan: CheckedStep, fan: Node) -> frozenset[int] | None:
    """Return the elements of *fan* that a step with the definition *plan* needs.

    Returns:
        Their indices; `EACH` for a for_each over all of them, and for a stream; `None` if the step needs the list as a
        whole, or nothing but the end of *fan*.
    """
    if fan.plan.pauses_after or plan.waits_for_all or fan.id not in plan.value_sources:
        return None
    if plan.stream == fan.id:
        return EACH if _gives_plain_json(fan.plan) else None
    conditions = [condition for condition in (plan.step.when, plan.step.success) if condition is not None]
    references = [leaf.reference for condition in conditions for leaf in condition.leaves()]
    references += plan.args.references
    if _is_over(plan, fan):
        return EACH if plan.step.pause != "before" and all(r.step != fan.id for r in references) else None
    if plan.items is not None:
        references += plan.items.references
    found = set()
    for reference in references:
        if reference.step == fan.id:
            first = reference.path[0] if reference.path else None
            if not isinstance(first, int):
                return None
            found.add(first)
    return frozenset(found) or None


def _gives_plain_json(plan: CheckedStep) -> bool:
    """Whether every output of a for_each is JSON: no object in memory, and no artifact in the place of JSON."""
    tools = (plan.tool, plan.fallback)
    return not any(tool is not None and (tool.output.has_objects or tool.output.spills) for tool in tools)


def fan_of_stream(graph: Graph, node: Node) -> Node | None:
    """Return the for_each whose elements *node* takes one by one when it is called now; or none."""
    fan = graph.nodes.get(node.plan.stream) if node.plan.stream else None
    if fan is None or fan.children is None or fan.state is State.SUCCEEDED:
        return None
    return fan if needed(node.plan, fan) is EACH else None


def _is_over(plan: CheckedStep, fan: Node) -> bool:
    """Whether the list of a for_each is the whole output of *fan*."""
    items = plan.items
    return items is not None and items.references == (Reference(fan.id),) and items.places == ((),) and not items.texts


def mapped_step_below(graph: Graph, node: Node) -> Node | None:
    """Return the for_each that *node*, which is one itself, follows element by element; or none."""
    sources = node.plan.items.sources if node.plan.items is not None else ()
    for id_ in sources:
        fan = graph.nodes.get(id_)
        if fan is not None and fan.children is not None and needed(node.plan, fan) is EACH:
            return fan
    return None


def needed_source(node: Node, plan: CheckedStep) -> Node | None:
    """Return the element that *node*, with the definition *plan*, waits for; a substitute may have no use for it."""
    source = source_of(node)
    if source is None or (node.parent is not None and plan is node.parent.plan):
        return source
    in_args = "item" in plan.args.sources
    return source if in_args or (plan.step.when is not None and plan.step.when.looks_at("item")) else None


def source_of(node: Node) -> Node | None:
    """Return the element of the other for_each that this element follows; `None` for any other step."""
    parent = node.parent
    over = parent.extra.over if parent is not None and parent.extra is not None else None
    return over.children[node.index] if over is not None and over.children is not None else None


def elements_for(fan: Node, plan: CheckedStep) -> list[Node] | None:
    """Return the elements that a step waits for before it can start; `None` if it needs all of *fan*, or there is none.

    For a for_each over the elements the list is empty: its own elements do the waiting. So it is for a stream.
    """
    children, wanted = fan.children, needed(plan, fan)
    if children is None or wanted is None or any(index >= len(children) for index in wanted):
        return None
    return [children[index] for index in sorted(wanted)]


# Changes: called by `changes.py`, by the live graph and by splices ---------------------------------------------------


def find_followers(fan: Node) -> None:
    """Note which steps follow *fan*, which has its elements: it was expanded, or others wait for it since a splice."""
    found = tuple(after for after in fan.successors if elements_for(fan, after.plan) is not None)
    if found or fan.extra is not None:
        fan.make_extra().followers = found


def start_followers(graph: Graph, fan: Node) -> None:
    """Reassess the dependents of *fan*, which has just been expanded into its elements."""
    find_followers(fan)
    for after in fan.extra.followers if fan.extra is not None else ():
        if after.state is State.WAITING:
            graph.reassess(after)


def followers_of(element: Node) -> Iterator[Node]:
    """Yield the steps, and the elements of others, that need this very element."""
    fan = element.parent
    if fan is None or fan.extra is None or fan.children is None or fan.children[element.index] is not element:
        return
    for after in fan.extra.followers:
        if after.is_gone:
            continue
        if after.extra is not None and after.extra.over is fan and after.children is not None:
            yield after.children[element.index]
        elif element.index in (needed(after.plan, fan) or ()):
            yield after


def tell_streams(fan: Node, index: int = -1) -> None:
    """Notify the running calls that stream the elements of *fan* that an element may have changed.

    Args:
        fan: The for_each.
        index: The element that a splice has dropped or replaced; -1 if there is none.
    """
    for after in fan.extra.followers if fan.extra is not None else ():
        if after.extra is not None and after.extra.on_elements is not None:
            after.extra.on_elements(index)


def goes_through(after: Node, fan: Node) -> bool:
    """Whether *after* goes through the elements of *fan*, and has not ended: as a for_each, or by a stream."""
    if after.state in SETTLED or after.is_gone:
        return False
    return after.children is not None or (after.latest is not None and after.plan.stream == fan.id)


def element_settled(graph: Graph, element: Node) -> None:
    """Reassess the dependents of an element that has settled, or whose substitute has."""
    if element.parent is not None:
        tell_streams(element.parent)
    for after in list(followers_of(element)):
        if after.state is State.WAITING:
            graph.reassess(after)


def element_changed(graph: Graph, fan: Node, index: int) -> None:
    """Move the dependents of an element that a patch replaced or dropped to the substitute, unless they started."""
    assert fan.children is not None
    tell_streams(fan, index)
    for after in list(followers_of(fan.children[index])):
        if after.state in _FREE and not after.has_started:
            graph.frontier.withdraw((after,) if after.state is State.READY else ())
            graph.reassess(after)


def fan_settled(fan: Node) -> None:
    """Exempt the steps that follow *fan* by element from the count of its settling."""
    tell_streams(fan)
    followers = fan.extra.followers if fan.extra is not None else ()
    for after in followers:
        if after.children is not None or elements_for(fan, after.plan) is not None:
            after.missing += 1  # which is about to be taken away again


def standing(graph: Graph, fan: Node, node: Node) -> tuple[bool, bool]:
    """Whether *node* still waits for *fan*, which has elements and has not settled; and whether *fan* blocks it."""
    elements = elements_for(fan, node.plan)
    if elements is None:
        return True, False
    return (
        any(not element.state.is_settled for element in elements),
        any(element.state.is_settled and graph.blocks(element, node) for element in elements),
    )


def blocks_by_element(graph: Graph, fan: Node, plan: CheckedStep) -> bool | None:
    """Whether *fan*, which has not succeeded, blocks a step that follows it; `None` if the step does not follow it."""
    elements = elements_for(fan, plan)
    if elements is None:
        return None
    return any(graph.would_block(element, plan) for element in elements)


def is_read(element: Node) -> bool:
    """Whether an open step still reads this element of a for_each, which has settled as a whole."""
    fan = element.parent
    assert fan is not None
    unexpanded: Iterable[Node] = fan.extra.followers if fan.extra is not None else ()
    if any(after.children is None and after.state not in SETTLED and not after.is_gone for after in unexpanded):
        return True
    return any(after.state not in SETTLED for after in followers_of(element))


def ended_at(node: Node) -> float | None:
    """Return when a step or an element has ended, in seconds since the start of the run; `None` if it has not."""
    if node.ended is not None:
        return node.ended.at
    return node.latest.ended if node.latest is not None else None
