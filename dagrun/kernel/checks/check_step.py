"""Check one step: its tool, dependencies, arguments, conditions and options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from dagrun.kernel.checks.argument_shapes import ReadArguments
from dagrun.kernel.checks.check_arguments import ArgumentCheck, leaked_secret
from dagrun.kernel.checks.check_context import CheckContext, ToolFacts, lowest_limit
from dagrun.kernel.checks.check_objects import check_objects
from dagrun.kernel.checks.check_references import StepReferences
from dagrun.kernel.checks.checked_plan import CheckedStep, asks_of
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.checks.plain_json import EMPTY_ARGS, compile_value, is_plain_json
from dagrun.kernel.model.contracts.imported_tools import asks_people
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import Template
from dagrun.kernel.model.secrets import Secrets
from dagrun.kernel.model.tool import AnyTool

_EXECUTORS = ("coroutine", "thread", "process")


_NO_NAMES: Final[frozenset[str]] = frozenset()
_NO_SOURCES: Final[Mapping[str, None]] = {}

# Pydantic has checked everything about these fields but their references. Most steps have no others, which saves time.
_PLAIN_FIELDS: Final = frozenset(
    ("id", "tool", "args", "depends_on", "description", "expected_output", "confidence", "estimate", "optional")
)


def check_step(context: CheckContext, index: int, step: Step) -> tuple[CheckedStep | None, tuple[str, ...]]:
    """Check one step.

    Returns:
        The step as the runtime needs it, or `None` if its problems leave nothing to run; and the ids of the steps of
        the plan that it waits for, in the order of first mention.
    """
    facts = context.tools.get(step.tool)
    if facts is None or not facts.is_allowed:
        _report_tool(context, index, step)
    is_plain = _PLAIN_FIELDS.issuperset(step.model_fields_set)
    args, read = _compile_arguments(context, index, step)
    references = None
    sources: Mapping[str, None]
    known = _known_sources(context, facts, step, args, read) if facts is not None else None
    if is_plain and known is not None:
        sources = known
    else:
        references = StepReferences(context, index, step)
        call = (
            ArgumentCheck(context.findings, index, step, facts, context.secrets, context) if facts is not None else None
        )
        _check_values(references, step, args, call, known)
        sources = references.sources
    waits_for = _dependencies(context, index, step, sources)
    if references is not None and not is_plain:
        _check_options(context, index, step)
        if step.success is not None:
            references.success(step.success, waits_for)
    if facts is None:
        return None, waits_for
    executor, pool, timeout, fallback = _check_call(context, index, step, facts, args, is_plain=is_plain)
    if args is None:
        return None, waits_for
    if context.hides and (leak := leaked_secret(step, context)):
        context.findings.add("DR213", index, step=step.id, secret=leak)
    checked = CheckedStep(
        step=step,
        tool=facts.tool,
        fallback=fallback,
        executor=executor,
        pool=pool,
        args=args,
        items=references.items if references is not None else None,
        depends_on=waits_for,
        value_sources=frozenset(sources) if sources else _NO_NAMES,
        timeout=timeout,
        asks=asks_of(step, facts.tool, context.policy) if facts.may_ask or step.confidence is not None else (),
        fallback_asks=asks_of(step, fallback, context.policy) if fallback is not None else (),
        # With a trust boundary, whose data a call gets is asked when it starts: nothing may come in later.
        may_stream=context.policy.flow is None,
    )
    if context.has_objects:
        check_objects(context, index, checked)
    return checked, waits_for


def _check_call(
    context: CheckContext, index: int, step: Step, facts: ToolFacts, args: Template | None, *, is_plain: bool
) -> tuple[str, str | None, float | None, AnyTool | None]:
    """Return where a step is called, its pool, its seconds for an attempt, and its fallback."""
    if is_plain and facts.is_plain:  # saves looking at what nearly no step has
        return facts.executor, facts.pool, facts.timeout, None
    executor: str = facts.executor
    if not facts.tool.is_importable and (step.executor == "process" or step.executor in context.executors):
        reason = f"no other place can import {step.tool}, which is made of a schema; leave executor out"
        context.findings.add("DR112", index, "executor", step=step.id, reason=reason)
    elif executor == "process" or step.executor is not None:
        executor = _check_executor(context, index, step, facts)
    fallback = None
    if step.fallback is not None or facts.tool.fallback is not None:
        fallback = _check_fallback(context, index, step, facts, args)
    pool = step.pool if step.pool is not None else facts.pool
    if pool is None and executor in context.executors:
        pool = executor  # so that a limit of its pool limits what runs in an executor of the host
    timeout = facts.timeout if step.timeout is None else lowest_limit(step.timeout, facts.timeout)
    return executor, pool, timeout, fallback.tool if fallback is not None else None


# The tool ------------------------------------------------------------------------------------------------------------


def _report_tool(context: CheckContext, index: int, step: Step) -> None:
    facts = context.tools.get(step.tool)
    if facts is not None and (reason := facts.tool.refusal):
        context.findings.add("DR221", index, "tool", step=step.id, tool=step.tool, reason=reason)
        return
    if facts is not None:
        context.findings.add("DR202", index, "tool", step=step.id, tool=step.tool)
        return
    hint = context.findings.hint(step.tool, context.tools)
    context.findings.add("DR201", index, "tool", step=step.id, tool=repr(step.tool[:200]), hint=hint)


def _check_executor(context: CheckContext, index: int, step: Step, facts: ToolFacts) -> str:
    """Return where the tool runs: in the executor of the step, or else of the tool."""
    chosen: str = facts.executor
    if step.executor is not None:
        reason = ""
        match step.executor:
            case "process":
                chosen = "process"
            case _ if facts.executor == "process":
                reason = f"{step.tool} runs in a worker process, which no step can leave"
            case "coroutine" | "thread" if step.executor == ("coroutine" if facts.tool.is_async else "thread"):
                chosen = "coroutine" if facts.tool.is_async else "thread"
            case "coroutine":
                reason = f"{step.tool} is a plain function, which runs in a thread or a process"
            case "thread":
                reason = f"{step.tool} is async, which runs as a coroutine or in a process"
            case name if name in context.executors:
                return _check_host_executor(context, index, step, facts)
            case _:
                known = (*_EXECUTORS, *sorted(context.executors))
                hint = context.findings.hint(step.executor, known)
                names = f"{', '.join(known[:-1])} or {known[-1]}"
                reason = f"executor is {names}, not {step.executor[:60]!r}{hint}"
        if reason:
            context.findings.add("DR112", index, "executor", step=step.id, reason=reason)
    if chosen == "process":
        _check_import(context, index, step, facts)
    return chosen


def _check_host_executor(context: CheckContext, index: int, step: Step, facts: ToolFacts) -> str:
    name = str(step.executor)
    if reason := facts.why_not_in(name, context.executors[name]):
        context.findings.add("DR222", index, "executor", step=step.id, tool=step.tool, executor=name, reason=reason)
    return name


def _check_fallback(
    context: CheckContext, index: int, step: Step, facts: ToolFacts, args: Template | None
) -> ToolFacts | None:
    """Check that the fallback takes the same arguments as the tool."""
    name = step.fallback if step.fallback is not None else facts.tool.fallback
    if name is None:
        return None
    fallback = context.tools.get(name)
    reasons = []
    if fallback is None:
        reasons.append(f"there is no such tool{context.findings.hint(name, context.tools)}")
    elif fallback is facts:
        reasons.append("it is the tool itself")
    elif not fallback.is_allowed:
        reasons.append(f"it {fallback.tool.refusal}" if fallback.tool.refusal else "this run does not allow it")
    elif args is not None:
        reasons += _argument_faults(index, step, fallback, args, context.secrets)
    for reason in reasons:
        context.findings.add("DR207", index, "fallback", fallback=name[:200], step=step.id, reason=reason)
    if fallback is not None and fallback.executor == "process":
        _check_import(context, index, step, fallback)
    return fallback


def _argument_faults(index: int, step: Step, fallback: ToolFacts, args: Template, secrets: Secrets) -> list[str]:
    trial = Findings()
    call = ArgumentCheck(trial, index, step, fallback, secrets)
    call.check(args, ())
    return [problem.sentence for problem in trial.problems()]


def _check_import(context: CheckContext, index: int, step: Step, facts: ToolFacts) -> None:
    name = facts.tool.name
    if reason := facts.why_no_process():
        context.findings.add("DR208", index, "tool", step=step.id, tool=name, reason=reason)
    elif asks_people(facts.tool):
        reason = f"{name} asks people, and its question does not reach them from there"
        context.findings.add("DR222", index, "tool", step=step.id, tool=name, executor="process", reason=reason)


# Arguments and dependencies ------------------------------------------------------------------------------------------


def _compile_arguments(context: CheckContext, index: int, step: Step) -> tuple[Template | None, ReadArguments | None]:
    """Return the template of the arguments, `None` if they have a problem; and what was read, if they have a shape."""
    if not step.args and type(step.args) is dict:
        return EMPTY_ARGS, None
    read = context.shapes.read(step.args)
    if read is not None:
        return read[0], read
    template = compile_value(step.args, context.findings, index, "args", context.policy.max_argument_bytes)
    if template is not None and template.references and not template.places[0]:
        reason = "the arguments are values by name; a reference stands for one of them"
        context.findings.add("DR301", index, "args", text=repr(str(template.references[0])), reason=reason)
        return None, None
    return template, None


def _known_sources(
    context: CheckContext, facts: ToolFacts, step: Step, args: Template | None, read: ReadArguments | None
) -> Mapping[str, None] | None:
    """Return the steps that arguments without a fault refer to, by id, in the order of first mention.

    Returns:
        `None` if the arguments may have a fault: their shape, or a reference whose value may not fit its place.
    """
    contract = facts.tool.arguments
    if read is None:
        return _NO_SOURCES if args is EMPTY_ARGS and not contract.required and not contract.is_json_only else None
    template, references, valid = read
    if contract.stream and references:
        return None  # its elements are looked at, too
    if step.tool not in valid:
        if not facts.takes(step.args.keys(), template):
            trial = ArgumentCheck(Findings(), 0, step, facts, context.secrets, context)
            trial.check(template, ())
            if trial.findings.has_errors:
                return None
        valid[step.tool] = ()
    own, texts, sources = step.id, template.texts, dict[str, None]()
    for number, (_, source, value) in enumerate(references):
        if value is None or source == own:
            return None
        # A value of which nothing is known fits wherever it is no part of a text.
        if (texts or value[0].types is not None) and not _fits(context, facts, step, read, number):
            return None
        if source is not None:
            sources[source] = None
    return sources


def _fits(context: CheckContext, facts: ToolFacts, step: Step, read: ReadArguments, number: int) -> bool:
    """Whether the value of a reference may fit its place."""
    template, references, valid = read
    places = valid[step.tool] = valid[step.tool] or facts.places_of(template)
    place, value = places[number], references[number][2]
    assert value is not None
    if place not in value[1]:
        trial = ArgumentCheck(Findings(), 0, step, facts, context.secrets, context)
        trial.check_type(template.holes[number], value[0])
        if trial.findings.has_errors:
            return False
        value[1].add(place)
    return True


def _check_values(
    references: StepReferences,
    step: Step,
    args: Template | None,
    call: ArgumentCheck | None,
    known: Mapping[str, None] | None,
) -> None:
    """Check the list, the condition and the arguments of a step."""
    if step.for_each is not None:
        references.for_each()
    if step.when is not None:
        references.when(step.when)
    if known is not None:
        references.sources.update(known)
    elif args is None:
        return
    elif call is None:
        references.arguments(args)
    else:
        call.check(args, references.arguments(args))
        if call.contract.stream and args.references:
            call.check_stream(references.elements_of_stream(args, call.contract))


def _dependencies(context: CheckContext, index: int, step: Step, sources: Mapping[str, None]) -> tuple[str, ...]:
    """Return the ids of all steps to wait for: first the declared ones, then those that references imply."""
    declared = tuple(step.depends_on)
    if not declared:
        return tuple(sources)
    distinct = set(declared)
    if len(distinct) < len(declared) or step.id in distinct or not distinct <= context.index.keys():
        declared = _check_declared(context, index, step)
    if sources:
        declared = (*declared, *[id_ for id_ in sources if id_ not in distinct])
    return declared


def _check_declared(context: CheckContext, index: int, step: Step) -> tuple[str, ...]:
    """Report the faults among the declared dependencies, and return those without a fault, once each."""
    findings, known = context.findings, context.index
    # A dense plan may have millions of equal faults, of which only the first are reported.
    reported = {code for code in ("DR104", "DR105", "DR107") if findings.has_room_for(code)}
    seen: set[str] = set()
    valid: list[str] = []
    for number, id_ in enumerate(step.depends_on):
        if id_ in seen:
            code = "DR107"
        elif id_ == step.id:
            code = "DR105"
        elif id_ not in known:
            code = "DR104"
        else:
            code = ""
            valid.append(id_)
        seen.add(id_)
        if code in reported:
            _report_dependency(context, index, step, code, number)
    return tuple(valid)


def _report_dependency(context: CheckContext, index: int, step: Step, code: str, number: int) -> None:
    id_, findings = step.depends_on[number], context.findings
    facts = {} if code == "DR105" else {"dependency": repr(id_[:200])}
    if code == "DR104":
        facts["hint"] = findings.hint(id_, context.index)
    findings.add(code, index, f"depends_on[{number}]", step=step.id, **facts)


# Options -------------------------------------------------------------------------------------------------------------


def _check_options(context: CheckContext, index: int, step: Step) -> None:
    def wrong(field: str, reason: str) -> None:
        context.findings.add("DR112", index, field, step=step.id, reason=reason)

    if step.max_parallel is not None and step.for_each is None:
        wrong("max_parallel", "max_parallel limits the elements of for_each, and there is no for_each")
    if step.on_failure == "default" and not step.has_default:
        wrong("on_failure", 'on_failure is "default", and no default is given')
    if step.has_default and step.on_failure != "default":
        wrong("default", 'a default is used only with on_failure "default"')
    if step.has_default:
        is_plain_json(step.default, context.findings, index, "default", context.policy.max_argument_bytes)
