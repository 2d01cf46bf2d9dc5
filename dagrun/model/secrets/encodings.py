"""The forms in which a secret shows up in texts: as it is, or written the way of URLs, JSON, Python, HTML, base64, hex.

What is split (by a line break, an invisible character), reversed, compressed or encrypted is not found.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import quote, quote_plus

MIN_CUT: Final = 4  # characters of a secret that are hidden where a text was cut in the middle of it

# What `shorten` leaves where it has cut.
_CUT: Final = re.compile(r"… \(\d+ characters\)")
_UNESCAPED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PART: Final = re.compile(r"\\+|[^\\]")
_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v"}
_URLSAFE: Final = str.maketrans("+/", "-_")


class SecretFinder:
    """Finds secrets in all their forms, in one pass whose time is linear in the text.

    Args:
        values: By name; each of some characters at least.
    """

    __slots__ = ("_names", "_pattern", "_prefixes")

    def __init__(self, values: Mapping[str, str]) -> None:
        # Of two that begin alike the longer one counts: what is left of it would be part of a secret.
        ordered = sorted(values.items(), key=lambda item: -len(item[1]))
        self._names = [(name, re.compile("|".join(_alternatives(value)))) for name, value in ordered]
        # Groups would tell which one it is, and make every search eight times as dear.
        self._pattern = re.compile(_by_beginning(way for _, value in ordered for way in _alternatives(value)))
        self._prefixes = [(name, form) for name, value in ordered for form in _forms(value)]

    def find(self, text: str) -> str:
        """The name of one that stands in *text*; empty if none does."""
        match = self._pattern.search(text)
        return "" if match is None else self._name(match)

    def replace(self, text: str) -> str:
        """*text* with ``[secret:name]`` in place of each that stands in it, also where a cut has left only a part."""
        shown = self._pattern.sub(lambda match: f"[secret:{self._name(match)}]", text)
        if "… (" not in shown:
            return shown
        parts: list[str] = []
        at = 0
        for cut in _CUT.finditer(shown):
            parts += (self._without_rest(shown[at : cut.start()]), cut.group())
            at = cut.end()
        return "".join((*parts, shown[at:]))

    def _name(self, match: re.Match[str]) -> str:
        return next(name for name, pattern in self._names if pattern.fullmatch(match.group()))

    def _without_rest(self, text: str) -> str:
        """Hide the beginning of a secret at the end of *text*."""
        for name, form in self._prefixes:
            for size in range(min(len(form), len(text)), MIN_CUT - 1, -1):
                if text.endswith(form[:size]):
                    return f"{text[:-size]}[secret:{name}]"
        return text


def _by_beginning(ways: Iterable[str]) -> str:
    """A pattern of all *ways*; those that begin with the same character stand together, so that few are tried."""
    groups: dict[str, list[str]] = {}
    for way in ways:
        first = way[: 2 if way[0] == "\\" else 1]
        groups.setdefault(first, []).append(way[len(first) :])
    return "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in groups.items())


def _alternatives(value: str) -> list[str]:
    """The patterns of all forms, each of which begins with a plain character: so most of a text is skipped quickly."""
    first, *others = _PART.findall(value)
    rest = "".join(map(_written, others))
    mixed = [begin + rest for begin in _beginnings(first)]  # of URLs, JSON and so on; each writer escapes what it likes
    plain = [re.escape(form) for form in _forms(value)]
    return list(dict.fromkeys(plain + mixed))


def _forms(value: str) -> list[str]:
    """The forms that are plain texts, in full."""
    data = value.encode()
    found = [value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], data.hex(), data.hex().upper()]
    for shift in range(3):
        # Only the characters that stand for nothing but the value: what is around it goes into those at the edges.
        encoded = base64.b64encode(bytes(shift) + data).decode()
        inside = encoded[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]
        found += (inside, inside.translate(_URLSAFE))
    return list(dict.fromkeys(found))


def _written(part: str) -> str:
    """A pattern of all that may stand for one part of a value: a character, or a run of backslashes."""
    if part in _UNESCAPED:
        return re.escape(part)
    # Atomic, as what can be read in two ways could else be read in a number of ways that doubles with each part.
    return f"(?>{_run(0, part)}{_body(part)})"


def _beginnings(part: str) -> list[str]:
    """The same for the first part, as patterns each of which begins with a plain character."""
    if part in _UNESCAPED:
        return [re.escape(part)]
    escaped = [slash + _run(1, part) + _body(part) for slash in (r"\\", _percent("\\"))]
    return escaped if part[0] == "\\" else [*escaped, _percent(part), *_entities(part), re.escape(part)]


def _run(already: int, part: str) -> str:
    """Backslashes: of the part itself, and of those who write a text into a text, and escape its escapes."""
    own = len(part) if part[0] == "\\" else 0
    return rf"(?:\\|{_percent(chr(92))}){{{max(0, own - already)},{16 * max(1, own)}}}+"


@lru_cache(maxsize=1024)
def _body(part: str) -> str:
    """What follows the backslashes."""
    if part[0] == "\\":
        return ""
    return f"(?:{'|'.join((_percent(part), *_entities(part), *_escapes(part)))})"


def _percent(part: str) -> str:
    return "".join(_hex("%(?:25){0,3}", byte, 2) for byte in part.encode())


def _entities(char: str) -> Iterator[str]:
    """How HTML and forms write it."""
    if char == "&":
        yield "&(?:amp;){1,3}+"
    elif (written := html.escape(char)) != char:
        yield f"&(?:amp;){{0,2}}{written[1:]}"
    if char == " ":
        yield from (r"\+", _percent("+"))


def _escapes(char: str) -> Iterator[str]:
    """What may follow a backslash."""
    yield re.escape(char)
    if char in _SHORT:
        yield _SHORT[char]
    units = char.encode("utf-16-be")  # of what JSON cannot say with four digits, two halves
    yield r"\\{1,16}+".join(_hex("u", int.from_bytes(units[at : at + 2], "big"), 4) for at in range(0, len(units), 2))
    yield r"\\{1,16}+".join(_hex("x", byte, 2) for byte in char.encode())  # bytes, in Python
    if ord(char) < 0x100:
        yield _hex("x", ord(char), 2)
    else:
        yield _hex("U", ord(char), 8)


def _hex(mark: str, number: int, digits: int) -> str:
    """A pattern of *mark* and a number in hex, in either case."""
    return mark + "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in f"{number:0{digits}x}")
