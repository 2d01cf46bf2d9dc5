"""The label of each step: the sources of its output.

1. What a step gives comes from its tool, and from all that the tool was given: its arguments, texts with references in
   them, the list of a ``for_each`` and its elements. With a fallback it comes from both tools. So nothing gets lost on
   the way through a model or a tool that says nothing about itself.
2. What a plan says itself, its literals, comes from its author. The author of a first plan has seen nothing of what
   others wrote. A planner that was shown such text has: what it writes from then on comes from there as well.
3. An argument that a patch leaves as it was keeps its author, also in a step with another id.
4. A condition, and the length and order of a list, add nothing: the author of the plan has written them. A guard with
   ``control`` looks at them all the same. But what stands behind a step that such a planner has written, because its
   condition looks at that step or it only waits for it, goes the way of that planner, and is marked so (``planner``).
5. Where others can write only some parts of an answer, a reference to another part is clean.
6. Only the policy vouches for a tool: what that gives comes from it alone. What must not leave stays so.

A label is never too small. It may be larger than what a run turns out to use.
"""

from __future__ import annotations

import json
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dagrun.kernel.checks.checked_plan import CheckedStep
from dagrun.kernel.checks.flow.sources import PLAN, PLANNER, FlowRules
from dagrun.kernel.model.flow.marks import ANY, overlaps
from dagrun.kernel.model.patch import rename_in_step
from dagrun.kernel.model.plan import Step
from dagrun.kernel.model.reference import Reference, Template

