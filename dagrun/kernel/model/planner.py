"""The `Planner` protocol: the brief that a planner gets, and the answers that it may return."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol, TypeAlias

from dagrun.errors import ContractError, Problem, short_repr, shorten
from dagrun.kernel.model.critic import Verdict
from dagrun.kernel.model.outcome import ErrorKind, State, TriggerKind
from dagrun.kernel.model.patch import Add, Drop, Patch, Replace, Rewire
from dagrun.kernel.model.plan import Plan, Step
from dagrun.kernel.model.tool import Toolbox


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


class HandOn(StrEnum):
    """Why a planner of a fallback chain passes a request on to the next planner."""

    NO_ROUTE = "no_route"  # no template fits the goal
    NOTHING = "nothing"  # it has no plan, or nothing to say about a failure
    REFUSAL = "refusal"  # it says that it cannot, or does not want to
    PERSON = "person"  # it says that a person is needed
    LIMIT = "limit"  # it has reached a limit of its own, or does not fit under a ceiling of the run
    INVALID = "invalid"  # its answers were refused, as often as it may try
    LOW_CONFIDENCE = "low_confidence"  # it is not sure of its answer
    AMBIGUOUS_STEP = "ambiguous_step"  # it is not sure of one step of its answer
    TIMEOUT = "timeout"  # it took too long
    NO_ANSWER = "no_answer"  # its model or its server gave none, or it raised an exception


@dataclass(frozen=True, slots=True)
class EarlierPlanner:
    """A planner of a fallback chain that was asked earlier in the same request.

    Attributes:
        planner: Its name.
        why: Why it has handed the request on.
        reason: The same in a sentence; empty unless the policy allows text.
    """

    __repr__ = short_repr

    planner: str
    why: HandOn
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A patch that was refused, with the problems that it has."""

    __repr__ = short_repr

    patch: Patch | None
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """The input of a planner.

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
        before: The planners of a fallback chain that have handed this request on, oldest first.
        keeps_plan: Whether a patch may only drop and repeat calls of the first plan: see `Policy.freeze_plan`.
        notes: What the planner wrote down for itself in its last call that wrote any (see `Notes`); not for `as_dict`.
        raw_inputs: The inputs of the run themselves, for planners that are rules of the host; not part of `as_dict`,
            because what a model sees is for the policy to say.
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
    before: tuple[EarlierPlanner, ...] = ()
    keeps_plan: bool = False
    notes: str = ""
    raw_inputs: Any = field(default=None, repr=False, compare=False)
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
            **({"keeps_plan": True} if self.keeps_plan else {}),
            "past": [{"result": past.result, "reason": past.reason} for past in self.past],
            "before": [{"planner": b.planner, "why": str(b.why), "reason": b.reason} for b in self.before],
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
RevisedBy: TypeAlias = Awaitable[Revision] | AsyncIterator[Add | Drop | Replace | Rewire | Patch]
"""The answer of `Planner.revise`: one revision when it is complete, or its edits as they are written."""


class Notes:
    """A planner's notes for its next call in the same run, kept in the record.

    Attributes:
        text: The notes; at most `MAX_TEXT` characters are kept.
    """

    MAX_TEXT: Final = 20_000

    __slots__ = ("text",)

    def __init__(self) -> None:
        self.text = ""


NOTES: ContextVar[Notes | None] = ContextVar("dagrun notes", default=None)
"""The notes that a planner may change; set by the run around each of its calls, see `Brief.notes`."""


class Planner(Protocol):
    """Proposes changes of the plan. It never calls a tool, and its proposals are checked like any plan."""

    def revise(self, brief: Brief) -> RevisedBy:
        """Answer *brief*: an ``async def`` that returns, or an async generator that yields one edit after another.

        Failures that have nothing to do with each other are asked about side by side: another call may be under way.
        A generator may also yield a `Patch`. Its edits count like single edits; its other fields (output, confidence,
        reason, more) hold for the whole answer. If ``brief.is_first``, a step may start as soon as its `Add` has been
        yielded.

        Raises:
            PlanRefused: The answer would be no valid plan. The planner is asked again, with the problems.
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


