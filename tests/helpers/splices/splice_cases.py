"""Random patches that are valid, made with an eye on where every step of the live graph stands; and cases full of them.

Unguided patches are nearly all refused, and then prove nothing.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

import networkx as nx

from dagrun import Add, Drop, Patch, QuestionRule, Replace, Rewire, State, Step
from dagrun.kernel.graph.node import Node
from random_cases import Case, Definition, make_case, make_step, with_changes
from splice_book import (
    as_json,
    doubted_call,
    is_fixed,
    may_have_applied,
    needs_of,
    parts_of,
    references,
    renamed,
    used_by,
)
from watched import WatchedGraph

MOST_EDITS: Final = 4
MOST_REWIRED: Final = 3  # a drop that would change more is no likely patch


def make_splice_case(seed: int) -> Case:
    """Make a case whose plan is changed many times while it runs; most of them are calm otherwise."""
    rng = random.Random(f"splices {seed}")
    case = make_case(rng.randrange(10**9))
    while not case.is_calm and rng.random() < 0.5:
        case = make_case(rng.randrange(10**9))
    plan = case.plan
    if rng.random() < 0.3:
        output = {step.id: f"${{{step.id}}}" for step in rng.sample(list(plan.steps), min(3, len(plan.steps)))}
        plan = plan.model_copy(update={"output": output})
    nobody = {"approve": (), "questions": QuestionRule(answer_within=None, max_pending=100), "max_tokens": None}
    policy = case.policy.model_copy(update=nobody)
    bare = Case(seed, plan, policy, case.shared, case.cancels, case.cancels_at)
    if rng.random() < 0.2:
        bare = _without_limits(bare)  # then a patch may bring the first one
    return with_changes(bare, rng, most=7, planned=0.75, is_calm=bare.is_calm)


def _without_limits(case: Case) -> Case:
    steps = [
        step.model_copy(update={"max_parallel": None}) if step.max_parallel is not None else step
        for step in case.plan.steps
    ]
    none: dict[str, object] = {"max_running": None, "max_running_by_tool": {}, "pools": {}}
    plan = case.plan.model_copy(update={"steps": tuple(steps)})
    return replace(case, plan=plan, policy=case.policy.model_copy(update=none), shared=None)


class Maker:
    """Makes one valid patch for a live graph as it stands.

    Args:
        graph: The graph; only looked at.
        rng: Decides everything.
        origin: ``host`` or ``planner``: what a planner makes may not be looser than the policy.

    Attributes:
        edits: So far.
        named: The steps that they name.
        plan: What a step may wait for, once they are carried out.
        output: What the plan then answers.
        replaced: The substitute of each step that gets one.
        order: Who then waits for whom, what has settled and what stands in for elements of a for_each included.
    """

    def __init__(self, graph: WatchedGraph, rng: random.Random, origin: str = "host") -> None:
        self.graph = graph
        self.rng = rng
        self.origin = origin
        self.edits: list[Add | Drop | Replace | Rewire] = []
        self.named: set[str] = set()
        self.plan = graph.book.planned()
        self.output = graph.book.output
        self._changes_output = False
        self.replaced: dict[str, str] = {}
        self._new: set[str] = set()
        self.order: nx.DiGraph[str] = nx.DiGraph()
        self.order.add_nodes_from(self.plan)
        for id_, definition in graph.book.steps.items():
            if id_ not in graph.book.gone:
                self._wire(id_, definition, graph.book.parents.get(id_))

    def make(self, repair: Sequence[str] = ()) -> Patch | None:
        """Make a patch of a few edits and of all that they entail; none if nothing came of it.

        Args:
            repair: Steps that the patch should be about.
        """
        if self.origin == "planner":  # what runs may have succeeded by the time that the planner has thought
            running = [id_ for id_ in self._removable() if self.graph.nodes[id_].state is State.RUNNING]
            repair = [*repair, *self.rng.sample(running, min(len(running), self.rng.choice((0, 1, 1))))]
        for id_ in repair:
            if id_ in self._removable():
                self.rng.choice((self._replace, self._replace, self._drop))(id_)
        for _ in range(self.rng.randint(0 if self.edits else 1, MOST_EDITS)):
            self.rng.choices((self._add, self._drop_any, self._replace_any, self._rewire_any), (3, 2, 3, 3))[0]()
        if not self.edits or len(self.edits) > self.graph.plan.policy.planning.max_edits:
            return None
        self.rng.shuffle(self.edits)
        base = self.rng.choice((None, self.graph.revision))
        if self._changes_output or self.rng.random() < 0.05:
            return Patch(edits=self.edits, base=base, reason="for a change", output=self.output)
        return Patch(edits=self.edits, base=base, reason="for a change")

    # The plan as it will be -------------------------------------------------------------------------------

    def _wire(self, id_: str, definition: Definition, parent: str | None = None) -> None:
        self.order.add_node(id_)
        self.order.remove_edges_from(list(self.order.in_edges(id_)))
        self.order.add_edges_from((need, id_) for need in needs_of(definition))
        if parent is not None:
            self.order.add_edge(id_, parent)

    def _node(self, id_: str) -> Node | None:
        """The live node of a step that is not new."""
        return self.graph.nodes.get(id_)

    def is_bad(self, id_: str) -> bool:
        node = self._node(id_)
        return node is not None and node.state.is_settled and node.state is not State.SUCCEEDED

    def usable(self, besides: Collection[str] = ()) -> list[Definition]:
        """Steps that something may use: not those that have ended badly, nor *besides*."""
        return [step for id_, step in self.plan.items() if id_ not in besides and not self.is_bad(id_)]

    def _some(self, steps: list[Definition]) -> list[Definition]:
        return self.rng.sample(steps, min(len(steps), self.rng.choice((0, 1, 1, 2, 3))))

    def after(self, id_: str) -> list[str]:
        """The steps that will wait for *id_*, and may still become others."""
        found = self.order.successors(id_) if id_ in self.order else ()
        return [next_ for next_ in found if (node := self._node(next_)) is None or not is_fixed(node)]

    def behind(self, id_: str) -> set[str]:
        """A step and all that will wait for it, directly or not; for an element, what waits for its for_each."""
        node = self._node(id_)
        top = node.parent.id if node is not None and node.parent is not None else id_
        return {top, *nx.descendants(self.order, top)} if top in self.order else {top}

    def is_list(self, id_: str) -> bool:
        definition = self.plan.get(id_) or self.graph.book.steps[id_]
        return definition.get("for_each") is not None

    def is_answered(self, id_: str) -> bool:
        return any(step == id_ for step, _ in references(self.output))

    def _removable(self) -> list[str]:
        """Steps and elements that may be dropped or replaced."""
        found = []
        for node in self.graph.nodes.values():
            family = [node.id, *(child.id for child in node.children or ())]
            if node.parent is not None:
                if node.parent.is_gone or node.parent.state.is_settled:
                    continue
                family.append(node.parent.id)
            if node.is_gone or node.state is State.SUCCEEDED or self.named.intersection(family):
                continue
            if not any(after in self.named or after in self._new for after in self.after(node.id)):
                found.append(node.id)
        return found

    def fresh_id(self) -> str:
        """An id that was never used; many look much like others."""
        taken = {id_.lower() for id_ in (*self.graph.nodes, *self._new)}
        while True:
            stem = self.rng.choice(("n", "s1", "s1-", "s", *self.plan))[:30]
            id_ = f"{stem}{self.rng.choice(('', '-', '_'))}{self.rng.randint(0, 99)}"
            if id_.lower() not in taken:
                return id_

    def define(
        self,
        id_: str,
        needs: Sequence[Definition],
        *,
        besides: Collection[str] = (),
        is_list: bool | None = None,
        element: bool = False,
    ) -> Step:
        """Make a step.

        Args:
            id_: What it is called.
            needs: What it waits for; and maybe for one more, which was left out by order of the plan.
            besides: What that must not be.
            is_list: Whether it must be a for_each, or must not.
            element: Whether it stands in for an element of one.
        """
        made = make_step(self.rng, id_, needs, is_calm=True)
        if is_list is False or element:
            for name in ("for_each", "max_parallel"):
                made.pop(name, None)
            made["args"].pop("item", None)
        elif is_list and "for_each" not in made:
            made |= {"for_each": [0, 1], "args": made["args"] | {"item": "${item}"}}
            made.pop("success", None)
        if element:
            made["args"]["item"] = "${item}"
            made.pop("when", None)
        if self.origin == "planner" and "retry" in made:
            made["retry"]["max_attempts"] = min(2, made["retry"]["max_attempts"])
        bad = [node for id_ in self.plan if id_ not in besides and self.is_bad(id_) and (node := self._node(id_))]
        left_out = [node.id for node in bad if node.is_tolerated]
        if left_out and self.rng.random() < 0.3:
            made["depends_on"] = [*made["depends_on"], self.rng.choice(left_out)]
        return Step.model_validate(made)

    def must_cancel(self, node: Node) -> bool:
        """Whether an edit has to say that a call is to be stopped."""
        return any(may_have_applied(self.graph, p) and not p.state.is_settled for p in parts_of(node))

    # Edits ------------------------------------------------------------------------------------------------

    def _come(self, step: Step) -> None:
        self._new.add(step.id)
        self.plan[step.id] = as_json(step)
        self._wire(step.id, self.plan[step.id])

    def _change(self, id_: str, definition: Definition) -> None:
        if id_ in self.plan:
            self.plan[id_] = definition
        self._wire(id_, definition, self.graph.book.parents.get(id_))

    def _add(self) -> None:
        step = self.define(self.fresh_id(), self._some(self.usable()))
        self.edits.append(Add(step=step))
        self._come(step)

    def _drop_any(self) -> None:
        if ids := self._removable():
            self._drop(self.rng.choice(ids))

    def _drop(self, id_: str) -> None:
        """Drop a step; what waits for it is rewired, or dropped as well."""
        node, after = self.graph.nodes[id_], self.after(id_)
        if node.parent is None and len(after) > MOST_REWIRED:
            return
        self.named.add(id_)
        self.edits.append(Drop(id=id_, cancel=self.must_cancel(node) or self.rng.random() < 0.1))
        if node.parent is not None:
            return
        self.plan.pop(id_, None)
        if self.is_answered(id_):
            self._changes_output = True
            self.output = {key: ref for key, ref in self.output.items() if id_ not in {s for s, _ in references(ref)}}
        for next_ in after:
            if next_ in self.named:
                continue
            if next_ in self._removable() and (next_ not in self.plan or self.rng.random() < 0.3):
                self._drop(next_)
            elif next_ in self.plan:
                self._do_without(next_, id_)

    def _do_without(self, id_: str, gone: str) -> None:
        """Let *id_* not wait for *gone* any more."""
        definition = self.plan[id_]
        others = [s["id"] for s in self.usable(self.behind(id_)) if self.is_list(s["id"]) == self.is_list(gone)]
        is_needed = gone in {step for step, _ in used_by({**definition, "args": {}})}
        if others and (is_needed or self.rng.random() < 0.4):
            self._rewire(Rewire(id=id_, use={gone: self.rng.choice(others)}))
        elif not is_needed:
            args = definition["args"]
            feed = [part for part in args.get("feed", ()) if gone not in {step for step, _ in references(part)}]
            declared = [need for need in definition["depends_on"] if need != gone]
            self._rewire(Rewire(id=id_, depends_on=declared, args={**args, "feed": feed}))
        elif id_ in self._removable():
            self._drop(id_)

    def _replace_any(self) -> None:
        if ids := self._removable():
            self._replace(self.rng.choice(ids))

    def _replace(self, id_: str) -> None:
        """Put another step in the place of one."""
        node, after = self.graph.nodes[id_], self.after(id_)
        is_element = node.parent is not None
        needs = self._some(self.usable({id_, *self.behind(id_)}))
        shape = self.is_list(id_) if not is_element and (after or self.is_answered(id_)) else None
        behind = self.behind(id_)
        step = self.define(self.fresh_id(), needs, besides=behind, is_list=shape, element=is_element)
        if self.origin == "planner" and not is_element and self.rng.random() < 0.4:
            step = self._same_again(node, step)
        doubted = doubted_call(self.graph, self.graph.book, node)
        if doubted is not None:
            step = self._frozen(self.graph.nodes[doubted], step, is_element=is_element)
        self.named.add(id_)
        self.edits.append(Replace(id=id_, step=step, cancel=self.must_cancel(node) or self.rng.random() < 0.1))
        self._new.add(step.id)
        if node.parent is not None:
            self._wire(step.id, as_json(step), node.parent.id)
            return
        self._come(step)
        self.plan.pop(id_, None)
        self.replaced[id_] = step.id
        for next_ in after:
            definition = self.plan.get(next_) or self.graph.book.steps[next_]
            self._change(next_, renamed(definition, {id_: step.id}))
        self.output = renamed({"args": self.output}, {id_: step.id})["args"]

    def _same_again(self, node: Node, step: Step) -> Step:
        """What has failed, once more under another name: a planner without ideas."""
        old, rule = node.plan.step, self.graph.plan.policy.retry
        is_whole = all(need in self.plan and not self.is_bad(need) for need in needs_of(as_json(old)))
        if not is_whole or old.success is not None or (old.retry or rule).max_attempts > rule.max_attempts:
            return step
        return old.model_copy(update={"id": step.id})

    def _frozen(self, doubted: Node, step: Step, *, is_element: bool) -> Step:
        """After a call that may have taken effect: the very same one again where that may be, or one that looks."""
        old = doubted.plan.step
        used = {need for need, _ in used_by({"args": old.args})}
        is_alike = is_element or old.for_each == step.for_each
        if old.tool != "safe_act" or not is_alike or not used <= self.plan.keys() or self.rng.random() < 0.3:
            return step.model_copy(update={"tool": "pure_act"})
        limit = {"timeout": old.timeout} if old.timeout is not None else {}  # what hangs needs one
        return step.model_copy(update={"tool": old.tool, "args": old.args, **limit})

    def _rewire_any(self) -> None:
        ids = [id_ for id_ in self.plan if id_ not in self.named and (node := self._node(id_)) and not is_fixed(node)]
        if ids:
            way = self.rng.choice((self._use_another, self._wait_for_others, self._other_arguments))
            edit = way(self.rng.choice(ids))
            if edit is not None:
                self._rewire(edit)

    def _rewire(self, edit: Rewire) -> None:
        definition = renamed(self.graph.book.steps[edit.id], {**self.replaced, **edit.use})
        if edit.depends_on is not None:
            definition["depends_on"] = list(edit.depends_on)
        if edit.args is not None:
            definition["args"] = edit.args
        self.named.add(edit.id)
        self.edits.append(edit)
        self._change(edit.id, definition)

    def _use_another(self, id_: str) -> Rewire | None:
        needs = needs_of(self.graph.book.steps[id_])
        old = self.rng.choice(needs) if needs else None
        if old is None:
            return None
        others = [
            s["id"] for s in self.usable({*self.behind(id_), *needs}) if self.is_list(s["id"]) == self.is_list(old)
        ]
        return Rewire(id=id_, use={old: self.rng.choice(others)}) if others else None

    def _wait_for_others(self, id_: str) -> Rewire:
        definition = self.plan[id_]
        used = {step for step, _ in used_by(definition)}
        kept = [need for need in definition.get("depends_on", ()) if need in used or self.rng.random() < 0.5]
        more = [step["id"] for step in self._some(self.usable({*self.behind(id_), *kept}))]
        return Rewire(id=id_, depends_on=[*kept, *more])

    def _other_arguments(self, id_: str) -> Rewire:
        """Other inputs, and other acts where the time limit of the step allows any."""
        definition = self.plan[id_]
        made = self.define("x", self._some(self.usable(self.behind(id_))), is_list=self.is_list(id_))
        args = {name: value for name, value in made.args.items() if name == "feed" or definition.get("timeout")}
        return Rewire(id=id_, args={**{k: v for k, v in definition["args"].items() if k != "feed"}, **args})
