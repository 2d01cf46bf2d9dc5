"""``dagrun resume`` and ``dagrun retry``: resume a recorded run, or run its failed part again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import records_option, run_argument

F = TypeVar("F", bound=Callable[..., Any])

RESUME: Final = """
\b
Examples:
  dagrun resume last
  dagrun resume 20261122-1245 --planner my_rules:planner

\b
Exit codes are those of dagrun run; 2 also for a run that cannot go on.
"""
RETRY: Final = """
\b
Examples:
  dagrun retry last

\b
Exit codes are those of dagrun run; 2 also for a run that cannot be retried.
"""


def _shared(function: F) -> F:
    return options.combined(
        run_argument,
        options.tools,
        options.deps,
        options.policy,
        options.max_running,
        options.output,
        options.directory,
        options.planner,
        options.model_options,
        options.critics,
        options.compose,
        options.secrets,
        records_option,
        options.artifacts,
        options.durability,
        click.option(
            "--allow-differences",
            is_flag=True,
            help="Accept that the policy, the tools or the critics differ from the record; the differences are"
            " recorded.",
        ),
    )(function)


_output: Final = options.combined(
    options.as_json,
    options.events,
    options.timeline,
    options.report,
    options.page,
    options.trace,
    options.verbose,
    options.quiet,
)


@click.command(epilog=RESUME)
@_shared
@click.option("--steal", is_flag=True, help="Take the run from a process that still holds it; that process stops.")
@_output
def resume(*, run: str, **flags: Any) -> int:
    """Resume RUN, which was interrupted or killed, or waits for people.

    RUN is the name of a run, the beginning of a name, or "last": the last run of this project. Without --tools, the
    tools are those that were named when the run began, in the folder where it began.

    Steps that succeeded are not called again. A call that was cut off is repeated if it has no effect, or is
    idempotent; otherwise a person or the planner is asked whether it took effect. Without --policy, the recorded limits
    hold. The inputs are the recorded ones. What the policy has taken out of the record (redact_records) is opened with
    the key in DAGRUN_RECORD_KEY.
    """
    from dagrun.cli.jobs.resume_job import ResumeCommand

    return ResumeCommand("resume", run, flags).carry_out()


@click.command(epilog=RETRY)
@_shared
@options.combined(options.run_id, options.expires_after)
@_output
def retry(*, run: str, **flags: Any) -> int:
    """Run the failed part of RUN again, as a new run that takes over the outputs of the steps that succeeded.

    RUN is the name of a run that has ended, the beginning of a name, or "last": the last run of this project. Without
    --tools, the tools are those that were named when the run began. The idempotency keys are those of the
    first run: a service that knows them sees the same calls once more, and no new ones.
    """
    from dagrun.cli.jobs.resume_job import ResumeCommand

    return ResumeCommand("retry", run, flags).carry_out()
