"""The functions that go on with a run, or do it again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack

from dagrun.api.engine import Engine
from dagrun.api.options import ResumeOptions, RetryOptions
from dagrun.runtime.run import Run


@asynccontextmanager
async def resume(run_id: str, **options: Unpack[ResumeOptions]) -> AsyncIterator[Run]:
    """Go on with a run that was killed, interrupted, or waits for people, beside the body of an ``async with``.

    What has succeeded stays; what only looks, or is idempotent, and was running is called again (with the same
    idempotency key); a call of an effectful tool that was cut off is in doubt, and its *reconcile*, a person or the
    planner settles that. A run that has ended as ``unknown`` is open again for the same purpose.

    Args:
        run_id: The run.
        journal: Where it was written down. The caller closes it.
        tools: As for `start`: those of the run.
        policy: The limits; `None` for those that were recorded.
        artifacts: The folder for the files of tools, if the journal keeps none.
        on_event: As for `start`, like *planner*, *critics*, *approver*, *attended* and *executors*.
        allow_differences: Whether the run goes on although its policy, the contracts of its tools, its critics or its
            executors are not those that were recorded.
        steal: Whether the run is taken from a process that still holds it; that one is stopped by this.

    Raises:
        RunNotFound: The journal has no such run.
        RunHeld: Another process is at it.
        CannotResume: It has ended, or not all is as it was; the differences are in the error.
        JournalDamaged: Its record is not what was written.
        PlanRefused: Its plan does not pass the check any more.

    Example:
        >>> async def go_on(run_id, journal, tools):
        ...     async with resume(run_id, journal=journal, tools=tools) as run:
        ...         return await run.result()
    """
    async with Engine() as engine, engine.resume(run_id, **options) as running:
        yield running


@asynccontextmanager
async def retry(run_id: str, **options: Unpack[RetryOptions]) -> AsyncIterator[Run]:
    """Do again what has not succeeded of a run that has ended, as a new run.

    Outputs of steps that have succeeded are taken over. The idempotency keys are those of the first run, so a service
    that knows them sees the same calls once more, not new ones.

    Args:
        run_id: The run that has ended.
        journal: Where it was written down, and the new one will be. The caller closes it.
        tools: As for `start`: those of the run.
        new_id: The name of the new run; by default a new one.
        policy: The limits; `None` for those that were recorded.
        parent_artifacts: The folder of the files of the first run, if its journal keeps none of it.
        allow_differences: As for `resume`. The other options are those of `start`.

    Raises:
        RunNotFound: The journal has no such run.
        CannotResume: It has not ended, has succeeded, or an effect of it is in doubt; or not all is as it was.
        JournalDamaged: Its record is not what was written.
        PlanRefused: Its plan does not pass the check any more.
    """
    async with Engine() as engine, engine.retry(run_id, **options) as running:
        yield running
