"""Variants of a policy: each combination of the values that some of its fields take in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any, Final

from pydantic import ValidationError

from dagrun.errors import ContractError, shorten
from dagrun.model.policy import HedgeRule, Policy
from dagrun.model.toolbox import hint

MAX_VARIANTS: Final = 64

# What stands for the usual rule, where a field is varied between on and off.
_RULES: Final[Mapping[str, Any]] = {"hedge": HedgeRule()}


@dataclass(frozen=True, slots=True)
class PolicyVariant:
    """A policy, and how it differs.

    Attributes:
        policy: The policy.
        name: What is varied, as ``max_running=2, hedge=on``; empty if nothing is.
        settings: The same, by field.
    """

    policy: Policy
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)


def policy_variants(policy: Policy, vary: Mapping[str, object]) -> Iterator[PolicyVariant]:
    """Yield the variants of *policy*, in the order of the values; *policy* itself if nothing is varied.

    Args:
        policy: The policy.
        vary: A list of values for each field that is varied, by name. A field of a field is named with a dot
            (``retry.max_attempts``). ``hedge`` also takes true, for the usual rule, and false.

    Raises:
        ContractError: There is no such field, a value does not fit, or there are too many variants.
    """
    if not vary:
        yield PolicyVariant(policy)
        return
    lists: dict[str, Sequence[Any]] = {}
    for path, values in vary.items():
        if isinstance(values, Sequence) and not isinstance(values, str) and values:
            lists[path] = values
        else:
            raise ContractError(f"vary {path}: a list of values is wanted, got {shorten(repr(values), 60)}")
        if (first := path.partition(".")[0]) not in Policy.model_fields:
            near = hint(first, list(Policy.model_fields))
            raise ContractError(f"vary {path}: a policy has no field {shorten(first, 60)}{near}")
    if (count := prod(map(len, lists.values()))) > MAX_VARIANTS:
        raise ContractError(f"{count} variants are over the limit of {MAX_VARIANTS}")
    for values in product(*lists.values()):
        settings = dict(zip(lists, values, strict=True))
        name = ", ".join(f"{path}={value_text(value)}" for path, value in settings.items())
        yield PolicyVariant(_varied(policy, settings, name), name, settings)


def _varied(policy: Policy, settings: Mapping[str, Any], name: str) -> Policy:
    fields = policy.model_dump(exclude_unset=True)
    for path, value in settings.items():
        *outer, last = path.split(".")
        _inside(fields, outer)[last] = _rule(path, value)
    try:
        return Policy.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ContractError(f"vary {name}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _inside(fields: dict[str, Any], outer: Sequence[str]) -> dict[str, Any]:
    """Return the fields of the field that *outer* leads to, made where there are none."""
    for part in outer:
        inner = fields.get(part)
        fields[part] = fields = dict(inner) if isinstance(inner, Mapping) else {}
    return fields


def _rule(path: str, value: Any) -> Any:
    if path not in _RULES or not isinstance(value, bool):
        return value
    return _RULES[path].model_dump() if value else None


def value_text(value: Any) -> str:
    """Return a value as it stands in the name of a variant."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)
