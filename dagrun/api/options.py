"""The options of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from dagrun.api.checking import AnyPlan, AnySecrets, Inputs, check, must_be, toolbox_of
from dagrun.checks.checked_plan import CheckedPlan, empty_plan
from dagrun.decide.durations import Durations
from dagrun.errors import ContractError
from dagrun.model.critic import Critic
from dagrun.model.event import Event
from dagrun.model.executor import Executor
from dagrun.model.journal import Journal
from dagrun.model.planner import Planner, must_be_planner
from dagrun.model.policy import Policy
from dagrun.model.question import Approver
from dagrun.model.redaction.redactor import Hook
from dagrun.model.secrets.secret import NO_SECRETS, secrets_from
from dagrun.model.toolbox import Tools, hint


class HostOptions(TypedDict, total=False):
    """What every way to carry out a run takes from the host; see `start`."""

    tools: Tools | None
    policy: Policy | None
    artifacts: Path | None
    on_event: Callable[[Event], object] | None
    planner: Planner | None
    critics: Sequence[Critic]
    approver: Approver | None
    attended: bool
    executors: Mapping[str, Executor] | None
    secrets: AnySecrets | None
    redact: Hook | None


class DraftOptions(HostOptions, total=False):
    """The options of `draft`: those of `start`, the goal excepted."""

    inputs: Inputs | None
    run_id: str | None
    seed: int | None
    journal: Journal | None
    labels: Mapping[str, Any] | None
    expires_after: float | None


class RunOptions(DraftOptions, total=False):
    """The options of `start`, for those that hand them on."""

    goal: str | None


class SoloOptions(RunOptions, total=False):
    """The options of `dagrun.run`, which has no engine: those of `RunOptions`, and what an engine would have."""

    durations: Durations | None


class _FromJournal(TypedDict):
    """What cannot be left out where a run comes from a journal."""

    journal: Journal


class ResumeOptions(HostOptions, _FromJournal, total=False):
    """The options of `resume`."""

    allow_differences: bool
    steal: bool


class RetryOptions(HostOptions, _FromJournal, total=False):
    """The options of `retry`."""

    new_id: str | None
    parent_artifacts: Path | None
    seed: int | None
    labels: Mapping[str, Any] | None
    expires_after: float | None
    allow_differences: bool


def must_fit(options: Mapping[str, object], kind: type, function: str) -> None:
    """Refuse options that *function* does not have, and those that it cannot do without.

    Args:
        options: As they were given.
        kind: What describes them, a `TypedDict`.
        function: For the message.

    Raises:
        ContractError: One is unknown, or missing.
    """
    known, wanted = kind.__annotations__, kind.__required_keys__  # type: ignore[attr-defined]
    if unknown := sorted(options.keys() - known.keys()):
        raise ContractError(f"{function} has no option {unknown[0]}{hint(unknown[0], known)}")
    if missing := sorted(wanted - options.keys()):
        raise ContractError(f"{function} cannot do without {missing[0]}=…")


@dataclass(slots=True, kw_only=True)  # not frozen: there is one for each run, and that would take four times as long
class Options:
    """The same with their defaults."""

    goal: str | None = None
    tools: Tools | None = None
    policy: Policy | None = None
    inputs: Inputs | None = None
    artifacts: Path | None = None
    run_id: str | None = None
    seed: int | None = None
    on_event: Callable[[Event], object] | None = None
    planner: Planner | None = None
    critics: Sequence[Critic] = ()
    approver: Approver | None = None
    attended: bool = False
    executors: Mapping[str, Executor] | None = None
    secrets: AnySecrets | None = None
    redact: Hook | None = None
    journal: Journal | None = None
    labels: Mapping[str, Any] | None = None
    expires_after: float | None = None

    def __post_init__(self) -> None:
        if self.journal is None and (self.labels is not None or self.expires_after is not None):
            raise ContractError("labels and expires_after are kept by a journal: journal=…")
        if self.expires_after is not None and not 0 < self.expires_after < float("inf"):
            raise ContractError(f"expires_after must be a positive, finite number of seconds; got {self.expires_after}")
        if self.on_event is not None and not _is_plain_function(self.on_event):
            raise ContractError("on_event is a plain function; to await something for each event, use run.events()")

    def plan_of(self, plan: AnyPlan | None, policy: Policy | None, executors: Mapping[str, Executor]) -> CheckedPlan:
        """The checked plan that a run begins with; one without steps, if its planner still has to write it.

        Args:
            plan: What the caller gave.
            policy: The limits, if the options name none.
            executors: Those of the host, by name.

        Raises:
            PlanRefused: The plan has problems.
            ContractError: There is neither a plan nor a goal with a planner, or both.
        """
        checked = self._plan_of(plan, policy, executors)
        if missing := checked.secrets.missing:
            raise ContractError(f"the plan was checked with the secrets {', '.join(missing)}: secrets={{…}}")
        return checked if self.redact is None else replace(checked, redact=self.redact)

    def _plan_of(self, plan: AnyPlan | None, policy: Policy | None, executors: Mapping[str, Executor]) -> CheckedPlan:
        if isinstance(plan, CheckedPlan):
            policy, executors = None, {}
        secrets = secrets_from(self.secrets) if self.secrets else None  # read once; those of a checked plan stay
        limits = self.policy or policy
        if self.goal is None:
            if plan is None:
                raise ContractError("give a plan, or a goal and a planner: goal=…, planner=…")
            inputs = self.inputs or {}
            return check(plan, self.tools, policy=limits, inputs=inputs, executors=executors, secrets=secrets)
        if plan is not None:
            raise ContractError(
                "a run begins with a plan or with a goal, not with both; the plan has a goal of its own"
            )
        must_be("goal", self.goal, (str,), "a text")
        if self.planner is None or not self.goal.strip():
            raise ContractError("a goal needs words, and a planner that makes a plan of it: planner=…")
        must_be_planner(self.planner, "planner")
        knows = getattr(self.planner, "plan", None)
        if callable(knows):  # it needs not write: its plan is checked whole before anything runs
            known: Any = knows(self.goal, self.inputs)
            inputs = self.inputs or {}
            return check(known, self.tools, policy=limits, inputs=inputs, executors=executors, secrets=secrets)
        must_be("policy", limits, (Policy, type(None)), "a dagrun.Policy")
        return empty_plan(self.goal, toolbox_of(self.tools), limits or Policy(), executors, secrets or NO_SECRETS)


def _is_plain_function(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)
