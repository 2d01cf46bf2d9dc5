"""Replay: the record of a run folded again into its state, without tools, models or people."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dagrun.api.tool_contracts import check_recorded_plan, recorded_toolbox
from dagrun.codec import events_of
from dagrun.errors import JournalDamaged, listing
from dagrun.features.redacted_records.sealing import Sealer
from dagrun.kernel.graph.live_graph import LiveGraph, build
from dagrun.kernel.graph.plan_history import PlanHistory
from dagrun.kernel.graph.step_order import Expected
from dagrun.kernel.model.event import Event, Opening, RunEnded, RunStarted
from dagrun.kernel.model.journal import Journal
from dagrun.kernel.model.outcome import State, Status
from dagrun.kernel.model.question import Question
from dagrun.kernel.runtime.result import StepResults
from dagrun.presenters import notebook_bundle, write_report


@dataclass(slots=True)
class Replayed:
    """The state of a run after the last event on its record.

    Attributes:
        run_id: The name of the run.
        events: All events on record.
        opening: What the run was opened with.
        graph: The state. Nothing in it can run.
    """

    run_id: str
    events: Sequence[Event]
    opening: Opening
    graph: LiveGraph

    def __repr__(self) -> str:
        title = f"Replayed {self.run_id}: {self.status or 'interrupted'} after {len(self.events)} events"
        return f"<{listing(title, self.steps.table())}>"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return notebook_bundle(self)

    @property
    def status(self) -> Status | None:
        """How the run ended or was suspended; `None` if it is still running, or was killed."""
        return self.graph.status

    @property
    def reason(self) -> str:
        """The reason of the status, in a sentence."""
        return self.graph.reason

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended; otherwise it can be resumed."""
        return isinstance(self.events[-1], RunEnded)

    @property
    def states(self) -> dict[str, State]:
        """The state of every step, elements of for_each included."""
        return {id_: node.state for id_, node in self.graph.nodes.items()}

    @property
    def steps(self) -> StepResults:
        """The result of every step that has ended, and the known facts of the others."""
        return StepResults(self.graph.nodes)

    @property
    def history(self) -> PlanHistory:
        """The plan with all its revisions."""
        return PlanHistory(self.graph.plan.plan, self.graph.revisions)

    @property
    def pending(self) -> tuple[Question, ...]:
        """The open questions."""
        return tuple(self.graph.questions.values())

    def report(self, path: str | pathlib.Path | None = None, **options: Any) -> str:
        """Write a report of the run: one HTML file that loads nothing, or another form; see `dagrun.report`.

        Args:
            path: The file to write; `None` to return the report as text.
            options: ``format``, ``values``, ``title``, ``max_nodes``.
        """
        return write_report(self, path, options)

    @property
    def hash(self) -> str:
        """A hash of the whole state, in hex. Equal records have equal hashes on every machine."""
        from dagrun.kernel.graph.fold import state_hash

        return state_hash(self.graph)


async def replay(run_id: str, *, journal: Journal, record_key: str | bytes | None = None) -> Replayed:
    """Return the state of a run from its record, without calling anything: no tools and no planner are needed.

    Args:
        run_id: The run.
        journal: The journal that has the record.
        record_key: The key that opens the sealed parts of the record, see `dagrun.api.RunOptions`; `None` for the state
            without it, as the record shows it.

    Raises:
        RunNotFound: The journal has no such run.
        WrongRecordKey: The key is not the run's.
        JournalDamaged: The record was changed or damaged.
    """
    unseal = None if record_key is None else Sealer(record_key, run_id).open
    return replayed(run_id, events_of(run_id, await journal.read(run_id), unseal))


def replayed(run_id: str, events: Sequence[Event]) -> Replayed:
    """Return the state of a run from its events; see `replay`.

    Raises:
        JournalDamaged: The events do not follow from each other.
    """
    from dagrun.kernel.graph.fold import fold

    first = events[0]
    assert isinstance(first, RunStarted)
    assert first.opening is not None
    opening = first.opening
    try:
        plan = check_recorded_plan(opening, recorded_toolbox(opening), opening.policy)
    except Exception as error:
        raise JournalDamaged(run_id, 1, f"what the run was opened with cannot be run: {error}") from error
    graph = build(plan, opening.inputs, None, Expected(plan))
    fold(graph, events, run_id)
    if opening.policy.redact:
        for event in events:
            event._redactor = plan.redactor
    return Replayed(run_id, events, opening, graph)
