"""One step: everything that can be known about it before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import filterfalse
from typing import Final

from dagrun.checks.argument_shapes import ShapedArguments
from dagrun.checks.check_arguments import ArgumentCheck, leaked_secret
from dagrun.checks.check_context import CheckContext, ToolFacts, lowest_limit
from dagrun.checks.check_references import StepReferences
from dagrun.checks.checked_plan import CheckedStep, asks_of
from dagrun.checks.findings import Findings
from dagrun.checks.plain_json import EMPTY_ARGS, compile_value, fits, is_plain_json
from dagrun.model.plan import Step
from dagrun.model.reference import Template
from dagrun.model.secrets.secret import Secrets

_EXECUTORS = ("coroutine", "thread", "process")


def check_tool(context: CheckContext, index: int, step: Step) -> ToolFacts | None:
    """Find the tool of *step*; `None` if there is none of that name."""
    facts = context.tools.get(step.tool)
    if facts is None:
        hint = context.findings.hint(step.tool, context.tools)
        context.findings.add("DR201", index, "tool", step=step.id, tool=repr(step.tool[:200]), hint=hint)
    elif not facts.is_allowed:
        context.findings.add("DR202", index, "tool", step=step.id, tool=step.tool)
    return facts


def check_executor(context: CheckContext, index: int, step: Step, facts: ToolFacts) -> str:
    """Find out where the tool runs: the step's word, else the tool's."""
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
                chosen = name
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


def check_fallback(
    context: CheckContext, index: int, step: Step, facts: ToolFacts, args: Template | None
) -> ToolFacts | None:
    """Check the tool that is tried last: it must take the same arguments."""
    name = step.fallback if step.fallback is not None else facts.tool.fallback
    if name is None:
        return None
    found = context.tools.get(name)
    reasons = []
    if found is None:
        reasons.append(f"there is no such tool{context.findings.hint(name, context.tools)}")
    elif found is facts:
        reasons.append("it is the tool itself")
    elif not found.is_allowed:
        reasons.append("this run does not allow it")
    elif args is not None:
        reasons += _misfits(index, step, found, args, context.secrets)
    for reason in reasons:
        context.findings.add("DR207", index, "fallback", fallback=name[:200], step=step.id, reason=reason)
    if found is not None and found.executor == "process":
        _check_import(context, index, step, found)
    return found


def _misfits(index: int, step: Step, fallback: ToolFacts, args: Template, secrets: Secrets) -> list[str]:
    trial = Findings()
    call = ArgumentCheck(trial, index, step, fallback, secrets)
    call.check(args, ())
    return [problem.sentence for problem in trial.problems()]


def _check_import(context: CheckContext, index: int, step: Step, facts: ToolFacts) -> None:
    if reason := facts.why_no_process():
        context.findings.add("DR208", index, "tool", step=step.id, tool=facts.tool.name, reason=reason)


_NOTHING: Final[frozenset[str]] = frozenset()

_FEW: Final = 8  # faults that are quicker looked for by themselves than in one pass over all dependencies

# Nothing can be wrong with these that pydantic has not looked at. Most steps have no others, and are done sooner.
_PLAIN_FIELDS: Final = frozenset(
    ("id", "tool", "args", "depends_on", "description", "expected_output", "confidence", "estimate", "optional")
)


def check_step(context: CheckContext, index: int, step: Step) -> tuple[CheckedStep | None, tuple[str, ...]]:
    """Check one step.

    Returns:
        The step as the runtime wants it, or `None` if its problems leave nothing to run; and the ids of the steps
        of the plan that it waits for, in the order of first mention.
    """
    facts = check_tool(context, index, step)
    is_plain = _PLAIN_FIELDS.issuperset(step.model_fields_set)
    args, filled = _compile(context, index, step)
    references = None
    if is_plain and facts is not None and _is_known_right(facts, step, args, filled):
        sources = filled.sources() if filled is not None else {}
    else:
        references = StepReferences(context, index, step)
        call = ArgumentCheck(context.findings, index, step, facts, context.secrets) if facts is not None else None
        _look_closely(references, step, args, filled, call)
        sources = references.sources
    waits_for = _dependencies(context, index, step, sources)
    if references is not None and not is_plain:
        _check_options(context, index, step)
        if step.success is not None:
            references.success(step.success, waits_for)
    if facts is None:
        return None, waits_for
    executor: str = facts.executor
    if executor == "process" or step.executor is not None:
        executor = check_executor(context, index, step, facts)
    fallback = None
    if step.fallback is not None or facts.tool.fallback is not None:
        fallback = check_fallback(context, index, step, facts, args)
    if args is None:
        return None, waits_for
    if context.secrets.are_hidden and (leak := leaked_secret(step, context)):
        context.findings.add("DR213", index, step=step.id, secret=leak)
    checked = CheckedStep(
        step=step,
        tool=facts.tool,
        fallback=fallback.tool if fallback is not None else None,
        executor=executor,
        pool=step.pool if step.pool is not None else facts.pool,
        args=args,
        items=references.items if references is not None else None,
        depends_on=waits_for,
        value_sources=frozenset(sources) if sources else _NOTHING,
        timeout=facts.timeout if step.timeout is None else lowest_limit(step.timeout, facts.timeout),
        asks=asks_of(step, facts.tool, context.policy) if facts.may_ask or step.confidence is not None else (),
        fallback_asks=asks_of(step, fallback.tool, context.policy) if fallback is not None else (),
    )
    return checked, waits_for


def _compile(context: CheckContext, index: int, step: Step) -> tuple[Template | None, ShapedArguments | None]:
    """Make a template of the arguments, if they are such; and find their form, if it is a common one."""
    if not step.args and type(step.args) is dict:
        return EMPTY_ARGS, None
    limit = context.policy.max_argument_bytes
    filled = context.forms.of(step.args)
    if filled is not None:
        if not fits(filled.form.size, context.findings, index, "args", limit):
            return None, None
        return filled.template(), filled
    template = compile_value(step.args, context.findings, index, "args", limit)
    if template is not None and template.holes and not template.holes[0].place:
        reason = "the arguments are values by name; a reference stands for one of them"
        context.findings.add("DR301", index, "args", text=repr(str(template.holes[0].reference)), reason=reason)
        return None, None
    return template, None


def _is_known_right(facts: ToolFacts, step: Step, args: Template | None, filled: ShapedArguments | None) -> bool:
    """Whether such arguments need not be looked at: there are none, or they were right in another step."""
    if filled is None:
        return args is EMPTY_ARGS and not facts.tool.arguments.required
    return filled.is_right(step.tool, step.id)


def _look_closely(
    references: StepReferences,
    step: Step,
    args: Template | None,
    filled: ShapedArguments | None,
    call: ArgumentCheck | None,
) -> None:
    """Check list, condition and arguments of a step, of which any may be wrong."""
    if step.for_each is not None:
        references.for_each()
    if step.when is not None:
        references.when(step.when)
    if args is None:
        return
    if call is None:
        references.arguments(args)
    elif _is_known_right(call.facts, step, args, filled):
        references.sources.update(filled.sources() if filled is not None else {})
    else:
        before = call.findings.count
        call.check(args, references.arguments(args))
        if filled is not None and call.findings.count == before:
            filled.note_right(step.tool)


def _dependencies(context: CheckContext, index: int, step: Step, sources: Mapping[str, None]) -> tuple[str, ...]:
    """Every step to wait for: the declared ones first, then those that references imply."""
    found = tuple(step.depends_on)
    if not found:
        return tuple(sources)
    distinct = set(found)
    if len(distinct) < len(found) or step.id in distinct or not context.knows(found):
        found = _check_declared(context, index, step, distinct)
    if sources:
        found = (*found, *[id_ for id_ in sources if id_ not in distinct])
    return found


def _check_declared(context: CheckContext, index: int, step: Step, distinct: set[str]) -> tuple[str, ...]:
    """Name the faults among the declared dependencies; give those that are none, once each."""
    findings, found = context.findings, tuple(step.depends_on)
    strange = context.unknown(distinct)
    if step.id in distinct:
        strange.add(step.id)
    are_repeated = len(distinct) < len(found)
    # A dense plan has millions of the same fault: those that nobody would be told are not looked for either.
    named = strange if step.id in strange or findings.wants("DR104") else set()
    seen: set[str] = set()
    add = seen.add
    numbered: Iterable[tuple[int, str]]
    if are_repeated or len(named) > _FEW:
        numbered = enumerate(found if named or findings.wants("DR107") else ())
    else:
        numbered = sorted((found.index(id_), id_) for id_ in named)
    for number, id_ in numbered:
        if id_ in seen:
            _add_declared(context, index, step, "DR107", number)
            continue
        add(id_)
        if id_ in named:
            _add_declared(context, index, step, "DR105" if id_ == step.id else "DR104", number)
    if len(strange) == len(distinct):
        return ()
    once = dict.fromkeys(found) if are_repeated else found
    return tuple(filterfalse(strange.__contains__, once))


def _add_declared(context: CheckContext, index: int, step: Step, code: str, number: int) -> None:
    id_, findings = step.depends_on[number], context.findings
    facts = {} if code == "DR105" else {"dependency": repr(id_[:200])}
    if code == "DR104":
        facts["hint"] = findings.hint(id_, context.index)
    findings.add(code, index, f"depends_on[{number}]", step=step.id, **facts)


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
