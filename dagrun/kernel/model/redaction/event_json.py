"""Events as plain JSON for other programs, and the JSON Schema of it; both follow from the type hints of the fields.

1. Each field of an event becomes a field of the object, with its own name, always. Left out are fields that only the
   process itself can use: the opening and the trace of a run, the checked patch of a splice, exceptions.
2. A value of a step that is gone is null, and a field ``unavailable`` beside it says why.
3. A plan, a step or an edit looks as it was written, without the fields that were left to their defaults.
4. Texts and values are redacted by what their field means: a field of `NAMES` holds a name that the run works with.

Names of fields and their types are a promise: fields and events are added, and never changed or taken away.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel

from dagrun.kernel.model.outcome import UNRECORDED
from dagrun.kernel.model.patch import Add, Drop, Replace, Rewire, edit_as_dict
from dagrun.kernel.model.redaction.redactor import DEFAULT_REDACTOR, Redactor, without_secrets
from dagrun.kernel.model.value import Stored, Unavailable, decode

__all__ = ["DEFAULT_REDACTOR", "NAMES", "event_as_json", "events_schema", "may_hold_names"]

# Fields that hold names, in events and in everything inside them. Contracts of tools and the policy are the host's own.
NAMES: Final = frozenset(
    (
        *("id", "run_id", "parent", "root", "roots", "version", "code", "path", "name"),
        *("step", "steps", "tool", "tools", "effect", "cause", "origin", "result", "ceiling", "who", "executors"),
        *("critic", "critics", "question", "checklist", "ticked", "missing_input", "agreed"),
        *("fingerprint", "fingerprints", "signature", "planner", "next_planner"),
        *("added", "dropped", "replaced", "rewired", "cancelled", "superseded", "unblocked", "reused", "fallen"),
    )
)
_LEFT_OUT: Final = frozenset(("opening", "checked", "traceparent"))
_EDITS: Final = frozenset((Add, Drop, Replace, Rewire))
_UNAVAILABLE: Final = "unavailable"

Writer: TypeAlias = Callable[[Any, Redactor | None], Any]


def may_hold_names(hint: Any) -> bool:
    """Whether a field of this type holds texts or contracts, and not an object with fields of its own."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return all(kind in (str, type(None)) for kind in inside)
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    return hint is str or is_mapping or (origin is tuple and inside[0] is str)


def event_as_json(event: Any, redactor: Redactor | None) -> dict[str, Any]:
    """Return an event as plain JSON; its name is the field ``event``, the first one.

    Args:
        event: The event.
        redactor: Redacts texts and values; `None` for the event as it is.
    """
    return {"event": type(event).__name__, **_object_of(type(event)).written(event, redactor)}


def events_schema(kinds: Mapping[str, type]) -> dict[str, Any]:
    """Return the JSON Schema of the output of `event_as_json` for these event classes."""
    shapes: dict[str, Any] = {}
    for name, kind in kinds.items():
        _object_of(kind).add_schema(shapes, {"event": {"const": name}})
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An event of a run",
        "description": "Fields and events may be added; none is changed or taken away.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in kinds],
        "$defs": dict(sorted(shapes.items())),
    }


class _Object:
    """Writes the fields of a dataclass as an object, and describes that.

    Args:
        kind: The dataclass.
    """

    def __init__(self, kind: type[Any]) -> None:
        hints = typing.get_type_hints(kind)
        names = [field.name for field in fields(kind) if not field.metadata.get(UNRECORDED)]
        self._kind = kind
        self._hints = {name: hints[name] for name in names if name not in _LEFT_OUT}
        self._writers = [(name, _writer_of_field(name, hint)) for name, hint in self._hints.items()]

    def written(self, value: Any, redactor: Redactor | None) -> dict[str, Any]:
        """Return the object for *value*."""
        shown: dict[str, Any] = {}
        for name, write in self._writers:
            part = getattr(value, name)
            if type(part) is Unavailable:
                shown[name] = None
                shown[_UNAVAILABLE] = part.reason
            else:
                shown[name] = write(part, redactor)
        return shown

    def add_schema(self, shapes: dict[str, Any], head: Mapping[str, Any]) -> None:
        """Add the schema of the object to *shapes*, with the properties of *head* before its own."""
        properties = {**head, **{name: _schema_of(hint, shapes) for name, hint in self._hints.items()}}
        shape = {"type": "object", "properties": properties, "required": list(properties)}
        if any(hint == Stored for hint in self._hints.values()):
            properties[_UNAVAILABLE] = {"type": "string"}  # not required
        shapes[self._kind.__name__] = shape


_objects: Final[dict[type[Any], _Object]] = {}


def _object_of(kind: type[Any]) -> _Object:
    found = _objects.get(kind)
    if found is None:
        found = _objects[kind] = _Object(kind)
    return found


