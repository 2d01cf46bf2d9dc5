"""Turn a whole new plan into a patch: the differences from the current plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from pydantic import BaseModel

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.mapped_steps import goes_through
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire, rename_in_output, rename_in_step
from dagrun.kernel.model.plan import Plan, RetryRule, Step

MAX_ID = 48

# States without an output: a new plan that still has such a step wants it done.
_FAILED: Final = frozenset((State.FAILED, State.TIMED_OUT, State.SKIPPED, State.ABANDONED))


def patch_of(graph: LiveGraph, plan: Plan, base: int | None = None, known: Collection[str] | None = None) -> Patch:
    """Make the patch that turns the plan of *graph* into *plan*.

    1. A step with the same id and an equal definition is kept.
    2. Any other step gets an id that was never used. It replaces the step with its old id, unless that has succeeded.
    3. Steps that are kept and have not started use the new steps.
    4. Steps that are kept and have failed are done again if a step that they wait for is new.
    5. Steps that the new plan does not have are dropped.

    Args:
        graph: The state of the run.
        plan: The new plan.
        base: The revision that its author looked at.
        known: The ids of the steps that had succeeded then; by default those of now. A step that has succeeded since is
            kept as it is.
    """
    present = {node.id: node for node in graph.planned()}
    done = {id_ for id_, node in present.items() if node.state is State.SUCCEEDED}
    late = done.difference(done if known is None else known)
    limit = graph.plan.policy.retry  # what its author has written may have been kept within it
    same = [step.id for step in plan.steps if step.id in present and _is_kept(present[step.id].plan.step, step, limit)]
    kept = {*same, *late}
    kept -= _over_again(present, kept)
    kept -= _done_again(present, kept, [step.id for step in plan.steps if step.id not in kept])
    names = _new_names(graph, [step.id for step in plan.steps if step.id not in kept])
    edits: list[Add | Drop | Replace | Rewire] = []
    # The dependents of a replaced step are rewired by the patch itself; those of a step that has succeeded are not.
    again = {id_: name for id_, name in names.items() if id_ in done}
    for step in plan.steps:
        if step.id in kept:
            node = present[step.id]
            if not node.has_started and not node.state.is_settled and rename_in_step(step, again) != step:
                edits.append(Rewire(id=step.id, use=again))
            continue
        new = rename_in_step(step, names).model_copy(update={"id": names[step.id]})
        is_open = step.id in present and step.id not in done
        edits.append(Replace(id=step.id, step=new) if is_open else Add(step=new))
    wanted = {step.id for step in plan.steps}
    edits += [Drop(id=id_) for id_ in present if id_ not in wanted and id_ not in done]
    output = rename_in_output(plan.output, names)
    written = graph.written_output
    if _is_same(output, written):
        return Patch(edits=tuple(edits), base=base, reason="a new plan", confidence=plan.confidence)
    return Patch(edits=tuple(edits), base=base, reason="a new plan", confidence=plan.confidence, output=output)


def _is_kept(old: Step, new: Step, limit: RetryRule) -> bool:
    return _is_same(old, new) or (new.retry is not None and _is_same(old, new.within(limit)))


def _is_same(one: Any, other: Any) -> bool:
    """Whether two definitions are equal, types included: Python takes 1, 1.0 and True for equal, tools do not."""
    if type(one) is not type(other):
        return False
    match one:
        case BaseModel():
            return _is_same(one.__dict__, other.__dict__)
        case dict():
            return one.keys() == other.keys() and all(_is_same(value, other[key]) for key, value in one.items())
        case list() | tuple():
            return len(one) == len(other) and all(map(_is_same, one, other))
        case _:
            return bool(one == other)


def _over_again(present: Mapping[str, Node], kept: Collection[str]) -> set[str]:
    """Return the steps of *kept* that follow the elements of a leaving step and have begun: they start again."""
    again: set[str] = set()
    leaving = [node for id_, node in present.items() if id_ not in kept]
    while leaving:
        fan = leaving.pop()
        for after in fan.extra.followers if fan.extra is not None else ():
            if after.id in kept and after.id not in again and goes_through(after, fan):
                again.add(after.id)
                leaving.append(after)
    return again


def _done_again(present: Mapping[str, Node], kept: Collection[str], changed: Collection[str]) -> set[str]:
    """Return the steps of *kept* that have failed or were skipped, and wait for a new step, directly or not."""
    again: set[str] = set()
    causes = [present[id_] for id_ in changed if id_ in present]
    while causes:
        for after in causes.pop().successors:
            # After a possible effect the call is frozen: it cannot use a new step.
            if after.id in kept and after.id not in again and after.state in _FAILED and after.frozen_call is None:
                again.add(after.id)
                causes.append(after)
    return again


def _new_names(graph: LiveGraph, ids: Collection[str]) -> Mapping[str, str]:
    """Return an unused id for each new step: its own, if that is free."""
    used = {id_.lower() for id_ in graph.nodes}
    names: dict[str, str] = {}
    for id_ in ids:
        number, name = graph.revision + 1, id_
        while name.lower() in used:
            suffix = f"-r{number}"
            name = id_[: MAX_ID - len(suffix)] + suffix
            number += 1
        used.add(name.lower())
        names[id_] = name
    return names
