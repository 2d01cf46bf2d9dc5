"""The prompt that a planner sends to its model, overheard in a run that ends there."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import anyio

from dagrun.api import draft
from dagrun.api.preloading import OWN_LOOP
from dagrun.cli.jobs.goals import read_goal
from dagrun.cli.jobs.job import Goal
from dagrun.cli.setup.planners import wording_of
from dagrun.cli.setup.plans import read_inputs
from dagrun.cli.setup.setting_fields import Dialect
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.setup.tool_modules import load_toolbox
from dagrun.cli.terminal.text import SCHEMA_VERSION, Data
from dagrun.errors import CannotPlan, PlanRefused, RunFailed
from dagrun.kernel.model.outcome import ErrorKind, State, TriggerKind
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.planner import Brief, Planner, RevisedBy, StepView, Trigger
from dagrun.llm.language_model import Reply, Request, Usage
from dagrun.planners.model_planner import ModelPlanner
from dagrun.planners.prompt_texts import TEXTS, Wording
from dagrun.planners.prompts import Kind, Prompt
from dagrun.planners.stepwise import StepwisePlanner

# An answer that every check refuses, to get the prompt that follows it.
_FAULTY: Final = {
    "json": '{"steps": [{"id": "a", "tool": "no_such_tool", "args": {}}], "output": null, "confidence": 0.5}',
    "lean": '{"steps": [{"tool": "no_such_tool", "id": "a", "args": {}, "depends_on": []}], "output": "a"}',
    "compiler": "1. no_such_tool()\n2. join()\n",
    "calls": "1. no_such_tool()\n2. join()\n",
}


def show_prompt(
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
    toolbox = load_toolbox(configuration, or_installed=True)
    wanted = Goal(text=read_goal(goal), toolbox=toolbox, policy=configuration.limits().policy)
    dialect = configuration.settings.dialect
    wording = wording_of(configuration.settings)
    request = anyio.run(_overhear, wanted, read_inputs(inputs), kind, dialect, wording)
    version = Wording(**wording).version
    if as_json:
        data.json(_as_dict(request, kind, dialect, version))
    else:
        data.text(str(Prompt(request.system, request.messages, version)))


def show_texts(configuration: Configuration, data: Data) -> None:
    """Print the texts of prompts, including the user's, as the table of a settings file."""
    wording = Wording(**wording_of(configuration.settings))
    lines = ["# In dagrun.toml, each text takes the place of that of dagrun; leave out those that stay.", "[prompts]"]
    data.text("\n\n".join(["\n".join(lines), *(f"{name} = {_toml(wording[name])}" for name in TEXTS)]))


def _toml(text: str) -> str:
    """Return a text as a string of TOML: unchanged between three apostrophes, unless it contains these itself."""
    return json.dumps(text, ensure_ascii=False) if "'''" in text else f"'''\n{text}'''"


def _as_dict(request: Request, kind: Kind, dialect: Dialect, version: str) -> dict[str, Any]:
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
        step = Step(id="example", tool=next((str(tool["name"]) for tool in brief.tools), "some_tool"))
        failure = Trigger(TriggerKind.FAILED_TWICE, step.id, "", error="ToolError", error_kind=ErrorKind.TOOL)
        views = {step.id: StepView(step, State.FAILED, attempts=2)}
        return self._planner.revise(replace(brief, revision=1, triggers=(failure,), steps=views))
