"""Drift: steps that nothing uses, and runs that stop before the goal is reached."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dagrun.evaluate.cases.case_file import CallExpectation, Case, Expectation
from dagrun.evaluate.cases.trial import CaseRun
from dagrun.kernel.model.event import AttemptEnded, DraftEnded, Spliced
from dagrun.kernel.model.reference import compile_template
from dagrun.kernel.runtime.result import RunResult


def unused_calls(case: Case, trial: CaseRun) -> int:
    """Return how many calls succeeded in steps that nothing uses.

    A step is used if its tool has an effect; if the case expects it or its tool; if the answer, or a step that is used,
    refers to it or waits for it; or if a planner has changed the plan after it, as it may have read the output.

    Args:
        case: The case.
        trial: A run of it by a plan, which is over.
    """
    if trial.result is None:
        return 0
    used: set[str] = set()
    found = list(_used_by_themselves(case, trial, trial.result))
    while found:
        step = found.pop()
        if step not in used and step in trial.result.steps:
            found += trial.result.dependencies(step)
        used.add(step)
    return sum(call.has_returned and _outer(call.step) not in used for call in trial.world.calls)


def _used_by_themselves(case: Case, trial: CaseRun, result: RunResult) -> Iterator[str]:
    expected, steps, output = case.expect, result.plan.steps, result.plan.current.output
    wanted = {*expected.calls.must, *expected.calls.once, *expected.calls.args}
    wanted |= {tool for order in expected.calls.before for tool in order}
    wanted |= {tool.name for tool in trial.world.tools.values() if not tool.effect.is_free}
    yield from expected.steps
    yield from (_outer(call.step) for call in trial.world.calls if call.tool.name in wanted)
    yield from (id_ for id_, step in steps.items() if step.tool in wanted)  # it may not have been called
    if output is not None:
        yield from compile_template(output)[0].sources
    else:
        yield from steps.keys() - {need for step in steps for need in result.dependencies(step)}
    yield from _before_the_last_change(trial)


def _before_the_last_change(trial: CaseRun) -> Iterator[str]:
    """Yield the steps with a call that ended before a planner changed its first plan for the last time."""
    ended: list[str] = []
    has_plan = False
    for event in trial.events:
        match event:
            case AttemptEnded():
                ended.append(_outer(event.step))
            case DraftEnded():
                has_plan = True
            case Spliced(origin="planner") if has_plan:
                yield from ended
                ended.clear()


def _outer(step: str) -> str:
    """Return the id of a step, or of the for_each that an element belongs to."""
    return step.partition("[")[0]


def what_must_be_there(expected: Expectation) -> Expectation:
    """Return the expectations that a run claiming success must meet: the answer, steps, calls.

    What must *not* be, such as too many calls, is no sign of an early stop.
    """
    wanted = {name: getattr(expected, name) for name in ("status", "critic", "steps")}
    answer = expected.model_fields_set & {"output", "contains", "output_schema"}
    calls = expected.calls
    arguments: dict[str, Any] = {tool: calls_of for tool, calls_of in calls.args.items() if isinstance(calls_of, list)}
    must = list(dict.fromkeys([*calls.must, *calls.once]))
    fields = {name: getattr(expected, name) for name in answer}
    return Expectation.model_construct(
        _fields_set=answer | wanted.keys() | {"calls"},
        **wanted,
        **fields,
        calls=CallExpectation(must=must, args=arguments),
    )
