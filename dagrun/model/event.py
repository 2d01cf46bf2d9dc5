"""Events: every change of a run, in order. They are the record, the progress bar and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.errors import Problem
from dagrun.model.critic import Verdict
from dagrun.model.outcome import Decision, Failure, Outcome, State, Status
from dagrun.model.patch import Add, Consequence, Drop, Replace, Rewire
from dagrun.model.planner import Trigger
from dagrun.model.question import Answer, Question
from dagrun.model.run_opening import Opening
from dagrun.model.value import Stored

# Marks fields that records of the first release do not have: they are not written while they have their default.
LATER: Final = "is_later"


def later(default: Any) -> Any:
    """Declare such a field."""
    return field(default=default, metadata={LATER: True})


def later_mapping() -> Any:
    """Declare such a field that holds a mapping."""
    return field(default_factory=dict, metadata={LATER: True})


# Slotted and not frozen: the hot path makes two per step, and freezing makes them four times as dear.


@dataclass(slots=True)
class Event:
    """Something that changed.

    Attributes:
        seq: 1 for the first event of the run, then one more each; what changes no state (`Progress`, `Gap`) has the
            number of the event before it.
        at: Seconds since the start of the run.
    """

    seq: int
    at: float


@dataclass(slots=True)
class RunStarted(Event):
    """The run begins; the first event.

    Attributes:
        opening: What a journal keeps of it: all that is needed to go on with the run. Not shown.
    """

    run_id: str
    steps: int
    goal: str
    wall_time: float
    opening: Opening | None = field(default=None, repr=False)


@dataclass(slots=True)
class RunSuspended(Event):
    """Everything that could be done has been done for now, or somebody wants to go on later; the run can be resumed.

    Steps that were running when it came are as after a crash: what becomes of them is decided when the run goes on.

    Attributes:
        status: ``waiting`` (for people), or ``cancelled`` (interrupted).
        reason: In a sentence.
    """

    status: Status
    reason: str


@dataclass(slots=True)
class RunResumed(Event):
    """The run goes on, in another process perhaps. The time in between does not count.

    Attributes:
        wall_time: In seconds since 1970.
        differences: What is different from what was recorded, a line each, as far as it was allowed to be.
        opening: The same as in `RunStarted`, if anything is different. Not shown.
    """

    wall_time: float
    differences: tuple[str, ...] = ()
    opening: Opening | None = field(default=None, repr=False)


@dataclass(slots=True)
class RunReopened(Event):
    """Steps that had settled are open again: their effect was in doubt, or their output is not in the record.

    Attributes:
        steps: Their ids, with what was skipped because of them.
        reason: In a sentence.
    """

    steps: tuple[str, ...]
    reason: str


@dataclass(slots=True)
class RunStopping(Event):
    """The run is being ended early: nothing starts any more, and what runs is told to stop."""

    status: Status
    reason: str


@dataclass(slots=True)
class AttemptStarted(Event):
    """A tool is called; the step is running."""

    step: str
    attempt: int
    tool: str


@dataclass(slots=True)
class AttemptEnded(Event):
    """A call has ended, and recovery has decided what follows.

    Attributes:
        state: The state of the step from now on.
        outcome: How the attempt ended.
        decision: What is done about it.
    """

    step: str
    attempt: int
    state: State
    outcome: Outcome
    decision: Decision


@dataclass(slots=True)
class StepSettled(Event):
    """A step has ended otherwise than by an attempt: skipped, cancelled, or by its elements.

    Attributes:
        reason: Why, in a sentence.
        cause: The id of the step that it comes from, or empty.
        is_tolerated: Whether the author of the plan asked for it (a false ``when``, ``on_failure: skip``).
        value: What the step gives, if it succeeded.
        is_default: Whether the value is the default that stands in for the output.
        errors: For a for_each: the elements that failed, and why.
        failure: Why, as code can act on it, if the step failed before anything was called.
        asks_planner: Whether the planner is asked about it, and what depends on the step waits for the answer.
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


@dataclass(slots=True)
class StepExpanded(Event):
    """A step with for_each has got its list: a child for each element."""

    step: str
    items: tuple[Stored, ...]


@dataclass(slots=True)
class Reviewed(Event):
    """The critics have looked at what an attempt gave, and recovery has decided what follows.

    Attributes:
        state: The state of the step from now on.
        verdicts: What each critic said.
        outcome: How the attempt counts from now on.
        decision: What is done about it.
    """

    step: str
    attempt: int
    state: State
    verdicts: tuple[Verdict, ...]
    outcome: Outcome
    decision: Decision


