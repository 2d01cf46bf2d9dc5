"""Convert answers from the strict form of `strict_schemas` and `plan_schemas` to the plan format.

Models without a strict mode answer in the form of plans itself, so whatever has that form is left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from dagrun.kernel.model.contracts.schema_types import types_of
from dagrun.kernel.model.signature import Arguments
from dagrun.kernel.model.tool import AnyTool, Toolbox
from dagrun.llm.strict_schemas import OTHERS

Schema = Mapping[str, Any]

_EMPTY_FIELDS: Final = ("output", "reason", "thought", "stop", "refusal")
_EMPTY_STEP_FIELDS: Final = ("for_each", "on_failure")
_SAME_FIELDS: Final = {"id", "tool", "args", "depends_on", "description"}  # of most steps; the same in both forms
_PAIR: Final = {"key", "value"}
_NAMED: Final = {"name", "value"}
_MAX_FLAT: Final = 5  # levels; what is deeper may be a text that holds JSON


def restore_fields(tree: dict[str, Any]) -> None:
    """Remove the fields of an answer that are empty because a strict form must have them; in place."""
    for name in _EMPTY_FIELDS:
        if tree.get(name) == "":
            del tree[name]


def restore_plan(tree: dict[str, Any], toolbox: Toolbox | None) -> None:
    """Turn a plan in the strict form of `toolset_schema`, as models write it, into the form of plans; in place."""
    restore_fields(tree)
    steps = tree.get("steps")
    restore = StepRestorer(toolbox).restore
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, dict):
            restore(step)


class StepRestorer:
    """Turns steps of one answer into the form of plans, without the nulls that mean an omitted optional argument.

    Args:
        toolbox: The tools that the steps may call.
    """

    __slots__ = ("_flat", "_toolbox")

    def __init__(self, toolbox: Toolbox | None) -> None:
        self._toolbox = toolbox
        self._flat: dict[str, frozenset[str]] = {}  # by tool: the arguments that are the same in both forms inside

    def restore(self, step: dict[str, Any]) -> None:
        """Turn a step into the form of plans; in place."""
        if not step.keys() <= _SAME_FIELDS:
            _restore_fields_of(step)
        args = step.get("args")
        tool = step.get("tool")
        if args and isinstance(args, dict) and isinstance(tool, str) and self._toolbox and tool in self._toolbox:
            known = self._toolbox[tool].arguments
            args = self._restored_args(tool, known, args)
            step["args"] = _without_nulls(args, [known]) if None in args.values() else args

    def _restored_args(self, tool: str, arguments: Arguments, args: dict[str, Any]) -> dict[str, Any]:
        if OTHERS in args and arguments.is_open:
            args = _with_others(args)
        schema = arguments.schema
        flat = self._flat.get(tool)
        if flat is None:
            flat = self._flat[tool] = _flat_names(schema)
        for name, value in args.items():
            if (name not in flat or type(value) is str) and _may_be_strict(value):
                break
        else:
            return args
        known = schema.get("properties", {})
        return {key: restored(value, known[key], schema) if key in known else value for key, value in args.items()}


def _restore_fields_of(step: dict[str, Any]) -> None:
    for name in _EMPTY_STEP_FIELDS:
        if step.get(name) == "":
            del step[name]
    for name in ("when", "success"):
        if isinstance(step.get(name), list):
            step[name] = _condition(step[name])
    items = step.get("for_each")
    if isinstance(items, str) and items.lstrip().startswith("["):
        step["for_each"] = _parsed(items)


def _with_others(args: dict[str, Any]) -> dict[str, Any]:
    """Merge the further arguments with the others; one that is no object is kept for the check to report."""
    others = args[OTHERS]
    made = _parsed(others or "{}") if isinstance(others, str) else others
    if not isinstance(made, dict):
        return args
    return {**made, **{name: value for name, value in args.items() if name != OTHERS}}


def drop_nulls_in_args(args: dict[str, Any], toolbox: Toolbox) -> dict[str, Any]:
    """Remove such nulls from arguments without a tool, as in an edit that only changes arguments.

    A model that must write every argument writes a null for each optional one. So a null is removed if it would be
    removed for every tool that takes exactly these arguments.
    """
    fitting = [toolbox[name].arguments for name in toolbox.allowed if args.keys() == _properties(toolbox[name])]
    return _without_nulls(args, fitting) if fitting else args


def _without_nulls(args: dict[str, Any], contracts: list[Arguments]) -> dict[str, Any]:
    return {key: args[key] for key in args if args[key] is not None or not all(_is_surplus(key, a) for a in contracts)}


def _properties(tool: AnyTool) -> set[str]:
    return set(tool.arguments.schema.get("properties", ()))


def _is_surplus(name: str, arguments: Arguments) -> bool:
    if name not in arguments.names or arguments.names[name] in arguments.required:
        return False
    types = types_of(arguments.property_schema(name), arguments.schema)
    return types is not None and "null" not in types


def restore_args(args: Any) -> Any:
    """Turn a list of names and values, as an edit has it that names no tool, into arguments; `None` if it is empty."""
    if not isinstance(args, list) or not all(isinstance(pair, dict) and pair.keys() == _NAMED for pair in args):
        return args
    return {pair["name"]: pair["value"] for pair in args} or None


def restored(value: Any, schema: Any, root: Schema) -> Any:
    """Turn a value of a strict schema into one of the schema that it was made from.

    A list of pairs becomes an object where only an object may stand, and so does a text that holds JSON. A text that is
    a reference, or that holds no JSON, stays.

    Args:
        value: The value.
        schema: The schema that the strict one was made from.
        root: The schema with the definitions.
    """
    if not _may_be_strict(value):  # nearly always
        return value
    types = types_of(schema, root) if isinstance(schema, Mapping) else None
    if types is None:
        return value
    if isinstance(value, str) and "string" not in types and isinstance(made := _parsed(value), dict | list):
        value = made
    if isinstance(value, list) and "object" in types and _are_pairs(value, schema, root):
        value = {pair["key"]: pair["value"] for pair in value}
    match value:
        case dict():
            return {key: _restored_part(part, key, schema, root) for key, part in value.items()}
        case list():
            return [_restored_part(part, number, schema, root) for number, part in enumerate(value)]
        case _:
            return value


def _flat_names(schema: Schema) -> frozenset[str]:
    """Return the properties of an object whose strict form holds nothing that is written otherwise in a plan."""
    return frozenset(name for name, part in schema.get("properties", {}).items() if _is_flat(part, schema, _MAX_FLAT))


def _is_flat(schema: Any, root: Schema, depth: int) -> bool:
    match schema:
        case {"type": "string" | "integer" | "number" | "boolean" | "null"}:
            return True
        case {"anyOf": list(parts)}:
            objects = [part for part in parts if part.keys() & {"$ref", "properties"}]
            return len(objects) < 2 and all(_is_flat(part, root, depth) for part in parts)
        case {"$ref": str(name)} if depth:
            return _is_flat(root.get("$defs", {}).get(name.removeprefix("#/$defs/")), root, depth - 1)
        case {"type": "array", "items": items} if depth and "prefixItems" not in schema:
            return _is_flat(items, root, depth - 1)
        case {"type": "object", "properties": properties} if depth:
            return all(_is_flat(part, root, depth - 1) for part in properties.values())
        case _:
            return not schema  # anything, which is never restored


def _may_be_strict(value: Any) -> bool:
    """Whether a value has a part that only the strict form has: a text of JSON, a list of pairs, or an empty list.

    It is asked first: looking at schemas takes three times as long as the check of a plan.
    """
    match value:
        case str():
            return value.lstrip()[:1] in ("{", "[")
        case list():
            return not value or any(map(_may_be_strict, value))
        case dict():
            return value.keys() == _PAIR or any(map(_may_be_strict, value.values()))
        case _:
            return False


def restored_text(text: str, restore: Callable[[Any], Any]) -> str:
    """Return a JSON text with its value restored by *restore*; whatever is no JSON stays, for its reader to explain."""
    value = _parsed(text)
    return text if value is text else json.dumps(restore(value), ensure_ascii=False)


def _restored_part(value: Any, place: str | int, schema: Schema, root: Schema) -> Any:
    """Restore a part by its own schema, if only one of the branches of *schema* knows the place."""
    parts = [part for branch in _branches(schema, root) if (part := _inside(branch, place)) is not None]
    return restored(value, parts[0], root) if len(parts) == 1 else value


def _branches(schema: Schema, root: Schema) -> list[Schema]:
    match schema:
        case {"$ref": str(name)}:
            definition = root.get("$defs", {}).get(name.removeprefix("#/$defs/"))
            return _branches(definition, root) if isinstance(definition, Mapping) else []
        case {"anyOf": list(parts)} | {"oneOf": list(parts)} | {"allOf": list(parts)}:
            return [branch for part in parts if isinstance(part, Mapping) for branch in _branches(part, root)]
        case _:
            return [schema]


def _inside(branch: Schema, place: str | int) -> Schema | None:
    if isinstance(place, int):
        prefix = branch.get("prefixItems", ())
        part = prefix[place] if place < len(prefix) else branch.get("items")
    else:
        part = branch.get("properties", {}).get(place, branch.get("additionalProperties"))
    return part if isinstance(part, Mapping) else None


def _are_pairs(value: list[Any], schema: Schema, root: Schema) -> bool:
    """Whether a list of pairs encodes an object: no list that the schema takes could hold them."""
    lists = [branch for branch in _branches(schema, root) if branch.get("type") == "array"]
    inner = [types_of(part, root) if (part := _inside(branch, 0)) is not None else None for branch in lists]
    if any(types is None or "object" in types for types in inner) or (lists and not value):
        return False
    return all(isinstance(pair, dict) and pair.keys() == _PAIR and isinstance(pair["key"], str) for pair in value)


def _condition(leaves: list[Any]) -> Any:
    """Join conditions that must all hold; none is no condition."""
    made = [_leaf(leaf) if isinstance(leaf, dict) else leaf for leaf in leaves]
    if not made:
        return None
    return made[0] if len(made) == 1 else {"all": made}


def _leaf(leaf: dict[str, Any]) -> dict[str, Any]:
    """Turn the text of a value into the value: JSON, or else the text itself."""
    if leaf.get("op") == "exists":
        return {key: part for key, part in leaf.items() if key != "value"}
    value = leaf.get("value")
    return {**leaf, "value": _parsed(value)} if isinstance(value, str) else leaf


def _parsed(text: str) -> Any:
    """Return the value of a JSON text; of any other text, the text."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
