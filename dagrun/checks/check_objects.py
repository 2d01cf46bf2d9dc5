"""Check where objects in memory may go: they stay in this process, and nothing but null stands in for one.

What a reference may name is checked with the other references (`check_references.py`), and whether an object is of the
class that a parameter takes with the other arguments (`check_arguments.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dagrun.checks.check_context import CheckContext
from dagrun.checks.checked_plan import CheckedStep
from dagrun.model.reference import Hole
from dagrun.model.toolbox import AnyTool

_IN_THIS_PROCESS = ("coroutine", "thread")


def check_objects(context: CheckContext, index: int, checked: CheckedStep) -> None:
    """Refuse objects where a tool does not run in this process, and a default in place of one.

    Args:
        context: The steps under check.
        index: The place of the step in the plan.
        checked: The step.
    """
    step, tool = checked.step, checked.tool
    if tool.output.has_objects and step.has_default and step.default is not None:
        reason = f"{tool.name} returns an object in memory, so nothing but null can be its default"
        context.findings.add("DR112", index, "default", step=step.id, reason=reason)
    for called, executor in _calls(checked):
        if executor in _IN_THIS_PROCESS:
            continue
        reason = f"{called.name} returns one" if called.output.has_objects else _passed(context, checked)
        if reason:
            place = "executor" if step.executor is not None else "tool"
            facts = {"step": step.id, "tool": called.name, "executor": executor, "reason": reason}
            context.findings.add("DR217", index, place, **facts)


def _calls(checked: CheckedStep) -> Iterator[tuple[AnyTool, str]]:
    """Yield what a step may call, and where: its tool, and its fallback."""
    yield checked.tool, checked.executor
    if checked.fallback is not None:
        yield checked.fallback, checked.fallback.executor


def _passed(context: CheckContext, checked: CheckedStep) -> str:
    """Say that an argument of a step is an object; an empty text if none is."""
    return next((f"{hole.reference} is one" for hole in checked.args.holes if _is_object(context, checked, hole)), "")


def _is_object(context: CheckContext, checked: CheckedStep, hole: Hole) -> bool:
    name = hole.reference.step
    is_known = name == "item" or (name in context.index and name != checked.step.id)
    return is_known and context.sources.look_up(hole.reference, checked.items).hint is not None
