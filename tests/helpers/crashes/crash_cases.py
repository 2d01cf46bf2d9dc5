"""Random runs for crashes: plans full of trouble, and what a host, a planner and people do to them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import anyio

from crash_world import LIFE, Act, World
from dagrun import (
    Add,
    Answer,
    ApprovalRule,
    Asked,
    Brief,
    Drop,
    Patch,
    Plan,
    PlanningRule,
    Policy,
    PoolLimits,
    Question,
    QuestionRule,
    Replace,
    Step,
    TriggerKind,
    Verdict,
)
from dagrun.kernel.model.outcome import Outcome

People = Literal["approver", "attended", "letters", "nobody"]
Definition = dict[str, Any]

GRID: Final = 1.0
OFF_GRID: Final = 0.37  # limits never end at the instant at which a call does

_DOES: Final = ("succeeds", "is busy", "loses the line", "refuses", "breaks", "is forbidden", "surprises", "asks")
_WEIGHTS: Final = (50, 8, 8, 6, 6, 3, 3, 4)
_RARE: Final = ("is unreachable", "needs a note", "hangs")


@dataclass(frozen=True)
class Case:
    """A run, and all that happens to it.

    Attributes:
        seed: That it was made of.
        plan: What is run; what its planner writes, if it is `drafted`.
        policy: Its limits.
        people: Who answers.
        has_planner: Whether there is one.
        has_critics: Whether somebody looks at outputs.
        drafted: How the planner gives the plan, if it has to: bit by bit, badly at first, or whole.
        host: What the host does: when (in seconds since the process has begun), what, and to which step.
        latency: Seconds until a record is durable; 0 for at once.
        is_calm: Whether a crash that no effect was in flight at must change nothing of what the run gives.
    """

    seed: int
    plan: Plan
    policy: Policy
    people: People = "approver"
    has_planner: bool = False
    has_critics: bool = False
    drafted: str = ""
    host: tuple[tuple[float, str, str], ...] = ()
    latency: float = 0.0
    is_calm: bool = False
    steps: tuple[str, ...] = field(default=())

    @property
    def people_answer_later(self) -> bool:
        """Whether people answer only when the run has been suspended for them."""
        return self.people in ("letters", "nobody")


def make_case(seed: int) -> Case:
    """Make the case of *seed*."""
    rng = random.Random(f"crash {seed}")
    is_calm = rng.random() < 0.35
    count = rng.randint(2, 7)
    steps: list[Definition] = []
    for index in range(count):
        needs = rng.sample(steps, min(len(steps), rng.choice((0, 1, 1, 2))))
        steps.append(_make_step(rng, f"s{index}", needs, is_calm=is_calm))
    plan = Plan(steps=[Step.model_validate(step) for step in steps], goal="find it out" if rng.random() < 0.3 else "")
    has_planner = rng.random() < 0.6
    drafted = rng.choice(("stream", "stream", "whole", "bad")) if has_planner and rng.random() < 0.3 else ""
    people: People = rng.choice(("approver", "approver", "attended", "letters", "nobody"))
    host = () if is_calm else _make_host(rng, [step["id"] for step in steps], has_planner=has_planner)
    return Case(
        seed,
        plan,
        _make_policy(rng, is_calm=is_calm),
        people,
        has_planner,
        rng.random() < 0.25,
        drafted,
        host,
        0.0 if rng.random() < 0.6 else 0.05,
        is_calm,
        tuple(step["id"] for step in steps),
    )


def _make_step(rng: random.Random, id_: str, needs: list[Definition], *, is_calm: bool) -> Definition:
    tool = rng.choices(("look", "scan", "put", "deed", "deal"), (5, 1, 3, 2, 2))[0]
    step: Definition = {"id": id_, "tool": tool, "depends_on": [need["id"] for need in needs]}
    args: Definition = {"acts": _make_acts(rng, step, is_calm=is_calm), "who": id_}
    if fed := [need for need in needs if rng.random() < 0.5]:
        args["feed"] = [f"${{{need['id']}}}" for need in fed]
    step["args"] = args
    single = [need["id"] for need in needs if "for_each" not in need]
    if single and rng.random() < 0.15:
        step["when"] = {"ref": f"{rng.choice(single)}.value", "op": ">", "value": rng.randint(0, 5)}
    if rng.random() < 0.25:
        step["for_each"] = f"${{{rng.choice(single)}.rows}}" if single else list(range(rng.randint(0, 3)))
        step["max_parallel"] = rng.choice((None, 1, 2))
        args["item"] = "${item}"
    elif rng.random() < 0.1:
        step["success"] = {"ref": f"{id_}.value", "op": "<", "value": 7}
    if rng.random() < 0.5:
        step["on_failure"] = rng.choice(("replan", "skip", "default", "default") + (() if is_calm else ("stop",)))
        if step["on_failure"] == "default":
            step["default"] = {"value": 9, "rows": [0, 1], "trail": "none"}
    if rng.random() < 0.35:
        step["retry"] = {"max_attempts": rng.randint(1, 3), "first_delay": rng.choice((0.0, 0.5, 2.0))}
    if rng.random() < 0.12:
        step["pause"] = rng.choice(("before", "after"))
    if not is_calm and rng.random() < 0.1:
        step["deadline"] = rng.randint(2, 9) * GRID + OFF_GRID
    step["optional"] = rng.random() < 0.15
    step["pool"] = rng.choice((None, "a"))
    _go_by_element(step, [need for need in needs if "for_each" in need])
    return step


def _go_by_element(step: Definition, fans: list[Definition]) -> None:
    """Let some of the steps after a for_each go through its elements, or need one of them.

    With draws of their own, so that all other cases stay as they were.
    """
    rng = random.Random(f"by element {step}")
    fed = step["args"].get("feed", ())
    # The rules tell calls apart by who makes them, so the elements have to differ.
    fans = [fan for fan in fans if fan["tool"] in ("look", "scan") and fan.get("on_failure") != "default"]
    fans = [fan for fan in fans if f"${{{fan['id']}}}" not in fed]
    if fans and rng.random() < 0.7:
        step["for_each"], step["args"]["who"] = f"${{{rng.choice(fans)['id']}}}", f"{step['id']} ${{item.trail}}"
        step["args"].pop("item", None)
        step.pop("success", None)
        if rng.random() < 0.3:
            step["when"] = {"ref": "item.value", "op": ">", "value": 3}
    elif fans and rng.random() < 0.5 and "for_each" not in step:
        step["args"]["feed"] = [*fed, f"${{{rng.choice(fans)['id']}[{rng.randint(0, 1)}]}}"]


def _make_acts(rng: random.Random, step: Definition, *, is_calm: bool) -> list[Act]:
    acts = [_make_act(rng, rng.choices(_DOES, _WEIGHTS)[0]) for _ in range(rng.randint(1, 3))]
    if rng.random() < 0.12:
        acts[rng.randrange(len(acts))] = _make_act(rng, rng.choice(_RARE[:2] if is_calm else _RARE))
    if any(act["does"] == "hangs" for act in acts) or (not is_calm and rng.random() < 0.1):
        step["timeout"] = rng.randint(1, 3) * GRID + OFF_GRID
    return acts


def _make_act(rng: random.Random, does: str) -> Act:
    return {"does": does, "seconds": rng.choice((0, 0, 1, 1, 2, 3)) * GRID, "gives": rng.randint(0, 9)}


def _make_policy(rng: random.Random, *, is_calm: bool) -> Policy:
    tight = not is_calm and rng.random() < 0.4

    def maybe(chance: float, least: int, most: int) -> int | None:
        return rng.randint(least, most) if rng.random() < chance else None

    asked = [name for name in ("put", "deed", "deal") if rng.random() < 0.25]
    return Policy(
        max_running=maybe(0.4, 1, 3),
        pools={"a": PoolLimits(max_running=1)} if rng.random() < 0.2 else {},
        max_attempts=maybe(0.5, 3, 12) if tight else None,
        max_calls_by_tool={"put": rng.randint(1, 3)} if tight and rng.random() < 0.4 else {},
        max_tokens=maybe(0.6, 20, 90) if tight else None,
        max_seconds=rng.randint(3, 15) * GRID + OFF_GRID if tight and rng.random() < 0.2 else None,
        warn_at=0.7 if tight and rng.random() < 0.3 else None,
        max_replans=rng.choice((1, 3, 5)) if not is_calm else 9,
        planning=PlanningRule(max_calls=maybe(0.3, 1, 4) if tight else None),
        approve=tuple(ApprovalRule(tool=name) for name in asked),
        approve_patches=rng.choice(("never", "never", "effects", "always")),
        approve_output=rng.random() < 0.15,
        questions=QuestionRule(
            answer_within=None if is_calm or rng.random() < 0.8 else 4 * GRID + OFF_GRID,
            max_pending=rng.choice((1, 100, 100)),
        ),
        last_resort="escalate" if not is_calm and rng.random() < 0.1 else "skip",
        grace=1.0,
    )


def _make_host(rng: random.Random, ids: list[str], *, has_planner: bool) -> tuple[tuple[float, str, str], ...]:
    kinds = ["add", "replace", "drop", "drop hard", "cancel", "cancel"] + ["goal"] * has_planner
    found = [
        (rng.choice((0, 1, 2, 2, 3, 5)) * GRID + 0.11 * n, rng.choice(kinds), rng.choice(ids))
        for n in range(rng.choice((0, 0, 1, 2, 3)))
    ]
    if rng.random() < 0.15:
        found.append((rng.randint(1, 8) * GRID + 0.41, rng.choice(("stop", "suspend")), ""))
    return tuple(found)


# Who is asked -------------------------------------------------------------------------------------------------------


def opinion(case: Case, *about: Any) -> random.Random:
    """What somebody thinks about the same thing is always the same."""
    return random.Random(f"{case.seed} {about}")


def answer_to(case: Case, question: Question, world: World) -> Answer:
    """What a person says, who tells the truth about the world."""
    if question.kind in (Asked.EFFECT, Asked.PERMISSION) and world.count(question.step) > 8:
        return Answer("escalate", note="this goes on for ever")
    if question.kind is Asked.EFFECT:
        if world.is_applied(question.step, question.tool):
            return Answer("took_effect", {"value": 2, "rows": [0, 1], "trail": "seen"}, by="witness")
        return Answer("did_not", by="witness")
    rng = opinion(case, str(question.kind), question.step)
    if not case.is_calm and rng.random() < 0.03:
        return Answer("escalate")
    if question.kind is Asked.INPUT:
        return Answer("approve", "a note" if question.name else 7) if rng.random() < 0.8 else Answer("deny")
    return Answer("approve" if rng.random() < 0.75 else "deny")


class Approver:
    """Somebody who thinks for a while and answers."""

    def __init__(self, case: Case) -> None:
        self._case = case

    async def __call__(self, question: Question) -> Answer:
        await anyio.sleep(opinion(self._case, "pause", question.step).choice((0, 1, 2)) * GRID)
        return answer_to(self._case, question, LIFE.get().world)


class Critic:
    """Does not like the first thing that some steps give."""

    def __init__(self, case: Case) -> None:
        self.name = "critic"
        self._case = case

    def applies_to(self, step: Step) -> bool:
        return opinion(self._case, "critic", step.id).random() < 0.6

    async def review(self, step: Step, outcome: Outcome) -> Verdict:
        await anyio.sleep(GRID * 1.5)
        said = opinion(self._case, "review", step.id, str(outcome.output)).choice(
            ("pass", "pass", "pass", "fail", "surprising")
        )
        return Verdict(said)  # type: ignore[arg-type]


class CasePlanner:
    """Answers the same brief always in the same way."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def revise(self, brief: Brief) -> Any:
        LIFE.get().world.planner_calls += 1
        if brief.is_first and not brief.refused and self._case.drafted != "whole" and not brief.steps:
            return self._stream(brief)
        return self._revise(brief)

    async def _stream(self, brief: Brief) -> AsyncIterator[Add | Patch]:
        for step in self._case.plan.steps:
            await anyio.sleep(0.7)
            yield Add(step=step)
        if self._case.drafted == "bad":
            yield Add(step=Step(id="bad", tool="look", args={"who": "${nobody.there}", "acts": []}))
        yield Patch(edits=(), confidence=0.9)

    async def _revise(self, brief: Brief) -> Patch | Plan | None:
        await anyio.sleep(1.3)
        if brief.is_first:
            return self._case.plan.model_copy(update={"goal": brief.goal})
        rng = opinion(self._case, "planner", sorted(trigger.step for trigger in brief.triggers), len(brief.refused))
        if not brief.refused and rng.random() < 0.15:
            return Patch(edits=[Drop(id="nobody")])
        edits = [edit for trigger in brief.triggers if (edit := self._mend(trigger.step, trigger.kind, brief))]
        return Patch(edits=edits, reason="mend it") if edits else None

    def _mend(self, step: str, kind: TriggerKind, brief: Brief) -> Add | Drop | Replace | None:
        name = step.replace("[", "_").replace("]", "")
        rng = opinion(self._case, "mend", step)
        if kind is TriggerKind.GOAL_CHANGED:
            id_ = f"g{brief.revision}"
            return Add(step=small_step(id_))
        choice = rng.choice(("replace", "replace", "replace", "add", "leave"))
        if choice == "leave":
            return None
        if choice == "add" or kind is TriggerKind.SURPRISE:
            return Add(step=small_step(f"{name}_a"))
        if kind is TriggerKind.UNKNOWN_EFFECT:  # nothing but the very same call may follow
            return Add(step=small_step(f"{name}_u"))
        return Replace(id=step, step=small_step(f"{name}_x"))


def small_step(id_: str, *, tool: str = "look") -> Step:
    """A step that works."""
    return Step(id=id_, tool=tool, args={"acts": [{"does": "succeeds", "seconds": 1.0, "gives": 3}], "who": id_})
