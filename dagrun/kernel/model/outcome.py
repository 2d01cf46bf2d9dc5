"""States of steps, outcomes of attempts, decisions of recovery, and the status of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Literal

from dagrun.errors import short_repr
from dagrun.kernel.model.value import Stored, decode_with_objects

# Marks fields that records of the first release do not have: they are not written while they have their default.
LATER: Final = "is_later"
# Marks fields that are never written: they exist only in the process that made them.
UNRECORDED: Final = "is_unrecorded"


def later(default: Any) -> Any:
    """Declare a field that records of the first release do not have."""
    return field(default=default, metadata={LATER: True})


def later_mapping() -> Any:
    """Declare a mapping field that was added to the record format later."""
    return field(default_factory=dict, metadata={LATER: True})


def unrecorded() -> Any:
    """Declare a field that is never recorded, shown or compared; it is `None` when its object is read."""
    return field(default=None, repr=False, compare=False, metadata={UNRECORDED: True})


class State(StrEnum):
    """The state of a step."""

    WAITING = "waiting"  # for other steps
    READY = "ready"  # waits only for a free slot, or for the end of a back-off
    RUNNING = "running"
    HELD = "held"  # a person must answer
    BLOCKED = "blocked"  # a step that it needs has failed, or is being replanned
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"  # it may or may not have taken effect
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # dropped by a splice
    ABANDONED = "abandoned"  # did not stop when it was told to

    @property
    def is_settled(self) -> bool:
        """Whether the step has ended."""
        return self in SETTLED


SETTLED: Final = frozenset(
    (
        State.SUCCEEDED,
        State.FAILED,
        State.TIMED_OUT,
        State.UNKNOWN,
        State.SKIPPED,
        State.CANCELLED,
        State.SUPERSEDED,
        State.ABANDONED,
    )
)


class ErrorKind(StrEnum):
    """The kind of failure that an attempt ended with."""

    TOOL = "tool"  # the tool raised a ToolError
    EXCEPTION = "exception"  # any other exception
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    RATE_LIMITED = "rate_limited"
    SERVER = "server"  # the other side failed: 5xx
    PERMISSION = "permission"
    UNREACHABLE = "unreachable"
    MISSING_INPUT = "missing_input"
    BAD_ARGUMENTS = "bad_arguments"
    BAD_OUTPUT = "bad_output"
    SUCCESS_CONDITION = "success_condition"
    CONDITION_MISMATCH = "condition_mismatch"
    FOREIGN_CANCELLATION = "foreign_cancellation"  # a cancellation that dagrun did not request
    STRAY_CANCELLATION = "stray_cancellation"  # a cancellation left behind by an earlier step on this task
    INTERRUPTED = "interrupted"  # the process that made the call has ended
    FORBIDDEN_EXCEPTION = "forbidden_exception"  # SystemExit, KeyboardInterrupt, GeneratorExit
    WORKER_DIED = "worker_died"
    CANCELLED = "cancelled"  # a requested cancellation
    CEILING = "ceiling"
    ELEMENTS = "elements"  # elements of a for_each failed
    CRITIC = "critic"  # a critic did not pass the output
    DENIED = "denied"  # a person said no


# Failures of calls in which the tool returned normally, but its output was not accepted.
_RETURNED: Final = frozenset(
    (ErrorKind.BAD_OUTPUT, ErrorKind.SUCCESS_CONDITION, ErrorKind.CONDITION_MISMATCH, ErrorKind.CRITIC)
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not succeed.

    Attributes:
        kind: The kind of failure.
        message: A sentence of at most a few hundred characters, with control characters escaped.
        error: The class of the exception, if there was one.
        is_transient: Whether the same call may succeed later.
        nothing_happened: Whether the tool guarantees that there was no effect.
        retry_after: Seconds to wait before another attempt makes sense.
        missing_input: The name of an input that is missing.
        where: File and line of the user's code that raised the exception, such as ``/srv/shop/prices.py:12``; else of
            the innermost code that raised it; empty if no exception was raised.
        answer: What a language model answered, if the answer could not be used; at most 64 KiB.
        exception: The exception itself, without its frames, while the process lives in which it was raised. It is
            never recorded or pickled, and not redacted: its text may hold secrets that `message` does not.
        render: Writes the traceback, redacted; see `traceback`.
    """

    __repr__ = short_repr

    kind: ErrorKind
    message: str
    error: str = ""
    is_transient: bool = False
    nothing_happened: bool = False
    retry_after: float | None = None
    missing_input: str | None = None
    where: str = later("")
    answer: str = later("")
    exception: BaseException | None = unrecorded()
    render: Callable[[], str] | None = unrecorded()

    @property
    def type(self) -> str:
        """The name of the class of the exception; empty if there was none."""
        return self.error

    @property
    def traceback(self) -> str:
        """The traceback as text, redacted; empty if no exception was raised in this process or its workers."""
        return self.render() if self.render is not None else ""

    def __reduce__(self) -> tuple[Any, ...]:
        facts = (self.kind, self.message, self.error, self.is_transient, self.nothing_happened)
        return Failure, (*facts, self.retry_after, self.missing_input, self.where, self.answer)

    def as_dict(self) -> dict[str, Any]:
        """Return the failure as plain JSON."""
        shown = {"where": self.where} if self.where else {}
        if self.answer:
            shown["answer"] = self.answer
        return {
            "kind": str(self.kind),
            "message": self.message,
            "error": self.error,
            "is_transient": self.is_transient,
            "retry_after": self.retry_after,
            "missing_input": self.missing_input,
            **shown,
        }


