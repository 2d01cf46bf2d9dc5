"""Engines: what many runs share, and how a run is opened and closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import Context, ContextVar, copy_context
from dataclasses import replace
from functools import partial
from secrets import token_hex
from types import TracebackType
from typing import Final, Self, Unpack

import anyio
from anyio.abc import TaskGroup

from dagrun.api.checking import AnyPlan, Inputs, check
from dagrun.api.learned_durations import Memory
from dagrun.api.options import Options, ResumeOptions, RetryOptions, RunOptions
from dagrun.api.record_opening import opening_of
from dagrun.api.resuming import taken_up
from dagrun.api.retrying import TakenOver, failed_part
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.decide.durations import Durations
from dagrun.decide.hedging import HedgeShare
from dagrun.errors import ContractError, PlanRefused, RunFailed, ValueRefused
from dagrun.executors.executors import Executors
from dagrun.graph.budget import Budget
from dagrun.graph.caps import Cap
from dagrun.model.event import Event
from dagrun.model.executor import Executor
from dagrun.model.journal import Journal, Tape
from dagrun.model.policy import Policy
from dagrun.model.value import Stored, encode, to_json
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.large_plans import MANY, aside, full_collections_put_off, weight_of
from dagrun.runtime.record.observers import Callback
from dagrun.runtime.result import RunResult
from dagrun.runtime.run import Run
from dagrun.runtime.run_setup import RunSetup, random_of, with_state
from dagrun.runtime.steps.endings import learns

# The engines that the running code is a tool of: the one that called it, and those around that one.
_ENGINES: ContextVar[frozenset[Engine]] = ContextVar("dagrun engines", default=frozenset())

_NOTHING: Final = nullcontext()


class Engine:
    """What many runs share: worker threads and processes, and, if asked, one limit on running steps.

    Use it with ``async with``, for the life of a service.

    Args:
        max_running: Steps that run at once in all runs together; `None` for no limit. A tool cannot start another
            run in an engine that has this limit and runs the tool: each could wait for a place that the other holds.
        policy: The limits of each run, and the sizes of the shared pools.
        budget: Ceilings on what all runs together may use.
        executors: As for `dagrun.start`, for every run; a run may bring more of its own.
        durations: What is known of how long calls take; a new one by default.

    Attributes:
        policy: The limits of each run.
        durations: How long the calls of each tool took, in all runs together. A run adds to it if it needs it: if
            something limits what runs at once, or slow calls are hedged. With it, a step without an estimate counts as
            the median of its tool when the longest remaining path is started first; that is looked up when the run
            begins, so that what it learns is for the runs after it, and does not change the order in itself. A journal
            that is a `RemembersDurations` keeps it from one process to the next.
    """

    def __init__(
        self,
        *,
        max_running: int | None = None,
        policy: Policy | None = None,
        budget: Budget | None = None,
        executors: Mapping[str, Executor] | None = None,
        durations: Durations | None = None,
    ) -> None:
        if max_running is not None and max_running < 1:
            raise ContractError(f"max_running must be at least 1, got {max_running}")
        self.policy = policy
        self._memory = Memory(durations)
        self.durations = self._memory.durations
        self._hedge_share = HedgeShare()
        self._budget = budget
        self._shared = Cap(max_running) if max_running is not None else None
        self._executors = Executors(executors)
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._executors.aclose()

    def start(self, plan: AnyPlan | None = None, **options: Unpack[RunOptions]) -> AbstractAsyncContextManager[Run]:
        """Run a plan in this engine; see `dagrun.start`."""
        opened, steps = self._open(plan, Options(**options)), weight_of(plan)
        return opened if steps < MANY else _unhurried(opened, steps)

    async def run(self, plan: AnyPlan | None = None, **options: Unpack[RunOptions]) -> RunResult:
        """Run a plan in this engine to its end; see `dagrun.run`."""
        async with self.start(plan, **options) as running:
            return await running.result()

    async def draft(self, **options: Unpack[RunOptions]) -> CheckedPlan:
        """Get the plan for a goal in this engine; see `dagrun.draft`."""
        made = Options(**options)
        known = made.plan_of(None, self.policy, self._executors.named(made.executors))
        if known.steps:
            return known
        async with self._open(None, made, is_plan_only=True) as running:
            result = await running.result()
        if result.problems:
            raise PlanRefused(result.problems)
        if not result.has_plan:
            raise RunFailed(str(result.status), result.reason)
        drafted = result.plan.current
        return check(
            drafted,
            known.toolbox,
            policy=known.policy,
            inputs=made.inputs or {},
            executors=known.executors,
            secrets=known.secrets,
        )

    @asynccontextmanager
    async def resume(self, run_id: str, **options: Unpack[ResumeOptions]) -> AsyncIterator[Run]:
        """Go on with a run in this engine; see `dagrun.resume`."""
        self._must_be_open()
        named = self._executors.named(options.get("executors"))
        async with taken_up(run_id, options, named, self.policy) as past:
            journal = self._teacher(options["journal"], past.setup.plan)
            await self._memory.recall(journal)
            setup = replace(
                past.setup,
                executors=self._executors.of(past.setup.plan, named),
                context=self._context(),
                shared=self._shared,
                budget=self._budget,
                durations=self.durations,
                hedge_share=self._hedge_share,
            )
            running = Run(await with_state(setup))
            await aside(len(past.events), partial(past.fold, running))
            begin = partial(running.take_up, last=past.last, resumed=past.resumed)
            async with (
                self._memory.kept(journal, running),
                _carried_out(running, begin, options.get("on_event")),
            ):
                yield running

    @asynccontextmanager
    async def retry(self, run_id: str, **options: Unpack[RetryOptions]) -> AsyncIterator[Run]:
        """Do again what has failed of a run that has ended; see `dagrun.retry`."""
        again = await failed_part(run_id, options, self._executors.named(options.get("executors")), self.policy)
        async with self._open(again.plan, again.options, taken_over=again) as running:
            yield running

    @asynccontextmanager
    async def _open(
        self,
        plan: AnyPlan | None,
        options: Options,
        *,
        is_plan_only: bool = False,
        taken_over: TakenOver | None = None,
    ) -> AsyncIterator[Run]:
        self._must_be_open()
        context = self._context()
        named = self._executors.named(options.executors)
        checked = await aside(_to_check(plan), partial(options.plan_of, plan, self.policy, named))
        run_id = options.run_id or token_hex(16)
        inputs = _stored(options.inputs or {})
        if name := checked.secrets.found_in(to_json(inputs).decode()):
            raise ContractError(f"the inputs hold the secret {name}, and would be recorded; let the plan pass a handle")
        # Before there is a tape: what is refused here must not leave a run without records, whose name is taken.
        opening = opening_of(checked, inputs, run_id, options, taken_over) if options.journal is not None else None
        # As a layer around every run, what is only for those that are written down would be felt.
        written = _written(run_id, options.journal) if options.journal is not None else _NOTHING
        async with written as tape:
            journal = self._teacher(options.journal, checked)
            await self._memory.recall(journal)
            setup = RunSetup(
                plan=checked,
                inputs=inputs,
                run_id=run_id,
                executors=self._executors.of(checked, named),
                artifacts=ArtifactFolder(options.artifacts or (tape.artifacts if tape is not None else None)),
                context=context,
                random=random_of(options.seed),
                opening=opening,
                tape=tape,
                shared=self._shared,
                budget=self._budget,
                planner=options.planner,
                critics=options.critics,
                approver=options.approver,
                attended=options.attended,
                durations=self.durations,
                hedge_share=self._hedge_share,
                is_plan_only=is_plan_only,
            )
            if taken_over is not None:
                await taken_over.bring(setup.artifacts)
            running = Run(await with_state(setup))
            begin = partial(running.open, taken_over=taken_over.settle if taken_over is not None else None)
            kept = self._memory.kept(journal, running) if journal is not None else _NOTHING
            async with kept, _carried_out(running, begin, options.on_event):
                yield running

    def _teacher(self, journal: Journal | None, plan: CheckedPlan) -> Journal | None:
        """The journal, if a run of *plan* has any use for how long calls took."""
        return journal if journal is not None and learns(plan.policy, self._shared) else None

    def _must_be_open(self) -> None:
        if not self._is_open:
            raise ContractError("the engine is not open; use it with 'async with'")

    def _context(self) -> Context:
        """The context variables for a new run; refused to a tool that would make this engine wait for itself."""
        if self._shared is not None and self in _ENGINES.get():
            raise ContractError(
                "a tool cannot start a run in the engine that it runs in, because max_running could make the two wait "
                "for each other; use dagrun.run, or an engine of its own"
            )
        context = copy_context()
        context.run(_ENGINES.set, _ENGINES.get() | {self})
        return context


def _to_check(plan: AnyPlan | None) -> int:
    """How many steps have still to be checked, or so many as take as long."""
    return 0 if isinstance(plan, CheckedPlan) else weight_of(plan)


def _stored(inputs: Inputs) -> Stored:
    if not inputs:
        return b"{}"
    try:
        return encode(dict(inputs))
    except ValueRefused as error:
        raise ValueRefused(f"inputs: {error}") from error


@asynccontextmanager
async def _unhurried(opened: AbstractAsyncContextManager[Run], steps: int) -> AsyncIterator[Run]:
    """A run of so many steps, with full collections put off."""
    with full_collections_put_off(steps):
        async with opened as running:
            yield running


@asynccontextmanager
async def _written(run_id: str, journal: Journal) -> AsyncIterator[Tape]:
    """A tape for a new run, closed when the run has ended."""
    tape = await journal.create(run_id)
    try:
        yield tape
    finally:
        with anyio.CancelScope(shield=True):
            await tape.aclose()


@asynccontextmanager
async def _carried_out(
    running: Run, begin: Callable[[TaskGroup], Awaitable[None]], on_event: Callable[[Event], object] | None
) -> AsyncIterator[None]:
    """Begin *running* in a task group of its own, and wait for its end after the body."""
    failure: BaseException | None = None
    try:
        async with anyio.create_task_group() as tasks:
            if on_event is not None:
                running.watch(Callback(on_event))
            try:
                await begin(tasks)
                yield
                await running.wait_until_ended()
            except BaseException as error:
                failure = error
                running.interrupt(f"the code around the run ended with {type(error).__name__}")
                raise
    except BaseExceptionGroup as group:
        # The task group wraps what the body raised; callers expect their own exception back. Compared by count,
        # not identity: trio hands out a copy of an exception that is itself a group. And by type: a fault of our
        # own cancels the body, which is then not what went wrong.
        if failure is not None and len(group.exceptions) == 1 and type(group.exceptions[0]) is type(failure):
            raise failure from None
        raise
    finally:
        running.close()
        del failure  # its traceback leads back to this frame
