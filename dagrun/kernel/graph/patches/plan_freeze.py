"""The frozen plan: with `Policy.freeze_plan`, a patch of a planner makes no call that the first plan did not hold.

1. The first plan is what the run begins with, or what its planner has written before anything has run; and what the
   host has added, changed or taken out since. Patches of the host are free.
2. Calls are equal as `kernel/graph/frozen_plan.py` says.
3. A patch may drop steps, and repeat calls, also with their declared fallback in the place of the tool.
4. A call with an effect is made once. It is repeated only if the call before it had no effect, or goes as this one
   comes.
5. Before a call with an effect stands all that stood before it in the first plan, as far as it has not succeeded.
6. All of this follows from the plan and the patches, also when a record is read back. What was accepted then is not
   refused then: a call with an effect that is none of the first plan needs a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from dagrun.errors import shorten
from dagrun.kernel.checks.checked_plan import CheckedStep, effects_of
from dagrun.kernel.checks.findings import Findings
from dagrun.kernel.graph.frozen_plan import FrozenPlan, in_order, key_of, parts_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches.guards import PlanAfter
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.plan import Step


@dataclass(frozen=True, slots=True)
class FreezeChange:
    """The changes that a patch makes to a frozen plan.

    Attributes:
        origins: For a patch of the planner: the calls that its steps make.
        calls: For a patch of the host: the steps that it adds or changes.
        dropped: For a patch of the host: the ids that leave.
        asks: For a patch from a record: the calls that a person must agree to, each with a sentence.
        plan: For a patch of the planner: the frozen plan that it was checked against, which the first one brings.
    """

    origins: Mapping[str, str] = field(default_factory=dict)
    calls: Mapping[str, CheckedStep] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    asks: Mapping[str, str] = field(default_factory=dict)
    plan: FrozenPlan | None = None

    def apply(self, graph: LiveGraph) -> None:
        """Change the run."""
        if graph.frozen_plan is None:
            graph.frozen_plan = self.plan
        if graph.frozen_plan is not None:
            graph.frozen_plan.origins.update(self.origins)
            if self.calls or self.dropped:
                graph.frozen_plan.change(self.calls, self.dropped)
        for id_, why in self.asks.items():
            extra = graph.nodes[id_].make_extra()
            extra.guards = extra.guards or why


def frozen_plan_of(graph: LiveGraph) -> FrozenPlan:
    """Return the frozen plan of a run; before the first patch of a planner, that is the plan as it stands."""
    if graph.frozen_plan is not None:
        return graph.frozen_plan
    own = (node for node in graph.nodes.values() if not node.is_gone and not node.is_defined_by_parent)
    return FrozenPlan({node.id: node.plan for node in own})


def calls_of_planner(graph: LiveGraph, brought: Collection[str]) -> dict[str, str]:
    """Return the calls with an effect among the steps that patches of a planner have *brought* before a freeze."""
    why = "a patch of the planner has brought it, and the policy freezes the first plan (freeze_plan)"
    return {node.id: why for node in graph.planned() if node.id in brought and effects_of(node.plan)}


# Patches --------------------------------------------------------------------------------------------------------------


@dataclass
class FreezeValidation:
    """A patch of a planner against the frozen plan.

    Attributes:
        after: The plan as the patch would leave it.
        changed: The steps that the patch names, or that are new; others change only with one that they wait for.
        place_of: Returns the place of a step for a problem.
        findings: Collects the problems.
        is_folding: Whether the patch comes from a record, so that nothing is refused.
    """

    after: PlanAfter
    changed: Collection[str]
    place_of: Callable[[str], int]
    findings: Findings
    is_folding: bool
    plan: FrozenPlan = field(init=False)
    _olds: dict[str, str] = field(init=False)
    _origins: dict[str, str] = field(default_factory=dict)
    _strange: set[str] = field(default_factory=set)
    _asks: dict[str, str] = field(default_factory=dict)
    _parts: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = frozen_plan_of(self.after.graph)
        self._olds = {new: old for old, new in self.after.substitutes.items()}

    @cached_property
    def _taken(self) -> frozenset[str]:
        """The ids of the calls that have been made, or may still be, without those that the patch brings."""
        return frozenset(self.plan.origin(node.id) for node in self._lasting())

    @cached_property
    def _done(self) -> frozenset[str]:
        """The kinds of the calls that have succeeded."""
        nodes = (node for node in self.after.graph.nodes.values() if node.parent is None)
        return frozenset(self._kind(node.id) for node in nodes if node.state is State.SUCCEEDED)

    def look(self) -> FreezeChange:
        """Refuse every call that is not in the first plan; return the changes of the patch."""
        steps = self.after.steps
        for id_ in in_order({id_: checked.depends_on for id_, checked in steps.items()}):
            self._find(id_, steps[id_])
        calls = [(id_, checked) for id_, checked in self.after.calls() if id_ not in self._strange]
        self._look_for_doubles([id_ for id_, checked in calls if id_ in steps and self._element_of(id_) is None])
        for id_, checked in calls:
            self._look_before(id_, checked)
        return FreezeChange(self._origins, asks=self._asks, plan=self.plan)

    def _origin(self, id_: str) -> str:
        return "" if id_ in self._strange else self._origins.get(id_) or self.plan.origin(id_)

    def _kind(self, id_: str) -> str:
        origin = self._origin(id_)
        return self.plan.kind(origin) if origin else f"?{id_}"

    def _element_of(self, id_: str) -> Node | None:
        """Return the for_each that a step is an element of; `None` if it is none."""
        node = self.after.elements.get(id_) or self.after.graph.nodes.get(id_)
        return node.parent if node is not None else None

    def _model(self, id_: str) -> str:
        """Return the id of the call that a step made so far, or that the step in whose place it comes made."""
        return self.plan.origin(self._olds.get(id_, id_))

    # Calls ------------------------------------------------------------------------------------------------

    def _find(self, id_: str, checked: CheckedStep) -> None:
        """Find the call of the first plan that a step makes."""
        parent = self._element_of(id_)
        if parent is None:
            found = self.plan.same(key_of(checked.step, self._kind), checked)
        else:
            found = self._found_element(id_, checked, parent)
        if not found:
            uses = [need for need in checked.depends_on if need in self._strange]
            self._strange.add(id_)
            if id_ in self.changed or not uses:  # one that only follows is told of with what it follows
                why = f"it uses {uses[0]}, which is none either" if uses else self._why(id_, checked.step)
                self._refuse("DR427", id_, checked, tool=checked.tool.name, reason=why)
            return
        model = self._model(id_)
        self._origins[id_] = model if model in found else self._free(found, checked)

    def _found_element(self, id_: str, checked: CheckedStep, parent: Node) -> list[str]:
        """Return the calls that may match a step for one element: the for_each's, or the host's for that element."""
        own, found = key_of(checked.step, self._kind, is_element=True), list[str]()
        for origin in (self._origin(parent.id), self._model(id_)):
            call = self.plan.calls.get(origin)
            if call is not None and self.plan.fits(origin, checked):
                found += [origin] if own == key_of(call.step, self._kind, is_element=True) else []
        return found

    def _free(self, found: list[str], checked: CheckedStep) -> str:
        """Of several equal calls, choose one that is not made yet."""
        if len(found) == 1 or not effects_of(checked):
            return found[0]
        brought = set(self._origins.values())
        return next((id_ for id_ in found if id_ not in self._taken and id_ not in brought), found[0])

    def _why(self, id_: str, step: Step) -> str:
        """Return the difference between a step and the first plan, as a sentence."""
        like = self.plan.of_tool(step.tool)
        if not like:
            return "no step of it calls that tool"
        model, mine = self._model(id_), parts_of(step, self._kind)
        passed = {"for_each"} if self._element_of(id_) is not None else set()  # it is about one element
        differing: dict[str, list[str]] = {}
        for one in [model] if model in like else like[:20]:
            theirs = self._parts.get(one) or parts_of(self.plan.calls[one].step, self._kind)
            self._parts[one] = theirs
            names = {*mine, *theirs} - passed
            differing[one] = sorted(name for name in names if mine.get(name) != theirs.get(name))
        nearest = min(differing, key=lambda one: len(differing[one]))
        if not (fields := differing[nearest]):
            return f"its fallback differs from {nearest}'s"
        return f"{' and '.join(fields[:3])} {'differ' if len(fields) > 1 else 'differs'} from that of {nearest}"

    # Effects ----------------------------------------------------------------------------------------------

    def _lasting(self) -> Iterator[Node]:
        """Yield the steps that have made their call, or may still make it, once the patch is applied."""
        after = self.after
        for node in after.graph.nodes.values():
            if node.parent is not None:
                continue
            is_to_come = not node.state.is_settled and not node.is_gone and node.id not in after.leaving
            if is_to_come or _is_made(node):
                yield node

    def _look_for_doubles(self, touched: Collection[str]) -> None:
        """Refuse calls with an effect that would be made more often than in the first plan."""
        nodes, olds = self.after.graph.nodes, self._olds
        allowed = Counter(self.plan.kind(id_) for id_ in self.plan.calls)
        new = {id_: None for id_ in touched if id_ not in nodes or self._kind(id_) != self.plan.kind(id_)}
        # By kind, and by root: a substitute has the key of the call in whose place it comes.
        every: dict[str, dict[str, str]] = {}
        for node in self._lasting() if new else ():
            if node.id not in new:
                every.setdefault(self._kind(node.id), {})[node.root] = node.id
        for id_ in new:
            kind = self._kind(id_)
            there = every.setdefault(kind, {})
            root = nodes[olds.get(id_, id_)].root if olds.get(id_, id_) in nodes else id_
            if root not in there and len(there) >= allowed[kind]:
                self._refuse("DR428", id_, self.after.steps[id_], old=next(iter(there.values())))
            there.setdefault(root, id_)

    def _look_before(self, id_: str, checked: CheckedStep) -> None:
        """Refuse the removal of steps that stood before a call with an effect."""
        parent = self._element_of(id_)
        origin = self._origin(id_ if parent is None else parent.id)
        wanted = self._wanted(origin) if origin in self.plan.calls else {}
        there = {self._kind(need) for need in self.after.before(id_)} if wanted else set()
        for kind, need in wanted.items():
            if kind not in there:
                self._refuse("DR429", id_, checked, dependency=need)

    def _wanted(self, origin: str) -> dict[str, str]:
        """Return the kinds of the unfinished steps before a call, each with the id of a step."""
        plan, done = self.plan, self._done
        found: dict[str, str] = {}
        left = [origin]
        while left:
            call = plan.calls[left.pop()]
            for need in (need for need in call.depends_on if need in plan.calls and need not in call.gates):
                kind = plan.kind(need)
                if kind not in found and kind not in done:
                    found[kind] = need
                    left.append(need)
        return found

    def _refuse(self, code: Literal["DR427", "DR428", "DR429"], id_: str, checked: CheckedStep, **facts: str) -> None:
        if not self.is_folding:
            self.findings.add(code, self.place_of(id_), "", step=checked.step.id, **facts)
        elif effects_of(checked):
            why = f"the policy freezes the first plan (freeze_plan), and a patch of the planner has changed {id_}"
            self._asks[id_] = shorten(why, 500)


def _is_made(node: Node) -> bool:
    """Whether the call of a step may have had an effect."""
    parts = (node, *(node.children or ()))
    return any(part.state in (State.SUCCEEDED, State.UNKNOWN) or part.may_have_applied for part in parts)
