"""A golden task of a recorded run: what happened to it becomes its world, and what came of it is expected.

The acts of a tool are found by the arguments of a call. A step is named only where equal calls of several steps came to
different ends; where one step has made equal calls, they follow each other as its attempts did.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from dagrun.errors import CasesRefused, ValueRefused
from dagrun.evaluate.cases.recorded_calls import CallOnRecord, RecordedRun, read_run
from dagrun.evaluate.cases.recorded_requests import step_of_case
from dagrun.graph.node import Node
from dagrun.model.codec.event_codec import events_of, marks_of
from dagrun.model.event import Event, Opening, RunEnded, RunStarted, RunSuspended, Spliced
from dagrun.model.journal import Line
from dagrun.model.outcome import State, Status
from dagrun.model.question import Asked
from dagrun.model.redaction.records import as_shown, redactor_of
from dagrun.model.redaction.redactor import DEFAULT_REDACTOR, Hook, Redactor
from dagrun.model.secrets.secret import KEY
from dagrun.model.toolbox import COMPOSE, Toolbox
from dagrun.model.value import decode, encode, to_json
from dagrun.runtime.result import answer_of

_MAX_ANSWER: Final = 2_000  # bytes of JSON of an answer that is expected in full
_MAX_ARGUMENT: Final = 200  # characters of JSON of an argument by which a person finds a call
_MAX_STEPS: Final = 12  # whose states are all listed; of larger plans, only those that are worth a look


def recorded_case(
    run_id: str,
    recorded: Sequence[Event],
    tools: Toolbox | None = None,
    *,
    is_brief: bool = False,
    redact: Hook | None = None,
) -> dict[str, Any]:
    """Return the fields of a `Case` of a run that has ended.

    What must not be shown is redacted: what looks like a token, what the name of its field says to be secret, the kinds
    that the policy on record names, and what *redact* takes out.

    Args:
        run_id: The run.
        recorded: Its events.
        tools: The tools of today; `None` to take arguments as the record has them.
        is_brief: Whether large arguments are left out, for people; steps are named where that leaves calls alike.
        redact: The function of the host that redacts texts, as for `dagrun.run`; it is not on record.

    Raises:
        CasesRefused: The run has not ended, or a case cannot do the same; every reason is in the error.
        JournalDamaged: The events do not follow from each other.
    """
    last = recorded[-1]
    if not isinstance(last, RunEnded):
        where = f" ({last.status}: {last.reason})" if isinstance(last, RunSuspended) else ""
        raise CasesRefused([f"run {run_id} has not ended{where}: a case says how it ends"])
    redactor = redactor_of(recorded, redact) or DEFAULT_REDACTOR
    run = read_run(run_id, [as_shown(event, redactor) for event in recorded], tools)
    opening = run.opening
    is_bound = run.taken_over or opening.guards or opening.guarded_tools
    what = "outputs" if run.taken_over else "what people have to agree to"
    handed = run.people.handed_over_inside
    reasons = [f"it takes over {what} from run {opening.parent}, which it retries: make one of that run"] * bool(
        is_bound
    )
    reasons += [f"its record does not have {what}" for what in dict.fromkeys(run.missing)]
    reasons += [f"a person has handed it over as {step} asked amid its work, as no stand-in does" for step in handed]
    if reasons:
        raise CasesRefused([f"run {run_id} cannot become a case: {reason}" for reason in reasons])
    if is_brief:
        for call in run.calls:
            short = {name: value for name, value in call.arguments.items() if _is_short(value)}
            call.ignored += (name for name in call.arguments if name not in short)
            call.arguments = short
    return _case(run_id, run, recorded, redactor)


def _is_short(value: Any) -> bool:
    return len(json.dumps(value, ensure_ascii=False)) <= _MAX_ARGUMENT


def playable_events(run_id: str, lines: Sequence[Line], unseal: Callable[[str], bytes] | None = None) -> list[Event]:
    """Return the events of a record with which a run can be carried out again.

    Args:
        run_id: The run.
        lines: Its record.
        unseal: Opens what is sealed in it; `None` without a key.

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


def _case(run_id: str, run: RecordedRun, recorded: Sequence[Event], redactor: Redactor) -> dict[str, Any]:
    first = next(event.opening for event in recorded if isinstance(event, RunStarted) and event.opening is not None)
    shown = as_shown(recorded[0], redactor)
    assert isinstance(shown, RunStarted)
    assert shown.opening is not None
    opening = shown.opening
    people = run.people.replies()
    facts = {
        **_begin(opening),
        "inputs": decode(opening.inputs) or {},
        **({"seed": first.seed} if first.seed else {}),
        "policy": _policy(run.opening),
        "planner": run.replies,
        "secrets": sorted(_secrets([run.replies, _begin(opening)])),
        "people": _people(people or {}),
        "letters": run.people.by_letters,
        "host": run.host,
        "reconcile": {
            tool: _short_list(_reconciled(said)) for tool, said in run.people.reconciled().items() if any(said.values())
        },
        "exact": bool(run.calls),
        "world": _world([call for call in run.calls if call.tool != COMPOSE]),
        "compose": _short_list(_shortened([call.act for call in run.calls if call.tool == COMPOSE])),
        "expect": _expect(run, recorded),
    }
    name = re.sub(r"[^A-Za-z0-9_.:-]", "-", run_id)
    # Nobody who answers is not nobody who can be asked.
    kept = {"world", *([] if people is None else ["people"]), *(["planner"] if run.has_planner else [])}
    return {"id": name, **{key: fact for key, fact in facts.items() if fact or key in kept}}


