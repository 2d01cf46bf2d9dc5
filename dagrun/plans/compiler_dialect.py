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

The arguments are literals, and nothing is evaluated. Python's own parser reads them, but only after every token has
been checked. The text that it gets has no operators, calls or names, and a limited depth: so it can stand for nothing
but values, and cannot make the parser recurse deeply.

Described in: S. Kim et al., An LLM compiler for parallel function calling, ICML 2024.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from dagrun.errors import PlanRefused, Problem, hint, shorten
from dagrun.kernel.checks.plain_json import MAX_DIGITS
from dagrun.kernel.model.contracts.schema_types import types_of
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.reference import quote_template
from dagrun.kernel.model.signature import Arguments
from dagrun.kernel.model.tool import Toolbox
from dagrun.plans.json_reader import MAX_READ_DEPTH, BadNumber, make_float, make_int, syntax_problem

MAX_LINE: Final = 65_536  # characters

_HEAD: Final = re.compile(r"[ \t]*(?:([0-9]{1,6})\.[ \t]*)?([A-Za-z_][A-Za-z0-9_.-]{0,63})[ \t]{0,8}\(")
# Possessive, so that no character is tried twice.
_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t]++)
    |(?P<text>[rRuU]?(?:
        \"{3}(?:[^"\\]|\\.|"(?!""))*+\"{3} | '{3}(?:[^'\\]|\\.|'(?!''))*+'{3}
        | "(?:[^"\\]|\\.)*+" | '(?:[^'\\]|\\.)*+'))
    |(?P<open>[(\[{]) |(?P<close>[)\]}]) |(?P<mark>[,:=])
    |(?P<number>[+-]?(?:0[xX][0-9a-fA-F]++|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?))
    |(?P<reference>\$\{[0-9]{1,6}(?:[.\[][^}]{0,200})?\}|\$[0-9]{1,6}(?![A-Za-z0-9_]))
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*+)""",
    re.VERBOSE | re.DOTALL,
)
# Words, with apostrophes in them, and brackets after a space: no quotes, names of arguments, objects, lists or calls.
_TEXT_OF_WORDS: Final = re.compile(r"""[ \t]*+([^\W_](?:[^"'()\[\]{}=\\]|(?<=\w)'(?=\w)|(?<=[ ])\([^"'()]*+\))*+)\)""")
_VALUES: Final = ("text", "number", "reference", "name", "close")
_BEGINNINGS: Final = ("text", "number", "reference", "name", "open")
_IS_NAMED: Final = re.compile(r"[ \t]{0,8}=")
_WORDS: Final = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
# Unknown escapes keep their backslash, as in Python; but Python warns of them, so they are written with two.
_ESCAPE: Final = re.compile(r"\\(?:([\n\\'\"abfnrtvxNuU]|[0-3][0-7]{0,2}|[4-7][0-7]?(?![0-7]))|(.))", re.DOTALL)
# "$1.50" and "$1,000" in a text are amounts of money, not references.
_IN_TEXT: Final = re.compile(
    r"\$\{([0-9]{1,6})((?:[.\[][^}]{0,200})?)\}|\$([0-9]{1,6})(?![A-Za-z0-9_]|[.,][0-9])", re.ASCII
)


class CallSyntaxError(ValueError):
    """A line is not a call; the message has the reason.

    Attributes:
        column: The column in the line, from 1.
    """

    def __init__(self, reason: str, column: int) -> None:
        super().__init__(reason)
        self.column = column


@dataclass(frozen=True, slots=True)
class CallHead:
    """The beginning of a call.

    Attributes:
        number: The number of the step as text; empty if there is none.
        tool: The tool that is called.
        end: The position where the arguments begin.
    """

    number: str
    tool: str
    end: int


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The arguments of a call: plain JSON with references in our syntax.

    Attributes:
        positional: The arguments without names, in their order.
        named: Pairs of name and argument, because a name may stand twice.
        tail: The rest of the line after the call.
    """

    positional: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    tail: str


def read_head(line: str) -> CallHead | None:
    """Read the number and the tool of a call; `None` if *line* does not begin like one."""
    match = _HEAD.match(line)
    if match is None:
        return None
    return CallHead(str(int(match[1])) if match[1] else "", match[2], match.end())


def read_arguments(line: str, start: int, is_earlier: Callable[[str], bool], max_depth: int) -> CallArguments:
    """Read the arguments of a call.

    Args:
        line: The whole line.
        start: The position where its arguments begin, after the bracket.
        is_earlier: Whether an earlier step has a number, so that ``$`` and the number refer to it.
        max_depth: The most levels of nesting of an argument.

    Raises:
        CallSyntaxError: The line is too long, has anything but literals, or has a reference to no earlier step.
    """
    if len(line) > MAX_LINE:
        raise CallSyntaxError(f"a line has at most {MAX_LINE} characters", MAX_LINE)
    values = _Values(is_earlier, start + 1)
    source, end = values.rewrite(line, start, max_depth)
    try:
        call = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError) as error:
        # Without the column of the error, because it is one of the rewritten line.
        reason = error.msg if isinstance(error, SyntaxError) else "half a character, or a NUL"
        raise CallSyntaxError(f"not a list of literals: {reason}", start + 1) from None
    if not isinstance(call, ast.Call):
        raise CallSyntaxError("not a list of literals", start + 1)
    return CallArguments(
        tuple(values.value(argument) for argument in call.args),
        tuple((str(keyword.arg), values.value(keyword.value)) for keyword in call.keywords),
        line[end:].strip(),
    )


def read_words(line: str, start: int, is_earlier: Callable[[str], bool]) -> CallArguments | None:
    """Read the only argument of a call, a text without quotes; `None` if it may be something else.

    Raises:
        CallSyntaxError: See `interpolate`.
    """
    match = _TEXT_OF_WORDS.match(line[:MAX_LINE], start)
    if match is None:
        return None
    return CallArguments((interpolate(match[1].strip(), is_earlier, start + 1),), (), line[match.end() :].strip())


class _Values:
    """Reads the values of one line: first its tokens, then the syntax tree of Python's parser."""

    def __init__(self, is_earlier: Callable[[str], bool], column: int) -> None:
        self._is_earlier = is_earlier
        self._column = column
        self._references: list[tuple[str, str]] = []  # number and path; Python's parser gets names in their place

    def rewrite(self, line: str, start: int, max_depth: int) -> tuple[str, int]:
        """Check every token up to the closing bracket of the call, and rewrite the call for Python's parser.

        Returns:
            The rewritten call; and the position where the call ends in the line.
        """
        parts = ["f("]
        depth, at, before = 1, start, "mark"
        while depth:
            match = _TOKEN.match(line, at)
            if match is None:
                raise CallSyntaxError(_unreadable(line, at), at + 1)
            kind, at = str(match.lastgroup), match.end()
            if kind != "space":
                # Two values side by side would be a call, an index or a mistake; only two texts may be joined.
                if before in _VALUES and kind in _BEGINNINGS and (before, kind) != ("text", "text"):
                    raise CallSyntaxError("a comma is missing", match.start() + 1)
                before = kind
            depth += (kind == "open") - (kind == "close")
            if depth > max_depth:
                raise CallSyntaxError(f"nested deeper than {max_depth} levels", match.start() + 1)
            parts.append(self._rewrite_token(kind, match))
        return "".join(parts), at

    def _rewrite_token(self, kind: str, match: re.Match[str]) -> str:
        token, column = match.group(), match.start() + 1
        match kind:
            case "text" if token[0] not in "rR":
                return _ESCAPE.sub(lambda found: found[0] if found[1] else f"\\\\{found[2]}", token)
            case "number":
                return _number_text(token, column)
            case "name" if token not in _WORDS and not _IS_NAMED.match(match.string, match.end()):
                raise CallSyntaxError(f"{token[:40]} is no literal: a text stands in quotes", column)
            case "reference":
                return self._name(token, column)
            case _:
                return token

    def _name(self, token: str, column: int) -> str:
        body = token[2:-1] if token.startswith("${") else token[1:]
        path = body.lstrip("0123456789")
        number = body.removesuffix(path)
        if not self._is_earlier(number):
            raise CallSyntaxError(f"{token[:40]} refers to no earlier step", column)
        self._references.append((number, path))
        return f"_r{len(self._references) - 1}"

    def value(self, node: ast.expr) -> Any:
        """Return the value of *node*."""
        match node:
            case ast.Constant(value=str() as text):
                return interpolate(text, self._is_earlier, self._column)
            case ast.Constant(value=bool() | None as word):
                return word
            case ast.Constant(value=int() | float() as number):
                return _number(number)
            case ast.UnaryOp(op=sign, operand=ast.Constant(value=int() | float() as number)):
                return _number(-number if isinstance(sign, ast.USub) else number)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element) for element in elements]
            case ast.Dict(keys=keys, values=values):
                return self._object(keys, values)
            case ast.Name(id=name):
                return _WORDS[name] if name in _WORDS else self._reference(name)
            case _:
                raise CallSyntaxError("not a list of literals", self._column)

    def _object(self, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for key, value in zip(keys, values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                raise CallSyntaxError("the keys of an object are texts", self._column)
            if key.value in fields:
                raise CallSyntaxError(f"the key {key.value[:40]!r} occurs twice in one object", self._column)
            fields[key.value] = self.value(value)
        return fields

    def _reference(self, name: str) -> str:
        number, path = self._references[int(name[2:])]
        return f"${{{number}{path}}}"


def _number_text(token: str, column: int) -> str:
    """Return a number as Python's parser accepts it: without leading zeros."""
    if len(token) > MAX_DIGITS:
        raise CallSyntaxError(f"a number has at most {MAX_DIGITS} digits", column)
    digits = token.lstrip("+-")
    return token.removesuffix(digits) + (digits.lstrip("0") or "0") if digits.isdigit() else token


def _unreadable(line: str, at: int) -> str:
    if at >= len(line):
        return "the closing bracket is missing"
    if line[at] in "\"'":
        return "the text is not closed"
    return "not a literal: texts, numbers, true, false, null, lists and objects are, and $1 for an earlier step"


def _number(number: float) -> float | BadNumber:
    # The limits of JSON numbers: no infinity, and not too many digits.
    return make_int(str(number)) if isinstance(number, int) else make_float(repr(number))


def interpolate(text: str, is_earlier: Callable[[str], bool], column: int = 1) -> str:
    """Convert *text* into our syntax: names of earlier steps become references, the rest stays literal.

    Raises:
        CallSyntaxError: A reference comes right after a dollar sign, which our syntax cannot express.
    """
    parts: list[str] = []
    at = 0
    for match in _IN_TEXT.finditer(text):
        number = match[1] or match[3]
        if not is_earlier(number):
            continue
        before = text[at : match.start()]
        if before.endswith("$"):
            raise CallSyntaxError(f"write something between the dollar sign and {match[0][:40]}", column)
        parts += (quote_template(before), f"${{{number}{match[2] or ''}}}")
        at = match.end()
    return "".join((*parts, quote_template(text[at:])))


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