@dataclass(frozen=True, slots=True)
class SharedCall:
    """Marks a step that did not make its call alone; see the `cache` and `batch` of `Tool`.

    Attributes:
        how: ``cached``: the call had ended before, and its result was kept. ``joined``: an equal call was under way.
            ``batched``: several calls were made as one.
        step: The step that made the call, or began the batch.
        attempt: The attempt of that step.
        run: The run of that step; empty for this one.
        calls: How many calls were made as one.
    """

    how: Literal["cached", "joined", "batched"]
    step: str
    attempt: int
    run: str = ""
    calls: int = 1

    def __str__(self) -> str:
        whose = f"step {self.step}{f' in run {self.run}' if self.run else ''}"
        if self.how == "batched":
            return f"one of {self.calls} calls made as one, which {whose} began"
        return f"the kept result of {whose}" if self.how == "cached" else f"the call of {whose}, which was under way"


@dataclass(slots=True)
class Outcome:
    """How one attempt ended.

    Attributes:
        state: ``succeeded``, ``failed``, ``timed_out``, ``cancelled``, ``superseded``, ``unknown`` or ``abandoned``.
        value: The stored output; an output that came too late to be used is stored here, too.
        failure: Why the attempt did not succeed.
        tokens: Tokens that it reported.
        cost: Cost that it reported; `None` if it reported none.
        surprise: Why the result is unexpected, in a sentence; empty if it is not.
        shared: Whose call it was, if the step did not make one alone; `None` if it did.
    """

    __repr__ = short_repr

    state: State
    value: Stored = None
    failure: Failure | None = None
    tokens: int = 0
    cost: float | None = None
    surprise: str = ""
    shared: SharedCall | None = later(None)

    @property
    def output(self) -> Any:
        """A copy of the output; an object in memory is the object itself."""
        return decode_with_objects(self.value)

    @property
    def has_returned(self) -> bool:
        """Whether the tool returned normally, so that its effect has taken place, even if its output was refused."""
        return self.state is State.SUCCEEDED or (self.failure is not None and self.failure.kind in _RETURNED)

    @property
    def was_cut_off(self) -> bool:
        """Whether the call did not end by itself: the process that made it has ended."""
        return self.failure is not None and self.failure.kind is ErrorKind.INTERRUPTED


