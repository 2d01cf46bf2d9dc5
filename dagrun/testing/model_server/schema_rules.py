"""The rules for schemas in the strict output modes of two providers and two servers.

Sources: "Supported schemas" in OpenAI's guide to structured outputs, and "JSON Schema limitations" in Anthropic's, as
of autumn 2026; for patterns and formats also llama.cpp and vLLM with xgrammar (``docs/reference/servers.md``). A schema
is held to the rules of all, so that it can be sent to any; only the limit on unions is Anthropic's alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 10
MAX_PROPERTIES: Final = 5_000
MAX_NAMES: Final = 120_000  # characters of all names of properties and values of enums
MAX_ENUM_VALUES: Final = 1_000
MAX_UNIONS: Final = 16  # places for values of several types; Anthropic only

KEYWORDS: Final = frozenset(
    ("$schema", "additionalProperties", "anyOf", "const", "description", "enum", "format", "items", "pattern",
     "properties", "required", "type")
)  # fmt: skip

FORMATS: Final = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")
)  # fmt: skip
# The forms of patterns that a server refuses, drops or misreads, as they look without escapes and plain classes.
_PATTERNS: Final[Mapping[str, re.Pattern[str]]] = {
    "a negated class": re.compile(r"\[\^"),
    "a group that looks around": re.compile(r"\(\?"),
    "a shorthand": re.compile(r"\\"),
    "a dot": re.compile(r"\."),
    "a counted repetition": re.compile(r"\{"),
    "no anchors": re.compile(r"^(?!\^.*\$$)", re.S),
}
_ESCAPE: Final = re.compile(r"\\[^A-Za-z0-9]")
_CLASS: Final = re.compile(r"\[[^\^\]\\][^\]\\]*\]")


def schema_faults(schema: Mapping[str, Any], *, limits_unions: bool) -> list[str]:
    """Return the reasons why a provider would refuse a schema; empty if it accepts it.

    Args:
        schema: The schema of an answer.
        limits_unions: Whether the provider limits the number of unions.
    """
    parts = list(_parts(schema, "", 0))
    found = [fault for path, part, _ in parts for fault in _faults_of(part, path)]
    names = [name for _, part, _ in parts for name in part.get("properties", {})]
    values = [str(value) for _, part, _ in parts for value in (*part.get("enum", ()), part.get("const", ""))]
    if schema.get("type") != "object":
        found.append("the root is no object")
    if max(depth for _, _, depth in parts) > MAX_DEPTH:
        found.append("too deep")
    if len(names) > MAX_PROPERTIES or len(values) > MAX_ENUM_VALUES + len(parts):
        found.append("too many names or values")
    if sum(map(len, [*names, *values])) > MAX_NAMES:
        found.append("names too long")
    unions = sum("anyOf" in part for _, part, _ in parts)
    if limits_unions and unions > MAX_UNIONS:
        found.append(f"{unions} unions, the limit is {MAX_UNIONS}")
    return found


def _parts(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any], int]]:
    depth += schema.get("type") in ("object", "array")
    yield path, schema, depth
    for name, part in schema.get("properties", {}).items():
        yield from _parts(part, f"{path}/{name}", depth)
    for number, part in enumerate(schema.get("anyOf", ())):
        yield from _parts(part, f"{path}|{number}", depth)
    if isinstance(schema.get("items"), dict):
        yield from _parts(schema["items"], f"{path}[]", depth)


def _faults_of(part: Mapping[str, Any], path: str) -> Iterator[str]:
    for keyword in sorted(part.keys() - KEYWORDS):
        yield f"{path}: keyword {keyword}"
    if not part.keys() & {"type", "anyOf"}:
        yield f"{path}: no type"
    if isinstance(part.get("type"), list):
        yield f"{path}: several types"
    if part.get("type") == "object":
        if part.get("additionalProperties") is not False:
            yield f"{path}: not closed"
        if sorted(part.get("required", ())) != sorted(part.get("properties", {})):
            yield f"{path}: a field is not required"
    if "pattern" in part:
        bare = _CLASS.sub("c", _ESCAPE.sub("e", part["pattern"]))
        yield from (f"{path}: a pattern with {form}" for form, found in _PATTERNS.items() if found.search(bare))
    if part.get("format", "date") not in FORMATS:
        yield f"{path}: format {part['format']}"
    if not _are_told_apart(part.get("anyOf", ())):
        yield f"{path}: objects that begin alike"


def _are_told_apart(branches: Any) -> bool:
    """Whether no two objects begin with an equal field, unless its values distinguish them."""
    first: dict[str, list[set[str]]] = {}
    for branch in branches:
        if branch.get("properties"):
            name, schema = next(iter(branch["properties"].items()))
            values = [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else ())]
            first.setdefault(name, []).append({json.dumps(value) for value in values})
    return all(
        len(sets) == 1 or (all(sets) and sum(map(len, sets)) == len(set().union(*sets))) for sets in first.values()
    )
