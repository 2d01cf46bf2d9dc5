"""A golden task from a recorded run, reduced to the parts that a person edits: plan, tools, approvals, and end.

Only a run of one session that its host left alone becomes a case; `Cassette` plays any other. Of the planner, the
answers that were used are in the case. Whether the case comes to the same as the run is seen when it is carried out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dagrun import Add, Asked, Event, State, Status, Unavailable
from dagrun.errors import CasesRefused, ValueRefused
from dagrun.evaluate.cases.case_file import FOREVER
from dagrun.evaluate.cases.failures import WRONG_TYPE, said_of
from dagrun.evaluate.replay import (
    LATE,
    PlayedCall,
    PlayedReply,
    RecordedOutcomes,
    is_change,
    is_of_person,
    secrets_in,
    was_stopped,
)
from dagrun.events import DraftEnded, RunEnded, RunStarted, RunSuspended, Spliced
from dagrun.extend import ErrorKind
from dagrun.records import (
    COMPOSE,
    Line,
    LiveGraph,
    Node,
    Opening,
    answer_of,
    decode,
    edit_as_dict,
    encode,
    events_of,
    marks_of,
    redacted_events,
    replayed,
    to_json,
)

_MAX_ANSWER: Final = 2_000  # bytes of JSON of an answer that is expected in full
_MAX_STEPS: Final = 12  # whose states are all listed; of larger plans, only those that are worth a look
_OWN: Final = frozenset(("coroutine", "thread", "process"))  # executors that every run has


def recorded_case(
    run_id: str, recorded: Sequence[Event], *, redact: Callable[[str], str] | None = None
) -> dict[str, Any]:
    """Return the fields of a `Case` of a run that has ended.

    What must not be shown is redacted: what looks like a token, what the name of its field says to be secret, the kinds
    that the policy on record names, and what *redact* takes out.

    Args:
        run_id: The run.
        recorded: Its events.
        redact: The function of the host that redacts texts, as for `dagrun.run`; it is not on record.

    Raises:
        CasesRefused: The run has not ended, or is none that a case can say; every reason is in the error.
        JournalDamaged: The events do not follow from each other.
    """
    last = recorded[-1]
    if not isinstance(last, RunEnded):
        where = f" ({last.status}: {last.reason})" if isinstance(last, RunSuspended) else ""
        raise CasesRefused([f"run {run_id} has not ended{where}: a case says how it ends"])
    shown = redacted_events(recorded, redact)
    outcomes = RecordedOutcomes(shown)
    if reasons := list(_reasons_against(outcomes)):
        raise CasesRefused([f"run {run_id} cannot become a case: {reason}" for reason in reasons])
    assert isinstance(recorded[0], RunStarted)
    assert recorded[0].opening is not None
    return _case(run_id, recorded[0].opening.seed, outcomes, replayed(run_id, shown).graph)


def _reasons_against(outcomes: RecordedOutcomes) -> Iterator[str]:
    if outcomes.first.parent:
        yield f"it retries run {outcomes.first.parent}: make one of that run"
    elif outcomes.before:
        yield "it was resumed, and a case is of one session: play it with dagrun.Cassette"
    for event in outcomes.host_actions[:1]:
        step = getattr(event, "step", "")
        what = "changed its plan or goal" if is_change(event) else f"cancelled step {step}" if step else "ended it"
        yield f"its host {what} while it ran, which no case says: play it with dagrun.Cassette"
    for (step, _), call in outcomes.calls.items():
        value = None if call.ended is None else call.ended.outcome.value
        if isinstance(value, Unavailable):
            yield f"its record does not have what step {step} gave: {value.reason}"


def playable_events(run_id: str, lines: Sequence[Line], unseal: Callable[[str], bytes] | None = None) -> list[Event]:
    """Return the replayable events of a record.

    Args:
        run_id: The run.
        lines: Its record.
        unseal: Opens its sealed parts; `None` without a key.

    Raises:
        CasesRefused: Parts with which the run has computed were redacted, and the originals cannot be had.
        RunNotFound: The run was ended before its first record.
        JournalDamaged: As for `events_of`.
    """
    marks = [found for line in lines if (found := marks_of(line.text)) is not None and found.lost]
    gone = [mark for mark in marks if unseal is None or not mark.sealed]
    if gone:
        parts = ", ".join(dict.fromkeys(part for mark in gone for part in mark.lost))
        how = (
            ": set DAGRUN_RECORD_KEY to the key that they are sealed with" if all(mark.sealed for mark in gone) else ""
        )
        raise CasesRefused([f"run {run_id} cannot become a case: its record has redacted parts ({parts}){how}"])
    return events_of(run_id, lines, unseal)


def _case(run_id: str, seed: int | None, outcomes: RecordedOutcomes, graph: LiveGraph) -> dict[str, Any]:
    begin, calls = _begin(outcomes.first), list(outcomes.calls.values())
    replies = list(_replies(outcomes)) if outcomes.has_planner else []
    facts = {
        **begin,
        "inputs": decode(outcomes.first.inputs) or {},
        "seed": seed or 0,
        "policy": outcomes.first.policy.model_dump(mode="json", by_alias=True, exclude_defaults=True),
        "planner": replies,
        "secrets": sorted({*secrets_in([replies, begin])}),
        "people": _people(outcomes),
        "world": _world([call for call in calls if call.began.tool != COMPOSE], graph),
        "compose": _short_list([_act(call, graph) for call in calls if call.began.tool == COMPOSE]),
        "expect": _expect(outcomes, graph, replies),
    }
    kept = {"world", *(["planner"] if outcomes.has_planner else [])}
    name = re.sub(r"[^A-Za-z0-9_.:-]", "-", run_id)
    return {"id": name, **{key: fact for key, fact in facts.items() if fact or key in kept}}


def _begin(opening: Opening) -> dict[str, Any]:
    if not opening.plan.steps:
        return {"goal": opening.plan.goal}
    plan = opening.plan.model_dump(mode="json", by_alias=True, exclude_unset=True)
    steps = list(map(_step_of_case, plan["steps"]))
    return {"plan": {**{name: part for name, part in plan.items() if part not in ("", None)}, "steps": steps}}


def _step_of_case(step: Mapping[str, Any]) -> dict[str, Any]:
    """Return a step without an executor of the host: stubs need none."""
    return {name: part for name, part in step.items() if name != "executor" or part in _OWN}


def _seconds(value: float) -> dict[str, float]:
    """Return a duration in hundredths of a second, not more than it was: else it might meet a limit that it kept."""
    takes = math.floor(value * 100 + 1e-6) / 100
    return {"takes": takes} if takes else {}


# The planner and people -----------------------------------------------------------------------------------------------


def _replies(outcomes: RecordedOutcomes) -> Iterator[dict[str, Any]]:
    """Yield the answers of the planner that were used, with the fields of a `PlannerReply`."""
    for number, told in sorted(outcomes.replies.items()):
        about = sorted(filter(None, outcomes.requests[number]))
        for reply in told:
            if not (reply.is_asked_again or reply.problems or reply.handed_on):
                yield {**({"about": about} if about else {}), **_reply(reply)}


def _reply(reply: PlayedReply) -> dict[str, Any]:
    called, kind = reply.called, {} if reply.kind == "cannot" else {"kind": reply.kind}
    assert called is not None
    used = {"tokens": called.tokens, "cost": called.cost}
    facts: dict[str, Any] = {name: fact for name, fact in used.items() if fact} | _seconds(called.seconds)
    if called.fault.startswith(LATE):
        return {**facts, "takes": FOREVER}
    if called.fault:
        return {**facts, "fail": called.fault.removeprefix("it raised CannotPlan: "), **kind}
    more = {"more": True} if reply.end is not None and reply.end.more else {}
    if not reply.splices:
        return {**facts, **more}
    edits = [edit for event in reply.splices for edit in event.edits]
    answer: dict[str, Any] = {} if called.confidence is None else {"confidence": called.confidence}
    for event in reply.splices:
        answer |= {"output": event.output} if event.changes_output else {}
    if isinstance(reply.end, DraftEnded):
        added = (edit.step for edit in edits if isinstance(edit, Add))
        steps = [step.model_dump(mode="json", by_alias=True, exclude_unset=True) for step in added]
        return {**facts, "plan": {"steps": list(map(_step_of_case, steps)), **answer}, **more}
    plain = [edit_as_dict(edit) for edit in edits]
    shown = [{key: _step_of_case(part) if key == "step" else part for key, part in edit.items()} for edit in plain]
    why = {"reason": reply.splices[-1].reason} if reply.splices[-1].reason else {}
    return {**facts, "patch": {"edits": shown, **why, **answer}, **more}


def _people(outcomes: RecordedOutcomes) -> dict[str, Any]:
    """Return the answers of people, by step or kind of question; an immediate approval is a word."""
    found: dict[str, list[dict[str, Any]]] = {}
    inside = {asked.question.id for call in outcomes.calls.values() for asked in call.questions}
    for id_, ends in outcomes.answers.items():
        question = outcomes.questions[id_]
        for end in (one for one in ends if is_of_person(one) and id_ not in inside):
            assert end.answer is not None
            facts = {"value": end.answer.value, "note": end.answer.note, **_seconds(end.at - question.asked_at)}
            told = {name: fact for name, fact in facts.items() if fact not in (None, "")}
            reply = {"choice": end.answer.choice, "kind": str(question.kind), **told}
            found.setdefault(question.step or str(question.kind), []).append(reply)
    people: dict[str, Any] = {}
    for name, replies in found.items():
        if {reply["kind"] for reply in replies} == {str(Asked.APPROVAL)}:
            for reply in replies:
                del reply["kind"]
        people[name] = _short_list([one["choice"] if one.keys() == {"choice"} else one for one in replies])
    return people


# The world ------------------------------------------------------------------------------------------------------------


def _world(calls: Iterable[PlayedCall], graph: LiveGraph) -> dict[str, Any]:
    """Return the responses of each tool, with the step where steps had different results."""
    by_tool: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for call in calls:
        by_step = by_tool.setdefault(call.began.tool, {})
        by_step.setdefault(call.began.step, []).append(_act(call, graph))
    world: dict[str, Any] = {}
    for tool, by_step in by_tool.items():
        series = {step: _shortened(acts) for step, acts in by_step.items()}
        first = next(iter(series.values()))
        is_one = len(series) == 1 or all(acts == first and len(acts) == 1 for acts in series.values())
        named = ({"step": step, **act} for step, acts in series.items() for act in acts)
        world[tool] = _short_list(first if is_one else list(named))
    return world


def _act(call: PlayedCall, graph: LiveGraph) -> dict[str, Any]:
    """Return the result of a call as the fields of an `Act`; a cancelled call takes forever."""
    if call.ended is None:
        return {"takes": FOREVER}
    outcome, tool = call.ended.outcome, graph.plan.toolbox[call.began.tool]
    used = {"tokens": outcome.tokens, "cost": outcome.cost, "surprise": outcome.surprise, "confidence": call.confidence}
    facts: dict[str, Any] = {name: fact for name, fact in used.items() if fact}
    facts |= _seconds(call.ended.at - call.began.at)
    if was_stopped(outcome):
        return {"takes": FOREVER}
    if outcome.failure is None:
        return {**facts, "return": decode(outcome.value)}
    is_misfit = outcome.failure.kind is ErrorKind.BAD_OUTPUT
    return {**facts, "raise": WRONG_TYPE if is_misfit else said_of(outcome.failure, tool)}


def _short_list(found: list[Any]) -> Any:
    """Return a list in the short form of cases: its item, if it has one."""
    return found[0] if len(found) == 1 else found


def _shortened(acts: Sequence[Any]) -> list[Any]:
    """Return responses without trailing repetitions: the last one repeats by itself."""
    kept = list(acts)
    while len(kept) > 1 and kept[-1] == kept[-2]:
        kept.pop()
    return kept


# Expectations ---------------------------------------------------------------------------------------------------------


def _expect(outcomes: RecordedOutcomes, graph: LiveGraph, replies: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    expected: dict[str, Any] = {"status": str(graph.status), **_answer(graph)}
    planned = list(graph.planned())
    if any(planned):
        few = len(planned) <= _MAX_STEPS
        expected["steps"] = {node.id: _step(node) for node in planned if few or _is_worth_a_look(node)}
    tools = Counter(call.began.tool for call in outcomes.calls.values())
    once = [tool for tool, count in tools.items() if count == 1 and not graph.plan.toolbox[tool].effect.is_free]
    if once:
        expected["calls"] = {"once": once}
    if replies:
        spliced = (event for event in outcomes.events if isinstance(event, Spliced) and event.origin == "planner")
        count = sum(event.request > 0 for event in spliced)
        expected["patches"] = {"at_least": count, "at_most": count}
    if not any(call.questions for call in outcomes.calls.values()):
        expected["escalates"] = bool(outcomes.questions) or graph.status in (Status.ESCALATED, Status.WAITING)
    return {name: part for name, part in expected.items() if name == "output" or part not in ({}, [])}


def _answer(graph: LiveGraph) -> dict[str, Any]:
    """Return the answer; for one that is too long, a short schema."""
    try:
        answer = answer_of(graph)
        is_short = len(to_json(encode(answer))) <= _MAX_ANSWER
    except ValueRefused:
        return {}
    if not is_short:
        return {"schema": _outline(answer)}
    # A run that has not succeeded has nothing where its answer would be.
    return {"output": answer} if graph.status is Status.SUCCEEDED or answer not in (None, {}) else {}


def _outline(answer: Any) -> dict[str, Any]:
    """Return a JSON Schema of a long answer: how long it is, or the names of its fields."""
    if isinstance(answer, dict):
        names = {"required": list(answer)}
        return {"type": "object", **(names if len(to_json(encode(list(answer)))) <= _MAX_ANSWER else {})}
    if isinstance(answer, list):
        return {"type": "array", "minItems": len(answer), "maxItems": len(answer)}
    return {"type": "string", "minLength": len(answer), "maxLength": len(answer)} if isinstance(answer, str) else {}


def _is_worth_a_look(node: Node) -> bool:
    return node.state is not State.SUCCEEDED or len(node.attempts) > 1


def _step(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"state": str(node.state)}
    return found if node.children is not None else {**found, "attempts": len(node.attempts)}
