"""The edits of a patch, sorted by kind, the plan as it would be with them, and the rules of a patch.

Edits that come too late are ignored, and impossible ones are reported. A rule reports its problems to `Findings`. The
graph itself is not changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, Final

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep, asks_of
from dagrun.kernel.checks.findings import WHOLE_PLAN, Findings
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.effect import Effect
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire, rename_in_step, rename_in_value
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.reference import ID_PATTERN, RESERVED, Template
from dagrun.kernel.model.value import Stored, is_lost_object, is_released

AnyEdit = Add | Drop | Replace | Rewire

# Between the places of two edits there is room for the places of the steps that they concern.
STRIDE: Final = 1 << 20


class ProblemPositions:
    """Places of problems in a patch, as numbers: the edits in their order, each followed by its own places."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._last: dict[int, int] = {}

    def name(self, place: int) -> str:
        """Return the written form of *place*."""
        return self._names.get(place) or f"edits[{place // STRIDE}]"

    def behind(self, edit: int, name: str) -> int:
        """Make a place that belongs to *edit*, after all its places so far."""
        place = self._last[edit] = self._last.get(edit, edit) + 1
        self._names[place] = f"{self.name(edit)}{name}"
        return place


class Edits:
    """The edits of a patch by kind.

    Args:
        graph: The graph; it is never changed here.
        patch: The patch.
        findings: Collects the problems.
        is_from_planner: Whether a planner is the author, who cannot loosen the policy.
        known: The ids of the steps that had succeeded when the author looked; `None` for the present ones.

    Attributes:
        carried_out: The edits that count.
        fallen: The ids of steps that have succeeded since the author looked; the edits to them fall away.
        new: The steps that are added, each with the place of its edit.
        elements: By id of a new step, the element of a for_each that it replaces.
        substitutes: The ids of replaced steps, and of their substitutes.
        dropped: The ids that leave without a substitute, each with the place of its edit.
        rewired: The edits of steps that keep their id, each with its place.
        instead: By id of a substitute whose edit has fallen away, the step that stays.
    """

    def __init__(
        self,
        graph: LiveGraph,
        patch: Patch,
        findings: Findings,
        *,
        is_from_planner: bool,
        known: Collection[str] | None,
    ) -> None:
        self._graph = graph
        self._findings = findings
        self._is_from_planner = is_from_planner
        self._known = known
        self.carried_out: list[AnyEdit] = []
        self.fallen: list[str] = []
        self.new: dict[str, tuple[int, Step]] = {}
        self.elements: dict[str, Node] = {}
        self.substitutes: dict[str, str] = {}
        self.dropped: dict[str, int] = {}
        self.rewired: dict[str, tuple[int, Rewire]] = {}
        self.instead: dict[str, str] = {}
        self._edited: set[str] = set()
        self._families: set[str] = set()  # the for_each of every element that is edited
        for place, edit in zip(count(0, STRIDE), patch.edits, strict=False):
            self._take(place, edit)
        if self.instead:
            self.new = {id_: (place, rename_in_step(step, self.instead)) for id_, (place, step) in self.new.items()}
            self.carried_out = [self._as_carried_out(edit) for edit in self.carried_out]

    @property
    def leaving(self) -> Iterator[str]:
        """Yield every id that leaves the plan."""
        yield from self.dropped
        yield from self.substitutes

    def place_of(self, id_: str) -> int:
        """Return the place of the edit that removes a step from the plan."""
        return self.dropped[id_] if id_ in self.dropped else self.new[self.substitutes[id_]][0]

    def is_leaving(self, node: Node) -> bool:
        """Whether a step leaves the plan, by itself or with its for_each."""
        own = node.id in self.dropped or node.id in self.substitutes
        return own or (node.parent is not None and self.is_leaving(node.parent))

    def use_of(self, edit: Rewire) -> dict[str, str]:
        """Return the substitutions of *edit*, with the kept steps for substitutes that were refused."""
        return {old: self.instead.get(new, new) for old, new in edit.use.items()}

    def rewrite(self, step: Step, edit: Rewire) -> Step:
        """Return *step* with the dependencies and arguments that *edit* names."""
        fields = {"depends_on": edit.depends_on, "args": edit.args}
        changes = {name: value for name, value in fields.items() if value is not None}
        return step.model_copy(update=self._renamed(changes))

    def _renamed(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Rename fallen substitutes in *changes* to the steps that stay."""
        if self.instead and "depends_on" in changes:
            changes["depends_on"] = tuple(self.instead.get(id_, id_) for id_ in changes["depends_on"])
        if self.instead and "args" in changes:
            changes["args"] = rename_in_value(changes["args"], self.instead)
        return changes

    def _take(self, place: int, edit: AnyEdit) -> None:
        if isinstance(edit, Add):
            self._come(place, edit.step)
        else:
            node = self._target(place, edit)
            if node is None:
                return
            self._sort(place, edit, node)
        if isinstance(edit, Add | Replace) and self.new[edit.step.id][1] is not edit.step:
            edit = self._as_carried_out(edit)  # with the retry rule that counts
        self.carried_out.append(edit)

    def _as_carried_out(self, edit: AnyEdit) -> AnyEdit:
        """Return *edit* with the ids that are valid after others have fallen away, for the record."""
        match edit:
            case Add() | Replace():
                return edit.model_copy(update={"step": self.new[edit.step.id][1]})
            case Rewire():
                fields = {name: getattr(edit, name) for name in edit.model_fields_set & {"depends_on", "args"}}
                changes = self._renamed({name: value for name, value in fields.items() if value is not None})
                return edit.model_copy(update={**changes, "use": self.use_of(edit)} if edit.use else changes)
            case _:
                return edit

    def _target(self, place: int, edit: Drop | Replace | Rewire) -> Node | None:
        """Return the target of *edit*; `None` if it cannot be edited, or the edit is void."""
        node = self._graph.nodes.get(edit.id)
        if node is None or node.is_gone:
            hint = self._findings.hint(edit.id, _Present(self._graph.nodes))
            self._findings.add("DR401", place, "id", id=repr(edit.id[:200]), hint=hint)
            return None
        family = node.parent.id if node.parent is not None else ""
        if edit.id in self._edited or edit.id in self._families or family in self._edited:
            self._findings.add("DR410", place, "id", step=edit.id)
            return None
        self._edited.add(edit.id)
        self._families.add(family)
        if node.state is State.SUCCEEDED and self._known is not None and edit.id not in self._known:
            self.fallen.append(edit.id)
            if isinstance(edit, Replace):
                self.instead[edit.step.id] = edit.id
            return None
        return node if is_editable(edit, node, place, self._findings) else None

    def _sort(self, place: int, edit: Drop | Replace | Rewire, node: Node) -> None:
        match edit:
            case Drop():
                self.dropped[edit.id] = place
            case Rewire():
                self.rewired[edit.id] = (place, edit)
            case Replace():
                self.substitutes[edit.id] = edit.step.id
                self._come(place, edit.step)
                if node.parent is not None:
                    self.elements[edit.step.id] = node
        if self._is_from_planner:
            check_loosening(edit, node, self._graph.plan, place, self._findings)

    def _come(self, place: int, step: Step) -> None:
        if step.id in self.new:
            self._findings.add("DR402", place, "step.id", id=repr(step.id[:200]))
            return
        policy = self._graph.plan.policy
        self.new[step.id] = (place, step.within(policy.retry) if self._is_from_planner else step)
        if self._is_from_planner:
            check_retries(step, policy, place, self._findings)


class _Present(Collection[str]):
    """The ids that can be edited, without a copy: they are only read for a hint."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def __contains__(self, id_: object) -> bool:
        return id_ in self._nodes and not self._nodes[str(id_)].is_gone

    def __iter__(self) -> Iterator[str]:
        return (id_ for id_, node in self._nodes.items() if not node.is_gone)

    def __len__(self) -> int:
        return len(self._nodes)


# The plan with the patch -------------------------------------------------------------------------------------


def is_over(node: Node) -> bool:
    """Whether a step can no longer be on a cycle: it has succeeded, or has left the plan.

    A step that was skipped still stands between others of the plan, and the plan must stay valid as a whole. An element
    of a for_each is no step of the plan: any settled one counts.
    """
    if node.parent is not None:
        return node.state.is_settled
    return node.state is State.SUCCEEDED or node.is_gone


def waiting_after(
    graph: LiveGraph, needs: Mapping[str, Iterable[str]], leaving: frozenset[str]
) -> Callable[[str], Iterator[str]]:
    """Return a function for the successors of a step with the patch applied, as far as they may be on a cycle.

    Args:
        graph: The graph without the patch.
        needs: The dependencies of each step that is added or changed.
        leaving: The ids that leave the plan.
    """
    added: dict[str, list[str]] = {}
    for id_, before in needs.items():
        for need in before:
            added.setdefault(need, []).append(id_)

    def after(id_: str) -> Iterator[str]:
        yield from added.get(id_, ())
        node = graph.nodes.get(id_)
        if node is None or id_ in leaving:
            return
        for next_ in node.successors:
            if next_.id not in needs and next_.id not in leaving and not is_over(next_):
                yield next_.id
        parent = node.parent  # which waits for its elements
        if parent is not None and parent.id not in leaving and not parent.state.is_settled:
            yield parent.id

    return after


class KnownIds(Mapping[str, int]):
    """The ids that a step may wait for with the patch applied. Their values, the places in a plan, are not used."""

    def __init__(self, nodes: Mapping[str, Node], leaving: frozenset[str], new: Mapping[str, object]) -> None:
        self._nodes = nodes
        self._leaving = leaving
        self._new = new

    def __getitem__(self, id_: str) -> int:
        if id_ in self:
            return 0
        raise KeyError(id_)

    def __contains__(self, id_: object) -> bool:
        if id_ in self._new:
            return True
        node = self._nodes.get(id_) if isinstance(id_, str) else None
        return node is not None and node.parent is None and not node.is_gone and id_ not in self._leaving

    def __iter__(self) -> Iterator[str]:
        yield from (id_ for id_ in self._nodes if id_ in self)
        yield from self._new

    def __len__(self) -> int:
        return len(self._nodes) + len(self._new)


class Definitions(Mapping[str, Step]):
    """The definitions of the steps of `KnownIds`, with the patch applied."""

    def __init__(self, nodes: Mapping[str, Node], index: Mapping[str, int], own: Mapping[str, Step]) -> None:
        self._index = index
        self._nodes = nodes
        self._own = own

    def __getitem__(self, id_: str) -> Step:
        if id_ not in self._index:
            raise KeyError(id_)
        return self._own[id_] if id_ in self._own else self._nodes[id_].plan.step

    def __iter__(self) -> Iterator[str]:
        return iter(self._index)

    def __len__(self) -> int:
        return len(self._index)


# Released outputs --------------------------------------------------------------------------------------------


def check_released_sources(graph: LiveGraph, checked: CheckedStep, place: int, findings: Findings) -> None:
    """Refuse a step that reads a released output."""
    for id_ in sorted(checked.value_sources):
        node = graph.nodes.get(id_)
        if node is not None and _is_gone(graph, node.value):
            findings.add("DR423", place, "", step=checked.step.id, dependency=id_)


def check_released_answer(
    graph: LiveGraph, edits: Edits, steps: Mapping[str, CheckedStep], output: Template | None, findings: Findings
) -> None:
    """Refuse a patch after which the run would answer with a released output.

    Args:
        graph: The graph without the patch.
        edits: The edits of the patch.
        steps: The steps that are added or changed, by id.
        output: The answer with the patch; `None` for the outputs of the sinks.
        findings: Collects the problems.
    """
    if graph.releasing is None:
        return
    if output is not None:
        sources: Iterable[str] = sorted(output.sources)
    elif graph.output is not None:
        sources = [node.id for node in graph.planned()]
    else:
        sources = _left_by(graph, edits, steps)
    gone = [graph.nodes[id_] for id_ in sources if id_ in graph.nodes and _is_gone(graph, graph.nodes[id_].value)]
    if gone and output is None:
        needed = frozenset(need for checked in steps.values() for need in _waits(checked))
        gone = [node for node in gone if not _has_successor(node, edits, steps, needed)]
    for node in gone:
        findings.add("DR424", WHOLE_PLAN, "output", step=node.id)


def _is_gone(graph: LiveGraph, value: Stored) -> bool:
    """Whether a value was released, or had objects that were in the memory of an earlier process."""
    # A patch on record was applied while its objects were there: what was not is marked, and has its value still.
    is_folded = graph.releasing is not None and not graph.releasing.drops
    return is_released(value) or (is_lost_object(value) and not is_folded)


def _left_by(graph: LiveGraph, edits: Edits, steps: Collection[str]) -> Iterable[str]:
    """Return the ids of the old dependencies of all steps that leave or change."""
    nodes = (graph.nodes.get(id_) for id_ in (*edits.leaving, *steps))
    return dict.fromkeys(need for node in nodes if node is not None for need in node.plan.depends_on)


def _waits(checked: CheckedStep) -> Iterator[str]:
    """Yield the ids that a step waits for, without the barrier of a wave."""
    return (need for need in checked.depends_on if need not in checked.gates)


def _has_successor(node: Node, edits: Edits, steps: Mapping[str, CheckedStep], needed: Collection[str]) -> bool:
    """Whether a step will wait for *node* with the patch applied: then the run does not answer with *node*."""
    if node.id in needed or node.is_gone or node.parent is not None:
        return True
    stay = (after for after in node.successors if after.id not in steps and not edits.is_leaving(after))
    return any(not after.is_gone and node.id not in after.plan.gates for after in stay)


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
            continue  # whether it still gets over the boundary is worked out again
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
