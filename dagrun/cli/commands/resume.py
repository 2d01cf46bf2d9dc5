"""``dagrun resume`` and ``dagrun retry``: resume a recorded run, or run its failed part again."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagrun.cli.records.output_files import artifacts_in
from dagrun.cli.records.resume_command import as_recorded, command_again, output_of, quoted, where_is
from dagrun.cli.records.run_store import RunStore, open_runs
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.table_command import command
from dagrun.cli.terminal.text import SCHEMA_VERSION, data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import RunNotFound
from dagrun.journal.base import without_password

if TYPE_CHECKING:
    from dagrun import Policy, Toolbox
    from dagrun.cli.jobs.job import Recording, Verb


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
        _put_back(run, flags)
        return 0
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
    return ResumeCommand("retry", run, flags).carry_out()


def _put_back(run: str, flags: Mapping[str, Any]) -> None:
    """Put a submitted run back into the queue, and print where it is now.

    Args:
        run: The run, as the user has typed it.
        flags: The flags of the command line.

    Raises:
        BadInput: It was not submitted, or is neither stuck nor waiting.
    """
    from dagrun import requeue
    from dagrun.cli.records.run_store import open_shared_runs, wait

    records = open_shared_runs(configure(flags))
    run_id = records.find(run)
    try:
        is_back = wait(lambda: requeue(run_id, journal=records.journal))
    except RunNotFound:
        raise BadInput(f"run {run_id} was not submitted, so no worker takes it up; dagrun resume goes on") from None
    row = records.in_queue(run_id)
    if not is_back:
        standing = "over" if row is None else str(row.standing)
        raise BadInput(f"run {run_id} is {standing}: only a run that is stuck or waits is put back")
    with data_output() as data:
        pool = "" if row is None else row.ticket.pool
        if flags["as_json"]:
            facts = {"run_id": run_id, "queue_status": "queued", "pool": pool}
            data.json({"schema_version": SCHEMA_VERSION, **facts, "standing": "queued"})  # its name in 0.2, until 0.4
        else:
            data.text(f"{run_id} is in the queue of pool {pool}")


class ResumeCommand:
    """Resumes or retries a recorded run.

    Args:
        verb: Which of the two.
        run_id: The run, as the user has typed it.
        flags: The flags of the command line.
    """

    def __init__(self, verb: Verb, run_id: str, flags: Mapping[str, Any]) -> None:
        from dagrun.cli.setup.tool_modules import names_tools

        self._verb: Verb = verb
        self._flags = flags
        self._configuration = configure(flags)
        records = open_runs(self._configuration)
        self._run_id = records.find(run_id)
        self._past = records.whole(self._run_id)
        if not names_tools(self._configuration):
            self._configuration = self._as_recorded(records)

    def carry_out(self) -> int:
        """Resume or retry the run, and return the exit code."""
        from dagrun.cli.jobs.job import Job, ResumeOrRetry
        from dagrun.cli.jobs.one_run import OneRun
        from dagrun.cli.setup.planners import load_compose, load_critics, make_planner
        from dagrun.cli.setup.secrets import secrets_of
        from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox

        named = self._flags["planner"]
        with data_output() as data:
            output, parent = self._folders()
            limits = self._configuration.limits()
            toolbox = load_toolbox(self._configuration)
            configure_tools(self._configuration, limits)
            again = ResumeOrRetry(
                verb=self._verb,
                run_id=self._run_id,
                toolbox=toolbox,
                policy=_policy(self._configuration, limits.policy),
                secrets=secrets_of(self._configuration),
                allow_differences=self._flags["allow_differences"],
                steal=self._flags.get("steal", False),
                past=self._past,
            )
            planner = make_planner(self._configuration, named) if named is not None else None
            critics = load_critics(self._flags["critics"])
            recording = self._recording(toolbox, parent)
            # Files that recorded values name must stay where they are found.
            is_with_record = self._verb == "resume" and output_of(self._past.opening.labels) is None
            artifacts = None if is_with_record else artifacts_in(output)
            job = Job(
                plan=again,
                planner=planner,
                critics=critics,
                compose=load_compose(self._configuration, self._flags["compose"]),
                recording=recording,
                artifacts=artifacts,
                deps=self._configuration.settings.deps,
            )
            return OneRun(job, output, data, self._flags).carry_out()

    def _as_recorded(self, records: RunStore) -> Configuration:
        """Return the settings with the tools on record; see `as_recorded`."""
        found = as_recorded(self._flags, records, self._run_id, self._past.opening.labels, self._command)
        return self._configuration if found is None else found[0]

    def _command(self, again: Sequence[str]) -> str:
        """Return the command to type where the records may be of others."""
        where = where_is(self._configuration)
        is_there = bool(where) and (where[0], where[1]) in list(pairwise(again))
        return quoted(command_again(self._verb, self._run_id, again if is_there else [*again, *where]))

    def _recording(self, toolbox: Toolbox, parent: Path | None) -> Recording | None:
        from dagrun.cli.jobs.job import new_record, old_record

        if self._verb == "resume":
            return old_record(self._configuration, self._flags, self._run_id, toolbox, self._past.pending)
        return new_record(self._configuration, self._flags, toolbox, self._flags["planner"], parent)

    def _folders(self) -> tuple[Path | None, Path | None]:
        """Return the folder for the files of the run; and the first run's, if its files are not with its record.

        Raises:
            BadInput: The run has an output folder, and the user has not named it.
        """
        output, recorded = self._configuration.path("output"), output_of(self._past.opening.labels)
        if self._verb == "retry":
            return output, None if recorded is None else recorded / "artifacts"
        if recorded is not None and output is None:
            # The folder on the record is not used by itself: others may have written the record.
            words = command_again("resume", self._run_id, [*_as_given(self._flags), "-o", str(recorded)])
            raise BadInput(f"the files of run {self._run_id} are in {recorded}; name that folder: {quoted(words)}")
        return output, None


def _as_given(flags: Mapping[str, Any]) -> list[str]:
    options = (("--tools", "tools"), ("--openapi", "openapi"), ("--include", "include"), ("--mcp", "mcp_files"))
    words = [word for option, name in options for value in flags[name] for word in (option, value)]
    words += ["--openapi-url", flags["openapi_url"]] if flags["openapi_url"] else []
    words += ["--mcp-pins", os.path.abspath(flags["mcp_pins"])] if flags.get("mcp_pins") else []
    words += ["--runs", os.path.abspath(flags["runs"])] if flags["runs"] else []
    return words + (["--journal", without_password(flags["journal"])] if flags["journal"] else [])


def _policy(configuration: Configuration, policy: Policy) -> Policy | None:
    """Return the limits that the user has named; `None` for the recorded ones."""
    settings = configuration.settings
    if settings.mode == "sequential":
        return policy.model_copy(update={"max_running": 1})
    return None if settings.policy is None and settings.max_running is None else policy
