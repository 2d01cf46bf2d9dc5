"""Read the answers of planning models: a patch, a whole plan, or a single next step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dagrun.errors import PlanRefused, Problem
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.policy import PlanLimits
from dagrun.kernel.model.tool import Toolbox
from dagrun.llm.strict_answers import drop_nulls_in_args, restore_args, restore_fields
from dagrun.planners.answers.json_stream import JsonScanner, count_bytes, parse_object
from dagrun.plans.compiler_dialect import find_call
from dagrun.plans.json_reader import take_out_marks
from dagrun.plans.plan_fields import faults_of, missing_field, wrong_type
from dagrun.plans.read_plan import make_plan, max_plan_depth, parse_plan, take_refusal

AnyEdit = Add | Drop | Replace | Rewire
AnyModel = TypeVar("AnyModel", bound=BaseModel)

# What an answer is recognised by: the keys of its object, and the description of the object in messages.
_CHANGE_KEYS: Final = ("edits", "steps", "refusal")
_CHANGE: Final = "an object with edits or steps"
_NEXT_STEP_KEYS: Final = ("step", "stop")
_NEXT_STEP: Final = "an object with step or stop"

_EDITS: Final[Mapping[str, type[AnyEdit]]] = {"add": Add, "drop": Drop, "replace": Replace, "rewire": Rewire}
# Fields in which a null means "left out": strict output modes of models require every field.
_NULLS: Final = ("base", "reason", "output", "confidence", "more")
_EDIT_NULLS: Final = ("cancel", "use", "depends_on", "args")
# Takes the place of a step with problems, so that the rest of its edit can be checked.
_ANY_STEP: Final = Step(id="step", tool="tool")


def read_answer(text: str, toolbox: Toolbox | None, limits: PlanLimits | None = None) -> Patch | Plan:
    """Read the answer of a planner that was asked to change a plan.

    Prose and code fences around the answer are ignored. An object with ``edits`` is a patch; an object with ``steps``,
    or lines of calls, is a plan. A null counts as left out, also for ``output`` of a patch.

    Args:
        text: The whole answer.
        toolbox: The tools that the answer may use; `None` as for `read_plan`.
        limits: Limits of size; edits are counted as steps.

    Returns:
        The patch or the plan. It is well-formed, but not checked.

    Raises:
        PlanRefused: The answer is neither; the error holds every problem.
        CannotPlan: The planner refuses to plan.
    """
    limits = PlanLimits() if limits is None else limits
    count_bytes(text, limits)
    scanner = JsonScanner(max_plan_depth(limits), _CHANGE_KEYS)
    scanner.feed(text)
    call = find_call(text)
    if call >= 0 and "edits" not in scanner.keys and not 0 <= scanner.start < call:
        tree, problems = parse_plan(text, "compiler", toolbox, limits)
        return _plan(tree, toolbox, limits, problems)
    tree, problems = parse_object(text, scanner, limits, what=_CHANGE)
    edits, steps = tree.get("edits"), tree.get("steps")
    if edits and steps:
        raise _no_patch("it has both edits and steps; give one of them")
    if edits is None and "steps" not in tree and not tree.get("refusal"):
        raise _no_patch("it has neither edits nor steps")
    if edits is None or steps:
        tree.pop("edits", None)
        return _plan(tree, toolbox, limits, problems)
    if not steps:
        tree.pop("steps", None)
    return _patch(tree, toolbox, limits, problems)


def read_step(tree: Any, place: str, toolbox: Toolbox | None, limits: PlanLimits) -> tuple[Step, list[Problem]]:
    """Make a step from parsed JSON, as in a plan.

    Args:
        tree: The step, in our dialect.
        place: The path of the step, for problems.
        toolbox: As for `read_plan`.
        limits: As for `read_plan`.

    Returns:
        The step, or a placeholder if there are problems; and the problems.
    """
    plan, problems = make_plan({"steps": [tree]}, toolbox, limits, numbered=False)
    problems = [replace(fault, path=fault.path.replace("steps[0]", place, 1)) for fault in problems]
    return plan.steps[0] if plan is not None else _ANY_STEP, problems


def _no_patch(reason: str) -> PlanRefused:
    return PlanRefused([Problem("DR420", "", {"reason": reason})])


def _plan(tree: Any, toolbox: Toolbox | None, limits: PlanLimits, problems: list[Problem]) -> Plan:
    plan, more = make_plan(tree, toolbox, limits, may_refuse=not problems)
    if problems or more or plan is None:
        raise PlanRefused([*problems, *more])
    return plan


def _patch(tree: dict[str, Any], toolbox: Toolbox | None, limits: PlanLimits, problems: list[Problem]) -> Patch:
    edits = tree.get("edits")
    if not isinstance(edits, list):
        raise PlanRefused([*problems, wrong_type("edits", "a list", edits)])
    if len(edits) > limits.max_steps:
        raise PlanRefused([Problem("DR409", "edits", {"count": str(len(edits)), "limit": str(limits.max_steps)})])
    problems += take_out_marks(tree)
    problems += take_refusal(tree, raises=not problems and not edits)
    restore_fields(tree)
    _drop_nulls(tree, _NULLS)
    tree["edits"] = []
    for number, edit in enumerate(edits):
        valid_edit, faults = _edit(edit, f"edits[{number}]", toolbox, limits)
        tree["edits"] += [] if valid_edit is None else [valid_edit]
        problems += faults
    patch, faults = _validated(Patch, tree, "")
    problems += faults
    if problems or patch is None:
        raise PlanRefused(problems)
    return patch


def _edit(edit: Any, place: str, toolbox: Toolbox | None, limits: PlanLimits) -> tuple[BaseModel | None, list[Problem]]:
    if not isinstance(edit, dict):
        return None, [wrong_type(place, "an object", edit)]
    if "op" not in edit:
        return None, [missing_field("op", place)]
    op = edit["op"]
    if not isinstance(op, str) or op not in _EDITS:
        return None, [wrong_type(f"{place}.op", f"one of {', '.join(_EDITS)}", op)]
    if op == "rewire":
        edit["args"] = restore_args(edit.get("args"))
    if op == "add":  # in the strict form, one edit stands for both
        _drop_empty(edit)
    _drop_nulls(edit, _EDIT_NULLS)
    problems = _use_pairs(edit, place)
    if isinstance(edit.get("step"), dict):
        edit["step"], more = read_step(edit["step"], f"{place}.step", toolbox, limits)
        problems += more
    if op == "rewire" and toolbox is not None and isinstance(edit.get("args"), dict):
        edit["args"] = drop_nulls_in_args(edit["args"], toolbox)
    valid_edit, more = _validated(_EDITS[op], edit, place)
    return valid_edit, [*problems, *more]


def _validated(model: type[AnyModel], tree: dict[str, Any], place: str) -> tuple[AnyModel | None, list[Problem]]:
    try:
        return model.model_validate(tree), []
    except ValidationError as error:
        faults = faults_of(error, tree, model)
        return None, [replace(fault, path=f"{place}.{fault.path}".strip(".")) for fault in faults]


def _use_pairs(edit: dict[str, Any], place: str) -> list[Problem]:
    """Turn ``use`` into an object: in strict output modes it is a list of pairs. Return the problems."""
    use = edit.get("use")
    if not isinstance(use, list):
        return []
    pairs = [pair for pair in use if isinstance(pair, dict) and pair.keys() == {"old", "new"}]
    if len(pairs) < len(use) or not all(isinstance(pair["old"], str) for pair in pairs):
        del edit["use"]
        return [wrong_type(f"{place}.use", 'an object of ids, or pairs such as {"old": "a", "new": "b"}', use)]
    edit["use"] = {pair["old"]: pair["new"] for pair in pairs}
    if len(edit["use"]) == len(pairs):
        return []
    twice = next(pair["old"] for pair in pairs if sum(other["old"] == pair["old"] for other in pairs) > 1)
    return [Problem("DR007", f"{place}.use", {"key": repr(twice)})]


def _drop_empty(edit: dict[str, Any]) -> None:
    """Remove empty fields from an ``add`` that only a ``replace`` has."""
    if edit.get("id") == "":
        del edit["id"]
    if edit.get("cancel") is False:
        del edit["cancel"]


def _drop_nulls(tree: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        if name in tree and tree[name] is None:
            del tree[name]


# The next step -------------------------------------------------------------------------------------------------------


class NextStepAnswer(BaseModel):
    """The answer of a planner that goes step by step: the next step, or the end.

    Attributes:
        thought: The planner's thought before its answer.
        step: The next step; `None` at the end.
        stop: Why there is no next step; `None` if there is one.
        output: The answer of the run, as a plan names it.
        reason: The reason in a sentence.
        confidence: How sure the planner is.
        plan: The remaining work after the step, if the planner keeps a plan on a scratchpad.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    thought: str = ""
    plan: list[str] | None = None
    step: Step | None = None
    stop: Literal["goal_met", "cannot", "needs_person"] | None = None
    output: str | None = None
    reason: str | None = None
    confidence: float | None = Field(default=None, ge=0, le=1)


