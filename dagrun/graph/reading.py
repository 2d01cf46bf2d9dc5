"""Reading plans: from a file or a text, in JSON or YAML, in either dialect, to a `Plan`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, Literal

from dagrun.errors import PlanRefused, Problem
from dagrun.graph.dialects import from_numbered, is_numbered
from dagrun.graph.findings import PLAN_OUTPUT, WHOLE_PLAN
from dagrun.graph.nulls import drop_nulls
from dagrun.graph.parsed import MAX_READ_DEPTH, take_out_marks
from dagrun.graph.shape import validate, wrong_type
from dagrun.graph.strict_json import parse_json
from dagrun.graph.yaml_reader import parse_yaml
from dagrun.model.plan import Plan
from dagrun.model.policy import PlanLimits
from dagrun.model.toolbox import Toolbox

Syntax = Literal["json", "yaml"]

_BOM: Final = b"\xef\xbb\xbf"
_OTHER_MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_STEP: Final = re.compile(r"steps\[(\d+)\]")
_OUTPUT: Final = re.compile(r"output\b")
_TEXT: Final = "the plan"


def read_plan(
    source: Path | str | bytes,
    *,
    toolbox: Toolbox | None = None,
    limits: PlanLimits | None = None,
    syntax: Syntax | None = None,
) -> Plan:
    """Read a plan.

    A byte order mark before UTF-8 is passed over, and so is a top-level ``$schema`` for editors.

    Args:
        source: A file, if it is a path; else the text of the plan itself.
        toolbox: The tools that the plan is for. A plan in the dialect of step_number and action needs it for the
            arguments that it leaves to be understood; and a null that a tool does not take, for an argument that
            may be left out, is taken for that.
        limits: Ceilings of size; the defaults are for plans that strangers wrote.
        syntax: ``json`` or ``yaml``; by default what the file's suffix says, and JSON for a text.

    Returns:
        The plan. It is well-formed, but not checked against tools: that is what `check_plan` does.

    Raises:
        PlanRefused: The plan cannot be read; the error holds every problem.
    """
    limits = PlanLimits() if limits is None else limits
    name = _TEXT
    if isinstance(source, Path):
        name = str(source)
        syntax = syntax or ("yaml" if source.suffix.lower() in (".yaml", ".yml") else "json")
    text = _decode(_load(source, name, limits.max_bytes), name)
    tree, problems = _parse(text, syntax or "json", min(limits.max_depth, MAX_READ_DEPTH))
    if not isinstance(tree, dict):
        raise PlanRefused([*problems, wrong_type("", "an object with steps", tree)])
    _check_count(tree.get("steps"), limits.max_steps)
    problems += take_out_marks(tree)
    tree.pop("$schema", None)
    plan, found = _normalise(tree, toolbox, limits)
    problems += found
    if problems or plan is None:
        raise PlanRefused(sorted(problems, key=_place))
    return plan


def _load(source: Path | str | bytes, name: str, limit: int) -> bytes:
    """Get the bytes of a plan, and never more of them than the ceiling allows."""
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str):
        if source.endswith((".json", ".yaml", ".yml")) and not {"{", ":", "\n"} & set(source[-200:]):
            reason = "a text was given, which is taken for the plan itself; for a file, give a pathlib.Path"
            raise PlanRefused([Problem("DR001", "", {"file": source, "reason": reason})])
        _check_size(len(source), limit)  # a character takes a byte at least: encoding can wait
        try:
            data = source.encode()
        except UnicodeEncodeError as error:
            reason = f"half a character (a lone surrogate) at {error.start}"
            raise PlanRefused([Problem("DR013", "", {"reason": reason})]) from None
    else:
        try:
            _check_size(source.stat().st_size, limit)
            with source.open("rb") as file:
                data = file.read(limit + 1)  # a device says that it is empty, and never ends
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise PlanRefused([Problem("DR001", "", {"file": name, "reason": reason})]) from error
    _check_size(len(data), limit)
    return data


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise PlanRefused([Problem("DR005", "", {"size": str(size), "limit": str(limit)})])


def _decode(data: bytes, name: str) -> str:
    try:
        return data.removeprefix(_BOM).decode()
    except UnicodeDecodeError as error:
        encoding = _OTHER_MARKS.get(data[:2])
        reason = f"it is {encoding}, not UTF-8" if encoding else f"byte {error.start} is not UTF-8"
        raise PlanRefused([Problem("DR002", "", {"file": name, "reason": reason})]) from None


def _parse(text: str, syntax: Syntax, max_depth: int) -> tuple[Any, list[Problem]]:
    if syntax == "yaml":
        return parse_yaml(text, max_depth)
    return parse_json(text, max_depth), []


def _check_count(steps: object, limit: int) -> None:
    # Before anything is looked at: a million steps are not checked one by one only to be refused.
    if isinstance(steps, list) and len(steps) > limit:
        raise PlanRefused([Problem("DR108", "steps", {"count": str(len(steps)), "limit": str(limit)})])


def _normalise(tree: dict[str, Any], toolbox: Toolbox | None, limits: PlanLimits) -> tuple[Plan | None, list[Problem]]:
    problems = _count_dependencies(tree.get("steps"), limits.max_dependencies)
    if is_numbered(tree):
        tree, found = from_numbered(tree, toolbox)
        if found:
            return None, [*problems, *found]
    elif toolbox is not None:
        drop_nulls(tree, toolbox)
    plan, found = validate(tree)
    return plan, [*problems, *found]


def _count_dependencies(steps: object, limit: int) -> list[Problem]:
    problems = []
    for number, step in enumerate(steps if isinstance(steps, list) else ()):
        needed = step.get("depends_on") if isinstance(step, dict) else None
        if isinstance(needed, list) and len(needed) > limit:
            name = str(step.get("id", step.get("step_number", number)))
            facts = {"step": name, "count": str(len(needed)), "limit": str(limit)}
            problems.append(Problem("DR109", f"steps[{number}].depends_on", facts))
    return problems


def _place(problem: Problem) -> int:
    """Where in the plan a problem is: before its steps, in one of them, or behind them."""
    match = _STEP.match(problem.path)
    if match:
        return int(match.group(1))
    return PLAN_OUTPUT if _OUTPUT.match(problem.path) else WHOLE_PLAN
