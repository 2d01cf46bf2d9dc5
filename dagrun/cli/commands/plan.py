"""``dagrun plan``: lets a planner write a plan for a goal, or shows its prompt, and runs nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from dagrun.cli.setup.setting_fields import Dialect
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import CannotPlan, PlanRefused, RunFailed
from dagrun.extend import Reply, Request, Usage

if TYPE_CHECKING:
    from dagrun import Brief, CheckedPlan, Planner
    from dagrun.cli.jobs.goals import PlanDraft
    from dagrun.cli.jobs.job import Goal
    from dagrun.kernel.model.planner import RevisedBy
    from dagrun.planners.prompts import Kind


_GOAL: Final = "(the goal, in words)"  # in a prompt without one


@command("plan")
def plan(*, goal: str | None, inputs: tuple[str, ...], file: str, **flags: Any) -> int:
    """Let a planner write a plan for GOAL, and check it. Runs nothing, asks no person.

    GOAL is a sentence, or - for the standard input. Only the shapes of the inputs reach the planner, unless the policy
    says otherwise. The plan is JSON, and goes to a file or to the standard output. --json prints an object with the
    plan and its costs.

    Ctrl-C stops the planner, and prints the steps that are written so far.

    --show-prompt prints the prompt that the planner sends to its model, and asks no model. GOAL may be left out, and
    the tools are those of --tools, or else of installed packages. For every kind but the first, an example stands for
    what has happened. --json also prints the version of the prompt, and the schema of the answer: that goes to the
    model beside the prompt, or, if a server takes no schema, at the end of it. dagrun.toml may have instructions,
    constraints, and a table of prompts, whose texts take the place of those that --texts prints; the version of the
    prompt, which the record of a run has, too, tells such words apart.

    Examples:
      export OPENAI_API_KEY=… DAGRUN_MODEL=…
      dagrun plan "Compare the regions" --tools my_tools -o plan.json
      dagrun run plan.json --tools my_tools
      dagrun plan --show-prompt --tools my_tools --kind replan
      dagrun plan --show-prompt --texts > prompts.toml

    Exit codes:
      0 there is a plan, 1 the planner failed, 2 wrong usage, 3 no valid plan,
      4 over budget, 6 a person must take over, 130 cancelled by Ctrl-C,
      143 by SIGTERM
    """
    from dagrun.cli.jobs.goals import get_plan, goal_of, is_saved, tell_stopped
    from dagrun.cli.records.output_files import writable
    from dagrun.cli.setup.plans import STDIN, plan_text, read_inputs

    configuration = configure(flags)
    with data_output() as data:
        if flags["show_prompt"]:
            _show_prompt(configuration, data, goal or _GOAL, inputs, flags)
            return 0
        if flags["kind"] or flags["texts"]:
            raise BadInput(f"{'--kind' if flags['kind'] else '--texts'} is for --show-prompt")
        if goal is None:
            raise BadInput("name the GOAL, in quotation marks; or --show-prompt")
        path = writable(None if file in (STDIN, "/dev/stdout") else file, "-o")
        input_values = read_inputs(inputs)
        wanted = goal_of(goal, configuration, is_run=False)
        drafting = get_plan(wanted, configuration, input_values, flags)
        made = drafting.plan
        if made is None:
            return tell_stopped(drafting, data, flags)
        is_lost = path is not None and not is_saved(made, path)
        if flags["as_json"]:
            data.json(_as_dict(drafting, made))
        elif path is None or is_lost:  # the plan is paid for, so it must not get lost
            data.text(plan_text(made.plan))
        return int(is_lost)


def _show_prompt(
    configuration: Configuration, data: Data, goal: str, inputs: tuple[str, ...], flags: Mapping[str, Any]
) -> None:

    if flags["texts"]:
        show_texts(configuration, data)
    else:
        _print_prompt(configuration, data, goal, inputs, flags["kind"] or "first", as_json=flags["as_json"])


def _as_dict(drafting: PlanDraft, made: CheckedPlan) -> dict[str, Any]:
    from dagrun.cli.jobs.goals import usage_of
    from dagrun.cli.setup.plans import as_written

    return {
        "schema_version": SCHEMA_VERSION,
        "status": "planned",
        "exit_code": 0,
        "plan": as_written(made.plan),
        **usage_of(drafting),
    }


# An answer that every check refuses, to get the prompt that follows it.
_FAULTY: Final = {
    "json": '{"steps": [{"id": "a", "tool": "no_such_tool", "args": {}}], "output": null, "confidence": 0.5}',
    "lean": '{"steps": [{"tool": "no_such_tool", "id": "a", "args": {}, "depends_on": []}], "output": "a"}',
    "compiler": "1. no_such_tool()\n2. join()\n",
    "calls": "1. no_such_tool()\n2. join()\n",
}


def _print_prompt(
    configuration: Configuration, data: Data, goal: str, inputs: tuple[str, ...], kind: Kind, *, as_json: bool
) -> None:
    """Print the prompt.

    Args:
        configuration: The settings that hold.
        data: Takes the prompt.
        goal: The goal, as typed.
        inputs: The inputs of the run, as typed.
        kind: Which prompt.
        as_json: Whether JSON is printed, with the schema of the answer.
    """
    import anyio

    from dagrun.cli.jobs.goals import read_goal
    from dagrun.cli.jobs.job import Goal
    from dagrun.cli.setup.planners import wording_of
    from dagrun.cli.setup.plans import read_inputs
    from dagrun.cli.setup.tool_modules import load_toolbox
    from dagrun.planners.prompt_texts import Wording
    from dagrun.planners.prompts import Prompt

    toolbox = load_toolbox(configuration, or_installed=True)
    wanted = Goal(text=read_goal(goal), toolbox=toolbox, policy=configuration.limits().policy)
    dialect = configuration.settings.dialect
    wording = wording_of(configuration.settings)
    request = anyio.run(_overhear, wanted, read_inputs(inputs), kind, dialect, wording)
    version = Wording(**wording).version
    if as_json:
        data.json(_prompt_dict(request, kind, dialect, version))
    else:
        data.text(str(Prompt(request.system, request.messages, version)))


def show_texts(configuration: Configuration, data: Data) -> None:
    """Print the texts of prompts, including the user's, as the table of a settings file."""
    from dagrun.cli.setup.planners import wording_of
    from dagrun.planners.prompt_texts import TEXTS, Wording

    wording = Wording(**wording_of(configuration.settings))
    lines = ["# In dagrun.toml, each text takes the place of that of dagrun; leave out those that stay.", "[prompts]"]
    data.text("\n\n".join(["\n".join(lines), *(f"{name} = {_toml(wording[name])}" for name in TEXTS)]))


