"""``dagrun submit``, ``worker``, ``follow`` and ``requeue``: runs that are left to workers."""

from __future__ import annotations

from typing import Any

from dagrun.cli.records.run_records import open_records, open_shared_records
from dagrun.cli.setup.settings import configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.text import SCHEMA_VERSION
from dagrun.cli.terminal.user_errors import BadInput


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
      dagrun submit --goal "what is wanted" -t my_tools --journal URL

    Exit codes:
      0 submitted, 1 it cannot be recorded, 2 wrong usage, 3 plan refused;
      with --follow, those of dagrun run
    """
    from dagrun.cli.jobs.queued.submit_job import submit_run

    return submit_run(plan, goal, flags)


@command("follow")
def follow(*, run: str, **flags: Any) -> int:
    """Show RUN from its first step to its end, whichever process carries it out, and print its answer.

    A run that waits in the queue, or for an answer, is followed on. Ctrl-C ends this command, and not the run.

    Examples:
      dagrun follow last
      dagrun follow 20261122-1245 --events jsonl | jq .event

    Exit codes: those of dagrun run, by the end of the run; 130 after Ctrl-C, and
    the run goes on.
    """
    from dagrun.cli.jobs.queued.follow_job import follow_run
    from dagrun.cli.records.resume_command import where_is

    configuration = configure(flags)
    records = open_records(configuration)
    with data_output() as data:
        return follow_run(records, records.find(run), where_is(configuration), data, flags)


@command("requeue")
def requeue(*, run: str, as_json: bool, **flags: Any) -> None:
    """Put RUN back into the queue, so that a worker tries it again: it is stuck, or waits.

    A run is stuck when its workers have ended while they were at it, or could not take it up; dagrun runs says why, so
    first put that right. The worker resumes it, as dagrun resume does: what succeeded is not called again.

    Examples:
      dagrun runs --standing stuck
      dagrun requeue 20261122-1245

    Exit codes: 0 it is in the queue, 2 it was not submitted, or is neither stuck
    nor waiting.
    """
    from dagrun.api.submitting import requeue as put_back
    from dagrun.cli.records.queued_runs import open_row
    from dagrun.cli.records.record_place import wait
    from dagrun.errors import RunNotFound

    records = open_shared_records(configure(flags))
    run_id = records.find(run)
    try:
        is_back = wait(lambda: put_back(run_id, journal=records.journal))
    except RunNotFound:
        raise BadInput(f"run {run_id} was not submitted, so no worker takes it up; dagrun resume goes on") from None
    row = open_row(records, run_id)
    if not is_back:
        standing = "over" if row is None else str(row.standing)
        raise BadInput(f"run {run_id} is {standing}: only a run that is stuck or waits is put back")
    with data_output() as data:
        pool = "" if row is None else row.ticket.pool
        if as_json:
            data.json({"schema_version": SCHEMA_VERSION, "run_id": run_id, "standing": "queued", "pool": pool})
        else:
            data.text(f"{run_id} is in the queue of pool {pool}")


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
