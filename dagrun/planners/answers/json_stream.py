"""Scan JSON while it is written, and return each field and each list element when it has closed.

The scanner knows only texts, escapes and brackets; a JSON parser must check the parts that it returns. It looks at each
character once, because parsing the whole text again at each delta takes seconds for a long plan.

It is a state machine. A state is a method that takes a text and a position, and returns the position after the part
that it has read; it may set the next state. The states are: prose before the object (`_in_prose`), after a brace that
may begin the object (`_after_brace`), in the object but not in a text (`_in_body`), in a text (`_in_text`), after a
backslash in a text (`_in_escape`), and after brackets that do not match (`_in_rest`), which is never left.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dagrun.errors import PlanRefused, Problem
from dagrun.kernel.model.policy import PlanLimits
from dagrun.plans.json_reader import depth_refusal, parse_json
from dagrun.plans.plan_fields import wrong_type
from dagrun.plans.read_plan import max_plan_depth, sorted_problems

_NOT_SPACE: Final = re.compile(r"[^ \t\r\n]")
_QUOTE_OR_BACKSLASH: Final = re.compile(r'["\\]')
_SHALLOW: Final = re.compile(r'["{}\[\],:]')  # with the signs that end fields and elements
_DEEP: Final = re.compile(r'["{}\[\]]')
_CLOSER: Final = {"{": "}", "[": "]"}

# Depths, as the number of open brackets: in the object itself, in its list, in an element of the list.
_OBJECT_DEPTH: Final = 1
_LIST_DEPTH: Final = 2
_ELEMENT_DEPTH: Final = 3


@dataclass(frozen=True, slots=True)
class Element:
    """An object in the list that has closed.

    Attributes:
        index: Its index in the list.
        text: Its whole text.
    """

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the object whose value is complete."""

    name: str
    text: str


ClosedPart: TypeAlias = Element | Field


