"""Drift: calls that serve no goal, calls that are made again, and runs that stop before the goal is reached.

What a call gave can be used in two ways. A step *refers* to it, or waits for it; that is in the graph. Or the planner,
or the agent, has *read* it before it decided on a later call or on the answer; then a word or a number of it, which
neither the goal nor the arguments had, stands there. What a call gave without any such word or number (a yes, a digit)
counts as read by whatever was decided after it. So a call that is counted has served nothing, and a few more may have
not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Any, Final

from dagrun.errors import ValueRefused
from dagrun.evaluate.cases.case_file import CallExpectation, Case, Expectation
from dagrun.evaluate.cases.stand_in_world import StandInCall
from dagrun.evaluate.cases.trial import Trial
from dagrun.model.event import AttemptEnded, DraftEnded, Reviewed, Spliced
from dagrun.model.outcome import State
from dagrun.model.reference import compile_template
from dagrun.runtime.result import RunResult

_WORD: Final = re.compile(r"[^\W_]+")
_SHORT: Final = 4  # letters of a word that says something; "the" stands everywhere


def idle_calls(case: Case, trial: Trial, *, is_agent: bool) -> int:
    """Return how many calls succeeded and served no goal.

    A call serves a goal if it has an effect, if the case expects its tool or its step, or if what it gave reaches the
    answer, or a call that serves a goal.

    Args:
        case: The case.
        trial: A run of it, which is over.
        is_agent: Whether one agent has made the calls, in place of steps.
    """
    if trial.result is None:
        return 0
    calls = trial.world.calls
    flow: _Flow = _AgentFlow(case, trial, trial.result) if is_agent else _PlanFlow(case, trial, trial.result)
    serving = set(flow.ends())
    news = list(serving)
    while news:
        unit = news.pop()
        found = set(flow.needs(unit))
        for later in calls:
            if flow.unit_of(later) == unit:
                found |= {flow.unit_of(call) for call in calls if flow.was_read(call, later)}
        news += found - serving
        serving |= found
    return sum(call.has_returned and flow.unit_of(call) not in serving for call in calls)


def repeated_calls(trial: Trial, *, is_agent: bool) -> int:
    """Return how many calls had been made before, with success and equal arguments.

    A look after a change is none: a call without an effect that is made again after one with an effect.

    Args:
        trial: A run, which is over.
        is_agent: Whether one agent has made the calls, in place of steps.
    """
    ends = (event for event in trial.events if isinstance(event, AttemptEnded | Reviewed) and not is_agent)
    failed = {(event.step, event.attempt) for event in ends if event.outcome.state is not State.SUCCEEDED}
    known: dict[str, float] = {}  # the end of the last success, by call
    looks: set[str] = set()  # of these, the calls without an effect: after a change they may give something else
    count = 0
    for call in trial.world.calls:
        key = json.dumps([call.tool.name, call.arguments], sort_keys=True, default=str)
        count += known.get(key, inf) <= call.started
        if call.tool.effect.is_free:
            looks.add(key)
        else:
            known = {one: ended for one, ended in known.items() if one not in looks or ended > call.started}
        if call.has_returned and call.ended is not None and (call.step, call.attempt) not in failed:
            known[key] = call.ended
    return count


def what_must_be_there(expected: Expectation) -> Expectation:
    """Return what must be there at the end of a run that says it has succeeded: the answer, steps, calls.

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


# How what a call gave is used ----------------------------------------------------------------------------------------


