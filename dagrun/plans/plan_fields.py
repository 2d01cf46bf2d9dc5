"""Validate the fields of a parsed plan, and turn the errors of pydantic into problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from dagrun.errors import Problem, hint, shorten
from dagrun.kernel.model.plan import Plan, RetryRule, Step
from dagrun.kernel.model.reference import Condition, path_text
from dagrun.kernel.model.value import Path, describe

EXPECTED: Final[Mapping[str, str]] = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "an object",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "an object",
}
"""The expected type in words, by the kind of pydantic's error."""
# Fields that are unions. Pydantic reports an error for every branch; here is one sentence for all of them.
_UNIONS: Final[Mapping[str, str]] = {
    "for_each": 'a list, or a reference such as "${step.path}"',
    "output": "a reference, or JSON with references",
}


def validate_plan(tree: Any) -> tuple[Plan | None, list[Problem]]:
    """Make a plan of parsed JSON in our own dialect.

    Returns:
        The plan, or `None` if a field is wrong; and the problems.
    """
    try:
        plan = Plan.model_validate(tree)
    except ValidationError as error:
        return None, faults_of(error, tree)
    plan._source.is_text = True
    return plan, []


def faults_of(error: ValidationError, tree: Any, model: type[BaseModel] = Plan) -> list[Problem]:
    """Return the problems of *tree*, which is not a valid *model*."""
    faults = error.errors(include_url=False, include_input=False)
    problems = (_problem(fault, tree, model) for fault in faults)
    return list({(p.path, p.code, p.facts.get("field")): p for p in problems}.values())


def unknown_fields(fields: Iterable[str], known: Iterable[str], place: str) -> list[Problem]:
    """Return a problem for each of *fields* that is not *known*."""
    names = tuple(known)
    return [unknown_field(name, names, place) for name in fields if name not in names]


def unknown_field(name: str, known: Iterable[str], place: str) -> Problem:
    """Return the problem of a field that does not exist."""
    path = f"{place}{path_text((name,))}".removeprefix(".")
    return Problem("DR010", path, {"field": repr(shorten(name, 60)), "hint": hint(name, known)})


def missing_field(name: str, place: str) -> Problem:
    """Return the problem of a required field that is missing."""
    return Problem("DR011", place, {"field": name})


def wrong_type(place: str, expected: str, value: object) -> Problem:
    """Return the problem of a value of the wrong type; the value itself is not shown."""
    return Problem("DR009", place, {"expected": expected, "found": describe(value)})


def _problem(fault: ErrorDetails, tree: Any, model: type[BaseModel]) -> Problem:
    kind, location, context = fault["type"], fault["loc"], fault.get("ctx", {})
    if kind in ("extra_forbidden", "missing"):
        place = path_text(location[:-1]).removeprefix(".")
        name = str(location[-1])
        if kind == "missing":
            return missing_field(name, place)
        return unknown_field(name, _fields_at(location[:-1], model), place)
    location, union = _without_branches(location)
    place, value = path_text(location).removeprefix("."), _at(tree, location)
    if union:
        return wrong_type(place, _UNIONS[union], value)
    if kind in EXPECTED:
        return wrong_type(place, EXPECTED[kind], value)
    if kind == "literal_error":
        return wrong_type(place, str(context.get("expected")), value)
    reason = fault["msg"].removeprefix("Value error, ").replace("Input should be", "it must be", 1)
    return Problem("DR012", place, {"reason": reason, "found": _shown(value)})


def _without_branches(location: Path) -> tuple[Path, str]:
    """Remove the branch of a union from a location of pydantic; also return the name of the field if it is a union."""
    for number, part in enumerate(location[:-1]):
        if part in _UNIONS and number in (0, 2):
            return location[: number + 1], str(part)
    return location, ""


def _fields_at(location: Path, model: type[BaseModel]) -> list[str]:
    if len(location) > 2:
        model = RetryRule if location[-1] == "retry" else Condition
    elif location:
        model = Step
    return [field.alias or name for name, field in model.model_fields.items()]


def _at(tree: Any, location: Path) -> Any:
    for part in location:
        try:
            tree = tree[part]
        except (LookupError, TypeError):
            return None
    return tree


def _shown(value: object) -> str:
    # A number out of range is useful in a message; a text could be long, or a secret.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return shorten(str(value), 40) if is_number else describe(value)
