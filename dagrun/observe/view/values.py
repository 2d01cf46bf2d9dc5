"""Values of steps in a view: redacted as a whole, then cut."""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from typing import Any, Final, Literal

from dagrun.graph.live_graph import LiveGraph
from dagrun.graph.node import Node
from dagrun.model.redaction.redactor import HIDDEN, Redactor
from dagrun.model.value import Stored, Unavailable, decode
from dagrun.observe.view.shape import RunView, ShownValue, ValueView

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
