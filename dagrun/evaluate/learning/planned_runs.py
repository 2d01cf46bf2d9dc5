"""A recorded run of a goal: the plan that its planner wrote, and its outcome."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from dagrun.errors import JournalDamaged
from dagrun.evaluate.plan_shape import shape_of
from dagrun.model.redaction.redactor import Redactor
from dagrun.model.secrets.secret import NO_SECRETS

if TYPE_CHECKING:
    from dagrun.model.journal import Line

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """A run that began with a goal, and ended with the plan that its planner wrote first.

    Attributes:
        run_id: The id of the run.
        goal: The goal.
        inputs: The inputs; `None` if the record has none.
        steps: The steps of the plan, as they were written.
        output: The output that the plan names; `None` if it names none.
        policy: A hash of the policy.
        contracts: A hash of the contracts of the tools that the plan calls.
        shape: The shape of the plan; see `dagrun.evaluate.plan_shape`.
        has_succeeded: Whether the run succeeded.
        makespan: From its start to its end, in seconds.
        began: When it began, in seconds since 1970.
    """

    run_id: str
    goal: str
    inputs: Any
    steps: tuple[Json, ...]
    output: Any
    policy: str
    contracts: str
    shape: str
    has_succeeded: bool
    makespan: float
    began: float

    @property
    def key(self) -> tuple[str, str, str]:
        """The key that runs with plans of one route share."""
        return self.shape, self.policy, self.contracts


def planned_run(run_id: str, lines: Sequence[Line]) -> PlannedRun | str:
    """Return the run of a record, or why nothing is learned from it.

    Args:
        run_id: The run.
        lines: Its record, checked; at least one line.

    Raises:
        JournalDamaged: The record says what no run can have recorded.
    """
    try:
        return _planned(run_id, [json.loads(line.text) for line in lines])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JournalDamaged(run_id, 0, f"its plan cannot be read: {type(error).__name__}: {error}") from error


def _planned(run_id: str, events: Sequence[Json]) -> PlannedRun | str:
    first, last = events[0], events[-1]
    opening = first["opening"]
    kinds = {event["event"] for event in events}
    if "DraftStarted" not in kinds or opening["plan"]["steps"]:
        return "it did not begin with a goal"
    if last["event"] != "RunEnded":
        return "it has not ended"
    if kinds & {"GoalChanged", "ReplanStarted", "RunReopened"}:
        return "its plan was repaired, or its goal changed"
    draft = next(event for event in events if event["event"] == "DraftEnded")
    if draft["result"] != "applied" or draft.get("more"):
        return "its planner wrote no whole plan at first"
    splices = [event for event in events if event["event"] == "Spliced"]
    edits = [edit for event in splices for edit in event["edits"]]
    if any(event["origin"] != "planner" for event in splices) or any(edit["op"] != "add" for edit in edits):
        return "its plan was changed after it was written"
    steps = tuple(edit["step"] for edit in edits)
    output = next((event["output"] for event in reversed(splices) if event["changes_output"]), None)
    goal = next(event["goal"] for event in events if event["event"] == "DraftStarted")
    shown = [goal, list(steps), output]
    if not steps or Redactor(NO_SECRETS, tuple(opening["policy"].get("redact") or ())).value(shown) != shown:
        return "its plan or its goal holds a possible secret, or personal data" if steps else "it has no steps"
    if any("redacted" in event for event in events):
        return "its record was redacted"
    contracts = {step["tool"]: opening["tools"][step["tool"]] for step in steps}
    return PlannedRun(
        run_id=run_id,
        goal=goal,
        inputs=opening.get("inputs"),
        steps=steps,
        output=output,
        policy=hash_of(opening["policy"]),
        contracts=hash_of(contracts),
        shape=shape_of(steps, output),
        has_succeeded=last["status"] == "succeeded",
        makespan=last["at"],
        began=first["wall_time"],
    )


def hash_of(value: Any) -> str:
    """Return a hash of plain JSON: 16 hex digits, equal for equal values."""
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]
