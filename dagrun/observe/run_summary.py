"""The summary of a recorded run, counted from the lines of its record in one pass, without building its graph.

Lists of runs, `dagrun.metrics` and the page read it. The lines are read as plain JSON, because the graph needs
libraries that take longer to load than a list takes to print. The method that counts an event has its name:

1. The plan at the opening, and what splices have added and taken out, say which steps there are. Elements of a for_each
   do not count, nor does what took their place. A step has ended when the last event about it names a state in which
   steps end; `RunReopened` opens it again.
2. A question is open from `QuestionAsked` to `QuestionAnswered`.
3. A call is judged by its last outcome: that of the critics, if they have judged it. A call that was told to stop
   (cancelled, superseded) is no success and no failure, and does not count; a review that was stopped says nothing.
4. Tokens and cost are those that calls of tools, their second calls, planners and critics have reported, as
   `dagrun.kernel.graph.figures` adds them. The cost is unknown if any part of it is: tokens without a price, or a model
   whose call has no reported end, because the process was killed.
5. Seconds in the record do not count the time for which a run was suspended. People wait through that, too, so their
   waits are measured by the time of day.

A record of an earlier release, or one whose policy hides personal data, is first read by the codec and redacted. The
chain of hashes is checked by the reader of the lines; whether the events follow from each other is not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagrun.errors import JournalDamaged, short_repr, shorten

if TYPE_CHECKING:
    from dagrun.events import Event
    from dagrun.kernel.model.journal import Line

Json = Mapping[str, Any]

# The states in which steps end, as in `dagrun.kernel.model.outcome`, which would load pydantic.
SETTLED: Final = frozenset(
    ("succeeded", "failed", "timed_out", "skipped", "cancelled", "superseded", "abandoned", "unknown")
)
_STOPPED: Final = frozenset(("cancelled", "superseded"))
_NO_TROUBLE: Final = frozenset(("goal_given", "goal_changed", "next"))  # kinds of triggers
_BAD_ENDS: Final = frozenset(("failed", "timed_out", "unknown", "abandoned"))
_ASKED_FOR: Final = frozenset(("input", "effect"))  # kinds of questions whose every answer changes the run
_UNREADABLE: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError)


@dataclass(slots=True)
class Calls:
    """The calls of one tool, or of one provider, in one run. Times are in seconds.

    Attributes:
        ended: Calls that have ended, without those that were told to stop.
        judged: Those that the record marks as succeeded or failed: all calls of tools.
        succeeded: Those that succeeded.
        failures: How many of them did not succeed, by kind; see `dagrun.kernel.model.outcome.ErrorKind`. The kind of a
            failure after which the same call may succeed has a ``~`` behind it.
        seconds: How long each of them took.
        tokens: Tokens that they reported.
        known_cost: The cost that they reported.
        is_cost_known: Whether *known_cost* is all of their cost.
        hedged: Calls beside which a second one was made.
        hedges_won: Second calls whose result was used.
    """

    ended: int = 0
    judged: int = 0
    succeeded: int = 0
    failures: dict[str, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    known_cost: float = 0.0
    is_cost_known: bool = True
    hedged: int = 0
    hedges_won: int = 0

    __repr__ = short_repr

    def use(self, tokens: int, cost: float | None) -> None:
        """Add the usage of one call; *cost* is `None` if unknown, which matters if there are tokens."""
        self.tokens += tokens
        self.known_cost += cost or 0.0
        self.is_cost_known = self.is_cost_known and (cost is not None or not tokens)

    def judge(self, fault: str, change: int) -> None:
        """Add a call that ended with a fault, or with none; or take it back, with a *change* of -1."""
        if fault:
            self.failures[fault] = self.failures.get(fault, 0) + change
        else:
            self.succeeded += change


@dataclass(slots=True)
class RunSummary:
    """One run in numbers. Times are in seconds, without suspensions, unless stated otherwise.

    Attributes:
        run_id: The id of the run.
        goal: Its goal; empty if it began with a plan.
        began: When it began, in seconds since 1970.
        last: When its last record was written, in seconds since 1970.
        expires: When its record may be deleted, in seconds since 1970; `None` for never.
        labels: The labels that it was opened with.
        records: The number of its records.
        status: How it ended or was suspended; empty if it goes on, or was cut off.
        reason: The reason of *status*, in a sentence.
        is_suspended: Whether it was suspended and has not been resumed.
        steps: Steps of its plan, without the elements of a for_each.
        counts: How many of them have ended, by state.
        waits_for: The steps that people are asked about, or the questions.
        shape: A hash of its plan without literals and ids, for metrics; see `dagrun.evaluate.plan_shape`.
        tools_planned: The tools of the steps of its plan, in order, for metrics.
        critical_path: The longest chain of dependent steps by the time that each one took, for metrics; `None` if it
            has not ended.
        planners: The planners that were called, in the order of their first call.
        tools: The calls of each tool.
        providers: The calls of each provider: a model, a pool of tools, or a tool without a pool.
        use: The tokens and the cost of the whole run.
        attempts: Calls of tools that have started.
        had_trouble: Whether a call failed, the planner was asked because of a failure or a surprise, or an effect was
            in doubt.
        makespan: From the start to the end.
        planning: The time in which a planner was at work; calls at the same time count once.
        replans: Requests to the planner to change the plan.
        refused: Patches that were refused.
        reviews: Outputs that at least two critics have judged.
        disagreements: Those on which they did not agree.
        questions: Questions to people.
        answered: Those that a person has answered.
        changed: Those whose answer changed what the run would have done by itself: everything but a plain yes.
        unasked: Changes that people or the host made without being asked: splices, other goals, a cancelled run.
        waits: From each question that a person has answered to its answer, by the time of day.
    """

    run_id: str
    goal: str = ""
    began: float = 0.0
    last: float = 0.0
    expires: float | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    records: int = 0
    status: str = ""
    reason: str = ""
    is_suspended: bool = False
    steps: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    waits_for: tuple[str, ...] = ()
    shape: str = ""
    tools_planned: tuple[str, ...] = ()
    critical_path: float | None = None
    planners: list[str] = field(default_factory=list)
    tools: dict[str, Calls] = field(default_factory=dict)
    providers: dict[str, Calls] = field(default_factory=dict)
    use: Calls = field(default_factory=Calls)
    attempts: int = 0
    had_trouble: bool = False
    makespan: float = 0.0
    planning: float = 0.0
    replans: int = 0
    refused: int = 0
    reviews: int = 0
    disagreements: int = 0
    questions: int = 0
    answered: int = 0
    changed: int = 0
    unasked: int = 0
    waits: list[float] = field(default_factory=list)

    __repr__ = short_repr

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended."""
        return bool(self.status) and not self.is_suspended

    @property
    def has_succeeded(self) -> bool:
        """Whether the run has succeeded."""
        return self.status == "succeeded"

    @property
    def settled(self) -> int:
        """The number of steps that have ended."""
        return sum(self.counts.values())

    @property
    def calls(self) -> list[Calls]:
        """The calls of all tools, by tool."""
        return list(self.tools.values())


