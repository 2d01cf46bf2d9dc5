"""The view of a plan that has not run: its steps and needs, with the problems at the steps that have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from dagrun._version import __version__
from dagrun.errors import Problem
from dagrun.model.plan import Plan, Step
from dagrun.model.redaction.redactor import DEFAULT_REDACTOR
from dagrun.observe.view.shape import VIEW_VERSION, RunView, ValueView
from dagrun.observe.view.values import LIMITS, shown_value
from dagrun.observe.view.waits import REASONS
from dagrun.plans.drawing import boxes_of

PLAN: Final = "plan"
_PLACE: Final = re.compile(r"steps\[(\d+)\]")


def plan_view(plan: Plan, problems: Sequence[Problem] = ()) -> RunView:
    """Return the view of a plan.

    Args:
        plan: The plan, checked or not.
        problems: What a check has found; errors mark their step as failed.
    """
    found: dict[int, list[Problem]] = {}
    for problem in problems:
        place = _PLACE.match(problem.path)
        if place is not None:
            found.setdefault(int(place[1]), []).append(problem)
    needs = [[need for need in box.parents if need != n] for n, box in enumerate(boxes_of(plan))]
    steps = [_step(n, step, needs[n], found.get(n, [])) for n, step in enumerate(plan.steps)]
    errors = [str(problem) for problem in problems if not problem.is_advice and _PLACE.match(problem.path) is None]
    run: dict[str, Any] = {
        **dict.fromkeys(("id", "reason", "parent", "owner", "recorded_by"), ""),
        **dict.fromkeys(("status", "began", "ended", "critical_path", "cost", "handoff", "inputs", "output")),
        **dict.fromkeys(("tokens", "unpriced", "retries", "fallbacks", "replans"), 0),
        **dict.fromkeys(("makespan", "work", "parallelism", "known_cost"), 0.0),
        **{name: [] for name in ("ceilings", "suspended")},
        "goal": DEFAULT_REDACTOR.text(plan.goal),
        "stand": PLAN,
        "labels": {},
        "warnings": [str(problem) for problem in problems if problem.is_advice],
        "problems": errors,
        "counts": {"waiting": len(plan.steps)},
        "waits": dict.fromkeys(REASONS, 0.0),
        "slots": {},
    }
    view = {
        "schema_version": VIEW_VERSION,
        "dagrun": __version__,
        "seq": 0,
        "at": 0.0,
        "graph": 0,
        "run": run,
        "steps": steps,
        **{name: [] for name in ("path", "path_gaps", "revisions", "planner", "questions", "log")},
        "left_out": {"values": 0, "log": 0},
        "source": PLAN,
    }
    return cast(RunView, view)


def _step(n: int, step: Step, needs: list[int], problems: list[Problem]) -> dict[str, Any]:
    errors = [str(problem) for problem in problems if not problem.is_advice]
    return {
        **dict.fromkeys(
            ("parent", "children", "gone", "substitute", "ready", "started", "ended", "output", "progress")
        ),
        **{name: [] for name in ("value_needs", "waits", "limits", "attempts", "errors", "verdicts")},
        **dict.fromkeys(("after_wave", "is_default", "on_path"), False),
        **dict.fromkeys(("effect", "cause"), ""),
        "n": n,
        "id": step.id,
        "tool": step.tool,
        "state": "failed" if errors else "waiting",
        "why": DEFAULT_REDACTOR.text("; ".join(errors)),
        "description": DEFAULT_REDACTOR.text(step.description),
        "needs": needs,
        "revision": 0,
        "args": _planned(step.args) if step.args else None,
    }


def _planned(args: Mapping[str, Any]) -> ValueView:
    return shown_value(dict(args), DEFAULT_REDACTOR, LIMITS["short"], planned=True)
