"""Outputs that became artifacts because of their size, on their way into the arguments of a step.

The rules are at the top of `dagrun/kernel/model/contracts/spilling.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dagrun.errors import ValueRefused
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.contracts.schema_types import takes_artifact
from dagrun.kernel.model.contracts.spilling import why_spilled
from dagrun.kernel.model.reference import Placeholder, Reference, Template, path_text
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Path, Stored


def refuse_spilled(graph: LiveGraph, node: Node) -> None:
    """Refuse the arguments of *node* if an artifact stands where its tool takes none.

    Raises:
        ValueRefused: One does; the message names the limit.
    """
    for hole in node.plan.args.holes:
        for place, producer, why in _spilled(graph, node, hole):
            if hole.is_text or not _takes_artifact(node.tool, place):
                argument = path_text(place).removeprefix(".")
                where = "inside a text" if hole.is_text else f"as {argument}"
                raise ValueRefused(
                    f"{hole.reference}: {why}, and {node.tool.name} takes no Artifact {where}; let the parameter take "
                    f"an Artifact too, or raise output_limit of {producer.name}"
                )


def refuse_kept_out(value: Stored, leaves_out: Callable[[Stored], bool]) -> None:
    """Refuse an output that is about to become a file, but would be left out of a redacted record.

    Raises:
        ValueRefused: It is one.
    """
    if leaves_out(value):
        raise ValueRefused(
            "the output is over its output_limit, and holds personal data, which the policy keeps out of the record, "
            "so it is in no file"
        )


def why_list_spilled(graph: LiveGraph, items: Template) -> str:
    """Return the reason if a for_each has no list because it became an artifact; else an empty text."""
    sources = [graph.nodes[step] for step in items.sources if step in graph.nodes]
    return next((why for node in sources if (why := why_spilled(node.value, node.tool))), "")


def _spilled(graph: LiveGraph, node: Node, hole: Placeholder) -> Iterator[tuple[Path, AnyTool, str]]:
    """Yield each artifact behind a hole: its place in the arguments, the tool, and why it is one."""
    reference = hole.reference
    for source in _producers(graph, node, reference.step):
        value = graph.look_up(reference, node)
        if why := why_spilled(value, source.tool):
            yield hole.place, source.tool, why
        elif source.children is not None and reference == Reference(source.id):
            yield from _spilled_elements(source.children, hole.place)


def _spilled_elements(children: Iterable[Node], place: Path) -> Iterator[tuple[Path, AnyTool, str]]:
    for number, child in enumerate(children):
        if why := why_spilled(child.value, child.tool):
            yield (*place, number), child.tool, why


def _producers(graph: LiveGraph, node: Node, step: str) -> Iterable[Node]:
    """Return the steps that a reference of *node* reads; for an item, the sources of the list."""
    if step in graph.nodes:
        return (graph.nodes[step],)
    items = node.parent.plan.items if step == "item" and node.parent is not None else None
    return [graph.nodes[id_] for id_ in items.sources if id_ in graph.nodes] if items is not None else ()


def _takes_artifact(tool: AnyTool, place: Path) -> bool:
    schema = tool.arguments.schema
    name = str(place[0])
    return name in tool.arguments.names and takes_artifact(tool.arguments.property_schema(name), schema, place[1:])
