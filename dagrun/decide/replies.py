"""Answers of people: which of them fit their questions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from dagrun.errors import ValueRefused, shorten
from dagrun.model.effect import Effect
from dagrun.model.question import Answer, Asked, Question
from dagrun.model.value import decode, describe, encode

_CHOICES: Final = ("approve", "deny", "escalate")
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


def fault_of(question: Question, answer: Answer) -> str:
    """Say why *answer* does not fit *question*; empty if it does. Its fields may hold anything: hosts fill them."""
    if answer.choice not in _CHOICES:
        return f"the choice is one of {', '.join(_CHOICES)}, not {shorten(repr(answer.choice), 60)}"
    said = (answer.by, answer.note)
    ticked: Any = answer.ticked  # a text would tick every point that stands anywhere in it
    if not isinstance(ticked, tuple | list) or not all(isinstance(text, str) for text in (*said, *ticked)):
        return "by and note are texts, and ticked is a tuple of texts"
    try:
        encode([*said, *ticked])
        value = decode(encode(answer.value))
    except ValueRefused as error:
        return f"it cannot be kept: {error}"
    if answer.choice != "approve":
        return ""
    missing = [point for point in question.checklist if point not in answer.ticked]
    if missing:
        return f"these points are not ticked: {'; '.join(missing)}"
    if question.kind is Asked.INPUT and question.schema is not None:
        return type_fault(question.schema, value)
    return ""


def kept(answer: Answer) -> Answer:
    """A copy of *answer* that nobody else holds."""
    return replace(answer, value=decode(encode(answer.value)), ticked=tuple(answer.ticked))


def type_fault(schema: Mapping[str, Any], value: Any) -> str:
    """Say why *value* is not of the type, or none of the values, that a JSON schema names at its top; else nothing."""
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        faults = [type_fault(choice, value) for choice in choices if isinstance(choice, Mapping)]
        if faults and all(faults):
            return " or ".join(dict.fromkeys(faults))
    known = schema.get("enum")
    if isinstance(known, list) and not any(type(value) is type(one) and value == one for one in known):
        return f"the value must be one of {shorten(json.dumps(known, ensure_ascii=False))}"
    wanted = schema.get("type")
    names = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(names, list | tuple) or not names or any(_is_of_type(value, name) for name in names):
        return ""
    return f"the value must be of type {' or '.join(map(str, names))}, got {describe(value)}"


def _is_of_type(value: Any, name: object) -> bool:
    known = _TYPES.get(name) if isinstance(name, str) else None
    if isinstance(value, bool):
        return known is None or name == "boolean"
    return known is None or isinstance(value, known)


def refuse_batch(questions: Iterable[Question], answer: Answer) -> str:
    """Say why one answer must not stand for all of *questions*; empty if it may.

    Calls that change the world each time are agreed to one by one, by somebody who has looked at each.
    """
    asked = list(questions)
    if len(asked) < 2 or answer.choice != "approve":
        return ""
    single = [q.step for q in asked if q.effect == Effect.EFFECTFUL or q.checklist or q.kind is not Asked.APPROVAL]
    return f"these must be answered one by one: {', '.join(single)}" if single else ""
