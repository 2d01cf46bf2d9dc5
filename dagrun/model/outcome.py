"""How attempts end, how steps end, and how runs end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dagrun.model.value import Stored, decode


class State(StrEnum):
    """Where a step stands."""

    WAITING = "waiting"  # for other steps
    READY = "ready"  # nothing is missing but a free slot, or the end of a back-off
    RUNNING = "running"
    HELD = "held"  # a person must answer
    BLOCKED = "blocked"  # something that it needs failed, or is being replanned
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    UNKNOWN = "unknown"  # it may or may not have taken effect
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"  # dropped by a splice
    ABANDONED = "abandoned"  # would not stop

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
    """What sort of failure an attempt ended with."""

    TOOL = "tool"  # the tool said so, by ToolError
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
    FOREIGN_CANCELLATION = "foreign_cancellation"  # a cancellation that nobody asked for
    STRAY_CANCELLATION = "stray_cancellation"  # the same, left behind by a step that ran before on this task
    INTERRUPTED = "interrupted"  # the process that made the call has ended
    FORBIDDEN_EXCEPTION = "forbidden_exception"  # SystemExit, KeyboardInterrupt, GeneratorExit
    WORKER_DIED = "worker_died"
    CANCELLED = "cancelled"  # somebody asked for that
    CEILING = "ceiling"
    ELEMENTS = "elements"  # elements of a for_each failed
    CRITIC = "critic"  # a critic did not pass the output
    DENIED = "denied"  # a person said no


# The tool itself has ended well; it was what it gave that was not accepted.
_RETURNED: Final = frozenset(
    (ErrorKind.BAD_OUTPUT, ErrorKind.SUCCESS_CONDITION, ErrorKind.CONDITION_MISMATCH, ErrorKind.CRITIC)
)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not succeed.

    Attributes:
        kind: The sort of failure.
        message: In a sentence, at most a few hundred characters, control characters escaped.
        error: The class of the exception, if there was one.
        is_transient: Whether the same call may work later.
        nothing_happened: Whether the tool vouches that there was no effect.
        retry_after: Seconds before which another attempt makes no sense.
        missing_input: The name of an input that somebody would have to give.
    """

    kind: ErrorKind
    message: str
    error: str = ""
    is_transient: bool = False
    nothing_happened: bool = False
    retry_after: float | None = None
    missing_input: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The failure as plain JSON."""
        return {
            "kind": str(self.kind),
            "message": self.message,
            "error": self.error,
            "is_transient": self.is_transient,
            "retry_after": self.retry_after,
            "missing_input": self.missing_input,
        }


@dataclass(slots=True)
class Outcome:
    """How one attempt ended.

    Attributes:
        state: ``succeeded``, ``failed``, ``timed_out``, ``cancelled``, ``superseded``, ``unknown`` or ``abandoned``.
        value: What it gave, stored; what came too late to be used is kept here, too.
        failure: Why it did not succeed.
        tokens: Tokens that it reported.
        cost: Cost that it reported; `None` if none was.
        surprise: Why the result is not what anybody expected, in a sentence; empty if nobody said so.
    """

    state: State
    value: Stored = None
    failure: Failure | None = None
    tokens: int = 0
    cost: float | None = None
    surprise: str = ""

    @property
    def output(self) -> Any:
        """A copy of what it gave."""
        return decode(self.value)

    @property
    def has_returned(self) -> bool:
        """Whether the tool has ended well, whatever came of that: its effect has taken place, then."""
        return self.state is State.SUCCEEDED or (self.failure is not None and self.failure.kind in _RETURNED)


class TriggerKind(StrEnum):
    """Why a plan has to change."""

    SUCCESS_CONDITION = "success_condition"  # the output does not meet the step's own condition, or a critic's
    SURPRISE = "surprise"  # it succeeded, and the result is not what anybody expected
    FAILED_TWICE = "failed_twice"  # trying again has not helped
    UNREACHABLE = "unreachable"  # what the step needs cannot be reached any more
    GOAL_GIVEN = "goal_given"  # the run has a goal, and no plan yet
    GOAL_CHANGED = "goal_changed"  # the host wants something else now
    NEXT = "next"  # all that was planned has ended, and the planner wanted to see what comes of it
    FAILED = "failed"  # any other failure that trying again would not mend
    UNKNOWN_EFFECT = "unknown_effect"  # it may or may not have taken effect


class Recovery(StrEnum):
    """What is done about an outcome."""

    PROCEED = "proceed"
    RETRY = "retry"
    FALL_BACK = "fall_back"
    REVIEW = "review"  # critics look at it first
    REPLAN = "replan"  # ask the planner
    ASK = "ask"  # ask a person
    ESCALATE = "escalate"  # end the run, and hand everything to people
    DEFAULT = "default"  # the given value stands in for the output
    SKIP = "skip"  # by order of the step: go on without it
    GIVE_UP = "give_up"  # nobody said otherwise: what depends on it cannot run
    STOP = "stop"  # end the run


@dataclass(frozen=True, slots=True)
class Decision:
    """What the recovery table says.

    Attributes:
        recovery: What to do.
        reason: Which row said so.
        delay: Seconds to wait before the next attempt.
        trigger: Why the planner is asked, if it is.
    """

    recovery: Recovery
    reason: str = ""
    delay: float = 0.0
    trigger: TriggerKind | None = None


PROCEED: Final = Decision(Recovery.PROCEED)
"""Of nearly every attempt: it has succeeded, and there is nothing more to say."""


@dataclass(slots=True)
class Hedge:
    """A second call beside that of an attempt which was slow.

    Attributes:
        started: Seconds since the start of the run.
        ended: The same, for its end; `None` while it runs.
        has_won: Whether its result is that of the attempt.
        tokens: What it has reported.
        cost: The same in money; `None` if nothing was.
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
    """One call of one tool, as it went; two, if it was slow and was hedged.

    Attributes:
        number: 1 for the first.
        tool: The tool called; the fallback, on a fallback attempt.
        started: Seconds since the start of the run.
        ended: The same, for its end; `None` while it runs.
        outcome: How it ended; `None` while it runs.
        decision: What was done about it; `None` while it runs.
        hedge: The second call; `None` if there was none.
    """

    number: int
    tool: str
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    decision: Decision | None = None
    hedge: Hedge | None = None

    @property
    def duration(self) -> float:
        """In seconds; 0 while it runs."""
        return 0.0 if self.ended is None else self.ended - self.started


class Status(StrEnum):
    """How a run ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    OVER_BUDGET = "over_budget"
    WAITING = "waiting"  # for people, and nobody was there
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
