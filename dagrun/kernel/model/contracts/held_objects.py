"""A stored value with objects in memory: JSON with a token for each object, and the objects by token.

1. A token is ``{"$object": "pandas.DataFrame", "of": "load#1"}``: the name of the type, and the call that returned the
   object. So lists, elements of a for_each, references and answers treat it as the JSON that it is.
2. The objects travel beside the JSON, inside the stored value. Nothing else refers to them: an object is gone from
   memory as soon as the last stored value with it is dropped. There is no table that could keep one by mistake.
3. A token counts only beside its object. JSON that looks like a token, from a plan or from a tool, is data.
4. No record holds a stored value of this kind. Its place names the type of the object. Where
   all its objects are frames that are kept as files, the record has the JSON: those tokens name the files, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

OBJECT_KEY: Final = "$object"
_OWNER: Final = "of"
FILE: Final = "file"
_FIELDS: Final = frozenset((OBJECT_KEY, _OWNER))
_WITH_FILE: Final = _FIELDS | {FILE}

NOT_RECORDED: Final = "an object in memory, which no record holds: "
"""The beginning of the reason that a record gives in place of an object; the names of the types follow."""


@dataclass(frozen=True, slots=True, eq=False)
class HeldObjects:
    """JSON with tokens, and the objects in memory that the tokens refer to.

    Attributes:
        text: The JSON, as in a stored value.
        objects: The objects, by the ``of`` of their tokens.
        is_filed: Whether each of them is in a file, which its token names.
    """

    text: bytes
    objects: Mapping[str, object] = field(repr=False)
    is_filed: bool = False

    @property
    def value(self) -> Any:
        """The value with its objects instead of tokens; only lists and dicts are copied."""
        return with_objects(from_json(self.text), self.objects)

    @property
    def reason(self) -> str:
        """The text that the record has instead of the value."""
        names = dict.fromkeys(type_name(type(thing)) for thing in self.objects.values())
        return NOT_RECORDED + ", ".join(names)


def type_name(kind: Any) -> str:
    """Return the name of a class as people know it: with its module, unless it is a built-in one."""
    name = getattr(kind, "__qualname__", None) or str(kind)
    module = getattr(kind, "__module__", "builtins")
    return name if module == "builtins" else f"{module}.{name}"


def token(thing: object, owner: str, file: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the token of an object.

    Args:
        thing: The object.
        owner: The call that returned it, and its number among the objects of that call; unique in the run.
        file: The artifact that it is kept in, as JSON, if it is a frame in a file.
    """
    short = {OBJECT_KEY: type_name(type(thing)), _OWNER: owner}
    return short if file is None else {**short, FILE: file}


def owner_of(value: object) -> str:
    """Return the ``of`` of a token; an empty text if *value* is none."""
    if type(value) is dict and value.keys() in (_FIELDS, _WITH_FILE) and isinstance(owner := value[_OWNER], str):
        return owner
    return ""


def with_objects(value: Any, objects: Mapping[str, object]) -> Any:
    """Return decoded JSON, with each token replaced by its object."""
    if type(value) is dict:
        owner = owner_of(value)
        if owner in objects:
            return objects[owner]
        return {key: with_objects(part, objects) for key, part in value.items()}
    return [with_objects(part, objects) for part in value] if type(value) is list else value


def tokens_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every token in decoded JSON."""
    if type(value) is dict:
        if owner_of(value):
            yield value
        else:
            for part in value.values():
                yield from tokens_in(part)
    elif type(value) is list:
        for part in value:
            yield from tokens_in(part)


def held(value: Any, text: bytes, objects: Mapping[str, object]) -> HeldObjects | bytes:
    """Return JSON together with the objects that its tokens refer to; plain JSON if it has no tokens.

    Args:
        value: The JSON, decoded.
        text: The JSON as text.
        objects: Objects, by the ``of`` of their tokens.
    """
    tokens = [found for found in tokens_in(value) if owner_of(found) in objects]
    if not tokens:
        return text
    inside = {owner: objects[owner] for owner in map(owner_of, tokens)}
    return HeldObjects(text, inside, all(FILE in found for found in tokens))
