"""Waves: split a plan into generations, and make each generation wait for the whole one before it.

An engine without a scheduler runs a graph like this: all ready steps at once, and the next generation only when the
last step of this one has ended. dagrun runs in waves only on request, to show what this waiting costs.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from dagrun.kernel.checks.checked_plan import CheckedPlan, CheckedStep


def generations(plan: CheckedPlan) -> list[list[str]]:
    """Return the ids of *plan* by generation, in plan order; a step waits only for steps of earlier generations."""
    import networkx as nx  # here: it takes as long to load as all the rest, and few runs go in waves

    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(plan.steps)
    graph.add_edges_from((need, id_) for id_, step in plan.steps.items() for need in step.depends_on)
    place = {id_: number for number, id_ in enumerate(plan.steps)}
    return [sorted(generation, key=place.__getitem__) for generation in nx.topological_generations(graph)]


def in_waves(plan: CheckedPlan) -> CheckedPlan:
    """Make every step of *plan* wait until the whole generation before its own has ended, with success or not.

    The steps, their arguments and the consequences of a failure do not change: a wave is a barrier, no dependency.
    """
    waves = generations(plan)
    steps = dict(plan.steps)
    after, place = list(plan.after), {id_: number for number, id_ in enumerate(plan.steps)}
    for before, wave in pairwise(waves):
        barrier = frozenset(before)
        for id_ in wave:
            steps[id_] = _wait_for_barrier(steps[id_], before, barrier)
        places = [place[id_] for id_ in wave]
        for number in map(place.__getitem__, before):
            own = frozenset(after[number])
            after[number] = [*after[number], *(other for other in places if other not in own)]
    return replace(plan, steps=steps, after=after, is_ordered=False)


def _wait_for_barrier(step: CheckedStep, before: list[str], barrier: frozenset[str]) -> CheckedStep:
    own = frozenset(step.depends_on)
    added = (id_ for id_ in before if id_ not in own)
    return replace(step, depends_on=(*step.depends_on, *added), gates=barrier - own, waits_for_all=True)
