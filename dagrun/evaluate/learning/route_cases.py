"""The golden task of a learned route: its example goal gives its plan, and the plan ends as it did in the recorded run.

It is the case of this run (`dagrun.evaluate.cases.recorded_case`), in which the route stands in the place of the
planner, with the plan that the route has to give. It is carried out before it is given away: if it does not pass, there
is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dagrun import Event, PlanRefused, Policy, RouterPlanner, Toolbox
from dagrun.errors import CasesRefused, ContractError
from dagrun.evaluate.cases.case_file import Case, CaseFile
from dagrun.evaluate.cases.expectations import misses_of
from dagrun.evaluate.cases.recorded_case import recorded_case
from dagrun.evaluate.cases.stand_in_world import CaseWorld, scripts_of
from dagrun.evaluate.cases.trial import TrialSettings, carry_out
from dagrun.evaluate.learning.learn_routes import PlannedRun
from dagrun.evaluate.replay import recorded_tools
from dagrun.extend import RouteFile
from dagrun.records import last_opening
from dagrun.testing import run_virtual
from dagrun.texts import as_yaml, read_yaml, shorten

_MAX_BYTES: Final = 1_000_000  # of a file that people read
_MAX_DEPTH: Final = 64
_KEPT: Final = ("policy", "secrets", "people", "world")  # of the case of the run


class NoCase(Exception):
    """There is no golden task for a route; the text has the reason."""


def route_case(route: RouteFile, run: PlannedRun, events: Sequence[Event], file: str) -> str:
    """Return the file with the golden task of a route, as YAML.

    Args:
        route: The route.
        run: A run that it was made from.
        events: The events of this run.
        file: The name of the file of the route, beside which the case is written.

    Raises:
        NoCase: The run cannot be played with stand-ins.
        JournalDamaged: The events do not follow from each other.
    """
    try:
        case = _case(route, run, events, file)
        text = "".join(f"# {line}\n" for line in _comments(route, run, file)) + as_yaml(
            {"cases": [case]}, open_levels=3
        )
        if len(text.encode()) > _MAX_BYTES:
            raise NoCase(f"its outputs take more than {_MAX_BYTES:,} bytes")
        _must_pass(route, text, recorded_tools(last_opening(events)))
    except CasesRefused as error:
        raise NoCase(shorten("; ".join(error.faults), 300)) from error
    except (ContractError, PlanRefused) as error:
        raise NoCase(shorten(str(error), 300)) from error
    return text


def _case(route: RouteFile, run: PlannedRun, events: Sequence[Event], file: str) -> dict[str, Any]:
    plan = route.fill(run.goal).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    if [step["id"] for step in plan["steps"]] != [step["id"] for step in run.steps]:
        raise NoCase("its steps have other names in the route")
    recorded = recorded_case(run.run_id, events)
    inputs = {name: value for name, value in recorded.get("inputs", {}).items() if name in route.inputs}
    wanted = {name: part for name, part in recorded["expect"].items() if name not in ("status", "patches")}
    return {
        "id": route.name,
        "goal": run.goal,
        "routes": file,
        **({"inputs": inputs} if inputs else {}),
        **{name: recorded[name] for name in _KEPT if name in recorded},
        "expect": {
            "status": recorded["expect"]["status"],
            "plan": {name: part for name, part in plan.items() if name != "goal"},
            **wanted,
            "ceilings": {"planner_calls": 0},
        },
    }


def _comments(route: RouteFile, run: PlannedRun, file: str) -> list[str]:
    return [
        f"The golden task of the route {route.name} ({file}), made of the run {run.run_id} by dagrun learn.",
        "No model is asked, and no tool is called. Its tools are those of the command line:",
        "  dagrun eval THIS_FILE --tools my_tools",
        "To use it in tests, name them here, as in  tools: my_tools",
        "A redact function of the program that ran it is not applied: check the file before you share it.",
    ]


def _must_pass(route: RouteFile, text: str, tools: Toolbox) -> None:
    """Run the written case.

    Raises:
        NoCase: Something in it is not as expected.
    """
    tree, problems = read_yaml(text, _MAX_DEPTH)
    assert not problems, problems
    (case,) = CaseFile.model_validate(tree).cases
    if misses := run_virtual(lambda: _misses(route, case, tools)):
        raise NoCase(shorten(f"the run is not the same with stand-ins: {misses[0]}", 300))


async def _misses(route: RouteFile, case: Case, tools: Toolbox) -> list[str]:
    assert isinstance(case.policy, Mapping | None)
    means = TrialSettings(
        case=case,
        plan=None,
        policy=Policy.model_validate(case.policy or {}),
        make_planner=lambda _: RouterPlanner([route.as_route()]),
    )
    trial = await carry_out(means, CaseWorld(tools, scripts_of(case), (), case.reconcile), case.seed)
    return misses_of(case.expect, trial)
