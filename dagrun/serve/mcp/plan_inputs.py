"""The parameters of a served plan: the schema of its inputs, typed by the arguments they become; its description."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.model.contracts.schema_types import schemas_at
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.reference import Placeholder
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Path

_IN_TEXT: Final = {"type": ["string", "number", "boolean"]}  # what can be read in the middle of a text
_MOST_DEPTH: Final = 32


@dataclass(slots=True)
class _Place:
    """A place in the inputs: the schemas of the arguments that it becomes, and the parts that are named of it."""

    schemas: list[dict[str, Any]] = field(default_factory=list)
    parts: dict[str | int, _Place] = field(default_factory=dict)
    elements: _Place | None = None

    def at(self, path: Path) -> _Place:
        """Return the place at *path* below this one."""
        place = self
        for part in path:
            place = place.parts.setdefault(part, _Place())
        return place

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the values allowed here."""
        found = [schema for number, schema in enumerate(self.schemas) if schema not in self.schemas[:number]]
        if self.elements is not None:
            found.append({"type": "array", "items": self.elements.schema()})
        elif any(isinstance(part, int) for part in self.parts):
            found.append({"type": "array"})
        named = {part: place.schema() for part, place in self.parts.items() if isinstance(part, str)}
        if named:
            found.append({"type": "object", "properties": named, "required": list(named)})
        return found[0] if len(found) == 1 else {"allOf": found} if found else {}


def input_schema(plan: CheckedPlan) -> dict[str, Any]:
    """Return the JSON Schema of the inputs of a plan: a closed object, unless the plan passes on the whole of it."""
    root = _Place()
    definitions: dict[str, Any] = {}
    for path in plan.input_paths:
        root.at(path)
    for step in plan.steps.values():
        for hole in step.args.holes:
            if hole.reference.step == "input":
                root.at(hole.reference.path).schemas += _schemas_of(step, hole, definitions)
        _note_elements(root, step, definitions)
    named = root.schema() if root.parts else {"type": "object", "properties": {}, "required": []}
    schema = {**named, "additionalProperties": () in plan.input_paths}
    return {**schema, "$defs": definitions} if definitions else schema


def _note_elements(root: _Place, step: CheckedStep, definitions: dict[str, Any]) -> None:
    """Note the type of the elements of a list that is an input, and that a step goes through."""
    lists = [] if step.items is None else [hole for hole in step.items.holes if hole.reference.step == "input"]
    if len(lists) != 1 or lists[0].place:
        return
    place = root.at(lists[0].reference.path)
    place.elements = place.elements or _Place()
    for hole in step.args.holes:
        if hole.reference.step == "item":
            place.elements.at(hole.reference.path).schemas += _schemas_of(step, hole, definitions)


def _schemas_of(step: CheckedStep, hole: Placeholder, definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schema of the argument that a hole of a step is in; nothing if it may be anything."""
    if hole.is_text:
        yield dict(_IN_TEXT)
        return
    arguments, (name, *rest) = step.tool.arguments, hole.place
    if not isinstance(name, str) or (name not in arguments.names and not arguments.is_open):
        return
    found = schemas_at(arguments.property_schema(name), arguments.schema, tuple(rest))
    made = [_own(schema, arguments.schema, step.tool.name, definitions) for schema in found]
    # An input has no default: the plan names it, so a run needs it.
    made = [{key: part for key, part in schema.items() if key != "default"} for schema in made]
    if made and {} not in made:
        yield made[0] if len(made) == 1 else {"anyOf": made}


def _own(schema: Any, root: Mapping[str, Any], tool: str, definitions: dict[str, Any], depth: int = 0) -> Any:
    """Copy a schema of a tool, with its definitions under names of the tool."""
    if depth > _MOST_DEPTH:
        return {}
    if isinstance(schema, list):
        return [_own(part, root, tool, definitions, depth + 1) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    copy = {key: _own(part, root, tool, definitions, depth + 1) for key, part in schema.items() if key != "title"}
    target = schema.get("$ref")
    if isinstance(target, str) and target.startswith("#/$defs/"):
        name = target.removeprefix("#/$defs/")
        own = f"{tool}.{name}"
        if own not in definitions:
            definitions[own] = {}  # before its parts, which may refer to it
            definitions[own] = _own(root.get("$defs", {}).get(name, {}), root, tool, definitions)
        copy["$ref"] = f"#/$defs/{own}"
    return copy


# Descriptions --------------------------------------------------------------------------------------------------------


def tools_of(plan: CheckedPlan) -> list[AnyTool]:
    """Return every tool that a run of a plan may call."""
    named = [tool for step in plan.steps.values() for tool in (step.tool, step.fallback) if tool is not None]
    return list(dict.fromkeys(one for tool in named for one in (tool, *tool.inner_tools)))


def unasked(tools: Iterable[AnyTool], policy: Policy) -> list[str]:
    """Return the names of the tools with an effect that may be called without a person's yes."""
    always = {rule.tool for rule in policy.approve if rule.when is None and rule.default_answer != "approve"}
    is_asked = policy.questions.default_answer != "approve"  # else a yes comes by itself, when nobody has answered
    return [
        tool.name
        for tool in tools
        if not tool.effect.is_free and not (is_asked and (tool.needs_approval or "*" in always or tool.name in always))
    ]
