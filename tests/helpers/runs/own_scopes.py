"""Steps that follow each other in the scope of one worker: what becomes of one must not reach the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Final, TypeAlias

import anyio
from pydantic import AfterValidator

from catching import Parts
from dagrun import Plan, RetryRule, Run, State, Step, start, tool
from dagrun.testing import run_virtual
from graphs import work
from simulation import replaced

ScopeProof: TypeAlias = Callable[..., Iterator[str]]

_ONCE: Final = RetryRule(max_attempts=1)


def _differences(parts: Parts, backend: str, steps: Sequence[Step], tools: Sequence[Any], **ends: str) -> Iterator[str]:
    """What is wrong with how *steps* end; *ends* says how they should."""

    async def main() -> Run:
        with anyio.move_on_after(1000):
            async with start(Plan(steps=tuple(steps)), tools=tools) as running:
                _runs.append(running)
                await running.result()
        return running

    try:
        with replaced(parts):
            found = run_virtual(main, backend=backend).states
    except BaseException as error:  # noqa: BLE001  (a broken runtime ends in any way)
        yield f"the run ended with {type(error).__name__}"
        return
    finally:
        _runs.clear()
    if {id_: str(state) for id_, state in found.items()} != ends:
        yield f"the steps ended as {found}"


# Left open ------------------------------------------------------------------------------------------------------------


@tool(effect="pure")
async def leave_open() -> None:
    """Leave a scope open whose time is over half a second later."""
    anyio.move_on_after(0.5).__enter__()


def left_open(parts: Parts, backend: str = "asyncio") -> Iterator[str]:
    """A step leaves a scope of its own open: it has failed, and the next is not in that scope."""
    steps = Step(id="open", tool="leave_open", retry=_ONCE), Step(id="next", tool="work", args={"seconds": 1})
    yield from _differences(parts, backend, steps, [leave_open, work], open="failed", next="succeeded")


# Told to stop ---------------------------------------------------------------------------------------------------------


def told_to_stop(parts: Parts, backend: str = "asyncio") -> Iterator[str]:
    """A step takes too long, and what goes on without it becomes ready at that very moment."""
    slow = Step(id="slow", tool="work", args={"seconds": 9}, timeout=1, retry=_ONCE, on_failure="default", default=0)
    after = [Step(id=f"after{i}", tool="work", args={"seconds": 1}, depends_on=["slow"], retry=_ONCE) for i in (1, 2)]
    ends = {"slow": "succeeded", "after1": "succeeded", "after2": "succeeded"}
    yield from _differences(parts, backend, [slow, *after], [work], **ends)


# Told too late --------------------------------------------------------------------------------------------------------

_runs: Final[list[Run]] = []
_held: Final[list[Any]] = []


@tool(effect="pure")
async def be_held() -> None:
    """Let somebody hold on to what stops this step."""
    _held[:] = [_runs[-1]._scheduler.running["first"]]


@tool(effect="pure")
async def tell() -> None:
    """Tell the first step to stop, which has ended, and wait."""
    _held.pop().tell_to_stop(State.CANCELLED, "too late", 1.0)
    await anyio.sleep(1)


def told_too_late(parts: Parts, backend: str = "asyncio") -> Iterator[str]:
    """Whoever still holds on to a step that has ended tells it to stop."""
    steps = Step(id="first", tool="be_held"), Step(id="next", tool="tell", depends_on=["first"], retry=_ONCE)
    yield from _differences(parts, backend, steps, [be_held, tell], first="succeeded", next="succeeded")


# Told before it is called ---------------------------------------------------------------------------------------------


def _stop_and_refuse(value: str) -> str:
    """A validator of the host that ends the step whose argument it looks at, and does not like it either."""
    if _runs:
        _runs[-1].cancel("fussy", reason="enough")
        raise ValueError("not this one")
    return value


@tool(effect="pure")
async def gives() -> str:
    """Give a text."""
    return "x"


@tool(effect="pure")
async def takes(text: Annotated[str, AfterValidator(_stop_and_refuse)]) -> str:
    """Take a text that its validator agrees to."""
    return text


def told_before_its_call(parts: Parts, backend: str = "asyncio") -> Iterator[str]:
    """A step is told to stop while its arguments are looked at, and its tool is never called."""
    steps = (
        Step(id="gives", tool="gives"),
        Step(id="fussy", tool="takes", args={"text": "${gives}"}, retry=_ONCE),
        Step(id="next", tool="work", args={"seconds": 1}, depends_on=["gives"], retry=_ONCE),
    )
    ends = {"gives": "succeeded", "fussy": "cancelled", "next": "succeeded"}
    yield from _differences(parts, backend, steps, [gives, takes, work], **ends)


PROOFS: Final[tuple[ScopeProof, ...]] = (left_open, told_to_stop, told_too_late, told_before_its_call)
