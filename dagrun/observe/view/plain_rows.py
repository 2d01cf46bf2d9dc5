"""Short rows for steps that have only times: most steps of most runs.

A row has the number of a step, when it was ready, how long it waited until it began, and how long its call took: as
many of these as there are, in whole microseconds since the start of the run. The rest follows from those, from what
the rows of a group have in common, and from what the reader knows since the step came. A row costs a twentieth of the
whole step; that is what makes it cheap to be looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.outcome import PROCEED, Attempt, State
from dagrun.observe.view.waits import SHORT, Waits

_READY: Final = State.READY
_RUNNING: Final = State.RUNNING
_SUCCEEDED: Final = State.SUCCEEDED


class PlainRows:
    """Gathers the rows of one set of changes.

    Args:
        graph: The state of the run.
        waits: Knows why steps waited.
        number: The number of each step, by id.
        progress: The last reports of running tools, by id of step: such a step is told as a whole.
    """

    def __init__(
        self, graph: LiveGraph, waits: Waits, number: Mapping[str, int], progress: Mapping[str, list[Any]]
    ) -> None:
        self._graph = graph
        self._waits = waits
        self._number = number
        self._progress = progress
        self._groups: dict[tuple[State, str | None], list[int]] = {}

    def take(self, steps: Iterable[str]) -> list[str]:
        """Add the rows of some steps.

        Returns:
            The ids of those that must be told as a whole, in their order.
        """
        nodes, number, progress = self._graph.nodes, self._number, self._progress
        due_of, group, has_limits = self._waits.plain_due, self._groups.setdefault, self._waits.slots.has_limits
        ready, at_once, in_turn = group((_READY, None), []), group((_SUCCEEDED, None), []), group((_SUCCEEDED, ""), [])
        whole: list[str] = []
        since, last = 0, 0.0  # steps that were released together are due at the same instant
        for id_ in steps:
            node = nodes[id_]
            call = node.latest
            if (
                node.children is not None
                or node.extra is not None
                or node.ended is not None
                or (node.state is not _READY if call is None else not _is_plain(node, call))
                or (progress and id_ in progress)
                or (due := due_of(node)) is None
            ):
                whole.append(id_)
                continue
            if due != last:
                since, last = int(due * 1e6 + 0.5), due
            if call is None:
                ready += (number[id_], since)
                continue
            begun, ended = int(call.started * 1e6 + 0.5), call.ended
            wait = None
            if call.started - due >= SHORT:
                wait = self._limit_of(node, call.started, due) if has_limits or node.parent is not None else ""
            if ended is None:
                group((_RUNNING, wait), []).extend((number[id_], since, begun - since))
                continue
            rows = at_once if wait is None else group((_SUCCEEDED, wait), []) if wait else in_turn
            rows += (number[id_], since, begun - since, int(ended * 1e6 + 0.5) - begun)
        return whole

    def _limit_of(self, node: Node, begun: float, due: float) -> str:
        return self._waits.slots.full(node, (due + begun) / 2)

    def groups(self) -> list[dict[str, Any]]:
        """Return the rows, in a group for each ``state`` and ``wait``.

        A row of steps that are ``ready`` has two figures, that of ``running`` ones three, that of ``succeeded`` ones
        four. ``wait`` is the limit for which the steps waited; empty if their turn had not come, and `None` if they did
        not wait. A step that is ready waits for a slot.
        """
        groups = self._groups.items()
        return [{"state": str(state), "wait": wait, "rows": rows} for (state, wait), rows in groups if rows]


def _is_plain(node: Node, call: Attempt) -> bool:
    """Return whether a step was called once, and still runs, or has succeeded without further facts."""
    if call.number != 1 or call.hedge is not None or call.tool != node.plan.step.tool:
        return False
    outcome = call.outcome
    if outcome is None:
        return node.state is _RUNNING
    return (
        node.state is _SUCCEEDED
        and call.decision is PROCEED
        and not outcome.tokens
        and outcome.cost is None
        and not outcome.surprise
        and outcome.shared is None
    )
