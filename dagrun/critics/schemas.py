"""Shapes of outputs: a Python type, or a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeAlias

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from dagrun.critics.step_filter import StepFilter
from dagrun.errors import ContractError, MissingExtra, shorten
from dagrun.model.critic import Verdict
from dagrun.model.outcome import Outcome
from dagrun.model.plan import Step
from dagrun.model.reference import path_text
from dagrun.model.signature import explain
from dagrun.model.value import Stored, decode, describe, to_json

# What is wrong with a stored value; nothing if all is well.
_Check: TypeAlias = Callable[[Stored], str]

_MAX_FAULTS: Final = 5


class SchemaCritic(StepFilter):
    """Holds outputs against a shape. Reasons name places and what was expected there, never what was found.

    It checks in the event loop, where nothing can interrupt it. A type takes milliseconds for the largest output
    there can be (1 MiB); a JSON Schema up to a hundred times as long, and its ``uniqueItems`` over objects the square
    of their number.

    Args:
        name: Of the critic, for records and messages.
        shape: A type, such as ``list[int]``, a dataclass or a pydantic model, checked strictly as JSON (no text for a
            number); or a JSON Schema as a mapping, of the draft that its ``$schema`` names, else 2020-12. What
            ``$ref`` names is never fetched, and ``format`` is a remark.
        steps: Ids of the steps whose output it looks at.
        tools: Names of tools whose outputs it looks at. With neither steps nor tools, it looks at every output.

    Raises:
        ContractError: The shape is neither.
        MissingExtra: A JSON Schema needs the extra ``jsonschema``, and it is not installed.

    Example:
        >>> critic = SchemaCritic("totals", dict[str, float], tools=["sum_up"])
    """

    __slots__ = ("_check",)

    def __init__(self, name: str, shape: Any, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        super().__init__(name, steps=steps, tools=tools)
        self._check = _check_of_schema(name, shape) if isinstance(shape, Mapping) else _check_of_type(name, shape)

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge an outcome that has succeeded."""
        fault = self._check(outcome.value)
        return Verdict("fail", reason=fault) if fault else Verdict("pass")


def _check_of_type(name: str, shape: Any) -> _Check:
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(shape)
    except (PydanticUserError, NameError) as error:
        reason = shorten(str(error).split("\n", maxsplit=1)[0])
        raise ContractError(f"critic {name}: {shape!r} is no type of JSON values: {reason}") from error
    if not adapter.pydantic_complete:
        raise ContractError(f"critic {name}: {shape!r} names a type that is not defined here")

    def check(value: Stored) -> str:
        try:
            adapter.validate_json(to_json(value), strict=True)
        except ValidationError as error:
            return explain(error, _MAX_FAULTS)
        return ""

    return check


def _check_of_schema(name: str, schema: Mapping[str, Any]) -> _Check:
    validator = _validator(name, schema)

    def check(value: Stored) -> str:
        errors: Iterator[Any] = validator.iter_errors(decode(value))
        # Not one more than is shown: a list of 100,000 faults takes seconds.
        faults = [_sentence(error) for error in islice(errors, _MAX_FAULTS)]
        return "; ".join(faults) + ("; and perhaps more" if len(faults) == _MAX_FAULTS else "")

    return check


def _validator(name: str, schema: Mapping[str, Any]) -> Any:
    try:
        jsonschema: Any = import_module("jsonschema")
        referencing: Any = import_module("referencing")
    except ImportError:
        raise MissingExtra(
            f"critic {name}: a JSON Schema needs jsonschema: pip install 'dagrun-engine[jsonschema]'; "
            "a Python type needs nothing"
        ) from None
    own = _plain(name, schema)
    draft = jsonschema.validators.validator_for(own, default=jsonschema.Draft202012Validator)
    try:
        draft.check_schema(own)
    except jsonschema.SchemaError as error:
        place = path_text(tuple(error.absolute_path)).removeprefix(".") or "the whole"
        raise ContractError(f"critic {name}: not a JSON Schema: {place}: {shorten(error.message)}") from None
    # With a registry of its own it fetches nothing from the network.
    return draft(own, registry=referencing.Registry())


def _plain(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy: the caller's may change."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ContractError(f"critic {name}: not a JSON Schema: {shorten(str(error))}") from error
    return plain


def _sentence(error: Any) -> str:
    """Say what is wrong; the message of jsonschema itself shows the value."""
    place = shorten(path_text(tuple(error.absolute_path)).removeprefix("."), 80) or "the output"
    match error.validator:
        case "required":
            return f"{place}: {error.message}"  # names the field, and nothing else
        case "additionalProperties" | "unevaluatedProperties":
            return f"{place}: there are fields that the schema does not have"
        case None:  # the schema of a field is `false`; jsonschema gives the place of what it is a field of
            return f"{place}: there is something that the schema forbids"
        case keyword:
            expected = shorten(json.dumps(error.validator_value, ensure_ascii=False))
            return f"{place}: expected {keyword} {expected}, got {describe(error.instance)}"
