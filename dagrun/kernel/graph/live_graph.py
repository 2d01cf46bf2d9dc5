"""The state of a run: its steps, and the rules by which they are released and blocked; and how it is built.

Nothing here changes by itself: `changes.apply` turns each event into a change of this state, both while a run goes on
and while its record is folded. `changes.py` says which event changes what. `build` needs nothing of the run, so that
the state of a large plan can be built in a worker thread.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dagrun.errors import Problem
from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.graph.node import Cap, Node, nodes_of
from dagrun.kernel.graph.plan_history import PastReplan, Revision
from dagrun.kernel.graph.step_order import Expected, Frontier, first_labels, priorities
from dagrun.kernel.model.contracts.held_objects import HeldObjects, held
from dagrun.kernel.model.contracts.spilling import why_spilled
from dagrun.kernel.model.event import CeilingNear, Event, HandedOn, ModelCharged, ModelReserved
from dagrun.kernel.model.outcome import Failure, State, Status
from dagrun.kernel.model.planner import Trigger
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Question
from dagrun.kernel.model.reference import Reference, Template
from dagrun.kernel.model.usage import ModelUse
from dagrun.kernel.model.value import (
    Path,
    Stored,
    Unavailable,
    decode,
    encode_plain,
    is_lost_object,
    select_part,
    value_at,
)

if TYPE_CHECKING:
    from dagrun.kernel.checks.flow.labels import FlowLabels
    from dagrun.kernel.graph.frozen_plan import FrozenPlan

_WAITING: Final = State.WAITING
_READY: Final = State.READY
_SUCCEEDED: Final = State.SUCCEEDED
_BLOCKED: Final = State.BLOCKED

# Stands for the element of a for_each over the elements of another: it is the output of one of those.
OF_ANOTHER: Final = Unavailable("it is an element of another step")

# Why the dependents of a step wait, although the step has settled.
REPLAN: Final = "replan"
PAUSE: Final = "pause"


@dataclass(slots=True, eq=False)
class ReleasedOutputs:
    """Outputs that no step needs, where the policy releases them; `output_eviction.py` has the rules.

    Attributes:
        drops: Whether released values are dropped at once; else they are only marked.
        marked: The ids of the steps whose values are marked as released.
        changed: The steps that have settled or lost a reader, and have not been looked at since.
        first_readers: By step id: where in its list of successors the first one stands that may still read it.
        named: A cache: the output of the plan, and the ids of the steps that it names.
        only_objects: Whether only outputs with objects in memory are released, because the policy keeps the others.
    """

    only_objects: bool = False
    drops: bool = True
    marked: set[str] = field(default_factory=set)
    changed: list[Node] = field(default_factory=list)
    first_readers: dict[str, int] = field(default_factory=dict)
    named: tuple[Template | None, frozenset[str]] = (None, frozenset())


class LiveGraph:
    """The steps of a run and their states.

    Args:
        plan: The plan that the run begins with.
        inputs: The inputs of the run, stored.
        frontier: Receives every step that becomes ready.
        caps_of: Returns the caps that count a step; `None` if no caps are set.
        expected: How long steps are expected to take; `None` for the estimates of the plan alone.

    Attributes:
        nodes: Every step that ever was in the plan, by id, elements of for_each included.
        status: How the run has ended or was suspended; `None` while it goes on.
        reason: Why, in a sentence; empty while it goes on.
        unsettled: The number of steps that have not settled.
        goal: The goal of the run.
        output: The answer of the run as a template; `None` if the outputs of the sinks are the answer.
        revisions: The splices and changes of the goal so far.
        kept: The settled steps whose dependents are kept waiting, by id, and the reasons (`REPLAN`, `PAUSE`).
        triggers: The open reasons to ask the planner, by step id; an empty id stands for the goal.
        questions: The open questions to people, by id.
        replanned: The finished requests to the planner.
        replans: The number of requests to the planner so far.
        asking: The open requests: the steps that each is about, by number.
        handed_on: By open request, how the planners of a fallback chain have handed it on; 0 stands for the first plan,
            and for the next steps of it.
        why_unchanged: Why the last request after a failure did not change the plan.
        rare: The events that leave no trace in the nodes, in order: those about the run, the planner and people; for
            the caller that reports the event. Values of steps are left out.
        warnings: Surprising outputs that led to no change of the plan, a sentence each.
        withheld: The status and reason with which the run ends if its answer may not be handed out.
        models: Tokens and cost of the models of planners and critics so far.
        is_frozen: Whether no step may start that was never called: there is no valid plan for the goal.
        is_drafting: Whether the planner is writing the first plan: steps with effects wait for its end.
        has_plan: Whether there is a plan; else the planner has yet to find one.
        wants_more: Whether the planner is asked again once every step of the plan has ended.
        problems: The problems of the first plan, as long as there is none that can be run.
        draft_end: How the first plan has ended, and why, if the planner wrote it; empty until then.
        planner_calls: The number of calls of the planner so far.
        planner_answers: What the planner's models answered in its last call.
        planner_notes: What the planner wrote down for itself in its last call that wrote any.
        planner_failure: The failure of that call; `None` if it did not fail.
        model_calls: The calls of models that no tool made, by number: the reservation and the charge.
        stopping: The status and reason with which the run is being ended early; `None` if it is not.
        saving: The ceiling that is nearly spent, so that optional steps are dropped; `None` if none is.
        roots: For steps that have the keys of another run: the id that the keys are made of, and the generation.
        guarded_tools: By tool: how people looked at calls that a planner has changed, also in an earlier run.
        parent: The run that this one retries; empty if it retries none.
        elements: By id: the outputs of elements of for_each that are taken over from that run.
        has_agreed: Whether a person has agreed to a plan or a patch of the planner that is not applied yet.
        all_well: Whether every settled step has succeeded: then no search for others is needed.
        all_known: Whether no settled step is in doubt.
        has_confidence: Whether a tool or a critic has given a confidence.
        openings: Of each process of the run: when it began, in seconds since the start of the run, and on the clock of
            day the start of the run as that process counts, later by the time without a process.
        shown_output: The answer of the run that people were last asked about, stored; empty if they were not.
        has_objects: Whether the run has tools that return or take objects in memory.
        releasing: The outputs that no step needs any more; `None` if none are released.
        flow: Whose data each step is made of; `None` until the planner is asked or a patch comes, and if the policy has
            no trust boundary.
        frozen_plan: The calls that patches of the planner may make; `None` until one comes, and if the policy does not
            freeze the plan.
    """

    # The values of a new run. Each is replaced on the instance, and never changed in place.
    status: Status | None = None
    reason = ""
    replans = 0
    handed_on: Mapping[int, tuple[HandedOn, ...]] = MappingProxyType({})
    why_unchanged = ""
    withheld: tuple[Status, str] | None = None
    is_frozen = is_drafting = wants_more = has_agreed = False
    problems: tuple[Problem, ...] = ()
    draft_end = ("", "")
    planner_calls = 0
    planner_answers: tuple[str, ...] = ()
    planner_notes = ""
    planner_failure: Failure | None = None
    stopping: tuple[Status, str] | None = None
    saving: CeilingNear | None = None
    openings: tuple[tuple[float, float], ...] = ()
    shown_output: Stored = b""
    all_well = all_known = True
    has_confidence = False
    flow: FlowLabels | None = None
    frozen_plan: FrozenPlan | None = None

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
        self.asking: dict[int, tuple[str, ...]] = {}
        self.models = ModelUse()
        self.rare: list[Event] = []
        self.warnings: list[str] = []
        self.has_plan = bool(plan.steps)
        self.model_calls: dict[int, tuple[ModelReserved, ModelCharged | None]] = {}
        self.has_objects = any(t.output.has_objects or t.arguments.objects for t in plan.toolbox.values())
        releases = plan.policy.release_outputs
        self.releasing = ReleasedOutputs(only_objects=not releases) if releases or self.has_objects else None
        self.roots: Mapping[str, tuple[str, int]] = {}
        self.guarded_tools: Mapping[str, str] = {}
        self.parent = ""
        self.elements: dict[str, Stored] = {}
        self.nodes: dict[str, Node] = dict(zip(plan.steps, nodes_of(plan), strict=True))
        if caps_of is not None:
            for node in self.nodes.values():
                node.caps = caps_of(node.plan)

    def __repr__(self) -> str:
        counts = Counter(str(node.state) for node in self.nodes.values())
        flags = {"drafting": self.is_drafting, "frozen": self.is_frozen, "stopping": self.stopping is not None}
        facts = [
            *([str(self.status)] if self.status is not None else ()),
            *(flag for flag, is_set in flags.items() if is_set),
            f"revision {self.revision}",
            *(f"{count} {state}" for state, count in counts.items()),
        ]
        return f"<{type(self).__name__}: {', '.join(facts)}>"

    # Time -------------------------------------------------------------------------------------------------

    def open_at(self, at: float, wall_time: float) -> None:
        """Note that a process of the run has begun; a clock of day that was set back counts as no time."""
        last = self.openings[-1][1] if self.openings else wall_time - at
        self.openings = (*self.openings, (at, max(last, wall_time - at)))

    def asleep_since(self, at: float) -> float:
        """Return the seconds since *at* without a process of the run, by wall clock; rather too few than too many."""
        # By rounding, what the next process has recorded at once may seem older than its beginning.
        before = [start for began, start in self.openings if began <= at + 1e-6]
        return self.openings[-1][1] - before[-1] if before else 0.0

    # Values -----------------------------------------------------------------------------------------------

    def look_up(self, reference: Reference, node: Node | None = None) -> Stored:
        """Return the stored value of *reference* in the arguments of *node*.

        Raises:
            LookupError: There is no such part.
        """
        path = reference.path
        if not path:
            return self._source(reference.step, node)
        if type(path[0]) is int and (element := self._element(reference.step, path)) is not None:
            value, path = value_of_element(element), path[1:]
        else:
            value = self._source(reference.step, node)
        try:
            return select_part(value, path) if path else value
        except LookupError as error:
            raise LookupError(f"{reference}: {error}{self._why_spilled(reference)}") from None

    def look_at(self, reference: Reference, own: tuple[str, Stored] | None = None, node: Node | None = None) -> Any:
        """Return the decoded value of *reference*, for a condition of *node*; *own* is a step and its new output.

        Raises:
            LookupError: There is no such part.
        """
        path = reference.path
        if own is not None and own[0] == reference.step:
            value = own[1]
        elif path and type(path[0]) is int and (element := self._element(reference.step, path)) is not None:
            value, path = value_of_element(element), path[1:]
        else:
            value = self._source(reference.step, node)
        try:
            return value_at(decode(value), path)
        except LookupError as error:
            raise LookupError(f"{error}{self._why_spilled(reference)}") from None

    def _why_spilled(self, reference: Reference) -> str:
        """Return the reason why a part does not exist if the output became an artifact; else an empty text."""
        node = self.nodes.get(reference.step)
        why = why_spilled(node.value, node.tool) if node is not None else ""
        return why and f"; {why}"

    def _source(self, step: str, node: Node | None) -> Stored:
        if step == "input":
            return self.inputs
        if step == "item" and node is not None:
            return self._item_again(node) if type(node.item) is Unavailable else node.item
        source = self.nodes[step]
        if source.state is not _SUCCEEDED:
            if node is not None and node.plan.stream == step and source.children is not None:
                return b"[]"  # the elements are handed over one by one, and not as a part of the arguments
            raise LookupError(f"step {step} has no output: it is {source.state}")
        if type(source.value) is Unavailable:
            raise LookupError(f"what step {step} gave is not available again: {source.value.reason}")
        return source.value

    def _element(self, step: str, path: Path) -> Node | None:
        """Return the element that *path* begins with, of a for_each whose elements have not been joined; or none."""
        fan = self.nodes.get(step)
        if fan is None or fan.children is None or fan.state is _SUCCEEDED:
            return None
        index = path[0]
        return fan.children[index] if isinstance(index, int) and index < len(fan.children) else None

    def _item_again(self, node: Node) -> Stored:
        """Return an element that is not stored: from the outer for_each, or from the list after its producer reran."""
        if node.item is OF_ANOTHER:
            from dagrun.kernel.graph.mapped_steps import source_of  # here: only a for_each over another one needs it

            source = source_of(node)
            assert source is not None
            return value_of_element(source)
        template = node.parent.plan.items if node.parent is not None else None
        if template is None or not is_lost_object(node.item):
            return node.item
        items = decode(template.fill(self.look_up, sys.maxsize))
        if not isinstance(items, list) or node.index >= len(items):
            raise LookupError(f"step {node.id} has no element: its list, which was made once more, is shorter now")
        item = items[node.index]
        return held(item, encode_plain(item).encode(), self.objects_in(template))

    def objects_in(self, template: Template) -> dict[str, object]:
        """Return the objects in memory that *template* puts in, by the ``of`` of their tokens."""
        values = [self.look_up(reference) for reference in template.references]
        return {key: thing for value in values if type(value) is HeldObjects for key, thing in value.objects.items()}

    # Release and blocking ---------------------------------------------------------------------------------

    def inherit_root(self, node: Node) -> None:
        """Take the root and the generation of the keys of *node* from the run that this one retries."""
        extra = node.make_extra()
        extra.root, extra.generation = self.roots[node.id]

    def settled(self, node: Node) -> None:
        """Count a step that has settled; release the steps that waited only for it, block those that need more."""
        self.unsettled -= 1
        if node.parent is not None:
            self._count_element(node, node.parent)
        keeps_back = node.state is not _SUCCEEDED or node.id in self.kept
        if keeps_back and node.children is None and (node.id in self.kept or not node.is_tolerated):
            self._block_successors(node)
            return
        if keeps_back or self.is_frozen or self.is_drafting:
            self._release_successors(node, keeps_back=keeps_back)
        else:  # the same for nearly every step, without a call
            push = self.frontier.push
            for after in node.successors:
                after.missing = missing = after.missing - 1
                if not missing and after.state is _WAITING:
                    after.state = _READY
                    push(after)
        if self.releasing is not None:
            self.releasing.changed.append(node)

    def _release_successors(self, node: Node, *, keeps_back: bool) -> None:
        for after in node.successors:
            after.missing = missing = after.missing - 1
            if after.state is not _WAITING:
                continue
            if keeps_back and self.blocks(node, after):
                after.state = _BLOCKED
            elif not missing:
                self.release(after)

    def _count_element(self, node: Node, fan: Node) -> None:
        """Count an element of a for_each that has settled; release the steps that waited for it alone."""
        fan.missing -= 1
        if fan.extra is not None and fan.extra.followers:
            from dagrun.kernel.graph.mapped_steps import element_settled  # here: few runs need it

            element_settled(self, node)

    def behind(self, node: Node) -> Sequence[Node]:
        """Return the steps that wait for *node*, with the elements of other steps that need it, if it is one itself."""
        fan = node.parent
        if fan is None or fan.extra is None or not fan.extra.followers:
            return node.successors
        from dagrun.kernel.graph.mapped_steps import followers_of

        return [*node.successors, *followers_of(node)]

    def _block_successors(self, node: Node) -> None:
        """Block every step that waits for *node* by more than the order of a wave.

        A loop of its own without a call for each step: when the hub of 100,000 steps fails, they are all blocked in one
        turn of the loop.
        """
        id_ = node.id
        for after in node.successors:
            after.missing = missing = after.missing - 1
            if after.state is not _WAITING:
                continue
            gates = after.plan.gates
            if not gates or id_ not in gates:
                after.state = _BLOCKED
            elif not missing:
                self.release(after)
        if self.releasing is not None:
            self.releasing.changed.append(node)

    def blocks(self, node: Node, after: Node) -> bool:
        """Whether *after* cannot run, now or ever, because of the state in which *node* has settled."""
        return self.would_block(node, after.plan)

    def would_block(self, node: Node, plan: CheckedStep) -> bool:
        """Whether *node* blocks a step with the definition *plan*; see `blocks`."""
        if node.id in plan.gates:
            return False
        if node.id in self.kept or (node.extra is not None and node.extra.is_closed):
            return True
        if node.state is _SUCCEEDED:
            return False
        if node.children is not None:
            from dagrun.kernel.graph.mapped_steps import blocks_by_element

            if (is_blocked := blocks_by_element(self, node, plan)) is not None:
                return is_blocked
        return not node.is_tolerated or node.id in plan.value_sources

    def release(self, node: Node) -> None:
        """Make a step ready that waits for no other; block it if it may not start yet."""
        if not node.attempts and (self.is_frozen or (self.is_drafting and not may_start_early(self, node.plan))):
            node.state = _BLOCKED
            return
        node.state = _READY
        self.frontier.push(node)

    def reassess(self, node: Node) -> None:
        """Compute the state of a step that has not started, from the states of all that it depends on."""
        missing, is_blocked = 0, False
        for before in self._needs(node):
            if before.state.is_settled:
                is_blocked = is_blocked or self.blocks(before, node)
            elif before.children is None:
                missing += 1
            else:
                from dagrun.kernel.graph.mapped_steps import standing

                still_waits, blocks = standing(self, before, node)
                missing, is_blocked = missing + still_waits, is_blocked or blocks
        node.missing = missing
        if is_blocked:
            node.state = _BLOCKED
        elif missing:
            node.state = _WAITING
        else:
            self.release(node)

    def _needs(self, node: Node) -> Iterator[Node]:
        """Yield the dependencies of a step that has not started; for an element, also the element that it follows."""
        over = node.parent.extra.over if node.parent is not None and node.parent.extra is not None else None
        for id_ in node.plan.depends_on:
            before = self.nodes[id_]
            # The for_each of an element has waited for them already; but lost outputs may be computed again.
            if not node.is_defined_by_parent or (not before.state.is_settled and before is not over):
                yield before
        if node.item is OF_ANOTHER:
            from dagrun.kernel.graph.mapped_steps import needed_source

            if (source := needed_source(node, node.plan)) is not None:
                yield source

    def unblock_dependents(self, node: Node, why: str) -> None:
        """Remove *why* from the reasons that keep the dependents of *node* waiting; after the last, reassess them."""
        if self.releasing is not None:
            self.releasing.changed.append(node)
        reasons = self.kept.get(node.id)
        if reasons is None:
            return
        reasons.discard(why)
        if reasons:
            return
        del self.kept[node.id]
        if node.parent is not None and node.parent.extra is not None and node.parent.extra.followers:
            from dagrun.kernel.graph.mapped_steps import tell_streams

            tell_streams(node.parent)
        for after in self.behind(node):
            # What a failure blocks stays blocked until it is recorded as skipped.
            if after.state is _BLOCKED and not self.blocks(node, after):
                self.reassess(after)

    # Views ------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """The number of the current revision; 0 for the plan that the run began with."""
        return len(self.revisions)

    @property
    def written_output(self) -> Any:
        """The current output of the plan, as written; `None` for the outputs of the sinks."""
        return self.revisions[-1].output if self.revisions else self.plan.plan.output

    @cached_property
    def labels(self) -> dict[str, float]:
        """The order labels of all steps of the plan; see `step_order.py`."""
        return first_labels(self.plan)

    def planned(self) -> Iterator[Node]:
        """Yield the steps of the current plan, without the elements of for_each."""
        return (node for node in self.nodes.values() if node.parent is None and not node.is_gone)

    def after(self, node: Node) -> Iterator[Node]:
        """Yield the steps of the current plan that wait for *node*; for an element, its for_each."""
        families = (after if after.parent is None else after.parent for after in node.successors)
        return (after for after in families if not after.is_gone)

    def sinks(self) -> list[Node]:
        """The steps that no step waits for; the barrier of a wave does not count as waiting."""
        return [node for node in self.planned() if all(node.id in after.plan.gates for after in self.after(node))]


def value_of_element(element: Node) -> Stored:
    """Return the output of an element of a for_each, as it stands in the list: null if it was left out."""
    if element.state is not _SUCCEEDED:
        if element.state.is_settled and element.is_tolerated:
            return None
        raise LookupError(f"step {element.id} has no output: it is {element.state}")
    if type(element.value) is Unavailable:
        raise LookupError(f"what step {element.id} gave is not available again: {element.value.reason}")
    return element.value


def freeze(graph: LiveGraph) -> None:
    """Block every ready step that was never called, and let no such step start until `thaw`."""
    graph.is_frozen = True
    ready = [node for node in graph.nodes.values() if node.state is State.READY and not node.attempts]
    graph.frontier.withdraw(ready)
    for node in ready:
        node.state = State.BLOCKED


def thaw(graph: LiveGraph) -> None:
    """End the freeze: reassess every blocked step."""
    graph.is_frozen = False
    for node in list(graph.nodes.values()):
        if node.state is State.BLOCKED:
            graph.reassess(node)


def mark_approved(graph: LiveGraph, nodes: Iterable[Node]) -> None:
    """Mark the steps with an effect among *nodes* as approved, if a person has approved the plan that adds them."""
    for node in nodes if graph.has_agreed else ():
        if any(tool is not None and not tool.effect.is_free for tool in (node.plan.tool, node.plan.fallback)):
            node.make_extra().is_agreed = True
    graph.has_agreed = False  # a later yes is one to something else


def may_start_early(graph: LiveGraph, plan: CheckedStep) -> bool:
    """Whether a step may be called before the plan is complete: its call does no harm if the plan changes."""
    tools = (plan.tool,) if plan.fallback is None else (plan.tool, plan.fallback)
    safe = graph.plan.policy.planning.stream_safe
    return all(tool.effect.is_free or tool.stream_safe or tool.name in safe for tool in tools)


CapsOf = Callable[[CheckedStep], tuple[Cap, ...]]


def limits_steps(policy: Policy, shared: Cap | None) -> bool:
    """Whether a limit holds on the steps that run at once, so that their order matters.

    Args:
        policy: The policy of the run.
        shared: A cap that counts the steps of several runs, or none.
    """
    by_pool = any(pool.max_running is not None for pool in policy.pools.values())
    return by_pool or bool(policy.max_running or shared or policy.max_running_by_tool)


def _is_limited(plan: CheckedPlan, shared: Cap | None) -> bool:
    """Whether a limit on steps holds: in the policy, shared with other runs, or on the elements of a step."""
    return limits_steps(plan.policy, shared) or any(s.step.max_parallel is not None for s in plan.steps.values())


def make_frontier(
    plan: CheckedPlan, shared: Cap | None, expected: Expected | None = None
) -> tuple[Frontier, CapsOf | None]:
    """Make the frontier of a run. Without a limit it is a plain queue, the cheapest kind.

    Where slow calls are hedged it has priorities, too: they say which steps the end of the run waits for.

    Args:
        plan: The plan and the policy that it was checked against.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take; `None` for the estimates of the plan alone.

    Returns:
        The frontier, and a function for the caps that count a step besides the total; `None` if there are none.
    """
    if not _is_limited(plan, shared) and plan.policy.hedge is None:
        return Frontier(), None
    policy = plan.policy
    own = Cap(policy.max_running) if policy.max_running is not None else None
    by_tool = {name: Cap(limit) for name, limit in policy.max_running_by_tool.items()}
    by_pool = {name: Cap(each.max_running) for name, each in policy.pools.items() if each.max_running is not None}

    def caps_of(step: CheckedStep) -> tuple[Cap, ...]:
        # No step leaves the limits of what it may call: its tool, the fallback, and what either calls by itself.
        tools = [tool for main in (step.tool, step.fallback) if main is not None for tool in (main, *main.inner_tools)]
        found = (
            own if shared is not None else None,  # with a shared cap in its place, the own one is one among others
            *(by_tool.get(tool.name) for tool in tools),
            *(by_pool.get(pool) for pool in (step.pool, *(tool.pool for tool in tools)) if pool is not None),
        )
        return tuple(dict.fromkeys(cap for cap in found if cap is not None))

    first = priorities(plan, expected or Expected(plan))
    return Frontier(shared or own, first), caps_of


def build(plan: CheckedPlan, inputs: Stored, shared: Cap | None, expected: Expected) -> LiveGraph:
    """Build the initial state of a run of *plan*.

    Args:
        plan: The checked plan.
        inputs: The inputs of the run, stored.
        shared: A cap that counts the steps of several runs, or none.
        expected: How long steps are expected to take.
    """
    frontier, caps_of = make_frontier(plan, shared, expected)
    return LiveGraph(plan, inputs, frontier, caps_of, expected)
