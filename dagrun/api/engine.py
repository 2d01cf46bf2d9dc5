"""`Engine`: the resources that many runs share; and how a run is built, opened and closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from functools import partial
from secrets import token_hex
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from weakref import WeakSet

import anyio
from anyio.abc import TaskGroup

from dagrun.api import preloading
from dagrun.api.checking import AnyPlan, CheckedPlans, check, first_plan, steps_to_check, with_executors
from dagrun.api.options import ResumeOptions, RetryOptions, lists_options, run_options
from dagrun.api.record_opening import (
    Descent,
    held_run_log,
    new_run_log,
    open_record,
    opened_for_resume,
    opening_of,
    sealer_of,
    traceparent_of,
    with_traceparent,
)
from dagrun.api.shared_by_runs import MAX_CACHE_BYTES, EngineFeatures, LearnedDurations
from dagrun.errors import ContractError, PlanRefused, ValueRefused, ValueTooLarge
from dagrun.executors.executors import Executors
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.decide.durations import Durations
from dagrun.kernel.decide.exception_text import interrupt_in
from dagrun.kernel.graph.ledger import Budget
from dagrun.kernel.graph.node import Cap
from dagrun.kernel.model.event import Opening
from dagrun.kernel.model.executor import Executor
from dagrun.kernel.model.journal import Journal, RunLog
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.tracing import RunTracer, TracedRun, Traces
from dagrun.kernel.model.value import Stored, encode, to_json
from dagrun.kernel.runtime.artifacts import ArtifactFolder
from dagrun.kernel.runtime.backend import off_loop
from dagrun.kernel.runtime.record.event_log import Callback
from dagrun.kernel.runtime.result import RunResult
from dagrun.kernel.runtime.run import Run
from dagrun.kernel.runtime.run_options import Inputs, RunOptions
from dagrun.kernel.runtime.run_parts import CallSettings, OpenRecord, RunSetup, SharedByRuns, build_large
from dagrun.kernel.runtime.steps.attempt_completion import learns
from dagrun.presenters import face

if TYPE_CHECKING:
    from dagrun.api.retrying import TakenOver

# The marks of the engines around the running code: of the one that called it as a tool, of the one that called that
# one, and so on. Not the engines: a timer that a tool leaves behind keeps its context variables alive.
_ENGINES: ContextVar[frozenset[object]] = ContextVar("dagrun engines", default=frozenset())

_NOTHING: Final = nullcontext()


class Engine:
    """Worker threads and processes that many runs share, and, if asked for, one limit on running steps.

    Use it with ``async with``, for the life of a service.

    Args:
        max_running: Steps that run at once in all runs together; `None` for no limit. If there is a limit, a tool
            cannot start another run in the engine that runs the tool: each could wait for a place that the other holds.
            That is also so if the tool lets a task of the host start the run. dagrun cannot see that; give such a tool
            a time limit, whose failure then names the runs that have waited.
        policy: The limits of each run, and the sizes of the shared pools.
        budget: Ceilings on the use of all runs together; `None` for none.
        executors: Executors by name for every run, as in `dagrun.api.RunOptions`; a run may bring more.
        durations: Known durations of calls; `None` for none yet.
        tracing: Traces the runs, unless a run brings its own: a `dagrun.Tracing`; `None` for no traces.
        deps: The dependencies of the tools of every run, as in `dagrun.api.RunOptions`; a run may bring others in
            their place.
        max_cache_bytes: The most bytes that the kept results of tools with a `cache` take in memory, in all runs
            together; 64 MiB unless something else is said, 0 to keep none.

    Attributes:
        policy: The limits of each run.
        durations: The durations of the calls of each tool, in all runs together. A run uses and extends them only if
            a limit on running steps makes the order matter, or slow calls are hedged. A step without an estimate then
            counts with the median of its tool, when the longest remaining path is started first. The medians are read
            when a run begins; durations that it adds count in later runs, and do not change its own order. A journal
            that is a `SupportsDurations` keeps them from one process to the next.
    """

    def __init__(
        self,
        *,
        max_running: int | None = None,
        policy: Policy | None = None,
        budget: Budget | None = None,
        executors: Mapping[str, Executor] | None = None,
        durations: Durations | None = None,
        tracing: Traces | None = None,
        deps: Any = None,
        max_cache_bytes: int = MAX_CACHE_BYTES,
    ) -> None:
        if max_cache_bytes < 0:
            raise ContractError(f"max_cache_bytes is a number of bytes, 0 or more, got {max_cache_bytes}")
        if max_running is not None and max_running < 1:
            raise ContractError(f"max_running must be at least 1, got {max_running}")
        self.policy = policy
        self._memory = LearnedDurations(durations)
        self.durations = self._memory.durations
        cap = Cap(max_running) if max_running is not None else None
        self._shared = SharedByRuns(
            cap=cap,
            budget=budget,
            durations=self.durations,
        )
        self._features = EngineFeatures(max_cache_bytes)
        self._executors = Executors(executors)
        self._tracing = tracing
        self._deps = deps
        self._is_open = False
        self._mark = object()
        self._checked = CheckedPlans()
        self._runs: WeakSet[Run] = WeakSet()

    def __repr__(self) -> str:
        cap = self._shared.cap
        limit = "" if cap is None else f", at most {cap.limit} steps at once"
        return f"<Engine: {'open' if self._is_open else 'closed'}{limit}>"

    async def __aenter__(self) -> Self:
        if not preloading.is_done:
            await preloading.preload_aside()
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._executors.aclose()

    @property
    def runs(self) -> dict[str, Run]:
        """The open runs of this engine, by id."""
        return {run.id: run for run in self._runs if not run.has_ended}

    @lists_options(RunOptions)
    def start(self, plan: AnyPlan | None = None, **options: Unpack[RunOptions]) -> AbstractAsyncContextManager[Run]:
        """Run a plan in this engine; see `dagrun.start`."""
        return self._open(plan, run_options(self._with_deps(options)))

    @lists_options(RunOptions)
    async def run(self, plan: AnyPlan | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run a plan in this engine to its end; see `dagrun.run`."""
        async with self.start(plan, **options) as running:
            return await running.result()

    @lists_options(RunOptions)
    async def draft(self, **options: Unpack[RunOptions]) -> CheckedPlan:
        """Get the plan for a goal in this engine; see `dagrun.draft`."""
        chosen = run_options(self._with_deps(options))
        known = first_plan(chosen, None, self.policy, self._executors.named(chosen["executors"]), self._checked)
        if known.steps:
            return known
        async with self._open(None, chosen, is_plan_only=True) as running:
            result = await running.result()
        if result.problems:
            raise PlanRefused(result.problems)
        if not result.has_plan:
            raise result.as_error()
        drafted = result.plan.current
        return check(
            drafted,
            known.toolbox,
            policy=known.policy,
            inputs=chosen["inputs"] or {},
            executors=known.executors,
            secrets=known.secrets,
            redact=known.redact,
        )

    @lists_options(ResumeOptions)
    def resume(self, run_id: str, **options: Unpack[ResumeOptions]) -> AbstractAsyncContextManager[Run]:
        """Resume a run in this engine; see `dagrun.resume`."""
        return self._resume(run_id, options, None)

    def resume_held(self, run_log: RunLog, options: ResumeOptions) -> AbstractAsyncContextManager[Run]:
        """Resume a run whose record the caller has opened, as a worker has, and closes after the run.

        Args:
            run_log: The record.
            options: The options of `resume`.
        """
        return self._resume(run_log.run_id, options, run_log)

    @asynccontextmanager
    async def _resume(self, run_id: str, options: ResumeOptions, held: RunLog | None) -> AsyncIterator[Run]:
        self._must_be_open()
        named = self._executors.named(options.get("executors"))
        options = self._with_deps(options)
        async with opened_for_resume(run_id, options, named, self.policy, held) as past:
            plan, run_log = with_executors(past.plan, named, is_begun=True), past.record.run_log
            journal = self._teacher(options["journal"], plan)
            await self._memory.recall(journal)
            folder = ArtifactFolder(past.options["artifacts"] or run_log.artifacts)
            earlier = traceparent_of(past.events)
            tracer = self._tracer(past.options, plan, run_id, earlier=earlier, relation="resumes")
            setup = RunSetup(
                plan=plan,
                inputs=past.inputs,
                run_id=run_id,
                options=past.options,
                shared=self._shared,
                calls=CallSettings(self._executors.of(plan, named), folder, self._context()),
                record=past.record,
                tracer=tracer,
            )
            await build_large(setup)
            running = Run(setup, self._features)
            await off_loop(len(past.events), partial(past.fold, running))
            resumed = partial(past.resumed, traceparent="" if tracer is None else tracer.traceparent)
            begin = partial(running.resume, last=past.last, resumed=resumed)
            async with (
                self._memory.kept(journal, running),
                _carried_out(running, begin, past.options, tracer),
            ):
                yield self._listed(running)

    @lists_options(RetryOptions)
    @asynccontextmanager
    async def retry(self, run_id: str, **options: Unpack[RetryOptions]) -> AsyncIterator[Run]:
        """Run again the failed part of a run that has ended; see `dagrun.retry`."""
        from dagrun.api.retrying import failed_part

        options = self._with_deps(options)
        again = await failed_part(run_id, options, self._executors.named(options.get("executors")), self.policy)
        async with self._open(again.plan, again.options, taken_over=again) as running:
            yield running

    @asynccontextmanager
    async def _open(
        self,
        plan: AnyPlan | None,
        options: RunOptions,
        *,
        is_plan_only: bool = False,
        taken_over: TakenOver | None = None,
    ) -> AsyncIterator[Run]:
        self._must_be_open()
        context = self._context()
        named = self._executors.named(options["executors"])
        check_it = partial(first_plan, options, plan, self.policy, named, self._checked)
        checked = await off_loop(steps_to_check(plan), check_it)
        run_id = options["run_id"] or token_hex(16)
        inputs = stored_inputs(options["inputs"] or {}, checked.policy.max_argument_bytes)
        if name := checked.secrets.found_in(to_json(inputs).decode()):
            raise ContractError(f"the inputs hold the secret {name}, and would be recorded; let the plan pass a handle")
        earlier = "" if taken_over is None else taken_over.traceparent
        tracer = self._tracer(options, checked, run_id, earlier=earlier, relation="retries")
        if tracer is not None:
            options = with_traceparent(options, tracer)
        async with _recorded(run_id, checked, inputs, options, taken_over) as record:
            journal = self._teacher(options["journal"], checked)
            await self._memory.recall(journal)
            folder = ArtifactFolder(options["artifacts"] or (record.run_log.artifacts if record is not None else None))
            setup = RunSetup(
                plan=checked,
                inputs=inputs,
                run_id=run_id,
                options=options,
                shared=self._shared,
                calls=CallSettings(self._executors.of(checked, named), folder, context),
                record=record,
                is_plan_only=is_plan_only,
                tracer=tracer,
            )
            if taken_over is not None:
                await taken_over.bring(folder)
            await build_large(setup)
            running = Run(setup, self._features)
            begin = partial(running.open, taken_over=taken_over.settle if taken_over is not None else None)
            kept = self._memory.kept(journal, running) if journal is not None else _NOTHING
            async with kept, _carried_out(running, begin, options, tracer):
                yield self._listed(running)

    def _tracer(
        self, options: RunOptions, plan: CheckedPlan, run_id: str, *, earlier: str, relation: str
    ) -> RunTracer | None:
        """Begin to trace a run, if it is to be traced."""
        tracing = options["tracing"] if options["tracing"] is not None else self._tracing
        if tracing is None:
            return None
        facts = TracedRun(
            run_id=run_id, steps=len(plan.steps), redactor=plan.redactor, earlier=earlier, relation=relation
        )
        return tracing.begin(facts)

    def _teacher(self, journal: Journal | None, plan: CheckedPlan) -> Journal | None:
        """Return the journal, if a run of *plan* uses durations of calls."""
        return journal if journal is not None and learns(plan.policy, self._shared.cap) else None

    def _listed(self, running: Run) -> Run:
        self._runs.add(running)
        return running

    def _with_deps(self, options: Any) -> Any:
        """Return the options of a run with the dependencies of the engine, unless it brings its own."""
        return {**options, "deps": self._deps} if options.get("deps") is None and self._deps is not None else options

    def _must_be_open(self) -> None:
        if not self._is_open:
            raise ContractError("the engine is not open; use it with 'async with'")

    def _context(self) -> Context:
        """Return the context variables of a new run; refuse a tool that would make this engine wait for itself."""
        if self._shared.cap is not None and self._mark in _ENGINES.get():
            raise ContractError(
                "a tool cannot start a run in the engine that it runs in, because max_running could make the two wait "
                "for each other; use dagrun.run, or an engine of its own"
            )
        context = copy_context()
        context.run(_ENGINES.set, _ENGINES.get() | {self._mark})
        return context


