"""The public functions: check a plan, run it, and watch it run."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import Context, ContextVar, copy_context
from functools import partial
from pathlib import Path
from random import Random
from types import ModuleType, TracebackType
from typing import Any, Self, TypeAlias, TypedDict, Unpack

import anyio
from anyio.lowlevel import current_token

from dagrun.errors import ContractError, ValueRefused
from dagrun.executors.pool import make_executors
from dagrun.executors.reports import call_soon
from dagrun.graph.budget import Budget
from dagrun.graph.check import check_plan
from dagrun.graph.checked import CheckedPlan
from dagrun.graph.frontier import Cap
from dagrun.graph.reading import read_plan
from dagrun.model.brief import Planner
from dagrun.model.event import Event
from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.protocols import Executor
from dagrun.model.question import Approver
from dagrun.model.toolbox import Toolbox, Tools
from dagrun.model.value import Stored, encode
from dagrun.model.verdict import Critic
from dagrun.runtime.artifacts import ArtifactFolder
from dagrun.runtime.observers import Callback
from dagrun.runtime.result import RunResult
from dagrun.runtime.run import Run

AnyPlan: TypeAlias = Plan | CheckedPlan | str | bytes | Path
Inputs: TypeAlias = Mapping[str, Any]


class RunOptions(TypedDict, total=False):
    """The options of `start`, for those that hand them on."""

    tools: Tools | None
    policy: Policy | None
    inputs: Inputs | None
    artifacts: Path | None
    run_id: str | None
    seed: int | None
    on_event: Callable[[Event], object] | None
    planner: Planner | None
    critics: Sequence[Critic]
    approver: Approver | None
    attended: bool


def check(
    plan: AnyPlan,
    tools: Tools | None = None,
    *,
    policy: Policy | None = None,
    inputs: Inputs | None = None,
    strict: bool = False,
) -> CheckedPlan:
    """Check a plan; what comes back may be run any number of times.

    Args:
        plan: A plan; or its text as JSON; or the path of a JSON or YAML file.
        tools: A `Toolbox`; or what one is made of: functions, tools, modules.
        policy: The limits of the run.
        inputs: What ``${input…}`` refers to, if it is known yet.
        strict: Whether advice is a reason to refuse the plan.

    Raises:
        PlanRefused: The plan has problems; all of them are in the error.
        ContractError: The tools cannot be used; or something is not of the type that it should be.
    """
    if isinstance(plan, CheckedPlan):
        if tools is not None or policy is not None or strict:
            raise ContractError("a checked plan has its tools and its policy; give them to check()")
        return plan
    _must_be("plan", plan, (Plan, str, bytes, Path), "a Plan (for a dict: Plan.model_validate), its text or a Path")
    _must_be("policy", policy, (Policy, type(None)), "a dagrun.Policy")
    _must_be("inputs", inputs, (Mapping, type(None)), "values by name: inputs={…}")
    toolbox = _toolbox(tools)
    read = plan if isinstance(plan, Plan) else read_plan(plan, toolbox=toolbox)
    return check_plan(read, toolbox, policy or Policy(), inputs=inputs, strict=strict)


@asynccontextmanager
async def start(
    plan: AnyPlan,
    *,
    tools: Tools | None = None,
    policy: Policy | None = None,
    inputs: Inputs | None = None,
    artifacts: Path | None = None,
    run_id: str | None = None,
    seed: int | None = None,
    on_event: Callable[[Event], object] | None = None,
    planner: Planner | None = None,
    critics: Sequence[Critic] = (),
    approver: Approver | None = None,
    attended: bool = False,
) -> AsyncIterator[Run]:
    """Run a plan beside the body of an ``async with``; leaving the body waits for the run to end.

    An error in the body, or a cancellation from outside, cancels the run; no task of it is left behind.

    Args:
        plan: As for `check`.
        tools: As for `check`; not with a checked plan, which has its own.
        policy: The limits of the run; not with a checked plan.
        inputs: What ``${input…}`` refers to: plain JSON by name.
        artifacts: The folder for the files of tools; `None` for a temporary one that lives as long as the result.
        run_id: A name for the run; by default a new one.
        seed: For the jitter of retry delays; `None` for a random one.
        on_event: Called with each event, right after the change that it stands for. It must be quick.
        planner: Who is asked when a step fails or surprises; see `Planner`. `None` for nobody.
        critics: Who looks at what steps give, before anything uses it; see `Critic`.
        approver: Is asked each question to people; `None` for nobody.
        attended: Whether the caller answers them, through ``run.pending`` and ``run.answer``.

    Raises:
        PlanRefused: The plan has problems; nothing was run.

    Example:
        >>> async def watch(plan, tools):
        ...     async with start(plan, tools=tools) as run:
        ...         async for event in run.events():
        ...             print(event)
        ...     return await run.result()
    """
    async with (
        Engine() as engine,
        engine.start(
            plan,
            tools=tools,
            policy=policy,
            inputs=inputs,
            artifacts=artifacts,
            run_id=run_id,
            seed=seed,
            on_event=on_event,
            planner=planner,
            critics=critics,
            approver=approver,
            attended=attended,
        ) as run,
    ):
        yield run


async def run(plan: AnyPlan, **options: Unpack[RunOptions]) -> RunResult:
    """Run a plan to its end. The options are those of `start`.

    Raises:
        PlanRefused: The plan has problems; nothing was run. A run that fails does not raise: look at the status of
            the result, or call its `raise_for_status`.
    """
    async with start(plan, **options) as running:
        return await running.result()


def run_sync(plan: AnyPlan, *, backend: str = "asyncio", **options: Unpack[RunOptions]) -> RunResult:
    """Run a plan to its end from code that is not async. The options are those of `start`.

    Works inside a running loop too, as in a notebook, which it blocks meanwhile: the run then has a loop and a thread
    of its own.

    Args:
        plan: As for `check`.
        backend: The event loop: ``asyncio`` or ``trio``.
        options: As for `start`.

    Raises:
        PlanRefused: The plan has problems; nothing was run.
    """

    async def main() -> RunResult:
        return await run(plan, **options)

    if _is_loop_running():
        return _run_in_thread(main, backend)
    return anyio.run(main, backend=backend)


# The engines that the running code is a tool of: the one that called it, and those around that one.
_ENGINES: ContextVar[frozenset[Engine]] = ContextVar("dagrun engines", default=frozenset())


class Engine:
    """What many runs share: worker threads and processes, and, if asked, one limit on running steps.

    Use it with ``async with``, for the life of a service.

    Args:
        max_running: Steps that run at once in all runs together; `None` for no limit. A tool cannot start another
            run in an engine that has this limit and runs the tool: each could wait for a place that the other holds.
        policy: The limits of each run, and the sizes of the shared pools.
        budget: Ceilings on what all runs together may use.
    """

    def __init__(
        self, *, max_running: int | None = None, policy: Policy | None = None, budget: Budget | None = None
    ) -> None:
        if max_running is not None and max_running < 1:
            raise ContractError(f"max_running must be at least 1, got {max_running}")
        self.policy = policy
        self._budget = budget
        self._shared = Cap(max_running) if max_running is not None else None
        self._executors: dict[tuple[int | None, ...], Mapping[str, Executor]] = {}
        self._is_open = False

    async def __aenter__(self) -> Self:
        self._is_open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        opened, self._executors = list(self._executors.values()), {}
        with anyio.CancelScope(shield=True):  # closing is bounded by itself, and must not leave processes behind
            for executor in (executor for group in opened for executor in group.values()):
                await executor.aclose()

    @asynccontextmanager
    async def start(
        self,
        plan: AnyPlan,
        *,
        tools: Tools | None = None,
        policy: Policy | None = None,
        inputs: Inputs | None = None,
        artifacts: Path | None = None,
        run_id: str | None = None,
        seed: int | None = None,
        on_event: Callable[[Event], object] | None = None,
        planner: Planner | None = None,
        critics: Sequence[Critic] = (),
        approver: Approver | None = None,
        attended: bool = False,
    ) -> AsyncIterator[Run]:
        """Run a plan in this engine; see `dagrun.start`."""
        if not self._is_open:
            raise ContractError("the engine is not open; use it with 'async with'")
        if on_event is not None and not _is_plain_function(on_event):
            raise ContractError("on_event is a plain function; to await something for each event, use run.events()")
        context = self._context()
        limits = policy if isinstance(plan, CheckedPlan) else policy or self.policy
        checked = check(plan, tools, policy=limits, inputs=inputs or {})
        running = Run(
            checked,
            inputs=_stored(inputs or {}),
            run_id=run_id or uuid.uuid4().hex,
            executors=self._executors_for(checked.policy),
            artifacts=ArtifactFolder(artifacts),
            context=context,
            random=Random(seed),
            shared=self._shared,
            budget=self._budget,
            planner=planner,
            critics=critics,
            approver=approver,
            attended=attended,
        )
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as tasks:
                if on_event is not None:
                    running.watch(Callback(on_event))
                running.open(tasks)
                try:
                    yield running
                    await running.wait_until_ended()
                except BaseException as error:
                    failure = error
                    running.interrupt(f"the code around the run ended with {type(error).__name__}")
                    raise
        except BaseExceptionGroup as group:
            # The task group wraps what the body raised; callers expect their own exception back. Compared by count,
            # not identity: trio hands out a copy of an exception that is itself a group.
            if failure is not None and len(group.exceptions) == 1:
                raise failure from None
            raise
        finally:
            running.close()

    async def run(self, plan: AnyPlan, **options: Unpack[RunOptions]) -> RunResult:
        """Run a plan in this engine to its end; see `dagrun.run`."""
        async with self.start(plan, **options) as running:
            return await running.result()

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

    def _executors_for(self, policy: Policy) -> Mapping[str, Executor]:
        """The executors of the sizes that *policy* wants; runs that agree on them share them."""
        key = (policy.max_threads, policy.max_stuck_threads, policy.max_processes, policy.max_process_memory)
        if key not in self._executors:
            self._executors[key] = make_executors(policy)
        return self._executors[key]


def _toolbox(tools: Tools | None) -> Toolbox:
    if isinstance(tools, Toolbox):
        return tools
    if tools is None:
        raise ContractError("name the tools that the plan may call: tools=[…]")
    if isinstance(tools, str | ModuleType) or callable(tools):
        return Toolbox(tools)
    if isinstance(tools, Mapping) or not isinstance(tools, Iterable):
        raise ContractError(f"tools is a list of tools or a Toolbox, got {type(tools).__name__}")
    return Toolbox(*tools)


def _stored(inputs: Inputs) -> Stored:
    try:
        return encode(dict(inputs))
    except ValueRefused as error:
        raise ValueRefused(f"inputs: {error}") from error


def _must_be(name: str, value: object, types: tuple[type, ...], wanted: str) -> None:
    if not isinstance(value, types):
        raise ContractError(f"{name} must be {wanted}; got {type(value).__name__}")


def _is_plain_function(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)


def _run_in_thread(main: Callable[[], Awaitable[RunResult]], backend: str) -> RunResult:
    """Run *main* on a loop in a thread of its own, with our context variables; an interrupt here cancels it there."""
    ours = copy_context()
    stops: list[Callable[[], None]] = []

    async def inside() -> RunResult:
        theirs = copy_context()
        for variable, value in ours.items():
            if variable not in theirs:  # it says there which library runs the loop, say
                variable.set(value)
        with anyio.CancelScope() as scope:
            stops.append(partial(call_soon, current_token(), scope.cancel))
            return await main()
        raise InterruptedError("the run was interrupted")  # nobody waits for it any more

    with ThreadPoolExecutor(max_workers=1) as thread:
        running = thread.submit(lambda: anyio.run(inside, backend=backend))
        try:
            return running.result()
        except BaseException:
            for stop in stops:
                stop()
            raise


def _is_loop_running() -> bool:
    try:
        current_token()
    except RuntimeError:
        return False
    return True
