"""The steps of a view, from their nodes: as a whole with their values, or as a short row.

Values are redacted as a whole, then cut.

A row is for a step that has only times, as most steps of most runs do. It has the number of the step, when it was
ready, how long it waited until it began, and how long its call took: as many of these as there are, in whole
microseconds since the start of the run. The rest follows from those, from what the rows of a group have in common, and
from what the reader knows since the step came. A row costs a twentieth of the whole step, so it is cheap to follow.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, Literal

from dagrun.kernel.graph.live_graph import LiveGraph
from dagrun.kernel.graph.node import Node
from dagrun.kernel.model.outcome import PROCEED, Attempt, Recovery, SharedCall, State
from dagrun.kernel.model.redaction.redactor import HIDDEN, Redactor
from dagrun.kernel.model.value import Stored, Unavailable, decode
from dagrun.observe.view.history import History
from dagrun.observe.view.revisions import seconds
from dagrun.observe.view.shape import AttemptView, RunView, SharedView, ShownValue, StepFacts, ValueView
from dagrun.observe.view.waits import SHORT, Wait, Waits

Values = Literal["none", "short", "full"]
LIMITS: Final = {"none": 0, "short": 2_000, "full": 64 << 10}  # characters of JSON text

_ARTIFACT: Final = frozenset(("sha256", "media_type", "name", "size"))
_dumps: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class ValueWriter:
    """Writes the values of one view.

    Args:
        graph: The state of the run.
        values: How much of each value is shown.

    Attributes:
        left_out: How many values were cut or left out.
    """

    def __init__(self, graph: LiveGraph, values: Values) -> None:
        self._graph = graph
        self._redactor = graph.plan.redactor
        self._limit = LIMITS[values]
        self.left_out = 0

    def stored(self, value: Stored) -> ValueView:
        """Return the displayed form of a stored value."""
        if type(value) is Unavailable:
            return {"$value": {"unavailable": self._redactor.text(value.reason)}}
        return self._left_out() if not self._limit else self.plain(decode(value))

    def plain(self, value: Any, **facts: Any) -> ValueView:
        """Return the displayed form of plain JSON, with further *facts*."""
        if not self._limit:
            return self._left_out()
        view = shown_value(value, self._redactor, self._limit, **facts)
        self.left_out += "cut" in view["$value"]
        return view

    def arguments(self, node: Node) -> ValueView | None:
        """Return the arguments of the last call of *node*, filled in again; or its planned arguments."""
        if not self._limit:
            return self._left_out() if node.plan.step.args else None
        if node.latest is None:
            args = node.plan.step.args
            return self.plain(dict(args), planned=True) if args and node.parent is None else None
        try:
            filled = decode(node.plan.args.fill(lambda reference: self._graph.look_up(reference, node)))
            if node.extra is not None and node.extra.given:
                filled |= {name: decode(value) for name, value in node.extra.given.items()}
        except (LookupError, ValueError) as error:
            return {"$value": {"unavailable": self._redactor.text(str(error.args[0]))}}
        return self.plain(filled)

    def _left_out(self) -> ValueView:
        self.left_out += 1
        return {"$value": {"left_out": True}}


def shown_value(value: Any, redactor: Redactor, limit: int, **facts: Any) -> ValueView:
    """Return the displayed form of plain JSON: redacted, then cut to *limit* characters; with further *facts*."""
    shown = redactor.value(value)
    if shown == HIDDEN:
        return {"$value": {"hidden": HIDDEN}}
    if isinstance(shown, dict) and shown.keys() == _ARTIFACT:
        return {"$value": {"artifact": shown["name"], "media": shown["media_type"], "bytes": shown["size"]}}
    text = _dumps(shown)
    data = text.encode("utf-8", "backslashreplace")
    fields: ShownValue = {"json": text, "bytes": len(data)}
    if len(text) > limit:
        fields = {"json": text[:limit], "bytes": len(data), "cut": True}
        fields["sha256"] = hashlib.sha256(data).hexdigest()[:12]
    return {"$value": {**fields, **facts}}  # type: ignore[typeddict-item]


def shortened(view: RunView, values: Values) -> RunView:
    """Return a view of full values with less of each."""
    limit = LIMITS[values]
    view = deepcopy(view)
    shown = [step[key] for step in view["steps"] for key in ("args", "output")]
    for value in (*shown, view["run"]["inputs"], view["run"]["output"]):
        if value is None or "json" not in value["$value"]:
            continue
        inside = value["$value"]
        if not limit:
            value["$value"] = {"left_out": True}
        elif len(inside["json"]) > limit:
            inside["json"], inside["cut"] = inside["json"][:limit], True
        else:
            continue
        view["left_out"]["values"] += 1
    return view


def without(part: Any, redactor: Redactor) -> Any:
    """Return a part of a view with every text redacted again."""
    match part:
        case str():
            return redactor.text(part)
        case dict():
            return {key: without(value, redactor) for key, value in part.items()}
        case list():
            return [without(value, redactor) for value in part]
        case _:
            return part


# Steps ----------------------------------------------------------------------------------------------------------------


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
            return {"needs": [], "after_wave": False}
        plan, number = node.plan, self._number
        return {
            "needs": [number[id_] for id_ in plan.depends_on if id_ not in plan.gates],
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


# Plain rows -----------------------------------------------------------------------------------------------------------

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
