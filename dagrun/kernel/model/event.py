"""Events: every change of a run, in order.

The events of a run are its record; the live graph, the progress display and the report are made from them. The first
event holds the `Opening`: everything that is needed to resume the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from dagrun.errors import Problem, short_repr
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.outcome import (
    LATER,
    UNRECORDED,
    Decision,
    Failure,
    Outcome,
    State,
    Status,
    later,
    later_mapping,
)
from dagrun.kernel.model.patch import Add, Consequence, Drop, Replace, Rewire
from dagrun.kernel.model.plan import Plan
from dagrun.kernel.model.planner import HandOn, Trigger
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Answer, Question
from dagrun.kernel.model.value import Stored

# Slotted and not frozen: the hot path makes two per step, and freezing makes them four times as dear.


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """The configuration that a run was opened with: everything that must be equal, or known, when it is resumed.

    Attributes:
        plan: The plan as it was written; without steps, if the planner had not written it yet.
        policy: The limits.
        inputs: The stored value of ``${input}``.
        tools: The contracts of the tools that the plan may call, by name: see `contract_of`.
        executors: The names of the executors of the host.
        critics: The names of the critics.
        in_waves: Whether every step waits for the whole generation before its own.
        root: The run whose id is part of the idempotency keys: this run, or the first run that it is a retry of.
        parent: The run that this run retries; empty if there is none.
        roots: For steps whose idempotency key is made of another step's id: that id, and the generation.
        seed: The seed for the jitter of delays; `None` for a random one.
        labels: Notes of the host about the run, such as its command line. Plain JSON, which dagrun does not read.
        expires_at: When the record may be deleted, in seconds since 1970; `None` for never.
        version: The version of dagrun.
        guards: In a retry: the calls that a person must agree to, each with the reason, because of what a planner has
            done to the plan in the earlier run; as in `Spliced`.
        guarded_tools: In a retry: the same by tool, for the calls of it that a planner adds.
        agreed: In a retry: the steps that came with a plan or a patch to which a person has agreed.
        written: In a retry: the steps that a planner wrote after it was shown what others can write, each with the
            sources of that.
        elements: In a retry: the elements that are taken over of each for_each that is not taken over as a whole, by
            their ids, each with its output.
    """

    __repr__ = short_repr

    plan: Plan
    policy: Policy
    inputs: Stored
    tools: Mapping[str, Mapping[str, Any]]
    executors: tuple[str, ...] = ()
    critics: tuple[str, ...] = ()
    in_waves: bool = False
    root: str = ""
    parent: str = ""
    roots: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    seed: int | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    expires_at: float | None = None
    version: str = ""
    guards: Mapping[str, str] = later_mapping()
    guarded_tools: Mapping[str, str] = later_mapping()
    agreed: tuple[str, ...] = later(())
    written: Mapping[str, tuple[str, ...]] = later_mapping()
    elements: Mapping[str, Outcome] = later_mapping()


# With slots and not frozen: the hot path makes two events per step, and a frozen one takes four times as long to make.


@dataclass(slots=True)
class Event:
    """A change of a run.

    Attributes:
        seq: The number of the event, from 1. An event that changes no state (`Progress`, `Gap`) has the number of the
            event before it.
        at: Seconds since the start of the run.
    """

    __repr__ = short_repr

    seq: int
    at: float
    # The redactor of the run, set when the event is shown to observers; not set in an event that comes from elsewhere.
    _redactor: Any = field(init=False, repr=False, compare=False, metadata={UNRECORDED: True})

    def to_dict(self, redact: bool = True) -> dict[str, Any]:
        """Return the event as plain JSON, for other programs: its name as ``event``, then its fields by their names.

        `dagrun schema events` prints the schema. Events and fields are added in later releases, and never changed. What
        a run was opened with is left out, as the record has it.

        Args:
            redact: Whether registered secrets, texts that look like tokens, fields whose name says that they are
                secret, and the kinds of personal data that the policy names are replaced, in outputs too. The other
                texts of events are redacted in any case.
        """
        from dagrun.kernel.model.redaction.event_json import DEFAULT_REDACTOR, event_as_json  # most runs never need it

        return event_as_json(self, getattr(self, "_redactor", DEFAULT_REDACTOR) if redact else None)


@dataclass(slots=True, repr=False)
class RunStarted(Event):
    """The run begins; the first event.

    Attributes:
        opening: Everything that is needed to resume the run, for the journal. Not shown.
    """

    run_id: str
    steps: int
    goal: str
    wall_time: float
    opening: Opening | None = field(default=None, repr=False)


@dataclass(slots=True, repr=False)
class RunSuspended(Event):
    """The run is suspended, because nothing can be done before a person answers or because the host interrupted it.

    The run can be resumed. Steps that are running at this event are treated as after a crash: the resumed run decides
    about them.

    Attributes:
        status: ``waiting`` (for people), or ``cancelled`` (interrupted).
        reason: The reason in a sentence.
    """

    status: Status
    reason: str


@dataclass(slots=True, repr=False)
class RunResumed(Event):
    """The run is resumed, perhaps in another process. The time since its suspension does not count.

    Attributes:
        wall_time: The time in seconds since 1970.
        differences: The allowed differences from the recorded opening, one line each.
        opening: The opening of the resumed run, if there are differences. Not shown.
        traceparent: Names the trace of the resumed run (W3C Trace Context); empty if it is not traced. Not shown.
    """

    wall_time: float
    differences: tuple[str, ...] = ()
    opening: Opening | None = field(default=None, repr=False)
    traceparent: str = field(default="", repr=False, metadata={LATER: True})


@dataclass(slots=True, repr=False)
class RunReopened(Event):
    """Settled steps are opened again, because their effect was unresolved or their output is not in the record.

    Attributes:
        steps: The ids of these steps, and of the steps that were skipped because of them.
        reason: The reason in a sentence.
    """

    steps: tuple[str, ...]
    reason: str


@dataclass(slots=True, repr=False)
class RunStopping(Event):
    """The run ends early: no more steps start, and running steps are cancelled."""

    status: Status
    reason: str


@dataclass(slots=True, repr=False)
class AttemptStarted(Event):
    """A tool is called; the step is running."""

    step: str
    attempt: int
    tool: str


@dataclass(slots=True, repr=False)
class AttemptEnded(Event):
    """A call has ended, and recovery has decided about it.

    Attributes:
        state: The state of the step from now on.
        outcome: How the attempt ended.
        decision: The reaction to it.
    """

    step: str
    attempt: int
    state: State
    outcome: Outcome
    decision: Decision


@dataclass(slots=True, repr=False)
class ConfidenceReported(Event):
    """A tool has reported the confidence of its output; the attempt ends next.

    Attributes:
        confidence: From 0 to 1.
    """

    step: str
    attempt: int
    confidence: float


@dataclass(slots=True, repr=False)
class StepSettled(Event):
    """A step has ended, but not by an attempt: it was skipped or cancelled, or its elements have ended.

    Attributes:
        reason: The reason in a sentence.
        cause: The id of the step that caused it, or empty.
        is_tolerated: Whether the plan asks for it (a false ``when``, ``on_failure: skip``).
        value: The output of the step, if it succeeded.
        is_default: Whether *value* is the step's default.
        errors: For a for_each: the index of each element that failed, and the reason.
        failure: The failure as data, if the step failed before its tool was called.
        asks_planner: Whether the planner is asked about it, so that the steps that depend on this one wait.
    """

    step: str
    state: State
    reason: str
    cause: str = ""
    is_tolerated: bool = False
    value: Stored = None
    is_default: bool = False
    errors: tuple[tuple[int, str], ...] = ()
    failure: Failure | None = None
    asks_planner: bool = False


@dataclass(slots=True, repr=False)
class StepExpanded(Event):
    """The list of a step with for_each is known, and the step gets a child for each element.

    Attributes:
        items: The elements.
        hidden: The indices of the elements that the policy keeps out of the record; null stands in their place.
        over: The step with for_each whose elements these are, each as soon as it is there; null stands in their place.
            Empty if the list was complete.
    """

    step: str
    items: tuple[Stored, ...]
    hidden: tuple[int, ...] = later(())
    over: str = later("")


@dataclass(slots=True, repr=False)
class Reviewed(Event):
    """The critics have judged the output of an attempt, and recovery has decided about it.

    Attributes:
        state: The state of the step from now on.
        verdicts: The verdict of each critic.
        outcome: The outcome of the attempt, after the verdicts.
        decision: The reaction to it.
    """

    step: str
    attempt: int
    state: State
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    decision: Decision


@dataclass(slots=True, repr=False)
class Spliced(Event):
    """A patch was applied, all of it at this instant.

    Attributes:
        revision: The revision of the plan from now on.
        origin: ``host`` or ``planner``.
        reason: The reason in a sentence.
        edits: The edits that were applied.
        consequence: The changes that they made.
        changes_output: Whether the patch changes the answer of the run.
        output: The new answer of the run, as it was written.
        checked: The checked patch, for the live graph; `None` if the event comes from a record. Not shown.
        guards: The calls that a person must agree to because of the patch, each with the reason: a planner has changed
            what people look at before them.
        request: The number of the request to the planner that the patch answers; 0 for any other patch.
        refused: Why other edits of the planner's answer were refused, while these stand by themselves; places are those
            of the whole answer.
    """

    revision: int
    origin: str
    reason: str
    edits: tuple[Add | Drop | Replace | Rewire, ...]
    consequence: Consequence
    changes_output: bool = False
    output: Any = None
    checked: Any = field(default=None, repr=False)
    guards: Mapping[str, str] = later_mapping()
    request: int = later(0)
    refused: tuple[Problem, ...] = later(())


@dataclass(slots=True, repr=False)
class PatchRefused(Event):
    """A patch was refused; the plan is unchanged."""

    origin: str
    problems: tuple[Problem, ...]


@dataclass(slots=True, repr=False)
class GoalChanged(Event):
    """The host has changed the goal; steps that have not started wait for a plan for the new goal."""

    goal: str


@dataclass(slots=True, repr=False)
class DraftStarted(Event):
    """The planner starts to write the first plan for a goal; each of its steps arrives as a splice.

    Attributes:
        goal: The purpose of the plan.
        is_held: Whether no step may start before the plan has ended, whatever its effect.
    """

    goal: str
    is_held: bool


@dataclass(slots=True, repr=False)
class DraftEnded(Event):
    """The planner has ended its first plan.

    Attributes:
        result: ``applied`` (the plan is valid, and all of it may run), ``refused`` (steps that have not started wait
            for a better plan), ``denied``, ``failed`` or ``stopped``.
        reason: The reason in a sentence.
        calls: How often the planner was called.
        problems: The problems of the plan.
        more: Whether the planner wants to be asked again when every step of the plan has ended.
    """

    result: str
    reason: str
    calls: int = 0
    problems: tuple[Problem, ...] = ()
    more: bool = False


@dataclass(slots=True, repr=False)
class ReplanRequested(Event):
    """There is a reason to ask the planner; the steps that depend on the trigger's step wait for the answer."""

    trigger: Trigger


