"""Drawings of the graph of a run: its current state, and a proposed change of the plan, before and after.

A drawing is made in a thread, from plain data that was taken from the graph before. Its size is bounded: at most 60
boxes, and their edges, whatever the record says (`dagrun.observe.picture`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.question import Question
from dagrun.observe.picture.graph_svg import draw_graph
from dagrun.observe.view.document import plan_view

Side = Literal["before", "after"]


def graph_svg(view: Mapping[str, Any]) -> bytes:
    """Return the graph of a view as SVG, with its note in ``data-note``."""
    return _svg(view, "Graph of the steps")


def patch_view(graph: LiveGraph, question: Question, side: Side) -> dict[str, Any] | None:
    """Return the data for a drawing of the plan before or after the change that *question* proposes.

    Steps that would go are marked as gone, new and changed ones as brought by a revision.

    Args:
        graph: The state of the run.
        question: The question; its lines have the steps that go and that come.
        side: Which of the two plans.

    Returns:
        `None` if the question is about no change of the plan, or if its lines were redacted or cut.
    """
    removed, added = _steps(question.diff, "- "), _steps(question.diff, "+ ")
    if removed is None or added is None or not (removed or added):
        return None
    steps = {node.id: node.plan.step for node in graph.planned()}
    states = {node.id: str(node.state) for node in graph.planned()}
    if side == "after":
        steps = {id_: step for id_, step in steps.items() if id_ not in removed or id_ in added} | added
    view: dict[str, Any] = dict(plan_view(Plan.model_construct(steps=tuple(steps.values()))))
    for step in view["steps"]:
        is_new = side == "after" and step["id"] in added
        step["state"] = "waiting" if is_new else states[step["id"]]
        step["revision"] = int(is_new)
        step["gone"] = 1 if side == "before" and step["id"] in removed else None
    return view


def patch_svg(view: Mapping[str, Any], side: Side) -> bytes:
    """Return the drawing of one of the two plans as SVG."""
    return _svg(view, f"The plan {side} the change")


def _svg(view: Mapping[str, Any], label: str) -> bytes:
    picture = draw_graph(view)
    svg = str(picture.svg(label, class_="dag"))
    head, rest = svg.split(" ", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg" data-note="{picture.note}" {rest}'.encode()


def _steps(lines: Sequence[str], sign: str) -> dict[str, Step] | None:
    """Return the steps of the lines with one sign, by id; `None` if one of them is no valid step."""
    try:
        found = [Step.model_validate_json(line[2:]) for line in lines if line.startswith(sign)]
    except ValidationError:
        return None
    return {step.id: step for step in found}
