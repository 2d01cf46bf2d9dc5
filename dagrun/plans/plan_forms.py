"""Plans in other forms, converted into ours: the strict form of models, and the dialect of step_number and action.

In that dialect, numbers become ids. Its plans do not say which output is passed to which argument. Two rules fill in
these arguments; they need the toolbox, see `fill_in_arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.kernel.model.signature import Arguments
from dagrun.kernel.model.tool import Toolbox
from dagrun.llm.strict_answers import restore_plan
from dagrun.plans.plan_fields import missing_field, unknown_fields, wrong_type

_PLAN_FIELDS: Final = ("task_summary", "total_steps", "steps")
_STEP_FIELDS: Final = ("step_number", "action", "parameters", "description", "depends_on", "expected_output")
# A file name with an extension, without a folder or a space.
_FILE_NAME: Final = re.compile(r"[\w-][\w.-]*\.[A-Za-z][A-Za-z0-9]{0,9}")


def in_our_form(
    tree: dict[str, Any], toolbox: Toolbox | None, numbered: bool | None = None
) -> tuple[dict[str, Any], list[Problem]]:
    """Convert a parsed plan into our dialect and form.

    Args:
        tree: Parsed JSON; it may be changed.
        toolbox: The tools, for what depends on the types of their arguments.
        numbered: Whether the plan is in the dialect of step_number and action; `None` to find out.

    Returns:
        The plan as JSON; and the problems. If there are problems, the plan must not be used.
    """
    if is_numbered(tree) if numbered is None else numbered:
        return from_numbered(tree, toolbox)
    restore_plan(tree, toolbox)
    return tree, []


def is_numbered(tree: Mapping[str, Any]) -> bool:
    """Whether a plan is written in the dialect of step_number and action."""
    if "task_summary" in tree or "total_steps" in tree:
        return True
    steps = tree.get("steps")
    first = steps[0] if isinstance(steps, list) and steps else None
    return isinstance(first, dict) and ("step_number" in first or "action" in first)


def from_numbered(tree: Mapping[str, Any], toolbox: Toolbox | None) -> tuple[dict[str, Any], list[Problem]]:
    """Convert a plan of this dialect into our dialect.

    Args:
        tree: Parsed JSON in it.
        toolbox: The tools, for the two rules about ``data`` and ``output``; without it, they are not applied.

    Returns:
        The plan as JSON; and the problems. If there are problems, the plan must not be used.
    """
    problems = unknown_fields(tree, _PLAN_FIELDS, "")
    summary = tree.get("task_summary", "")
    if not isinstance(summary, str):
        problems.append(wrong_type("task_summary", "a text", summary))
    steps = tree.get("steps")
    if "steps" not in tree:
        problems.append(missing_field("steps", ""))
    elif not isinstance(steps, list):
        problems.append(wrong_type("steps", "a list", steps))
    if not isinstance(steps, list):
        return {}, problems
    problems += _check_total(tree, len(steps))
    for number, step in enumerate(steps):
        place = f"steps[{number}]"
        if isinstance(step, dict):
            problems += _step_problems(step, place)
        else:
            problems.append(wrong_type(place, "an object", step))
    if problems:
        return {}, problems
    return {"goal": summary, "steps": [_normalise(step, toolbox) for step in steps]}, []


def _check_total(tree: Mapping[str, Any], count: int) -> list[Problem]:
    total = tree.get("total_steps", count)
    if not _is_int(total):
        return [wrong_type("total_steps", "a whole number", total)]
    if total != count:
        return [Problem("DR012", "total_steps", {"reason": f"the plan has {count} steps", "found": str(total)})]
    return []


def _step_problems(step: Mapping[str, Any], place: str) -> list[Problem]:
    """Return the problems with the fields of one step."""
    problems = unknown_fields(step, _STEP_FIELDS, place)
    problems += (missing_field(name, place) for name in ("step_number", "action") if name not in step)
    number = step.get("step_number", 1)
    if not _is_int(number):
        problems.append(wrong_type(f"{place}.step_number", "a whole number", number))
    elif number < 0:
        problems.append(
            Problem("DR012", f"{place}.step_number", {"reason": "steps count up from 0", "found": str(number)})
        )
    for name in ("action", "description", "expected_output"):
        if not isinstance(step.get(name, ""), str):
            problems.append(wrong_type(f"{place}.{name}", "a text", step[name]))
    if not isinstance(step.get("parameters", {}), dict):
        problems.append(wrong_type(f"{place}.parameters", "an object", step["parameters"]))
    needed = step.get("depends_on", [])
    if not isinstance(needed, list):
        return [*problems, wrong_type(f"{place}.depends_on", "a list", needed)]
    wrong = [(position, value) for position, value in enumerate(needed) if not _is_int(value)]
    return [*problems, *(wrong_type(f"{place}.depends_on[{at}]", "the number of a step", value) for at, value in wrong)]


def _normalise(step: Mapping[str, Any], toolbox: Toolbox | None) -> dict[str, Any]:
    normal = {
        "id": str(step["step_number"]),
        "tool": step["action"],
        "args": dict(step.get("parameters", {})),
        "depends_on": [str(number) for number in step.get("depends_on", [])],
        "description": step.get("description", ""),
        "expected_output": step.get("expected_output", ""),
    }
    if toolbox is not None and step["action"] in toolbox:
        fill_in_arguments(normal, toolbox[step["action"]].arguments)
    return normal


def fill_in_arguments(step: dict[str, Any], arguments: Arguments) -> None:
    """Fill in the arguments that plans of this dialect leave out.

    1. The required argument ``data`` is the output of the step's only dependency, or an object
       ``{"step_<n>_output": …}`` with the outputs of several.
    2. The argument ``output`` is the *expected_output* of the step, if that is a bare file name.

    Args:
        step: The step in our dialect; its ``args`` are changed.
        arguments: The argument contract of the tool.
    """
    args: dict[str, Any] = step["args"]
    sources = list(dict.fromkeys(step["depends_on"]))
    if sources and _is_left_out("data", args, arguments) and arguments.names["data"] in arguments.required:
        parts = {f"step_{source}_output": {"$step": source} for source in sources}
        args["data"] = {"$step": sources[0]} if len(sources) == 1 else parts
    if _FILE_NAME.fullmatch(step["expected_output"]) and _is_left_out("output", args, arguments):
        args["output"] = step["expected_output"]


def _is_left_out(name: str, args: Mapping[str, Any], arguments: Arguments) -> bool:
    """Whether the tool takes an argument called *name*, and *args* has it under none of its names."""
    parameter = arguments.names.get(name)
    return parameter is not None and all(arguments.names.get(other) != parameter for other in args)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
