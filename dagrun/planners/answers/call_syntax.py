"""Parse a call of a tool from a line of text, such as ``2. math("$1 + 3", context=[$1])``.

The arguments are literals, and nothing is evaluated. Python's own parser reads them, but only after every token has
been checked. The text that it gets has no operators, calls or names, and a limited depth: so it can stand for nothing
but values, and cannot make the parser recurse deeply.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from dagrun.checks.plain_json import MAX_DIGITS
from dagrun.model.reference import quote_template
from dagrun.plans.json_reader import BadNumber, make_float, make_int

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
