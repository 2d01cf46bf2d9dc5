"""Calls against the order in which the parts of a run are made, from one to another that is made after it.

A part that keeps a method of another one keeps all of it; the other keeps the part; and such circles go only when
Python's collector comes by. A service that makes many short runs would pay for that with every eighth millisecond, and
a host that drops a big result would keep it for a while. So the parts call those after them through here, and when the
run is closed, this lets go of all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, ParamSpec
from weakref import WeakMethod

from dagrun.errors import JournalError
from dagrun.graph.node import Node
from dagrun.model.outcome import Outcome, Status

if TYPE_CHECKING:
    from dagrun.runtime.slot import Slot

P = ParamSpec("P")


def _nothing(*_: object) -> None:
    pass


def _nobody(_: str) -> Collection[str]:
    return ()


def _no() -> bool:
    return False


def _no_key(_: Node, __: str) -> str:
    return ""


@dataclass(slots=True, eq=False)
class Upcalls:
    """The upcalls of one run. What nobody takes does nothing.

    Attributes:
        stop: Ends the run early, with a status and a reason.
        settle_down: Follows a change that no attempt has made: ends the run if nothing is left, wakes workers.
        end_if_nothing_is_left: Follows what may have been the last of a run.
        end_interrupted: Records the end of an attempt that was dropped without one, as the run was to be suspended;
            with the reason for which it is ended.
        stop_running: Tells every running step to stop, with a reason, and gives their ids.
        conclude: Records the end of an attempt; without an outcome, it was cancelled.
        nudge: Wakes a worker, if there is anything to do.
        suspended: Follows the first suspension of a tool.
        failed: Takes why nothing can be written down any more; amid a change.
        charged: Follows what a model was charged: a ceiling may be near, or room be free again.
        on_stop: Called once, if the run is ended early.
        on_end: Called once, when every step has settled, or the run is suspended.
        go_on: Asks the planner again, if it wants to be when all has ended; says whether it is.
        wake_planner: Follows a new reason to ask it.
        forget: Takes the id of a question that needs no answer any more.
        hold_at_pause: Holds a step that has ended without an attempt until people have looked at it.
        ask_again: Takes a step that was kept back, once there is room to ask about it.
        expects_answers: Whether answers may lie somewhere that have not been looked at.
        asked: Follows each question.
        key_of: Gives the idempotency key of the calls of a step, by the name of the tool.
    """

    stop: Callable[[Status, str], object] = _nothing
    settle_down: Callable[[], object] = _nothing
    end_if_nothing_is_left: Callable[[], object] = _nothing
    end_interrupted: Callable[[Node, str], object] = _nothing
    stop_running: Callable[[str], Collection[str]] = _nobody
    conclude: Callable[[Slot, Outcome | None], object] = _nothing
    nudge: Callable[[], object] = _nothing
    suspended: Callable[[], object] = _nothing
    failed: Callable[[JournalError], object] = _nothing
    charged: Callable[[], object] = _nothing
    on_stop: Callable[[], object] = _nothing
    on_end: Callable[[], object] = _nothing
    go_on: Callable[[], bool] = _no
    wake_planner: Callable[[], object] = _nothing
    forget: Callable[[str], object] = _nothing
    hold_at_pause: Callable[[Node], object] = _nothing
    ask_again: Callable[[Node], object] = _nothing
    expects_answers: Callable[[], bool] = _no
    asked: Callable[[], object] = _nothing
    key_of: Callable[[Node, str], str] = _no_key

    def cut(self) -> None:
        """Let go of all parts: the run is closed, and none of this would lead anywhere."""
        for name, default in _DEFAULTS:
            setattr(self, name, default)


def weakly(method: Callable[P, object]) -> Callable[P, None]:
    """Give what calls *method*, and keeps nothing alive for that: for what is older than the run, and outlives it."""
    found = WeakMethod(method)

    def call(*args: P.args, **kwargs: P.kwargs) -> None:
        there = found()
        if there is not None:
            there(*args, **kwargs)

    return call


_DEFAULTS: Final = tuple((each.name, each.default) for each in fields(Upcalls))
