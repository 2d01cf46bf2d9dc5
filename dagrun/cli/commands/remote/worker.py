"""``dagrun worker``: carries out the runs that others have submitted."""

from __future__ import annotations

from typing import Any, Final

import click

from dagrun.cli import options
from dagrun.cli.records.run_records import shared_records_option

EPILOG: Final = """
\b
Examples:
  dagrun worker --journal postgresql://app@db/runs --tools my_tools
  dagrun worker --journal postgresql://app@db/runs -t my_tools --pool mail --at-once 5

\b
Exit codes:
  0 after Ctrl-C or SIGTERM, 1 the database does not answer at the start,
  2 wrong usage, 130 or 143 after a second signal
"""


@click.command(epilog=EPILOG)
@options.combined(shared_records_option, options.artifacts, options.tools, options.deps, options.secrets)
@click.option(
    "--policy",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A TOML file with the settings of tools ([tools]). The limits of a run are those that it was submitted with.",
)
@options.combined(options.planner, options.model_options, options.critics, options.compose)
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME",
    help="Claim runs of this pool. May be repeated.  [default: default]",
)
@click.option("--at-once", type=click.IntRange(1, 10_000), default=20, show_default=True, help="The most runs at once.")
@click.option(
    "--max-takeovers",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How often a run may be taken over from a worker that has ended; once more, and it is stuck.",
)
@click.option(
    "--unfit-after",
    type=click.FloatRange(min=0, min_open=True, max=1e9),
    default=3600,
    show_default=True,
    metavar="SECONDS",
    help="When a run with other tools is stuck, if no worker fits it for so long.",
)
@click.option(
    "--allow-differences",
    is_flag=True,
    help="Carry out runs, too, that were submitted with other tools or critics; the differences are recorded.",
)
@click.option(
    "--events", type=click.Choice(["jsonl"]), help="Print a line of JSON for each claim, and each end of one."
)
@options.combined(options.durability, options.directory, options.verbose, options.quiet)
def worker(**flags: Any) -> int:
    """Carry out submitted runs, until Ctrl-C or SIGTERM: then claim no more, suspend the runs, and exit with 0.

    A run belongs to one worker at a time. Suspended runs go back into the queue; calls with an effect get the grace
    period of the policy to end. A second signal ends the worker at once; then others take its runs over when their
    leases have expired, in 30 seconds. Nobody is asked here: a run with a question waits, and an answer from anywhere
    (dagrun approve, the live page) puts it back into the queue.
    """
    from dagrun.cli.jobs.queued.worker_job import WorkerJob

    return WorkerJob(flags).carry_out()
