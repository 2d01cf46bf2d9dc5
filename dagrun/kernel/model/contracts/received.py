"""The arguments of a call in the two forms that rules test: its JSON, and the values its tool receives.

1. A rule that holds for one of the forms holds. A form in which it cannot be evaluated is one for which it holds.
2. What a tool receives is read from the very values that it gets, after aliases, validators and defaults: the fields of
   models and dataclasses, under the names that the call uses, and else the JSON of values. An object in memory stays as
   the call writes it.
3. A field is found, in both forms, by its name and by each of its aliases.
4. A tool that is made of a JSON Schema gets what the call says; who answers it may add the defaults of the schema.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from pydantic import BaseModel, RootModel
from pydantic_core import from_json, to_jsonable_python

from dagrun.errors import ValueRefused
from dagrun.kernel.model.value import Path, encode_plain, value_at

Aliases: TypeAlias = tuple[tuple[str, str], ...]
"""Each alias of a field, with the name of the field."""


@dataclasses.dataclass(slots=True)
class ReceivedArguments:
    """The arguments of a call.

    Attributes:
        data: As the call says them, JSON text.
        received: As the tool receives them, plain JSON.
        aliases: The other names of fields.
        is_sent: Whether the tool gets *received*; else it gets *data*, and who answers it may add the rest.
        twice: The place of each field of a model that is given twice, by two of its names, with its first name.
    """

    data: bytes
    received: Any = None
    aliases: Aliases = ()
    is_sent: bool = True
    twice: dict[Path, str] = dataclasses.field(default_factory=dict)

    @property
    def forms(self) -> list[Any]:
        """The forms that differ, plain JSON."""
        texts = [json.dumps(form, sort_keys=True) for form in (from_json(self.data), self.received)]  # 1 is not true
        return [json.loads(text) for text in dict.fromkeys(texts)]

    def at(self, form: Any, path: Path) -> Any:
        """Return the part of a form at *path*, which may use any name of a field.

        Raises:
            LookupError: There is none.
        """
        for part in path:
            same = {part, *(name for alias, name in self.aliases if alias == part)}
            known = [part, *same, *(alias for alias, name in self.aliases if name in same)]
            form = value_at(form, (next((key for key in known if isinstance(form, dict) and key in form), part),))
        return form

    @property
    def shown(self) -> bytes:
        """The JSON text that a person is shown."""
        try:
            return encode_plain(self.received).encode() if self.is_sent else self.data
        except (ValueRefused, UnicodeEncodeError):
            return self.data

    def read(self, value: Any, given: Any, place: Path, above: frozenset[int]) -> Any:
        """Return *value* as plain JSON; *given*, the JSON of the call, replaces parts that have no JSON form."""
        if id(value) in above:
            return given
        inside, value = above | {id(value)}, value.root if isinstance(value, RootModel) else value
        if (fields := _fields(value)) is not None:
            known = given if isinstance(given, dict) else {}
            keys = self._keys(known, fields, place)
            named = [(keys.get(name, str(name)), part) for name, part in fields.items()]
            return {key: self.read(part, known.get(key), (*place, key), inside) for key, part in named}
        if isinstance(value, list | tuple | set | frozenset):
            parts = given if isinstance(given, list) and len(given) == len(value) else [None] * len(value)
            return [self.read(part, parts[n], (*place, n), inside) for n, part in enumerate(value)]
        try:
            plain = given if isinstance(value, Iterator) else to_jsonable_python(value, bytes_mode="base64")
        except Exception:  # noqa: BLE001  (an object of the host may raise anything)
            return given
        plain = float(value) if isinstance(value, Decimal) else plain
        return given if type(plain) is float and plain == given else plain

    def _keys(self, given: Mapping[str, Any], fields: Mapping[str, Any], place: Path) -> dict[str, str]:
        """Return the key of the call for each field that it gives."""
        keys: dict[str, str] = {}
        for key in given:
            names = (name for alias, name in self.aliases if alias == key and name in fields and key not in fields)
            name = next(names, key)
            if keys.setdefault(name, key) != key:
                self.twice[*place, key] = keys[name]
        return keys


def aliases_in(schema: Any) -> Iterator[tuple[str, str]]:
    """Yield each alias of each field in a core schema of pydantic, with the name of the field."""
    waiting = [("", schema)]
    while waiting:
        name, part = waiting.pop()
        if isinstance(part, list | tuple):
            waiting += [("", inner) for inner in part]
        elif isinstance(part, Mapping):
            waiting += part.items()
            alias = part.get("validation_alias") or ()
            ways = [[alias]] if isinstance(alias, str) else alias
            # One of several parts is a path, which is no other name of the field.
            yield from ((way[0], part.get("name", name)) for way in ways if isinstance(way, list) and len(way) == 1)


def _fields(value: Any) -> Mapping[Any, Any] | None:
    if isinstance(value, BaseModel):
        return {**vars(value), **(value.model_extra or {})}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return value if isinstance(value, Mapping) else None
