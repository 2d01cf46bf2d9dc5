"""The live graph: the one place where the state of a run changes, and only by an event.

`LiveGraph.apply` is how a running run changes, and how a record of it is folded into the same state again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, ClassVar, Final

from dagrun.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.errors import Problem
from dagrun.graph.caps import Cap
from dagrun.graph.frontier import Frontier
from dagrun.graph.longest_paths import Expected
from dagrun.graph.node import Node, nodes_of
from dagrun.graph.order_labels import first_labels
from dagrun.graph.plan_history import PastReplan, Revision
from dagrun.model import event as events
from dagrun.model.event import (
    AttemptEnded,
    AttemptStarted,
    Event,
    ModelCharged,
    ModelReserved,
    RunStarted,
    StepSettled,
)
from dagrun.model.outcome import SETTLED, Attempt, Recovery, State, Status
from dagrun.model.planner import Trigger
from dagrun.model.question import Question
from dagrun.model.reference import Reference, Template
from dagrun.model.usage import ModelUse
from dagrun.model.value import Stored, Unavailable, decode, encode, select_part, value_at

_WAITING: Final = State.WAITING
_READY: Final = State.READY
_RUNNING: Final = State.RUNNING
_SUCCEEDED: Final = State.SUCCEEDED
_BLOCKED: Final = State.BLOCKED
_PROCEED: Final = Recovery.PROCEED

# Why what depends on a step waits, although the step has settled.
REPLAN: Final = "replan"
PAUSE: Final = "pause"


class LiveGraph:
    """The steps of a run and their states.

    Args:
        plan: What is run.
        inputs: The inputs of the run, stored.
        frontier: Gets every step that becomes ready.
        caps_of: The caps that count a step; called where caps are set at all.
        expected: How long steps are expected to take; `None` for what the plan alone says.

    Attributes:
        unsettled: How many steps have not settled.
        goal: What the run is for.
        output: What it answers, ready to be filled; `None` for the outputs of the sinks.
        revisions: The splices and changes of the goal so far.
        kept: For each settled step that its dependents wait for nevertheless: why.
        triggers: The reasons to ask the planner that are open, by step; an empty id stands for the goal.
        questions: The questions to people that are open, by id.
        replanned: The requests to the planner that are over.
        replans: Requests to the planner so far.
        asking: The number of the one that is open; 0 if none is.
        why_unchanged: Why the plan was not changed after a failure, the last time that it was not.
        warnings: What was surprising and led to no change of the plan.
        withheld: How the run ends if its answer is not handed out, once that is so.
        models: What the models of the planner and of the critics have used so far.
        is_frozen: Whether nothing may start that has not started: the goal has changed, and the plan has not yet.
        is_drafting: Whether the planner still writes the first plan: what has an effect waits until it is ended.
        has_plan: Whether there is a plan, or the planner has still to find one.
        wants_more: Whether the planner is to be asked again once everything in the plan has ended.
        problems: What is wrong with the first plan, as long as there is none that could be run.
        draft_end: How the first plan has ended, and why, if the planner had to write it; empty as long as it has not.
        planner_calls: Calls of the planner so far.
        model_calls: Calls of models that no tool has made, by number: how they were reserved, and charged.
        stopping: With what status, and why, the run is being ended early, if it is.
        saving: The ceiling that is near, so that optional steps are dropped; `None` as long as there is none.
        roots: For steps whose keys are not made of their own id: what they are made of, and the generation.
        all_well: Whether every step that has settled has succeeded, so that nobody need look for others.
        all_known: Whether it is known of each that has settled how it did.
        shown_output: What people were asked about last as the answer of the run, stored; empty if they were not.
    """

    changes: ClassVar[Mapping[type[Event], Callable[..., None]]]  # what each kind of event changes

    # Where a run begins; each of these is only ever replaced.
    status: Status | None = None
    reason = ""
    replans = 0
    asking = 0
    why_unchanged = ""
    withheld: tuple[Status, str] | None = None
    is_frozen = is_drafting = wants_more = False
    problems: tuple[Problem, ...] = ()
    draft_end = ("", "")
    planner_calls = 0
    stopping: tuple[Status, str] | None = None
    saving: events.CeilingNear | None = None
    shown_output: Stored = b""
    all_well = all_known = True

    def __init__(
        self,
        plan: CheckedPlan,
        inputs: Stored,
        frontier: Frontier,
        caps_of: Callable[[CheckedStep], tuple[Cap, ...]] | None = None,
        expected: Expected | None = None,
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.frontier = frontier
        self.caps_of = caps_of
        self.expected = expected or Expected(plan)
        self.unsettled = len(plan.steps)
        self.goal = plan.plan.goal
        self.output: Template | None = plan.output
        self.revisions: list[Revision] = []
        self.kept: dict[str, set[str]] = {}
        self.triggers: dict[str, Trigger] = {}
        self.questions: dict[str, Question] = {}
        self.replanned: list[PastReplan] = []
        self.models = ModelUse()
        self.warnings: list[str] = []
        self.has_plan = bool(plan.steps)
        self.model_calls: dict[int, tuple[ModelReserved, ModelCharged | None]] = {}
        self.roots: Mapping[str, tuple[str, int]] = {}
        self._nodes = nodes = dict(zip(plan.steps, nodes_of(plan), strict=True))
        if caps_of is not None:
            for node in nodes.values():
                node.caps = caps_of(node.plan)

    @property
    def nodes(self) -> dict[str, Node]:
        """Every step that ever was in the plan, by id, elements of for_each included."""
        return self._nodes

    def begin(self) -> None:
        """Put what waits for nothing on the frontier."""
        for node in self.nodes.values():
            if node.state is _READY:
                self.frontier.push(node)

    def apply(self, event: Event, node: Node | None = None) -> None:
        """Change the state as *event* says; *node* is its step, if at hand. Never fails on an event of a run."""
        if node is None:
            self.changes[type(event)](self, event)
        else:
            self.changes[type(event)](self, event, node)

    # Values -----------------------------------------------------------------------------------------------

    def look_up(self, reference: Reference, node: Node | None = None) -> Stored:
        """Give what *reference* stands for, in the arguments of *node*.

        Raises:
            LookupError: There is no such part.
        """
        value = self._source(reference.step, node)
        try:
            return select_part(value, reference.path) if reference.path else value
        except LookupError as error:
            raise LookupError(f"{reference}: {error}") from None

    def look_at(self, reference: Reference, own: tuple[str, Stored] | None = None) -> Any:
        """Give the decoded value of *reference*, for a condition; *own* is the fresh output of a step.

        Raises:
            LookupError: There is no such part.
        """
        value = own[1] if own is not None and own[0] == reference.step else self._source(reference.step, None)
        return value_at(decode(value), reference.path)

    def _source(self, step: str, node: Node | None) -> Stored:
        if step == "input":
            return self.inputs
        if step == "item" and node is not None:
            return node.item
        source = self._nodes[step]
        if source.state is not _SUCCEEDED:
            raise LookupError(f"step {step} has no output: it is {source.state}")
        if type(source.value) is Unavailable:
            raise LookupError(f"what step {step} gave cannot be had again: {source.value.reason}")
        return source.value

    # Attempts ---------------------------------------------------------------------------------------------

    def _run_started(self, event: RunStarted) -> None:
        self.roots = event.opening.roots if event.opening is not None else {}
        for id_ in self.roots:
            if id_ in self.nodes:  # the elements of a for_each come later
                self.inherit_root(self.nodes[id_])
        self.begin()

    def inherit_root(self, node: Node) -> None:
        """Give *node* what the keys of its calls are made of: a run that this one does again has made them so."""
        extra = node.make_extra()
        extra.root, extra.generation = self.roots[node.id]

    def _attempt_started(self, event: AttemptStarted, node: Node | None = None) -> None:
        node = self._nodes[event.step] if node is None else node
        node.state = _RUNNING
        node.earlier = () if node.latest is None else node.attempts
        node.latest = Attempt(event.attempt, event.tool, event.at)

    def _attempt_ended(self, event: AttemptEnded, node: Node | None = None) -> None:
        node = self._nodes[event.step] if node is None else node
        attempt = node.latest
        assert attempt is not None
        attempt.ended, attempt.outcome, attempt.decision = event.at, event.outcome, event.decision
        if event.state is _SUCCEEDED and event.decision.recovery is _PROCEED and not node.plan.pauses_after:
            node.state, node.value = _SUCCEEDED, event.outcome.value
            self.settled(node)
        else:
            self._decided(node, event)

    def _reviewed(self, event: events.Reviewed) -> None:
        node = self.nodes[event.step]
        node.make_extra().verdicts = event.verdicts
        for verdict in event.verdicts:
            self.models.add(verdict.tokens, verdict.cost)
        attempt = node.attempts[-1]
        attempt.outcome, attempt.decision = event.outcome, event.decision
        self._decided(node, event)

    def _decided(self, node: Node, event: AttemptEnded | events.Reviewed) -> None:
        """Put *node* where recovery has decided that it stands."""
        recovery, state = event.decision.recovery, event.state
        node.state = state
        if recovery is Recovery.REPLAN:
            self.kept.setdefault(node.id, set()).add(REPLAN)
        if state is _SUCCEEDED:
            if node.pauses_after:
                self.kept.setdefault(node.id, set()).add(PAUSE)
            is_default = recovery is Recovery.DEFAULT
            node.value = encode(node.plan.step.default) if is_default else event.outcome.value
            if event.outcome.surprise and recovery is _PROCEED:
                self.warnings.append(f"{node.id} was surprising ({event.outcome.surprise}), and nobody was asked")
            self.settled(node)
        elif state in SETTLED:
            # What was told to stop because the plan does without it is missed by nobody, a doubt about it excepted.
            self.all_well, self.all_known = False, self.all_known and state is not State.UNKNOWN
            node.is_tolerated = recovery is Recovery.SKIP or (node.is_gone and state is not State.UNKNOWN)
            self.settled(node)
        else:
            node.on_fallback = recovery is Recovery.FALL_BACK or node.on_fallback

    # Ends -------------------------------------------------------------------------------------------------

    def _step_settled(self, event: StepSettled, node: Node | None = None) -> None:
        node = self._nodes[event.step] if node is None else node
        node.state = event.state
        node.value = event.value
        node.is_tolerated = event.is_tolerated
        node.ended = event
        self.all_well = self.all_well and event.state is _SUCCEEDED
        self.all_known = self.all_known and event.state is not State.UNKNOWN
        if event.asks_planner:
            self.kept.setdefault(node.id, set()).add(REPLAN)
        if node.state is _SUCCEEDED and node.pauses_after:
            self.kept.setdefault(node.id, set()).add(PAUSE)
        self.settled(node)

    def settled(self, node: Node) -> None:
        """Count a step that has ended; release what waited only for it, block what cannot run without it."""
        self.unsettled -= 1
        if node.parent is not None:
            node.parent.missing -= 1
        keeps_back = node.state is not _SUCCEEDED or (bool(self.kept) and node.id in self.kept)
        is_held, push = self.is_frozen or self.is_drafting, self.frontier.push
        for after in node.successors:
            after.missing = missing = after.missing - 1
            if missing and not keeps_back:
                continue  # by far the most frequent case
            if after.state is not _WAITING:
                continue
            if keeps_back and self.blocks(node, after):
                after.state = _BLOCKED
            elif not missing and is_held:
                self.release(after)
            elif not missing:
                after.state = _READY  # as `release` does, of which a call costs too much here
                push(after)

    def blocks(self, node: Node, after: Node) -> bool:
        """Whether *after* cannot run, for now or for ever, because of how *node* has settled."""
        return self.would_block(node, after.plan)

    def would_block(self, node: Node, plan: CheckedStep) -> bool:
        """The same of a step that is defined by *plan*."""
        if node.id in plan.gates:
            return False
        if node.id in self.kept:
            return True
        return node.state is not _SUCCEEDED and (not node.is_tolerated or node.id in plan.value_sources)

    def release(self, node: Node) -> None:
        """Let a step start that waits for nothing any more."""
        if not node.attempts and (self.is_frozen or (self.is_drafting and not may_start_early(self, node.plan))):
            node.state = _BLOCKED
            return
        node.state = _READY
        self.frontier.push(node)

    def reassess(self, node: Node) -> None:
        """Find out anew where a step stands that has not started: from all that it depends on."""
        missing, is_blocked = 0, False
        for id_ in node.plan.depends_on:
            before = self.nodes[id_]
            if not before.state.is_settled:
                missing += 1
            elif self.blocks(before, node):
                is_blocked = True
        node.missing = missing
        if is_blocked:
            node.state = _BLOCKED
        elif missing:
            node.state = _WAITING
        else:
            self.release(node)

    def let_go(self, node: Node, why: str) -> None:
        """A reason for which the dependents of a settled step had to wait is gone."""
        reasons = self.kept.get(node.id)
        if reasons is None:
            return
        reasons.discard(why)
        if reasons:
            return
        del self.kept[node.id]
        for after in node.successors:
            # What a failure blocks stays so, until somebody says that it is skipped.
            if after.state is _BLOCKED and not self.blocks(node, after):
                self.reassess(after)

    # Questions --------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The number of the present revision; 0 for the plan that the run began with."""
        return len(self.revisions)

    @cached_property
    def labels(self) -> dict[str, float]:
        """The order labels of all steps of the plan; see `labels.Labels`."""
        return first_labels(self.plan)

    def planned(self) -> Iterator[Node]:
        """The steps of the plan as it stands, without the elements of for_each."""
        return (node for node in self.nodes.values() if node.parent is None and not node.is_gone)

    def after(self, node: Node) -> Iterator[Node]:
        """The steps of the plan as it stands that wait for *node*; for an element, its for_each."""
        found = (after if after.parent is None else after.parent for after in node.successors)
        return (after for after in found if not after.is_gone)

    def sinks(self) -> list[Node]:
        """The steps that nothing waits for, but for the end of a wave."""
        return [node for node in self.planned() if all(node.id in after.plan.gates for after in self.after(node))]


def freeze(graph: LiveGraph) -> None:
    """Let nothing start that has not started."""
    graph.is_frozen = True
    ready = [node for node in graph.nodes.values() if node.state is State.READY and not node.attempts]
    graph.frontier.withdraw(ready)
    for node in ready:
        node.state = State.BLOCKED


def thaw(graph: LiveGraph) -> None:
    """Let everything start that waits for nothing else."""
    graph.is_frozen = False
    for node in list(graph.nodes.values()):
        if node.state is State.BLOCKED and node.is_defined_by_parent:
            graph.release(node)  # it waits for nothing but its turn
        elif node.state is State.BLOCKED:
            graph.reassess(node)


def may_start_early(graph: LiveGraph, plan: CheckedStep) -> bool:
    """Whether a step may be called before the plan is ended: nothing can come of it that a better plan would regret."""
    tools = (plan.tool,) if plan.fallback is None else (plan.tool, plan.fallback)
    safe = graph.plan.policy.stream_safe
    return all(tool.effect.is_free or tool.stream_safe or tool.name in safe for tool in tools)
