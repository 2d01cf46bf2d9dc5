"""The dialect ``calls``, for models below two billion parameters: its prompt, and the habits that it corrects.

Such models do not follow pages of rules, and copy examples. They imitate examples well: tools, a goal,
and the few calls that reach it. So the prompt is a few rules, the tools in a line each, and each example a whole turn
with tools of its own.

What an answer means is often beyond doubt where its form is not, and the model would often write the same again:

    1. average(sales("south"))                 901. sales("south")
                                         →     1. average("${901}")
    2. write("Sum: " + "$1" + ".")       →     2. write("Sum: $1.")
    3. sales(region: "south")            →     3. sales(region="south")

Everything else stays as it is, for the reader to explain.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.kernel.model.planner import Brief
from dagrun.llm.language_model import Message, quote_line
from dagrun.planners.prompt_examples import PREFIX, Example, renamed
from dagrun.planners.signatures import signatures_of

_WANTED: Final = "Write only the calls that this goal needs."
_MAX_PROBLEMS: Final = 3
_NUMBERED: Final = re.compile(r"\$\{(\d+)(?:-r\d+)?\}")


def small_prompt(brief: Brief, examples: Sequence[Example], problems: Sequence[Problem]) -> tuple[Message, ...]:
    """Return the turns of the prompt.

    Args:
        brief: All that the model may know.
        examples: Goals and good answers; those with an answer in ``calls`` become turns.
        problems: The problems of an answer that was refused. The answer itself is not shown: it would be copied.
    """
    taken = {str(tool["name"]) for tool in brief.tools}
    turns: list[Message] = []
    for example in examples:
        if "calls" in example.answers:
            contracts = [tool.describe() for tool in example.tools]
            asked = _request(contracts, example.goal, "")
            turns.append(Message("user", _shown(asked, example, taken)))
            turns.append(Message("assistant", _shown(example.answers["calls"], example, taken)))
    # In the form in which the model writes references.
    faults = ["- " + _NUMBERED.sub(r"$\1", problem.sentence) for problem in problems[:_MAX_PROBLEMS]]
    more = "\n".join(["Another answer was refused:", *_block("problems", faults)]) if faults else ""
    return (*turns, Message("user", _request(brief.tools, brief.goal, more)))


def _request(tools: Sequence[Mapping[str, Any]], goal: str, more: str) -> str:
    signatures = signatures_of(tools)
    lines = [f"{line['call']}: {_purpose(line['description'])}" for line in signatures.tools]
    types = [f"{name} = {type_}" for name, type_ in signatures.types.items()]
    parts = [_block("tools", lines), *([_block("types", types)] if types else []), _block("goal", [goal])]
    return "\n\n".join(["\n".join(part) for part in parts] + ([more] if more else []) + [_WANTED])


def _block(name: str, lines: Sequence[str]) -> list[str]:
    return [f'<data name="{name}">', *map(quote_line, lines), "</data>"]


def _purpose(description: str) -> str:
    return description.partition("\n\n")[0]


def _shown(text: str, example: Example, taken: set[str]) -> str:
    """Return a text of an example with plain names of its tools, unless the user has tools of those names.

    A small model that reads the prefix writes it in front of every tool.
    """
    plain = {tool.name.removeprefix(PREFIX) for tool in example.tools}
    return renamed(text, sorted(taken)) if plain & taken else text.replace(PREFIX, "")


# Answers -------------------------------------------------------------------------------------------------------------

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
