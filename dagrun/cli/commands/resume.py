"""``dagrun resume`` and ``dagrun retry``: resume a recorded run, or run its failed part again."""

from __future__ import annotations

from typing import Any

from dagrun.cli.table_command import command


@command("resume")
def resume(*, run: str, requeue: bool, **flags: Any) -> int:
    """Resume RUN, which was interrupted or killed, or waits for people.

    RUN is the name of a run, the beginning of a name, or "last": the last run of this project. Without --tools, the
    tools are those that were named when the run began, in the folder where it began.

    Steps that succeeded are not called again. A call that was cut off is repeated if it has no effect, or is
    idempotent; otherwise a person or the planner is asked whether it took effect. Without --policy, the recorded limits
    hold. The inputs are the recorded ones. What the policy has taken out of the record (redact_records) is opened with
    the key in DAGRUN_RECORD_KEY.

    With --requeue, a run that was submitted to workers (dagrun submit), and is stuck or waits, goes back into the
    queue, and a worker resumes it. A run is stuck when its workers have ended while they were at it, or could not take
    it up; dagrun runs says why, so first put that right.

    Examples:
      dagrun resume last
      dagrun resume 20261122-1245 --planner my_rules:planner
      dagrun resume 20261122-1245 --requeue

    Exit codes are those of dagrun run; 2 also for a run that cannot go on. With --requeue: 0 it is in
    the queue, 2 it was not submitted, or is neither stuck nor waiting.
    """
    if requeue:
        from dagrun.cli.records.queued_runs import put_back

        put_back(run, flags)
        return 0
    from dagrun.cli.jobs.resume_job import ResumeCommand

    return ResumeCommand("resume", run, flags).carry_out()


@command("retry")
def retry(*, run: str, **flags: Any) -> int:
    """Run the failed part of RUN again, as a new run that takes over the outputs of the steps that succeeded.

    RUN is the name of a run that has ended, the beginning of a name, or "last": the last run of this project. Without
    --tools, the tools are those that were named when the run began. The idempotency keys are those of the
    first run: a service that knows them sees the same calls once more, and no new ones.

    Examples:
      dagrun retry last

    Exit codes are those of dagrun run; 2 also for a run that cannot be retried.
    """
    from dagrun.cli.jobs.resume_job import ResumeCommand

    return ResumeCommand("retry", run, flags).carry_out()
