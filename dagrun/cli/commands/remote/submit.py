"""``dagrun submit``, ``worker``, ``follow`` and ``requeue``: runs that are left to workers."""

from __future__ import annotations

from typing import Any

from dagrun.cli.table_command import command


@command("submit")
def submit(*, plan: str | None, goal: str | None, **flags: Any) -> int:
    """Check PLAN, and submit the run: a worker (dagrun worker) carries it out. The name of the run is printed.

    Nothing of it runs here. Tools, critics and limits are recorded by their contracts, and only a worker that has the
    same claims the run. A planner, a critic and --compose must be named here and there. Secrets are named here, and
    the worker has their values.

    Examples:
      dagrun submit plan.json --tools my_tools --journal postgresql://app@db/runs
      dagrun submit plan.json -t my_tools --input region=EU --pool mail --follow
      dagrun submit plan.json -t my_tools --not-before 2026-11-26T08:30
      dagrun submit --goal "the goal, in words" -t my_tools --journal URL

    Exit codes:
      0 submitted, 1 it cannot be recorded, 2 wrong usage, 3 plan refused;
      with --follow, as for dagrun run
    """
    from dagrun.cli.jobs.queued.submit_job import submit_run

    return submit_run(plan, goal, flags)


@command("worker")
def worker(**flags: Any) -> int:
    """Carry out submitted runs, until Ctrl-C or SIGTERM: then claim no more, suspend the runs, and exit with 0.

    A run belongs to one worker at a time. Suspended runs go back into the queue; calls with an effect get the grace
    period of the policy to end. A second signal ends the worker at once; then others take its runs over when their
    leases have expired, in 30 seconds. Nobody is asked here: a run with a question waits, and an answer from anywhere
    (dagrun answer, the live page) puts it back into the queue.

    Examples:
      dagrun worker --journal postgresql://app@db/runs --tools my_tools
      dagrun worker --journal postgresql://app@db/runs -t my_tools --pool mail

    Exit codes:
      0 after Ctrl-C or SIGTERM, 1 the database does not answer at the start,
      2 wrong usage, 130 or 143 after a second signal
    """
    from dagrun.cli.jobs.queued.worker_job import WorkerJob

    return WorkerJob(flags).carry_out()
