"""The plan dialect of LLMCompiler: one call on each line, and ``join()`` at the end.

    Thought: both can be looked up at once
    1. search("height of the Eiffel Tower")
    2. search("height of Big Ben")
    3. math("$1 - $2")
    4. join($3)
    <END_OF_PLAN>

``$1`` is the output of step 1 if an earlier line has that number; else it is plain text. Arguments without names are
taken in the order of the tool's signature. A thought becomes the description of the next step.

``join`` ends the plan. The steps that it names are the answer of the run; if it names none, the sinks are. A tool
called ``join`` can be called only with one or more named arguments, which the end of a plan never has. A numbered call
between ``join`` and ``<END_OF_PLAN>`` is a fault, because it may or may not be meant; everything after that mark is
ignored. So is a numbered call behind other words of its line, and a call without a number: no call is passed over.

A text may stand without quotes where nothing else can be meant: ``search(The Long Road Home)``, as in LLMCompiler's own
examples, if text is all that the tool takes.

Described in: S. Kim et al., An LLM compiler for parallel function calling, ICML 2024.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from dagrun.errors import PlanRefused, Problem, shorten
from dagrun.model.contracts.schema_types import types_of
from dagrun.model.policy import PlanLimits
from dagrun.model.signature import Arguments
from dagrun.model.toolbox import Toolbox, hint
from dagrun.planners.answers.call_syntax import (
    CallArguments,
    CallHead,
    CallSyntaxError,
    read_arguments,
    read_head,
    read_words,
)
from dagrun.plans.json_reader import MAX_READ_DEPTH, syntax_problem

_NUMBERED: Final = re.compile(r"[ \t]*[0-9]{1,6}\.[ \t]*\S")
_THOUGHT: Final = re.compile(r"[ \t]*Thought:[ \t]*(.*)", re.DOTALL)
_CALL_LINE: Final = re.compile(
    r"^\ufeff?[ \t]*[0-9]{1,6}\.[ \t]*[A-Za-z_][A-Za-z0-9_.-]{0,63}[ \t]{0,8}\(", re.MULTILINE
)
_INSIDE: Final = re.compile(r"(?<![\w.:$])([0-9]{1,6})[.):][ \t`*]{0,8}([A-Za-z_][A-Za-z0-9_.-]{0,63})([ \t]{0,8})\(")
_ALONE: Final = re.compile(r"""[ \t]*[\w.-]+\((?:["'\[{$0-9].*|\w+[ ]?=.*)?\)[ \t\r]*(?:#|$)""", re.ASCII)
_WHOLE: Final = re.compile(r"\$\{[0-9]+(?:[.\[][^}]*)?\}")
_END: Final = "<END_OF_PLAN>"
_JOIN: Final = "join"
_TEXT: Final = frozenset(("string",))
# The levels above the arguments of a step in our dialect: plan, list of steps, step, arguments.
_ABOVE: Final = 4


def is_compiler_text(text: str) -> bool:
    """Whether a text is a plan in this dialect: it has a numbered call, and is no JSON object or list."""
    return not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")) and find_call(text) >= 0


def find_call(text: str) -> int:
    """Return the position of the first line of *text* that begins with a numbered call; -1 if there is none."""
    match = _CALL_LINE.search(text)
    return -1 if match is None else match.start()


def parse_lines(text: str, toolbox: Toolbox | None, limits: PlanLimits) -> tuple[dict[str, Any], list[Problem]]:
    """Convert the whole text of a plan into the JSON of our dialect; return it with its problems.

    Raises:
        PlanRefused: The plan has too many steps.
    """
    reader = CompilerText(toolbox, limits)
    for line in text.split("\n"):
        reader.read_line(line)
    return reader.tree(), reader.problems


class CompilerText:
    """Converts a plan of this dialect, line by line, into the JSON of our dialect.

    Args:
        toolbox: The tools, for arguments without names.
        limits: Limits of size.

    Attributes:
        steps: The steps read so far, in order, as JSON of our dialect; a line with a fault gives no step.
        problems: The problems found so far.
        is_ended: Whether the plan has ended.
    """

    def __init__(self, toolbox: Toolbox | None, limits: PlanLimits) -> None:
        self.steps: list[dict[str, Any]] = []
        self.problems: list[Problem] = []
        self.is_ended = False
        self._toolbox = toolbox
        self._max_depth = max(min(limits.max_depth, MAX_READ_DEPTH) - _ABOVE, 0)
        self._max_steps = limits.max_steps
        self._numbers: set[str] = set()  # of every step so far, also of a step with a fault
        self._count = 0
        self._line = 0
        self._thoughts: list[str] = []
        self._output: Any = None
        self._is_joined = False

    def read_line(self, line: str) -> dict[str, Any] | None:
        """Read the next line, without its line break.

        Returns:
            The step on this line, if there is one and it is well-formed.

        Raises:
            PlanRefused: The plan has too many steps.
        """
        self._line += 1
        line = line.removeprefix("\ufeff")
        if self.is_ended:
            return None
        head = read_head(line)
        # A line that is nothing but a call is one; prose names tools, too.
        if head is None or not (head.number or head.tool == _JOIN or (self._known(head.tool) and _ALONE.match(line))):
            self._read_other(line)
            return None
        return self._read_call(line, head)

    def tree(self) -> dict[str, Any]:
        """Return the whole plan as JSON of our dialect; called after the last line."""
        if not (self.is_ended or self._is_joined):
            reason = f"neither join() nor {_END} ends the plan"
            self.problems.append(Problem("DR421", "", {"reason": reason}))
        plan: dict[str, Any] = {"steps": self.steps}
        return plan if self._output is None else {**plan, "output": self._output}

    def _read_other(self, line: str) -> None:
        thought = _THOUGHT.match(line)
        if number := self._finds_inside(line):
            self._end_call(number)
        elif thought is not None:
            self._thoughts.append(thought[1].strip())
        elif _NUMBERED.match(line) and not self._is_joined:
            self._fault("a numbered line is a call: 1. tool(argument, name=argument)", 1)
            self._end_call("")
        self.is_ended = line.strip().endswith(_END)

    def _finds_inside(self, line: str, start: int = 0) -> str:
        """Refuse a numbered call behind other words of its line; return its number, or nothing if there is none."""
        for found in _INSIDE.finditer(line.partition(_END)[0], start):
            if not found[3] or self._toolbox is None or found[2] in self._toolbox:  # else a bracket in prose
                self._fault("a call begins its line: 1. tool(argument, name=argument)", found.start() + 1)
                return str(int(found[1]))
        return ""

    def _read_call(self, line: str, head: CallHead) -> dict[str, Any] | None:
        if self._is_joined:
            self._fault("join() has ended the plan before this call", 1)
            self._end_call("")
            return None
        try:
            arguments = self._arguments(line, head)
            if arguments.tail and not arguments.tail.startswith(("#", _END)):
                raise CallSyntaxError("there is more behind the call", len(line))
        except CallSyntaxError as error:
            self._fault(str(error), error.column)
            self._end_call(head.number)
            return None
        self.is_ended = arguments.tail.endswith(_END)
        if arguments.tail.startswith("#"):
            self._finds_inside(line, line.rindex(arguments.tail))
        if head.tool == _JOIN and not self._calls_join(arguments):
            self._join(arguments)
            return None
        if not head.number:
            self._fault("a call has a number: 1. tool(argument)", 1)
            return None
        step = self._step(head, arguments)
        self._end_call(head.number)
        return step

    def _arguments(self, line: str, head: CallHead) -> CallArguments:
        try:
            return read_arguments(line, head.end, self._numbers.__contains__, self._max_depth)
        except CallSyntaxError:
            words = read_words(line, head.end, self._numbers.__contains__) if self._takes_one_text(head.tool) else None
            if words is None:
                raise
            return words

    def _takes_one_text(self, tool: str) -> bool:
        known = self._known(tool)
        schemas = known.schema.get("properties", {}).values() if known is not None else ()
        return known is not None and [types_of(schema, known.schema) for schema in schemas] == [_TEXT]

    def _known(self, tool: str) -> Arguments | None:
        return self._toolbox[tool].arguments if self._toolbox is not None and tool in self._toolbox else None

    def _end_call(self, number: str) -> None:
        self._numbers.add(number)
        self._thoughts.clear()
        self._count += 1
        if self._count > self._max_steps:  # steps with a fault count, too: each of them adds a problem
            facts = {"count": f"more than {self._max_steps}", "limit": str(self._max_steps)}
            raise PlanRefused([Problem("DR108", "steps", facts)])

    def _calls_join(self, arguments: CallArguments) -> bool:
        return self._toolbox is not None and _JOIN in self._toolbox and bool(arguments.named)

    def _join(self, arguments: CallArguments) -> None:
        self._is_joined = True
        named = tuple(dict.fromkeys(_whole_references(arguments.positional)))
        if len(named) == 1:
            self._output = named[0]
        elif named:
            self._output = {reference[2:-1]: reference for reference in named}

    def _step(self, head: CallHead, arguments: CallArguments) -> dict[str, Any] | None:
        args, faults = self._bind(head, arguments)
        if faults:
            self.problems += (replace(fault, path=self._place("args")) for fault in faults)
            return None
        step: dict[str, Any] = {"id": head.number, "tool": head.tool, "args": args}
        if self._thoughts:
            step["description"] = "\n".join(self._thoughts)
        self.steps.append(step)
        return step

    def _bind(self, head: CallHead, arguments: CallArguments) -> tuple[dict[str, Any], list[Problem]]:
        """Return the arguments by name, and the problems of their names."""
        step, tool = head.number, head.tool
        known = self._known(tool)
        if known is None and arguments.positional:
            return {}, [self._unknown_names(step, tool)]
        names = () if known is None else tuple(known.schema.get("properties", ()))
        args: dict[str, Any] = dict(zip(names, arguments.positional, strict=False))
        faults = []
        if len(arguments.positional) > len(names):  # one problem for all of them: there may be thousands
            surplus = f"argument {len(names) + 1}"
            faults.append(Problem("DR204", "", {"step": step, "argument": surplus, "tool": tool, "hint": ""}))
        for name, value in arguments.named:
            if _is_repeated(name, args, known):
                faults.append(Problem("DR007", "", {"key": repr(shorten(name, 60))}))
            args[name] = value
        return args, faults

    def _unknown_names(self, step: str, tool: str) -> Problem:
        """Return the problem of a call whose arguments have no names, and cannot get any."""
        if self._toolbox is not None:
            return Problem("DR201", "", {"step": step, "tool": tool, "hint": hint(tool, self._toolbox)})
        return Problem("DR112", "", {"step": step, "reason": "arguments without names are read with the tools at hand"})

    def _fault(self, reason: str, column: int) -> None:
        self.problems.append(replace(syntax_problem("plan text", self._line, column, reason), path=self._place("")))

    def _place(self, field: str) -> str:
        return f"steps[{self._count}]" + (f".{field}" if field else "")


def _is_repeated(name: str, args: dict[str, Any], known: Arguments | None) -> bool:
    """Whether *args* already has the argument called *name*, under any of its names."""
    if known is None:
        return name in args
    parameter = known.names.get(name, name)
    return any(known.names.get(other, other) == parameter for other in args)


def _whole_references(value: Any) -> Iterator[str]:
    """Yield the references in *value* that are not part of a longer text."""
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _whole_references(element)
