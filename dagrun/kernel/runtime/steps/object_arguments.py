"""Objects in memory on their way from a step to the arguments of another.

The arguments are filled in as ever, with a token in place of each object. The objects come from the very values that
were filled in: a token that a plan or a tool has made up stands for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dagrun.errors import ValueRefused
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.held_objects import HeldObjects, held
from dagrun.kernel.model.contracts.objects import is_frame
from dagrun.kernel.model.reference import Template
from dagrun.kernel.model.value import Stored

_IN_THIS_PROCESS = ("coroutine", "thread")


def arguments_with_objects(
    graph: LiveGraph, node: Node, executor: str, data: bytes
) -> tuple[dict[str, Any], dict[str, object]]:
    """Turn the arguments of the next call of *node* into keyword arguments, with the objects that it gets.

    Args:
        graph: The state.
        node: The step.
        executor: The executor that makes the call.
        data: Its arguments as JSON text, with tokens.

    Returns:
        The arguments, and the objects among them, by the ``of`` of their tokens.

    Raises:
        ValidationError: The arguments do not fit the tool.
        ValueRefused: An object stands inside a text, or cannot get to where the call is made.
    """
    arguments = node.tool.arguments
    objects: dict[str, object] = {}
    given = set()
    for hole in node.plan.args.holes:
        value = graph.look_up(hole.reference, node)
        if type(value) is not HeldObjects:
            continue
        if hole.is_text:
            raise ValueRefused(f"{hole.reference} is an object in memory, which cannot stand inside a text")
        objects.update(value.objects)
        if executor not in _IN_THIS_PROCESS and not (executor == "process" and _are_frames(value)):
            raise ValueRefused(f"{hole.reference} is an object in memory, which does not reach the executor {executor}")
        given.add(arguments.names.get(str(hole.place[0]), ""))
    if not objects:
        return arguments.parse(data), objects
    return arguments.parse_with(data, objects, frozenset(given)), objects


def _are_frames(value: HeldObjects) -> bool:
    return all(map(is_frame, value.objects.values()))


def held_elements(graph: LiveGraph, items: Template, decoded: Sequence[Any], stored: list[Stored]) -> list[Stored]:
    """Return the elements of a for_each, with the objects that are in them.

    Args:
        graph: The state.
        items: The template of the list.
        decoded: The elements, decoded.
        stored: The elements, stored without objects.
    """
    objects = graph.objects_in(items)
    if not objects:
        return stored
    return [
        held(item, text, objects) if isinstance(text, bytes) else text
        for item, text in zip(decoded, stored, strict=True)
    ]
