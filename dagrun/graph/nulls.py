"""Nulls that mean "left out".

The strict output modes of models demand every argument of a tool, so a model writes null where a person would write
nothing. See `dagrun.graph.schema`.
"""

from __future__ import annotations

from typing import Any

from dagrun.graph.json_types import types_of
from dagrun.model.signature import Arguments
from dagrun.model.toolbox import AnyTool, Toolbox


def drop_nulls(tree: dict[str, Any], toolbox: Toolbox) -> None:
    """Leave out every null of a parsed plan that stands for an argument that may be left out and takes no null."""
    steps = tree.get("steps")
    for step in steps if isinstance(steps, list) else ():
        args = step.get("args") if isinstance(step, dict) else None
        if not isinstance(args, dict) or None not in args.values():
            continue
        name = step.get("tool")
        if isinstance(name, str) and name in toolbox:
            arguments = toolbox[name].arguments
            step["args"] = {key: args[key] for key in args if args[key] is not None or not _is_surplus(key, arguments)}


def drop_surplus(args: dict[str, Any], toolbox: Toolbox) -> dict[str, Any]:
    """The same for arguments of which nobody says what tool they are for.

    A null is left out if every tool that takes exactly these arguments would leave it out: who must give all of them
    writes a null for each that is not meant.
    """
    fitting = [toolbox[name].arguments for name in toolbox.allowed if args.keys() == _properties(toolbox[name])]
    if not fitting:
        return args
    return {key: args[key] for key in args if args[key] is not None or not all(_is_surplus(key, a) for a in fitting)}


def _properties(tool: AnyTool) -> set[str]:
    return set(tool.arguments.schema.get("properties", ()))


def _is_surplus(name: str, arguments: Arguments) -> bool:
    if name not in arguments.names or arguments.names[name] in arguments.required:
        return False
    types = types_of(arguments.property_schema(name), arguments.schema)
    return types is not None and "null" not in types