def _begin(opening: Opening) -> dict[str, Any]:
    if not opening.plan.steps:
        return {"goal": opening.plan.goal}
    plan = opening.plan.model_dump(mode="json", by_alias=True, exclude_unset=True)
    own = list(map(step_of_case, plan["steps"]))
    return {"plan": {**{name: part for name, part in plan.items() if part not in ("", None)}, "steps": own}}


def _policy(opening: Opening) -> dict[str, Any]:
    """Return the fields that are not as they are by default."""
    fields: dict[str, Any] = opening.policy.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return fields


def _secrets(part: Any) -> Iterator[str]:
    """Yield the name of each secret in a plan."""
    if isinstance(part, Mapping):
        if isinstance(part.get(KEY), str):
            yield part[KEY]
        for inner in part.values():
            yield from _secrets(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _secrets(inner)


def _people(told_by: Mapping[str, Sequence[dict[str, Any]]]) -> dict[str, Any]:
    """Return the replies of people, as short as can be: an approval that took no time is a word."""
    found: dict[str, Any] = {}
    for name, replies in told_by.items():
        one_kind = len({reply["kind"] for reply in replies}) == 1 and replies[0]["kind"] == Asked.APPROVAL
        told = [{key: part for key, part in reply.items() if key != "kind" or not one_kind} for reply in replies]
        short = [reply["choice"] if reply.keys() == {"choice"} else reply for reply in told]
        found[name] = _short_list(short)
    return found


def _reconciled(by_step: Mapping[str, Sequence[dict[str, Any]]]) -> list[Any]:
    """Return what a tool said of calls in doubt, by step only if that makes a difference."""
    found = {step: _shortened(said) for step, said in by_step.items() if said}
    series = list(found.values())
    if all(said == series[0] for said in series) and (len(series) == 1 or len(series[0]) == 1):
        return [False if one == {"not_applied": True} else one for one in series[0]]
    return [{"step": step, **one} for step, said in found.items() for one in said]


# The world ------------------------------------------------------------------------------------------------------------


def _world(calls: Sequence[CallOnRecord]) -> dict[str, Any]:
    """Return the acts of each tool."""
    by_call: dict[tuple[str, str], list[CallOnRecord]] = {}
    for call in calls:
        key = json.dumps([call.arguments, call.ignored], sort_keys=True)
        by_call.setdefault((call.tool, key), []).append(call)
    world: dict[str, list[dict[str, Any]]] = {}
    for (tool, _), equal in by_call.items():
        world.setdefault(tool, []).extend(_acts(equal))
    return {tool: _short_list(acts) for tool, acts in world.items()}


def _acts(equal: Sequence[CallOnRecord]) -> Iterator[dict[str, Any]]:
    """Yield the acts of equal calls of a tool."""
    when = {"when": equal[0].arguments, **({"ignore": equal[0].ignored} if equal[0].ignored else {})}
    by_step: dict[str, list[dict[str, Any]]] = {}
    for call in equal:
        by_step.setdefault(call.step, []).append(call.act)
    series = [_shortened(acts) for acts in by_step.values()]
    # Several steps with the same series of acts would use up each other's.
    if len(series) == 1 or all(acts == series[0] and len(acts) == 1 for acts in series):
        yield from ({**when, **act} for act in series[0])
        return
    for step, acts in zip(by_step, series, strict=True):
        yield from ({**when, "step": step, **act} for act in acts)


def _short_list(found: list[Any]) -> Any:
    """Return a list as a case may say it: one of one is what is in it."""
    return found[0] if len(found) == 1 else found


def _shortened(acts: Sequence[Any]) -> list[Any]:
    """Return acts without those at the end that only repeat: the last one goes on."""
    kept = list(acts)
    while len(kept) > 1 and kept[-1] == kept[-2]:
        kept.pop()
    return kept


# What is expected -----------------------------------------------------------------------------------------------------


def _expect(run: RecordedRun, recorded: Sequence[Event]) -> dict[str, Any]:
    graph = run.graph
    expected: dict[str, Any] = {"status": str(graph.status), **_answer(run)}
    planned = list(graph.planned())
    if any(planned):
        few = len(planned) <= _MAX_STEPS
        expected["steps"] = {node.id: _step(node) for node in planned if few or _is_worth_a_look(node)}
    effects = Counter(call.tool for call in run.calls if not graph.plan.toolbox[call.tool].effect.is_free)
    once = [tool for tool, count in effects.items() if count == 1]
    if once:
        expected["calls"] = {"once": once}
    if run.replies:
        count = sum(event.origin == "planner" and event.request > 0 for event in recorded if isinstance(event, Spliced))
        expected["patches"] = {"at_least": count, "at_most": count}
    questions = run.people.questions
    if not run.people.asked_inside and not any(question.kind is Asked.PATCH for question in questions):
        expected["escalates"] = bool(questions) or graph.status in (Status.ESCALATED, Status.WAITING)
    return {name: part for name, part in expected.items() if name == "output" or part not in ({}, [])}


def _answer(run: RecordedRun) -> dict[str, Any]:
    """Return the answer; of one that is too long, a schema of what can be said of it in short."""
    try:
        answer = answer_of(run.graph)
        is_short = len(to_json(encode(answer))) <= _MAX_ANSWER
    except ValueRefused:
        return {}
    if not is_short:
        return {"schema": _outline(answer)}
    # A run that has not succeeded has nothing where its answer would be.
    return {"output": answer} if run.graph.status is Status.SUCCEEDED or answer not in (None, {}) else {}


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
