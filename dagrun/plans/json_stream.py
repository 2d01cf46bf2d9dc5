"""A linear scanner of JSON that is still being written: what has closed is handed out at once, and nothing else is.

It knows texts, escapes and brackets, and no more; whether what has closed is JSON is for the parser to say. Every
character is looked at once: parsing the whole anew at each delta takes seconds for a long plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

from dagrun.plans.json_reader import depth_refusal

_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_IN_TEXT: Final = re.compile(r'["\\]')
_SHALLOW: Final = re.compile(r'["{}\[\],:]')  # where fields and elements end
_DEEP: Final = re.compile(r'["{}\[\]]')
_CLOSER: Final = {"{": "}", "[": "]"}

# Depths, counted in brackets: in the object itself, in its list, in an element of the list.
_IN_OBJECT: Final = 1
_IN_LIST: Final = 2
_IN_ELEMENT: Final = 3


@dataclass(frozen=True, slots=True)
class Element:
    """An object in the list has closed.

    Attributes:
        index: Its place in the list.
        text: All of it.
    """

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the object has closed: its value is whole."""

    name: str
    text: str


ClosedPart: TypeAlias = Element | Field


class JsonScanner:
    """Finds an object in a stream of text, and in it a list.

    What stands before the object is passed over: prose, a fence, a byte order mark, other objects. Only an object
    that has one of the *wanted* keys is the one that is looked for.

    Args:
        max_depth: The deepest nesting.
        wanted: Keys that tell the object from others.
        key: The key of the list.

    Attributes:
        keys: Of the object, as far as they are known.
        before: Those that were known when its list began.
        start: Where the object begins, in characters; of one that is not wanted, if there is no other; -1 for none.
        end: Where it ends; -1 while it is open.
        is_repeated: Whether there was a second such object.
    """

    def __init__(self, max_depth: int, wanted: Collection[str] = ("steps", "refusal"), key: str = "steps") -> None:
        self.keys: set[str] = set()
        self.before: frozenset[str] = frozenset()
        self.start = self.end = -1
        self.is_repeated = False
        self._max_depth = max_depth
        self._wanted = frozenset(wanted)
        self._key = key
        self._seen = 0  # characters, up to the present delta
        self._advance: _Advance = self._pass_prose
        self._found: list[ClosedPart] = []
        self._is_done = False  # the object has closed, and what follows is passed over
        self._brace = 0  # where a brace stands that may be its first
        self._open: list[str] = []  # the closing brackets that are owed
        self._name = ""
        self._is_key = False  # the next text is a key
        self._is_list = False  # inside the list
        self._index = 0
        # What is being cut out: the pieces from deltas before, and where it begins in this one.
        self._pieces: list[str] = []
        self._cut_from = -1

    @property
    def is_inside(self) -> bool:
        """Whether an object has begun that has not closed."""
        return bool(self._open)

    @property
    def is_wanted(self) -> bool:
        """Whether the object that is looked for has begun, and one of the wanted keys was seen."""
        return not self._wanted.isdisjoint(self.keys)

    def feed(self, text: str) -> list[ClosedPart]:
        """Take in the next piece of the text.

        Returns:
            What has closed in it, in its order.

        Raises:
            PlanRefused: It is nested too deep.
        """
        at, end = 0, len(text)
        while at < end:
            at = self._advance(text, at)
        if self._cut_from >= 0:
            self._pieces.append(text[self._cut_from :])
            self._cut_from = 0
        self._seen += end
        if not self._found:
            return []
        found, self._found = self._found, []
        return found

    def _pass_prose(self, text: str, at: int) -> int:
        brace = text.find("{", at)
        if brace < 0:
            return len(text)
        self._brace = self._seen + brace
        self._advance = self._pass_brace
        return brace + 1

    def _pass_brace(self, text: str, at: int) -> int:
        """See whether a brace begins an object with a key in it; prose has braces, too."""
        match = _NOT_SPACE.search(text, at)
        if match is None:
            return len(text)
        if match.group() != '"':
            self._advance = self._pass_prose
            return match.start()
        if not self._is_done:
            self.start, self.end = self._brace, -1
        self.keys = self.keys if self._is_done else set()
        self._open = ["}"]
        self._is_key = True
        self._advance = self._pass_body
        return match.start()

    def _pass_body(self, text: str, at: int) -> int:
        match = (_DEEP if len(self._open) > _IN_LIST else _SHALLOW).search(text, at)
        if match is None:
            return len(text)
        sign, here = match.group(), match.start()
        match sign:
            case '"':
                self._advance = self._pass_text
                if self._is_key and len(self._open) == _IN_OBJECT:
                    self._begin_cut(here + 1)
            case "{" | "[":
                self._enter(sign, here)
            case "}" | "]":
                self._leave(sign, text, here)
            case _:
                self._separate(sign, text, here)
        return here + 1

    def _pass_text(self, text: str, at: int) -> int:
        match = _IN_TEXT.search(text, at)
        if match is None:
            return len(text)
        if match.group() == "\\":
            self._advance = self._pass_escaped
        else:
            self._advance = self._pass_body
            if self._is_key and len(self._open) == _IN_OBJECT:
                self._take_key(self._end_cut(text, match.start()))
        return match.end()

    def _pass_escaped(self, text: str, at: int) -> int:
        del text
        self._advance = self._pass_text
        return at + 1

    def _pass_rest(self, text: str, at: int) -> int:
        """Nothing that comes can be understood any more: the brackets are wrong."""
        del at
        return len(text)

    def _take_key(self, raw: str) -> None:
        self._name, self._is_key = _decode(raw), False
        if self._is_done:
            self.is_repeated = self.is_repeated or self._name in self._wanted
            return
        if self._name in self.keys:
            self._name = ""  # a key that stands twice is a fault of the whole: nothing is handed out for the second
        self.keys.add(self._name)

    def _enter(self, sign: str, here: int) -> None:
        self._open.append(_CLOSER[sign])
        depth = len(self._open)
        if depth > self._max_depth:
            if not self._is_done:
                raise depth_refusal(self._max_depth)
            self._advance = self._pass_rest
        if depth == _IN_LIST and sign == "[" and self._name == self._key and not self._is_done:
            self._is_list, self._index, self.before = True, 0, frozenset(self.keys)
            self._drop_cut()  # the list is given out by its elements
        elif depth == _IN_ELEMENT and sign == "{" and self._is_list:
            self._begin_cut(here)

    def _leave(self, sign: str, text: str, here: int) -> None:
        if sign != self._open.pop():
            self._open.append(sign)  # it stays open for ever
            self._drop_cut()
            self._advance = self._pass_rest
            return
        match len(self._open):
            case 2 if self._is_list and sign == "}":
                self._found.append(Element(self._index, self._end_cut(text, here + 1)))
            case 1:
                self._is_list = False
            case 0:
                self._end_field(text, here)
                self._close(self._seen + here + 1)

    def _separate(self, sign: str, text: str, here: int) -> None:
        depth = len(self._open)
        if depth == _IN_LIST:
            self._index += sign == ","
        elif sign == ",":
            self._end_field(text, here)
            self._is_key = True
        elif self._cut_from < 0 and not self._is_done and not self._is_key:
            self._begin_cut(here + 1)

    def _close(self, end: int) -> None:
        self._advance = self._pass_prose
        if self._is_done:
            return
        self.end = end
        self._is_done = self.is_wanted

    def _end_field(self, text: str, here: int) -> None:
        if self._cut_from >= 0:
            value = self._end_cut(text, here)
            if not self._is_key and self._name:
                self._found.append(Field(self._name, value.strip()))
        self._name = ""

    def _begin_cut(self, here: int) -> None:
        self._pieces.clear()
        self._cut_from = here

    def _end_cut(self, text: str, here: int) -> str:
        self._pieces.append(text[self._cut_from : here])
        made = "".join(self._pieces)
        self._drop_cut()
        return made

    def _drop_cut(self) -> None:
        self._pieces.clear()
        self._cut_from = -1


_Advance: TypeAlias = Callable[[str, int], int]


def _decode(raw: str) -> str:
    """The text that stands between two quotes; itself if it is broken, for then the whole is."""
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw
