"""Broken parts of splice, coordinator, people and ledger: one plausible bug each, and the proofs must notice all."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from broken_ledgers import ChecksThenActs, ReservesAnEstimate
from dagrun import Asked, Event, Patch, Rewire, Run, State, Step
from dagrun.errors import SpliceRefused
from dagrun.events import GoalChanged
from dagrun.kernel.decide import replanning as governor
from dagrun.kernel.decide.questions import Questions
from dagrun.kernel.graph.changes import apply
from dagrun.kernel.graph.ledger import Ledger
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches import apply_patch as precedence
from dagrun.kernel.graph.patches import apply_patch as splicing
from dagrun.kernel.graph.patches import check_patch as patch
from dagrun.kernel.graph.patches import edits as patch_rules
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.kernel.graph.step_order import Cycle, Frontier, Labels
from dagrun.kernel.model import patch as rename
from dagrun.kernel.model.outcome import Outcome
from dagrun.kernel.runtime.live_attempt import LiveAttempt
from dagrun.kernel.runtime.planning.coordinator import Coordinator
from dagrun.kernel.runtime.record.record import Record
from dagrun.kernel.runtime.steps.attempt_completion import AttemptCompletion
from dagrun.kernel.runtime.steps.run_completion import Cancellation
from dagrun.kernel.runtime.steps.scheduler import Workers

# As they are; while a mutant is in place, its name leads to the mutant.
_is_editable = patch_rules.is_editable
_rename_in_step = rename.rename_in_step
_define, _hand_over, _take_out = splicing._define, splicing._hand_over, splicing._take_out

# Checking a patch -----------------------------------------------------------------------------------------------------


def nothing(*_: Any, **__: Any) -> None:
    """A rule that nobody keeps."""


def any_edit(edit: Any, node: Node, number: int, findings: Any) -> bool:
    """A step that has started may be rewired like one that has not."""
    if isinstance(edit, Rewire) and not node.state.is_settled and node.parent is None:
        return True
    return _is_editable(edit, node, number, findings)


class LooksAtNoCycle(Labels):
    """What waits for itself finds its place as well."""

    def place(self, needs: Mapping[str, Iterable[str]], new: Iterable[str]) -> None:
        fresh = list(new)
        try:
            super().place(needs, fresh)
        except Cycle:
            self.changed |= {id_: 0.0 for id_ in fresh if id_ not in self.changed}


class LabelsInPlace(Labels):
    """Notes down what it has only tried."""

    def __init__(self, old: Mapping[str, float], after: Callable[[str], Iterable[str]]) -> None:
        super().__init__(old, after)
        assert isinstance(old, dict)
        self.changed = old


class LeavesBehind(patch._PatchValidation):
    """Nobody looks whether something still waits for a step that is dropped."""

    def _check_left_behind(self) -> None:
        pass


class KnowsNoTime(Splicer):
    """Takes every author for one who has looked just now."""

    def check(self, patch: Any, origin: Any = "host", known: Collection[str] | None = None) -> Any:
        return super().check(patch, origin)


def old_inputs(step: Step, use: Mapping[str, str]) -> Step:
    """Waits for the new step and takes its input from the old one."""
    changed = _rename_in_step(step, use)
    return changed.model_copy(update={"args": step.args}) if "args" in step.model_fields_set else changed


class ForgetsLists(patch._PatchValidation):
    """Nobody thinks of it that a for_each waits for its elements."""

    def _place(self, *args: Any) -> Any:
        kept, self.edits.elements = self.edits.elements, {}
        try:
            return super()._place(*args)
        finally:
            self.edits.elements = kept


# Applying it ----------------------------------------------------------------------------------------------------------


class LeavesInTheQueue(Frontier):
    """A step that is rewired while it waits for its turn keeps its old place as well."""

    def withdraw(self, nodes: Collection[Node]) -> None:
        pass


class ForgetsWhatIsOnTheWay(Workers):
    """A step that was taken and has not begun is not taken back."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._frontier.elsewhere.clear()
        self._on_the_way = _Everything()


class _Everything(list[Node]):
    def __contains__(self, node: object) -> bool:
        return True

    def remove(self, node: Node) -> None:
        pass


class IgnoresTheFirstLimit(Frontier):
    """A plan that began without limits stays without."""

    def rank(self, priorities: dict[str, float]) -> None:
        pass


class CountsNothingAnew(LiveGraph):
    """A rewired step goes on waiting for as many as before."""

    def reassess(self, node: Node) -> None:
        was, state = node.missing, node.state
        super().reassess(node)
        if state is State.WAITING and node.state is State.WAITING:
            node.missing = was


class WaitsForWhatIsOver(LiveGraph):
    """A new edge counts, whether its first step has settled or not."""

    def reassess(self, node: Node) -> None:
        super().reassess(node)
        if node.state is State.READY and node.plan.depends_on:
            self.frontier.withdraw([node])
            node.state, node.missing = State.WAITING, len(node.plan.depends_on)


def forgets_the_freeze(graph: LiveGraph, event: Event, node: Node | None = None) -> None:
    """After a change of the goal everything goes on as before."""
    apply(graph, event, node)
    if isinstance(event, GoalChanged):
        graph.is_frozen = False
        for each in graph.nodes.values():
            if each.state is State.BLOCKED and not each.attempts and each.parent is None:
                graph.reassess(each)


class TakesSurprisesLightly(LiveGraph):
    """What depends on a surprise does not wait until the planner has looked at it."""

    def blocks(self, node: Node, after: Node) -> bool:
        return node.state is not State.SUCCEEDED and super().blocks(node, after)


