"""Secrets in plans: nothing but handles of registered ones, and only where a tool takes a secret."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

from dagrun.graph.scope import Scope, ToolFacts
from dagrun.model.plan import Step
from dagrun.model.reference import Template, path_text
from dagrun.model.secret import KEY, Secrets
from dagrun.model.shapes import without_tokens
from dagrun.model.value import Path, describe

_KEY_TEXT: Final = f'"{KEY}"'.encode()

# A code, the place in the arguments, and the facts of a problem.
Fault = tuple[str, str, dict[str, object]]


def secret_faults(
    step: Step, facts: ToolFacts, template: Template, secrets: Secrets, hint: Callable[[str, Collection[str]], str]
) -> Iterator[Fault]:
    """Everything that is wrong with the secrets that *step* passes to a tool; only few steps have to be looked at.

    Args:
        step: The step.
        facts: Of the tool.
        template: Of the arguments.
        secrets: Those of the host.
        hint: Finds the name that one may have meant.
    """
    contract = facts.tool.arguments
    if not contract.secrets and not any(_KEY_TEXT in piece for piece in template.pieces):
        return
    if secrets.are_unknown:
        return
    for name, value in step.args.items():
        if contract.names.get(name) not in contract.secrets:
            for path in _handles_in(value, (name,)):
                yield "DR212", f"args{path_text(path)}", {"argument": path_text(path).removeprefix(".")}
        elif (fault := _handle_fault(name, value, facts, secrets)) is not None:
            code, told = fault
            if code == "DR210":
                told["hint"] = hint(value[KEY], tuple(secrets))
            yield code, f"args{path_text((name,))}", told


def leak_in(step: Step, scope: Scope) -> str:
    """The name of a secret whose value stands in *step* itself; empty if none does."""
    if not scope.secrets.are_hidden:
        return ""
    try:
        return scope.secrets.found_in(step.model_dump_json(exclude_unset=True, by_alias=True))
    except (ValueError, RecursionError):  # no plain JSON; that was told elsewhere
        return ""


def _handle_fault(name: str, value: Any, facts: ToolFacts, secrets: Secrets) -> tuple[str, dict[str, object]] | None:
    """What is wrong with what stands in place of a secret: the code and the facts."""
    if value is None and "null" in (facts.types_of(name) or ()):
        return None
    handle = value.get(KEY) if isinstance(value, Mapping) and value.keys() == {KEY} else None
    if not isinstance(handle, str) or "${" in handle:
        return "DR209", {"argument": name, "found": _found(value)}
    if handle not in secrets:
        return "DR210", {"secret": _shown(handle, secrets)}
    return None if secrets.may_have(facts.tool.name, handle) else ("DR211", {"secret": handle})


def _found(value: Any) -> str:
    is_reference = "${" in value if isinstance(value, str) else isinstance(value, Mapping) and "$step" in value
    return "a reference" if is_reference else "an object" if isinstance(value, Mapping) else describe(value)


def _shown(handle: str, secrets: Secrets) -> str:
    """A name that nobody knows; or its length, if somebody may have written the secret itself."""
    if secrets.found_in(handle) or without_tokens(handle) != handle or len(handle) > 64:
        return f"whose name has {len(handle)} characters"
    return handle


def _handles_in(value: Any, path: Path) -> Iterator[Path]:
    """The places of handles in an argument that is no secret; it is plain JSON and not nested too deeply."""
    if isinstance(value, Mapping):
        if KEY in value:
            yield path
        for key, part in value.items():
            yield from _handles_in(part, (*path, key))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            yield from _handles_in(part, (*path, number))
