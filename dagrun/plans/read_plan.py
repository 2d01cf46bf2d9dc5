"""Read a plan from a file or a text, in JSON, YAML or lines of calls, in any dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from dagrun.errors import CannotPlan, PlanRefused, Problem, shorten
from dagrun.kernel.checks.findings import PLAN_OUTPUT, WHOLE_PLAN
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.tool import Toolbox
from dagrun.plans.json_reader import MAX_READ_DEPTH, parse_json, take_out_marks
from dagrun.plans.plan_fields import validate_plan, wrong_type
from dagrun.plans.plan_forms import in_our_form

Syntax = Literal["json", "yaml", "compiler"]

_BOM: Final = b"\xef\xbb\xbf"
_OTHER_MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_STEP: Final = re.compile(r"steps\[(\d+)\]")
_OUTPUT: Final = re.compile(r"output\b")
_TEXT: Final = "the plan"
_SUFFIXES: Final[Mapping[str, Syntax]] = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}


def read_plan(
    source: Path | str | bytes,
    *,
    toolbox: Toolbox | None = None,
    limits: PlanLimits | None = None,
    syntax: Syntax | None = None,
) -> Plan:
    """Read a plan.

    A byte order mark before UTF-8 is ignored, and so is a top-level ``$schema`` for editors.

    Args:
        source: A path to a file, or the text of the plan itself.
        toolbox: The tools that the plan is for. They have two uses. A plan in the dialect of step_number and action
            leaves out some arguments, which are filled in. And a null for an optional argument that takes no null
            counts as left out.
        limits: Limits of size; the defaults are for plans of strangers.
        syntax: ``json``, ``yaml``, or ``compiler`` for lines of calls (see
            `dagrun.plans.compiler_dialect`). By default, the suffix of the file decides. For other files and
            for texts, it is ``compiler`` if the text has lines of calls, and else ``json``.

    Returns:
        The plan. It is well-formed, but not checked against tools; `check_plan` does that.

    Raises:
        PlanRefused: The plan cannot be read; the error holds every problem.
    """
    limits = PlanLimits() if limits is None else limits
    name = _TEXT
    if isinstance(source, Path):
        name = str(source)
        syntax = syntax or _SUFFIXES.get(source.suffix.lower())
    text = _decode(_load(source, name, limits.max_bytes), name)
    tree, problems = parse_plan(text, syntax, toolbox, limits)
    plan, more = make_plan(tree, toolbox, limits)
    problems += more
    if problems or plan is None:
        raise PlanRefused(sorted_problems(problems))
    return plan


def parse_plan(
    text: str, syntax: Syntax | None, toolbox: Toolbox | None, limits: PlanLimits
) -> tuple[Any, list[Problem]]:
    """Parse the text of a plan.

    Returns:
        Plain JSON with marks, as from `parse_json`; and problems.

    Raises:
        PlanRefused: The text does not have the *syntax*, or is nested too deep.
    """
    if syntax is None:
        syntax = "json"
        if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
            from dagrun.plans.compiler_dialect import is_compiler_text

            syntax = "compiler" if is_compiler_text(text) else "json"
    max_depth = max_plan_depth(limits)
    match syntax:
        case "yaml":  # it takes long to load
            from dagrun.plans.yaml_reader import parse_yaml

            return parse_yaml(text, max_depth)
        case "compiler":
            from dagrun.plans.compiler_dialect import parse_lines

            tree, problems = parse_lines(text, toolbox, limits)
            return tree, problems
        case "json":
            return parse_json(text, max_depth), []


def make_plan(
    tree: Any,
    toolbox: Toolbox | None,
    limits: PlanLimits,
    *,
    may_refuse: bool = False,
    numbered: bool | None = None,
) -> tuple[Plan | None, list[Problem]]:
    """Make a plan from parsed JSON, in our dialect or the dialect of step_number and action.

    Args:
        tree: The result of `parse_plan`; it is changed.
        toolbox: As for `read_plan`.
        limits: As for `read_plan`.
        may_refuse: Whether the author may refuse to plan. If not, a refusal is a problem.
        numbered: Whether the plan is in the dialect of step_number and action; `None` to find out.

    Returns:
        The plan, if it has the form of a plan; and the problems. If there are problems, the plan must not be used.

    Raises:
        PlanRefused: The plan has too many steps or dependencies to be checked one by one.
        CannotPlan: The author refuses to plan.
    """
    if not isinstance(tree, dict):
        return None, [wrong_type("", "an object with steps", tree)]
    _check_count(tree.get("steps"), limits.max_steps)
    _check_edges(tree.get("steps"), limits.max_edges)
    problems = take_out_marks(tree)
    tree.pop("$schema", None)
    problems += take_refusal(tree, raises=may_refuse and not problems and not tree.get("steps"))
    problems += _count_dependencies(tree.get("steps"), limits.max_dependencies)
    tree, more = in_our_form(tree, toolbox, numbered)
    if more:
        return None, [*problems, *more]
    plan, more = validate_plan(tree)
    return plan, [*problems, *more]


def take_refusal(tree: dict[str, Any], *, raises: bool) -> list[Problem]:
    """Remove the field ``refusal`` from an answer. Strict output modes of models require it; mostly it is null.

    Returns:
        The problem, if the author refuses to plan.

    Raises:
        CannotPlan: The author refuses to plan, and *raises* is true.
    """
    refusal = tree.pop("refusal", None)
    if refusal is None or (isinstance(refusal, str) and not refusal.strip()):
        return []
    if not isinstance(refusal, str):
        return [wrong_type("refusal", "a text or null", refusal)]
    if raises:
        raise CannotPlan(shorten(refusal.strip(), 500))
    return [Problem("DR014", "refusal", {"reason": refusal.strip()})]


def max_plan_depth(limits: PlanLimits) -> int:
    """Return how deep a plan may be nested."""
    return min(limits.max_depth, MAX_READ_DEPTH)


def sorted_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems in plan order."""
    return sorted(problems, key=_place)


