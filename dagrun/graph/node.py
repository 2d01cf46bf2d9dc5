"""A step of a run, with where it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dagrun.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.graph.caps import Cap
from dagrun.model.critic import Verdict
from dagrun.model.event import StepSettled
from dagrun.model.outcome import Attempt, Recovery, State
from dagrun.model.toolbox import AnyTool
from dagrun.model.value import Stored

_WAITING: Final = State.WAITING
_READY: Final = State.READY


@dataclass(slots=True)
class RareStepState:
    """What only few steps have.

    Attributes:
        root: The step whose place this one has taken, at the end of the chain; the key of its calls is made of it.
        frozen: The step on that chain whose call may have taken effect, or none.
        substitute: The step that has taken its place, or empty.
        is_gone: Whether a splice has taken it out of the plan.
        generation: Part of the same key: moves on when it is known that a call was not applied.
        approved: The hash of the call that a person has agreed to, or empty.
        is_passed: Whether a person has let it through its pause.
        guards: What people would have looked at before it is called, and a patch of the planner has taken away; empty
            if there is nothing of that.
        given: Arguments that a person has given, stored, by name.
        verdicts: What critics said of its last attempt.
        asked: Questions about it so far.
        held: Seconds that it waited for people since its deadline began to run, the present wait not counted.
        held_since: When the present wait began, in seconds since the start of the run; `None` if there is none.
        forgiven: Attempts that do not count any more, because a person has let it try again.
        cleared: Attempts of which a person knows that they did not take effect.
    """

    root: str = ""
    frozen: Node | None = field(default=None, repr=False)
    substitute: str = ""
    is_gone: bool = False
    generation: int = 0
    approved: str = ""
    is_passed: bool = False
    guards: str = ""
    given: dict[str, Stored] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    forgiven: int = 0
    cleared: int = 0
    asked: int = 0
    held: float = 0.0
    held_since: float | None = None


class Node:
    """A step of one run, with where it stands. Changed by `changes.apply` alone.

    Attributes:
        id: Of the step; ``id[0]`` for an element of a for_each.
        plan: The checked step; an element shares that of its parent.
        order: Place in the plan, for ties.
        state: Where it stands.
        missing: Dependencies, or elements, that have not settled yet.
        successors: The nodes that wait for this one.
        latest: The newest of its calls, or none.
        earlier: Those before it.
        value: What it gave, once it has succeeded.
        caps: The limits that count it while it runs.
        parent: The for_each that it is an element of, or none.
        index: Which element.
        item: The element itself.
        children: The elements of a for_each, once its list is known.
        expanded: When that was, in seconds since the start of the run.
        ended: How it settled, if not by an attempt.
        is_tolerated: Whether it may fail or be skipped without taking along what depends on its order alone.
        on_fallback: Whether the next attempt calls the fallback.
        extra: What only few steps have; none as long as there is nothing of it.
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
        # A million empty lists would be a tenth of the memory of a run.
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
        self.extra: RareStepState | None = None

    def __repr__(self) -> str:
        return f"<{self.id} {self.state}>"

    @property
    def reason(self) -> str:
        """Why it did not succeed, in a sentence; empty if it did, or has not ended."""
        if self.ended is not None:
            return self.ended.reason
        outcome = self.latest.outcome if self.latest is not None else None
        return outcome.failure.message if outcome is not None and outcome.failure is not None else ""

    @property
    def tool(self) -> AnyTool:
        """What its next attempt calls."""
        plan = self.plan
        return plan.fallback if self.on_fallback and plan.fallback is not None else plan.tool

    @property
    def is_expandable(self) -> bool:
        """Whether its list must be looked at before anything can be called."""
        return self.plan.items is not None and self.parent is None

    @property
    def pauses_after(self) -> bool:
        """Whether what depends on it waits until a person has looked at what it gave; its elements do not."""
        return self.plan.pauses_after and self.parent is None

    @property
    def is_defined_by_parent(self) -> bool:
        """Whether it is an element of a for_each, and no substitute for one, which has a definition of its own."""
        return self.parent is not None and self.plan is self.parent.plan

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Its calls so far, in their order."""
        return () if self.latest is None else (*self.earlier, self.latest)

    @property
    def has_started(self) -> bool:
        """Whether its definition cannot change any more: it was called, or its list was looked at."""
        return self.latest is not None or self.children is not None

    @property
    def may_have_applied(self) -> bool:
        """Whether one of its calls may have changed the world: it ran into its limit, say, or runs still."""
        for attempt in self.attempts[self._cleared :]:
            if self.called(attempt.tool).effect.is_free:
                continue
            failure = attempt.outcome.failure if attempt.outcome is not None else None
            if failure is None or not failure.nothing_happened:
                return True
        return False

    def called(self, name: str) -> AnyTool:
        """The tool of that name, of the two that it may call."""
        fallback = self.plan.fallback
        return fallback if fallback is not None and name != self.plan.tool.name else self.plan.tool

    @property
    def is_in_flight(self) -> bool:
        """Whether a call of it has begun, and its end is not on record."""
        return self.latest is not None and self.latest.outcome is None

    @property
    def is_under_review(self) -> bool:
        """Whether a call of it has ended, and critics still look at what it gave."""
        decision = self.latest.decision if self.latest is not None else None
        return decision is not None and decision.recovery is Recovery.REVIEW and not self.state.is_settled

    @property
    def is_gone(self) -> bool:
        """Whether a splice has taken it out of the plan; it may still run for a moment."""
        own = self.extra is not None and self.extra.is_gone
        return own or (self.parent is not None and self.parent.is_gone)

    @property
    def is_in_doubt(self) -> bool:
        """Whether a call of it that is over may have changed the world, and nobody knows."""
        in_doubt = False
        for attempt in self.attempts[self._cleared :]:
            if attempt.outcome is not None:
                was_unknown = attempt.outcome.state is State.UNKNOWN
                in_doubt = was_unknown or (in_doubt and not attempt.outcome.has_returned)
        return in_doubt

    @property
    def _cleared(self) -> int:
        return self.extra.cleared if self.extra is not None else 0

    @property
    def frozen_call(self) -> Node | None:
        """The step whose call nothing but the same call may follow, as it may have taken effect; or none.

        That is this step, or one whose place it has taken. Of a for_each, the call of any element counts.
        """
        calls = [self] if self.children is None else self.children
        if any(part.may_have_applied or (part is not self and part.frozen_call) for part in calls):
            return self
        return self.extra.frozen if self.extra is not None else None

    @property
    def root(self) -> str:
        """The step whose place it has taken, at the end of the chain: itself, if it took none."""
        if self.extra is not None and self.extra.root:
            return self.extra.root
        # The elements of a substitute make the same calls as those of the for_each whose place it has taken.
        return self.id if self.parent is None else f"{self.parent.root}[{self.index}]"

    @property
    def generation(self) -> int:
        """How often it became known, along that chain, that a call was not applied."""
        own = self.extra.generation if self.extra is not None else 0
        has_root = self.extra is not None and bool(self.extra.root)
        return own if self.parent is None or has_root else own + self.parent.generation

    def precede(self, after: Node) -> None:
        """Have *after* wait for it."""
        if type(self.successors) is list:
            self.successors.append(after)
        else:
            self.successors = [*self.successors, after]

    def make_extra(self) -> RareStepState:
        """Give its `RareStepState`, made if there is none yet."""
        if self.extra is None:
            self.extra = RareStepState()
        return self.extra


def nodes_of(plan: CheckedPlan) -> list[Node]:
    """The steps of *plan* before anything has happened, in its order, each with those that wait for it."""
    made = [Node(id_, step, order, len(step.depends_on)) for order, (id_, step) in enumerate(plan.steps.items())]
    for node, after in zip(made, plan.after, strict=True):
        if len(after) == 1:  # as nearly everywhere in a big plan
            node.successors = (made[after[0]],)
        elif after:
            node.successors = [made[at] for at in after]
    return made
