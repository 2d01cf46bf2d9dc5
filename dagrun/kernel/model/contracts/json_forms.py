"""JSON forms for types that pydantic cannot convert, or only with a loss: bytes, and NumPy scalars.

1. Bytes are base64, in what tools return and in what they take, so any bytes come back as they were. The schema says
   ``format: byte``. A pydantic model has a configuration of its own, and so its own form of bytes.
2. A scalar of numpy, ``numpy.float64`` say, is the plain number, text or boolean, and comes back as that class. It is
   known by the name of its base class, so numpy is not imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ConfigDict, PydanticUserError, TypeAdapter
from pydantic_core import CoreSchema, PydanticCustomError, core_schema
from typing_extensions import TypeAliasType

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
    # A model keeps its own configuration; a dataclass or a typed dict has none, and takes that of the type around it.
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
