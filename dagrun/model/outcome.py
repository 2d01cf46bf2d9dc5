"""How attempts end, how steps end, and how runs end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dagrun.model.value import Stored


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
    FORBIDDEN_EXCEPTION = "forbidden_exception"  # SystemExit, KeyboardInterrupt, GeneratorExit
    WORKER_DIED = "worker_died"
    CANCELLED = "cancelled"  # somebody asked for that
    CEILING = "ceiling"
    ELEMENTS = "elements"  # elements of a for_each failed


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
        state: ``succeeded``, ``failed``, ``timed_out``, ``cancelled``, ``unknown`` or ``abandoned``.
        value: What it gave, stored; only if it succeeded.
        failure: Why it did not succeed.
        tokens: Tokens that it reported.
        cost: Cost that it reported; `None` if none was.
    """

    state: State
    value: Stored = None
    failure: Failure | None = None
    tokens: int = 0
    cost: float | None = None


class Recovery(StrEnum):
    """What is done about an outcome."""

    PROCEED = "proceed"
    RETRY = "retry"
    FALL_BACK = "fall_back"
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
    """

    recovery: Recovery
    reason: str = ""
    delay: float = 0.0


@dataclass(slots=True)
class Attempt:
    """One call of one tool, as it went.

    Attributes:
        number: 1 for the first.
        tool: The tool called; the fallback, on a fallback attempt.
        started: Seconds since the start of the run.
        ended: The same, for its end; `None` while it runs.
        outcome: How it ended; `None` while it runs.
        decision: What was done about it; `None` while it runs.
    """

    number: int
    tool: str
    started: float
    ended: float | None = None
    outcome: Outcome | None = None
    decision: Decision | None = None

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
