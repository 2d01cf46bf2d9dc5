"""A job of the command line: the run to carry out, where it is recorded, and how it is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from dagrun import (
    Asked,
    CheckedPlan,
    Critic,
    Event,
    Planner,
    Policy,
    Question,
    RunResult,
    Secrets,
    State,
    Status,
    Toolbox,
)
from dagrun.cli.records.resume_command import answer_command, command_again, labels_of, options_again, quoted, where_is
from dagrun.cli.records.run_store import check_new_id, open_runs
from dagrun.cli.setup.settings import Configuration
from dagrun.cli.terminal.user_errors import BadInput
from dagrun.errors import JournalFailed, shorten, visible
from dagrun.extend import Journal
from dagrun.kernel.model.event import QuestionAnswered, QuestionAsked, RunEnded, RunSuspended
from dagrun.kernel.model.question import Approver
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.secrets import NO_SECRETS
from dagrun.kernel.model.tracing import Traces

if TYPE_CHECKING:
    from dagrun import Replayed
    from dagrun.cli.jobs.page_server import PageServer


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
    records = open_runs(configuration)
    records.make_ready(run_id)
    days = configuration.settings.expires_after
    again = options_again(configuration, planner, flags)
    return Recording(
        journal=records.journal,
        run_id=run_id,
        labels=labels_of(typed_arguments(), configuration, again),
        expires_after=None if days is None else days * DAY,
        parent_artifacts=parent_artifacts,
        folder=records.folder_of(run_id),
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
    records = open_runs(configuration)
    again = options_again(configuration, flags["planner"], flags)
    return Recording(
        journal=records.journal,
        run_id=run_id,
        folder=records.folder_of(run_id),
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


OnEvent = Callable[[Event], object]
Verb = Literal["resume", "retry"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """The goal of a run that has no plan yet.

    Attributes:
        text: The goal in words.
        toolbox: The tools that the plan may call.
        policy: The limits.
        secrets: The secrets that the plan may name.
    """

    text: str
    toolbox: Toolbox
    policy: Policy
    secrets: Secrets = NO_SECRETS

    @property
    def redactor(self) -> Redactor:
        """The redactor of all shown texts."""
        return Redactor(self.secrets, self.policy.redact)


@dataclass(frozen=True, kw_only=True)
class ResumeOrRetry:
    """A recorded run that is resumed, or whose failed part is run again.

    Attributes:
        verb: Which of the two.
        run_id: The recorded run.
        toolbox: The tools that it may call.
        policy: The limits; `None` for the recorded ones.
        secrets: The secrets that its plan may name.
        allow_differences: Whether tools, policy and critics may differ from the record.
        steal: Whether the run is taken from a process that holds it.
        past: The run, replayed from its record.
    """

    verb: Verb
    run_id: str
    toolbox: Toolbox
    policy: Policy | None = None
    secrets: Secrets = NO_SECRETS
    allow_differences: bool = False
    steal: bool = False
    past: Replayed

    @property
    def redactor(self) -> Redactor:
        """The redactor of all shown texts."""
        return Redactor(self.secrets, (self.policy or self.past.opening.policy).redact)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run to carry out.

    Attributes:
        plan: A checked plan; or a goal, for which the planner writes a plan; or a recorded run.
        inputs: The values of ``${input…}``.
        planner: Writes the plan, and is asked when a step fails or surprises; `None` for no planner.
        critics: Review the outputs of steps before they are used.
        compose: Writes the answer from the results; `None` for nothing.
        recording: Where the run is recorded; `None` for no record.
        artifacts: The folder for the files of tools; `None` for the folder of the record, or else a temporary one.
        deps: ``module:name`` of what makes the dependencies of the tools; `None` for none.
        stand_in: Who is asked if nobody sits at a terminal or looks at a page; `None` for nobody.
    """

    plan: CheckedPlan | Goal | ResumeOrRetry
    inputs: Mapping[str, Any] = field(default_factory=dict)
    planner: Planner | None = None
    critics: tuple[Critic, ...] = ()
    compose: Any = None
    recording: Recording | None = None
    artifacts: Path | None = None
    deps: str | None = None
    stand_in: Approver | None = None


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """The ways in which a run is reported, during the run and at its end.

    Attributes:
        on_result: Called once with the result. After it, the process may be ended by force, if something in it would
            not stop.
        on_event: Called with each event.
        code_of: Returns the exit code for a result; `None` for the usual codes.
        is_shown: Whether a live table may be drawn on the standard error.
        log_level: The least level of log records that are shown.
        tracing: Traces the run; `None` for no trace.
        server: Serves the page of the run; `None` for no page.
        lingers: Whether the page stays open after the run.
    """

    on_result: Callable[[RunResult], object]
    on_event: OnEvent | None = None
    code_of: Callable[[RunResult], int] | None = None
    is_shown: bool = True
    log_level: int = logging.WARNING
    tracing: Traces | None = None
    server: PageServer | None = None
    lingers: bool = False


