"""One fault each: what turns a valid patch into one that must be refused whole, and the code that must name it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import networkx as nx

from dagrun import Add, Drop, Patch, Replace, Rewire, State, Step
from dagrun.kernel.graph.node import Node
from splice_book import is_fixed, may_have_applied, needs_of
from splice_cases import Maker
from watched import WatchedGraph

ACT: Final = {"does": "succeeds", "seconds": 0.5, "gives": 1}

AnyEdit: TypeAlias = Add | Drop | Replace | Rewire
Fault: TypeAlias = "Callable[[Spoiler], list[AnyEdit] | None]"


def simple(id_: str, feed: Any = None, **fields: Any) -> Step:
    """A step with nothing wrong in it but what *fields* bring."""
    args = {"acts": [ACT]} | ({"feed": feed} if feed is not None else {})
    return Step.model_validate({"id": id_, "tool": "pure_act", "args": args} | fields)


class Spoiler:
    """Puts exactly one fault into a valid patch.

    Args:
        maker: That has made the patch.
        patch: The patch.
    """

    def __init__(self, maker: Maker, patch: Patch) -> None:
        self.maker = maker
        self.graph: WatchedGraph = maker.graph
        self.rng: random.Random = maker.rng
        self.patch = patch
        self.most = self.graph.plan.policy.planning.max_edits

    def spoil(self) -> tuple[Patch, str, str] | None:
        """Give the patch with a fault in it, the name of the fault and its code; none if no fault is at hand."""
        names = list(FAULTS)
        self.rng.shuffle(names)
        if self.rng.random() < 0.5:  # what can be done only now and then is done first
            names.sort(key=lambda name: name not in RARE)
        for name in names:
            code, make = FAULTS[name]
            edits = make(self)
            if edits and (make is too_many_edits or len(edits) + len(self.patch.edits) <= self.most):
                return self.patch.model_copy(update={"edits": (*self.patch.edits, *edits)}), name, code
        return None

    # What is at hand --------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """An id that was never used."""
        return self.maker.fresh_id()

    def pick(self, found: Iterator[Node]) -> Node | None:
        """One of several steps that the patch does not name, and whose family it does not either."""
        named = self.maker.named
        nodes = [
            node
            for node in found
            if node.id not in named and (node.parent is None or node.parent.id not in named)
            if not any(child.id in named for child in node.children or ())
        ]
        return self.rng.choice(nodes) if nodes else None

    def steps(self) -> Iterator[Node]:
        """The steps of the plan as it stands."""
        return (node for node in self.graph.nodes.values() if not node.is_gone and node.parent is None)

    def elements(self) -> Iterator[Node]:
        """The elements of for_each steps that run."""
        nodes = self.graph.nodes.values()
        return (n for n in nodes if n.parent is not None and not n.is_gone and n.parent.state is State.RUNNING)

    def open(self) -> Iterator[Node]:
        """The steps that may still become others, and do not change."""
        return (node for node in self.steps() if not is_fixed(node) and node.id in self.maker.plan)

    def behind(self, id_: str) -> list[str]:
        """The steps that will wait for *id_*, through others that have not settled either."""
        nodes = self.graph.nodes
        order = self.maker.order
        open_ = [other for other in order if other not in nodes or not nodes[other].state.is_settled]
        found: set[str] = nx.descendants(order.subgraph(open_), id_)
        return sorted(found & self.maker.plan.keys())

    def waiting_for(self, id_: str) -> list[str]:
        """The steps that will wait for *id_* directly, of those that were there before, and are not named."""
        return [n.id for n in self.open() if id_ in needs_of(self.maker.plan[n.id])]


# Ids ------------------------------------------------------------------------------------------------------------------


def unknown_id(it: Spoiler) -> list[AnyEdit]:
    return [it.rng.choice((Drop(id="nobody"), Rewire(id="nobody"), Replace(id="s99x", step=simple(it.id))))]


def gone_id(it: Spoiler) -> list[AnyEdit] | None:
    gone = sorted(it.graph.book.gone)
    return [it.rng.choice((Drop, Rewire))(id=it.rng.choice(gone))] if gone else None


def used_id(it: Spoiler) -> list[AnyEdit]:
    ids = [id_ for id_ in it.graph.nodes if "[" not in id_]
    return [Add(step=simple(it.rng.choice(ids)))]


def used_id_in_other_letters(it: Spoiler) -> list[AnyEdit]:
    ids = [id_ for id_ in it.graph.nodes if "[" not in id_ and id_.upper() not in it.graph.nodes]
    return [Add(step=simple(it.rng.choice(ids).upper()))] if ids else []


def malformed_id(it: Spoiler) -> list[AnyEdit]:
    return [Add(step=simple(it.rng.choice(("a b", "", "s0[0]", "x" * 49, "é"))))]


def reserved_id(it: Spoiler) -> list[AnyEdit]:
    return [Add(step=simple(it.rng.choice(("input", "item"))))]


# States ---------------------------------------------------------------------------------------------------------------


def finished(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in (*it.steps(), *it.elements()) if n.state is State.SUCCEEDED)
    if node is None:
        return None
    if node.parent is None and it.rng.random() < 0.3:
        return [Rewire(id=node.id, depends_on=[])]
    return [it.rng.choice((Drop(id=node.id), Replace(id=node.id, step=simple(it.id))))]


def rewired_when_settled(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.steps() if n.state.is_settled)
    return [Rewire(id=node.id, args={"acts": [ACT]})] if node is not None else None


def rewired_when_started(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.steps() if is_fixed(n) and not n.state.is_settled)
    return [Rewire(id=node.id, args={"acts": [ACT]})] if node is not None else None


def rewired_element(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.elements() if not n.state.is_settled)
    return [Rewire(id=node.id, depends_on=[])] if node is not None else None


def no_cancel(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in (*it.steps(), *it.elements()) if not n.state.is_settled and it.maker.must_cancel(n))
    if node is None:
        return None
    return [Replace(id=node.id, step=simple(it.id, **_shape_of(node)))]


def _shape_of(node: Node) -> dict[str, Any]:
    is_list = node.parent is None and node.plan.step.for_each is not None
    return {"for_each": [1], "args": {"acts": [ACT], "item": "${item}"}} if is_list else {}


def another_call(it: Spoiler) -> list[AnyEdit] | None:
    """After a call that may have taken effect, something else that changes the world."""

    def may(node: Node) -> bool:
        is_bad = node.state.is_settled and node.state is not State.SUCCEEDED
        return is_bad and may_have_applied(it.graph, node)

    node = it.pick(n for n in (*it.steps(), *it.elements()) if may(n))
    return [Replace(id=node.id, step=simple(it.id, tool="deed", **_shape_of(node)))] if node is not None else None


# The graph ------------------------------------------------------------------------------------------------------------


def cycle(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.open() if it.waiting_for(n.id))
    if node is None:
        return None
    behind = it.behind(node.id)
    return [Rewire(id=node.id, depends_on=[it.rng.choice(behind)])] if behind else None


def new_cycle(it: Spoiler) -> list[AnyEdit] | None:
    one, two = it.id, f"{it.id}-two"
    if two.lower() in {id_.lower() for id_ in it.graph.nodes}:
        return None
    return [Add(step=simple(one, depends_on=[two])), Add(step=simple(two, feed=[f"${{{one}}}"]))]


def element_waits_for_what_follows(it: Spoiler) -> list[AnyEdit] | None:
    """A substitute for an element waits for a step that waits for its for_each."""
    node = it.pick(n for n in it.elements() if not n.state.is_settled and n.parent and it.behind(n.parent.id))
    if node is None or node.parent is None:
        return None
    behind = it.rng.choice(it.behind(node.parent.id))
    return [Replace(id=node.id, step=simple(it.id, depends_on=[behind]), cancel=True)]


def itself(it: Spoiler) -> list[AnyEdit]:
    id_ = it.id
    return [Add(step=simple(id_, depends_on=[id_]))]


def dangling(it: Spoiler) -> list[AnyEdit]:
    leaving = [edit.id for edit in it.patch.edits if isinstance(edit, Drop | Replace)]
    elements = [edit.step.id for edit in it.patch.edits if isinstance(edit, Replace) and "[" in edit.id]
    elements += [node.id for node in it.elements()]
    other = it.rng.choice(("nobody", it.rng.choice(("nobody", *sorted(it.graph.book.gone), *leaving, *elements))))
    if it.rng.random() < 0.5 and "[" not in other:
        return [Add(step=simple(it.id, feed=[f"${{{other}}}"]))]
    return [Add(step=simple(it.id, depends_on=[other]))]


def left_behind(it: Spoiler) -> list[AnyEdit] | None:
    def is_needed(node: Node) -> bool:
        return any(id_ not in it.maker.named for id_ in it.waiting_for(node.id)) and not it.maker.is_answered(node.id)

    node = it.pick(n for n in it.steps() if n.state is not State.SUCCEEDED and is_needed(n))
    if node is None or any(id_ in it.maker.named for id_ in it.waiting_for(node.id)):
        return None
    if any(id_ not in it.graph.nodes and node.id in needs_of(step) for id_, step in it.maker.plan.items()):
        return None  # a new step waits for it: that would be another fault as well
    return [Drop(id=node.id, cancel=True)]


def waits_for_what_failed(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.steps() if n.state.is_settled and n.state is not State.SUCCEEDED)
    return [Add(step=simple(it.id, feed=[f"${{{node.id}}}"]))] if node is not None else None


def edited_twice(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(
        n for n in it.steps() if not n.state.is_settled and not it.waiting_for(n.id) and not it.maker.is_answered(n.id)
    )
    if node is None or it.maker.after(node.id):
        return None
    return [Drop(id=node.id, cancel=True), Drop(id=node.id, cancel=True)]


def element_and_parent(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.elements() if not n.state.is_settled)
    if node is None or node.parent is None:
        return None
    one: AnyEdit = Drop(id=node.id, cancel=True)
    if it.rng.random() < 0.5 and not may_have_applied(it.graph, node):
        one = Replace(id=node.id, step=simple(it.id), cancel=True)
    whole = Replace(id=node.parent.id, step=simple(f"{it.id}-all", **_shape_of(node.parent)), cancel=True)
    return it.rng.sample([one, whole], 2)


# Tools, arguments, sizes ----------------------------------------------------------------------------------------------


def foreign_tool(it: Spoiler) -> list[AnyEdit]:
    return [Add(step=simple(it.id, tool=it.rng.choice(("os.system", "pure_acts", "__init__"))))]


def forbidden_tool(it: Spoiler) -> list[AnyEdit]:
    return [Add(step=simple(it.id, tool="banned_act"))]


def wrong_argument(it: Spoiler) -> list[AnyEdit]:
    return [Add(step=simple(it.id, args={"acts": "many"}))]


def unknown_argument(it: Spoiler) -> list[AnyEdit]:
    return [Add(step=simple(it.id, args={"acts": [ACT], "colour": "red"}))]


def no_such_part(it: Spoiler) -> list[AnyEdit] | None:
    ids = [step["id"] for step in it.maker.usable() if not it.maker.is_list(step["id"])]
    return [Add(step=simple(it.id, feed=[f"${{{it.rng.choice(ids)}.colour}}"]))] if ids else None


def list_for_an_element(it: Spoiler) -> list[AnyEdit] | None:
    node = it.pick(n for n in it.elements() if not n.state.is_settled)
    return [Replace(id=node.id, step=simple(it.id, for_each=[1]), cancel=True)] if node is not None else None


def too_many_edits(it: Spoiler) -> list[AnyEdit] | None:
    limit = it.graph.plan.policy.planning.max_edits
    return [Add(step=simple(f"many-{number}")) for number in range(limit + 1)] if limit < 100 else None


def too_many_steps(it: Spoiler) -> list[AnyEdit] | None:
    policy = it.graph.plan.policy
    if policy.max_steps is None or policy.planning.max_edits <= policy.max_steps:
        return None
    return [Add(step=simple(f"many-{number}")) for number in range(policy.max_steps - len(it.graph.nodes) + 1)]


def more_attempts(it: Spoiler) -> list[AnyEdit] | None:
    if it.maker.origin != "planner":
        return None
    return [Add(step=simple(it.id, retry={"max_attempts": it.graph.plan.policy.retry.max_attempts + 1}))]


FAULTS: Final[dict[str, tuple[str, Fault]]] = {
    "unknown id": ("DR401", unknown_id),
    "id of a step that has left": ("DR401", gone_id),
    "reused id": ("DR402", used_id),
    "reused id in other letters": ("DR103", used_id_in_other_letters),
    "malformed id": ("DR101", malformed_id),
    "reserved id": ("DR110", reserved_id),
    "finished step edited": ("DR403", finished),
    "settled step rewired": ("DR403", rewired_when_settled),
    "started step rewired": ("DR404", rewired_when_started),
    "element rewired": ("DR404", rewired_element),
    "missing cancel": ("DR405", no_cancel),
    "another call after one in doubt": ("DR418", another_call),
    "cycle": ("DR106", cycle),
    "cycle of new steps": ("DR106", new_cycle),
    "cycle through a for_each": ("DR106", element_waits_for_what_follows),
    "step that waits for itself": ("DR105", itself),
    "dangling reference": ("DR104 DR302", dangling),
    "dependent left behind": ("DR406 DR104 DR302", left_behind),
    "wait for what has failed": ("DR407", waits_for_what_failed),
    "step edited twice": ("DR410", edited_twice),
    "element and for_each edited": ("DR410", element_and_parent),
    "foreign tool": ("DR201", foreign_tool),
    "tool that is not allowed": ("DR202", forbidden_tool),
    "wrong argument": ("DR205", wrong_argument),
    "unknown argument": ("DR204", unknown_argument),
    "part that does not exist": ("DR303", no_such_part),
    "for_each in place of an element": ("DR112", list_for_an_element),
    "too many edits": ("DR409", too_many_edits),
    "too many steps": ("DR413", too_many_steps),
    "more attempts than the policy allows": ("DR412", more_attempts),
}


RARE: Final = frozenset(
    (
        "finished step edited",
        "settled step rewired",
        "started step rewired",
        "element rewired",
        "missing cancel",
        "another call after one in doubt",
        "cycle",
        "cycle through a for_each",
        "dependent left behind",
        "wait for what has failed",
        "element and for_each edited",
        "for_each in place of an element",
        "too many edits",
        "too many steps",
    )
)
WHOLE: Final = ("stale", "empty", "dangling output", "answer dropped", "base to come")


def spoil_whole(maker: Maker, patch: Patch) -> tuple[Patch, str, str]:
    """Give a patch with a fault that is not in its edits: of its base, its output, or because it says nothing."""
    graph, rng = maker.graph, maker.rng
    touched = [id_ for number, ids in enumerate(graph.book.touched) for id_ in sorted(ids) if id_ in maker.plan]
    named = [id_ for id_ in touched if not maker.is_bad(id_) and id_ not in maker.named]
    answered = [id_ for id_ in maker.plan if maker.is_answered(id_)]
    match rng.randrange(5):
        case 0 if named:
            more = Add(step=simple(maker.fresh_id(), depends_on=[rng.choice(named)]))
            return patch.model_copy(update={"edits": (*patch.edits, more), "base": 0}), "stale", "DR408"
        case 1:
            return Patch(edits=[], base=patch.base), "empty", "DR414"
        case 2:
            return Patch(edits=patch.edits, output=["${nobody}"]), "dangling output", "DR311"
        case 3 if answered and not patch.changes_output and (found := _dropped_answer(maker, answered)):
            return patch.model_copy(update={"edits": (*patch.edits, found)}), "answer dropped", "DR416"
        case _:
            return patch.model_copy(update={"base": graph.revision + rng.randint(1, 9)}), "base to come", "DR415"


def _dropped_answer(maker: Maker, answered: list[str]) -> Drop | None:
    for id_ in answered:
        node = maker.graph.nodes.get(id_)
        if node is None or node.state is State.SUCCEEDED or maker.after(id_):
            continue
        if not maker.named.intersection([id_, *(child.id for child in node.children or ())]):
            return Drop(id=id_, cancel=True)
    return None
