"""What a planner is told when a plan has to change, and the protocol by which it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from dagrun.errors import ContractError, Problem, shorten
from dagrun.model.outcome import ErrorKind, State, TriggerKind
from dagrun.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.model.plan import Plan, Step
from dagrun.model.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class Trigger:
    """One reason to ask the planner.

    Attributes:
        kind: The sort of reason.
        step: The step that it comes from; empty for a changed goal.
        reason: In a sentence. A planner sees it only where the policy allows text.
        error: The class of the exception, if there was one.
        error_kind: The sort of failure, if there was one.
        fingerprint: The same for the same failure of the same call, whatever its step is called.
    """

    kind: TriggerKind
    step: str
    reason: str
    error: str = ""
    error_kind: ErrorKind | None = None
    fingerprint: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The trigger as plain JSON."""
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
        step: Its definition, as it stands now.
        state: Where it stands.
        attempts: How often it was called.
        is_frozen: Whether it waits for the planner's answer.
    """

    step: Step
    state: State
    attempts: int = 0
    is_frozen: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A patch that was refused, and why."""

    patch: Patch | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """All that a planner gets to know.

    Attributes:
        run_id: Of the run.
        goal: What the run is for.
        revision: Of the plan, as it is shown here.
        triggers: Why the planner is asked: at least one.
        steps: The plan with its states, by id, in the order of the plan; steps that a splice dropped are left out.
        results: What has succeeded, by id: the shape of the output, or the output itself, as the policy says.
        inputs: The inputs of the run, in the same way.
        output: What the run answers, as the plan names it.
        tools: Contracts of the tools that a patch may use (see `Tool.describe`).
        left: What is left of every ceiling that is set, by name.
        refused: What was refused before, newest last.
        number: 1 for the first request of the run.
        past: How each earlier request ended: ``applied``, ``refused``, and so on (see `ReplanEnded`).
        toolbox: The tools themselves, for planners that check what they write; of them only the allowed ones count.
    """

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
    past: tuple[str, ...] = ()
    toolbox: Toolbox | None = field(default=None, repr=False, compare=False)

    @property
    def is_first(self) -> bool:
        """Whether there is no plan yet: what is wanted is the whole of it."""
        return any(trigger.kind is TriggerKind.GOAL_GIVEN for trigger in self.triggers)

    @property
    def is_next(self) -> bool:
        """Whether everything in the plan has ended, and the planner wanted to see what comes of it."""
        return any(trigger.kind is TriggerKind.NEXT for trigger in self.triggers)

    def as_dict(self) -> dict[str, Any]:
        """The brief as plain JSON, as a model would read it."""
        return {
            "goal": self.goal,
            "revision": self.revision,
            "triggers": [trigger.as_dict() for trigger in self.triggers],
            "steps": [
                view.step.model_dump(mode="json", by_alias=True, exclude_unset=True)
                | {"state": str(view.state), "attempts": view.attempts, "is_frozen": view.is_frozen}
                for view in self.steps.values()
            ],
            "results": dict(self.results),
            "inputs": self.inputs,
            "output": self.output,
            "tools": [dict(tool) for tool in self.tools],
            "left": dict(self.left),
            "refused": [
                {
                    "patch": None if refusal.patch is None else refusal.patch.as_dict(),
                    "problems": [problem.as_dict() for problem in refusal.problems],
                }
                for refusal in self.refused
            ],
        }


# A patch; a whole plan, from which the patch is made by difference; nothing, for "leave it as it is".
Revision: TypeAlias = Patch | Plan | None
RevisedBy: TypeAlias = "Awaitable[Revision] | AsyncIterator[Add | Drop | Replace | Rewire | Patch]"


class Planner(Protocol):
    """Proposes changes. It never calls a tool, and what it proposes is checked like any plan."""

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer *brief*: an ``async def`` that returns, or an async generator that yields one edit after another.

        A generator may also yield a `Patch`: its edits count like others, and what it says of the whole (output,
        confidence, reason, more) holds for the whole answer. If ``brief.is_first``, a step may start as soon as its
        `Add` has been yielded.

        Raises:
            PlanRefused: What it was about to answer is no plan; the problems go back to it once, in the brief.
            CannotPlan: It cannot go on, and the run ends, if there is nothing else to do.
            ModelError: Its model gave no answer; it is asked again later if that may help.
        """
        ...


def must_be_planner(planner: object, name: str) -> None:
    """Check that *planner* is one, before anything runs.

    Args:
        planner: What was given as one.
        name: What it was given as, for the message.

    Raises:
        ContractError: It is none.
    """
    if isinstance(planner, type) or not callable(getattr(planner, "revise", None)):
        given = shorten(repr(planner), 100)
        raise ContractError(f"{name} is an object with a method revise, such as OpenAIPlanner('gpt-5'); got {given}")
