"""Changes of a view as a page applies them, with the short rows written out: an oracle for `LiveView.changes`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

# Only the whole view has these: they would cost a look at every step.
_LATER = ("path", "path_gaps", "log", "left_out")
_RUN_LATER = ("critical_path", "parallelism", "retries", "fallbacks", "ceilings", "handoff", "waits", "output")


def written_out(group: dict[str, Any], steps: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return the fields of the steps in one group of rows, by number; *steps* are those that the reader knows."""
    state, wait, rows = group["state"], group["wait"], group["rows"]
    width = {"ready": 2, "running": 3, "succeeded": 4}[state]
    assert rows, "a group without rows"
    assert len(rows) % width == 0
    told = [rows[at : at + width] for at in range(0, len(rows), width)]
    return {row[0]: _fields(state, wait, *row[1:], tool=steps[row[0]]["tool"]) for row in told}


def _fields(state: str, wait: str | None, *times: int, tool: str) -> dict[str, Any]:
    ready, started, ended = (sum(times[:count]) / 1e6 if count <= len(times) else None for count in (1, 2, 3))
    is_over = state == "succeeded"
    attempt = {"number": 1, "tool": tool, "started": started, "ended": ended, "state": state if is_over else None}
    nothing = {"failure": None, "recovery": "proceed" if is_over else "", "row": "", "delay": 0.0, "tokens": 0}
    rest = {"cost": None, "surprise": "", "hedge": None, "shared": None}
    waits: list[list[Any]] = []
    if started is None:
        waits = [["slot", ready, None]]
    elif wait is not None:
        waits = [["slot", ready, started, wait] if wait else ["slot", ready, started]]
    return {
        "state": state,
        "why": "",
        "ready": ready,
        "started": started,
        "ended": ended,
        "waits": waits,
        "attempts": [] if started is None else [attempt | nothing | rest],
        "is_default": False,
        "errors": [],
        "verdicts": [],
        "cause": "",
        "progress": None,
    }


def applied(view: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return *view* after *changes*, as a page does it."""
    new = deepcopy(view)
    new.update(seq=changes["seq"], at=changes["at"], graph=changes["graph"])
    new["run"].update(changes["run"])
    for step in changes["added"]:
        assert step["n"] == len(new["steps"])
        new["steps"].append(step)
    for n, fields in changes["steps"].items():
        new["steps"][int(n)].update(fields)
    for group in changes["plain"]:
        for number, fields in written_out(group, new["steps"]).items():
            new["steps"][number].update(fields)
    for name in ("questions", "planner"):
        new[name] = changes[name] or new[name]
    new["revisions"] += changes["revisions"]
    return new


def comparable(view: dict[str, Any]) -> dict[str, Any]:
    """Return what a view and its changes have in common."""
    kept = {key: deepcopy(part) for key, part in view.items() if key not in _LATER}
    kept["run"] = {key: part for key, part in view["run"].items() if key not in _RUN_LATER}
    kept["steps"] = [
        {key: part for key, part in step.items() if key not in ("on_path", "args", "output", "progress")}
        for step in kept["steps"]
    ]
    return kept
