"""`bundle_of`: the notebook display of an object, by media type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from dagrun.checks.check_plan import find_problems
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.errors import Problem
from dagrun.graph.plan_history import PlanDiff
from dagrun.model.plan import Plan
from dagrun.model.policy import Policy
from dagrun.model.toolbox import Toolbox
from dagrun.observe.notebook.cell import cell_of, diff_cell, text_of
from dagrun.observe.view.document import view_of
from dagrun.observe.view.plan_view import plan_view
from dagrun.runtime.run import Run

# Of the problems of a plan, those that can be seen without its tools and its inputs.
_OF_SHAPE: Final = "DR1"
_CEILINGS: Final = (
    *("max_running", "max_steps", "max_attempts", "max_seconds", "max_tokens", "max_cost"),
    *("max_planner_calls", "max_replans"),
)


def bundle_of(source: Any) -> dict[str, str]:
    """Return the bundle of a run, a result, a record, a plan, or the difference of two.

    Raises:
        ContractError: There is nothing to show in *source*.
    """
    return {"text/plain": text_of(source), "text/html": _html(source)}


def _html(source: Any) -> str:
    match source:
        case PlanDiff():
            return diff_cell(source)
        case CheckedPlan():
            return cell_of(plan_view(source.plan), [*_ceilings(source.policy), *map(str, source.advice)])
        case Plan():
            return cell_of(plan_view(source, _problems(source)))
        case _:
            return cell_of(view_of(source), is_live=isinstance(source, Run))


def _problems(plan: Plan) -> list[Problem]:
    found, _ = find_problems(plan, Toolbox(()))
    return [problem for problem in found if problem.code.startswith(_OF_SHAPE)]


def _ceilings(policy: Policy) -> Iterator[str]:
    """Yield the ceilings that were set."""
    usual = Policy.model_fields
    ceilings = [(name, getattr(policy, name)) for name in _CEILINGS]
    shown = [f"{name} {value:g}" for name, value in ceilings if value is not None and value != usual[name].default]
    if shown:
        yield f"Ceilings: {', '.join(shown)}"
