"""What the host of a case does to a run: it changes the plan or the goal, cancels, or takes it up again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import anyio
from pydantic import ValidationError

from dagrun.api.engine import Engine
from dagrun.api.options import ResumeOptions
from dagrun.errors import CasesRefused, ContractError, SpliceRefused, StepNotFound, shorten
from dagrun.evaluate.cases.case_file import HostDeed
from dagrun.journal.memory import MemoryJournal
from dagrun.model.event import AttemptEnded, Event, Reviewed, StepSettled
from dagrun.model.journal import Journal
from dagrun.model.outcome import Status
from dagrun.model.patch import Patch
from dagrun.model.question import Answer, AnswerLetter, Approver, Question
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
    letters: Approver | None = None,
    **options: Any,
) -> RunResult:
    """Carry out a plan while its host is busy.

    Args:
        plan: The plan; `None` if a planner writes it.
        deeds: What the host does.
        strange: Is told of each deed that the run has refused, in a sentence.
        on_event: Is told each event.
        engine: Begins the run, and takes it up again.
        letters: Answers the questions that are open when the run waits and is resumed.
        options: Options of the run.

    Raises:
        PlanRefused: The plan has problems.
    """
    first, *later = _by_resume(list(zip(deeds, patches_of(deeds), strict=True)))
    if later and options.get("journal") is None:
        options["journal"] = MemoryJournal()  # in which letters can lie
    host = _Host(strange, on_event)
    async with engine.start(plan, on_event=host.see, **options) as run:
        result = await host.attend(run, first)
        pending = run.pending
    known = {name: option for name, option in options.items() if name in ResumeOptions.__annotations__}
    for deed, todo in zip((deed for deed in deeds if deed.resume), later, strict=True):
        if result.status not in (Status.UNKNOWN, Status.WAITING):
            strange.append(f"the host cannot resume the run, as it did: it has ended as {result.status}")
            break
        if letters is not None and not deed.attended:
            await _post(options["journal"], result.run_id, pending, letters)
        host = _Host(strange, on_event)  # a step that is opened again has not ended
        asked: dict[str, Any] = {"approver": letters} if letters is not None and deed.attended else {}
        async with engine.resume(result.run_id, on_event=host.see, **known, **asked) as run:
            result = await host.attend(run, todo)
            pending = run.pending
    return result


async def _post(journal: Journal, run_id: str, questions: Sequence[Question], letters: Approver) -> None:
    """Answer questions while nobody holds their run."""
    key = await journal.answer_key(run_id)
    for question in questions:
        answer = await letters(question)
        if isinstance(answer, Answer):
            await journal.post(run_id, AnswerLetter.of(question.id, answer, key).model_dump_json().encode())


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
    """

    def __init__(self, strange: list[str], on_event: Callable[[Event], None]) -> None:
        self._strange = strange
        self._on_event = on_event
        self._ended: dict[str, anyio.Event] = defaultdict(anyio.Event)  # by step

    def see(self, event: Event) -> None:
        """Pass an event on, and note whether a step has ended."""
        self._on_event(event)
        if isinstance(event, _ENDS) and event.state.is_settled:
            self._ended[event.step].set()

    async def attend(self, run: Run, todo: Sequence[_Deed]) -> RunResult:
        """Do the deeds while the run goes on; return its result."""
        left = list(todo)
        while left and not (left[0][0].after or left[0][0].takes):
            await self._do(run, *left.pop(0))  # before anything has begun
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._act, run, left)
            result = await run.result()
            tasks.cancel_scope.cancel()
        return result

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
