"""Goals of the command line, and the plans that planners write for them: reported and saved."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from dagrun.cli.jobs.draft_plan import PlanDraft
from dagrun.cli.jobs.job import Goal
from dagrun.cli.jobs.one_run import log_level
from dagrun.cli.records.output_folder import write_whole
from dagrun.cli.setup.planners import STEPWISE, make_planner, name_of
from dagrun.cli.setup.plans import STDIN, as_written, plan_text
from dagrun.cli.setup.secrets import secrets_of
from dagrun.cli.setup.settings import Configuration, names_in
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, bounded, coloured, printable
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import PlanRefused, RunFailed
from dagrun.kernel.checks.checked_plan import CheckedPlan
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
