"""Types of objects that are passed in memory: the parameters that take them, and the outputs that contain them.

1. A tool returns objects where its return type says ``Object[T]``, alone or in lists, dicts and unions. All else in the
   type is JSON as ever.
2. A parameter takes an object of class ``T`` if it is annotated ``Object[T]``, or ``T`` itself. If ``T`` has no JSON
   form, the parameter takes nothing else.
3. An object is checked with `isinstance`, never changed and never copied.
4. A data frame, a table or an array (`FRAME_CLASSES`, exactly) needs no ``Object[…]``: a file can hold it, see
   `dagrun.features.frame_files`. The classes are known by name: no library is imported because of an annotation.
5. In the schema of a tool, the place of an object has the type ``python:`` and the name of its class, which is no type
   of JSON. So the check of a plan sees that no part of it can be named, and that it fits no other argument.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, NotRequired, Required, TypeAlias, TypeVar, cast

from pydantic import TypeAdapter
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from dagrun.errors import ValueRefused
from dagrun.kernel.model.contracts.held_objects import owner_of, token, type_name, with_objects
from dagrun.kernel.model.contracts.json_schemas import NumpyPlace, is_numpy_class

T = TypeVar("T")
OBJECT_TYPE: Final = "python:"
FRAME_CLASSES: Final = frozenset(("pandas.DataFrame", "polars.DataFrame", "pyarrow.Table", "numpy.ndarray"))
_UNIONS: Final = (types.UnionType, typing.Union)
_LISTS: Final = (list, tuple, Sequence, Collection)
_CONTAINERS: Final = (list, tuple, dict)

Keep = Callable[[object, str, "Kept"], Any]
"""Takes a value, the owner of its objects, and where they are kept; returns JSON with tokens."""
FileOf = Callable[[object], Mapping[str, Any] | None]
"""Writes a frame to a file, and returns the artifact as JSON; `None` if it cannot be kept in one."""


@dataclass(slots=True)
class Kept:
    """The objects of one output.

    Attributes:
        objects: The objects by owner.
        file_of: Writes a frame to a file; `None` if frames stay in memory.
        is_filed: Whether all objects so far are in files.
    """

    objects: dict[str, object] = field(default_factory=dict)
    file_of: FileOf | None = None
    is_filed: bool = True


class _InMemory:
    """Marks a type whose values are passed as objects in memory."""

    def __repr__(self) -> str:
        return "in memory"


IN_MEMORY: Final = _InMemory()
Object: TypeAlias = Annotated[T, IN_MEMORY]
"""``Object[T]``: an object of class ``T`` that is passed to other steps in memory, without a copy, and never recorded.