@dataclass
class _Flow:
    """Which calls of a run serve which: the parts that plans and agents share.

    A unit is what serves or does not: a step, or a call of an agent.
    """

    case: Case
    trial: Trial
    result: RunResult
    _said: dict[int, frozenset[str]] = field(default_factory=dict)

    def unit_of(self, call: StandInCall) -> str:
        raise NotImplementedError

    def ends(self) -> Iterator[str]:
        """Yield the units that serve a goal by themselves."""
        expected = self.case.expect
        wanted = {*expected.calls.must, *expected.calls.once, *expected.calls.args}
        wanted |= {tool for order in expected.calls.before for tool in order}
        for call in self.trial.world.calls:
            if not call.tool.effect.is_free or call.tool.name in wanted or self.is_answer_of(call):
                yield self.unit_of(call)
        yield from expected.steps

    def needs(self, unit: str) -> Iterable[str]:
        """Return the units that a unit refers to, or waits for."""
        return ()

    def is_answer_of(self, call: StandInCall) -> bool:
        """Whether the answer was decided after the call, and holds something of what it gave."""
        raise NotImplementedError

    def was_read(self, call: StandInCall, later: StandInCall) -> bool:
        """Whether *later* was decided after *call*, and holds something of what that gave."""
        raise NotImplementedError

    @cached_property
    def answer(self) -> frozenset[str]:
        try:
            return _words(self.result.shown_output)
        except ValueRefused:
            return frozenset()

    @cached_property
    def _known(self) -> frozenset[str]:
        return _words([self.case.goal, self.case.inputs])

    def holds(self, text: frozenset[str], call: StandInCall) -> bool:
        """Whether some of the words hold something that the call gave, or it gave nothing that could be seen there."""
        if not call.has_returned:
            return False
        given = self._said.get(id(call))
        if given is None:
            given = self._said[id(call)] = _words(call.value) - self._known - _words(call.arguments)
        return not given or bool(given & text)


class _AgentFlow(_Flow):
    def unit_of(self, call: StandInCall) -> str:
        return str(id(call))

    def is_answer_of(self, call: StandInCall) -> bool:
        return self.holds(self.answer, call)

    def was_read(self, call: StandInCall, later: StandInCall) -> bool:
        is_before = call.ended is not None and call.ended <= later.started and call is not later
        return is_before and self.holds(_words(later.arguments), call)


class _PlanFlow(_Flow):
    def unit_of(self, call: StandInCall) -> str:
        return call.step.partition("[")[0]

    def ends(self) -> Iterator[str]:
        yield from super().ends()
        output, steps = self.result.plan.current.output, self.result.plan.steps
        if output is not None:
            yield from compile_template(output)[0].sources
        else:
            yield from steps.keys() - {need for step in steps for need in self.result.dependencies(step)}
        effects = {tool.name for tool in self.trial.world.tools.values() if not tool.effect.is_free}
        yield from (id_ for id_, step in steps.items() if step.tool in effects)  # they may not have come so far

    def needs(self, unit: str) -> Iterable[str]:
        return self.result.dependencies(unit) if unit in self.result.steps else ()

    def is_answer_of(self, call: StandInCall) -> bool:
        return self._ended(call) <= self._answered and self.holds(self.answer, call)

    def was_read(self, call: StandInCall, later: StandInCall) -> bool:
        decided = self._decided.get(self.unit_of(later), -inf)
        return self._ended(call) <= decided and self.holds(_words(later.arguments), call)

    def _ended(self, call: StandInCall) -> float:
        """Return when what the call gave was there, in seconds of the run."""
        step = self.result.steps.get(call.step)
        if step is None or len(step.attempts) < call.attempt:
            return inf
        ended = step.attempts[call.attempt - 1].ended
        return inf if ended is None else ended

    @cached_property
    def _decided(self) -> Mapping[str, float]:
        """When a planner that could have read outputs has decided on a step; the steps of a first plan are not here."""
        return {id_: event.at for event in self._revisions for id_ in _touched(event)}

    @cached_property
    def _answered(self) -> float:
        return max((event.at for event in self._revisions if event.changes_output), default=-inf)

    @cached_property
    def _revisions(self) -> list[Spliced]:
        """What a planner has changed after it had ended its first plan, which it writes before it can read anything."""
        events = self.trial.events
        first = next((number for number, event in enumerate(events) if isinstance(event, DraftEnded)), len(events))
        later = (event for event in events[first:] if isinstance(event, Spliced))
        return [event for event in later if event.origin == "planner"]


def _touched(event: Spliced) -> tuple[str, ...]:
    return (*event.consequence.added, *event.consequence.rewired)


def _words(value: Any) -> frozenset[str]:
    """Return the words of a value that say something: of four letters, or with digits and no single digit."""
    return frozenset(_words_in(value))


def _words_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for part in value.values():
            yield from _words_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _words_in(part)
    elif isinstance(value, str):
        words = (word.lower() for word in _WORD.findall(value))
        yield from (word for word in words if len(word) >= _SHORT or (len(word) > 1 and re.search(r"\d", word)))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _words_in(f"{value:.12g}")
