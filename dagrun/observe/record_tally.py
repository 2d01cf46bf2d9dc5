"""The tally of a record: where a run stands, counted from the lines of its record without building its graph.

To list runs, a few numbers of each are enough, and the graph needs libraries that take longer to load than the list
takes to print. So the lines are read as plain JSON, and only what changes those numbers is looked at:

1. The plan at the opening and the edits of splices say which steps there are. Elements of a for_each do not count.
2. A step has ended when the last event about it says a state in which steps end; it is opened again by `RunReopened`.
3. A question is open from `QuestionAsked` to `QuestionAnswered`.

Anything that is not plain (an unknown event, an edit of a step that has succeeded, a policy that hides personal data)
has no tally: then the graph is asked. The chain of hashes is checked by whoever has read the lines; whether the events
follow from each other is not, as ``dagrun journal verify`` does it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dagrun.errors import shorten
from dagrun.observe.run_standing import KeptStanding, Stand, Standing

if TYPE_CHECKING:
    from dagrun.model.journal import Held, Line

# The states in which steps end, as in `dagrun.model.outcome`, which would load pydantic.
SETTLED: Final = frozenset(
    ("succeeded", "failed", "timed_out", "skipped", "cancelled", "superseded", "abandoned", "unknown")
)
_SUCCEEDED: Final = "succeeded"


class _NotPlainError(Exception):
    """The record contains something that needs the graph."""


@dataclass(slots=True)
class _Tally:
    steps: dict[str, str] = field(default_factory=dict)  # the steps of the plan, and the state of each that has ended
    others: set[str] = field(default_factory=set)  # steps that took the place of elements
    questions: dict[str, str] = field(default_factory=dict)
    goal: str = ""
    status: str = ""
    reason: str = ""
    offset: float = 0.0  # of the clock of the run to the time of day, in seconds
    began: float = 0.0
    opening: Mapping[str, Any] = field(default_factory=dict)


def _opened(tally: _Tally, event: Mapping[str, Any]) -> None:
    opening = event.get("opening")
    if opening is None:
        return
    if opening["policy"].get("redact"):
        raise _NotPlainError
    if not tally.opening:
        tally.opening = opening
        tally.goal = event["goal"]
        tally.steps = dict.fromkeys((step["id"] for step in opening["plan"]["steps"]), "")


def _started(tally: _Tally, event: Mapping[str, Any]) -> None:
    _opened(tally, event)
    tally.offset = event["wall_time"] - event["at"]
    tally.began = tally.offset + event["at"]


def _resumed(tally: _Tally, event: Mapping[str, Any]) -> None:
    _opened(tally, event)
    tally.offset = event["wall_time"] - event["at"]
    tally.status = tally.reason = ""


def _reopened(tally: _Tally, event: Mapping[str, Any]) -> None:
    tally.steps.update((step, "") for step in event["steps"] if step in tally.steps)
    tally.status = tally.reason = ""


def _ended(tally: _Tally, event: Mapping[str, Any]) -> None:
    tally.status, tally.reason = event["status"], event["reason"]


def _moved(tally: _Tally, event: Mapping[str, Any]) -> None:
    step, state = event["step"], event["state"]
    if step in tally.steps and state is not None:
        tally.steps[step] = state if state in SETTLED else ""


def _spliced(tally: _Tally, event: Mapping[str, Any]) -> None:
    edits = sorted(event["edits"], key=lambda edit: edit["op"] == "add")
    for edit in edits:
        if edit["op"] in ("drop", "replace"):
            _take_out(tally, edit["id"], edit.get("step", {}).get("id", ""))
    tally.steps.update((edit["step"]["id"], "") for edit in edits if edit["op"] == "add")


def _take_out(tally: _Tally, old: str, new: str) -> None:
    """Take a step out of the plan, for another one if that is named."""
    is_element = "[" in old or old in tally.others
    if not is_element and tally.steps.get(old, _SUCCEEDED) == _SUCCEEDED:
        raise _NotPlainError  # an edit that comes too late has no effect
    if not is_element:
        del tally.steps[old]
    if new and is_element:
        tally.others.add(new)
    elif new:
        tally.steps[new] = ""


def _asked(tally: _Tally, event: Mapping[str, Any]) -> None:
    question = event["question"]
    tally.questions[question["id"]] = shorten(question["step"] or question["text"])


def _answered(tally: _Tally, event: Mapping[str, Any]) -> None:
    del tally.questions[event["question"]]
    _moved(tally, event)


def _aimed(tally: _Tally, event: Mapping[str, Any]) -> None:
    tally.goal = event["goal"]


def _nothing(tally: _Tally, event: Mapping[str, Any]) -> None:
    """Count nothing."""


_COUNT: Final[Mapping[str, Callable[[_Tally, Mapping[str, Any]], None]]] = {
    "RunStarted": _started,
    "RunResumed": _resumed,
    "RunReopened": _reopened,
    "RunSuspended": _ended,
    "RunEnded": _ended,
    "AttemptEnded": _moved,
    "Reviewed": _moved,
    "StepSettled": _moved,
    "Spliced": _spliced,
    "QuestionAsked": _asked,
    "QuestionAnswered": _answered,
    "GoalChanged": _aimed,
    "DraftStarted": _aimed,
    **dict.fromkeys(
        (
            "AttemptStarted",
            "CeilingNear",
            "ConfidenceReported",
            "DraftEnded",
            "HandedOn",
            "HedgeEnded",
            "Hedged",
            "ModelCharged",
            "ModelReserved",
            "PatchRefused",
            "PlannerAsked",
            "PlannerCalled",
            "ReplanEnded",
            "ReplanRequested",
            "ReplanStarted",
            "RunStopping",
            "StepExpanded",
            "StepResumed",
        ),
        _nothing,
    ),
}


def tally_of(lines: Sequence[Line], held: Held) -> KeptStanding | None:
    """Return where a run stands; `None` if its record has no tally. States are counted if all steps have ended.

    Args:
        lines: The record, of at least one line.
        held: Which process holds the run.
    """
    tally, event = _Tally(), {}
    try:
        for line in lines:
            event = json.loads(line.text)
            _COUNT[event["event"]](tally, event)
        standing = _standing(tally, event, held)
        counts = Counter(tally.steps.values()) if standing.settled == standing.steps else {}
        return KeptStanding(standing, tally.opening["labels"], len(lines), dict(sorted(counts.items())))
    except (_NotPlainError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _standing(tally: _Tally, last: Mapping[str, Any], held: Held) -> Standing:
    return Standing(
        run_id=held.run_id,
        stand=_stand_of(last, held),
        status=tally.status,
        reason=shorten(tally.reason),
        owner=held.owner if held.is_held else "",
        goal=shorten(tally.goal),
        steps=len(tally.steps),
        settled=sum(1 for state in tally.steps.values() if state),
        waits_for=tuple(dict.fromkeys(tally.questions.values())),
        began=tally.began,
        last=tally.offset + last["at"],
        expires=tally.opening["expires_at"],
    )


def _stand_of(last: Mapping[str, Any], held: Held) -> Stand:
    if last["event"] == "RunEnded":
        return Stand.ENDED
    if held.is_held:
        return Stand.RUNNING
    is_waiting = last["event"] == "RunSuspended" and last["status"] == "waiting"
    return Stand.WAITING if is_waiting else Stand.INTERRUPTED
