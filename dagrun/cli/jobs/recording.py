"""The record of a run: its journal, its name, and the facts stored with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from dagrun.cli.records.next_steps import NextSteps
from dagrun.cli.records.resume_command import labels_of, options_again, where_is
from dagrun.cli.records.run_records import check_new_id, open_records
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalFailed
from dagrun.kernel.model.journal import Journal
from dagrun.kernel.model.question import Question
from dagrun.kernel.model.toolbox import Toolbox

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Where and how a run is recorded.

    Attributes:
        journal: Keeps the record.
        run_id: The name of the run; of a run that is retried, the name of the new run.
        labels: Notes that are kept with the run, such as the command line.
        expires_after: Seconds after which the record may be deleted; `None` for never.
        parent_artifacts: The folder of the files of a run that is retried, if they are not with its record.
        folder: The folder of the record; `None` if it is in a database.
        next_steps: Says how the run can be resumed.
    """

    journal: Journal
    run_id: str
    labels: Mapping[str, Any] = field(default_factory=dict)
    expires_after: float | None = None
    parent_artifacts: Path | None = None
    folder: Path | None
    next_steps: NextSteps


def new_record(
    configuration: Configuration,
    flags: Mapping[str, Any],
    toolbox: Toolbox,
    planner: str | None,
    parent_artifacts: Path | None = None,
) -> Recording | None:
    """Return how a new run is recorded; `None` if it is not.

    Args:
        configuration: The settings that hold.
        flags: The flags of the command line: ``run_id``, ``critics``, ``compose``, and maybe ``no_journal``.
        toolbox: The tools that the run may call.
        planner: The name of the planner; `None` for no planner.
        parent_artifacts: The folder of the files of a run that is retried, if they are not with its record.

    Raises:
        BadInput: The run cannot be recorded there.
    """
    if flags.get("no_journal"):
        if flags["run_id"] is not None:
            raise BadInput("--run-id names the record of the run, and with --no-journal there is none")
        return None
    run_id = check_new_id(flags["run_id"])
    records = open_records(configuration)
    records.make_ready(run_id)
    days = configuration.settings.expires_after
    again = options_again(configuration, planner, flags)
    return Recording(
        journal=records.journal,
        run_id=run_id,
        labels=labels_of(typed_arguments(), configuration, again),
        expires_after=None if days is None else days * DAY,
        parent_artifacts=parent_artifacts,
        folder=records.place(run_id),
        next_steps=NextSteps(run_id, again, toolbox, where_is(configuration)),
    )


def old_record(
    configuration: Configuration,
    flags: Mapping[str, Any],
    run_id: str,
    toolbox: Toolbox,
    questions: Iterable[Question],
) -> Recording:
    """Return how a run that is resumed is recorded: in the record that it has. *questions* are open."""
    records = open_records(configuration)
    again = options_again(configuration, flags["planner"], flags)
    return Recording(
        journal=records.journal,
        run_id=run_id,
        folder=records.place(run_id),
        next_steps=NextSteps(run_id, again, toolbox, where_is(configuration), questions),
    )


def unusable(error: JournalFailed) -> BadInput:
    """Return an error with a remedy for a folder that cannot take records."""
    return BadInput(f"{error}; name another folder for the records of runs (--runs DIR), or keep none (--no-journal)")


def typed_arguments() -> list[str]:
    """Return the command line as typed."""
    context = click.get_current_context(silent=True)
    words = None if context is None else context.find_root().obj
    return ["dagrun", *words] if isinstance(words, tuple) else []
