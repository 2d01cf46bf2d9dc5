"""The rules of a patch, one function for each. A rule reports problems to `Findings`."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep, asks_of
from dagrun.kernel.checks.findings import WHOLE_PLAN, Findings
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import Drop, Patch, Replace, Rewire
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.reference import ID_PATTERN, RESERVED

_ID: Final = re.compile(ID_PATTERN, re.ASCII)
_MAX_NAMED: Final = 10


def is_whole_patch_fine(graph: LiveGraph, patch: Patch, findings: Findings) -> bool:
    """Whether the patch as a whole can be checked edit by edit."""
    limit = graph.plan.policy.planning.max_edits
    if graph.status is not None:
        findings.add("DR417", WHOLE_PLAN)
    elif len(patch.edits) > limit:
        findings.add("DR409", WHOLE_PLAN, "edits", count=len(patch.edits), limit=limit)
    elif not patch.edits and not patch.changes_output:
        findings.add("DR414", WHOLE_PLAN)
    elif patch.base is not None and patch.base > graph.revision:
        findings.add("DR415", WHOLE_PLAN, "base", base=patch.base, revision=graph.revision)
    return not findings.has_errors


def check_staleness(
    graph: LiveGraph, patch: Patch, needs: Mapping[str, Iterable[str]], carried: Container[str], findings: Findings
) -> None:
    """Refuse a patch if a later splice has changed a step that it names, or a neighbour of one that it edits.

    Args:
        graph: The graph.
        patch: The patch.
        needs: The dependencies of each step that is added or changed.
        carried: The steps that change only because one that they wait for is replaced.
        findings: Collects the problems.
    """
    base = graph.revision if patch.base is None else patch.base
    later = graph.revisions[base:]
    changed = frozenset(id_ for revision in later for id_ in revision.touched)
    if not changed:
        return
    footprint = {need for id_, waits_for in needs.items() if id_ not in carried for need in waits_for}
    edited = {edit.id for edit in patch.edits if isinstance(edit, Drop | Replace | Rewire)}
    around = {near for id_ in edited for near in _surroundings(graph, id_)} - edited
    # A dependent that was only given the name of a substitute takes another name as well, whichever comes first.
    renamed = frozenset(id_ for revision in later for id_ in revision.renamed)
    if both := sorted(((footprint | edited) & changed) | (around & (changed - renamed))):
        more = f" and {len(both) - _MAX_NAMED} more" if len(both) > _MAX_NAMED else ""
        findings.add("DR408", WHOLE_PLAN, "base", base=base, steps=", ".join(both[:_MAX_NAMED]) + more)


def _surroundings(graph: LiveGraph, id_: str) -> Iterator[str]:
    yield id_
    node = graph.nodes.get(id_)
    if node is not None:
        yield from node.plan.depends_on
        yield from (after.id for after in node.successors)


def is_editable(edit: Drop | Replace | Rewire, node: Node, number: int, findings: Findings) -> bool:
    """Whether the state of a step lets it be edited."""
    parent = node.parent
    fixed = node if node.state is State.SUCCEEDED or (isinstance(edit, Rewire) and node.state.is_settled) else parent
    if fixed is not None and fixed.state.is_settled:
        state = "succeeded" if fixed.state is State.SUCCEEDED else f"ended as {fixed.state}"
        findings.add("DR403", number, "id", step=fixed.id, state=state)
        return False
    if isinstance(edit, Rewire):
        if parent is not None or node.has_started:
            reason = "is an element of a for_each" if parent is not None else "has started"
            findings.add("DR404", number, "id", step=node.id, reason=reason)
            return False
        return True
    bound = [part for part in _parts(node) if part.may_have_applied and not part.state.is_settled]
    if bound and not edit.cancel:
        findings.add("DR405", number, "cancel", step=bound[0].id, tool=bound[0].tool.name)
        return False
    return True


def _parts(node: Node) -> list[Node]:
    """Return the step, or its elements once its list is known."""
    return [node] if node.children is None else node.children


def running_parts(node: Node) -> Iterator[Node]:
    """Yield the step, or its elements, with a call or a review in progress."""
    for part in _parts(node):
        is_called = bool(part.attempts) and part.attempts[-1].outcome is None
        if not part.state.is_settled and (is_called or (part.state is State.RUNNING and part.children is None)):
            yield part


def ending_parts(node: Node) -> Iterator[Node]:
    """Yield the step and its elements that settle at once when they leave the plan, because they are not running.

    A for_each also waits for elements that have left the plan before, and still clean up: it counts them as missing.
    """
    running = set(running_parts(node))
    ending = [part for part in node.children or () if not part.state.is_settled and part not in running]
    yield from ending
    is_last = node not in running if node.children is None else node.missing == len(ending)
    if not node.state.is_settled and is_last:
        yield node


def check_new_ids(used: Mapping[str, str], new: Mapping[str, tuple[int, Step]], findings: Findings) -> None:
    """Refuse ids that are malformed, reserved, or were ever used in this run, upper and lower case being equal."""
    own: dict[str, str] = {}
    for id_, (number, _) in new.items():
        fault = _fault_of_id(id_, used, own)
        if fault is not None:
            code, facts = fault
            findings.add(code, number, "step.id", **facts)


def _fault_of_id(id_: str, used: Mapping[str, str], own: dict[str, str]) -> tuple[str, dict[str, str]] | None:
    """Return the code and the facts of the problem of an id; *own* collects the new ids, by their lower-case form."""
    folded = id_.lower()
    other = used.get(folded) or own.setdefault(folded, id_)
    if not _ID.fullmatch(id_):
        return "DR101", {"id": repr(id_[:200])}
    if id_ in RESERVED:
        return "DR110", {"id": id_, "meaning": RESERVED[id_]}
    if other != id_:
        return "DR103", {"id": id_, "other": other}
    return ("DR402", {"id": id_}) if folded in used else None


def check_ceilings(graph: LiveGraph, new: Mapping[str, tuple[int, Step]], findings: Findings) -> None:
    """Refuse more steps than the policy allows."""
    limit = graph.plan.policy.max_steps
    count = len(graph.nodes) + len(new)
    if limit is not None and new and count > limit:
        findings.add("DR413", WHOLE_PLAN, "edits", count=count, limit=limit)


def check_retries(step: Step, policy: Policy, number: int, findings: Findings) -> None:
    """Refuse a step with more attempts than the policy allows."""
    if step.retry is not None and step.retry.max_attempts > policy.retry.max_attempts:
        reason = f"retry.max_attempts is {step.retry.max_attempts}, the policy says {policy.retry.max_attempts}"
        findings.add("DR412", number, "step.retry", step=step.id, reason=reason)


def check_loosening(
    edit: Drop | Replace | Rewire, node: Node, plan: CheckedPlan, number: int, findings: Findings
) -> None:
    """Refuse an edit after which a person would be asked less often."""
    old = node.plan.step
    if isinstance(edit, Rewire) or (old.pause is None and not node.plan.asks):
        return
    if isinstance(edit, Drop):
        if old.pause is not None and not node.state.is_settled:
            findings.add("DR411", number, "id", step=old.id, old=old.id, why=f"pause: {old.pause}")
        return
    new = edit.step
    if old.pause is not None and new.pause != old.pause:
        findings.add("DR411", number, "step.pause", step=new.id, old=old.id, why=f"pause: {old.pause}")
    if new.tool != old.tool:
        return  # another tool has rules of its own
    kept = [ask.rule for ask in asks_of(new, node.plan.tool, plan.policy)]  # without those of the trust boundary
    for ask in node.plan.asks:
        if ask.crossing is not None:
            continue  # whether it still gets over the boundary is worked out anew
        if not any(ask.rule is rule for rule in kept):  # by identity: a condition has no hash
            findings.add("DR411", number, "step", step=new.id, old=old.id, why=ask.why)


def check_frozen_call(checked: CheckedStep, old: Node, place: int, findings: Findings) -> None:
    """Refuse a call with an effect after one that may have taken effect, unless it is the same call."""
    doubted = old.frozen_call
    called = [tool for tool in (checked.tool, checked.fallback) if tool is not None and not tool.effect.is_free]
    if doubted is None or not called:
        return
    tool, plan = doubted.tool, doubted.plan
    is_same = all(other is tool for other in called) and checked.args == plan.args
    is_same = is_same and (old.parent is not None or checked.items == plan.items)
    if not is_same or tool.effect is not Effect.IDEMPOTENT:
        findings.add("DR418", place, "tool", old=doubted.id, step=checked.step.id, tool=tool.name)


# Definitions -------------------------------------------------------------------------------------------------


def as_element(step: Step, place: int, findings: Findings) -> Step:
    """Return a substitute for an element of a for_each with a list, so that it may refer to its ``item``."""
    if step.for_each is not None:
        findings.add("DR112", place, "for_each", step=step.id, reason="an element of a for_each cannot have one itself")
    # The element is known only when the step runs; any list will do while references are checked.
    return step.model_copy(update={"for_each": [None]})


def without_list(checked: CheckedStep, step: Step) -> CheckedStep:
    """Remove the list that `as_element` has added for the check."""
    return replace(checked, step=step, items=None)


def behind_its_wave(
    checked: CheckedStep, old: CheckedStep, substitutes: Mapping[str, str], dropped: Container[str]
) -> CheckedStep:
    """Keep the barrier of a wave before a step that changes, as far as the steps of the wave are still there."""
    if not old.gates:
        return checked
    stay = frozenset(substitutes.get(gate, gate) for gate in old.gates if gate not in dropped)
    gates = stay - frozenset(checked.depends_on)
    depends_on = (*checked.depends_on, *sorted(gates))
    return replace(checked, depends_on=depends_on, gates=gates, waits_for_all=old.waits_for_all)
