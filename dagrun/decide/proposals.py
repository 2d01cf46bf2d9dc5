"""What a planner proposes, as a person looks at it: what would change, and whether one has to look at all."""

from __future__ import annotations

from dagrun.graph.history import PlanHistory
from dagrun.graph.live import LiveGraph
from dagrun.graph.patch import CheckedPatch
from dagrun.model.patch import Rewire
from dagrun.model.plan import Step


def needs_person(graph: LiveGraph, checked: CheckedPatch) -> bool:
    """Whether the policy wants a person to agree to a patch before it is applied."""
    match graph.plan.policy.approve_patches:
        case "always":
            return True
        case "effects":
            return _has_effects(graph, checked)
        case _:
            return False


def _has_effects(graph: LiveGraph, checked: CheckedPatch) -> bool:
    """Whether a patch brings calls that change the world, or stops one."""
    # What only uses a substitute from now on is not counted: it does what it was to do anyway.
    edited = (edit.id for edit in checked.edits if isinstance(edit, Rewire))
    for id_ in (*checked.consequence.added, *edited):
        plan = checked.steps[id_]
        if not plan.tool.effect.is_free or (plan.fallback is not None and not plan.fallback.effect.is_free):
            return True
    return any(not graph.nodes[id_].tool.effect.is_free for id_ in checked.consequence.cancelled)


def diff_of(graph: LiveGraph, checked: CheckedPatch) -> tuple[str, ...]:
    """What a patch would change, line by line: ``-`` for what was, ``+`` for what comes, ``!`` for what is stopped."""
    before = PlanHistory(graph.plan.plan, graph.revisions).steps
    lines = [f"- {_line(graph.nodes[id_].plan.step)}" for id_ in checked.leaving]
    for id_, new in checked.steps.items():
        if id_ in before:
            lines.append(f"- {_line(before[id_])}")
        lines.append(f"+ {_line(new.step)}")
    if checked.changes_output:
        written = graph.revisions[-1].output if graph.revisions else graph.plan.plan.output
        lines += [f"- output: {written}", f"+ output: {checked.written_output}"]
    lines += [f"! {id_} runs, and would be stopped" for id_ in checked.consequence.cancelled]
    return tuple(lines)


def _line(step: Step) -> str:
    return step.model_dump_json(exclude_unset=True, by_alias=True)