def _toml(text: str) -> str:
    """Return a text as a string of TOML: unchanged between three apostrophes, unless it contains these itself."""
    return json.dumps(text, ensure_ascii=False) if "'''" in text else f"'''\n{text}'''"


def _prompt_dict(request: Request, kind: Kind, dialect: Dialect, version: str) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "prompt_version": version,
        "kind": kind,
        "dialect": dialect,
        "system": request.system,
        "messages": [{"role": message.role, "text": message.text} for message in request.messages],
        "form": None if request.form is None else {"name": request.form.name, "schema": dict(request.form.schema)},
    }


async def _overhear(
    goal: Goal, inputs: dict[str, Any], kind: Kind, dialect: Dialect, wording: dict[str, Any]
) -> Request:
    """Return the request of the planner itself, in a run that ends there, so that it cannot differ from real ones."""
    from dagrun import ModelPlanner, StepwisePlanner, draft
    from dagrun.api.preloading import OWN_LOOP

    OWN_LOOP.set(True)
    model = _CapturingModel(_FAULTY[dialect] if kind == "repair" else None)
    planner: Planner
    match kind:
        case "next":
            planner = StepwisePlanner(model, **wording)
        case "replan":
            planner = _AssumeFailed(ModelPlanner(model, dialect=dialect, **wording))
        case _:
            planner = ModelPlanner(model, dialect=dialect, **wording)
    with suppress(PlanRefused, RunFailed):
        await draft(goal.text, tools=goal.toolbox, policy=goal.policy, inputs=inputs, planner=planner)
    return model.requests[-1]


class _CapturingModel:
    """A model that keeps its requests, and does not answer the last one."""

    name = "none"

    def __init__(self, first: str | None) -> None:
        self.requests: list[Request] = []
        self._first = first

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply, None]:
        self.requests.append(request)
        if self._first is None or len(self.requests) > 1:
            raise CannotPlan("only the question was wanted")
        yield Reply(text=self._first, stop="end", usage=Usage(), cost=None, model=self.name)


class _AssumeFailed:
    """Asks a planner as if the only step of its plan had failed."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner

    def revise(self, brief: Brief) -> RevisedBy:
        from dagrun import State, Step, StepView, Trigger, TriggerKind
        from dagrun.kernel.model.outcome import ErrorKind

        step = Step(id="example", tool=next((str(tool["name"]) for tool in brief.tools), "some_tool"))
        failure = Trigger(TriggerKind.FAILED_TWICE, step.id, "", error="ToolError", error_kind=ErrorKind.TOOL)
        views = {step.id: StepView(step, State.FAILED, attempts=2)}
        return self._planner.revise(replace(brief, revision=1, triggers=(failure,), steps=views))
