"""From the text that a person types to the value that a question asks for."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from dagrun.errors import visible
from dagrun.model.contracts.schema_types import type_of, words
from dagrun.observe.question_text import types_wanted

_NUMBERS: Final = (frozenset(("integer",)), frozenset(("number",)))
_SIZES: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "maximum": (operator.le, "at most"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
_LENGTHS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minLength": (operator.ge, "at least"),
    "maxLength": (operator.le, "at most"),
}
_YES_OR_NO: Final = {"y": True, "yes": True, "n": False, "no": False}


class BadAnswer(ValueError):
    """A typed text is not a value that the question accepts; the message has the reason."""


def read_value(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of a typed text: JSON; or, where a text is asked for, the text itself.

    Only the value itself is checked against types, ``enum``, ``const`` and limits; the tool checks what is inside of
    lists and objects.

    Args:
        text: One line.
        schema: The JSON Schema of the value.

    Raises:
        BadAnswer: The text is no such value.
    """
    types = types_wanted(schema)
    if types == frozenset(("boolean",)) and text.strip().casefold() in _YES_OR_NO:
        return _YES_OR_NO[text.strip().casefold()]
    is_text = "string" in (types or ()) or any(isinstance(choice, str) for choice in _choices(schema) or ())
    value = _read(text, is_text=is_text, is_only_text=types == frozenset(("string",)))
    _check_choice(value, schema)
    actual = type_of(value) or frozenset()
    if types is not None and not actual <= types and not (actual == {"integer"} and "number" in types):
        raise BadAnswer(f"{words(types)} is asked for, and this is {words(actual)}")
    _check_limits(value, schema)
    return value


def _read(text: str, *, is_text: bool, is_only_text: bool) -> Any:
    is_quoted = len(text) > 1 and text.startswith('"') and text.endswith('"')
    if is_only_text and not is_quoted:
        return _typed(text)
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        if is_text:
            return _typed(text)
        raise BadAnswer(f"this is not JSON ({visible(str(error))}); a text goes in quotes") from error


def _typed(text: str) -> str:
    shown = visible(text)
    if shown != text:  # a terminal sends arrow keys, for example, as text
        raise BadAnswer(f"it holds what cannot be seen: {shown}; if it should, type it as JSON, in quotes")
    return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return made


def _choices(schema: Mapping[str, Any]) -> list[Any] | None:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return choices if isinstance(choices, list) else None


def _check_choice(value: Any, schema: Mapping[str, Any]) -> None:
    choices = _choices(schema)
    if choices is not None and not any(_is_same(value, choice) for choice in choices):
        shown = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[:50])
        raise BadAnswer(f"it must be one of {visible(shown)}")


def _is_same(value: Any, choice: Any) -> bool:
    return type_of(value) == type_of(choice) and bool(value == choice)


def _check_limits(value: Any, schema: Mapping[str, Any]) -> None:
    measured, what = (len(value), " characters") if isinstance(value, str) else (value, "")
    if type_of(measured) not in _NUMBERS:
        return
    limits = {
        name: check for name, check in (_LENGTHS if what else _SIZES).items() if type_of(schema.get(name)) in _NUMBERS
    }
    if all(holds(measured, schema[name]) for name, (holds, _) in limits.items()):
        return
    wanted = [f"{said} {schema[name]}" for name, (_, said) in limits.items()]
    raise BadAnswer(f"it must be {' and '.join(wanted)}{what}")
