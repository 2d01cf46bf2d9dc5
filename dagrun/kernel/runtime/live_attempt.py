"""`LiveAttempt`: one attempt while it runs, and the outcomes of attempts that were stopped or interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import anyio

from dagrun.kernel.decide.recovery import state_after_stop
from dagrun.kernel.graph.ledger import Reservation
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.executor import ToolCall
from dagrun.kernel.model.outcome import ErrorKind, Failure, Outcome, SharedCall, State
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.tool_context import ToolContext
from dagrun.kernel.runtime.coroutine_driver import going_on, in_words
from dagrun.kernel.runtime.stop_scope import StopScope


@dataclass(slots=True)
class OptionalAttemptState:
    """State that few attempts need, made on first use.

    Attributes:
        surprise: Why the tool itself finds its result surprising, or empty.
        confidence: How sure the tool is of its output; `None` if it has not said.
        has_reported: Whether the tool has reported its usage.
        reservation: What the ledger has reserved for it, or none.
        has_place: Whether it counts under the limits on what runs at once.
        verdicts: The verdicts of critics; `None` until the tool itself has ended.
        told: Answers of people to its questions that it has not asked yet: of the same call, which was cut off, and is
            made again; `None` before its first question.
        asking: Held while the tool asks a person, or takes an element of a stream: one thing at a time.
        resume: Set when the tool may continue after it has asked a person or waited for an element, or has to stop.
        is_let_go: Whether its end is not to be recorded: the run is suspended, and makes the call again, or asks about
            it, when it is resumed.
        is_before_effect: Whether it cannot have had an effect yet: its tool is not called yet, or has said so.
        second: The second call beside this one, made because this one was slow.
        is_second: Whether this is such a second call.
        shared: Whose call it was, if the attempt has shared one; see `dagrun.features.shared_calls`.
        on_refused: Called if its output is refused; drops the kept result.
        common: If this is a call that several attempts wait for: its `SingleFlightCall`; set until it ends.
        is_batch: Whether this is the call of a batch form.
        results: What the batch form has returned.
        stream: The elements of a for_each that it takes one by one: its `CallStream`; `None` for any other call.
        window: If its provider has a `ProviderWindow`: that, the tokens reserved there, and when the call began.
    """

    surprise: str = ""
    confidence: float | None = None
    has_reported: bool = False
    reservation: Reservation | None = None
    has_place: bool = True
    verdicts: tuple[Verdict, ...] | None = None
    told: list[tuple[str, Answer | None]] | None = None
    asking: anyio.Lock | None = None
    resume: anyio.Event | None = None
    is_let_go: bool = False
    is_before_effect: bool = False
    second: HedgedCall | None = None
    is_second: bool = False
    shared: SharedCall | None = None
    on_refused: Callable[[], object] | None = None
    common: Any = None
    is_batch: bool = False
    results: object = None
    stream: Any = None
    window: Any = None


@dataclass(slots=True, eq=False)
class HedgedCall:
    """A second call beside a slow one.

    Attributes:
        live: Its own slot: scope, context, and the reports of its tool.
        ended: Set when its task has finished with it.
        outcome: Its outcome; `None` while it runs, and if it was cancelled.
        has_won: Whether its outcome is the outcome of the attempt.
        is_closed: Whether its end is on record, or is not to be recorded.
        has_place: Whether the extra call counts under the limits on what runs at once.
        leaving: How many of the two tasks have finished with the attempt.
        on_first_end: Called right before the end of the attempt is recorded or dropped; takes whether it is recorded.
    """

    live: LiveAttempt
    ended: anyio.Event
    outcome: Outcome | None = None
    has_won: bool = False
    is_closed: bool = False
    has_place: bool = True
    leaving: int = 0
    on_first_end: Callable[[bool], None] | None = None


class LiveAttempt:
    """One running attempt, and the handle for its cancellation.

    Attributes:
        node: The step.
        tool: The tool.
        scope: The scope around the attempt, through which it is told to stop. It exists from the instant when the step
            is running, and holds nothing else meanwhile.
        call: What the executor gets; set from when the arguments are filled in until the end is recorded.
        is_fresh: Whether nothing else ran on this task before.
        deadline: When the attempt must be over, on the clock of the loop; or none.
        limit: The seconds that it has, if there is a deadline.
        asked: The state for which it was told to stop: ``timed_out``, ``cancelled`` or ``superseded``; or `None`.
        reason: Why it was told to stop, in words.
        cutoff: When it is abandoned if it still runs; or none.
        was_interrupted: Whether anything was thrown into it while it waited, such as a cancellation.
        is_done: Whether its end was recorded.
        has_left: Whether it has left its scope. Another attempt may be in the scope by now.
        tokens: The tokens reported so far.
        cost: The cost reported so far; `None` if none was.
        context: The context of the tool, once it was asked for.
        rare: State that few attempts need, made on first use.
    """

    __slots__ = (
        "__weakref__",
        "_now",
        "asked",
        "call",
        "context",
        "cost",
        "cutoff",
        "deadline",
        "has_left",
        "is_done",
        "is_fresh",
        "limit",
        "node",
        "rare",
        "reason",
        "scope",
        "tokens",
        "tool",
        "was_interrupted",
    )

    def __init__(self, node: Node, tool: AnyTool, scope: StopScope, is_fresh: bool, now: Callable[[], float]) -> None:
        self.node = node
        self.tool = tool
        self.scope = scope
        self.call: ToolCall | None = None
        self.is_fresh = is_fresh
        self.deadline: float | None = None
        self.limit = 0.0
        self.asked: State | None = None
        self.reason = ""
        self.cutoff: float | None = None
        self.was_interrupted = False
        self.is_done = False
        self.has_left = False
        self.tokens = 0
        self.cost: float | None = None
        self.context: ToolContext | None = None
        self.rare: OptionalAttemptState | None = None
        self._now = now

    def tell_to_stop(self, asked: State, reason: str, grace: float) -> None:
        """Cancel the attempt; both calls if it is hedged. It may clean up for *grace* seconds.

        The first reason counts; the grace period begins then.
        """
        if self.asked is None:
            self.asked, self.reason = asked, reason
            self.cutoff = self._now() + grace
            if self.context is not None:
                self.context.stop.set()
            if self.rare is not None and self.rare.resume is not None:
                self.rare.resume.set()
            if not self.has_left:
                self.scope.stop(self.cutoff)
            if self.rare is not None and self.rare.second is not None:
                self.rare.second.live.tell_to_stop(asked, reason, grace)

    @property
    def is_let_go(self) -> bool:
        """Whether it was cancelled because the run is suspended."""
        return self.rare is not None and self.rare.is_let_go

    def leaves_no_end(self, outcome: Outcome | None) -> bool:
        """Whether this end is not recorded, because the attempt was cancelled only to suspend the run."""
        if outcome is not None and outcome.state is State.SUCCEEDED:
            return False
        return self.is_let_go or (outcome is None and self.asked is None)

    def make_rare(self) -> OptionalAttemptState:
        """Return its `OptionalAttemptState`; make it if there is none yet."""
        if self.rare is None:
            self.rare = OptionalAttemptState()
        return self.rare


def still_going(live: LiveAttempt) -> str:
    """Describe the leftovers of a cancelled attempt, and drop those that have ended; empty if nothing is left."""
    if not live.scope.left:
        return ""
    live.scope.left = going_on(live.scope.left)
    return in_words(live.scope.left.values()) if live.scope.left else ""


def stopped_outcome(live: LiveAttempt, asked: State, outcome: Outcome | None) -> Outcome:
    """Return the outcome of a cancelled attempt: a late value is never used."""
    left = still_going(live)
    if outcome is None:
        vouched = live.rare is not None and live.rare.is_before_effect
    else:
        vouched = outcome.failure is not None and outcome.failure.nothing_happened
    vouched = vouched and not left
    still_running = outcome is not None and outcome.state is State.ABANDONED
    # If its review was stopped, the tool itself had ended: its effect took place, and is not in doubt.
    is_known = vouched or (live.rare is not None and live.rare.verdicts is not None)
    state = state_after_stop(live.tool.effect, asked, is_known=is_known, still_running=still_running)
    timed_out = asked is State.TIMED_OUT
    kind = ErrorKind.TIMEOUT if timed_out else ErrorKind.CANCELLED
    reason = f"{live.reason}; it would not stop" if still_running else live.reason
    reason = f"{reason}; {left}" if left else reason
    # A tool that would not stop would not stop the next time either.
    failure = Failure(kind, reason, is_transient=timed_out and not still_running, nothing_happened=vouched)
    last = outcome if outcome is not None else live.node.attempts[-1].outcome  # the outcome under review
    late = last.value if last is not None else None  # kept, and never used
    return Outcome(state, late, failure, live.tokens, live.cost)


def interrupted_outcome(live: LiveAttempt, stopped: str = "") -> Outcome:
    """Return the outcome of an attempt that ended with the process that made it.

    Args:
        live: The slot of the attempt, newly made.
        stopped: Why the run is being ended early, if it is; then nothing is tried again.
    """
    attempt, is_free = live.node.attempts[-1], live.tool.effect.is_free
    if attempt.outcome is not None:  # its review was cut off
        failure = Failure(ErrorKind.CANCELLED, stopped, nothing_happened=is_free)
        return replace(attempt.outcome, state=State.CANCELLED, failure=failure)
    if live.node.is_gone or stopped:
        state = state_after_stop(
            live.tool.effect, State.CANCELLED if stopped else State.SUPERSEDED, is_known=False, still_running=False
        )
        reason = stopped or "a later revision of the plan does without it"
        return Outcome(state, None, Failure(ErrorKind.CANCELLED, reason, nothing_happened=is_free))
    failure = Failure(ErrorKind.INTERRUPTED, "the process that made the call has ended", nothing_happened=is_free)
    return Outcome(State.FAILED if is_free else State.UNKNOWN, None, failure)


def leaked_outcome(live: LiveAttempt) -> Outcome:
    """Return the outcome of an attempt that left a scope or a task group open, which had to be closed by force."""
    failure = Failure(ErrorKind.EXCEPTION, "the tool left a cancel scope or a task group open")
    state = State.FAILED if live.tool.effect.is_free else State.UNKNOWN
    return Outcome(state, None, failure, live.tokens, live.cost)
