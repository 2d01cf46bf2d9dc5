"""Resuming a run: its record is opened, compared with the current configuration, and folded."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from dagrun.api.options import ResumeOptions, must_fit
from dagrun.api.record_opening import (
    Present,
    held_run_log,
    last_opening,
    open_record,
    present_of,
    sealer_of,
    whole_events,
)
from dagrun.api.tool_contracts import check_recorded_plan
from dagrun.errors import CannotResume, JournalDamaged
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.contracts.deps import deps_from
from dagrun.kernel.model.event import Event, Opening, RunEnded, RunResumed, RunStarted
from dagrun.kernel.model.executor import Executor
from dagrun.kernel.model.journal import RunLog
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.secrets.secret import secrets_from
from dagrun.kernel.model.value import Stored
from dagrun.kernel.runtime.run import Run
from dagrun.kernel.runtime.run_options import RunOptions, with_defaults
from dagrun.kernel.runtime.run_setup import OpenRecord


@dataclass(slots=True)
class Past:
    """A recorded run, and the configuration that it is resumed with.

    Attributes:
        events: The events on record; after `fold`, only the last one.
        plan: The checked plan that the run began with.
        inputs: The inputs of the run, stored.
        record: The record, open for writing, with what the run is opened with now.
        options: The options of the run now.
        differences: What differs from the record, and is allowed to; a line each.
    """

    events: list[Event]
    plan: CheckedPlan
    inputs: Stored
    record: OpenRecord
    options: RunOptions
    differences: tuple[str, ...]

    @property
    def last(self) -> Event:
        """The last event on record."""
        return self.events[-1]

    def fold(self, running: Run) -> None:
        """Fold the records into *running*.

        Raises:
            JournalDamaged: The records do not follow from each other.
            CannotResume: They do not, because of a difference that was allowed.
        """
        try:
            running.fold(self.events)
        except JournalDamaged as error:
            if not self.differences:
                raise
            raise CannotResume(f"with these differences, {error.reason}", self.differences) from error
        del self.events[:-1]  # they hold every value of the run

    def resumed(self, seq: int, at: float, traceparent: str = "") -> RunResumed:
        """Return the event of the resumption; with its opening only if that has changed."""
        opening = self.record.opening if self.differences else None
        return RunResumed(seq, at, time.time(), self.differences, opening, traceparent)


@asynccontextmanager
async def opened_for_resume(
    run_id: str,
    options: ResumeOptions,
    executors: Mapping[str, Executor],
    policy: Policy | None,
    held: RunLog | None = None,
) -> AsyncIterator[Past]:
    """Hold the record of a run, and keep other processes from it, for as long as the body runs.

    Args:
        run_id: The run.
        options: The options of `dagrun.resume`.
        executors: The executors of the host, by name.
        policy: The limits, if the options name none; `None` for the recorded ones.
        held: The record, if the caller has opened it already, and closes it; `None` to open it.

    Raises:
        JournalError: The run cannot be resumed, or not as it is.
    """
    must_fit(options, ResumeOptions, "resume")
    take = partial(options["journal"].open, run_id, steal=options.get("steal", False))
    async with held_run_log(take) if held is None else nullcontext(held) as run_log:
        sealer = sealer_of(options, run_id)
        events = whole_events(run_id, run_log.lines, sealer, "resumed")
        _must_be_open(events)
        recorded = last_opening(events)
        now = present_of(recorded, options, executors, policy, f"run {run_id} cannot go on as it is")
        if now.policy.release_outputs:
            run_log.lines = ()  # they hold every value of the run, and have been read
        first, opening = _first_opening(events), now.opening(recorded)
        plan = _plan_of(first, opening, now, options)
        chosen = with_defaults({**options, "seed": recorded.seed})
        record = open_record(run_log, opening, plan=plan, sealer=sealer)
        yield Past(events, plan, first.inputs, record, chosen, now.differences)


def _must_be_open(events: Sequence[Event]) -> None:
    last = events[-1]
    if isinstance(last, RunEnded) and last.status is not Status.UNKNOWN:
        again = "" if last.status is Status.SUCCEEDED else "; `retry` does again what has failed of it"
        raise CannotResume(f"the run has ended as {last.status}{again}")


def _first_opening(events: Sequence[Event]) -> Opening:
    first = events[0]
    assert isinstance(first, RunStarted)
    assert first.opening is not None
    return first.opening


def _plan_of(first: Opening, opening: Opening, now: Present, options: ResumeOptions) -> CheckedPlan:
    """Check the plan that the run began with against the current configuration."""
    begun, secrets = replace(opening, plan=first.plan), secrets_from(options.get("secrets"))
    deps = deps_from(options.get("deps"))
    return check_recorded_plan(begun, now.toolbox, now.policy, secrets, options.get("redact"), deps=deps)
