"""What a recorded run has heard from outside: its tools, its critics, its people and its planner, as cases say it.

1. Arguments are not on record. They are filled in again, from the state that the run had when the call began: the
   record is folded event by event, and looked at after each.
2. Everything is read from events that may be shown. So an argument that is made of a redacted output is redacted alike.
3. A call that was stopped goes on for ever in a case: nobody knows how long it would have taken.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic_core import from_json

from dagrun.checks.tool_contracts import check_recorded_plan, recorded_toolbox
from dagrun.decide.run_status import NO_PLAN_NOR_PLANNER, ONLY_ITS_PLAN
from dagrun.errors import ValueRefused
from dagrun.evaluate.cases.case_file import FOREVER, UNSTOPPABLE
from dagrun.evaluate.cases.failures import WRONG_TYPE, said_of
from dagrun.evaluate.cases.recorded_people import PeopleReader
from dagrun.evaluate.cases.recorded_requests import RequestReader, edit_of_case, just_below, whole_ms
from dagrun.evaluate.cases.stand_in_world import called_with
from dagrun.graph.budget import OF_ALL_RUNS
from dagrun.graph.build import build
from dagrun.graph.fold import fold
from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.longest_paths import Expected
from dagrun.graph.node import Node
from dagrun.model import event as events
from dagrun.model.effect import Effect
from dagrun.model.event import Event, Opening
from dagrun.model.outcome import ErrorKind, Outcome, State, Status
from dagrun.model.patch import Add
from dagrun.model.toolbox import COMPOSE, AnyTool, Toolbox
from dagrun.model.value import Unavailable, decode

# What a deed of the host may follow, apart from the ends of steps.
_MOVES: Final = (events.AttemptStarted, events.AttemptEnded, events.Spliced, events.QuestionAsked, events.PlannerAsked)
_NOT_CALLED: Final = ErrorKind.BAD_ARGUMENTS
# The tool has returned, and what it returned is not on record.
_UNSEEN: Final = frozenset((ErrorKind.SUCCESS_CONDITION, ErrorKind.CONDITION_MISMATCH))
_UNDONE: Final = {"tool_error": "nothing has happened"}  # says a call as it is told to stop
_ANY_CRITIC: Final = "a critic"  # of a review that was stopped, of which it is not on record who judges


@dataclass(slots=True)
class CallOnRecord:
    """A call of a tool on record.

    Attributes:
        tool: The tool.
        step: The step that made it.
        attempt: The number of the attempt, from 1.
        arguments: The arguments, as a stand-in of the tool gets them.
        ignored: Those that were given and are not among them.
        act: What came of it, with the fields of an `Act`.
    """

    tool: str
    step: str
    attempt: int
    arguments: dict[str, Any]
    ignored: list[str] = field(default_factory=list)
    act: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RecordedRun:
    """A run as its record has it.

    Attributes:
        opening: What it was opened with.
        graph: Its state at the end of the record.
        calls: The calls of tools, in the order of their begin.
        people: What people answered, and what tools said of calls in doubt.
        replies: What the planner answered.
        has_planner: Whether there was a planner to ask, whether or not it was asked.
        host: What the host did to the run while it ran, with the fields of a `HostDeed`.
        taken_over: Whether it has taken over outputs of the run that it retries.
        missing: What is not on record, though a case needs it, in words.
    """

    opening: Opening
    graph: LiveGraph
    people: PeopleReader
    calls: list[CallOnRecord] = field(default_factory=list)
    replies: list[dict[str, Any]] = field(default_factory=list)
    has_planner: bool = False
    host: list[dict[str, Any]] = field(default_factory=list)
    taken_over: bool = False
    missing: list[str] = field(default_factory=list)


def read_run(run_id: str, recorded: Sequence[Event], tools: Toolbox | None = None) -> RecordedRun:
    """Read what a run has heard from outside.

    Args:
        run_id: The run.
        recorded: Its events.
        tools: The tools of today, which put arguments into the form in which a stand-in gets them; `None` for the form
            of the record.

    Raises:
        JournalDamaged: The events do not follow from each other.
    """
    openings = [
        event.opening
        for event in recorded
        if isinstance(event, events.RunStarted | events.RunResumed) and event.opening is not None
    ]
    first = openings[0]
    plan = check_recorded_plan(first, recorded_toolbox(first), first.policy)
    graph = build(plan, first.inputs, None, Expected(plan)).graph
    found = RecordedRun(
        openings[-1], graph, PeopleReader(graph), has_planner=not first.plan.steps
    )  # a goal has one, asked or not
    fold(graph, _RecordReader(found, tools).watched(recorded), run_id)
    return found


class _RecordReader:
    """Looks at a run after each of its events.

    Args:
        run: Gets what is found.
        tools: The tools of today.
    """

    def __init__(self, run: RecordedRun, tools: Toolbox | None) -> None:
        self._run = run
        self._graph = run.graph
        self._tools = tools
        self._open: dict[str, tuple[CallOnRecord, float]] = {}  # by step: the call that runs, and since when
        self._has_begun = False
        self._has_ended = False
        self._last: dict[str, CallOnRecord] = {}
        self._returned: dict[str, float] = {}  # by step: when that call ended
        self._second: dict[str, tuple[int, float | None]] = {}  # by step: what the second call of its attempt has used
        self._unfilled = set[str]()  # the steps of open calls, of which the arguments are not known
        self._joined: dict[str, float] = {}  # by for_each: when all of its elements had ended
        self._held: dict[str, float] = {}  # by step: seconds in which its tool has waited for a person
        self._latest = ("", 0.0)  # the step that has ended last, and when
        self._done = 0.0  # when the host did something last
        self._moved = -math.inf  # when something went on last, after both of these
        self._late = 0.0  # the seconds by which the case does it later
        self._planner = RequestReader(run.graph)

    def watched(self, recorded: Iterable[Event]) -> Iterator[Event]:
        """Yield each event, and look at what it has changed when the next one is wanted."""
        for number, event in enumerate(recorded):
            if number == 1:
                self._done = event.at  # the record was made ready until then
            yield event
            before = (self._latest, self._done)
            self._look(event)
            if before != (self._latest, self._done):
                self._moved = -math.inf
            elif isinstance(event, _MOVES):
                self._moved = event.at
        self._run.replies += self._planner.all_replies()
        self._run.missing += self._run.people.missing
        resumes = (deed for deed in self._run.host if "resume" in deed)
        for deed, is_attended in zip(resumes, self._run.people.resumptions(), strict=True):
            deed.update({"attended": True} if is_attended else {})
        has_planner = self._planner.was_asked or self._run.people.come_after_a_planner
        self._run.has_planner = self._run.has_planner or has_planner

    def _look(self, event: Event) -> None:
        match event:
            case events.AttemptStarted():
                self._begin(event)
            case events.AttemptEnded():
                self._end(event)
                self._run.people.see_decision(event)
            case events.Reviewed():
                self._review(event)
            case events.HedgeEnded():
                self._second[event.step] = (event.tokens, event.cost)
            case events.ConfidenceReported():
                self._open[event.step][0].act["confidence"] = event.confidence
            case events.QuestionAsked():
                self._run.people.ask(event, is_inside=event.question.step in self._open)
                self._planner.look(event)
            case events.QuestionAnswered():
                held = self._run.people.answer(event)
                self._held[event.step] = self._held.get(event.step, 0.0) + held
                self._planner.look(event)
            case _:
                self._look_at_host(event)
                self._run.people.look(event)
                self._planner.look(event)

    def _look_at_host(self, event: Event) -> None:
        match event:
            case events.GoalChanged():
                self._deed(event.at, goal=event.goal)
            case events.Spliced() if event.origin == "host" and not _is_last_step(event):
                answer = {"output": event.output} if event.changes_output else {}
                self._deed(event.at, splice={"edits": list(map(edit_of_case, event.edits)), **answer})
            case events.RunStopping():
                self._stops(event)
            case events.RunEnded():
                self._has_ended = True
            case events.RunResumed() if self._has_ended or self._run.people.is_waiting:
                self._run.host.append({"resume": True})
                self._run.people.live_again(event.at)
                self._latest, self._done, self._has_ended = ("", 0.0), event.at, False
            case events.StepSettled():
                self._settled(event)

    # Calls ------------------------------------------------------------------------------------------------

    def _begin(self, event: events.AttemptStarted) -> None:
        node = self._graph.nodes[event.step]
        self._unfilled.discard(event.step)
        call = CallOnRecord(event.tool, event.step, event.attempt, *self._arguments(node, event.tool))
        self._open[event.step] = (call, event.at)
        self._has_begun = True

    def _arguments(self, node: Node, tool: str) -> tuple[dict[str, Any], list[str]]:
        """Fill in the arguments of the call that begins, rule 1; and name those that only the host knows."""
        try:
            data = node.plan.args.fill(lambda reference: self._graph.look_up(reference, node), sys.maxsize)
            given = {} if node.extra is None else {name: decode(value) for name, value in node.extra.given.items()}
        except (LookupError, ValueRefused):
            self._unfilled.add(node.id)
            return {}, []
        plain: dict[str, Any] = {**from_json(data), **given}
        known = None if self._tools is None or tool == COMPOSE else self._tools[tool]
        return (plain, []) if known is None else _as_called(known, plain, is_streamed=bool(node.plan.stream))

    def _end(self, event: events.AttemptEnded) -> None:
        call, began = self._open.pop(event.step)
        outcome, failure = event.outcome, event.outcome.failure
        was_called = failure is None or failure.kind is not _NOT_CALLED
        began = self._has_read(event, began) if was_called else began
        takes = whole_ms(event.at - began - self._held.pop(event.step, 0.0))
        if (most := self._graph.nodes[event.step].plan.timeout) is not None and not _was_stopped(outcome):
            takes = min(takes, just_below(most))  # the rest was spent on waiting, for people say
        self._note_end(event)
        if event.step in self._unfilled:
            if was_called:
                self._run.missing.append(f"the arguments of step {event.step}")
            return
        keeps = self._tools is not None and call.tool in self._tools and self._tools[call.tool].cache is not None
        if keeps and (shared := outcome.shared) is not None and shared.how in ("cached", "joined") and not shared.run:
            return  # another step has made the call
        call.act = self._act(call, outcome, takes) | call.act
        self._last[event.step], self._returned[event.step] = call, event.at
        self._run.calls.append(call)

    def _has_read(self, event: events.AttemptEnded, began: float) -> float:
        """Return when a call had its arguments: at its begin, but of a stream, which a stand-in reads to its end."""
        source = self._graph.nodes[event.step].plan.stream
        if not source or event.outcome.state is State.CANCELLED:
            return began
        is_whole = source in self._joined or self._graph.nodes[source].children is None
        if not is_whole and not _was_stopped(event.outcome):
            self._run.missing.append(f"what step {event.step} had read when it ended, which was before its stream did")
        return max(began, self._joined.get(source, 0.0))

    def _note_end(self, event: events.AttemptEnded | events.Reviewed) -> None:
        failure, node = event.outcome.failure, self._graph.nodes[event.step]
        by_itself = self._graph.stopping is not None or node.is_gone
        if failure is not None and failure.kind is ErrorKind.CANCELLED and not by_itself:
            self._deed(event.at, cancel=event.step, reason=failure.message)
        if event.state.is_settled:
            self._latest = (event.step, event.at)

    def _act(self, call: CallOnRecord, outcome: Outcome, takes: float) -> dict[str, Any]:
        act: dict[str, Any] = {"takes": takes} if takes else {}
        told = self._usage(call.step, outcome) | ({"surprise": outcome.surprise} if outcome.surprise else {})
        failure = outcome.failure
        if outcome.state is State.SUCCEEDED:
            if isinstance(outcome.value, Unavailable):
                self._run.missing.append(f"what step {call.step} gave: {outcome.value.reason}")
                return act
            return {**act, "return": decode(outcome.value), **told}
        if failure is None or _was_stopped(outcome):
            is_late = failure is not None and failure.kind is ErrorKind.TIMEOUT
            clings = outcome.state is State.ABANDONED or (failure is not None and is_late and not failure.is_transient)
            is_free = self._graph.plan.toolbox[call.tool].effect.is_free
            vouched = {"raise": _UNDONE} if failure is not None and failure.nothing_happened and not is_free else {}
            return {"takes": UNSTOPPABLE if clings else FOREVER, **({} if clings else vouched), **told}
        if failure.kind is ErrorKind.BAD_OUTPUT:
            return {**act, "raise": WRONG_TYPE, **told}
        tool = self._graph.plan.toolbox[call.tool]
        said = said_of(failure, tool)
        if failure.kind in _UNSEEN and tool.effect not in (Effect.PURE, Effect.READ):
            said["failure"]["nothing_happened"] = True  # it is known what has happened: the tool has returned
        return {**act, "raise": said, **told}

    def _usage(self, step: str, outcome: Outcome) -> dict[str, Any]:
        """Return what a call has reported, with that of its second call; of one that was shared, that it is nothing."""
        tokens, cost = self._second.pop(step, (0, None))
        tokens += outcome.tokens
        costs = [one for one in (cost, outcome.cost) if one is not None]
        told = {"tokens": tokens} if tokens or outcome.shared is not None else {}
        return {**told, **({"cost": sum(costs)} if costs else {})}

    def _review(self, event: events.Reviewed) -> None:
        call = self._last.get(event.step)
        self._note_end(event)
        if call is None:
            return
        # What is beyond the time of a critic was spent on waiting for a place of its model.
        most = self._graph.plan.policy.critic_timeout
        seconds = min(whole_ms(event.at - self._returned[event.step]), just_below(most))
        reviews = [
            {
                "critic": verdict.critic,
                "result": verdict.result,
                **({"reason": verdict.reason} if verdict.reason else {}),
                **({} if verdict.confidence is None else {"confidence": verdict.confidence}),
            }
            for verdict in event.verdicts
        ]
        if not reviews:  # it was stopped
            reviews = [{"critic": _ANY_CRITIC, "result": "pass", "takes": FOREVER}]
        elif seconds:
            reviews[0]["takes"] = seconds  # they judge at once, and which one took so long is not on record
        call.act["reviews"] = reviews

    # The host ---------------------------------------------------------------------------------------------

    def _deed(self, at: float, **deed: Any) -> None:
        """Note a deed; it follows the last end of a step, so that it fits runs that are a little faster or slower."""
        step, ended = self._latest if self._latest[1] >= self._done else ("", self._done)
        exactly = at - ended - (0.0 if step else self._late)
        takes = whole_ms(max(exactly, 0.0))
        if not step and self._has_begun:
            takes = max(takes, 0.001)  # calls had begun before, though none of them may be open by now
        if self._moved >= ended + takes:
            takes = round(whole_ms(self._moved - ended) + 0.001, 3)  # it has seen that
        self._late = takes - exactly if not step and takes > exactly else 0.0
        after = {"after": step} if step else {}
        self._run.host.append({**after, **({"takes": takes} if takes else {}), **deed})
        self._done = at

    def _stops(self, event: events.RunStopping) -> None:
        if missing := self._missing_for(event):
            self._run.missing.append(missing)
        elif event.status is Status.CANCELLED:
            self._deed(event.at, cancel="*", reason=event.reason)

    def _missing_for(self, event: events.RunStopping) -> str:
        """Return what a case would need to stop as the run did, and is not on record; an empty text for nothing."""
        if event.reason == ONLY_ITS_PLAN:
            return "what its plan comes to: only the plan was wanted"
        if event.reason == NO_PLAN_NOR_PLANNER:
            return "a planner: it has gone on without one"
        if event.status is not Status.OVER_BUDGET:
            return ""
        if OF_ALL_RUNS in event.reason:
            return "what other runs had used of the ceilings that they share"
        return "the answer: a ceiling was in the way of what composed it" if self._composes() else ""

    def _composes(self) -> bool:
        return any(call.tool == COMPOSE for call, _ in self._open.values())

    def _settled(self, event: events.StepSettled) -> None:
        by_itself = self._graph.stopping is not None or event.cause or self._graph.nodes[event.step].is_gone
        if not by_itself and self._was_cancelled(event):
            self._deed(event.at, cancel=event.step, reason=event.reason)
        is_default = event.is_default or self._graph.nodes[event.step].children is not None
        if event.state is State.SUCCEEDED and not is_default and not self._graph.nodes[event.step].attempts:
            self._run.taken_over = True
        if self._graph.nodes[event.step].children is not None:
            self._joined[event.step] = event.at
        self._latest = (event.step, event.at)

    def _was_cancelled(self, event: events.StepSettled) -> bool:
        """Whether a step that did not run was cancelled; it is in doubt, if an attempt before may have taken effect."""
        node = self._graph.nodes[event.step]
        if event.state is not State.UNKNOWN or event.failure is not None or node.children is not None:
            return event.state is State.CANCELLED
        last = node.attempts[-1].outcome if node.attempts else None
        return last is None or last.failure is None or event.reason != last.failure.message


def _is_last_step(event: events.Spliced) -> bool:
    """Whether a splice brings the step that composes the answer, which the run adds by itself."""
    return any(isinstance(edit, Add) and edit.step.tool == COMPOSE for edit in event.edits)


def _was_stopped(outcome: Outcome) -> bool:
    """Whether a call was stopped, so that nobody knows what would have come of it; rule 3."""
    failure = outcome.failure
    if outcome.state in (State.CANCELLED, State.SUPERSEDED, State.ABANDONED, State.TIMED_OUT):
        return True
    return failure is not None and (
        failure.kind is ErrorKind.CANCELLED or (failure.kind is ErrorKind.TIMEOUT and not failure.error)
    )


def _as_called(tool: AnyTool, plain: Mapping[str, Any], *, is_streamed: bool) -> tuple[dict[str, Any], list[str]]:
    """Return arguments as a stand-in of the tool gets them, and the names of those that only the host knows."""
    contract = tool.arguments
    hidden = {*contract.secrets, *contract.objects, *([contract.stream] if is_streamed else [])}
    given = {contract.names.get(name, name) for name in plain} | ({contract.stream} if is_streamed else set())
    told = called_with(tool, plain)
    said = {name: value for name, value in told.items() if contract.names.get(name, name) not in hidden}
    return said, sorted(hidden & given)
