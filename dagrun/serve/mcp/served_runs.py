"""Runs that are carried out for callers elsewhere: started, looked at, answered, cancelled. It knows no protocol.

The rules:

1. A caller reaches only runs that were started here, now or by an earlier process: their records say so.
2. A call that waits for its run is the run's life: if the call is cancelled, everything in the run is stopped.
3. A run that waits for people has ended for now. Its answers are left in the journal, and the run is resumed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from dagrun.api.checking import check
from dagrun.api.engine import Engine
from dagrun.api.replaying import Replayed, replay
from dagrun.errors import AnswerRefused, DagrunError, PlanRefused, shorten
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.decide.questions import fault_of
from dagrun.kernel.model.journal import Journal
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Answer, Question
from dagrun.kernel.model.redaction.redactor import Redactor, without_secrets
from dagrun.kernel.model.secrets import NO_SECRETS, Secrets
from dagrun.kernel.model.tool import Toolbox
from dagrun.kernel.runtime.result import RunResult
from dagrun.kernel.runtime.run import Run
from dagrun.serve.questions import shown_question
from dagrun.workers.submitting import leave_answer

Report = Callable[[float, float, str], Awaitable[None]]  # the amount done, the total, and the last message

SERVED: Final = "served_by"
_LOG: Final = logging.getLogger("dagrun.mcp")
_MOST_FAILURES: Final = 10


class RequestRefused(DagrunError):
    """A request cannot be served; the message has the reason, for the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """The settings that all runs of a server share.

    Attributes:
        toolbox: The tools that plans may call.
        journal: Where runs are recorded.
        policy: The limits of each run.
        secrets: The secrets that plans may name.
        deps: The dependencies of the tools.
        labels: Notes for people, kept with each run.
        record_key: Seals what the policy takes out of records.
    """

    toolbox: Toolbox
    journal: Journal
    policy: Policy
    secrets: Secrets = NO_SECRETS
    deps: Any = None
    labels: Mapping[str, Any] = field(default_factory=dict)
    record_key: str | bytes | None = None


