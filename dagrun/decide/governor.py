"""The governor: when the planner is not asked any more, so that a run that cannot be repaired ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from dagrun.graph.history import PastReplan
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.rename import rename_in_value


def is_seen(fingerprint: str, past: Iterable[PastReplan]) -> bool:
    """Whether the planner was asked about the very same failure before: nothing new can come of it."""
    return bool(fingerprint) and any(fingerprint in replan.fingerprints for replan in past)


def fingerprint_of(*facts: object) -> str:
    """The same for the same failure of the same call."""
    return _digest([str(fact) for fact in facts])


def signature_of(patch: Patch, roots: Mapping[str, str]) -> str:
    """The same for patches that differ in nothing but the names of their new steps.

    Args:
        patch: The patch.
        roots: For each step of the run, the step whose place it has taken at the end of the chain.
    """
    new = [edit.step.id for edit in patch.edits if isinstance(edit, Add | Replace)]
    names = {**roots, **{id_: f"new {number}" for number, id_ in enumerate(new)}}
    edits = [_plain(edit) for edit in patch.edits]
    return _digest(_rename([*edits, patch.output if patch.changes_output else None], names))


def _plain(edit: Add | Drop | Replace | Rewire) -> Any:
    plain = edit.model_dump(mode="json", by_alias=True, exclude_unset=True) | {"op": edit.op}
    if "use" in plain:
        plain["use"] = sorted(plain["use"].items())  # both of each pair are names
    return plain


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    match value:
        case str():
            return names.get(value) or rename_in_value(value, names)
        case dict():
            return {key: _rename(part, names) for key, part in value.items()}
        case list() | tuple():
            return [_rename(part, names) for part in value]
        case _:
            return value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]
