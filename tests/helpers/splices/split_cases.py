"""Random patches of which the policy refuses a part, and what has to be left of them, worked out apart.

A patch is written together with what it is made of: which edits call a tool that the run does not have, which edits use
what others bring, and which steps they take out. So what may stay follows from that alone.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import networkx as nx

from dagrun import Add, Drop, Patch, Replace, Rewire, Step, Toolbox
from dagrun.kernel.model.tool import make_tool
from played import Played


async def look(of: list[Any]) -> str:
    return ""


TOOLS = Toolbox(make_tool(look, effect="read"))


def step(id_: str, uses: list[str], *, is_evil: bool = False) -> Step:
    """A step that uses others."""
    args = {"of": [f"${{{one}}}" for one in uses]}
    return Step.model_validate({"id": id_, "tool": "no_such_tool" if is_evil else "look", "args": args})


@dataclass(slots=True)
class Case:
    """A run in the middle, a patch for it, and what that is made of.

    Attributes:
        played: The run; one step of it has failed.
        failed: That step.
        patch: The patch.
        guilty: The edits that the policy refuses.
        uses: For each edit, the edits that bring what it uses.
        old: By number of an edit, the step of the plan that it is about.
        dropped: The edits that drop a step.
        is_wrong: Whether it has a fault of another kind.
    """

    played: Played
    failed: str
    patch: Patch
    guilty: set[int] = field(default_factory=set)
    uses: dict[int, set[int]] = field(default_factory=dict)
    old: dict[int, str] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    is_wrong: bool = False

    def kept(self) -> list[int] | None:
        """The edits that stay; `None` if the whole patch is refused."""
        if self.is_wrong or not self.guilty:
            return None
        plan: Any = nx.DiGraph()
        for node in self.played.graph.nodes.values():
            plan.add_node(node.id)
            plan.add_edges_from((need, node.id) for need in node.plan.depends_on)
        about = {id_: number for number, id_ in self.old.items()}
        gone = set(self.guilty)
        for _ in range(len(self.patch.edits)):
            for number in range(len(self.patch.edits)):
                after = list(plan.successors(self.old[number])) if number in self.dropped else ["-"]
                if self.uses[number] & gone or not after or any(about.get(one) in gone for one in after):
                    gone.add(number)
        must_stay = {self.failed, *nx.descendants(plan, self.failed)}
        kept = [number for number in range(len(self.patch.edits)) if number not in gone]
        return None if not kept or any(self.old.get(number) in must_stay for number in gone) else kept


def make_split_case(seed: int) -> Case:
    """Make a case: a plan of layers, a failed step among them, and a patch of a few edits."""
    dice = random.Random(seed)
    steps: list[Step] = []
    for number in range(dice.randint(4, 9)):
        before = [one.id for one in steps]
        steps.append(step(f"s{number}", dice.sample(before, min(len(before), dice.choice((0, 1, 1, 2))))))
    played = Played(steps, TOOLS)
    roots = [one.id for one in steps if not one.args["of"]]
    failed = dice.choice(roots)
    played.fail(failed)
    case = Case(played, failed, Patch(edits=[]))
    _write(case, dice, steps)
    return case


def _write(case: Case, dice: random.Random, steps: list[Step]) -> None:
    edits, brings = list[Any](), dict[str, int]()
    free = [one.id for one in steps]
    targets = [case.failed] * (dice.random() < 0.7) + dice.sample(free, min(len(free), dice.randint(0, 4)))
    for target in dict.fromkeys(targets):
        _edit_old(case, dice, edits, brings, target)
    for _ in range(dice.randint(0, 3)):
        _add(case, dice, edits, brings)
    if dice.random() < 0.08:
        case.is_wrong = True
        case.uses[len(edits)] = set()
        edits.append(Drop(id="nobody"))
    order = list(range(len(edits)))
    dice.shuffle(order)
    place = {old: new for new, old in enumerate(order)}
    case.patch = Patch(edits=[edits[number] for number in order])
    case.guilty = {place[number] for number in case.guilty}
    case.dropped = {place[number] for number in case.dropped}
    case.uses = {place[number]: {place[one] for one in used} for number, used in case.uses.items()}
    case.old = {place[number]: id_ for number, id_ in case.old.items()}


def _some(dice: random.Random, brings: dict[str, int]) -> list[str]:
    return dice.sample(list(brings), min(len(brings), dice.choice((0, 1, 1, 2))))


def _add(case: Case, dice: random.Random, edits: list[Any], brings: dict[str, int]) -> None:
    number, used = len(edits), _some(dice, brings)
    case.uses[number] = {brings[one] for one in used}
    is_evil = dice.random() < 0.5
    if is_evil:
        case.guilty.add(number)
    rewired = [edit.id for edit in edits if isinstance(edit, Rewire)]
    of_plan = [dice.choice(rewired)] if rewired and dice.random() < 0.4 else []  # it is there, whatever it is like
    edits.append(Add(step=step(f"n{number}", [*used, *of_plan], is_evil=is_evil)))
    brings[f"n{number}"] = number


def _edit_old(case: Case, dice: random.Random, edits: list[Any], brings: dict[str, int], target: str) -> None:
    number, used, kind = len(edits), _some(dice, brings), dice.choice(("replace", "rewire", "drop", "use"))
    case.old[number] = target
    if target == case.failed and kind in ("rewire", "use"):  # what has ended is not rewired
        kind = "replace"
    case.uses[number] = set()
    match kind:
        case "replace":
            case.uses[number] = {brings[one] for one in used}
            is_evil = dice.random() < 0.25
            if is_evil:
                case.guilty.add(number)
            edits.append(Replace(id=target, step=step(f"n{number}", used, is_evil=is_evil)))
            brings[f"n{number}"] = number
        case "drop":
            case.dropped.add(number)
            edits.append(Drop(id=target))
        case "use" if brings and case.played.graph.nodes[target].plan.depends_on:
            new = dice.choice(list(brings))
            case.uses[number] = {brings[new]}
            edits.append(Rewire(id=target, use={case.played.graph.nodes[target].plan.depends_on[0]: new}))
        case _:
            case.uses[number] = {brings[one] for one in used}
            edits.append(Rewire(id=target, args={"of": [f"${{{one}}}" for one in used]}))
