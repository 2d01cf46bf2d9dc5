"""``dagrun resume`` and ``dagrun retry``: a run that is on record goes on, or is done again as far as it has failed."""

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
            help="Go on although the policy, the tools or the critics are not those on record; what differs is"
            " written down.",
        ),
    )(function)


_telling: Final = options.combined(options.as_json, options.events, options.verbose, options.quiet)


@click.command(epilog=RESUME)
@_shared
@click.option("--steal", is_flag=True, help="Take the run from a process that still holds it, which stops then.")
@_telling
def resume(*, run: str, **flags: Any) -> int:
    """Go on with RUN, which was interrupted, killed, or waits for people.

    RUN is the name of a run, the beginning of one, or "last". What has succeeded stays. A call that was cut off is
    made again if it only looks, or is idempotent; whether one with another effect took place is asked. Without
    --policy, the limits on record hold; the inputs are those on record.
    """
    return _ResumeCommand("resume", run, flags).carry_out()


@click.command(epilog=RETRY)
@_shared
@options.combined(options.run_id, options.expires_after)
@_telling
def retry(*, run: str, **flags: Any) -> int:
    """Do again what has failed of RUN, as a new run that takes over what has succeeded.

    RUN is the name of a run that has ended, the beginning of one, or "last". The idempotency keys are those of the
    first run: a service that knows them sees the same calls once more, and no new ones.
    """
    return _ResumeCommand("retry", run, flags).carry_out()


class _ResumeCommand:
    """Takes up a run that is on record.

    Args:
        verb: How.
        run_id: The run, as it was typed.
        flags: What the command line says.
    """

    def __init__(self, verb: Verb, run_id: str, flags: Mapping[str, Any]) -> None:
        self._verb: Verb = verb
        self._flags = flags
        self._configuration = configure(flags)
        records = Records(self._configuration)
        self._run_id = records.find(run_id)
        self._past = records.replay(self._run_id)

    def carry_out(self) -> int:
        """Do it, and give the exit code."""
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
            job = Job(plan=again, planner=planner, critics=critics, recording=recording, artifacts=artifacts)
            return OneRun(job, output, data, self._flags).carry_out()

    def _recording(self, toolbox: Toolbox, parent: Path | None) -> Recording | None:
        if self._verb == "resume":
            return old_record(self._configuration, self._flags, self._run_id, toolbox, self._past.pending)
        return new_record(self._configuration, self._flags, toolbox, self._flags["planner"], parent)

    def _folders(self) -> tuple[Path | None, Path | None]:
        """Where the run leaves its files, and where those of the first run are, if not with its record.

        Raises:
            BadInput: It has left its files in a folder of its own, and nobody has named that.
        """
        given, kept = self._configuration.path("output"), output_of(self._past.opening.labels)
        if self._verb == "retry":
            return given, None if kept is None else kept / "artifacts"
        if kept is not None and given is None:
            # What a record says is not acted on by itself: somebody else may have written it.
            words = command_again("resume", self._run_id, [*_as_given(self._flags), "-o", str(kept)])
            raise BadInput(f"the files of run {self._run_id} are in {kept}; name that folder: {quoted(words)}")
        return given, None


def _as_given(flags: Mapping[str, Any]) -> list[str]:
    tools = [word for tool in flags["tools"] for word in ("--tools", tool)]
    return tools + (["--runs", os.path.abspath(flags["runs"])] if flags["runs"] else [])


def _policy(configuration: Configuration, policy: Policy) -> Policy | None:
    """The limits that hold now; `None` for those on record, if nobody names any."""
    settings = configuration.settings
    if settings.mode == "sequential":
        return policy.model_copy(update={"max_running": 1})
    return None if settings.policy is None and settings.max_running is None else policy
