"""Correct the habits of small models in lines of calls: nested calls, joined texts, no end, and others.

    1. average(sales("south"))                 901. sales("south")
                                         →     1. average("${901}")
    2. write("Sum: " + "$1" + ".")       →     2. write("Sum: $1.")
    3. sales(region: "south")            →     3. sales(region="south")

What such a line means is beyond doubt, and the model would often write the same once more. Everything else stays as it
is, for the reader to explain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import count
from typing import Final

# Far above the numbers that a model gives to its calls.
FIRST_NUMBER: Final = 901

_MAX_LINE: Final = 20_000  # characters of a line that is looked through
_MAX_CALLS: Final = 20  # nested in a line
_JOINED: Final = re.compile(r'(?<!\\)"\s*\+\s*"')
_TEXT: Final = re.compile(r'("(?:[^"\\]|\\.)*")')
_COLON: Final = re.compile(r"([(,]\s*)([A-Za-z_]\w*)\s*:\s*")
_CALL: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.-]*)\(")
_LINE: Final = re.compile(r"\s*\d+\.\s*[A-Za-z_]")
_END: Final = re.compile(r"\s*(\d+\.\s*)?join\s*\(|\s*\{")


class SmallAnswer:
    """Rewrites the text of an answer, piece by piece.

    Args:
        tools: The names of the tools.
    """

    __slots__ = ("_has_end", "_numbers", "_rest", "_tools")

    def __init__(self, tools: Collection[str]) -> None:
        self._tools = tools
        self._numbers = count(FIRST_NUMBER)
        self._rest = ""
        self._has_end = False

    def feed(self, piece: str) -> str:
        """Return the lines that are complete, rewritten."""
        *lines, self._rest = (self._rest + piece).split("\n")
        return "".join(map(self._rewritten, lines))

    def end(self) -> str:
        """Return the rest; called for an answer that has ended by itself, whose plan is whole without ``join()``."""
        last = self._rewritten(self._rest) if self._rest.strip() else ""
        return last if self._has_end else f"{last}join()\n"

    def _rewritten(self, line: str) -> str:
        self._has_end = self._has_end or _END.match(line) is not None
        if len(line) > _MAX_LINE or _LINE.match(line) is None:
            return f"{line}\n"
        lines = list(self._lines(_named(_JOINED.sub("", line))))
        return "".join(f"{one}\n" for one in lines)

    def _lines(self, line: str) -> Iterator[str]:
        """Yield a line for each nested call, inner ones first, and at last the line itself."""
        for _ in range(_MAX_CALLS):
            found = _innermost(line, self._tools)
            if found is None:
                break
            start, end = found
            number = next(self._numbers)
            yield f"{number}. {line[start:end]}"
            line = f'{line[:start]}"${{{number}}}"{line[end:]}'
        yield line


def _named(line: str) -> str:
    """Return *line* with arguments named as in calls where they are named as in signatures."""
    pieces = _TEXT.split(line)  # every other one is a text in quotes
    if "{" in "".join(pieces[::2]):
        return line
    return "".join(piece if place % 2 else _COLON.sub(r"\1\2=", piece) for place, piece in enumerate(pieces))


def _innermost(line: str, tools: Collection[str]) -> tuple[int, int] | None:
    """Return the place of a nested call of a tool that has no other nested call in it; `None` if there is none."""
    place, open_calls, is_text = 0, list[int | None](), False
    while place < len(line):
        character = line[place]
        if is_text:
            place += 2 if character == "\\" else 1
            is_text = character != '"'
            continue
        call = _CALL.match(line, place)
        if character == '"':
            is_text = True
        elif call is not None:
            open_calls.append(place if call[1] in tools and open_calls else None)
            place = call.end()
            continue
        elif character == "(":
            open_calls.append(None)
        elif character == ")" and open_calls:
            start = open_calls.pop()
            if start is not None:
                return start, place + 1
        place += 1
    return None
