"""What a patch may do and what it does: the rules once more, slowly, from definitions as JSON and from plain facts.

Nothing here knows how the product checks or applies a patch. Of the live graph it only looks at what is a fact about
steps: their states, their calls, the elements of a for_each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import networkx as nx

from dagrun import Add, Drop, Effect, Patch, Replace, Rewire, State, Step
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from random_cases import Definition
from splice_book import (
    RESERVED,
    Book,
    Change,
    as_json,
    doubted_call,
    is_called,
    is_fixed,
    may_have_applied,
    needs_of,
    parts_of,
    references,
    renamed,
    renamed_output,
    used_by,
    waits,
)

PARTS: Final = ("value", "rows", "trail")  # of what every tool gives
ARGUMENTS: Final = frozenset(("acts", "item", "feed"))  # of every tool
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")


def change_of(graph: LiveGraph, book: Book, patch: Patch, origin: str, known: Collection[str] | None) -> Change:
    """Say what *patch* would do to the plan of *graph* now, and what is wrong with it."""
    change = Change(output=book.output)
    change.faults.update(_whole(graph, patch))
    if not change.faults:
        _Reader(graph, book, patch, origin, known, change).read()
    return change


def _whole(graph: LiveGraph, patch: Patch) -> Iterator[str]:
    if graph.status is not None:
        yield "DR417"
    if len(patch.edits) > graph.plan.policy.planning.max_edits:
        yield "DR409"
    if not patch.edits and not patch.changes_output:
        yield "DR414"
    if patch.base is not None and patch.base > len(graph.revisions):
        yield "DR415"


class _Reader:
    """Reads one patch."""

    def __init__(
        self, graph: LiveGraph, book: Book, patch: Patch, origin: str, known: Collection[str] | None, change: Change
    ) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.book = book
        self.patch = patch
        self.origin = origin
        self.known = known
        self.change = change
        self.rewired: dict[str, Rewire] = {}
        self.instead: dict[str, str] = {}  # for a substitute that comes too late, the step that stays

    def read(self) -> None:
        self._read_edits()
        self.change.new = {id_: renamed(step, self.instead) for id_, step in self.change.new.items()}
        self._change_dependents()
        self._read_output()
        self.change.faults.update(self._wrong_ids())
        self.change.faults.update(self._wrong_steps())
        self.change.faults.update(self._left_behind())
        self.change.faults.update(self._stale())
        if not self.change.faults and not nx.is_directed_acyclic_graph(waits(self.graph, self.book, self.change)):
            self.change.faults.add("DR106")
        self.change.cancelled = [
            part.id
            for id_ in self.change.leaving
            if id_ in self.nodes
            for part in parts_of(self.nodes[id_])
            if is_called(part)
        ]

    def _read_edits(self) -> None:
        change = self.change
        edited: set[str] = set()
        for edit in self.patch.edits:
            if isinstance(edit, Add):
                self._come(edit.step)
                continue
            node = self.nodes.get(edit.id)
            if node is None or node.is_gone:
                change.faults.add("DR401")
                continue
            family = [node, *([node.parent] if node.parent is not None else ()), *(node.children or ())]
            if any(relative.id in edited for relative in family):
                change.faults.add("DR410")
            edited.add(edit.id)
            if self.known is None or edit.id in self.known or node.state is not State.SUCCEEDED:
                self._read_edit(edit, node)
                continue
            change.fallen.append(edit.id)
            if isinstance(edit, Replace):
                self.instead[edit.step.id] = edit.id

    def _read_edit(self, edit: Drop | Replace | Rewire, node: Node) -> None:
        change = self.change
        change.faults.update(_not_editable(self.graph, edit, node))
        match edit:
            case Drop():
                change.dropped.append(edit.id)
            case Rewire():
                self.rewired[edit.id] = edit
            case Replace():
                change.replaced[edit.id] = edit.step.id
                self._come(edit.step)
                if node.parent is not None:
                    change.elements[edit.step.id] = node.parent.id

    def _come(self, step: Step) -> None:
        if step.id in self.change.new:
            self.change.faults.add("DR402")
        definition = self.change.new[step.id] = as_json(step)
        if self.origin == "planner" and step.retry is not None:  # no planner waits longer than the policy
            for name in ("first_delay", "factor", "max_delay"):
                own, most = getattr(step.retry, name), getattr(self.graph.plan.policy.retry, name)
                if most is not None and (own is None or own > most):
                    definition["retry"][name] = most

    def _change_dependents(self) -> None:
        change = self.change
        for id_, definition in self.book.steps.items():
            if id_ in change.leaving or not self._is_open(id_):
                continue
            edit = self.rewired.get(id_)
            if edit is None and not set(needs_of(definition)) & change.replaced.keys():
                continue
            if edit is None:
                change.changed[id_] = renamed(definition, change.replaced)
                change.carried.add(id_)
                continue
            use = {old: self.instead.get(other, other) for old, other in edit.use.items()}
            new = renamed(definition, {**change.replaced, **use})
            if edit.depends_on is not None:
                new["depends_on"] = [self.instead.get(need, need) for need in edit.depends_on]
            if edit.args is not None:
                new["args"] = renamed({"args": edit.args}, self.instead)["args"]
            change.changed[id_] = new

    def _is_open(self, id_: str) -> bool:
        """Whether a step is in the plan and may still become another one."""
        leaves = self.book.parents.get(id_) in self.change.leaving
        return id_ not in self.book.gone and not is_fixed(self.nodes[id_]) and not leaves

    def _read_output(self) -> None:
        change, patch = self.change, self.patch
        change.output = renamed_output(self.book.output, change.replaced)
        if patch.changes_output:
            change.output = renamed_output(patch.output, self.instead)
        elif any(step in change.dropped for step, _ in references(self.book.output)):
            change.faults.add("DR416")
        if patch.changes_output or change.output != self.book.output:
            change.faults.update(self._wrong_references([*references(change.output)], self._after()))

    def _after(self) -> dict[str, Definition]:
        """What a step may wait for afterwards: no element of a for_each, nor what stands in for one."""
        change = self.change
        elements = self.book.parents.keys() | change.elements.keys()
        steps = {**self.book.planned(), **change.changed, **change.new}
        return {id_: step for id_, step in steps.items() if id_ not in change.leaving and id_ not in elements}

    def _wrong_ids(self) -> Iterator[str]:
        used = {id_.lower() for id_ in self.nodes}
        for id_ in self.change.new:
            if not _ID.fullmatch(id_) or id_ in RESERVED:
                yield "DR101"
            if id_.lower() in used:
                yield "DR402"
            used.add(id_.lower())
        limit = self.graph.plan.policy.max_steps
        if limit is not None and self.change.new and len(self.nodes) + len(self.change.new) > limit:
            yield "DR413"

    def _wrong_steps(self) -> Iterator[str]:
        change, after, policy = self.change, self._after(), self.graph.plan.policy
        for id_, definition in {**change.new, **change.changed}.items():
            is_new = id_ in change.new
            yield from self._wrong_definition(id_, definition, after)
            retry = definition.get("retry")
            if self.origin == "planner" and is_new and retry and retry["max_attempts"] > policy.retry.max_attempts:
                yield "DR412"
            if self.origin == "planner" and (self.graph.is_drafting or not self.graph.has_plan):
                continue  # it writes what it would have written before, whatever has failed since
            before = () if is_new else needs_of(self.book.steps[id_])
            used = {step for step, _ in used_by(definition)}
            for need in needs_of(definition):
                node = self.nodes.get(need)
                if need in before or need in change.new or node is None or not node.state.is_settled:
                    continue
                if node.state is not State.SUCCEEDED and (need in used or not node.is_tolerated):
                    yield "DR407"
        yield from self._calls_after_doubt()

    def _calls_after_doubt(self) -> Iterator[str]:
        change = self.change
        for old, new in change.replaced.items():
            doubted = doubted_call(self.graph, self.book, self.nodes[old])
            if doubted is not None:
                change.frozen[new] = doubted
                yield from self._other_call(self.nodes[doubted], change.new[new], is_element=new in change.elements)
        for id_, definition in change.changed.items():  # the substitute of such a step is no freer
            doubted = self.book.frozen.get(id_)
            if doubted is not None:
                is_element = id_ in self.book.parents
                yield from self._other_call(self.nodes[doubted], definition, is_element=is_element)

    def _wrong_definition(self, id_: str, definition: Definition, after: Mapping[str, Definition]) -> Iterator[str]:
        toolbox = self.graph.plan.toolbox
        names = [definition["tool"], *([definition["fallback"]] if definition.get("fallback") else ())]
        if any(name not in toolbox or name not in toolbox.allowed for name in names):
            yield "DR201"
        args = definition.get("args", {})
        if not isinstance(args.get("acts"), list) or not args.keys() <= ARGUMENTS:
            yield "DR205"
        if id_ in self.change.elements and definition.get("for_each") is not None:
            yield "DR112"
        declared = definition.get("depends_on", ())
        if id_ in needs_of(definition):
            yield "DR105"
        if len(set(declared)) < len(declared):
            yield "DR107"
        if any(need not in after for need in declared):
            yield "DR104"
        yield from self._wrong_references(used_by(definition), after)

    @staticmethod
    def _wrong_references(found: Iterable[tuple[str, str]], after: Mapping[str, Definition]) -> Iterator[str]:
        for step, part in found:
            if step not in after:
                yield "DR104"
            elif part and (part not in PARTS or after[step].get("for_each") is not None):
                yield "DR303"

    def _other_call(self, doubted: Node, new: Definition, *, is_element: bool) -> Iterator[str]:
        """After a call that may have taken effect: the very same one again, or one that changes nothing."""
        toolbox, before = self.graph.plan.toolbox, doubted.plan.step
        if new["tool"] not in toolbox:
            return
        names: tuple[str | None, ...] = (new["tool"], new.get("fallback") or toolbox[new["tool"]].fallback)
        called = {name for name in names if name is not None and name in toolbox and not toolbox[name].effect.is_free}
        if not called:
            return
        is_same = called == {before.tool} and before.args == new.get("args", {})
        is_same = is_same and (is_element or before.for_each == new.get("for_each"))
        if not is_same or toolbox[before.tool].effect is not Effect.IDEMPOTENT:
            yield "DR418"

    def _left_behind(self) -> Iterator[str]:
        change = self.change
        for id_, definition in self.book.steps.items():
            if id_ in change.leaving or id_ in change.changed or not self._is_open(id_):
                continue
            if set(needs_of(definition)) & set(change.dropped):
                yield "DR406"

    def _stale(self) -> Iterator[str]:
        base = len(self.book.touched) if self.patch.base is None else self.patch.base
        changed = {id_ for touched in self.book.touched[base:] for id_ in touched}
        if not changed:
            return
        carried = {id_ for ids in self.book.carried[base:] for id_ in ids}
        own = {id_: step for id_, step in self.change.changed.items() if id_ not in self.change.carried}
        named = {need for step in (*self.change.new.values(), *own.values()) for need in needs_of(step)}
        edited, around = set[str](), set[str]()
        for edit in self.patch.edits:
            if isinstance(edit, Add) or edit.id not in self.nodes:
                continue
            edited.add(edit.id)
            around.update(needs_of(self.book.definition(self.nodes[edit.id])))
            after = (id_ for id_, step in self.book.steps.items() if edit.id in needs_of(step))
            around.update(id_ for id_ in after if id_ not in self.book.gone)
        # What only got the name of a substitute may get that of another one, too, whichever comes first.
        if (named | edited) & changed or (around - edited) & (changed - carried):
            yield "DR408"


def _not_editable(graph: LiveGraph, edit: Drop | Replace | Rewire, node: Node) -> Iterator[str]:
    if node.state is State.SUCCEEDED or (
        node.parent is not None and (node.parent.state.is_settled or node.parent.is_gone)
    ):
        yield "DR403"
    elif isinstance(edit, Rewire):
        if node.state.is_settled:
            yield "DR403"
        elif node.parent is not None or is_fixed(node):
            yield "DR404"
    elif not edit.cancel and any(may_have_applied(graph, p) and not p.state.is_settled for p in parts_of(node)):
        yield "DR405"
