"""The dialect of step_number, action and parameters, normalised into our own.

Numbers become ids. Its plans name no data flow; two rules of the dialect fill in what a tool needs, and so they need
the toolbox: see `fill_in_arguments`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.model.signature import Arguments
from dagrun.model.toolbox import Toolbox
from dagrun.plans.plan_fields import missing_field, unknown_fields, wrong_type

_PLAN_FIELDS: Final = ("task_summary", "total_steps", "steps")
_STEP_FIELDS: Final = ("step_number", "action", "parameters", "description", "depends_on", "expected_output")
# A name with an extension and nothing else: no folder, no space, no sentence.
_FILE_NAME: Final = re.compile(r"[\w-][\w.-]*\.[A-Za-z][A-Za-z0-9]{0,9}")


def is_numbered(tree: Mapping[str, Any]) -> bool:
    """Whether a plan is written in the dialect of step_number and action."""
    if "task_summary" in tree or "total_steps" in tree:
        return True
    steps = tree.get("steps")
    first = steps[0] if isinstance(steps, list) and steps else None
    return isinstance(first, dict) and ("step_number" in first or "action" in first)


def from_numbered(tree: Mapping[str, Any], toolbox: Toolbox | None) -> tuple[dict[str, Any], list[Problem]]:
    """Turn a plan of that dialect into one of ours.

    Args:
        tree: Parsed JSON.
        toolbox: The tools, for the two rules about ``data`` and ``output``; without it they are not applied.

    Returns:
        The plan as JSON; and the problems, in which case the plan is not to be used.
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
    problems += _count(tree, len(steps))
    made = []
    for number, step in enumerate(steps):
        place = f"steps[{number}]"
        if isinstance(step, dict):
            problems += _faults(step, place)
            made.append(step)
        else:
            problems.append(wrong_type(place, "an object", step))
    if problems:
        return {}, problems
    return {"goal": summary, "steps": [_normalise(step, toolbox) for step in made]}, []


def _count(tree: Mapping[str, Any], count: int) -> list[Problem]:
    total = tree.get("total_steps", count)
    if not _is_int(total):
        return [wrong_type("total_steps", "a whole number", total)]
    if total != count:
        return [Problem("DR012", "total_steps", {"reason": f"the plan has {count} steps", "found": str(total)})]
    return []


def _faults(step: Mapping[str, Any], place: str) -> list[Problem]:
    """What is wrong with the shape of one step."""
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
    made = {
        "id": str(step["step_number"]),
        "tool": step["action"],
        "args": dict(step.get("parameters", {})),
        "depends_on": [str(number) for number in step.get("depends_on", [])],
        "description": step.get("description", ""),
        "expected_output": step.get("expected_output", ""),
    }
    if toolbox is not None and step["action"] in toolbox:
        fill_in_arguments(made, toolbox[step["action"]].arguments)
    return made


def fill_in_arguments(step: dict[str, Any], arguments: Arguments) -> None:
    """Fill in the arguments that a plan of this dialect leaves to be understood.

    A required ``data`` is the output of the step's one dependency, or ``{"step_<n>_output": …}`` of several. An
    *expected_output* that is a bare file name is the ``output`` of a tool that takes one.

    Args:
        step: In our dialect; its ``args`` are changed.
        arguments: What the tool takes.
    """
    args: dict[str, Any] = step["args"]
    sources = list(dict.fromkeys(step["depends_on"]))
    if sources and _is_left_out("data", args, arguments) and arguments.names["data"] in arguments.required:
        parts = {f"step_{source}_output": {"$step": source} for source in sources}
        args["data"] = {"$step": sources[0]} if len(sources) == 1 else parts
    if _FILE_NAME.fullmatch(step["expected_output"]) and _is_left_out("output", args, arguments):
        args["output"] = step["expected_output"]


def _is_left_out(name: str, args: Mapping[str, Any], arguments: Arguments) -> bool:
    """Whether there is an argument of that name, and no name of it is given."""
    parameter = arguments.names.get(name)
    return parameter is not None and all(arguments.names.get(given) != parameter for given in args)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
