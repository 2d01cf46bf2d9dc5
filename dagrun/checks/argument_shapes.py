"""Forms of arguments: what stands around the references of a step, looked at once per check and not at every step.

A plan has many steps, but few forms of arguments: ``{"text": …, "parts": [… , …]}``, with a reference at each ``…``.
What a form compiles to, and that a tool takes it with values of certain types in it, is kept for as long as the check
takes. Only what is right is kept: what is wrong is looked at anew in each step, and told with its own place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dagrun.checks.plain_json import compact_json, text_fault
from dagrun.checks.reference_sources import ReferenceSources
from dagrun.model.reference import (
    HOLE,
    ID_PATTERN,
    BadReference,
    Hole,
    Reference,
    Template,
    compile_template,
    parse_path,
    parse_reference,
)
from dagrun.model.value import Path

# Arguments beyond these are looked at the long way, which has words for what is too much.
_MAX_DEPTH: Final = 8
_MAX_VALUES: Final = 1_000
_MAX_BITS: Final = 64

_ID: Final = re.compile(ID_PATTERN)
_WHOLE_OUTPUT: Final = re.compile(rf"\$\{{({ID_PATTERN})\}}")  # by far the most frequent reference
WRONG: Final = object()
_HERE: Final = object()  # stands in an outline where a reference is

# What is known of a reference, whichever step uses it: the reference; the id of the step of the plan that it is to,
# `None` for the inputs of the run, an item, or nothing; and the JSON types that can stand there, `None` for any,
# `WRONG` if somebody must say what is wrong with it. A tuple, so that many can be turned into columns at once.
Known: TypeAlias = tuple[Reference, str | None, Hashable]


@dataclass(slots=True)
class ArgumentShape:
    """What arguments are but for their references.

    Attributes:
        pieces: The JSON text around the references.
        places: Where the references stand.
        right: The tools, by name, that were found to take it, each with the types of what the references stand for.
        size: Bytes of the text.
    """

    pieces: tuple[bytes, ...]
    places: tuple[Path, ...] = ()
    right: set[Hashable] = field(default_factory=set)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(map(len, self.pieces))


@dataclass(slots=True)
class ShapedArguments:
    """The arguments of one step: a form, and for each reference in it the facts of `Known`."""

    form: ArgumentShape
    references: tuple[Reference, ...] = ()
    ids: tuple[str | None, ...] = ()
    types: tuple[Hashable, ...] = ()

    def template(self) -> Template:
        """The arguments, ready to be filled."""
        return Template(self.form.pieces, tuple(map(Hole, self.references, self.form.places)))

    def sources(self) -> dict[str, None]:
        """The ids of the steps that it refers to, in the order of first mention."""
        found: dict[str | None, None] = dict.fromkeys(self.ids)
        found.pop(None, None)
        return found  # type: ignore[return-value]  # what was no id is gone

    def is_right(self, tool: str, step: str) -> bool:
        """Whether it has been found before that there is nothing wrong with such arguments of a tool.

        Args:
            tool: Its name.
            step: The id of the step, which can't use its own output.
        """
        return (tool, self.types) in self.form.right and step not in self.ids

    def note_right(self, tool: str) -> None:
        """Keep that there is nothing wrong with such arguments of a tool."""
        if WRONG not in self.types:
            self.form.right.add((tool, self.types))


class ArgumentShapes:
    """The forms of arguments that one check has met, and the references in them.

    Args:
        index: What a step may refer to, by id.
        sources: What stands behind references.
    """

    __slots__ = ("_forms", "_outline")

    def __init__(self, index: Mapping[str, int], sources: ReferenceSources) -> None:
        self._forms: dict[Hashable, ArgumentShape] = {}
        self._outline = _Outline(index, sources)

    def of(self, args: dict[str, Any]) -> ShapedArguments | None:
        """Find the form of the arguments of a step.

        Returns:
            The form and the references; `None` if something is strange about the arguments, or they have references
            inside longer texts: then they must be looked at part by part.
        """
        if type(args) is not dict or "$step" in args:
            return None
        try:
            key, references = self._outline.whole(args)
        except _Strange:
            return None
        if not references:  # hardly comes twice
            return ShapedArguments(ArgumentShape((compact_json(args).encode(),)))
        form = self._forms.get(key)
        if form is None:
            template, _ = compile_template(args)  # plain JSON, in which every reference can be read: it has no faults
            form = self._forms[key] = ArgumentShape(template.pieces, tuple(hole.place for hole in template.holes))
        return ShapedArguments(form, *zip(*references, strict=True))


class _Strange(Exception):
    """The arguments are not of a form that is known to be harmless."""


class _Outline:
    """What arguments are without their references, as something that can be compared; and the references.

    Equal outlines have equal JSON, and nothing in that is wrong: it is plain, and not too much.

    There is one for all steps, which keeps the references that were met before, by the text that they are written as.

    Args:
        index: As for `ArgumentShapes`.
        sources: As for `ArgumentShapes`.
    """

    __slots__ = ("_index", "_left", "_references", "_sources", "_texts")

    def __init__(self, index: Mapping[str, int], sources: ReferenceSources) -> None:
        self._index = index
        self._sources = sources
        self._texts: dict[str, Known] = {}
        self._references: list[Known] = []
        self._left = 0

    def whole(self, args: dict[str, Any]) -> tuple[Hashable, list[Known]]:
        """The outline of all arguments, and the references in it.

        Raises:
            _Strange: There is none.
        """
        self._references = []
        self._left = _MAX_VALUES
        return self._fields(args, _MAX_DEPTH), self._references

    def _of(self, value: Any, depth: int) -> Hashable:
        # Of these very types: a subclass may say anything of itself.
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
            return (int, value)  # not alone: 1 == True
        if kind is float and math.isfinite(value):
            return (float, repr(value))  # as a text: 0.0 == -0.0
        raise _Strange

    def _text(self, text: str) -> Hashable:
        if "${" in text:
            simple = _WHOLE_OUTPUT.fullmatch(text)
            reference = Reference(simple[1]) if simple is not None else _parse(text)
            known = self._texts[text] = self._look_at(reference)
            self._references.append(known)
            return _HERE
        if not text.isascii() and text_fault(text) is not None:
            raise _Strange
        return text

    def _object(self, fields: dict[Any, Any], depth: int) -> Hashable:
        if "$step" in fields:
            self._references.append(self._look_at(_parse_object(fields)))
            return _HERE
        return self._fields(fields, depth)

    def _fields(self, fields: dict[Any, Any], depth: int) -> Hashable:
        self._left -= len(fields)
        if self._left < 0 or not depth:
            raise _Strange
        outline: list[Hashable] = ["{"]
        for key, value in fields.items():
            if type(key) is not str or (not key.isascii() and text_fault(key) is not None):
                raise _Strange
            outline.append(key)
            outline.append(self._elements(value, depth - 1) if type(value) is list else self._part(value, depth - 1))
        return tuple(outline)

    def _elements(self, elements: list[Any], depth: int) -> Hashable:
        self._left -= len(elements)
        if self._left < 0 or not depth:
            raise _Strange
        outline: list[Hashable] = ["["]
        add, known_text, references = outline.append, self._texts.get, self._references
        for part in elements:
            if type(part) is not str:
                add(self._of(part, depth - 1))
            elif (known := known_text(part)) is None:
                add(self._text(part))
            else:
                references.append(known)
                add(_HERE)
        return tuple(outline)

    def _part(self, value: Any, depth: int) -> Hashable:
        if type(value) is str and (known := self._texts.get(value)) is not None:
            self._references.append(known)
            return _HERE
        return self._of(value, depth)

    def _look_at(self, reference: Reference) -> Known:
        name = reference.step
        source = name if name in self._index else None
        # An item is of another list in each step.
        if name == "item" or (source is None and name != "input"):
            return reference, source, WRONG
        found = self._sources.look_up(reference)
        return reference, source, found.types if found.missing is None else WRONG


def _parse(text: str) -> Reference:
    """Read a reference that is a whole text."""
    whole = HOLE.fullmatch(text)
    if whole is None or whole[1] is None or text[-1] != "}" or text_fault(text) is not None:
        raise _Strange
    try:
        return parse_reference(text)
    except BadReference:
        raise _Strange from None


def _parse_object(fields: dict[Any, Any]) -> Reference:
    """Read a reference that is written as an object."""
    step, path = fields["$step"], fields.get("path", "")
    if type(step) is not str or type(path) is not str or fields.keys() - {"$step", "path"}:
        raise _Strange
    if _ID.fullmatch(step) is None or text_fault(path) is not None:
        raise _Strange
    try:
        return Reference(step, parse_path(path))
    except BadReference:
        raise _Strange from None
