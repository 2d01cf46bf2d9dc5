"""A run that is taken up: its record is read, compared with what is there now, and folded."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, replace

import anyio

from dagrun.api.checking import must_be, toolbox_of
from dagrun.api.options import ResumeOptions, must_fit
from dagrun.checks.tool_contracts import check_recorded_plan, contract_of, opening_differences
from dagrun.errors import CannotResume, JournalDamaged
from dagrun.model.codec.event_codec import events_of
from dagrun.model.event import Event, Opening, RunEnded, RunResumed, RunStarted
from dagrun.model.executor import Executor
from dagrun.model.outcome import Status
from dagrun.model.policy import Policy
from dagrun.model.secrets.secret import secrets_from
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.run import Run
from dagrun.runtime.run_setup import RunSetup, random_of


def opening_at_end(events: Sequence[Event]) -> Opening:
    """What holds of how a run was opened: what was said last."""
    found = [event.opening for event in events if isinstance(event, RunStarted | RunResumed) and event.opening]
    return found[-1]


@dataclass(slots=True)
class Past:
    """A run as its record says.

    Attributes:
        events: Of the run.
        setup: What it is made of now; without what its engine adds.
        differences: What is different from what was recorded, and allowed to be.
        opening: What it is opened with now, if that is different.
    """

    events: list[Event]
    setup: RunSetup
    differences: tuple[str, ...]
    opening: Opening | None

    @property
    def last(self) -> Event:
        """The last event on record."""
        return self.events[-1]

    def fold(self, running: Run) -> None:
        """Put *running* into the state that the record says.

        Raises:
            JournalDamaged: The records do not follow from each other.
            CannotResume: They do not, with what is different now.
        """
        try:
            running.fold(self.events)
        except JournalDamaged as error:
            if not self.differences:
                raise
            raise CannotResume(f"with these differences, {error.reason}", self.differences) from error
        del self.events[:-1]  # they hold every value of the run

    def resumed(self, seq: int, at: float) -> RunResumed:
        """The event that says that the run goes on."""
        return RunResumed(seq, at, time.time(), self.differences, self.opening)


@asynccontextmanager
async def taken_up(
    run_id: str, options: ResumeOptions, executors: Mapping[str, Executor], policy: Policy | None
) -> AsyncIterator[Past]:
    """Take a run over from whoever held it, for as long as the body runs.

    Args:
        run_id: The run.
        options: Those of `dagrun.resume`.
        executors: Those of the host, by name.
        policy: The limits, if the options name none; `None` for those that were recorded.

    Raises:
        JournalError: It cannot be taken over, or not as it is.
    """
    must_fit(options, ResumeOptions, "resume")
    tape = await options["journal"].open(run_id, steal=options.get("steal", False))
    try:
        events = events_of(run_id, tape.lines)
        _must_be_open(events)
        recorded = opening_at_end(events)
        now, found = _compared(run_id, recorded, options, executors, policy)
        if now.policy.release_outputs:
            tape.lines = ()  # they hold every value of the run, and have been read
        toolbox = toolbox_of(options.get("tools"))
        first = events[0]
        assert isinstance(first, RunStarted)
        assert first.opening is not None
        begun = replace(now, plan=first.opening.plan)
        setup = RunSetup(
            plan=check_recorded_plan(
                begun, toolbox, now.policy, secrets_from(options.get("secrets")), options.get("redact")
            ),
            inputs=first.opening.inputs,
            run_id=run_id,
            executors={},
            artifacts=ArtifactFolder(options.get("artifacts") or tape.artifacts),
            context=copy_context(),
            random=random_of(recorded.seed),
            opening=now,
            tape=tape,
            planner=options.get("planner"),
            critics=options.get("critics", ()),
            approver=options.get("approver"),
            attended=options.get("attended", False),
        )
        yield Past(events, setup, found, now if found else None)
    finally:
        with anyio.CancelScope(shield=True):
            await tape.aclose()


def _must_be_open(events: Sequence[Event]) -> None:
    last = events[-1]
    if isinstance(last, RunEnded) and last.status is not Status.UNKNOWN:
        again = "" if last.status is Status.SUCCEEDED else "; `retry` does again what has failed of it"
        raise CannotResume(f"the run has ended as {last.status}{again}")


def _compared(
    run_id: str,
    recorded: Opening,
    options: ResumeOptions,
    executors: Mapping[str, Executor],
    policy: Policy | None,
) -> tuple[Opening, tuple[str, ...]]:
    """What the run is opened with now, and how that differs from what was recorded.

    Raises:
        CannotResume: It differs, and nobody has said that it may.
    """
    must_be("policy", options.get("policy"), (Policy, type(None)), "a dagrun.Policy")
    limits = options.get("policy") or policy or recorded.policy
    toolbox = toolbox_of(options.get("tools"))
    critics = tuple(critic.name for critic in options.get("critics", ()))
    found = tuple(opening_differences(recorded, limits, toolbox, critics, tuple(executors)))
    if found and not options.get("allow_differences", False):
        raise CannotResume(
            f"run {run_id} cannot go on as it is, because not all is as it was; allow_differences=True lets it", found
        )
    now = replace(
        recorded,
        policy=limits,
        tools={name: contract_of(toolbox[name]) for name in toolbox if name in toolbox.allowed},
        critics=critics,
        executors=tuple(sorted(executors)),
    )
    return now, found