@dataclass(slots=True, repr=False)
class ReplanStarted(Event):
    """A request to the planner starts.

    Attributes:
        number: The number of the request in the run, from 1.
        steps: The steps that the reasons come from; an empty id stands for the goal.
    """

    number: int
    steps: tuple[str, ...]


@dataclass(slots=True, repr=False)
class ReplanEnded(Event):
    """A request to the planner has ended; the steps that waited for it continue or are skipped.

    Attributes:
        number: The number of the request; 0 if none was made.
        result: ``applied``, ``unchanged``, ``refused``, ``denied``, ``failed``, ``stopped``, or ``repaired`` if another
            splice came first.
        reason: The reason in a sentence.
        steps: The steps that the reasons came from.
        calls: How often the planner was called.
        fingerprints: The fingerprints of the failures; see `Trigger`.
        signature: A hash of the patch, whatever the ids of its new steps; empty if there was no patch.
        more: Whether the planner wants to be asked again when every step of the plan has ended.
    """

    number: int
    result: str
    reason: str
    steps: tuple[str, ...]
    calls: int = 0
    fingerprints: tuple[str, ...] = ()
    signature: str = ""
    more: bool = False


@dataclass(slots=True, repr=False)
class QuestionAsked(Event):
    """A person must answer a question; the step of the question, if any, is held."""

    question: Question


