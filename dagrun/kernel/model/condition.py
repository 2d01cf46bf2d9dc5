"""Conditions of steps (`when`, `success`): closed JSON predicates, never expressions.

A condition is a comparison such as ``{"ref": "clean.rows", "op": ">", "value": 0}``, or ``all``, ``any`` or ``not`` of
conditions. Richer rules are critics.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagrun.errors import fields_repr
from dagrun.kernel.model.reference import Reference, parse_reference
from dagrun.kernel.model.value import describe

Op = Literal["==", "!=", "<", "<=", ">", ">=", "in", "contains", "exists", "min_length", "max_length"]

_ORDER: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ConditionMismatch(Exception):
    """A condition compares values that cannot be compared; the step fails."""


class Condition(BaseModel):
    """One predicate: either ``ref``, ``op`` and ``value``, or one of ``all``, ``any``, ``not``.

    ``in`` and ``contains`` search lists, texts and the keys of objects. ``exists`` takes true or false. Numbers compare
    with numbers, and texts with texts. Any other comparison is a mismatch: a failure, not "false".
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, populate_by_name=True)

    ref: str | None = None
    op: Op | None = None
    value: Any = None
    all: list[Condition] | None = None
    any: list[Condition] | None = None
    not_: Condition | None = Field(default=None, alias="not")

    def __repr__(self) -> str:
        said = [name for name in type(self).model_fields if name in self.model_fields_set]
        return fields_repr(self, [(name, getattr(self, name)) for name in said])

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = [name for name in ("ref", "all", "any", "not_") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("a condition has exactly one of ref, all, any, not")
        if (kinds == ["ref"]) != (self.op is not None):
            raise ValueError("op goes with ref, and ref with op")
        if kinds == ["ref"] and "value" not in self.model_fields_set and self.op != "exists":
            raise ValueError(f"{self.op} needs a value")
        return self

    def leaves(self) -> Iterator[Condition]:
        """Yield every comparison in the condition."""
        left = [self]  # not recursive: a condition that the host builds may be nested too deeply for that
        while left:
            part = left.pop()
            if part.ref is not None:
                yield part
            inner = (*(part.all or ()), *(part.any or ()), *((part.not_,) if part.not_ else ()))
            left += reversed(inner)

    def looks_at(self, source: str) -> bool:
        """Whether a comparison refers to *source*: the id of a step, ``input`` or ``item``."""
        return any(re.split(r"[.\[]", leaf.ref or "", maxsplit=1)[0] == source for leaf in self.leaves())

    @property
    def reference(self) -> Reference:
        """The value that a comparison looks at.

        Raises:
            BadReference: *ref* is not a reference.
        """
        return parse_reference(self.ref or "")


def holds(condition: Condition, look_up: Callable[[Reference], Any]) -> bool:
    """Evaluate *condition*.

    Args:
        condition: The predicate.
        look_up: Returns the decoded value of a reference; raises `LookupError` if there is none.

    Raises:
        ConditionMismatch: The types do not fit, or a value is missing.
    """
    if condition.all is not None:
        return all(holds(part, look_up) for part in condition.all)
    if condition.any is not None:
        return any(holds(part, look_up) for part in condition.any)
    if condition.not_ is not None:
        return not holds(condition.not_, look_up)
    return _compare(condition, look_up)


def _compare(condition: Condition, look_up: Callable[[Reference], Any]) -> bool:
    reference = condition.reference
    try:
        value = look_up(reference)
    except LookupError as error:
        if condition.op == "exists":
            return condition.value is False
        raise ConditionMismatch(f"{reference}: {error}") from error
    wanted = condition.value
    match condition.op:
        case "exists":
            return wanted is not False
        case "==":
            return _equal(value, wanted)
        case "!=":
            return not _equal(value, wanted)
        case "in":
            return _contains(wanted, value, reference)
        case "contains":
            return _contains(value, wanted, reference)
        case "min_length" | "max_length":
            return _fits_length(condition.op, value, wanted, reference)
        case _:
            return _fits_order(str(condition.op), value, wanted, reference)


def _equal(left: Any, right: Any) -> bool:
    # JSON's true is not 1, whatever Python says.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _contains(where: Any, what: Any, reference: Reference) -> bool:
    if isinstance(where, str) and isinstance(what, str):
        return what in where
    if isinstance(where, dict):
        return what in where if isinstance(what, str) else False
    if isinstance(where, list):
        return any(_equal(element, what) for element in where)
    raise ConditionMismatch(f"{reference}: nothing can be looked for in {describe(where)}")


def _fits_length(op: str, value: Any, wanted: Any, reference: Reference) -> bool:
    if not isinstance(value, str | list | dict):
        raise ConditionMismatch(f"{reference}: {describe(value)} has no length")
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise ConditionMismatch(f"{reference}: {op} needs a whole number, got {describe(wanted)}")
    return len(value) >= wanted if op == "min_length" else len(value) <= wanted


def _fits_order(op: str, left: Any, right: Any, reference: Reference) -> bool:
    numbers = all(isinstance(side, int | float) and not isinstance(side, bool) for side in (left, right))
    if not numbers and not (isinstance(left, str) and isinstance(right, str)):
        raise ConditionMismatch(f"{reference}: {describe(left)} {op} {describe(right)} cannot be compared")
    return _ORDER[op](left, right)
