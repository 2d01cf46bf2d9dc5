"""Random plans in which things go wrong, and random trouble while they run; each case by its seed alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from acts import GRACE, Act
from dagrun import ApprovalRule, Plan, PlanningRule, Policy, PoolLimits, QuestionRule, Step
from graphs import SHAPES

# Durations lie on this grid, so that many things happen at once; limits of time lie beside it, so that it is never
# open whether something came before its deadline.
GRID: Final = 0.5
OFF_GRID: Final = 0.1

_DOES: Final = ("succeeds", "is busy", "loses the line", "refuses", "breaks", "exits", "clings")
_WEIGHTS: Final = (30, 3, 3, 1, 1, 1, 1)
_NEEDS_LIMIT: Final = ("hangs", "will not stop", "clings")

CHANGED: Final = 0.4  # of the cases: their plan is changed while it runs

Definition: TypeAlias = dict[str, Any]
"""A step as JSON."""


@dataclass(frozen=True, slots=True)
class Case:
    """A plan, its policy, and what happens to the run from outside.

    Attributes:
        seed: Of the case, and of the schedule.
        plan: What is run.
        policy: Its limits.
        shared: A cap that it shares with a second run of the same plan; none for a run alone.
        cancels: Cancellations at a time: of a step, of the run (`None`), or of the code around it (``"around"``).
        cancels_at: The same by an observer, at the n-th event that it sees.
        cancels_between: The same before the n-th time that trio resumes any task.
        patches: Patches by the host: at a time, each by its seed.
        patches_at: The same by an observer, at the n-th event that it sees.
        goals: Times at which the host wants something else.
        planner: The seed of a planner that repairs at random; `None` for a run without one.
        approver: The seed of somebody who is asked before each deed; `None` for a run that asks nobody.
    """

    seed: int
    plan: Plan
    policy: Policy
    shared: int | None
    cancels: tuple[tuple[float, str | None], ...]
    cancels_at: tuple[tuple[int, str | None], ...]
    cancels_between: tuple[tuple[int, str | None], ...] = ()
    patches: tuple[tuple[float, int], ...] = ()
    patches_at: tuple[tuple[int, int], ...] = ()
    goals: tuple[float, ...] = ()
    planner: int | None = None
    approver: int | None = None

    @property
    def is_calm(self) -> bool:
        """Whether nothing but the tools themselves decides how each step ends."""
        is_hurried = self.policy.max_seconds is not None or self.policy.max_tokens is not None
        is_cut = any(step.deadline is not None or step.on_failure == "stop" for step in self.plan.steps)
        is_troubled = self.cancels or self.cancels_at or self.cancels_between or self.goals or self.approver is not None
        return not (is_troubled or is_hurried or is_cut)


def make_case(seed: int) -> Case:
    """Make the case of *seed*; about half of them are calm."""
    rng = random.Random(f"case {seed}")
    is_calm = rng.random() < 0.5
    needs = SHAPES[rng.choice(list(SHAPES))](rng.randint(2, 14), rng)
    steps: list[Definition] = []
    for index, needed in enumerate(needs):
        steps.append(make_step(rng, f"s{index}", [steps[n] for n in needed], is_calm=is_calm))
    plan = Plan(steps=[Step.model_validate(step) for step in steps])
    cancels, cancels_at = ((), ()) if is_calm else _make_trouble(rng, [step["id"] for step in steps])
    case = Case(seed, plan, _make_policy(rng, is_calm=is_calm), _maybe(rng, 0.15, 1, 3), cancels, cancels_at)
    more = random.Random(f"changes {seed}")
    return with_changes(case, more, is_calm=is_calm) if more.random() < CHANGED else case


def with_changes(case: Case, rng: random.Random, *, most: int = 3, planned: float = 0.5, is_calm: bool) -> Case:
    """Let the plan of *case* be changed while it runs: by the host, and in the part *planned* by a planner as well."""
    patches = [(rng.choice((0, 1, 1, 2, 3, 4, 6)) * GRID, rng.randrange(10**6)) for _ in range(rng.randint(1, most))]
    at = [(rng.randint(1, 25), rng.randrange(10**6)) for _ in range(rng.choice((0, 0, 1, 2)))]
    planner = rng.randrange(10**6) if rng.random() < planned else None
    policy = case.policy.model_copy(
        update={
            "max_replans": rng.choice((0, 1, 2, 5, 9)),
            "planning": PlanningRule(
                max_calls=_maybe(rng, 0.2, 1, 9),
                timeout=4 * GRID + OFF_GRID,
                max_edits=8 if rng.random() < 0.3 else 1_000,
            ),
            "max_steps": _maybe(rng, 0.2, 70, 90),
            "max_tokens": None if is_calm else _maybe(rng, 0.4, 20, 120),
        }
    )
    approver = None if is_calm or rng.random() < 0.4 else rng.randrange(10**6)
    if approver is not None:
        asks = {
            "approve": (ApprovalRule(tool="deed"),),
            "questions": QuestionRule(
                answer_within=rng.choice((None, 3 * GRID + OFF_GRID)), max_pending=rng.choice((1, 2, 100))
            ),
        }
        policy = policy.model_copy(update=asks)
    goals = () if is_calm or planner is None or rng.random() < 0.5 else (rng.randint(0, 6) * GRID,)
    plan = _with_surprises(case.plan, rng) if planner is not None else case.plan
    return replace(
        case,
        plan=plan,
        policy=policy,
        patches=tuple(sorted(patches)),
        patches_at=tuple(sorted(at)),
        goals=goals,
        planner=planner,
        approver=approver,
    )


def _with_surprises(plan: Plan, rng: random.Random) -> Plan:
    """Let some of what succeeds be a surprise."""
    steps = []
    for step in plan.steps:
        acts = [
            {**act, "does": "surprises"} if act["does"] == "succeeds" and rng.random() < 0.15 else act
            for act in step.args["acts"]
        ]
        steps.append(step.model_copy(update={"args": {**step.args, "acts": acts}}))
    return plan.model_copy(update={"steps": tuple(steps)})


def _maybe(rng: random.Random, chance: float, least: int, most: int) -> int | None:
    return rng.randint(least, most) if rng.random() < chance else None


def make_step(rng: random.Random, id_: str, needs: Sequence[Definition], *, is_calm: bool) -> Definition:
    """Make a step called *id_* that waits for *needs*, and uses what some of them give."""
    tool = rng.choices(("pure_act", "safe_act", "deed"), (6, 2, 2))[0]
    step: Definition = {"id": id_, "tool": tool, "depends_on": [need["id"] for need in needs]}
    args: dict[str, Any] = {"acts": _make_acts(rng, step)}
    fed = [need for need in needs if rng.random() < 0.4]
    if fed:
        args["feed"] = [_refer(need, f"{id_} {args['acts']}") for need in fed]
    step["args"] = args
    single = [need["id"] for need in needs if "for_each" not in need]
    if single and rng.random() < 0.2:
        step["when"] = {"ref": f"{rng.choice(single)}.value", "op": ">", "value": rng.randint(0, 5)}
    if rng.random() < 0.2:
        step["for_each"] = f"${{{rng.choice(single)}.rows}}" if single else list(range(rng.randint(0, 3)))
        step["max_parallel"] = rng.choice((None, 1, 2))
        args["item"] = "${item}"
    elif rng.random() < 0.1:
        step["success"] = {"ref": f"{id_}.value", "op": "<", "value": 7}
    if rng.random() < 0.5:
        step["on_failure"] = rng.choice(("replan", "skip", "default") + (() if is_calm else ("stop",)))
        if step["on_failure"] == "default":
            step["default"] = {"value": 9, "rows": [0, 1], "trail": "none"}
    if rng.random() < 0.3:
        step["retry"] = {"max_attempts": rng.randint(1, 4), "first_delay": rng.choice((0.0, 0.5, 2.0))}
    if not is_calm and rng.random() < 0.15:
        step["deadline"] = rng.randint(1, 8) * GRID + OFF_GRID
    step["optional"] = rng.random() < 0.2
    step["pool"] = rng.choice((None, "a", "b"))
    step["estimate"] = rng.choice((None, 0.5, 3.0))
    return step


def _refer(need: Definition, seed: str) -> Any:
    """Refer to what *need* gives, in one of the ways that there are."""
    id_ = need["id"]
    if "for_each" in need:
        return f"${{{id_}}}"
    ways = (f"${{{id_}}}", f"${{{id_}.trail}}", f"{id_} gave ${{{id_}.value}}", {"$step": id_, "path": "value"})
    return random.Random(f"{id_} {seed}").choice(ways)


def _make_acts(rng: random.Random, step: Definition) -> list[Act]:
    """Acts for some attempts; *step* gets the time limit that they need to ever end."""
    odd = rng.random()
    if odd < 0.03:
        return [_make_act(rng, "cancels itself")]  # every attempt: how many there are is open
    if odd < 0.06:
        return [_make_act(rng, "leaves a scope open")]
    acts = [_make_act(rng, rng.choices(_DOES, _WEIGHTS)[0]) for _ in range(rng.randint(1, 3))]
    if odd < 0.15:
        acts[rng.randrange(len(acts))] = _make_act(rng, rng.choice(_NEEDS_LIMIT))
    if any(act["does"] in _NEEDS_LIMIT for act in acts) or rng.random() < 0.15:
        step["timeout"] = rng.randint(1, 4) * GRID + OFF_GRID
    return acts


def _make_act(rng: random.Random, does: str) -> Act:
    return {"does": does, "seconds": rng.choice((0, 1, 1, 2, 3, 4)) * GRID, "gives": rng.randint(0, 9)}


def _make_policy(rng: random.Random, *, is_calm: bool) -> Policy:
    by_tool = {"pure_act": rng.randint(1, 3)} if rng.random() < 0.25 else {}
    pools = {"a": PoolLimits(max_running=rng.randint(1, 2))} if rng.random() < 0.25 else {}
    hurry = rng.randint(2, 20) * GRID + OFF_GRID if not is_calm and rng.random() < 0.2 else None
    return Policy(
        max_running=_maybe(rng, 0.4, 1, 4),
        max_running_by_tool=by_tool,
        pools=pools,
        max_seconds=hurry,
        grace=GRACE,
    )


def _make_trouble(
    rng: random.Random, ids: list[str]
) -> tuple[tuple[tuple[float, str | None], ...], tuple[tuple[int, str | None], ...]]:
    cancels: list[tuple[float, str | None]] = [
        (rng.choice((0, 1, 2, 3, 5, 8)) * GRID, rng.choice(ids)) for _ in range(rng.randint(0, 2))
    ]
    if rng.random() < 0.3:
        cancels.append((rng.randint(0, 16) * GRID, rng.choice((None, "around"))))
    at = [(rng.randint(1, 25), rng.choice((None, *ids * 2))) for _ in range(rng.randint(0, 2))]
    return tuple(sorted(cancels, key=lambda cancel: cancel[0])), tuple(at)
