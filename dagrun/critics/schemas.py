"""`SchemaCritic`: outputs checked against a Python type or a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any, Final, TypeAlias

from pydantic import PydanticUserError, TypeAdapter, ValidationError

from dagrun.critics.step_filter import StepFilter
from dagrun.errors import ContractError, MissingExtra, shorten
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import path_text
from dagrun.kernel.model.signature import explain
from dagrun.kernel.model.value import Stored, decode, describe, to_json

# Returns the faults of a stored value as text; empty if there is none.
_Check: TypeAlias = Callable[[Stored], str]

_MAX_FAULTS: Final = 5


class SchemaCritic(StepFilter):
    """Checks outputs against a shape. Reasons name places and the values expected there, never the actual values.

    The check runs in the event loop, where nothing can interrupt it. For the largest possible output (1 MiB), a type
    takes milliseconds. A JSON Schema takes up to a hundred times as long, and with ``uniqueItems`` over objects the
    time grows with the square of their number.

    Args:
        name: The name of the critic, for records and messages.
        shape: A type, such as ``list[int]``, a dataclass or a pydantic model, checked strictly as JSON (no text for a
            number); or a JSON Schema as a mapping, of the draft that its ``$schema`` names, else 2020-12. The targets
            of ``$ref`` are never fetched, and ``format`` is not checked.
        steps: Ids of the steps whose outputs are judged.
        tools: Names of the tools whose outputs are judged. Without *steps* and *tools*, every output is judged.

    Raises:
        ContractError: The shape is neither a type nor a JSON Schema.
        MissingExtra: A JSON Schema needs the extra ``jsonschema``, and it is not installed.

    Examples:
        >>> critic = SchemaCritic("totals", dict[str, float], tools=["sum_up"])
    """

    __slots__ = ("_check",)

    def __init__(self, name: str, shape: Any, *, steps: Sequence[str] = (), tools: Sequence[str] = ()) -> None:
        super().__init__(name, steps=steps, tools=tools)
        self._check = _check_of_schema(name, shape) if isinstance(shape, Mapping) else _check_of_type(name, shape)

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        """Judge the output of a successful outcome."""
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
        # Only as many faults as are shown: 100,000 of them would take seconds.
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
    # With a registry of its own, the validator fetches nothing from the network.
    return draft(own, registry=referencing.Registry())


def _plain(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the schema as plain JSON, because the caller may change it later."""
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(schema), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ContractError(f"critic {name}: not a JSON Schema: {shorten(str(error))}") from error
    return plain


def _sentence(error: Any) -> str:
    """Describe a fault without the value, which the message of jsonschema would show."""
    place = shorten(path_text(tuple(error.absolute_path)).removeprefix("."), 80) or "the output"
    match error.validator:
        case "required":
            return f"{place}: {error.message}"  # this message names only the field
        case "additionalProperties" | "unevaluatedProperties":
            return f"{place}: there are fields that the schema does not have"
        case None:  # the schema of a field is `false`; the path is that of its parent
            return f"{place}: there is something that the schema forbids"
        case keyword:
            expected = shorten(json.dumps(error.validator_value, ensure_ascii=False))
            return f"{place}: expected {keyword} {expected}, got {describe(error.instance)}"
