"""The scenario ``replan``: a source has changed, and the plan is changed with it while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

from dagrun import Event, RunResult
from dagrun.errors import visible
from dagrun.observe.timeline import Change, Timeline, draw_timeline, read_timeline
from dagrun_tools.demo.planner import MappingPlanner
from dagrun_tools.demo.renamed import renamed_plan, write_renamed_source
from dagrun_tools.demo.running import Ran, carry_out, files_in

LATENCY: Final = 2.5  # seconds: the other sources are still being waited for when the plan is changed


def run_replan(output: Path) -> tuple[Ran, Timeline]:
    """Run the plan of the demo on a source in which a column has another name, with a planner that can help."""
    output.mkdir(parents=True, exist_ok=True)
    write_renamed_source(output)
    events: list[Event] = []
    ran = carry_out(renamed_plan(), output, latency=LATENCY, planner=MappingPlanner(), on_event=events.append)
    return ran, read_timeline(events)


def replan_facts(result: RunResult, timeline: Timeline, output: Path) -> dict[str, Any]:
    """The scenario as plain JSON."""
    return {
        "status": str(result.status),
        "steps": len(result.steps),
        "changes": [change.as_dict() for change in timeline.changes],
        "makespan": round(result.makespan, 3),
        "output": str(output),
        "files": files_in(output),
    }


def replan_lines(timeline: Timeline, output: Path, *, width: int, is_ascii: bool = False) -> list[str]:
    """The scenario as lines for people, at most *width* characters each."""
    drawn = draw_timeline(timeline, width, is_ascii=is_ascii)
    told = [line for change in timeline.changes for line in _told(change, width)]
    return [*drawn, "", *(told or ["The plan was not changed."]), *wrap(f"Open {output}/report.html.", width)]


def _told(change: Change, width: int) -> list[str]:
    thought = change.at - change.asked_at
    sentences = (
        f"At {change.asked_at:.2f} s the planner was asked; at {change.at:.2f} s the plan was changed: {change.text}.",
        f"Why: {change.reason}." if change.reason else "",
        f"{_steps(change.ran_on)} ran on through these {thought:.2f} s without a break: {_named(change.ran_on)}.",
        f"{_steps(change.started)} started meanwhile: {_named(change.started)}." if change.started else "",
    )
    return [
        line
        for sentence in sentences
        for line in wrap(visible(sentence), width, subsequent_indent="  ", break_on_hyphens=False)
    ]


def _steps(steps: Sequence[str]) -> str:
    return f"{len(steps)} step{'s' * (len(steps) != 1)}"


def _named(steps: Sequence[str]) -> str:
    return ", ".join(steps) or "none"
