"""Tools as planners see them: where one takes a secret, its schema lists the names of those that it may have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dagrun.model.secret import KEY, Secrets, handle_schema
from dagrun.model.toolbox import AnyTool, Toolbox


def with_handles(toolbox: Toolbox, secrets: Secrets) -> Toolbox:
    """*toolbox* with the names of *secrets* in the schemas of its tools; itself, if no tool takes any."""
    if not secrets or not any(tool.arguments.secrets for tool in toolbox.values()):
        return toolbox
    return Toolbox([_listed(tool, secrets.names_for(tool.name)) for tool in toolbox.values()], allow=toolbox.allowed)


def _listed(tool: AnyTool, names: Sequence[str]) -> AnyTool:
    if not tool.arguments.secrets or not names:
        return tool
    arguments = tool.arguments
    properties = {
        name: _with_names(schema, names) if arguments.names.get(name, name) in arguments.secrets else schema
        for name, schema in arguments.schema["properties"].items()
    }
    listed = replace(arguments, schema={**arguments.schema, "properties": properties})
    return replace(tool, arguments=listed)


def _with_names(schema: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The schema of a handle, or of a handle or nothing, with the names that it may say."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [_with_names(part, names) for part in schema["anyOf"]]}
    return {**schema, **handle_schema(names)} if KEY in schema.get("properties", {}) else schema
