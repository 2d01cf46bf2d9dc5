"""What a planner proposes, as a person looks at it: what would change, and whether one has to look at all."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from dagrun.errors import Problem
from dagrun.graph.history import PlanHistory
from dagrun.graph.live import LiveGraph
from dagrun.graph.patch import CheckedPatch
from dagrun.model.patch import Add, Patch, Replace, Rewire
from dagrun.model.plan import Plan, Step
from dagrun.model.policy import Policy

_EDIT: Final = re.compile(r"edits\[(\d+)\]\.step")
_RENAMED: Final = re.compile(r"-r\d+$")  # see `difference`


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


def is_doubtful(proposed: Plan | Patch, policy: Policy) -> bool:
    """Whether its author is less sure of it than the policy wants."""
    return proposed.confidence is not None and proposed.confidence < policy.min_confidence


def as_in_plan(problems: Iterable[Problem], patch: Patch, plan: Plan) -> Iterator[Problem]:
    """Name the places of problems as the author of a whole plan knows them, not those of the patch made of it."""
    places = {step.id: f"steps[{place}]" for place, step in enumerate(plan.steps)}
    for problem in problems:
        match = _EDIT.match(problem.path)
        edit = patch.edits[int(match[1])] if match is not None and int(match[1]) < len(patch.edits) else None
        if match is None or not isinstance(edit, Add | Replace):
            yield problem
            continue
        written = edit.id if isinstance(edit, Replace) else edit.step.id
        place = places.get(written) or places.get(_RENAMED.sub("", written))
        yield replace(problem, path=place + problem.path[match.end() :]) if place is not None else problem


def has_effects(graph: LiveGraph, steps: Iterable[Step]) -> bool:
    """Whether any of *steps* may call a tool that changes the world; tools that are not known do not count."""
    tools = graph.plan.toolbox
    names = {name for step in steps for name in (step.tool, step.fallback) if name is not None}
    return any(not tools[name].effect.is_free for name in names if name in tools)


def lines_of(plan: Plan) -> tuple[str, ...]:
    """A whole plan as a person looks at it, line by line."""
    output = [f"+ output: {plan.output}"] if plan.output is not None else []
    return (*(f"+ {_line(step)}" for step in plan.steps), *output)


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
