"""Computed fields of models: part of the output of a tool, left out of the arguments of the next tool.

A model of pydantic writes its computed fields, and takes them for extra fields when it is read again. A model that
forbids extra fields would refuse its own output. Plans may refer to computed fields, so outputs keep them; where a
model has refused one, it is dropped, and the model computes it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from dagrun.kernel.model.value import encode_plain


def computed_names(schema: Any) -> Iterator[str]:
    """Yield the names of the computed fields of all models in a core schema of pydantic."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, Mapping):
            waiting += part.values()
            if part.get("type") == "computed-field":
                yield str(part["property_name"])


def without_computed(data: bytes, error: ValidationError, names: frozenset[str]) -> bytes:
    """Return JSON text without the computed fields that *error* finds to be too much.

    Args:
        data: The text that was refused.
        error: Why.
        names: Those of computed fields.

    Returns:
        The shorter text; *data* itself if there is nothing to drop.
    """
    value: Any = None
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        *place, name = fault["loc"] or ("",)
        if fault["type"] not in ("extra_forbidden", "unexpected_keyword_argument") or name not in names:
            continue
        value = from_json(data) if value is None else value
        holder = _at(value, place)
        if isinstance(holder, dict):
            holder.pop(str(name), None)
    return data if value is None else encode_plain(value).encode()


def _at(value: Any, place: list[Any]) -> Any:
    """Return the part of *value* that a location of pydantic means: it names branches of unions, too."""
    for part in place:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
    return value
