"""``dagrun run -n``: what would run, in which order."""

from __future__ import annotations

from typing import Any

from dagrun.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.checks.waves import generations
from dagrun.cli.terminal.stdout import Data
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns


def show_order(plan: CheckedPlan, data: Data, *, as_json: bool) -> None:
    """Print what would run, by generation: the steps of one wait only for steps of earlier ones."""
    waves = generations(plan)
    if as_json:
        steps = [_as_dict(plan.steps[id_], number) for number, wave in enumerate(waves, 1) for id_ in wave]
        data.json({"schema_version": SCHEMA_VERSION, "status": "dry_run", "steps": steps})
        return
    rows = [_row(plan.steps[id_], number) for number, wave in enumerate(waves, 1) for id_ in wave]
    data.text(columns(rows, head=("wave", "step", "tool", "effect", "limit", "waits for")))


def _row(step: CheckedStep, wave: int) -> tuple[str, ...]:
    tool = step.tool.name + (" (each)" if step.items is not None else "")
    limit = f"{step.timeout:g} s" if step.timeout is not None else "-"
    return str(wave), step.step.id, tool, str(step.tool.effect), limit, ", ".join(step.depends_on)


def _as_dict(step: CheckedStep, wave: int) -> dict[str, Any]:
    return {
        "wave": wave,
        "id": step.step.id,
        "tool": step.tool.name,
        "effect": str(step.tool.effect),
        "executor": step.executor,
        "timeout": step.timeout,
        "depends_on": list(step.depends_on),
    }
