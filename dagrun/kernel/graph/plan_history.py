"""The plan of a run at each of its revisions, and the differences between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dagrun.errors import listing, short_repr
from dagrun.kernel.model.patch import Add, Consequence, Drop, Replace, Rewire
from dagrun.kernel.model.plan import Plan, Step
from dagrun.presenters import notebook_bundle


@dataclass(frozen=True, slots=True)
class Revision:
    """One change of a plan.

    Attributes:
        number: The number of the revision; the plan that the run began with is revision 0.
        at: Seconds since the start of the run.
        origin: ``host`` or ``planner``.
        reason: Why, in a sentence.
        goal: The goal of the run from then on.
        edits: The edits that were applied; none for a change of the goal alone.
        consequence: The effect of the edits.
        defined: The steps that were added or changed, by id.
        output: The output of the plan from then on, as it is written.
    """

    __repr__ = short_repr

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
    def renamed(self) -> frozenset[str]:
        """The ids of the steps that changed only in that they wait for a substitute."""
        named = frozenset(edit.id for edit in self.edits if isinstance(edit, Rewire))
        return frozenset(self.consequence.rewired) - named

    @property
    def touched(self) -> frozenset[str]:
        """The ids of the old steps that left the plan or changed; added steps do not count."""
        return self.gone | frozenset(self.consequence.rewired)


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The differences between two revisions of a plan, by step id.

    Attributes:
        added: Steps of the later revision alone.
        removed: Steps of the earlier revision alone.
        changed: Steps of both with different definitions: before and after.
    """

    __repr__ = short_repr

    added: Mapping[str, Step]
    removed: Mapping[str, Step]
    changed: Mapping[str, tuple[Step, Step]]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return notebook_bundle(self)

    def lines(self) -> Iterator[str]:
        """Yield the differences line by line, each step as one line of JSON after ``+`` or ``-``."""
        yield from (f"- {_line(step)}" for step in self.removed.values())
        for before, after in self.changed.values():
            yield from (f"- {_line(before)}", f"+ {_line(after)}")
        yield from (f"+ {_line(step)}" for step in self.added.values())

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, slots=True)
class PastReplan:
    """A finished request to the planner.

    Attributes:
        result: The result, as in `ReplanEnded`.
        fingerprints: The fingerprints of the failures that it was about.
        signature: The signature of the patch that the planner proposed; empty if there was none.
        reason: Why it ended so, in a sentence.
    """

    result: str
    fingerprints: tuple[str, ...]
    signature: str
    reason: str = ""


class PlanHistory:
    """The plan of a run at one instant, with all its revisions.

    Args:
        plan: The plan that the run began with.
        revisions: The changes since, oldest first.
    """

    def __init__(self, plan: Plan, revisions: Sequence[Revision]) -> None:
        self._first = plan
        self.revisions = tuple(revisions)

    def __repr__(self) -> str:
        lines = [f"{each.number}: {each.origin}, at {each.at:.3f} s: {each.reason}" for each in self.revisions]
        return f"<{listing(f'PlanHistory, revision {self.revision}, {len(self.steps)} steps', lines)}>"

    @property
    def revision(self) -> int:
        """The number of the current revision."""
        return len(self.revisions)

    @property
    def goal(self) -> str:
        """The current goal."""
        return self.revisions[-1].goal if self.revisions else self._first.goal

    @property
    def current(self) -> Plan:
        """The current plan."""
        return self.at(self.revision)

    @property
    def steps(self) -> Mapping[str, Step]:
        """The steps of the current plan, by id."""
        return self._steps(self.revision)

    def at(self, revision: int) -> Plan:
        """Return the plan at *revision*.

        Substitutes for elements of a for_each are left out, because a plan cannot express them; see `revisions`.

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
            after: The later one; by default the current one.

        Raises:
            ValueError: There is no such revision.
        """
        old, new = self._steps(before), self._steps(self.revision if after is None else after)
        return PlanDiff(
            added={id_: step for id_, step in new.items() if id_ not in old},
            removed={id_: step for id_, step in old.items() if id_ not in new},
            changed={id_: (old[id_], step) for id_, step in new.items() if id_ in old and old[id_] != step},
        )

    def diffs(self) -> Iterator[PlanDiff]:
        """Yield the differences that each revision made, oldest first; faster than a `diff` for each."""
        steps = {step.id: step for step in self._first.steps}
        for change in self.revisions:
            touched = {*change.consequence.dropped, *change.consequence.replaced, *change.defined}
            before = {id_: steps.pop(id_) for id_ in sorted(touched) if id_ in steps}
            steps.update(change.defined)
            yield PlanDiff(
                added={id_: step for id_, step in change.defined.items() if id_ not in before},
                removed={id_: step for id_, step in before.items() if id_ not in change.defined},
                changed={
                    id_: (step, change.defined[id_])
                    for id_, step in before.items()
                    if step != change.defined.get(id_, step)
                },
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
