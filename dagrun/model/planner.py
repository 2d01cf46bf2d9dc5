"""The `Planner` protocol: the brief that a planner gets, and the answers that it may return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dagrun.errors import ContractError, Problem, short_repr, shorten
from dagrun.model.critic import Verdict
from dagrun.model.outcome import ErrorKind, State, TriggerKind
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan, Step
from dagrun.model.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Trigger:
    """One reason to ask the planner.

    Attributes:
        kind: The kind of reason.
        step: The step that the reason comes from; empty for a changed goal.
        reason: The reason in a sentence. A planner sees it only where the policy allows text.
        error: The class of the exception, if there was one.
        error_kind: The kind of failure, if there was one.
        fingerprint: A hash that is equal for equal failures of equal calls, whatever the id of the step.
    """

    __repr__ = short_repr

    kind: TriggerKind
    step: str
    reason: str
    error: str = ""
    error_kind: ErrorKind | None = None
    fingerprint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the trigger as plain JSON."""
        kind = None if self.error_kind is None else str(self.error_kind)
        return {
            "kind": str(self.kind),
            "step": self.step,
            "reason": self.reason,
            "error": self.error,
            "error_kind": kind,
        }


@dataclass(frozen=True, slots=True)
class StepView:
    """A step as a planner sees it.

    Attributes:
        step: The present definition of the step.
        state: The state of the step.
        attempts: How often its tool was called.
        is_frozen: Whether the step waits for the planner's answer.
        error: The class of the exception of its last attempt, if there was one.
        error_kind: The kind of failure of its last attempt, if it failed.
        reason: Why the step did not succeed, in a sentence; empty unless the policy allows text.
        verdicts: The judgements of critics that did not pass the output; without reasons unless the policy allows text.
    """

    __repr__ = short_repr

    step: Step
    state: State
    attempts: int = 0
    is_frozen: bool = False
    error: str = ""
    error_kind: ErrorKind | None = None
    reason: str = ""
    verdicts: tuple[Verdict, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the step as plain JSON; facts about a failure only where there is one."""
        facts: dict[str, Any] = {
            **self.step.model_dump(mode="json", by_alias=True, exclude_unset=True),
            "state": str(self.state),
            "attempts": self.attempts,
            "is_frozen": self.is_frozen,
        }
        failure = {
            "error": self.error,
            "error_kind": "" if self.error_kind is None else str(self.error_kind),
            "reason": self.reason,
            "verdicts": [{"critic": v.critic, "result": v.result, "reason": v.reason} for v in self.verdicts],
        }
        return facts | {name: fact for name, fact in failure.items() if fact}


@dataclass(frozen=True, slots=True)
class PastRequest:
    """How an earlier request to the planner ended.

    Attributes:
        result: ``applied``, ``unchanged``, ``refused``, and so on (see `ReplanEnded`).
        reason: The reason in a sentence; empty unless the policy allows text.
    """

    __repr__ = short_repr

    result: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A patch that was refused, with the problems that it has."""

    __repr__ = short_repr

    patch: Patch | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """Everything that a planner is told.

    Attributes:
        run_id: The id of the run.
        goal: The purpose of the run.
        revision: The revision of the plan that is shown here.
        triggers: The reasons why the planner is asked; at least one.
        steps: The steps of the plan with their states, by id, in plan order; without steps that a splice dropped.
        results: The outputs of steps that have succeeded, by id: their shape or their content, as the policy says.
        inputs: The inputs of the run: their shape or their content, as the policy says.
        output: The answer of the run, as the plan names it.
        tools: Contracts of the tools that a patch may use (see `Tool.describe`), with ``approval`` (``always`` or
            ``sometimes``), ``fallback``, the usual ``seconds`` of a call, and ``pool`` where there are any.
        left: The rest of every ceiling that is set, by name.
        refused: The patches that were refused before, newest last.
        number: The number of the request in the run, from 1.
        past: How each earlier request ended, oldest first.
        toolbox: The tools themselves, for planners that check their plans; only its allowed tools may be used.
    """

    __repr__ = short_repr

    run_id: str
    goal: str
    revision: int
    triggers: tuple[Trigger, ...]
    steps: Mapping[str, StepView]
    results: Mapping[str, Any]
    inputs: Any = None
    output: Any = None
    tools: tuple[Mapping[str, Any], ...] = ()
    left: Mapping[str, float] = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()
    number: int = 1
    past: tuple[PastRequest, ...] = ()
    toolbox: Toolbox | None = field(default=None, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether there is no plan yet, so that a whole plan is wanted."""
        return any(trigger.kind is TriggerKind.GOAL_GIVEN for trigger in self.triggers)

    @property
    def is_next(self) -> bool:
        """Whether every step of the plan has ended, and the planner had asked to see the results."""
        return any(trigger.kind is TriggerKind.NEXT for trigger in self.triggers)

    def as_dict(self) -> dict[str, Any]:
        """Return the brief as plain JSON, for a model to read."""
        return {
            "goal": self.goal,
            "revision": self.revision,
            "triggers": [trigger.as_dict() for trigger in self.triggers],
            "steps": [view.as_dict() for view in self.steps.values()],
            "results": dict(self.results),
            "inputs": self.inputs,
            "output": self.output,
            "tools": [dict(tool) for tool in self.tools],
            "left": dict(self.left),
            "past": [{"result": past.result, "reason": past.reason} for past in self.past],
            "refused": [
                {
                    "patch": None if refusal.patch is None else refusal.patch.as_dict(),
                    "problems": [problem.as_dict() for problem in refusal.problems],
                }
                for refusal in self.refused
            ],
        }


# A patch; a whole plan, of which a patch is made by difference; or `None`, to leave the plan as it is.
Revision: TypeAlias = Patch | Plan | None
RevisedBy: TypeAlias = "Awaitable[Revision] | AsyncIterator[Add | Drop | Replace | Rewire | Patch]"


class Planner(Protocol):
    """Proposes changes of the plan. It never calls a tool, and its proposals are checked like any plan."""

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer *brief*: an ``async def`` that returns, or an async generator that yields one edit after another.

        A generator may also yield a `Patch`. Its edits count like single edits; its other fields (output, confidence,
        reason, more) hold for the whole answer. If ``brief.is_first``, a step may start as soon as its `Add` has been
        yielded.

        Raises:
            PlanRefused: The answer would be no valid plan. The planner is asked once more, with the problems.
            CannotPlan: The planner cannot answer. If no step is left to run, the run ends.
            ModelError: The planner's model gave no answer. It is asked again later if that may help.
        """
        ...


def must_be_planner(planner: object, name: str) -> None:
    """Check that *planner* is a planner, before anything runs.

    Args:
        planner: The object to check.
        name: The name of the option, for the message.

    Raises:
        ContractError: *planner* is no planner.
    """
    if isinstance(planner, type) or not callable(getattr(planner, "revise", None)):
        shown = shorten(repr(planner), 100)
        raise ContractError(f"{name} is an object with a method revise, such as OpenAIPlanner('gpt-5'); got {shown}")