@dataclass(slots=True)
class Spliced(Event):
    """A patch was applied: all of it, at this instant.

    Attributes:
        revision: Of the plan, from now on.
        origin: ``host`` or ``planner``.
        reason: Why, in a sentence.
        edits: Those that were carried out.
        consequence: What they did.
        changes_output: Whether the run answers something else from now on.
        output: That, as it is written.
        checked: The same as the live graph needs it; `None` if it comes from a record. Not shown.
        guards: The calls that a person must agree to because of it, each with a sentence that says why: a planner has
            changed what people look at before them.
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


@dataclass(slots=True)
class PatchRefused(Event):
    """A patch was refused; the plan is as it was."""

    origin: str
    problems: tuple[Problem, ...]


@dataclass(slots=True)
class GoalChanged(Event):
    """The host wants something else; what has not started waits for a plan for it."""

    goal: str


@dataclass(slots=True)
class DraftStarted(Event):
    """There is a goal and no plan: the planner writes one, and its steps come one by one, each as a splice.

    Attributes:
        goal: What the plan is for.
        is_held: Whether nothing may start before the plan is ended, whatever its effect.
    """

    goal: str
    is_held: bool


@dataclass(slots=True)
class DraftEnded(Event):
    """The planner has ended its first plan.

    Attributes:
        result: ``applied`` (it is valid, and all of it may run), ``refused`` (what has not started waits for a better
            one), ``denied``, ``failed`` or ``stopped``.
        reason: In a sentence.
        calls: How often the planner was called.
        problems: What is wrong with the plan.
        more: Whether the planner wants to be asked again once everything in the plan has ended.
    """

    result: str
    reason: str
    calls: int = 0
    problems: tuple[Problem, ...] = ()
    more: bool = False


@dataclass(slots=True)
class ReplanRequested(Event):
    """There is a reason to ask the planner; what depends on its step waits for the answer."""

    trigger: Trigger


@dataclass(slots=True)
class ReplanStarted(Event):
    """The planner is being asked.

    Attributes:
        number: 1 for the first request of the run.
        steps: The steps that the reasons come from; an empty id stands for the goal.
    """

    number: int
    steps: tuple[str, ...]


@dataclass(slots=True)
class ReplanEnded(Event):
    """A request to the planner is over, and what waited for it goes on or is skipped.

    Attributes:
        number: Of the request; 0 if none was made.
        result: ``applied``, ``unchanged``, ``refused``, ``denied``, ``failed``, ``stopped``, or ``repaired`` if another
            splice came first.
        reason: In a sentence.
        steps: The steps that the reasons came from.
        calls: How often the planner was called.
        fingerprints: Of the failures; see `Trigger`.
        signature: Of the patch that came of it, whatever its new steps are called; empty if there was none.
        more: Whether the planner wants to be asked again once everything in the plan has ended.
    """

    number: int
    result: str
    reason: str
    steps: tuple[str, ...]
    calls: int = 0
    fingerprints: tuple[str, ...] = ()
    signature: str = ""
    more: bool = False


@dataclass(slots=True)
class QuestionAsked(Event):
    """A person must answer; if it is about a step, that one is held."""

    question: Question


@dataclass(slots=True)
class QuestionAnswered(Event):
    """A person has answered, or nobody has in time, or nobody needs to any more.

    Attributes:
        question: The id of the question.
        step: The step that it was about, or empty.
        answer: What counts now; `None` if the question has become void.
        state: The state of the step from now on; `None` if it was about no step, or changes none.
        reason: Why, if it was not a person who answered.
    """

    question: str
    step: str
    answer: Answer | None
    state: State | None
    reason: str = ""


@dataclass(slots=True)
class StepResumed(Event):
    """A step that has asked a person in the middle of its work goes on."""

    step: str


@dataclass(slots=True)
class CeilingNear(Event):
    """The part of a ceiling that the policy warns at is used up: optional steps are dropped, replanning stops."""

    ceiling: str
    used: float
    limit: float


@dataclass(slots=True)
class Progress(Event):
    """A tool says how far it is. Changes no state."""

    step: str
    fraction: float | None
    message: str


@dataclass(slots=True)
class RunEnded(Event):
    """The run has ended; the last event."""

    status: Status
    reason: str


@dataclass(slots=True)
class Gap(Event):
    """An observer was too slow: *missed* events before this one are not shown to it."""

    missed: int = field(default=0)


@dataclass(slots=True)
class Hedged(Event):
    """A call takes longer than most calls of its tool: a second one is made beside it.

    Attributes:
        step: Its id.
        attempt: The number of the attempt whose call is slow.
        after: Seconds that this call has taken so far.
    """

    step: str
    attempt: int
    after: float


@dataclass(slots=True)
class HedgeEnded(Event):
    """The second call of an attempt has ended, or is stopped because the first one has.

    Attributes:
        step: Its id.
        attempt: The number of the attempt.
        has_won: Whether its result is that of the attempt, which ends next; the first call is stopped.
        tokens: What the second call has reported.
        cost: The same in money; `None` if nothing was.
        fault: Why it failed; empty if it did not.
    """

    step: str
    attempt: int
    has_won: bool
    tokens: int
    cost: float | None
    fault: str = ""


@dataclass(slots=True)
class PlannerAsked(Event):
    """The planner is called.

    Attributes:
        number: 1 for the first call of the run.
    """

    number: int


@dataclass(slots=True)
class ModelReserved(Event):
    """Room is taken for the call of a model that no tool makes: that of a planner, or of a critic.

    Attributes:
        number: 1 for the first of the run.
        who: The model.
        tokens: The most that it can use; `None` if there is no bound.
        cost: The most that it can cost; `None` if nobody knows.
    """

    number: int
    who: str
    tokens: int | None
    cost: float | None


@dataclass(slots=True)
class ModelCharged(Event):
    """Such a call has ended.

    Attributes:
        number: Of the `ModelReserved`.
        tokens: What it has used; `None` if nobody knows.
        cost: The same in money.
    """

    number: int
    tokens: int | None
    cost: float | None


@dataclass(slots=True)
class PlannerCalled(Event):
    """One call of the planner has ended.

    Attributes:
        number: 1 for the first of the run.
        seconds: How long it took.
        tokens: What its models have used, as far as they said so.
        cost: The same in money; `None` if nobody knows.
        fault: Why it gave no answer, or empty.
    """

    number: int
    seconds: float
    tokens: int
    cost: float | None
    fault: str = ""