_MAX_QUESTIONS: Final = 20


class NextSteps:
    """Follows the events of a recorded run, and explains how to resume or retry it.

    Args:
        run_id: The run.
        again: The options of the command that resumes or retries it.
        toolbox: The tools that the run may call.
        where: The options that lead to the record, for the commands that answer questions.
        questions: The questions that were open when the run was resumed.
    """

    def __init__(
        self, run_id: str, again: list[str], toolbox: Toolbox, where: list[str], questions: Iterable[Question] = ()
    ) -> None:
        self._run_id = run_id
        self._again = again
        self._toolbox = toolbox
        self._where = where
        self._open = {question.id: question for question in questions}
        self._is_suspended = False

    def on_event(self, event: Event) -> None:
        """Note an event."""
        match event:
            case QuestionAsked():
                self._open[event.question.id] = event.question
            case QuestionAnswered():
                self._open.pop(event.question, None)
            case RunSuspended() | RunEnded():
                self._is_suspended = isinstance(event, RunSuspended)

    @property
    def report_command(self) -> str:
        """The shell command that writes a page about the run."""
        return quoted(["dagrun", "report", self._run_id, *self._where])

    def verb(self, result: RunResult) -> str:
        """Return the command for the rest of the run, ``resume`` or ``retry``; empty if nothing is left to do."""
        if self._is_suspended or result.status is Status.UNKNOWN:
            return "resume"
        return "retry" if result.has_plan and result.status is not Status.SUCCEEDED else ""

    def as_dict(self, result: RunResult) -> dict[str, Any]:
        """Return the next steps as plain JSON, for programs and for ``run.json``."""
        verb = self.verb(result)
        return {
            "is_resumable": verb == "resume",
            "next_command": command_again(verb, self._run_id, self._again) if verb else None,
            "questions": [question.as_dict() for question in self._open.values()] if self._is_suspended else [],
        }

    def lines(self, result: RunResult) -> list[str]:
        """Return the next steps, a line each. A command is always one line, so that it can be copied."""
        verb = self.verb(result)
        if not verb:
            return []
        command = quoted(command_again(verb, self._run_id, self._again))
        if verb == "retry":
            return ["run again what has not succeeded:", f"  {command}"]
        lines = [f"{step} may have taken effect; resuming settles that" for step in self.cut_off(result)]
        asked = list(self._open.values())
        for question in asked[:_MAX_QUESTIONS]:
            lines.append(f"open: {shorten(question.text)}")
            lines += [f"  why: {shorten(visible(question.why))}"] if question.why else []
            lines.append(f"  {answer_command(self._run_id, question, self._where)}")
        if len(asked) > _MAX_QUESTIONS:
            lines.append(f"… and {len(asked) - _MAX_QUESTIONS} more open questions")
        return [*lines, "resume the run:", f"  {command}"]

    def cut_off(self, result: RunResult) -> list[str]:
        """Return the steps that were cut off during a call with an effect that must not be repeated."""
        if not self._is_suspended:
            return []
        running = [step for step in result.steps.values() if step.state is State.RUNNING and step.attempts]
        return [step.id for step in running if self._may_be_done(step.attempts[-1].tool)]

    def is_in_doubt(self, result: RunResult) -> bool:
        """Whether the effect of a call is unresolved; the exit code shows it, as the caller must act on it."""
        asked = self._is_suspended and any(question.kind is Asked.EFFECT for question in self._open.values())
        return asked or bool(self.cut_off(result))

    def _may_be_done(self, tool: str) -> bool:
        known = self._toolbox.get(tool)
        return known is not None and not known.effect.may_repeat