def stored_inputs(inputs: Inputs, limit: int) -> Stored:
    """Return the inputs of a run as its record has them.

    Raises:
        ValueRefused: They are no JSON, or have more than *limit* bytes.
    """
    if not inputs:
        return b"{}"
    try:
        return encode(dict(inputs), limit)
    except ValueTooLarge as error:
        raise ValueRefused(f"inputs: {error}; the ceiling is max_argument_bytes of the policy") from error
    except ValueRefused as error:
        raise ValueRefused(f"inputs: {error}") from error


def _recorded(
    run_id: str, checked: CheckedPlan, inputs: Stored, options: RunOptions, taken_over: TakenOver | None
) -> AbstractAsyncContextManager[OpenRecord | None]:
    """Open the record of a new run; `None` without a journal, as a generator around every run would cost time."""
    if options["journal"] is None:
        return _NOTHING
    # Before there is a run log: what is refused here must not leave a run without records, whose name is taken.
    descent = Descent(parent="", root=run_id) if taken_over is None else taken_over.descent
    opening, sealer = opening_of(checked, inputs, descent, options), sealer_of(options, run_id)
    return _open_record(run_id, options["journal"], opening, partial(open_record, plan=checked, sealer=sealer))


@asynccontextmanager
async def _open_record(
    run_id: str, journal: Journal, opening: Opening, made: Callable[[RunLog, Opening], OpenRecord]
) -> AsyncIterator[OpenRecord]:
    async with held_run_log(partial(new_run_log, journal, run_id)) as run_log:
        yield made(run_log, opening)


