"""The fault matrix of a case: each tool fails with each fault, once and always, and some promises must still hold.

What a broken run comes to is up to its plan, its policy and its planner. A cell of the matrix asks only what no fault
may change: the run ends; no effect is asked for again while it may have taken place; nothing is called with what a
failed step did not give; steps that do not depend on the fault end as before and as soon; the status says the truth.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

from pydantic_core import from_json

from dagrun import Asked, Effect, State, Status
from dagrun.errors import ValueRefused
from dagrun.evaluate.cases.case_file import Act
from dagrun.evaluate.cases.stand_in_world import Bend, StandInCall
from dagrun.evaluate.cases.trial import CaseRun
from dagrun.events import QuestionAsked
from dagrun.records import LiveGraph, Node

_LATE: Final = 1_000.0  # seconds longer than a call should take
_LATER: Final = 1e-6  # seconds, for sums of floats
When = Literal["first", "always"]
_WHENS: Final[tuple[When, ...]] = ("first", "always")

FAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "timeout": {"raises": "timeout"},
    "connection": {"raises": "connection"},
    "429": {"raises": 429},
    "503": {"raises": 503},
    "tool_error": {"raises": "tool_error"},
    "wrong_type": {"raises": "wrong_type"},
    "late": {"takes": _LATE},
    "dies": {"raises": "dies"},
    "surprise": {"surprise": "a fault of the matrix"},
}
_BAD: Final = (State.FAILED, State.TIMED_OUT, State.ABANDONED, State.UNKNOWN)
_RAN: Final = (State.SUCCEEDED, *_BAD)
# A run that ends so has not ended by itself, and its other steps are stopped with it.
_STOPPED: Final = (Status.OVER_BUDGET, Status.ESCALATED, Status.CANCELLED, Status.WAITING)


@dataclass(slots=True)
class FaultCase:
    """One cell of the matrix.

    Attributes:
        tool: The tool that is broken.
        fault: How, as in `FAULTS`.
        when: At its first call, or at every one.
        hit: The steps whose calls were broken.
    """

    tool: str
    fault: str
    when: When
    hit: set[str]

    def bend(self, call: StandInCall, act: Act) -> Act:
        """Break a call of the tool; see `Bend`."""
        if call.tool.name != self.tool or (self.when == "first" and call.number > 1):
            return act
        self.hit.add(call.step)
        return act.model_copy(update=dict(FAULTS[self.fault]))

    def __str__(self) -> str:
        return f"{self.tool} {self.fault} {self.when}"


async def fault_matrix_failures(good: CaseRun, play: Callable[[Bend], Awaitable[CaseRun]]) -> tuple[int, list[str]]:
    """Make each tool that *good* has called fail with each fault; return the number of faults, and the broken promises.

    Args:
        good: The case as it goes without a fault.
        play: Carries the case out again, with stand-ins that are bent.
    """
    tools = dict.fromkeys(call.tool.name for call in good.world.calls if call.tool.name not in good.world.real)
    cells = [FaultCase(tool, fault, when, set()) for tool in tools for fault in FAULTS for when in _WHENS]
    misses = []
    for cell in cells:
        bad = await play(cell.bend)
        misses += [f"with {cell}: {miss}" for miss in broken_promises(good, bad, cell.hit)]
    return len(cells), misses


def broken_promises(good: CaseRun, bad: CaseRun, hit: set[str]) -> Iterator[str]:
    """Yield the promises that a run with a fault has broken.

    Args:
        good: The case without the fault.
        bad: The case with it.
        hit: The steps whose calls were broken.
    """
    if bad.result is None:
        yield f"the run is {bad.status}: {bad.reason}"
        return
    graph = bad.result._graph
    yield from _lost_elements(graph)
    yield from _repeated_effects(bad)
    yield from _hidden_doubts(bad, graph)
    yield from _calls_after_errors(bad, graph)
    yield from _untrue_status(bad, graph)
    stops = any(node.state in _BAD and node.plan.step.on_failure == "stop" for node in graph.planned())
    if good.result is not None and bad.status not in _STOPPED and not stops:
        yield from _changed_bystanders(good, bad, hit)


def _by_key(trial: CaseRun) -> Iterator[tuple[str, list[StandInCall]]]:
    """Yield the calls with effects, by idempotency key, except calls of tools with ``reconcile``."""
    found: dict[str, list[StandInCall]] = {}
    for call in trial.world.calls:
        if call.tool.effect is Effect.EFFECTFUL and call.tool.name not in trial.world.reconcile:
            found.setdefault(call.key, []).append(call)
    yield from found.items()


def _repeated_effects(trial: CaseRun) -> Iterator[str]:
    for key, calls in _by_key(trial):
        for before, call in pairwise(calls):
            if before.may_have_applied:
                yield f"step {call.step} calls {call.tool.name} again, whose last call may have had its effect ({key})"


def _hidden_doubts(trial: CaseRun, graph: LiveGraph) -> Iterator[str]:
    asked = (event.question for event in trial.events if isinstance(event, QuestionAsked))
    told = {question.step for question in asked if question.kind is Asked.EFFECT}  # people said what became of it
    for _, calls in _by_key(trial):
        last = calls[-1]
        node = graph.nodes.get(last.step)
        has_returned = last.ended is not None and last.failure is None  # perhaps a value of a wrong type
        if node is None or has_returned or not last.may_have_applied or last.step in told:
            continue
        if node.state not in (State.UNKNOWN, State.CANCELLED):
            yield f"step {last.step} is {node.state}, and nobody knows whether {last.tool.name} had its effect"


def _lost_elements(graph: LiveGraph) -> Iterator[str]:
    """A for_each has one element for each one of its list, whatever the list is a part of."""
    for node in graph.planned():
        if node.children is None or node.plan.items is None:
            continue
        try:
            listed = from_json(node.plan.items.fill(graph.look_up, sys.maxsize))
        except (LookupError, ValueRefused):  # it was released, or is that of a step that has failed since
            continue
        if isinstance(listed, list) and len(listed) != len(node.children):
            yield f"step {node.id} has {len(node.children)} elements, and its list has {len(listed)}"


def _calls_after_errors(trial: CaseRun, graph: LiveGraph) -> Iterator[str]:
    """A step was not skipped, though one that it waits for had failed and no default stood in."""
    for node in graph.planned():
        if node.state not in _BAD or _is_tolerated(node):
            continue
        for after in graph.after(node):
            if after.state in _RAN and node.id not in after.plan.gates:
                yield f"step {after.id} is {after.state}, though {node.id}, which it waits for, is {node.state}"


def _is_tolerated(node: Node) -> bool:
    return node.plan.step.on_failure in ("default", "skip") or node.children is not None


def _untrue_status(trial: CaseRun, graph: LiveGraph) -> Iterator[str]:
    bad = [node for node in graph.planned() if node.state in _BAD]
    unknown = [node.id for node in bad if node.state is State.UNKNOWN]
    if unknown and trial.status in (Status.SUCCEEDED, Status.FAILED):
        yield f"the run is {trial.status}, though it is not known what became of {', '.join(unknown)}"
    failed = [node.id for node in bad if not (_is_tolerated(node) or node.plan.step.optional)]
    if failed and trial.status is Status.SUCCEEDED:
        yield f"the run has succeeded, though {', '.join(failed)} did not"
    if trial.status is Status.FAILED and all(node.state is State.SUCCEEDED for node in graph.planned()):
        yield "the run has failed, though every step has succeeded"


def _changed_bystanders(good: CaseRun, bad: CaseRun, hit: set[str]) -> Iterator[str]:
    """Steps behind no broken call end as without the fault; and as soon, unless steps wait for each other's places."""
    assert good.result is not None
    assert bad.result is not None
    before, now = good.result._graph, bad.result._graph
    roots = {id_.partition("[")[0] for id_ in hit}
    affected = _behind(before, roots) | _behind(now, roots)
    planned = {step.id for step in before.plan.plan.steps}
    policy = now.plan.policy
    limits = (policy.max_running, policy.max_running_by_tool, *(pool.max_running for pool in policy.pools.values()))
    is_free = not any(limits)
    for node in before.nodes.values():
        family = node.id if node.parent is None else node.parent.id
        # Elements beside a broken one have nothing to do with it, unless their list comes from another broken call.
        is_beside = node.parent is not None and family in roots and node.id not in hit and not (roots - {family})
        is_repair = bool(good.patches) and family not in planned  # it came because of something else, at its time
        if (family in affected and not is_beside) or is_repair:
            continue
        other = now.nodes.get(node.id)
        if other is None or other.is_gone:
            yield f"step {node.id}, which has nothing to do with the fault, no longer exists"
        elif other.state is not node.state:
            yield f"step {node.id}, which has nothing to do with the fault, is {other.state}, not {node.state}"
        elif is_free and _ended(other) > _ended(node) + _LATER:
            times = f"{_ended(other):g} s, not {_ended(node):g} s"
            yield f"step {node.id}, which has nothing to do with the fault, ends at {times}"


def _behind(graph: LiveGraph, ids: set[str]) -> set[str]:
    """Return *ids*, and the ids of all steps that wait for one of them, however far behind."""
    found, todo = set(ids), [graph.nodes[id_] for id_ in ids if id_ in graph.nodes]
    while todo:
        for after in graph.after(todo.pop()):
            if after.id not in found:
                found.add(after.id)
                todo.append(after)
    return found


def _ended(node: Node) -> float:
    return 0.0 if node.latest is None or node.latest.ended is None else node.latest.ended
