"""Runs that other processes carry out: `submit`, `follow`, `cancel`, `requeue` and `leave_answer`."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import Any, Final, Unpack

import anyio

from dagrun.api.checking import AnyPlan, CheckedPlans, first_plan, toolbox_of
from dagrun.api.engine import stored_inputs
from dagrun.api.options import SubmitOptions, lists_options, must_fit, must_make_sense, with_defaults
from dagrun.api.record_opening import Descent, held_run_log, opening_of, record_writer, sealer_of
from dagrun.codec import decode_event, encode_event, events_of
from dagrun.errors import AnswerRefused, ContractError, RunHeld, RunNotFound
from dagrun.features.redacted_records.records import as_shown, redactor_of
from dagrun.journal.following import RecordFollower
from dagrun.journal.queue import Queues, QueueTicket, RunQueue
from dagrun.kernel.checks.checked_plan import CheckedPlan, empty_plan
from dagrun.kernel.model.event import (
    Event,
    Opening,
    QuestionAnswered,
    QuestionAsked,
    RunEnded,
    RunResumed,
    RunStarted,
    RunStopping,
    RunSuspended,
)
from dagrun.kernel.model.journal import Held, Journal, SupportsVersions
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Answer, AnswerMessage, ControlMessage, standing
from dagrun.kernel.model.secrets import NO_SECRETS, secrets_from
from dagrun.kernel.model.value import to_json
from dagrun.kernel.runtime.run_options import RunOptions

_OF_A_RUN: Final = frozenset(RunOptions.__annotations__)


@lists_options(SubmitOptions)
async def submit(plan: AnyPlan | None = None, **options: Unpack[SubmitOptions]) -> str:
    """Submit a run, for a worker to carry out; see `Worker`. It is checked here, and nothing of it runs here.

    Args:
        plan: As for `check`; `None` if there is a goal, for which a planner of the worker writes the plan.
        options: Those of `dagrun.api.options.SubmitOptions`: at least *journal*, and *tools* unless the plan has its
            own. The worker must have tools with the same contracts.

    Returns:
        The id of the run.

    Raises:
        PlanRefused: The plan has problems; nothing was submitted.
        RunExists: There is a run of this name.
        JournalFailed: The run cannot be recorded.
        ContractError: The journal takes no submitted runs; or an option is unknown, or makes no sense.
    """
    must_fit(options, SubmitOptions, "submit")
    queue, given = queue_of(options["journal"]), dict(options)
    chosen = with_defaults({name: given[name] for name in given if name in _OF_A_RUN})
    must_make_sense(chosen)
    checked = _checked(plan, chosen)
    run_id = chosen["run_id"] or token_hex(16)
    inputs = stored_inputs(chosen["inputs"] or {}, checked.policy.max_argument_bytes)
    if name := checked.secrets.found_in(to_json(inputs).decode()):
        raise ContractError(f"the inputs hold the secret {name}, and would be recorded; let the plan pass a handle")
    opening = opening_of(checked, inputs, Descent(parent="", root=run_id), chosen)
    sealer = sealer_of(chosen, run_id)
    write = record_writer(checked, sealer)
    first = write(RunStarted(1, 0.0, run_id, len(checked.steps), checked.plan.goal, time.time(), opening))
    ticket = QueueTicket(
        pool=options.get("pool", "default"),
        build=build_of(opening),
        priority=options.get("priority", 0),
        not_before=_seconds(options.get("not_before")),
    )
    await queue.submit(run_id, first, ticket, connection=options.get("connection"))
    return run_id


async def follow(run_id: str, *, journal: Journal) -> AsyncIterator[Event]:
    """Iterate over the recorded events of a run in any process, from the first to its end.

    A run that is suspended, or waits in the queue, is followed on. Leave the loop to stop before the end.

    Args:
        run_id: The run.
        journal: The journal that has its record.

    Raises:
        RunNotFound: There is no such run, or not any more.
        JournalDamaged: The record was changed or damaged.

    Examples:
        >>> async def show(run_id, journal):
        ...     async for event in follow(run_id, journal=journal):
        ...         print(event)
    """
    follower, openings = RecordFollower(journal, run_id), list[Event]()
    while True:
        news = [decode_event(line.text) for line in await follower.news()]
        openings += [event for event in news if isinstance(event, RunStarted | RunResumed)]
        redactor = redactor_of(openings)
        for event in news:
            yield event if redactor is None else as_shown(event, redactor)
        if news and isinstance(news[-1], RunEnded):
            return
        await follower.wait()


async def cancel(run_id: str, *, journal: Journal, reason: str = "", by: str = "") -> bool:
    """Cancel a run that any process carries out, or none: return when that is on record.

    A run that no process carries out now ends at once when the next one takes it up: nothing of it starts any more.

    Args:
        run_id: The run.
        journal: The journal that has its record.
        reason: The reason in a sentence, for the record.
        by: The person who cancels it, for the record.

    Returns:
        Whether it was still open; false if it had ended.

    Raises:
        RunNotFound: There is no such run.
        JournalDamaged: The record was changed or damaged.
    """
    follower, key = RecordFollower(journal, run_id), await journal.answer_key(run_id)
    news = await follower.news()
    if not news:
        raise RunNotFound(f"run '{run_id}' has no record yet")
    if isinstance(decode_event(news[-1].text), RunEnded):
        return False
    is_due = True
    while True:
        is_held = (await held_run(journal, run_id)).is_held
        events = [decode_event(line.text) for line in await follower.news()]
        told = [event for event in events if isinstance(event, RunStopping | RunEnded)]
        if told:
            return not isinstance(told[0], RunEnded) or told[0].status is Status.CANCELLED
        if not is_held and await _stop_on_record(run_id, journal, reason, by):
            return True
        # A message counts only for the process that has written the last record: one that has resumed needs another.
        if is_held and (is_due or any(isinstance(event, RunResumed) for event in events)):
            is_due = False
            order = ControlMessage(key=key, control="cancel", after=follower.seq, reason=reason, by=by or "the host")
            await journal.post(run_id, order.model_dump_json().encode())
        await follower.wait()


async def requeue(run_id: str, *, journal: Journal) -> bool:
    """Put a submitted run back into the queue that is stuck, or that waits: the next worker takes it up.

    Args:
        run_id: The run.
        journal: The journal that has its record.

    Returns:
        Whether it was stuck or waited; false if it is in the queue, being carried out, or has ended.

    Raises:
        RunNotFound: No such run was submitted.
        ContractError: The journal takes no submitted runs.
    """
    return await queue_of(journal).put_back(run_id)


async def leave_answer(journal: Journal, run_id: str, question: str, answer: Answer, *, seconds: float = 2.0) -> bool:
    """Leave an answer for a run, and find out whether it counts: the first one does, and any other is refused.

    Args:
        journal: The journal that has the record of the run.
        run_id: The run.
        question: The id of the question; the answer fits it.
        answer: The answer.
        seconds: How long the process that holds the run, if there is one, has to take the answer.

    Returns:
        Whether it counts: it is on record, or lies in the journal of a run that nobody holds. False if the process at
        the run has not taken it yet.

    Raises:
        AnswerRefused: The question was answered already, and the message says how; or it needs no answer now.
        RunNotFound: There is no such run.
    """
    message = AnswerMessage.of(question, answer, await journal.answer_key(run_id))
    await journal.post(run_id, message.model_dump_json().encode())
    follower, closed, until = RecordFollower(journal, run_id), None, anyio.current_time() + seconds
    while True:
        is_held = (await held_run(journal, run_id)).is_held  # before the last records are read
        for event in (decode_event(line.text) for line in await follower.news()):
            if isinstance(event, QuestionAsked) and event.question.id == question:
                closed = None
            elif isinstance(event, QuestionAnswered) and event.question == question:
                closed = event
        if closed is not None:
            _must_be(answer, closed)
        if closed is not None or not is_held or anyio.current_time() >= until:
            return closed is not None or not is_held
        await follower.wait()


async def held_run(journal: Journal, run_id: str) -> Held:
    """Return which process holds a run.

    Raises:
        RunNotFound: There is no such run.
    """
    if isinstance(journal, SupportsVersions):
        return await journal.held(run_id)
    found = [held for held in await journal.runs() if held.run_id == run_id]
    if not found:
        raise RunNotFound(f"there is no run '{run_id}' in this journal")
    return found[0]


async def _stop_on_record(run_id: str, journal: Journal, reason: str, by: str) -> bool:
    """Record the early end of a run that no process holds; return false if a process holds it now."""
    try:
        async with held_run_log(partial(journal.open, run_id)) as run_log:
            events = events_of(run_id, run_log.lines)
            last = events[-1]
            if isinstance(last, RunEnded | RunStopping):
                return isinstance(last, RunStopping)  # it has ended just now: the next look sees it; or is being ended
            order = ControlMessage(control="cancel", after=1, reason=reason, by=by or "the host")
            seq, redactor = last.seq + 1, redactor_of(events)
            if isinstance(last, RunSuspended):  # nothing else may follow on it
                run_log.append(encode_event(RunResumed(seq, last.at, time.time())))
                seq += 1
            text = order.text if redactor is None else redactor.text(order.text)
            run_log.append(encode_event(RunStopping(seq, last.at, Status.CANCELLED, text)))
            await run_log.durable()
    except RunHeld:
        return False
    return True


def _must_be(answer: Answer, closed: QuestionAnswered) -> None:
    stands = closed.answer
    if stands is None:
        raise AnswerRefused(f"it needs no answer now: {closed.reason}")
    if (stands.choice, stands.by) != (answer.choice, answer.by):  # the rest may be redacted on record
        raise AnswerRefused(standing(stands))


def queue_of(journal: Journal) -> RunQueue:
    """Return the queue of a journal.

    Raises:
        ContractError: It has none.
    """
    if not isinstance(journal, Queues):
        raise ContractError(
            f"no runs can be submitted to a {type(journal).__name__}, and no worker takes runs from it: use a"
            " PostgresJournal, or carry runs out in your process, by an Engine"
        )
    return journal.queue


def build_of(opening: Opening) -> str:
    """Return a hash of everything that a worker must have for a run: contracts of tools, critics, executors, policy.

    Of runs of one build, a worker fits all or none.
    """
    facts: dict[str, Any] = {name: getattr(opening, name) for name in ("tools", "critics", "executors")}
    facts["policy"] = opening.policy.model_dump(mode="json")
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _checked(plan: AnyPlan | None, options: RunOptions) -> CheckedPlan:
    executors = options["executors"] or {}
    if options["goal"] is None or options["planner"] is not None or plan is not None:
        return first_plan(options, plan, None, executors, CheckedPlans())
    if not options["goal"].strip():
        raise ContractError("a goal needs words: goal=…")
    secrets = secrets_from(options["secrets"]) if options["secrets"] else NO_SECRETS
    toolbox = toolbox_of(options["tools"])
    if options["compose"] is not None:
        from dagrun.api.checking import with_compose

        toolbox = with_compose(toolbox, options["compose"])
    return empty_plan(options["goal"], toolbox, options["policy"] or Policy(), executors, secrets)


def _seconds(not_before: Any) -> float:
    if not_before is None:
        return 0.0
    if not isinstance(not_before, datetime) or not_before.tzinfo is None:
        raise ContractError(f"not_before is a datetime with a time zone, got {not_before!r}")
    return not_before.timestamp()