@dataclass(slots=True, repr=False)
class QuestionAnswered(Event):
    """A question is closed: a person has answered, the default answer counts, or the question has become void.

    Attributes:
        question: The id of the question.
        step: The step that it was about, or empty.
        answer: The answer that counts; `None` if the question has become void.
        state: The state of the step from now on; `None` if there is no step, or its state does not change.
        reason: The reason in a sentence, if no person has answered.
        hides_value: Whether the policy keeps the value of the answer out of the record; null stands in its place.
    """

    question: str
    step: str
    answer: Answer | None
    state: State | None
    reason: str = ""
    hides_value: bool = later(False)


@dataclass(slots=True, repr=False)
class StepResumed(Event):
    """A step that had asked a person in the middle of a call continues."""

    step: str


@dataclass(slots=True, repr=False)
class CeilingNear(Event):
    """The policy's ``warn_at`` part of a ceiling is used up: optional steps are dropped, and replanning stops."""

    ceiling: str
    used: float
    limit: float


@dataclass(slots=True, repr=False)
class Progress(Event):
    """A tool reports its progress. Changes no state."""

    step: str
    fraction: float | None
    message: str


@dataclass(slots=True, repr=False)
class RunEnded(Event):
    """The run has ended; the last event."""

    status: Status
    reason: str