def _load(source: Path | str | bytes, name: str, limit: int) -> bytes:
    """Return the bytes of a plan; never reads more of them than *limit* allows."""
    if isinstance(source, bytes):
        data = source
    elif isinstance(source, str):
        if source.endswith((".json", ".yaml", ".yml", ".txt")) and not {"{", ":", "\n"} & set(source[-200:]):
            reason = "a text was given, which is taken for the plan itself; for a file, give a pathlib.Path"
            raise PlanRefused([Problem("DR001", "", {"file": source, "reason": reason})])
        _check_size(len(source), limit)  # before encoding: each character takes one byte or more
        try:
            data = source.encode()
        except UnicodeEncodeError as error:
            reason = f"half a character (a lone surrogate) at {error.start}"
            raise PlanRefused([Problem("DR013", "", {"reason": reason})]) from None
    else:
        try:
            _check_size(source.stat().st_size, limit)
            with source.open("rb") as file:
                data = file.read(limit + 1)  # not the whole: a device reports a size of 0, but never ends
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


def _check_count(steps: object, limit: int) -> None:
    # Before all other checks, so that a million steps are not checked one by one before they are refused.
    if isinstance(steps, list) and len(steps) > limit:
        raise PlanRefused([Problem("DR108", "steps", {"count": str(len(steps)), "limit": str(limit)})])


def _check_edges(steps: object, limit: int) -> None:
    # As early as `_check_count`, for the same reason.
    lists = (step.get("depends_on") for step in steps if isinstance(step, dict)) if isinstance(steps, list) else ()
    count = sum(len(needed) for needed in lists if isinstance(needed, list))
    if count > limit:
        raise PlanRefused([Problem("DR113", "steps", {"count": str(count), "limit": str(limit)})])


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
    """Return the place of a problem in the plan: before the steps, in a step, or after the steps."""
    match = _STEP.match(problem.path)
    if match:
        return int(match.group(1))
    return PLAN_OUTPUT if _OUTPUT.match(problem.path) else WHOLE_PLAN