class JsonScanner:
    """Finds an object in a stream of text, and a list in the object.

    Everything before the object is ignored: prose, a code fence, a byte order mark, and objects without any of the
    *wanted* keys.

    Args:
        max_depth: The most levels of nesting.
        wanted: The keys by which the object is recognised.
        key: The key of the list.

    Attributes:
        keys: The keys of the object so far.
        keys_before_list: The keys of the object that were known when the list began.
        start: The position where the object begins; if there is only an object without wanted keys, that of this
            object; -1 if there is none.
        end: The position where the object ends; -1 while it is open.
        is_repeated: Whether there is a second object with a wanted key.
    """

    def __init__(self, max_depth: int, wanted: Collection[str] = ("steps", "refusal"), key: str = "steps") -> None:
        self.keys: set[str] = set()
        self.keys_before_list: frozenset[str] = frozenset()
        self.start = self.end = -1
        self.is_repeated = False
        self._max_depth = max_depth
        self._wanted = frozenset(wanted)
        self._key = key
        self._offset = 0  # the position where the present delta begins
        self._state: _State = self._in_prose
        self._closed: list[ClosedPart] = []
        self._is_done = False  # whether the object has closed
        self._brace = 0  # the position of a brace that may begin the object
        self._open: list[str] = []  # the closing brackets that are still missing
        self._name = ""  # the key of the present field
        self._is_key = False  # whether the next text is a key
        self._is_list = False  # whether we are inside the list
        self._index = 0
        # The part that is copied: its pieces from earlier deltas, and where it begins in this one (-1 for none).
        self._pieces: list[str] = []
        self._copy_from = -1

    @property
    def is_inside(self) -> bool:
        """Whether an object has begun but not closed."""
        return bool(self._open)

    @property
    def is_wanted(self) -> bool:
        """Whether an object with a wanted key has begun."""
        return not self._wanted.isdisjoint(self.keys)

    def feed(self, text: str) -> list[ClosedPart]:
        """Scan the next piece of the text.

        Returns:
            The parts that have closed in it, in their order.

        Raises:
            PlanRefused: The object is nested too deep.
        """
        at, end = 0, len(text)
        while at < end:
            at = self._state(text, at)
        if self._copy_from >= 0:
            self._pieces.append(text[self._copy_from :])
            self._copy_from = 0
        self._offset += end
        if not self._closed:
            return []
        closed, self._closed = self._closed, []
        return closed

    # States ----------------------------------------------------------------------------------------------------------

    def _in_prose(self, text: str, at: int) -> int:
        brace = text.find("{", at)
        if brace < 0:
            return len(text)
        self._brace = self._offset + brace
        self._state = self._after_brace
        return brace + 1

    def _after_brace(self, text: str, at: int) -> int:
        """Decide whether a brace begins an object with a key; prose has braces, too."""
        match = _NOT_SPACE.search(text, at)
        if match is None:
            return len(text)
        if match.group() != '"':
            self._state = self._in_prose
            return match.start()
        if not self._is_done:
            self.start, self.end = self._brace, -1
        self.keys = self.keys if self._is_done else set()
        self._open = ["}"]
        self._is_key = True
        self._state = self._in_body
        return match.start()

    def _in_body(self, text: str, at: int) -> int:
        match = (_DEEP if len(self._open) > _LIST_DEPTH else _SHALLOW).search(text, at)
        if match is None:
            return len(text)
        sign, here = match.group(), match.start()
        match sign:
            case '"':
                self._state = self._in_text
                if self._is_key and len(self._open) == _OBJECT_DEPTH:
                    self._start_copy(here + 1)
            case "{" | "[":
                self._open_bracket(sign, here)
            case "}" | "]":
                self._close_bracket(sign, text, here)
            case _:
                self._pass_separator(sign, text, here)
        return here + 1

    def _in_text(self, text: str, at: int) -> int:
        match = _QUOTE_OR_BACKSLASH.search(text, at)
        if match is None:
            return len(text)
        if match.group() == "\\":
            self._state = self._in_escape
        else:
            self._state = self._in_body
            if self._is_key and len(self._open) == _OBJECT_DEPTH:
                self._end_key(self._end_copy(text, match.start()))
        return match.end()

    def _in_escape(self, text: str, at: int) -> int:
        del text
        self._state = self._in_text
        return at + 1

    def _in_rest(self, text: str, at: int) -> int:
        del at
        return len(text)

    # Signs -----------------------------------------------------------------------------------------------------------

    def _open_bracket(self, sign: str, here: int) -> None:
        self._open.append(_CLOSER[sign])
        depth = len(self._open)
        if depth > self._max_depth:
            if not self._is_done:
                raise depth_refusal(self._max_depth)
            self._state = self._in_rest
        if depth == _LIST_DEPTH and sign == "[" and self._name == self._key and not self._is_done:
            self._is_list, self._index, self.keys_before_list = True, 0, frozenset(self.keys)
            self._drop_copy()  # the elements of the list are returned, and not the list
        elif depth == _ELEMENT_DEPTH and sign == "{" and self._is_list:
            self._start_copy(here)

    def _close_bracket(self, sign: str, text: str, here: int) -> None:
        if sign != self._open.pop():
            self._open.append(sign)  # so that the object never closes
            self._drop_copy()
            self._state = self._in_rest
            return
        match len(self._open):
            case 2 if self._is_list and sign == "}":
                self._closed.append(Element(self._index, self._end_copy(text, here + 1)))
            case 1:
                self._is_list = False
            case 0:
                self._end_field(text, here)
                self._end_object(self._offset + here + 1)

    def _pass_separator(self, sign: str, text: str, here: int) -> None:
        depth = len(self._open)
        if depth == _LIST_DEPTH:
            self._index += sign == ","
        elif sign == ",":
            self._end_field(text, here)
            self._is_key = True
        elif self._copy_from < 0 and not self._is_done and not self._is_key:
            self._start_copy(here + 1)

    # Ends of parts ---------------------------------------------------------------------------------------------------

    def _end_key(self, raw: str) -> None:
        self._name, self._is_key = _decode(raw), False
        if self._is_done:
            self.is_repeated = self.is_repeated or self._name in self._wanted
            return
        if self._name in self.keys:
            self._name = ""  # a repeated key is a fault of the whole object: its second value is not returned
        self.keys.add(self._name)

    def _end_field(self, text: str, here: int) -> None:
        if self._copy_from >= 0:
            value = self._end_copy(text, here)
            if not self._is_key and self._name:
                self._closed.append(Field(self._name, value.strip()))
        self._name = ""

    def _end_object(self, end: int) -> None:
        self._state = self._in_prose
        if self._is_done:
            return
        self.end = end
        self._is_done = self.is_wanted

    # Copies of parts -------------------------------------------------------------------------------------------------

    def _start_copy(self, here: int) -> None:
        self._pieces.clear()
        self._copy_from = here

    def _end_copy(self, text: str, here: int) -> str:
        self._pieces.append(text[self._copy_from : here])
        copy = "".join(self._pieces)
        self._drop_copy()
        return copy

    def _drop_copy(self) -> None:
        self._pieces.clear()
        self._copy_from = -1


