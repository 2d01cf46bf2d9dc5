"""Waves: a plan split into generations, and turned into one whose generations wait for each other as a whole.

That is how an engine without a scheduler runs a graph: everything that is ready side by side, and nothing of the next
generation before the last of this one has ended. dagrun runs so only when asked, to show what waiting costs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import networkx as nx

from dagrun.checks.checked_plan import CheckedPlan, CheckedStep


def generations(plan: CheckedPlan) -> list[list[str]]:
    """The ids of *plan* by generation: each waits for steps of earlier generations only, in the order of the plan."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(plan.steps)
    graph.add_edges_from((need, id_) for id_, step in plan.steps.items() for need in step.depends_on)
    place = {id_: number for number, id_ in enumerate(plan.steps)}
    return [sorted(generation, key=place.__getitem__) for generation in nx.topological_generations(graph)]


def in_waves(plan: CheckedPlan) -> CheckedPlan:
    """Make every step of *plan* wait until the whole generation before its own has ended, however it did.

    The steps, their arguments and what a failure means stay the same: a wave is a barrier, not a dependency.
    """
    waves = generations(plan)
    steps = dict(plan.steps)
    after, place = list(plan.after), {id_: number for number, id_ in enumerate(plan.steps)}
    for before, wave in pairwise(waves):
        barrier = frozenset(before)
        for id_ in wave:
            steps[id_] = _behind(steps[id_], before, barrier)
        behind = [place[id_] for id_ in wave]
        for number in map(place.__getitem__, before):
            own = frozenset(after[number])
            after[number] = [*after[number], *(other for other in behind if other not in own)]
    return replace(plan, steps=steps, after=after, is_ordered=False)


def _behind(step: CheckedStep, before: list[str], barrier: frozenset[str]) -> CheckedStep:
    own = frozenset(step.depends_on)
    added = (id_ for id_ in before if id_ not in own)
    return replace(step, depends_on=(*step.depends_on, *added), gates=barrier - own)
