"""Trust boundaries with a hole: parts that forget one way of data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dagrun import Step
from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.flow.labels import Author, FlowLabels, author_after, is_same_call
from dagrun.kernel.checks.flow.plan_flow import label_plan
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.patches.flow_after import FlowValidation, note_brief
from dagrun.kernel.model.reference import Reference, Template

assert label_plan is not None  # so that its module is there when parts of it are replaced


class ForgetsTexts(FlowLabels):
    """A reference inside a longer text does not count."""

    def joined_of(self, template: Template | None, items: Template | None = None) -> int:
        sources = 0
        for hole in template.holes if template is not None else ():
            sources |= 0 if hole.is_text else self.of(hole.reference, items)
        return sources


class ForgetsFallbacks(FlowLabels):
    """Only the tool of the step counts, not its fallback."""

    def label(self, id_: str, checked: CheckedStep, given: int) -> bool:
        whole = self.whole.get(id_)
        self.whole[id_] = self.rules.answer(self.rules.facts(checked.tool), given)[0] | self.joined.get(id_, 0)
        return whole != self.whole[id_]


class ForgetsItems(FlowLabels):
    """The element of a list is nobody's."""

    def _of_item(self, reference: Reference, items: Template | None) -> int:
        return 0


class ForgetsErrors(FlowLabels):
    """The text of an error quotes nothing."""

    def said(self, checked: CheckedStep, author: Author, items: Template | None = None) -> int:
        return 0


class LetsPlansEndorse(FlowLabels):
    """A step may say of itself that it can be trusted."""

    def label(self, id_: str, checked: CheckedStep, given: int) -> bool:
        return super().label(id_, checked, 0 if "endorsed" in checked.step.description else given)


class TakesEveryPartForClean(FlowLabels):
    """One clean part makes the whole answer clean."""

    def of(self, reference: Reference, items: Template | None = None) -> int:
        if reference.step in self.clean:
            return self.clean[reference.step][0]
        return super().of(reference, items)


class StopsAtThePatch(FlowValidation):
    """What is made of a changed step keeps its label."""

    def _behind(self, id_: str) -> Iterator[str]:
        return iter(())


def forgets_authors(graph: LiveGraph) -> None:
    """Nothing that was shown to a planner counts."""


def keeps_every_author(new: Step, old: Step, before: Author, writer: int, *, is_call_kept: bool) -> Author:
    """Whoever puts a step in the place of another has written nothing."""
    return before


def keeps_changed_arguments(new: Step, old: Step, before: Author, writer: int, *, is_call_kept: bool) -> Author:
    """Arguments with an old name keep their author."""
    args = {name: before.of(name) if name in old.args else writer for name in new.args}
    return Author(before.call if is_call_kept else writer, args)


def compares_the_tool(new: Step, old: Step) -> bool:
    """A call of the same tool is the same call, whatever stands in for its answer."""
    return new.tool == old.tool and new.for_each == old.for_each


FLOW_MUTANTS: Final[Mapping[str, Mapping[Any, Any]]] = {
    "interpolation forgotten": {FlowLabels: ForgetsTexts},
    "fallback forgotten": {FlowLabels: ForgetsFallbacks},
    "item forgotten": {FlowLabels: ForgetsItems},
    "error text forgotten": {FlowLabels: ForgetsErrors},
    "endorsement by plan": {FlowLabels: LetsPlansEndorse},
    "one clean part": {FlowLabels: TakesEveryPartForClean},
    "steps behind the patch forgotten": {FlowValidation: StopsAtThePatch},
    "patch author forgotten": {note_brief: forgets_authors},
    "substitutes write nothing": {author_after: keeps_every_author},
    "defaults forgotten": {is_same_call: compares_the_tool},
    "changed arguments keep their author": {author_after: keeps_changed_arguments},
}
