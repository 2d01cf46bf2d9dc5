"""Answers of planners: a patch, a whole plan, or nothing, made into one patch."""

from __future__ import annotations

from dagrun.errors import Problem
from dagrun.graph.difference import patch_of
from dagrun.graph.live import LiveGraph
from dagrun.model.brief import Brief
from dagrun.model.patch import Patch
from dagrun.model.plan import Plan
from dagrun.runtime.planner_calls import Over, Refused


def patch_from(said: object, brief: Brief, known: frozenset[str], graph: LiveGraph) -> Patch:
    """Make a patch of what a planner has answered.

    Args:
        said: The answer.
        brief: What it answers.
        known: The ids of the steps that had succeeded when the planner was told.
        graph: The plan as it stands now.

    Raises:
        Over: There is nothing to be changed, or no plan to be had.
        Refused: It cannot be a patch.
    """
    match said:
        case None if brief.is_first:
            raise Over("failed", "the planner has none")
        case None:
            raise Over("unchanged", "the planner leaves the plan as it is")
        case Patch(edits=(), more=False) if brief.is_next and not said.changes_output:
            raise Over("unchanged", said.reason or "the planner has nothing to add")
        case Plan():
            count, limit = len(said.steps), graph.plan.policy.max_edits
            if count > limit + len(graph.nodes):
                raise Refused(Problem("DR409", "steps", {"count": str(count), "limit": str(limit)}))
            if brief.is_first and not said.steps:  # nothing is changed by that, and there still is no plan
                raise Refused(Problem("DR111", "steps"))
            patch = patch_of(graph, said, brief.revision, known)
            if not patch.edits and not patch.changes_output:
                raise Over("unchanged", "the planner's plan is the one that is carried out already")
            return patch
        case Patch():
            return said if said.base is not None else said.model_copy(update={"base": brief.revision})
        case _:
            raise Over("failed", f"the planner's answer is no patch but a {type(said).__name__}")
