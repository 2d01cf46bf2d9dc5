"""What must hold after a crash, whatever the instant, and after the run that went on from it has ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from crash_cases import Case
from crash_process import RUN, Ended, Instant
from crash_world import FREE, MOST_TOKENS, ONCE, TOOLS, World
from dagrun import CheckedPlan, Event, State, Status
from dagrun.api.replaying import replayed
from dagrun.api.tool_contracts import check_recorded_plan, recorded_toolbox
from dagrun.codec import decode_event, encode_event
from dagrun.events import (
    AttemptEnded,
    AttemptStarted,
    GoalChanged,
    PlannerAsked,
    QuestionAnswered,
    ReplanStarted,
    Reviewed,
    RunEnded,
    RunReopened,
    RunStarted,
    RunStopping,
    RunSuspended,
    Spliced,
    StepSettled,
)
from dagrun.kernel.graph.fold import fold, state_hash
from dagrun.kernel.graph.live_graph import LiveGraph, make_frontier
from dagrun.kernel.model.event import Opening

_EVENTS: Final[dict[bytes, Event]] = {}


def _event(text: bytes) -> Event:
    found = _EVENTS.get(text)
    if found is None:
        if len(_EVENTS) > 50_000:
            _EVENTS.clear()
        found = _EVENTS[text] = decode_event(text)
        assert encode_event(found) == text, f"decoded and encoded again it is another text: {text!r}"
    return found


def judge_instant(case: Case, instant: Instant) -> Iterator[str]:
    """Look at what a crash has left, before anything goes on from it; note in the world which calls are lost."""
    events, world = [_event(text) for text in instant.texts], instant.world
    started = {(event.step, event.attempt) for event in events if isinstance(event, AttemptStarted)}
    for place, call in enumerate(world.calls):
        if call.life == world.life and (call.step, call.attempt) not in started and place not in world.lost:
            if call.tool not in FREE:
                yield f"{call} was entered, and its start is not on record"
            world.lost.add(place)
    yield from _acknowledged(events, world)


def _acknowledged(events: Sequence[Event], world: World) -> Iterator[str]:
    """All that the host was told is on record."""
    for what, about in world.acked:
        match what:
            case "splice" if about:
                found = any(isinstance(e, Spliced) and about in e.consequence.added for e in events)
            case "answer":
                found = any(isinstance(e, QuestionAnswered) and e.question == about for e in events)
            case "goal":
                found = any(isinstance(e, GoalChanged) and e.goal == about for e in events)
            case "result":
                seq, status = about
                last = events[seq - 1] if len(events) >= seq else None
                found = isinstance(last, RunEnded | RunSuspended) and str(last.status) == status
            case _:
                found = True
        if not found:
            yield f"acknowledged and lost: {what} {about}"


def judge(
    case: Case, world: World, ended: Ended, instant: Instant | None = None, reference: Ended | None = None
) -> Iterator[str]:
    """Look at a run that is over."""
    events = [_event(text) for text in ended.texts]
    yield from world.broken
    if [event.seq for event in events] != list(range(1, len(events) + 1)):
        yield "the numbers of the records have gaps"
    yield from _acknowledged(events, world)
    yield from _settles(ended, events)
    yield from _stops(events)
    yield from _attempts(events)
    yield from _ends(events)
    yield from _replays(events, ended)
    yield from _spends(case, events, world, ended.graph)
    yield from _effects(world, ended.graph)
    if reference is not None and instant is not None and case.is_calm:
        yield from _same_end(case, events, instant, ended, reference)


def _settles(ended: Ended, events: Sequence[Event]) -> Iterator[str]:
    if left := [node for node in ended.graph.nodes.values() if not node.state.is_settled]:
        yield f"not settled: {left}"
    ends = [event for event in events if isinstance(event, RunEnded)]
    if not ends or events[-1] is not ends[-1]:
        yield "the run has no end, or something follows it"
    if ended.graph.questions or ended.graph.triggers or ended.graph.is_drafting:
        yield "something is open, and the run is over"
    if ended.status is Status.SUCCEEDED and not ended.graph.has_plan:
        yield "nobody has made a plan of its goal, and it has succeeded"


def _stops(events: Sequence[Event]) -> Iterator[str]:
    """A run that is being ended early ends so, whoever brings that to its end."""
    stopping: RunStopping | None = None
    for event in events:
        match event:
            case RunStopping():
                stopping = event
            case RunReopened():
                stopping = None
            case AttemptStarted() if stopping is not None:
                yield f"{event.step} was called, and the run was being ended: {stopping.reason}"
            case RunEnded() if stopping is not None and event.status not in (stopping.status, Status.UNKNOWN):
                yield f"the run was being ended as {stopping.status}, and has ended as {event.status}"


def _attempts(events: Sequence[Event]) -> Iterator[str]:
    """Attempts begin and end in turn, each once."""
    open_: dict[str, int] = {}
    count: Counter[str] = Counter()
    for event in events:
        match event:
            case AttemptStarted():
                count[event.step] += 1
                if event.attempt != count[event.step] or event.step in open_:
                    yield f"attempt {event.attempt} of {event.step} is number {count[event.step]}; open: {open_}"
                open_[event.step] = event.attempt
            case AttemptEnded():
                if open_.pop(event.step, 0) != event.attempt:
                    yield f"attempt {event.attempt} of {event.step} has ended twice, or not begun"
    if open_:
        yield f"these attempts have no end: {open_}"


def _ends(events: Sequence[Event]) -> Iterator[str]:
    """A step ends once, and is not called after that, unless it is open again."""
    settled: dict[str, State] = {}
    for event in events:
        match event:
            case AttemptStarted() if event.step in settled:
                yield f"{event.step} was called again, and had {settled[event.step]}"
            case AttemptEnded() | StepSettled() | Reviewed() if event.state.is_settled:
                if event.step in settled:
                    yield f"{event.step} has ended as {settled[event.step]}, and again as {event.state}"
                settled[event.step] = event.state
            case RunReopened():
                for step in event.steps:
                    settled.pop(step, None)


_PLANS: Final[dict[bytes, tuple[CheckedPlan, CheckedPlan]]] = {}


def _plans(opening: Opening, text: bytes) -> tuple[CheckedPlan, CheckedPlan]:
    """The plan with the tools, and with those that stand in for them from their recorded contracts."""
    if text not in _PLANS:
        _PLANS.clear()
        toolboxes = (TOOLS, recorded_toolbox(opening))
        one, other = (check_recorded_plan(opening, toolbox, opening.policy) for toolbox in toolboxes)
        _PLANS[text] = one, other
    return _PLANS[text]


def _replays(events: Sequence[Event], ended: Ended) -> Iterator[str]:
    first = events[0]
    assert isinstance(first, RunStarted)
    assert first.opening is not None
    whole = len(events) % 16 == 0  # checking the plan anew each time is most of what it costs
    try:
        if whole and replayed(RUN, events).hash != ended.hash:
            yield "a replay gives another state"
        for plan in _plans(first.opening, ended.texts[0]):
            frontier, caps_of = make_frontier(plan, None)
            graph = LiveGraph(plan, first.opening.inputs, frontier, caps_of)
            fold(graph, events, RUN)
            if state_hash(graph) != ended.hash:
                yield f"folded again, with {type(plan.toolbox['look']).__name__}s, the state is another one"
    except Exception as error:  # noqa: BLE001  (that it ends at all is what is judged)
        yield f"a replay ends with {error!r}"


def _spends(case: Case, events: Sequence[Event], world: World, graph: LiveGraph) -> Iterator[str]:
    """No ceiling was broken, by the events and by what the world has seen."""
    policy = case.policy
    calls = [call for place, call in enumerate(world.calls) if place not in world.lost]
    starts = [event for event in events if isinstance(event, AttemptStarted)]
    if policy.max_attempts is not None and max(len(starts), len(calls)) > policy.max_attempts:
        yield f"{len(starts)} attempts and {len(calls)} calls, the ceiling is {policy.max_attempts}"
    for tool, limit in policy.max_calls_by_tool.items():
        if (count := sum(1 for call in calls if call.tool == tool)) > limit:
            yield f"{count} calls of {tool}, the ceiling is {limit}"
    used = sum(
        world.used.get(place, MOST_TOKENS) if world.ends.get(place) == "returned" else world.used.get(place, 0)
        for place in range(len(world.calls))
        if place not in world.lost
    )
    if policy.max_tokens is not None and used > policy.max_tokens:
        yield f"{used} tokens are used, the ceiling is {policy.max_tokens}"
    replans = sum(1 for event in events if isinstance(event, ReplanStarted))
    if replans > policy.max_replans:
        yield f"{replans} replans, the ceiling is {policy.max_replans}"
    asked = sum(1 for event in events if isinstance(event, PlannerAsked))
    if policy.planning.max_calls is not None and asked > policy.planning.max_calls:
        yield f"the planner was asked {asked} times, the ceiling is {policy.planning.max_calls}"
    yield from _caps(policy, events, graph)


def _caps(policy: Any, events: Sequence[Event], graph: LiveGraph) -> Iterator[str]:
    running: set[str] = set()
    for event in events:
        if isinstance(event, AttemptEnded):
            running.discard(event.step)
        if isinstance(event, AttemptStarted):
            running.add(event.step)
            held = {step for step in running if step != event.step and _waits(graph, step, event, events)}
            if policy.max_running is not None and len(running - held) > policy.max_running:
                yield f"{len(running)} run at record {event.seq}, the limit is {policy.max_running}"


def _waits(graph: LiveGraph, step: str, at: Event, events: Sequence[Event]) -> bool:
    """Whether a running step has given its place back: it has asked a person in the middle of its work."""
    node = graph.nodes[step]
    return node.extra is not None and node.extra.asked > 0


def _effects(world: World, graph: LiveGraph) -> Iterator[str]:
    for (tool, who), keys in world.applied.items():
        if tool in ONCE and len(keys) > 1:
            yield f"{tool} of {who} has changed the world {len(keys)} times"
        if tool == "put" and len(set(keys)) > 1:
            yield f"{tool} of {who} has changed the world under {len(set(keys))} keys"
    known = {(node.id, attempt.number) for node in graph.nodes.values() for attempt in node.attempts}
    for place, call in enumerate(world.calls):
        if place not in world.lost and (call.step, call.attempt) not in known:
            yield f"{call} was made, and is not on record"


def _same_end(case: Case, events: Sequence[Event], instant: Instant, ended: Ended, reference: Ended) -> Iterator[str]:
    """A crash that hit no effect in flight changes nothing of what a calm run gives."""
    if case.latency and instant.where[0] != instant.where[1]:
        return
    hit = any(
        isinstance(event, AttemptEnded)
        and event.outcome.failure is not None
        and event.outcome.failure.kind == "interrupted"
        and TOOLS[_tool_of(events, event)].effect not in ("pure", "read")
        for event in events
    )
    if hit or not instant.is_whole or any(isinstance(event, RunReopened) for event in events):
        return
    if ended.status != reference.status:
        yield f"the run {ended.status}, and without a crash it {reference.status}"
    for id_, how in reference.steps.items():
        if ended.steps.get(id_) != how:
            yield f"{id_} gave {ended.steps.get(id_)}, and without a crash {how}"


def _tool_of(events: Sequence[Event], end: AttemptEnded) -> str:
    return next(
        event.tool
        for event in events
        if isinstance(event, AttemptStarted) and (event.step, event.attempt) == (end.step, end.attempt)
    )