def _watched(running: Run, options: RunOptions, tracer: RunTracer | None) -> None:
    """Show the events of a run to all that the options name."""
    if tracer is not None:
        running.watch(tracer)
    if options["on_event"] is not None:
        running.watch(Callback(options["on_event"]))
    if options["show"]:
        face("show")(running)


@asynccontextmanager
async def _carried_out(
    running: Run,
    begin: Callable[[TaskGroup], Awaitable[None]],
    options: RunOptions,
    tracer: RunTracer | None,
) -> AsyncIterator[None]:
    """Begin a run in a task group of its own, and wait for its end after the body."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            _watched(running, options, tracer)
            try:
                await begin(tasks)
                yield
                await running.wait_until_ended()
            except BaseException as error:
                failure = error
                running.interrupt(f"the code around the run ended with {type(error).__name__}")
                raise
    except BaseExceptionGroup as group:
        if (interrupt := interrupt_in(group)) is not None:
            raise interrupt from None
        # The task group wraps the exception of the body, but callers expect their own exception. The two are compared
        # by count and type. Not by identity: trio passes on a copy of an exception that is itself a group. By type,
        # because a fault of our own also cancels the body, and is then the exception to raise.
        if failure is not None and len(group.exceptions) == 1 and type(group.exceptions[0]) is type(failure):
            raise failure from None
        raise
    else:
        # anyio takes a `Task.cancel` that meets a cancellation of its own for the latter, and the group swallows it.
        if isinstance(failure, asyncio.CancelledError):
            raise failure
    finally:
        running.close()
        if tracer is not None:
            tracer.end()
        del failure  # its traceback refers to this frame: a circle
