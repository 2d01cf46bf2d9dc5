"""The limits on steps that run at once, and how many ran under each of them at any time."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node

_OF_ELEMENTS: Final = "max_parallel of "


class Slots:
    """The slots of one run. Calls are counted when that is asked for.

    Args:
        graph: The state of the run.
        at: Now, for steps that still run.
    """

    def __init__(self, graph: LiveGraph, at: float) -> None:
        policy = graph.plan.policy
        self._most: dict[str, int] = {
            **{f"tool {name}": limit for name, limit in policy.max_running_by_tool.items()},
            **{f"pool {name}": limit for name, limit in policy.max_running_by_pool.items()},
        }
        if policy.max_running is not None:
            self._most["max_running"] = policy.max_running
        self._graph = graph
        self._now = at
        self._known: dict[tuple[object, ...], tuple[str, ...]] = {}

    @property
    def has_limits(self) -> bool:
        """Whether the policy limits the steps that run at once."""
        return bool(self._most)

    @cached_property
    def _calls(self) -> dict[str, tuple[list[float], list[float]]]:
        """The starts and the ends of all calls under each limit, in order."""
        calls: dict[str, tuple[list[float], list[float]]] = {}
        for node in self._graph.nodes.values():
            for key in self.limits_of(node) if node.latest is not None else ():
                starts, ends = calls.setdefault(key, ([], []))
                for attempt in node.attempts:
                    starts.append(attempt.started)
                    ends.append(self._now if attempt.ended is None else attempt.ended)
        for starts, ends in calls.values():
            starts.sort()
            ends.sort()
        return calls

    def full(self, node: Node, at: float) -> str:
        """Return the limit of *node* that was reached at a time; empty if none was."""
        for key in self.limits_of(node):
            starts, ends = self._calls.get(key, ((), ()))
            if bisect_right(starts, at) - bisect_left(ends, at) >= self._most[key]:
                return key
        return ""

    def limits_of(self, node: Node) -> Iterator[str]:
        """Yield the limits that count *node*, the narrowest first."""
        parent = node.parent
        if parent is not None and parent.plan.step.max_parallel is not None:
            key = f"{_OF_ELEMENTS}{parent.id}"
            self._most.setdefault(key, parent.plan.step.max_parallel)
            yield key
        if self._most and not node.is_expandable:
            yield from self._limits_of_calls(node)

    def _limits_of_calls(self, node: Node) -> tuple[str, ...]:
        plan = node.plan
        key = (plan.tool, plan.fallback, plan.pool)
        known = self._known.get(key)
        if known is None:
            tools = [tool for tool in (plan.tool, plan.fallback) if tool is not None]
            pools = [f"pool {pool}" for pool in (plan.pool, *(tool.pool for tool in tools)) if pool]
            names = dict.fromkeys((*(f"tool {tool.name}" for tool in tools), *pools, "max_running"))
            known = self._known[key] = tuple(name for name in names if name in self._most)
        return known

    def taken(self, running: Counter[str]) -> dict[str, list[int]]:
        """Return, by limit, how many of its slots are taken, and how many there are; *running* counts the former."""
        shown = (key for key in sorted(self._most) if running[key] or not key.startswith(_OF_ELEMENTS))
        return {key: [running[key], self._most[key]] for key in shown}