# Returns the definition of a step by its id; `None` if there is no such step.
Define: TypeAlias = Callable[[str], CheckedStep | None]


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a step, as sources of its parts.

    Attributes:
        call: The sources of what it says apart from the arguments: which tool is called, when, and for which list.
        args: The sources of the literals in arguments, by name, where they are others than those of the call.
    """

    call: int = PLAN
    args: Mapping[str, int] = field(default_factory=dict)

    def of(self, name: str) -> int:
        """Return the sources of the literals in an argument."""
        return self.args.get(name, self.call)

    @property
    def whole(self) -> int:
        """The sources of the whole definition."""
        sources = self.call
        for one in self.args.values():
            sources |= one
        return sources


PLANNED: Final = Author()


def author_after(new: Step, old: Step, before: Author, writer: int, *, is_call_kept: bool) -> Author:
    """Return the author of a step that a patch has changed, or put in the place of another one: see rule 3.

    Args:
        new: The step as the patch defines it.
        old: The step as it was, with the ids of substitutes in it.
        before: Its author so far.
        writer: The sources of what the author of the patch writes.
        is_call_kept: Whether all else that decides about the call is as it was.
    """
    args = {name: before.of(name) if name in old.args and _is_same(new, old, name) else writer for name in new.args}
    call = before.call if is_call_kept and new.args.keys() == old.args.keys() else writer
    return Author(call, {name: sources for name, sources in args.items() if sources != call})


def _is_same(new: Step, old: Step, name: str) -> bool:
    return _canonical(new.args[name]) == _canonical(old.args[name])


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


# All that decides whether a call is made, where and how often, what it is told besides its arguments, and what stands
# in for its answer. Texts for people, times and confidences do not.
OF_THE_CALL: Final = {
    *("tool", "fallback", "for_each", "when", "success", "on_failure", "default", "expected_output", "pause"),
    "executor",
}


def is_same_call(new: Step, old: Step) -> bool:
    """Whether two steps make the same call under the same condition; arguments are not compared."""
    return _call_of(new) == _call_of(old)


def _call_of(step: Step) -> str:
    return _canonical([step.has_default, step.model_dump(mode="json", include=OF_THE_CALL)])


def renamed(step: Step, names: Mapping[str, str]) -> Step:
    """Return a step with the ids in its references renamed."""
    return rename_in_step(step, names) if names else step


@dataclass(slots=True)
class FlowLabels:
    """The labels of the steps of a plan, or of a run.

    Attributes:
        rules: The sources, and what the policy says about them.
        whole: The label of what a step gives, by its id.
        clean: The label of those parts of it that others cannot write, and the paths of the other parts; only of steps
            that have both.
        authors: The authors of steps, where they are not those of a first plan.
        joined: What elements of a ``for_each`` that a patch has replaced add to what it gives.
        seen: What the planner of the run was shown so far.
    """

    rules: FlowRules
    whole: MutableMapping[str, int] = field(default_factory=dict)
    clean: MutableMapping[str, tuple[int, tuple[tuple[str, ...], ...]]] = field(default_factory=dict)
    authors: MutableMapping[str, Author] = field(default_factory=dict)
    joined: MutableMapping[str, int] = field(default_factory=dict)
    seen: int = 0

    def copy(self) -> FlowLabels:
        """Return a copy that changes with a run."""
        return FlowLabels(
            self.rules, dict(self.whole), dict(self.clean), dict(self.authors), dict(self.joined), self.seen
        )

    def overlay(self) -> FlowLabels:
        """Return labels that begin as these, and keep their own changes."""
        return FlowLabels(
            self.rules,
            ChainMap({}, self.whole),
            ChainMap({}, self.clean),
            ChainMap({}, self.authors),
            ChainMap({}, self.joined),
            self.seen,
        )

    def commit(self, base: FlowLabels) -> None:
        """Write the changes of this overlay to the labels below it."""
        for name in ("whole", "clean", "authors", "joined"):
            getattr(base, name).update(getattr(self, name).maps[0])

    def author(self, id_: str) -> Author:
        """Return the author of a step."""
        return self.authors.get(id_, PLANNED)

    def of(self, reference: Reference, items: Template | None = None) -> int:
        """Return the sources of the value of a reference; *items* is the list of the step that contains it."""
        step = reference.step
        if step == "item":
            return self._of_item(reference, items)
        if step == "input":
            return self.rules.of_input(reference.path)
        if step in self.clean:
            sources, paths = self.clean[step]
            if not any(overlaps(reference.path, path) for path in paths):
                return sources
        return self.whole.get(step, 0)

    def _of_item(self, reference: Reference, items: Template | None) -> int:
        if items is None:
            return 0
        if items.places == ((),) and not items.texts:
            source = items.references[0]
            return self.of(Reference(source.step, (*source.path, ANY, *reference.path)))
        return self.joined_of(items)

    def joined_of(self, template: Template | None, items: Template | None = None) -> int:
        """Return the sources of all references of a template."""
        sources = 0
        for reference in template.references if template is not None else ():
            sources |= self.of(reference, items)
        return sources

    def by_argument(self, checked: CheckedStep, items: Template | None = None) -> dict[str | int, int]:
        """Return the sources of the references in each argument that has any, by the name that the plan uses."""
        sources: dict[str | int, int] = {}
        for reference, place in zip(checked.args.references, checked.args.places, strict=True):
            sources[place[0]] = sources.get(place[0], 0) | self.of(reference, items)
        return sources

    def given(self, checked: CheckedStep, author: Author, items: Template | None = None) -> int:
        """Return the sources of all that the tool of a step is given.

        Args:
            checked: The step.
            author: Its author.
            items: The list of the ``for_each`` that it is an element of.
        """
        items = checked.items if items is None else items
        return author.whole | self.joined_of(checked.args, items) | self.joined_of(items)

    def said(self, checked: CheckedStep, author: Author, items: Template | None = None) -> int:
        """Return the sources of texts about a settled step: errors, and reasons of critics.

        They may quote whatever the step was given, also where the host vouches for the answer.
        """
        sources = self.given(checked, author, items) | self.conditions(checked, items)
        for tool in (checked.tool, checked.fallback):
            sources |= self.rules.facts(tool).says if tool is not None else 0
        return sources

    def label(self, id_: str, checked: CheckedStep, given: int) -> bool:
        """Work out and keep the label of a step; return whether it is another one than before."""
        rules = self.rules
        facts = rules.facts(checked.tool)
        whole, clean = rules.answer(facts, given)
        paths = facts.paths
        if checked.fallback is not None:
            others = rules.facts(checked.fallback)
            other_whole, other_clean = rules.answer(others, given)
            whole, clean, paths = whole | other_whole, clean | other_clean, (*paths, *others.paths)
        joined = self.joined.get(id_, 0)
        if checked.step.has_default:  # nobody vouches for what its author lets stand in
            joined |= self.author(id_).call
        joined |= self.steered(checked.depends_on) if self.authors else 0
        whole, clean = whole | joined, clean | joined
        before = self.whole.get(id_), self.clean.get(id_)
        self.whole[id_] = whole
        if paths and clean != whole:
            prefix = () if checked.items is None else (ANY,)
            self.clean[id_] = clean, tuple((*prefix, *path) for path in paths)
        elif id_ in self.clean:
            self.clean[id_] = whole, ()
        return before != (whole, self.clean.get(id_))

    def steered(self, needs: Iterable[str]) -> int:
        """Return the mark of an influenced planner, if any of these steps has it."""
        sources = 0
        for need in needs:
            sources |= self.whole.get(need, 0)
        return sources & PLANNER

    def conditions(self, checked: CheckedStep, items: Template | None = None) -> int:
        """Return the sources of the conditions and lists that decide about the calls of a step."""
        items = checked.items if items is None else items
        sources = self.joined_of(items)
        for reference in condition_references(checked):
            sources |= self.of(reference, items)
        return sources


def argument_references(checked: CheckedStep, argument: str) -> Iterator[Reference]:
    """Yield the references in one argument of a step."""
    for reference, place in zip(checked.args.references, checked.args.places, strict=True):
        if place and place[0] == argument:
            yield reference


def condition_references(checked: CheckedStep) -> Iterator[Reference]:
    """Yield the references of the condition of a step."""
    when = checked.step.when
    yield from (leaf.reference for leaf in (when.leaves() if when is not None else ()))
