"""The golden task of a learned route: its example goal gives its plan, and the plan ends as it did in the recorded run.

1. The stand-ins return what each step of the recorded run returned, without secrets and personal data, as in a brief.
2. The run is played once with them, by step. What the tools were called with then is what the acts of the case are for,
   so that a value that was hidden is hidden wherever it went.
3. The case is carried out before it is given away. If it does not pass, there is none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from dagrun.api.replaying import Replayed
from dagrun.checks.tool_contracts import recorded_toolbox
from dagrun.errors import ContractError, PlanRefused, ValueRefused, shorten
from dagrun.evaluate.cases.case_file import Act, Case, CaseFile
from dagrun.evaluate.cases.expectations import misses_of
from dagrun.evaluate.cases.stand_in_world import CaseWorld, Script, Series, StandInCall
from dagrun.evaluate.cases.trial import Means, Trial, carry_out
from dagrun.evaluate.learning.planned_runs import PlannedRun
from dagrun.model.event import QuestionAnswered, QuestionAsked
from dagrun.model.outcome import State, Status
from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.python_plans.plan_text import as_yaml
from dagrun.model.secrets.secret import KEY
from dagrun.model.signature import Output
from dagrun.model.toolbox import Toolbox
from dagrun.model.value import decode, encode
from dagrun.planners.route_files import RouteFile
from dagrun.planners.router import RouterPlanner
from dagrun.plans.json_reader import take_out_marks
from dagrun.plans.yaml_reader import parse_yaml
from dagrun.testing.virtual_clock import run_virtual

_MAX_BYTES: Final = 1_000_000  # of a file that people read
_MAX_DEPTH: Final = 64


class NoCase(Exception):
    """There is no golden task for a route; the text says why."""


def route_case(route: RouteFile, run: PlannedRun, past: Replayed, file: str) -> str:
    """Return the file with the golden task of a route, as YAML.

    Args:
        route: The route.
        run: A run of which it was made.
        past: The state of this run, as it may be shown.
        file: The name of the file of the route, beside which the case is written.

    Raises:
        NoCase: The run cannot be played with stand-ins.
    """
    try:
        return _file(route, run, past, file)
    except (ContractError, PlanRefused, ValueRefused) as error:
        raise NoCase(shorten(str(error), 300)) from error


def _file(route: RouteFile, run: PlannedRun, past: Replayed, file: str) -> str:
    plan = route.fill(run.goal)
    ids = {old["id"]: new.id for old, new in zip(run.steps, plan.steps, strict=True)}
    script = _AsRecorded({_renamed(id_, ids): value for id_, value in _outputs(past)})
    tools = _tools(past)
    case: dict[str, Any] = {
        "id": route.name,
        "goal": run.goal,
        "routes": file,
        **_surroundings(route, run, past, ids, plan),
    }
    trial = _play(route, case, tools, dict.fromkeys(tools, script))
    if trial.status != Status.SUCCEEDED or trial.world.strange:
        raise NoCase(f"played with its outputs, the run is {trial.status}: {trial.reason or trial.world.strange[0]}")
    case["world"] = _world(trial.world.calls)
    case["expect"] = _expected(plan, trial)
    text = "".join(f"# {line}\n" for line in _comments(route, run, file)) + as_yaml({"cases": [case]}, open_levels=3)
    if len(text.encode()) > _MAX_BYTES:
        raise NoCase(f"its outputs take more than {_MAX_BYTES:,} bytes")
    _must_pass(route, text, tools)
    return text


def _outputs(past: Replayed) -> Iterator[tuple[str, Any]]:
    """Yield what each call returned, by step, without what must not be shown.

    Raises:
        NoCase: A step did not end well, or its output is not in the record.
    """
    for node in past.graph.nodes.values():
        if node.state is State.SKIPPED:
            continue
        if node.state is not State.SUCCEEDED or past.steps[node.id].is_default:
            raise NoCase(f"step {node.id} failed in the run, which a case would have to do, too")
        if not node.is_expandable:
            value = past.graph.plan.redactor.value(decode(node.value))
            if past.graph.plan.toolbox[node.plan.step.tool].output.has_objects:
                raise NoCase(f"step {node.id} returned an object in memory, which no file can hold")
            yield node.id, value


def _renamed(step: str, ids: Mapping[str, str]) -> str:
    """Return the id that a step, or an element of one, has in the plan of the route."""
    id_, bracket, rest = step.partition("[")
    return f"{ids.get(id_, id_)}{bracket}{rest}"


class _AsRecorded:
    """Lets each step return what it returned in the recorded run; see `Script`."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def act_of(self, call: StandInCall) -> Act | str:
        if call.step not in self._values:
            return f"{call.step} was not called in the recorded run"
        return Act.model_validate({"return": self._values[call.step]})


