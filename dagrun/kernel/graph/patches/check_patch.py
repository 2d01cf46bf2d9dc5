"""Check a patch against the live graph, on an overlay: a refused patch leaves no trace."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal

from dagrun.errors import Problem
from dagrun.kernel.checks.check_context import CheckContext, ToolFacts, tool_facts
from dagrun.kernel.checks.check_plan import cycle_text
from dagrun.kernel.checks.check_references import check_output
from dagrun.kernel.checks.check_step import check_step
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.findings import WHOLE_PLAN, Findings
from dagrun.kernel.checks.reference_sources import ReferenceSources
from dagrun.kernel.graph.live_graph import OF_ANOTHER, LiveGraph
from dagrun.kernel.graph.mapped_steps import goes_through, needed_source
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.edits import (
    Definitions,
    Edits,
    KnownIds,
    ProblemPositions,
    as_element,
    behind_its_wave,
    check_ceilings,
    check_frozen_call,
    check_new_ids,
    check_released_answer,
    check_released_sources,
    check_staleness,
    ending_parts,
    is_over,
    is_whole_patch_fine,
    running_parts,
    waiting_after,
    without_list,
)
from dagrun.kernel.graph.patches.guards import PlanAfter, missing_approvals, removed_approvals
from dagrun.kernel.graph.step_order import Cycle, Labels
from dagrun.kernel.model.outcome import State
from dagrun.kernel.model.patch import Consequence, Patch, rename_in_output, rename_in_step
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import Template
from dagrun.kernel.model.value import decode

if TYPE_CHECKING:
    from dagrun.kernel.graph.patches.flow_after import FlowChange
    from dagrun.kernel.graph.patches.plan_freeze import FreezeChange

Origin = Literal["host", "planner"]

_SUCCEEDED: Final = State.SUCCEEDED


class Splicer:
    """Checks patches against one live graph. Facts of the tools are worked out once.

    Args:
        graph: The graph; it is never changed here.

    Attributes:
        must_be_sure: Whether a planner's patch without a confidence is looked at for effects, as people may have to
            agree to it.
        is_folding: Whether the patches come from a record: what was accepted is not refused by the trust boundary.
    """

    def __init__(self, graph: LiveGraph, *, is_folding: bool = False) -> None:
        self.graph = graph
        self.must_be_sure = False
        self.is_folding = is_folding
        self._folded: dict[str, str] = {}

    @cached_property
    def facts(self) -> dict[str, ToolFacts]:
        """The facts of each tool."""
        return tool_facts(self.graph.plan.toolbox, self.graph.plan.policy)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The inputs of the run."""
        return decode(self.graph.inputs) or {}

    @property
    def folded(self) -> Mapping[str, str]:
        """Every id that was ever used, by its lower-case form."""
        nodes = self.graph.nodes
        for id_ in islice(reversed(nodes), len(nodes) - len(self._folded)):  # nodes are only ever added
            self._folded[id_.lower()] = id_
        return self._folded

    def check(
        self, patch: Patch, origin: Origin = "host", known: Collection[str] | None = None
    ) -> tuple[CheckedPatch | None, tuple[Problem, ...]]:
        """Check *patch* against the current graph.

        Args:
            patch: The patch.
            origin: Its author; a planner cannot loosen the policy.
            known: The ids of the steps that had succeeded when its author looked; by default those of now. An edit of
                a step that has succeeded since falls away.

        Returns:
            The patch to apply, or `None`; and all its problems, in the order of the edits.
        """
        trial = _PatchValidation(self, patch, origin, known)
        checked = trial.run()
        return checked, trial.findings.problems()

    def unchanged(self) -> CheckedPatch:
        """Return the patch that changes nothing."""
        return CheckedPatch(
            edits=(),
            steps={},
            substitutes={},
            leaving=(),
            labels={},
            changes_output=False,
            output=self.graph.output,
            written_output=self.graph.written_output,
            consequence=Consequence(),
        )


