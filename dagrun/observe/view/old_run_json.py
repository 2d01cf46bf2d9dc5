"""The view of a ``run.json`` of schema 1: attempts and outputs, but no needs, arguments, diffs or questions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, cast

from dagrun._version import __version__
from dagrun.observe.view.shape import VIEW_VERSION, RunView
from dagrun.observe.view.values import LIMITS
from dagrun.observe.view.waits import REASONS

OLD: Final = "old run.json"


def view_of_old(record: Mapping[str, Any]) -> RunView:
    """Return the view of a run from its ``run.json`` of schema 1. Its texts were redacted when it was written."""
    ids = list(record["steps"])
    steps = [_step(n, id_, record["steps"][id_], ids) for n, id_ in enumerate(ids)]
    status, makespan = record["status"], record["makespan"]
    run = {
        "id": record["run_id"],
        "goal": record.get("goal", ""),
        "status": status,
        "stand": "ended",
        "reason": record.get("reason", ""),
        "began": None,
        "ended": None,
        "parent": "",
        "owner": "",
        "labels": {},
        "recorded_by": "",
        **{name: record.get(name) or 0 for name in ("work", "critical_path", "parallelism", "tokens", "unpriced")},
        "makespan": makespan,
        "cost": record.get("cost"),
        "known_cost": record.get("cost") or 0.0,
        "retries": sum(a["recovery"] == "retry" for step in steps for a in step["attempts"]),
        "fallbacks": sum(a["recovery"] == "fall_back" for step in steps for a in step["attempts"]),
        "replans": record.get("replans", 0),
        "ceilings": [],
        "warnings": list(record.get("warnings", ())),
        "problems": [str(problem.get("text", problem)) for problem in record.get("problems", ())],
        "handoff": record.get("handoff"),
        "counts": dict(sorted(Counter(step["state"] for step in steps if step["gone"] is None).items())),
        "waits": dict.fromkeys(REASONS, 0.0),
        "suspended": [],
        "slots": {},
        "inputs": None,
        "output": _value(record.get("output")),
    }
    view = {
        "schema_version": VIEW_VERSION,
        "dagrun": __version__,
        "seq": 0,
        "at": makespan,
        "graph": 0,
        "run": run,
        "steps": steps,
        **{name: [] for name in ("path", "path_gaps", "revisions", "planner", "questions", "log")},
        "left_out": {"values": 0, "log": 0},
        "source": OLD,
    }
    return cast(RunView, view)


def _step(n: int, id_: str, record: Mapping[str, Any], ids: list[str]) -> dict[str, Any]:
    attempts = [_attempt(call) for call in record.get("attempts", ())]
    parent = id_.rpartition("[")[0] if id_.endswith("]") else ""
    children = [place for place, other in enumerate(ids) if other.startswith(f"{id_}[")]
    return {
        "n": n,
        "id": id_,
        "tool": attempts[-1]["tool"] if attempts else "",
        "effect": "",
        "state": record["state"],
        "why": record.get("reason", ""),
        "description": "",
        "needs": [],
        "value_needs": [],
        "after_wave": False,
        "parent": ids.index(parent) if parent in ids else None,
        "children": [children[0], children[-1]] if children else None,
        "gone": 0 if record.get("is_gone") else None,
        "substitute": ids.index(record["substitute"]) if record.get("substitute") in ids else None,
        "revision": 0,
        "ready": None,
        "started": attempts[0]["started"] if attempts else None,
        "ended": attempts[-1]["ended"] if attempts else None,
        "waits": [],
        "limits": [],
        "attempts": attempts,
        "args": None,
        "output": _value(record.get("output")),
        "is_default": record.get("is_default", False),
        "errors": [[error["index"], error["reason"]] for error in record.get("errors", ())],
        "verdicts": list(record.get("verdicts", ())),
        "cause": "",
        "progress": None,
        "on_path": False,
    }


def _attempt(call: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "number": call["number"],
        "tool": call["tool"],
        "started": call["started"],
        "ended": call["ended"],
        "state": call["state"],
        "failure": call.get("failure"),
        "recovery": call.get("recovery") or "",
        "row": "",
        "delay": 0.0,
        "tokens": 0,
        "cost": None,
        "surprise": "",
        "hedge": None,
        "shared": None,
    }


def _value(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    text, limit = json.dumps(value, ensure_ascii=False), LIMITS["short"]
    size = len(text.encode("utf-8", "backslashreplace"))
    return {"$value": {"json": text[:limit], "bytes": size, **({"cut": True} if len(text) > limit else {})}}
