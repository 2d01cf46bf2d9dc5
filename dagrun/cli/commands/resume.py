"""``dagrun resume`` and ``dagrun retry``: resume a recorded run, or run its failed part again."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from dagrun.cli import options
from dagrun.cli.jobs.job import Job, ResumeOrRetry, Verb
from dagrun.cli.jobs.one_run import OneRun
from dagrun.cli.jobs.recording import Recording, new_record, old_record
from dagrun.cli.records.output_folder import artifacts_in
from dagrun.cli.records.resume_command import command_again, output_of, quoted
from dagrun.cli.records.run_records import Records, run_argument, runs_option
from dagrun.cli.setup.planners import load_critics, make_planner
from dagrun.cli.setup.secrets import secrets_of
from dagrun.cli.setup.settings import Configuration, configure
from dagrun.cli.setup.tool_modules import configure_tools, load_toolbox
from dagrun.cli.terminal.stdout import data_output
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.model.policy import Policy
from dagrun.model.toolbox import Toolbox

F = TypeVar("F", bound=Callable[..., Any])

RESUME: Final = """
\b
Examples:
  dagrun resume last --tools my_tools
  dagrun resume 20261122-1245 --tools my_tools --planner my_rules:planner

\b
Exit codes are those of dagrun run; 2 also for a run that cannot go on.
"""
RETRY: Final = """
\b
Examples:
  dagrun retry last --tools my_tools

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
        options.secrets,
        runs_option,
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

    RUN is the name of a run, the beginning of a name, or "last". Steps that succeeded are not called again. A call that
    was cut off is repeated if it has no effect, or is idempotent; otherwise a person or the planner is asked whether it
    took effect. Without --policy, the recorded limits hold. The inputs are the recorded ones. What the policy has taken
    out of the record (redact_records) is opened with the key in DAGRUN_RECORD_KEY.
    """
    return _ResumeCommand("resume", run, flags).carry_out()


@click.command(epilog=RETRY)
@_shared
@options.combined(options.run_id, options.expires_after)
@_output
def retry(*, run: str, **flags: Any) -> int:
    """Run the failed part of RUN again, as a new run that takes over the outputs of the steps that succeeded.

    RUN is the name of a run that has ended, the beginning of a name, or "last". The idempotency keys are those of the
    first run: a service that knows them sees the same calls once more, and no new ones.
    """
    return _ResumeCommand("retry", run, flags).carry_out()


class _ResumeCommand:
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
        records = Records(self._configuration)
        self._run_id = records.find(run_id)
        self._past = records.whole(self._run_id)

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
                recording=recording,
                artifacts=artifacts,
                deps=self._configuration.settings.deps,
            )
            return OneRun(job, output, data, self._flags).carry_out()

    def _recording(self, toolbox: Toolbox, parent: Path | None) -> Recording | None:
        if self._verb == "resume":
            return old_record(self._configuration, self._flags, self._run_id, toolbox, self._past.pending)
        return new_record(self._configuration, self._flags, toolbox, self._flags["planner"], parent)

    def _folders(self) -> tuple[Path | None, Path | None]:
        """Return the folder for the files of the run; and that of the first run, if its files are not with its record.

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
    tools = [word for tool in flags["tools"] for word in ("--tools", tool)]
    return tools + (["--runs", os.path.abspath(flags["runs"])] if flags["runs"] else [])


def _policy(configuration: Configuration, policy: Policy) -> Policy | None:
    """Return the limits that the user has named; `None` for the recorded ones."""
    settings = configuration.settings
    if settings.mode == "sequential":
        return policy.model_copy(update={"max_running": 1})
    return None if settings.policy is None and settings.max_running is None else policy
