"""The steps of a plan as they are written: each waits for those that it names."""

from __future__ import annotations

from collections.abc import Iterator

from dagrun.checks.findings import Findings
from dagrun.checks.plain_json import compile_value
from dagrun.model.plan import Step
from dagrun.model.reference import RESERVED, BadReference


class Arrivals:
    """The steps of a plan in the order in which they are written; each waits for those that it names.

    Attributes:
        steps: All that have come, in that order.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._here: set[str] = set()
        self._lacking: dict[int, set[str]] = {}  # by place: the ids that have not come in
        self._waiting: dict[str, list[int]] = {}  # by such an id: who waits for it

    def take(self, step: Step) -> bool:
        """Note a step that has come; say whether everything that it names is in the plan already."""
        place = len(self.steps)
        self.steps.append(step)
        lacking = named_in(step) - self._here
        if not lacking:
            return True
        self._lacking[place] = lacking
        for id_ in lacking:
            self._waiting.setdefault(id_, []).append(place)
        return False

    def let_in(self, id_: str) -> Iterator[Step]:
        """Note that the step *id_* is in the plan; give those that waited only for that."""
        self._here.add(id_)
        for place in self._waiting.pop(id_, ()):
            self._lacking[place].discard(id_)
            if not self._lacking[place]:
                del self._lacking[place]
                yield self.steps[place]


def named_in(step: Step) -> set[str]:
    """The ids of the steps that *step* names, declared or referred to; what is no reference is left to the checker."""
    names = set(step.depends_on)
    for value in (step.args, step.for_each):
        template = compile_value(value, Findings(), 0, "") if value is not None else None
        if template is not None:
            names.update(template.sources)
    for leaf in step.when.leaves() if step.when is not None else ():
        try:
            names.add(leaf.reference.step)
        except BadReference:
            continue
    return names - RESERVED.keys() - {step.id}
