"""Who plays a case of the guards: a planner that tries to get round people, the people, and the host."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import anyio

import dagrun
from dagrun import (
    Add,
    Brief,
    EnsemblePlanner,
    MemoryJournal,
    Patch,
    Plan,
    PlanRefused,
    Question,
    RunResult,
    Status,
    Step,
)
from dagrun import Asked as Kind
from dagrun.errors import CannotResume
from guard_attacks import ATTACKS, Aim, Sketch
from guard_cases import GuardCase, Message, Person, Says
from guard_targets import Target
from guard_world import ELSEWHERE, TOOLS, WORLD, Asked, Document, Elsewhere, World
from random_cases import Definition
from splice_book import as_json

FOR_EVER: Final = 10_000.0  # virtual seconds; no case needs a hundred
RUN: Final = "run"
AGAIN: Final = "again"
BROKEN: Final[Definition] = {"id": "broken", "tool": "no_such_tool", "args": {}}


class Asks:
    """Somebody who says what their script says, and has every question written down.

    Args:
        person: The script.
        world: The log.
        count: How often each kind of question was asked before.
    """

    def __init__(self, person: Person, world: World) -> None:
        self._person = person
        self._world = world
        self._count: Counter[str] = Counter()

    async def __call__(self, question: Question) -> bool | None:
        """Answer *question*."""
        asked = Asked(self._world.tick(), question)
        self._world.asked.append(asked)
        says = self._says(question.kind)
        self._count[question.kind] += 1
        said = says[min(self._count[question.kind], len(says)) - 1]
        await anyio.sleep(self._person.seconds)
        asked.said, asked.answered = said, self._world.tick()
        return said

    def _says(self, kind: Kind) -> Says:
        match kind:
            case Kind.APPROVAL | Kind.INPUT:
                return self._person.approval
            case Kind.PAUSE:
                return self._person.pause
            case Kind.PATCH:
                return self._person.patch
            case _:
                return (None,)


class Script:
    """What the planners of a case still have to say, and what they said.

    Args:
        case: The case.
        world: The log.
    """

    def __init__(self, case: GuardCase, world: World) -> None:
        self.case = case
        self.drafts = 0
        self.world = world
        self._left = list(case.messages)
        self._names = 0
        self._now: dict[int, str] = {}  # what the call of a target is called now, if the planner has replaced it

    def next_draft(self) -> tuple[Document, float | None]:
        """Begin to write the first plan, or to repair it; and say how sure the planner is of it."""
        sure = self.case.sureness[min(self.drafts, len(self.case.sureness) - 1)]
        document = Document(self.world.tick(), "repair" if self.drafts else "first", confidence=sure)
        self.drafts += 1
        self.world.documents.append(document)
        return document, sure

    def next_message(self, brief: Brief) -> tuple[Message, Sketch, Document] | None:
        """Write the next message that has anything to attack."""
        while self._left:
            message = self._left.pop(0)
            steps = {id_: as_json(view.step) for id_, view in brief.steps.items()}
            sketch = Sketch(steps, self._fresh, is_plan=message.form == "plan")
            tried = tuple(
                (name, number) for name, number in message.attacks if self._try(sketch, message, name, number)
            )
            if tried:
                document = Document(self.world.tick(), message.form, confidence=message.confidence, attacks=tried)
                self.world.documents.append(document)
                return message, sketch, document
        return None

    def _fresh(self) -> str:
        self._names += 1
        return f"x{self._names}"

    def _try(self, sketch: Sketch, message: Message, name: str, number: int) -> bool:
        target = self.case.targets[number]
        act = self._find(sketch, target)
        if act is None and (ATTACKS[name].is_after or name.startswith("other")):
            return False
        guards = tuple(id_ for guard in target.guards if (id_ := _known_as(sketch, guard)) is not None)
        shape = (target.shape, target.is_list) if message.is_shaped else ("plain", False)
        call = target.call(message.to, shape[0], is_list=shape[1])
        aim = Aim(target, act or "", guards, call, message.to, message.variant)
        done = ATTACKS[name].carry_out(sketch, aim)
        if act is not None and act in sketch.renamed:
            self._now[number] = sketch.renamed[act]
        return done

    def _find(self, sketch: Sketch, target: Target) -> str | None:
        own = self._now.get(target.number)
        return own if own is not None and own in sketch.steps else _known_as(sketch, target.act)


def _known_as(sketch: Sketch, id_: str) -> str | None:
    """What a step of the first plan is called now: a whole plan that changes it makes it another one."""
    if id_ in sketch.steps:
        return id_
    return next((known for known in sketch.steps if known.startswith(f"{id_}-r")), None)


class Hostile:
    """A planner that writes good plans, and whose changes get round people wherever they can.

    Args:
        script: What it says; planners of an ensemble share one.
    """

    def __init__(self, script: Script) -> None:
        self._script = script

    def revise(self, brief: Brief) -> Any:
        """Answer *brief*."""
        if brief.is_first:
            is_first = not self._script.drafts
            return self._stream_plan() if is_first else self._repair(brief)
        try:
            found = self._script.next_message(brief)
        except Exception as error:  # a run takes it for a planner that has failed
            self._script.world.fault = repr(error)
            raise
        if found is None:
            return _nothing()
        message, sketch, document = found
        return self._stream(message, sketch, document) if message.form == "stream" else _answer(*found)

    async def _stream_plan(self) -> AsyncIterator[Any]:
        case = self._script.case
        document, sure = self._script.next_draft()
        steps = [*case.definitions(), *([BROKEN] if case.origin == "repaired" else ())]
        for step in steps:
            document.steps[step["id"]] = step
            yield Add(step=Step.model_validate(step))
            await anyio.sleep(0.01)
        yield Patch(edits=(), confidence=sure)

    async def _repair(self, brief: Brief) -> Plan | Patch:
        case = self._script.case
        document, sure = self._script.next_draft()
        await anyio.sleep(0.1)
        if case.repair == "patch" and len(brief.steps) >= len(case.definitions()):
            step: Definition = {"id": "more", "tool": "const", "args": {"text": "more"}}
            document.steps["more"] = step
            return Patch(edits=[Add(step=Step.model_validate(step))], confidence=sure)
        document.steps.update({step["id"]: step for step in case.definitions()})
        return case.plan(confidence=sure)

    async def _stream(self, message: Message, sketch: Sketch, document: Document) -> AsyncIterator[Any]:
        _note(document, sketch.patch(confidence=message.confidence))
        for edit in sketch.edits:
            await anyio.sleep(message.seconds / 10)
            yield edit
        yield Patch(edits=(), confidence=message.confidence)


async def _nothing() -> None:
    await anyio.sleep(0.1)


async def _answer(message: Message, sketch: Sketch, document: Document) -> Plan | Patch:
    facts: dict[str, Any] = {"confidence": message.confidence}
    answer = sketch.plan(**facts) if message.form == "plan" else sketch.patch(**facts)
    _note(document, answer)
    await anyio.sleep(message.seconds)
    return answer


def _note(document: Document, answer: Plan | Patch) -> None:
    document.text = answer.model_dump(mode="json", by_alias=True, exclude_unset=True)


# The host -------------------------------------------------------------------------------------------------------------


async def play(case: GuardCase, world: World) -> list[Status]:
    """Run a case to its end, sequel and all; give how its runs ended."""
    WORLD.set(world)
    script = Script(case, world)
    planner: Any = Hostile(script)
    if case.origin == "ensemble":
        planner = EnsemblePlanner(Hostile(script), Hostile(script))
    journal = MemoryJournal() if case.sequel else None
    options: dict[str, Any] = {
        "tools": TOOLS,
        "planner": planner,
        "executors": {ELSEWHERE: Elsewhere()},
        "on_event": world.see,
        "journal": journal,
    }
    first: dict[str, Any] = {"goal": "pay"} if case.origin != "host" else {}
    plan = case.plan() if case.origin == "host" else None
    with anyio.move_on_after(FOR_EVER) as whole:
        asks = Asks(case.persons[0], world)
        async with dagrun.start(
            plan, policy=case.policy, approver=asks, run_id=RUN, seed=case.seed, **first, **options
        ) as run:
            result = await run.result()
        found = [result.status]
        if journal is not None:
            found += await _sequel(case, result, {**options, "approver": Asks(case.persons[1], world)})
    if whole.cancelled_caught:
        raise AssertionError("the run did not end")
    return found


async def _sequel(case: GuardCase, result: RunResult, options: Mapping[str, Any]) -> list[Status]:
    again: Any = dagrun.resume if case.sequel == "resumed" else dagrun.retry
    more: dict[str, Any] = {} if case.sequel == "resumed" else {"new_id": AGAIN, "seed": case.seed}
    try:
        async with again(RUN, **options, **more) as run:
            return [(await run.result()).status]
    except (CannotResume, PlanRefused):
        return []


def backend_of(seed: int) -> str:
    """The loop that a case runs on."""
    return random.Random(f"loop {seed}").choice(("asyncio", "trio"))
