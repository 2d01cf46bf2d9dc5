"""The expectations of a case, compared with its run: one line for each miss."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, Final

import anyio

from dagrun import Plan, RunResult, State, Step
from dagrun.errors import ContractError, ValueRefused
from dagrun.evaluate.cases.case_file import (
    CallExpectation,
    CeilingExpectation,
    Expectation,
    PatchExpectation,
    StepExpectation,
)
from dagrun.evaluate.cases.matching import differences, fits, shown
from dagrun.evaluate.cases.stand_in_world import StandInCall
from dagrun.evaluate.cases.trial import CaseRun, Deadlocked, end_of
from dagrun.evaluate.plan_shape import plain_plan
from dagrun.extend import Outcome, PluginFailed, call_plugin
from dagrun.records import encode
from dagrun.texts import schema_faults, shorten

JudgeAnswer = Callable[[Any], Awaitable[str]]
_GRACE: Final = 1.0  # seconds in which a critic that is told to stop may clean up


def misses_of(expected: Expectation, trial: CaseRun, objection: str = "") -> list[str]:
    """Return the misses of a trial, one line each.

    Args:
        expected: The expectation.
        trial: The trial, whose run is over.
        objection: What the critic of the expectation has to say against the answer; see `objection_to`.
    """
    strange = [f"a call that the world of the case does not have: {text}" for text in trial.world.strange]
    return [*strange, *unmet_by(expected, trial, objection)]


def unmet_by(expected: Expectation, trial: CaseRun, objection: str = "") -> list[str]:
    """Return the misses of an expectation alone; see `misses_of`, which also names unmatched calls."""
    misses: list[str] = []
    if trial.status in ("hung", "error") or (expected.status is not None and trial.status != expected.status):
        wanted = expected.status or "an end"
        misses.append(f"status is {trial.status}, not {wanted} ({shorten(trial.reason, 300)})")
    if trial.result is not None:
        misses += () if expected.plan is None else _plan(expected.plan, trial)
        misses += _answer(expected, trial.result)
        misses += _steps(expected.steps, trial.result)
        if objection:
            misses.append(f"the critic {expected.critic} objects: {objection}")
    misses += _calls(expected.calls, trial.world.calls)
    misses += _patches(expected.patches, trial.patches)
    if expected.escalates is not None and expected.escalates != trial.escalates:
        misses.append(f"{'a' if trial.escalates else 'no'} person was needed, and that was not expected")
    return [*misses, *_ceilings(expected.ceilings, trial)]


def _plan(expected: Mapping[str, Any], trial: CaseRun) -> Iterator[str]:
    """Compare the plan that the planner wrote with the one that is expected, step by step."""
    found, wanted = plain_plan(trial.first_plan), plain_plan(Plan.model_validate(expected))
    yield from differences(found["output"], wanted["output"], "output of the plan")
    for id_, step in wanted["steps"].items():
        if id_ not in found["steps"]:
            yield f"plan: it has no step {id_}; its steps are {', '.join(list(found['steps'])[:20]) or 'none'}"
        else:
            yield from differences(found["steps"][id_], step, f"plan: step {id_}")
    yield from (
        f"plan: it has a step {id_}, a call of {step['tool']}, which is not expected"
        for id_, step in found["steps"].items()
        if id_ not in wanted["steps"]
    )


def _answer_of(result: RunResult) -> Any:
    try:
        return result.shown_output
    except ValueRefused as error:
        return f"(no answer: {error})"


def _answer(expected: Expectation, result: RunResult) -> Iterator[str]:
    if not expected.model_fields_set & {"output", "contains", "output_schema"}:
        return
    answer = _answer_of(result)
    if "output" in expected.model_fields_set:
        yield from differences(answer, expected.output, "output")
    if "contains" in expected.model_fields_set:
        yield from differences(answer, expected.contains, "output", is_part=True)
    if expected.output_schema is not None:
        faults = schema_faults(expected.output_schema, answer, "expect.schema")
        yield from (f"output does not fit the schema: {fault}" for fault in faults)


def _steps(expected: Mapping[str, StepExpectation], result: RunResult) -> Iterator[str]:
    for id_, wanted in expected.items():
        if id_ not in result.steps:
            yield f"step {id_} is not in the plan; its steps are {', '.join(list(result.steps)[:20])}"
            continue
        step = result.steps[id_]
        if wanted.state is not None and step.state is not wanted.state:
            yield f"step {id_} is {step.state}, not {wanted.state}{f' ({step.reason})' if step.reason else ''}"
        if wanted.attempts is not None and len(step.attempts) != wanted.attempts:
            yield f"step {id_} has {len(step.attempts)} attempts, not {wanted.attempts}"
        if "output" in wanted.model_fields_set:
            try:
                yield from differences(step.output, wanted.output, f"the output of step {id_}")
            except ValueRefused as error:  # it was released
                yield str(error)


def _calls(expected: CallExpectation, calls: Sequence[StandInCall]) -> Iterator[str]:
    by_tool: dict[str, list[StandInCall]] = {}
    for call in calls:
        by_tool.setdefault(call.tool.name, []).append(call)
    yield from (f"{tool} is never called" for tool in expected.must if tool not in by_tool)
    yield from (f"{tool} is called, which must never be" for tool in expected.never if tool in by_tool)
    for tool in expected.once:
        if (count := len(by_tool.get(tool, ()))) != 1:
            yield f"{tool} is called {count} times, not once"
    for order in expected.before:
        yield from _order(order, by_tool)
    for tool, wanted in expected.args.items():
        yield from _arguments(tool, wanted, by_tool.get(tool, []))


def _order(order: Sequence[str], by_tool: Mapping[str, Sequence[StandInCall]]) -> Iterator[str]:
    for one, other in pairwise(order):
        first, last = by_tool.get(other, ()), by_tool.get(one, ())
        if not first:
            continue  # what must be called is named by must
        begin = min(call.started for call in first)
        if not last:
            yield f"{other} is called, and {one} before it is not"
        elif any(call.ended is None or call.ended > begin for call in last):
            yield f"{other} is called before {one} has ended"


def _arguments(tool: str, wanted: Mapping[str, Any] | Sequence[Any], calls: Sequence[StandInCall]) -> Iterator[str]:
    if isinstance(wanted, Mapping):
        for call in calls:
            lines = differences(call.arguments, dict(wanted), "", is_part=True)
            yield from (f"{tool} is called by step {call.step} with other arguments: {line[1:]}" for line in lines)
        return
    left = list(calls)
    for one in wanted:
        found = next((call for call in left if fits(call.arguments, one)), None)
        if found is None:
            seen = "; ".join(shown(call.arguments) for call in left[:3]) or "none"
            yield f"{tool} is not called with {shown(one)}; other calls: {seen}"
        else:
            left.remove(found)


def _patches(expected: PatchExpectation | None, patches: int) -> Iterator[str]:
    if expected is None:
        return
    if patches < expected.at_least:
        yield f"the plan is changed {patches} times, not at least {expected.at_least}"
    if expected.at_most is not None and patches > expected.at_most:
        yield f"the plan is changed {patches} times, not at most {expected.at_most}"


def _ceilings(expected: CeilingExpectation, trial: CaseRun) -> Iterator[str]:
    result = trial.result
    used: dict[str, float | None] = {
        "calls": len(trial.world.calls),
        "tokens": 0 if result is None else result.tokens,
        "cost": 0.0 if result is None else result.cost,
        "seconds": trial.seconds,
        "planner_calls": trial.planner_calls,
    }
    for name, amount in used.items():
        ceiling = getattr(expected, name)
        if ceiling is None:
            continue
        if amount is None:
            yield f"{name}: how much was used is not known, and the ceiling is {ceiling:g}"
        elif amount > ceiling * (1 + 1e-9):
            yield f"{name}: {amount:g} used, the ceiling is {ceiling:g}"


async def objection_to(trial: CaseRun, judge: JudgeAnswer | None, critic: str | None) -> str:
    """Return a critic's objection to the answer of a trial, or an empty text.

    A trial whose critic spins on a virtual clock is hung. A critic that waits has no limit: it may ask a server.

    Args:
        trial: The trial, whose run is over.
        judge: Asks the critic: takes the answer, and returns the objection, or an empty text; `None` for no critic.
        critic: The name of the critic.
    """
    if judge is None or trial.result is None:
        return ""
    ask = partial(_ask, partial(judge, _answer_of(trial.result)))
    try:
        return await end_of(ask, f"the critic {critic}")
    except Deadlocked as error:
        trial.status, trial.reason = "hung", str(error)
        return ""


async def _ask(judge: Callable[[], Awaitable[str]]) -> str:
    """Ask a critic, which is dropped if it swallows its cancellation."""
    async with anyio.create_task_group() as tasks:
        try:
            objection = await call_plugin(
                judge,
                tasks=tasks,
                name="dagrun judge",
                context=copy_context(),
                seconds=None,
                grace=_GRACE,
                now=anyio.current_time,
            )
        except PluginFailed as error:
            objection = f"it failed: {error}"
    return objection


@dataclass(frozen=True, slots=True)
class AnswerJudge:
    """Asks a critic about an answer, and returns its objection, or an empty text.

    Attributes:
        critic: The critic.

    Raises:
        ContractError: It has no method ``review``.
    """

    critic: Any

    def __post_init__(self) -> None:
        if not callable(getattr(self.critic, "review", None)):
            raise ContractError("a critic has a method review")

    async def __call__(self, answer: Any) -> str:
        """Ask about an answer."""
        stored = encode(json.loads(json.dumps(answer, default=str)))
        verdict = await self.critic.review(Step(id="answer", tool="answer"), Outcome(State.SUCCEEDED, stored))
        return "" if verdict.result == "pass" else f"{verdict.result}: {verdict.reason}"