class NeverLetsGo(LiveGraph):
    """What has waited for the planner waits for ever."""

    def unblock_dependents(self, node: Node, why: str) -> None:
        pass


def hand_over_alone(old: Node, new: Node) -> None:
    """The for_each does not wait for the substitute of its element."""
    _hand_over(old, new)
    if new.parent is not None:
        new.parent.missing -= 1


def take_out_half(graph: LiveGraph, node: Node, event: Any) -> None:
    """What is dropped in the middle of its work stays in the plan."""
    _take_out(graph, node, event)
    if node.state is State.RUNNING:
        node.make_extra().is_gone = False


def define_and_keep(graph: LiveGraph, patch: CheckedPatch) -> list[Node]:
    """A rewired step keeps what a person has agreed to."""
    kept = {id_: node.extra.approved for id_ in patch.steps if (node := graph.nodes.get(id_)) and node.extra}
    new = _define(graph, patch)
    for id_, approved in kept.items():
        graph.nodes[id_].make_extra().approved = approved
    return new


class DeliversWhatWasSuperseded(AttemptCompletion):
    """A dropped step that comes home with a value has succeeded."""

    def conclude(self, live: LiveAttempt, outcome: Outcome | None) -> None:
        if live.asked is State.SUPERSEDED and outcome is not None and outcome.state is State.SUCCEEDED:
            live.asked = None
        super().conclude(live, outcome)


class StopsNothing(Cancellation):
    """What is dropped while it runs is not told."""

    def tell(self, live: LiveAttempt, asked: State, reason: str) -> None:
        if asked is not State.SUPERSEDED:
            super().tell(live, asked, reason)


class SplicesInPassing(Run):
    """A run that is being stopped takes new steps, which never start and never end."""

    def _checked(self, patch: Patch) -> CheckedPatch:
        checked, problems = self._record.splicer.check(patch)
        if checked is None:
            raise SpliceRefused(problem for problem in problems if not problem.is_advice)
        return checked


class WaitsForSkippedElements(Record):
    """A for_each whose last element is skipped does not end."""

    def _join(self, parent: Node | None) -> None:
        if parent is None or not any(child.state is State.SKIPPED for child in parent.children or ()):
            super()._join(parent)


# People and planner ---------------------------------------------------------------------------------------------------


class AsksAboutTheToolAlone(Questions):
    """A yes is good for every call of the step, whatever becomes of its arguments."""

    def _id(self, kind: Asked, text: str, node: Node | None, valid_for: str, place: str) -> str:
        return super()._id(kind, text, node, valid_for, place) if node is None else f"{kind} {node.id} {text}"


class AsksTwiceAtOnce(Coordinator):
    """Every reason is a request of its own, at once."""

    def wake(self) -> None:
        self._is_busy = False
        super().wake()


def is_never_seen(fingerprint: str, past: Iterable[Any]) -> bool:
    """The planner is asked about the very same failure again."""
    return False


class GrantsEveryRequest(Ledger):
    """Counts requests to the planner, and refuses none."""

    def why_no_planner(self) -> str:
        return ""


SPLICE_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "a stale splice is accepted": {patch_rules.check_staleness: nothing},
    "a reused id is accepted": {patch_rules.check_new_ids: nothing},
    "a repeated call in doubt is accepted": {patch_rules.check_frozen_call: nothing},
    "a step that runs is redefined": {patch_rules.is_editable: any_edit},
    "no cycle is looked for": {Labels: LooksAtNoCycle},
    "a cycle through a for_each is not seen": {patch._PatchValidation: ForgetsLists},
    "a refused patch leaves a trace": {Labels: LabelsInPlace},
    "dependents of a dropped step are lost": {patch._PatchValidation: LeavesBehind},
    "an edit that comes too late is carried out": {Splicer: KnowsNoTime},
    "dependents of a replaced step keep the old input": {rename.rename_in_step: old_inputs},
    "a rewired step is in the queue twice": {Frontier: LeavesInTheQueue},
    "a rewired step on its way to a worker starts twice": {Workers: ForgetsWhatIsOnTheWay},
    "the first limit that a patch brings is ignored": {Frontier: IgnoresTheFirstLimit},
    "priorities are those of the old plan": {precedence.set_priorities: nothing},
    "what a rewired step misses is not counted anew": {LiveGraph: CountsNothingAnew},
    "an edge to a settled step counts as open": {LiveGraph: WaitsForWhatIsOver},
    "the freeze of a changed goal is forgotten": {apply: forgets_the_freeze},
    "a surprise does not hold back what depends on it": {LiveGraph: TakesSurprisesLightly},
    "a replan never ends the hold": {LiveGraph: NeverLetsGo},
    "a for_each does not wait for a substitute": {splicing._hand_over: hand_over_alone},
    "a dropped step that runs stays in the plan": {splicing._take_out: take_out_half},
    "the result of a superseded step is delivered": {AttemptCompletion: DeliversWhatWasSuperseded},
    "a dropped step goes on running": {Cancellation: StopsNothing},
    "a run that is being stopped takes patches": {Run: SplicesInPassing},
    "a for_each waits for a skipped substitute": {Record: WaitsForSkippedElements},
    "two requests to the planner at once": {Coordinator: AsksTwiceAtOnce},
    "the planner is asked about the same failure again": {governor.is_seen: is_never_seen},
    "the planner is asked more often than the policy says": {Ledger: GrantsEveryRequest},
    "an approval outlives a rewire": {Questions: AsksAboutTheToolAlone, splicing._define: define_and_keep},
    "the budget is checked and then spent": {Ledger: ChecksThenActs},
    "the budget reserves an estimate": {Ledger: ReservesAnEstimate},
}
