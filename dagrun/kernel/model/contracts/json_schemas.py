"""JSON that pydantic does not make by itself: forms of values, computed fields, and schemas with references.

1. Bytes are base64, in outputs and in arguments, so any bytes come back as they were. The schema says
   ``format: byte``. A pydantic model has a configuration of its own, and so its own form of bytes.
2. A scalar of numpy, ``numpy.float64`` say, is the plain number, text or boolean, and comes back as that class. It is
   known by the name of its base class, so numpy is not imported here.
3. A model of pydantic writes its computed fields, and takes them for extra fields when it is read again. A model that
   forbids extra fields would refuse its own output. Plans may refer to computed fields, so outputs keep them; where a
   model has refused one, it is dropped, and the model computes it again.
4. A tool from a server has a schema, and no type: its parameter is annotated with pydantic's ``WithJsonSchema``. Such a
   schema is a document by itself, whose ``$ref`` point into its own ``$defs``. In the schema of the tool it is a part,
   so its definitions move to the top, under names that are free there, and its references follow them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema, from_json
from typing_extensions import TypeAliasType

from dagrun.errors import ContractError, shorten
from dagrun.kernel.model.value import encode_plain

BASE64: Final = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
_CONFIG_UNUSED: Final = "type-adapter-config-unused"

# By the kind of a type of numpy: its type in JSON, and what a value of it is in Python.
_KINDS: Final[Mapping[str, tuple[str, tuple[type, ...]]]] = {
    "b": ("boolean", (bool,)),
    "f": ("number", (int, float)),
    "i": ("integer", (int,)),
    "u": ("integer", (int,)),
    "U": ("string", (str,)),
}


def adapter_for(hint: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type, with bytes as base64.

    Raises:
        PydanticUserError: The type has no JSON form.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(hint)
    if not _holds_bytes(adapter.core_schema):
        return adapter
    try:
        return TypeAdapter(hint, config=BASE64)
    except PydanticUserError as error:
        if error.code != _CONFIG_UNUSED:
            raise
    # A model keeps its own configuration; a dataclass or a typed dict has none, and takes the outer type's.
    named: Any = TypeAliasType("Value", hint)
    return TypeAdapter(named, config=BASE64)


def _holds_bytes(schema: Any) -> bool:
    waiting, seen = [schema], set[int]()
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part.get("type") == "bytes":
                return True
            inner: list[Any] = list(part.values())
        elif isinstance(part, list | tuple):
            inner = list(part)
        else:
            continue
        if id(part) not in seen:
            seen.add(id(part))
            waiting.extend(inner)
    return False


def is_numpy_class(hint: Any) -> bool:
    """Whether a type is a class of scalars of numpy that JSON can hold."""
    bases = getattr(hint, "__mro__", ()) if isinstance(hint, type) else ()
    if not any(base.__module__ == "numpy" and base.__name__ == "generic" for base in bases):
        return False
    try:
        return hint().dtype.kind in _KINDS
    except (TypeError, ValueError):  # an abstract class, or one without a default
        return False


class NumpyPlace:
    """The place of a scalar of numpy in a type, for pydantic.

    Args:
        kind: The class of the scalar.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._name, self._types = _KINDS[kind().dtype.kind]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self._take,
            # With its own schema a float that is not finite stays one, and is refused later; else it would become null.
            serialization=core_schema.plain_serializer_function_ser_schema(
                self._plain, return_schema=core_schema.float_schema() if self._name == "number" else None
            ),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"type": self._name}

    def _take(self, value: Any) -> Any:
        if isinstance(value, self._kind):
            return value
        if type(value) not in self._types:
            raise PydanticCustomError("numpy", "it should be a {name}", {"name": self._name})
        try:
            return self._kind(value)
        except (OverflowError, ValueError) as error:
            raise PydanticCustomError(
                "numpy", "it does not fit into a {name}", {"name": self._kind.__name__}
            ) from error

    @staticmethod
    def _plain(value: Any) -> Any:
        return value.item() if hasattr(value, "item") else value


def computed_names(schema: Any) -> Iterator[str]:
    """Yield the names of the computed fields of all models in a core schema of pydantic."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
            if part.get("type") == "computed-field":
                yield str(part["property_name"])


def without_computed(data: bytes, error: ValidationError, names: frozenset[str]) -> bytes:
    """Return JSON text without the computed fields that *error* finds to be too much.

    Args:
        data: The text that was refused.
        error: Why.
        names: The schemas of computed fields.

    Returns:
        The shorter text; *data* itself if there is nothing to drop.
    """
    value: Any = None
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        *place, name = fault["loc"] or ("",)
        if fault["type"] not in ("extra_forbidden", "unexpected_keyword_argument") or name not in names:
            continue
        value = from_json(data) if value is None else value
        holder = _at(value, place)
        if isinstance(holder, dict):
            holder.pop(str(name), None)
    return data if value is None else encode_plain(value).encode()


def _at(value: Any, place: list[Any]) -> Any:
    """Return the part of *value* that a location of pydantic means: it names branches of unions, too."""
    for part in place:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
    return value


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