@dataclass(slots=True)
class RecordCount:
    """A record that is being counted, or was.

    Attributes:
        run: The summary.
        steps: The steps of the plan, as they were written.
        output: The output that the plan names.
        spans: The first start and the last end of the calls of each step, in seconds since the start of the run.
        is_plain: Whether the critical path follows from *spans*: no step was replaced, and none has elements.
    """

    run: RunSummary
    steps: dict[str, Json] = field(default_factory=dict)
    output: Any = None
    spans: dict[str, list[float]] = field(default_factory=dict)
    is_plain: bool = True
    _ends: dict[str, str] = field(default_factory=dict)  # the state of each step that has ended
    _of_elements: set[str] = field(default_factory=set)  # steps that took the place of elements
    _offset: float = 0.0  # of the clock of the run to the time of day
    _pools: dict[str, str] = field(default_factory=dict)  # by tool
    _billed: set[str] = field(default_factory=set)  # tools that may report their usage
    _running: dict[str, tuple[float, str]] = field(default_factory=dict)  # by step: the start of the call, its tool
    _judged: dict[str, tuple[str, str]] = field(default_factory=dict)  # by step: its last call's tool and fault
    _asked: dict[str, tuple[float, str, str]] = field(default_factory=dict)  # open questions: time of day, kind, words
    _models: dict[int, tuple[float, str]] = field(default_factory=dict)  # calls of models without an end
    _planner_calls: set[int] = field(default_factory=set)  # those without an end
    _heard: list[str] = field(default_factory=list)  # models that were called while a planner was at work
    _planned: list[tuple[float, float]] = field(default_factory=list)  # when planners were at work
    _uses_models: bool = False

    __repr__ = short_repr

    def take(self, event: Json) -> None:
        """Count one event."""
        _COUNT[event["event"]](self, event)
        self.run.records += 1
        self.run.last = self._offset + event["at"]

    def finish(self) -> None:
        """Sum up, after the last event."""
        run = self.run
        run.steps, run.counts = len(self.steps), dict(sorted(Counter(self._ends.values()).items()))
        run.waits_for = tuple(dict.fromkeys(words for _, _, words in self._asked.values()))
        run.planning = _covered(self._planned)
        run.planners = run.planners or list(dict.fromkeys(self._heard)) or (["rules"] if self._planned else [])
        for _, who in self._models.values():
            run.providers.setdefault(who, Calls()).is_cost_known = False
        if self._models or (self._uses_models and self._planner_calls):
            run.use.is_cost_known = False
        for _, tool in self._running.values():  # the process was killed, or the run goes on
            if tool in self._billed:
                run.use.is_cost_known = run.tools[tool].is_cost_known = False

    # The run ----------------------------------------------------------------------------------------------

    def _opened(self, event: Json) -> None:
        self._offset = event["wall_time"] - event["at"]
        for name, contract in (event.get("opening") or {"tools": {}})["tools"].items():
            self._pools[name] = contract["pool"] or name
            if contract["max_tokens"] is not None or contract["max_cost"] is not None:
                self._billed.add(name)

    def _on_run_started(self, event: Json) -> None:
        self._opened(event)
        run, opening = self.run, event["opening"]
        run.goal, run.began, run.labels = shorten(event["goal"]), event["wall_time"], opening["labels"]
        run.expires = opening["expires_at"]
        self.steps = {step["id"]: step for step in opening["plan"]["steps"]}
        self.output = opening["plan"].get("output")

    def _on_run_resumed(self, event: Json) -> None:
        self._opened(event)
        self._goes_on()

    def _goes_on(self) -> None:
        self.run.status, self.run.reason, self.run.is_suspended = "", "", False

    def _on_run_reopened(self, event: Json) -> None:
        self._goes_on()
        for step in event["steps"]:
            self._ends.pop(step, None)

    def _on_run_suspended(self, event: Json) -> None:
        self.run.status, self.run.reason, self.run.is_suspended = event["status"], shorten(event["reason"]), True

    def _on_run_stopping(self, event: Json) -> None:
        self.run.unasked += event["status"] == "cancelled"

    def _on_run_ended(self, event: Json) -> None:
        self._on_run_suspended(event)
        self.run.makespan, self.run.is_suspended = event["at"], False

    def _on_draft_started(self, event: Json) -> None:
        self.run.goal = shorten(event["goal"])

    def _on_goal_changed(self, event: Json) -> None:
        self._on_draft_started(event)
        self.run.unasked += 1

    # Steps and calls --------------------------------------------------------------------------------------

    def _moved(self, event: Json) -> None:
        step, state = event["step"], event["state"]
        if state in SETTLED and step in self.steps:
            self._ends[step] = state
        elif state is not None:
            self._ends.pop(step, None)

    def _on_attempt_started(self, event: Json) -> None:
        step, at, tool = event["step"], event["at"], event["tool"]
        self._running[step] = (at, tool)
        self.spans.setdefault(step, [at, at])
        self.run.attempts += 1
        self.run.tools.setdefault(tool, Calls())

    def _of_call(self, tool: str) -> tuple[Calls, Calls]:
        """Return the counts of a tool, and of its provider."""
        run = self.run
        return run.tools.setdefault(tool, Calls()), run.providers.setdefault(self._pools.get(tool, tool), Calls())

    def _on_attempt_ended(self, event: Json) -> None:
        self._moved(event)
        step, outcome, at = event["step"], event["outcome"], event["at"]
        began, tool = self._running.pop(step)
        self.spans[step][1] = at
        state, cost = outcome["state"], outcome["cost"]
        failure = outcome["failure"]
        is_lost = failure is not None and failure["kind"] == "interrupted" and tool in self._billed
        for calls in (*self._of_call(tool), self.run.use):
            calls.use(outcome["tokens"], cost)
            calls.is_cost_known = calls.is_cost_known and not is_lost
        if state in _STOPPED:
            return
        fault = self._fault_of(outcome)
        self._judged[step] = (tool, fault)
        for calls in self._of_call(tool):
            calls.ended, calls.judged = calls.ended + 1, calls.judged + 1
            calls.judge(fault, 1)
            calls.seconds.append(at - began)

    def _fault_of(self, outcome: Json) -> str:
        """Return how a call failed, which is trouble; empty if it did not."""
        state, failure = outcome["state"], outcome["failure"]
        if state == "succeeded":
            return ""
        self.run.had_trouble = True
        if failure is None:
            return str(state)
        return f"{failure['kind']}~" if failure["is_transient"] else str(failure["kind"])

    def _on_reviewed(self, event: Json) -> None:
        self._moved(event)
        verdicts = event["verdicts"]
        for verdict in verdicts:
            self.run.use.use(verdict["tokens"], verdict["cost"])
        if len(verdicts) > 1:
            self.run.reviews += 1
            self.run.disagreements += len({verdict["result"] for verdict in verdicts}) > 1
        if event["outcome"]["state"] in _STOPPED:  # in the middle of the review, which so says nothing about the call
            return
        fault = self._fault_of(event["outcome"])
        tool, before = self._judged[event["step"]]
        if before != fault:
            self._judged[event["step"]] = (tool, fault)
            for calls in self._of_call(tool):
                calls.judge(before, -1)
                calls.judge(fault, 1)

    def _on_step_settled(self, event: Json) -> None:
        self._moved(event)
        if event["state"] in _BAD_ENDS:
            self.run.had_trouble = True

    def _on_hedged(self, event: Json) -> None:
        for calls in self._of_call(self._running[event["step"]][1]):
            calls.hedged += 1

    def _on_hedge_ended(self, event: Json) -> None:
        for calls in self._of_call(self._running[event["step"]][1]):
            calls.hedges_won += event["has_won"]
            calls.use(event["tokens"], event["cost"])
        self.run.use.use(event["tokens"], event["cost"])

    def _on_step_expanded(self, event: Json) -> None:
        self.is_plain = False

    # The plan ---------------------------------------------------------------------------------------------

    def _on_spliced(self, event: Json) -> None:
        self.run.unasked += event["origin"] == "host"
        if event["changes_output"]:
            self.output = event["output"]
        done, edits = event["consequence"], event["edits"]
        self.is_plain = self.is_plain and all(edit["op"] == "add" for edit in edits)
        written = {edit["step"]["id"]: edit["step"] for edit in edits if "step" in edit}
        for old in (*done["dropped"], *done["replaced"]):
            self.steps.pop(old, None)  # an element of a for_each is none of them
            self._ends.pop(old, None)
        self._of_elements |= {new for old, new in done["replaced"].items() if "[" in old or old in self._of_elements}
        self.steps |= {new: written[new] for new in done["added"] if new not in self._of_elements}

    def _on_patch_refused(self, event: Json) -> None:
        self.run.refused += 1

    def _on_replan_requested(self, event: Json) -> None:
        if event["trigger"]["kind"] not in _NO_TROUBLE:
            self.run.had_trouble = True

    def _on_replan_started(self, event: Json) -> None:
        self.run.replans += 1

    def _on_planner_asked(self, event: Json) -> None:
        self._planner_calls.add(event["number"])

    def _on_planner_called(self, event: Json) -> None:
        self._planner_calls.discard(event["number"])
        self._planned.append((max(0.0, event["at"] - event["seconds"]), event["at"]))
        self.run.use.use(event["tokens"], event["cost"])
        name = event.get("planner", "")
        if name and name not in self.run.planners:
            self.run.planners.append(name)

    def _on_model_reserved(self, event: Json) -> None:
        self._uses_models = True
        self._models[event["number"]] = (event["at"], event["who"])
        if self._planner_calls:
            self._heard.append(event["who"])

    def _on_model_charged(self, event: Json) -> None:
        began, who = self._models.pop(event["number"])
        tokens, cost = event["tokens"], event["cost"]
        calls = self.run.providers.setdefault(who, Calls())
        calls.ended += 1
        calls.seconds.append(event["at"] - began)
        calls.use(tokens or 0, cost)
        if tokens is None:
            calls.is_cost_known = self.run.use.is_cost_known = False

    # People -----------------------------------------------------------------------------------------------

    def _on_question_asked(self, event: Json) -> None:
        question = event["question"]
        self.run.questions += 1
        words = shorten(question["step"] or question["text"])
        self._asked[question["id"]] = (self._offset + event["at"], question["kind"], words)

    def _on_question_answered(self, event: Json) -> None:
        self._moved(event)
        asked_at, kind, _ = self._asked.pop(event["question"])
        answer, run = event["answer"], self.run
        if answer is None or event["reason"]:  # the question became void, or the default answer counts
            return
        run.answered += 1
        run.waits.append(max(0.0, self._offset + event["at"] - asked_at))
        run.changed += answer["choice"] != "approve" or answer["value"] is not None or kind in _ASKED_FOR


