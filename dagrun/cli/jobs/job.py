"""What the command line is to carry out: a run, or a run that goes on, and where it is written down."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dagrun.api.replaying import Replayed
from dagrun.checks.checked_plan import CheckedPlan
from dagrun.model.critic import Critic
from dagrun.model.event import Event
from dagrun.model.journal import Journal
from dagrun.model.planner import Planner
from dagrun.model.policy import Policy
from dagrun.model.redaction.redactor import Redactor
from dagrun.model.secrets.secret import NO_SECRETS, Secrets
from dagrun.model.toolbox import Toolbox
from dagrun.runtime.result import RunResult

OnEvent = Callable[[Event], object]
Verb = Literal["resume", "retry"]


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a run is for that has no plan yet.

    Attributes:
        text: In words.
        toolbox: What its plan may call.
        policy: The limits.
        secrets: Those that it may name.
    """

    text: str
    toolbox: Toolbox
    policy: Policy
    secrets: Secrets = NO_SECRETS

    @property
    def redactor(self) -> Redactor:
        """Takes out of texts what may not be shown."""
        return Redactor(self.secrets, self.policy.redact)


@dataclass(frozen=True, kw_only=True)
class ResumeOrRetry:
    """A run that is on record, and is gone on with, or done again as far as it has failed.

    Attributes:
        verb: Which of the two.
        run_id: The run.
        toolbox: What it may call.
        policy: The limits; `None` for those on record.
        secrets: Those that it may name.
        allow_differences: Whether it goes on although not all is as it was.
        steal: Whether it is taken from a process that holds it.
        past: The run, as its record says.
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
        """Takes out of texts what may not be shown."""
        return Redactor(self.secrets, (self.policy or self.past.opening.policy).redact)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Where a run is written down, and under which name.

    Attributes:
        journal: Keeps the record.
        run_id: The run; of one that is retried, the new one.
        labels: What is kept with it: the command line, say.
        expires_after: Seconds after which it may be forgotten; `None` for never.
        parent_artifacts: Where the files of the run are that is retried, if not with its record.
    """

    journal: Journal
    run_id: str
    labels: Mapping[str, Any] = field(default_factory=dict)
    expires_after: float | None = None
    parent_artifacts: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A run that is to be carried out.

    Attributes:
        plan: What is run: a plan; a goal, for which the planner writes one; or a run that is on record.
        inputs: What ``${input…}`` stands for.
        artifacts: The folder for the files of tools, or none for that of the record, or else a temporary one.
        recording: Where the run is written down; `None` for nowhere.
        secrets: Those that a plan may name; a goal has its own.
        is_shown: Whether a live table may be drawn on the standard error.
        log_level: The least level of log records that are shown.
        planner: Who is asked when a step fails or surprises; `None` for nobody.
        critics: Who looks at what steps give before it is used.
        on_event: Called with each event.
        on_result: Called once with the result, before anything that would not stop is left behind.
        code_of: Gives the exit code of a run.
    """

    plan: CheckedPlan | Goal | ResumeOrRetry
    inputs: Mapping[str, Any] = field(default_factory=dict)
    artifacts: Path | None = None
    recording: Recording | None = None
    secrets: Secrets = NO_SECRETS
    is_shown: bool = True
    log_level: int = logging.WARNING
    planner: Planner | None = None
    critics: tuple[Critic, ...] = ()
    on_event: OnEvent | None = None
    on_result: Callable[[RunResult], object]
    code_of: Callable[[RunResult], int] | None = None
