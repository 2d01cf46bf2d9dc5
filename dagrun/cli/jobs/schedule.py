"""The schedule of a plan: the modes of ``dagrun run``, and the order that its dry run prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dagrun.checks.checked_plan import CheckedPlan, CheckedStep
from dagrun.checks.waves import generations, in_waves
from dagrun.cli.setup.settings import Mode
from dagrun.cli.terminal.stdout import Data
from dagrun.cli.terminal.text import SCHEMA_VERSION, columns


def scheduled(plan: CheckedPlan, mode: Mode) -> CheckedPlan:
    """Return *plan* with what *mode* adds to it; the engine is the same for all modes."""
    match mode:
        case "parallel":
            return plan
        case "waves":
            return in_waves(plan)
        case "sequential":
            return replace(plan, policy=plan.policy.model_copy(update={"max_running": 1}))


def show_order(plan: CheckedPlan, data: Data, *, as_json: bool) -> None:
    """Print the steps that would run, by generation: the steps of one wait only for steps of earlier ones."""
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
