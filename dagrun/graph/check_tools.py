"""The tool of a step and its fallback: known, allowed, and able to run where the step says."""

from __future__ import annotations

from dagrun.graph.check_arguments import Call
from dagrun.graph.findings import Findings
from dagrun.graph.scope import Scope, ToolFacts
from dagrun.model.plan import Step
from dagrun.model.reference import Template
from dagrun.model.secret import Secrets

_EXECUTORS = ("coroutine", "thread", "process")


def check_tool(scope: Scope, index: int, step: Step) -> ToolFacts | None:
    """Find the tool of *step*; `None` if there is none of that name."""
    facts = scope.tools.get(step.tool)
    if facts is None:
        hint = scope.findings.hint(step.tool, scope.tools)
        scope.findings.add("DR201", index, "tool", step=step.id, tool=repr(step.tool[:200]), hint=hint)
    elif not facts.is_allowed:
        scope.findings.add("DR202", index, "tool", step=step.id, tool=step.tool)
    return facts


def check_executor(scope: Scope, index: int, step: Step, facts: ToolFacts) -> str:
    """Find out where the tool runs: the step's word, else the tool's."""
    chosen: str = facts.executor
    if step.executor is not None:
        reason = ""
        match step.executor:
            case "process":
                chosen = "process"
            case "coroutine" | "thread" if step.executor == ("coroutine" if facts.tool.is_async else "thread"):
                chosen = "coroutine" if facts.tool.is_async else "thread"
            case "coroutine":
                reason = f"{step.tool} is a plain function, which runs in a thread or a process"
            case "thread":
                reason = f"{step.tool} is async, which runs as a coroutine or in a process"
            case name if name in scope.executors:
                chosen = name
            case _:
                known = (*_EXECUTORS, *sorted(scope.executors))
                hint = scope.findings.hint(step.executor, known)
                names = f"{', '.join(known[:-1])} or {known[-1]}"
                reason = f"executor is {names}, not {step.executor[:60]!r}{hint}"
        if reason:
            scope.findings.add("DR112", index, "executor", step=step.id, reason=reason)
    if chosen == "process":
        _check_import(scope, index, step, facts)
    return chosen


def check_fallback(scope: Scope, index: int, step: Step, facts: ToolFacts, args: Template | None) -> ToolFacts | None:
    """Check the tool that is tried last: it must take the same arguments."""
    name = step.fallback if step.fallback is not None else facts.tool.fallback
    if name is None:
        return None
    found = scope.tools.get(name)
    reasons = []
    if found is None:
        reasons.append(f"there is no such tool{scope.findings.hint(name, scope.tools)}")
    elif found is facts:
        reasons.append("it is the tool itself")
    elif not found.is_allowed:
        reasons.append("this run does not allow it")
    elif args is not None:
        reasons += _misfits(index, step, found, args, scope.secrets)
    for reason in reasons:
        scope.findings.add("DR207", index, "fallback", fallback=name[:200], step=step.id, reason=reason)
    if found is not None and found.executor == "process":
        _check_import(scope, index, step, found)
    return found


def _misfits(index: int, step: Step, fallback: ToolFacts, args: Template, secrets: Secrets) -> list[str]:
    trial = Findings()
    call = Call(trial, index, step, fallback, secrets)
    call.check(args, ())
    return [problem.sentence for problem in trial.problems()]


def _check_import(scope: Scope, index: int, step: Step, facts: ToolFacts) -> None:
    if reason := facts.why_no_process():
        scope.findings.add("DR208", index, "tool", step=step.id, tool=facts.tool.name, reason=reason)
