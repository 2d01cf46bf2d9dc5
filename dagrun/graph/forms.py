"""Forms of arguments: what stands around the references of a step, looked at once per check and not at every step.

A plan has many steps, but few forms of arguments: ``{"text": …, "parts": [… , …]}``, with a reference at each ``…``.
What a form compiles to, and that a tool takes it with values of certain types in it, is kept for as long as the check
takes. Only what is right is kept: what is wrong is looked at anew in each step, and told with its own place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dagrun.graph.plain_json import encode_plain, text_fault
from dagrun.graph.sources import Sources
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


class Known(NamedTuple):
    """What is known of a reference, whichever step uses it. A tuple, so that many can be turned into columns at once.

    Attributes:
        reference: The reference.
        source: The id of the step of the plan that it is to; `None` for the inputs of the run, an item, or nothing.
        types: The JSON types that can stand there; `None` for any; `WRONG` if somebody must say what is wrong with it.
    """

    reference: Reference
    source: str | None
    types: Hashable


@dataclass(slots=True)
class Form:
    """What arguments are but for their references.

    Attributes:
        pieces: The JSON text around the references.
        places: Where the references stand.
        right: The tools, by name, that were found to take it, each with the types of what the references stand for.
    """

    pieces: tuple[bytes, ...]
    places: tuple[Path, ...] = ()
    right: set[Hashable] = field(default_factory=set)


@dataclass(slots=True)
class Filled:
    """The arguments of one step: a form, and for each reference in it the facts of `Known`."""

    form: Form
    references: tuple[Reference, ...] = ()
    ids: tuple[str | None, ...] = ()
    types: tuple[Hashable, ...] = ()

    def template(self) -> Template:
        """The arguments, ready to be filled."""
        return Template(self.form.pieces, tuple(map(Hole, self.references, self.form.places)))

    def sources(self) -> dict[str, None]:
        """The ids of the steps that it refers to, in the order of first mention."""
        return dict.fromkeys(id_ for id_ in self.ids if id_ is not None)

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


class Forms:
    """The forms of arguments that one check has met, and the references in them.

    Args:
        index: What a step may refer to, by id.
        sources: What stands behind references.
    """

    __slots__ = ("_forms", "_index", "_sources", "_texts")

    def __init__(self, index: Mapping[str, int], sources: Sources) -> None:
        self._index = index
        self._sources = sources
        self._forms: dict[Hashable, Form] = {}
        self._texts: dict[str, Known] = {}

    def of(self, args: dict[str, Any]) -> Filled | None:
        """Find the form of the arguments of a step.

        Returns:
            The form and the references; `None` if something is strange about the arguments, or they have references
            inside longer texts: then they must be looked at part by part.
        """
        if type(args) is not dict or "$step" in args:
            return None
        outline = _Outline(self._texts, self._look_at)
        try:
            key = outline.of(args, _MAX_DEPTH)
        except _Strange:
            return None
        if not outline.references:  # hardly comes twice
            return Filled(Form((encode_plain(args).encode(),)))
        form = self._forms.get(key)
        if form is None:
            template, _ = compile_template(args)  # plain JSON, in which every reference can be read: it has no faults
            form = self._forms[key] = Form(template.pieces, tuple(hole.place for hole in template.holes))
        return Filled(form, *zip(*outline.references, strict=True))

    def _look_at(self, reference: Reference) -> Known:
        """Find out what a reference stands for."""
        name = reference.step
        source = name if name in self._index else None
        # An item is of another list in each step.
        if name == "item" or (source is None and name != "input"):
            return Known(reference, source, WRONG)
        found = self._sources.look_up(reference)
        return Known(reference, source, found.types if found.missing is None else WRONG)


class _Strange(Exception):
    """The arguments are not of a form that is known to be harmless."""


class _Outline:
    """What arguments are without their references, as something that can be compared; and the references.

    Equal outlines have equal JSON, and nothing in that is wrong: it is plain, and not too much.

    Args:
        texts: The references that were met before, as they are written; new ones are put there.
        look_at: Finds out what a reference stands for.
    """

    __slots__ = ("_left", "_look_at", "_texts", "references")

    def __init__(self, texts: dict[str, Known], look_at: Callable[[Reference], Known]) -> None:
        self.references: list[Known] = []
        self._texts = texts
        self._look_at = look_at
        self._left = _MAX_VALUES

    def of(self, value: Any, depth: int) -> Hashable:
        # Of these very types: a subclass may say anything of itself.
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is list:
            return self._parts(["["], value, depth)
        if kind is dict:
            return self._fields(value, depth)
        if value is None or kind is bool:
            return value  # type: ignore[no-any-return]
        if kind is int and value.bit_length() <= _MAX_BITS:
            return (int, value)  # not alone: 1 == True
        if kind is float and math.isfinite(value):
            return (float, repr(value))  # as a text: 0.0 == -0.0
        raise _Strange

    def _text(self, text: str) -> Hashable:
        if "${" in text:
            known = self._texts[text] = self._look_at(_parse(text))
            self.references.append(known)
            return _HERE
        if not text.isascii() and text_fault(text) is not None:
            raise _Strange
        return text

    def _fields(self, fields: dict[Any, Any], depth: int) -> Hashable:
        if "$step" in fields:
            self.references.append(self._look_at(_parse_object(fields)))
            return _HERE
        for key in fields:
            if type(key) is not str or (not key.isascii() and text_fault(key) is not None):
                raise _Strange
        return self._parts(["{", *fields], fields.values(), depth)

    def _parts(self, outline: list[Hashable], parts: Collection[Any], depth: int) -> Hashable:
        self._left -= len(parts)
        if self._left < 0 or not depth:
            raise _Strange
        known_text = self._texts.get
        for part in parts:
            if type(part) is str and (known := known_text(part)) is not None:
                self.references.append(known)
                outline.append(_HERE)
            else:
                outline.append(self.of(part, depth - 1))
        return tuple(outline)


def _parse(text: str) -> Reference:
    """Read a reference that is a whole text."""
    if (simple := _WHOLE_OUTPUT.fullmatch(text)) is not None:
        return Reference(simple[1])
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
