"""What must hold of a run that began with a goal: judged by its events, and by what its planner has said and when."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun import Add, Event, Replace, RunResult, Step
from dagrun.events import (
    AttemptEnded,
    AttemptStarted,
    DraftEnded,
    DraftStarted,
    GoalChanged,
    PlannerCalled,
    ReplanEnded,
    ReplanRequested,
    ReplanStarted,
    Reviewed,
    Spliced,
    StepExpanded,
    StepSettled,
)
from dagrun.kernel.graph.changes import GOAL, apply
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.value import decode
from draft_cases import DraftCase, is_good
from splice_book import as_json, needs_of

EXACT: Final = 1e-9
RETRY_AFTER: Final = 1.5  # seconds that a busy model asks for
_OVER: Final = ("applied", "unchanged")
_ELEMENT: Final = re.compile(r"\[\d+\]$")


@dataclass
class Said:
    """What a planner has said, and what became of its answers.

    Attributes:
        steps: When each step was yielded, by the n-th time that any was.
        kinds: What each call was about: ``first``, ``repair`` or ``later``.
        asked: When each call began.
        closed: How many of its answers are over.
        now: How many it is giving.
        most: The most that it was giving at once.
    """

    steps: list[tuple[float, Step]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    asked: list[float] = field(default_factory=list)
    closed: int = 0
    now: int = 0
    most: int = 0


def broken_rules(case: DraftCase, graph: LiveGraph, events: Sequence[Event], said: Said) -> Iterator[str]:
    """Say which rules of a draft a run that is over has broken."""
    yield from _order(events)
    yield from _starts_too_early(graph, events)
    yield from _not_planned(graph, events)
    yield from _calls(case, events, said)
    if not (case.cancels or case.cancels_at or case.goals or case.patches):
        yield from _late_or_early(case, graph, events, said)


# Order ----------------------------------------------------------------------------------------------------------------


def _order(events: Sequence[Event]) -> Iterator[str]:
    """The draft begins right after the run, and ends once."""
    begins = [n for n, event in enumerate(events) if isinstance(event, DraftStarted)]
    ends = [n for n, event in enumerate(events) if isinstance(event, DraftEnded)]
    if begins != [1] or len(ends) != 1 or not 1 < ends[0] < len(events) - 1:
        yield f"the draft begins at the events {begins}, and ends at {ends} of {len(events)}"
    for event in (events[n] for n in ends if any(isinstance(earlier, GoalChanged) for earlier in events[:n])):
        if isinstance(event, DraftEnded) and event.result != "stopped":
            yield f"{event}, and the goal had changed before"


def _starts_too_early(graph: LiveGraph, events: Sequence[Event]) -> Iterator[str]:
    """No effect before there is a plan; and nothing that has not started while there is none any more."""
    toolbox, safe = graph.plan.toolbox, graph.plan.policy.planning.stream_safe
    is_open, is_frozen = True, False
    for event in events:
        match event:
            case DraftStarted():
                is_frozen = event.is_held
            case DraftEnded(result="applied"):
                is_open, is_frozen = False, False
            case DraftEnded() | GoalChanged():
                is_frozen = True
            case ReplanEnded() if GOAL in event.steps:
                is_open, is_frozen = is_open and event.result not in _OVER, False
            case AttemptStarted():
                tool = toolbox[event.tool]
                if is_open and not (tool.effect.is_free or tool.stream_safe or tool.name in safe):
                    yield f"{event} changes the world, and there is no plan yet"
                if is_frozen and event.attempt == 1:
                    yield f"{event} starts, and the plan is refused, or its goal has changed"
            case StepExpanded() if is_frozen:
                yield f"{event} starts, and the plan is refused, or its goal has changed"


def _not_planned(graph: LiveGraph, events: Sequence[Event]) -> Iterator[str]:
    """No call but that of a step which is in the plan, with the tool that it says, or the one in reserve."""
    tools: dict[str, set[str | None]] = {}
    for event in events:
        if isinstance(event, Spliced):
            for edit in event.edits:
                if isinstance(edit, Add | Replace):
                    step = edit.step
                    reserve = graph.plan.toolbox[step.tool].fallback if step.fallback is None else step.fallback
                    tools[step.id] = {step.tool, reserve}
        if isinstance(event, AttemptStarted) and event.tool not in tools.get(_ELEMENT.sub("", event.step), ()):
            yield f"{event} is not in the plan"


# The planner ----------------------------------------------------------------------------------------------------------


def open_requests(events: Sequence[Event]) -> set[int]:
    """Return the numbers of the requests to the planner that have begun and not ended."""
    begun = {event.number for event in events if isinstance(event, ReplanStarted)}
    return begun - {event.number for event in events if isinstance(event, ReplanEnded)}


def _calls(case: DraftCase, events: Sequence[Event], said: Said) -> Iterator[str]:
    at_once = max((len(open_requests(events[:end])) for end in range(len(events) + 1)), default=0)
    if said.now or said.most > max(1, at_once):
        yield f"{said.now} answers of the planner were never closed, and {said.most} were given at once"
    called = [event.number for event in events if isinstance(event, PlannerCalled)]
    # Of a call that is cut off by the end of the run there is nothing more to tell.
    if called != list(range(1, len(called) + 1)) or not 0 <= len(said.kinds) - len(called) <= 1:
        yield f"the planner was called {len(said.kinds)} times, and the record says {called}"
    ended = next(event for event in events if isinstance(event, DraftEnded))
    firsts, repairs = said.kinds.count("first"), said.kinds.count("repair")
    if firsts > 1 + case.busy:
        yield f"the planner was asked for the first plan {firsts} times"
    if firsts > 1 and abs(said.asked[1] - said.asked[0] - case.thinks - RETRY_AFTER) > EXACT:
        yield f"a busy model was asked at {said.asked}, and had wanted {RETRY_AFTER} s"
    wanted = ended.result == "refused"
    if repairs > wanted or (wanted and case.is_calm and not repairs):
        yield f"the planner was asked for a better plan {repairs} times, and the first was {ended}"
    if not case.is_calm:
        return
    if ended.result == "applied" and case.is_doubtful and not (case.person and case.person[1]):
        yield "nobody has agreed to a doubtful plan, and it is carried out"
    if case.fault and ended.result != "refused":
        yield f"a plan with a fault ({case.fault}) is {ended.result}: {ended.reason}"
    if not case.fault and ended.result != "applied" and not case.may_be_asked:
        yield f"a plan without a fault is {ended.result}: {ended.reason}"


# Times ----------------------------------------------------------------------------------------------------------------


def _late_or_early(case: DraftCase, graph: LiveGraph, events: Sequence[Event], said: Said) -> Iterator[str]:
    """A step starts exactly when it may: written, with all that it names; all that it waits for has ended."""
    policy = case.policy
    ended = next(event for event in events if isinstance(event, DraftEnded))
    if ended.result != "applied" or policy.max_running or policy.max_running_by_tool or policy.pools:
        return
    let_in, ends, kept = _let_in(said), _ends(events), _asked_about(events)
    is_held = any(isinstance(event, DraftStarted) and event.is_held for event in events)
    for id_, at in _starts(events).items():
        node = graph.nodes[id_]
        needs = node.plan.depends_on
        if kept.intersection(needs) or (not node.attempts and node.children is None):
            continue  # what waits for the planner's answer waits longer
        tools = [node.plan.tool, *([node.plan.fallback] if node.plan.fallback is not None else ())]
        is_early = all(t.effect.is_free or t.stream_safe or t.name in policy.planning.stream_safe for t in tools)
        may = max(let_in[id_], *(ends[need] for need in needs), 0.0)
        wanted = max(may, 0.0 if is_early and not is_held else ended.at)
        if abs(at - wanted) > EXACT:
            yield f"{id_} started at {at}, but should have at {wanted}: it came in at {let_in[id_]}"


def _let_in(said: Said) -> dict[str, float]:
    """When each step is in the plan: it has been written, and what it names is in the plan."""
    written = {step.id: at for at, step in said.steps}
    needs = {step.id: needs_of(as_json(step)) for _, step in said.steps}
    found: dict[str, float] = {}

    def find(id_: str) -> float:
        if id_ not in found:
            found[id_] = max(written[id_], *(find(need) for need in needs[id_]), 0.0)
        return found[id_]

    return {id_: find(id_) for id_ in written}


def _starts(events: Sequence[Event]) -> dict[str, float]:
    found: dict[str, float] = {}
    for event in events:
        if isinstance(event, AttemptStarted | StepExpanded) and not _ELEMENT.search(event.step):
            found.setdefault(event.step, event.at)
    return found


def _ends(events: Sequence[Event]) -> dict[str, float]:
    return {
        event.step: event.at
        for event in events
        if isinstance(event, AttemptEnded | StepSettled | Reviewed) and event.state.is_settled
    }


def _asked_about(events: Sequence[Event]) -> set[str]:
    return {event.trigger.step for event in events if isinstance(event, ReplanRequested)}


# Ends -----------------------------------------------------------------------------------------------------------------


def differences(case: DraftCase, drafted: RunResult, whole: RunResult, events: Sequence[Event]) -> Iterator[str]:
    """Say in what a calm run of a draft has ended otherwise than the same plan run in one piece."""
    if not drafted.has_plan:
        why = "; ".join(event.reason for event in events if isinstance(event, DraftEnded | ReplanEnded))
        if not _may_be_without_plan(case, why):
            yield f"there is no plan: {why}"
        return
    ends = {id_: (str(step.state), step.output) for id_, step in drafted.steps.items()}
    wanted = {id_: (str(step.state), step.output) for id_, step in whole.steps.items()}
    for id_ in sorted({*ends, *wanted}):
        if ends.get(id_) != wanted.get(id_):
            yield f"{id_} has ended as {ends.get(id_)}; in one piece it has as {wanted.get(id_)}"
    if (drafted.status, drafted.output) != (whole.status, whole.output):
        yield f"the run {drafted.status} and gave {drafted.output}; in one piece {whole.status} and {whole.output}"


def _may_be_without_plan(case: DraftCase, why: str) -> bool:
    if any(words in why for words in ("did not agree", "was denied", "nobody agreed", "nobody was there")):
        return case.may_be_asked and (case.person is None or not case.person[1])
    # A better plan is too long itself, if nothing of it has come in.
    is_too_long = case.fault == "too many steps" and "DR409" in why
    return bool(case.fault) and (is_too_long or not is_good(case.repair))


def folded(graph: LiveGraph, events: Sequence[Event], fresh: LiveGraph) -> Iterator[str]:
    """Say in what the state that comes of the events alone is another one."""
    for event in events:
        apply(fresh, event)
    for name in ("status", "reason", "unsettled", "has_plan", "wants_more", "problems", "goal", "is_frozen"):
        if getattr(fresh, name) != getattr(graph, name):
            yield f"{name} is {getattr(graph, name)}, but by the events {getattr(fresh, name)}"
    if _look(fresh) != _look(graph):
        yield "the events give other steps"


def _look(graph: LiveGraph) -> Mapping[str, Any]:
    return {
        id_: (node.state, node.missing, decode(node.value), len(node.attempts)) for id_, node in graph.nodes.items()
    }


def counted(case: DraftCase, events: Sequence[Event], said: Said, result: RunResult) -> Counter[str]:
    """What was exercised, by name."""
    counts: Counter[str] = Counter()
    written, failed = {id(step): at for at, step in said.steps}, set()
    place = {step.id: n for n, (_, step) in enumerate(said.steps)}
    draft_ended = next(n for n, event in enumerate(events) if isinstance(event, DraftEnded))
    ended = events[draft_ended]
    assert isinstance(ended, DraftEnded)
    counts[f"draft {ended.result}"] += 1
    counts["repairs that helped"] += ended.result == "refused" and result.has_plan
    for event in events[:draft_ended]:
        if isinstance(event, AttemptStarted):
            counts["calls before the plan was ended"] += 1
        if isinstance(event, AttemptEnded | StepSettled) and event.state.is_settled and event.state != "succeeded":
            failed.add((event.step, event.at))
    for _, step in said.steps:
        needs = needs_of(as_json(step))
        counts["forward references"] += sum(1 for need in needs if place.get(need, -1) > place[step.id])
        counts["steps written after what they need had failed"] += any(
            (id_ in needs and before < written[id(step)]) for id_, before in failed
        )
    counts["cancelled while it was written"] += ended.result == "stopped"
    counts["goals changed while it was written"] += any(isinstance(e, GoalChanged) for e in events[:draft_ended])
    counts["host changed the plan while it was written"] += any(
        isinstance(e, Spliced) and e.origin == "host" for e in events[:draft_ended]
    )
    counts["retried calls of the planner"] += max(0, said.kinds.count("first") - 1)
    counts["runs"] += 1
    if case.fault and ended.result == "refused":
        counts[f"refused: {case.fault}"] += 1
    return counts
