"""Sort the edits of a patch by kind; ignore those that come too late, and report those that are impossible."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import count
from typing import Any, Final

from dagrun.checks.findings import Findings
from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.graph.patches import rules
from dagrun.model.outcome import State
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire, rename_in_step, rename_in_value
from dagrun.model.plan import Step

AnyEdit = Add | Drop | Replace | Rewire

# Between the places of two edits there is room for the places of the steps that they concern.
STRIDE: Final = 1 << 20


class Places:
    """Places of problems in a patch, as numbers: the edits in their order, each followed by its own places."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._last: dict[int, int] = {}

    def name(self, place: int) -> str:
        """Return *place* as it is written."""
        return self._names.get(place) or f"edits[{place // STRIDE}]"

    def behind(self, edit: int, name: str) -> int:
        """Make a place that belongs to *edit*, after all its places so far."""
        place = self._last[edit] = self._last.get(edit, edit) + 1
        self._names[place] = f"{self.name(edit)}{name}"
        return place


class Edits:
    """The edits of a patch by kind.

    Args:
        graph: The graph; it is never changed here.
        patch: The patch.
        findings: Collects the problems.
        is_from_planner: Whether a planner is the author, who cannot loosen the policy.
        known: The ids of the steps that had succeeded when the author looked; `None` for those of now.

    Attributes:
        carried_out: The edits that count.
        fallen: The ids of steps that have succeeded since the author looked; the edits to them fall away.
        new: The steps that are added, each with the place of its edit.
        elements: By id of a new step, the element of a for_each that it replaces.
        substitutes: The ids of replaced steps, and those of their substitutes.
        dropped: The ids that leave without a substitute, each with the place of its edit.
        rewired: The edits of steps that keep their id, each with its place.
        instead: By id of a substitute whose edit has fallen away, the step that stays.
    """

    def __init__(
        self,
        graph: LiveGraph,
        patch: Patch,
        findings: Findings,
        *,
        is_from_planner: bool,
        known: Collection[str] | None,
    ) -> None:
        self._graph = graph
        self._findings = findings
        self._is_from_planner = is_from_planner
        self._known = known
        self.carried_out: list[AnyEdit] = []
        self.fallen: list[str] = []
        self.new: dict[str, tuple[int, Step]] = {}
        self.elements: dict[str, Node] = {}
        self.substitutes: dict[str, str] = {}
        self.dropped: dict[str, int] = {}
        self.rewired: dict[str, tuple[int, Rewire]] = {}
        self.instead: dict[str, str] = {}
        self._edited: set[str] = set()
        self._families: set[str] = set()  # the for_each of every element that is edited
        for place, edit in zip(count(0, STRIDE), patch.edits, strict=False):
            self._take(place, edit)
        if self.instead:
            self.new = {id_: (place, rename_in_step(step, self.instead)) for id_, (place, step) in self.new.items()}
            self.carried_out = [self._as_carried_out(edit) for edit in self.carried_out]

    @property
    def leaving(self) -> Iterator[str]:
        """Yield every id that leaves the plan."""
        yield from self.dropped
        yield from self.substitutes

    def is_leaving(self, node: Node) -> bool:
        """Whether a step leaves the plan, by itself or with its for_each."""
        own = node.id in self.dropped or node.id in self.substitutes
        return own or (node.parent is not None and self.is_leaving(node.parent))

    def use_of(self, edit: Rewire) -> dict[str, str]:
        """Return the steps to use in place of others, with those that stay in place of fallen substitutes."""
        return {old: self.instead.get(new, new) for old, new in edit.use.items()}

    def rewrite(self, step: Step, edit: Rewire) -> Step:
        """Return *step* with the dependencies and arguments that *edit* names."""
        fields = {"depends_on": edit.depends_on, "args": edit.args}
        changes = {name: value for name, value in fields.items() if value is not None}
        return step.model_copy(update=self._renamed(changes))

    def _renamed(self, changes: dict[str, Any]) -> dict[str, Any]:
        """Rename fallen substitutes in *changes* to the steps that stay."""
        if self.instead and "depends_on" in changes:
            changes["depends_on"] = tuple(self.instead.get(id_, id_) for id_ in changes["depends_on"])
        if self.instead and "args" in changes:
            changes["args"] = rename_in_value(changes["args"], self.instead)
        return changes

    def _take(self, place: int, edit: AnyEdit) -> None:
        if isinstance(edit, Add):
            self._come(place, edit.step)
        else:
            node = self._target(place, edit)
            if node is None:
                return
            self._sort(place, edit, node)
        self.carried_out.append(edit)

    def _as_carried_out(self, edit: AnyEdit) -> AnyEdit:
        """Return *edit* with the ids that are valid after others have fallen away, for the record."""
        match edit:
            case Add() | Replace():
                return edit.model_copy(update={"step": self.new[edit.step.id][1]})
            case Rewire():
                fields = {name: getattr(edit, name) for name in edit.model_fields_set & {"depends_on", "args"}}
                changes = self._renamed({name: value for name, value in fields.items() if value is not None})
                return edit.model_copy(update={**changes, "use": self.use_of(edit)} if edit.use else changes)
            case _:
                return edit

    def _target(self, place: int, edit: Drop | Replace | Rewire) -> Node | None:
        """Return the step that *edit* is about; `None` if it cannot be edited, or the edit falls away."""
        node = self._graph.nodes.get(edit.id)
        if node is None or node.is_gone:
            hint = self._findings.hint(edit.id, _Present(self._graph.nodes))
            self._findings.add("DR401", place, "id", id=repr(edit.id[:200]), hint=hint)
            return None
        family = node.parent.id if node.parent is not None else ""
        if edit.id in self._edited or edit.id in self._families or family in self._edited:
            self._findings.add("DR410", place, "id", step=edit.id)
            return None
        self._edited.add(edit.id)
        self._families.add(family)
        if node.state is State.SUCCEEDED and self._known is not None and edit.id not in self._known:
            self.fallen.append(edit.id)
            if isinstance(edit, Replace):
                self.instead[edit.step.id] = edit.id
            return None
        return node if rules.is_editable(edit, node, place, self._findings) else None

    def _sort(self, place: int, edit: Drop | Replace | Rewire, node: Node) -> None:
        match edit:
            case Drop():
                self.dropped[edit.id] = place
            case Rewire():
                self.rewired[edit.id] = (place, edit)
            case Replace():
                self.substitutes[edit.id] = edit.step.id
                self._come(place, edit.step)
                if node.parent is not None:
                    self.elements[edit.step.id] = node
        if self._is_from_planner:
            rules.check_loosening(edit, node, self._graph.plan, place, self._findings)

    def _come(self, place: int, step: Step) -> None:
        if step.id in self.new:
            self._findings.add("DR402", place, "step.id", id=repr(step.id[:200]))
            return
        self.new[step.id] = (place, step)
        if self._is_from_planner:
            rules.check_retries(step, self._graph.plan.policy, place, self._findings)


class _Present(Collection[str]):
    """The ids that can be edited, without a copy: they are only read for a hint."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes

    def __contains__(self, id_: object) -> bool:
        return id_ in self._nodes and not self._nodes[str(id_)].is_gone

    def __iter__(self) -> Iterator[str]:
        return (id_ for id_, node in self._nodes.items() if not node.is_gone)

    def __len__(self) -> int:
        return len(self._nodes)
