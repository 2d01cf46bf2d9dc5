"""What the host of a case does to a run: it changes the plan or the goal, cancels, or takes it up again.

And what its people say: they are asked, or write letters. A letter to a question that was left open is there when the
run is taken up again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import anyio
from anyio.abc import TaskGroup
from pydantic import ValidationError

from dagrun.api.engine import Engine
from dagrun.api.options import ResumeOptions
from dagrun.errors import (
    AnswerRefused,
    CasesRefused,
    ContractError,
    QuestionNotFound,
    SpliceRefused,
    StepNotFound,
    shorten,
)
from dagrun.evaluate.cases.case_file import FOREVER, HostDeed, PersonReply
from dagrun.journal.memory import MemoryJournal
from dagrun.model.event import AttemptEnded, Event, QuestionAsked, Reviewed, StepSettled
from dagrun.model.journal import Journal
from dagrun.model.outcome import Status
from dagrun.model.patch import Patch
from dagrun.model.question import Answer, AnswerMessage, Question
from dagrun.model.signature import explain
from dagrun.runtime.result import RunResult
from dagrun.runtime.run import Run

_ENDS = (AttemptEnded, Reviewed, StepSettled)


def patches_of(deeds: Sequence[HostDeed]) -> list[Patch | None]:
    """Return the patch of each deed that is one.

    Raises:
        CasesRefused: One cannot be read.
    """
    try:
        return [None if deed.splice is None else Patch.model_validate(deed.splice) for deed in deeds]
    except ValidationError as error:
        raise CasesRefused([f"host: splice: {explain(error)}"]) from None


async def run_with_host(
    plan: Any,
    deeds: Sequence[HostDeed],
    strange: list[str],
    on_event: Callable[[Event], None],
    engine: Engine,
    *,
    letters: CasePeople | None = None,
    **options: Any,
) -> RunResult:
    """Carry out a plan while its host is busy.

    Args:
        plan: The plan; `None` if a planner writes it.
        deeds: What the host does.
        strange: Is told of each deed that the run has refused, in a sentence.
        on_event: Is told each event.
        engine: Begins the run, and takes it up again.
        letters: Who writes letters to the run; `None` if people are asked.
        options: Options of the run.

    Raises:
        PlanRefused: The plan has problems.
    """
    first, *later = _by_resume(list(zip(deeds, patches_of(deeds), strict=True)))
    if (later or letters is not None) and options.get("journal") is None:
        options["journal"] = MemoryJournal()  # in which letters can lie
    host = _Host(strange, on_event, letters)
    async with engine.start(plan, on_event=host.see, **options) as run:
        result = await host.attend(run, first)
        pending = run.pending
    known = {name: option for name, option in options.items() if name in ResumeOptions.__annotations__}
    for deed, todo in zip((deed for deed in deeds if deed.resume), later, strict=True):
        if result.status not in (Status.UNKNOWN, Status.WAITING):
            strange.append(f"the host cannot resume the run, as it did: it has ended as {result.status}")
            break
        asked: dict[str, Any] = {}
        host = _Host(strange, on_event, None if deed.attended else letters)  # a step that is opened again has not ended
        if letters is not None and deed.attended:
            asked = {"approver": letters.answer}
        elif letters is not None:
            await host.write(options["journal"], result.run_id, pending, letters)
        async with engine.resume(result.run_id, on_event=host.see, **known, **asked) as run:
            result = await host.attend(run, todo)
            pending = run.pending
    return result


class CasePeople:
    """The people of a case: they answer by step, then by tool, by kind of question, and by ``*``.

    Args:
        replies: What they answer, in order; the last goes on.
    """

    def __init__(self, replies: Mapping[str, Sequence[PersonReply]]) -> None:
        self._replies = replies
        self._given: Counter[tuple[str, str]] = Counter()

    def reply(self, question: Question) -> PersonReply | None:
        """Return the next reply to a question."""
        step = question.step.partition("[")[0]
        names = (question.step, step, question.tool, str(question.kind), "*")
        name = next((name for name in names if name in self._replies), None)
        fitting = [one for one in self._replies.get(name or "", ()) if one.kind in (None, question.kind)]
        if name is None or not fitting:
            return None
        use = (name, str(question.kind))
        number = self._given[use]
        self._given[use] += 1
        return fitting[min(number, len(fitting) - 1)]

    async def answer(self, question: Question) -> Answer | None:
        """Answer a question; see `Approver`."""
        reply = self.reply(question)
        return None if reply is None else await _said(reply, question)


async def _said(reply: PersonReply, question: Question) -> Answer | None:
    if reply.takes == FOREVER:
        await anyio.sleep_forever()
    await anyio.sleep(float(reply.takes))
    if reply.choice == "nobody":
        return None
    return Answer(reply.choice, reply.value, "the people of the case", reply.note, question.checklist)


_Deed: TypeAlias = tuple[HostDeed, Patch | None]


def _by_resume(todo: Sequence[_Deed]) -> list[list[_Deed]]:
    """Return the deeds until the run is resumed, then those until it is resumed again, and so on."""
    parts: list[list[_Deed]] = [[]]
    for one in todo:
        if one[0].resume:
            parts.append([])
        else:
            parts[-1].append(one)
    return parts


class _Host:
    """Does to a run what it has to, one deed after the other.

    Args:
        strange: Is told of each deed that the run has refused.
        on_event: Is told each event.
        letters: Who writes letters to the run while it goes on, or nobody.
    """

    def __init__(self, strange: list[str], on_event: Callable[[Event], None], letters: CasePeople | None) -> None:
        self._strange = strange
        self._on_event = on_event
        self._letters = letters
        self._asked: list[tuple[Question, PersonReply]] = []  # to which a letter is on its way
        self._is_asked = anyio.Event()
        self._ended: dict[str, anyio.Event] = defaultdict(anyio.Event)  # by step

    def see(self, event: Event) -> None:
        """Pass an event on, and note whether a step has ended."""
        self._on_event(event)
        if isinstance(event, _ENDS) and event.state.is_settled:
            self._ended[event.step].set()
        if isinstance(event, QuestionAsked) and self._letters is not None:
            self._send_later(event.question, self._letters.reply(event.question))

    def _send_later(self, question: Question, reply: PersonReply | None) -> None:
        if reply is not None:
            self._asked.append((question, reply))
            self._is_asked.set()

    async def write(self, journal: Journal, run_id: str, questions: Sequence[Question], letters: CasePeople) -> None:
        """Answer questions while nobody holds their run, or somewhat later."""
        key = await journal.answer_key(run_id)
        for question in questions:
            reply = letters.reply(question)
            if reply is None or reply.takes:
                self._send_later(question, reply)
            elif (answer := await _said(reply, question)) is not None:
                await journal.post(run_id, AnswerMessage.of(question.id, answer, key).model_dump_json().encode())

    async def attend(self, run: Run, todo: Sequence[_Deed]) -> RunResult:
        """Do the deeds while the run goes on; return its result."""
        left = list(todo)
        while left and not (left[0][0].after or left[0][0].takes):
            await self._do(run, *left.pop(0))  # before anything has begun
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._act, run, left)
            if self._letters is not None:
                tasks.start_soon(self._deliver, run, tasks)
            result = await run.result()
            tasks.cancel_scope.cancel()
        return result

    async def _deliver(self, run: Run, tasks: TaskGroup) -> None:
        """Send each letter on its way."""
        while True:
            await self._is_asked.wait()
            self._is_asked = anyio.Event()
            while self._asked:
                tasks.start_soon(self._send, run, *self._asked.pop(0))

    async def _send(self, run: Run, question: Question, reply: PersonReply) -> None:
        answer = await _said(reply, question)
        if answer is None:
            return
        try:
            await run.answer(question, answer)
        except QuestionNotFound:
            pass  # nobody needs to know any more
        except (AnswerRefused, ContractError) as error:
            self._strange.append(f"a person cannot answer as they did: {shorten(str(error))}")

    async def _act(self, run: Run, todo: Sequence[_Deed]) -> None:
        for deed, patch in todo:
            if deed.after:
                await self._ended[deed.after].wait()
            await anyio.sleep(deed.takes)
            await self._do(run, deed, patch)

    async def _do(self, run: Run, deed: HostDeed, patch: Patch | None) -> None:
        try:
            if patch is not None:
                await run.splice(patch)
            elif deed.goal is not None:
                await run.change_goal(deed.goal)
            else:
                run.cancel(None if deed.cancel == "*" else deed.cancel, deed.reason)
        except (SpliceRefused, ContractError, StepNotFound) as error:
            self._strange.append(f"the host cannot do what it did: {shorten(str(error))}")
