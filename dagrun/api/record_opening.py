"""What a journal keeps of how a run was opened."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dagrun._version import __version__
from dagrun.api.options import Options
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.checks.tool_contracts import contract_of, policy_in_full
from dagrun.model.event import Opening
from dagrun.model.value import Stored, decode, encode

if TYPE_CHECKING:
    from dagrun.api.retrying import TakenOver


def opening_of(
    checked: CheckedPlan, inputs: Stored, run_id: str, options: Options, taken_over: TakenOver | None = None
) -> Opening:
    """Say what a run is opened with.

    Args:
        checked: The plan.
        inputs: Of the run, stored.
        run_id: Of the run.
        options: Of the run.
        taken_over: What it takes over from another run, if it does.

    Raises:
        ValueRefused: The labels are not JSON.
    """
    toolbox, expires = checked.toolbox, options.expires_after
    return Opening(
        plan=checked.plan,
        policy=policy_in_full(checked.policy),
        inputs=inputs,
        tools={name: contract_of(toolbox[name]) for name in toolbox if name in toolbox.allowed},
        executors=tuple(sorted(checked.executors)),
        critics=tuple(critic.name for critic in options.critics),
        in_waves=any(step.gates for step in checked.steps.values()),
        root=run_id if taken_over is None else taken_over.root,
        parent="" if taken_over is None else taken_over.parent,
        roots={} if taken_over is None else taken_over.roots,
        seed=options.seed,
        labels=decode(encode(dict(options.labels or {}))),
        expires_at=None if expires is None else time.time() + expires,
        version=__version__,
    )