_State: TypeAlias = Callable[[str, int], int]


def _decode(raw: str) -> str:
    """Return the text between two quotes; unchanged if it is invalid, because then the whole object is."""
    if "\\" not in raw:
        return raw
    try:
        return str(json.loads(f'"{raw}"'))
    except ValueError:
        return raw


def count_bytes(text: str, limits: PlanLimits, before: int = 0) -> int:
    """Count the bytes of an answer before it is read: it may be 59 MB long.

    Args:
        text: The next piece of the answer.
        limits: The limits, for ``max_bytes``.
        before: The bytes of all pieces before.

    Returns:
        The bytes of all pieces so far.

    Raises:
        PlanRefused: There are too many bytes.
    """
    limit = limits.max_bytes
    size = before + len(text)
    if size <= limit and not text.isascii():
        # A lone surrogate is no error here: it is reported when the whole answer is read.
        size = before + len(text.encode("utf-8", "surrogatepass"))
    if size > limit:
        # Without the exact number, which would depend on the size of the pieces.
        raise PlanRefused([Problem("DR005", "", {"size": f"more than {limit}", "limit": str(limit)})])
    return size


def parse_object(
    text: str,
    scanner: JsonScanner,
    limits: PlanLimits,
    known: Iterable[Problem] = (),
    what: str = "an object with steps",
) -> tuple[Any, list[Problem]]:
    """Parse the object that *scanner* has found.

    Args:
        text: The whole text that the scanner has read.
        scanner: The scanner.
        limits: Limits of size.
        known: Problems of parts of the object, which are raised if the whole object cannot be parsed.
        what: A description of the object, for messages.

    Returns:
        Plain JSON with marks, as from `parse_json`; and problems.

    Raises:
        PlanRefused: There is no such object, or it is not JSON.
    """
    start, end = scanner.start, scanner.end
    if start < 0:
        raise PlanRefused([wrong_type("", what, text)])
    if end < 0:
        reason = f"its object, the one at character {start + 1}, is never closed"
        raise PlanRefused(sorted_problems([Problem("DR421", "", {"reason": reason}), *known]))
    # With blanks in place of the text before it, so that lines and columns in messages are right.
    before = re.sub(r"[^\n]", " ", text[:start])
    try:
        tree = parse_json(before + text[start:end], max_plan_depth(limits))
    except PlanRefused as refusal:
        raise PlanRefused(sorted_problems([*refusal.problems, *known])) from None
    if not scanner.is_repeated:
        return tree, []
    return tree, [Problem("DR009", "", {"expected": what, "found": "two of them"})]
