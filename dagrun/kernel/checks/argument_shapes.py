"""Read the arguments of steps, and remember what is valid, so that a check of many steps does little work twice.

The shape of arguments is everything but their references: ``{"text": …, "parts": [… , …]}``, with a reference at each
``…``. A step's arguments are valid if their shape is valid for its tool, and if each reference has a value that fits
its place. During one check, this module remembers both: the tools that take a shape, and for each kind of value, such
as the output of one tool, the places where it fits. Only what is valid is remembered; faults are looked for again in
each step, because each has its own place in the plan.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Mapping, Sequence
from json.encoder import encode_basestring
from typing import Any, Final, TypeAlias

from dagrun.kernel.checks.plain_json import text_fault
from dagrun.kernel.checks.reference_sources import ReferenceSources
from dagrun.kernel.model.contracts.schema_types import Lookup
from dagrun.kernel.model.reference import ID_PATTERN, Reference, Template, compile_template, plain_key
from dagrun.kernel.model.value import Path

# Arguments beyond these limits have no shape. They are checked part by part, which reports limits that are exceeded.
_MAX_DEPTH: Final = 8
_MAX_VALUES: Final = 1_000
_MAX_BITS: Final = 64

_ID: Final = re.compile(ID_PATTERN)
_HOLE: Final = "\0"  # takes the place of a reference: JSON has no such character


# A kind of value that references have: its type, and the places in arguments where it is known to fit.
KnownValue: TypeAlias = tuple[Lookup, set[Hashable]]

# The facts about a reference, for all steps that use it:
# - the reference;
# - the id of the step that it refers to; `None` for the inputs of the run, an item, or an unknown id;
# - the kind of its value; `None` if it has a fault or depends on the step.
ReferenceFacts: TypeAlias = tuple[Reference, str | None, KnownValue | None]


# The arguments of one step, as they were read:
# - their template;
# - the facts about their references;
# - for each tool that takes arguments of this shape, by name: the places of the references in its schema, if they were
#   needed.
ReadArguments: TypeAlias = tuple[Template, list[ReferenceFacts], dict[str, Sequence[Hashable]]]


# The arguments of many steps without their references: as in the template and in `ReadArguments`.
_Shape: TypeAlias = tuple[tuple[bytes, ...], tuple[Path, ...], frozenset[int], dict[str, Sequence[Hashable]]]


class ArgumentShapes:
    """The shapes of arguments that one check has seen, and the references in them.

    Args:
        index: The ids that a step may refer to.
        sources: The steps and inputs that references refer to.
        limit: The most bytes of JSON that arguments may take as they are written.
    """

    def __init__(self, index: Mapping[str, int], sources: ReferenceSources, limit: int) -> None:
        self._index = index
        self._sources = sources
        self._limit = limit
        self._shapes: dict[str, _Shape | None] = {}  # by the JSON, with `_HOLE` in it
        self._known: dict[str, ReferenceFacts] = {}  # by the text of a reference
        self._values: dict[int, KnownValue] = {}  # by the address of the type, which each keeps
        self._names: dict[str, str] = {}  # keys as JSON
        # Of the arguments that are being read:
        self._json: list[str] = []
        self._references: list[ReferenceFacts] = []
        self._places: list[Path] = []
        self._in_texts: list[int] = []
        self._left = 0  # how many more values they may have

    def read(self, args: dict[str, Any]) -> ReadArguments | None:
        """Read the arguments of a step; `None` if they may have a fault, so that they must be checked part by part."""
        if type(args) is not dict or "$step" in args:
            return None
        self._json, self._references, self._places, self._in_texts = [], [], [], []
        self._left = _MAX_VALUES
        try:
            self._fields(args, (), _MAX_DEPTH)
        except _NoShape:
            return None
        json, references = "".join(self._json), self._references
        shape = self._shapes.get(json)
        if shape is None:
            data = json.encode()
            if len(data) - len(references) > self._limit:
                return None
            shape = (tuple(data.split(b"\0")), tuple(self._places), frozenset(self._in_texts), {})
            if references:  # arguments without references hardly occur twice; of others, what occurs once is not kept
                self._shapes[json] = shape if json in self._shapes else None
        pieces, places, texts, valid = shape
        return Template(pieces, tuple([facts[0] for facts in references]), places, texts), references, valid

    def _fields(self, fields: dict[Any, Any], place: Path, depth: int) -> None:
        self._left -= len(fields)
        if self._left < 0 or not depth:
            raise _NoShape
        add, known, names, mark = self._json.append, self._known.get, self._names, "{"
        refer, put = self._references.append, self._places.append
        for key, value in fields.items():
            if type(key) is not str:
                raise _NoShape
            name = names.get(key) or self._name(key)
            if type(value) is str and (facts := known(value)) is not None:  # as here and below, for speed
                add(f"{mark}{name}\0")
                refer(facts)
                put((*place, key))
            else:
                add(mark + name)
                self._value(value, (*place, key), depth)
            mark = ","
        add("}" if fields else "{}")

    def _name(self, key: str) -> str:
        if not key.isascii() and text_fault(key) is not None:
            raise _NoShape
        name = self._names[key] = f"{encode_basestring(plain_key(key))}:"
        return name

    def _elements(self, elements: list[Any], place: Path, depth: int) -> None:
        self._left -= len(elements)
        if self._left < 0 or not depth:
            raise _NoShape
        add, known, mark = self._json.append, self._known.get, "["
        for number, value in enumerate(elements):
            if type(value) is str and (facts := known(value)) is not None:
                add(f"{mark}\0")
                self._references.append(facts)
                self._places.append((*place, number))
            else:
                add(mark)
                self._value(value, (*place, number), depth)
            mark = ","
        add("]" if elements else "[]")

    def _value(self, value: Any, place: Path, depth: int) -> None:
        # Exact types only: a subclass may override any method.
        kind = type(value)
        if kind is str:
            if "${" in value or not value.isascii():
                self._text(value, place)
            else:
                self._json.append(encode_basestring(value))
        elif kind is dict:
            if "$step" in value:
                self._object(value, place)
            else:
                self._fields(value, place, depth - 1)
        elif kind is list:
            self._elements(value, place, depth - 1)
        elif value is None or kind is bool:
            self._json.append("null" if value is None else "true" if value else "false")
        elif (kind is int and value.bit_length() <= _MAX_BITS) or (kind is float and math.isfinite(value)):
            self._json.append(repr(value))
        else:
            raise _NoShape

    def _text(self, text: str, place: Path) -> None:
        """Read a text that may have references."""
        name = text[2:-1]  # by far the most references are whole outputs
        if name in self._index and text == f"${{{name}}}" and _ID.fullmatch(name):
            facts = self._known[text] = self._facts_of(Reference(name))
            self._json.append(_HOLE)
            self._references.append(facts)
            self._places.append(place)
        elif not text.isascii() and text_fault(text) is not None:
            raise _NoShape
        elif "${" in text:
            self._template(text, place)
        else:
            self._json.append(encode_basestring(text))

    def _object(self, fields: dict[Any, Any], place: Path) -> None:
        """Read a reference that is written as an object."""
        if not all(type(key) is str and type(part) is str and text_fault(part) is None for key, part in fields.items()):
            raise _NoShape
        self._template(fields, place)

    def _template(self, value: Any, place: Path) -> None:
        template, faults = compile_template(value)
        if faults:
            raise _NoShape
        json = b"\0".join(template.pieces).decode()
        self._json.append(json)
        if json == _HOLE and type(value) is str:
            self._known[value] = self._facts_of(template.references[0])
        for reference in template.references:
            if json != _HOLE:
                self._in_texts.append(len(self._references))
            self._references.append(self._facts_of(reference))
            self._places.append(place)

    def _facts_of(self, reference: Reference) -> ReferenceFacts:
        name = reference.step
        source = name if name in self._index else None
        # An item belongs to a different list in each step, so nothing can be remembered about it.
        if name == "item" or (source is None and name != "input"):
            return reference, source, None
        lookup = self._sources.look_up(reference)
        value = self._values.get(id(lookup))
        if value is None:
            # Two classes of objects in memory may have one name, so these are compared in each step.
            if lookup.missing is not None or lookup.hint is not None:
                return reference, source, None
            value = self._values[id(lookup)] = (lookup, set())
        return reference, source, value


class _NoShape(Exception):
    """The arguments may have a fault."""