def _tools(past: Replayed) -> Toolbox:
    """Return the tools of the record, with outputs that are taken as they are."""
    return Toolbox(
        [
            replace(tool, output=Output(tool.output.schema, encode))
            for tool in recorded_toolbox(past.opening).values()
            if not tool.output.has_objects
        ]
    )


def _surroundings(
    route: RouteFile, run: PlannedRun, past: Replayed, ids: Mapping[str, str], plan: Plan
) -> dict[str, Any]:
    """Return what a case has besides its goal: inputs, policy, people and the names of secrets."""
    given = run.inputs if isinstance(run.inputs, Mapping) else {}
    inputs = past.graph.plan.redactor.value({name: given[name] for name in route.inputs if name in given})
    usual = Policy().model_dump(mode="json", by_alias=True)
    policy = past.opening.policy.model_dump(mode="json", by_alias=True)
    found = {
        "inputs": inputs,
        "policy": {name: value for name, value in policy.items() if value != usual.get(name)},
        "people": _people(past, ids),
        "secrets": sorted(set(_secrets(plan.model_dump(mode="json", by_alias=True)))),
    }
    return {name: value for name, value in found.items() if value}


def _people(past: Replayed, ids: Mapping[str, str]) -> dict[str, Any]:
    kinds = {event.question.id: str(event.question.kind) for event in past.events if isinstance(event, QuestionAsked)}
    people: dict[str, Any] = {}
    for event in past.events:
        if isinstance(event, QuestionAnswered) and event.answer is not None:
            answer = event.answer
            name = ids.get(event.step.partition("[")[0]) or kinds.get(event.question, "*")
            value = past.graph.plan.redactor.value(json.loads(json.dumps(answer.value, default=str)))
            people[name] = answer.choice if value is None else {"choice": answer.choice, "value": value}
    return people


def _secrets(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get(KEY), str):
            yield value[KEY]
        for part in value.values():
            yield from _secrets(part)
    elif isinstance(value, list):
        for part in value:
            yield from _secrets(part)


def _world(calls: Sequence[StandInCall]) -> dict[str, Any]:
    """Return the acts of each tool: one, if all its calls returned the same; else one for the arguments of each."""
    by_tool: dict[str, list[StandInCall]] = {}
    for call in calls:
        by_tool.setdefault(call.tool.name, []).append(call)
    world: dict[str, Any] = {}
    for tool, made in by_tool.items():
        if all(call.value == made[0].value for call in made):
            world[tool] = {"return": made[0].value}
        else:  # those with more arguments first, as the others could fit their calls, too
            ordered = sorted(made, key=lambda call: len(call.arguments), reverse=True)
            world[tool] = [{"when": call.arguments, "return": call.value} for call in ordered]
    return world


def _expected(plan: Plan, trial: Trial) -> dict[str, Any]:
    assert trial.result is not None
    calls = Counter(call.tool.name for call in trial.world.calls)
    shown = plan.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {
        "plan": {name: part for name, part in shown.items() if name != "goal"},
        "output": trial.result.shown_output,
        "steps": {id_: {"state": str(trial.result.steps[id_].state)} for id_ in (step.id for step in plan.steps)},
        "calls": {"once": sorted(tool for tool, count in calls.items() if count == 1)},
        "escalates": trial.escalates,
        "ceilings": {"calls": calls.total(), "planner_calls": trial.planner_calls},
    }


def _comments(route: RouteFile, run: PlannedRun, file: str) -> list[str]:
    return [
        f"The golden task of the route {route.name} ({file}), made of the run {run.run_id} by dagrun learn.",
        "No model is asked, and no tool is called. Its tools are those of the command line:",
        "  dagrun eval THIS_FILE --tools my_tools",
        "To use it in tests, name them here, as in  tools: my_tools",
    ]


def _must_pass(route: RouteFile, text: str, tools: Toolbox) -> None:
    """Carry the case out as it was written.

    Raises:
        NoCase: Something in it is not as expected.
    """
    tree, problems = parse_yaml(text, _MAX_DEPTH)
    problems += take_out_marks(tree)
    assert not problems, problems
    file = CaseFile.model_validate(tree)
    (case,) = file.cases
    trial = _play(route, tree["cases"][0], tools, {name: Series(acts) for name, acts in case.world.items()})
    misses = run_virtual(lambda: misses_of(case.expect, trial))
    if misses:
        raise NoCase(f"the run is not the same with stand-ins: {misses[0]}")


def _play(route: RouteFile, fields: Mapping[str, Any], tools: Toolbox, scripts: Mapping[str, Script]) -> Trial:
    case = Case.model_validate(fields)
    assert not isinstance(case.policy, str)
    means = Means(
        case=case,
        plan=None,
        policy=Policy.model_validate(case.policy or {}),
        make_planner=lambda _: RouterPlanner([route.as_route()]),
    )
    return run_virtual(lambda: carry_out(means, CaseWorld(tools, scripts), case.seed))
