"""Random runs whose calls get lost, and a planner that hides it: a run that holds a doubt ends as `unknown`.

The rules of the oracle, from the log of the tools alone:

1. A call is in doubt that was entered, and neither returned nor was refused. The same call (by its key) that returns
   settles it, and so does a person or its tool, who know.
2. A run that has ended and holds a doubt is `unknown`, and so is the step that made the call.
3. Nothing that is not idempotent is entered with a key of which a call has returned, or is in doubt.
4. No retry begins as long as there is a doubt.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import anyio

import dagrun
from dagrun import (
    Add,
    Answer,
    Asked,
    Drop,
    Event,
    FallbackChain,
    MemoryJournal,
    Patch,
    Plan,
    PlanRefused,
    Policy,
    Question,
    Replace,
    RetryRule,
    Rewire,
    Run,
    State,
    Status,
    Step,
)
from dagrun.errors import AnswerRefused, CannotResume, ContractError, QuestionNotFound, SpliceRefused
from dagrun.events import RunEnded
from dagrun.testing import run_virtual
from doubt_world import EFFECTS, ONCE, TOOLS, WORLD, Call, World
from random_cases import Definition
from simulation import replaced, simulate

WAYS: Final = ("host", "streamed", "repaired", "ensemble", "ladder")
SEQUELS: Final = ("", "resumed", "resumed", "retried")
FOR_EVER: Final = 10_000.0  # virtual seconds


@dataclass
class DoubtReport:
    """What came of a case: what was wrong, and what was met."""

    broken: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)


class Hides:
    """A planner that repairs what it is asked about in a random way; most of them hide a doubt.

    Args:
        rng: Decides.
        steps: The first plan, for whom the planner writes it.
        is_broken: Whether it is refused at first.
    """

    def __init__(self, rng: random.Random, steps: list[Definition], *, is_broken: bool) -> None:
        self._rng = rng
        self._steps = steps
        self._broken = is_broken
        self._count = 0

    def revise(self, brief: dagrun.Brief) -> Any:
        """Answer *brief*."""
        if not brief.is_first:
            return self._change(brief)
        is_broken, self._broken = self._broken, False
        return self._write(is_broken=is_broken)

    async def _write(self, *, is_broken: bool) -> AsyncIterator[Any]:
        for step in self._steps:
            yield Add(step=Step.model_validate(step))
            await anyio.sleep(0.05)
        if is_broken:
            yield Add(step=Step(id="broken", tool="no_such_tool"))
        yield Patch(edits=(), confidence=0.9)

    async def _change(self, brief: dagrun.Brief) -> Patch | Plan | None:
        await anyio.sleep(self._rng.choice((0.1, 0.4, 2.0)))
        plan = {id_: view.step.model_dump(mode="json", exclude_unset=True) for id_, view in brief.steps.items()}
        acts = [id_ for id_, step in plan.items() if _has_effect(step)]
        about = [t.step for t in brief.triggers if t.step]
        others = self._rng.sample(acts, min(len(acts), self._rng.choice((0, 0, 1))))
        if self._rng.random() < 0.2:
            return self._without(plan, set(about + others))
        edits = [edit for id_ in dict.fromkeys(about + others) for edit in self._edits(id_, plan.get(id_))]
        return Patch(edits=edits, reason="all is well") if edits else None

    def _without(self, plan: dict[str, Definition], gone: set[str]) -> Plan | None:
        """The whole plan, with constants for steps or without them."""
        new = [step if id_ not in gone else self._constant(id_) for id_, step in plan.items() if "[" not in id_]
        return Plan(steps=[Step.model_validate(step) for step in new]) if new else None

    def _edits(self, id_: str, step: Definition | None) -> Iterator[Any]:
        self._count += 1
        new, cancel = f"x{self._count}", self._rng.random() < 0.5
        same = {**(step or {"tool": "const", "args": {"text": "z"}}), "id": new}
        match self._rng.choice(("constant", "same", "lenient", "drop", "again", "rewire", "leave")):
            case "constant":
                yield Replace(id=id_, step=Step.model_validate(self._constant(new)), cancel=cancel)
            case "same":
                yield Replace(id=id_, step=Step.model_validate(same), cancel=cancel)
            case "lenient":
                lenient = same | {"on_failure": "default", "default": {"text": "fine"}}
                lenient |= {"default": []} if same.get("for_each") else {}
                yield Replace(id=id_, step=Step.model_validate(lenient), cancel=cancel)
            case "drop":
                yield Drop(id=id_, cancel=cancel)
            case "again":
                yield Drop(id=id_, cancel=cancel)
                yield Add(step=Step.model_validate(same))
            case "rewire":
                yield Rewire(id=id_, depends_on=[])

    @staticmethod
    def _constant(id_: str) -> Definition:
        return {"id": id_, "tool": "const", "args": {"text": "paid"}}


def _has_effect(step: Definition) -> bool:
    return step["tool"] in (*EFFECTS, "agent") or step.get("fallback") in EFFECTS


def _make_steps(rng: random.Random) -> list[Definition]:
    steps: list[Definition] = [{"id": "boom", "tool": "look", "args": {"to": "x"}}]
    for number in range(rng.randint(1, 4)):
        name = rng.choice(EFFECTS)
        step: Definition = {"id": f"s{number}", "tool": name, "args": {"to": "ann"}}
        match rng.choice(("plain", "plain", "list", "fallback", "agent")):
            case "list":
                step |= _over([each["id"] for each in steps if "for_each" in each], rng)
            case "fallback":
                step |= {"tool": "look", "fallback": name}
            case "agent":
                step |= {"tool": "agent", "args": {"task": f"{rng.choice(('pay', 'put'))} ann"}}
        if number and rng.random() < 0.3:
            step["depends_on"] = [f"s{number - 1}"]
        if (wish := rng.choice((None, None, None, "skip", "default", "stop", "replan"))) is not None:
            step["on_failure"] = wish
            if wish == "default":
                step["default"] = [] if "for_each" in step else {"text": "fine"}
        if rng.random() < 0.5:
            step["timeout"] = rng.choice((0.35, 2.0, 8.0))
        if rng.random() < 0.4:
            step["retry"] = {"max_attempts": rng.randint(1, 3), "first_delay": 0.5}
        step["optional"] = rng.random() < 0.2
        steps.append(step)
    return steps


def _over(lists: list[str], rng: random.Random) -> Definition:
    if lists and rng.random() < 0.7:  # element by element
        return {"for_each": f"${{{rng.choice(lists)}}}", "args": {"to": "${item.text}"}}
    return {"for_each": ["ann", "bob"], "args": {"to": "${item}"}}


class _Play:
    """Plays one case.

    Args:
        seed: Of the case.
        report: Is filled in.
    """

    def __init__(self, seed: int, report: DoubtReport) -> None:
        self.rng = rng = random.Random(f"doubts {seed}")
        self.report = report
        self.world = World(random.Random(f"world {seed}"))
        self.steps = _make_steps(rng)
        self.way, self.sequel = rng.choice(WAYS), rng.choice(SEQUELS)
        self.journal = MemoryJournal() if self.sequel else None
        self.planner: Any = Hides(rng, self.steps, is_broken=self.way == "repaired") if rng.random() < 0.8 else None
        if self.way != "host":
            self.planner = self.planner or Hides(rng, self.steps, is_broken=self.way == "repaired")
        if self.way in ("ensemble", "ladder"):
            broken = (False,) if self.way == "ensemble" else (True, False)
            self.planner = FallbackChain(self.planner, *(Hides(rng, self.steps, is_broken=each) for each in broken))
        self.people = [rng.choice(("nobody", "nobody", "knows", "silent")) for _ in range(3)]
        self.seed = seed
        self.has_ended = False

    async def whole(self) -> None:
        """Play it, sequel and all."""
        WORLD.set(self.world)
        policy = Policy(
            retry=RetryRule(max_attempts=self.rng.choice((1, 2)), first_delay=0.5),
            max_replans=4,
            grace=0.5,
            last_resort=self.rng.choice(("skip", "skip", "skip", "escalate")),
        )
        facts: dict[str, Any] = {"policy": policy, "run_id": "run", "seed": self.seed}
        facts |= {"goal": "pay"} if self.way != "host" else {}
        plan = Plan(steps=[Step.model_validate(step) for step in self.steps]) if self.way == "host" else None
        with anyio.fail_after(FOR_EVER):
            await self._life(lambda more: dagrun.start(plan, **facts, **more), 0)
            for number in (1, 2):
                if self.sequel and (number == 1 or self.sequel == "resumed"):
                    await self._again(number)

    async def _again(self, number: int) -> None:
        begin = dagrun.resume if self.sequel == "resumed" else dagrun.retry
        more: dict[str, Any] = {} if self.sequel == "resumed" else {"new_id": "again", "seed": self.seed}
        doubts = self.doubts()
        try:
            await self._life(lambda facts: begin("run", **more, **facts), number)
        except (CannotResume, PlanRefused):  # a plan may have lost what a skipped step of it depends on
            self.report.counts[f"not {self.sequel}"] += 1
            return
        self.report.counts[self.sequel] += 1
        if doubts and self.sequel == "retried":
            self.report.broken.append(f"retried, and nobody knows of {doubts[0]}")

    async def _life(self, begin: Callable[[dict[str, Any]], Any], number: int) -> None:
        people, self.has_ended = self.people[number], False
        facts: dict[str, Any] = {
            "tools": TOOLS,
            "planner": self.planner,
            "journal": self.journal,
            "on_event": self._see,
            "approver": self._person if people == "knows" else self._silent if people == "silent" else None,
        }
        async with begin(facts) as run, anyio.create_task_group() as tasks:
            tasks.start_soon(self._host, run)
            result = await run.result()
            tasks.cancel_scope.cancel()
        self.report.counts[f"ended {result.status}"] += 1
        states = {id_: str(step.state) for id_, step in result.steps.items()}
        self.report.story.append(f"{result.status}: {states}")
        if self.has_ended:
            self._judge(result)

    def _see(self, event: Event) -> None:
        self.has_ended = isinstance(event, RunEnded)

    async def _silent(self, question: Question) -> None:
        await anyio.sleep(0.5)

    async def _person(self, question: Question) -> Answer:
        await anyio.sleep(self.rng.choice((0.1, 1.0)))
        if question.kind is not Asked.EFFECT:
            return Answer("approve")
        last = next(call for call in reversed(self.world.calls) if call.step == question.step)
        self.world.told.append((self.world.tick(), question.step, ""))
        return Answer("took_effect", {"text": "seen"}) if last.is_applied else Answer("did_not")

    async def _host(self, run: Run) -> None:
        for _ in range(self.rng.choice((0, 0, 1, 2))):
            await anyio.sleep(self.rng.choice((0.2, 0.6, 1.3, 4.0)))
            step = f"s{self.rng.randrange(4)}"
            if step not in run.states or run.has_ended:
                continue
            try:
                match self.rng.choice(("step", "drop", "run", "suspend")):
                    case "step":
                        run.cancel(step)
                    case "drop":
                        await run.splice(Patch(edits=[Drop(id=step, cancel=True)]))
                    case "run" if self.rng.random() < 0.5:
                        run.cancel()
                    case "suspend" if self.journal is not None:
                        run.suspend()
            except (SpliceRefused, ContractError, QuestionNotFound, AnswerRefused):
                continue

    # The oracle -------------------------------------------------------------------------------------------

    def doubts(self) -> list[Call]:
        """The calls of which nobody knows (rule 1)."""
        return [call for call in self.world.calls if not call.end and not self._is_settled(call)]

    def _is_settled(self, call: Call) -> bool:
        told = any(seq > call.seq and (step == call.step or key == call.key) for seq, step, key in self.world.told)
        is_repeated = call.tool == "put" and any(
            other.end == "returned" and other.key == call.key and other.ended > call.seq for other in self.world.calls
        )
        return told or is_repeated

    def _judge(self, result: dagrun.RunResult) -> None:
        doubts = self.doubts()
        self.report.counts["doubts"] += bool(doubts)
        if doubts and result.status is not Status.UNKNOWN:
            self.report.broken.append(f"the run has ended as {result.status}, and nobody knows of {doubts[0]}")
        for call in doubts:
            step = result.steps.get(call.step)
            self.report.counts["doubts about what has left the plan"] += step is not None and step.is_gone
            if step is None or step.state is not State.UNKNOWN:
                state = None if step is None else step.state
                self.report.broken.append(f"{call.step} is {state}, and nobody knows of {call}")

    def judge_calls(self) -> None:
        """Look at what was called twice (rule 3)."""
        for place, call in enumerate(self.world.calls):
            for before in self.world.calls[:place]:
                if call.tool in ONCE and before.key == call.key and before.end != "refused":
                    self.report.broken.append(f"{call} was entered, and before it {before}")


def run_doubts(seed: int, parts: Mapping[Any, Any] | None = None) -> DoubtReport:
    """Play the case of *seed*, with some parts of the engine replaced."""
    report = DoubtReport()
    play = _Play(seed, report)
    try:
        with replaced(parts or {}):
            if seed % 2:
                simulate(play.whole, seed)
            else:
                run_virtual(play.whole)
    except BaseException as error:  # noqa: BLE001  (whatever a broken engine may let out)
        report.broken.append(f"the run ended with {error!r}")
    play.judge_calls()
    report.counts[play.way] += 1
    report.counts["calls"] += len(play.world.calls)
    for call in play.world.calls:
        report.counts["in a list"] += "[" in call.step
        report.counts["repeated in doubt"] += any(o.key == call.key and o.seq < call.seq for o in play.world.calls)
    inside = {step["id"]: step for step in play.steps}
    following = {step["id"] for step in play.steps if isinstance(step.get("for_each"), str)}
    report.counts["element by element"] += sum(call.step.split("[")[0] in following for call in play.world.calls)
    report.counts["by an agent"] += sum(inside.get(c.step, {}).get("tool") == "agent" for c in play.world.calls)
    report.counts["as a fallback"] += sum("fallback" in inside.get(c.step, {}) for c in play.world.calls)
    report.counts["told"] += len(play.world.told)
    report.story += [f"{play.way}, {play.sequel}, {play.people}", *map(str, play.steps), *map(str, play.world.calls)]
    return report
