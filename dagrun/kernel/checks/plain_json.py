"""Check that a value of a plan is plain JSON: the host program can put any object into a plan."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.model.plan import Planned, Step
from dagrun.kernel.model.reference import Template, compile_template, path_text
from dagrun.kernel.model.value import MAX_ARGUMENT_BYTES, MAX_DEPTH, MAX_INT_BITS, Path, describe

MAX_DIGITS: Final = 1_000

EMPTY_ARGS: Final = Template((b"{}",))

# Writes the same JSON as templates do, so that equal arguments have equal texts. Without a check for circles.
compact_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode


def literal_json(value: Any) -> bytes:
    """Return the JSON text of a value of a plan that has no references."""
    text = compact_json(value).encode()
    # Only a key can end like this: the quotes inside a text are escaped.
    return compile_template(value)[0].pieces[0] if b'$$step":' in text else text


def text_fault(text: str) -> str | None:
    """Return why no record can hold *text*; `None` if it can."""
    if text.isascii():
        return None
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"half a character (a lone surrogate) at {error.start}"
    return None


def compile_value(
    value: Any, findings: Findings, index: int, place: str, limit: int = MAX_ARGUMENT_BYTES
) -> Template | None:
    """Turn a value of a plan into a template, or report its problems.

    Args:
        value: Any object.
        findings: Collects the problems.
        index: The index of the step.
        place: The field that the value comes from, such as ``args``.
        limit: The most bytes of JSON that it may take as it is written.

    Returns:
        The template; `None` if there was a problem.
    """
    if not value and type(value) is dict:
        return EMPTY_ARGS
    scan = _Scan(findings, index, place, limit)
    scan.value(value, (), 1)
    if not scan.is_clean:
        return None
    if not scan.has_references:
        text = literal_json(value)
        return Template((text,)) if fits(len(text), findings, index, place, limit) else None
    template, faults = compile_template(value)
    for fault in faults:
        findings.add("DR301", index, place + path_text(fault.place), text=repr(fault.text), reason=fault.reason)
    if faults or not fits(sum(map(len, template.pieces)), findings, index, place, limit):
        return None
    return template


def is_plain_json(value: Any, findings: Findings, index: int, place: str, limit: int = MAX_ARGUMENT_BYTES) -> bool:
    """Whether *value* is plain JSON of at most *limit* bytes; if not, its problems are added to *findings*."""
    scan = _Scan(findings, index, place, limit)
    scan.value(value, (), 1)
    return scan.is_clean and fits(len(compact_json(value).encode()), findings, index, place, limit)


def fits(size: int, findings: Findings, index: int, place: str, limit: int) -> bool:
    """Whether *size* bytes of JSON are at most *limit*; if not, the problem is added."""
    if size > limit:
        findings.add("DR220", index, place, field=place, size=size, limit=limit)
    return size <= limit


class _TooMuch(Exception):
    """The scan ends here: the rest would take too long, or repeat the same problem."""


@dataclass(slots=True)
class _Scan:
    """Checks every part of a value once."""

    findings: Findings
    index: int
    place: str
    limit: int
    is_clean: bool = True
    has_references: bool = False
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        # Every value but the outermost takes two bytes at least, with its comma or bracket; so more never fit. Lists
        # that share their elements can pretend to be a million times as large as they are.
        self._left = self.limit // 2 + 1

    def value(self, value: Any, path: Path, depth: int) -> None:
        try:
            self._value(value, path, depth)
        except _TooMuch:
            self.is_clean = False

    def _value(self, value: Any, path: Path, depth: int) -> None:
        self._left -= 1
        if self._left < 0:
            self._fault("DR220", (), field=self.place, size=f"over {self.limit}", limit=self.limit)
            raise _TooMuch
        match value:
            case None:
                pass
            case str():
                self._text(value, path)
            case dict():
                self._fields(value, path, depth)
            case list() | tuple():
                self._elements(value, path, depth)
            case int() | float():
                self._number(value, path)
            case _:
                self._fault("DR012", path, reason=_reason(value), found=describe(value))

    def _elements(self, elements: list[Any] | tuple[Any, ...], path: Path, depth: int) -> None:
        self._check_depth(depth)
        for number, part in enumerate(elements):
            self._value(part, (*path, number), depth + 1)

    def _fields(self, fields: dict[Any, Any], path: Path, depth: int) -> None:
        self._check_depth(depth)
        self.has_references = self.has_references or "$step" in fields
        for key, part in fields.items():
            if not isinstance(key, str):
                self._fault("DR012", path, reason="the keys of an object are texts", found=describe(key))
                continue
            if fault := text_fault(key):
                self._fault("DR013", path, reason=fault)
            self._value(part, (*path, key), depth + 1)

    def _text(self, text: str, path: Path) -> None:
        if fault := text_fault(text):
            self._fault("DR013", path, reason=fault)
        self.has_references = self.has_references or "${" in text

    def _number(self, number: float, path: Path) -> None:
        if isinstance(number, float):
            if not math.isfinite(number):
                self._fault("DR008", path, number=number, limit=MAX_DIGITS)
        elif number.bit_length() > MAX_INT_BITS:
            # Its digits are not shown, because Python refuses to print more than 4,300.
            self._fault("DR008", path, number=f"an integer of {number.bit_length()} bits", limit=MAX_DIGITS)

    def _check_depth(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fault("DR006", (), limit=MAX_DEPTH)
            raise _TooMuch

    def _fault(self, code: str, path: Path, **facts: object) -> None:
        self.is_clean = False
        try:
            where = self.place + path_text(path)
        except (TypeError, ValueError):
            where = self.place
        self.findings.add(code, self.index, where, **facts)


def _reason(value: object) -> str:
    reason = "a plan holds JSON and nothing else"
    if isinstance(value, Step):
        return f'{reason} ("${{{value.id}}}" stands for the output of that step; or write plans with tool.step(…))'
    if isinstance(value, Planned):
        return f"{reason} (dagrun.plan(…) takes steps made with tool.step(…), and writes references for them)"
    return reason
