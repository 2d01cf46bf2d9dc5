"""A plan for a goal, drafted by a planner with a live display and signals; nothing is run."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import anyio

from dagrun.api import draft
from dagrun.api.preloading import OWN_LOOP
from dagrun.cli.jobs.execute import unwrapped
from dagrun.cli.jobs.job import Goal
from dagrun.cli.terminal import signals as interrupts
from dagrun.cli.terminal.display import Display, make_display
from dagrun.cli.terminal.signals import Interrupts
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.event import DraftEnded, Event, PlannerCalled, Spliced, StepSettled
from dagrun.kernel.model.outcome import Status
from dagrun.kernel.model.patch import Add
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.planner import Brief, Planner, RevisedBy, rungs_of
from dagrun.kernel.model.usage import ModelUse
from dagrun.kernel.runtime.backend import loop_options
from dagrun.planners.fallback_chain import FallbackChain

# These events are not shown: without a run, a refused draft does not end the planning, and no step is cancelled.
_NOT_SHOWN: Final = (DraftEnded, Spliced, StepSettled)


@dataclass(kw_only=True)
class PlanDraft:
    """Asks a planner for a plan.

    Attributes:
        goal: The goal of the plan, with the tools that it may call.
        planner: Writes the plan.
        inputs: The values of ``${input…}``. Only their shapes reach the planner, unless the policy says otherwise.
        is_shown: Whether the progress of the planner may be shown on the standard error.
        log_level: The least level of log records that are shown.
        plan: The plan; `None` if the planner was interrupted.
        steps: The steps that the planner has streamed so far.
        calls: How often the planner was called.
        spent: What these calls have used.
        seconds: How long they took.
        stopped_by: The signal that interrupted the planner, for people; empty if there was none.
        code: The exit code of a process that was interrupted by this signal.
    """

    goal: Goal
    planner: Planner
    inputs: Mapping[str, Any] = field(default_factory=dict)
    is_shown: bool = True
    log_level: int = logging.WARNING
    plan: CheckedPlan | None = field(default=None, init=False)
    steps: list[Step] = field(default_factory=list, init=False)
    calls: int = field(default=0, init=False)
    spent: ModelUse = field(default_factory=ModelUse, init=False)
    seconds: float = field(default=0.0, init=False)
    stopped_by: str = field(default="", init=False)
    code: int = field(default=0, init=False)

    def get(self) -> None:
        """Get the plan, unless Ctrl-C or another signal interrupts the planner.

        Raises:
            PlanRefused: The plan of the planner has problems, also after it was told of them.
            RunFailed: The planner gave no plan.
        """
        began = time.monotonic()
        try:
            with Interrupts() as signals, unwrapped():
                anyio.run(self._get, signals, backend_options=loop_options())
        finally:
            self.seconds = time.monotonic() - began

    async def _get(self, signals: Interrupts) -> None:
        OWN_LOOP.set(True)
        with make_display(is_shown=self.is_shown, log_level=self.log_level) as display:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(display.keep_fresh)
                with anyio.CancelScope() as scope:
                    signals.on_first(self._stopper(scope, signals, display))
                    self.plan = await self._ask(display)
                display.close()
                tasks.cancel_scope.cancel()

    async def _ask(self, display: Display) -> CheckedPlan:
        def on_event(event: Event) -> None:
            if not isinstance(event, _NOT_SHOWN):
                display.on_event(event)
            if isinstance(event, PlannerCalled):
                self.calls += 1
                self.spent.add(event.tokens, event.cost)

        return await draft(
            self.goal.text,
            tools=self.goal.toolbox,
            policy=self.goal.policy,
            inputs=self.inputs,
            secrets=self.goal.secrets,
            planner=self._watched(display),
            on_event=on_event,
        )

    def _watched(self, display: Display) -> Planner:
        if hasattr(self.planner, "plan"):  # it has its plan at hand, and streams no steps
            return self.planner
        rungs = [replace(rung, planner=_Watched(rung.planner, self.steps, display)) for rung in rungs_of(self.planner)]
        return rungs[0].planner if len(rungs) == 1 else FallbackChain(*rungs)

    def _stopper(self, scope: anyio.CancelScope, signals: Interrupts, display: Display) -> Callable[[int], object]:
        """Return the handler of the first signal."""

        def stop(number: int) -> None:
            self.stopped_by = interrupts.name_of(number)
            self.code = signals.exit_code(Status.CANCELLED.exit_code)
            display.line("Stopping. Once more to stop at once.")
            scope.cancel()

        return interrupts.next_in_loop(stop)


class _Watched:
    """Passes on the stream of a planner, and keeps its steps: the graph has no step of a draft before its end."""

    def __init__(self, planner: Planner, steps: list[Step], display: Display) -> None:
        self._planner = planner
        self._steps = steps
        self._display = display

    def revise(self, brief: Brief) -> RevisedBy:
        self._steps.clear()  # a second answer replaces the first
        self._display.written_anew()
        answer = self._planner.revise(brief)
        return self._stream(answer) if hasattr(answer, "__aiter__") else answer

    async def _stream(self, answer: Any) -> AsyncIterator[Any]:
        try:
            async for edit in answer:
                if isinstance(edit, Add):
                    self._steps.append(edit.step)
                    self._display.step_written()
                yield edit
        finally:
            if hasattr(answer, "aclose"):
                await answer.aclose()