def read_next_step(text: str, toolbox: Toolbox | None, limits: PlanLimits | None = None) -> NextStepAnswer:
    """Read the answer of a planner that goes step by step; its schema is `next_step_schema`.

    Args:
        text: The whole answer; prose and code fences around it are ignored.
        toolbox: The tools that the answer may use; `None` as for `read_plan`.
        limits: Limits of size.

    Returns:
        The answer: exactly one of *step* and *stop* is set.

    Raises:
        PlanRefused: The answer is invalid; the error holds every problem.
    """
    limits = PlanLimits() if limits is None else limits
    count_bytes(text, limits)
    scanner = JsonScanner(max_plan_depth(limits), _NEXT_STEP_KEYS)
    scanner.feed(text)
    tree, problems = parse_object(text, scanner, limits, what=_NEXT_STEP)
    problems += take_out_marks(tree)
    restore_fields(tree)
    _drop_nulls(tree, ("thought",))
    problems += _check_choice(tree)
    if isinstance(tree.get("step"), dict):
        tree["step"], more = read_step(tree["step"], "step", toolbox, limits)
        problems += more
    try:
        answer = NextStepAnswer.model_validate(tree)
    except ValidationError as error:
        raise PlanRefused([*problems, *faults_of(error, tree, NextStepAnswer)]) from None
    if problems:
        raise PlanRefused(problems)
    return answer


def _check_choice(tree: dict[str, Any]) -> list[Problem]:
    choices = [name for name in _NEXT_STEP_KEYS if tree.get(name) is not None]
    if len(choices) == 1:
        return []
    return [Problem("DR009", "", {"expected": "either step or stop", "found": "both" if choices else "neither"})]