def _writer_of_field(name: str, hint: Any) -> Writer:
    if name in NAMES and may_hold_names(hint):
        return _write_name
    return _writer_of(hint)


@cache
def _writer_of(hint: Any) -> Writer:
    if hint == Stored:
        return _write_stored
    if hint in _LEAVES:
        return _LEAVES[hint][0]
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if _EDITS.issuperset(inside):
            return lambda edit, redactor: _write_json(edit_as_dict(edit), redactor)
        inner = _writer_of(next(kind for kind in inside if kind is not type(None)))
        return lambda value, redactor: None if value is None else inner(value, redactor)
    if origin is tuple:
        writers = [_writer_of(part) for part in inside if part is not Ellipsis]
        is_open = inside[-1] is Ellipsis

        def write_each(value: tuple[Any, ...], redactor: Redactor | None) -> list[Any]:
            each = writers * (len(value) if is_open else 1)
            return [write(part, redactor) for write, part in zip(each, value, strict=True)]

        return write_each
    if _is_word(hint):
        return lambda value, _: str(value)
    if origin is not None:  # a mapping by text
        inner = _writer_of(inside[1])
        return lambda value, redactor: {
            key if redactor is None else redactor.text(key): inner(part, redactor) for key, part in value.items()
        }
    if issubclass(hint, BaseModel):
        return lambda model, redactor: _write_json(_dumped(model), redactor)
    assert isinstance(hint, type), hint
    assert is_dataclass(hint), hint
    return lambda value, redactor: _object_of(hint).written(value, redactor)


def _schema_of(hint: Any, shapes: dict[str, Any]) -> dict[str, Any]:
    if hint == Stored or hint is Any:
        return {}
    if hint in _LEAVES:
        return dict(_LEAVES[hint][1])
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if _EDITS.issuperset(inside):
            return {"type": "object", "required": ["op"]}
        inner = _schema_of(next(kind for kind in inside if kind is not type(None)), shapes)
        if inner.get("type") == "string":
            return {"type": ["string", "null"]}
        return inner if "null" in inner.get("type", ()) else {"anyOf": [inner, {"type": "null"}]}
    if origin is tuple:
        return _schema_of_list(inside, shapes)
    if _is_word(hint):
        return {"type": "string"}  # an open list: words may be added
    if origin is not None:
        return {"type": "object", "additionalProperties": _schema_of(inside[1], shapes)}
    return {"type": "object"} if issubclass(hint, BaseModel) else _schema_of_object(hint, shapes)


def _is_word(hint: Any) -> bool:
    return typing.get_origin(hint) is Literal or (isinstance(hint, type) and issubclass(hint, StrEnum))


def _schema_of_object(hint: type[Any], shapes: dict[str, Any]) -> dict[str, Any]:
    if hint.__name__ not in shapes:
        shapes[hint.__name__] = {}
        _object_of(hint).add_schema(shapes, {})
    return {"$ref": f"#/$defs/{hint.__name__}"}


def _schema_of_list(inside: tuple[Any, ...], shapes: dict[str, Any]) -> dict[str, Any]:
    if inside[-1] is Ellipsis:
        return {"type": "array", "items": _schema_of(inside[0], shapes)}
    parts = [_schema_of(part, shapes) for part in inside]
    return {"type": "array", "prefixItems": parts, "minItems": len(parts), "maxItems": len(parts)}


def _write_stored(value: Stored, redactor: Redactor | None) -> Any:
    return None if type(value) is Unavailable else _write_json(decode(value), redactor)


def _write_json(value: Any, redactor: Redactor | None) -> Any:
    return value if redactor is None else redactor.value(value)


def _write_text(value: str, redactor: Redactor | None) -> str:
    return value if redactor is None else redactor.text(value)


def _write_name(value: Any, redactor: Redactor | None) -> Any:
    # Ids and names of tools are what a reader looks things up by: they stay, but for registered secrets.
    plain = list(value) if isinstance(value, tuple) else dict(value) if isinstance(value, Mapping) else value
    return plain if redactor is None else without_secrets(redactor.secrets, plain)


def _write_whole(value: Any, _: Redactor | None) -> int:
    whole: int = math.ceil(value)  # a tool may report half a token
    return whole


def _write_number(value: Any, _: Redactor | None) -> float | None:
    if hasattr(value, "__index__"):
        return int(value)
    return float(value) if math.isfinite(value) else None  # JSON has no infinity


def _dumped(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True, fallback=repr)


_LEAVES: Final[Mapping[Any, tuple[Writer, Mapping[str, Any]]]] = {
    str: (_write_text, {"type": "string"}),
    bool: (lambda value, _: bool(value), {"type": "boolean"}),
    int: (_write_whole, {"type": "integer"}),
    float: (_write_number, {"type": ["number", "null"]}),
    Any: (_write_json, {}),
}
