"""A recorded run that is resumed or retried by the command line: from flags and the record to a job."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from dagrun.cli.jobs.job import Job, ResumeOrRetry, Verb
from dagrun.cli.jobs.one_run import OneRun
from dagrun.cli.jobs.recording import Recording, new_record, old_record
from dagrun.cli.records.output_folder import artifacts_in
from dagrun.cli.records.record_place import Records
from dagrun.cli.records.recorded_tools import as_recorded
from dagrun.cli.records.resume_command import command_again, output_of, quoted, where_is
from dagrun.cli.records.run_records import open_records
from dagrun.cli.setup.planners import load_compose, load_critics, make_planner
from dagrun.cli.setup.secrets import secrets_of
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox, names_tools
from dagrun.cli.terminal.text import data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.journal.base import without_password
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.toolbox import Toolbox


class ResumeCommand:
    """Resumes or retries a recorded run.

    Args:
        verb: Which of the two.
        run_id: The run, as the user has typed it.
        flags: The flags of the command line.
    """

    def __init__(self, verb: Verb, run_id: str, flags: Mapping[str, Any]) -> None:
        self._verb: Verb = verb
        self._flags = flags
        self._configuration = configure(flags)
        records = open_records(self._configuration)
        self._run_id = records.find(run_id)
        self._past = records.whole(self._run_id)
        if not names_tools(self._configuration):
            self._configuration = self._as_recorded(records)

    def carry_out(self) -> int:
        """Resume or retry the run, and return the exit code."""
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

    def _as_recorded(self, records: Records) -> Configuration:
        """Return the settings with the tools on record; see `as_recorded`."""
        found = as_recorded(self._flags, records, self._run_id, self._past.opening.labels, self._command)
        return self._configuration if found is None else found[0]

    def _command(self, again: Sequence[str]) -> str:
        """Return the command to type where the records may be of others."""
        where = where_is(self._configuration)
        is_there = bool(where) and (where[0], where[1]) in list(pairwise(again))
        return quoted(command_again(self._verb, self._run_id, again if is_there else [*again, *where]))

    def _recording(self, toolbox: Toolbox, parent: Path | None) -> Recording | None:
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
