"""A planner's patch without the edits that the policy refuses, where the rest stands by itself.

1. Only refusals of the policy count. What a planner has got wrong otherwise it fixes itself, as the rest may mean
   something else then.
2. What needs a refused edit goes, too: an edit that names a step which that one would bring; and the drop of a step
   that another one still waits for, or that nothing waits for: what was to do its work may have been refused.
3. If an edit of a failed step is refused, or of one that waits for it, so is the whole patch: the planner has to repair
   in another way. So is one without a rest.
4. The rest is checked like any patch: also whether the new answer of the run needs what is not there. It may be
   split further, for a few rounds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dagrun.errors import Problem
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.graph.patches.apply_patch import CheckedPatch
from dagrun.kernel.graph.patches.check_patch import Splicer
from dagrun.kernel.graph.patches.edits import AnyEdit
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire, rename_in_step, rename_in_value

POLICY: Final = frozenset(
    (
        *("DR201", "DR202", "DR211", "DR221"),  # tools and secrets
        *("DR411", "DR412"),  # people and ceilings
        *("DR427", "DR428", "DR429"),  # the frozen plan
        *("DR501", "DR502", "DR503", "DR504", "DR505"),  # the trust boundary
    )
)
_ROUNDS: Final = 4  # edits, the boundary and the freeze are looked at one after the other
_PLACE: Final = re.compile(r"edits\[(\d+)\](?: -> ([A-Za-z0-9_-]+(?:\[\d+\])?))?")


@dataclass(frozen=True, slots=True)
class Split:
    """The accepted part of a patch.

    Attributes:
        patch: The patch with the edits that are left.
        checked: The same, checked.
        refused: Why the other edits were refused; places are those of the whole patch.
    """

    patch: Patch
    checked: CheckedPatch
    refused: tuple[Problem, ...]


def split_patch(
    splicer: Splicer,
    patch: Patch,
    problems: Sequence[Problem],
    *,
    known: Collection[str] | None,
    failed: Iterable[str],
) -> Split | None:
    """Take the refused edits out of a planner's patch.

    Args:
        splicer: Checks patches against the graph of this instant.
        patch: The patch, which was refused.
        problems: Why.
        known: The ids of the steps that had succeeded when the planner looked.
        failed: The ids of the steps that it was asked about.

    Returns:
        The rest that can be applied now; `None` if the whole patch has to be refused.
    """
    graph, kept = splicer.graph, list(range(len(patch.edits)))
    protected = _behind(graph, failed)
    refused: list[Problem] = []
    for _ in range(_ROUNDS):
        left = [patch.edits[number] for number in kept]
        guilty = _guilty(graph, left, problems)
        goes = _with_needs(graph, left, guilty)
        if not guilty or len(goes) == len(left) or any(_is_about(graph, left[number], protected) for number in goes):
            return None
        refused += (_placed(problem, kept) for problem in problems if not problem.is_advice)
        refused += (Problem("DR430", f"edits[{kept[number]}]", {"step": _id(left[number])}) for number in goes - guilty)
        kept = [number for place, number in enumerate(kept) if place not in goes]
        smaller = patch.model_copy(update={"edits": tuple(patch.edits[number] for number in kept)})
        checked, problems = splicer.check(smaller, "planner", known)
        if checked is not None:
            return Split(smaller, checked, tuple(refused))
    return None


# Which edits go -------------------------------------------------------------------------------------------------------


def _guilty(graph: LiveGraph, edits: Sequence[AnyEdit], problems: Iterable[Problem]) -> set[int]:
    """Return the edits that the policy refuses; none if there is any other problem, or one of no single edit."""
    found = set[int]()
    for problem in (one for one in problems if not one.is_advice):
        place = _PLACE.match(problem.path)
        if problem.code not in POLICY or place is None:
            return set()
        number, behind = int(place[1]), place[2]
        if behind is not None and not _follows(graph, behind, edits[number]):
            return set()  # a label gets further than to the steps that wait for what is edited
        found.add(number)
    return found


def _follows(graph: LiveGraph, id_: str, edit: AnyEdit) -> bool:
    """Whether an edit changes a step that the patch does not name: a dependency of it leaves."""
    node = graph.nodes.get(id_)
    return node is not None and isinstance(edit, Drop | Replace) and edit.id in node.plan.depends_on


def _with_needs(graph: LiveGraph, edits: Sequence[AnyEdit], guilty: set[int]) -> set[int]:
    """Return the edits that go with the *guilty* ones: see rule 2."""
    left = list(guilty)
    named: dict[str, list[int]] = {}  # by id of a step: the edits that go if it does not come
    waits: dict[str, list[int]] = {}  # and those that go if it stays as it is
    for number, edit in enumerate(edits if guilty else ()):
        waiting = _waiting_for(graph, edit)
        left += [number] if waiting == [] else []
        for id_ in _named_by(edit):
            named.setdefault(id_, []).append(number)
        for id_ in waiting or ():
            waits.setdefault(id_, []).append(number)
    goes = set[int]()
    while left:
        number = left.pop()
        if number not in goes:
            goes.add(number)
            edit = edits[number]
            left += waits.get(_id(edit), ())
            left += named.get(edit.step.id, ()) if isinstance(edit, Add | Replace) else ()
    return goes


def _id(edit: AnyEdit) -> str:
    return edit.step.id if isinstance(edit, Add) else edit.id


class _Asked(Mapping[str, str]):
    """An empty mapping that keeps which keys it was asked for: the ids that a definition names."""

    def __init__(self) -> None:
        self.keys_asked: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.keys_asked.add(key)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _named_by(edit: AnyEdit) -> set[str]:
    """Return the ids of the steps that an edit wants to use."""
    asked = _Asked()
    match edit:
        case Add() | Replace():
            rename_in_step(edit.step, asked)
        case Rewire():
            rename_in_value(edit.args, asked)
            return {*asked.keys_asked, *edit.use.values(), *(edit.depends_on or ())}
    return asked.keys_asked


def _waiting_for(graph: LiveGraph, edit: AnyEdit) -> list[str] | None:
    """Return the ids of the steps that wait for one that an edit drops; `None` if it drops none."""
    node = graph.nodes.get(edit.id) if isinstance(edit, Drop) else None
    return None if node is None else [after.id for after in node.successors if not after.is_gone]


def _is_about(graph: LiveGraph, edit: AnyEdit, protected: Collection[str]) -> bool:
    """Whether an edit is one of a failed step, or of one that waits for it: see rule 3."""
    if isinstance(edit, Add):
        return False
    node = graph.nodes.get(edit.id)
    return node is None or node.id in protected or (node.parent is not None and node.parent.id in protected)


def _behind(graph: LiveGraph, failed: Iterable[str]) -> set[str]:
    """Return the failed steps and all their dependents; for an element, also its for_each."""
    found = set[str]()
    left: list[Node] = [graph.nodes[id_] for id_ in failed]
    while left:
        node = left.pop()
        if node.id not in found:
            found.add(node.id)
            left += _next(node)
    return found


def _next(node: Node) -> Iterator[Node]:
    yield from node.successors
    if node.parent is not None:
        yield node.parent


def _placed(problem: Problem, kept: Sequence[int]) -> Problem:
    """Return a problem of the reduced patch with its place in the whole patch."""
    place = _PLACE.match(problem.path)
    assert place is not None
    return replace(problem, path=f"edits[{kept[int(place[1])]}]{problem.path[place.end(1) + 1 :]}")
