"""Policies: the limits and rules that the host sets for its runs."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dagrun.model.plan import RetryRule, Seconds

Count = Annotated[int, Field(ge=1)]


class Policy(BaseModel):
    """What a run may do. Times are in seconds; `None` means no limit.

    Attributes:
        max_running: Steps that run at once.
        max_running_by_tool: The same for the calls of one tool.
        max_running_by_pool: The same for the steps of one pool.
        max_steps: Steps of a run, the elements of ``for_each`` counted.
        max_fan_out: Elements of one ``for_each``.
        max_seconds: The whole run, to its last attempt.
        timeout: An attempt, where neither the step nor the tool says less.
        grace: What a step that was asked to stop gets before it is abandoned.
        retry: How often, and when, a step is tried again.
        max_stuck_threads: Threads that would not stop, before plain functions are refused.
        max_threads: Worker threads for plain functions.
        max_processes: Worker processes; `None` for one a core.
        max_process_memory: Bytes of address space of a worker process.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_running: Count | None = None
    max_running_by_tool: dict[str, Count] = Field(default_factory=dict)
    max_running_by_pool: dict[str, Count] = Field(default_factory=dict)
    max_steps: Count | None = None
    max_fan_out: Count = 1_000
    max_seconds: Seconds | None = None
    timeout: Seconds | None = None
    grace: Seconds = 1.0
    retry: RetryRule = RetryRule()
    max_stuck_threads: Count = 16
    max_threads: Count = 40
    max_processes: Count | None = None
    max_process_memory: Count | None = None


class PlanLimits(BaseModel):
    """Ceilings of size for plans that come from files and planners; a plan that the host builds has none.

    Attributes:
        max_bytes: Of the text, counted before it is parsed.
        max_steps: Of the plan as written.
        max_depth: Of nesting.
        max_dependencies: Of one step.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    max_bytes: Count = 1_000_000
    max_steps: Count = 1_000
    max_depth: Count = 32
    max_dependencies: Count = 100
