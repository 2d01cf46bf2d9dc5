"""One run as ``run`` and ``do`` carry it out: what is printed of it, what is kept, and the exit code."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from dagrun.checks.checked_plan import CheckedPlan
from dagrun.cli.jobs.execute import both, execute, exit_code_of
from dagrun.cli.jobs.job import Goal, Job, OnEvent, ResumeOrRetry
from dagrun.cli.jobs.recording import RunRecording
from dagrun.cli.records.output_folder import RunFolder, run_folder, write_whole
from dagrun.cli.setup.plan_files import plan_text
from dagrun.cli.terminal.event_lines import EventLines
from dagrun.cli.terminal.hidden_secrets import STATE
from dagrun.cli.terminal.stdout import Data
from dagrun.cli.terminal.text import SCHEMA_VERSION, coloured, printable, to_json
from dagrun.cli.terminal.user_errors import problem_lines
from dagrun.model.critic import Critic
from dagrun.model.outcome import State, Status
from dagrun.model.planner import Planner
from dagrun.model.secrets.secret import NO_SECRETS, Secrets
from dagrun.model.value import decode_or_reason
from dagrun.observe.summary import summarise, warnings_of
from dagrun.runtime.result import RunResult

_LEVELS: Final = {-1: logging.ERROR, 0: logging.WARNING, 1: logging.INFO}


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is to be done.

    Attributes:
        plan: A plan; a goal, for which the planner writes one; or a run that is on record.
        inputs: What ``${input…}`` stands for.
        planner: Who writes the plan, and is asked when a step fails or surprises; `None` for nobody.
        critics: Who looks at what steps give before it is used.
        save_plan: Where the plan goes as it stands at the end; absolute.
        secrets: Those that a plan may name; a goal has its own.
        written: How the run is written down; `None` if it is not.
        is_filed_with_record: Whether artifacts stay with the record, also if there is a folder for the rest.
    """

    plan: CheckedPlan | Goal | ResumeOrRetry
    inputs: Mapping[str, Any] = field(default_factory=dict)
    planner: Planner | None = None
    critics: tuple[Critic, ...] = ()
    save_plan: Path | None = None
    secrets: Secrets = NO_SECRETS
    written: RunRecording | None = None
    is_filed_with_record: bool = False


def log_level(flags: Mapping[str, Any]) -> int:
    """The least level of log records that are shown, by ``--quiet`` and ``--verbose``."""
    return _LEVELS.get(-1 if flags["quiet"] else flags["verbose"], logging.DEBUG)


class OneRun:
    """Carries out some work, and tells of it as the command line wants it told.

    Args:
        work: What is done.
        folder: Where the run leaves its files, or nowhere.
        data: The standard output.
        flags: What the command line says: ``as_json``, ``events``, ``quiet``, ``verbose``.
    """

    def __init__(self, work: Work, folder: Path | None, data: Data, flags: Mapping[str, Any]) -> None:
        self._work = work
        self._outlook = work.written.outlook if work.written is not None else None
        self._folder = folder
        self._data = data
        self._as_json: bool = flags["as_json"]
        self._is_quiet: bool = flags["quiet"]
        self._level = log_level(flags)
        self._lines = EventLines(data, work.plan.redactor) if flags["events"] else None
        self._stack = ExitStack()

    def carry_out(self) -> int:
        """Do it, and give the exit code."""
        with run_folder(self._folder) as folder, self._stack:
            if self._lines is not None:
                self._stack.enter_context(self._lines)
            return execute(
                Job(
                    plan=self._work.plan,
                    inputs=self._work.inputs,
                    artifacts=None if self._work.is_filed_with_record else folder.artifacts,
                    recording=self._work.written.recording if self._work.written is not None else None,
                    secrets=self._work.secrets,
                    planner=self._work.planner,
                    critics=self._work.critics,
                    is_shown=not self._is_quiet,
                    log_level=self._level,
                    on_event=self._observer(),
                    on_result=lambda result: self._deliver(result, folder),
                    code_of=self._code_of,
                )
            )

    def _observer(self) -> OnEvent | None:
        lines = self._lines.on_event if self._lines is not None else None
        return lines if self._outlook is None else both(self._outlook.on_event, lines)

    def _code_of(self, result: RunResult) -> int:
        """The exit code; that a call is in doubt outranks a signal, and that people are waited for."""
        is_in_doubt = self._outlook is not None and self._outlook.is_in_doubt(result)
        return Status.UNKNOWN.exit_code if is_in_doubt else exit_code_of(result)

    def _deliver(self, result: RunResult, folder: RunFolder) -> None:
        self._stack.close()  # the last event is written before the result
        record = {"schema_version": SCHEMA_VERSION, **result.as_dict()}
        if self._outlook is not None:
            record |= self._outlook.as_dict(result)
        try:
            self._save(record, folder)
        except OSError as error:
            self._say(f"cannot write run.json: {error.strerror}")
        self._save_plan(result)
        if self._lines is not None:
            self._data.line({"event": "Result", **record})
        elif self._as_json:
            self._data.json(record)
        else:
            self._answer(result)
        if not self._is_quiet:
            self._summarise(result)

    def _save(self, record: dict[str, Any], folder: RunFolder) -> None:
        if folder.path is not None:
            folder.save(record)
        elif self._work.written is not None:
            write_whole(self._work.written.record / "run.json", to_json(record, indent=2) + "\n", mode=0o600)

    def _save_plan(self, result: RunResult) -> None:
        path = self._work.save_plan
        if path is None:
            return
        if not result.has_plan:
            self._say(f"there is no plan to write to {path.name}")
            return
        try:
            write_whole(path, plan_text(result.plan.current))
        except OSError as error:
            self._say(f"cannot write {path}: {error.strerror}")

    def _answer(self, result: RunResult) -> None:
        """Print what the run answers; of a run that did not succeed, what there is."""
        if result.status is Status.SUCCEEDED:
            self._data.value(result.output)
        elif partial := _partial(result):
            self._data.json(partial)

    def _summarise(self, result: RunResult) -> None:
        for warning in warnings_of(result):
            self._say(coloured(f"warning: {warning}", 33, sys.stderr))
        colour = 32 if result.status is Status.SUCCEEDED else 31
        self._say(coloured(summarise(result), colour, sys.stderr))
        for line in problem_lines(result.problems):
            self._say(f"  {line}")
        for line in self._outlook.lines(result) if self._outlook is not None else ():
            self._say(printable(line))

    @staticmethod
    def _say(text: str) -> None:
        click.echo(STATE.hidden(text), err=True, color=True)


def _partial(result: RunResult) -> dict[str, Any]:
    """The outputs of the steps that succeeded and that nothing which succeeded goes on from."""
    steps = result.plan.steps
    good = [id_ for id_ in steps if result.steps[id_].state is State.SUCCEEDED]
    used = {need for id_ in good for need in result.dependencies(id_)}
    return {id_: decode_or_reason(result.steps[id_].stored) for id_ in good if id_ not in used}
