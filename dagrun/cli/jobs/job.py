"""A job of the command line: the run to carry out, and how it is reported."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dagrun.cli.jobs.recording import Recording
from dagrun.kernel.checks.checked_plan import CheckedPlan
from dagrun.kernel.model.critic import Critic
from dagrun.kernel.model.event import Event
from dagrun.kernel.model.planner import Planner
from dagrun.kernel.model.policy import Policy
from dagrun.kernel.model.question import Approver
from dagrun.kernel.model.redaction.redactor import Redactor
from dagrun.kernel.model.secrets.secret import NO_SECRETS, Secrets
from dagrun.kernel.model.toolbox import Toolbox
from dagrun.kernel.model.tracing import Traces
from dagrun.kernel.runtime.result import RunResult

if TYPE_CHECKING:
    from dagrun.api.replaying import Replayed
    from dagrun.cli.jobs.page_server import PageServer

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