@dataclass(slots=True, repr=False)
class Gap(Event):
    """An observer was too slow: *missed* events before this one are not shown to it."""

    missed: int = field(default=0)


@dataclass(slots=True, repr=False)
class Hedged(Event):
    """A call takes longer than most calls of its tool, so a hedged call is made in parallel.

    Attributes:
        step: The id of the step.
        attempt: The number of the attempt whose call is slow.
        after: Seconds that this call has taken so far.
    """

    step: str
    attempt: int
    after: float


@dataclass(slots=True, repr=False)
class HedgeEnded(Event):
    """The hedged call of an attempt has ended, or is stopped because the first call has ended.

    Attributes:
        step: The id of the step.
        attempt: The number of the attempt.
        has_won: Whether its result is the result of the attempt. If so, the first call is stopped, and the attempt
            ends next.
        tokens: Tokens that the second call reported.
        cost: Cost that the second call reported; `None` if it reported none.
        fault: Why it failed; empty if it did not.
    """

    step: str
    attempt: int
    has_won: bool
    tokens: int
    cost: float | None
    fault: str = ""


@dataclass(slots=True, repr=False)
class PlannerAsked(Event):
    """The planner is called.

    Attributes:
        number: The number of the call in the run, from 1.
        planner: The planner of a fallback chain that is called; empty if there is no chain.
    """

    number: int
    planner: str = later("")


@dataclass(slots=True, repr=False)
class ModelReserved(Event):
    """Usage is reserved for a call of a model by a planner or a critic; calls by tools have no such event.

    Attributes:
        number: The number of the reservation in the run, from 1.
        who: The model.
        tokens: The most tokens that the call can use; `None` if there is no bound.
        cost: The most that the call can cost; `None` if it is not known.
    """

    number: int
    who: str
    tokens: int | None
    cost: float | None


@dataclass(slots=True, repr=False)
class ModelCharged(Event):
    """A call of a model by a planner or a critic has ended.

    Attributes:
        number: The number of its `ModelReserved`.
        tokens: Tokens that the call has used; `None` if it is not known.
        cost: The cost of the call; `None` if it is not known.
    """

    number: int
    tokens: int | None
    cost: float | None


@dataclass(slots=True, repr=False)
class PlannerCalled(Event):
    """A call of the planner has ended.

    Attributes:
        number: The number of the call in the run, from 1.
        seconds: The duration of the call.
        tokens: Tokens that the planner's models have used, as far as they reported them.
        cost: The cost of these tokens; `None` if it is not known.
        fault: Why the planner gave no answer; empty if it answered.
        answers: What its models answered, in order, whether or not it could be used; redacted, at most 64 KiB in all.
        failure: The failure as data, if the planner raised an exception or took too long.
        planner: The planner of a fallback chain that was called; empty if there is no chain.
        notes: What the planner wrote down for its next call; empty for nothing. Redacted.
        request: The number of the request that it was called for; 0 for the first plan, or more of it.
        prompt: The version of the words of its prompt, such as ``8``, or ``8+1a2b3c4d`` where the host has words of its
            own; then those with which a model has picked the tools (``tools 9f3c2a1b``) or the route. Empty if the
            planner names none.
        confidence: How sure the planner is of its answer, from 0 to 1; `None` if it does not say, or has not answered.
    """

    number: int
    seconds: float
    tokens: int
    cost: float | None
    fault: str = ""
    answers: tuple[str, ...] = later(())
    failure: Failure | None = later(None)
    planner: str = later("")
    notes: str = later("")
    request: int = later(0)
    prompt: str = later("")
    confidence: float | None = later(None)


@dataclass(slots=True, repr=False)
class HandedOn(Event):
    """A planner of a fallback chain passes a request on to the next planner.

    Attributes:
        request: The number of the request (see `ReplanStarted`); 0 for the first plan, or for the next steps of it.
        rung: The place in the chain of the planner that is asked from now on, from 0.
        planner: The planner that hands on.
        next_planner: The planner that is asked from now on.
        why: The reason.
        reason: The reason in a sentence.
    """

    request: int
    rung: int
    planner: str
    next_planner: str
    why: HandOn
    reason: str


_FOUND: Final = [kind for kind in tuple(globals().values()) if isinstance(kind, type) and issubclass(kind, Event)]
event_types: Final[Mapping[str, type[Event]]] = MappingProxyType({kind.__name__: kind for kind in _FOUND[1:]})
"""Every class of events, by its name."""
