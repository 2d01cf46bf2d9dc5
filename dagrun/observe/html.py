"""HTML and SVG, written by one function that escapes by type: a text is always escaped, `Markup` never.

Only `tag`, `join` and `raw` make `Markup`, so that what comes from models can be in a page as text alone.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias


class Markup(str):
    """A piece of HTML that is complete and safe."""

    __slots__ = ()


Child: TypeAlias = "str | Markup | None"
Attribute: TypeAlias = "str | int | float | bool | None"

NOTHING: Final = Markup("")

# Control characters, lone surrogates, and what turns the direction of text, so that it reads as something else.
_UNSAFE: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
_SPECIAL: Final = re.compile("[&<>\"']")
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_VOID: Final = frozenset(("meta", "link", "input", "br", "hr"))


def plain(text: str) -> str:
    """Return *text* with invalid or misleading characters as hexadecimal codes."""
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def escape(text: str) -> Markup:
    """Return *text* as HTML."""
    return Markup(_SPECIAL.sub(lambda found: _ENTITIES[found[0]], plain(text)))


def raw(text: str) -> Markup:
    """Return trusted text unescaped: a style sheet, a script, or base64."""
    return Markup(text)


def join(*parts: Child) -> Markup:
    """Return several pieces after each other; texts are escaped, `None` is nothing."""
    return Markup("".join(_piece(part) for part in parts))


def _piece(part: Child) -> str:
    if part is None:
        return ""
    return part if isinstance(part, Markup) else escape(part)


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element. Texts and the values of attributes are escaped.

    Args:
        name: The name of the element.
        children: Its contents.
        attributes: Its attributes: ``class_`` for ``class``, ``data_n`` for ``data-n``. `None` and False are left out,
            True has no value, and numbers are rounded to two digits.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value is not None)
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{''.join(_piece(child) for child in children)}</{name}>")


def _attribute(key: str, value: Attribute) -> str:
    name = key.rstrip("_").replace("_", "-") if key != "viewBox" else key
    if value is False:
        return ""
    if value is True:
        return f" {name}"
    text = number(value) if isinstance(value, float) else escape(str(value))
    return f' {name}="{text}"'


def number(value: float) -> str:
    """Return a number with at most two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
