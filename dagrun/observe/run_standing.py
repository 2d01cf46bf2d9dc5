"""The summary of a recorded run: its owner, its open questions, its end; and its text form, cached by lists."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from dagrun._version import __version__
from dagrun.errors import JournalDamaged, JournalError, shorten

if TYPE_CHECKING:
    from dagrun.kernel.model.journal import Held
    from dagrun.observe.run_summary import RunSummary

# As in `dagrun.kernel.model.outcome.Status`: runs are listed without the libraries that it needs.
_SUCCEEDED: Final = "succeeded"
_IN_DOUBT: Final = "unknown"


class RunState(StrEnum):
    """The possible actions on a run."""

    RUNNING = "running"  # a process runs it
    WAITING = "waiting"  # for people; no process runs it
    INTERRUPTED = "interrupted"  # it can be resumed
    ENDED = "ended"
    EMPTY = "empty"  # it was killed before its first record, so it cannot be resumed
    DAMAGED = "damaged"  # its record was changed, or cannot be read


_STAYS: Final = (RunState.ENDED, RunState.WAITING, RunState.INTERRUPTED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOverview:
    """A run in short, for lists. Texts hold no control characters.

    Attributes:
        run_id: The id of the run.
        state: What can be done with it.
        status: How the run ended or was suspended; empty if it runs or was cut off.
        reason: The reason of *status* in a sentence; for a damaged record, the damage.
        owner: The process that runs it, in words; empty if none does.
        goal: The goal of the run; empty if it began with a plan.
        steps: The number of steps in its plan.
        settled: The number of steps that have ended.
        waits_for: The steps that people are asked about, or the questions.
        began: When the run began, in seconds since 1970; `None` if the record does not say.
        last: When the last record was written, in seconds since 1970; `None` if the record does not say.
        expires: When the record may be deleted, in seconds since 1970; `None` for never.
        labels: The labels that the run was opened with; empty if they are not known.
        records: The number of its records; `None` if that is not known.
        counts: The number of steps in each state; empty if that was not counted.
    """

    run_id: str
    state: RunState
    status: str = ""
    reason: str = ""
    owner: str = ""
    goal: str = ""
    steps: int = 0
    settled: int = 0
    waits_for: tuple[str, ...] = ()
    began: float | None = None
    last: float | None = None
    expires: float | None = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    records: int | None = None
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_resumable(self) -> bool:
        """Whether the run can be resumed."""
        return self.state in (RunState.WAITING, RunState.INTERRUPTED) or self.status == _IN_DOUBT

    @property
    def text(self) -> str:
        """The summary in a sentence."""
        waits = f"waits for an answer about {shorten(', '.join(self.waits_for))}" if self.waits_for else ""
        match self.state:
            case RunState.RUNNING:
                return f"running: {self.owner or 'somebody'}{'; ' if waits else ''}{waits}"
            case RunState.WAITING:
                return waits or f"waiting: {self.reason}"
            case RunState.INTERRUPTED:
                return self.reason if self.status else "interrupted: its process has ended"
            case RunState.EMPTY:
                return "empty: it was ended before its first record"
            case RunState.DAMAGED:
                return f"damaged: {self.reason}"
            case _:
                is_plain = self.status == _SUCCEEDED and ";" not in self.reason  # else elements of a for_each failed
                return self.status if is_plain else f"{self.status}: {self.reason}"

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {
            "run_id": self.run_id,
            "state": str(self.state),
            "stand": str(self.state),  # its name in 0.2; removed in 0.4
            "status": self.status or None,
            "reason": self.reason,
            "owner": self.owner or None,
            "is_resumable": self.is_resumable,
            "goal": self.goal,
            "steps": self.steps,
            "settled": self.settled,
            "waits_for": list(self.waits_for),
            "began": self.began,
            "last": self.last,
            "expires": self.expires,
        }

    # As lists keep it, in place of the record

    @property
    def can_be_kept(self) -> bool:
        """Whether it holds until the record changes: a process that takes the run up writes so first."""
        return self.state in _STAYS and bool(self.records)

    def as_text(self) -> bytes:
        """Return all of it as JSON."""
        return json.dumps({"dagrun": __version__, "overview": asdict(self)}).encode()

    @classmethod
    def from_text(cls, run_id: str, text: bytes) -> RunOverview | None:
        """Parse a result of `as_text`; `None` if it is invalid, of another run, or of another version."""
        try:
            kept = json.loads(text)
            facts = kept["overview"]
            facts |= {"state": RunState(facts["state"]), "waits_for": tuple(facts["waits_for"])}
            found = cls(**facts | {name: dict(facts[name]) for name in ("labels", "counts")})
            is_ours = kept["dagrun"] == __version__ and found.run_id == run_id and found.can_be_kept
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return found if is_ours else None


def standing_at_start(held: Held) -> RunOverview:
    """Return the overview of a run without a record: it is just beginning, or was killed at its beginning."""
    state, owner = (RunState.RUNNING, held.owner) if held.is_held else (RunState.EMPTY, "")
    return RunOverview(run_id=held.run_id, state=state, owner=owner, records=0)


def standing_of_damaged(run_id: str, error: JournalError) -> RunOverview:
    """Return the overview of a run whose record cannot be used."""
    return RunOverview(run_id=run_id, state=RunState.DAMAGED, reason=fault_text(error))


def fault_text(error: JournalError) -> str:
    """Write why a record cannot be used, in a sentence without control characters."""
    return shorten(f"record {error.seq}: {error.reason}" if isinstance(error, JournalDamaged) else str(error))


def standing_of(run: RunSummary, held: Held) -> RunOverview:
    """Return the overview of a run.

    Args:
        run: The summary of its record.
        held: Which process holds the run.
    """
    return RunOverview(
        run_id=run.run_id,
        state=_state_of(run, held),
        status=run.status,
        reason=run.reason,
        owner=held.owner if held.is_held else "",
        goal=run.goal,
        steps=run.steps,
        settled=run.settled,
        waits_for=run.waits_for,
        began=run.began,
        last=run.last,
        expires=run.expires,
        labels=run.labels,
        records=run.records,
        counts=run.counts if run.settled == run.steps else {},
    )


def _state_of(run: RunSummary, held: Held) -> RunState:
    if run.has_ended:
        return RunState.ENDED
    if held.is_held:
        return RunState.RUNNING
    return RunState.WAITING if run.is_suspended and run.status == "waiting" else RunState.INTERRUPTED