class ServedRuns:
    """The runs of one server.

    Args:
        engine: Carries them out; it is open.
        host: What they have.
        tasks: For runs that no call waits for.
    """

    def __init__(self, engine: Engine, host: Host, tasks: TaskGroup) -> None:
        self._engine = engine
        self._host = host
        self._tasks = tasks
        self._open: set[anyio.Event] = set()  # one for each run whose record is held; it is set when that is let go

    def check(self, plan: Mapping[str, Any], inputs: Mapping[str, Any] | None = None) -> CheckedPlan:
        """Check a plan.

        Raises:
            PlanRefused: It has problems.
        """
        host = self._host
        return check(json.dumps(plan), host.toolbox, policy=host.policy, inputs=inputs, secrets=host.secrets)

    async def run(self, plan: CheckedPlan, inputs: Mapping[str, Any], report: Report) -> dict[str, Any]:
        """Run a plan, and return its end, or the questions that it waits for."""
        return await self._carried_out(self._start(plan, inputs, token_hex(8)), report)

    async def begin(self, plan: CheckedPlan, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to carry out a plan, and return at once."""
        run_id = token_hex(8)
        started = anyio.Event()
        failures: list[Exception] = []

        async def carry_out() -> None:
            try:
                async with self._start(plan, inputs, run_id) as run:
                    started.set()
                    await run.result()
            except Exception as error:  # noqa: BLE001  (a run that nobody waits for must not end the server)
                failures.append(error)
                _LOG.error("run %s: %s", run_id, error)
            finally:
                started.set()

        self._tasks.start_soon(carry_out)
        await started.wait()
        if failures:
            raise RequestRefused(f"the run could not be started: {shorten(str(failures[0]))}")
        return {"status": "running", "run": run_id}

    @asynccontextmanager
    async def _held(self, opened: AbstractAsyncContextManager[Run]) -> AsyncIterator[Run]:
        closed = anyio.Event()
        self._open.add(closed)
        try:
            async with opened as run:
                yield run
        finally:
            self._open.discard(closed)
            closed.set()

    def _start(self, plan: CheckedPlan, inputs: Mapping[str, Any], run_id: str) -> AbstractAsyncContextManager[Run]:
        host = self._host
        opened = self._engine.start(
            plan,
            inputs=inputs,
            run_id=run_id,
            journal=host.journal,
            deps=host.deps,
            labels={**host.labels, SERVED: "mcp"},
            record_key=host.record_key,
        )
        return self._held(opened)

    async def _carried_out(self, opened: AbstractAsyncContextManager[Run], report: Report) -> dict[str, Any]:
        async with opened as run, anyio.create_task_group() as watching:
            await report(0, len(run.states) + 1, f"run {run.id} has started")
            watching.start_soon(_tell, run, report)
            result = await run.result()
            watching.cancel_scope.cancel()
        outcome = self._outcome(result, run.pending)
        if result.status is not Status.WAITING:
            await report(len(run.states) + 1, len(run.states) + 1, f"run {run.id}: {result.status}")
        return outcome

    async def status(self, run_id: str) -> dict[str, Any]:
        """Return where a run stands.

        Raises:
            RequestRefused: There is no such run.
        """
        running = self._engine.runs.get(run_id)
        if running is not None:
            states = {id_: str(state) for id_, state in running.states.items()}
            return {"status": "running", "run": run_id, "steps": states, "questions": self._shown(running.pending)}
        past = await self._past(run_id)
        status = "interrupted" if past.status is None else str(past.status)
        states = {id_: str(state) for id_, state in past.states.items()}
        found = {"status": status, "run": run_id, "steps": states, "questions": self._shown(past.pending)}
        return {**found, "reason": past.reason} if past.reason else found

    async def answer(self, run_id: str, answers: list[Mapping[str, Any]], report: Report) -> dict[str, Any]:
        """Answer questions of a run; if it waits for them, resume it, and return how it has ended.

        Args:
            run_id: The run.
            answers: Each with *question*, *choice*, and perhaps *value*, *note* and *ticked*.
            report: Is told about steps that have ended.

        Raises:
            RequestRefused: There is no such run or question, or an answer does not fit.
        """
        running = self._engine.runs.get(run_id)
        if running is not None:
            for question, answer in _fitting(running.pending, answers):
                await running.answer(question, answer)
            return await self.status(run_id)
        past = await self._past(run_id)
        for question, answer in _fitting(past.pending, answers):
            try:
                await leave_answer(self._host.journal, run_id, question.id, answer)
            except AnswerRefused as error:
                raise RequestRefused(f"question {question.id}: {error}") from error
        return await self._carried_out(self._resume(run_id), report)

    async def cancel(self, run_id: str, reason: str) -> dict[str, Any]:
        """Cancel a run, and return how it has ended.

        Raises:
            RequestRefused: There is no such run, or it has ended.
        """
        running = self._engine.runs.get(run_id)
        if running is not None:
            running.cancel(reason=reason)
            return self._outcome(await running.result(), ())
        past = await self._past(run_id)
        if past.has_ended:
            raise RequestRefused(f"run {run_id} has ended: {past.status}")
        async with self._resume(run_id) as run:
            run.cancel(reason=reason)
            return self._outcome(await run.result(), ())

    async def suspend(self) -> None:
        """Suspend every open run, and wait until its record is released: a later server may resume it."""
        for run in self._engine.runs.values():
            run.suspend("the server was stopped")
        for closed in list(self._open):
            await closed.wait()

    def _resume(self, run_id: str) -> AbstractAsyncContextManager[Run]:
        host = self._host
        opened = self._engine.resume(
            run_id,
            tools=host.toolbox,
            journal=host.journal,
            secrets=host.secrets,
            deps=host.deps,
            record_key=host.record_key,
        )
        return self._held(opened)

    async def _past(self, run_id: str) -> Replayed:
        unknown = RequestRefused(f"there is no run {shorten(run_id, 60)} of this server")
        try:
            past = await replay(run_id, journal=self._host.journal, record_key=self._host.record_key)
        except DagrunError as error:
            raise unknown from error
        if past.opening.labels.get(SERVED) != "mcp":
            raise unknown
        return past

    def _outcome(self, result: RunResult, pending: tuple[Question, ...]) -> dict[str, Any]:
        """Return how a run has ended, as plain JSON without secrets."""
        made: dict[str, Any] = {"status": str(result.status), "run": result.run_id}
        if result.status is Status.WAITING:
            return {**made, "questions": self._shown(pending)}
        made["output"] = without_secrets(self._host.secrets, result.shown_output)
        if result.status is not Status.SUCCEEDED:
            failures = [
                f"{id_}: {step.failure.message}" for id_, step in result.steps.items() if step.failure is not None
            ]
            made |= {"reason": result.reason, "failures": failures[:_MOST_FAILURES]}
        return made

    def _shown(self, questions: tuple[Question, ...]) -> list[dict[str, Any]]:
        redactor = Redactor(self._host.secrets, self._host.policy.redact)
        return [shown_question(question, redactor) for question in questions]


def problems_of(refused: PlanRefused) -> list[dict[str, str]]:
    """Return the problems of a plan as plain JSON."""
    return [{"code": each.code, "path": each.path, "message": each.sentence} for each in refused.problems]


async def _tell(run: Run, report: Report) -> None:
    """Report each step that has ended, until the run has: each once, as progress must increase."""
    nodes, ended = run.graph.nodes, set[str]()
    async for event in run.events():
        step = getattr(event, "step", "")
        if step in nodes and step not in ended and nodes[step].state.is_settled:
            ended.add(step)
            await report(len(ended), len(nodes) + 1, f"step {step}: {nodes[step].state}")


def _fitting(questions: tuple[Question, ...], answers: list[Mapping[str, Any]]) -> list[tuple[Question, Answer]]:
    """Return the answers with their questions, before any of them is given.

    Raises:
        RequestRefused: A question is not open, or an answer does not fit it.
    """
    by_id = {question.id: question for question in questions}
    found: list[tuple[Question, Answer]] = []
    for each in answers:
        question = by_id.get(str(each.get("question")))
        if question is None:
            known = ", ".join(by_id) or "none"
            raise RequestRefused(f"question {shorten(str(each.get('question')), 64)} is not open; open are: {known}")
        note, ticked = each.get("note", ""), each.get("ticked", [])
        answer = Answer(each.get("choice", ""), each.get("value"), by="mcp", note=note, ticked=tuple(ticked))
        if fault := fault_of(question, answer):
            raise RequestRefused(f"this does not answer question {question.id}: {fault}")
        found.append((question, answer))
    if not found:
        raise RequestRefused("there is no answer in the list")
    return found