As a return type it is for ``pure`` and ``read`` tools alone: when a run is resumed, they are called again. To a type
checker it is ``T`` itself.
"""


class ObjectPlace:
    """The place of an object in a type, for pydantic: it takes the token, and returns the object.

    Args:
        hint: What the object must be an instance of.

    Attributes:
        hint: The same.
    """

    def __init__(self, hint: Any) -> None:
        self.hint = hint
        self._name = hint_name(hint)
        self._is_open = bare(hint) in (Any, object, *_CONTAINERS)

    def __repr__(self) -> str:
        return f"Object[{self._name}]"

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(self._take)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        return {"type": f"{OBJECT_TYPE}{self._name}"}

    def _take(self, value: Any, info: core_schema.ValidationInfo) -> Any:
        objects = info.context or {}
        owner = owner_of(value)
        if owner in objects:
            thing = objects[owner]
        elif objects and self._is_open:
            thing = with_objects(value, objects)  # a list of objects, where the parameter takes any list
        else:
            raise PydanticCustomError(
                "object_in_memory",
                "it should be an object in memory ({name}), the whole output of a step that returns one",
                {"name": self._name},
            )
        if not fits(thing, self.hint):
            raise PydanticCustomError(
                "object_type",
                "it should be an object of {name}, and is a {found}",
                {"name": self._name, "found": type_name(type(thing))},
            )
        return thing


# Hints ----------------------------------------------------------------------------------------------------------------


def holds_objects(hint: Any) -> bool:
    """Whether a type contains ``Object[…]``, or is a frame."""
    if (typing.get_origin(hint) is Annotated and IN_MEMORY in hint.__metadata__) or is_frame_class(hint):
        return True
    return any(holds_objects(part) for part in typing.get_args(hint) if not isinstance(part, str))


def is_frame_class(kind: Any) -> bool:
    """Whether a type is one of the classes of frames; arrays of a certain type are arrays."""
    while hasattr(kind, "__value__"):  # a type with a name of its own, as `NDArray` is in numpy 2.5
        kind = kind.__value__
    return isinstance(kind := typing.get_origin(kind) or kind, type) and frame_name(kind) in FRAME_CLASSES


def is_frame(value: object) -> bool:
    """Whether a value is a frame. One of a subclass is none: it would come back from its file as its base."""
    return frame_name(type(value)) in FRAME_CLASSES


def frame_name(kind: type) -> str:
    """Return the name of a class with its top package, as in `FRAME_CLASSES`."""
    return f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}"


def has_only_frames(hint: Any) -> bool:
    """Whether all objects in a type are frames, which can be in files, and there is one."""
    if is_frame_class(hint):
        return True
    if typing.get_origin(hint) is Annotated and IN_MEMORY in hint.__metadata__:
        return False
    inside = [part for part in typing.get_args(hint) if not isinstance(part, str) and holds_objects(part)]
    return bool(inside) and all(map(has_only_frames, inside))


def has_objects(schema: Any) -> bool:
    """Whether a schema has the place of an object somewhere."""
    if isinstance(schema, Mapping):
        return is_object_place(schema) or any(map(has_objects, schema.values()))
    return isinstance(schema, list) and any(map(has_objects, schema))


def is_object_place(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is for an object in memory."""
    kind = schema.get("type")
    return isinstance(kind, str) and kind.startswith(OBJECT_TYPE)


def with_places(hint: Any) -> Any:
    """Return a type with an `ObjectPlace` for each ``Object[…]`` in it, and places for scalars of numpy."""
    if is_numpy_class(hint):
        return Annotated[Any, NumpyPlace(hint)]
    if not holds_objects(hint) and not _has_numpy(hint):
        return hint
    if typing.get_origin(hint) is Annotated and IN_MEMORY in hint.__metadata__:
        others = tuple(part for part in hint.__metadata__ if part is not IN_MEMORY)
        return _annotated(Any, (*others, ObjectPlace(hint.__origin__)))
    if is_frame_class(hint):
        return Annotated[Any, ObjectPlace(hint)]
    return _rebuilt(hint, with_places)


def only_places(hint: Any) -> Any:
    """Return a type that takes objects alone: an `ObjectPlace` for each class in it."""
    hint = with_places(hint)
    if typing.get_origin(hint) is Annotated:
        if any(isinstance(part, ObjectPlace) for part in hint.__metadata__):
            return hint
        return _annotated(only_places(hint.__origin__), hint.__metadata__)
    if hint in (None, type(None)):
        return type(None)
    if typing.get_origin(hint) in (*_UNIONS, list, dict) or _is_row(hint):
        return _rebuilt(hint, only_places)
    return Annotated[Any, ObjectPlace(hint)]


def places_for_rest(hint: Any) -> Any:
    """Return a type with an `ObjectPlace` also for each class without a JSON form."""
    hint = with_places(hint)
    if has_json_form(hint):
        return hint
    if typing.get_origin(hint) is Annotated or typing.get_origin(hint) in (*_UNIONS, list, dict) or _is_row(hint):
        return _rebuilt(hint, places_for_rest)
    return Annotated[Any, ObjectPlace(hint)]


def _has_numpy(hint: Any) -> bool:
    return is_numpy_class(hint) or any(map(_has_numpy, typing.get_args(hint)))


def _is_row(hint: Any) -> bool:
    return typing.get_origin(hint) is tuple and bool(typing.get_args(hint))


