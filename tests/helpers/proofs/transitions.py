"""The tables of transitions, as a watch over every change of every run in the tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from dagrun import Event, State
from dagrun.kernel.graph.changes import CHANGES, OTHER_TRANSITIONS, STEP_TRANSITIONS, step_of
from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node

MOST: Final = 100  # in a bigger plan only the step that the event names is looked at

Change = Callable[..., None]


class IllegalTransition(AssertionError):
    """An event came in a state, or led to one, that the tables do not have."""


def watch_transitions() -> None:
    """Compare every change that is applied from now on with the tables."""
    changes = cast("dict[type[Event], Change]", CHANGES)
    changes.update({kind: watched(kind, change) for kind, change in CHANGES.items()})


def watched(kind: type[Event], change: Change) -> Change:
    """Return *change*, which looks at the states of the steps before and after itself."""
    own, others = STEP_TRANSITIONS.get(kind, {}), OTHER_TRANSITIONS.get(kind, {})

    def change_and_look(graph: LiveGraph, event: Event, *node: Node) -> None:
        step = step_of(event) if own else ""
        steps = graph.nodes if len(graph.nodes) <= MOST else (step,) if step else ()
        before = {id_: graph.nodes[id_].state for id_ in steps}
        if step and before[step] not in own:
            raise IllegalTransition(f"{event} comes while {step} is {before[step]}")
        change(graph, event, *node)
        for id_, was in before.items():
            now = graph.nodes[id_].state
            if now not in (own[was] if id_ == step else others.get(was, frozenset[State]()) | {was}):
                raise IllegalTransition(f"{event} made {id_} {now}, which was {was}")

    return change_and_look
