"""JSON Schemas of types, also of types that bring a schema of their own, with references inside it.

A tool from a server has a schema, and no type: its parameter is annotated with pydantic's ``WithJsonSchema``. Such a
schema is a document by itself, whose ``$ref`` point into its own ``$defs``. In the schema of the tool it is a part, so
its definitions move to the top, under names that are free there, and its references follow them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from dagrun.errors import ContractError, shorten

_MARK: Final = "dagrun: schema of its own, number "
_DEFINITIONS: Final = ("$defs", "definitions")
_INSIDE: Final = ("#/$defs/", "#/definitions/")
_WHOLE: Final = "\0"  # stands for the document itself among the names of its definitions
_DATA: Final = frozenset(("const", "default", "enum", "examples"))  # a "$ref" in them is no reference


class ContractSchemas(GenerateJsonSchema):
    """Generates the schema of a type; see the top of the file."""

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> JsonSchemaValue:
        """Return the schema.

        Raises:
            ContractError: A reference points to a definition that does not exist.
        """
        self._documents: list[Mapping[str, Any]] = []
        found = super().generate(schema, mode)
        if not self._documents:
            return found
        whole = _Whole(dict(found.get("$defs", {})))
        found = whole.put_back({key: part for key, part in found.items() if key != "$defs"}, self._documents)
        return {**found, "$defs": whole.definitions} if whole.definitions else found

    def bytes_schema(self, schema: core_schema.BytesSchema) -> JsonSchemaValue:
        """Return the schema of bytes: base64 (of either alphabet) unless a model sets another encoding."""
        found = super().bytes_schema(schema)
        return {**found, "format": "byte"} if found.get("format") == "base64url" else found

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Return the schema of a part; a mark for a schema document of its own, which pydantic cannot read."""
        found = super().generate_inner(schema)
        if any(key in found for key in _DEFINITIONS) or any(
            target not in self.json_to_defs_refs for target in _references(found)
        ):
            self._documents.append(found)
            return {"$comment": f"{_MARK}{len(self._documents) - 1}"}
        return found


class _Whole:
    """The definitions of a schema, and the documents that are put back into it.

    Args:
        definitions: Those that pydantic has made, by name.
    """

    def __init__(self, definitions: dict[str, Any]) -> None:
        self.definitions = {name: part for name, part in definitions.items() if not _is_mark(part)}
        self._marked = {name: part for name, part in definitions.items() if _is_mark(part)}
        self._moved: list[tuple[tuple[Mapping[str, Any], Mapping[str, Any]], dict[str, str]]] = []

    def put_back(self, schema: dict[str, Any], documents: list[Mapping[str, Any]]) -> dict[str, Any]:
        """Return *schema* with each mark replaced by its document, and complete the definitions."""
        for name, part in list(self.definitions.items()):
            self.definitions[name] = self._put_back(part, documents)
        for name, part in self._marked.items():
            self.definitions[name] = self._put_back(part, documents)
        found = self._put_back(schema, documents)
        assert isinstance(found, dict)
        return found

    def _put_back(self, part: Any, documents: list[Mapping[str, Any]]) -> Any:
        if isinstance(part, list):
            return [self._put_back(item, documents) for item in part]
        if not isinstance(part, Mapping):
            return part
        if _is_mark(part):
            number = int(part["$comment"].removeprefix(_MARK))
            said = {key: value for key, value in part.items() if key != "$comment"}
            return {**self._moved_in(documents[number]), **said}
        return {key: value if key in _DATA else self._put_back(value, documents) for key, value in part.items()}

    def _moved_in(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Move the definitions of *document* to the top, and return the rest of it."""
        own = {name: part for key in _DEFINITIONS for name, part in document.get(key, {}).items()}
        rest = {key: part for key, part in document.items() if key not in _DEFINITIONS}
        # Two arguments of one tool come with the same definitions. Those that refer to all of it are its own.
        is_alone = any(not target.startswith(_INSIDE) for target in _references(document))
        key = (own, rest if is_alone else {})
        names = next((names for before, names in self._moved if before == key), None)
        if names is None:
            names = {name: self._free_name(name) for name in own}
            self._moved.append((key, names))
            for name, part in own.items():
                self.definitions[names[name]] = self._rewritten(part, names, rest)
        return self._rewritten(rest, names, rest)  # type: ignore[no-any-return]

    def _free_name(self, name: str) -> str:
        taken = (*self.definitions, *self._marked)
        chosen = name if name not in taken else next(n for i in range(2, 9999) if (n := f"{name}_{i}") not in taken)
        self.definitions[chosen] = {}
        return chosen

    def _rewritten(self, part: Any, names: dict[str, str], document: Mapping[str, Any]) -> Any:
        if isinstance(part, list):
            return [self._rewritten(item, names, document) for item in part]
        if not isinstance(part, Mapping):
            return part
        found = {key: value if key in _DATA else self._rewritten(value, names, document) for key, value in part.items()}
        target = part.get("$ref")
        if isinstance(target, str) and target.startswith("#"):
            found["$ref"] = self._target(target, names, document)
        return found

    def _target(self, target: str, names: dict[str, str], document: Mapping[str, Any]) -> str:
        steps = target.removeprefix("#").split("/")[1:]
        if len(steps) > 1 and steps[0] in _DEFINITIONS:
            name = steps[1].replace("~1", "/").replace("~0", "~")
            if name not in names:
                raise ContractError(f"its schema refers to {shorten(target, 80)}, which it does not define")
            return "/".join(("#/$defs", _escaped(names[name]), *steps[2:]))
        # To the document as a whole, or to a part of it: then all of it becomes a definition.
        if _WHOLE not in names:
            names[_WHOLE] = whole = self._free_name(str(document.get("title") or "Schema"))
            self.definitions[whole] = self._rewritten(document, names, document)
        return "/".join(("#/$defs", _escaped(names[_WHOLE]), *steps))


def _is_mark(part: Any) -> bool:
    return isinstance(part, Mapping) and str(part.get("$comment", "")).startswith(_MARK)


def _references(part: Any) -> Iterator[str]:
    if isinstance(part, list):
        for item in part:
            yield from _references(item)
    elif isinstance(part, Mapping):
        for key, value in part.items():
            if key == "$ref" and isinstance(value, str):
                yield value
            elif key not in _DATA:
                yield from _references(value)


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
