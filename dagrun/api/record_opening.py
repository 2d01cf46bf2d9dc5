"""The record of a run, opened: for a new run, and to resume one.

The opening is what a run was opened with, as the journal keeps it. To resume a run, its record is held open, its
opening is compared with the current configuration, and its events are folded.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from dagrun._version import __version__
from dagrun.api.checking import must_be, toolbox_of, with_compose
from dagrun.api.options import ResumeOptions, must_fit, with_defaults
from dagrun.api.tool_contracts import check_recorded_plan, contract_of, opening_differences, policy_in_full
from dagrun.codec import encode_event, events_of, marks_of
from dagrun.errors import CannotResume, ContractError, JournalDamaged, RunExists, RunHeld, RunNotFound, shorten
from dagrun.features.redacted_records.sealing import Sealer
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.contracts.deps import deps_from
from dagrun.kernel.model.event import Event, Opening, RunEnded, RunResumed, RunStarted
from dagrun.kernel.model.executor import Executor
from dagrun.kernel.model.journal import Journal, Line, RunLog
from dagrun.kernel.model.outcome import Outcome, State, Status
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.secrets import secrets_from
from dagrun.kernel.model.tool import Toolbox
from dagrun.kernel.model.tracing import TRACEPARENT, RunTracer
from dagrun.kernel.model.value import Stored, decode, encode
from dagrun.kernel.runtime.run import Run
from dagrun.kernel.runtime.run_options import RunOptions
from dagrun.kernel.runtime.run_parts import OpenRecord


@dataclass(frozen=True, slots=True)
class Descent:
    """The lineage of a run.

    Attributes:
        parent: The run that this one retries; empty if it retries none.
        root: The run whose name is part of the idempotency keys: the first one of the line.
        roots: For steps whose key is not made of their own id: the id that it is made of, and the generation.
        guards: What people have to agree to, as in `Opening`.
        guarded_tools: The same by tool.
        agreed: The steps that people have agreed to.
        written: The steps whose author was shown what others can write, as in `Opening`.
        elements: The outputs of elements that are taken over, by their ids.
    """

    parent: str
    root: str
    roots: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    guards: Mapping[str, str] = field(default_factory=dict)
    guarded_tools: Mapping[str, str] = field(default_factory=dict)
    agreed: tuple[str, ...] = ()
    written: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    elements: Mapping[str, Stored] = field(default_factory=dict)


def opening_of(checked: CheckedPlan, inputs: Stored, descent: Descent, options: RunOptions) -> Opening:
    """Return the recorded configuration of a new run.

    Args:
        checked: The plan.
        inputs: The inputs of the run, stored.
        descent: The runs that it comes from.
        options: The options of the run.

    Raises:
        ValueRefused: The labels are not JSON.
    """
    toolbox, expires = checked.toolbox, options["expires_after"]
    return Opening(
        plan=checked.plan,
        policy=policy_in_full(checked.policy),
        inputs=inputs,
        tools=_contracts(toolbox),
        executors=tuple(sorted(checked.executors)),
        critics=tuple(critic.name for critic in options["critics"]),
        in_waves=any(step.waits_for_all for step in checked.steps.values()),
        root=descent.root,
        parent=descent.parent,
        roots=descent.roots,
        seed=options["seed"],
        labels=decode(encode(dict(options["labels"] or {}))),
        expires_at=None if expires is None else time.time() + expires,
        version=__version__,
        guards=descent.guards,
        guarded_tools=descent.guarded_tools,
        agreed=descent.agreed,
        written=descent.written,
        elements={id_: Outcome(State.SUCCEEDED, value) for id_, value in descent.elements.items()},
    )


def with_traceparent(options: RunOptions, tracer: RunTracer) -> RunOptions:
    """Return *options* with the trace among the labels of the record, so that a resumed run can link to it."""
    if options["journal"] is None or not tracer.traceparent:
        return options
    return {**options, "labels": {TRACEPARENT: tracer.traceparent, **(options["labels"] or {})}}


def traceparent_of(events: Sequence[Event]) -> str:
    """Return the traceparent of the last trace of a recorded run; empty if it had none."""
    for event in reversed(events):
        if isinstance(event, RunResumed) and event.traceparent:
            return event.traceparent
        if isinstance(event, RunStarted | RunResumed) and event.opening is not None:
            found = event.opening.labels.get(TRACEPARENT)
            if isinstance(found, str):
                return found
    return ""


def sealer_of(options: Mapping[str, Any], run_id: str) -> Sealer | None:
    """Return the sealer of the records of a run; `None` if the host has passed no key.

    Raises:
        ContractError: The key is malformed.
        MissingExtra: The library for it is not installed.
    """
    key = options.get("record_key")
    return None if key is None else Sealer(key, run_id)


def record_writer(plan: CheckedPlan, sealer: Sealer | None) -> Callable[[Event], bytes]:
    """Return the function that writes the records of a run of *plan*."""
    if not (plan.secrets.are_hidden or plan.policy.redact_records):
        return encode_event
    from dagrun.features.redacted_records.records import text_writer  # here: few runs redact their records

    return text_writer(plan, None if sealer is None else sealer.seal)


def open_record(run_log: RunLog, opening: Opening, *, plan: CheckedPlan, sealer: Sealer | None) -> OpenRecord:
    """Return a record that is open for writing.

    Args:
        run_log: Where the journal takes the events.
        opening: What the run was opened with.
        plan: The plan; its policy and its secrets say what is redacted.
        sealer: Seals redacted parts; `None` if the host has given no key.
    """
    leaves_out: Callable[[Stored], bool] | None = None
    if plan.policy.redact_records:
        from dagrun.features.redacted_records.records import is_kept_out

        leaves_out = partial(is_kept_out, redactor=plan.redactor)
    return OpenRecord(run_log, opening, record_writer(plan, sealer), leaves_out)


def whole_events(run_id: str, lines: Sequence[Line], sealer: Sealer | None, verb: str) -> list[Event]:
    """Return the events of a run that is resumed or retried, with every value that it computes with.

    Values of steps may be missing in them: they are `Unavailable`.

    Args:
        run_id: The run.
        lines: Its records.
        sealer: Opens their sealed parts; `None` without a key.
        verb: The action on the run, for the error: ``resumed`` or ``retried``.

    Raises:
        CannotResume: The plan, a patch or the inputs were redacted, and the originals cannot be had.
        WrongRecordKey: The key is not the run's.
        JournalDamaged: As for `events_of`.
    """
    recorded = events_of(run_id, lines, None if sealer is None else sealer.open)
    marks = [marks for line in lines if (marks := marks_of(line.text)) is not None and marks.lost]
    gone = [mark for mark in marks if sealer is None or not mark.sealed]
    if not gone:
        return recorded
    lost = dict.fromkeys(_PARTS[part] for mark in gone for part in mark.lost if part in _PARTS)
    what = f"{' and '.join(lost) or 'a part of it'}, with personal data in it, {'is' if len(lost) < 2 else 'are'}"
    if all(mark.sealed for mark in gone):
        how = "sealed in its record: pass the record_key that it was recorded with (DAGRUN_RECORD_KEY)"
    else:
        how = "not in its record, and no record_key was there to seal it: run the plan anew, or begin with a record_key"
    raise CannotResume(f"run {run_id} cannot be {verb}: {what} {how}")


_PARTS: Final = {"plan": "its plan", "inputs": "its inputs", "patch": "a patch of its plan"}


def last_opening(events: Sequence[Event]) -> Opening:
    """Return the opening that holds at the end of a record: a resumed run may have been opened differently."""
    openings = [event.opening for event in events if isinstance(event, RunStarted | RunResumed) and event.opening]
    return openings[-1]


@dataclass(frozen=True, slots=True)
class Present:
    """The current configuration for a recorded run.

    Attributes:
        policy: The limits.
        toolbox: The tools.
        critics: The names of the critics.
        executors: The names of the executors of the host, sorted.
        differences: What differs from the record, and is allowed to; a line each.
    """

    policy: Policy
    toolbox: Toolbox
    critics: tuple[str, ...]
    executors: tuple[str, ...]
    differences: tuple[str, ...]

    def opening(self, recorded: Opening) -> Opening:
        """Return *recorded*, updated to the current configuration."""
        return replace(
            recorded,
            policy=self.policy,
            tools=_contracts(self.toolbox),
            critics=self.critics,
            executors=self.executors,
        )


def present_of(
    recorded: Opening, options: Mapping[str, Any], executors: Iterable[str], policy: Policy | None, refusal: str
) -> Present:
    """Compare the configuration of a recorded run with the current one.

    Args:
        recorded: What the run was opened with.
        options: The options of `dagrun.resume` or `dagrun.retry`.
        executors: The names of the executors of the host.
        policy: The limits, if the options name none; `None` for the recorded ones.
        refusal: Which run cannot do what, for the error.

    Raises:
        CannotResume: There are differences, and the options do not allow them.
    """
    must_be("policy", options.get("policy"), (Policy, type(None)), "a dagrun.Policy")
    limits, toolbox = options.get("policy") or policy or recorded.policy, toolbox_of(options.get("tools"))
    if options.get("compose") is not None:
        toolbox = with_compose(toolbox, options["compose"])
    critics, named = tuple(critic.name for critic in options.get("critics", ())), tuple(sorted(executors))
    lines = tuple(opening_differences(recorded, limits, toolbox, critics, named))
    if lines and not options.get("allow_differences", False):
        raise CannotResume(f"{refusal}, because not all is as it was; allow_differences=True lets it", lines)
    return Present(limits, toolbox, critics, named, lines)


def _contracts(toolbox: Toolbox) -> dict[str, dict[str, Any]]:
    return {name: contract_of(toolbox[name]) for name in toolbox if name in toolbox.allowed}


@asynccontextmanager
async def held_run_log(take: Callable[[], Awaitable[RunLog]]) -> AsyncIterator[RunLog]:
    """Hold the record of a run open for as long as the body runs.

    A journal may take the run in a thread, or on a server. If the code around is cancelled meanwhile, the run is taken
    nevertheless, and must be given back: nobody could open it before its lease has run out. So *take* is called in a
    task of its own, which no cancellation reaches.

    Args:
        take: Creates the record, or opens it.
    """
    taken: list[RunLog] = []

    async def work() -> None:
        taken.append(await take())

    try:
        await _alone(work)
        yield taken[0]
    finally:
        for run_log in taken:
            await _alone(run_log.aclose)


async def _alone(work: Callable[[], Awaitable[None]]) -> None:
    """Call *work* in a task of its own, and wait for its end, whatever is cancelled meanwhile.

    On asyncio, `Task.cancel` breaks through the shield of a cancel scope, but not through the end of a task group.
    """

    async def shielded() -> None:
        with anyio.CancelScope(shield=True):
            await work()

    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(shielded, name="dagrun record")
    except BaseExceptionGroup as group:
        failure = group.exceptions[0]
    try:
        if failure is not None:
            raise failure
    finally:
        del failure  # its traceback leads back to this frame


async def new_run_log(journal: Journal, run_id: str) -> RunLog:
    """Create the record of a new run.

    A process that was killed, or a host that was cancelled, may have left a record without any event: nothing of that
    run has happened, and nobody could resume it. Such a record is taken over, so that its name is not lost.

    Raises:
        ContractError: A folder is named in place of a journal.
        RunExists: There is a run of this name.
        JournalFailed: The record cannot be written.
    """
    if isinstance(journal, str | Path):
        folder = shorten(str(journal))
        raise ContractError(f"journal is a journal, not the name of one: journal=dagrun.SQLiteJournal({folder!r})")
    try:
        return await journal.create(run_id)
    except RunExists:
        try:
            if await journal.read(run_id):
                raise
            run_log = await journal.open(run_id)
        except (RunHeld, RunNotFound, JournalDamaged):
            run_log = None
        if run_log is None:
            raise
        if run_log.lines:  # its owner has begun meanwhile, and has ended
            await run_log.aclose()
            raise
        return run_log


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
