"""The status of a run, from the ends of its steps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from dagrun.errors import shorten
from dagrun.kernel.model.outcome import State, Status


@dataclass(slots=True)  # not frozen, as there is one for each step that did not succeed
class Ended:
    """The end of a step, as far as the status of the run depends on it."""

    id: str
    state: State
    reason: str
    is_tolerated: bool
    is_optional: bool


NO_APPROVER: Final = "no approver"
NO_PLANNER: Final = "the run has gone on without a planner"
NO_PLAN_NOR_PLANNER: Final = f"there is no plan, and {NO_PLANNER}"
ONLY_ITS_PLAN: Final = "only the plan was wanted"
UNKNOWN_TOOL: Final = "the planner asks for a tool that the run does not have"
_NAMED: Final = 10  # of each kind


@dataclass(slots=True)
class Some:
    """Steps of one kind: the first few, and their number."""

    first: list[Ended] = field(default_factory=list)
    count: int = 0

    def add(self, step: Ended) -> None:
        """Count *step*."""
        if self.count < _NAMED:
            self.first.append(step)
        self.count += 1

    @property
    def names(self) -> str:
        """The ids of the first steps, and the number of the others."""
        shown = ", ".join(step.id for step in self.first)
        return shown if self.count <= _NAMED else f"{shown} and {self.count - _NAMED} more"


_NONE: Final = Some()


class Tally:
    """The ends of the steps of a run, as far as its status depends on them.

    Args:
        planned: The number of steps of the plan.
        steps: The steps that did not succeed, in the order of the plan.

    Attributes:
        planned: The number of steps of the plan.
        states: The number of steps that have ended in each state, without those that succeeded.
        in_doubt: The steps of which it is unknown whether they took effect.
        bad: The steps because of which the run did not succeed.
        unskipped: The bad steps that were not skipped.
        held: The bad steps that were skipped because there was no approver.
        gaps: The steps with for_each that succeeded without elements that failed.
    """

    __slots__ = ("bad", "gaps", "held", "in_doubt", "planned", "states", "unskipped")

    def __init__(self, planned: int = 0, steps: Iterable[Ended] = ()) -> None:
        self.planned = planned
        self.states: dict[State, int] = {}
        self.in_doubt = self.bad = self.unskipped = self.held = _NONE
        self.gaps: list[str] = []
        for step in steps:
            self.add(step)

    def add(self, step: Ended) -> None:
        """Count *step*, the next in the order of the plan."""
        if not self.states:  # every run has a tally, and most stay empty
            self.in_doubt, self.bad, self.unskipped, self.held = Some(), Some(), Some(), Some()
        self.states[step.state] = self.states.get(step.state, 0) + 1
        if step.state is State.UNKNOWN:
            self.in_doubt.add(step)
        if not is_bad(step):
            return
        self.bad.add(step)
        if step.state is not State.SKIPPED:
            self.unskipped.add(step)
        elif step.reason.startswith(NO_APPROVER):
            self.held.add(step)


def status_of(tally: Tally, stopped: tuple[Status, str] | None = None) -> tuple[Status, str]:
    """Return the status of a run and the reason for it: the worst that applies.

    Args:
        tally: The ends of its steps.
        stopped: The status and reason with which the run was ended early, if it was.
    """
    if tally.in_doubt.count:
        return Status.UNKNOWN, f"it is not known whether these took effect: {tally.in_doubt.names}"
    if stopped is not None:
        return stopped
    if not tally.bad.count:
        return Status.SUCCEEDED, _summary(tally)
    if tally.held.count and not tally.unskipped.count:
        return Status.WAITING, f"nobody was there to approve {tally.held.names}"
    causes = tally.unskipped if tally.unskipped.count else tally.bad
    reasons = "; ".join(f"{step.id} {step.state}: {shorten(step.reason)}" for step in causes.first[:3])
    return Status.FAILED, reasons + (f"; and {causes.count - 3} more" if causes.count > 3 else "")


def is_bad(step: Ended) -> bool:
    """Whether the run did not succeed because of *step*."""
    if step.is_optional:
        return False
    return not (step.state is State.SKIPPED and step.is_tolerated)


def _summary(tally: Tally) -> str:
    others = "".join(f", {number} {state}" for state, number in sorted((str(s), n) for s, n in tally.states.items()))
    more = [f"and {len(tally.gaps) - 3} more"] if len(tally.gaps) > 3 else []
    return "; ".join((f"{tally.planned - sum(tally.states.values())} succeeded{others}", *tally.gaps[:3], *more))