def has_json_form(hint: Any) -> bool:
    """Whether pydantic can make values of a type of JSON at all."""
    try:
        TypeAdapter(with_places(hint))
    except PydanticSchemaGenerationError:
        return False
    except Exception:  # noqa: BLE001  (another fault, which is reported with the whole signature)
        return True
    return True


def _annotated(hint: Any, metadata: tuple[Any, ...]) -> Any:
    for part in metadata:
        hint = Annotated[hint, part]
    return hint


def _rebuilt(hint: Any, change: Callable[[Any], Any]) -> Any:
    """Return a generic type with its parts changed."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _annotated(change(hint.__origin__), hint.__metadata__)
    if origin in _UNIONS:
        return typing.Union[tuple(map(change, parts))]  # noqa: UP007  (its parts are computed)
    if origin is dict:
        return dict[parts[0], change(parts[1])]  # type: ignore[valid-type,misc]
    if not all(isinstance(part, type) or typing.get_origin(part) is not None or part in (Any, ...) for part in parts):
        return hint
    return origin[tuple(part if part is Ellipsis else change(part) for part in parts)]


def bare(hint: Any) -> Any:
    """Return a type without annotations, names of its own, or bounds, for comparison."""
    while True:
        if typing.get_origin(hint) is Annotated:
            place = next((part for part in hint.__metadata__ if isinstance(part, ObjectPlace)), None)
            hint = hint.__origin__ if place is None else place.hint
        elif typing.get_origin(hint) in (Required, NotRequired):
            hint = typing.get_args(hint)[0]
        elif isinstance(hint, TypeVar):
            hint = hint.__bound__ or Any
        elif hasattr(hint, "__supertype__"):
            hint = hint.__supertype__
        elif hasattr(hint, "__value__"):
            hint = hint.__value__
        else:
            return type(None) if hint is None else hint


def hint_name(hint: Any) -> str:
    """Return the name of a type in a schema and in messages."""
    kind = bare(hint)
    if kind is Any:
        return "object"
    if typing.get_origin(kind) in _UNIONS:
        return " | ".join(map(hint_name, typing.get_args(kind)))
    if typing.get_origin(kind) in _CONTAINERS:
        parts = ", ".join("..." if part is Ellipsis else hint_name(part) for part in typing.get_args(kind))
        return f"{typing.get_origin(kind).__name__}[{parts}]"
    return "None" if kind is type(None) else type_name(typing.get_origin(kind) or kind)


def fits(value: object, hint: Any) -> bool:
    """Whether an object is an instance of a type, as far as that can be asked."""
    kind = bare(hint)
    if kind in (Any, object):
        return True
    origin = typing.get_origin(kind) or kind
    if origin in _UNIONS:
        return any(fits(value, part) for part in typing.get_args(kind))
    if origin is float and type(value) is int:
        return True
    try:
        return isinstance(value, origin)
    except TypeError:  # a protocol that cannot be asked, a literal, and so on
        return True


# What the check of a plan knows ---------------------------------------------------------------------------------------


def hint_at(hint: Any, path: Sequence[str | int]) -> Any:
    """Return the type of a part of a value; `Any` if it is not known."""
    for part in path:
        kind = bare(hint)
        options = typing.get_args(kind) if typing.get_origin(kind) in _UNIONS else (kind,)
        wanted = _LISTS if isinstance(part, int) else (dict, Mapping)
        found = next((bare(each) for each in options if typing.get_origin(bare(each)) in wanted), None)
        if found is None:
            return Any
        inside = typing.get_args(found)
        if typing.get_origin(found) is tuple and isinstance(part, int) and inside[-1] is not Ellipsis:
            hint = inside[part] if part < len(inside) else Any
        else:
            hint = inside[0] if isinstance(part, int) else inside[-1]
    return hint


def may_take(accepted: Any, given: Any) -> bool:
    """Whether a value of the type *given* may be an instance of the type *accepted*."""
    wanted, found = bare(accepted), bare(given)
    if Any in (wanted, found) or wanted is object:
        return True
    if typing.get_origin(wanted) in _UNIONS:
        return any(may_take(part, found) for part in typing.get_args(wanted))
    if typing.get_origin(found) in _UNIONS:
        return any(may_take(wanted, part) for part in typing.get_args(found))
    one, other = typing.get_origin(wanted) or wanted, typing.get_origin(found) or found
    if not (isinstance(one, type) and isinstance(other, type)) or getattr(one, "_is_protocol", False):
        return True
    try:
        is_related = issubclass(other, one) or issubclass(one, other) or (one is float and other is int)
    except TypeError:
        return True
    if not is_related or other is object:
        return is_related
    inside, given_inside = typing.get_args(wanted), typing.get_args(found)
    if one in (list, dict) and other is one and len(inside) == len(given_inside):
        return all(map(may_take, inside, given_inside))
    return True


# Outputs --------------------------------------------------------------------------------------------------------------


def keeper_of(hint: Any, as_json: Callable[[Any], Callable[[object], Any]]) -> Keep:
    """Return the function that turns an output into JSON with tokens, and keeps its objects.

    Args:
        hint: The return type.
        as_json: For a type without objects: returns the function that turns its values into JSON, or raises
            `ValueRefused`.
    """
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if not holds_objects(hint):
        convert = as_json(hint)
        return lambda value, owner, kept: convert(value)
    if is_frame_class(hint):
        return _object_keeper(hint, is_frame=True)
    if origin is Annotated:
        return _object_keeper(hint.__origin__) if IN_MEMORY in hint.__metadata__ else keeper_of(parts[0], as_json)
    if origin in _UNIONS:
        return _union_keeper([(part, keeper_of(part, as_json)) for part in parts], hint)
    if origin in (list, tuple) and (origin is list or parts[-1] is Ellipsis):
        return _list_keeper(keeper_of(parts[0], as_json), origin)
    if origin is dict and parts[0] is str:
        return _dict_keeper(keeper_of(parts[1], as_json))
    raise ValueRefused("Object[…] stands alone, or in list[…], tuple[…, ...], dict[str, …] and unions")


def _object_keeper(hint: Any, *, is_frame: bool = False) -> Keep:
    def keep(value: object, owner: str, kept: Kept) -> Any:
        if not fits(value, hint):
            raise ValueRefused(f"declared to return {hint_name(hint)}, returned {type_name(type(value))}")
        name = f"{owner}.{len(kept.objects)}" if kept.objects else owner
        kept.objects[name] = value
        file = kept.file_of(value) if is_frame and kept.file_of is not None else None
        kept.is_filed = kept.is_filed and file is not None
        return token(value, name, file)

    return keep


def _union_keeper(branches: list[tuple[Any, Keep]], hint: Any) -> Keep:
    ordered = [keep for part, keep in sorted(branches, key=lambda each: holds_objects(each[0]))]  # data first

    def keep(value: object, owner: str, kept: Kept) -> Any:
        for branch in ordered:
            before, was_filed = dict(kept.objects), kept.is_filed
            try:
                return branch(value, owner, kept)
            except ValueRefused:
                kept.objects, kept.is_filed = before, was_filed
        raise ValueRefused(f"declared to return {hint_name(hint)}, returned {type_name(type(value))}")

    return keep


def _list_keeper(inner: Keep, kind: type) -> Keep:
    def keep(value: object, owner: str, kept: Kept) -> Any:
        if type(value) is not kind:
            raise ValueRefused(f"declared to return a {kind.__name__}, returned {type_name(type(value))}")
        return [inner(part, owner, kept) for part in cast("list[object]", value)]

    return keep


def _dict_keeper(inner: Keep) -> Keep:
    def keep(value: object, owner: str, kept: Kept) -> Any:
        if type(value) is not dict or not all(isinstance(key, str) for key in value):
            raise ValueRefused(f"declared to return a dict by text, returned {type_name(type(value))}")
        return {key: inner(part, owner, kept) for key, part in value.items()}

    return keep


def places_in(types_: Collection[str] | None) -> Iterator[str]:
    """Yield the names of the classes among the types of a place in a schema."""
    return (name.removeprefix(OBJECT_TYPE) for name in types_ or () if name.startswith(OBJECT_TYPE))
