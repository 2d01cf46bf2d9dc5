"""Write values as parameters of HTTP requests, in the styles of OpenAPI.

The styles are those of the table *Style Examples* of the specification 3.1.1, which follow RFC 6570. Every name and
value is percent-encoded; the delimiters of a style are not. Where the specification leaves a form undefined, a value
inside a value is written as JSON, and under ``deepObject`` with further brackets.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import quote, unquote

from dagrun.errors import ToolError, shorten

Place = Literal["path", "query", "header"]

STYLES: Final[Mapping[Place, tuple[str, ...]]] = {  # the first is the default
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
}
MAX_TARGET: Final = 32 << 10  # characters of path and query
_MAX_PAIRS: Final = 10_000

# Reserved characters that cannot end a parameter, or begin another one.
_RESERVED: Final = ":/?@!$'()*,;"
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
_TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
_LITERAL: Final = "/%:@!$&'()*+,;=~"
_DELIMITERS: Final[Mapping[str, str]] = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation.

    Attributes:
        argument: Its name in plans.
        name: Its name on the wire.
        place: Where it goes.
        style: How lists and objects are written.
        explode: Whether each element is written by itself.
        allow_reserved: Whether reserved characters of its value stay, as far as they do no harm.
        is_json: Whether the value is written as JSON.
    """

    argument: str
    name: str
    place: Place
    style: str
    explode: bool
    allow_reserved: bool = False
    is_json: bool = False


def filled_path(template: str, parameters: Mapping[str, Parameter], arguments: Mapping[str, Any]) -> str:
    """Return a path with ``{name}`` replaced by values.

    Args:
        template: The path of the operation.
        parameters: Its parameters of the path by name.
        arguments: The values by argument.

    Raises:
        ToolError: A value is empty, or would lead to another path.
    """
    pieces: list[str] = []
    end = 0
    for match in _TEMPLATE.finditer(template):
        pieces.append(quote(template[end : match.start()], safe=_LITERAL))
        parameter = parameters[match[1]]
        value = arguments.get(parameter.argument)
        if value in (None, [], {}) or (value == "" and parameter.style == "simple"):
            raise ToolError(f"{parameter.argument} is empty, and the path would be that of something else")
        pieces.append(_in_path(parameter, value))
        end = match.end()
    pieces.append(quote(template[end:], safe=_LITERAL))
    path = "".join(pieces)
    # Servers decode before they follow dots, so encoding them is no protection.
    if any(part in (".", "..") for part in re.split(r"[/\\]", unquote(path))):
        raise ToolError("a value has '.' or '..' as a part of the path, which would lead to another one")
    return path


def _in_path(parameter: Parameter, value: Any) -> str:
    if parameter.is_json:
        return _encoded(_json(value))
    is_named = isinstance(value, dict) and parameter.explode
    items = _named(value) if is_named else [_encoded(each) for each in _elements(value)]
    match parameter.style:
        case "label":
            return "." + ("." if parameter.explode else ",").join(items)
        case "matrix" if is_named:
            return "".join(f";{item}" for item in items)
        case "matrix":
            name = _encoded(parameter.name)
            if value == "":
                return f";{name}"
            return "".join(f";{name}={item}" for item in (items if parameter.explode else [",".join(items)]))
        case _:
            return ",".join(items)


def query_parts(parameter: Parameter, value: Any) -> list[str]:
    """Return the parts ``name=value`` of a query for one parameter, encoded; none for null, and for no elements."""
    name = _encoded(parameter.name)
    if value is None:
        return []
    safe = _RESERVED if parameter.allow_reserved else ""
    if parameter.is_json:
        return [f"{name}={quote(_json(value), safe=safe)}"]
    if parameter.style == "deepObject" and isinstance(value, dict | list):
        return [f"{key}={quote(text, safe=safe)}" for key, text in _deep(name, value)]
    if isinstance(value, dict) and parameter.explode:
        return _named(value, safe)
    items = [quote(each, safe=safe) for each in _elements(value)]
    if not items:
        return []
    if isinstance(value, list) and parameter.explode:
        return [f"{name}={item}" for item in items]
    return [f"{name}={_DELIMITERS.get(parameter.style, ',').join(items)}"]


def header_text(parameter: Parameter, value: Any) -> str | None:
    """Return the value of a header; `None` if there is none.

    Raises:
        ToolError: It holds a character that no header may have.
    """
    if value is None:
        return None
    if parameter.is_json:
        text = _json(value)
    elif isinstance(value, dict) and parameter.explode:
        text = ",".join(f"{name}={part_text(part)}" for name, part in value.items() if part is not None)
    else:
        text = ",".join(_elements(value))
    if not _HEADER_VALUE.fullmatch(text):
        raise ToolError(f"{parameter.argument} has a character that no header may have: use printable ASCII")
    return text


def form_text(fields: Mapping[str, Any], encodings: Mapping[str, Parameter]) -> str:
    """Return an object as ``application/x-www-form-urlencoded``.

    Args:
        fields: The object.
        encodings: How fields are written that the document says something about. Of the others, objects are written
            as JSON, and each element of a list as a field of its own.
    """
    parts: list[str] = []
    for name, value in fields.items():
        plain = Parameter(name, name, "query", "form", explode=True, is_json=isinstance(value, dict))
        parts += query_parts(encodings.get(name, plain), value)
    return "&".join(parts)


def target_of(path: str, parts: list[str]) -> str:
    """Return path and query of a request.

    Raises:
        ToolError: They are too long.
    """
    target = f"{path}?{'&'.join(parts)}" if parts else path
    if len(target) > MAX_TARGET:
        raise ToolError(f"the address would have {len(target)} characters, the ceiling is {MAX_TARGET}")
    return target


# Texts of values -----------------------------------------------------------------------------------------------------


def _elements(value: Any) -> list[str]:
    """Return the texts of the elements of a value, not encoded; of an object, names and values by turns."""
    match value:
        case list():
            return [part_text(part) for part in value if part is not None]
        case dict():
            return [text for name, part in value.items() if part is not None for text in (name, part_text(part))]
        case _:
            return [part_text(value)]


def _named(value: dict[str, Any], safe: str = "") -> list[str]:
    return [f"{_encoded(name)}={quote(part_text(part), safe=safe)}" for name, part in value.items() if part is not None]


def _deep(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield names with brackets, encoded, and the texts of values, not encoded."""
    waiting = [(name, value)]
    made = 0
    while waiting:
        key, part = waiting.pop()
        if isinstance(part, dict | list):
            inner = part.items() if isinstance(part, dict) else enumerate(part)
            waiting += reversed([(f"{key}%5B{_encoded(str(one))}%5D", each) for one, each in inner])
        elif part is not None:
            made += 1
            if made > _MAX_PAIRS:
                raise ToolError(f"{shorten(unquote(name), 60)} has over {_MAX_PAIRS} values")
            yield key, part_text(part)


def part_text(value: Any) -> str:
    """Return a scalar value as text; any other value as JSON."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case float() if value.is_integer() and abs(value) < 1 << 53:
            return str(int(value))
        case _:
            return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _encoded(text: str) -> str:
    return quote(text, safe="")
