"""What a patch may do and what it does: the rules once more, slowly, from definitions as JSON and from plain facts.

Nothing here knows how the product checks or applies a patch. The model keeps a book of the plan by itself; of the live
graph it only looks at what is a fact about steps: their states, their calls, the elements of a for_each.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import networkx as nx

from dagrun.graph.live import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.effect import Effect
from dagrun.model.outcome import State
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan, Step
from random_cases import Definition

PARTS: Final = ("value", "rows", "trail")  # of what every tool gives
ARGUMENTS: Final = frozenset(("acts", "item", "feed"))  # of every tool
_HOLE: Final = re.compile(r"\$\{([A-Za-z0-9_-]+)(?:\.([A-Za-z]+))?\}")
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,48}")
_RESERVED: Final = ("input", "item")


def as_json(step: Step) -> Definition:
    """A step as it was written."""
    written: Definition = step.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return written


# What a definition says -----------------------------------------------------------------------------------------------


def references(value: Any) -> Iterator[tuple[str, str]]:
    """Every step that a JSON value refers to, with the part of its output, or an empty text for all of it."""
    match value:
        case str():
            yield from _HOLE.findall(value)
        case {"$step": str(step)}:
            yield step, value.get("path", "")
        case dict():
            for part in value.values():
                yield from references(part)
        case list() | tuple():
            for part in value:
                yield from references(part)


def used_by(definition: Definition) -> list[tuple[str, str]]:
    """The outputs of other steps that a step uses."""
    args = definition.get("args", {})  # of these, the acts are long and refer to nothing
    found = [*references([args[name] for name in args if name != "acts"]), *references(definition.get("for_each"))]
    if definition.get("when") is not None:
        step, _, part = definition["when"]["ref"].partition(".")
        found.append((step, part))
    return [(step, part) for step, part in found if step not in _RESERVED]


def needs_of(definition: Definition) -> list[str]:
    """The steps that a step waits for, each once."""
    return list(dict.fromkeys([*definition.get("depends_on", ()), *(step for step, _ in used_by(definition))]))


def renamed(definition: Definition, use: Mapping[str, str]) -> Definition:
    """A step with other steps in place of some of those that it waits for."""

    def rename(value: Any) -> Any:
        match value:
            case str():
                return _HOLE.sub(lambda match: match[0].replace(match[1], use.get(match[1], match[1]), 1), value)
            case {"$step": str(step)}:
                return value | {"$step": use.get(step, step)}
            case dict():
                return {key: rename(part) for key, part in value.items()}
            case list():
                return [rename(part) for part in value]
            case _:
                return value

    changed = {key: rename(value) if key in ("args", "for_each") else value for key, value in definition.items()}
    if "depends_on" in changed:
        changed["depends_on"] = list(dict.fromkeys(use.get(id_, id_) for id_ in changed["depends_on"]))
    if changed.get("when") is not None:
        step, _, part = changed["when"]["ref"].partition(".")
        changed["when"] = changed["when"] | {"ref": f"{use.get(step, step)}.{part}"}
    return changed


def renamed_output(output: Any, use: Mapping[str, str]) -> Any:
    """The same for what a plan answers."""
    return renamed({"args": output}, use)["args"]


# The plan -------------------------------------------------------------------------------------------------------------


class Book:
    """The plan of one run as it should stand, kept by what its patches say.

    Attributes:
        steps: Every step that ever was in the plan, by id, as it is defined now or was when it left.
        parents: For each substitute of an element of a for_each, that for_each.
        gone: The ids that have left.
        frozen: For each substitute, the step whose call nothing but the same call may follow, if there is one.
        touched: For each revision, the steps that it has changed or taken out.
        output: What the plan answers.
    """

    def __init__(self, plan: Plan) -> None:
        self.steps: dict[str, Definition] = {step.id: as_json(step) for step in plan.steps}
        self.parents: dict[str, str] = {}
        self.gone: set[str] = set()
        self.frozen: dict[str, str] = {}
        self.touched: list[set[str]] = []
        self.output: Any = plan.output

    def planned(self) -> dict[str, Definition]:
        """The plan as it stands, without elements of for_each."""
        return {id_: step for id_, step in self.steps.items() if id_ not in self.gone and id_ not in self.parents}

    def definition(self, node: Node) -> Definition:
        """How a step is defined; an element, unless it is a substitute, like its for_each."""
        return self.steps[node.id if node.id in self.steps or node.parent is None else node.parent.id]

    def turn(self, change: Change) -> None:
        """Carry out a patch."""
        self.steps.update(change.new)
        self.steps.update(change.changed)
        self.parents.update(change.elements)
        self.frozen.update(change.frozen)
        self.gone.update(change.leaving, (id_ for id_, parent in self.parents.items() if parent in change.leaving))
        self.touched.append({*change.leaving, *change.changed})
        self.output = change.output


@dataclass
class Change:
    """What a patch is to do, and why it must not.

    Attributes:
        faults: The code of every fault that the model sees; it need not see all of them.
        new: The steps that come.
        elements: Those of them that stand in for an element of a for_each, with that for_each.
        changed: The steps that keep their id and get another definition.
        frozen: For each substitute, as in `Book`.
        dropped: The ids that leave without a substitute.
        replaced: The ids that leave, with their substitutes.
        fallen: The ids whose edits come too late.
        cancelled: The ids that are told to stop.
        output: What the plan answers from then on.
    """

    faults: set[str] = field(default_factory=set)
    new: dict[str, Definition] = field(default_factory=dict)
    elements: dict[str, str] = field(default_factory=dict)
    changed: dict[str, Definition] = field(default_factory=dict)
    frozen: dict[str, str] = field(default_factory=dict)
    dropped: list[str] = field(default_factory=list)
    replaced: dict[str, str] = field(default_factory=dict)
    fallen: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    output: Any = None

    @property
    def leaving(self) -> list[str]:
        """Every id that leaves."""
        return [*self.dropped, *self.replaced]


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
    if len(patch.edits) > graph.plan.policy.max_edits:
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
        self.change.new[step.id] = as_json(step)

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
            if not _ID.fullmatch(id_) or id_ in _RESERVED:
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
            before = () if is_new else needs_of(self.book.steps[id_])
            used = {step for step, _ in used_by(definition)}
            for need in needs_of(definition):
                node = self.nodes.get(need)
                if need in before or need in change.new or node is None or not node.state.is_settled:
                    continue
                if node.state is not State.SUCCEEDED and (need in used or not node.is_tolerated):
                    yield "DR407"
        for old, new in change.replaced.items():
            doubted = doubted_call(self.graph, self.book, self.nodes[old])
            if doubted is not None:
                change.frozen[new] = doubted
                yield from self._other_call(self.nodes[doubted], change.new[new], is_element=new in change.elements)

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
        if new["tool"] not in toolbox or toolbox[new["tool"]].effect.is_free:
            return
        is_same = (before.tool, before.args) == (new["tool"], new.get("args", {}))
        is_same = is_same and (is_element or before.for_each == new.get("for_each"))
        if not is_same or toolbox[new["tool"]].effect is not Effect.IDEMPOTENT:
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
        named = {need for step in (*self.change.new.values(), *self.change.changed.values()) for need in needs_of(step)}
        for edit in self.patch.edits:
            if isinstance(edit, Add) or edit.id not in self.nodes:
                continue
            named.add(edit.id)
            named.update(needs_of(self.book.definition(self.nodes[edit.id])))
            after = (id_ for id_, step in self.book.steps.items() if edit.id in needs_of(step))
            named.update(id_ for id_ in after if id_ not in self.book.gone)
        if named & changed:
            yield "DR408"


# Facts about steps ----------------------------------------------------------------------------------------------------


def parts_of(node: Node) -> list[Node]:
    """A step, or the elements of a for_each."""
    return [node] if node.children is None else node.children


def is_called(node: Node) -> bool:
    """Whether a call of it runs now."""
    return not node.state.is_settled and bool(node.attempts) and node.attempts[-1].outcome is None


def is_fixed(node: Node) -> bool:
    """Whether its definition stands for good: it has settled, was called, or has got its list."""
    return node.state.is_settled or bool(node.attempts) or node.children is not None


def may_have_applied(graph: LiveGraph, node: Node) -> bool:
    """Whether one of its calls may have changed the world."""
    for attempt in node.attempts:
        failure = attempt.outcome.failure if attempt.outcome is not None else None
        vouched = failure is not None and failure.nothing_happened
        if not graph.plan.toolbox[attempt.tool].effect.is_free and not vouched:
            return True
    return False


def doubted_call(graph: LiveGraph, book: Book, node: Node) -> str | None:
    """The step whose call may have taken effect: this one, an element of it, or one whose place it has taken."""
    for part in parts_of(node):
        if may_have_applied(graph, part) or (part is not node and doubted_call(graph, book, part)):
            return node.id
    return book.frozen.get(node.id)


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


def waits(graph: LiveGraph, book: Book, change: Change | None = None) -> nx.DiGraph[str]:
    """Who waits for whom, of those that have not settled; a for_each waits for its elements."""
    change = change or Change()
    steps = {id_: step for id_, step in book.steps.items() if id_ not in book.gone and id_ not in change.leaving}
    steps |= change.changed | change.new
    settled = {id_ for id_ in steps if id_ in graph.nodes and graph.nodes[id_].state.is_settled}
    found: nx.DiGraph[str] = nx.DiGraph()
    found.add_nodes_from(id_ for id_ in steps if id_ not in settled)
    for id_ in list(found):
        found.add_edges_from((need, id_) for need in needs_of(steps[id_]) if need in found and need not in settled)
        parent = {**book.parents, **change.elements}.get(id_)
        if parent is not None:
            found.add_edge(id_, parent)
    return found