class _PatchValidation:
    """The check of one patch.

    Args:
        splicer: The splicer of the graph.
        patch: The patch.
        origin: Its author.
        known: The ids of the steps that had succeeded when its author looked.
    """

    def __init__(self, splicer: Splicer, patch: Patch, origin: Origin, known: Collection[str] | None) -> None:
        self.splicer = splicer
        self.graph = splicer.graph
        self.patch = patch
        self.origin = origin
        self.known = known
        self.places = ProblemPositions()
        self.findings = Findings(self.places.name)
        self.edits: Edits
        self._changed: dict[str, tuple[int, Step]] = {}  # steps that keep their id, with their new definitions
        self._needs: dict[str, tuple[str, ...]] = {}  # the dependencies of each step that is added or changed

    def run(self) -> CheckedPatch | None:
        if not is_whole_patch_fine(self.graph, self.patch, self.findings):
            return None
        is_from_planner = self.origin == "planner"
        self.edits = Edits(self.graph, self.patch, self.findings, is_from_planner=is_from_planner, known=self.known)
        check_new_ids(self.splicer.folded, self.edits.new, self.findings)
        # In the order of problems, a new step stands before the steps that wait for it.
        own = {id_: self.places.behind(edit, ".step") for id_, (edit, _) in self.edits.new.items()}
        self._change_dependents()
        scope = self._scope()
        steps = self._check_steps(scope, own)
        carried = self._changed.keys() - self.edits.rewired.keys()
        check_staleness(self.graph, self.patch, self._needs, carried, self.findings)
        self._check_left_behind()
        labels = self._place()
        output = self._check_output(scope)
        after = PlanAfter(self.graph, steps, self.edits.substitutes, frozenset(self.edits.leaving), self.edits.elements)
        check_released_answer(self.graph, self.edits, steps, self._answer(output), self.findings)
        check_ceilings(self.graph, self.edits.new, self.findings)
        flow = self._check_flow(steps, labels, own) if self.graph.plan.policy.flow is not None else None
        freeze = self._check_freeze(after, own) if self.graph.plan.policy.freeze_plan else None
        if self.findings.has_errors:
            return None
        must_be_sure = self.splicer.must_be_sure and self.patch.confidence is None
        people_agree = self.graph.plan.policy.approve_patches != "never" or must_be_sure
        return CheckedPatch(
            edits=tuple(self.edits.carried_out),
            steps=steps,
            substitutes=self.edits.substitutes,
            leaving=tuple(self.edits.leaving),
            labels=labels,
            changes_output=self._changes_output(),
            output=output,
            written_output=self._written_output(),
            consequence=self._consequence(steps),
            guards=removed_approvals(after) if self._may_loosen() else {},
            guarded_tools=missing_approvals(after) if self._may_loosen() else {},
            effects=tuple(id_ for id_, _ in after.calls()) if self._may_loosen() and people_agree else (),
            flow=flow,
            freeze=freeze,
        )

    def _check_flow(
        self, steps: dict[str, CheckedStep], order: Mapping[str, float], own: Mapping[str, int]
    ) -> FlowChange | None:
        """Check the flow of data across the trust boundary after the patch; *own* has the places of the new steps."""
        from dagrun.kernel.graph.patches.flow_after import FlowValidation, flow_of  # here: few policies have a boundary

        base = flow_of(self.graph)
        if base is None or self.findings.has_errors:
            return None

        edits = self.edits
        trial = FlowValidation(
            self.graph,
            base,
            steps,
            edits.substitutes,
            leaving=frozenset(edits.leaving),
            elements=edits.elements,
            order=order,
            place_of=partial(self._place_of, own),
        )
        refuses = base.rules.flow.otherwise == "refuse" and not self.splicer.is_folding
        return trial.look(self.origin, self.findings, refuses=refuses)

    def _check_freeze(self, after: PlanAfter, own: Mapping[str, int]) -> FreezeChange | None:
        """Check that the first plan has all calls of the patch; *own* has the places of the new steps."""
        from dagrun.kernel.graph.patches.plan_freeze import (  # here: few policies freeze the plan
            FreezeChange,
            FreezeValidation,
        )

        if self.findings.has_errors:
            return None
        if self.origin == "host":
            return FreezeChange(calls=after.steps, dropped=tuple(after.leaving))
        if not self._may_loosen():
            return None
        named = self.edits.new.keys() | self.edits.rewired.keys()
        place_of = partial(self._place_of, own)
        return FreezeValidation(after, named, place_of, self.findings, is_folding=self.splicer.is_folding).look()

    def _place_of(self, own: Mapping[str, int], id_: str) -> int:
        """Return the place of a step for a problem; *own* has the places of the new steps."""
        known = own.get(id_) if id_ not in self._changed else self._changed[id_][0]
        return self.places.behind(0, f" -> {id_}") if known is None else known

    def _may_loosen(self) -> bool:
        """Whether the patch might remove approvals; the author of the first plan writes all of it."""
        return self.origin == "planner" and self.graph.has_plan and not self.graph.is_drafting

    # Steps ------------------------------------------------------------------------------------------------

    def _change_dependents(self) -> None:
        """Make new definitions of the rewired steps, and of those that wait for a replaced step."""
        edits = self.edits
        for id_, (place, edit) in edits.rewired.items():
            # In one go: the names that the edit itself uses count more than those of substitutes.
            step = rename_in_step(self.graph.nodes[id_].plan.step, {**edits.substitutes, **edits.use_of(edit)})
            self._changed[id_] = (place, edits.rewrite(step, edit))
        for cause, node in self._dependents():
            if node.id in self._changed:
                continue
            place = edits.new[edits.substitutes[cause]][0] if cause in edits.substitutes else edits.dropped[cause]
            step = rename_in_step(node.plan.step, edits.substitutes)
            self._changed[node.id] = (self.places.behind(place, f" -> {node.id}"), step)

    def _dependents(self) -> Iterator[tuple[str, Node]]:
        """Yield the steps whose dependencies change because a step leaves: the id of that one, and the dependent."""
        for old in self.edits.leaving:
            is_replaced = old in self.edits.substitutes
            for after in self.graph.nodes[old].successors:
                if (is_replaced or old in after.plan.gates) and self._can_change(after):
                    yield old, after

    def _can_change(self, node: Node) -> bool:
        return not (node.state.is_settled or node.has_started or node.is_gone or self.edits.is_leaving(node))

    def _scope(self) -> CheckContext:
        nodes, new = self.graph.nodes, self.edits.new
        own_steps = {id_: place for id_, (place, _) in new.items() if id_ not in self.edits.elements}
        index = KnownIds(nodes, frozenset(self.edits.leaving), own_steps)  # without elements: no step can name one
        own = {id_: step for id_, (_, step) in {**new, **self._changed}.items()}
        definitions = Definitions(nodes, index, own)
        sources = ReferenceSources(definitions, dict(self.graph.plan.toolbox), self.splicer.inputs)
        plan = self.graph.plan
        return CheckContext(
            plan.policy, self.findings, index, self.splicer.facts, sources, plan.executors, plan.secrets, plan.deps
        )

    def _check_steps(self, scope: CheckContext, own: Mapping[str, int]) -> dict[str, CheckedStep]:
        """Check every added or changed step as a step of a plan; *own* has the places of the new ones."""
        replaced = {new: self.graph.nodes[old] for old, new in self.edits.substitutes.items()}
        steps = {}
        for id_, (_, step) in self.edits.new.items():
            checked = self._check_step(scope, own[id_], step, self.edits.elements.get(id_))
            if checked is not None:
                steps[id_] = checked
                if id_ in replaced:
                    check_frozen_call(checked, replaced[id_], own[id_], self.findings)
        for id_, (place, step) in self._changed.items():
            node = self.graph.nodes[id_]
            checked = self._check_step(scope, place, step, node if node.parent is not None else None, node.plan)
            if checked is not None:
                steps[id_] = checked
                check_frozen_call(checked, node, place, self.findings)
        return steps

    def _check_step(
        self, scope: CheckContext, place: int, step: Step, element: Node | None, old: CheckedStep | None = None
    ) -> CheckedStep | None:
        """Check one step.

        Args:
            scope: The plan, tools and policy, as checks see them.
            place: Its place in the patch.
            step: Its definition.
            element: The element of a for_each that it replaces or is; `None` if there is none.
            old: Its old definition, if it keeps its id.
        """
        seen = as_element(step, place, self.findings) if element is not None else step
        checked, waits_for = check_step(scope, place, seen)
        self._needs[step.id] = waits_for
        if checked is None:
            return None
        if element is not None:
            checked = without_list(checked, step)
            self._check_source(checked, element, place)
        if old is not None:
            checked = behind_its_wave(checked, old, self.edits.substitutes, self.edits.dropped)
            self._needs[step.id] = checked.depends_on
        check_released_sources(self.graph, checked, place, self.findings)
        self._check_dependencies(checked, place, frozenset(old.depends_on) if old is not None else frozenset())
        return checked

    def _check_dependencies(self, checked: CheckedStep, place: int, before: frozenset[str]) -> None:
        """Refuse new dependencies on steps that have ended without success."""
        if self.origin == "planner" and (self.graph.is_drafting or not self.graph.has_plan):
            return  # the planner writes the first plan, or a better one, as if no step had run
        for need in checked.depends_on:
            node = self.graph.nodes.get(need)
            if node is None or need in before or need in self.edits.new or need in checked.gates:
                continue
            if node.extra is not None and node.extra.is_closed:
                state = "was stopped by a person, with all that waits for it"
                self.findings.add("DR407", place, "", step=checked.step.id, dependency=need, state=state)
            elif node.state.is_settled and node.state is not _SUCCEEDED:
                if node.is_tolerated and need not in checked.value_sources:
                    continue
                state = f"ended as {node.state}"
                self.findings.add("DR407", place, "", step=checked.step.id, dependency=need, state=state)

    def _check_source(self, checked: CheckedStep, element: Node, place: int) -> None:
        """Refuse a substitute that reads its element, if that is one of another for_each, and has failed."""
        source = needed_source(element, checked) if element.item is OF_ANOTHER else None
        if source is None or not source.state.is_settled or self.edits.is_leaving(source):
            return
        if self.graph.would_block(source, checked):
            facts = {"step": checked.step.id, "dependency": source.id, "state": f"ended as {source.state}"}
            self.findings.add("DR407", place, "", **facts)

    def _check_left_behind(self) -> None:
        """Refuse to drop a step that others would still wait for, or to take a list from under those that follow it."""
        for id_ in self.edits.leaving:
            extra = self.graph.nodes[id_].extra
            for after in extra.followers if extra is not None else ():
                if goes_through(after, self.graph.nodes[id_]) and not self.edits.is_leaving(after):
                    place = self.edits.place_of(id_)
                    self.findings.add("DR425", place, "id", step=after.id, dependency=id_)
        for id_, place in self.edits.dropped.items():
            for after in self.graph.nodes[id_].successors:
                if after.id not in self._changed and self._can_change(after):
                    self.findings.add("DR406", place, "id", step=after.id, dependency=id_)

    def _place(self) -> dict[str, float]:
        """Find order labels for the new edges."""
        needs = {id_: [need for need in waits_for if self._is_open(need)] for id_, waits_for in self._needs.items()}
        for id_, element in self.edits.elements.items():
            assert element.parent is not None
            needs.setdefault(element.parent.id, []).append(id_)  # a for_each waits for its elements
        after = waiting_after(self.graph, needs, frozenset(self.edits.leaving))
        labels = Labels(self.graph.labels, after)
        try:
            labels.place(needs, [id_ for id_ in self.edits.new if id_ in needs])
        except Cycle as cycle:
            self.findings.add("DR106", WHOLE_PLAN, "edits", cycle=cycle_text(cycle.steps))
        return labels.changed

    def _is_open(self, id_: str) -> bool:
        """Whether an edge from a step could close a cycle."""
        return id_ in self.edits.new or not is_over(self.graph.nodes[id_])

    # The whole --------------------------------------------------------------------------------------------

    def _written_output(self) -> Any:
        if self.patch.changes_output:
            return rename_in_output(self.patch.output, self.edits.instead)
        return rename_in_output(self.graph.written_output, self.edits.substitutes)

    def _changes_output(self) -> bool:
        return self.patch.changes_output or self._written_output() != self.graph.written_output

    def _check_output(self, scope: CheckContext) -> Template | None:
        if not self.patch.changes_output:
            used = self.graph.output.sources if self.graph.output is not None else frozenset()
            for id_, place in self.edits.dropped.items():
                if id_ in used:
                    self.findings.add("DR416", place, "id", step=id_)
        if not self._changes_output() or self._written_output() is None:
            return None
        return check_output(scope, self._written_output())

    def _answer(self, changed: Template | None) -> Template | None:
        """Return the answer of the run with the patch, as a template; `None` for the outputs of the sinks."""
        return changed if self._changes_output() else self.graph.output

    def _consequence(self, steps: Mapping[str, CheckedStep]) -> Consequence:
        nodes, edits = self.graph.nodes, self.edits
        leaving = [nodes[id_] for id_ in edits.leaving]
        used = dict.fromkeys(need for checked in steps.values() for need in checked.depends_on if need in nodes)
        return Consequence(
            added=tuple(edits.new),
            dropped=tuple(edits.dropped),
            replaced=dict(edits.substitutes),
            rewired=tuple(self._changed),
            cancelled=tuple(part.id for node in leaving for part in running_parts(node)),
            superseded=tuple(part.id for node in leaving for part in ending_parts(node)),
            unblocked=tuple(id_ for id_ in self._changed if self._will_be_free(nodes[id_], steps[id_])),
            reused=tuple(need for need in used if nodes[need].state is _SUCCEEDED),
            fallen=tuple(edits.fallen),
        )

    def _will_be_free(self, node: Node, checked: CheckedStep) -> bool:
        """Whether a step that is blocked now will not be blocked with the patch."""
        if node.state is not State.BLOCKED:
            return False
        needs = [self.graph.nodes[need] for need in checked.depends_on if need in self.graph.nodes]
        return not any(need.state.is_settled and self.graph.would_block(need, checked) for need in needs)
