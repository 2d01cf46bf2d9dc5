"""``dagrun resume`` and ``dagrun retry``: resume a recorded run, or run its failed part again."""

from __future__ import annotations

from typing import Any

from dagrun.cli.table_command import command


@command("resume")
def resume(*, run: str, requeue: bool, **flags: Any) -> int:
    """Resume RUN, which was interrupted or killed, or waits for people.

    RUN is the name of a run, the beginning of a name, or "last": the last run of this project. Without --tools, the
    tools named at the start of the run are used, in the folder where it began.

    Steps that succeeded are not called again. A call that was cut off is repeated if it has no effect, or is
    idempotent; otherwise a person or the planner is asked whether it took effect. Without --policy, the recorded limits
    hold. The inputs are the recorded ones. Redacted parts of the record (redact_records) are decrypted with
    the key in DAGRUN_RECORD_KEY.

    With --requeue, a run that was submitted to workers (dagrun submit), and is stuck or waits, goes back into the
    queue, and a worker resumes it. A run is stuck when its workers ended during it, or could not open
    it; dagrun runs shows the reason, so fix it first.

    Examples:
      dagrun resume last
      dagrun resume 20261122-1245 --planner my_rules:planner
      dagrun resume 20261122-1245 --requeue

    Exit codes are as for dagrun run; 2 also for a run that cannot be resumed. With --requeue: 0 it is in
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
    --tools, the tools named at the start of the run are used. The idempotency keys of the first run are used
    again: a service that knows them sees repeated calls, and no new ones.

    Examples:
      dagrun retry last

    Exit codes are as for dagrun run; 2 also for a run that cannot be retried.
    """
    from dagrun.cli.jobs.resume_job import ResumeCommand

    return ResumeCommand("retry", run, flags).carry_out()
