"""The options of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from dagrun.api.checking import AnyPlan, Inputs, check, must_be, toolbox_of
from dagrun.errors import ContractError
from dagrun.graph.checked import CheckedPlan, empty_plan
from dagrun.model.brief import Planner, must_be_planner
from dagrun.model.event import Event
from dagrun.model.policy import Policy
from dagrun.model.protocols import Executor
from dagrun.model.question import Approver
from dagrun.model.toolbox import Tools
from dagrun.model.verdict import Critic


class DraftOptions(TypedDict, total=False):
    """The options of `draft`: those of `start`, the goal excepted."""

    tools: Tools | None
    policy: Policy | None
    inputs: Inputs | None
    artifacts: Path | None
    run_id: str | None
    seed: int | None
    on_event: Callable[[Event], object] | None
    planner: Planner | None
    critics: Sequence[Critic]
    approver: Approver | None
    attended: bool
    executors: Mapping[str, Executor] | None


class RunOptions(DraftOptions, total=False):
    """The options of `start`, for those that hand them on."""

    goal: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def __post_init__(self) -> None:
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
        if isinstance(plan, CheckedPlan):
            policy, executors = None, {}
        limits = self.policy or policy
        if self.goal is None:
            if plan is None:
                raise ContractError("give a plan, or a goal and a planner: goal=…, planner=…")
            return check(plan, self.tools, policy=limits, inputs=self.inputs or {}, executors=executors)
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
            return check(known, self.tools, policy=limits, inputs=self.inputs or {}, executors=executors)
        must_be("policy", limits, (Policy, type(None)), "a dagrun.Policy")
        return empty_plan(self.goal, toolbox_of(self.tools), limits or Policy(), executors)


def _is_plain_function(value: object) -> bool:
    return callable(value) and not inspect.iscoroutinefunction(value)
