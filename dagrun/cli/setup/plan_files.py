"""Plans from a file or from the standard input, and plans as the text of a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from dagrun.cli.terminal.text import to_json
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.model.plan import Plan, Step
from dagrun.model.policy import PlanLimits
from dagrun.model.toolbox import Toolbox
from dagrun.plans.read_plan import read_plan

STDIN: Final = "-"


def load_plan(name: str, toolbox: Toolbox | None = None) -> Plan:
    """Read the plan in the file *name*; ``-`` stands for the standard input.

    Raises:
        PlanRefused: The plan cannot be read; every problem is in the error.
    """
    if name != STDIN:
        return read_plan(Path(name), toolbox=toolbox)
    if sys.stdin is None:
        raise BadInput("there is no standard input to read the plan from")
    return read_plan(sys.stdin.buffer.read(PlanLimits().max_bytes + 1), toolbox=toolbox)


def as_written(part: Plan | Step) -> dict[str, Any]:
    """Return a plan or a step as plain JSON, without the fields that its author has left out."""
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True)


def plan_text(plan: Plan) -> str:
    """Return a plan as the text of a file."""
    return to_json(as_written(plan), indent=2) + "\n"