@dataclass(frozen=True, slots=True)
class FallbackPlanner:
    """One planner of a fallback chain, and the conditions under which it passes a request on.

    Attributes:
        planner: The planner.
        name: Its name in records and messages; by default its class, and its model.
        min_confidence: The least confidence, from 0 to 1, of its plan or patch and of each step in it. An answer
            without a confidence is used. The last planner of a fallback chain hands nothing on: its answers are used
            with any confidence, and the policy may require a person for a low one.
        tries: Answers that it may give; each refused one goes back to it with the problems, as long as tries are left.
        timeout: Seconds for one call; `None` for the ``planning.timeout`` of the policy.

    Raises:
        ContractError: A field is not valid.
    """

    planner: Planner
    name: str = ""
    min_confidence: float = field(default=0.6, kw_only=True)
    tries: int = field(default=2, kw_only=True)
    timeout: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", name_of_planner(self.planner))
        if not 0 <= self.min_confidence <= 1:
            raise ContractError(f"min_confidence must be a number from 0 to 1, got {self.min_confidence!r}")
        if self.tries < 1:
            raise ContractError(f"{self.name}: tries is a number above 0, got {self.tries!r}")
        if self.timeout is not None and not self.timeout > 0:
            raise ContractError(f"{self.name}: timeout is a number of seconds above 0, got {self.timeout!r}")


def rungs_of(planner: Planner) -> tuple[FallbackPlanner, ...]:
    """Return the planners that a run asks in order: the fallback chain, or *planner* alone."""
    rungs = getattr(planner, "rungs", None)
    if isinstance(rungs, tuple) and rungs and all(isinstance(rung, FallbackPlanner) for rung in rungs):
        return rungs
    return (FallbackPlanner(planner, min_confidence=0.0),)


def name_of_planner(planner: object) -> str:
    """Return the class of a planner, and its model: ``OpenAIPlanner gpt-5``."""
    model = getattr(getattr(planner, "model", None), "name", None)
    name = type(planner).__name__
    return shorten(f"{name} {model}" if isinstance(model, str) and model else name, 80)


@dataclass(frozen=True, slots=True)
class LowConfidence:
    """Why the answer of a planner is not used, though it may be valid.

    Attributes:
        why: The reason to hand on.
        problem: The same as a problem of the answer; `None` if there is no answer.
    """

    why: HandOn
    problem: Problem | None = None


def low_confidence_of(answer: object, brief: Brief, least: float) -> LowConfidence | None:
    """Return why the next planner is asked after *answer*, from a planner that may hand on; `None` to use the answer.

    Args:
        answer: A plan, a patch, or `None`.
        brief: The brief that it answers.
        least: The least confidence of the answer, and of each of its steps.
    """
    if answer is None and not brief.is_next:
        kinds = [trigger.kind for trigger in brief.triggers]
        failed = not all(kind.is_surprising_success or kind is TriggerKind.GOAL_CHANGED for kind in kinds)
        return LowConfidence(HandOn.NOTHING) if failed else None
    if not isinstance(answer, Plan | Patch):
        return None
    if answer.confidence is not None and answer.confidence < least:
        facts = {"confidence": f"{answer.confidence:g}", "least": f"{least:g}"}
        return LowConfidence(HandOn.LOW_CONFIDENCE, Problem("DR422", "confidence", facts))
    for place, step in _steps_in(answer):
        if step.confidence is not None and step.confidence < least:
            facts = {"step": step.id, "confidence": f"{step.confidence:g}", "least": f"{least:g}"}
            return LowConfidence(HandOn.AMBIGUOUS_STEP, Problem("DR426", f"{place}.confidence", facts))
    return None


def _steps_in(answer: Plan | Patch) -> list[tuple[str, Step]]:
    if isinstance(answer, Plan):
        return [(f"steps[{place}]", step) for place, step in enumerate(answer.steps)]
    edits = enumerate(answer.edits)
    return [(f"edits[{place}].step", edit.step) for place, edit in edits if isinstance(edit, Add | Replace)]


def with_names(rungs: tuple[FallbackPlanner, ...]) -> tuple[FallbackPlanner, ...]:
    """Return *rungs* with names that differ from each other."""
    named: list[FallbackPlanner] = []
    for rung in rungs:
        name, number = rung.name, 2
        while any(name == other.name for other in named):
            name, number = f"{rung.name} ({number})", number + 1
        named.append(rung if name == rung.name else replace(rung, name=name))
    return tuple(named)
