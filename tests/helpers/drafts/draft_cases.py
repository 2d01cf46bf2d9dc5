"""Random plans that a planner writes bit by bit: in any order, at any time, right or with one fault; and with trouble.

A step may be written long before those that it names. What is streamed is a plan of `random_cases`, so steps fail in
every way there is while the rest of the plan is still to come.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from dagrun import Add, Drop, Patch, Plan, PlanningRule, PlanRefused, Policy, Problem, QuestionRule, RetryRule, Step
from dagrun.errors import CannotPlan, ModelError
from random_cases import GRID, OFF_GRID, make_case
from splice_book import as_json, needs_of, used_by

Script: TypeAlias = tuple[Any, ...]
"""Seconds to wait, and what is then yielded or raised, one by one."""

TIMEOUT: Final = 60 * GRID + OFF_GRID  # of a call of the planner; no stream that ends takes so long
NEVER: Final = 10 * TIMEOUT
MOST_ATTEMPTS: Final = 2  # a planner may not write more than the policy says

REPAIRS: Final = ("plan", "plan", "plan", "patch", "stream", "nothing", "error", "wrong again", "cannot")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCase:
    """A plan, how it is written, and what happens meanwhile.

    Attributes:
        seed: Of the case, and of the schedule.
        plan: What it would be in one piece, without a fault.
        policy: Its limits.
        script: What the planner says first.
        fault: What is wrong with that; empty if nothing is.
        repair: What the planner says then: one of `REPAIRS`.
        thinks: Seconds before any other answer than the first.
        busy: How often its model is too busy to answer before that.
        confidence: What it says of the whole plan.
        person: Seconds that a person thinks, and what they say; `None` for a run without one.
        cancels: Cancellations at a time: of a step, the run (`None`), or the code around it.
        cancels_at: The same by an observer, at the n-th event that it sees.
        goals: Times at which the host wants something else.
        patches: Times at which the host changes the plan, each with a seed.
        is_calm: Whether nothing but the tools themselves decides how each step ends.
    """

    seed: int
    plan: Plan
    policy: Policy
    script: Script
    fault: str = ""
    repair: str = "plan"
    thinks: float = 0.0
    busy: int = 0
    confidence: float | None = None
    person: tuple[float, bool] | None = None
    cancels: tuple[tuple[float, str | None], ...] = ()
    cancels_at: tuple[tuple[int, str | None], ...] = ()
    goals: tuple[float, ...] = ()
    patches: tuple[tuple[float, int], ...] = ()
    is_calm: bool = True

    @property
    def is_doubtful(self) -> bool:
        """Whether the planner is less sure of its plan than the policy wants."""
        return self.confidence is not None and self.confidence < self.policy.min_confidence

    @property
    def may_be_asked(self) -> bool:
        """Whether a person may have to agree to the plan."""
        return self.is_doubtful or self.policy.approve_patches != "never"


def make_draft(seed: int) -> DraftCase:
    """Make the case of *seed*: about half of them are calm, and a third of the plans have a fault."""
    rng = random.Random(f"draft {seed}")
    case = make_case(rng.randrange(10**9))
    steps = [_varied(_modest(step), rng) for step in case.plan.steps]
    is_cut = any(step.deadline is not None or step.on_failure == "stop" for step in steps)
    is_calm = not is_cut and case.policy.max_seconds is None and rng.random() < 0.85
    output = {step.id: f"${{{step.id}}}" for step in rng.sample(steps, min(2, len(steps)))}
    plan = Plan(steps=steps, output=output if rng.random() < 0.3 else None)
    policy = _policy_of(case.policy, rng)
    confidence = rng.choice((None, None, None, 0.9, 0.3))
    fault = rng.choice(tuple(FAULTS)) if rng.random() < 0.35 else ""
    written, ending = list(steps), _ending(plan, confidence, rng)
    if fault == "too many steps":
        policy = policy.with_fields({"planning": {"max_edits": max(1, len(steps) - 1)}})
        fault = fault if len(steps) > 1 else ""
    acts = _with_pauses(_in_some_order(written, rng), rng)
    script = FAULTS[fault](acts, ending, plan, rng) if fault else (*acts, *ending)
    made = {
        "repair": rng.choice(REPAIRS),
        "thinks": rng.choice((0, 1, 3)) * GRID,
        "busy": 1 if rng.random() < 0.1 else 0,
        "person": (rng.choice((0, 2)) * GRID, rng.random() < 0.7) if rng.random() < 0.6 else None,
    }
    trouble = {} if is_calm else _trouble(steps, rng)
    return DraftCase(
        seed=seed,
        plan=plan,
        policy=policy,
        script=tuple(script),
        fault=fault,
        confidence=confidence,
        is_calm=is_calm,
        **{**made, **trouble},
    )


def _modest(step: Step) -> Step:
    """The step with no more attempts than a planner may write."""
    if step.retry is None or step.retry.max_attempts <= MOST_ATTEMPTS:
        return step
    return step.model_copy(update={"retry": step.retry.model_copy(update={"max_attempts": MOST_ATTEMPTS})})


def _varied(step: Step, rng: random.Random) -> Step:
    """As a planner may write it: what it refers to needs no mention; what only looks may fall back on more."""
    changes: dict[str, Any] = {}
    if rng.random() < 0.5:
        used = {id_ for id_, _ in used_by(as_json(step))}
        changes["depends_on"] = tuple(id_ for id_ in step.depends_on if id_ not in used)
    if step.tool == "pure_act" and rng.random() < 0.2:
        changes["fallback"] = rng.choice(("safe_act", "deed"))
    return step.model_copy(update=changes)


def _policy_of(policy: Policy, rng: random.Random) -> Policy:
    """The limits of the case alone, without what it says of patches and people; and what is said of drafts."""
    changes: dict[str, Any] = {
        "approve": (),
        "questions": QuestionRule(answer_within=None, max_pending=100),
        "max_tokens": None,
        "max_steps": None,
        "planning": PlanningRule(
            max_edits=1_000,
            max_calls=None,
            timeout=TIMEOUT,
            stream_safe=tuple(name for name in ("safe_act", "deed") if rng.random() < 0.15),
        ),
        "max_replans": 3,
        "retry": RetryRule(max_attempts=MOST_ATTEMPTS, first_delay=0.0),
        "approve_patches": rng.choices(("never", "effects", "always"), (10, 1, 1))[0],
    }
    if rng.random() < 0.5:  # where the law of starts is exact
        changes |= {"max_running": None, "max_running_by_tool": {}, "pools": {}}
    if rng.random() < 0.4:
        changes["planning"] = changes["planning"].model_copy(update={"replan_on": ()})
    return policy.model_copy(update=changes)


def _in_some_order(steps: Sequence[Step], rng: random.Random) -> list[Step]:
    """As it was, backwards, or in any order: then most references lead forward."""
    match rng.randrange(4):
        case 0:
            return list(steps)
        case 1:
            return list(reversed(steps))
        case _:
            return rng.sample(list(steps), len(steps))


def _with_pauses(steps: list[Step], rng: random.Random) -> list[Any]:
    """Let time pass between steps, and put some of them into one patch."""
    acts: list[Any] = []
    pace = rng.choice(((0,), (0, 0, 1), (0, 1, 2), (1, 4)))
    while steps:
        acts.append(rng.choice(pace) * GRID)
        count = rng.choice((1, 1, 1, 1, 3))
        chunk, steps = steps[:count], steps[count:]
        acts.append(Add(step=chunk[0]) if count == 1 else Patch(edits=[Add(step=step) for step in chunk]))
    return acts


def _ending(plan: Plan, confidence: float | None, rng: random.Random) -> Script:
    facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
    if confidence is not None:
        facts["confidence"] = confidence
    return (rng.choice((0, 0, 1, 5)) * GRID, Patch(edits=(), **facts))


# Faults ---------------------------------------------------------------------------------------------------------------


def _change_one(acts: list[Any], rng: random.Random, change: Callable[[Step], Mapping[str, Any]]) -> list[Any]:
    """Change one of the steps."""
    steps = [step for act in acts for step in steps_of(act)]
    victim = rng.choice(steps)
    wrong = victim.model_copy(update=dict(change(victim)))
    return [_exchanged(act, victim, wrong) for act in acts]


def _exchanged(act: Any, old: Step, new: Step) -> Any:
    match act:
        case Add() if act.step is old:
            return Add(step=new)
        case Patch() if any(step is old for step in steps_of(act)):
            return Patch(edits=[Add(step=new if step is old else step) for step in steps_of(act)])
        case _:
            return act


def steps_of(act: Any) -> list[Step]:
    """The steps that an act of a script brings."""
    edits = [act] if isinstance(act, Add) else act.edits if isinstance(act, Patch) else ()
    return [edit.step for edit in edits if isinstance(edit, Add)]


def _descendant(plan: Plan, id_: str, rng: random.Random) -> str:
    """The step itself, or one that waits for it."""
    found = [id_]
    for step in plan.steps:  # in an order in which all could run one after another
        if set(needs_of(as_json(step))).intersection(found):
            found.append(step.id)
    return rng.choice(found)


Fault: TypeAlias = Callable[[list[Any], Script, Plan, random.Random], Sequence[Any]]


def _step_fault(change: Callable[[Step, Plan, random.Random], Mapping[str, Any]]) -> Fault:
    def spoil(acts: list[Any], ending: Script, plan: Plan, rng: random.Random) -> Sequence[Any]:
        return (*_change_one(acts, rng, lambda step: change(step, plan, rng)), *ending)

    return spoil


def _inserted(make: Callable[[Plan, random.Random], Sequence[Any]], *, is_last: bool) -> Fault:
    """Something odd between two steps; or the last thing that is said."""

    def spoil(acts: list[Any], ending: Script, plan: Plan, rng: random.Random) -> Sequence[Any]:
        # After the first step: what breaks off before it is simply asked again.
        place = rng.randint(2, len(acts))
        rest = () if is_last else (*acts[place:], *ending)
        return (*acts[:place], *make(plan, rng), *rest)

    return spoil


def _broken_off(plan: Plan, rng: random.Random) -> Sequence[Any]:
    errors = (
        ModelError("cut", is_transient=True),
        ModelError("no"),
        ValueError("oops"),
        "this is no edit",
        SystemExit(3),
    )
    return (rng.choice((0, 1)) * GRID, rng.choice(errors))


_PROBLEM: Final = Problem("DR003", "", {"syntax": "JSON", "line": "1", "column": "2", "reason": "x"})

FAULTS: Final[Mapping[str, Fault]] = {
    "unknown tool": _step_fault(lambda step, plan, rng: {"tool": "fly"}),
    "tool that is not allowed": _step_fault(lambda step, plan, rng: {"tool": "banned_act"}),
    "cycle": _step_fault(lambda step, plan, rng: {"depends_on": (*step.depends_on, _descendant(plan, step.id, rng))}),
    "needs nothing that there is": _step_fault(lambda step, plan, rng: {"depends_on": (*step.depends_on, "nowhere")}),
    "wrong argument": _step_fault(lambda step, plan, rng: {"args": {**step.args, "acts": 7}}),
    "too many attempts": _step_fault(lambda step, plan, rng: {"retry": RetryRule(max_attempts=9)}),
    "too many steps": lambda acts, ending, plan, rng: (*acts, *ending),
    "same step twice": _inserted(lambda plan, rng: [Add(step=rng.choice(plan.steps))], is_last=False),
    "edit of what cannot be there": _inserted(lambda plan, rng: [Drop(id=rng.choice(plan.steps).id)], is_last=False),
    "answer of nothing": lambda acts, ending, plan, rng: (*acts, Patch(edits=(), output="${nowhere}")),
    "broken off": _inserted(_broken_off, is_last=True),
    "refused by its author": _inserted(lambda plan, rng: [PlanRefused([_PROBLEM])], is_last=True),
    "never ends": _inserted(lambda plan, rng: [NEVER], is_last=True),
}


# Repairs and trouble --------------------------------------------------------------------------------------------------


def repair_of(case: DraftCase, known: Sequence[str]) -> Any:
    """What the planner says when its plan was refused; *known* are the steps that are in the graph already.

    An exception is raised; a list is streamed.
    """
    plan, kind = case.plan, case.repair
    lacking = [Add(step=step) for step in plan.steps if step.id not in known]
    facts: dict[str, Any] = {} if plan.output is None else {"output": plan.output}
    match kind:
        case "patch" if lacking:
            return Patch(edits=lacking, **facts)
        case "stream" if lacking:
            return [*lacking, Patch(edits=(), **facts)]
        case "nothing":
            return None
        case "error":
            return ValueError("no idea")
        case "wrong again":
            return Plan(steps=[*plan.steps, Step(id="wrong", tool="fly")])
        case "cannot":
            return CannotPlan("no tool for that")
        case _:
            return plan


def is_good(repair: str) -> bool:
    """Whether a plan comes of it."""
    return repair in ("plan", "patch", "stream")


def _trouble(steps: list[Step], rng: random.Random) -> dict[str, Any]:
    ids = [step.id for step in steps]
    cancels = [(rng.randint(0, 12) * GRID, rng.choice((None, None, "around", *ids))) for _ in range(rng.randint(0, 2))]
    at = [(rng.randint(1, 30), rng.choice((None, *ids))) for _ in range(rng.choice((0, 0, 1, 1)))]
    patches = [(rng.randint(0, 10) * GRID, rng.randrange(10**6)) for _ in range(rng.choice((0, 0, 1, 2)))]
    goals = (rng.randint(0, 10) * GRID,) if rng.random() < 0.25 else ()
    return {
        "cancels": tuple(sorted(cancels, key=lambda cancel: cancel[0])),
        "cancels_at": tuple(at),
        "patches": tuple(patches),
        "goals": goals,
    }
