"""One step of a view, from its node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagrun.graph.node import Node
from dagrun.model.outcome import Attempt, Recovery, SharedCall, State
from dagrun.model.redaction.redactor import Redactor
from dagrun.observe.view.history import History
from dagrun.observe.view.revisions import seconds
from dagrun.observe.view.shape import AttemptView, SharedView, StepFacts
from dagrun.observe.view.values import ValueWriter
from dagrun.observe.view.waits import Wait, Waits


class StepWriter:
    """Writes the steps of one view.

    Args:
        redactor: Redacts the texts.
        history: What the rare events of the run say.
        waits: Knows why steps waited.
        number: The number of each step, by id.
    """

    def __init__(
        self,
        redactor: Redactor,
        history: History,
        waits: Waits,
        number: Mapping[str, int],
    ) -> None:
        self._redactor = redactor
        self._history = history
        self._waits = waits
        self._number = number
        self._brought = history.origins.brought
        self._removed = history.origins.removed
        self.progress: Mapping[str, list[Any]] = {}

    def step(self, node: Node, values: ValueWriter) -> StepFacts:
        """Return a step as a whole."""
        step, redactor = node.plan.step, self._redactor
        whole: dict[str, Any] = {
            "n": self._number[node.id],
            "id": node.id,
            "tool": step.tool,
            "effect": str(node.plan.tool.effect),
            "description": redactor.text(step.description) if step.description and node.parent is None else "",
            "parent": None if node.parent is None else self._number[node.parent.id],
            "limits": list(self._waits.slots.limits_of(node)),
            **self.changing(node),
            "args": values.arguments(node),
            "output": None if node.value is None else values.stored(node.value),
        }
        return whole  # type: ignore[return-value]

    def changing(self, node: Node) -> dict[str, Any]:
        """Return the variable fields of a step in a running run, without the values."""
        ended, extra = node.ended, node.extra
        is_default = node.latest is not None and node.latest.decision is not None
        return {
            "why": self._redactor.text(node.reason) if node.reason else "",
            **self.shape(node),
            "ready": seconds(self._waits.ready_at(node)),
            "waits": [
                [wait.reason, round(wait.start, 6), None if wait.lasts else round(wait.end, 6), *_limit(wait)]
                for wait in self._waits.of(node)
            ],
            "attempts": [self._attempt(attempt) for attempt in node.attempts],
            "is_default": (ended is not None and ended.is_default)
            or (is_default and node.attempts[-1].decision.recovery is Recovery.DEFAULT),  # type: ignore[union-attr]
            "errors": [[index, self._redactor.text(why)] for index, why in ended.errors] if ended is not None else [],
            "verdicts": [self._redactor.value(verdict.as_dict()) for verdict in extra.verdicts] if extra else [],
            "cause": ended.cause if ended is not None else "",
            "progress": self.progress.get(node.id) if node.state is State.RUNNING else None,
        }

    def shape(self, node: Node) -> dict[str, Any]:
        """Return the fields of a step that a drawing of the graph needs, except its name and tool."""
        extra = node.extra
        begun = node.attempts[0].started if node.latest is not None else node.expanded
        return {
            "state": str(node.state),
            **self._needs(node),
            "children": self._children(node),
            "gone": self._gone(node),
            "substitute": self._number.get(extra.substitute) if extra is not None and extra.substitute else None,
            "revision": self._revision(node),
            "started": seconds(begun),
            "ended": seconds(self._history.end_of(node)),
            "on_path": False,
        }

    def _needs(self, node: Node) -> dict[str, Any]:
        if node.is_defined_by_parent:
            return {"needs": [], "value_needs": [], "after_wave": False}
        plan, number = node.plan, self._number
        return {
            "needs": [number[id_] for id_ in plan.depends_on if id_ not in plan.gates],
            "value_needs": [number[id_] for id_ in plan.depends_on if id_ in plan.value_sources],
            "after_wave": bool(plan.gates),
        }

    def _children(self, node: Node) -> list[int] | None:
        if not node.children:
            return None
        first = self._number[f"{node.id}[0]"]  # the elements came together; a substitute for one comes later
        return [first, first + len(node.children) - 1]

    def _gone(self, node: Node) -> int | None:
        found = self._removed.get(node.id)
        return found if found is not None or node.parent is None else self._removed.get(node.parent.id)

    def _revision(self, node: Node) -> int:
        own = self._brought.get(node.id)
        if own is None and node.parent is not None:
            own = self._brought.get(node.parent.id)
        return own[0] if own is not None else 0

    def _attempt(self, attempt: Attempt) -> AttemptView:
        outcome, decision, hedge = attempt.outcome, attempt.decision, attempt.hedge
        failure = outcome.failure if outcome is not None else None
        return {
            "number": attempt.number,
            "tool": attempt.tool,
            "started": round(attempt.started, 6),
            "ended": seconds(attempt.ended),
            "state": None if outcome is None else str(outcome.state),
            "failure": None if failure is None else self._redactor.value(failure.as_dict()),
            "recovery": "" if decision is None else str(decision.recovery),
            "row": "" if decision is None else self._redactor.text(decision.reason),
            "delay": 0.0 if decision is None else decision.delay,
            "tokens": 0 if outcome is None else outcome.tokens,
            "cost": None if outcome is None else outcome.cost,
            "surprise": "" if outcome is None else self._redactor.text(outcome.surprise),
            "hedge": None
            if hedge is None
            else {
                "started": round(hedge.started, 6),
                "ended": seconds(hedge.ended),
                "has_won": hedge.has_won,
                "fault": self._redactor.text(hedge.fault),
            },
            "shared": None if outcome is None or outcome.shared is None else _shared(outcome.shared),
        }


def _shared(call: SharedCall) -> SharedView:
    return {"how": call.how, "step": call.step, "attempt": call.attempt, "run": call.run, "calls": call.calls}


def _limit(wait: Wait) -> list[str]:
    return [wait.limit] if wait.limit else []
