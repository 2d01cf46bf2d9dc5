"""The page of ``dagrun check --goals``: goals whose runs have always taken the same steps."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from dagrun.api.replaying import Replayed
from dagrun.cli.records.record_place import Records
from dagrun.cli.records.run_records import open_records
from dagrun.cli.records.run_standings import standings
from dagrun.cli.setup.plans import as_written
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.stdout import Data
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns_of
from dagrun.errors import DagrunError, shorten, visible
from dagrun.observe.line_breaks import wrap_words
from dagrun.observe.repeated_plans import LEAST, RepeatedPlan, repeated_plans

_MAX_NAMED: Final = 8


def show_repeated_goals(configuration: Configuration, data: Data, *, as_json: bool) -> None:
    """Print each goal for which a fixed plan would do, with the plan as JSON if *as_json*."""
    records = open_records(configuration)
    found = repeated_plans(_read(records))
    if as_json:
        data.json({"schema_version": SCHEMA_VERSION, "folder": records.where, "goals": list(map(_dict, found))})
        return
    width = min(120, max(40, columns_of(sys.stdout)))
    lines = [line for repeated in found for line in _lines(repeated, width)]
    nothing = f"no goal in {visible(records.where)} has had {LEAST} runs that all took the same steps"
    data.text("\n".join(lines or [nothing]))


def _read(records: Records) -> Iterator[Replayed]:
    """Yield the runs that began with a goal, oldest first; one that cannot be read says nothing about its goal."""
    known = [each.standing for each in standings(records) if each.standing.goal]
    for standing in sorted(known, key=lambda each: each.began or 0.0):
        try:
            yield records.shown(standing.run_id)
        except DagrunError:
            continue


def _dict(repeated: RepeatedPlan) -> dict[str, Any]:
    return {
        "goal": repeated.goal,
        "runs": list(repeated.runs),
        "plan": as_written(repeated.plan),
        "differing": list(repeated.differing),
        "planner_calls": repeated.planner_calls,
        "tokens": repeated.tokens,
        "seconds": round(repeated.seconds, 3),
    }


def _lines(repeated: RepeatedPlan, width: int) -> Iterator[str]:
    steps = [f"{step.id} ({step.tool})" for step in repeated.plan.steps]
    shown = ", ".join(steps[:_MAX_NAMED]) + (f" and {len(steps) - _MAX_NAMED} more" if len(steps) > _MAX_NAMED else "")
    spent = f"{repeated.planner_calls} calls of planners, {repeated.tokens:,} tokens, {repeated.seconds:.1f} s"
    differing = shorten(", ".join(repeated.differing), 300)
    advice = "a fixed plan or a route would do; --json has the plan"
    yield from wrap_words(visible(shorten(repeated.goal)), width, "", "  ")
    yield from wrap_words(visible(f"{len(repeated.runs)} runs, all with the same steps: {shown}"), width, "  ", "    ")
    yield from wrap_words(f"spent on planning: {spent}", width, "  ", "    ")
    if differing:
        advice += f", with inputs for what differed: {differing}"
    yield from wrap_words(visible(advice), width, "  ", "    ")
