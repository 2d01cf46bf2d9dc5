"""Documents of small services, and the service itself, for tests of tools of OpenAPI documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagrun

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer", "readOnly": True}, "item": {"type": "string"}},
    "required": ["id", "item"],
}


def document(paths: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """A document with these paths."""
    info = {"title": "Service", "version": "1"}
    return {"openapi": "3.1.0", "info": info, "servers": [{"url": "https://api.example.com"}], "paths": paths, **more}


def operation(name: str, *parameters: Any, body: Any = None, answer: Any = None, **more: Any) -> dict[str, Any]:
    """An operation whose answer 200 has this schema."""
    content = {"content": {"application/json": {"schema": {} if answer is None else answer}}}
    made = {"operationId": name, "parameters": list(parameters), "responses": {"200": {"description": "ok", **content}}}
    if body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return {**made, **more}


def parameter(name: str, place: str = "query", schema: Any = None, **more: Any) -> dict[str, Any]:
    """A parameter; one of the path is required."""
    required = {"required": True} if place == "path" else {}
    return {"name": name, "in": place, **required, "schema": {} if schema is None else schema, **more}


def step(id_: str, tool: str, /, **args: Any) -> dagrun.Step:
    """A step."""
    return dagrun.Step(id=id_, tool=tool, args=args)


async def run(tools: Mapping[str, Any], *steps: dagrun.Step, **options: Any) -> dagrun.RunResult:
    """Run a plan of these steps."""
    return await dagrun.run(dagrun.Plan(steps=list(steps)), tools=[tools], **options)