class TriggerKind(StrEnum):
    """The reason to ask the planner for a change of the plan."""

    SUCCESS_CONDITION = "success_condition"  # the output does not meet the step's own condition, or a critic's
    SURPRISE = "surprise"  # the step succeeded, but its result is unexpected
    CONTRADICTION = "contradiction"  # the step succeeded, but what several sources gave does not agree
    FAILED_TWICE = "failed_twice"  # another attempt has not helped
    UNREACHABLE = "unreachable"  # something that the step needs can no longer be reached
    GOAL_GIVEN = "goal_given"  # the run has a goal, but no plan yet
    GOAL_CHANGED = "goal_changed"  # the host has changed the goal
    NEXT = "next"  # every step of the plan has ended, and the planner had asked to see the results
    FAILED = "failed"  # any other failure that another attempt would not fix
    UNKNOWN_EFFECT = "unknown_effect"  # the step may or may not have taken effect

    @property
    def is_surprising_success(self) -> bool:
        """Whether the trigger's step has succeeded."""
        return self in (TriggerKind.SURPRISE, TriggerKind.CONTRADICTION)


class Recovery(StrEnum):
    """The reaction to the outcome of an attempt, as the record has it."""

    PROCEED = "proceed"
    RETRY = "retry"
    FALL_BACK = "fall_back"
    REVIEW = "review"  # critics judge the output first
    REPLAN = "replan"  # ask the planner
    ASK = "ask"  # ask a person
    ESCALATE = "escalate"  # end the run, and leave the rest to people
    DEFAULT = "default"  # the step's default takes the place of the output
    SKIP = "skip"  # the step says so: continue without it
    GIVE_UP = "give_up"  # no rule says otherwise: the steps that depend on it cannot run
    STOP = "stop"  # end the run


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision of the recovery table.

    Attributes:
        recovery: What to do.
        reason: The row of the table.
        delay: Seconds to wait before the next attempt.
        trigger: Why the planner is asked, if it is.
    """

    recovery: Recovery
    reason: str = ""
    delay: float = 0.0
    trigger: TriggerKind | None = None


PROCEED: Final = Decision(Recovery.PROCEED)
"""The decision about nearly every attempt, because nearly every attempt succeeds."""


@dataclass(slots=True)
class Hedge:
    """The second call of an attempt whose first call was slow.

    Attributes:
        started: Its start, in seconds since the start of the run.
        ended: Its end, in seconds since the start of the run; `None` while it runs.
        has_won: Whether its result is the result of the attempt.
        tokens: Tokens that it reported.
        cost: Cost that it reported; `None` if it reported none.
        fault: Why it failed; empty if it did not.
    """

    started: float
    ended: float | None = None
    has_won: bool = False
    tokens: int = 0
    cost: float | None = None
    fault: str = ""


@dataclass(slots=True)
class Attempt:
    """One call of one tool; two calls, if the first was slow and was hedged.

    Attributes:
        number: The number of the attempt, from 1.
        tool: The tool that was called; on a fallback attempt, the fallback.
        started: Its start, in seconds since the start of the run.
        ended: Its end, in seconds since the start of the run; `None` while it runs.
        outcome: How it ended; `None` while it runs.
        decision: What was done about it; `None` while it runs.
        hedge: The second call; `None` if there was none.
    """

    __repr__ = short_repr

    number: int
    tool: str
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    decision: Decision | None = None
    hedge: Hedge | None = None

    @property
    def duration(self) -> float:
        """The duration in seconds; 0 while the attempt runs."""
        return 0.0 if self.ended is None else self.ended - self.started


class Status(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OVER_BUDGET = "over_budget"
    WAITING = "waiting"  # for answers of people, and nobody could answer
    ESCALATED = "escalated"
    UNKNOWN = "unknown"  # an effect is in doubt
    CANCELLED = "cancelled"

    @property
    def exit_code(self) -> int:
        """The exit code of the command line."""
        return _EXIT_CODES[self]


_EXIT_CODES: Final = {
    Status.SUCCEEDED: 0,
    Status.FAILED: 1,
    Status.OVER_BUDGET: 4,
    Status.WAITING: 5,
    Status.ESCALATED: 6,
    Status.UNKNOWN: 7,
    Status.CANCELLED: 130,
}