def handlers_of(kind: type) -> dict[str, Callable[[Any, Any], Any]]:
    """Return the methods of a class that handle events, by event: ``_on_run_ended`` for ``RunEnded``."""
    methods = {name.removeprefix("_on_"): found for name, found in vars(kind).items() if name.startswith("_on_")}
    return {"".join(word.title() for word in name.split("_")): method for name, method in methods.items()}


_NOT_COUNTED: Final = ("CeilingNear", "ConfidenceReported", "DraftEnded", "HandedOn", "ReplanEnded", "StepResumed")
_COUNT: Final = {**dict.fromkeys(_NOT_COUNTED, lambda count, event: None), **handlers_of(RecordCount)}


def _covered(spans: list[tuple[float, float]]) -> float:
    """Return the total length of the union of the spans."""
    total, last = 0.0, 0.0
    for began, ended in sorted(spans):
        total += max(0.0, ended - max(began, last))
        last = max(last, ended)
    return total


def summary_of(run_id: str, lines: Sequence[Line]) -> RunSummary:
    """Return the summary of a run from its record, redacted by its policy.

    Args:
        run_id: The run.
        lines: The record, checked; at least one line.

    Raises:
        JournalDamaged: The record says what no run can have recorded.
    """
    return count_record(run_id, lines).run


