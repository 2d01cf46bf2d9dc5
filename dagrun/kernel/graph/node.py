"""One step of a run: its definition, its state and its attempts; and the caps on steps that run at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.event import StepSettled
from dagrun.kernel.model.outcome import SETTLED, Attempt, Recovery, State
from dagrun.kernel.model.question import Answer
from dagrun.kernel.model.tool import AnyTool
from dagrun.kernel.model.value import Stored


class Cap:
    """A limit on steps that run at once: a count of used slots, with the steps and the runs that wait for one.

    Runs that share a cap wait in line for one slot at a time, so that a long run cannot starve a short one.

    Attributes:
        limit: The number of slots.
        used: The slots that are taken.
        parked: A heap of ready steps that wait for a slot, with their priorities (`step_order.Entry`).
        waiting: The frontiers that wait for a slot, in the order of asking, and the callbacks that tell them.
        promised: The frontiers to which a free slot is promised.
    """

    __slots__ = ("limit", "parked", "promised", "used", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.parked: list[Any] = []
        self.waiting: dict[object, Callable[[], object]] = {}
        self.promised: set[object] = set()

    @property
    def is_full(self) -> bool:
        """Whether every slot is taken."""
        return self.used >= self.limit

    def free_for(self, frontier: object) -> int:
        """The number of slots that *frontier* may take; a slot that is promised to another counts as taken."""
        return self.limit - self.used - len(self.promised) + (frontier in self.promised)

    def release(self) -> None:
        """Return one slot."""
        self.used -= 1
        self.offer()

    def offer(self) -> None:
        """Promise free slots to the waiting frontiers, in the order of asking, and wake them."""
        while self.waiting and self.used + len(self.promised) < self.limit:
            first = next(iter(self.waiting))
            self.promised.add(first)
            self.waiting.pop(first)()

    def decline(self, frontier: object) -> None:
        """Offer the slot promised to *frontier*, which has no use for it, to the next one."""
        if frontier in self.promised:
            self.promised.remove(frontier)
            self.offer()


_WAITING: Final = State.WAITING
_READY: Final = State.READY
_FAILED: Final = SETTLED - {State.SUCCEEDED, State.SKIPPED, State.SUPERSEDED}


@dataclass(slots=True)
class OptionalStepState:
    """State that few steps need, allocated on first use.

    Attributes:
        root: The first step on the chain of steps that replaced each other; the idempotency key is made of its id.
        frozen: The step on that chain whose call may have taken effect, or none.
        substitute: The id of the step that has replaced this one, or empty.
        is_gone: Whether a splice has removed it from the plan.
        generation: The other part of the key; it grows when a call is known to have had no effect.
        approved: The hash of the call that a person has agreed to, or empty.
        is_passed: Whether a person has let it through its pause.
        is_closed: Whether people were asked at the pause after it, and did not let the run continue: no step that waits
            for it runs in this run, not even one that is planned later.
        is_agreed: Whether a person has agreed to the plan, or to the patch, that it came with.
        guards: What people would have looked at before it is called, but a patch of the planner has taken away; empty
            if nothing was taken away.
        given: Arguments that a person has given, stored, by name.
        verdicts: The verdicts of critics on its last attempt.
        over: The for_each whose elements this one is over, element by element; or none. See `mapped_steps.py`.
        followers: Of a for_each that has its elements: the steps that need single ones of them.
        on_elements: While it takes the elements of a for_each one by one: called when one of them may have settled, or
            when a splice has changed the one of that index; else `None`.
        confidence: The last attempt whose tool gave a confidence, and that; `None` if none did.
        told: What people have answered to the questions of its tool, in the middle of a call that has not ended by
            itself: the content of each question, and the answer; `None` if that is not on record.
        asked: The number of questions about it so far.
        held: Seconds that it waited for people since its deadline began to run, without the current wait.
        held_since: When the current wait began, in seconds since the start of the run; `None` if there is none.
        forgiven: The number of attempts that no longer count, because a person has let it try again.
        cleared: The number of attempts that, as a person knows, had no effect.
        applied: The number of attempts that took effect, as a person has confirmed.
    """

    root: str = ""
    frozen: Node | None = field(default=None, repr=False)
    substitute: str = ""
    is_gone: bool = False
    generation: int = 0
    approved: str = ""
    is_passed: bool = False
    is_closed: bool = False
    is_agreed: bool = False
    guards: str = ""
    given: dict[str, Stored] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    over: Node | None = field(default=None, repr=False)
    followers: tuple[Node, ...] = field(default=(), repr=False)
    on_elements: Callable[[int], object] | None = field(default=None, repr=False)
    confidence: tuple[int, float] | None = None
    forgiven: int = 0
    cleared: int = 0
    applied: int = 0
    told: tuple[tuple[str, Answer | None], ...] = ()
    asked: int = 0
    held: float = 0.0
    held_since: float | None = None


class Node:
    """A step of one run. Only `changes.apply` changes it.

    Attributes:
        id: The id of the step; ``id[0]`` for an element of a for_each.
        plan: The checked step; an element shares its parent's.
        order: The place in the plan, for ties.
        state: The state.
        missing: The number of dependencies, or of elements, that have not settled.
        successors: The nodes that wait for this one.
        latest: The last attempt, or none.
        earlier: The attempts before it.
        value: The output, stored, once the step has succeeded.
        caps: The caps that count it while it runs.
        parent: The for_each that it is an element of, or none.
        index: The index of the element.
        item: The element itself, stored.
        children: The elements of a for_each, once its list is known.
        expanded: When the list became known, in seconds since the start of the run.
        ended: The event that settled it, if that was not the end of an attempt.
        is_tolerated: Whether steps that wait for it without reading it run, although it did not succeed.
        on_fallback: Whether the next attempt calls the fallback.
        extra: State that few steps need; `None` until it is needed.
    """

    __slots__ = (
        "caps",
        "children",
        "earlier",
        "ended",
        "expanded",
        "extra",
        "id",
        "index",
        "is_tolerated",
        "item",
        "latest",
        "missing",
        "on_fallback",
        "order",
        "parent",
        "plan",
        "state",
        "successors",
        "value",
    )

    def __init__(self, id: str, plan: CheckedStep, order: int, missing: int = 0) -> None:
        self.id = id
        self.plan = plan
        self.order = order
        self.state = _WAITING if missing else _READY
        self.missing = missing
        # Many steps have no successor, or one: a tuple takes less memory than a list, and the empty one none.
        self.successors: Sequence[Node] = ()
        self.latest: Attempt | None = None
        self.earlier: tuple[Attempt, ...] = ()
        self.value: Stored = None
        self.caps: tuple[Cap, ...] = ()
        self.parent: Node | None = None
        self.index = 0
        self.item: Stored = None
        self.children: list[Node] | None = None
        self.expanded: float | None = None
        self.ended: StepSettled | None = None
        self.is_tolerated = False
        self.on_fallback = False
        self.extra: OptionalStepState | None = None

    def __repr__(self) -> str:
        return f"<{self.id} {self.state}>"

    @property
    def reason(self) -> str:
        """Why it did not succeed, in a sentence; empty if it has succeeded or not ended."""
        if self.ended is not None:
            return self.ended.reason
        outcome = self.latest.outcome if self.latest is not None else None
        return outcome.failure.message if outcome is not None and outcome.failure is not None else ""

    @property
    def tool(self) -> AnyTool:
        """The tool of its next attempt."""
        plan = self.plan
        return plan.fallback if self.on_fallback and plan.fallback is not None else plan.tool

    @property
    def is_expandable(self) -> bool:
        """Whether it is a for_each, whose list must be evaluated before a tool can be called."""
        return self.plan.items is not None and self.parent is None

    @property
    def pauses_after(self) -> bool:
        """Whether its dependents wait until a person has looked at its output; an element never pauses."""
        return self.plan.pauses_after and self.parent is None

    @property
    def is_defined_by_parent(self) -> bool:
        """Whether it is an element of a for_each, and not a substitute for one, which has its own definition."""
        return self.parent is not None and self.plan is self.parent.plan

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Its attempts so far, in their order."""
        return () if self.latest is None else (*self.earlier, self.latest)

    @property
    def has_started(self) -> bool:
        """Whether its definition can no longer change: it was called, or its list was evaluated."""
        return self.latest is not None or self.children is not None

    @property
    def may_have_applied(self) -> bool:
        """Whether one of its calls may have taken effect: it has timed out, for example, or still runs."""
        for attempt in self.attempts[self._cleared :]:
            if self.called(attempt.tool).effect.is_free:
                continue
            failure = attempt.outcome.failure if attempt.outcome is not None else None
            if failure is None or not failure.nothing_happened:
                return True
        return False

    def called(self, name: str) -> AnyTool:
        """The one of its two tools (its own and the fallback) that is called *name*."""
        fallback = self.plan.fallback
        return fallback if fallback is not None and name != self.plan.tool.name else self.plan.tool

    @property
    def is_in_flight(self) -> bool:
        """Whether its last attempt has no recorded end."""
        return self.latest is not None and self.latest.outcome is None

    @property
    def is_under_review(self) -> bool:
        """Whether its last attempt has ended, and critics are still looking at the output."""
        decision = self.latest.decision if self.latest is not None else None
        return decision is not None and decision.recovery is Recovery.REVIEW and not self.state.is_settled

    @property
    def is_gone(self) -> bool:
        """Whether a splice has removed it, or its for_each, from the plan; it may still run for a moment."""
        own = self.extra is not None and self.extra.is_gone
        return own or (self.parent is not None and self.parent.is_gone)

    @property
    def is_in_doubt(self) -> bool:
        """Whether it is unknown if one of its finished calls has changed the world."""
        in_doubt, known = False, self._cleared if self.extra is None else max(self._cleared, self.extra.applied)
        for attempt in self.attempts[known:]:
            if attempt.outcome is not None:
                was_unknown = attempt.outcome.state is State.UNKNOWN
                in_doubt = was_unknown or (in_doubt and not attempt.outcome.has_returned)
        return in_doubt

    @property
    def _cleared(self) -> int:
        return self.extra.cleared if self.extra is not None else 0

    @property
    def has_failed_elements(self) -> bool:
        """Whether it is a for_each with elements that have failed; those that a condition left out are none."""
        return any(child.state in _FAILED for child in self.children or ())

    @property
    def frozen_call(self) -> Node | None:
        """The step whose call may have taken effect, so that only the same call may follow; or `None`.

        It is this step, or one that this step has replaced. Of a for_each, the call of any element counts.
        """
        calls = [self] if self.children is None else self.children
        if any(part.may_have_applied or (part is not self and part.frozen_call) for part in calls):
            return self
        return self.extra.frozen if self.extra is not None else None

    @property
    def root(self) -> str:
        """The id of the first step on the chain of steps that replaced each other; its own if it replaced none."""
        if self.extra is not None and self.extra.root:
            return self.extra.root
        # The elements of a substitute make the same calls as those of the for_each that it has replaced.
        return self.id if self.parent is None else f"{self.parent.root}[{self.index}]"

    @property
    def generation(self) -> int:
        """How many calls along that chain are known to have had no effect."""
        own = self.extra.generation if self.extra is not None else 0
        has_root = self.extra is not None and bool(self.extra.root)
        return own if self.parent is None or has_root else own + self.parent.generation

    def precede(self, after: Node) -> None:
        """Add *after* to the steps that wait for this one."""
        if type(self.successors) is list:
            self.successors.append(after)
        else:
            self.successors = [*self.successors, after]

    def make_extra(self) -> OptionalStepState:
        """Return `extra`, and make it if there is none."""
        if self.extra is None:
            self.extra = OptionalStepState()
        return self.extra


def nodes_of(plan: CheckedPlan) -> list[Node]:
    """Make the nodes of a new run of *plan*, in its order, each with its successors."""
    nodes = [Node(id_, step, order, len(step.depends_on)) for order, (id_, step) in enumerate(plan.steps.items())]
    for node, after in zip(nodes, plan.after, strict=True):
        if len(after) == 1:
            node.successors = (nodes[after[0]],)
        elif after:
            node.successors = [nodes[place] for place in after]
    return nodes
