"""Calls from a part of a run to parts that are made after it, through one object that can be cut.

A part that keeps a method of a later part keeps that part alive, and the later part keeps the earlier one. Such a
circle of references is freed only by Python's garbage collector: a service with many short runs would spend an eighth
of its time on that, and a big result would stay in memory after the host has dropped it. So there are three rules:

1. A part holds references only to parts that were made before it.
2. It calls later parts through `RunCallbacks`. When the run is closed, `RunCallbacks.cut` drops all references in it.
3. What code of the host may keep, such as the context variables of a call and its `ToolContext`, holds no part. It
   calls the parts through `RunCallbacks` or weak references: a timer that a tool leaves behind must not keep its run.
   So does the meter that charges the model calls of planners and critics to the ledger (`RunMeter`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, ParamSpec
from weakref import WeakMethod

from dagrun.errors import JournalError, OverCeiling
from dagrun.kernel.graph.ledger import Reservation
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import Outcome, Status
from dagrun.kernel.model.question import Answer, ControlMessage
from dagrun.kernel.model.usage import Charge

if TYPE_CHECKING:
    from dagrun.kernel.runtime.live_attempt import LiveAttempt

P = ParamSpec("P")


def _nothing(*_: object) -> None:
    pass


def _no_steps(_: str) -> Collection[str]:
    return ()


def _no() -> bool:
    return False


def _no_key(_: Node, __: str) -> str:
    return ""


def _no_context(_: LiveAttempt) -> AbstractContextManager[object]:
    return nullcontext()


def _no_stream(_: LiveAttempt, __: Node) -> AsyncIterator[Any]:
    raise RuntimeError("the run is closed")


def _no_model(_: str, __: int | None, ___: float | None) -> tuple[Reservation, int]:
    raise OverCeiling("the run has ended")


async def _no_answer(_: str, __: str, ___: Mapping[str, Any]) -> Answer | None:
    return None


@dataclass(slots=True, eq=False)
class RunCallbacks:
    """The callbacks of one run. One that is not set does nothing.

    Attributes:
        stop: Ends the run early, with a status and a reason.
        on_external_change: Called after a change that no attempt has made: ends the run if nothing is left, and wakes
            workers.
        end_if_nothing_is_left: Called when the last step of a run may have settled.
        end_interrupted: Records the end of an attempt that was dropped without one because the run was to be suspended;
            takes the step and the reason for which the run is ended.
        stop_running: Tells every running step to stop, for a reason, and returns their ids.
        conclude: Records the end of an attempt; an outcome of `None` means that it was cancelled.
        cancelled_around: Called when the code around the run was cancelled while a tool ran.
        nudge: Wakes a worker, if a step is ready.
        suspended: Called when a tool suspends for the first time.
        failed: Takes the error for which nothing can be written to the journal any more; called in the middle of a
            change.
        charged: Called when a model was charged: a ceiling may be near, or there may be room again.
        on_stop: Called once, if the run is ended early.
        on_end: Called once, when every step has settled, or the run is suspended.
        ask_for_more: Asks the planner for more steps when all have ended; returns whether it is asked.
        wake_planner: Called when there is a new reason to ask the planner.
        forget: Takes the id of a question that no longer needs an answer.
        hold_at_pause: Holds a step that has ended without an attempt until people have looked at it.
        ask_again: Takes a step that was kept back, once there is room to ask about it.
        expects_answers: Returns whether there may be answers that have not been read yet.
        asked: Called after each question.
        ordered: Takes a message that orders the run, or a step of it, to stop.
        key_of: Returns the idempotency key of the calls of a step, by the name of the tool.
        compose: Adds the step that composes the answer; returns whether the run goes on with it.
        piece: Takes a step and a piece of text that its tool has written.
        clock_stopped: Returns a context in which the time limit of an attempt does not run.
        open_stream: Takes an attempt and a for_each; returns the stream of the outputs of its elements.
        reserve_model: Takes a model and the worst case of its call; see `BudgetGate.reserve_model`.
        settle_model: Charges what the call has used; see `BudgetGate.settle_model`.
        ask_for_plan: Asks a person for a plan on behalf of a planner; see `HumanInput.ask_for_plan`.
    """

    stop: Callable[[Status, str], object] = _nothing
    on_external_change: Callable[[], object] = _nothing
    end_if_nothing_is_left: Callable[[], object] = _nothing
    end_interrupted: Callable[[Node, str], object] = _nothing
    stop_running: Callable[[str], Collection[str]] = _no_steps
    conclude: Callable[[LiveAttempt, Outcome | None], object] = _nothing
    cancelled_around: Callable[[], object] = _nothing
    nudge: Callable[[], object] = _nothing
    suspended: Callable[[], object] = _nothing
    failed: Callable[[JournalError], object] = _nothing
    charged: Callable[[], object] = _nothing
    on_stop: Callable[[], object] = _nothing
    on_end: Callable[[], object] = _nothing
    ask_for_more: Callable[[], bool] = _no
    wake_planner: Callable[[], object] = _nothing
    forget: Callable[[str], object] = _nothing
    hold_at_pause: Callable[[Node], object] = _nothing
    ask_again: Callable[[Node], object] = _nothing
    expects_answers: Callable[[], bool] = _no
    asked: Callable[[], object] = _nothing
    ordered: Callable[[ControlMessage], object] = _nothing
    key_of: Callable[[Node, str], str] = _no_key
    compose: Callable[[], bool] = _no
    piece: Callable[[Node, str], object] = _nothing
    clock_stopped: Callable[[LiveAttempt], AbstractContextManager[object]] = _no_context
    open_stream: Callable[[LiveAttempt, Node], AsyncIterator[Any]] = _no_stream
    reserve_model: Callable[[str, int | None, float | None], tuple[Reservation, int]] = _no_model
    settle_model: Callable[[Reservation, int, int | None, float | None], object] = _nothing
    ask_for_plan: Callable[[str, str, Mapping[str, Any]], Awaitable[Answer | None]] = _no_answer

    def on_cancelled_around(self) -> None:
        """Late-bound `cancelled_around`: safe to hand out before it is set."""
        self.cancelled_around()

    def cut(self) -> None:
        """Drop the references to all parts: the run is closed, and no call has an effect now."""
        for name, default in _DEFAULTS:
            setattr(self, name, default)


def weakly(method: Callable[P, object]) -> Callable[P, None]:
    """Return a callback that holds *method* weakly, for callers that outlive the run."""
    reference = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        bound = reference()
        if bound is not None:
            bound(*args, **kwargs)

    return call


_DEFAULTS: Final = tuple((each.name, each.default) for each in fields(RunCallbacks))


class RunMeter:
    """Charges the model calls of one call of a planner or a critic. It lives in context variables, so it holds no part.

    Args:
        up: Leads to the accounts of the run.

    Attributes:
        tokens: The tokens used so far, as far as the models have reported them.
        cost: The cost so far; `None` if a part of it is unknown, or nothing was called yet.
    """

    __slots__ = ("_is_known", "_up", "cost", "tokens")

    def __init__(self, up: RunCallbacks) -> None:
        self.tokens = 0
        self.cost: float | None = None
        self._is_known = True
        self._up = up

    def reserve(self, who: str, tokens: int | None, cost: float | None) -> Charge:
        """Reserve room for a model call.

        Raises:
            OverCeiling: There is no room, and the message names the ceiling; or the run has ended.
        """
        return _RunCharge(self, *self._up.reserve_model(who, tokens, cost))

    def settle(self, reservation: Reservation, number: int, tokens: int | None, cost: float | None) -> None:
        """Charge the usage of a call; an unknown figure is charged at its worst case."""
        self._up.settle_model(reservation, number, tokens, cost)
        self.tokens += tokens or 0
        self._is_known = self._is_known and cost is not None
        self.cost = (self.cost or 0.0) + cost if cost is not None and self._is_known else None
        self._up.charged()


@dataclass(slots=True)
class _RunCharge:
    meter: RunMeter
    reservation: Reservation
    number: int

    def settle(self, tokens: int | None, cost: float | None) -> None:
        self.meter.settle(self.reservation, self.number, tokens, cost)
