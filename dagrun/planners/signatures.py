"""Tools as models read them: the signature of each in a line, and each type that is used twice once.

A JSON Schema says the same at ten times the length, and small models lose their way in it. Notation: ``T[]`` is a list,
``{a: T, b?: T}`` an object with an optional field, ``{[key]: T}`` an object with arbitrary keys, ``T | U`` either.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.kernel.model.contracts.objects import OBJECT_TYPE
from dagrun.kernel.model.secrets import KEY

Schema = Mapping[str, Any]

# What a run knows of a tool besides its contract; see `dagrun.kernel.decide.briefs`.
_FACTS: Final = ("approval", "fallback", "seconds", "pool", "untrusted", "guarded")

MAX_VALUES: Final = 20  # of an enum
MAX_DESCRIPTION: Final = 200  # characters about one argument


@dataclass(frozen=True, slots=True)
class Signatures:
    """The signatures of some tools.

    Attributes:
        tools: What a model reads of each tool: ``name``, ``effect``, ``call``, ``description``; ``approval``,
            ``fallback``, ``seconds``, ``pool``, ``untrusted`` and ``guarded`` where there are any; and ``arguments``
            with the descriptions of arguments that have one.
        types: The types that more than one place uses, or that contain themselves, by name.
    """

    tools: tuple[dict[str, Any], ...]
    types: Mapping[str, str]


def signatures_of(tools: Iterable[Mapping[str, Any]]) -> Signatures:
    """Return the signatures of tools.

    Args:
        tools: The contracts of the tools, as `Tool.describe` returns them.
    """
    contracts = list(tools)
    names = _Names()
    outputs = [_by_name(tool["output"]) for tool in contracts]
    for tool, output in zip(contracts, outputs, strict=True):
        names.note(tool["arguments"])
        names.note(output)
    lines = tuple(_line(tool, output, names) for tool, output in zip(contracts, outputs, strict=True))
    return Signatures(lines, {name: names.written[name] for name in sorted(names.written)})


def _by_name(schema: Schema) -> Schema:
    """Return the schema of an object with a title as a reference: another tool may use the same type."""
    title = schema.get("title")
    definitions = schema.get("$defs", {})
    if not title or "properties" not in schema or title in definitions:
        return schema
    body = {key: part for key, part in schema.items() if key != "$defs"}
    return {"$ref": f"#/$defs/{title}", "$defs": {**definitions, title: body}}


def _line(tool: Mapping[str, Any], output: Schema, names: _Names) -> dict[str, Any]:
    schema = tool["arguments"]
    arguments, gives = _Types(schema, names), _Types(output, names)
    properties, required = schema.get("properties", {}), schema.get("required", ())
    takes = ", ".join(_parameter(name, part, arguments, required) for name, part in properties.items())
    if (others := schema.get("additionalProperties", False)) is not False:  # a schema from elsewhere may leave it open
        takes += f"{takes and ', '}[any other]?: {arguments.write(others)}"
    about = {name: _short(part["description"]) for name, part in properties.items() if part.get("description")}
    line = {
        "name": tool["name"],
        "effect": tool["effect"],
        "call": f"{tool['name']}({takes}) -> {gives.write(output)}",
        "description": tool["description"],
        **{name: tool[name] for name in _FACTS if name in tool},
    }
    return line | ({"arguments": about} if about else {})


def _parameter(name: str, schema: Schema, types: _Types, required: Sequence[str]) -> str:
    is_optional = name not in required
    default = schema.get("default")
    has_default = is_optional and default is not None and default not in ("", [], {})
    shown = f" = {_short(json.dumps(default, ensure_ascii=False))}" if has_default else ""
    return f"{name}{'?' if is_optional else ''}: {types.write(schema)}{shown}"


def _short(text: str) -> str:
    folded = " ".join(str(text).split())
    return folded if len(folded) <= MAX_DESCRIPTION else f"{folded[: MAX_DESCRIPTION - 1]}…"


@dataclass(slots=True)
class _Names:
    """The names of types that are written once, and referred to.

    Attributes:
        written: The types by name.
    """

    written: dict[str, str] = field(default_factory=dict)
    _uses: Counter[str] = field(default_factory=Counter)
    _by_name: dict[str, str] = field(default_factory=dict)

    def note(self, root: Schema) -> None:
        """Count how often the definitions of a schema are used."""
        definitions = root.get("$defs", {})
        for name in _references({key: part for key, part in root.items() if key != "$defs"}, definitions, set()):
            self._uses[_identity(name, definitions)] += 1

    def name_of(self, name: str, definitions: Schema) -> str | None:
        """Return the name under which a definition is written once; `None` if it stands where it is used."""
        identity = _identity(name, definitions)
        if self._uses[identity] < 2 and name not in _references(definitions[name], definitions, set()):
            return None
        number = 1
        while self._by_name.setdefault(shown := f"{name}{'' if number == 1 else number}", identity) != identity:
            number += 1
        return shown


def _identity(name: str, definitions: Schema) -> str:
    return f"{name} {json.dumps(definitions[name], sort_keys=True)}"


def _references(schema: Any, definitions: Schema, seen: set[str]) -> Iterator[str]:
    """Yield the name of each definition that a schema uses, once for each use outside of other definitions."""
    if isinstance(schema, Mapping):
        name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
        if name in definitions:
            yield name
            if name not in seen:
                seen.add(name)
                yield from _references(definitions[name], definitions, seen)
        for part in schema.values():
            yield from _references(part, definitions, seen)
    elif isinstance(schema, list):
        for part in schema:
            yield from _references(part, definitions, seen)


class _Types:
    """Writes the types of one schema.

    Args:
        root: The schema with the definitions.
        names: The names of types that are written once.
    """

    def __init__(self, root: Schema, names: _Names) -> None:
        self._definitions: Schema = root.get("$defs", {})
        self._names = names

    def write(self, schema: Any) -> str:
        """Return a type in a few words."""
        match schema:
            case {"$ref": str(name)}:
                return self._definition(name.removeprefix("#/$defs/"))
            case {"const": value}:
                return json.dumps(value, ensure_ascii=False)
            case {"enum": list(values)}:
                shown = " | ".join(json.dumps(value, ensure_ascii=False) for value in values[:MAX_VALUES])
                return shown if len(values) <= MAX_VALUES else f"{shown} | …"
            case {"anyOf": list(parts)} | {"oneOf": list(parts)}:
                return " | ".join(dict.fromkeys(self.write(part) for part in parts))
            case {"allOf": [part]}:
                return self.write(part)
            case {"type": list(types)}:
                return " | ".join(self.write({**schema, "type": type_}) for type_ in types)
            case {"type": "array"}:
                return self._list(schema)
            case {"type": "object"} | {"properties": _}:
                return self._object(schema)
            case {"type": str(type_)}:
                return f"{type_.replace(OBJECT_TYPE, 'object in memory, ')}{_limits(schema)}"
            case _:
                return "any"

    def _definition(self, name: str) -> str:
        if name not in self._definitions:
            return "any"
        shown = self._names.name_of(name, self._definitions)
        if shown is None:
            return self.write(self._definitions[name])
        if shown not in self._names.written:
            self._names.written[shown] = ""  # a type that contains itself
            self._names.written[shown] = self.write(self._definitions[name])
        return shown

    def _list(self, schema: Schema) -> str:
        if parts := schema.get("prefixItems"):
            return f"[{', '.join(map(self.write, parts))}]"
        inner = self.write(schema.get("items"))
        return f"({inner})[]" if " | " in inner and not inner.startswith("{") else f"{inner}[]"

    def _object(self, schema: Schema) -> str:
        properties = schema.get("properties", {})
        if KEY in properties:
            return '{"$secret": name}'
        if not properties:
            others = schema.get("additionalProperties", True)
            return "{}" if others is False else f"{{[key]: {self.write(others)}}}"
        required = schema.get("required", ())
        fields = (f"{name}{'' if name in required else '?'}: {self.write(part)}" for name, part in properties.items())
        return f"{{{', '.join(fields)}}}"


def _limits(schema: Schema) -> str:
    """Return the limits of a number: ``(1 to 9)``."""
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is None and most is None:
        return ""
    if most is None:
        return f" (at least {least})"
    return f" (at most {most})" if least is None else f" ({least} to {most})"
