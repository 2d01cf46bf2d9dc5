"""Questions as lines for a terminal, in which text from outside cannot imitate text of dagrun; and typed answers.

1. Every argument is shown in full, or it is cut with a mark that says so.
2. Text from outside stands in quotes, or behind a bar at the left.
3. Control characters and invisible characters are escaped.
4. Lines are broken here. A terminal would continue a long text at the left edge, where it looks like a line of dagrun.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import Any, Final

from dagrun.errors import visible
from dagrun.kernel.model.contracts.schema_types import type_of, types_of, words
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.question import Asked, Question
from dagrun.kernel.model.value import decode
from dagrun.observe.line_breaks import BAR, cells, wrap

MAX_LINES: Final = 40  # of one text; a screen shows 24 to 60 lines at once
MAX_DIFF: Final = 200
MARK: Final = "=== "  # before a line of dagrun between lines of text from outside
MAX_DEPTH: Final = 6  # of objects that are laid out; deeper ones stand on one line

TITLES: Final[Mapping[Asked, str]] = {
    Asked.APPROVAL: "May this call be made?",
    Asked.INPUT: "A value is needed from a person.",
    Asked.PERMISSION: "Permission denied. Retry?",
    Asked.EFFECT: "Did this call take effect?",
    Asked.PAUSE: "The plan pauses here until a person has looked. Continue?",
    Asked.PATCH: "May the plan be changed like this?",
    Asked.OUTPUT: "May the run hand out its answer?",
}
EFFECTS: Final[Mapping[str, str]] = {
    Effect.PURE: "computes, and touches nothing",
    Effect.READ: "looks, and changes nothing",
    Effect.IDEMPOTENT: "changes the world, once however often it is called",
    Effect.EFFECTFUL: "changes the world with each call",
}
_SIMPLE: Final = frozenset(("string", "number", "integer", "boolean", "null"))
_SIZES: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minimum": (operator.ge, "at least"),
    "exclusiveMinimum": (operator.gt, "more than"),
    "maximum": (operator.le, "at most"),
    "exclusiveMaximum": (operator.lt, "less than"),
}
_LENGTHS: Final[Mapping[str, tuple[Callable[[Any, Any], bool], str]]] = {
    "minLength": (operator.ge, "at least"),
    "maxLength": (operator.le, "at most"),
}
_LIMITS: Final[Mapping[str, str]] = {
    "enum": "one of",
    "const": "equal to",
    "pattern": "matching",
    **{name: words for name, (_, words) in _SIZES.items()},
    **{name: f"of a length of {words}" for name, (_, words) in _LENGTHS.items()},
}
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")


@dataclass(frozen=True, slots=True)
class QuestionPage:
    """A question, laid out.

    Attributes:
        lines: The lines, none wider than requested, and without control characters.
        is_cut: Whether a part is not shown; a mark stands in its place.
    """

    lines: tuple[str, ...]
    is_cut: bool


def lay_out(question: Question, *, left: float | None = None, width: int = 79, is_whole: bool = False) -> QuestionPage:
    """Lay out *question*.

    Args:
        question: The question.
        left: Seconds until the default answer counts; `None` for never.
        width: The width of a line in cells; at least 40.
        is_whole: Whether everything is shown, however long it is.
    """
    layout = _Layout(max(40, width), is_whole=is_whole)
    lines = [
        TITLES[question.kind],
        *layout.text(question.text, "  "),
        *layout.facts(question),
        *layout.arguments(decode(question.arguments)),
        *layout.diff(question.diff),
        *layout.diff(question.transcript, "what the steps did"),
        *layout.wanted(question.schema),
        *layout.points(question.checklist),
        *_deadline(question, left),
    ]
    return QuestionPage(tuple(lines), layout.is_cut)


class _Layout:
    """Makes the parts of a page.

    Attributes:
        is_cut: Whether a part was cut.
    """

    def __init__(self, width: int, *, is_whole: bool) -> None:
        self.is_cut = False
        self._width = width
        self._is_whole = is_whole

    def text(self, text: str, indent: str) -> list[str]:
        """Return a text unchanged, each line behind a bar."""
        if not text:
            return []
        # Line ends are not escaped here, so a backslash of the text must not look like the start of an escape.
        lines = (visible(line.replace("\\", "\\\\")) for line in text.split("\n"))
        rows = [row for line in lines for row in wrap(line, self._width, indent + BAR)]
        return self._bounded(rows, indent, _measure(text))

    def facts(self, question: Question) -> list[str]:
        """Return the facts of the question, one line each."""
        effect = EFFECTS.get(question.effect, "")
        facts = {
            "step": visible(question.step),
            "tool": visible(question.tool),
            "effect": f"{visible(question.effect)}: {effect}" if effect else visible(question.effect),
            "why": visible(question.why),
        }
        return [row for name, fact in facts.items() if fact for row in self._fact(name, fact)]

    def arguments(self, arguments: Any) -> list[str]:
        """Return all arguments. Short ones stand last, next to the place where the answer is typed."""
        if arguments is None:
            return []
        if not isinstance(arguments, dict):
            return ["  arguments", *self._value("", arguments, 2)]
        if not arguments:
            return ["  arguments  none"]
        entries = [self._value(self._name(name), value, 2) for name, value in arguments.items()]
        long, short = [e for e in entries if len(e) > 1], [e for e in entries if len(e) == 1]
        rows = list(chain.from_iterable([*long, *short]))
        return ["  arguments", *self._bounded(rows, "    ", _measure_json(arguments), 10 * MAX_LINES)]

    def diff(self, diff: Sequence[str], title: str = "change") -> list[str]:
        """Return the change that the question asks about, or other lines with a *title*, line by line."""
        if not diff:
            return []
        rows = [row for line in diff for row in wrap(visible(line), self._width, "  " + BAR)]
        return [f"  {title}", *self._bounded(rows, "  ", _measure("\n".join(diff)), MAX_DIFF)]

    def wanted(self, schema: Mapping[str, Any] | None) -> list[str]:
        """Return the kind of value that is wanted, by its schema."""
        if schema is None:
            return []
        types = types_wanted(schema)
        if types is None or not types <= _SIMPLE:
            return ["  wanted", *self._value("", dict(schema), 2)]
        limits = {word: _json(schema[key]) for key, word in _LIMITS.items() if key in schema}
        return self._fact("wanted", ", ".join([words(types), *(f"{word} {limit}" for word, limit in limits.items())]))

    def points(self, checklist: Sequence[str]) -> list[str]:
        """Return the points that must be ticked."""
        if not checklist:
            return []
        rows = [
            row
            for number, point in enumerate(checklist, 1)
            for row in wrap(visible(point), self._width, f"    {number}. ", f"    {BAR}")
        ]
        return ["  to be ticked for a yes", *rows]

    def _fact(self, name: str, fact: str) -> list[str]:
        return self._bounded(wrap(fact, self._width, f"  {name:<9} ", f"  {'':<9} {BAR}"), "  ", _measure(fact))

    def _name(self, name: str) -> str:
        if _PLAIN_NAME.fullmatch(name):
            return name
        if len(name) <= 40 or self._is_whole:
            return _json(name)
        self.is_cut = True
        return f"{_json(name[:40])}… ({_measure(name)})"

    def _value(self, name: str, value: Any, depth: int) -> list[str]:
        """Return one value with its name, on one line if it fits."""
        indent = "  " * depth
        head = f"{indent}{name}: " if name else indent
        if isinstance(value, str) and "\n" in value:
            return [*self._heading(head, f"a text of {_measure(value)}"), *self.text(value, f"{indent}  ")]
        shown = _json_of(value)
        if self._fits(head, shown):
            return [f"{head}{visible(shown)}"]
        if isinstance(value, dict | list) and depth < MAX_DEPTH and not _is_list_of_numbers(value):
            kind = "an object" if isinstance(value, dict) else "a list"
            rows = list(chain.from_iterable(self._entries(value, depth + 1)))
            rows = self._bounded(rows, f"{indent}  ", _measure_json(value))
            return [*self._heading(head, f"{kind} of {len(value):,}"), *rows]
        measure = _measure(value) if isinstance(value, str) else _measure_json(value)
        rows = wrap(visible(shown), self._width, f"{indent}  {BAR}")
        return [*self._heading(head, measure), *self._bounded(rows, f"{indent}  ", measure)]

    def _heading(self, head: str, what: str) -> list[str]:
        indent = len(head) - len(head.lstrip())
        return wrap(f"{head.strip()} {what}".strip(), self._width, " " * indent)

    def _entries(self, value: dict[str, Any] | list[Any], depth: int) -> Iterator[list[str]]:
        """Yield the entries of an object or a list; of very many, those in the middle are not laid out."""
        entries: list[tuple[str | int, Any]]
        entries = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
        kept = len(entries) if self._is_whole or len(entries) <= MAX_LINES else MAX_LINES
        first, last = entries[: kept - kept // 2], entries[len(entries) - kept // 2 :]
        yield from (self._entry(*entry, depth) for entry in first)
        if kept < len(entries):
            yield self._mark(f"cut: {len(entries) - kept:,} of {len(entries):,} entries", "  " * depth)
        yield from (self._entry(*entry, depth) for entry in last)

    def _entry(self, key: str | int, value: Any, depth: int) -> list[str]:
        return self._value(self._name(key) if isinstance(key, str) else f"[{key}]", value, depth)

    def _fits(self, head: str, shown: str) -> bool:
        room = self._width - len(head)
        return len(shown) <= room and cells(visible(shown)) <= room

    def _bounded(self, rows: list[str], indent: str, measure: str, limit: int = MAX_LINES) -> list[str]:
        """Cut too many *rows* in the middle, with a mark that names the missing part."""
        if self._is_whole or len(rows) <= limit:
            return rows
        first, last = limit * 5 // 8, limit * 3 // 8
        mark = self._mark(f"cut: {len(rows) - first - last:,} of {len(rows):,} lines", indent)
        whole = self._mark(f"the whole has {measure}", indent)
        return [*rows[:first], *mark, *whole, *rows[-last:]]

    def _mark(self, missing: str, indent: str) -> list[str]:
        """Return the mark that names the missing part."""
        self.is_cut = True
        return wrap(missing, self._width, f"{indent}{MARK}", f"{indent}{MARK}")


def types_wanted(schema: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the JSON types that are wanted; `None` for any."""
    try:
        return types_of(schema, schema)
    except Exception:  # noqa: BLE001  (the schema may come from a plan; one that makes no sense allows any type)
        return None


