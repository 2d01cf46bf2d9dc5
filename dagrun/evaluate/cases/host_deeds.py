"""What the host of a case does to a run while it goes on: it changes the plan or the goal, or cancels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
from pydantic import ValidationError

from dagrun.api.running import start
from dagrun.errors import CasesRefused, ContractError, SpliceRefused, StepNotFound, shorten
from dagrun.evaluate.cases.case_file import HostDeed
from dagrun.model.event import AttemptEnded, Event, Reviewed, StepSettled
from dagrun.model.patch import Patch
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
    begin: Callable[..., AbstractAsyncContextManager[Run]] = start,
    **options: Any,
) -> RunResult:
    """Carry out a plan while its host is busy.

    Args:
        plan: The plan; `None` if a planner writes it.
        deeds: What the host does.
        strange: Is told of each deed that the run has refused, in a sentence.
        on_event: Is told each event.
        begin: Begins the run: `dagrun.start`, or the method of an engine.
        options: Options of the run.

    Raises:
        PlanRefused: The plan has problems.
    """
    ended: dict[str, anyio.Event] = defaultdict(anyio.Event)

    def see(event: Event) -> None:
        on_event(event)
        if isinstance(event, _ENDS) and event.state.is_settled:
            ended[event.step].set()

    todo = list(zip(deeds, patches_of(deeds), strict=True))
    async with begin(plan, on_event=see, **options) as run, anyio.create_task_group() as tasks:

        async def act() -> None:
            for deed, patch in todo:
                if deed.after:
                    await ended[deed.after].wait()
                await anyio.sleep(deed.takes)
                await _do(run, deed, patch, strange)

        while todo and not (todo[0][0].after or todo[0][0].takes):
            await _do(run, *todo.pop(0), strange)  # before anything has begun
        tasks.start_soon(act)
        result = await run.result()
        tasks.cancel_scope.cancel()
    return result


async def _do(run: Run, deed: HostDeed, patch: Patch | None, strange: list[str]) -> None:
    try:
        if patch is not None:
            await run.splice(patch)
        elif deed.goal is not None:
            await run.change_goal(deed.goal)
        else:
            run.cancel(None if deed.cancel == "*" else deed.cancel, deed.reason)
    except (SpliceRefused, ContractError, StepNotFound) as error:
        strange.append(f"the host cannot do what it did: {shorten(str(error))}")
