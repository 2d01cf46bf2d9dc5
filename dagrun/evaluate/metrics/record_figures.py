"""The figures of one run, counted from the lines of its record in one pass, without building its graph.

The lines are read as plain JSON, an event each, and each event has one function below that counts it. What the graph
must be asked for is the critical path of a run whose plan was repaired or has elements of a for_each; for all others
it follows from the spans of the steps.

1. A call is judged by its last outcome: that of the critics, if they have judged it. A call that was told to stop
   (cancelled, superseded) is no success and no failure, and does not count; a review that was stopped says nothing.
2. Tokens and cost are those that calls of tools, their second calls, planners and critics have reported, as
   `dagrun.graph.figures.used` adds them. The cost is unknown if any part of it is: tokens without a price, or a model
   whose call has no reported end, because the process was killed.
3. Seconds in the record do not count the time for which a run was suspended. People wait through that, too, so their
   waits are measured by the time of day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagrun.errors import JournalDamaged
from dagrun.evaluate.metrics.run_figures import Calls, RunFigures
from dagrun.evaluate.plan_shape import needs_of, shape_of, tools_of
from dagrun.graph.longest_paths import remaining_paths, topological_order

if TYPE_CHECKING:
    from dagrun.model.journal import Line

Json = Mapping[str, Any]

_STOPPED: Final = frozenset(("cancelled", "superseded"))
_NO_TROUBLE: Final = frozenset(("goal_given", "goal_changed", "next"))  # kinds of triggers
_BAD_ENDS: Final = frozenset(("failed", "timed_out", "unknown", "abandoned"))
_ASKED_FOR: Final = frozenset(("input", "effect"))  # kinds of questions whose every answer changes the run


@dataclass(slots=True)
class _Count:
    """A record that is being counted."""

    run: RunFigures
    offset: float = 0.0  # of the clock of the run to the time of day
    pools: dict[str, str] = field(default_factory=dict)  # by tool
    billed: set[str] = field(default_factory=set)  # tools that may report what they use
    steps: dict[str, Json] = field(default_factory=dict)  # the steps of the plan, as they were written
    output: Any = None
    is_plain: bool = True  # whether the critical path follows from spans
    running: dict[str, tuple[float, str]] = field(default_factory=dict)  # by step: the start of the call, and its tool
    spans: dict[str, list[float]] = field(default_factory=dict)  # by step: the first start and the last end
    judged: dict[str, tuple[str, str]] = field(
        default_factory=dict
    )  # by step: the tool of its last call, and its fault
    asked: dict[str, tuple[float, str]] = field(default_factory=dict)  # by question: the time of day, and its kind
    models: dict[int, tuple[float, str]] = field(default_factory=dict)  # calls of models without an end
    planner_calls: set[int] = field(default_factory=set)  # those without an end
    heard: list[str] = field(default_factory=list)  # models that were called while a planner was at work
    planned: list[tuple[float, float]] = field(default_factory=list)  # when planners were at work
    uses_models: bool = False


def figures_of(run_id: str, lines: Sequence[Line]) -> RunFigures:
    """Return the figures of a run from its record.

    Args:
        run_id: The run.
        lines: The record, checked; at least one line.

    Raises:
        JournalDamaged: The record says what no run can have recorded.
    """
    count, seq = _Count(RunFigures(run_id)), 0
    try:
        for line in lines:
            seq = line.seq
            event = json.loads(line.text)
            _COUNT[event["event"]](count, event)
        _finish(count, run_id, lines)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise JournalDamaged(run_id, seq, f"it cannot be counted: {type(error).__name__}: {error}") from error
    return count.run


def _finish(count: _Count, run_id: str, lines: Sequence[Line]) -> None:
    run = count.run
    steps = list(count.steps.values())
    run.steps, run.tools_planned = len(steps), tools_of(steps)
    run.shape = shape_of(steps, count.output)
    run.planning = _covered(count.planned)
    run.planners = run.planners or list(dict.fromkeys(count.heard)) or (["rules"] if count.planned else [])
    for _, who in count.models.values():
        run.providers.setdefault(who, Calls()).is_cost_known = False
    if count.models or (count.uses_models and count.planner_calls):
        run.use.is_cost_known = False
    for _, tool in count.running.values():  # the process was killed, or the run goes on
        if tool in count.billed:
            run.use.is_cost_known = run.tools[tool].is_cost_known = False
    if run.has_ended:
        run.critical_path = _critical_path(count) if count.is_plain else _by_graph(run_id, lines)


def _covered(spans: list[tuple[float, float]]) -> float:
    """Return the total length of the union of the spans."""
    total, last = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, last))
        last = max(last, ended)
    return total


def _critical_path(count: _Count) -> float:
    successors: dict[str, list[str]] = {id_: [] for id_ in count.steps}
    degree = dict.fromkeys(successors, 0)
    for id_, step in count.steps.items():
        for need in needs_of(step):
            successors[need].append(id_)
            degree[id_] += 1
    seconds = {id_: count.spans[id_][1] - count.spans[id_][0] if id_ in count.spans else 0.0 for id_ in successors}
    order = topological_order(successors, degree)
    return max(remaining_paths(order, successors, seconds.__getitem__).values(), default=0.0)


def _by_graph(run_id: str, lines: Sequence[Line]) -> float:
    from dagrun.api.replaying import replayed
    from dagrun.graph import figures
    from dagrun.model.codec.event_codec import events_of

    return figures.critical_path(replayed(run_id, events_of(run_id, lines)).graph)


# The run --------------------------------------------------------------------------------------------------------------


def _opened(count: _Count, event: Json) -> None:
    count.offset = event["wall_time"] - event["at"]
    opening = event.get("opening")
    if opening is None:
        return
    for name, contract in opening["tools"].items():
        count.pools[name] = contract["pool"] or name
        if contract["max_tokens"] is not None or contract["max_cost"] is not None:
            count.billed.add(name)


def _started(count: _Count, event: Json) -> None:
    _opened(count, event)
    opening = event["opening"]
    count.run.began, count.run.labels = event["wall_time"], opening["labels"]
    count.steps = {step["id"]: step for step in opening["plan"]["steps"]}
    count.output = opening["plan"].get("output")


def _resumed(count: _Count, event: Json) -> None:
    _opened(count, event)
    count.run.status, count.run.is_suspended = "", False


def _reopened(count: _Count, event: Json) -> None:
    count.run.status, count.run.is_suspended = "", False


def _suspended(count: _Count, event: Json) -> None:
    count.run.is_suspended = True


def _stopping(count: _Count, event: Json) -> None:
    if event["status"] == "cancelled":
        count.run.unasked += 1


def _ended(count: _Count, event: Json) -> None:
    count.run.status, count.run.makespan, count.run.is_suspended = event["status"], event["at"], False


def _aimed(count: _Count, event: Json) -> None:
    count.run.unasked += 1


# Steps and calls ------------------------------------------------------------------------------------------------------


def _began_call(count: _Count, event: Json) -> None:
    step, at, tool = event["step"], event["at"], event["tool"]
    count.running[step] = (at, tool)
    count.spans.setdefault(step, [at, at])
    count.run.attempts += 1
    count.run.tools.setdefault(tool, Calls())


def _of_call(count: _Count, tool: str) -> tuple[Calls, Calls]:
    """Return the counts of a tool, and of its provider."""
    return count.run.tools.setdefault(tool, Calls()), count.run.providers.setdefault(
        count.pools.get(tool, tool), Calls()
    )


def _ended_call(count: _Count, event: Json) -> None:
    step, outcome, at = event["step"], event["outcome"], event["at"]
    began, tool = count.running.pop(step)
    count.spans[step][1] = at
    state, cost = outcome["state"], outcome["cost"]
    failure = outcome["failure"]
    is_lost = failure is not None and failure["kind"] == "interrupted" and tool in count.billed
    for calls in (*_of_call(count, tool), count.run.use):
        calls.use(outcome["tokens"], cost)
        calls.is_cost_known = calls.is_cost_known and not is_lost
    if state in _STOPPED:
        return
    fault = "" if state == "succeeded" else _kind(state, failure)
    count.run.had_trouble = count.run.had_trouble or bool(fault)
    count.judged[step] = (tool, fault)
    for calls in _of_call(count, tool):
        calls.ended, calls.judged = calls.ended + 1, calls.judged + 1
        _judge(calls, fault, 1)
        calls.seconds.append(at - began)


def _kind(state: str, failure: Json | None) -> str:
    if failure is None:
        return str(state)
    return f"{failure['kind']}~" if failure["is_transient"] else str(failure["kind"])


def _judge(calls: Calls, fault: str, change: int) -> None:
    if fault:
        calls.failures[fault] = calls.failures.get(fault, 0) + change
    else:
        calls.succeeded += change


def _reviewed(count: _Count, event: Json) -> None:
    verdicts, state = event["verdicts"], event["outcome"]["state"]
    for verdict in verdicts:
        count.run.use.use(verdict["tokens"], verdict["cost"])
    if len(verdicts) > 1:
        count.run.reviews += 1
        count.run.disagreements += len({verdict["result"] for verdict in verdicts}) > 1
    if state in _STOPPED:  # in the middle of the review, which so says nothing about the call
        return
    fault = "" if state == "succeeded" else _kind(state, event["outcome"]["failure"])
    count.run.had_trouble = count.run.had_trouble or bool(fault)
    tool, before = count.judged[event["step"]]
    if before != fault:
        count.judged[event["step"]] = (tool, fault)
        for calls in _of_call(count, tool):
            _judge(calls, before, -1)
            _judge(calls, fault, 1)


def _settled(count: _Count, event: Json) -> None:
    if event["state"] in _BAD_ENDS:
        count.run.had_trouble = True


def _hedged(count: _Count, event: Json) -> None:
    for calls in _of_call(count, count.running[event["step"]][1]):
        calls.hedged += 1


def _ended_hedge(count: _Count, event: Json) -> None:
    for calls in _of_call(count, count.running[event["step"]][1]):
        calls.hedges_won += event["has_won"]
        calls.use(event["tokens"], event["cost"])
    count.run.use.use(event["tokens"], event["cost"])


def _expanded(count: _Count, event: Json) -> None:
    count.is_plain = False


# The plan -------------------------------------------------------------------------------------------------------------


def _spliced(count: _Count, event: Json) -> None:
    if event["origin"] == "host":
        count.run.unasked += 1
    if event["changes_output"]:
        count.output = event["output"]
    done, edits = event["consequence"], event["edits"]
    count.is_plain = count.is_plain and all(edit["op"] == "add" for edit in edits)
    written = {edit["step"]["id"]: edit["step"] for edit in edits if "step" in edit}
    for old in (*done["dropped"], *done["replaced"]):
        count.steps.pop(old, None)  # an element of a for_each is none of them
    of_elements = {new for old, new in done["replaced"].items() if "[" in old}
    for new in done["added"]:
        if new not in of_elements:
            count.steps[new] = written[new]


def _refused(count: _Count, event: Json) -> None:
    count.run.refused += 1


def _requested(count: _Count, event: Json) -> None:
    if event["trigger"]["kind"] not in _NO_TROUBLE:
        count.run.had_trouble = True


def _replanned(count: _Count, event: Json) -> None:
    count.run.replans += 1


def _asked_planner(count: _Count, event: Json) -> None:
    count.planner_calls.add(event["number"])


def _called_planner(count: _Count, event: Json) -> None:
    count.planner_calls.discard(event["number"])
    count.planned.append((max(0.0, event["at"] - event["seconds"]), event["at"]))
    count.run.use.use(event["tokens"], event["cost"])
    name = event.get("planner", "")
    if name and name not in count.run.planners:
        count.run.planners.append(name)


def _reserved(count: _Count, event: Json) -> None:
    count.uses_models = True
    count.models[event["number"]] = (event["at"], event["who"])
    if count.planner_calls:
        count.heard.append(event["who"])


def _charged(count: _Count, event: Json) -> None:
    began, who = count.models.pop(event["number"])
    tokens, cost = event["tokens"], event["cost"]
    calls = count.run.providers.setdefault(who, Calls())
    calls.ended += 1
    calls.seconds.append(event["at"] - began)
    calls.use(tokens or 0, cost)
    if tokens is None:
        calls.is_cost_known = count.run.use.is_cost_known = False


# People ---------------------------------------------------------------------------------------------------------------


def _asked(count: _Count, event: Json) -> None:
    question = event["question"]
    count.run.questions += 1
    count.asked[question["id"]] = (count.offset + event["at"], question["kind"])


def _answered(count: _Count, event: Json) -> None:
    asked_at, kind = count.asked.pop(event["question"])
    answer = event["answer"]
    if answer is None or event["reason"]:  # the question became void, or the default answer counts
        return
    count.run.answered += 1
    count.run.waits.append(max(0.0, count.offset + event["at"] - asked_at))
    count.run.changed += answer["choice"] != "approve" or answer["value"] is not None or kind in _ASKED_FOR


def _nothing(count: _Count, event: Json) -> None:
    """Count nothing."""


_COUNT: Final[Mapping[str, Callable[[_Count, Json], None]]] = {
    "RunStarted": _started,
    "RunResumed": _resumed,
    "RunReopened": _reopened,
    "RunSuspended": _suspended,
    "RunStopping": _stopping,
    "RunEnded": _ended,
    "GoalChanged": _aimed,
    "AttemptStarted": _began_call,
    "AttemptEnded": _ended_call,
    "Reviewed": _reviewed,
    "StepSettled": _settled,
    "StepExpanded": _expanded,
    "Hedged": _hedged,
    "HedgeEnded": _ended_hedge,
    "Spliced": _spliced,
    "PatchRefused": _refused,
    "ReplanRequested": _requested,
    "ReplanStarted": _replanned,
    "PlannerAsked": _asked_planner,
    "PlannerCalled": _called_planner,
    "ModelReserved": _reserved,
    "ModelCharged": _charged,
    "QuestionAsked": _asked,
    "QuestionAnswered": _answered,
    "CeilingNear": _nothing,
    "ConfidenceReported": _nothing,
    "DraftEnded": _nothing,
    "DraftStarted": _nothing,
    "HandedOn": _nothing,
    "ReplanEnded": _nothing,
    "StepResumed": _nothing,
}
