"""Shapes of arguments, so that equal arguments of many steps are checked once.

The shape of arguments is everything but their references: ``{"text": …, "parts": [… , …]}``, with a reference at each
``…``. A plan has many steps, but few shapes. During one check, this module remembers for each shape its template, and
which tools take it with references to values of which types. Only valid arguments are remembered; faults are looked for
again in each step, because each has its own place in the plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dagrun.kernel.checks.plain_json import literal_json, text_fault
from dagrun.kernel.checks.reference_sources import ReferenceSources
from dagrun.kernel.model.contracts.schema_types import Lookup
from dagrun.kernel.model.reference import (
    HOLE,
    ID_PATTERN,
    BadReference,
    Reference,
    Template,
    compile_template,
    parse_path,
    parse_reference,
)
from dagrun.kernel.model.value import Path

# Arguments beyond these limits have no shape. They are checked part by part, which reports limits that are exceeded.
_MAX_DEPTH: Final = 8
_MAX_VALUES: Final = 1_000
_MAX_BITS: Final = 64

_ID: Final = re.compile(ID_PATTERN)
INVALID: Final = object()
_CONTAINERS: Final = frozenset(("array", "object"))
_REFERENCE: Final = object()  # takes the place of a reference in an outline

# The facts about a reference, for all steps that use it:
# - the reference;
# - the id of the step that it refers to; `None` for the inputs of the run, an item, or an unknown id;
# - the JSON types that its value can have; `None` for any, `INVALID` if it has a fault or depends on the step.
# They are a tuple, so that `zip` turns the facts about many references into columns.
ReferenceFacts: TypeAlias = tuple[Reference, str | None, Hashable]


@dataclass(slots=True)
class ArgumentShape:
    """Arguments without their references.

    Attributes:
        pieces: The JSON text around the references.
        places: The places of the references.
        valid: Pairs of the name of a tool and the types of the references, with which the arguments are valid.
        size: Bytes of the text.
    """

    pieces: tuple[bytes, ...]
    places: tuple[Path, ...] = ()
    valid: set[Hashable] = field(default_factory=set)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.pieces))


@dataclass(slots=True)
class ShapedArguments:
    """The arguments of one step: their shape, and a column for each of the facts about their references."""

    shape: ArgumentShape
    references: tuple[Reference, ...] = ()
    ids: tuple[str | None, ...] = ()
    types: tuple[Hashable, ...] = ()

    def template(self) -> Template:
        """Return the template of the arguments."""
        return Template(self.shape.pieces, self.references, self.shape.places)

    def sources(self) -> dict[str, None]:
        """Return the ids of the steps that the arguments refer to, in the order of first mention."""
        ids: dict[str | None, None] = dict.fromkeys(self.ids)
        ids.pop(None, None)
        return ids  # type: ignore[return-value]  # `None` was removed

    def is_known_valid(self, tool: str, step: str) -> bool:
        """Whether equal arguments of a tool were found valid before.

        Args:
            tool: The name of the tool.
            step: The id of the step, which cannot use its own output.
        """
        return (tool, self.types) in self.shape.valid and step not in self.ids

    def mark_valid(self, tool: str) -> None:
        """Remember that these arguments of a tool are valid."""
        if INVALID not in self.types:
            self.shape.valid.add((tool, self.types))


class ArgumentShapes:
    """The shapes of arguments that one check has seen, and the references in them.

    Args:
        index: The ids that a step may refer to.
        sources: The steps and inputs that references refer to.
    """

    __slots__ = ("_outline", "_shapes")

    def __init__(self, index: Mapping[str, int], sources: ReferenceSources) -> None:
        self._shapes: dict[Hashable, ArgumentShape] = {}
        self._outline = _Outline(index, sources)

    def find(self, args: dict[str, Any]) -> ShapedArguments | None:
        """Find the shape of the arguments of a step.

        Returns:
            The shape and the references; `None` if the arguments have no shape, because they may have a fault or have
            references inside longer texts. Then they must be checked part by part.
        """
        if type(args) is not dict or "$step" in args:
            return None
        try:
            key, references = self._outline.whole(args)
        except _NoShape:
            return None
        if not references:  # not remembered, because arguments without references hardly occur twice
            return ShapedArguments(ArgumentShape((literal_json(args),)))
        shape = self._shapes.get(key)
        if shape is None:
            template, _ = compile_template(args)  # without faults: the outline is plain JSON and has valid references
            shape = self._shapes[key] = ArgumentShape(template.pieces, template.places)
        return ShapedArguments(shape, *zip(*references, strict=True))


class _NoShape(Exception):
    """The arguments may have a fault, or have references inside longer texts."""


class _Outline:
    """Takes arguments apart: into an outline without the references, which can be compared, and the references.

    Equal outlines have equal JSON. An outline has no faults: it is plain JSON within the limits.

    One object serves all steps of a check. It remembers the facts about each reference by its text.

    Args:
        index: As for `ArgumentShapes`.
        sources: As for `ArgumentShapes`.
    """

    __slots__ = ("_index", "_left", "_references", "_sources", "_texts")

    def __init__(self, index: Mapping[str, int], sources: ReferenceSources) -> None:
        self._index = index
        self._sources = sources
        self._texts: dict[str, ReferenceFacts] = {}
        self._references: list[ReferenceFacts] = []
        self._left = 0  # how many more values the arguments may have

    def whole(self, args: dict[str, Any]) -> tuple[Hashable, list[ReferenceFacts]]:
        """Return the outline of all arguments, and the references in them.

        Raises:
            _NoShape: There is no outline.
        """
        self._references = []
        self._left = _MAX_VALUES
        return self._fields(args, _MAX_DEPTH), self._references

    def _value(self, value: Any, depth: int) -> Hashable:
        # Exact types only: a subclass may override any method.
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is list:
            return self._elements(value, depth)
        if kind is dict:
            return self._object(value, depth)
        if value is None or kind is bool:
            return value  # type: ignore[no-any-return]
        if kind is int and value.bit_length() <= _MAX_BITS:
            return (int, value)  # with its type, because 1 == True
        if kind is float and math.isfinite(value):
            return (float, repr(value))  # as a text, because 0.0 == -0.0
        raise _NoShape

    def _text(self, text: str) -> Hashable:
        if "${" in text:
            name = text[2:-1]  # by far the most references are whole outputs
            is_whole = name in self._index and _ID.fullmatch(name) and text == f"${{{name}}}"
            facts = self._texts[text] = self._facts_of(Reference(name) if is_whole else _parse(text))
            self._references.append(facts)
            return _REFERENCE
        if not text.isascii() and text_fault(text) is not None:
            raise _NoShape
        return text

    def _object(self, fields: dict[Any, Any], depth: int) -> Hashable:
        if "$step" in fields:
            self._references.append(self._facts_of(_parse_object(fields)))
            return _REFERENCE
        return self._fields(fields, depth)

    def _fields(self, fields: dict[Any, Any], depth: int) -> Hashable:
        self._left -= len(fields)
        if self._left < 0 or not depth:
            raise _NoShape
        outline: list[Hashable] = ["{"]
        for key, value in fields.items():
            if type(key) is not str or (not key.isascii() and text_fault(key) is not None):
                raise _NoShape
            outline.append(key)
            outline.append(self._elements(value, depth - 1) if type(value) is list else self._field(value, depth - 1))
        return tuple(outline)

    def _elements(self, elements: list[Any], depth: int) -> Hashable:
        self._left -= len(elements)
        if self._left < 0 or not depth:
            raise _NoShape
        outline: list[Hashable] = ["["]
        add, facts_of_text, references = outline.append, self._texts.get, self._references
        for part in elements:
            if type(part) is not str:
                add(self._value(part, depth - 1))
            elif (facts := facts_of_text(part)) is None:
                add(self._text(part))
            else:
                references.append(facts)
                add(_REFERENCE)
        return tuple(outline)

    def _field(self, value: Any, depth: int) -> Hashable:
        if type(value) is str and (facts := self._texts.get(value)) is not None:
            self._references.append(facts)
            return _REFERENCE
        return self._value(value, depth)

    def _facts_of(self, reference: Reference) -> ReferenceFacts:
        name = reference.step
        source = name if name in self._index else None
        # An item belongs to a different list in each step, so nothing can be remembered about it.
        if name == "item" or (source is None and name != "input"):
            return reference, source, INVALID
        lookup = self._sources.look_up(reference)
        # Two classes of objects in memory may have one name, so these are compared in each step.
        is_known = lookup.missing is None and lookup.hint is None
        return reference, source, self._kind_of(reference, lookup) if is_known else INVALID

    def _kind_of(self, reference: Reference, lookup: Lookup) -> Hashable:
        """Return a key that is equal for all values of a type; for lists and objects, also for their content."""
        if not lookup.schemas or (lookup.types or _CONTAINERS).isdisjoint(_CONTAINERS):
            return lookup.types
        step = self._sources.producer(reference.step)
        return (lookup.types, step.tool, step.fallback, step.for_each is None, step.on_failure, reference.path)


def _parse(text: str) -> Reference:
    """Read a reference that is a whole text."""
    whole = HOLE.fullmatch(text)
    if whole is None or whole[1] is None or text[-1] != "}" or text_fault(text) is not None:
        raise _NoShape
    try:
        return parse_reference(text)
    except BadReference:
        raise _NoShape from None


def _parse_object(fields: dict[Any, Any]) -> Reference:
    """Read a reference that is written as an object."""
    step, path = fields["$step"], fields.get("path", "")
    if type(step) is not str or type(path) is not str or fields.keys() - {"$step", "path"}:
        raise _NoShape
    if _ID.fullmatch(step) is None or text_fault(path) is not None:
        raise _NoShape
    try:
        return Reference(step, parse_path(path))
    except BadReference:
        raise _NoShape from None
