"""Steps that use other steps in place of those that they were written for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dagrun.model.condition import Condition
from dagrun.model.plan import Step
from dagrun.model.reference import HOLE, leading_id


def use_instead(step: Step, use: Mapping[str, str]) -> Step:
    """Give *step* with other producers: in its arguments, list, conditions and dependencies.

    Args:
        step: As it was written.
        use: Old id to new id.
    """
    changed: dict[str, Any] = {
        "args": rename_in_value(step.args, use),
        "depends_on": tuple(dict.fromkeys(use.get(id_, id_) for id_ in step.depends_on)),
        "for_each": rename_in_value(step.for_each, use),
        "when": _in_condition(step.when, use),
        "success": _in_condition(step.success, use),
    }
    # Only what was written: a field that is set to its default is another one than a field that is left out.
    return step.model_copy(update={name: value for name, value in changed.items() if name in step.model_fields_set})


def rename_in_value(value: Any, use: Mapping[str, str]) -> Any:
    """Give a JSON value of a plan with its references renamed; a value without any comes back as it is."""
    match value:
        case str() if "${" in value:
            return HOLE.sub(lambda match: _hole(match, use), value)
        case Mapping() if "$step" in value:
            step = value["$step"]
            return {**value, "$step": use.get(step, step)} if isinstance(step, str) else value
        case Mapping():
            return {key: rename_in_value(part, use) for key, part in value.items()}
        case list() | tuple():
            return [rename_in_value(part, use) for part in value]
        case _:
            return value


def rename_in_output(output: Any, use: Mapping[str, str]) -> Any:
    """The same for what a plan answers, where a bare text is a reference too."""
    if isinstance(output, str) and "${" not in output:
        return _reference(output, use)
    return rename_in_value(output, use)


def _hole(match: re.Match[str], use: Mapping[str, str]) -> str:
    body = match.group(1)
    if body is None:
        return match.group()  # the escape for a literal brace
    return match.group().replace(body, _reference(body, use), 1)


def _reference(text: str, use: Mapping[str, str]) -> str:
    id_ = leading_id(text)
    return use[id_] + text[len(id_) :] if id_ in use else text


def _in_condition(condition: Condition | None, use: Mapping[str, str]) -> Condition | None:
    if condition is None:
        return None
    changed: dict[str, Any] = {}
    if condition.ref is not None:
        ref = condition.ref
        changed["ref"] = HOLE.sub(lambda match: _hole(match, use), ref) if "${" in ref else _reference(ref, use)
    if condition.all is not None:
        changed["all"] = [_in_condition(part, use) for part in condition.all]
    if condition.any is not None:
        changed["any"] = [_in_condition(part, use) for part in condition.any]
    if condition.not_ is not None:
        changed["not_"] = _in_condition(condition.not_, use)
    return condition.model_copy(update=changed)
