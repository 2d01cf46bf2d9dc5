"""Writing a run down: where, under which name, and what is kept with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from dagrun.cli.jobs.execute import unusable
from dagrun.cli.jobs.job import Recording
from dagrun.cli.records.next_steps import NextSteps
from dagrun.cli.records.resume_command import labels_of, options_again, where_is
from dagrun.cli.records.run_records import Records, check_new_id
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalFailed
from dagrun.journal.run_folder import make_root
from dagrun.model.question import Question
from dagrun.model.toolbox import Toolbox

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecording:
    """How a run is written down.

    Attributes:
        recording: For the run.
        record: The folder of its record.
        outlook: Says how the run can go on.
    """

    recording: Recording
    record: Path
    outlook: NextSteps


def new_record(
    configuration: Configuration,
    flags: Mapping[str, Any],
    toolbox: Toolbox,
    planner: str | None,
    parent_artifacts: Path | None = None,
) -> RunRecording | None:
    """Say how a new run is written down; `None` if it is not to be.

    Args:
        configuration: The settings that hold.
        flags: What the command line says: ``run_id``, ``critics``, and maybe ``no_journal``.
        toolbox: What the run may call.
        planner: The name of who is asked; `None` for nobody.
        parent_artifacts: Where the files of the run are that is retried, if not with its record.

    Raises:
        BadInput: It cannot be written down there.
    """
    if flags.get("no_journal"):
        if flags["run_id"] is not None:
            raise BadInput("--run-id names the record of the run, and with --no-journal there is none")
        return None
    run_id = check_new_id(flags["run_id"])
    records = Records(configuration)
    try:
        make_root(records.folder)
    except JournalFailed as error:
        raise unusable(error) from error
    if not os.access(records.folder, os.W_OK | os.X_OK):
        raise unusable(JournalFailed(f"cannot write to {records.folder}"))
    if os.path.lexists(records.place(run_id)):
        raise BadInput(f"there is a run {run_id} in {records.folder} already; choose another name by --run-id")
    days = configuration.settings.expires_after
    again = options_again(configuration, planner, flags["critics"])
    recording = Recording(
        journal=records.journal,
        run_id=run_id,
        labels=labels_of(_arguments(), configuration, again),
        expires_after=None if days is None else days * DAY,
        parent_artifacts=parent_artifacts,
    )
    outlook = NextSteps(run_id, again, toolbox, where_is(configuration))
    return RunRecording(recording=recording, record=records.place(run_id), outlook=outlook)


def old_record(
    configuration: Configuration,
    flags: Mapping[str, Any],
    run_id: str,
    toolbox: Toolbox,
    questions: Iterable[Question],
) -> RunRecording:
    """Say how a run goes on to be written down that is on record already; *questions* are open."""
    records = Records(configuration)
    again = options_again(configuration, flags["planner"], flags["critics"])
    outlook = NextSteps(run_id, again, toolbox, where_is(configuration), questions)
    recording = Recording(journal=records.journal, run_id=run_id)
    return RunRecording(recording=recording, record=records.place(run_id), outlook=outlook)


def _arguments() -> list[str]:
    """The command line, as it was typed."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_root().obj
    return ["dagrun", *found] if isinstance(found, tuple) else []
