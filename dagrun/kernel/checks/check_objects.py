"""Check that objects of steps and of the host stay in this process, and that the host's objects exist.

Nothing but null stands in for an object of a step.

What a reference may name is checked with the other references (`check_references.py`), and whether an object is of the
class that a parameter takes with the other arguments (`check_arguments.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dagrun.kernel.checks.check_context import CheckContext
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.model.contracts.objects import has_only_frames
from dagrun.kernel.model.reference import Reference
from dagrun.kernel.model.tool import AnyTool

_IN_THIS_PROCESS = ("coroutine", "thread")


def check_objects(context: CheckContext, index: int, checked: CheckedStep) -> None:
    """Refuse objects for tools outside this process, defaults for objects, and missing dependencies.

    Args:
        context: The steps under check.
        index: The place of the step in the plan.
        checked: The step.
    """
    step, tool = checked.step, checked.tool
    check_deps(context, index, checked)
    if tool.output.has_objects and step.has_default and step.default is not None:
        reason = f"{tool.name} returns an object in memory, so nothing but null can be its default"
        context.findings.add("DR112", index, "default", step=step.id, reason=reason)
    for called, executor in _calls(checked):
        if executor in _IN_THIS_PROCESS or called.is_on_record:
            continue
        returns = called.output.has_objects and not (executor == "process" and called.output.has_frames)
        reason = f"{called.name} returns one" if returns else _passed(context, checked, executor)
        if reason:
            place = "executor" if step.executor is not None else "tool"
            facts = {"step": step.id, "tool": called.name, "executor": executor, "reason": reason}
            context.findings.add("DR217", index, place, **facts)


def check_deps(context: CheckContext, index: int, checked: CheckedStep) -> None:
    """Refuse a step whose tool, or fallback, wants a dependency that is missing, or cannot get there."""
    for called, executor in _calls(checked):
        for tool in _with_inner(called):
            _check_deps_of(context, index, checked, tool, executor)


def _check_deps_of(context: CheckContext, index: int, checked: CheckedStep, tool: AnyTool, executor: str) -> None:
    arguments, step = tool.arguments, checked.step
    wanted = dict(arguments.deps)
    if arguments.context is not None and arguments.context_deps is not None:
        wanted[arguments.context] = arguments.context_deps
    if wanted and executor == "process":
        facts = {"step": step.id, "tool": tool.name, "argument": min(wanted)}
        context.findings.add("DR219", index, "executor" if step.executor is not None else "tool", **facts)
        return
    for name, kind, reason in context.deps.missing(wanted, arguments.optional_deps):
        facts = {"step": step.id, "tool": tool.name, "argument": name, "type": kind, "reason": reason}
        context.findings.add("DR218", index, "tool", **facts)


def _with_inner(tool: AnyTool) -> Iterator[AnyTool]:
    yield tool
    if tool.batch is not None:
        yield tool.batch.form
    for inner in tool.inner_tools:
        yield from _with_inner(inner)


def _calls(checked: CheckedStep) -> Iterator[tuple[AnyTool, str]]:
    """Yield the tools that a step may call, with their executors: its tool, and its fallback."""
    yield checked.tool, checked.executor
    if checked.fallback is not None:
        yield checked.fallback, checked.fallback.executor


def _passed(context: CheckContext, checked: CheckedStep, executor: str) -> str:
    """Return the argument of a step that is an object and cannot be sent to an executor; an empty text if none is."""
    stuck = (one for one in checked.args.references if _is_stuck(context, checked, one, executor))
    return next((f"{reference} is one" for reference in stuck), "")


def _is_stuck(context: CheckContext, checked: CheckedStep, reference: Reference, executor: str) -> bool:
    name = reference.step
    if name != "item" and (name not in context.index or name == checked.step.id):
        return False
    hint = context.sources.look_up(reference, checked.items).hint
    return hint is not None and not (executor == "process" and has_only_frames(hint))