def count_record(run_id: str, lines: Sequence[Line]) -> RecordCount:
    """Return the summary of a record, with its steps and the times of their calls; see `summary_of`."""
    try:
        return _counted(run_id, map(_plain_event, lines))
    except _UNREADABLE:
        from dagrun.codec import events_of
        from dagrun.features.redacted_records.records import shown_events

        return count_events(run_id, shown_events(events_of(run_id, lines)))


def _plain_event(line: Line) -> Json:
    """Return the event of a line.

    Raises:
        ValueError: Its policy hides some of it.
    """
    event: Json = json.loads(line.text)
    if (event.get("opening") or {}).get("policy", {}).get("redact"):
        raise ValueError("personal data is hidden")
    return event


def count_events(run_id: str, events: Iterable[Event]) -> RecordCount:
    """Count the events of a record; see `summary_of`."""
    from dagrun.codec import encode_event

    seq = 0

    def noted() -> Iterable[Json]:
        nonlocal seq
        for event in events:
            seq = event.seq
            yield json.loads(encode_event(event))

    try:
        return _counted(run_id, noted())
    except _UNREADABLE as error:
        raise JournalDamaged(run_id, seq, f"it cannot be counted: {type(error).__name__}: {error}") from error


def _counted(run_id: str, events: Iterable[Json]) -> RecordCount:
    count = RecordCount(RunSummary(run_id))
    for event in events:
        count.take(event)
    count.finish()
    return count
