"""Goals of the command line, and the plans that planners write for them: drafted, reported and saved."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio
import click

from dagrun import Add, Brief, CheckedPlan, Event, FallbackChain, Planner, Status, Step, draft
from dagrun.api.preloading import OWN_LOOP
from dagrun.cli.jobs.execute import unwrapped
from dagrun.cli.jobs.job import Goal
from dagrun.cli.jobs.one_run import log_level
from dagrun.cli.records.output_files import write_whole
from dagrun.cli.setup.planners import STEPWISE, make_planner, name_of
from dagrun.cli.setup.plans import STDIN, as_written, plan_text
from dagrun.cli.setup.secrets import secrets_of
from dagrun.cli.setup.settings import Configuration, names_in
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
from dagrun.cli.terminal import signals as interrupts
from dagrun.cli.terminal.display import Display, make_display
from dagrun.cli.terminal.signals import Interrupts
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, bounded, coloured, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import PlanRefused, RunFailed
from dagrun.kernel.model.event import DraftEnded, PlannerCalled, Spliced, StepSettled
from dagrun.kernel.model.planner import RevisedBy, rungs_of
from dagrun.kernel.model.usage import ModelUse
from dagrun.kernel.runtime.backend import loop_options
from dagrun.observe.state_styles import spending_words

MAX_BYTES: Final = 100_000  # of a goal
_MAX_STEPS: Final = 100


def read_goal(text: str) -> str:
    """Return the goal: *text*, or the text on the standard input.

    Raises:
        BadInput: The goal has no words, is not text, or is too long for any model.
    """
    if text == STDIN:
        text = _from_stdin()
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise BadInput(f"the goal has more than {MAX_BYTES} bytes; give files and tables by --input")
    if not text.strip():
        raise BadInput("the goal needs words")
    return text.strip()


def _from_stdin() -> str:
    if sys.stdin is None:
        raise BadInput("there is no standard input to read the goal from")
    # If the text is too long, a character may be cut at its end; that is no fault of the text.
    data = sys.stdin.buffer.read(MAX_BYTES + 4)
    try:
        return data.decode("utf-8-sig", "ignore" if len(data) > MAX_BYTES else "strict")
    except UnicodeDecodeError as error:
        raise BadInput(f"the goal is not text: byte {error.start} is not UTF-8") from None


def goal_of(text: str, configuration: Configuration, *, is_run: bool) -> Goal:
    """Return the goal of a run with its tools, limits and secrets.

    Args:
        text: The argument of the command.
        configuration: The settings that hold.
        is_run: Whether tools will be called, so that they need their own settings.

    Raises:
        BadInput: The goal, a setting or a tool cannot be used.
    """
    goal = read_goal(text)
    limits = configuration.limits()
    toolbox = load_toolbox(configuration)
    if is_run:
        configure_tools(configuration, limits)
    policy = limits.policy
    if configuration.settings.mode == "sequential":
        policy = policy.model_copy(update={"max_running": 1})
    return Goal(text=goal, toolbox=toolbox, policy=policy, secrets=secrets_of(configuration))


def get_plan(
    goal: Goal, configuration: Configuration, inputs: Mapping[str, Any], flags: Mapping[str, Any]
) -> PlanDraft:
    """Ask the planner for a plan, and report its usage on the standard error.

    Returns:
        The draft, with a plan, unless it was interrupted.

    Raises:
        BadInput: There is no planner to ask, or it writes no whole plans.
        PlanRefused: The plan of the planner has problems, also after it was told of them.
        RunFailed: The planner gave no plan.
    """
    named = name_of(configuration)
    if STEPWISE in names_in(named):
        raise BadInput(
            "the planner stepwise sees what a step gives before it plans the next: use dagrun do, without -n"
        )
    planner = make_planner(configuration, named)
    drafting = PlanDraft(
        goal=goal, planner=planner, inputs=inputs, is_shown=not flags["quiet"], log_level=log_level(flags)
    )
    try:
        drafting.get()
    except (PlanRefused, RunFailed):
        _tell("no plan", drafting, flags)
        raise
    if drafting.plan is not None:
        steps = len(drafting.plan.steps)
        _tell(f"planned: {steps} step{'s' * (steps != 1)}", drafting, flags)
    return drafting


def tell_stopped(drafting: PlanDraft, data: Data, flags: Mapping[str, Any]) -> int:
    """Report the steps that were written when the planner was interrupted, and return the exit code.

    Nothing is printed where a plan is expected: a part of a plan could be taken for the whole.
    """
    steps = drafting.steps
    reason = f"interrupted by {drafting.stopped_by}"
    if flags["as_json"]:
        data.json(
            {
                "schema_version": SCHEMA_VERSION,
                "status": "cancelled",
                "exit_code": drafting.code,
                "reason": reason,
                "plan": None,
                "written": [as_written(step) for step in steps],
                **usage_of(drafting),
            }
        )
    _tell(f"cancelled: {reason}, {len(steps)} step{'s' * (len(steps) != 1)} written", drafting, flags)
    shown = [] if flags["quiet"] else steps
    for line in bounded(
        [f"  {step.id}: {step.tool}" for step in shown], _MAX_STEPS, lambda more: f"  … and {more} more"
    ):
        click.echo(printable(line), err=True)
    return drafting.code


def is_saved(plan: CheckedPlan, path: Path) -> bool:
    """Write a plan to a file, and return whether that worked; if not, report it."""
    try:
        write_whole(path, plan_text(plan.plan))
    except OSError as error:
        click.echo(f"Error: cannot write {printable(str(path))}: {error.strerror}", err=True)
        return False
    return True


def usage_of(drafting: PlanDraft) -> dict[str, Any]:
    """Return the usage of planning, as JSON; the tokens of an interrupted call are unknown."""
    spent = drafting.spent if drafting.plan is not None else None
    return {
        "planner_calls": drafting.calls,
        "seconds": drafting.seconds,
        "tokens": spent and spent.tokens,
        "cost": spent and spent.cost,
        "unpriced": spent and spent.unpriced,
    }


def _tell(text: str, drafting: PlanDraft, flags: Mapping[str, Any]) -> None:
    if flags["quiet"] and drafting.plan is not None:
        return
    calls = [f"{drafting.calls} call{'s' * (drafting.calls != 1)} of the planner"] if drafting.calls else []
    facts = ", ".join([f"{drafting.seconds:.2f} s", *calls, *spending_words(drafting.spent)])
    colour = 32 if drafting.plan is not None else 31
    click.echo(coloured(f"{text} ({facts})", colour, sys.stderr), err=True, color=True)


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