def _deadline(question: Question, left: float | None) -> list[str]:
    if question.deadline is None or left is None:
        return []
    answers = {"approve": "yes", "deny": "no", "escalate": "escalate"}
    default = answers[question.default.choice] if question.default is not None else "nobody has answered"
    return [f"  without an answer in {_duration(left)}: {default}"]


def _is_list_of_numbers(value: dict[str, Any] | list[Any]) -> bool:
    return isinstance(value, list) and not any(isinstance(entry, dict | list | str) for entry in value)


def _duration(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"


def _json(value: Any) -> str:
    return visible(_json_of(value))


def _json_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "), default=str)


def _measure(text: str) -> str:
    lines = text.count("\n") + 1
    long = f"{lines:,} lines, " if lines > 1 else ""
    return f"{long}{len(text):,} characters, SHA-256 {_hash(text)}"


def _measure_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"{len(text.encode('utf-8', 'surrogatepass')):,} bytes of JSON, SHA-256 {_hash(text)}"


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


# From the text that a person types to the value that a question asks for ----------------------------------------------

_NUMBERS: Final = (frozenset(("integer",)), frozenset(("number",)))
_YES_OR_NO: Final = {"y": True, "yes": True, "n": False, "no": False}


class BadAnswer(ValueError):
    """A typed text is not a value that the question accepts; the message has the reason."""


def read_value(text: str, schema: Mapping[str, Any]) -> Any:
    """Return the value of a typed text: JSON; or, where a text is asked for, the text itself.

    Only the value itself is checked against types, ``enum``, ``const`` and limits; the tool checks what is inside of
    lists and objects.

    Args:
        text: One line.
        schema: The JSON Schema of the value.

    Raises:
        BadAnswer: The text is no such value.
    """
    types = types_wanted(schema)
    if types == frozenset(("boolean",)) and text.strip().casefold() in _YES_OR_NO:
        return _YES_OR_NO[text.strip().casefold()]
    is_text = "string" in (types or ()) or any(isinstance(choice, str) for choice in _choices(schema) or ())
    value = _read(text, is_text=is_text, is_only_text=types == frozenset(("string",)))
    _check_choice(value, schema)
    actual = type_of(value) or frozenset()
    if types is not None and not actual <= types and not (actual == {"integer"} and "number" in types):
        raise BadAnswer(f"{words(types)} is asked for, and this is {words(actual)}")
    _check_limits(value, schema)
    return value


def _read(text: str, *, is_text: bool, is_only_text: bool) -> Any:
    is_quoted = len(text) > 1 and text.startswith('"') and text.endswith('"')
    if is_only_text and not is_quoted:
        return _typed(text)
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        if is_text:
            return _typed(text)
        raise BadAnswer(f"this is not JSON ({visible(str(error))}); a text goes in quotes") from error


def _typed(text: str) -> str:
    shown = visible(text)
    if shown != text:  # a terminal sends arrow keys, for example, as text
        raise BadAnswer(f"it holds what cannot be seen: {shown}; if it should, type it as JSON, in quotes")
    return text


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key occurs twice in one object")
    return made


def _choices(schema: Mapping[str, Any]) -> list[Any] | None:
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    return choices if isinstance(choices, list) else None


def _check_choice(value: Any, schema: Mapping[str, Any]) -> None:
    choices = _choices(schema)
    if choices is not None and not any(_is_same(value, choice) for choice in choices):
        shown = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices[:50])
        raise BadAnswer(f"it must be one of {visible(shown)}")


def _is_same(value: Any, choice: Any) -> bool:
    return type_of(value) == type_of(choice) and bool(value == choice)


def _check_limits(value: Any, schema: Mapping[str, Any]) -> None:
    measured, what = (len(value), " characters") if isinstance(value, str) else (value, "")
    if type_of(measured) not in _NUMBERS:
        return
    limits = {
        name: check for name, check in (_LENGTHS if what else _SIZES).items() if type_of(schema.get(name)) in _NUMBERS
    }
    if all(holds(measured, schema[name]) for name, (holds, _) in limits.items()):
        return
    wanted = [f"{said} {schema[name]}" for name, (_, said) in limits.items()]
    raise BadAnswer(f"it must be {' and '.join(wanted)}{what}")
