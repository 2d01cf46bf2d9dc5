"""Find secrets in texts: plain, or encoded as in URLs, JSON, Python, HTML, base64 and hex.

A secret is not found if it is split (by a line break or an invisible character), reversed, compressed or encrypted.

How a pattern is made: `_exact_forms` lists the encodings that give one fixed text (base64, hex and so on). For the
others, each encoder may escape whichever characters it likes, and may do so several times; so each character of the
secret becomes a pattern of everything that may stand for it (`_char_pattern`).
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

MIN_CUT: Final = 4  # the least characters of a secret that are hidden at the end of a text that was cut inside it

# The mark that `shorten` leaves where it has cut a text.
_CUT: Final = re.compile(r"… \(\d+ characters\)")
_UNESCAPED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PART: Final = re.compile(r"\\+|[^\\]")
_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v"}
_URLSAFE: Final = str.maketrans("+/", "-_")


class SecretFinder:
    """Finds secrets in all their encodings, in one pass whose time is linear in the length of the text.

    Args:
        values: The secrets by name; each has `MIN_CUT` characters or more.
    """

    __slots__ = ("_names", "_pattern", "_prefixes")

    def __init__(self, values: Mapping[str, str]) -> None:
        # If one secret is the beginning of another, the longer one counts: else its rest would stay in the text.
        ordered = sorted(values.items(), key=lambda item: -len(item[1]))
        self._names = [(name, re.compile("|".join(_patterns_of(value)))) for name, value in ordered]
        # Groups would tell which secret was found, but make every search eight times as slow.
        self._pattern = re.compile(_join_by_first(part for _, value in ordered for part in _patterns_of(value)))
        self._prefixes = [(name, form) for name, value in ordered for form in _exact_forms(value)]

    def find(self, text: str) -> str:
        """Return the name of a secret in *text*; empty if there is none."""
        match = self._pattern.search(text)
        return "" if match is None else self._name(match)

    def replace(self, text: str) -> str:
        """Return *text* with ``[secret:name]`` for each secret, also for the rest of one that was cut off."""
        shown = self._pattern.sub(lambda match: f"[secret:{self._name(match)}]", text)
        if "… (" not in shown:
            return shown
        parts: list[str] = []
        at = 0
        for cut in _CUT.finditer(shown):
            parts += (self._replace_cut_end(shown[at : cut.start()]), cut.group())
            at = cut.end()
        return "".join((*parts, shown[at:]))

    def _name(self, match: re.Match[str]) -> str:
        return next(name for name, pattern in self._names if pattern.fullmatch(match.group()))

    def _replace_cut_end(self, text: str) -> str:
        """Replace the beginning of a secret at the end of *text*."""
        for name, form in self._prefixes:
            for size in range(min(len(form), len(text)), MIN_CUT - 1, -1):
                if text.endswith(form[:size]):
                    return f"{text[:-size]}[secret:{name}]"
        return text


def _join_by_first(patterns: Iterable[str]) -> str:
    """Join *patterns* into one, grouped by their first character, so that few of them are tried at each place."""
    groups: dict[str, list[str]] = {}
    for pattern in patterns:
        first = pattern[: 2 if pattern[0] == "\\" else 1]
        groups.setdefault(first, []).append(pattern[len(first) :])
    return "|".join(f"{first}(?:{'|'.join(rest)})" for first, rest in groups.items())


def _patterns_of(value: str) -> list[str]:
    """Return patterns of all encodings; each begins with a plain character, so most of a text is skipped quickly."""
    first, *others = _PART.findall(value)
    rest = "".join(map(_char_pattern, others))
    escaped = [start + rest for start in _first_char_patterns(first)]  # URLs, JSON and so on
    exact = [re.escape(form) for form in _exact_forms(value)]
    return list(dict.fromkeys(exact + escaped))


def _exact_forms(value: str) -> list[str]:
    """Return the encodings of *value* that are fixed texts."""
    data = value.encode()
    forms = [value, quote(value, safe=""), quote_plus(value), json.dumps(value)[1:-1], data.hex(), data.hex().upper()]
    for shift in range(3):
        # Without the characters at the edges: they depend on the bytes before and after the value, too.
        encoded = base64.b64encode(bytes(shift) + data).decode()
        inside = encoded[-(-8 * shift // 6) : 8 * (shift + len(data)) // 6]
        forms += (inside, inside.translate(_URLSAFE))
    return list(dict.fromkeys(forms))


def _char_pattern(part: str) -> str:
    """Return a pattern of every encoding of a part of a secret: one character, or a run of backslashes."""
    if part in _UNESCAPED:
        return re.escape(part)
    # Atomic: if a part can match in two ways, the number of ways to match the whole would double with each part.
    return f"(?>{_backslashes(0, part)}{_after_backslashes(part)})"


def _first_char_patterns(part: str) -> list[str]:
    """Return patterns of every encoding of the first part; each begins with a plain character."""
    if part in _UNESCAPED:
        return [re.escape(part)]
    escaped = [slash + _backslashes(1, part) + _after_backslashes(part) for slash in (r"\\", _percent("\\"))]
    return escaped if part[0] == "\\" else [*escaped, _percent(part), *_entities(part), re.escape(part)]


def _backslashes(already: int, part: str) -> str:
    """Return a pattern of backslashes: the part's own, and those added by repeated escaping."""
    own = len(part) if part[0] == "\\" else 0
    return rf"(?:\\|{_percent(chr(92))}){{{max(0, own - already)},{16 * max(1, own)}}}+"


@lru_cache(maxsize=1024)
def _after_backslashes(part: str) -> str:
    """Return a pattern of everything that may follow the backslashes."""
    if part[0] == "\\":
        return ""
    return f"(?:{'|'.join((_percent(part), *_entities(part), *_escapes(part)))})"


def _percent(part: str) -> str:
    return "".join(_hex("%(?:25){0,3}", byte, 2) for byte in part.encode())


def _entities(char: str) -> Iterator[str]:
    """Yield patterns of the character as HTML and web forms write it."""
    if char == "&":
        yield "&(?:amp;){1,3}+"
    elif (written := html.escape(char)) != char:
        yield f"&(?:amp;){{0,2}}{written[1:]}"
    if char == " ":
        yield from (r"\+", _percent("+"))


def _escapes(char: str) -> Iterator[str]:
    """Yield patterns of the characters that may follow a backslash."""
    yield re.escape(char)
    if char in _SHORT:
        yield _SHORT[char]
    units = char.encode("utf-16-be")  # JSON writes a character beyond four hex digits as two surrogates
    yield r"\\{1,16}+".join(_hex("u", int.from_bytes(units[at : at + 2], "big"), 4) for at in range(0, len(units), 2))
    yield r"\\{1,16}+".join(_hex("x", byte, 2) for byte in char.encode())  # bytes in Python
    if ord(char) < 0x100:
        yield _hex("x", ord(char), 2)
    else:
        yield _hex("U", ord(char), 8)


def _hex(mark: str, number: int, digits: int) -> str:
    """Return a pattern of *mark* and a hexadecimal number in either case."""
    return mark + "".join(f"[{d}{d.upper()}]" if d.isalpha() else d for d in f"{number:0{digits}x}")
