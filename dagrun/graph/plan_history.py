"""The plan of a run as it now stands, and as it stood before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagrun.model.patch import Add, Consequence, Drop, Replace, Rewire
from dagrun.model.plan import Plan, Step


@dataclass(frozen=True, slots=True)
class Revision:
    """One change of a plan.

    Attributes:
        number: Of the plan after it; the plan that the run began with is revision 0.
        at: Seconds since the start of the run.
        origin: ``host`` or ``planner``.
        reason: Why, in a sentence.
        goal: Of the run, from then on.
        edits: What was carried out; none for a change of the goal alone.
        consequence: What that did.
        defined: The steps that came or changed, by id.
        output: What the run answers, from then on.
    """

    number: int
    at: float
    origin: str
    reason: str
    goal: str
    edits: tuple[Add | Drop | Replace | Rewire, ...]
    consequence: Consequence
    defined: Mapping[str, Step] = field(repr=False)
    output: Any = None

    @property
    def gone(self) -> frozenset[str]:
        """The ids that left the plan."""
        return frozenset((*self.consequence.dropped, *self.consequence.replaced))

    @property
    def touched(self) -> frozenset[str]:
        """The ids of steps that were there before and are not what they were; additions leave no mark."""
        return self.gone | frozenset(self.consequence.rewired)


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """What is different between two revisions of a plan. Steps by id.

    Attributes:
        added: Steps that only the later one has.
        removed: Steps that only the earlier one has.
        changed: Steps that both have, with other definitions: before and after.
    """

    added: Mapping[str, Step]
    removed: Mapping[str, Step]
    changed: Mapping[str, tuple[Step, Step]]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def lines(self) -> Iterator[str]:
        """The difference line by line, each step as one line of JSON after ``+`` or ``-``."""
        yield from (f"- {_line(step)}" for step in self.removed.values())
        for before, after in self.changed.values():
            yield from (f"- {_line(before)}", f"+ {_line(after)}")
        yield from (f"+ {_line(step)}" for step in self.added.values())

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, slots=True)
class PastReplan:
    """A request to the planner that is over.

    Attributes:
        result: As in `ReplanEnded`.
        fingerprints: Of the failures that it was about.
        signature: Of the patch that came of it; empty if there was none.
    """

    result: str
    fingerprints: tuple[str, ...]
    signature: str


class PlanHistory:
    """The plan as it stands at one instant, with how it came to that.

    Args:
        plan: What the run began with.
        revisions: What was changed since, oldest first.
    """

    def __init__(self, plan: Plan, revisions: Sequence[Revision]) -> None:
        self._first = plan
        self.revisions = tuple(revisions)

    @property
    def revision(self) -> int:
        """The number of the present revision."""
        return len(self.revisions)

    @property
    def goal(self) -> str:
        """What the run is for now."""
        return self.revisions[-1].goal if self.revisions else self._first.goal

    @property
    def output(self) -> Any:
        """What the run answers now, as it is written."""
        return self.revisions[-1].output if self.revisions else self._first.output

    @property
    def current(self) -> Plan:
        """The plan as it now stands."""
        return self.at(self.revision)

    @property
    def steps(self) -> Mapping[str, Step]:
        """The steps of the plan as it now stands, by id."""
        return self._steps(self.revision)

    def at(self, revision: int) -> Plan:
        """The plan as it stood at *revision*.

        Substitutes for elements of a for_each are not in it: a plan has no words for them. The revisions have.

        Raises:
            ValueError: There is no such revision.
        """
        steps = tuple(self._steps(revision).values())
        if revision == 0:
            return self._first
        last = self.revisions[revision - 1]
        changed = {"steps": steps, "goal": last.goal, "output": last.output}
        return self._first.model_copy(update=changed)

    def diff(self, before: int = 0, after: int | None = None) -> PlanDiff:
        """Compare two revisions.

        Args:
            before: The earlier one.
            after: The later one; by default the present one.

        Raises:
            ValueError: There is no such revision.
        """
        old, new = self._steps(before), self._steps(self.revision if after is None else after)
        return PlanDiff(
            added={id_: step for id_, step in new.items() if id_ not in old},
            removed={id_: step for id_, step in old.items() if id_ not in new},
            changed={id_: (old[id_], step) for id_, step in new.items() if id_ in old and old[id_] != step},
        )

    def _steps(self, revision: int) -> dict[str, Step]:
        if not 0 <= revision <= self.revision:
            raise ValueError(f"there is no revision {revision}: the plan is at revision {self.revision}")
        steps = {step.id: step for step in self._first.steps}
        for change in self.revisions[:revision]:
            for id_ in change.gone:
                steps.pop(id_, None)
            steps.update(change.defined)
        return steps


def _line(step: Step) -> str:
    return step.model_dump_json(exclude_unset=True, by_alias=True)
