"""How a run ended, from how its steps ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dagrun.errors import shorten
from dagrun.model.outcome import State, Status


@dataclass(frozen=True, slots=True)
class Ended:
    """A step that has ended, as far as the status of the run cares."""

    id: str
    state: State
    reason: str
    is_tolerated: bool
    is_optional: bool


NO_APPROVER: Final = "no approver"


def status_of(
    unsuccessful: Sequence[Ended], count: int, stopped: tuple[Status, str] | None = None
) -> tuple[Status, str]:
    """Give the status of a run and the reason for it: the worst thing that applies.

    Args:
        unsuccessful: The steps of the plan that have ended otherwise than well.
        count: All steps of the plan.
        stopped: The status and reason with which the run was ended early, if it was.
    """
    in_doubt = [step for step in unsuccessful if step.state is State.UNKNOWN]
    if in_doubt:
        return Status.UNKNOWN, f"it is not known whether these took effect: {_names(in_doubt)}"
    if stopped is not None:
        return stopped
    bad = [step for step in unsuccessful if is_bad(step)]
    if not bad:
        return Status.SUCCEEDED, _summary(unsuccessful, count)
    if all(step.state is State.SKIPPED for step in bad):
        held = [step for step in bad if step.reason.startswith(NO_APPROVER)]
        if held:
            return Status.WAITING, f"nobody was there to approve {_names(held)}"
    first = [step for step in bad if step.state is not State.SKIPPED] or bad
    reasons = "; ".join(f"{step.id} {step.state}: {shorten(step.reason)}" for step in first[:3])
    return Status.FAILED, reasons + (f"; and {len(first) - 3} more" if len(first) > 3 else "")


def is_bad(step: Ended) -> bool:
    """Whether the run did not succeed because of *step*."""
    if step.is_optional:
        return False
    return not (step.state is State.SKIPPED and step.is_tolerated)


def _names(steps: Sequence[Ended]) -> str:
    shown = ", ".join(step.id for step in steps[:10])
    return shown if len(steps) <= 10 else f"{shown} and {len(steps) - 10} more"


def _summary(unsuccessful: Sequence[Ended], count: int) -> str:
    if not unsuccessful:
        return f"{count} succeeded"
    counts = Counter(str(step.state) for step in unsuccessful)
    others = "".join(f", {number} {state}" for state, number in sorted(counts.items()))
    return f"{count - len(unsuccessful)} succeeded{others}"
