"""How two JSON Schemas of a tool differ, in words: by argument, or by field of the output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dagrun.errors import shorten
from dagrun.graph.json_types import Schema, types_of
from dagrun.model.value import encode_plain

# Said to people and planners: a call is the same with other words for it.
_WORDS: Final = frozenset(("title", "description", "examples"))
# What they hold is named by the author of the tool: a field may well be called "title".
_NAMED: Final = frozenset(("properties", "patternProperties", "$defs", "dependentSchemas"))
_VALUES: Final = frozenset(("default", "const", "enum", "required"))


def argument_differences(was: Schema, now: Schema) -> Iterator[str]:
    """Say how the arguments of a tool differ, argument by argument."""
    yield from _field_differences("argument", was, now)


def output_differences(was: Schema, now: Schema) -> Iterator[str]:
    """Say how the output of a tool differs: field by field, if it is an object with named fields."""
    if _is_record(was) and _is_record(now):
        yield from _field_differences("output field", was, now)
    elif bare(was) != bare(now):
        yield f"output was {_pair(was, was, now, now)}"


def bare(schema: Any) -> Any:
    """A schema without what is said in it to people."""
    if isinstance(schema, list):
        return [bare(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    found: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _NAMED and isinstance(part, Mapping):
            found[key] = {name: bare(inner) for name, inner in part.items()}
        elif key in _VALUES:
            found[key] = part
        elif key not in _WORDS:
            found[key] = bare(part)
    return found


def _is_record(schema: Schema) -> bool:
    return schema.get("type") == "object" and "properties" in schema


def _field_differences(word: str, was: Schema, now: Schema) -> Iterator[str]:
    before, after = bare(was), bare(now)
    if before == after:
        return
    lines = [*_by_name(word, before, after), *_required(word, before, after)]
    rest = [{key: part for key, part in side.items() if key not in _BY_NAME} for side in (before, after)]
    if rest[0] != rest[1]:
        lines.append(f"the rest of the schema of its {word}s was {_shown(rest[0])}, is {_shown(rest[1])}")
    yield from lines or [f"the schema of its {word}s has changed"]


_BY_NAME: Final = ("properties", "required")


def _by_name(word: str, was: Schema, now: Schema) -> Iterator[str]:
    before, after = was.get("properties", {}), now.get("properties", {})
    for name in dict.fromkeys((*before, *after)):
        label = f"{word} {shorten(name, 60)}"
        if name not in after:
            yield f"{label} is not there any more"
        elif name not in before:
            yield f"{label} was not there"
        elif before[name] != after[name]:
            yield f"{label} was {_pair(before[name], was, after[name], now)}"


def _required(word: str, was: Schema, now: Schema) -> Iterator[str]:
    before, after = set(was.get("required", ())), set(now.get("required", ()))
    both = set(was.get("properties", {})) & set(now.get("properties", {}))
    for name in sorted((before ^ after) & both):
        change = "was required, is optional" if name in before else "was optional, is required"
        yield f"{word} {shorten(name, 60)} {change}"


def _pair(was: Any, was_root: Schema, now: Any, now_root: Schema) -> str:
    """Two schemas, by their types if that tells them apart."""
    before, after = types_of(was, was_root), types_of(now, now_root)
    if before != after:
        return f"{_types(before)}, is {_types(after)}"
    return f"{_shown(was)}, is {_shown(now)}"


def _types(types: frozenset[str] | None) -> str:
    return "anything" if types is None else " or ".join(sorted(types)) or "nothing"


def _shown(schema: Any) -> str:
    return shorten(encode_plain(schema), 100)
